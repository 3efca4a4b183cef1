/* SPDX-License-Identifier: Apache-2.0
 *
 * bn_exp: e^x in single precision, the same bits on every machine. Every step is one rounded IEEE
 * operation, none fused, so a vector version that does the same steps gives the same bits, and so
 * does a compiler that vectorises this one.
 *
 *   n = round_half_even(x * log2 e),  r = x - n ln 2  (|r| <= 0.3467),  e^x = 2^n e^r
 *   e^r = 1 + (r + r^2 P(r)),  P of degree 4, minimax for relative error (2^-28)
 *
 * Within 1 ulp of the true value for all x with BN_EXP_MIN <= x <= BN_EXP_MAX (the largest error is
 * 0.98 ulp). exp(+-0) = 1 exactly. x < BN_EXP_MIN gives +0: the result is never subnormal.
 * x > BN_EXP_MAX gives +inf. A NaN stays a NaN.
 */
#ifndef BN_KERNELS_EXP_H
#define BN_KERNELS_EXP_H

#include "base/half.h"

#define BN_EXP_MIN    (-0x1.5d589ep+6f) /* -87.33654: the last float above ln 2^-126 */
#define BN_EXP_MAX    0x1.62e42ep+6f    /* 88.72283: the last float below ln 2^128 */
#define BN_EXP_LOG2E  0x1.715476p+0f
#define BN_EXP_LN2_HI 0x1.62e4p-1f /* 15 bits, so that n * LN2_HI is exact for |n| <= 256 */
#define BN_EXP_LN2_LO 0x1.7f7d1cp-20f
#define BN_EXP_ROUND  0x1.8p+23f /* adding it leaves round_half_even(v) in the low bits */
#define BN_EXP_C4     0x1.6a23d0p-10f
#define BN_EXP_C3     0x1.123a20p-7f
#define BN_EXP_C2     0x1.5558f2p-5f
#define BN_EXP_C1     0x1.555492p-3f
#define BN_EXP_C0     0x1.fffffcp-2f

static inline float bn_exp(float x)
{
    float t = x * BN_EXP_LOG2E + BN_EXP_ROUND;
    float n = t - BN_EXP_ROUND;
    float r = (x - n * BN_EXP_LN2_HI) - n * BN_EXP_LN2_LO;
    float p = BN_EXP_C4;
    p = p * r + BN_EXP_C3;
    p = p * r + BN_EXP_C2;
    p = p * r + BN_EXP_C1;
    p = p * r + BN_EXP_C0;
    p = (p * (r * r) + r) + 1.0f;
    /* times 2^n: the low bits of t are n, and adding them to the exponent of p cannot leave the
     * range of normal numbers between the two limits */
    float y = bn_u32_as_f32(bn_f32_as_u32(p) + (bn_f32_as_u32(t) << 23));
    y = x < BN_EXP_MIN ? 0.0f : y;
    y = x > BN_EXP_MAX ? bn_u32_as_f32(0x7f800000) : y;
    return x == x ? y : x;
}

#endif
