/* SPDX-License-Identifier: Apache-2.0
 * Shared by the fuzz targets of grammars: a grammar that could be made is followed for a few tokens.
 * What must hold: a failure has its sentence; a mask says of every token what a trial says; a token
 * of the mask is taken; where no token may follow, the text is whole. */
#ifndef BN_FUZZ_GRAMMAR_H
#define BN_FUZZ_GRAMMAR_H

#include "base/map.h"
#include "base/rng.h"
#include "text/grammar/grammar.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { FUZZ_VOCAB = 1000, FUZZ_TOKENS = 6, FUZZ_TRIALS = 64 };

static inline void must(bool holds)
{
    if (!holds) __builtin_trap();
}

/* The first tokens of the stories vocabulary: all bytes and some words. */
static inline const struct bn_token_tree *fuzz_tree(void)
{
    static struct bn_token_tree *tree;
    struct bn_vocab v;
    struct bn_tokenizer *t;
    if (tree) return tree;
    must(bn_vocab_read_hf(&v, TEST_DATA "/stories/tokenizer.json", NULL) == BITNET_OK);
    must(bn_tokenizer_open(&t, &v, NULL) == BITNET_OK);
    must(bn_token_tree_open(&tree, t, FUZZ_VOCAB, NULL) == BITNET_OK);
    return tree;
}

static inline void fuzz_follow(struct bn_matcher *m, uint64_t seed)
{
    uint64_t mask[FUZZ_VOCAB / 64 + 1];
    struct bn_rng rng = {seed};
    for (int i = 0; i < FUZZ_TOKENS; i++) {
        int32_t only;
        uint32_t n = bn_matcher_mask(m, mask, &only), skip = n ? bn_rng_below(&rng, n) : 0;
        must((n > 0) == (only >= 0));
        for (int k = 0; k < FUZZ_TRIALS; k++) {
            uint32_t id = bn_rng_below(&rng, FUZZ_VOCAB);
            must(bn_matcher_allows(m, (int32_t)id) == (mask[id / 64] >> id % 64 & 1));
        }
        if (n == 0) {
            must(bn_matcher_done(m));
            return;
        }
        for (int32_t id = 0; id < FUZZ_VOCAB; id++)
            if ((mask[id / 64] >> id % 64 & 1) && skip-- == 0) {
                must(bn_matcher_accept(m, id));
                break;
            }
    }
}

/* Takes what making a grammar gave. */
static inline void fuzz_grammar(bitnet_status st, struct bn_grammar *g, const bitnet_error *err,
                                const void *data, size_t n)
{
    struct bn_matcher *m;
    if (st != BITNET_OK) {
        must(!g && err->text[0] && err->status == st);
        return;
    }
    must(bn_matcher_open(&m, g, NULL) == BITNET_OK);
    fuzz_follow(m, bn_hash(data, n));
    bn_matcher_close(m);
    bn_grammar_close(g);
}

#endif
