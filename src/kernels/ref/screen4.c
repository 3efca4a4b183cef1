/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: the 4-bit screening copy of a dense matrix (kernels.h), made and multiplied. */
#include "kernels/kernels.h"

#include <math.h>

enum {
    ROWS = BN_SCREEN_ROWS,
    STEP = 64, /* columns of a step */
    PIECE = 32 /* bytes of one row in a step */
};

static size_t n_steps(size_t cols) { return bn_align_up(cols, BN_K_ALIGN) / STEP; }

size_t bn_screen4_group_bytes(size_t cols) { return ROWS * PIECE * n_steps(cols); }

/* The least float with 7.5 * step >= max|x|; the products are exact in double. Not below 2^-100, so
 * that its reciprocal is a number of full precision. */
static float step_of(const float *x, size_t n)
{
    float most = 7.5f * 0x1p-100f;
    for (size_t i = 0; i < n; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    float step = (float)((double)most / 7.5);
    while ((double)step * 7.5 < (double)most) step = nextafterf(step, INFINITY);
    return step;
}

/* codes w + 8. Without a clamp: |x * inv| <= 7.5 * (1 + 2^-22) and u keeps 2^-17 away from +-1/2,
 * so the sum lies inside (0, 16). */
static void codes_of(uint8_t *code, const float *x, const float *u, size_t n, float inv)
{
    for (size_t i = 0; i < n; i++) code[i] = (uint8_t)(int32_t)(x[i] * inv + (u[i] + 8.0f));
}

/* the root of an integer, not rounded down; squares of floats are exact in double */
static float root_up(int64_t squares)
{
    float y = (float)sqrt((double)squares);
    return (double)y * (double)y < (double)squares ? nextafterf(y, INFINITY) : y;
}

void bn_screen4_pack(uint8_t *dst, struct bn_screen_row *row, const float *x, size_t n_rows,
                     size_t cols, const float *u, const float *d)
{
    memset(dst, 0x88, bn_screen4_group_bytes(cols));
    for (size_t r = 0; r < n_rows; r++, x += cols) {
        float inv = 1.0f / (row[r].step = step_of(x, cols));
        int64_t squares = 0;
        double shift = 0; /* exact: 34 bits */
        for (size_t s = 0; s * STEP < cols; s++) {
            uint8_t c[STEP], *p = dst + (s * ROWS + r) * PIECE;
            size_t n = bn_min_size(STEP, cols - s * STEP);
            memset(c, 8, sizeof c);
            codes_of(c, x + s * STEP, u + s * STEP, n, inv);
            for (size_t i = 0; i < n; i++) {
                int32_t w = c[i] - 8;
                squares += w * w;
                shift += w * (double)d[s * STEP + i];
            }
            for (size_t i = 0; i < PIECE; i++) p[i] = (uint8_t)(c[i] | c[PIECE + i] << 4);
        }
        row[r].norm = root_up(squares);
        row[r].shift = (float)shift;
    }
}

static int32_t dot(const uint8_t *p, const int8_t *high, const int8_t *low, size_t steps)
{
    int32_t h = 0, l = 0;
    for (size_t at = 0; at < steps * STEP; at += STEP, p += ROWS * PIECE)
        for (size_t i = at; i < at + PIECE; i++) {
            int32_t a = (p[i - at] & 15) - 8, b = (p[i - at] >> 4) - 8;
            h += a * high[i] + b * high[PIECE + i];
            if (low) l += a * low[i] + b * low[PIECE + i];
        }
    return low ? 128 * h + l : h; /* at most 16384 * 8 * 16320 < 2^31 */
}

static void one_vector(float *score, float *upper, const struct bn_screen *w, size_t r0, size_t r1,
                       const struct bn_screen_vector *v)
{
    size_t steps = n_steps(w->cols), bytes = bn_screen4_group_bytes(w->cols);
    for (size_t r = r0; r < r1; r++) {
        const uint8_t *p = w->data + r / ROWS * bytes + r % ROWS * PIECE;
        double step = (double)w->step[r], norm = (double)w->norm[r];
        double s = (double)dot(p, v->high, v->low, steps) - (double)w->shift[r];
        double y = step * (s * v->unit + v->offset);
        double bound = y + step * (v->margin + norm * v->per_norm);
        score[r - r0] = (float)y;
        upper[r - r0] = (float)((bound + fabs(bound) * 0x1p-23) + v->tiny);
    }
}

void bn_screen4_c(float *score, float *upper, size_t stride, const struct bn_screen *w, size_t r0,
                  size_t r1, const struct bn_screen_vector *v, size_t n_vec)
{
    for (size_t i = 0; i < n_vec; i++)
        one_vector(score + i * stride, upper + i * stride, w, r0, r1, &v[i]);
}
