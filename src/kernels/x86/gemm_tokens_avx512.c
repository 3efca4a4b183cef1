/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI and VBMI: int8 activations times matrices in layouts "t2" and "t3", one scale a
 * row or matrix; one token or several, in the order of tokens_avx2.h.
 *
 * dpbusd multiplies unsigned codes c = w + 1 with signed activations and adds groups of four to 32
 * bits: |sum| <= 32768 * 4 * 3 * 127 < 2^26, so nothing has to be widened on the way. A few rows meet
 * all tokens at once, with a register of sums each; decoding is shared by the tokens, a load of
 * activations by the rows.
 *
 * t2: 32 bytes of a row hold 128 columns, 32 a field of two bits. They are read into both halves of a
 * register; the halves keep fields 0 and 1 or, shifted by 4, fields 2 and 3. The codes of the upper
 * half stay at four times their value until the end of a block.
 *
 * t3: |m| and the sign of a triple's column are five bits, which index a table of codes for each
 * of its rows. */
#include "kernels/x86/tables_avx2.h"
#include "kernels/x86/tokens_avx2.h"

#define ALWAYS static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 24")

enum {
    TOKENS = BN_TOKENS,
    SUMS = 24,        /* registers for sums */
    BLOCK_STEPS = 20, /* activations of 2560 columns stay in the first cache */
    STEP = BN_K_ALIGN,
    MANY_FROM = 32 /* tokens from which tables win */
};

/* lanes of a register to the eight parts of a sum */
ALWAYS void add_parts(__m256i *sum, __m512i s, const bool upper_times4, bool first)
{
    __m256i low = _mm512_castsi512_si256(s), high = _mm512_extracti64x4_epi64(s, 1);
    if (upper_times4) high = _mm256_srai_epi32(high, 2);
    __m256i parts = _mm256_add_epi32(low, high);
    *sum = first ? parts : _mm256_add_epi32(*sum, parts);
}

/* Written as an instruction, because gcc would rather move sums about between registers and memory,
 * and load activations for every row. */
ALWAYS __m512i mul_add(__m512i s, __m512i codes, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(s) : "v"(codes), "v"(x));
    return s;
}

/* 64 columns of some rows, codes c, and nt tokens */
ALWAYS void add_codes(__m512i *s, const __m512i *c, const size_t rows, const int8_t *q,
                      size_t stride, const size_t nt)
{
    UNROLL for (size_t t = 0; t < nt; t++)
    {
        __m512i x = _mm512_loadu_si512(q + t * stride);
        UNROLL for (size_t r = 0; r < rows; r++) s[r * nt + t] = mul_add(s[r * nt + t], c[r], x);
    }
}

ALWAYS void add_sums(__m256i *sum, const __m512i *s, const size_t rows, const size_t nt,
                     const bool upper_times4, bool first)
{
    UNROLL for (size_t r = 0; r < rows; r++) UNROLL for (size_t t = 0; t < nt; t++)
        add_parts(sum + r * TOKENS + t, s[r * nt + t], upper_times4, first);
}

/* ---- t2 ---- */

ALWAYS void t2_rows(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x,
                    const size_t rows, const size_t nt)
{
    const __m512i fields = _mm512_inserti64x4(_mm512_set1_epi8(3), _mm256_set1_epi8(12), 1);
    __m512i s[SUMS], c[BN_T2_ROWS], d[BN_T2_ROWS];
    UNROLL for (size_t i = 0; i < rows * nt; i++) s[i] = _mm512_setzero_si512();
    for (size_t n = b->steps; n > 0; n--, p += BN_T2_STEP_BYTES, x.q += STEP) {
        _mm_prefetch((const char *)p + b->ahead, _MM_HINT_T1);
        if (rows > 2) _mm_prefetch((const char *)p + b->ahead + 64, _MM_HINT_T1);
        UNROLL for (size_t r = 0; r < rows; r++)
        {
            __m512i v =
                _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + r * BN_T2_PIECE)));
            c[r] = _mm512_and_si512(v, fields);
            d[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), fields);
        }
        add_codes(s, c, rows, x.q, x.stride, nt);
        add_codes(s, d, rows, x.q + 64, x.stride, nt);
    }
    add_sums(sum, s, rows, nt, true, b->first);
}

