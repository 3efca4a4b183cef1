/* SPDX-License-Identifier: Apache-2.0
 * Constrained output: a grammar over bytes, compiled from GBNF text or from a JSON Schema,
 * and a matcher that says after every token which tokens may come next. A grammar is immutable and
 * may be shared; a matcher is one text's state. */
#ifndef BN_TEXT_GRAMMAR_GRAMMAR_H
#define BN_TEXT_GRAMMAR_GRAMMAR_H

#include "text/tokenizer/tokenizer.h"

struct bn_grammar;

/* The tokens of a vocabulary by their bytes, as a tree. Made once a tokenizer. */
struct bn_token_tree;
bitnet_status bn_token_tree_open(struct bn_token_tree **out, const struct bn_tokenizer *t,
                                 uint32_t n_vocab, bitnet_error *err);
void bn_token_tree_close(struct bn_token_tree *t);

/* The tree must outlive the grammar. Errors name line and column, or the place in the schema. */
bitnet_status bn_grammar_from_gbnf(struct bn_grammar **out, const struct bn_token_tree *t,
                                   const char *text, size_t n, bitnet_error *err);
/* schema NULL: any JSON object ("JSON mode"). What cannot be enforced is refused by name. */
bitnet_status bn_grammar_from_schema(struct bn_grammar **out, const struct bn_token_tree *t,
                                     const char *schema, size_t n, bitnet_error *err);
void bn_grammar_close(struct bn_grammar *g);
size_t bn_grammar_bytes(const struct bn_grammar *g); /* about what it takes */

struct bn_matcher;
bitnet_status bn_matcher_open(struct bn_matcher **out, const struct bn_grammar *g,
                              bitnet_error *err);
void bn_matcher_close(struct bn_matcher *m);
/* Tokens that may come next: bit id % 64 of mask[id / 64], for all n_vocab tokens. Tokens that end a
 * text are allowed where the text may end. Returns how many; *only: one of them. No allocation. */
uint32_t bn_matcher_mask(struct bn_matcher *m, uint64_t *mask, int32_t *only);
/* Whether a token may come next, without making the mask. */
bool bn_matcher_allows(struct bn_matcher *m, int32_t token);
/* The text goes on with this token; false: it is not allowed, nothing has changed. No allocation. */
bool bn_matcher_accept(struct bn_matcher *m, int32_t token);
#define BN_NO_COST UINT32_MAX
/* With so many tokens the text can be brought to an end: 0 if it may end here, BN_NO_COST if no way
 * is known. Fewer may do, where tokens reach across parts of the grammar. */
uint32_t bn_matcher_cost(const struct bn_matcher *m);
/* The same if the text went on with this token; BN_NO_COST if it is not allowed. No allocation. */
uint32_t bn_matcher_cost_after(struct bn_matcher *m, int32_t token);
/* The tokens on one way to the end after which `left` more tokens are enough; false: there are none.
 * There is one if bn_matcher_cost is at most left + 1. No allocation. */
bool bn_matcher_closing_mask(struct bn_matcher *m, uint32_t left, uint64_t *mask);
/* The text is whole and nothing can follow it. */
bool bn_matcher_done(const struct bn_matcher *m);

#endif
