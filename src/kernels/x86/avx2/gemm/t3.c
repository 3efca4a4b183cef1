/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: int8 activations of one token times matrices in layout "t3" (ref/gemm_t3.c): fewer bytes a
 * weight than "t2" for a little more work, so it wins where cores have to share the memory's
 * bandwidth. More tokens are in gemm/tokens.c; float activations are left to the reference.
 *
 * The digits of a = |m| are never cut out. Three numbers that are cheap to have, a
 * itself, a1 = t1 + 3 t2 and a2 = t2 (a table of 16 each), are multiplied with the activation x,
 * negated where m < 0; the rows are separated afterwards, on the sums: S0 = A0 - 3 A1,
 * S1 = A1 - 3 A2, S2 = A2.
 *
 * Why the 16-bit sums are exact. maddubs adds a pair of products, at most 13 * 2 * 127 = 3302 in
 * size, far from saturation. The additions after it may overflow: they are exact modulo 2^16, and
 * so are S0, S1 and S2, which are made of them by additions. A lane of S after n pairs is a sum of
 * 2n weights in {-1, 0, +1} times activations within +-127, so |S| <= 254 n, and for n <= 129 that
 * is below 2^15: the residue is the number. Sums are widened to 32 bits every 32 steps, n = 128;
 * 32768 columns are 8 such rounds, and there |sum| <= 32768 * 127 < 2^22. -x is within +-127 too.
 */
#include "kernels/t3.h"
#include "kernels/x86/avx2/gemm/t2.h"
#include "kernels/x86/avx2/gemm/tables.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    WIDEN_STEPS = 32 /* steps between widenings */
};

struct triple {
    __m256i s0, s1, s2;
};

/* The empty statement keeps a sum in its register: compilers otherwise add up the products of a step
 * first, in the order they like, and run out of registers. */
ALWAYS __m256i mul_add(__m256i s, __m256i v, __m256i x)
{
    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(v, x));
    __asm__("" : "+x"(s));
    return s;
}

/* 32 columns of one triple: v = |m|, x with the sign of m on it */
ALWAYS void triple_add(struct triple *t, __m256i v, __m256i x)
{
    const __m256i third =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 0, 0));
    const __m256i ninth =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0));
    t->s0 = mul_add(t->s0, v, x);
    t->s1 = mul_add(t->s1, _mm256_shuffle_epi8(third, v), x);
    t->s2 = mul_add(t->s2, _mm256_shuffle_epi8(ninth, v), x);
}

/* 32 columns of a group; the top bits of *sign are the signs, first of A, then of B: the signs of the
 * next columns move up by additions, which every pipe can do. */
ALWAYS void piece_add(struct triple *a, struct triple *b, const uint8_t *p, const int8_t *q,
                      __m256i *sign)
{
    const __m256i m15 = _mm256_set1_epi8(15);
    __m256i n = _mm256_loadu_si256((const void *)p), x = _mm256_loadu_si256((const void *)q);
    __m256i minus = _mm256_sub_epi8(_mm256_setzero_si256(), x);
    triple_add(a, _mm256_and_si256(n, m15), _mm256_blendv_epi8(x, minus, *sign));
    *sign = _mm256_add_epi8(*sign, *sign);
    triple_add(b, _mm256_and_si256(_mm256_srli_epi16(n, 4), m15),
               _mm256_blendv_epi8(x, minus, *sign));
    *sign = _mm256_add_epi8(*sign, *sign);
}

ALWAYS __m256i widen(__m256i acc, __m256i s)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
}

/* the rows of a triple from its sums, to 32 bits */
ALWAYS void triple_widen(__m256i acc[3], const struct triple *t)
{
    const __m256i three = _mm256_set1_epi16(3);
    acc[0] = widen(acc[0], _mm256_sub_epi16(t->s0, _mm256_mullo_epi16(t->s1, three)));
    acc[1] = widen(acc[1], _mm256_sub_epi16(t->s1, _mm256_mullo_epi16(t->s2, three)));
    acc[2] = widen(acc[2], t->s2);
}

static void group_one(int32_t s[8], const uint8_t *p, const int8_t *q, size_t steps, size_t ahead)
{
    __m256i acc[6];
    for (size_t r = 0; r < 6; r++) acc[r] = _mm256_setzero_si256();
    while (steps > 0) {
        size_t n = bn_min_size(steps, WIDEN_STEPS);
        struct triple a = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
        struct triple b = a;
        steps -= n;
        for (; n > 0; n--, p += BN_T3_STEP_BYTES, q += BN_T3_STEP) {
            __m256i sign = _mm256_loadu_si256((const void *)(p + BN_T3_STEP));
            _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
            _mm_prefetch((const char *)p + ahead + 128, _MM_HINT_T0);
            for (size_t f = 0; f < 4; f++) piece_add(&a, &b, p + 32 * f, q + 32 * f, &sign);
        }
        triple_widen(acc, &a);
        triple_widen(acc + 3, &b);
    }
    _mm_storeu_si128((void *)s, bn_hsum4_i32(acc[0], acc[1], acc[2], acc[3]));
    _mm_storeu_si128((void *)(s + 4), bn_hsum4_i32(acc[4], acc[5], acc[4], acc[5]));
}

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                    float inv)
{
    for (size_t r = r0; r < r1; r += BN_T3_ROWS) {
        int32_t s[8];
        group_one(s, bn_t3_group(w, r), q, bn_div_up(w->cols, BN_T3_STEP), w->ahead);
        for (size_t i = 0; i < BN_T3_ROWS && r + i < r1; i++)
            y[r + i] = (float)s[i] * (bn_row_scale(w, r + i) * inv);
    }
}

static void mul_i8_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x->q, x->inv[0]);
    else bn_t3_mul_i8_tokens_avx2(a, x);
}

const struct bn_gemm bn_gemm_t3_avx2 = {
    BN_T3_LAYOUT,
    .mul_i8 = mul_i8_avx2,
    .mul_f32 = bn_t3_mul_f32_avx2,
    .many_from = BN_TABLE_FROM,
    .many_bytes = bn_tables_bytes_avx2,
    .mul_i8_many = bn_t3_mul_i8_many_avx2,
};
