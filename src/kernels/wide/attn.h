/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over one block of keys: what the variants share. */
#ifndef BN_KERNELS_WIDE_ATTN_H
#define BN_KERNELS_WIDE_ATTN_H

#include "kernels/wide/lanes.h"

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
ALWAYS w_f32 mul_add(w_f32 s, w_f32 a, w_f32 b, const enum kind kind)
{
    return kind >= E4M3 ? w_fmadd_ps(a, b, s) : w_add_ps(s, w_mul_ps(a, b));
}

/* The address of element d. */
ALWAYS const void *at(const void *p, size_t d, const enum kind kind)
{
    return (const char *)p + d * size_of(kind);
}

/* Eight bytes of an 8-bit float as halves; e4m3 by 2^-8, and a NaN as a number. */
ALWAYS w_f32 widen_fp8(h_int bytes, const enum kind kind)
{
    h_int half = h_unpacklo_epi8(h_setzero_si128(), bytes);
    if (kind == E4M3) half = h_and_si128(h_srai_epi16(half, 1), h_set1_epi16((short)0xbf80));
    return w_cvtph_ps(half);
}

/* eight elements of keys or values */
ALWAYS w_f32 load(const void *p, size_t i, const enum kind kind)
{
    const void *from = at(p, i, kind);
    if (kind == F16) return bn_load_f16(from);
    if (kind == BF16)
        return w_castsi256_ps(w_slli_epi32(w_cvtepu16_epi32(h_loadu_si128(from)), 16));
    if (kind == E4M3 || kind == E5M2) return widen_fp8(h_loadl_epi64(from), kind);
    return w_loadu_ps(from);
}

/* Sixteen of e4m3 take fewer steps together: the first eight and the others. */
ALWAYS void widen16_e4m3(w_f32 *lo, w_f32 *hi, h_int bytes)
{
    w_int x = w_slli_epi16(w_cvtepi8_epi16(bytes), 7);
    x = w_and_si256(x, w_set1_epi16((short)0xbf80));
    *lo = w_cvtph_ps(w_castsi256_si128(x));
    *hi = w_cvtph_ps(w_extracti128_si256(x, 1));
}

/* Asks for the lines of elements [d, d + n) of a row, if the block is known and they begin there. */
ALWAYS void fetch(const void *next, size_t row, size_t d, size_t n, const enum kind kind)
{
    const size_t size = size_of(kind);
    if (!next || d * size % 64 != 0) return;
    const char *p = (const char *)next + (row + d) * size;
    for (size_t i = 0; i < n * size; i += 64) h_prefetch(p + i, H_T1);
}

/* For the step at dimension i, of 16, through two rows: asks for as much of the two rows at p, which
 * mostly lie side by side. Into the second cache, or, what is there by now, into the first. */
ALWAYS void fetch_step(const void *p, size_t i, const bool near, const enum kind kind)
{
    const char *line = at(p, 2 * i, kind);
    for (size_t x = 0; x < 32 * size_of(kind); x += 64)
        if (near) h_prefetch(line + x, H_T0);
        else h_prefetch(line + x, H_T1);
}

/* bn_short() of eight */
ALWAYS w_f32 bn_short8(w_f32 x)
{
    w_int u = w_castps_si256(x), odd = w_and_si256(w_srli_epi32(u, 8), w_set1_epi32(1));
    u = w_add_epi32(u, w_add_epi32(odd, w_set1_epi32(0x7f)));
    w_f32 y = w_castsi256_ps(w_and_si256(u, w_set1_epi32(~0xff)));
    w_f32 size = w_andnot_ps(w_set1_ps(-0.0f), x);
    y = w_and_ps(y, w_cmp_ps(size, w_set1_ps(0x1p-60f), GE_OQ));
    w_f32 wrong = w_cmp_ps(size, w_set1_ps(0x1p100f), NLT_UQ);
    return w_or_ps(y, wrong); /* all bits: a NaN */
}

/* ---- weights ---- */

/* Scores of one head to weights: the block's maximum, and in *lb the sum of the weights. The block
 * is always four registers; beyond n a score is -inf and a weight +0, which changes no maximum and
 * no lane. */
