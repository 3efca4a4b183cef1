/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of ternary weights in 8 bits for 5, layout "t5": 1.6 bits a weight. It holds
 * {-1, 0, +1} only, with one scale a row or matrix.
 *
 * Groups of 5 rows, a byte a column, in the order of the columns. With the codes c = w + 1 of a
 * column, rows 0-3 are the number n = c0 + 3 c1 + 9 c2 + 27 c3 in 0..80. Where n < 64 it is in bits
 * 0-5 and c4 in bits 6-7: the byte is n + 64 c4, at most 191. Otherwise it is 192 + 17 c4 + n - 64, at
 * most 242. So rows 0-3 of a byte are in a table of 64 for bits 0-5, and in a second one from 192 on;
 * row 4 needs no table but there: that is what makes the layout fast. */
#include "kernels/ref/steps.h"
#include "kernels/t5.h"

enum { STEP = BN_T5_STEP, HIGH = BN_T5_HIGH, N_HIGH = BN_T5_N_HIGH };

/* Both cases are computed for every column, so that compilers use vector instructions. */
void bn_t5_encode(uint8_t *to, const int8_t *w, size_t stride)
{
    const int8_t *x[BN_T5_ROWS];
    for (size_t r = 0; r < BN_T5_ROWS; r++) x[r] = w + r * stride;
    for (size_t k = 0; k < STEP; k++) {
        uint8_t n = (uint8_t)(40 + x[0][k] + 3 * x[1][k] + 9 * x[2][k] + 27 * x[3][k]);
        uint8_t c4 = (uint8_t)(x[4][k] + 1);
        uint8_t low = (uint8_t)(n + (c4 << 6));
        uint8_t high = (uint8_t)(n + HIGH - 64 + N_HIGH * c4);
        to[k] = n < 64 ? low : high;
    }
}

void bn_t5_decode(int8_t *w, size_t stride, const uint8_t *p)
{
    for (size_t k = 0; k < STEP; k++) {
        int at = p[k] - HIGH, n = at < 0 ? p[k] % 64 : 64 + at % N_HIGH;
        for (size_t r = 0; r < 4; r++, n /= 3) w[r * stride + k] = (int8_t)(n % 3 - 1);
        w[4 * stride + k] = (int8_t)((at < 0 ? p[k] / 64 : at / N_HIGH) - 1);
    }
}

static void encode(uint8_t *to, const struct bn_step *s) { bn_t5_encode(to, s->w[0], STEP); }
static void decode(struct bn_step *s, const uint8_t *p) { bn_t5_decode(s->w[0], STEP, p); }

static const struct bn_steps t5 = {BN_T5_ROWS, BN_T5_STEP_BYTES, 1, encode, decode};
BN_STEPS_LAYOUT(t5, t5)

const struct bn_gemm bn_gemm_t5_c = {BN_T5_LAYOUT, .mul_i8 = bn_t5_mul_i8_c,
                                     .mul_f32 = bn_t5_mul_f32_c};
