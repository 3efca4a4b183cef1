/* SPDX-License-Identifier: Apache-2.0
 * Text to tokens: ids against Hugging Face's for the small story model, merging against a plain
 * reference, special tokens, SentencePiece-style vocabularies, pre-tokenizers. */
#include "text_common.h"

#include "base/rng.h"
#include "text/tokenizer/tokenizer_impl.h"
#include <pthread.h>

static void expect_round_trip(const struct bn_tokenizer *t, const char *text, size_t n)
{
    struct bn_tokens ids = encode_n(t, text, n, 0);
    size_t at = 0, len;
    for (size_t i = 0; i < ids.n; i++) {
        const char *p = bn_token_bytes(t, ids.ids[i], false, i == 0, &len);
        assert_true(len <= n - at);
        if (len) assert_memory_equal(p, text + at, len);
        at += len;
    }
    assert_int_equal(at, n);
    bn_tokens_free(&ids);
}

/* Random text that likes trouble: line ends, NUL, combining marks, all planes, runs. */
static size_t random_text(struct bn_rng *r, char *out, size_t room)
{
    static const char *const bits[] = {" ",
                                       "  ",
                                       "\n",
                                       "\r\n",
                                       "\t",
                                       "'s",
                                       "'RE",
                                       "e\xcc\x81",
                                       "12345",
                                       "\xf0\x9f\x98\xb6\xe2\x80\x8d\xf0\x9f\x8c\xab",
                                       "the ",
                                       "Once upon",
                                       "\xe1\xa0\x8e",
                                       "<|eot_id|>",
                                       "\xc2\xa0"};
    size_t n = 0;
    while (n + 40 < room && bn_rng_below(r, 200) > 0) {
        uint32_t kind = bn_rng_below(r, 8);
        if (kind < 4) {
            const char *s = bits[bn_rng_below(r, BN_ARRAY_LEN(bits))];
            memcpy(out + n, s, strlen(s));
            n += strlen(s);
        } else if (kind == 4) {
            out[n++] = (char)bn_rng_below(r, 128);
        } else {
            uint32_t top = kind == 5 ? 0x800 : kind == 6 ? 0x10000 : 0x110000;
            uint32_t cp = bn_rng_below(r, top);
            if (cp != 0x2581) n += bn_utf8_encode(out + n, cp); /* nothing for surrogates */
        }
    }
    return n;
}

/* ------------------------------------------------------------------ byte-level */

static void test_stories_ids(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    /* ids that Hugging Face's tokenizer gives */
    EXPECT(
        t,
        "Once upon a time, there was a little boy named Timmy. Timmy loved playing with his toys, "
        "especially his wooden blocks. One day, Timmy's friend Billy came over to play.",
        BITNET_TOK_BOS_AUTO, 0, 390, 389, 262, 365, 15, 372, 287, 262, 359, 472, 368, 369, 17, 369,
        404, 517, 328, 353, 497, 15, 1525, 353, 1461, 352, 1664, 17, 408, 329, 15, 369, 340, 382,
        1001, 515, 730, 268, 318, 17);
    EXPECT(t, "Lily and Tom went to the park.", BITNET_TOK_BOS, 0, 295, 270, 598, 414, 268, 267,
           483, 17);
    expect_ids(t, "", 0, NULL, 0);
    const struct bn_vocab *v = bn_tokenizer_vocab(t);
    assert_int_equal(v->model, BN_VOCAB_BPE);
    assert_int_equal(v->bos, 0);
    assert_int_equal(v->eos, 1);
    assert_int_equal(v->eot, 3); /* by its name */
    assert_true(v->add_bos);
    assert_string_equal(v->pre, "smaug-bpe"); /* Llama 3's pattern, merges not ignored */
    assert_true(bn_token_is_end(t, 1) && bn_token_is_end(t, 3));
    assert_false(bn_token_is_end(t, 0) || bn_token_is_end(t, -1) || bn_token_is_end(t, 390));
    assert_true(bn_token_is_start(t, 0));
    assert_false(bn_token_is_start(t, 1) || bn_token_is_start(t, -1) || bn_token_is_start(t, 390));
    bn_tokenizer_close(t);
}

