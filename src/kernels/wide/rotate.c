/* SPDX-License-Identifier: Apache-2.0
 *
 * The rotation of a block (kernels.h). Results are lanes; each number of a vector is broadcast.
 * Eight registers of sums hide how long an addition takes: four vectors with one strip of the matrix,
 * which stays in the first cache for all of them, or a vector alone with four strips. */
#include "kernels/wide/lanes.h"

enum { BLOCK = BN_ROTATE_BLOCK, STRIP = BN_ROTATE_STRIP, PIECE = BN_ROTATE_PIECE, SUMS = 4 };

static inline __attribute__((always_inline)) void tile(float *y, const float *m, const float *x,
                                                       size_t stride, const size_t n_vec,
                                                       const size_t n_strips)
{
    for (size_t at = 0; at < BLOCK; at += PIECE) {
        struct bn_l16 s[SUMS];
        for (size_t i = 0; i < SUMS; i++) s[i] = bn_l16_zero();
        for (size_t j = at; j < at + PIECE; j++)
            for (size_t t = 0; t < n_vec; t++) {
                w_f32 v = w_broadcast_ss(x + t * stride + j);
                for (size_t i = 0; i < n_strips; i++)
                    s[t * n_strips + i] = bn_l16_mul_add(s[t * n_strips + i],
                                                         bn_l16_load(m + (i * BLOCK + j) * STRIP),
                                                         (struct bn_l16){v, v});
            }
        for (size_t t = 0; t < n_vec; t++)
            for (size_t i = 0; i < n_strips; i++) {
                float *out = y + t * stride + i * STRIP;
                struct bn_l16 sum = s[t * n_strips + i];
                if (at > 0) sum = bn_l16_add(bn_l16_load(out), sum);
                bn_l16_store(out, sum);
            }
    }
}

void W_NAME(rotate)(float *y, const float *m, const float *x, size_t stride, size_t n)
{
    size_t fours = n / SUMS * SUMS;
    for (size_t i = 0; i < BLOCK; i += STRIP)
        for (size_t t = 0; t < fours; t += SUMS)
            tile(y + t * stride + i, m + bn_rotate_at(i, 0), x + t * stride, stride, SUMS, 1);
    for (size_t t = fours; t < n; t++)
        for (size_t i = 0; i < BLOCK; i += SUMS * STRIP)
            tile(y + t * stride + i, m + bn_rotate_at(i, 0), x + t * stride, stride, 1, SUMS);
}
