/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/stats.h"

#include "app/stats.h"
#include <math.h>

enum { SUB = 1 << LOAD_HIST_SUB_BITS };

/* Values below 2 * SUB have a bucket each; above, an octave has SUB of them. */
static size_t bucket_of(uint64_t value)
{
    if (value < SUB) return (size_t)value;
    int shift = 63 - __builtin_clzll(value) - LOAD_HIST_SUB_BITS;
    return ((size_t)shift << LOAD_HIST_SUB_BITS) + (size_t)(value >> shift);
}

/* The middle of what falls into a bucket. */
static double value_of(size_t bucket)
{
    if (bucket < 2 * SUB) return (double)bucket;
    int shift = (int)(bucket >> LOAD_HIST_SUB_BITS) - 1;
    uint64_t low = (uint64_t)(SUB + (bucket & (SUB - 1))) << shift;
    return (double)low + (double)(((uint64_t)1 << shift) - 1) / 2;
}

void load_hist_add(struct load_hist *h, uint64_t value)
{
    h->counts[bucket_of(value)]++;
    h->n++;
    h->sum += (double)value;
    h->sum_squares += (double)value * (double)value;
    if (value > h->max) h->max = value;
}

double load_hist_quantile(const struct load_hist *h, double p)
{
    if (h->n == 0) return 0;
    uint64_t rank = (uint64_t)ceil(p * (double)h->n), seen = 0;
    if (rank == 0) rank = 1;
    if (p >= 1) return (double)h->max;
    for (size_t i = 0; i < LOAD_HIST_BUCKETS; i++)
        if ((seen += h->counts[i]) >= rank) return fmin(value_of(i), (double)h->max);
    return (double)h->max;
}

static double deviation(double n, double sum, double sum_squares)
{
    return n > 1 ? sqrt(fmax(0, (sum_squares - sum * sum / n) / (n - 1))) : 0;
}

struct load_summary load_summarize(double *x, size_t n, const double *percentiles,
                                   size_t n_percentiles)
{
    struct load_summary s = {.n = n};
    if (n == 0) return s;
    double squares = 0;
    for (size_t i = 0; i < n; i++) s.mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) squares += (x[i] - s.mean) * (x[i] - s.mean);
    s.deviation = deviation((double)n, 0, squares);
    stats_sort(x, n);
    s.max = x[n - 1];
    for (size_t i = 0; i < n_percentiles; i++) s.at[i] = stats_quantile(x, n, percentiles[i] / 100);
    return s;
}

struct load_summary load_summarize_hist(const struct load_hist *h, double unit,
                                        const double *percentiles, size_t n_percentiles)
{
    struct load_summary s = {.n = h->n, .max = (double)h->max / unit};
    if (h->n == 0) return s;
    s.mean = h->sum / (double)h->n / unit;
    s.deviation = deviation((double)h->n, h->sum, h->sum_squares) / unit;
    for (size_t i = 0; i < n_percentiles; i++)
        s.at[i] = load_hist_quantile(h, percentiles[i] / 100) / unit;
    return s;
}

double load_slope(const double *x, const double *y, size_t n)
{
    double mean_x = 0, mean_y = 0, xy = 0, xx = 0;
    for (size_t i = 0; i < n; i++) {
        mean_x += x[i] / (double)n;
        mean_y += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        xy += (x[i] - mean_x) * (y[i] - mean_y);
        xx += (x[i] - mean_x) * (x[i] - mean_x);
    }
    return xx > 0 ? xy / xx : 0;
}
