/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: int8 activations of several tokens times matrices in layouts "t2", "t3" and "t5", one
 * scale a row or matrix, in the order of gemm/tokens.h. A few rows meet all tokens at once, with a register
 * of sums each; decoding is shared by the tokens, a load of activations by the rows. */
#include "kernels/x86/avx512/t5.h"
#include "kernels/wide/gemm/tokens.h"

enum {
    TOKENS = BN_TOKENS,
    SUMS = 24,            /* registers for sums */
    BOTH_TRIPLES_MAX = 3, /* tokens that two triples of t3 meet together, */
    ALL_FIVE_MAX = 4,     /* and five rows of t5 */
    BLOCK_STEPS = 20,     /* activations of 2560 columns stay in the first cache */
    STEP = BN_K_ALIGN
};

ALWAYS void no_sums(__m512i *s, const size_t rows, const size_t nt)
{
    UNROLL
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (size_t t = 0; t < nt; t++) s[r * nt + t] = _mm512_setzero_si512();
    }
}

/* 64 columns of some rows, codes c, and nt tokens */
ALWAYS void add_codes(__m512i *s, const __m512i *c, const size_t rows, const int8_t *q,
                      size_t stride, const size_t nt)
{
    for (size_t t = 0; t < nt; t++) {
        __m512i x = _mm512_loadu_si512(q + t * stride);
        for (size_t r = 0; r < rows; r++) s[r * nt + t] = bn_dot_add(s[r * nt + t], c[r], x);
    }
}

ALWAYS void add_sums(__m256i *sum, const __m512i *s, const size_t rows, const size_t nt,
                     const int shift, bool first)
{
    UNROLL
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (size_t t = 0; t < nt; t++) {
            __m256i parts = bn_fold_halves(s[r * nt + t], shift), *to = sum + r * TOKENS + t;
            *to = first ? parts : _mm256_add_epi32(*to, parts);
        }
    }
}

/* ---- t2: some rows of a group ---- */

ALWAYS void t2_rows(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x,
                    const size_t rows, const size_t nt)
{
    const __m512i fields = bn_two_masks(3, 12);
    __m512i s[SUMS], c[BN_T2_ROWS], d[BN_T2_ROWS];
    no_sums(s, rows, nt);
    for (size_t n = b->steps; n > 0; n--, p += BN_T2_STEP_BYTES, x.q += STEP) {
        for (size_t i = 0; i < rows * BN_T2_PIECE; i += 64)
            _mm_prefetch((const char *)p + b->ahead + i, _MM_HINT_T1);
        for (size_t r = 0; r < rows; r++) {
            __m512i v = bn_load_twice(p + r * BN_T2_PIECE);
            c[r] = _mm512_and_si512(v, fields);
            d[r] = _mm512_and_si512(_mm512_srli_epi16(v, 4), fields);
        }
        add_codes(s, c, rows, x.q, x.stride, nt);
        add_codes(s, d, rows, x.q + 64, x.stride, nt);
    }
    add_sums(sum, s, rows, nt, 2, b->first);
}

/* ---- t3: the triples [h0, h1) of a group ---- */

ALWAYS void t3_triples(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x,
                       const size_t h0, const size_t h1, const size_t nt)
{
    const size_t rows = 3 * (h1 - h0);
    __m512i s[SUMS], c[BN_T3_ROWS], table[3];
    for (size_t j = 0; j < 3; j++) table[j] = bn_load_twice(bn_t3_table[j]);
    no_sums(s, rows, nt);
    for (size_t n = b->steps; n > 0; n--, p += BN_T3_STEP_BYTES, x.q += STEP) {
        __m512i signs = bn_load_twice(p + BN_T3_STEP);
        for (size_t i = 0; h0 == 0 && i < BN_T3_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + b->ahead + i, _MM_HINT_T1);
        for (size_t half = 0; half < 2; half++) {
            for (size_t h = h0; h < h1; h++)
                bn_t3_codes(c + 3 * (h - h0), p, signs, table, h, half);
            add_codes(s, c, rows, x.q + 64 * half, x.stride, nt);
        }
    }
    add_sums(sum, s, rows, nt, 0, b->first);
}

