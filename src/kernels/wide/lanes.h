/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels of one source for several instruction sets share: tails by masked loads, the 16 lanes of
 * a float sum in two vectors, and exp. Multiplications and additions are separate: the contract is unfused. (Where products are
 * exact, in b1_f32.c and hadamard.c, it does not matter.)
 *
 * Why tails may be filled with zeros: a lane starts at +0, and a sum of +0 and anything is never
 * -0, so adding a product of zeros, +0 or -0, leaves every lane as it was. */
#ifndef BN_KERNELS_WIDE_LANES_H
#define BN_KERNELS_WIDE_LANES_H

#include "kernels/exp.h"
#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/wide/wide.h"

/* ---- tails ---- */

static inline w_f32 bn_load_head(const float *p, size_t n) { return w_load_head(p, n); }
static inline void bn_store_head(float *p, size_t n, w_f32 v) { w_store_head(p, n, v); }

/* ---- 16 lanes ---- */

struct bn_l16 {
    w_f32 lo, hi;
}; /* lanes 0-7 and 8-15 */

static inline struct bn_l16 bn_l16_zero(void)
{
    return (struct bn_l16){w_setzero_ps(), w_setzero_ps()};
}

static inline struct bn_l16 bn_l16_load(const float *p)
{
    return (struct bn_l16){w_loadu_ps(p), w_loadu_ps(p + 8)};
}

static inline void bn_l16_store(float *p, struct bn_l16 v)
{
    w_storeu_ps(p, v.lo);
    w_storeu_ps(p + 8, v.hi);
}

/* n < 16 elements, the rest +0 */
static inline struct bn_l16 bn_l16_load_head(const float *p, size_t n)
{
    struct bn_l16 v = {bn_load_head(p, n), w_setzero_ps()};
    if (n > 8) v.hi = bn_load_head(p + 8, n - 8);
    return v;
}

static inline struct bn_l16 bn_l16_add(struct bn_l16 a, struct bn_l16 b)
{
    return (struct bn_l16){w_add_ps(a.lo, b.lo), w_add_ps(a.hi, b.hi)};
}

static inline struct bn_l16 bn_l16_mul_add(struct bn_l16 s, struct bn_l16 a, struct bn_l16 b)
{
    s.lo = w_add_ps(s.lo, w_mul_ps(a.lo, b.lo));
    s.hi = w_add_ps(s.hi, w_mul_ps(a.hi, b.hi));
    return s;
}

/* the tree's first two levels: l[j] += l[j+8], l[j+4] */
static inline h_f32 bn_l16_fold4(struct bn_l16 s)
{
    w_f32 v = w_add_ps(s.lo, s.hi);
    return h_add_ps(w_castps256_ps128(v), w_extractf128_ps(v, 1));
}

static inline float bn_l16_sum(struct bn_l16 s)
{
    h_f32 v = bn_l16_fold4(s);
    v = h_add_ps(v, h_movehl_ps(v, v));
    return h_cvtss_f32(h_add_ss(v, h_movehdup_ps(v)));
}

/* Four sums at once: the last two levels, (l0 + l2) + (l1 + l3), on the transposed registers. */
static inline h_f32 bn_l16_sum4(struct bn_l16 a, struct bn_l16 b, struct bn_l16 c, struct bn_l16 d)
{
    h_f32 v0 = bn_l16_fold4(a), v1 = bn_l16_fold4(b), v2 = bn_l16_fold4(c), v3 = bn_l16_fold4(d);
    H_TRANSPOSE4_PS(v0, v1, v2, v3);
    return h_add_ps(h_add_ps(v0, v2), h_add_ps(v1, v3));
}

/* ---- halves ---- */

static inline w_f32 bn_load_f16(const uint16_t *p)
{
    return w_cvtph_ps(h_loadu_si128((const void *)p));
}

/* n < 8 halves, the rest +0; there is no masked load of 16-bit elements */
static inline w_f32 bn_load_f16_head(const uint16_t *p, size_t n)
{
    uint16_t t[8] = {0};
    for (size_t i = 0; i < n; i++) t[i] = p[i];
    return w_cvtph_ps(h_loadu_si128((const void *)t));
}

/* ---- exp: the steps of bn_exp() ---- */
static inline w_f32 bn_exp8(w_f32 x)
{
    const w_f32 round = w_set1_ps(BN_EXP_ROUND);
    w_f32 t = w_add_ps(w_mul_ps(x, w_set1_ps(BN_EXP_LOG2E)), round);
    w_f32 n = w_sub_ps(t, round);
    w_f32 r = w_sub_ps(x, w_mul_ps(n, w_set1_ps(BN_EXP_LN2_HI)));
    r = w_sub_ps(r, w_mul_ps(n, w_set1_ps(BN_EXP_LN2_LO)));
    w_f32 p = w_set1_ps(BN_EXP_C4);
    p = w_add_ps(w_mul_ps(p, r), w_set1_ps(BN_EXP_C3));
    p = w_add_ps(w_mul_ps(p, r), w_set1_ps(BN_EXP_C2));
    p = w_add_ps(w_mul_ps(p, r), w_set1_ps(BN_EXP_C1));
    p = w_add_ps(w_mul_ps(p, r), w_set1_ps(BN_EXP_C0));
    p = w_add_ps(w_mul_ps(p, w_mul_ps(r, r)), r);
    p = w_add_ps(p, w_set1_ps(1.0f));
    w_int bits = w_slli_epi32(w_castps_si256(t), 23);
    w_f32 y = w_castsi256_ps(w_add_epi32(w_castps_si256(p), bits));
    w_f32 low = w_cmp_ps(x, w_set1_ps(BN_EXP_MIN), LT_OQ);
    w_f32 high = w_cmp_ps(x, w_set1_ps(BN_EXP_MAX), GT_OQ);
    y = w_andnot_ps(low, y);
    y = w_blendv_ps(y, w_set1_ps(bn_u32_as_f32(0x7f800000)), high);
    return w_blendv_ps(y, x, w_cmp_ps(x, x, UNORD_Q));
}

#endif
