/* Where the pool's memory comes from: device memory and pinned host memory, as a small table.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_GRAPH_BACKING_H
#define TPW_GRAPH_BACKING_H

#include <stddef.h>

#include "kernels/ops.h"

typedef enum tpw_place { TPW_PLACE_DEVICE, TPW_PLACE_HOST } tpw_place;
#define TPW_PLACES 2

/* alloc gives zeroed memory, aligned to 256 bytes; ERR_MEMORY when there is none left. free takes what alloc gave, never NULL.
 * fill is for device memory and complete on return. A backing without host memory has NULL in both of its fields. */
typedef struct tpw_backing {
    void *data; /* passed to every function; borrowed */
    tpw_status (*alloc_device)(void *data, size_t bytes, void **out, tpw_error *err);
    void (*free_device)(void *data, void *block);
    tpw_status (*fill_device)(void *data, void *to, int byte, size_t bytes, tpw_error *err);
    tpw_status (*alloc_host)(void *data, size_t bytes, void **out, tpw_error *err);
    void (*free_host)(void *data, void *block);
} tpw_backing;

/* The memory of an exec, which must outlive the backing. Device memory through its device table. For the host backend plain memory
 * is as good as pinned; for others it comes from the table's alloc_host, and without one the host fields are NULL. Local. */
tpw_backing tpw_backing_of(const tpw_exec *exec);

#endif
