/* A backing for tests: counts, fails when told, poisons what is given back, and hands out addresses that nobody may touch or
 * real memory. SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TEST_FAKE_BACKING_H
#define TPW_TEST_FAKE_BACKING_H

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "graph/backing.h"

#define FAKE_LIVE_MAX 4096

typedef struct fake_region {
    uintptr_t at;
    size_t bytes;
    tpw_place place;
} fake_region;

typedef struct fake {
    bool real[TPW_PLACES]; /* memory that can be read; else addresses only */
    fake_region live[FAKE_LIVE_MAX];
    size_t count;
    uintptr_t next;     /* fresh addresses */
    fake_region parted; /* given back last: the next alloc of this size gets it again */
    uint64_t calls;     /* of alloc and fill */
    uint64_t fail_at;   /* the call that fails, 1 the first; 0: none */
    bool fail_on;       /* and all after it */
    uint64_t allocs, frees, fills;
    void (*on_free)(void *data, const fake_region *region);
    void *on_free_data;
} fake;

static inline void fake_init(fake *f, bool real)
{
    memset(f, 0, sizeof *f);
    f->real[TPW_PLACE_DEVICE] = f->real[TPW_PLACE_HOST] = real;
    f->next = (uintptr_t)1 << 44;
}

static inline bool fake_fails(fake *f)
{
    f->calls++;
    return f->fail_at != 0 && (f->calls == f->fail_at || (f->fail_on && f->calls > f->fail_at));
}

static inline tpw_status fake_alloc(fake *f, tpw_place place, size_t bytes, void **out, tpw_error *err)
{
    fake_region region = {.bytes = bytes, .place = place};

    if (fake_fails(f))
        return tpw_fail(err, TPW_ERR_MEMORY, "fake: call %llu fails", (unsigned long long)f->calls);
    if (f->count == FAKE_LIVE_MAX)
        cr_assert_fail("the fake holds %d regions", FAKE_LIVE_MAX);
    if (f->real[place]) {
        void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
        if (data == NULL)
            cr_assert_fail("no memory for the test");
        memset(data, 0, bytes);
        region.at = (uintptr_t)data;
    } else if (f->parted.bytes == bytes && f->parted.place == place) {
        region.at = f->parted.at;
        f->parted.bytes = 0;
    } else {
        region.at = f->next;
        f->next += (bytes + 255) / 256 * 256;
    }
    f->live[f->count++] = region;
    f->allocs++;
    *out = (void *)region.at;
    return TPW_OK;
}

static inline void fake_free(fake *f, tpw_place place, void *block)
{
    size_t i = 0;

    while (i < f->count && f->live[i].at != (uintptr_t)block)
        i++;
    if (i == f->count)
        cr_assert_fail("the pool gave back %p, which the backing does not have", block);
    if (f->live[i].place != place)
        cr_assert_fail("the pool gave back %p to the wrong place", block);
    if (f->on_free != NULL)
        f->on_free(f->on_free_data, &f->live[i]);
    if (f->real[place]) {
        memset(block, 0xDD, f->live[i].bytes);
        free(block);
    }
    f->parted = f->live[i];
    f->live[i] = f->live[--f->count];
    f->frees++;
}

static inline tpw_status fake_alloc_device(void *data, size_t bytes, void **out, tpw_error *err)
{
    return fake_alloc(data, TPW_PLACE_DEVICE, bytes, out, err);
}

static inline tpw_status fake_alloc_host(void *data, size_t bytes, void **out, tpw_error *err)
{
    return fake_alloc(data, TPW_PLACE_HOST, bytes, out, err);
}

static inline void fake_free_device(void *data, void *block)
{
    fake_free(data, TPW_PLACE_DEVICE, block);
}

static inline void fake_free_host(void *data, void *block)
{
    fake_free(data, TPW_PLACE_HOST, block);
}

/* Only whole live regions may be filled. */
static inline tpw_status fake_fill(void *data, void *to, int byte, size_t bytes, tpw_error *err)
{
    fake *f = data;
    size_t i = 0;

    if (fake_fails(f))
        return tpw_fail(err, TPW_ERR_DEVICE, "fake: call %llu fails", (unsigned long long)f->calls);
    while (i < f->count && f->live[i].at != (uintptr_t)to)
        i++;
    if (i == f->count || f->live[i].bytes != bytes || f->live[i].place != TPW_PLACE_DEVICE)
        cr_assert_fail("%zu bytes at %p were filled, which is no device block", bytes, to);
    if (f->real[TPW_PLACE_DEVICE])
        memset(to, byte, bytes);
    f->fills++;
    return TPW_OK;
}

static inline tpw_backing fake_backing(fake *f)
{
    return (tpw_backing){.data = f,
                         .alloc_device = fake_alloc_device,
                         .free_device = fake_free_device,
                         .fill_device = fake_fill,
                         .alloc_host = fake_alloc_host,
                         .free_host = fake_free_host};
}

#endif
