/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: matrices in layouts "t2" and "t3". Here is what one token needs; several are in
 * avx512/tokens.c, very many in avx512/tables.c. What the AVX2 kernels do as well is left
 * to them: block scales, float activations. */
#include "kernels/x86/avx512/codes.h"
#include "kernels/x86/avx512/tables.h"
#include "kernels/wide/gemm/tokens.h"

enum {
    MANY_FROM = 16 /* tokens from which tables win */
};

/* Registers of 32 bytes: reading these twice into one of 64 would cost as much as it saves. Codes are
 * masked in place, so that fields count 1, 4, 16 and 64 times, each in a sum of its own. */
static __m128i t2_group_one(const uint8_t *p, const int8_t *q, size_t steps, size_t ahead)
{
    __m256i s[BN_T2_ROWS][4], mask[4], sum[BN_T2_ROWS];
    for (size_t f = 0; f < 4; f++) mask[f] = _mm256_set1_epi8((char)(3 << 2 * f));
    for (size_t r = 0; r < BN_T2_ROWS; r++)
        for (size_t f = 0; f < 4; f++) s[r][f] = _mm256_setzero_si256();
    for (; steps > 0; steps--, p += BN_T2_STEP_BYTES, q += BN_T2_STEP) {
        __m256i x[4];
        for (size_t f = 0; f < 4; f++) x[f] = _mm256_loadu_si256((const void *)(q + 32 * f));
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
        for (size_t r = 0; r < BN_T2_ROWS; r++) {
            __m256i v = _mm256_loadu_si256((const void *)(p + r * BN_T2_PIECE));
            for (size_t f = 0; f < 4; f++)
                s[r][f] = bn_dot_add32(s[r][f], _mm256_and_si256(v, mask[f]), x[f]);
        }
    }
    for (size_t r = 0; r < BN_T2_ROWS; r++) {
        sum[r] = s[r][3];
        for (size_t f = 3; f > 0; f--)
            sum[r] = _mm256_add_epi32(_mm256_srai_epi32(sum[r], 2), s[r][f - 1]);
    }
    return bn_hsum4_i32(sum[0], sum[1], sum[2], sum[3]);
}

static void t2_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                   int32_t sum, float inv)
{
    for (size_t r = r0; r < r1; r += BN_T2_ROWS)
        bn_store_rows(y, w, r, bn_min_size(BN_T2_ROWS, r1 - r),
                      t2_group_one(bn_t2_group(w, r), q, bn_div_up(w->cols, BN_T2_STEP), w->ahead),
                      sum, inv);
}

/* 32 columns of a triple: v has |m| in bits 0-3, sign the sign in bit 4 */
ALWAYS void t3_add_one(__m256i s[3], __m256i v, __m256i sign, const __m256i table[3], __m256i x)
{
    v = _mm256_ternarylogic_epi32(_mm256_set1_epi8(15), v, sign, 0xca);
    for (size_t j = 0; j < 3; j++)
        s[j] = bn_dot_add32(s[j], _mm256_permutexvar_epi8(v, table[j]), x);
}

/* As in t2, registers of 32 bytes. The sign of the next 32 columns or the next triple moves up to bit
 * 4 by an addition, which every pipe can do. Not inlined: the loop has more registers alone. */
static __attribute__((noinline)) void t3_group_one(__m128i out[2], const uint8_t *p,
                                                   const int8_t *q, size_t steps, size_t ahead)
{
    __m256i s[BN_T3_ROWS], table[3];
    for (size_t j = 0; j < 3; j++) table[j] = _mm256_loadu_si256((const void *)bn_t3_table[j]);
    for (size_t r = 0; r < BN_T3_ROWS; r++) s[r] = _mm256_setzero_si256();
    for (; steps > 0; steps--, p += BN_T3_STEP_BYTES, q += BN_T3_STEP) {
        __m256i signs = _mm256_loadu_si256((const void *)(p + BN_T3_STEP));
        __m256i sign = _mm256_srli_epi16(signs, 3);
        for (size_t i = 0; i < BN_T3_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + ahead + i, _MM_HINT_T0);
        for (size_t f = 0; f < 4; f++) {
            __m256i v = _mm256_loadu_si256((const void *)(p + 32 * f));
            __m256i x = _mm256_loadu_si256((const void *)(q + 32 * f));
            if (f == 2) sign = _mm256_add_epi8(signs, signs);
            t3_add_one(s, v, sign, table, x);
            sign = _mm256_add_epi8(sign, sign);
            t3_add_one(s + 3, _mm256_srli_epi16(v, 4), sign, table, x);
            sign = _mm256_add_epi8(sign, sign);
        }
    }
    out[0] = bn_hsum4_i32(s[0], s[1], s[2], s[3]);
    out[1] = bn_hsum4_i32(s[4], s[5], s[4], s[5]);
}

static void t3_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                   int32_t sum, float inv)
{
    for (size_t r = r0; r < r1; r += BN_T3_ROWS) {
        size_t n = bn_min_size(BN_T3_ROWS, r1 - r);
        __m128i s[2];
        t3_group_one(s, bn_t3_group(w, r), q, bn_div_up(w->cols, BN_T3_STEP), w->ahead);
        bn_store_rows(y, w, r, bn_min_size(4, n), s[0], sum, inv);
        if (n > 4) bn_store_rows(y, w, r + 4, n - 4, s[1], sum, inv);
    }
}

static void t2_mul_i8(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->w->scale_kind == BN_SCALE_BLOCK) bn_t2_mul_i8_block_avx2(a, x);
    else if (a->n_tok == 1) t2_one(a->y, a->w, a->r0, a->r1, x->q, x->sum[0], x->inv[0]);
    else bn_mul_tokens_avx2(a, x, &bn_t2_tokens_avx512);
}

static void t3_mul_i8(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 1) t3_one(a->y, a->w, a->r0, a->r1, x->q, x->sum[0], x->inv[0]);
    else bn_mul_tokens_avx2(a, x, &bn_t3_tokens_avx512);
}

static void t2_mul_i8_many(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bn_mul_tables_avx512(a, x, &bn_t2_fours_avx512, t2_mul_i8);
}

static void t3_mul_i8_many(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bn_mul_tables_avx512(a, x, &bn_t3_fours_avx512, t3_mul_i8);
}

const struct bn_gemm bn_gemm_t2_avx512 = {
    BN_T2_LAYOUT,
    .mul_i8 = t2_mul_i8,
    .mul_f32 = bn_t2_mul_f32_avx2,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx512,
    .mul_i8_many = t2_mul_i8_many,
};

const struct bn_gemm bn_gemm_t3_avx512 = {
    BN_T3_LAYOUT,
    .frugal = true,
    .mul_i8 = t3_mul_i8,
    .mul_f32 = bn_t3_mul_f32_avx2,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx512,
    .mul_i8_many = t3_mul_i8_many,
};
