/* SPDX-License-Identifier: Apache-2.0
 * Drafts: they are what stood behind the last occurrence of the text's end, found as a naive search
 * finds it; they stop where they do not pay, and start again where they do. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "alloc_count.h"
#include "engine/draft.h"

enum { MAX = 4096 };

static struct bn_draft *open_draft(uint32_t max_tokens)
{
    struct bn_draft *d = NULL;
    assert_int_equal(bn_draft_open(&d, max_tokens, NULL), BITNET_OK);
    return d;
}

/* The definition: the last place before the end where the last 3, else 2, tokens stand. */
static uint32_t naive_draft(const int32_t *text, uint32_t n, int32_t *out, uint32_t most)
{
    for (uint32_t length = 3; length >= 2; length--)
        for (uint32_t at = n; at-- > length;) {
            if (memcmp(text + at - length, text + n - length, length * sizeof *text) != 0) continue;
            for (uint32_t i = 0; i < most; i++)
                out[i] = at + i < n ? text[at + i] : out[at + i - n];
            return most;
        }
    return 0;
}

static void drafts_are_those_of_a_search(void **state)
{
    (void)state;
    struct bn_rng r = {5};
    static int32_t text[600];
    for (uint32_t vocab = 2; vocab <= 32; vocab *= 2) {
        struct bn_draft *d = open_draft(BN_ARRAY_LEN(text));
        long before = n_allocs;
        uint32_t found = 0;
        for (uint32_t n = 0; n < BN_ARRAY_LEN(text);) {
            uint32_t some = 1 + bn_rng_below(&r, 3);
            for (; some && n < BN_ARRAY_LEN(text); some--)
                text[n++] = (int32_t)bn_rng_below(&r, vocab);
            bn_draft_update(d, text, n);
            uint32_t most = bn_rng_below(&r, BN_DRAFT_MAX + 1);
            int32_t want[BN_DRAFT_MAX + 1], got[BN_DRAFT_MAX + 1];
            memset(want, -1, sizeof want);
            memset(got, -1, sizeof got);
            uint32_t n_want = naive_draft(text, n, want, most);
            assert_int_equal(bn_draft_make(d, got, most, true), n_want);
            assert_memory_equal(got, want, sizeof want); /* and nothing behind it is written */
            found += n_want > 0;
        }
        assert_true(found > 20);
        assert_int_equal(n_allocs, before);
        bn_draft_close(d);
    }
}

static void short_and_long_texts_are_safe(void **state)
{
    (void)state;
    int32_t out[BN_DRAFT_MAX];
    for (uint32_t max = 0; max < 20; max++) {
        struct bn_draft *d = open_draft(max);
        for (uint32_t n = 0; n < max + 3; n++) { /* of a block that ends with the text */
            int32_t *text = malloc((n ? n : 1) * sizeof *text);
            for (uint32_t i = 0; i < n; i++) text[i] = 7;
            bn_draft_update(d, text, n);
            free(text);
            uint32_t known = n < max ? n : max;
            assert_int_equal(bn_draft_make(d, out, BN_DRAFT_MAX, true),
                             known > 2 ? BN_DRAFT_MAX : 0);
            assert_int_equal(bn_draft_make(d, out, 0, true), 0);
        }
        bn_draft_learn(d, 0, 0, 0);
        bn_draft_close(d);
    }
    bn_draft_close(NULL);
}

/* Decodes a text that is known beforehand, as an engine would; a step with n drafts costs
 * 1 + n * extra. */
struct run {
    uint32_t steps, drafted, right;
    double time;
};

static struct run decode(struct bn_draft *d, const int32_t *text, uint32_t from, uint32_t to,
                         double extra)
{
    struct run run = {0};
    for (uint32_t n = from; n < to; run.steps++) {
        int32_t draft[BN_DRAFT_MAX];
        bn_draft_update(d, text, n);
        uint32_t most = to - n - 1 < BN_DRAFT_MAX ? to - n - 1 : BN_DRAFT_MAX, right = 0;
        uint32_t k = bn_draft_make(d, draft, most, false);
        assert_true(k <= most);
        while (right < k && draft[right] == text[n + right]) right++;
        double cost = 1 + k * extra;
        bn_draft_learn(d, k, right, cost);
        run.drafted += k;
        run.right += right;
        run.time += cost;
        n += 1 + right;
    }
    return run;
}

static void fill_random(int32_t *text, uint32_t n, uint32_t vocab, uint64_t seed)
{
    struct bn_rng r = {seed};
    for (uint32_t i = 0; i < n; i++) text[i] = (int32_t)bn_rng_below(&r, vocab);
}

static void repeating_text_is_guessed(void **state)
{
    (void)state;
    static int32_t text[MAX];
    static const uint32_t periods[] = {1, 2, 3, 7, 50, 200};
    for (size_t i = 0; i < BN_ARRAY_LEN(periods); i++) {
        uint32_t period = periods[i], from = 2 * period + 4;
        for (uint32_t k = 0; k < MAX; k++) text[k] = (int32_t)(k % period);
        struct bn_draft *d = open_draft(MAX);
        struct run run = decode(d, text, from, MAX, 0.2);
        assert_int_equal(run.right, run.drafted); /* all of them */
        assert_true(run.steps * 8 < MAX - from);  /* and nearly as long as can be */
        bn_draft_close(d);
    }
}

