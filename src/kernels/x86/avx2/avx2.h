/* SPDX-License-Identifier: Apache-2.0
 *
 * What the AVX2 kernels share: tails by masked loads, the 16 lanes of a float sum in two registers,
 * and exp. Multiplications and additions are separate: the contract is unfused. (Where products are
 * exact, in b1_f32.c and avx2/hadamard.c, it does not matter.)
 *
 * Why tails may be filled with zeros: a lane starts at +0, and a sum of +0 and anything is never
 * -0, so adding a product of zeros, +0 or -0, leaves every lane as it was. */
#ifndef BN_KERNELS_X86_AVX2_AVX2_H
#define BN_KERNELS_X86_AVX2_AVX2_H

#include "kernels/exp.h"
#include "kernels/kernels.h"

#include <immintrin.h>

/* ---- tails ---- */

/* the first n of 8 elements; n > 8 counts as 8 */
static inline __m256i bn_mask8(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const void *)(bits + 8 - bn_min_size(n, 8)));
}

static inline __m256 bn_load_head(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, bn_mask8(n));
}

static inline void bn_store_head(float *p, size_t n, __m256 v)
{
    _mm256_maskstore_ps(p, bn_mask8(n), v);
}

/* ---- 16 lanes ---- */

struct bn_l16 {
    __m256 lo, hi;
}; /* lanes 0-7 and 8-15 */

static inline struct bn_l16 bn_l16_zero(void)
{
    return (struct bn_l16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline struct bn_l16 bn_l16_load(const float *p)
{
    return (struct bn_l16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline void bn_l16_store(float *p, struct bn_l16 v)
{
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}

/* n < 16 elements, the rest +0 */
static inline struct bn_l16 bn_l16_load_head(const float *p, size_t n)
{
    struct bn_l16 v = {bn_load_head(p, n), _mm256_setzero_ps()};
    if (n > 8) v.hi = bn_load_head(p + 8, n - 8);
    return v;
}

static inline struct bn_l16 bn_l16_add(struct bn_l16 a, struct bn_l16 b)
{
    return (struct bn_l16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

static inline struct bn_l16 bn_l16_mul_add(struct bn_l16 s, struct bn_l16 a, struct bn_l16 b)
{
    s.lo = _mm256_add_ps(s.lo, _mm256_mul_ps(a.lo, b.lo));
    s.hi = _mm256_add_ps(s.hi, _mm256_mul_ps(a.hi, b.hi));
    return s;
}

/* the tree's first two levels: l[j] += l[j+8], l[j+4] */
static inline __m128 bn_l16_fold4(struct bn_l16 s)
{
    __m256 v = _mm256_add_ps(s.lo, s.hi);
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

static inline float bn_l16_sum(struct bn_l16 s)
{
    __m128 v = bn_l16_fold4(s);
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)));
}

/* Four sums at once: the last two levels, (l0 + l2) + (l1 + l3), on the transposed registers. */
static inline __m128 bn_l16_sum4(struct bn_l16 a, struct bn_l16 b, struct bn_l16 c, struct bn_l16 d)
{
    __m128 v0 = bn_l16_fold4(a), v1 = bn_l16_fold4(b), v2 = bn_l16_fold4(c), v3 = bn_l16_fold4(d);
    _MM_TRANSPOSE4_PS(v0, v1, v2, v3);
    return _mm_add_ps(_mm_add_ps(v0, v2), _mm_add_ps(v1, v3));
}

/* ---- halves ---- */

static inline __m256 bn_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}

/* n < 8 halves, the rest +0; there is no masked load of 16-bit elements */
static inline __m256 bn_load_f16_head(const uint16_t *p, size_t n)
{
    uint16_t t[8] = {0};
    for (size_t i = 0; i < n; i++) t[i] = p[i];
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)t));
}

/* ---- exp: the steps of bn_exp() ---- */
static inline __m256 bn_exp8(__m256 x)
{
    const __m256 round = _mm256_set1_ps(BN_EXP_ROUND);
    __m256 t = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(BN_EXP_LOG2E)), round);
    __m256 n = _mm256_sub_ps(t, round);
    __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(BN_EXP_LN2_HI)));
    r = _mm256_sub_ps(r, _mm256_mul_ps(n, _mm256_set1_ps(BN_EXP_LN2_LO)));
    __m256 p = _mm256_set1_ps(BN_EXP_C4);
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(BN_EXP_C3));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(BN_EXP_C2));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(BN_EXP_C1));
    p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(BN_EXP_C0));
    p = _mm256_add_ps(_mm256_mul_ps(p, _mm256_mul_ps(r, r)), r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
    __m256 y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits));
    __m256 low = _mm256_cmp_ps(x, _mm256_set1_ps(BN_EXP_MIN), _CMP_LT_OQ);
    __m256 high = _mm256_cmp_ps(x, _mm256_set1_ps(BN_EXP_MAX), _CMP_GT_OQ);
    y = _mm256_andnot_ps(low, y);
    y = _mm256_blendv_ps(y, _mm256_set1_ps(bn_u32_as_f32(0x7f800000)), high);
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

#endif
