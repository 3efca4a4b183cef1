/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of binary weights, layout "b1": one bit a weight, set where it is +1, clear
 * where it is -1. There is no code for 0, so it holds matrices that are binary by their type only.
 *
 * Groups of 64 rows. For every 8 columns (an octet) the group has 64 bytes, one a row; bit j is
 * column j of the octet. Rows 0-15 and 16-31 alternate in the first 32 bytes, rows 32-47 and 48-63
 * in the others: whoever adds up bytes in pairs to 16 bits then finds the rows in order. So the
 * whole matrix is one stream in the order of use. Rows and columns that do not exist are -1: the
 * activations of such columns are 0, and the results of such rows are not asked for.
 * Block scales: those of a group's rows stand together, block after block. */
#include "kernels/b1.h"
#include "kernels/ref/steps.h"

enum { ROWS = BN_B1_ROWS, OCTET = BN_B1_OCTET, STEP = BN_B1_STEP };

/* Eight bytes -1, 0 or +1 to eight bits, set for +1: the lowest bit of those that are +1, multiplied
 * into the top byte. */
static inline uint8_t octet_bits(uint64_t v)
{
    v &= ~(v >> 7) & 0x0101010101010101u;
    return (uint8_t)(v * 0x0102040810204080u >> 56);
}

static void encode(uint8_t *to, const struct bn_step *s)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < STEP; k += OCTET)
            to[k / OCTET * ROWS + bn_b1_place(r)] = octet_bits(bn_load_u64(s->w[r] + k));
}

static void decode(struct bn_step *s, const uint8_t *p)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < STEP; k++)
            s->w[r][k] = (int8_t)(2 * (p[k / OCTET * ROWS + bn_b1_place(r)] >> k % OCTET & 1) - 1);
}

static const struct bn_steps b1 = {ROWS, BN_B1_STEP_BYTES, ROWS, encode, decode};
BN_STEPS_LAYOUT(b1, b1)

const struct bn_gemm bn_gemm_b1_c = {BN_B1_LAYOUT, .mul_i8 = bn_b1_mul_i8_c,
                                     .mul_f32 = bn_b1_mul_f32_c, .mul_planes = bn_b1_mul_planes_c};
