/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of ternary weights in 5 bits for 3, layout "t3": 1.67 bits a weight instead
 * of the 2 of "t2". It holds {-1, 0, +1} only, with one scale a row or matrix.
 *
 * Groups of 6 rows, two triples A (rows 0-2) and B (rows 3-5). The three weights t0, t1, t2 that a
 * triple has in one column are the number m = t0 + 3 t1 + 9 t2 in -13..13, kept as |m| in four bits
 * and a sign. For every 128 columns (a step) the group has 128 bytes, one a column, |m| of A in the
 * low and of B in the high nibble; then 32 bytes of signs, of which byte i belongs to the columns
 * i, 32 + i, 64 + i and 96 + i: bits 7, 5, 3, 1 for A and 6, 4, 2, 0 for B, set where m < 0. So the
 * whole matrix is one stream in the order of use, and neither the nibbles nor the signs have to be
 * moved between bytes.
 *
 * Balanced digits come off by rounding: with a = |m|, a1 = (a + 1) / 3 = t1 + 3 t2 and
 * a2 = (a + 4) / 9 = t2, all of them >= 0; the sign then goes to all three (or to the activation,
 * once for the three rows: that is what makes the layout fast). */
#include "kernels/ref/lanes.h"
#include "kernels/t3.h"

enum { ROWS = BN_T3_ROWS, STEP = BN_T3_STEP, PIECE = STEP / 4, TOKENS = 16 };

size_t bn_t3_group_bytes(size_t cols) { return BN_T3_STEP_BYTES * bn_div_up(cols, STEP); }

/* One triple's 32 columns: nibbles to `at`, sign bits to `sign`. x0, x1, x2: the three rows. */
static inline void pack_piece(uint8_t *restrict at, uint8_t *restrict sign, const int8_t *x0,
                              const int8_t *x1, const int8_t *x2, int shift, uint8_t bit)
{
    for (size_t i = 0; i < PIECE; i++) {
        int8_t m = (int8_t)(x0[i] + 3 * x1[i] + 9 * x2[i]), minus = (int8_t) - (m < 0);
        at[i] |= (uint8_t)((uint8_t)((m ^ minus) - minus) << shift);
        sign[i] |= (uint8_t)(minus & bit);
    }
}

void bn_t3_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols)
{
    memset(dst, 0, bn_t3_group_bytes(cols));
    for (size_t k = 0; k < cols; k += STEP, dst += BN_T3_STEP_BYTES) {
        int8_t x[ROWS][STEP] = {{0}}; /* zero weights in rows and columns that do not exist */
        for (size_t r = 0; r < n_rows; r++)
            memcpy(x[r], w + r * cols + k, bn_min_size(STEP, cols - k));
        for (size_t h = 0; h < 2; h++)
            for (size_t f = 0; f < 4; f++) {
                size_t at = f * PIECE;
                pack_piece(dst + at, dst + STEP, x[3 * h] + at, x[3 * h + 1] + at,
                           x[3 * h + 2] + at, (int)(4 * h), (uint8_t)(0x80 >> (2 * f + h)));
            }
    }
}

static void decode_step(int8_t w[ROWS][STEP], const uint8_t *p)
{
    for (size_t h = 0; h < 2; h++)
        for (size_t f = 0; f < 4; f++)
            for (size_t i = 0; i < PIECE; i++) {
                size_t k = f * PIECE + i;
                int a = p[k] >> 4 * h & 15, a1 = (a + 1) / 3, a2 = (a + 4) / 9;
                int sign = 1 - 2 * (p[STEP + i] >> (7 - 2 * f - h) & 1);
                w[3 * h][k] = (int8_t)(sign * (a - 3 * a1));
                w[3 * h + 1][k] = (int8_t)(sign * (a1 - 3 * a2));
                w[3 * h + 2][k] = (int8_t)(sign * a2);
            }
}

void bn_t3_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, src += BN_T3_STEP_BYTES) {
        int8_t trit[ROWS][STEP];
        decode_step(trit, src);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(w + r * cols + k, trit[r], bn_min_size(STEP, cols - k));
    }
}

/* |S| <= 127 * BN_COLS_MAX < 2^22: exact in int32, and exact as a float. */
static void mul_i8_group(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                         size_t n_rows, const int8_t *q, size_t q_stride, const float *inv,
                         size_t n_tok)
{
    int32_t acc[TOKENS][ROWS] = {{0}};
    const uint8_t *p = bn_t3_group(w, r0);
    for (size_t k = 0; k < w->cols; k += STEP, p += BN_T3_STEP_BYTES) {
        int8_t trit[ROWS][STEP];
        decode_step(trit, p);
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < ROWS; r++)
                acc[t][r] += bn_dot_i8(trit[r], q + t * q_stride + k, STEP);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++)
            y[t * y_stride + r0 + r] = (float)acc[t][r] * (bn_row_scale(w, r0 + r) * inv[t]);
}

void bn_t3_mul_i8_c(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                    const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                    size_t n_tok)
{
    (void)sum; /* weights are added up, not codes */
    for (size_t t = 0; t < n_tok; t += TOKENS)
        for (size_t r = r0; r < r1; r += ROWS)
            mul_i8_group(y + t * y_stride, y_stride, w, r, bn_min_size(ROWS, r1 - r),
                         q + t * q_stride, q_stride, inv + t, bn_min_size(TOKENS, n_tok - t));
}

/* One token, one group. */
static void mul_f32_group(float *y, const struct bn_packed *w, size_t r0, size_t n_rows,
                          const float *x)
{
    struct bn_lanes lanes[ROWS] = {{{0}}};
    const uint8_t *p = bn_t3_group(w, r0);
    for (size_t k = 0; k < w->cols; k += STEP, p += BN_T3_STEP_BYTES) {
        int8_t trit[ROWS][STEP];
        decode_step(trit, p);
        for (size_t r = 0; r < n_rows; r++) {
            float wide[STEP];
            for (size_t i = 0; i < STEP; i++) wide[i] = (float)trit[r][i];
            lanes[r] = bn_lanes_mul_add(lanes[r], wide, x + k, bn_min_size(STEP, w->cols - k));
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        y[r0 + r] = bn_row_scale(w, r0 + r) * bn_lanes_sum(lanes[r]);
}

void bn_t3_mul_f32_c(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                     const float *x, size_t x_stride, size_t n_tok)
{
    for (size_t r = r0; r < r1; r += ROWS)
        for (size_t t = 0; t < n_tok; t++)
            mul_f32_group(y + t * y_stride, w, r, bn_min_size(ROWS, r1 - r), x + t * x_stride);
}

const struct bn_gemm bn_gemm_t3_c = {
    BN_T3_LAYOUT,
    .mul_i8 = bn_t3_mul_i8_c,
    .mul_f32 = bn_t3_mul_f32_c,
};
