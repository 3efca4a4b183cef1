/* SPDX-License-Identifier: Apache-2.0
 * Gumbel noise by counter: the largest of logit / T + noise is a draw from the softmax, and since
 * every token's noise follows from a key and its id alone, it can be had for few of them. */
#ifndef BN_BASE_GUMBEL_H
#define BN_BASE_GUMBEL_H

#include "base/det_math.h"
#include "base/rng.h"

/* uniform in (0, 1), 52 bits and a half; 1 - v is exact as well */
static inline double bn_gumbel_unit(uint64_t key, uint64_t i)
{
    uint64_t bits = bn_mix64(key + (i + 1) * 0x9e3779b97f4a7c15u);
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

static inline double bn_gumbel(double v) { return -bn_det_log(-bn_det_log(1 - v)); }

/* Not below bn_gumbel(v), and above it by little where that is large: -ln(1 - v) >= v, and of a
 * number 2^e * (1 + m) the binary logarithm is at least e + m, which are its bits. */
static inline double bn_gumbel_bound(double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    double e_m = (double)(int64_t)(bits >> 21) * 0x1p-31 - 1023;
    return 1e-9 - e_m * 0.6931471806; /* a little more than ln 2 */
}

#endif
