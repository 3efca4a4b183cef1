/* SPDX-License-Identifier: Apache-2.0 */
#include "model/head/head_rotate.h"

#include "base/det_math.h"
#include "base/rng.h"
#include <math.h>

enum { HAND = 4 /* columns that are dealt out together */ };

/* Any fixed number: bounds hold for matrices that were drawn without looking at the weights. */
static const uint64_t seed = 0x5eed0f4b17d17e52u;

size_t bn_rotation_size(size_t cols, size_t b)
{
    size_t blocks = bn_rotation_blocks(cols), hands = bn_div_up(cols, HAND);
    size_t own = (hands - b + blocks - 1) / blocks;
    bool last = (hands - 1) % blocks == b; /* its last hand may not be full */
    return last ? own * HAND - (hands * HAND - cols) : own * HAND;
}

/* The largest power of two that divides cols: columns that are mixed with each other. */
static size_t segment(size_t cols) { return cols & (~cols + 1); }

void bn_rotation_draw_signs(float *sign, size_t cols)
{
    struct bn_rng rng = {seed};
    size_t mixed = segment(cols) > HAND ? segment(cols) / HAND : 1;
    float scale = (float)(1 / sqrt((double)mixed));
    for (size_t i = 0; i < cols; i++) sign[i] = bn_rng_below(&rng, 2) ? scale : -scale;
}

static void draw_gauss(double *x, size_t n, struct bn_rng *rng)
{
    const double two_pi = 6.283185307179586;
    for (size_t i = 0; i < n; i += 2) {
        double s, c, r = sqrt(-2 * bn_det_log(1 - bn_rng_unit(rng)));
        bn_det_sincos(two_pi * bn_rng_unit(rng), &s, &c);
        x[i] = r * c;
        if (i + 1 < n) x[i + 1] = r * s;
    }
}

static double dot(const double *a, const double *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Gram-Schmidt, each row twice, since one pass leaves what it rounds. Rows of independent normal
 * numbers become a matrix that is distributed evenly. */
static void make_orthonormal(double *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double *row = m + i * n;
        for (size_t k = 0; k < 2 * i; k++) {
            const double *other = m + k % i * n;
            double part = dot(row, other, n);
            for (size_t j = 0; j < n; j++) row[j] -= part * other[j];
        }
        double scale = 1 / sqrt(dot(row, row, n));
        for (size_t j = 0; j < n; j++) row[j] *= scale;
    }
}

void bn_rotation_draw_matrix(float *matrix, size_t cols, size_t b, double *scratch)
{
    struct bn_rng rng = {bn_mix64(seed + b + 1)};
    size_t n = bn_rotation_size(cols, b);
    draw_gauss(scratch, n * n, &rng);
    make_orthonormal(scratch, n);
    matrix += b * BN_ROTATE_BLOCK * BN_ROTATE_BLOCK;
    memset(matrix, 0, BN_ROTATE_BLOCK * BN_ROTATE_BLOCK * sizeof *matrix);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) matrix[bn_rotate_at(i, j)] = (float)scratch[i * n + j];
}

static void mix(float *x, size_t n)
{
    for (size_t half = HAND; half < n; half *= 2)
        for (size_t at = 0; at < n; at += 2 * half) {
            float *a = x + at, *b = a + half;
            for (size_t i = 0; i < half; i++) {
                float s = a[i] + b[i];
                b[i] = a[i] - b[i];
                a[i] = s;
            }
        }
}

static void deal(const struct bn_rotation *t, float *to, const float *x)
{
    size_t i = 0;
    memset(to, 0, t->blocks * BN_ROTATE_BLOCK * sizeof *to);
    for (size_t place = 0; i < t->cols; place += HAND)
        for (size_t b = 0; b < t->blocks && i < t->cols; b++, i += HAND)
            memcpy(to + b * BN_ROTATE_BLOCK + place, x + i, HAND * sizeof *to);
}

void bn_rotate(const struct bn_rotation *t, const struct bn_kernels *k, float *x, float *scratch,
               size_t n)
{
    size_t stride = t->blocks * BN_ROTATE_BLOCK, seg = segment(t->cols);
    for (size_t r = 0; r < n; r++) {
        float *row = x + r * stride;
        for (size_t i = 0; i < t->cols; i++) row[i] *= t->sign[i];
        for (size_t i = 0; i < t->cols; i += seg) mix(row + i, seg);
        deal(t, scratch + r * stride, row);
    }
    for (size_t b = 0; b < t->blocks; b++) {
        size_t at = b * BN_ROTATE_BLOCK;
        k->rotate(x + at, t->matrix + at * BN_ROTATE_BLOCK, scratch + at, stride, n);
    }
}
