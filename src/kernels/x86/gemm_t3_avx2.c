/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: int8 activations times matrices in layout "t3" (ref/gemm_t3.c): fewer bytes a weight than
 * "t2" for a little more work, so it wins where cores have to share the memory's bandwidth.
 *
 * One token. The digits of a = |m| are never cut out. Three numbers that are cheap to have, a
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
 *
 * Several tokens. Two groups by 2048 columns are decoded into the first cache, a byte for a column of
 * a triple with the codes w + 1 of its three rows, and meet four tokens at a time: 12 sums stay in
 * registers. A pair is at most 2 * 2 * 127 = 508 there, and 64 of them, the 16 steps, 32512 < 2^15.
 */
#include "kernels/t3.h"
#include "kernels/x86/t2_avx2.h"
#include "kernels/x86/tables_avx2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    AHEAD = 4096,     /* bytes to prefetch ahead */
    WIDEN_STEPS = 32, /* one token: steps between widenings */
    UNIT_STEPS = 16,  /* several tokens: steps decoded together, */
    UNIT_ROWS = 12,   /* of so many rows, */
    UNIT_TOKENS = 64, /* for at most so many tokens; a multiple of 4 */
    UNIT_TRIPLES = UNIT_ROWS / 3,
    MANY_FROM = 32 /* tokens from which tables win */
};

ALWAYS __m256i table16(int8_t a, int8_t b, int8_t c, int8_t d, int8_t e, int8_t f, int8_t g,
                       int8_t h, int8_t i, int8_t j, int8_t k, int8_t l, int8_t m, int8_t n)
{
    return _mm256_broadcastsi128_si256(
        _mm_setr_epi8(a, b, c, d, e, f, g, h, i, j, k, l, m, n, 0, 0));
}

/* ---- one token ---- */

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
    const __m256i third = table16(0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4);
    const __m256i ninth = table16(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1);
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

static void group_one(int32_t s[8], const uint8_t *p, const int8_t *q, size_t steps)
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
            _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
            _mm_prefetch((const char *)p + AHEAD + 64, _MM_HINT_T0);
            _mm_prefetch((const char *)p + AHEAD + 128, _MM_HINT_T0);
            for (size_t f = 0; f < 4; f++) piece_add(&a, &b, p + 32 * f, q + 32 * f, &sign);
        }
        triple_widen(acc, &a);
        triple_widen(acc + 3, &b);
    }
    _mm_storeu_si128((void *)s, bn_hsum4_i32(acc[0], acc[1], acc[2], acc[3]));
    _mm_storeu_si128((void *)(s + 4), bn_hsum4_i32(acc[4], acc[5], acc[4], acc[5]));
}

/* ---- several tokens ---- */

/* For 32 columns of a triple the codes w + 1 of its rows in bits 0-1, 2-3 and 4-5. The table has
 * them for m >= 0; for -m each code is 2 minus that, so all three are 0x2a minus it. */
ALWAYS __m256i triple_codes(__m256i v, __m256i sign)
{
#define C(t0, t1, t2) (int8_t)((t0) + 1 + 4 * ((t1) + 1) + 16 * ((t2) + 1))
    const __m256i codes = table16(C(0, 0, 0), C(1, 0, 0), C(-1, 1, 0), C(0, 1, 0), C(1, 1, 0),
                                  C(-1, -1, 1), C(0, -1, 1), C(1, -1, 1), C(-1, 0, 1), C(0, 0, 1),
                                  C(1, 0, 1), C(-1, 1, 1), C(0, 1, 1), C(1, 1, 1));
#undef C
    __m256i c = _mm256_shuffle_epi8(codes, v);
    return _mm256_blendv_epi8(c, _mm256_sub_epi8(_mm256_set1_epi8(0x2a), c), sign);
}

/* A group's steps as codes: a and b get the two triples, a byte a column. */
static void decode_group(uint8_t *a, uint8_t *b, const uint8_t *p, size_t steps)
{
    const __m256i m15 = _mm256_set1_epi8(15);
    for (; steps > 0; steps--, p += BN_T3_STEP_BYTES) {
        __m256i sign = _mm256_loadu_si256((const void *)(p + BN_T3_STEP));
        for (size_t f = 0; f < 4; f++, a += 32, b += 32) {
            __m256i n = _mm256_loadu_si256((const void *)(p + 32 * f));
            __m256i lo = _mm256_and_si256(n, m15);
            __m256i hi = _mm256_and_si256(_mm256_srli_epi16(n, 4), m15);
            _mm256_storeu_si256((void *)a, triple_codes(lo, sign));
            sign = _mm256_add_epi8(sign, sign);
            _mm256_storeu_si256((void *)b, triple_codes(hi, sign));
            sign = _mm256_add_epi8(sign, sign);
        }
    }
}

/* The same with the activations as an operand in memory: 12 sums, three operands and a product fill
 * the 16 registers. */
ALWAYS __m256i mul_add_at(__m256i s, __m256i v, const int8_t *x)
{
    __m256i p;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(p) : "x"(v), "m"(*(const __m256i_u *)x));
    s = _mm256_add_epi16(s, p);
    __asm__("" : "+x"(s));
    return s;
}

