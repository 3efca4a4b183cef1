/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: what attention over floats and over codes does alike. */
#ifndef BN_KERNELS_REF_SOFTMAX_H
#define BN_KERNELS_REF_SOFTMAX_H

#include "kernels/exp.h"
#include "kernels/ref/lanes.h"

#include <math.h>

/* Scores to weights: p[j] = exp(s[j] - max); returns the maximum, *sum: lane sum of p. */
static inline float bn_softmax_block(float *s, size_t n, float *sum)
{
    struct bn_lanes lanes = {{0}};
    float max = -INFINITY;
    for (size_t j = 0; j < n; j++) max = s[j] > max ? s[j] : max;
    max += 0.0f; /* a zero is +0, whichever key came first */
    for (size_t j = 0; j < n; j++) s[j] = bn_exp(s[j] - max);
    for (size_t j = 0; j < n; j++) lanes.l[j % BN_LANES] += s[j];
    *sum = bn_lanes_sum(lanes);
    return max;
}

/* The running state takes in a block: factors for the old state (*a) and for the block (*c). */
static inline void bn_fold_block(float *m, float *l, float mb, float lb, float *a, float *c)
{
    float mn = mb > *m ? mb : *m;
    *a = bn_exp(*m - mn);
    *c = bn_exp(mb - mn);
    *l = *l * *a + lb * *c;
    *m = mn;
}

#endif