static void test_special_tokens(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    EXPECT(t, "<|eot_id|> a<|end_of_text|>", BITNET_TOK_SPECIAL, 3, 262, 1);
    struct bn_tokens ids = encode_n(t, "<|eot_id|>", 10, 0); /* plain text without the flag */
    for (size_t i = 0; i < ids.n; i++) assert_true(ids.ids[i] > 3);
    bn_tokens_free(&ids);
    size_t n;
    assert_null(bn_token_bytes(t, 3, false, false, &n));
    assert_int_equal(n, 0);
    assert_memory_equal(bn_token_bytes(t, 3, true, false, &n), "<|eot_id|>", 10);
    assert_null(bn_token_bytes(t, 1 << 20, true, false, &n));
    assert_null(bn_token_bytes(t, -1, true, false, &n));
    bn_tokenizer_close(t);
}

/* Applies the merges in order to all places: the definition, in quadratic time. */
static size_t reference_merge(const struct bn_tokenizer *t, const char *word, size_t n,
                              int32_t *out)
{
    const struct bn_vocab *v = bn_tokenizer_vocab(t);
    struct bn_str parts[512];
    for (size_t i = 0; i < n; i++) parts[i] = (struct bn_str){word + i, 1};
    for (uint32_t m = 0; m < v->n_merges; m++) {
        const struct bn_str *l = &v->merges[2 * m], *r = l + 1;
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            bool join = i + 1 < n && parts[i].n == l->n && parts[i + 1].n == r->n &&
                        memcmp(parts[i].s, l->s, l->n) == 0 &&
                        memcmp(parts[i + 1].s, r->s, r->n) == 0;
            parts[k] = parts[i];
            if (join) parts[k].n += parts[++i].n;
            k++;
        }
        n = k;
    }
    for (size_t i = 0; i < n; i++)
        for (uint32_t id = 0; id < v->n_tokens; id++)
            if (v->tokens[id].n == parts[i].n &&
                memcmp(v->tokens[id].s, parts[i].s, parts[i].n) == 0)
                out[i] = (int32_t)id;
    return n;
}

static void test_merging_against_reference(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    struct bn_rng r = {42};
    for (int round = 0; round < 12; round++) {
        char word[512];
        int32_t want[512];
        size_t n = round < 6 ? 1 + bn_rng_below(&r, 47) : 49 + bn_rng_below(&r, 460);
        /* letters as frequent as in "the": many merges; one pre-token, so letters only */
        for (size_t i = 0; i < n; i++) word[i] = "eeettthhaonisr"[bn_rng_below(&r, 14)];
        struct bn_tokens ids = encode_n(t, word, n, 0);
        size_t k = reference_merge(t, word, n, want);
        assert_int_equal(ids.n, k);
        assert_memory_equal(ids.ids, want, k * sizeof *want);
        bn_tokens_free(&ids);
    }
    bn_tokenizer_close(t);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct bn_tokenizer *bpe = open_stories();
    struct bn_vocab v;
    spm_vocab(&v);
    struct bn_tokenizer *spm = open_vocab(&v);
    struct bn_rng r = {7};
    for (int round = 0; round < 400; round++) {
        char text[2048];
        size_t n = random_text(&r, text, sizeof text);
        expect_round_trip(bpe, text, n);
        expect_round_trip(spm, text, n);
        /* any bytes at all for byte-level vocabularies */
        for (size_t i = 0; i < n; i += 1 + bn_rng_below(&r, 20)) text[i] = (char)bn_rng_u64(&r);
        expect_round_trip(bpe, text, n);
    }
    bn_tokenizer_close(bpe);
    bn_tokenizer_close(spm);
}

/* Quadratic time would take hours here. */
static void test_long_runs(void **state)
{
    (void)state;
    static const char *const units[] = {" ",  "a", "\xf0\x9f\x98\x80", "\n", "7", " \n", "\xcc\x81",
                                        "th", "<|"};
    struct bn_tokenizer *t = open_stories();
    struct bn_vocab v;
    spm_vocab(&v);
    struct bn_tokenizer *spm = open_vocab(&v);
    enum { N = 1 << 18 };
    char *text = malloc(4 * N);
    for (size_t u = 0; u < BN_ARRAY_LEN(units); u++) {
        size_t len = strlen(units[u]);
        for (size_t i = 0; i < N; i++) memcpy(text + i * len, units[u], len);
        expect_round_trip(t, text, N * len);
        expect_round_trip(spm, text, N * len);
    }
    free(text);
    bn_tokenizer_close(t);
    bn_tokenizer_close(spm);
}

