/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: rows and columns of ternary matrices by a list, from copies in the layouts "r2" and
 * "c2" (kernels.h). */
#include "kernels/ref/lanes.h"

enum { STEP = BN_K_ALIGN, PIECE = STEP / 4, COLUMN_ALIGN = 64, BLOCK = 64 };

size_t bn_r2_row_bytes(size_t cols) { return PIECE * bn_div_up(cols, STEP); }
size_t bn_c2_column_bytes(size_t rows) { return bn_align_up(rows, 4 * COLUMN_ALIGN) / 4; }

/* Four codes w + 1 of two bits each: the ones add up to 0x55, and no field overflows. */
static uint8_t four(int w0, int w1, int w2, int w3)
{
    return (uint8_t)(0x55 + w0 + w1 * 4 + w2 * 16 + w3 * 64);
}

void bn_r2_pack(uint8_t *row, const int8_t *w, size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, row += PIECE) {
        int8_t x[STEP] = {0};
        memcpy(x, w + k, bn_min_size(STEP, cols - k));
        for (size_t i = 0; i < PIECE; i++)
            row[i] = four(x[i], x[PIECE + i], x[2 * PIECE + i], x[3 * PIECE + i]);
    }
}

/* In two steps, because only one of them can run along the rows: codes of 64 columns, then bytes
 * turned over. */
void bn_c2_pack(uint8_t *dst, size_t rows, size_t r0, const int8_t *w, size_t n, size_t cols)
{
    static const int8_t none[BLOCK] = {0};
    size_t stride = bn_c2_column_bytes(rows);
    for (size_t k = 0; k < cols; k += BLOCK) {
        uint8_t code[PIECE][BLOCK];
        size_t some = bn_min_size(BLOCK, cols - k);
        for (size_t i = 0; i < PIECE; i++) {
            const int8_t *x[4];
            for (size_t f = 0; f < 4; f++)
                x[f] = f * PIECE + i < n ? w + (f * PIECE + i) * cols + k : none;
            for (size_t j = 0; j < some; j++) code[i][j] = four(x[0][j], x[1][j], x[2][j], x[3][j]);
        }
        for (size_t j = 0; j < some; j++) {
            uint8_t *column = dst + (k + j) * stride + r0 / 4;
            for (size_t i = 0; i < PIECE; i++) column[i] = code[i][j];
        }
    }
}

static void decode(int8_t w[STEP], const uint8_t *piece)
{
    for (size_t f = 0; f < 4; f++)
        for (size_t i = 0; i < PIECE; i++) w[f * PIECE + i] = (int8_t)((piece[i] >> 2 * f & 3) - 1);
}

/* |S| <= 127 * 2 * BN_COLS_MAX < 2^23: exact in int32, and exact as a float. */
void bn_rows_r2_c(float *y, const struct bn_packed *w, const uint32_t *list, size_t n,
                  const int8_t *q, int32_t sum, float inv)
{
    size_t bytes = bn_r2_row_bytes(w->cols);
    (void)sum; /* for variants that add up codes instead of weights */
    for (size_t i = 0; i < n; i++) {
        const uint8_t *p = w->data + list[i] * bytes;
        int32_t s = 0;
        for (size_t k = 0; k < w->cols; k += STEP, p += PIECE) {
            int8_t trit[STEP];
            decode(trit, p);
            s += bn_dot_i8(trit, q + k, STEP);
        }
        y[i] = (float)s * (bn_row_scale(w, list[i]) * inv);
    }
}

void bn_cols_c2_c(float *y, const struct bn_packed *w, size_t r0, size_t r1, const uint32_t *list,
                  size_t n, const int8_t *q, float inv)
{
    size_t bytes = bn_c2_column_bytes(w->rows);
    for (size_t r = r0; r < r1; r += STEP) {
        int32_t s[STEP] = {0};
        for (size_t i = 0; i < n; i++) {
            int8_t trit[STEP];
            decode(trit, w->data + list[i] * bytes + r / 4);
            for (size_t j = 0; j < STEP; j++) s[j] += trit[j] * q[list[i]];
        }
        for (size_t j = 0; j < STEP && r + j < r1; j++)
            y[r + j] = (float)s[j] * (bn_row_scale(w, r + j) * inv);
    }
}
