/* Tests of the digests of state at rest: every live element counts, no dead one does, and what is written anew is noted.
 *
 * A small state without a worker. What a step would write is written at random by hand. SPDX-License-Identifier: Apache-2.0 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "base/digest.h"
#include "kernels/host/host.h"
#include "worker/carry.h"

#define SLOTS     2
#define PAGES     7
#define PAGE_SIZE 8
#define LAYERS    3
#define TAPS      3

typedef struct world {
    tpw_config config;
    tpw_partition part;
    tpw_exec *exec;
    tpw_pool *pool;
    tpw_state *state;
    tpw_carry carry;
    uint64_t random;
} world;

static uint64_t next(world *w)
{
    return tpw_digest_fin(w->random += 0x9E3779B97F4A7C15ull);
}

static void scribble(world *w, void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        ((unsigned char *)at)[i] = (unsigned char)next(w);
}

static void open_world(world *w, tpw_dtype act)
{
    const tpw_state_limits limits = {.slots = SLOTS, .pages = PAGES, .page_size = PAGE_SIZE, .act = act};
    tpw_backing backing;
    tpw_error err = {0};

    memset(w, 0, sizeof *w);
    w->config = (tpw_config){.hidden = 16,
                             .intermediate = 16,
                             .layers = LAYERS,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 4,
                             .rope_dim = 2,
                             .linear_k_heads = 1,
                             .linear_v_heads = 3,
                             .linear_k_dim = 4,
                             .linear_v_dim = 2,
                             .conv_width = TAPS + 1,
                             .vocab = 32};
    w->config.kind[1] = TPW_LAYER_ATTENTION;
    cr_assert_eq(tpw_host_create("baseline", &w->exec, &err), TPW_OK, "%s", err.text);
    backing = tpw_backing_of(w->exec);
    cr_assert_eq(tpw_pool_create(&backing, false, &w->pool, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_partition_make(&w->config, 0, 1, &w->part, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_state_create(&w->config, &w->part, &limits, w->exec, w->pool, &w->state, &err), TPW_OK, "%s",
                 err.text);
    cr_assert_eq(tpw_carry_init(&w->carry, w->state, &err), TPW_OK, "%s", err.text);
    scribble(w, w->state->arena.base, w->state->arena.used);
}

static void close_world(world *w)
{
    tpw_carry_fini(&w->carry);
    tpw_state_destroy(w->state);
    cr_assert_eq(tpw_pool_destroy(w->pool, NULL), TPW_OK);
    tpw_host_destroy(w->exec);
}

/* One array of the state, cut into slots or pages and, inside, into places by position. */
typedef struct array {
    const char *scope;
    int32_t layer;
    char *data;
    size_t element;
    int64_t owners; /* slots or pages, the zero one included */
    int64_t places; /* ring or page positions of one owner; 1: all in one */
    int64_t each;   /* elements of a place */
    int part;       /* 0 S, 1 rows, 2 conv, 3 kv */
} array;

/* A page is cut into heads first: each head of each page is an owner's part of its own. */
static int list_arrays(const world *w, array *out)
{
    int n = 0;

    for (int32_t i = 0; i < LAYERS; i++) {
        const tpw_layer_state *l = &w->state->layers[i];
        size_t act = tpw_dtype_size(w->state->limits.act);

        if (i == 1) {
            for (int k = 0; k < 2; k++)
                out[n++] = (array){"kv", i, k == 0 ? l->kv.k : l->kv.v, act, (PAGES + 1) * 2, PAGE_SIZE, 4, 3};
            continue;
        }
        out[n++] = (array){"recurrent", i, (char *)l->gdn.S, 4, SLOTS + 1, 1, 3 * 4 * 2, 0};
        out[n++] = (array){"recurrent", i, (char *)l->gdn.k, 4, SLOTS + 1, 32, 1 * 4, 1};
        out[n++] = (array){"recurrent", i, (char *)l->gdn.u, 4, SLOTS + 1, 32, 3 * 2, 1};
        out[n++] = (array){"recurrent", i, (char *)l->gdn.decay, 4, SLOTS + 1, 32, 3, 1};
        out[n++] = (array){"conv", i, l->conv.x, act, SLOTS + 1, 16, 4 + 4 + 6, 2};
    }
    return n;
}