static const char *const thread_text =
    "It's 12345 little dogs,\r\n and she said: \"Caf\xc3\xa9!\"  \n";

static void *encode_often(void *arg)
{
    const struct bn_tokenizer *t = arg;
    struct bn_tokens want = {0}, ids = {0};
    bool same = bn_encode(t, thread_text, strlen(thread_text), 0, &want, NULL) == BITNET_OK;
    for (int i = 0; i < 300 && same; i++) {
        ids.n = 0;
        same = bn_encode(t, thread_text, strlen(thread_text), 0, &ids, NULL) == BITNET_OK &&
               ids.n == want.n && memcmp(ids.ids, want.ids, want.n * sizeof *want.ids) == 0;
    }
    bn_tokens_free(&want);
    bn_tokens_free(&ids);
    return same ? arg : NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct bn_tokenizer *t = open_stories();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, t);
    }
    bn_tokenizer_close(t);
}

/* ------------------------------------------------------------------ SentencePiece style */

static void test_spm(void **state)
{
    (void)state;
    struct bn_vocab v;
    spm_vocab(&v);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "ab", 0, T_MAB);
    EXPECT(t, "abc", 0, T_MA, T_BC); /* "bc" has the best score, then mark + a */
    EXPECT(t, "ab ab", BITNET_TOK_BOS_AUTO, SPM_BOS, T_MAB, T_MAB);
    EXPECT(t, " a", 0, T_MARK, T_MA);
    EXPECT(t, "   ", 0, T_MM, T_MM);
    EXPECT(t, "\n", 0, T_MARK, SPM_BYTE0 + 10);
    EXPECT(t, "a\xc3\xa9", 0, T_MA, SPM_BYTE0 + 0xc3, SPM_BYTE0 + 0xa9);
    EXPECT(t, "<0x41>", 0, T_MARK, SPM_BYTE0 + '<', SPM_BYTE0 + '0', SPM_BYTE0 + 'x',
           SPM_BYTE0 + '4', SPM_BYTE0 + '1', SPM_BYTE0 + '>');
    EXPECT(t, "<s>a</s>b", BITNET_TOK_SPECIAL, SPM_BOS, T_MA, SPM_EOS, T_MARK, T_B);
    EXPECT(t, "a<tool>b", 0, T_MA, T_USER, T_MARK, T_B); /* without the flag, too */
    expect_ids(t, "", 0, NULL, 0);

    size_t n;
    assert_memory_equal(bn_token_bytes(t, T_MAB, false, true, &n), "ab", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(bn_token_bytes(t, T_MAB, false, false, &n), " ab", 3);
    assert_memory_equal(bn_token_bytes(t, SPM_BYTE0 + 10, false, true, &n), "\n", 1);

    struct bn_tokens ids = {0};
    bitnet_error err;
    assert_int_equal(bn_encode(t, "ok\xff", 3, 0, &ids, &err), BITNET_E_ARG);
    assert_string_equal(err.text, "the text is not valid UTF-8 at byte 2");
    bn_tokens_free(&ids);
    bn_tokenizer_close(t);
}

static void test_spm_variants(void **state)
{
    (void)state;
    struct bn_vocab v;
    spm_vocab(&v); /* a token across a word's end: words are merged together */
    put_token(&v, "b" MARK "a", BN_TOKEN_NORMAL, -0.5f);
    put_token(&v, "b" MARK, BN_TOKEN_NORMAL, -0.6f);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "b ab", 0, T_MARK, T_FREE, T_B);
    bn_tokenizer_close(t);

    spm_vocab(&v); /* a character that is no token of its own can still be part of one */
    put_token(&v, "ax", BN_TOKEN_NORMAL, -0.5f);
    v.add_space_prefix = false;
    t = open_vocab(&v);
    EXPECT(t, "axx", 0, T_FREE, SPM_BYTE0 + 'x');
    bn_tokenizer_close(t);

    spm_vocab(&v);
    v.prefix_first_only = true;
    t = open_vocab(&v);
    EXPECT(t, "a</s>a", BITNET_TOK_SPECIAL, T_MA, SPM_EOS, T_A);
    bn_tokenizer_close(t);

    spm_vocab(&v);
    v.prefix_if_missing = v.add_eos = true;
    t = open_vocab(&v);
    EXPECT(t, " a", BITNET_TOK_BOS_AUTO, SPM_BOS, T_MA, SPM_EOS);
    EXPECT(t, "a", BITNET_TOK_BOS, SPM_BOS, T_MA);
    bn_tokenizer_close(t);

    spm_vocab(&v); /* no byte tokens: a run of unknown characters is one unknown token */
    for (int c = 0; c < 256; c++) v.types[SPM_BYTE0 + c] = BN_TOKEN_UNUSED;
    t = open_vocab(&v);
    EXPECT(t, "axya", 0, T_MA, SPM_UNK, T_A);
    bn_tokenizer_close(t);
}