ALWAYS float weigh(float *p, size_t n, float *lb)
{
    w_f32 s[4], max;
    for (size_t i = n; i < BN_ATTN_BLOCK; i++) p[i] = -INFINITY;
    for (size_t i = 0; i < 4; i++) s[i] = w_loadu_ps(p + 8 * i);
    max = w_max_ps(s[0], w_set1_ps(-INFINITY)); /* NaNs lose: they come first */
    for (size_t i = 1; i < 4; i++) max = w_max_ps(s[i], max);
    h_f32 h = h_max_ps(w_castps256_ps128(max), w_extractf128_ps(max, 1));
    h = h_max_ps(h, h_movehl_ps(h, h));
    float mb = h_cvtss_f32(h_max_ss(h, h_movehdup_ps(h))) + 0.0f;
    for (size_t i = 0; i < 4; i++) {
        s[i] = bn_exp8(w_sub_ps(s[i], w_set1_ps(mb)));
        s[i] = w_and_ps(s[i], w_castsi256_ps(w_mask_head(n > 8 * i ? n - 8 * i : 0)));
        w_storeu_ps(p + 8 * i, s[i]);
    }
    *lb = bn_l16_sum((struct bn_l16){w_add_ps(s[0], s[2]), w_add_ps(s[1], s[3])});
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
ALWAYS w_f32 four_sums(const w_f32 *lo, const w_f32 *hi)
{
    w_f32 v[4];
    for (size_t h = 0; h < 4; h++) { /* l[j] += l[j + 8], l[j + 4]; a key a half */
        w_f32 a = w_add_ps(lo[2 * h], hi[2 * h]);
        w_f32 b = w_add_ps(lo[2 * h + 1], hi[2 * h + 1]);
        v[h] = w_add_ps(w_blend_ps(a, b, 0xf0), w_permute2f128_ps(a, b, 0x21));
    }
    for (size_t h = 0; h < 4; h += 2) /* l[j + 2]; two queries */
        v[h] = w_add_ps(w_shuffle_ps(v[h], v[h + 1], 0x44), w_shuffle_ps(v[h], v[h + 1], 0xee));
    return w_add_ps(w_shuffle_ps(v[0], v[2], 0x88), w_shuffle_ps(v[0], v[2], 0xdd));
}

/* Scores of four queries to weights, and their states take in the block: factors for the old state
 * and for the block. What stands beyond the last key is exp(-inf), +0, or with a maximum of -inf a
 * NaN, but then so is every weight. */
ALWAYS void four_weigh(four p, float *m, float *l, float *a, float *c)
{
    w_f32 x[4], max = w_set1_ps(-INFINITY);
    for (size_t j = 0; j < BN_ATTN_BLOCK; j += 2) max = w_max_ps(w_loadu_ps(p[j]), max);
    h_f32 mb = h_max_ps(w_castps256_ps128(max), w_extractf128_ps(max, 1));
    mb = h_add_ps(mb, h_setzero_ps());
    max = w_set_m128(mb, mb);
    for (size_t i = 0; i < 4; i++) x[i] = w_setzero_ps();
    for (size_t j = 0; j < BN_ATTN_BLOCK / 2; j += 2) { /* keys j and j + 16: the lanes */
        w_f32 w = bn_exp8(w_sub_ps(w_loadu_ps(p[j]), max));
        w_f32 y = bn_exp8(w_sub_ps(w_loadu_ps(p[j + 16]), max));
        w_storeu_ps(p[j], w);
        w_storeu_ps(p[j + 16], y);
        w = w_add_ps(w, y);
        x[j / 2 % 4] = j < 8 ? w : w_add_ps(x[j / 2 % 4], w); /* l[j] += l[j + 8] */
    }
    x[0] = w_add_ps(w_add_ps(x[0], x[2]), w_add_ps(x[1], x[3]));
    h_f32 lb = h_add_ps(w_castps256_ps128(x[0]), w_extractf128_ps(x[0], 1));
    h_f32 old = h_loadu_ps(m), mn = h_max_ps(mb, old); /* mb > old ? mb : old */
    max = bn_exp8(w_sub_ps(w_set_m128(mb, old), w_set_m128(mn, mn)));
    h_f32 fa = w_castps256_ps128(max), fc = w_extractf128_ps(max, 1);
    h_storeu_ps(a, fa);
    h_storeu_ps(c, fc);
    h_storeu_ps(l, h_add_ps(h_mul_ps(h_loadu_ps(l), fa), h_mul_ps(lb, fc)));
    h_storeu_ps(m, mn);
}

#endif
