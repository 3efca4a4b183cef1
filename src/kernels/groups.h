/* SPDX-License-Identifier: Apache-2.0
 *
 * The layouts "g2", "g3" and "g5" (described in ref/gemm_groups.c), for the variants that multiply in
 * them. */
#ifndef BN_KERNELS_GROUPS_H
#define BN_KERNELS_GROUPS_H

#include "kernels/kernels.h"

enum {
    BN_QUAD = 4,                          /* columns of a lane */
    BN_STEP_QUADS = BN_K_ALIGN / BN_QUAD, /* in a step of 128 columns */
    BN_G2_LANES = 8,
    BN_G2_ROWS = 4 * BN_G2_LANES,
    BN_G2_QUAD_BYTES = BN_QUAD * BN_G2_LANES,
    BN_G2_STEP_BYTES = BN_STEP_QUADS * BN_G2_QUAD_BYTES,
    BN_G3_LANES = 8,
    BN_G3_ROWS = 6 * BN_G3_LANES,
    BN_G3_QUAD_BYTES = BN_QUAD * BN_G3_LANES,
    BN_G3_PART_QUADS = 4, /* with their signs behind them */
    BN_G3_PART_BYTES = (BN_G3_PART_QUADS + 1) * BN_G3_QUAD_BYTES,
    BN_G3_STEP_BYTES = BN_STEP_QUADS / BN_G3_PART_QUADS * BN_G3_PART_BYTES,
    BN_G5_LANES = 16,
    BN_G5_ROWS = 5 * BN_G5_LANES,
    BN_G5_QUAD_BYTES = BN_QUAD * BN_G5_LANES,
    BN_G5_STEP_BYTES = BN_STEP_QUADS * BN_G5_QUAD_BYTES
};

#define BN_GROUPS_FNS(g)                                                             \
    size_t bn_##g##_group_bytes(size_t cols);                                        \
    void bn_##g##_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);   \
    void bn_##g##_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols); \
    bn_mul_i8_fn bn_##g##_mul_i8_c;                                                  \
    bn_mul_f32_fn bn_##g##_mul_f32_c;                                                \
    bn_mul_planes_fn bn_##g##_mul_planes_c;
BN_GROUPS_FNS(g2)
BN_GROUPS_FNS(g3)
BN_GROUPS_FNS(g5)
#undef BN_GROUPS_FNS

/* What every struct bn_gemm of such a layout says alike; mul_planes follows. The other activations are
 * left to the reference: they have layouts of their own. */
#define BN_GROUPS_LAYOUT(g, n)                                                             \
    .layout = #g, .group_rows = n, .scale_rows = n, .w_max = 1, .block_scales = true,      \
    .group_bytes = bn_##g##_group_bytes, .pack = bn_##g##_pack, .unpack = bn_##g##_unpack, \
    .mul_i8 = bn_##g##_mul_i8_c, .mul_f32 = bn_##g##_mul_f32_c

#endif
