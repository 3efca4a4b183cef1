/* SPDX-License-Identifier: Apache-2.0
 *
 * app/stats.h: the statistics of bench and bench diff. Plain functions on arrays of doubles; no
 * input is changed unless it says so.
 */
#ifndef BN_APP_STATS_H
#define BN_APP_STATS_H

#include <stddef.h>

struct stats_summary {
    size_t n;
    double mean, median, min, max;
    double q1, q3; /* quartiles */
    double mad;    /* median distance from the median */
    double spread; /* (q3 - q1) / median; 0 when the median is */
};

void stats_sort(double *x, size_t n); /* in place, ascending */
/* Of sorted values, 0 <= p <= 1, with linear interpolation between neighbours; 0 when n is 0. */
double stats_quantile(const double *sorted, size_t n, double p);
/* scratch: [n]. */
struct stats_summary stats_summarize(const double *x, size_t n, double *scratch);

enum { BENCH_EXACT_MAX = 64 }; /* values of both samples for which the test below is exact */

/* Mann-Whitney test, two-sided: how likely are two samples of one and the same distribution ranked
 * at least as differently as a and b are? Exact up to BENCH_EXACT_MAX values, ties included; above
 * that the normal approximation with the corrections for ties and continuity. 1 when there is
 * nothing to compare, negative when memory is out. */
double stats_rank_test(const double *a, size_t n_a, const double *b, size_t n_b);

/* Wilcoxon's signed-rank test, two-sided, exact, on n differences (zeros count as nothing): how
 * likely are they at least as one-sided as these if either sign is as likely? At most
 * BENCH_PAIRS_MAX differences; negative when there are more or memory is out. */
enum { BENCH_PAIRS_MAX = 200 };
double stats_signed_rank_test(const double *differences, size_t n);

enum stats_verdict {
    BENCH_SAME,      /* smaller than the threshold, or not significant */
    BENCH_SLOWER,    /* worse by more than the threshold, and significant */
    BENCH_FASTER,    /* the same in the good direction */
    BENCH_DISTURBED, /* one of the last two, but other programs were in the way */
    BENCH_TOO_FEW,   /* too few repeats for any difference to be significant */
};
const char *stats_verdict_name(enum stats_verdict v);

struct stats_comparison {
    double old_median, new_median;
    double ratio;   /* speed new / old: below 1 is slower, whatever the unit */
    double p_value; /* of stats_rank_test; negative when memory was out */
    enum stats_verdict verdict;
};

/* The level at which a difference counts as significant. Five repeats on each side reach 0.008 when
 * all of one side are slower than all of the other. */
#define BENCH_ALPHA 0.01

/* higher_is_better: rates; otherwise times. fail_over: the threshold, 0.03 for 3 %. alpha: the
 * level, BENCH_ALPHA for a comparison that stands alone. */
struct stats_comparison stats_compare(const double *old_values, size_t n_old,
                                      const double *new_values, size_t n_new, int higher_is_better,
                                      double fail_over, double alpha);
/* The same for values that were taken in pairs, each shortly after the other: what changes slowly
 * meanwhile falls on both and cancels. ratio is the median over the pairs. */
struct stats_comparison stats_compare_pairs(const double *old_values, const double *new_values,
                                            size_t n, int higher_is_better, double fail_over,
                                            double alpha);

#endif
