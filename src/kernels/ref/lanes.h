/* SPDX-License-Identifier: Apache-2.0
 *
 * Float sums in lanes, the order that every ISA can follow (see kernels.h). The loops over the 16
 * lanes are written so that a compiler turns them into vector instructions of any width. */
#ifndef BN_KERNELS_REF_LANES_H
#define BN_KERNELS_REF_LANES_H

#include "kernels/kernels.h"

struct bn_lanes {
    float l[BN_LANES];
};

/* lane i % 16 += a[i] * b[i] for i < n; a call that is not the last must have n % 16 == 0 */
static inline struct bn_lanes bn_lanes_mul_add(struct bn_lanes s, const float *a, const float *b,
                                               size_t n)
{
    size_t i = 0;
    for (; i + BN_LANES <= n; i += BN_LANES)
        for (size_t j = 0; j < BN_LANES; j++) s.l[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i + j < n; j++) s.l[j] += a[i + j] * b[i + j];
    return s;
}

/* l[j] += l[j+8], then l[j+4], l[j+2], l[j+1] */
static inline float bn_lanes_sum(struct bn_lanes s)
{
    for (size_t j = 0; j < 8; j++) s.l[j] += s.l[j + 8];
    for (size_t j = 0; j < 4; j++) s.l[j] += s.l[j + 4];
    for (size_t j = 0; j < 2; j++) s.l[j] += s.l[j + 2];
    return s.l[0] + s.l[1];
}

/* exact while n < 2^17 */
static inline int32_t bn_dot_i8(const int8_t *a, const int8_t *b, size_t n)
{
    int32_t s = 0;
    for (size_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

static inline float bn_lanes_dot(const float *a, const float *b, size_t n)
{
    return bn_lanes_sum(bn_lanes_mul_add((struct bn_lanes){{0}}, a, b, n));
}

#endif
