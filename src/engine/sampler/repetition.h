/* SPDX-License-Identifier: Apache-2.0
 * How much a generated text repeats itself: the share of its 3-grams (three tokens in a row) that stood in it
 * before. One look into a table a token; exact, since tokens are compared, not only their hashes. */
#ifndef BN_ENGINE_SAMPLER_REPETITION_H
#define BN_ENGINE_SAMPLER_REPETITION_H

#include "base/status.h"

enum { BN_REPETITION_GRAM = 3 };

struct bn_repetition {
    uint32_t *table; /* [mask + 1] where a 3-gram stood first, plus 1; 0: empty */
    uint32_t mask;
    uint32_t n_grams, n_repeated;
};

/* For texts of up to n tokens. */
bitnet_status bn_repetition_open(struct bn_repetition *r, uint32_t n, bitnet_error *err);
void bn_repetition_close(struct bn_repetition *r);
/* The text has n tokens now, one more than before. */
void bn_repetition_push(struct bn_repetition *r, const int32_t *tokens, uint32_t n);
/* 0 as long as there is no 3-gram. */
double bn_repetition_score(const struct bn_repetition *r);

#endif
