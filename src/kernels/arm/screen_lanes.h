/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64: the coarse screening copy (ref/screen2.c). As in rows_in_lanes.h, rows stand in lanes, and no
 * number is ever moved between lanes. The includer defines screen_block(), the sums of a block of four
 * times four rows. */
#ifndef BN_KERNELS_ARM_SCREEN_LANES_H
#define BN_KERNELS_ARM_SCREEN_LANES_H

#include "kernels/kernels.h"

#include <arm_neon.h>

enum {
    PIECE = 16, /* columns of screening */
    PIECE_BYTES = 4 * BN_SCREEN2_ROWS,
    BLOCK_BYTES = BN_SCREEN2_BLOCK / PIECE * PIECE_BYTES,
    QUARTERS = BN_SCREEN2_ROWS / 4 /* four rows each */
};

ALWAYS void screen_block(int32x4_t c[QUARTERS], const uint8_t *p, const int8_t *k, size_t ahead);

static void screen_group(int32_t sum[BN_SCREEN2_ROWS], const uint8_t *u, const uint8_t *p,
                         size_t blocks, const struct bn_screen2_vector *v, size_t ahead)
{
    int32x4_t s[QUARTERS];
    for (size_t i = 0; i < QUARTERS; i++) s[i] = vdupq_n_s32(0);
    for (size_t b = 0; b < blocks; b++, u += BN_SCREEN2_ROWS, p += BLOCK_BYTES) {
        int32x4_t c[QUARTERS], less = vdupq_n_s32(3 * v->block_sum[b]);
        screen_block(c, p, v->k + b * BN_SCREEN2_BLOCK, ahead);
        const uint8x16_t bytes = vld1q_u8(u);
        const uint16x8_t half[2] = {vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes)};
        for (size_t i = 0; i < QUARTERS; i++) {
            uint16x8_t h = half[i / 2];
            uint32x4_t w = i % 2 ? vmovl_high_u16(h) : vmovl_u16(vget_low_u16(h));
            w = vaddq_u32(w, vdupq_n_u32(BN_SCREEN2_BASE));
            c[i] = vsubq_s32(vaddq_s32(c[i], c[i]), less);
            s[i] = vmlaq_s32(s[i], vreinterpretq_s32_u32(w), c[i]);
        }
    }
    for (size_t i = 0; i < QUARTERS; i++) vst1q_s32(sum + 4 * i, s[i]);
}

/* bn_screen2_fn */
static void screen(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0, size_t r1,
                   const struct bn_screen2_vector *v, size_t n_vec)
{
    size_t blocks = bn_div_up(w->cols, BN_SCREEN2_BLOCK), bytes = bn_screen2_group_bytes(w->cols);
    for (size_t r = r0; r < r1; r += BN_SCREEN2_ROWS) {
        const uint8_t *u = w->data + r / BN_SCREEN2_ROWS * bytes;
        const uint8_t *codes = u + bytes - blocks * BLOCK_BYTES;
        size_t n = bn_min_size(BN_SCREEN2_ROWS, r1 - r);
        for (size_t i = 0; i < n_vec; i++) {
            int32_t all[BN_SCREEN2_ROWS];
            screen_group(all, u, codes, blocks, v + i, w->ahead);
            memcpy(sum + i * stride + r - r0, all, n * sizeof *all);
        }
    }
}

#endif
