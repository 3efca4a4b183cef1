/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout "t3" (described in ref/gemm_t3.c), for the variants that multiply in it. */
#ifndef BN_KERNELS_T3_H
#define BN_KERNELS_T3_H

#include "kernels/kernels.h"

enum {
    BN_T3_ROWS = 6,          /* rows of a group: two triples */
    BN_T3_STEP = BN_K_ALIGN, /* columns of a step */
    BN_T3_STEP_BYTES = BN_T3_STEP + BN_T3_STEP / 4
};

size_t bn_t3_group_bytes(size_t cols);
void bn_t3_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);
void bn_t3_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols);
bn_mul_i8_fn bn_t3_mul_i8_c;
bn_mul_f32_fn bn_t3_mul_f32_c;
bn_mul_planes_fn bn_t3_mul_planes_c;

/* What every struct bn_gemm of this layout says alike; its multiplications follow. */
#define BN_T3_LAYOUT                                                              \
    .layout = "t3", .group_rows = BN_T3_ROWS, .scale_rows = 1, .w_max = 1,        \
    .group_bytes = bn_t3_group_bytes, .pack = bn_t3_pack, .unpack = bn_t3_unpack, \
    .mul_planes = bn_t3_mul_planes_c

/* The first byte of the group that row r belongs to. */
static inline const uint8_t *bn_t3_group(const struct bn_packed *w, size_t r)
{
    return w->data + r / BN_T3_ROWS * (BN_T3_STEP_BYTES * bn_div_up(w->cols, BN_T3_STEP));
}

#endif