/* Adds to acc[row][token] for the three rows of a triple and nt <= 4 tokens. */
ALWAYS void triple_tokens(int32_t (*acc)[UNIT_TOKENS], const uint8_t *v, const int8_t *q,
                          size_t q_stride, size_t cols, const size_t nt)
{
    const __m256i m3 = _mm256_set1_epi8(3);
    __m256i s[3][4];
    for (size_t r = 0; r < 3; r++)
        for (size_t t = 0; t < 4; t++) s[r][t] = _mm256_setzero_si256();
    for (size_t k = 0; k < cols; k += 32) {
        __m256i c = _mm256_loadu_si256((const void *)(v + k));
        __m256i f0 = _mm256_and_si256(c, m3);
        __m256i f1 = _mm256_and_si256(_mm256_srli_epi16(c, 2), m3);
        __m256i f2 = _mm256_and_si256(_mm256_srli_epi16(c, 4), m3);
        for (size_t t = 0; t < nt; t++) {
            const int8_t *x = q + t * q_stride + k;
            s[0][t] = mul_add_at(s[0][t], f0, x);
            s[1][t] = mul_add_at(s[1][t], f1, x);
            s[2][t] = mul_add_at(s[2][t], f2, x);
        }
    }
    for (size_t r = 0; r < 3; r++) {
        __m256i wide[4];
        for (size_t t = 0; t < 4; t++) wide[t] = widen(_mm256_setzero_si256(), s[r][t]);
        __m128i *to = (void *)acc[r], sum = bn_hsum4_i32(wide[0], wide[1], wide[2], wide[3]);
        _mm_storeu_si128(to, _mm_add_epi32(_mm_loadu_si128(to), sum));
    }
}

static void some_tokens(int32_t (*acc)[UNIT_TOKENS], const uint8_t *v, const int8_t *q,
                        size_t q_stride, size_t cols, size_t nt)
{
    if (nt == 4) triple_tokens(acc, v, q, q_stride, cols, 4);
    else if (nt == 3) triple_tokens(acc, v, q, q_stride, cols, 3);
    else if (nt == 2) triple_tokens(acc, v, q, q_stride, cols, 2);
    else triple_tokens(acc, v, q, q_stride, cols, 1);
}

/* n_rows <= UNIT_ROWS rows from r on, n_tok <= UNIT_TOKENS tokens */
static void mul_unit(float *y, size_t y_stride, const struct bn_packed *w, size_t r, size_t n_rows,
                     const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                     size_t n_tok)
{
    uint8_t codes[UNIT_TRIPLES][UNIT_STEPS * BN_T3_STEP];
    int32_t acc[UNIT_ROWS][UNIT_TOKENS] = {{0}};
    size_t steps = bn_div_up(w->cols, BN_T3_STEP);
    for (size_t s = 0; s < steps; s += UNIT_STEPS) {
        size_t n = bn_min_size(UNIT_STEPS, steps - s);
        for (size_t i = 0; i < n_rows; i += BN_T3_ROWS)
            decode_group(codes[i / 3], codes[i / 3 + 1],
                         bn_t3_group(w, r + i) + s * BN_T3_STEP_BYTES, n);
        for (size_t t = 0; t < n_tok; t += 4)
            for (size_t i = 0; i < n_rows; i += 3) {
                int32_t(*to)[UNIT_TOKENS] = (void *)(acc[i] + t);
                some_tokens(to, codes[i / 3], q + t * q_stride + s * BN_T3_STEP, q_stride,
                            n * BN_T3_STEP, bn_min_size(4, n_tok - t));
            }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_rows; i++)
            y[t * y_stride + r + i] =
                (float)(acc[i][t] - sum[t]) * (bn_row_scale(w, r + i) * inv[t]);
}

/* ---- the loops ---- */

static void mul_i8_avx2(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                        const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                        size_t n_tok)
{
    if (n_tok == 1) {
        for (size_t r = r0; r < r1; r += BN_T3_ROWS) {
            int32_t s[8];
            group_one(s, bn_t3_group(w, r), q, bn_div_up(w->cols, BN_T3_STEP));
            for (size_t i = 0; i < BN_T3_ROWS && r + i < r1; i++)
                y[r + i] = (float)s[i] * (bn_row_scale(w, r + i) * inv[0]);
        }
        return;
    }
    for (size_t t = 0; t < n_tok; t += UNIT_TOKENS)
        for (size_t r = r0; r < r1; r += UNIT_ROWS)
            mul_unit(y + t * y_stride, y_stride, w, r, bn_min_size(UNIT_ROWS, r1 - r),
                     q + t * q_stride, q_stride, sum + t, inv + t,
                     bn_min_size(UNIT_TOKENS, n_tok - t));
}

const struct bn_gemm bn_gemm_t3_avx2 = {
    .layout = "t3",
    .group_rows = BN_T3_ROWS,
    .w_max = 1,
    .group_bytes = bn_t3_group_bytes,
    .pack = bn_t3_pack,
    .unpack = bn_t3_unpack,
    .mul_i8 = mul_i8_avx2,
    .mul_f32 = bn_t3_mul_f32_avx2,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx2,
    .mul_i8_many = bn_t3_mul_i8_many_avx2,
};
