/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of two-bit weights, layout "t2". Groups of 4 rows; for every 128 columns (a
 * step) the group has four pieces of 32 bytes, row after row; byte i of a piece holds the codes
 * w + 1 of columns i, 32 + i, 64 + i and 96 + i of the step in its bits 0-1, 2-3, 4-5 and 6-7. So
 * the whole matrix is one stream in the order of use, and a field is cut out of 32 bytes by a shift
 * and a mask without moving any byte.
 *
 * Multiplication: a step of the four rows is decoded once, then meets a few tokens. */
#include "base/half.h"
#include "kernels/ref/lanes.h"
#include "kernels/t2.h"

enum { ROWS = BN_T2_ROWS, STEP = BN_T2_STEP, PIECE = BN_T2_PIECE, TOKENS = 16 };

size_t bn_t2_group_bytes(size_t cols) { return ROWS * PIECE * bn_div_up(cols, STEP); }

void bn_t2_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols)
{
    size_t n_steps = bn_div_up(cols, STEP);
    memset(dst, 0x55, bn_t2_group_bytes(cols)); /* zero weights in rows that do not exist */
    for (size_t s = 0; s < n_steps; s++)
        for (size_t r = 0; r < n_rows; r++) {
            uint8_t *p = dst + (s * ROWS + r) * PIECE;
            const int8_t *x = w + r * cols + s * STEP;
            int8_t tail[STEP] = {0};
            if (cols - s * STEP < STEP) x = memcpy(tail, x, cols - s * STEP);
            /* four codes w + 1 of two bits each: the ones add up to 0x55, and no field overflows */
            for (size_t i = 0; i < PIECE; i++)
                p[i] = (uint8_t)(0x55 + x[i] + x[PIECE + i] * 4 + x[2 * PIECE + i] * 16 +
                                 x[3 * PIECE + i] * 64);
        }
}

static void decode_step(int8_t w[ROWS][STEP], const uint8_t *p)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t f = 0; f < 4; f++)
            for (size_t i = 0; i < PIECE; i++)
                w[r][f * PIECE + i] = (int8_t)((p[r * PIECE + i] >> 2 * f & 3) - 1);
}

void bn_t2_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, src += ROWS * PIECE) {
        int8_t trit[ROWS][STEP];
        decode_step(trit, src);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(w + r * cols + k, trit[r], bn_min_size(STEP, cols - k));
    }
}

/* |S| <= 127 * 2 * BN_COLS_MAX < 2^23: exact in int32, and exact as a float. */
static void mul_i8_plain(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                         size_t n_rows, const int8_t *q, size_t q_stride, const float *inv,
                         size_t n_tok)
{
    int32_t acc[TOKENS][ROWS] = {{0}};
    size_t steps = bn_div_up(w->cols, STEP);
    const uint8_t *p = bn_t2_group(w, r0);
    for (size_t s = 0; s < steps; s++, p += ROWS * PIECE) {
        int8_t trit[ROWS][STEP];
        decode_step(trit, p);
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < ROWS; r++)
                acc[t][r] += bn_dot_i8(trit[r], q + t * q_stride + s * STEP, STEP);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++)
            y[t * y_stride + r0 + r] = (float)acc[t][r] * (bn_row_scale(w, r0 + r) * inv[t]);
}

static void mul_i8_block(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                         size_t n_rows, const int8_t *q, size_t q_stride, const float *inv,
                         size_t n_tok)
{
    int32_t part[TOKENS][ROWS] = {{0}};
    float acc[TOKENS][ROWS] = {{0}};
    size_t n_blocks = w->cols / w->block, piece = bn_min_size(w->block, STEP);
    const uint8_t *p = bn_t2_group(w, r0);
    int8_t trit[ROWS][STEP];
    for (size_t k = 0; k < w->cols; k += piece) {
        if (k % STEP == 0) decode_step(trit, p + k / STEP * ROWS * PIECE);
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < n_rows; r++)
                part[t][r] += bn_dot_i8(trit[r] + k % STEP, q + t * q_stride + k, piece);
        if ((k + piece) % w->block != 0) continue;
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < n_rows; r++) {
                uint16_t d = w->block_scale[(r0 + r) * n_blocks + k / w->block];
                acc[t][r] += (float)part[t][r] * bn_f16_to_f32(d);
                part[t][r] = 0;
            }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++) y[t * y_stride + r0 + r] = acc[t][r] * inv[t];
}

void bn_t2_mul_i8_c(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                    const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                    size_t n_tok)
{
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    (void)sum; /* for variants that add up codes instead of weights */
    for (size_t t = 0; t < n_tok; t += TOKENS) {
        size_t nt = bn_min_size(TOKENS, n_tok - t);
        for (size_t r = r0; r < r1; r += ROWS)
            (blocks ? mul_i8_block : mul_i8_plain)(y + t * y_stride, y_stride, w, r,
                                                   bn_min_size(ROWS, r1 - r), q + t * q_stride,
                                                   q_stride, inv + t, nt);
    }
}

/* One token, one group. A block is a multiple of 16 columns, so its lanes are the row's. */
static void mul_f32_group(float *y, const struct bn_packed *w, size_t r0, size_t n_rows,
                          const float *x)
{
    struct bn_lanes lanes[ROWS] = {{{0}}};
    float acc[ROWS] = {0};
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t piece = blocks ? bn_min_size(w->block, STEP) : STEP;
    const uint8_t *p = bn_t2_group(w, r0);
    int8_t trit[ROWS][STEP];
    for (size_t k = 0; k < w->cols; k += piece) {
        size_t n = bn_min_size(piece, w->cols - k);
        if (k % STEP == 0) decode_step(trit, p + k / STEP * ROWS * PIECE);
        for (size_t r = 0; r < n_rows; r++) {
            float wide[STEP];
            for (size_t i = 0; i < piece; i++) wide[i] = (float)trit[r][k % STEP + i];
            lanes[r] = bn_lanes_mul_add(lanes[r], wide, x + k, n);
            if (!blocks || (k + piece) % w->block != 0) continue;
            uint16_t d = w->block_scale[(r0 + r) * (w->cols / w->block) + k / w->block];
            acc[r] += bn_f16_to_f32(d) * bn_lanes_sum(lanes[r]);
            lanes[r] = (struct bn_lanes){{0}};
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        y[r0 + r] = blocks ? acc[r] : bn_row_scale(w, r0 + r) * bn_lanes_sum(lanes[r]);
}

void bn_t2_mul_f32_c(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                     const float *x, size_t x_stride, size_t n_tok)
{
    for (size_t r = r0; r < r1; r += ROWS)
        for (size_t t = 0; t < n_tok; t++)
            mul_f32_group(y + t * y_stride, w, r, bn_min_size(ROWS, r1 - r), x + t * x_stride);
}

const struct bn_gemm bn_gemm_t2_c = {
    BN_T2_LAYOUT,
    .mul_i8 = bn_t2_mul_i8_c,
    .mul_f32 = bn_t2_mul_f32_c,
};
