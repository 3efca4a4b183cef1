/* SPDX-License-Identifier: Apache-2.0
 * SentencePiece-style vocabularies. SentencePiece joins two neighbours if their text together is a
 * token, the best score first; which neighbours can ever meet is known beforehand, so the scores
 * are turned into the same table of ranked pairs that byte-level vocabularies have, and bpe.c does
 * the rest. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

/* Cutting every token at every place costs the square of its length. Real ones have at most some
 * dozens of bytes. */
enum { MAX_SCORED_BYTES = 512 };

struct scored {
    float score;
    uint32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static bool can_be_merged(const struct bn_vocab *v, uint32_t id)
{
    return v->tokens[id].n > 1 &&
           (v->types[id] == BN_TOKEN_NORMAL || v->types[id] == BN_TOKEN_USER);
}

static size_t char_bytes(const char *p, size_t n)
{
    uint32_t cp;
    size_t len = bn_utf8_decode(p, n, &cp);
    return len ? len : 1;
}

/* A part of a token is a symbol if it is a token itself or a single character. A character that is
 * no token becomes an extra symbol. */
static bool part_symbol(struct bn_tokenizer *t, const char *p, size_t n, uint32_t *symbol,
                        bool *no_memory)
{
    if (bn_map_get(&t->symbols, p, n, symbol)) return true;
    if (char_bytes(p, n) != n) return false;
    *symbol = bn_symbol_add(t, p, n);
    *no_memory = *no_memory || *symbol == BN_NO_SYMBOL;
    return true;
}

/* Calls bn_pairs_add for every cut of token `id` into two symbols; with pairs == NULL only counts
 * them. */
static size_t cut_token(struct bn_tokenizer *t, uint32_t id, uint32_t rank, struct bn_pairs *pairs,
                        bool *no_memory)
{
    const struct bn_str *s = &t->vocab.tokens[id];
    size_t n = 0, len;
    for (size_t cut = char_bytes(s->s, s->n); cut < s->n; cut += len) {
        uint32_t left, right;
        len = char_bytes(s->s + cut, s->n - cut);
        if (!part_symbol(t, s->s, cut, &left, no_memory) ||
            !part_symbol(t, s->s + cut, s->n - cut, &right, no_memory))
            continue;
        n++;
        if (pairs && !bn_pairs_add(pairs, left, right, rank, id)) *no_memory = true;
    }
    return n;
}

static bitnet_status build_from_scores(struct bn_tokenizer *t, bitnet_error *err)
{
    const struct bn_vocab *v = &t->vocab;
    struct scored *order = bn_calloc(v->n_tokens, sizeof *order);
    if (!order) return bn_fail_nomem(err, v->n_tokens * sizeof *order, "the order of tokens");
    bitnet_status st = BITNET_OK;
    bool no_memory = false;
    size_t n = 0, n_pairs = 0;
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        uint32_t symbol;
        /* of tokens with the same text the one in the map counts */
        if (!can_be_merged(v, i) ||
            !bn_map_get(&t->symbols, v->tokens[i].s, v->tokens[i].n, &symbol) || symbol != i)
            continue;
        if (v->tokens[i].n > MAX_SCORED_BYTES) {
            st = bn_fail(err, BITNET_E_LIMIT,
                         "token %u has %u bytes, the most in a vocabulary with scores is %d", i,
                         v->tokens[i].n, MAX_SCORED_BYTES);
            goto done;
        }
        n_pairs += cut_token(t, i, 0, NULL, &no_memory);
        order[n++] = (struct scored){v->scores[i], i};
    }
    qsort(order, n, sizeof *order, by_score);
    if (no_memory || !bn_pairs_init(&t->pairs, n_pairs)) {
        st = bn_fail_nomem(err, n_pairs * sizeof(struct bn_pair_slot), "the table of merges");
        goto done;
    }
    uint32_t rank = 0;
    for (size_t k = 0; k < n; k++) {
        if (k > 0 && order[k].score != order[k - 1].score)
            rank++; /* equal scores: the leftmost goes first */
        cut_token(t, order[k].id, rank, &t->pairs, &no_memory);
    }
    if (no_memory)
        st = bn_fail_nomem(err, n_pairs * sizeof(struct bn_pair_slot), "the table of merges");
done:
    free(order);
    return st;
}

/* Does a token hold a space after something else? If none does, words can be merged one by one: no
 * pair reaches from one into the next. */
static bool crosses_words(const struct bn_str *s)
{
    bool other = false;
    for (size_t i = 0; i < s->n;) {
        bool mark = s->n - i >= BN_SPACE_MARK_BYTES &&
                    memcmp(s->s + i, BN_SPACE_MARK, BN_SPACE_MARK_BYTES) == 0;
        if (mark && other) return true;
        other = other || !mark;
        i += mark ? BN_SPACE_MARK_BYTES : 1;
    }
    return false;
}

bitnet_status bn_spm_build(struct bn_tokenizer *t, bitnet_error *err)
{
    if (t->vocab.scores) BN_TRY(build_from_scores(t, err));
    else BN_TRY(bn_bpe_build(t, err));
    t->words_are_apart = true;
    for (uint32_t i = 0; i < t->vocab.n_tokens && t->words_are_apart; i++)
        if (can_be_merged(&t->vocab, i) && crosses_words(&t->vocab.tokens[i]))
            t->words_are_apart = false;
    for (size_t i = 0; i < t->n_extra && t->words_are_apart; i++)
        if (crosses_words(&t->extra[i])) t->words_are_apart = false;
    return BITNET_OK;
}
