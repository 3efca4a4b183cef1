/* SPDX-License-Identifier: Apache-2.0
 * Tokens to text, piece by piece: whole characters only, replacement characters, stop strings
 * across tokens, the same text wherever the token borders lie, and no allocation on the way. And
 * what happens when memory runs out: an error, never a crash. The allocator is wrapped by the
 * linker for that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "base/rng.h"
#include "effort.h"
#include "alloc_refuse.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"

#define STORIES TEST_DATA "/stories/tokenizer.json"
#define BAD     "\xef\xbf\xbd"

/* ------------------------------------------------------------------ helpers */

static struct bn_tokenizer *stories;
static int32_t byte_token[256];

static int open_stories(void **state)
{
    (void)state;
    struct bn_vocab v;
    if (bn_vocab_read_hf(&v, STORIES, NULL) != BITNET_OK) return -1;
    if (bn_tokenizer_open(&stories, &v, NULL) != BITNET_OK) return -1;
    for (int32_t id = 0; id < 4096; id++) {
        size_t n;
        const char *p = bn_token_bytes(stories, id, false, false, &n);
        if (n == 1) byte_token[(uint8_t)*p] = id;
    }
    return 0;
}

static int close_stories(void **state)
{
    (void)state;
    bn_tokenizer_close(stories);
    return 0;
}

static struct bn_detok *open_detok(bool special, const char *const *stops, size_t n)
{
    struct bn_detok *d;
    bitnet_error err = {0};
    if (bn_detok_open(&d, stories, special, stops, n, &err) != BITNET_OK) fail_msg("%s", err.text);
    return d;
}

static void expect_push(struct bn_detok *d, int byte, const char *want, bool stop)
{
    const char *text;
    size_t n;
    assert_int_equal(bn_detok_push(d, byte_token[byte], &text, &n), stop);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
}

static void expect_flush(struct bn_detok *d, const char *want)
{
    const char *text;
    size_t n;
    bn_detok_flush(d, &text, &n);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(text, want, n);
}

/* ------------------------------------------------------------------ tests */

static void test_characters(void **state)
{
    (void)state;
    struct bn_detok *d = open_detok(false, NULL, 0);
    expect_push(d, 'x', "x", false);
    expect_push(d, 0xf0, "", false); /* a face, byte by byte */
    expect_push(d, 0x9f, "", false);
    expect_push(d, 0x98, "", false);
    expect_push(d, 0x80, "\xf0\x9f\x98\x80", false);
    expect_push(d, 0xe2, "", false); /* broken off: one replacement for what was there */
    expect_push(d, 0x82, "", false);
    expect_push(d, 'y', BAD "y", false);
    expect_push(d, 0x80, BAD, false); /* can never become valid */
    expect_push(d, 0xff, BAD, false);
    expect_push(d, 0xe0, "", false); /* E0 80 is overlong: known at once to be bad */
    expect_push(d, 0x80, BAD BAD, false);
    expect_push(d, 0xed, "", false); /* a surrogate */
    expect_push(d, 0xa0, BAD BAD, false);
    expect_push(d, 0xc3, "", false);
    expect_push(d, 0xc3, BAD, false);
    expect_push(d, 0xa9, "\xc3\xa9", false);
    expect_push(d, 0xf4, "", false);
    expect_flush(d, BAD);
    bn_detok_reset(d);
    expect_push(d, 0xc3, "", false);
    bn_detok_reset(d); /* forgets it */
    expect_push(d, 'a', "a", false);
    expect_flush(d, "");
    bn_detok_close(d);
}