/* Does the sequence's future depend on this element? By the documented layout alone. */
static bool is_live(const array *a, const tpw_sequence *s, int64_t owner, int64_t place)
{
    int64_t first = a->part == 1 ? s->pos / 16 * 16 : a->part == 2 ? s->pos - TAPS : 0;

    if (a->part == 0)
        return owner == s->slot;
    for (int64_t p = first < 0 ? 0 : first; p < s->pos; p++)
        if (a->part == 3 ? owner / 2 == s->pages[p / PAGE_SIZE] && place == p % PAGE_SIZE
                         : owner == s->slot && place == p % a->places)
            return true;
    return false;
}

/* Writes what a step leaves behind that moves the mark to `pos`: all places of the new positions, and S behind a multiple of 16. */
static void advance(world *w, tpw_sequence *s, int64_t pos)
{
    int64_t before = s->pos;
    tpw_error err = {0};
    array arrays[12];
    int count = list_arrays(w, arrays);

    s->pos = pos;
    for (int i = 0; i < count; i++) {
        const array *a = &arrays[i];
        size_t bytes = (size_t)a->each * a->element;

        if (a->part == 0 && pos / 16 != before / 16)
            scribble(w, a->data + (size_t)s->slot * bytes, bytes);
        for (int64_t p = before; a->part != 0 && p < pos; p++)
            for (int64_t half = 0; half < (a->part == 3 ? 2 : 1); half++) {
                int64_t owner = a->part == 3 ? s->pages[p / PAGE_SIZE] * 2 + half : s->slot;

                scribble(w, a->data + (size_t)(owner * a->places + p % a->places) * bytes, bytes);
            }
    }
    cr_assert_eq(tpw_carry_note(&w->carry, s, before, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_carry_flush(&w->carry, &err), TPW_OK, "%s", err.text);
    cr_assert_eq(tpw_carry_check(&w->carry, s, &err), TPW_OK, "position %d: %s", (int)pos, err.text);
}

/* One bit of every element of the whole state: found if live, and named; not looked at if dead. Returns the live ones. */
static int64_t flip_all(world *w, const tpw_sequence *s)
{
    array arrays[12];
    int count = list_arrays(w, arrays);
    int64_t live = 0;

    for (int i = 0; i < count; i++) {
        const array *a = &arrays[i];

        for (int64_t at = 0; at < a->owners * a->places * a->each; at++) {
            bool counts = is_live(a, s, at / (a->places * a->each), at / a->each % a->places);
            unsigned char *byte = (unsigned char *)a->data + (size_t)at * a->element + next(w) % a->element;
            unsigned char mask = (unsigned char)(1u << next(w) % 8);
            tpw_error err = {0};
            char named[64];
            tpw_status st, part;

            *byte ^= mask;
            st = tpw_carry_check(&w->carry, s, &err);
            (void)snprintf(named, sizeof named, "%s state of layer %d in slot %d changed at rest: sequence 9,",
                           a->scope, a->layer, s->slot);
            cr_assert_eq(st, counts ? TPW_ERR_DIVERGED : TPW_OK, "position %d, %s.%d part %d, element %d: %s",
                         (int)s->pos, a->scope, a->layer, a->part, (int)at, tpw_status_name(st));
            cr_assert(!counts || strstr(err.text, named) == err.text, "%s", err.text);
            part = tpw_carry_check_recurrent(&w->carry, s, &err);
            cr_assert_eq(part, counts && a->part < 2 ? TPW_ERR_DIVERGED : TPW_OK, "%s.%d alone", a->scope, a->layer);
            *byte ^= mask;
            live += counts;
        }
    }
    return live;
}

static void every_element(tpw_dtype act)
{
    static const int64_t marks[] = {1, 2, 7, 10, 15, 16, 17, 31, 40, 49};
    int32_t pages[] = {5, 2, 7, 1, 3, 6, 4};
    tpw_sequence s = {.id = 9, .slot = 2, .pages = pages, .page_count = 7};
    tpw_error err = {0};
    world w;

    open_world(&w, act);
    cr_assert_eq(tpw_carry_check(&w.carry, &s, &err), TPW_OK, "nothing is committed yet: %s", err.text);
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        int64_t pos = marks[i], taps = pos < TAPS ? pos : TAPS, expected;

        advance(&w, &s, pos);
        /* two recurrent layers: S, rows of k, u, decay, conv inputs; one attention layer: K and V of two heads of four */
        expected = 2 * (24 + (pos % 16) * (4 + 6 + 3) + taps * 14) + pos * 2 * 2 * 4;
        cr_assert_eq(flip_all(&w, &s), expected, "position %d", (int)pos);
    }
    close_world(&w);
}

