/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64 with products of small matrices (i8mm): int8 activations of many tokens times matrices in layout
 * "t2" (ref/gemm_t2.c), one scale a row or matrix. An instruction takes two rows and two tokens, eight
 * columns of each, and adds 32 products. Eight tokens are interleaved in pairs once a call; eight rows
 * meet them, 16 sums in registers. Codes w + 1 are multiplied, and the sum of the activations is taken
 * off at the end. A token alone gains nothing here. */
#include "kernels/arm/dot.h"
#include "kernels/t2.h"
#include "kernels/wide/gemm/t2.h"

enum {
    GROUP = BN_T2_ROWS,
    ROWS = 2 * GROUP, /* at a time, */
    TOKENS = 8,
    PIECE = BN_T2_PIECE,
    STEP = BN_T2_STEP,
    EIGHT = 8 * TOKENS, /* bytes of eight columns of the tokens */
    MIN_REST = 3        /* tokens beyond the last eight that take these sums as well */
};

#define KEEP(v) __asm__("" : "+w"(v)::"memory")

static size_t many_bytes(size_t rows, size_t cols)
{
    (void)rows;
    return bn_align_up(cols, STEP) * TOKENS;
}

/* Eight columns after eight columns: those of tokens 0 and 1 side by side, of 2 and 3, ... Tokens beyond
 * n are the first one again. */
static void interleave(int8_t *to, const struct bn_q8 *x, size_t n, size_t cols)
{
    for (size_t k = 0; k < cols; k += 8)
        for (size_t t = 0; t < TOKENS; t++, to += 8)
            memcpy(to, x->q + (t < n ? t : 0) * x->stride + k, 8);
}

/* 16 columns of eight rows and tokens; x: those of the tokens */
ALWAYS void add_tile(int32x4_t s[ROWS / 2][TOKENS / 2], const int8x16_t f[ROWS], const int8_t *x)
{
    for (size_t half = 0; half < 2; half++, x += EIGHT) {
        int8x16_t pair[ROWS / 2];
        for (size_t i = 0; i < ROWS / 2; i++) {
            int64x2_t a = vreinterpretq_s64_s8(f[2 * i]), b = vreinterpretq_s64_s8(f[2 * i + 1]);
            pair[i] = vreinterpretq_s8_s64(half ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
        }
        for (size_t t = 0; t < TOKENS / 2; t++) {
            int8x16_t y = vld1q_s8(x + 16 * t);
            for (size_t i = 0; i < ROWS / 2; i++) s[i][t] = vmmlaq_s32(s[i][t], pair[i], y);
            KEEP(s[0][t]);
        }
    }
}

/* Sums of the rows of two groups and eight tokens: s[pair of rows][pair of tokens] */
static void tile(int32x4_t s[ROWS / 2][TOKENS / 2], const uint8_t *p0, const uint8_t *p1,
                 const int8_t *x, size_t steps)
{
    const uint8x16_t three = vdupq_n_u8(3);
    for (size_t i = 0; i < ROWS / 2; i++)
        for (size_t t = 0; t < TOKENS / 2; t++) s[i][t] = vdupq_n_s32(0);
    for (; steps > 0; steps--, p0 += GROUP * PIECE, p1 += GROUP * PIECE, x += STEP * TOKENS)
        for (size_t h = 0; h < 2; h++)
            for (size_t field = 0; field < 4; field++) {
                int8x16_t f[ROWS];
                for (size_t r = 0; r < ROWS; r++) {
                    const uint8_t *p = r < GROUP ? p0 : p1;
                    uint8x16_t b = vld1q_u8(p + r % GROUP * PIECE + 16 * h) >> 2 * field;
                    f[r] = vreinterpretq_s8_u8(field < 3 ? vandq_u8(b, three) : b);
                }
                add_tile(s, f, x + (32 * field + 16 * h) * TOKENS);
            }
}

/* y of n_rows rows and n tokens */
static void store(const struct bn_gemm_args *a, const struct bn_q8 *x, size_t r, size_t n_rows,
                  size_t n, const int32x4_t s[ROWS / 2][TOKENS / 2])
{
    int32_t sum[ROWS / 2][TOKENS / 2][2][2]; /* [row][token] of the pairs */
    memcpy(sum, s, sizeof sum);
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < n_rows; i++)
            a->y[t * a->y_stride + r + i] = (float)(sum[i / 2][t / 2][i % 2][t % 2] - x->sum[t]) *
                                            (bn_row_scale(a->w, r + i) * x->inv[t]);
}

/* Up to eight tokens */
static void mul_eight(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    const struct bn_packed *w = a->w;
    size_t steps = bn_div_up(w->cols, STEP);
    interleave(a->scratch, x, a->n_tok, steps * STEP);
    for (size_t r = a->r0; r < a->r1; r += ROWS) {
        size_t n = bn_min_size(ROWS, a->r1 - r);
        const uint8_t *p = bn_t2_group(w, r);
        int32x4_t s[ROWS / 2][TOKENS / 2];
        tile(s, p, n > GROUP ? bn_t2_group(w, r + GROUP) : p, a->scratch, steps);
        store(a, x, r, n, a->n_tok, (const int32x4_t(*)[TOKENS / 2]) s);
    }
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bool blocks = a->w->scale_kind == BN_SCALE_BLOCK;
    for (size_t t = 0, n; t < a->n_tok; t += n) {
        n = bn_min_size(TOKENS, a->n_tok - t);
        if (blocks || n < MIN_REST) n = a->n_tok - t;
        struct bn_gemm_args some = bn_gemm_tokens(a, t, n);
        struct bn_q8 q = bn_q8_from(x, t);
        (blocks || n < MIN_REST ? bn_t2_mul_i8_dotprod : mul_eight)(&some, &q);
    }
}

const struct bn_gemm bn_gemm_t2_i8mm = {
    BN_T2_LAYOUT,        .mul_i8 = bn_t2_mul_i8_dotprod, .mul_f32 = W_NAME(t2_mul_f32),
    .many_from = TOKENS, .many_bytes = many_bytes,       .mul_i8_many = mul_many,
};