static void test_special_names(void **state)
{
    (void)state;
    const char *text;
    size_t n;
    struct bn_detok *d = open_detok(true, NULL, 0);
    assert_false(bn_detok_push(d, 3, &text, &n));
    assert_int_equal(n, 10);
    assert_memory_equal(text, "<|eot_id|>", 10);
    bn_detok_close(d);
    d = open_detok(false, NULL, 0);
    assert_false(bn_detok_push(d, 3, &text, &n));
    assert_int_equal(n, 0);
    assert_false(bn_detok_push(d, -5, &text, &n)); /* ids out of range say nothing */
    assert_false(bn_detok_push(d, 1 << 30, &text, &n));
    assert_int_equal(n, 0);
    bn_detok_close(d);
}

static void test_stops(void **state)
{
    (void)state;
    static const char *const stops[] = {"\nUser:", "END"};
    struct bn_detok *d = open_detok(false, stops, 2);
    expect_push(d, 'a', "a", false);
    expect_push(d, 'E', "", false);
    expect_push(d, 'N', "", false);
    expect_push(d, 'E', "EN", false); /* the second E may still begin one */
    expect_push(d, 'N', "", false);
    expect_push(d, 'D', "", true);
    expect_push(d, 'x', "", true); /* stays stopped */
    expect_flush(d, "");
    bn_detok_reset(d);
    for (const char *p = "\nUse"; *p; p++) expect_push(d, *p, "", false);
    expect_flush(d, "\nUse");
    bn_detok_close(d);

    static const char *const nested[] = {"abcd", "bc", "c"};
    d = open_detok(false, nested, 3);
    expect_push(d, 'a', "", false);
    expect_push(d, 'b', "", false);
    expect_push(d, 'c', "a", true); /* "bc" and "c" are complete first, the longer one is cut */
    bn_detok_close(d);

    static const char *const wide[] = {"\xe2\x80\xa6"};
    d = open_detok(false, wide, 1);
    expect_push(d, 0xe2, "", false);
    expect_push(d, 0x80, "", false);
    expect_push(d, 0xa6, "", true);
    bn_detok_close(d);
}

static void test_stop_limits(void **state)
{
    (void)state;
    struct bn_detok *d;
    bitnet_error err;
    char long_stop[BN_MAX_STOP_BYTES + 2];
    memset(long_stop, 'x', sizeof long_stop - 1);
    long_stop[BN_MAX_STOP_BYTES + 1] = 0;
    const char *stop = long_stop, *many[BN_MAX_STOPS + 1];
    assert_int_equal(bn_detok_open(&d, stories, false, &stop, 1, &err), BITNET_E_LIMIT);
    stop = long_stop + 1;
    assert_int_equal(bn_detok_open(&d, stories, false, &stop, 1, &err), BITNET_OK);
    bn_detok_close(d);
    stop = "";
    assert_int_equal(bn_detok_open(&d, stories, false, &stop, 1, &err), BITNET_E_LIMIT);
    stop = "\xff";
    assert_int_equal(bn_detok_open(&d, stories, false, &stop, 1, &err), BITNET_E_ARG);
    for (size_t i = 0; i < BN_ARRAY_LEN(many); i++) many[i] = "x";
    assert_int_equal(bn_detok_open(&d, stories, false, many, BN_ARRAY_LEN(many), &err),
                     BITNET_E_LIMIT);
    assert_null(d);
}

/* Feeds the bytes cut into tokens in some way and gathers what is shown. */
static size_t show(struct bn_detok *d, struct bn_rng *r, const char *bytes, size_t n, char *out)
{
    size_t k = 0, len;
    const char *text;
    bn_detok_reset(d);
    for (size_t i = 0; i < n;) {
        /* a random token that fits here, else the byte's own */
        int32_t id = byte_token[(uint8_t)bytes[i]];
        len = 1;
        for (int tries = 0; r && tries < 400; tries++) {
            size_t m;
            int32_t other = (int32_t)bn_rng_below(r, 4096);
            const char *p = bn_token_bytes(stories, other, false, false, &m);
            if (m > 1 && m <= n - i && memcmp(p, bytes + i, m) == 0) id = other, len = m;
        }
        i += len;
        long before = n_allocations;
        bool stop = bn_detok_push(d, id, &text, &len);
        assert_int_equal(n_allocations, before);
        assert_true(bn_utf8_valid(text, len, NULL));
        memcpy(out + k, text, len);
        k += len;
        if (stop) break;
    }
    bn_detok_flush(d, &text, &len);
    memcpy(out + k, text, len);
    return k + len;
}

