/* Writes safetensors files from a header's text, good or bad, for tests. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_SAFETENSORS_FILES_H
#define TPW_TESTS_SAFETENSORS_FILES_H

#include <stdint.h>

#include "temp_folder.h"

/* Length, header and a payload whose byte i is payload[i], or a pattern without E4M3 NaNs when payload is NULL. The file
 * claims `claimed` header bytes. Returns the bytes written; *image is the caller's to free when not NULL. */
static inline size_t write_claimed(temp_folder *temp, const char *name, const char *header, size_t header_bytes,
                                   uint64_t claimed, const void *payload, size_t payload_bytes, unsigned char **image)
{
    size_t bytes = 8 + header_bytes + payload_bytes;
    unsigned char *all = malloc(bytes);
    for (int i = 0; i < 8; i++)
        all[i] = (unsigned char)(claimed >> (8 * i));
    memcpy(all + 8, header, header_bytes);
    for (size_t i = 0; i < payload_bytes; i++)
        all[8 + header_bytes + i] = payload ? ((const unsigned char *)payload)[i] : (unsigned char)(i * 7 % 120);
    temp_write(temp, name, all, bytes);
    if (image)
        *image = all;
    else
        free(all);
    return bytes;
}

static inline size_t write_file(temp_folder *temp, const char *name, const char *header, const void *payload,
                                size_t payload_bytes)
{
    return write_claimed(temp, name, header, strlen(header), strlen(header), payload, payload_bytes, NULL);
}

#endif