Test(carry, every_live_element_and_no_other_bf16)
{
    every_element(TPW_BF16);
}

Test(carry, every_live_element_and_no_other_f32)
{
    every_element(TPW_F32);
}

/* Slots and pages of one that has gone, given to another; and two at once do not disturb each other. */
Test(carry, owners_change)
{
    int32_t pages_a[] = {1, 2, 3, 4}, pages_b[] = {5, 6, 7}, pages_c[] = {4, 2, 1};
    tpw_sequence a = {.id = 1, .slot = 1, .pages = pages_a}, b = {.id = 9, .slot = 2, .pages = pages_b};
    tpw_sequence c = {.id = 9, .slot = 1, .pages = pages_c};
    tpw_error err = {0};
    world w;

    open_world(&w, TPW_BF16);
    advance(&w, &a, 13);
    advance(&w, &b, 5);
    advance(&w, &a, 27);
    cr_assert_eq(tpw_carry_check(&w.carry, &b, &err), TPW_OK, "%s", err.text);
    advance(&w, &b, 24);
    cr_assert_eq(tpw_carry_check(&w.carry, &a, &err), TPW_OK, "%s", err.text);
    advance(&w, &c, 3); /* a has ended */
    (void)flip_all(&w, &c);
    advance(&w, &c, 20);
    (void)flip_all(&w, &c);
    cr_assert_eq(tpw_carry_check(&w.carry, &b, &err), TPW_OK, "%s", err.text);
    (void)flip_all(&w, &b);
    close_world(&w);
}

/* A long prompt in one step: only what is still there is noted. */
Test(carry, one_long_step)
{
    int32_t pages[] = {7, 6, 5, 4, 3, 2, 1};
    tpw_sequence s = {.id = 9, .slot = 1, .pages = pages};
    world w;

    open_world(&w, TPW_F32);
    advance(&w, &s, 53);
    cr_assert_eq(flip_all(&w, &s), 2 * (24 + 5 * 13 + 3 * 14) + 53 * 16);
    close_world(&w);
}

/* Values that trade places are a change too. */
Test(carry, exchanged_elements)
{
    int32_t pages[] = {1, 2, 3};
    tpw_sequence s = {.id = 9, .slot = 1, .pages = pages};
    tpw_error err = {0};
    world w;
    float *S, kept;

    open_world(&w, TPW_BF16);
    advance(&w, &s, 20);
    S = w.state->layers[0].gdn.S + 24; /* slot 1 */
    for (int i = 0; i < 23; i++) {
        kept = S[i];
        cr_assert_neq(memcmp(&S[i], &S[i + 1], sizeof kept), 0);
        S[i] = S[i + 1];
        S[i + 1] = kept;
        cr_assert_eq(tpw_carry_check(&w.carry, &s, &err), TPW_ERR_DIVERGED, "elements %d and %d", i, i + 1);
        kept = S[i];
        S[i] = S[i + 1];
        S[i + 1] = kept;
    }
    cr_assert_eq(tpw_carry_check(&w.carry, &s, &err), TPW_OK, "%s", err.text);
    close_world(&w);
}
