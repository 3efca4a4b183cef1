/* SPDX-License-Identifier: Apache-2.0
 * LANES logits are looked at together: loops over so many become vector code. */
#include "engine/sampler/sampler_row.h"

#include "kernels/exp.h"
#include <math.h>

enum { LANES = 32 };

float bn_row_max(const float *x, uint32_t n)
{
    float m[LANES], max = -INFINITY;
    uint32_t i = 0;
    for (uint32_t k = 0; k < LANES; k++) m[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t k = 0; k < LANES; k++) m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (uint32_t k = 0; k < LANES; k++) max = m[k] > max ? m[k] : max;
    return max;
}

static bool any_reaches(const float *x, float least)
{
    int any = 0;
    for (uint32_t k = 0; k < LANES; k++) any |= x[k] >= least;
    return any;
}

uint32_t bn_row_find(const float *x, uint32_t i, uint32_t n, float least)
{
    for (; i < n; i++) {
        if (i % LANES == 0)
            while (i + LANES <= n && !any_reaches(x + i, least)) i += LANES;
        if (i < n && x[i] >= least) return i;
    }
    return n;
}

/* Fewer and fewer are better than the worst of those so far. */
uint32_t bn_row_best(struct bn_scored *best, const float *x, uint32_t n, float least, uint32_t k)
{
    uint32_t count = 0;
    for (uint32_t i = bn_row_find(x, 0, n, least); k && i < n;
         i = bn_row_find(x, i + 1, n, least)) {
        count = bn_best_push(best, count, k, (struct bn_scored){x[i], i});
        if (count == k) least = best[0].score;
    }
    return count;
}

double bn_row_mass(const float *x, uint32_t n, float least, float max)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i += LANES) {
        float y[LANES], e[LANES];
        uint32_t some = (uint32_t)bn_min_size(LANES, n - i);
        for (uint32_t k = 0; k < some; k++) y[k] = x[i + k] >= least ? x[i + k] - max : -INFINITY;
        for (uint32_t k = some; k < LANES; k++) y[k] = -INFINITY;
        for (uint32_t k = 0; k < LANES; k++) e[k] = bn_exp(y[k]);
        for (uint32_t k = 0; k < some; k++) sum += (double)e[k];
    }
    return sum;
}