static void test_strip_flags(void **state)
{
    (void)state;
    struct bn_vocab v;
    spm_vocab(&v);
    v.strip[SPM_EOS] = BN_STRIP_LEFT | BN_STRIP_RIGHT;
    v.strip[T_USER] = BN_STRIP_SINGLE_WORD;
    put_token(&v, "<tool>x", BN_TOKEN_USER, 0);
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "a \xe3\x80\x80</s>\n b", BITNET_TOK_SPECIAL, T_MA, SPM_EOS, T_MARK, T_B);
    EXPECT(t, "a <tool> a", 0, T_MA, T_MARK, T_USER, T_MARK, T_MA);
    EXPECT(t, "<tool>xa", 0, T_FREE, T_MA); /* the longest */
    struct bn_tokens ids = encode_n(t, "a<tool>", 7, 0);
    assert_int_not_equal(ids.ids[1], T_USER); /* touches a letter */
    bn_tokens_free(&ids);
    bn_tokenizer_close(t);
}

/* ------------------------------------------------------------------ pre-tokenizers */

static void test_pre_names(void **state)
{
    (void)state;
    bool ignore = false;
    const char *const *llama = bn_pre_patterns("llama-bpe", &ignore);
    assert_non_null(llama);
    assert_true(ignore);
    static const char *const same[] = {"llama3",    "llama-v3", "falcon3",
                                       "falcon-h1", "falcon_e", "pixtral"};
    for (size_t i = 0; i < BN_ARRAY_LEN(same); i++)
        assert_ptr_equal(bn_pre_patterns(same[i], NULL), llama);
    assert_string_equal(bn_pre_name(llama, 1, true), "llama-bpe");
    assert_non_null(bn_pre_patterns("gpt-2", &ignore));
    assert_false(ignore);
    assert_null(bn_pre_patterns("nonsense", NULL));
    const char *const mine[] = {"\\w+"};
    assert_null(bn_pre_name(mine, 1, false));
    const char *const *falcon = bn_pre_patterns("falcon", NULL);
    assert_string_equal(bn_pre_name(falcon, 3, false), "falcon");
    assert_null(bn_pre_name(falcon, 2, false));
}

static void test_byte_level_details(void **state)
{
    (void)state;
    struct bn_vocab v;
    byte_vocab(&v, "gpt-2");
    add_merge(&v, "1", "2", "12");
    add_merge(&v, "\xc4\xa0", "1",
              "\xc4\xa0"
              "1"); /* space + 1 */
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "1 12", 0, '1', ' ', 256);
    bn_tokenizer_close(t);

    byte_vocab(&v, "qwen2"); /* digits stand alone */
    add_merge(&v, "1", "2", "12");
    t = open_vocab(&v);
    EXPECT(t, "112", 0, '1', '1', '2');
    bn_tokenizer_close(t);

    byte_vocab(&v, "llama-bpe"); /* ignore_merges: the whole pre-token is a token no merge makes */
    add_merge(&v, "a", "b", "ab");
    v.tokens[v.n_tokens] = (struct bn_str){"xyz", 3};
    v.types[v.n_tokens++] = BN_TOKEN_NORMAL;
    t = open_vocab(&v);
    EXPECT(t, "xyz", 0, 257);
    EXPECT(t, "xyzz", 0, 'x', 'y', 'z', 'z');
    EXPECT(t, "ab'S", 0, 256, '\'', 'S');
    bn_tokenizer_close(t);

    byte_vocab(&v, "gpt-2"); /* merges may pass through strings that are no tokens */
    add_merge(&v, "a", "b", NULL);
    add_merge(&v, "ab", "c", "abc");
    t = open_vocab(&v);
    EXPECT(t, "abcab", 0, 256, 'a', 'b');
    bn_tokenizer_close(t);

    byte_vocab(&v, "gpt-2");
    add_merge(&v, "\xc3\x83", "\xc2\xa9", "\xc3\x83\xc2\xa9"); /* C3 A9: e with acute */
    v.normalizer = "nfc";
    t = open_vocab(&v);
    EXPECT(t, "e\xcc\x81", 0, 256);
    EXPECT(t,
           "\xff"
           "e\xcc\x81",
           0, 0xff, 256);
    bn_tokenizer_close(t);

    byte_vocab(&v, "gpt-2");
    add_merge(&v, "a", "b", "ab");
    v.add_space_prefix = true;
    t = open_vocab(&v);
    EXPECT(t, "b", 0, ' ', 'b');
    EXPECT(t, " b", 0, ' ', 'b');
    bn_tokenizer_close(t);
}

