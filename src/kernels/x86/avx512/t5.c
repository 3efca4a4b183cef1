/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: matrices in layout "t5". Here is what one token needs; several are in
 * avx512/tokens.c, very many in avx512/tables.c. Float activations are left to the
 * reference: "auto" never has this layout with them. */
#include "kernels/x86/avx512/t5.h"
#include "kernels/x86/avx512/tables.h"
#include "kernels/wide/gemm/tokens.h"

enum {
    ROWS = BN_T5_ROWS,
    STEP = BN_T5_STEP,
    MANY_FROM = 16 /* tokens from which tables win */
};

/* ---- one token ---- */

/* 64 columns; row 3 together with the three below it, which takes no mask */
ALWAYS void add_one(__m512i s[ROWS], const struct bn_t5_fields *f, __m512i x)
{
    s[3] = bn_dot_add(s[3], f->four, x);
    UNROLL
    for (size_t r = 0; r < 3; r++)
        s[r] = bn_dot_add(s[r], _mm512_and_si512(f->four, bn_t5_mask(r)), x);
    s[4] = bn_dot_add(s[4], f->fifth, x);
}

/* lanes added up: those of a, b, c and d to one each */
ALWAYS __m128i hsum4(__m512i a, __m512i b, __m512i c, __m512i d)
{
    a = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    c = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c));
    __m256i s = bn_fold_halves(a, 0);
    return _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
}

/* The five sums of a group: rows 0-3 returned, row 4 in *fifth. Both halves of a step are decoded
 * before they are multiplied: that is faster than in turn. */
ALWAYS __m128i group_one(int32_t *fifth, const uint8_t *p, const int8_t *q, size_t steps,
                         size_t ahead)
{
    const struct bn_t5_tables tables = bn_t5_load_tables();
    __m512i s[ROWS];
    UNROLL
    for (size_t r = 0; r < ROWS; r++) s[r] = _mm512_setzero_si512();
    for (; steps > 0; steps--, p += BN_T5_STEP_BYTES, q += STEP) {
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
        struct bn_t5_fields a = bn_t5_fields(_mm512_loadu_si512(p), &tables);
        struct bn_t5_fields b = bn_t5_fields(_mm512_loadu_si512(p + 64), &tables);
        add_one(s, &a, _mm512_loadu_si512(q));
        add_one(s, &b, _mm512_loadu_si512(q + 64));
    }
    UNROLL
    for (size_t r = 0; r < 3; r++) s[3] = _mm512_sub_epi32(s[3], s[r]);
    *fifth = _mm512_reduce_add_epi32(s[4]) >> bn_t5_shift(4);
    return _mm_srav_epi32(
        hsum4(s[0], s[1], s[2], s[3]),
        _mm_setr_epi32(bn_t5_shift(0), bn_t5_shift(1), bn_t5_shift(2), bn_t5_shift(3)));
}

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                    int32_t sum, float inv)
{
    for (size_t r = r0; r < r1; r += ROWS) {
        size_t n = bn_min_size(ROWS, r1 - r);
        int32_t fifth;
        __m128i four = group_one(&fifth, bn_t5_group(w, r), q, bn_div_up(w->cols, STEP), w->ahead);
        bn_store_rows(y, w, r, bn_min_size(4, n), four, sum, inv);
        if (n > 4) y[r + 4] = (float)(fifth - sum) * (bn_row_scale(w, r + 4) * inv);
    }
}

static void mul_i8(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x->q, x->sum[0], x->inv[0]);
    else bn_mul_tokens_avx2(a, x, &bn_t5_tokens_avx512);
}

static void mul_i8_many(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bn_mul_tables_avx512(a, x, &bn_t5_fours_avx512, mul_i8);
}

const struct bn_gemm bn_gemm_t5_avx512 = {
    BN_T5_LAYOUT,
    .frugal = true,
    .mul_i8 = mul_i8,
    .mul_f32 = bn_t5_mul_f32_c,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx512,
    .mul_i8_many = mul_i8_many,
};
