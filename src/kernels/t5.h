/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout "t5" (described in ref/gemm_t5.c), for the variants that multiply in it. */
#ifndef BN_KERNELS_T5_H
#define BN_KERNELS_T5_H

#include "kernels/kernels.h"

enum {
    BN_T5_ROWS = 5,          /* rows of a group */
    BN_T5_STEP = BN_K_ALIGN, /* columns of a step */
    BN_T5_STEP_BYTES = BN_T5_STEP,
    BN_T5_HIGH = 192,          /* the first byte whose rows 0-3 are not in bits 0-5, */
    BN_T5_N_HIGH = 3 * 27 - 64 /* and how many such bytes there are for a weight of row 4 */
};

/* The bytes of five rows of a step, `stride` apart, and back. */
void bn_t5_encode(uint8_t *to, const int8_t *w, size_t stride);
void bn_t5_decode(int8_t *w, size_t stride, const uint8_t *from);
size_t bn_t5_group_bytes(size_t cols);
void bn_t5_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);
void bn_t5_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols);
bn_mul_i8_fn bn_t5_mul_i8_c;
bn_mul_f32_fn bn_t5_mul_f32_c;
bn_mul_planes_fn bn_t5_mul_planes_c;

/* What every struct bn_gemm of this layout says alike; its multiplications follow. */
#define BN_T5_LAYOUT                                                              \
    .layout = "t5", .group_rows = BN_T5_ROWS, .scale_rows = 1, .w_max = 1,        \
    .group_bytes = bn_t5_group_bytes, .pack = bn_t5_pack, .unpack = bn_t5_unpack, \
    .mul_planes = bn_t5_mul_planes_c

/* The first byte of the group that row r belongs to. */
static inline const uint8_t *bn_t5_group(const struct bn_packed *w, size_t r)
{
    return w->data + r / BN_T5_ROWS * (BN_T5_STEP_BYTES * bn_div_up(w->cols, BN_T5_STEP));
}

#endif
