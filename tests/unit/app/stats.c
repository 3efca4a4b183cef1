/* SPDX-License-Identifier: Apache-2.0
 * The statistics behind `bitnet bench`: known answers, and what a comparison must find and must
 * leave alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/rng.h"
#include "app/stats.h"

static void near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance)) fail_msg("got %.12g, want %.12g", got, want);
}

static void summaries_have_known_answers(void **state)
{
    (void)state;
    double scratch[8];
    const double x[] = {7, 1, 3, 100, 5};
    struct stats_summary s = stats_summarize(x, 5, scratch);
    near(s.mean, 23.2, 1e-12);
    near(s.median, 5, 0);
    near(s.q1, 3, 0);
    near(s.q3, 7, 0);
    near(s.mad, 2, 0);
    near(s.min, 1, 0);
    near(s.max, 100, 0);
    near(s.spread, 0.8, 1e-12);
    assert_int_equal(s.n, 5);
    near(x[3], 100, 0); /* the input is left as it was */
    const double even[] = {4, 1, 3, 2};
    s = stats_summarize(even, 4, scratch);
    near(s.median, 2.5, 0);
    near(s.q1, 1.75, 0);
    near(s.q3, 3.25, 0);
    s = stats_summarize(even, 1, scratch);
    near(s.median, 4, 0);
    near(s.spread, 0, 0);
    s = stats_summarize(even, 0, scratch);
    near(s.median, 0, 0);
    const double zeros[] = {0, 0, 0};
    near(stats_summarize(zeros, 3, scratch).spread, 0, 0);
}

static void quantiles_interpolate(void **state)
{
    (void)state;
    double x[101];
    for (int i = 0; i <= 100; i++) x[i] = 100 - i;
    stats_sort(x, 101);
    near(stats_quantile(x, 101, 0.50), 50, 1e-12);
    near(stats_quantile(x, 101, 0.95), 95, 1e-12);
    near(stats_quantile(x, 101, 0.99), 99, 1e-12);
    near(stats_quantile(x, 101, 0), 0, 0);
    near(stats_quantile(x, 101, 1), 100, 0);
    const double two[] = {10, 20};
    near(stats_quantile(two, 2, 0.95), 19.5, 1e-12);
    near(stats_quantile(two, 0, 0.5), 0, 0);
}

/* Values by hand: 5 of 10 ranks can be chosen in 252 ways, 2 of them lie at the ends. */
static void rank_test_has_known_answers(void **state)
{
    (void)state;
    const double low[] = {1, 2, 3, 4, 5}, high[] = {6, 7, 8, 9, 10};
    near(stats_rank_test(low, 5, high, 5), 2.0 / 252, 1e-12);
    near(stats_rank_test(high, 5, low, 5), 2.0 / 252, 1e-12);
    const double mixed[] = {1, 2, 3, 4, 6}, rest[] = {5, 7, 8, 9, 10};
    near(stats_rank_test(mixed, 5, rest, 5), 4.0 / 252, 1e-12);
    near(stats_rank_test(low, 3, high, 3), 2.0 / 20, 1e-12);
    near(stats_rank_test(low, 1, high, 1), 1, 1e-12);
    near(stats_rank_test(low, 0, high, 5), 1, 0);
    near(stats_rank_test(low, 5, low, 5), 1, 1e-12);
    /* ties: {1,1,2} and {2,3,3} have ranks 1.5 1.5 3.5 | 3.5 5.5 5.5; sums as low as 6.5 arise in
     * 2 of 20 ways at each end */
    const double a[] = {1, 1, 2}, b[] = {2, 3, 3};
    near(stats_rank_test(a, 3, b, 3), 4.0 / 20, 1e-12);
    const double same[] = {3, 3, 3, 3, 3};
    near(stats_rank_test(same, 5, same, 5), 1, 1e-12);
}

/* Where one formula hands over to the other they agree. */
static void rank_test_is_continuous_at_its_limit(void **state)
{
    (void)state;
    double a[33], b[33];
    struct bn_rng r = {5};
    for (int i = 0; i < 33; i++) {
        a[i] = bn_rng_unit(&r);
        b[i] = bn_rng_unit(&r) + 0.15;
    }
    double exact = stats_rank_test(a, 32, b, 32), normal = stats_rank_test(a, 33, b, 32);
    assert_true(exact > 0 && exact < 1 && normal > 0 && normal < 1);
    near(log(normal), log(exact), 0.7);
    double same[40];
    for (int i = 0; i < 40; i++) same[i] = 1;
    near(stats_rank_test(same, 40, same, 40), 1, 0);
}

/* n repeats around a mean with a uniform noise of +-share, and now and then a slow outlier. */
static void make_repeats(double *x, size_t n, double mean, double share, struct bn_rng *r)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = mean * (1 + share * (2 * bn_rng_unit(r) - 1));
        if (bn_rng_below(r, 10) == 0) x[i] *= 0.8;
    }
}

