/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of src/text: small vocabularies made by hand, and what text must give. */
#ifndef BN_TEST_TEXT_COMMON_H
#define BN_TEST_TEXT_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

#define STORIES TEST_DATA "/stories/tokenizer.json"
#define MARK    "\xe2\x96\x81"

/* ------------------------------------------------------------------ helpers */

static inline struct bn_tokenizer *open_vocab(struct bn_vocab *v)
{
    struct bn_tokenizer *t;
    bitnet_error err = {0};
    if (bn_tokenizer_open(&t, v, &err) != BITNET_OK) fail_msg("%s", err.text);
    assert_int_equal(v->n_tokens, 0); /* taken over */
    return t;
}

static inline struct bn_tokenizer *open_stories(void)
{
    struct bn_vocab v;
    bitnet_error err = {0};
    if (bn_vocab_read_hf(&v, STORIES, &err) != BITNET_OK) fail_msg("%s", err.text);
    return open_vocab(&v);
}

static inline struct bn_tokens encode_n(const struct bn_tokenizer *t, const char *text, size_t n,
                                        uint32_t flags)
{
    struct bn_tokens ids = {0};
    bitnet_error err = {0};
    if (bn_encode(t, text, n, flags, &ids, &err) != BITNET_OK) fail_msg("%s", err.text);
    return ids;
}

static inline void expect_ids(const struct bn_tokenizer *t, const char *text, uint32_t flags,
                              const int32_t *want, size_t n)
{
    struct bn_tokens ids = encode_n(t, text, strlen(text), flags);
    bool same = ids.n == n && (n == 0 || memcmp(ids.ids, want, n * sizeof *want) == 0);
    for (size_t i = 0; !same && i < ids.n; i++) print_error("%d ", ids.ids[i]);
    if (!same) fail_msg("tokens of '%s'", text);
    bn_tokens_free(&ids);
}
#define EXPECT(t, text, flags, ...)                            \
    expect_ids(t, text, flags, (const int32_t[]){__VA_ARGS__}, \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* ------------------------------------------------------------------ vocabularies made by hand */

static inline void put_token(struct bn_vocab *v, const char *text, uint8_t type, float score)
{
    v->tokens[v->n_tokens] = (struct bn_str){text, (uint32_t)strlen(text)};
    v->types[v->n_tokens] = type;
    v->scores[v->n_tokens++] = score;
}

enum { SPM_UNK, SPM_BOS, SPM_EOS, SPM_BYTE0, SPM_FIRST = SPM_BYTE0 + 256 };
enum { T_MARK = SPM_FIRST, T_A, T_B, T_C, T_MA, T_AB, T_MAB, T_BC, T_MM, T_USER, T_FREE };

static inline void spm_vocab(struct bn_vocab *v)
{
    bn_vocab_init(v);
    v->model = BN_VOCAB_SPM;
    v->tokens = bn_arena_alloc(&v->arena, 300 * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, 300);
    v->strip = bn_arena_alloc(&v->arena, 300);
    v->scores = bn_arena_alloc(&v->arena, 300 * sizeof *v->scores);
    put_token(v, "<unk>", BN_TOKEN_UNKNOWN, 0);
    put_token(v, "<s>", BN_TOKEN_CONTROL, 0);
    put_token(v, "</s>", BN_TOKEN_CONTROL, 0);
    for (int c = 0; c < 256; c++) {
        char *name = bn_arena_alloc(&v->arena, 8);
        snprintf(name, 8, "<0x%02X>", c);
        put_token(v, name, BN_TOKEN_BYTE, 0);
    }
    put_token(v, MARK, BN_TOKEN_NORMAL, -20);
    put_token(v, "a", BN_TOKEN_NORMAL, -21);
    put_token(v, "b", BN_TOKEN_NORMAL, -22);
    put_token(v, "c", BN_TOKEN_NORMAL, -23);
    put_token(v, MARK "a", BN_TOKEN_NORMAL, -3);
    put_token(v, "ab", BN_TOKEN_NORMAL, -2);
    put_token(v, MARK "ab", BN_TOKEN_NORMAL, -4);
    put_token(v, "bc", BN_TOKEN_NORMAL, -1);
    put_token(v, MARK MARK, BN_TOKEN_NORMAL, -1e9f);
    put_token(v, "<tool>", BN_TOKEN_USER, 0);
    v->unk = SPM_UNK, v->bos = SPM_BOS, v->eos = SPM_EOS;
    v->add_bos = v->add_space_prefix = true;
}

/* A vocabulary of bytes and one merge: pieces show where the patterns cut. */
static inline void byte_vocab(struct bn_vocab *v, const char *pre)
{
    bn_vocab_init(v);
    v->model = BN_VOCAB_BPE;
    v->tokens = bn_arena_alloc(&v->arena, 300 * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, 300);
    v->scores = bn_arena_alloc(&v->arena, 300 * sizeof *v->scores);
    v->merges = bn_arena_alloc(&v->arena, 16 * sizeof *v->merges);
    uint32_t next = 256;
    for (uint32_t c = 0; c < 256; c++) {
        bool self = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
        char *name = bn_arena_alloc(&v->arena, 8);
        bn_utf8_encode(name, self ? c : next++);
        put_token(v, name, BN_TOKEN_NORMAL, 0);
    }
    v->scores = NULL;
    v->pre = pre;
}

static inline void add_merge(struct bn_vocab *v, const char *l, const char *r, const char *both)
{
    v->merges[2 * v->n_merges] = (struct bn_str){l, (uint32_t)strlen(l)};
    v->merges[2 * v->n_merges++ + 1] = (struct bn_str){r, (uint32_t)strlen(r)};
    if (!both) return;
    v->tokens[v->n_tokens] = (struct bn_str){both, (uint32_t)strlen(both)};
    v->types[v->n_tokens++] = BN_TOKEN_NORMAL;
}

#endif
