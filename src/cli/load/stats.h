/* SPDX-License-Identifier: Apache-2.0
 *
 * load/stats.h: the numbers of a load test. Samples of requests are few enough to be kept and
 * sorted; gaps between tokens can be millions, so they are counted in a histogram whose buckets
 * are at most 1/128 of their value wide: its quantiles are off by less than 0.4 %, its mean,
 * deviation and maximum are exact.
 */
#ifndef BN_CLI_LOAD_STATS_H
#define BN_CLI_LOAD_STATS_H

#include <stddef.h>
#include <stdint.h>

enum {
    LOAD_HIST_SUB_BITS = 7, /* buckets of an octave: 2^7 */
    LOAD_HIST_BUCKETS = (64 - LOAD_HIST_SUB_BITS + 1) << LOAD_HIST_SUB_BITS,
    LOAD_MAX_PERCENTILES = 16
};

/* Zero-initialise it. */
struct load_hist {
    uint64_t n, max;
    double sum, sum_squares;
    uint64_t counts[LOAD_HIST_BUCKETS];
};

void load_hist_add(struct load_hist *h, uint64_t value);
/* 0 <= p <= 1; 0 when it is empty. */
double load_hist_quantile(const struct load_hist *h, double p);

/* One line of the report. */
struct load_summary {
    size_t n;
    double mean, deviation, max;
    double at[LOAD_MAX_PERCENTILES]; /* in the order of the percentiles asked for */
};

/* percentiles: 0 to 100, n_percentiles <= LOAD_MAX_PERCENTILES. The result is in units of `unit`
 * samples. x is sorted in place. */
struct load_summary load_summarize(double *x, size_t n, const double *percentiles,
                                   size_t n_percentiles);
struct load_summary load_summarize_hist(const struct load_hist *h, double unit,
                                        const double *percentiles, size_t n_percentiles);

/* Least squares: by how much y grows when x grows by 1; 0 with fewer than two different x. */
double load_slope(const double *x, const double *y, size_t n);

#endif