static void planted_differences_are_found(void **state)
{
    (void)state;
    const double before[] = {100.2, 99.7, 100.0, 100.4, 99.9};
    const double after[] = {95.1, 94.8, 95.3, 94.9, 95.0};
    struct stats_comparison c = stats_compare(before, 5, after, 5, 1, 0.03, BENCH_ALPHA);
    assert_int_equal(c.verdict, BENCH_SLOWER);
    near(c.ratio, 0.95, 1e-3);
    assert_int_equal(stats_compare(after, 5, before, 5, 1, 0.03, BENCH_ALPHA).verdict,
                     BENCH_FASTER);
    /* as times, less is better */
    assert_int_equal(stats_compare(before, 5, after, 5, 0, 0.03, BENCH_ALPHA).verdict,
                     BENCH_FASTER);
    c = stats_compare(after, 5, before, 5, 0, 0.03, BENCH_ALPHA);
    assert_int_equal(c.verdict, BENCH_SLOWER);
    near(c.ratio, 0.95, 1e-3);
    /* significant, but below the threshold */
    c = stats_compare(before, 5, after, 5, 1, 0.06, BENCH_ALPHA);
    assert_int_equal(c.verdict, BENCH_SAME);
    assert_true(c.p_value < BENCH_ALPHA);
    /* above the threshold, but not significant */
    const double noisy[] = {100.3, 93.0, 94.0, 101.0, 92.0};
    assert_int_equal(stats_compare(before, 5, noisy, 5, 1, 0.03, BENCH_ALPHA).verdict, BENCH_SAME);
    assert_int_equal(stats_compare(before, 4, after, 4, 1, 0.03, BENCH_ALPHA).verdict,
                     BENCH_TOO_FEW);
    assert_int_equal(stats_compare(before, 1, after, 1, 1, 0.03, BENCH_ALPHA).verdict,
                     BENCH_TOO_FEW);
}

static void noise_stays_quiet(void **state)
{
    (void)state;
    struct bn_rng r = {2026};
    int n_slower = 0, n_found = 0;
    for (int i = 0; i < 1000; i++) {
        double a[5], b[5], slow[5];
        make_repeats(a, 5, 50, 0.02, &r);
        make_repeats(b, 5, 50, 0.02, &r);
        make_repeats(slow, 5, 47.5, 0.01, &r);
        n_slower += stats_compare(a, 5, b, 5, 1, 0.03, BENCH_ALPHA).verdict == BENCH_SLOWER;
        make_repeats(a, 5, 50, 0.01, &r);
        n_found += stats_compare(a, 5, slow, 5, 1, 0.03, BENCH_ALPHA).verdict == BENCH_SLOWER;
    }
    assert_true(n_slower <= 5); /* one side of the level of significance */
    /* an outlier of 20 % hides a difference of 5 %, but only on the side of the old values */
    assert_true(n_found > 500);
}

/* Known values of the exact distribution: all of n with one sign, 2 / 2^n; and for n = 10 a sum of
 * 8 for one sign, 0.048828125 (tables of the test give 8 as the limit at 5 %). */
static void signed_rank_test_has_known_answers(void **state)
{
    (void)state;
    double d[BENCH_PAIRS_MAX + 1], tied[] = {1, 1, -1, 1}, none[] = {0, 0, 0};
    for (int i = 0; i < 10; i++) d[i] = i + 1;
    near(stats_signed_rank_test(d, 10), 2 / 1024.0, 1e-12);
    near(stats_signed_rank_test(d, 1), 1, 1e-12);
    d[7] = -8;
    near(stats_signed_rank_test(d, 10), 0.048828125, 1e-12);
    near(stats_signed_rank_test(tied, 4), 10 / 16.0, 1e-12);
    near(stats_signed_rank_test(none, 3), 1, 1e-12);
    near(stats_signed_rank_test(NULL, 0), 1, 1e-12);
    for (size_t i = 0; i <= BENCH_PAIRS_MAX; i++) d[i] = 1;
    assert_true(stats_signed_rank_test(d, BENCH_PAIRS_MAX) < 1e-50);
    assert_true(stats_signed_rank_test(d, BENCH_PAIRS_MAX + 1) < 0);
}

/* The machine's speed wanders by more than the planted 5 %: pairs find it, and find nothing where
 * there is nothing. */
static void pairs_see_through_drift(void **state)
{
    (void)state;
    enum { N = 12 };
    struct bn_rng r = {7};
    int n_quiet = 0, n_found = 0;
    double before[N], after[N], slow[N], speed = 100;
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < N; k++) {
            speed *= 1 + (bn_rng_unit(&r) - 0.5) * 0.2;
            before[k] = speed * (1 + (bn_rng_unit(&r) - 0.5) * 0.03);
            after[k] = speed * (1 + (bn_rng_unit(&r) - 0.5) * 0.03);
            slow[k] = 0.95 * after[k];
        }
        struct stats_comparison c = stats_compare_pairs(before, after, N, 1, 0.03, BENCH_ALPHA);
        n_quiet += c.verdict == BENCH_SAME;
        c = stats_compare_pairs(before, slow, N, 1, 0.03, BENCH_ALPHA);
        n_found += c.verdict == BENCH_SLOWER;
        assert_true(stats_compare_pairs(slow, before, N, 0, 0.03, BENCH_ALPHA).ratio < 1);
    }
    assert_int_equal(n_quiet, 500);
    assert_true(n_found > 490);
    assert_int_equal(stats_compare_pairs(before, slow, 7, 1, 0.03, BENCH_ALPHA).verdict,
                     BENCH_TOO_FEW);
}

static void verdicts_have_names(void **state)
{
    (void)state;
    assert_string_equal(stats_verdict_name(BENCH_SLOWER), "slower");
    assert_string_equal(stats_verdict_name(BENCH_TOO_FEW), "too few repeats");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summaries_have_known_answers),
        cmocka_unit_test(quantiles_interpolate),
        cmocka_unit_test(rank_test_has_known_answers),
        cmocka_unit_test(rank_test_is_continuous_at_its_limit),
        cmocka_unit_test(planted_differences_are_found),
        cmocka_unit_test(noise_stays_quiet),
        cmocka_unit_test(signed_rank_test_has_known_answers),
        cmocka_unit_test(pairs_see_through_drift),
        cmocka_unit_test(verdicts_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
