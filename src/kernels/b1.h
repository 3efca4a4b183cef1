/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout "b1" (described in ref/gemm_b1.c), for the variants that multiply in it. */
#ifndef BN_KERNELS_B1_H
#define BN_KERNELS_B1_H

#include "kernels/kernels.h"

enum {
    BN_B1_ROWS = 64,         /* rows of a group */
    BN_B1_OCTET = 8,         /* columns of a byte */
    BN_B1_STEP = BN_K_ALIGN, /* columns of a step */
    BN_B1_STEP_BYTES = BN_B1_STEP / BN_B1_OCTET * BN_B1_ROWS
};

size_t bn_b1_group_bytes(size_t cols);
void bn_b1_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);
void bn_b1_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols);
bn_mul_i8_fn bn_b1_mul_i8_c;
bn_mul_f32_fn bn_b1_mul_f32_c;
bn_mul_planes_fn bn_b1_mul_planes_c;

/* What every struct bn_gemm of this layout says alike; its multiplications follow. */
#define BN_B1_LAYOUT                                                                            \
    .layout = "b1", .group_rows = BN_B1_ROWS, .scale_rows = BN_B1_ROWS, .w_max = 1,             \
    .block_scales = true, .binary = true, .group_bytes = bn_b1_group_bytes, .pack = bn_b1_pack, \
    .unpack = bn_b1_unpack

/* The first byte of the group that row r belongs to. */
static inline const uint8_t *bn_b1_group(const struct bn_packed *w, size_t r)
{
    return w->data + r / BN_B1_ROWS * (BN_B1_STEP_BYTES * bn_div_up(w->cols, BN_B1_STEP));
}

/* Which of the 64 bytes of an octet row r of a group has. */
static inline size_t bn_b1_place(size_t r) { return r / 32 * 32 + r % 16 * 2 + r / 16 % 2; }

#endif
