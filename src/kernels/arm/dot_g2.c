/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64 with dot products: what has rows in lanes. The dot product with one element of a register of
 * activations has the same four columns for all lanes. What is cut out of the bytes serves both vectors.
 * Sums begin at minus the sum of the activations, as often as the field counts. */
#include "kernels/arm/dot.h"
#include "kernels/arm/rows_in_lanes.h"
#include "kernels/arm/screen_lanes.h"

static const int counts[FIELDS] = {0, 2, 4, 0}; /* a field counts 2 to that */

static int32_t piece_sum(const int8_t *q, size_t cols)
{
    int32x4_t s = vdupq_n_s32(0);
    for (size_t k = 0; k < cols; k += 16) s = vdotq_s32(s, vdupq_n_s8(1), vld1q_s8(q + k));
    return vaddvq_s32(s);
}

/* One quad of a group: its columns are element `quad` of x[v]. */
#define ADD_QUAD(quad)                                                           \
    do {                                                                         \
        for (size_t h = 0; h < HALVES; h++) {                                    \
            int8x16_t f[FIELDS];                                                 \
            bn_dot_fields(f, p + (quad)*BN_G2_QUAD_BYTES + 16 * h);              \
            for (size_t i = 0; i < FIELDS; i++)                                  \
                for (size_t v = 0; v < nv; v++)                                  \
                    s[v][HALVES * i + h] =                                       \
                        vdotq_laneq_s32(s[v][HALVES * i + h], f[i], x[v], quad); \
        }                                                                        \
    } while (0)

/* Sums of a piece's columns, with their own weight each. minus: of the activations' sums. */
ALWAYS void add_piece(int32x4_t s[2][PARTS], const uint8_t *p, const int8_t *const q[2],
                      const int32_t minus[2], size_t cols, size_t ahead, const size_t nv)
{
    for (size_t v = 0; v < nv; v++)
        for (size_t i = 0; i < PARTS; i++)
            s[v][i] = vdupq_n_s32(-minus[v] * (1 << counts[i / HALVES]));
    for (size_t k = 0; k < cols; k += BN_QUAD * QUADS, p += QUADS * BN_G2_QUAD_BYTES) {
        int8x16_t x[2];
        for (size_t v = 0; v < nv; v++) x[v] = vld1q_s8(q[v] + k);
        __builtin_prefetch(p + ahead);
        __builtin_prefetch(p + ahead + 64);
        ADD_QUAD(0);
        ADD_QUAD(1);
        ADD_QUAD(2);
        ADD_QUAD(3);
    }
    for (size_t v = 0; v < nv; v++)
        for (size_t i = HALVES; i < 3 * HALVES; i++)
            s[v][i] = i < 2 * HALVES ? vshrq_n_s32(s[v][i], 2) : vshrq_n_s32(s[v][i], 4);
}

const struct bn_gemm bn_gemm_g2_dotprod = {BN_GROUPS_LAYOUT(g2, BN_G2_ROWS),
                                           .mul_planes = mul_planes};

/* The sums of a block: C of four rows a register. */
ALWAYS void screen_block(int32x4_t c[QUARTERS], const uint8_t *p, const int8_t *k, size_t ahead)
{
    struct bn_dot_sums s[QUARTERS];
    for (size_t i = 0; i < QUARTERS; i++) s[i] = bn_dot_zero();
    for (size_t at = 0; at < BN_SCREEN2_BLOCK; at += PIECE, p += PIECE_BYTES) {
        const int8x16_t x = vld1q_s8(k + at);
        __builtin_prefetch(p + ahead);
        for (size_t i = 0; i < QUARTERS; i++) {
            int8x16_t f[FIELDS];
            bn_dot_fields(f, p + 16 * i);
            s[i].one = vdotq_laneq_s32(s[i].one, f[0], x, 0);
            s[i].four = vdotq_laneq_s32(s[i].four, f[1], x, 1);
            s[i].sixteen = vdotq_laneq_s32(s[i].sixteen, f[2], x, 2);
            s[i].one = vdotq_laneq_s32(s[i].one, f[3], x, 3);
        }
    }
    for (size_t i = 0; i < QUARTERS; i++) c[i] = bn_dot_all(s[i]);
}

void bn_screen2_dotprod(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0,
                        size_t r1, const struct bn_screen2_vector *v, size_t n_vec)
{
    screen(sum, stride, w, r0, r1, v, n_vec);
}
