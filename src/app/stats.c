/* SPDX-License-Identifier: Apache-2.0
 *
 * Repeats of a benchmark are few and have outliers on one side (something else ran), so everything
 * here goes by ranks: medians, quartiles, and a test that asks only which side is larger how often.
 */
#include "app/stats.h"

#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *x, size_t n)
{
    if (n > 1) qsort(x, n, sizeof *x, ascending);
}

double stats_quantile(const double *sorted, size_t n, double p)
{
    if (n == 0) return 0;
    double at = p * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

struct stats_summary stats_summarize(const double *x, size_t n, double *scratch)
{
    struct stats_summary s = {.n = n};
    if (n == 0) return s;
    for (size_t i = 0; i < n; i++) {
        scratch[i] = x[i];
        s.mean += x[i] / (double)n;
    }
    stats_sort(scratch, n);
    s.min = scratch[0];
    s.max = scratch[n - 1];
    s.median = stats_quantile(scratch, n, 0.5);
    s.q1 = stats_quantile(scratch, n, 0.25);
    s.q3 = stats_quantile(scratch, n, 0.75);
    s.spread = s.median != 0 ? (s.q3 - s.q1) / fabs(s.median) : 0;
    for (size_t i = 0; i < n; i++) scratch[i] = fabs(x[i] - s.median);
    stats_sort(scratch, n);
    s.mad = stats_quantile(scratch, n, 0.5);
    return s;
}

/* ------------------------------------------------------------------ the rank test */

struct ranked {
    double value;
    size_t rank2; /* twice the rank, from 2; equal values share the mean of theirs */
    int from_a;
};

static int by_value(const void *a, const void *b)
{
    return ascending(&((const struct ranked *)a)->value, &((const struct ranked *)b)->value);
}

/* Returns sum(t^3 - t) over groups of t equal values. */
static double give_ranks(struct ranked *r, size_t n)
{
    double ties = 0;
    qsort(r, n, sizeof *r, by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && r[end].value == r[i].value; end++) continue;
        for (size_t k = i; k < end; k++) r[k].rank2 = i + 1 + end;
        double t = (double)(end - i);
        ties += t * t * t - t;
    }
    return ties;
}

/* Counts, for every sum, the ways to choose n_a of the n ranks that give it: then the share of
 * those at least as far from the middle as the one seen. Counts stay below 2^64 and are rounded at
 * worst in their last bits. */
static double exact_p(const struct ranked *r, size_t n, size_t n_a, size_t seen)
{
    size_t top = n * (n + 1), width = top + 1; /* largest sum of doubled ranks */
    double *ways = bn_calloc((n_a + 1) * width, sizeof *ways);
    if (!ways) return -1;
    ways[0] = 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = n_a; k > 0; k--)
            for (size_t s = top; s + 1 > r[i].rank2; s--)
                ways[k * width + s] += ways[(k - 1) * width + s - r[i].rank2];
    double middle = (double)n_a * (double)(n + 1), all = 0, far = 0; /* doubled, as the sums */
    double distance = fabs((double)seen - middle);
    for (size_t s = 0; s <= top; s++) {
        double w = ways[n_a * width + s];
        all += w;
        if (fabs((double)s - middle) >= distance) far += w;
    }
    free(ways);
    return far / all;
}

static double normal_p(size_t n_a, size_t n_b, size_t seen, double ties)
{
    double a = (double)n_a, b = (double)n_b, n = a + b;
    double variance = a * b / 12 * (n + 1 - ties / (n * (n - 1)));
    if (variance <= 0) return 1;
    double away = fabs((double)seen / 2 - a * (n + 1) / 2) - 0.5;
    return away <= 0 ? 1 : erfc(away / sqrt(2 * variance));
}

double stats_rank_test(const double *a, size_t n_a, const double *b, size_t n_b)
{
    if (n_a == 0 || n_b == 0) return 1;
    size_t n = n_a + n_b, seen = 0;
    struct ranked *r = bn_calloc(n, sizeof *r);
    if (!r) return -1;
    for (size_t i = 0; i < n_a; i++) r[i] = (struct ranked){a[i], 0, 1};
    for (size_t i = 0; i < n_b; i++) r[n_a + i] = (struct ranked){b[i], 0, 0};
    double ties = give_ranks(r, n);
    for (size_t i = 0; i < n; i++)
        if (r[i].from_a) seen += r[i].rank2;
    double p = n <= BENCH_EXACT_MAX ? exact_p(r, n, n_a, seen) : normal_p(n_a, n_b, seen, ties);
    free(r);
    return p;
}

/* ------------------------------------------------------------------ the test of pairs */

