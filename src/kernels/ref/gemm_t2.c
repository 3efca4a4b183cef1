/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of two-bit weights, layout "t2". Groups of 4 rows; for every 128 columns (a
 * step) the group has four pieces of 32 bytes, row after row; byte i of a piece holds the codes
 * w + 1 of columns i, 32 + i, 64 + i and 96 + i of the step in its bits 0-1, 2-3, 4-5 and 6-7. So
 * the whole matrix is one stream in the order of use, and a field is cut out of 32 bytes by a shift
 * and a mask without moving any byte. */
#include "kernels/ref/steps.h"
#include "kernels/t2.h"

enum { ROWS = BN_T2_ROWS, PIECE = BN_T2_PIECE };

/* Four codes w + 1 of two bits each: the ones add up to 0x55, and no field overflows. */
static void encode(uint8_t *to, const struct bn_step *s)
{
    for (size_t r = 0; r < ROWS; r++, to += PIECE) {
        const int8_t *x = s->w[r];
        for (size_t i = 0; i < PIECE; i++)
            to[i] = (uint8_t)(0x55 + x[i] + x[PIECE + i] * 4 + x[2 * PIECE + i] * 16 +
                              x[3 * PIECE + i] * 64);
    }
}

static void decode(struct bn_step *s, const uint8_t *p)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t f = 0; f < 4; f++)
            for (size_t i = 0; i < PIECE; i++)
                s->w[r][f * PIECE + i] = (int8_t)((p[r * PIECE + i] >> 2 * f & 3) - 1);
}

static const struct bn_steps t2 = {ROWS, ROWS *PIECE, 1, encode, decode};
BN_STEPS_LAYOUT(t2, t2)

const struct bn_gemm bn_gemm_t2_c = {BN_T2_LAYOUT, .mul_i8 = bn_t2_mul_i8_c,
                                     .mul_f32 = bn_t2_mul_f32_c};
