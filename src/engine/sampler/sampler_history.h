/* SPDX-License-Identifier: Apache-2.0
 * What a text has said already, and how that lowers the logits of what it would say again.
 *
 *   repetition   prompt and generated tokens: a logit above 0 is divided by it, others multiplied
 *   presence     generated tokens: subtracted once
 *   frequency    generated tokens: subtracted for each time they occur
 *   DRY          a token that would go on with a repetition: if the last n tokens of the text, n >=
 *                allowed_length, stand somewhere before it, what followed there loses multiplier *
 *                base^(n - allowed_length), the longest such n counting. No repetition goes across the
 *                place where a breaker string ends.
 *
 * penalty_last_n and dry_last_n say how many of the last tokens are looked at. */
#ifndef BN_ENGINE_SAMPLER_SAMPLER_HISTORY_H
#define BN_ENGINE_SAMPLER_SAMPLER_HISTORY_H

#include "text/tokenizer/tokenizer.h"

enum { BN_MAX_DRY_BREAKERS = 32, BN_MAX_DRY_BREAKER_BYTES = 40 };

bool bn_penalties_on(const bitnet_sampling *s);
bitnet_status bn_penalties_check(const bitnet_sampling *s, bitnet_error *err);

struct bn_history;

/* limit: tokens of prompt and generated tokens together. The tokenizer must outlive it; NULL: no breakers. */
bitnet_status bn_history_open(struct bn_history **out, const bitnet_sampling *s, uint32_t n_vocab,
                              const struct bn_tokenizer *t, const int32_t *prompt,
                              uint32_t n_prompt, uint32_t limit, bitnet_error *err);
void bn_history_close(struct bn_history *h); /* NULL is fine */
void bn_history_push(struct bn_history *h, int32_t token);
/* Changes the logits of tokens that the text has. Finite ones stay finite. No allocation; costs what
 * the text is long. */
void bn_history_penalise(struct bn_history *h, float *logits);

#endif
