/* SPDX-License-Identifier: Apache-2.0
 * Compiled constraints, kept by what they say: requests of the same schema share one, and it is compiled
 * once. Any thread may ask at any time; two that ask for the same at once may both compile it. */
#ifndef BN_ENGINE_GRAMMARS_H
#define BN_ENGINE_GRAMMARS_H

#include "text/grammar/grammar.h"

#include <pthread.h>

enum {
    BN_GRAMMARS_KEPT = 64,            /* of which nobody has to use any */
    BN_GRAMMARS_TEXT_BYTES = 4 << 20, /* of all of them, as they were given */
    BN_GRAMMARS_BYTES = 256 << 20     /* compiled, about */
};

struct bn_kept_grammar;

struct bn_grammars {
    pthread_mutex_t lock;
    bool open;
    const struct bn_tokenizer *tokenizer; /* NULL: none */
    uint32_t n_vocab;
    struct bn_token_tree *tree;   /* made for the first grammar */
    struct bn_kept_grammar *kept; /* the one asked for last first */
};

void bn_grammars_open(struct bn_grammars *g, const struct bn_tokenizer *t, uint32_t n_vocab);
void bn_grammars_close(struct bn_grammars *g); /* none is in use any more */
/* The request's constraint, compiled; *out NULL: it has none. Give it back. */
bitnet_status bn_grammars_take(struct bn_grammars *g, const bitnet_request *r,
                               struct bn_kept_grammar **out, bitnet_error *err);
void bn_grammars_give(struct bn_grammars *g, struct bn_kept_grammar *k); /* NULL is fine */
const struct bn_grammar *bn_kept_grammar(const struct bn_kept_grammar *k);

#endif
