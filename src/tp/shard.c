/* Cuts an axis into the parts of the ranks. Pure. SPDX-License-Identifier: Apache-2.0 */
#include "tp/shard.h"

#include <stddef.h>

static const tpw_span nothing = {.begin = -1, .count = 0};

static bool askable(int32_t total, int rank, int size)
{
    return total >= 0 && size > 0 && rank >= 0 && rank < size;
}

bool tpw_tp_size_ok(int size)
{
    return size == 1 || size == 2 || size == 4 || size == 8;
}

tpw_span tpw_span_even(int32_t total, int rank, int size)
{
    if (!askable(total, rank, size) || total % size != 0)
        return nothing;
    int32_t part = total / size;
    return (tpw_span){.begin = rank * part, .count = part};
}

tpw_span tpw_span_ceil(int32_t total, int rank, int size)
{
    if (!askable(total, rank, size))
        return nothing;
    int64_t part = ((int64_t)total + size - 1) / size; /* 64 bits: part * rank may pass the last element by far */
    int64_t begin = part * rank, end = begin + part;
    if (begin > total)
        begin = total;
    if (end > total)
        end = total;
    return (tpw_span){.begin = (int32_t)begin, .count = (int32_t)(end - begin)};
}

tpw_span tpw_span_heads(int32_t heads, int rank, int size, bool *owner)
{
    tpw_span span = nothing;
    bool owns = false;
    if (askable(heads, rank, size) && heads > 0) {
        if (heads % size == 0) {
            span = tpw_span_even(heads, rank, size);
            owns = true;
        } else if (size % heads == 0) {
            int copies = size / heads;
            span = (tpw_span){.begin = rank / copies, .count = 1};
            owns = rank % copies == 0;
        }
    }
    if (owner != NULL)
        *owner = owns;
    return span;
}
