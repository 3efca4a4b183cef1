/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: the rotation of a block (kernels.h), as with AVX2, a strip in each register: eight vectors
 * with one strip of the matrix, or a vector alone with all eight. */
#include "kernels/x86/avx512/codes.h"

enum { BLOCK = BN_ROTATE_BLOCK, STRIP = BN_ROTATE_STRIP, PIECE = BN_ROTATE_PIECE, SUMS = 8 };

_Static_assert(SUMS *STRIP == BLOCK, "a vector alone meets all strips");

ALWAYS void tile(float *y, const float *m, const float *x, size_t stride, const size_t n_strips)
{
    for (size_t at = 0; at < BLOCK; at += PIECE) {
        __m512 s[SUMS];
        UNROLL
        for (size_t k = 0; k < SUMS; k++) s[k] = _mm512_setzero_ps();
        for (size_t j = at; j < at + PIECE; j++) {
            UNROLL
            for (size_t k = 0; k < SUMS; k++) {
                __m512 w = _mm512_loadu_ps(m + (k % n_strips * BLOCK + j) * STRIP);
                __m512 v = _mm512_set1_ps(x[k / n_strips * stride + j]);
                s[k] = _mm512_add_ps(s[k], _mm512_mul_ps(w, v));
            }
        }
        UNROLL
        for (size_t k = 0; k < SUMS; k++) {
            float *out = y + k / n_strips * stride + k % n_strips * STRIP;
            if (at > 0) s[k] = _mm512_add_ps(_mm512_loadu_ps(out), s[k]);
            _mm512_storeu_ps(out, s[k]);
        }
    }
}

void bn_rotate_avx512(float *y, const float *m, const float *x, size_t stride, size_t n)
{
    size_t eights = n / SUMS * SUMS;
    for (size_t i = 0; i < BLOCK; i += STRIP)
        for (size_t t = 0; t < eights; t += SUMS)
            tile(y + t * stride + i, m + bn_rotate_at(i, 0), x + t * stride, stride, 1);
    for (size_t t = eights; t < n; t++) tile(y + t * stride, m, x + t * stride, stride, SUMS);
}