/* ---- t3 ---- */

/* The weights plus one of row j, for |m| in bits 0-3 and the sign in bit 4 of an index; bit 5 and
 * those above it may be anything. */
#define BY_SIZE(f)                                                                                \
    f(0, 0, 0), f(1, 0, 0), f(-1, 1, 0), f(0, 1, 0), f(1, 1, 0), f(-1, -1, 1), f(0, -1, 1),       \
        f(1, -1, 1), f(-1, 0, 1), f(0, 0, 1), f(1, 0, 1), f(-1, 1, 1), f(0, 1, 1), f(1, 1, 1), 1, \
        1
#define PLUS0(a, b, c)  1 + (a)
#define PLUS1(a, b, c)  1 + (b)
#define PLUS2(a, b, c)  1 + (c)
#define MINUS0(a, b, c) 1 - (a)
#define MINUS1(a, b, c) 1 - (b)
#define MINUS2(a, b, c) 1 - (c)
static const int8_t codes[3][32] = {{BY_SIZE(PLUS0), BY_SIZE(MINUS0)},
                                    {BY_SIZE(PLUS1), BY_SIZE(MINUS1)},
                                    {BY_SIZE(PLUS2), BY_SIZE(MINUS2)}};

/* For every byte, in bit 4, the signs of triple h and half a step. They lie in bits 7 - h and 5 - h
 * of the lower and upper half of the register, or four bits further down. */
ALWAYS __m512i t3_signs(__m512i signs, const size_t h, const size_t half)
{
    const short low = (short)(half ? 1 + h : 3 - h), high = (short)(half ? 3 + h : 1 - h);
    const __m512i shift = _mm512_inserti64x4(_mm512_set1_epi16(low), _mm256_set1_epi16(high), 1);
    return half ? _mm512_sllv_epi16(signs, shift) : _mm512_srlv_epi16(signs, shift);
}

/* 64 columns of triple h: the codes of its three rows */
ALWAYS void t3_codes(__m512i *c, const uint8_t *p, __m512i signs, const __m512i *table,
                     const size_t h, const size_t half)
{
    const __m512i m15 = _mm512_set1_epi8(15);
    __m512i v = _mm512_loadu_si512(p + 64 * half);
    if (h) v = _mm512_srli_epi16(v, 4);
    /* bits 0-3 of v, the others of the signs */
    v = _mm512_ternarylogic_epi32(m15, v, t3_signs(signs, h, half), 0xca);
    UNROLL for (size_t j = 0; j < 3; j++) c[j] = _mm512_permutexvar_epi8(v, table[j]);
}

/* The triples [h0, h1). */
ALWAYS void t3_triples(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x,
                       const size_t h0, const size_t h1, const size_t nt)
{
    __m512i s[SUMS], c[BN_T3_ROWS], table[3];
    const size_t rows = 3 * (h1 - h0);
    UNROLL for (size_t j = 0; j < 3; j++) table[j] =
        _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)codes[j]));
    UNROLL for (size_t i = 0; i < rows * nt; i++) s[i] = _mm512_setzero_si512();
    for (size_t n = b->steps; n > 0; n--, p += BN_T3_STEP_BYTES, x.q += STEP) {
        __m512i signs = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(p + BN_T3_STEP)));
        for (size_t i = 0; h0 == 0 && i < BN_T3_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + b->ahead + i, _MM_HINT_T1);
        UNROLL for (size_t half = 0; half < 2; half++)
        {
            UNROLL for (size_t h = h0; h < h1; h++)
                t3_codes(c + 3 * (h - h0), p, signs, table, h, half);
            add_codes(s, c, rows, x.q + 64 * half, x.stride, nt);
        }
    }
    add_sums(sum, s, rows, nt, false, b->first);
}

/* ---- groups, for every number of tokens ---- */

typedef void group_fn(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x);

