/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: packing and multiplying in the layouts that are decoded step by step. */
#include "kernels/ref/steps.h"

#include "kernels/ref/lanes.h"

enum { ROWS = BN_STEP_ROWS, STEP = BN_STEP_COLS, TOKENS = 16 };

void bn_steps_pack(const struct bn_steps *l, uint8_t *dst, const int8_t *w, size_t n_rows,
                   size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, dst += l->bytes) {
        struct bn_step s = {{{0}}}; /* zero weights in rows and columns that do not exist */
        for (size_t r = 0; r < n_rows; r++)
            memcpy(s.w[r], w + r * cols + k, bn_min_size(STEP, cols - k));
        l->encode(dst, &s);
    }
}

void bn_steps_unpack(const struct bn_steps *l, int8_t *w, const uint8_t *src, size_t n_rows,
                     size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, src += l->bytes) {
        struct bn_step s;
        l->decode(&s, src);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(w + r * cols + k, s.w[r], bn_min_size(STEP, cols - k));
    }
}

static const uint8_t *group(const struct bn_steps *l, const struct bn_packed *w, size_t r)
{
    return w->data + r / l->rows * bn_steps_group_bytes(l, w->cols);
}

/* |S| <= 127 * BN_COLS_MAX < 2^22: exact in int32, and exact as a float. */
static void mul_i8_group(const struct bn_steps *l, float *y, size_t y_stride,
                         const struct bn_packed *w, size_t r0, size_t n_rows, const int8_t *q,
                         size_t q_stride, const float *inv, size_t n_tok)
{
    int32_t acc[TOKENS][ROWS] = {{0}};
    const uint8_t *p = group(l, w, r0);
    for (size_t k = 0; k < w->cols; k += STEP, p += l->bytes) {
        struct bn_step s;
        l->decode(&s, p);
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < n_rows; r++)
                acc[t][r] += bn_dot_i8(s.w[r], q + t * q_stride + k, STEP);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++)
            y[t * y_stride + r0 + r] = (float)acc[t][r] * (bn_row_scale(w, r0 + r) * inv[t]);
}

void bn_steps_mul_i8(const struct bn_steps *l, float *y, size_t y_stride, const struct bn_packed *w,
                     size_t r0, size_t r1, const int8_t *q, size_t q_stride, const float *inv,
                     size_t n_tok)
{
    for (size_t t = 0; t < n_tok; t += TOKENS)
        for (size_t r = r0; r < r1; r += l->rows)
            mul_i8_group(l, y + t * y_stride, y_stride, w, r, bn_min_size(l->rows, r1 - r),
                         q + t * q_stride, q_stride, inv + t, bn_min_size(TOKENS, n_tok - t));
}

/* One token, one group. */
static void mul_f32_group(const struct bn_steps *l, float *y, const struct bn_packed *w, size_t r0,
                          size_t n_rows, const float *x)
{
    struct bn_lanes lanes[ROWS] = {{{0}}};
    const uint8_t *p = group(l, w, r0);
    for (size_t k = 0; k < w->cols; k += STEP, p += l->bytes) {
        struct bn_step s;
        l->decode(&s, p);
        for (size_t r = 0; r < n_rows; r++) {
            float wide[STEP];
            for (size_t i = 0; i < STEP; i++) wide[i] = (float)s.w[r][i];
            lanes[r] = bn_lanes_mul_add(lanes[r], wide, x + k, bn_min_size(STEP, w->cols - k));
        }
    }
    for (size_t r = 0; r < n_rows; r++)
        y[r0 + r] = bn_row_scale(w, r0 + r) * bn_lanes_sum(lanes[r]);
}

void bn_steps_mul_f32(const struct bn_steps *l, float *y, size_t y_stride,
                      const struct bn_packed *w, size_t r0, size_t r1, const float *x,
                      size_t x_stride, size_t n_tok)
{
    for (size_t r = r0; r < r1; r += l->rows)
        for (size_t t = 0; t < n_tok; t++)
            mul_f32_group(l, y + t * y_stride, w, r, bn_min_size(l->rows, r1 - r),
                          x + t * x_stride);
}
