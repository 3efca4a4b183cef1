/* SPDX-License-Identifier: Apache-2.0
 * Drafted tokens (speculative decoding), by looking up the text itself: where its last few tokens stood before,
 * what followed may follow again; or as a layer of the model offers them. A draft is checked with the true draw of its position, so it
 * changes no result. The index also learns whether drafting pays, and stops where it does not. */
#ifndef BN_ENGINE_DRAFT_H
#define BN_ENGINE_DRAFT_H

#include "base/status.h"

enum { BN_DRAFT_MAX = BITNET_MAX_DRAFT_TOKENS }; /* tokens of one draft */

struct bn_draft;

bitnet_status bn_draft_open(struct bn_draft **out, uint32_t max_tokens, bitnet_error *err);
void bn_draft_close(struct bn_draft *d);
/* The text has n tokens now; earlier ones have not changed. Costs what is new.
 * Tokens from max_tokens on are left out. */
void bn_draft_update(struct bn_draft *d, const int32_t *tokens, uint32_t n);
/* How many drafts of the model's own are worth making, 0 if none; at most `most`. always: make them
 * even where it does not pay. */
uint32_t bn_draft_wants(struct bn_draft *d, uint32_t most, bool always);
/* What the model drafts behind the first n_text tokens of the text: n <= BN_DRAFT_MAX tokens. They
 * count until the text has grown. */
void bn_draft_offer(struct bn_draft *d, const int32_t *tokens, uint32_t n, uint32_t n_text);
/* Did the last draft come from there? */
bool bn_draft_was_offered(const struct bn_draft *d);
/* Up to `most` drafts of what comes next, 0 if there are none or they do not pay. always: draft even
 * where it does not pay. */
uint32_t bn_draft_make(struct bn_draft *d, int32_t *out, uint32_t most, bool always);
/* Of the last draft n_draft tokens were checked together and the first n_accepted were accepted. cost: time
 * of the step with them, in units of one without; 0: not known. */
void bn_draft_learn(struct bn_draft *d, uint32_t n_draft, uint32_t n_accepted, double cost);

#endif