static void test_borders_do_not_matter(void **state)
{
    (void)state;
    static const char *const stops[] = {"she was", " the d", "\n\n", "eee"};
    static const char *const bits[] = {"she ", "was ",  " the",     " day",     "\n",
                                       "e",    "ee",    "\xc3\xa9", "\xe2\x82", "\xf0\x9f\x98\x80",
                                       "\x80", "little"};
    struct bn_detok *d = open_detok(false, stops, BN_ARRAY_LEN(stops));
    struct bn_rng r = {11};
    for (int round = 0; round < 100; round++) {
        char bytes[512], a[2048], b[2048];
        size_t n = 0, want = 1 + bn_rng_below(&r, 24);
        for (size_t i = 0; i < want; i++) {
            const char *s = bits[bn_rng_below(&r, BN_ARRAY_LEN(bits))];
            memcpy(bytes + n, s, strlen(s));
            n += strlen(s);
        }
        size_t na = show(d, NULL, bytes, n, a), nb = show(d, &r, bytes, n, b);
        assert_int_equal(na, nb);
        assert_memory_equal(a, b, na);
    }
    bn_detok_close(d);
}

/* ------------------------------------------------------------------ out of memory */

static void test_no_memory_encode(void **state)
{
    (void)state;
    static const char text[] = "Once upon a time there were 12345 caf\xc3\xa9s; "
                               "thethethethethethethethethethethethethethethethethe.";
    struct bn_tokens want = {0};
    assert_int_equal(bn_encode(stories, text, strlen(text), 0, &want, NULL), BITNET_OK);
    for (long k = 0;; k++) {
        struct bn_tokens ids = {0};
        bitnet_error err = {0};
        n_allocations = 0, fail_at = k;
        bitnet_status st = bn_encode(stories, text, strlen(text), 0, &ids, &err);
        fail_at = -1;
        bool same = ids.n == want.n && memcmp(ids.ids, want.ids, want.n * sizeof *want.ids) == 0;
        bn_tokens_free(&ids);
        if (st == BITNET_OK) {
            assert_true(same);
            assert_true(k > 0);
            break;
        }
        assert_int_equal(st, BITNET_E_NOMEM);
        assert_non_null(strstr(err.text, "memory"));
    }
    bn_tokens_free(&want);
}

static void test_no_memory_open(void **state)
{
    (void)state;
    for (long k = 0;; k += full_effort() ? 1 : 7) {
        struct bn_vocab v;
        struct bn_tokenizer *t = NULL;
        n_allocations = 0, fail_at = k;
        bitnet_status st = bn_vocab_read_hf(&v, STORIES, NULL);
        if (st == BITNET_OK) st = bn_tokenizer_open(&t, &v, NULL);
        fail_at = -1;
        if (st == BITNET_OK) {
            bn_tokenizer_close(t);
            break;
        }
        assert_int_equal(st, BITNET_E_NOMEM);
        assert_null(t);
        assert_int_equal(v.n_tokens, 0);
    }
    const char *stop = "x";
    struct bn_detok *d;
    n_allocations = 0, fail_at = 0;
    bitnet_status st = bn_detok_open(&d, stories, false, &stop, 1, NULL);
    fail_at = -1;
    assert_int_equal(st, BITNET_E_NOMEM);
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_special_names),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_stop_limits),
        cmocka_unit_test(test_borders_do_not_matter),
        cmocka_unit_test(test_no_memory_encode),
        cmocka_unit_test(test_no_memory_open),
    };
    return cmocka_run_group_tests(tests, open_stories, close_stories);
}
