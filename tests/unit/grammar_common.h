/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of grammars: texts fed byte by byte. */
#ifndef BN_TEST_GRAMMAR_COMMON_H
#define BN_TEST_GRAMMAR_COMMON_H

#include "text/grammar/grammar.h"
#include "text_common.h"

/* A vocabulary of bytes: token c is byte c; then one merge and the token that ends a text. */
enum { BYTE_AB = 256, BYTE_END, BYTE_VOCAB };
struct bytes {
    struct bn_tokenizer *tokenizer;
    struct bn_token_tree *tree;
};

static inline struct bytes open_bytes(void)
{
    struct bytes b;
    struct bn_vocab v;
    bitnet_error err = {0};
    byte_vocab(&v, "gpt-2");
    add_merge(&v, "a", "b", "ab");
    v.tokens[BYTE_END] = (struct bn_str){"<end>", 5};
    v.types[BYTE_END] = BN_TOKEN_CONTROL;
    v.n_tokens++;
    v.eos = BYTE_END;
    b.tokenizer = open_vocab(&v);
    if (bn_token_tree_open(&b.tree, b.tokenizer, BYTE_VOCAB, &err) != BITNET_OK)
        fail_msg("%s", err.text);
    return b;
}

static inline void close_bytes(struct bytes *b)
{
    bn_token_tree_close(b->tree);
    bn_tokenizer_close(b->tokenizer);
}

enum grammar_kind { GBNF, SCHEMA };

static inline bitnet_status make_grammar(struct bn_grammar **g, const struct bn_token_tree *t,
                                         enum grammar_kind kind, const char *text,
                                         bitnet_error *err)
{
    size_t n = text ? strlen(text) : 0;
    return kind == GBNF ? bn_grammar_from_gbnf(g, t, text, n, err)
                        : bn_grammar_from_schema(g, t, text, n, err);
}

static inline struct bn_grammar *open_grammar(const struct bn_token_tree *t, enum grammar_kind kind,
                                              const char *text)
{
    struct bn_grammar *g;
    bitnet_error err = {0};
    if (make_grammar(&g, t, kind, text, &err) != BITNET_OK)
        fail_msg("%s: %s", text ? text : "any object", err.text);
    return g;
}

static inline struct bn_matcher *open_matcher(const struct bn_grammar *g)
{
    struct bn_matcher *m;
    bitnet_error err = {0};
    if (bn_matcher_open(&m, g, &err) != BITNET_OK) fail_msg("%s", err.text);
    return m;
}

/* How many bytes of a text are taken. */
static inline size_t feed(struct bn_matcher *m, const char *text)
{
    size_t n = 0;
    while (text[n] && bn_matcher_accept(m, (uint8_t)text[n])) n++;
    return n;
}

static inline bool fits(const struct bn_grammar *g, const char *text)
{
    struct bn_matcher *m = open_matcher(g);
    bool whole = feed(m, text) == strlen(text) && bn_matcher_accept(m, BYTE_END);
    if (whole) assert_true(bn_matcher_done(m));
    bn_matcher_close(m);
    return whole;
}

/* Texts that fit, NULL, texts that do not, NULL. */
static inline void expect_texts(const struct bytes *b, enum grammar_kind kind, const char *grammar,
                                const char *const *texts)
{
    struct bn_grammar *g = open_grammar(b->tree, kind, grammar);
    const char *name = grammar ? grammar : "any object";
    size_t i = 0;
    for (; texts[i]; i++)
        if (!fits(g, texts[i])) fail_msg("%s: refuses '%s'", name, texts[i]);
    for (i++; texts[i]; i++)
        if (fits(g, texts[i])) fail_msg("%s: takes '%s'", name, texts[i]);
    bn_grammar_close(g);
}
#define EXPECT_TEXTS(b, kind, grammar, ...) \
    expect_texts(b, kind, grammar, (const char *const[]){__VA_ARGS__, NULL})
#define NOT NULL

static inline void expect_refused(const struct bytes *b, enum grammar_kind kind,
                                  const char *grammar, bitnet_status want, const char *part)
{
    struct bn_grammar *g;
    bitnet_error err = {0};
    bitnet_status st = make_grammar(&g, b->tree, kind, grammar, &err);
    if (st != want) fail_msg("%.200s: status %d, %s", grammar, st, err.text);
    assert_null(g);
    if (!strstr(err.text, part)) fail_msg("'%s' lacks '%s'", err.text, part);
}

#endif
