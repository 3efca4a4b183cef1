/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over one block of keys: what AVX2 and AVX-512 share. */
#ifndef BN_KERNELS_X86_AVX2_ATTN_H
#define BN_KERNELS_X86_AVX2_ATTN_H

#include "kernels/x86/avx2/avx2.h"

#include <math.h>

#define ALWAYS static inline __attribute__((always_inline))

enum {
    ATTN_MANY = 16,     /* queries from which turning the keys over pays ... */
    ATTN_MANY_DIM = 128 /* ... if they have at most so many dimensions: a buffer holds 16 keys */
};

/* What keys and values lie there as. Those from E4M3 on have so few bits that their products with
 * short floats (kernels/attention.h) are exact: then a fused operation gives the same bits. SHORT:
 * such ones, widened. */
enum kind { F32, F16, BF16, E4M3, E5M2, SHORT };

ALWAYS size_t size_of(const enum kind kind)
{
    return kind == F32 || kind == SHORT ? 4 : kind == F16 || kind == BF16 ? 2 : 1;
}

/* s + a * b */
ALWAYS __m256 mul_add(__m256 s, __m256 a, __m256 b, const enum kind kind)
{
    return kind >= E4M3 ? _mm256_fmadd_ps(a, b, s) : _mm256_add_ps(s, _mm256_mul_ps(a, b));
}

/* The address of element d. */
ALWAYS const void *at(const void *p, size_t d, const enum kind kind)
{
    return (const char *)p + d * size_of(kind);
}

/* Eight bytes of an 8-bit float as halves; e4m3 by 2^-8, and a NaN as a number. */
ALWAYS __m256 widen_fp8(__m128i bytes, const enum kind kind)
{
    __m128i half = _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
    if (kind == E4M3) half = _mm_and_si128(_mm_srai_epi16(half, 1), _mm_set1_epi16((short)0xbf80));
    return _mm256_cvtph_ps(half);
}

/* eight elements of keys or values */
ALWAYS __m256 load(const void *p, size_t i, const enum kind kind)
{
    const void *from = at(p, i, kind);
    if (kind == F16) return bn_load_f16(from);
    if (kind == BF16)
        return _mm256_castsi256_ps(
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(from)), 16));
    if (kind == E4M3 || kind == E5M2) return widen_fp8(_mm_loadl_epi64(from), kind);
    return _mm256_loadu_ps(from);
}

/* Sixteen of e4m3 take fewer steps together: the first eight and the others. */
ALWAYS void widen16_e4m3(__m256 *lo, __m256 *hi, __m128i bytes)
{
    __m256i x = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
    x = _mm256_and_si256(x, _mm256_set1_epi16((short)0xbf80));
    *lo = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    *hi = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
}

/* Asks for the lines of elements [d, d + n) of a row, if the block is known and they begin there. */
ALWAYS void fetch(const void *next, size_t row, size_t d, size_t n, const enum kind kind)
{
    const size_t size = size_of(kind);
    if (!next || d * size % 64 != 0) return;
    const char *p = (const char *)next + (row + d) * size;
    for (size_t i = 0; i < n * size; i += 64) _mm_prefetch(p + i, _MM_HINT_T1);
}

/* For the step at dimension i, of 16, through two rows: asks for as much of the two rows at p, which
 * mostly lie side by side. Into the second cache, or, what is there by now, into the first. */
ALWAYS void fetch_step(const void *p, size_t i, const bool near, const enum kind kind)
{
    const char *line = at(p, 2 * i, kind);
    for (size_t x = 0; x < 32 * size_of(kind); x += 64)
        if (near) _mm_prefetch(line + x, _MM_HINT_T0);
        else _mm_prefetch(line + x, _MM_HINT_T1);
}

/* bn_short() of eight */
ALWAYS __m256 bn_short8(__m256 x)
{
    __m256i u = _mm256_castps_si256(x),
            odd = _mm256_and_si256(_mm256_srli_epi32(u, 8), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7f)));
    __m256 y = _mm256_castsi256_ps(_mm256_and_si256(u, _mm256_set1_epi32(~0xff)));
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    y = _mm256_and_ps(y, _mm256_cmp_ps(size, _mm256_set1_ps(0x1p-60f), _CMP_GE_OQ));
    __m256 wrong = _mm256_cmp_ps(size, _mm256_set1_ps(0x1p100f), _CMP_NLT_UQ);
    return _mm256_or_ps(y, wrong); /* all bits: a NaN */
}

/* ---- weights ---- */

/* Scores of one head to weights: the block's maximum, and in *lb the sum of the weights. The block
 * is always four registers; beyond n a score is -inf and a weight +0, which changes no maximum and
 * no lane. */
