/* SPDX-License-Identifier: Apache-2.0
 *
 * prompts.h: prompts of any length for measurements, as tokens: text from a place that the seed
 * chooses, after one random token, so that no two prompts begin alike.
 */
#ifndef BN_CLI_OPTIONS_PROMPTS_H
#define BN_CLI_OPTIONS_PROMPTS_H

#include "base/status.h"

struct prompts {
    int32_t *text; /* owned; NULL: a model without a tokenizer has random tokens */
    size_t n_text;
    uint32_t n_vocab;
    uint64_t seed, n_made;
};

void prompts_open(struct prompts *p, const bitnet_model *m, uint64_t seed);
void prompts_make(struct prompts *p, int32_t *tokens, size_t n);
void prompts_close(struct prompts *p);

#endif