/* The text as pieces: a vocabulary that has every pair of neighbours would be needed to see them in
 * the tokens, so merges of exactly the wanted borders are asked for instead. */
static void test_unicode_white_space(void **state)
{
    (void)state;
    struct bn_vocab v;
    byte_vocab(&v, NULL);
    /* U+180E is no white space since Unicode 6.3; PCRE2's own \s says it is */
    v.patterns[0] = "\\s+", v.n_patterns = 1;
    add_merge(&v, "a", "\xc3\xa1", "a\xc3\xa1"); /* 'a' and the first byte of U+180E */
    struct bn_tokenizer *t = open_vocab(&v);
    EXPECT(t, "a\xe1\xa0\x8e", 0, 256, 0xa0, 0x8e);
    EXPECT(t, "a\xe1\x9a\x80", 0, 'a', 0xe1, 0x9a, 0x80); /* U+1680 is */
    bn_tokenizer_close(t);
}

static bitnet_status gather(void *user, const char *p, size_t n, bitnet_error *err)
{
    (void)err;
    struct bn_buf *b = user;
    if (b->len) bn_buf_putc(b, '|');
    bn_buf_append(b, p, n);
    return BITNET_OK;
}

/* Qwen3.5 joins marks with letters, Qwen2 does not. The pieces are Perl's, of the same pattern. */
static void test_qwen35_pieces(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"it'LL've 2024 ok", "it|'LL|'ve| |2|0|2|4| ok"},
        {"a  b\t c", "a| | b|\t| c"},
        {"x ()\n\ny", "x| ()\n\n|y"},
        {" \n \n z", " \n \n| z"},
        {"កាន់តែពិសេសអាច😁", "កាន់តែពិសេសអាច|😁"},
        {"!\xcc\x81"
         "a1\xcc\x81",
         "!\xcc\x81"
         "a|1|\xcc\x81"},
        {"कि हिन्दी।", "कि| हिन्दी|।"},
        {"--\xcc\x81-", "--|\xcc\x81|-"},
    };
    struct bn_split *s;
    struct bn_split_run *r;
    bitnet_error err;
    assert_int_equal(bn_split_open(&s, bn_pre_patterns("qwen35", NULL), 1, &err), BITNET_OK);
    assert_int_equal(bn_split_begin(&r, s, 100, &err), BITNET_OK);
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct bn_buf b;
        bn_buf_init(&b, 1 << 12);
        const char *text = cases[i][0];
        assert_int_equal(bn_split_text(r, text, strlen(text), gather, &b, &err), BITNET_OK);
        bn_buf_putc(&b, 0);
        assert_string_equal(b.data, cases[i][1]);
        bn_buf_free(&b);
    }
    bn_split_end(r);
    bn_split_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stories_ids),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_merging_against_reference),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_spm_variants),
        cmocka_unit_test(test_strip_flags),
        cmocka_unit_test(test_pre_names),
        cmocka_unit_test(test_byte_level_details),
        cmocka_unit_test(test_unicode_white_space),
        cmocka_unit_test(test_qwen35_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
