/* The control record that rank 0 sends at the start of every step: admissions, cancellations, stop. Bytes only, no pointers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_WORKER_CONTROL_H
#define TPW_WORKER_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpworker/worker.h"

#include "base/error.h"

#define TPW_CONTROL_MAGIC   0x43575054u /* "TPWC" */
#define TPW_CONTROL_VERSION 1

/* Fixed head; `bytes` of entries follow in a second message when there are any. */
typedef struct tpw_control_head {
    uint32_t magic;
    uint32_t version;
    int64_t step;
    uint64_t bytes;
    uint32_t entries;
    uint32_t stop; /* 0 or 1 */
} tpw_control_head;

/* Entries under construction on rank 0. Zero-initialise. */
typedef struct tpw_control {
    unsigned char *data;
    size_t bytes;
    size_t capacity;
    uint32_t entries;
    bool stop;
} tpw_control;

tpw_status tpw_control_add_admit(tpw_control *control, const tpw_request *request, tpw_error *err) TPW_MUST_CHECK;
tpw_status tpw_control_add_cancel(tpw_control *control, uint64_t id, tpw_error *err) TPW_MUST_CHECK;
void tpw_control_clear(tpw_control *control); /* keeps the memory */
void tpw_control_fini(tpw_control *control);

/* Head of what is in `control`. Pure. */
tpw_control_head tpw_control_make_head(const tpw_control *control, int64_t step);
/* ERR_DIVERGED when the head is not one of this version or not of this step. Pure. */
tpw_status tpw_control_check_head(const tpw_control_head *head, int64_t step, tpw_error *err) TPW_MUST_CHECK;

/* One decoded entry; request.ids points into the record. */
typedef struct tpw_control_entry {
    bool cancel;
    uint64_t id;         /* cancel */
    tpw_request request; /* admit */
} tpw_control_entry;

/* Decodes the entry at *offset and moves it on. ERR_INTERNAL when the record is cut or malformed; never reads outside. */
tpw_status tpw_control_next(const unsigned char *data, size_t bytes, size_t *offset, tpw_control_entry *out,
                            tpw_error *err) TPW_MUST_CHECK;

#endif
