/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout "t2" (described in ref/gemm_t2.c), for the variants that multiply in it. */
#ifndef BN_KERNELS_T2_H
#define BN_KERNELS_T2_H

#include "kernels/kernels.h"

enum {
    BN_T2_ROWS = 4,              /* rows of a group */
    BN_T2_STEP = BN_K_ALIGN,     /* columns of a step */
    BN_T2_PIECE = BN_T2_STEP / 4 /* bytes of one row in a step */
};

size_t bn_t2_group_bytes(size_t cols);
void bn_t2_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);
void bn_t2_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols);
bn_mul_i8_fn bn_t2_mul_i8_c;
bn_mul_f32_fn bn_t2_mul_f32_c;
bn_mul_planes_fn bn_t2_mul_planes_c;

/* What every struct bn_gemm of this layout says alike; its multiplications follow. */
#define BN_T2_LAYOUT                                                                             \
    .layout = "t2", .group_rows = BN_T2_ROWS, .scale_rows = 1, .w_max = 2, .block_scales = true, \
    .group_bytes = bn_t2_group_bytes, .pack = bn_t2_pack, .unpack = bn_t2_unpack,                \
    .mul_planes = bn_t2_mul_planes_c

/* The first byte of the group that row r belongs to. */
static inline const uint8_t *bn_t2_group(const struct bn_packed *w, size_t r)
{
    return w->data + r / BN_T2_ROWS * (BN_T2_ROWS * BN_T2_PIECE * bn_div_up(w->cols, BN_T2_STEP));
}

#endif