/* as many rows together as there are registers for their sums */
#define TOKENS_FN(n)                                                                   \
    static void t2_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b, \
                             struct bn_tokens x)                                       \
    {                                                                                  \
        const size_t rows = BN_T2_ROWS * (n) <= SUMS ? BN_T2_ROWS : BN_T2_ROWS / 2;    \
        for (size_t r = 0; r < BN_T2_ROWS; r += rows)                                  \
            t2_rows(sum + r * TOKENS, p + r * BN_T2_PIECE, b, x, rows, n);             \
    }                                                                                  \
    static void t3_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b, \
                             struct bn_tokens x)                                       \
    {                                                                                  \
        if (BN_T3_ROWS * (n) <= SUMS) {                                                \
            t3_triples(sum, p, b, x, 0, 2, BN_T3_ROWS *(n) <= SUMS ? (n) : 1);         \
            return;                                                                    \
        }                                                                              \
        t3_triples(sum, p, b, x, 0, 1, n);                                             \
        t3_triples(sum + 3 * TOKENS, p, b, x, 1, 2, n);                                \
    }
TOKENS_FN(1)
TOKENS_FN(2)
TOKENS_FN(3)
TOKENS_FN(4)
TOKENS_FN(5)
TOKENS_FN(6)
TOKENS_FN(7)
TOKENS_FN(8)

#define ALL_TOKENS(f)                                                \
    {                                                                \
        NULL, f##_1, f##_2, f##_3, f##_4, f##_5, f##_6, f##_7, f##_8 \
    }
static group_fn *const t2_group[TOKENS + 1] = ALL_TOKENS(t2_group);
static group_fn *const t3_group[TOKENS + 1] = ALL_TOKENS(t3_group);

static void t2_block(__m256i *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    for (size_t g = 0; g < b->groups; g++)
        t2_group[n_tok](sum + g * BN_T2_ROWS * TOKENS, b->p + g * b->group_bytes, b, x);
}

static void t3_block(__m256i *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    for (size_t g = 0; g < b->groups; g++)
        t3_group[n_tok](sum + g * BN_T3_ROWS * TOKENS, b->p + g * b->group_bytes, b, x);
}

static const struct bn_tokens_plan t2 = {t2_block, BN_T2_ROWS, BN_T2_STEP_BYTES, BN_UNIT_ROWS,
                                         BLOCK_STEPS};
static const struct bn_tokens_plan t3 = {t3_block, BN_T3_ROWS, BN_T3_STEP_BYTES, BN_UNIT_ROWS,
                                         BLOCK_STEPS};

static void t2_mul_i8(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                      const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                      size_t n_tok)
{
    if (w->scale_kind == BN_SCALE_BLOCK)
        bn_t2_mul_i8_block_avx2(y, y_stride, w, r0, r1, q, q_stride, sum, inv, n_tok);
    else bn_mul_tokens_avx2(y, y_stride, w, r0, r1, q, q_stride, sum, inv, n_tok, &t2);
}

static void t3_mul_i8(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                      const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                      size_t n_tok)
{
    bn_mul_tokens_avx2(y, y_stride, w, r0, r1, q, q_stride, sum, inv, n_tok, &t3);
}

static void t2_mul_i8_many(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                           size_t r1, const int8_t *q, size_t q_stride, const int32_t *sum,
                           const float *inv, size_t n_tok, void *scratch)
{
    bn_mul_tables_avx2(y, y_stride, w, r0, r1, q, q_stride, sum, inv, n_tok, scratch,
                       bn_t2_codes_avx2, t2_mul_i8);
}

static void t3_mul_i8_many(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                           size_t r1, const int8_t *q, size_t q_stride, const int32_t *sum,
                           const float *inv, size_t n_tok, void *scratch)
{
    bn_mul_tables_avx2(y, y_stride, w, r0, r1, q, q_stride, sum, inv, n_tok, scratch,
                       bn_t3_codes_avx2, t3_mul_i8);
}

const struct bn_gemm bn_gemm_t2_avx512 = {
    BN_T2_LAYOUT,
    .mul_i8 = t2_mul_i8,
    .mul_f32 = bn_t2_mul_f32_avx2,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx2,
    .mul_i8_many = t2_mul_i8_many,
};

const struct bn_gemm bn_gemm_t3_avx512 = {
    BN_T3_LAYOUT,
    .mul_i8 = t3_mul_i8,
    .mul_f32 = bn_t3_mul_f32_avx2,
    .many_from = MANY_FROM,
    .many_bytes = bn_tables_bytes_avx2,
    .mul_i8_many = t3_mul_i8_many,
};