static void random_text_is_left_alone(void **state)
{
    (void)state;
    static int32_t text[MAX];
    fill_random(text, MAX, 16, 3); /* pairs come again all the time, and mean nothing */
    struct bn_draft *d = open_draft(MAX);
    decode(d, text, 1, 1024, 0.25);
    struct run run = decode(d, text, 1024, MAX, 0.25);
    assert_in_range(run.drafted, 1, run.steps / 20); /* a try now and then */
    assert_true(run.time < (MAX - 1024) * 1.01);
    bn_draft_close(d);
}

static void drafting_recovers(void **state)
{
    (void)state;
    static int32_t text[MAX];
    fill_random(text, MAX / 2, 16, 4);
    for (uint32_t i = MAX / 2; i < MAX; i++) text[i] = text[i - 300];
    struct bn_draft *d = open_draft(MAX);
    decode(d, text, 1, MAX / 2, 0.25);
    struct run run = decode(d, text, MAX / 2, MAX, 0.25);
    assert_true(run.time < MAX / 2 * 0.7);
    bn_draft_close(d);
}

/* Half of the drafts' first tokens are right: worth a fifth of a step, not worth a whole one. */
static void the_price_decides(void **state)
{
    (void)state;
    static int32_t text[MAX];
    struct bn_rng r = {9};
    for (uint32_t i = 0; i < MAX; i++) /* three tokens that are known, one of two */
        text[i] = (int32_t)(i % 4 ? 100 + i % 4 : bn_rng_below(&r, 2));
    struct bn_draft *cheap = open_draft(MAX), *dear = open_draft(MAX);
    decode(cheap, text, 1, 1000, 0.1);
    decode(dear, text, 1, 1000, 1.5);
    struct run gain = decode(cheap, text, 1000, MAX, 0.1),
               none = decode(dear, text, 1000, MAX, 1.5);
    assert_true(gain.time < (MAX - 1000) * 0.6);
    assert_true(none.drafted * 20 < none.steps);
    bn_draft_close(cheap);
    bn_draft_close(dear);
}

/* Drafts that are always right, of which each step is said to have cost so much; returns how many
 * there were. */
static uint32_t learn_cost(struct bn_draft *d, const int32_t *text, uint32_t from, uint32_t to,
                           double cost)
{
    int32_t out[BN_DRAFT_MAX];
    uint32_t drafted = 0;
    for (uint32_t n = from; n < to; n++) {
        bn_draft_update(d, text, n);
        uint32_t k = bn_draft_make(d, out, BN_DRAFT_MAX, false);
        bn_draft_learn(d, k, k, cost);
        drafted += k;
    }
    return drafted;
}

static void odd_costs_do_no_harm(void **state)
{
    (void)state;
    static int32_t text[MAX];
    static const double costs[] = {0, -1, NAN, 0.5, INFINITY, 1e300};
    for (uint32_t i = 0; i < MAX; i++) text[i] = (int32_t)(i % 5);
    for (size_t c = 0; c < BN_ARRAY_LEN(costs); c++) {
        struct bn_draft *d = open_draft(MAX);
        learn_cost(d, text, 20, 500, costs[c]);
        uint32_t drafted = learn_cost(d, text, 500, 1000, costs[c]);
        if (costs[c] > 1) assert_in_range(drafted, 1, 500 / 64 + 1);
        else assert_int_equal(drafted, 500 * BN_DRAFT_MAX); /* free, or not known */
        learn_cost(d, text, 1000, 1500, 1.2);               /* and when they become what they are */
        assert_true(learn_cost(d, text, 1500, 2000, 1.2) > 500 * 6);
        bn_draft_close(d);
    }
}

static void the_same_calls_get_the_same_guesses(void **state)
{
    (void)state;
    static int32_t text[MAX];
    fill_random(text, MAX, 6, 8);
    struct bn_draft *a = open_draft(MAX), *b = open_draft(MAX);
    struct run x = decode(a, text, 1, MAX, 0.2), y = decode(b, text, 1, MAX, 0.2);
    assert_int_equal(x.steps, y.steps);
    assert_int_equal(x.drafted, y.drafted);
    assert_int_equal(x.right, y.right);
    bn_draft_close(a);
    bn_draft_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_those_of_a_search),
        cmocka_unit_test(short_and_long_texts_are_safe),
        cmocka_unit_test(repeating_text_is_guessed),
        cmocka_unit_test(random_text_is_left_alone),
        cmocka_unit_test(drafting_recovers),
        cmocka_unit_test(the_price_decides),
        cmocka_unit_test(odd_costs_do_no_harm),
        cmocka_unit_test(the_same_calls_get_the_same_guesses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