ALWAYS float weigh(float *p, size_t n, float *lb)
{
    __m256 s[4], max;
    for (size_t i = n; i < BN_ATTN_BLOCK; i++) p[i] = -INFINITY;
    for (size_t i = 0; i < 4; i++) s[i] = _mm256_loadu_ps(p + 8 * i);
    max = _mm256_max_ps(s[0], _mm256_set1_ps(-INFINITY)); /* NaNs lose: they come first */
    for (size_t i = 1; i < 4; i++) max = _mm256_max_ps(s[i], max);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    float mb = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h))) + 0.0f;
    for (size_t i = 0; i < 4; i++) {
        s[i] = bn_exp8(_mm256_sub_ps(s[i], _mm256_set1_ps(mb)));
        s[i] = _mm256_and_ps(s[i], _mm256_castsi256_ps(bn_mask8(n > 8 * i ? n - 8 * i : 0)));
        _mm256_storeu_ps(p + 8 * i, s[i]);
    }
    *lb = bn_l16_sum((struct bn_l16){_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[1], s[3])});
    return mb;
}

/* The same, and the state m, l takes in the block: factors for the old state and for the block. */
ALWAYS void fold_block(float *p, size_t n, float *m, float *l, float *a, float *c)
{
    float lb, mb = weigh(p, n, &lb);
    float mn = mb > *m ? mb : *m;
    *a = bn_exp(*m - mn);
    *c = bn_exp(mb - mn);
    *l = *l * *a + lb * *c;
    *m = mn;
}

/* ---- four queries ---- */

/* Four weights a key: then maxima, sums and exponentials of four queries need no shuffles. */
typedef float four[BN_ATTN_BLOCK][4];

/* The scores of two keys: the lanes' tree for eight sums at once. In a half of the result are four
 * queries, a half a key. */
ALWAYS __m256 four_sums(const __m256 *lo, const __m256 *hi)
{
    __m256 v[4];
    for (size_t h = 0; h < 4; h++) { /* l[j] += l[j + 8], l[j + 4]; a key a half */
        __m256 a = _mm256_add_ps(lo[2 * h], hi[2 * h]);
        __m256 b = _mm256_add_ps(lo[2 * h + 1], hi[2 * h + 1]);
        v[h] = _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    }
    for (size_t h = 0; h < 4; h += 2) /* l[j + 2]; two queries */
        v[h] = _mm256_add_ps(_mm256_shuffle_ps(v[h], v[h + 1], 0x44),
                             _mm256_shuffle_ps(v[h], v[h + 1], 0xee));
    return _mm256_add_ps(_mm256_shuffle_ps(v[0], v[2], 0x88), _mm256_shuffle_ps(v[0], v[2], 0xdd));
}

/* Scores of four queries to weights, and their states take in the block: factors for the old state
 * and for the block. What stands beyond the last key is exp(-inf), +0, or with a maximum of -inf a
 * NaN, but then so is every weight. */
ALWAYS void four_weigh(four p, float *m, float *l, float *a, float *c)
{
    __m256 x[4], max = _mm256_set1_ps(-INFINITY);
    for (size_t j = 0; j < BN_ATTN_BLOCK; j += 2) max = _mm256_max_ps(_mm256_loadu_ps(p[j]), max);
    __m128 mb = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    mb = _mm_add_ps(mb, _mm_setzero_ps());
    max = _mm256_set_m128(mb, mb);
    for (size_t i = 0; i < 4; i++) x[i] = _mm256_setzero_ps();
    for (size_t j = 0; j < BN_ATTN_BLOCK / 2; j += 2) { /* keys j and j + 16: the lanes */
        __m256 w = bn_exp8(_mm256_sub_ps(_mm256_loadu_ps(p[j]), max));
        __m256 y = bn_exp8(_mm256_sub_ps(_mm256_loadu_ps(p[j + 16]), max));
        _mm256_storeu_ps(p[j], w);
        _mm256_storeu_ps(p[j + 16], y);
        w = _mm256_add_ps(w, y);
        x[j / 2 % 4] = j < 8 ? w : _mm256_add_ps(x[j / 2 % 4], w); /* l[j] += l[j + 8] */
    }
    x[0] = _mm256_add_ps(_mm256_add_ps(x[0], x[2]), _mm256_add_ps(x[1], x[3]));
    __m128 lb = _mm_add_ps(_mm256_castps256_ps128(x[0]), _mm256_extractf128_ps(x[0], 1));
    __m128 old = _mm_loadu_ps(m), mn = _mm_max_ps(mb, old); /* mb > old ? mb : old */
    max = bn_exp8(_mm256_sub_ps(_mm256_set_m128(mb, old), _mm256_set_m128(mn, mn)));
    __m128 fa = _mm256_castps256_ps128(max), fc = _mm256_extractf128_ps(max, 1);
    _mm_storeu_ps(a, fa);
    _mm_storeu_ps(c, fc);
    _mm_storeu_ps(l, _mm_add_ps(_mm_mul_ps(_mm_loadu_ps(l), fa), _mm_mul_ps(lb, fc)));
    _mm_storeu_ps(m, mn);
}

#endif
