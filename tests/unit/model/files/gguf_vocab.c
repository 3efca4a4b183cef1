/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies in GGUF: what is written comes back, what published files get wrong is repaired and
 * told, and what is wrong otherwise is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gguf_build.h"
#include "model/files/gguf_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void put_strs(struct bn_buf *b, const char *key, size_t n, const char *const *s)
{
    put_s(b, key);
    put32(b, 9), put32(b, 8), put64(b, n);
    for (size_t i = 0; i < n; i++) put_s(b, s[i]);
}

static void put_i32s(struct bn_buf *b, const char *key, size_t n, const int32_t *v)
{
    put_s(b, key);
    put32(b, 9), put32(b, 5), put64(b, n);
    bn_buf_append(b, v, 4 * n);
}

/* reads the vocabulary of bytes that hold n keys; returns the status */
static bitnet_status read_keys(struct bn_vocab *v, struct bn_buf *keys, uint64_t n,
                               struct bn_buf *note, bitnet_error *err)
{
    struct bn_buf file;
    struct bn_source s;
    bn_buf_init(&file, 1 << 26);
    put_head(&file, 0, n);
    bn_buf_append(&file, keys->data, keys->len);
    assert_false(file.failed);
    if (bn_source_open_memory(&s, file.data, file.len, "v.gguf", err)) fail_msg("%s", err->text);
    bitnet_status st = bn_gguf_read_vocab(v, &s, note, err);
    bn_source_close(&s); /* the vocabulary must stand on its own */
    bn_buf_free(&file);
    return st;
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static void assert_same(const struct bn_vocab *a, const struct bn_vocab *b)
{
    assert_int_equal(a->model, b->model);
    assert_int_equal(a->n_tokens, b->n_tokens);
    for (uint32_t i = 0; i < a->n_tokens; i++) {
        assert_int_equal(a->tokens[i].n, b->tokens[i].n);
        assert_memory_equal(a->tokens[i].s, b->tokens[i].s, a->tokens[i].n);
    }
    assert_memory_equal(a->types, b->types, a->n_tokens);
    assert_int_equal(a->scores != NULL, b->scores != NULL);
    if (a->scores) assert_memory_equal(a->scores, b->scores, 4 * a->n_tokens);
    assert_int_equal(a->strip != NULL, b->strip != NULL);
    if (a->strip) assert_memory_equal(a->strip, b->strip, a->n_tokens);
    assert_int_equal(a->n_merges, b->n_merges);
    for (uint32_t i = 0; i < 2 * a->n_merges; i++) {
        assert_int_equal(a->merges[i].n, b->merges[i].n);
        assert_memory_equal(a->merges[i].s, b->merges[i].s, a->merges[i].n);
    }
    assert_true(same_text(a->pre, b->pre));
    assert_int_equal(a->n_patterns, b->n_patterns);
    for (uint32_t i = 0; i < a->n_patterns; i++)
        assert_string_equal(a->patterns[i], b->patterns[i]);
    assert_int_equal(a->ignore_merges, b->ignore_merges);
    assert_int_equal(a->add_space_prefix, b->add_space_prefix);
    assert_int_equal(a->prefix_first_only, b->prefix_first_only);
    assert_int_equal(a->add_bos, b->add_bos);
    assert_int_equal(a->add_eos, b->add_eos);
    assert_true(a->bos == b->bos && a->eos == b->eos && a->eot == b->eot && a->unk == b->unk &&
                a->pad == b->pad);
    assert_int_equal(a->n_ends, b->n_ends);
    assert_memory_equal(a->ends, b->ends, a->n_ends * sizeof a->ends[0]);
    assert_true(same_text(a->normalizer, b->normalizer));
    assert_true(same_text(a->chat_template, b->chat_template));
}

/* writes v into a file, reads it back and compares */
static void assert_round_trip(const struct bn_vocab *v)
{
    char path[] = "/tmp/bitnet-vocab-XXXXXX";
    struct bn_gguf_writer w;
    struct bn_source s;
    struct bn_vocab back;
    struct bn_buf note;
    bitnet_error err;
    close(mkstemp(path));
    bn_buf_init(&note, 1 << 12);
    assert_int_equal(bn_gguf_create(&w, path, true, &err), BITNET_OK);
    bn_gguf_put_str(&w, "general.architecture", "bitnet", 6);
    bn_gguf_put_vocab(&w, v);
    assert_int_equal(bn_gguf_commit(&w, &err), BITNET_OK);
    bn_gguf_discard(&w);
    if (bn_source_open(&s, path, BN_I2S_AUTO, &err)) fail_msg("%s", err.text);
    if (bn_gguf_read_vocab(&back, &s, &note, &err)) fail_msg("%s", err.text);
    assert_int_equal(note.len, 0); /* nothing to repair in our own files */
    bn_source_close(&s);
    assert_same(v, &back);
    bn_vocab_free(&back);
    bn_buf_free(&note);
    unlink(path);
}

static const char *const tokens[] = {"<unk>", "<s>", "</s>",       "a",
                                     "b",     "ab",  "<|eot_id|>", "<|eom_id|>"};
static const int32_t types[] = {2, 3, 3, 1, 1, 1, 3, 3};
static const char *const merges[] = {"a b", "Ġ a"};
enum { N = 8 };

static void fill(struct bn_vocab *v, enum bn_vocab_model model)
{
    bn_vocab_init(v);
    v->model = model;
    v->n_tokens = N;
    v->tokens = bn_arena_alloc(&v->arena, N * sizeof *v->tokens);
    v->types = bn_arena_alloc(&v->arena, N);
    for (int i = 0; i < N; i++) {
        v->tokens[i] = (struct bn_str){tokens[i], (uint32_t)strlen(tokens[i])};
        v->types[i] = (uint8_t)types[i];
    }
    v->merges = bn_arena_alloc(&v->arena, 2 * sizeof *v->merges);
    v->n_merges = 1;
    v->merges[0] = (struct bn_str){"a", 1};
    v->merges[1] = (struct bn_str){"b", 1};
    v->bos = 1, v->eos = 2, v->eot = 6, v->unk = 0, v->pad = 3;
    v->n_ends = 1, v->ends[0] = 7;
    v->add_bos = true;
    v->chat_template = "{{ messages }}";
}

static void round_trips(void **state)
{
    (void)state;
    struct bn_vocab v;
    fill(&v, BN_VOCAB_BPE);
    v.pre = "llama-bpe", v.ignore_merges = true;
    assert_round_trip(&v);
    v.ignore_merges = false; /* not what the name says */
    assert_round_trip(&v);
    v.pre = NULL, v.n_patterns = 2, v.patterns[0] = "\\p{L}+x", v.patterns[1] = "[0-9]";
    v.normalizer = "nfc", v.add_space_prefix = true, v.add_eos = true, v.add_bos = false;
    v.ignore_merges = true;
    assert_round_trip(&v);
    v.strip = bn_arena_alloc(&v.arena, N);
    v.strip[3] = 3;
    v.pad = v.unk = v.bos = -1;
    v.chat_template = NULL;
    assert_round_trip(&v);
    bn_vocab_free(&v);

    fill(&v, BN_VOCAB_SPM);
    v.scores = bn_arena_alloc(&v.arena, N * sizeof *v.scores);
    for (int i = 0; i < N; i++) v.scores[i] = -(float)i / 3;
    v.merges = NULL, v.n_merges = 0;
    v.add_space_prefix = true, v.prefix_first_only = true;
    assert_round_trip(&v);
    v.bos = v.eos = -1; /* readers assume ids for SentencePiece: "none" must survive */
    v.add_space_prefix = v.prefix_first_only = false;
    assert_round_trip(&v);
    bn_vocab_free(&v);
}

static void base_keys(struct bn_buf *b)
{
    bn_buf_init(b, 1 << 20);
    put_kv_str(b, "tokenizer.ggml.model", "gpt2");
    put_strs(b, "tokenizer.ggml.tokens", N, tokens);
    put_strs(b, "tokenizer.ggml.merges", 2, merges);
}

static void defaults_and_notes(void **state)
{
    (void)state;
    struct bn_buf b, note;
    struct bn_vocab v;
    bitnet_error err;
    bn_buf_init(&note, 1 << 12);
    base_keys(&b);
    assert_int_equal(read_keys(&v, &b, 3, &note, &err), BITNET_OK);
    assert_string_equal(v.pre, "default");
    assert_non_null(strstr(note.data, "no pre-tokenizer"));
    assert_true(v.bos == -1 && v.eos == -1 && !v.add_bos && !v.add_space_prefix);
    assert_int_equal(v.types[0], BN_TOKEN_NORMAL);
    assert_true(v.merges[2].n == 2 && v.merges[3].n == 1); /* "Ġ" is two bytes */
    bn_vocab_free(&v);
    put_i32s(&b, "tokenizer.ggml.token_type", N, types);
    put_kv_str(&b, "tokenizer.ggml.pre", "falcon3");
    put_kv_u32(&b, "tokenizer.ggml.eos_token_id", 2);
    put_kv_u32(&b, "tokenizer.ggml.eom_token_id", 7);
    put_kv_u32(&b, "tokenizer.ggml.padding_token_id", UINT32_MAX);
    assert_int_equal(read_keys(&v, &b, 8, NULL, &err), BITNET_OK);
    assert_true(v.eos == 2 && v.eot == 6 && v.n_ends == 1 && v.ends[0] == 7 && v.pad == -1);
    assert_true(v.ignore_merges && v.add_bos); /* Llama 3's family */
    bn_vocab_free(&v);
    bn_buf_clear(&b); /* SentencePiece */
    static const float scores[N] = {0};
    put_kv_str(&b, "tokenizer.ggml.model", "llama");
    put_strs(&b, "tokenizer.ggml.tokens", N, tokens);
    put_s(&b, "tokenizer.ggml.scores");
    put32(&b, 9), put32(&b, 6), put64(&b, N);
    bn_buf_append(&b, scores, sizeof scores);
    assert_int_equal(read_keys(&v, &b, 3, NULL, &err), BITNET_OK);
    assert_true(v.bos == 1 && v.eos == 2 && v.unk == 0 && v.add_bos && v.add_space_prefix);
    assert_true(v.scores && !v.merges && !v.pre);
    bn_vocab_free(&v);
    bn_buf_free(&b);
    bn_buf_free(&note);
}

/* the published BitNet 2B-4T: no pre-tokenizer, no end of turn, an old chat template */
static void published_file_is_repaired(void **state)
{
    (void)state;
    enum { TOKENS = 128256, MERGES = 280147 };
    struct bn_buf b, note;
    struct bn_vocab v;
    bitnet_error err;
    bn_buf_init(&b, 1 << 26);
    bn_buf_init(&note, 1 << 12);
    put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    put_s(&b, "tokenizer.ggml.tokens");
    put32(&b, 9), put32(&b, 8), put64(&b, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        char text[16];
        snprintf(text, sizeof text, "t%d", i);
        put_s(&b, i == 0        ? "!"
                  : i == 128009 ? "<|eot_id|>"
                  : i == 128001 ? "<|end_of_text|>"
                                : text);
    }
    put_s(&b, "tokenizer.ggml.merges");
    put32(&b, 9), put32(&b, 8), put64(&b, MERGES);
    for (int i = 0; i < MERGES; i++) put_s(&b, "a b");
    put_kv_u32(&b, "tokenizer.ggml.bos_token_id", 128000);
    put_kv_u32(&b, "tokenizer.ggml.eos_token_id", 128001);
    put_kv_str(&b, "tokenizer.chat_template", "Human: {{x}}\n\nBITNETAssistant: <eos>");
    assert_int_equal(read_keys(&v, &b, 6, &note, &err), BITNET_OK);
    assert_string_equal(v.pre, "llama-bpe");
    assert_true(v.ignore_merges && v.eos == 128001 && v.eot == 128009);
    assert_null(v.chat_template);
    assert_non_null(strstr(note.data, "llama-bpe"));
    assert_non_null(strstr(note.data, "128009"));
    assert_non_null(strstr(note.data, "chat template"));
    bn_vocab_free(&v);
    bn_buf_free(&b);
    bn_buf_free(&note);
}

static void refused(struct bn_buf *b, uint64_t n, bitnet_status want, const char *says)
{
    struct bn_vocab v;
    bitnet_error err = {0};
    bitnet_status st = read_keys(&v, b, n, NULL, &err);
    if (st != want || !strstr(err.text, says))
        fail_msg("status %d, \"%s\"; wanted %d, \"%s\"", (int)st, err.text, (int)want, says);
    bn_buf_free(b);
}

static void broken_vocabularies(void **state)
{
    (void)state;
    static const char *const models[] = {"bert", "t5", "rwkv", "none", "no_vocab", ""};
    struct bn_buf b;
    for (size_t i = 0; i < BN_ARRAY_LEN(models); i++) {
        bn_buf_init(&b, 1 << 20);
        put_kv_str(&b, "tokenizer.ggml.model", models[i]);
        refused(&b, 1, BITNET_E_UNSUPPORTED, models[i]);
    }
    bn_buf_init(&b, 1 << 20);
    put_kv_u32(&b, "x", 1);
    refused(&b, 1, BITNET_E_FORMAT, "tokenizer.ggml.model");
    bn_buf_init(&b, 1 << 20);
    put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    refused(&b, 1, BITNET_E_FORMAT, "tokenizer.ggml.tokens");
    bn_buf_init(&b, 1 << 20);
    put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    put_i32s(&b, "tokenizer.ggml.tokens", N, types);
    refused(&b, 2, BITNET_E_FORMAT, "no array of strings");
    base_keys(&b);
    put_i32s(&b, "tokenizer.ggml.token_type", N - 1, types);
    refused(&b, 4, BITNET_E_FORMAT, "7 elements for 8 tokens");
    static const int32_t bad_types[N] = {1, 1, 1, 1, 9, 1, 1, 1};
    base_keys(&b);
    put_i32s(&b, "tokenizer.ggml.token_type", N, bad_types);
    refused(&b, 4, BITNET_E_FORMAT, "token 4 has the unknown type 9");
    static const char *const bad_merges[] = {"ab", " b", "a ", "", "a"};
    for (size_t i = 0; i < BN_ARRAY_LEN(bad_merges); i++) {
        bn_buf_init(&b, 1 << 20);
        put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
        put_strs(&b, "tokenizer.ggml.tokens", N, tokens);
        put_strs(&b, "tokenizer.ggml.merges", 1, &bad_merges[i]);
        refused(&b, 3, BITNET_E_FORMAT, "merge 0");
    }
    base_keys(&b);
    put_kv_u32(&b, "tokenizer.ggml.bos_token_id", 8);
    refused(&b, 4, BITNET_E_FORMAT, "bos_token_id' is 8, but there are 8 tokens");
    base_keys(&b);
    put_kv_str(&b, "tokenizer.ggml.pre", "no-such-thing");
    refused(&b, 4, BITNET_E_UNSUPPORTED, "no-such-thing");
    base_keys(&b);
    static const int32_t ends[] = {1, 99};
    put_i32s(&b, "tokenizer.bitnet.end_token_ids", 2, ends);
    refused(&b, 4, BITNET_E_FORMAT, "end token 99");
    static const char *many[17];
    for (int i = 0; i < 17; i++) many[i] = "x";
    base_keys(&b);
    put_strs(&b, "tokenizer.bitnet.patterns", 17, many);
    refused(&b, 4, BITNET_E_LIMIT, "17 pre-tokenizer patterns");
    char *longest = calloc(1, 5000);
    memset(longest, 'x', 4999);
    bn_buf_init(&b, 1 << 20);
    put_kv_str(&b, "tokenizer.ggml.model", "gpt2");
    put_strs(&b, "tokenizer.ggml.tokens", 1, (const char *const *)&longest);
    refused(&b, 2, BITNET_E_LIMIT, "4999 bytes");
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(defaults_and_notes),
        cmocka_unit_test(published_file_is_repaired),
        cmocka_unit_test(broken_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
