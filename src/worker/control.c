/* Writes and reads the control record of a step. SPDX-License-Identifier: Apache-2.0 */
#include "worker/control.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { ENTRY_ADMIT = 1, ENTRY_CANCEL = 2 };

/* What precedes the ids of an entry; 8-byte multiples keep the ids of every entry aligned. */
typedef struct entry_head {
    uint32_t type;
    uint32_t flags; /* 1: ignore_eos */
    uint64_t id;
    int32_t count;
    int32_t max_tokens;
} entry_head;

static size_t ids_bytes(int32_t count)
{
    return ((size_t)count * sizeof(int32_t) + 7) / 8 * 8;
}

static tpw_status append(tpw_control *c, const entry_head *head, const int32_t *ids, tpw_error *err)
{
    size_t need = sizeof *head + ids_bytes(head->count), end;
    unsigned char *grown;

    if (!tpw_add_size(c->bytes, need, &end))
        return tpw_fail(err, TPW_ERR_LIMIT, "too many requests for one step");
    if (end > c->capacity) {
        size_t capacity = end < 4096 ? 4096 : end * 2;

        grown = realloc(c->data, capacity);
        if (grown == NULL)
            return tpw_fail(err, TPW_ERR_MEMORY, "no memory for a request of %d tokens", head->count);
        c->data = grown;
        c->capacity = capacity;
    }
    memset(c->data + c->bytes, 0, need);
    memcpy(c->data + c->bytes, head, sizeof *head);
    if (ids != NULL && head->count > 0)
        memcpy(c->data + c->bytes + sizeof *head, ids, (size_t)head->count * sizeof *ids);
    c->bytes = end;
    c->entries++;
    return TPW_OK;
}

tpw_status tpw_control_add_admit(tpw_control *control, const tpw_request *request, tpw_error *err)
{
    const entry_head head = {.type = ENTRY_ADMIT,
                             .flags = request->ignore_eos ? 1 : 0,
                             .id = request->id,
                             .count = request->count,
                             .max_tokens = request->max_tokens};

    return append(control, &head, request->ids, err);
}

tpw_status tpw_control_add_cancel(tpw_control *control, uint64_t id, tpw_error *err)
{
    const entry_head head = {.type = ENTRY_CANCEL, .id = id};

    return append(control, &head, NULL, err);
}

void tpw_control_clear(tpw_control *control)
{
    control->bytes = 0;
    control->entries = 0;
    control->stop = false;
}

void tpw_control_fini(tpw_control *control)
{
    free(control->data);
    *control = (tpw_control){0};
}

tpw_control_head tpw_control_make_head(const tpw_control *control, int64_t step)
{
    return (tpw_control_head){.magic = TPW_CONTROL_MAGIC,
                              .version = TPW_CONTROL_VERSION,
                              .step = step,
                              .bytes = control->bytes,
                              .entries = control->entries,
                              .stop = control->stop};
}

tpw_status tpw_control_check_head(const tpw_control_head *head, int64_t step, tpw_error *err)
{
    if (head->magic != TPW_CONTROL_MAGIC || head->version != TPW_CONTROL_VERSION)
        return tpw_fail(err, TPW_ERR_DIVERGED,
                        "rank 0 sent a control record of another version: use one build on all ranks");
    if (head->step != step)
        return tpw_fail(err, TPW_ERR_DIVERGED,
                        "rank 0 is at step %lld, this rank at step %lld: step calls were not collective",
                        (long long)head->step, (long long)step);
    return TPW_OK;
}

tpw_status tpw_control_next(const unsigned char *data, size_t bytes, size_t *offset, tpw_control_entry *out,
                            tpw_error *err)
{
    entry_head head;

    if (*offset > bytes || bytes - *offset < sizeof head)
        return tpw_fail(err, TPW_ERR_INTERNAL, "control record is cut after %zu bytes", *offset);
    memcpy(&head, data + *offset, sizeof head);
    *offset += sizeof head;
    if ((head.type != ENTRY_ADMIT && head.type != ENTRY_CANCEL) || head.count < 0 ||
        (head.type == ENTRY_CANCEL && head.count != 0) || bytes - *offset < ids_bytes(head.count))
        return tpw_fail(err, TPW_ERR_INTERNAL, "control record is malformed at byte %zu", *offset);
    *out = (tpw_control_entry){.cancel = head.type == ENTRY_CANCEL,
                               .id = head.id,
                               .request = {.size = sizeof(tpw_request),
                                           .id = head.id,
                                           .ids = (const int32_t *)(data + *offset),
                                           .count = head.count,
                                           .max_tokens = head.max_tokens,
                                           .ignore_eos = (head.flags & 1u) != 0}};
    *offset += ids_bytes(head.count);
    return TPW_OK;
}
