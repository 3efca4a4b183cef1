/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/sampler/repetition.h"

#include "base/os/mem.h"
#include "base/rng.h"
#include <stdlib.h>

bitnet_status bn_repetition_open(struct bn_repetition *r, uint32_t n, bitnet_error *err)
{
    size_t room = 2;
    while (room < 2 * (size_t)n) room *= 2; /* at most half full */
    *r = (struct bn_repetition){.mask = (uint32_t)(room - 1)};
    r->table = bn_calloc_now(room, sizeof *r->table);
    return r->table ? BITNET_OK : bn_fail_nomem(err, room * sizeof *r->table, "a request");
}

void bn_repetition_close(struct bn_repetition *r) { free(r->table); }

static uint32_t hash(const int32_t *gram)
{
    uint64_t h = bn_mix64((uint64_t)(uint32_t)gram[0] << 32 | (uint32_t)gram[1]);
    return (uint32_t)bn_mix64(h + (uint32_t)gram[2]);
}

void bn_repetition_push(struct bn_repetition *r, const int32_t *tokens, uint32_t n)
{
    if (n < BN_REPETITION_GRAM) return;
    uint32_t start = n - BN_REPETITION_GRAM;
    const int32_t *gram = tokens + start;
    uint32_t i = hash(gram) & r->mask;
    while (r->table[i] && memcmp(tokens + r->table[i] - 1, gram, BN_REPETITION_GRAM * sizeof *gram))
        i = (i + 1) & r->mask;
    r->n_grams++;
    if (r->table[i]) r->n_repeated++;
    else r->table[i] = start + 1;
}

double bn_repetition_score(const struct bn_repetition *r)
{
    return r->n_grams ? (double)r->n_repeated / r->n_grams : 0;
}
