/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of ternary weights in 5 bits for 3, layout "t3": 1.67 bits a weight instead
 * of the 2 of "t2". It holds {-1, 0, +1} only, with one scale a row or matrix.
 *
 * Groups of 6 rows, two triples A (rows 0-2) and B (rows 3-5). The three weights t0, t1, t2 that a
 * triple has in one column are the number m = t0 + 3 t1 + 9 t2 in -13..13, kept as |m| in four bits
 * and a sign. For every 128 columns (a step) the group has 128 bytes, one a column, |m| of A in the
 * low and of B in the high nibble; then 32 bytes of signs, of which byte i belongs to the columns
 * i, 32 + i, 64 + i and 96 + i: bits 7, 5, 3, 1 for A and 6, 4, 2, 0 for B, set where m < 0. So the
 * whole matrix is one stream in the order of use, and neither the nibbles nor the signs have to be
 * moved between bytes.
 *
 * Balanced digits come off by rounding: with a = |m|, a1 = (a + 1) / 3 = t1 + 3 t2 and
 * a2 = (a + 4) / 9 = t2, all of them >= 0; the sign then goes to all three (or to the activation,
 * once for the three rows: that is what makes the layout fast). */
#include "kernels/ref/steps.h"
#include "kernels/t3.h"

enum { STEP = BN_T3_STEP, PIECE = STEP / 4 };

/* One triple's 32 columns: nibbles to `at`, sign bits to `sign`. x0, x1, x2: the three rows. */
static inline void encode_piece(uint8_t *restrict at, uint8_t *restrict sign, const int8_t *x0,
                                const int8_t *x1, const int8_t *x2, int shift, uint8_t bit)
{
    for (size_t i = 0; i < PIECE; i++) {
        int8_t m = (int8_t)(x0[i] + 3 * x1[i] + 9 * x2[i]), minus = (int8_t) - (m < 0);
        at[i] |= (uint8_t)((uint8_t)((m ^ minus) - minus) << shift);
        sign[i] |= (uint8_t)(minus & bit);
    }
}

static void encode(uint8_t *to, const struct bn_step *s)
{
    const int8_t(*x)[STEP] = s->w;
    memset(to, 0, BN_T3_STEP_BYTES);
    for (size_t h = 0; h < 2; h++)
        for (size_t f = 0; f < 4; f++) {
            size_t at = f * PIECE;
            encode_piece(to + at, to + STEP, x[3 * h] + at, x[3 * h + 1] + at, x[3 * h + 2] + at,
                         (int)(4 * h), (uint8_t)(0x80 >> (2 * f + h)));
        }
}

static void decode(struct bn_step *s, const uint8_t *p)
{
    for (size_t h = 0; h < 2; h++)
        for (size_t f = 0; f < 4; f++)
            for (size_t i = 0; i < PIECE; i++) {
                size_t k = f * PIECE + i;
                int a = p[k] >> 4 * h & 15, a1 = (a + 1) / 3, a2 = (a + 4) / 9;
                int sign = 1 - 2 * (p[STEP + i] >> (7 - 2 * f - h) & 1);
                s->w[3 * h][k] = (int8_t)(sign * (a - 3 * a1));
                s->w[3 * h + 1][k] = (int8_t)(sign * (a1 - 3 * a2));
                s->w[3 * h + 2][k] = (int8_t)(sign * a2);
            }
}

static const struct bn_steps t3 = {BN_T3_ROWS, BN_T3_STEP_BYTES, 1, encode, decode};
BN_STEPS_LAYOUT(t3, t3)

const struct bn_gemm bn_gemm_t3_c = {BN_T3_LAYOUT, .mul_i8 = bn_t3_mul_i8_c,
                                     .mul_f32 = bn_t3_mul_f32_c};
