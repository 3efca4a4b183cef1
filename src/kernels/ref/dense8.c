/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: a dense matrix rounded to one byte a weight (kernels.h), made and multiplied. */
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>

enum {
    ROWS = BN_DENSE8_ROWS,
    STEP = 64 /* columns, and bytes of one row, in a step */
};

static size_t n_steps(size_t cols) { return bn_align_up(cols, BN_K_ALIGN) / STEP; }

size_t bn_dense8_group_bytes(size_t cols) { return ROWS * STEP * n_steps(cols); }

void bn_dense8_pack(int8_t *dst, float *scale, const float *x, size_t n_rows, size_t cols)
{
    const double to_integer = 0x1.8p52; /* rounds half to even */
    memset(dst, 0, bn_dense8_group_bytes(cols));
    for (size_t r = 0; r < n_rows; r++, x += cols) {
        float most = 0;
        bool finite = true;
        for (size_t i = 0; i < cols; i++) {
            finite &= fabsf(x[i]) <= FLT_MAX;
            most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
        }
        scale[r] = finite ? (float)((double)most / 127) : NAN;
        if (!finite || most == 0) continue;
        double inv = 127 / (double)most;
        for (size_t s = 0; s * STEP < cols; s++) {
            int8_t *p = dst + (s * ROWS + r) * STEP;
            size_t n = bn_min_size(STEP, cols - s * STEP);
            for (size_t i = 0; i < n; i++)
                p[i] = (int8_t)(int32_t)((double)x[s * STEP + i] * inv + to_integer - to_integer);
        }
    }
}

static int64_t dot(const int8_t *p, const int16_t *k, size_t steps)
{
    int64_t sum = 0;
    for (size_t s = 0; s < steps; s++, p += ROWS * STEP, k += STEP) {
        int32_t part = 0; /* at most 64 * 127 * 32767 < 2^31 */
        for (size_t i = 0; i < STEP; i++) part += p[i] * k[i];
        sum += part;
    }
    return sum;
}

void bn_dense8_c(float *y, size_t y_stride, const struct bn_dense8 *w, size_t r0, size_t r1,
                 const struct bn_dense8_vector *v, size_t n_vec)
{
    size_t steps = n_steps(w->cols), bytes = bn_dense8_group_bytes(w->cols);
    for (size_t i = 0; i < n_vec; i++)
        for (size_t r = r0; r < r1; r++) {
            const int8_t *p = w->data + r / ROWS * bytes + r % ROWS * STEP;
            y[i * y_stride + r - r0] =
                (float)((double)dot(p, v[i].k, steps) * ((double)w->scale[r] * v[i].unit));
        }
}
