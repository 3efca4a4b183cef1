/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: the rotation of a block (kernels.h). Results are lanes and a vector's numbers are written
 * out for all of them, so that compilers find vectors. */
#include "kernels/kernels.h"

enum { BLOCK = BN_ROTATE_BLOCK, STRIP = BN_ROTATE_STRIP, PIECE = BN_ROTATE_PIECE };

static void write_out(float *v, const float *x)
{
    for (size_t j = 0; j < PIECE; j++)
        for (size_t i = 0; i < STRIP; i++) v[j * STRIP + i] = x[j];
}

static void add_piece(float *y, const float *m, const float *v)
{
    float s[STRIP] = {0};
    for (size_t j = 0; j < PIECE * STRIP; j += STRIP)
        for (size_t i = 0; i < STRIP; i++) s[i] += m[j + i] * v[j + i];
    for (size_t i = 0; i < STRIP; i++) y[i] += s[i];
}

void bn_rotate_c(float *y, const float *m, const float *x, size_t stride, size_t n)
{
    float v[PIECE * STRIP];
    for (size_t t = 0; t < n; t++, y += stride, x += stride) {
        memset(y, 0, BLOCK * sizeof *y);
        for (size_t j = 0; j < BLOCK; j += PIECE) {
            write_out(v, x + j);
            for (size_t i = 0; i < BLOCK; i += STRIP) add_piece(y + i, m + bn_rotate_at(i, j), v);
        }
    }
}