/* ---- t5: rows [r0, r1) of a group ---- */

ALWAYS void t5_rows(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x,
                    const size_t r0, const size_t r1, const size_t nt)
{
    const struct bn_t5_tables tables = bn_t5_load_differences();
    const size_t rows = r1 - r0;
    __m512i s[SUMS], c[BN_T5_ROWS];
    no_sums(s, rows, nt);
    for (size_t n = b->steps; n > 0; n--, p += BN_T5_STEP_BYTES, x.q += STEP)
        for (size_t half = 0; half < 2; half++) {
            if (r0 == 0) _mm_prefetch((const char *)p + b->ahead + 64 * half, _MM_HINT_T1);
            bn_t5_codes(c, _mm512_loadu_si512(p + 64 * half), &tables, r0, r1);
            add_codes(s, c, rows, x.q + 64 * half, x.stride, nt);
        }
    UNROLL
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (size_t t = 0; t < nt; t++)
            s[r * nt + t] = _mm512_srai_epi32(s[r * nt + t], (unsigned)bn_t5_shift(r0 + r));
    }
    add_sums(sum, s, rows, nt, 0, b->first);
}

/* ---- groups, for every number of tokens ---- */

typedef void group_fn(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x);

/* as many rows together as there are registers for their sums */
#define TOKENS_FN(n)                                                                       \
    static void t2_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b,     \
                             struct bn_tokens x)                                           \
    {                                                                                      \
        const size_t rows = BN_T2_ROWS * (n) <= SUMS ? BN_T2_ROWS : BN_T2_ROWS / 2;        \
        for (size_t r = 0; r < BN_T2_ROWS; r += rows)                                      \
            t2_rows(sum + r * TOKENS, p + r * BN_T2_PIECE, b, x, rows, n);                 \
    }                                                                                      \
    static void t3_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b,     \
                             struct bn_tokens x)                                           \
    {                                                                                      \
        const size_t triples = (n) <= BOTH_TRIPLES_MAX ? 2 : 1;                            \
        t3_triples(sum, p, b, x, 0, triples, n);                                           \
        if (triples == 1) t3_triples(sum + 3 * TOKENS, p, b, x, 1, 2, n);                  \
    }                                                                                      \
    static void t5_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b,     \
                             struct bn_tokens x)                                           \
    {                                                                                      \
        const size_t rows = (n) <= ALL_FIVE_MAX ? BN_T5_ROWS : SUMS / TOKENS;              \
        t5_rows(sum, p, b, x, 0, rows, n);                                                 \
        if (rows < BN_T5_ROWS) t5_rows(sum + rows * TOKENS, p, b, x, rows, BN_T5_ROWS, n); \
    }
BN_EACH_TOKENS(TOKENS_FN)

static group_fn *const t2_group[TOKENS + 1] = BN_BY_TOKENS(t2_group);
static group_fn *const t3_group[TOKENS + 1] = BN_BY_TOKENS(t3_group);
static group_fn *const t5_group[TOKENS + 1] = BN_BY_TOKENS(t5_group);

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

static void t5_block(__m256i *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    for (size_t g = 0; g < b->groups; g++)
        t5_group[n_tok](sum + g * BN_T5_ROWS * TOKENS, b->p + g * b->group_bytes, b, x);
}

const struct bn_tokens_plan bn_t2_tokens_avx512 = {t2_block, BN_T2_ROWS, BN_T2_STEP_BYTES,
                                                   BN_UNIT_ROWS, BLOCK_STEPS};
const struct bn_tokens_plan bn_t3_tokens_avx512 = {t3_block, BN_T3_ROWS, BN_T3_STEP_BYTES,
                                                   BN_UNIT_ROWS, BLOCK_STEPS};
const struct bn_tokens_plan bn_t5_tokens_avx512 = {t5_block, BN_T5_ROWS, BN_T5_STEP_BYTES,
                                                   BN_T5_UNIT_ROWS, BLOCK_STEPS};
