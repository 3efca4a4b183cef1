/* SPDX-License-Identifier: Apache-2.0
 * Quotas: the window against a list of all uses, times until there is room, tokens given back, words of the
 * keys file. The clock is a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/access/quota.h"

static const uint64_t second_ns = UINT64_C(1000000000);
static const uint64_t minute_ns = UINT64_C(60000000000);
static struct quota_account *account;

static int open_account(void **state)
{
    (void)state;
    account = quota_account_new();
    return account == NULL;
}

static int close_account(void **state)
{
    (void)state;
    quota_let_go(account);
    return 0;
}

static void test_requests(void **state)
{
    (void)state;
    account->limits.requests = 3;
    uint64_t now = 1000 * second_ns + 250000000;
    for (int i = 0; i < 3; i++) assert_int_equal(quota_take_request(account, now), 0);
    uint64_t wait = quota_take_request(account, now);
    assert_true(wait >= minute_ns && wait <= minute_ns + second_ns);
    assert_int_equal(quota_requests_state(account, now).left, 0);
    assert_int_not_equal(quota_take_request(account, now + wait - 1), 0);
    assert_int_equal(quota_take_request(account, now + wait), 0); /* to the nanosecond */
    assert_int_equal(quota_requests_state(account, now + wait).left, 2);
    assert_int_equal(quota_requests_state(account, now + wait + 2 * minute_ns).left, 3);
    assert_int_equal(quota_requests_state(account, now + wait + 2 * minute_ns).reset_ns, 0);
}

static void test_no_limit(void **state)
{
    (void)state;
    for (int i = 0; i < 10000; i++) assert_int_equal(quota_take_request(account, second_ns), 0);
    assert_int_equal(quota_take_tokens(account, UINT64_C(1) << 40, second_ns), 0);
}

/* Against a list of all that was granted: in no minute, wherever it begins, more than the quota; and what is
 * refused is granted when it was said, not a nanosecond before. */
static void test_against_list(void **state)
{
    (void)state;
    enum { N = 20000 };
    static struct {
        uint64_t ns, n;
    } granted[N];
    size_t n_granted = 0, oldest = 0;
    uint64_t now = 77 * second_ns, seed = 42, sum = 0;
    account->limits.tokens = 1000;
    for (int i = 0; i < N; i++) {
        uint64_t r = bn_mix64(seed + (uint64_t)i), n = 1 + r % 300;
        now += r / 300 % (i % 7 ? 900000000 : 40 * second_ns);
        uint64_t wait = quota_take_tokens(account, n, now);
        if (wait) {
            assert_true(wait <= minute_ns + second_ns);
            assert_int_equal(quota_tokens_wait_ns(account, n, now), wait);
            if (i % 3 == 0) {
                assert_int_not_equal(quota_tokens_wait_ns(account, n, now + wait - 1), 0);
                now += wait;
                assert_int_equal(quota_take_tokens(account, n, now), 0);
                wait = 0;
            }
        }
        if (wait) continue;
        granted[n_granted].ns = now;
        granted[n_granted++].n = n;
        sum += n;
        while (granted[oldest].ns + minute_ns <= now) sum -= granted[oldest++].n;
        assert_true(sum <= 1000);
    }
    assert_true(n_granted > 1000);
}

static void test_return(void **state)
{
    (void)state;
    account->limits.tokens = 100;
    uint64_t then = 500 * second_ns, now = then + 10 * second_ns;
    assert_int_equal(quota_take_tokens(account, 100, then), 0);
    assert_int_not_equal(quota_take_tokens(account, 1, now), 0);
    quota_return_tokens(account, 70, then, now);
    assert_int_equal(quota_tokens_state(account, now).left, 70);
    assert_int_equal(quota_take_tokens(account, 70, now), 0);
    /* what counts no more cannot be given back */
    quota_return_tokens(account, 30, then, then + 2 * minute_ns);
    assert_int_equal(quota_tokens_state(account, then + 2 * minute_ns).left, 100);
    quota_return_tokens(account, 70, now, then + 2 * minute_ns);
    assert_int_equal(quota_tokens_state(account, then + 2 * minute_ns).left, 100);
    /* nor can more than was used */
    assert_int_equal(quota_take_tokens(account, 10, 1000 * second_ns), 0);
    quota_return_tokens(account, 99, 1000 * second_ns, 1000 * second_ns);
    assert_int_equal(quota_tokens_state(account, 1000 * second_ns).left, 100);
}

static void test_lower_limit(void **state)
{
    (void)state;
    account->limits.requests = 10;
    for (int i = 0; i < 10; i++) assert_int_equal(quota_take_request(account, second_ns), 0);
    account->limits.requests = 4; /* the file was read again */
    assert_int_equal(quota_requests_state(account, second_ns).left, 0);
    assert_int_not_equal(quota_take_request(account, 2 * second_ns), 0);
    account->limits.requests = 12;
    assert_int_equal(quota_take_request(account, 2 * second_ns), 0);
    assert_int_equal(quota_take_request(account, 2 * second_ns), 0);
    assert_int_not_equal(quota_take_request(account, 2 * second_ns), 0);
}

static bitnet_status read_word(const char *word, bitnet_error *err)
{
    return quota_read_word(account, word, strlen(word), "line 7", err);
}

static void test_words(void **state)
{
    (void)state;
    bitnet_error err;
    const char *const good[] = {"name=alice",   "weight=8",   "requests=60",      "tokens=100000",
                                "concurrent=4", "priority=5", "best-priority=-1", "admin=1"};
    const char *const bad[] = {
        "secret",    "secret=1",       "weight=0",    "weight=-1",
        "requests=", "tokens=1e5",     "priority=",   "concurrent=99999999999",
        "name=",     "weight=1000001", "requests=6 ", "admin=2",
        "admin=yes"};
    struct quota_limits *l = &account->limits;
    assert_int_equal(quota_best_priority(l), 0);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(read_word(good[i], &err), BITNET_OK);
    assert_string_equal(account->name, "alice");
    assert_true(l->weight == 8 && l->requests == 60 && l->tokens == 100000 && l->concurrent == 4);
    assert_true(l->admin);
    assert_true(l->priority == 5 && quota_best_priority(l) == -1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_not_equal(read_word(bad[i], &err), BITNET_OK);
        assert_non_null(strstr(err.text, "line 7"));
        assert_null(strstr(err.text, "secret"));
    }
    account->limits = quota_none;
    assert_int_equal(read_word("priority=5", &err), BITNET_OK);
    assert_int_equal(quota_best_priority(l), 5); /* a batch key's requests stay behind */
}

static void test_times(void **state)
{
    (void)state;
    char text[QUOTA_TIME_BYTES];
    const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {{0, "0ms"},
                 {1, "1ms"},
                 {20000000, "20ms"},
                 {1500000000, "1.5s"},
                 {59999000000, "59.999s"},
                 {minute_ns, "1m0s"},
                 {minute_ns + second_ns, "1m1s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        quota_time_text(text, cases[i].ns);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_account, close_account)
    const struct CMUnitTest tests[] = {
        TEST(test_requests), TEST(test_no_limit),    TEST(test_against_list), TEST(test_return),
        TEST(test_words),    TEST(test_lower_limit), TEST(test_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
