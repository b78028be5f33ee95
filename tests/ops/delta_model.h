/* A literal model of the delta rule's contract, for its tests: one sequence's inputs and all that must come of them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef TPW_TESTS_DELTA_MODEL_H
#define TPW_TESTS_DELTA_MODEL_H

#include "ops_test.h"

typedef struct shape {
    int hk, hv, dk, dv;
    tpw_dtype act;
} shape;

/* Inputs of one sequence, and what the model of the contract makes of them. */
typedef struct tape {
    shape s;
    int n;
    float *q, *k, *v, *decay, *beta; /* v holds act values */
    float *o, *u;                    /* model: act values of o, F32 u */
    float *S;                        /* model: S at 0, 16, 32, ... */
} tape;

static inline int below(ops_random *seed, int n)
{
    return (int)(ops_next(seed) % (uint64_t)n);
}

static inline float to_act(float x, tpw_dtype act)
{
    return act == TPW_BF16 ? tpw_bf16_to_f32(tpw_bf16_from_f32(x)) : x;
}

static inline float *floats(size_t n)
{
    float *p = calloc(n ? n : 1, sizeof *p);
    cr_assert_not_null(p);
    return p;
}

static inline size_t state_floats(shape s)
{
    return (size_t)s.hv * (size_t)s.dk * (size_t)s.dv;
}

static inline float model_dot(const float *a, const float *b, int n)
{
    float l[16] = {0};
    for (int i = 0; i < (n + 15) / 16 * 16; i++)
        l[i % 16] = fmaf(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, l[i % 16]);
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            l[i] = l[i] + l[i + w];
    return l[0];
}

/* One value head through the whole tape, written from the contract, a column at a time. */
static inline void model_head(tape *t, int h)
{
    shape s = t->s;
    int kh = h / (s.hv / s.hk), qs = s.hk * s.dk, vs = s.hv * s.dv;
    float E[16] = {0}, P = 0.0f, a[16], c[16];
    for (int p = 0; p < t->n; p++) {
        int i = p % 16, base = p - i;
        const float *k = t->k + (size_t)p * qs + kh * s.dk, *q = t->q + (size_t)p * qs + kh * s.dk;
        const float *S = t->S + (size_t)(p / 16) * state_floats(s) + (size_t)h * s.dk * s.dv;
        float d = t->decay[p * s.hv + h];
        for (int j = 0; j < i; j++)
            E[j] *= d;
        E[i] = 1.0f;
        P = i ? P * d : d;
        for (int j = 0; j <= i; j++) {
            const float *kj = t->k + (size_t)(base + j) * qs + kh * s.dk;
            a[j] = E[j] * model_dot(k, kj, s.dk);
            c[j] = E[j] * model_dot(q, kj, s.dk);
        }
        for (int x = 0; x < s.dv; x++) {
            float kS = 0.0f, qS = 0.0f;
            float *u = t->u + h * s.dv + x; /* of token m at u[m * vs] */
            for (int r = 0; r < s.dk; r++) {
                kS = fmaf(S[r * s.dv + x], k[r], kS);
                qS = fmaf(S[r * s.dv + x], q[r], qS);
            }
            float guess = P * kS, o = P * qS;
            for (int j = 0; j < i; j++)
                guess = fmaf(a[j], u[(size_t)(base + j) * vs], guess);
            u[(size_t)p * vs] = t->beta[p * s.hv + h] * (t->v[(size_t)p * vs + h * s.dv + x] - guess);
            for (int j = 0; j <= i; j++)
                o = fmaf(c[j], u[(size_t)(base + j) * vs], o);
            t->o[(size_t)p * vs + h * s.dv + x] = to_act(o, s.act);
        }
        for (int rx = 0; i == 15 && rx < s.dk * s.dv; rx++) {
            float z = P * S[rx];
            for (int j = 0; j < 16; j++)
                z = fmaf(E[j] * t->k[(size_t)(base + j) * qs + kh * s.dk + rx / s.dv],
                         t->u[(size_t)(base + j) * vs + h * s.dv + rx % s.dv], z);
            ((float *)S)[state_floats(s) + (size_t)rx] = z;
        }
    }
}

static inline tape tape_alloc(shape s, int n)
{
    size_t rows = (size_t)n, keys = rows * (size_t)(s.hk * s.dk), values = rows * (size_t)(s.hv * s.dv),
           heads = rows * (size_t)s.hv;
    return (tape){s,
                  n,
                  floats(keys),
                  floats(keys),
                  floats(values),
                  floats(heads),
                  floats(heads),
                  floats(values),
                  floats(values),
                  floats((rows / 16 + 1) * state_floats(s))};
}

static inline void tape_free(tape *t)
{
    float *all[] = {t->q, t->k, t->v, t->decay, t->beta, t->o, t->u, t->S};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* Unit keys, scaled queries; decays from every regime: none, weak, strong, e^-50 and exactly 0. */
static inline void tape_fill(tape *t, uint64_t start)
{
    ops_random seed = {start};
    shape s = t->s;
    for (int i = 0; i < t->n * s.hk; i++) {
        float nq = 1e-6f, nk = 1e-6f;
        for (int d = 0; d < s.dk; d++) {
            float *q = t->q + (size_t)i * s.dk + d, *k = t->k + (size_t)i * s.dk + d;
            *q = ops_uniform(&seed), *k = ops_uniform(&seed) + 0.3f;
            nq += *q * *q, nk += *k * *k;
        }
        for (int d = 0; d < s.dk; d++) {
            t->q[(size_t)i * s.dk + d] /= sqrtf(nq) * sqrtf((float)s.dk);
            t->k[(size_t)i * s.dk + d] /= sqrtf(nk);
        }
    }
    for (int i = 0; i < t->n * s.hv * s.dv; i++)
        t->v[i] = to_act(2.0f * ops_uniform(&seed), s.act);
    const float special[] = {expf(-50.0f), 0.0f, 1.0f, 1.0f, 1.0f, 1.0f};
    for (int i = 0; i < t->n * s.hv; i++) {
        int kind = below(&seed, 40);
        float r = 0.5f + 0.5f * ops_uniform(&seed);
        t->decay[i] = kind < 6 ? special[kind] : expf(kind < 20 ? -0.01f * r : -0.7f * r);
        t->beta[i] = 0.5f + 0.49f * ops_uniform(&seed);
    }
}

static inline tape tape_make(shape s, int n, uint64_t seed)
{
    tape t = tape_alloc(s, n);
    tape_fill(&t, seed);
    for (int h = 0; h < s.hv; h++)
        model_head(&t, h);
    return t;
}

#endif
