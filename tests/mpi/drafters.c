/* Drafters for tests. SPDX-License-Identifier: Apache-2.0 */
#include "drafters.h"

#include <criterion/criterion.h>
#include <string.h>

#include "base/digest.h"

const char *drafter_name(drafter_kind kind)
{
    const char *names[] = {"mtp", "random", "wrong", "oracle", "pattern"};

    return names[kind];
}

int32_t drafter_patterns(int32_t k)
{
    return k <= PATTERN_K_MAX ? 1 << k : k + 1;
}

/* Bit j of the pattern tells whether draft j is right. */
static uint32_t pattern_bits(int32_t k, int32_t pattern)
{
    return k <= PATTERN_K_MAX ? (uint32_t)pattern : (1u << pattern) - 1;
}

static int32_t choose_pattern(drafter *d, uint64_t id, int32_t position)
{
    int32_t n = drafter_patterns(d->k), best = (int32_t)(id % (uint64_t)n);

    for (int32_t i = 0; d->choice == PATTERN_LEAST_USED && i < n; i++)
        if (d->used[i][position % 16] < d->used[best][position % 16])
            best = i;
    return best;
}

static int32_t true_token(const drafter *d, uint64_t id, int32_t at)
{
    const truth *t = d->truth;
    int32_t i = at - t->lengths[id];

    cr_assert(id < CELL_PROMPTS_MAX && i >= 0 && i < t->count[id], "asked for token %d of sequence %llu", at,
              (unsigned long long)id);
    return t->tokens[id][i];
}

static int32_t hashed(uint64_t id, int32_t position, int32_t vocab)
{
    return (int32_t)(tpw_digest_term(4711, id, (uint64_t)position) % (uint64_t)vocab);
}

static uint32_t bits_of(drafter *d, uint64_t id, int32_t position, int32_t k)
{
    int32_t pattern;

    if (d->kind != DRAFTER_PATTERN)
        return d->kind == DRAFTER_ORACLE ? UINT32_MAX : 0;
    pattern = choose_pattern(d, id, position);
    if (k == d->k)
        d->used[pattern][position % 16]++;
    return pattern_bits(d->k, pattern);
}

int32_t drafter_propose(void *data, uint64_t id, const int32_t *tokens, int32_t count, int32_t k, int32_t *drafts)
{
    drafter *d = data;
    uint32_t bits = bits_of(d, id, count - 1, k);
    int32_t n = k, right = 0;

    cr_assert(tokens != NULL && k >= 1 && k <= d->k);
    if (d->kind == DRAFTER_RANDOM && count % 3 == 0)
        n = hashed(id, -count, k + 1);
    for (int32_t j = 0; j < n; j++) {
        int32_t token = true_token(d, id, count + j);

        if (d->kind == DRAFTER_RANDOM)
            drafts[j] = hashed(id, count + j, d->truth->vocab);
        else
            drafts[j] = bits >> j & 1 ? token : (token + 1) % d->truth->vocab;
        right += right == j && drafts[j] == token;
    }
    d->drafted += n;
    d->right += right;
    d->asked = n;
    d->wrong_at = right;
    memcpy(d->last, drafts, (size_t)n * sizeof *drafts);
    return n;
}

speculation drafter_speculation(drafter *d, int32_t k)
{
    d->k = k;
    return (speculation){
        .k = k, .drafter = k > 0 && d->kind != DRAFTER_MTP ? drafter_propose : NULL, .drafter_data = d, .poison = true};
}

void truth_share(truth *t, const outcome *o, const workload *w, int32_t vocab, MPI_Comm world)
{
    int rank;

    MPI_Comm_rank(world, &rank);
    *t = (truth){.vocab = vocab};
    memcpy(t->lengths, w->lengths, sizeof t->lengths);
    if (rank == 0) {
        memcpy(t->count, o->token_count, sizeof t->count);
        memcpy(t->tokens, o->tokens, sizeof t->tokens);
    }
    MPI_Bcast(t, (int)sizeof *t, MPI_BYTE, 0, world);
}
