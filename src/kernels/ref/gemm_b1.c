/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of binary weights, layout "b1": one bit a weight, set where it is +1, clear
 * where it is -1. There is no code for 0, so it holds matrices that are binary by their type only.
 *
 * Groups of 64 rows. For every 8 columns (an octet) the group has 64 bytes, one a row; bit j is
 * column j of the octet. Rows 0-15 and 16-31 alternate in the first 32 bytes, rows 32-47 and 48-63
 * in the others: whoever adds up bytes in pairs to 16 bits then finds the rows in order. So the
 * whole matrix is one stream in the order of use. Rows and columns that do not exist are -1: the
 * activations of such columns are 0, and the results of such rows are not asked for. */
#include "base/half.h"
#include "kernels/b1.h"
#include "kernels/ref/lanes.h"

enum { ROWS = BN_B1_ROWS, OCTET = BN_B1_OCTET, STEP = BN_B1_STEP, TOKENS = 16 };

size_t bn_b1_group_bytes(size_t cols) { return BN_B1_STEP_BYTES * bn_div_up(cols, STEP); }

/* Eight bytes -1, 0 or +1 to eight bits, set for +1: the lowest bit of those that are not negative,
 * multiplied into the top byte. */
static inline uint8_t octet_bits(uint64_t v)
{
    v &= ~(v >> 7) & 0x0101010101010101u;
    return (uint8_t)(v * 0x0102040810204080u >> 56);
}

void bn_b1_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols)
{
    memset(dst, 0, bn_b1_group_bytes(cols));
    for (size_t r = 0; r < n_rows; r++, w += cols) {
        uint8_t *p = dst + bn_b1_place(r);
        size_t k = 0;
        for (; k + OCTET <= cols; k += OCTET, p += ROWS) *p = octet_bits(bn_load_u64(w + k));
        int8_t tail[OCTET] = {0};
        memcpy(tail, w + k, cols - k);
        if (k < cols) *p = octet_bits(bn_load_u64(tail));
    }
}

/* Columns [k, k + n) of row r of a group */
static void unpack_row(int8_t *w, const uint8_t *group, size_t r, size_t k, size_t n)
{
    const uint8_t *p = group + bn_b1_place(r);
    for (size_t i = 0; i < n; i++) {
        int byte = p[(k + i) / OCTET * ROWS];
        w[i] = (int8_t)(2 * (byte >> (k + i) % OCTET & 1) - 1);
    }
}

void bn_b1_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols)
{
    for (size_t r = 0; r < n_rows; r++) unpack_row(w + r * cols, src, r, 0, cols);
}

/* A row is taken in pieces that no block is cut by: decoded once, then a few tokens. */
static size_t piece_cols(const struct bn_packed *w)
{
    return w->scale_kind == BN_SCALE_BLOCK ? bn_min_size(w->block, STEP) : STEP;
}

/* The scale of the block of row r that ends at column `end`; false: none does. */
static bool block_end(float *d, const struct bn_packed *w, size_t r, size_t end)
{
    if (w->scale_kind != BN_SCALE_BLOCK || end % w->block != 0) return false;
    *d = bn_f16_to_f32(w->block_scale[r * (w->cols / w->block) + end / w->block - 1]);
    return true;
}

/* |S| <= 127 * BN_COLS_MAX < 2^22: exact in int32, and exact as a float. */
static void mul_i8_row(float *y, size_t y_stride, const struct bn_packed *w, size_t r,
                       const int8_t *q, size_t q_stride, const float *inv, size_t n_tok)
{
    int32_t part[TOKENS] = {0};
    float acc[TOKENS] = {0}, d;
    for (size_t k = 0, n; k < w->cols; k += n) {
        int8_t x[STEP];
        n = bn_min_size(piece_cols(w), w->cols - k);
        unpack_row(x, bn_b1_group(w, r), r % ROWS, k, n);
        for (size_t t = 0; t < n_tok; t++) part[t] += bn_dot_i8(x, q + t * q_stride + k, n);
        if (!block_end(&d, w, r, k + n)) continue;
        for (size_t t = 0; t < n_tok; t++) {
            acc[t] += (float)part[t] * d;
            part[t] = 0;
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        y[t * y_stride + r] = w->scale_kind == BN_SCALE_BLOCK
                                  ? acc[t] * inv[t]
                                  : (float)part[t] * (bn_row_scale(w, r) * inv[t]);
}

static void mul_i8(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                   const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                   size_t n_tok)
{
    (void)sum; /* weights are added up, not bits */
    for (size_t t = 0; t < n_tok; t += TOKENS)
        for (size_t r = r0; r < r1; r++)
            mul_i8_row(y + t * y_stride, y_stride, w, r, q + t * q_stride, q_stride, inv + t,
                       bn_min_size(TOKENS, n_tok - t));
}

/* A block is a multiple of 16 columns, so its lanes are the row's. */
static void mul_f32_row(float *y, size_t y_stride, const struct bn_packed *w, size_t r,
                        const float *x, size_t x_stride, size_t n_tok)
{
    struct bn_lanes lanes[TOKENS] = {{{0}}};
    float acc[TOKENS] = {0}, d;
    for (size_t k = 0, n; k < w->cols; k += n) {
        int8_t bit[STEP];
        float wide[STEP];
        n = bn_min_size(piece_cols(w), w->cols - k);
        unpack_row(bit, bn_b1_group(w, r), r % ROWS, k, n);
        for (size_t i = 0; i < n; i++) wide[i] = (float)bit[i];
        for (size_t t = 0; t < n_tok; t++)
            lanes[t] = bn_lanes_mul_add(lanes[t], wide, x + t * x_stride + k, n);
        if (!block_end(&d, w, r, k + n)) continue;
        for (size_t t = 0; t < n_tok; t++) {
            acc[t] += d * bn_lanes_sum(lanes[t]);
            lanes[t] = (struct bn_lanes){{0}};
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        y[t * y_stride + r] =
            w->scale_kind == BN_SCALE_BLOCK ? acc[t] : bn_row_scale(w, r) * bn_lanes_sum(lanes[t]);
}

static void mul_f32(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                    const float *x, size_t x_stride, size_t n_tok)
{
    for (size_t t = 0; t < n_tok; t += TOKENS)
        for (size_t r = r0; r < r1; r++)
            mul_f32_row(y + t * y_stride, y_stride, w, r, x + t * x_stride, x_stride,
                        bn_min_size(TOKENS, n_tok - t));
}

const struct bn_gemm bn_gemm_b1_c = {
    BN_B1_LAYOUT,
    .mul_i8 = mul_i8,
    .mul_f32 = mul_f32,
};
