/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64 with products of small matrices (i8mm): activations in planes times matrices in layout "g2". An
 * instruction takes two rows and two vectors, eight columns of each. Lanes of two quads that follow each
 * other make two rows of eight columns, codes and all; what is cut out of them then counts 1, 4, 16 and 1
 * times, as with dot products. Sums begin at zero, and end less the activations' own. */
#include "kernels/arm/dot.h"
#include "kernels/arm/rows_in_lanes.h"

enum { PAIRS = 4 /* of rows in a field */, COLS = 2 * BN_QUAD };

static const int counts[FIELDS] = {0, 2, 4, 0}; /* a field counts 2 to that */

static int32_t piece_sum(const int8_t *q, size_t cols)
{
    int32x4_t s = vdupq_n_s32(0);
    for (size_t k = 0; k < cols; k += 16) s = vdotq_s32(s, vdupq_n_s8(1), vld1q_s8(q + k));
    return vaddvq_s32(s);
}

/* The bytes of rows 2 i and 2 i + 1, eight columns each. */
ALWAYS void load_pairs(uint8x16_t b[PAIRS], const uint8_t *p)
{
    for (size_t h = 0; h < HALVES; h++) {
        uint32x4_t first = vreinterpretq_u32_u8(vld1q_u8(p + 16 * h));
        uint32x4_t next = vreinterpretq_u32_u8(vld1q_u8(p + BN_G2_QUAD_BYTES + 16 * h));
        b[2 * h] = vreinterpretq_u8_u32(vzip1q_u32(first, next));
        b[2 * h + 1] = vreinterpretq_u8_u32(vzip2q_u32(first, next));
    }
}

ALWAYS void add_piece(int32x4_t s[2][PARTS], const uint8_t *p, const int8_t *const q[2],
                      const int32_t sum[2], size_t cols, size_t ahead, const size_t nv)
{
    int32x4_t m[FIELDS][PAIRS]; /* row, vector: 0 0, 0 1, 1 0, 1 1 */
    for (size_t i = 0; i < FIELDS; i++)
        for (size_t j = 0; j < PAIRS; j++) m[i][j] = vdupq_n_s32(0);
    for (size_t k = 0; k < cols; k += COLS, p += 2 * BN_G2_QUAD_BYTES) {
        const int8x16_t x = vcombine_s8(vld1_s8(q[0] + k), vld1_s8(q[1] + k));
        uint8x16_t b[PAIRS];
        __builtin_prefetch(p + ahead);
        load_pairs(b, p);
        for (size_t j = 0; j < PAIRS; j++) {
            int8x16_t f[FIELDS];
            bn_dot_fields_of(f, b[j]);
            for (size_t i = 0; i < FIELDS; i++) m[i][j] = vmmlaq_s32(m[i][j], f[i], x);
        }
    }
    for (size_t i = 0; i < FIELDS; i++)
        for (size_t h = 0; h < HALVES; h++) {
            int32x4_t a = m[i][2 * h], b = m[i][2 * h + 1];
            const int32x4_t of[2] = {vuzp1q_s32(a, b), vuzp2q_s32(a, b)};
            for (size_t v = 0; v < nv; v++) {
                int32x4_t one = vshlq_s32(of[v], vdupq_n_s32(-counts[i]));
                s[v][HALVES * i + h] = vsubq_s32(one, vdupq_n_s32(sum[v]));
            }
        }
}

/* A vector alone gains nothing here. */
static void mul_two(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    (a->n_tok * x->n_planes == 1 ? bn_gemm_g2_dotprod.mul_planes : mul_planes)(a, x);
}

const struct bn_gemm bn_gemm_g2_i8mm = {BN_GROUPS_LAYOUT(g2, BN_G2_ROWS), .mul_planes = mul_two};
