/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies for files that are being made: the 256 bytes where none is given, and any of them
 * filled up to the number of rows of the embedding, as every reader of GGUF expects. */
#include "forge/forge.h"

#include "base/utf8.h"
#include "text/tokenizer/vocab.h"
#include <stdio.h>
#include <stdlib.h>

bitnet_status bn_forge_vocab_bytes(struct bn_vocab *v, bitnet_error *err)
{
    enum { N_BYTES = 256, BOS = N_BYTES, EOS, TWO_SPACES, N };
    bn_vocab_init(v);
    v->model = BN_VOCAB_BPE;
    v->tokens = bn_arena_alloc(&v->arena, N * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, N);
    if (v->tokens == NULL || v->types == NULL) return bn_fail_nomem(err, N, "the byte vocabulary");
    uint16_t alphabet[N_BYTES];
    bn_byte_alphabet(alphabet);
    for (unsigned b = 0; b < N_BYTES; b++) {
        char text[4];
        size_t n = bn_utf8_encode(text, alphabet[b]);
        v->tokens[b] = (struct bn_str){bn_arena_strn(&v->arena, text, n), (uint32_t)n};
        v->types[b] = BN_TOKEN_NORMAL;
        if (v->tokens[b].s == NULL) return bn_fail_nomem(err, n, "the byte vocabulary");
    }
    v->tokens[BOS] = (struct bn_str){"<|begin_of_text|>", 17};
    v->tokens[EOS] = (struct bn_str){"<|end_of_text|>", 15};
    v->types[BOS] = v->types[EOS] = BN_TOKEN_CONTROL;
    /* Byte-level BPE without a single merge counts as damage, so there is one: two spaces. */
    struct bn_str space = v->tokens[' '];
    char two[8];
    memcpy(two, space.s, space.n);
    memcpy(two + space.n, space.s, space.n);
    v->tokens[TWO_SPACES] =
        (struct bn_str){bn_arena_strn(&v->arena, two, 2 * space.n), 2 * space.n};
    v->types[TWO_SPACES] = BN_TOKEN_NORMAL;
    v->merges = bn_arena_alloc(&v->arena, 2 * sizeof *v->merges);
    if (v->merges == NULL || v->tokens[TWO_SPACES].s == NULL)
        return bn_fail_nomem(err, sizeof two, "the byte vocabulary");
    v->merges[0] = v->merges[1] = space;
    v->n_merges = 1;
    v->n_tokens = N;
    v->pre = "gpt-2";
    v->add_bos = true;
    v->bos = BOS;
    v->eos = EOS;
    return BITNET_OK;
}

bitnet_status bn_forge_vocab_fit(struct bn_vocab *v, uint32_t n_vocab, const char *what,
                                 bitnet_error *err)
{
    if (v->n_tokens > n_vocab)
        return bn_fail(err, BITNET_E_ARG, "the vocabulary has %u tokens, but '%s' only %u",
                       v->n_tokens, what, n_vocab);
    if (v->n_tokens == n_vocab) return BITNET_OK;
    struct bn_str *tokens = bn_arena_alloc(&v->arena, (size_t)n_vocab * sizeof *tokens);
    uint8_t *types = bn_arena_alloc(&v->arena, n_vocab);
    float *scores = v->scores ? bn_arena_alloc(&v->arena, (size_t)n_vocab * sizeof *scores) : NULL;
    if (tokens == NULL || types == NULL || (v->scores && scores == NULL))
        return bn_fail_nomem(err, (size_t)n_vocab * sizeof *tokens, "the vocabulary");
    if (v->n_tokens) {
        memcpy(tokens, v->tokens, v->n_tokens * sizeof *tokens);
        memcpy(types, v->types, v->n_tokens);
        if (scores) memcpy(scores, v->scores, v->n_tokens * sizeof *scores);
    }
    for (uint32_t i = v->n_tokens; i < n_vocab; i++) {
        char text[24];
        /* each its own name: some readers build a dictionary and want as many entries as tokens */
        int n = snprintf(text, sizeof text, "[PAD%u]", i);
        tokens[i] = (struct bn_str){bn_arena_strn(&v->arena, text, (size_t)n), (uint32_t)n};
        types[i] = BN_TOKEN_UNUSED;
        if (tokens[i].s == NULL) return bn_fail_nomem(err, sizeof text, "the vocabulary");
    }
    v->tokens = tokens;
    v->types = types;
    v->scores = scores;
    v->n_tokens = n_vocab;
    return BITNET_OK;
}