double stats_signed_rank_test(const double *differences, size_t n)
{
    struct ranked *r = bn_calloc(n + 1, sizeof *r);
    double *ways = NULL, p = -1;
    size_t used = 0, seen = 0; /* sum of the doubled ranks of positive differences */
    if (!r || n > BENCH_PAIRS_MAX) goto done;
    for (size_t i = 0; i < n; i++)
        if (differences[i] != 0)
            r[used++] = (struct ranked){fabs(differences[i]), 0, differences[i] > 0};
    give_ranks(r, used);
    size_t top = used * (used + 1);
    ways = bn_calloc(top + 1, sizeof *ways);
    if (!ways) goto done;
    ways[0] = 1; /* shares of all 2^used ways to give signs, in the end */
    for (size_t i = 0; i < used; i++) {
        if (r[i].from_a) seen += r[i].rank2;
        for (size_t s = top; s + 1 > 0; s--)
            ways[s] = (ways[s] + (s >= r[i].rank2 ? ways[s - r[i].rank2] : 0)) / 2;
    }
    double distance = fabs((double)seen - (double)top / 2);
    p = 0;
    for (size_t s = 0; s <= top; s++)
        if (fabs((double)s - (double)top / 2) >= distance) p += ways[s];
done:
    free(r);
    free(ways);
    return p;
}

/* ------------------------------------------------------------------ comparing */

const char *stats_verdict_name(enum stats_verdict v)
{
    switch (v) {
    case BENCH_SAME: return "same";
    case BENCH_SLOWER: return "slower";
    case BENCH_FASTER: return "faster";
    case BENCH_DISTURBED: return "disturbed";
    case BENCH_TOO_FEW: return "too few repeats";
    }
    return "unknown";
}

/* Could samples of these sizes be significant at all? The smallest p is 2 / (n choose n_a). */
static int can_be_significant(size_t n_a, size_t n_b, double alpha)
{
    double ways = 1;
    for (size_t i = 1; i <= n_a; i++) ways = ways * (double)(n_b + i) / (double)i;
    return n_a && n_b && 2 / ways < alpha;
}

static double median_of(const double *x, size_t n)
{
    double *scratch = bn_calloc(n ? n : 1, sizeof *scratch);
    if (!scratch) return NAN;
    double m = stats_summarize(x, n, scratch).median;
    free(scratch);
    return m;
}

/* ratio and p_value are known; possible: they could be significant at all. */
static enum stats_verdict judge(const struct stats_comparison *c, int possible, double fail_over,
                                double alpha)
{
    if (!possible) return BENCH_TOO_FEW;
    if (c->p_value < 0 || c->p_value >= alpha) return BENCH_SAME;
    return c->ratio < 1 - fail_over   ? BENCH_SLOWER
           : c->ratio > 1 + fail_over ? BENCH_FASTER
                                      : BENCH_SAME;
}

static double speed_ratio(double old_value, double new_value, int higher_is_better)
{
    double top = higher_is_better ? new_value : old_value;
    double below = higher_is_better ? old_value : new_value;
    return below > 0 ? top / below : 1;
}

struct stats_comparison stats_compare(const double *old_values, size_t n_old,
                                      const double *new_values, size_t n_new, int higher_is_better,
                                      double fail_over, double alpha)
{
    struct stats_comparison c = {.old_median = median_of(old_values, n_old),
                                 .new_median = median_of(new_values, n_new)};
    c.ratio = speed_ratio(c.old_median, c.new_median, higher_is_better);
    c.p_value = stats_rank_test(old_values, n_old, new_values, n_new);
    c.verdict = judge(&c, can_be_significant(n_old, n_new, alpha), fail_over, alpha);
    return c;
}

struct stats_comparison stats_compare_pairs(const double *old_values, const double *new_values,
                                            size_t n, int higher_is_better, double fail_over,
                                            double alpha)
{
    struct stats_comparison c = {.old_median = median_of(old_values, n),
                                 .new_median = median_of(new_values, n),
                                 .p_value = -1};
    double *ratios = bn_calloc(n + 1, sizeof *ratios), *logs = bn_calloc(n + 1, sizeof *logs);
    for (size_t i = 0; ratios && logs && i < n; i++) {
        ratios[i] = speed_ratio(old_values[i], new_values[i], higher_is_better);
        logs[i] = log(ratios[i]);
    }
    if (ratios && logs) {
        c.ratio = median_of(ratios, n);
        c.p_value = stats_signed_rank_test(logs, n);
    }
    free(ratios);
    free(logs);
    c.verdict = judge(&c, 2 * exp2(-(double)n) < alpha, fail_over, alpha);
    return c;
}
