/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON: int8 activations times matrices in layout "t2" (ref/gemm_t2.c). Included by one file an
 * instruction set, which has defined dot16(): the products of 16 signed bytes added to four int32.
 * Codes w + 1 are multiplied, and the sum of the activations is taken off at the end; 32 bits hold
 * all of it: 32768 * 3 * 127 < 2^24. Float activations are left to the reference, whose loops the
 * compiler turns into NEON. */
#ifndef BN_KERNELS_ARM_GEMM_T2_ARM_H
#define BN_KERNELS_ARM_GEMM_T2_ARM_H

#include "base/half.h"
#include "kernels/t2.h"

#include <arm_neon.h>

/* The codes of a row's 128 columns, 16 a register, in order. */
static inline void fields(int8x16_t f[8], const uint8_t *p)
{
    const uint8x16_t m3 = vdupq_n_u8(3);
    for (int h = 0; h < 2; h++) {
        uint8x16_t b = vld1q_u8(p + 16 * h);
        f[0 + h] = vreinterpretq_s8_u8(vandq_u8(b, m3));
        f[2 + h] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 2), m3));
        f[4 + h] = vreinterpretq_s8_u8(vandq_u8(vshrq_n_u8(b, 4), m3));
        f[6 + h] = vreinterpretq_s8_u8(vshrq_n_u8(b, 6));
    }
}

/* One token: the step's activations stay in registers for the four rows. */
static void group_one(int32_t s[4], const uint8_t *p, const int8_t *x, size_t steps)
{
    int32x4_t acc[4];
    for (size_t r = 0; r < 4; r++) acc[r] = vdupq_n_s32(0);
    for (; steps > 0; steps--, p += 4 * BN_T2_PIECE, x += BN_T2_STEP) {
        int8x16_t y[8];
        for (size_t i = 0; i < 8; i++) y[i] = vld1q_s8(x + 16 * i);
        for (size_t r = 0; r < 4; r++) {
            int8x16_t f[8];
            fields(f, p + 32 * r);
            for (size_t i = 0; i < 8; i++) acc[r] = dot16(acc[r], f[i], y[i]);
        }
    }
    for (size_t r = 0; r < 4; r++) s[r] = vaddvq_s32(acc[r]);
}

/* Four tokens: a row is decoded once for all. */
static void row_four(int32_t s[4], const uint8_t *p, const int8_t *x, size_t x_stride, size_t steps)
{
    int32x4_t a0 = vdupq_n_s32(0), a1 = a0, a2 = a0, a3 = a0;
    for (; steps > 0; steps--, p += 4 * BN_T2_PIECE, x += BN_T2_STEP) {
        int8x16_t f[8];
        fields(f, p);
        for (size_t i = 0; i < 8; i++) {
            a0 = dot16(a0, f[i], vld1q_s8(x + 16 * i));
            a1 = dot16(a1, f[i], vld1q_s8(x + x_stride + 16 * i));
            a2 = dot16(a2, f[i], vld1q_s8(x + 2 * x_stride + 16 * i));
            a3 = dot16(a3, f[i], vld1q_s8(x + 3 * x_stride + 16 * i));
        }
    }
    s[0] = vaddvq_s32(a0), s[1] = vaddvq_s32(a1), s[2] = vaddvq_s32(a2), s[3] = vaddvq_s32(a3);
}

/* Blocks: 32 columns are two registers, and a block is a whole number of those. Weights are made
 * signed first, so that no sum of activations is needed. */
static float row_blocks(const struct bn_packed *w, size_t r, const int8_t *x)
{
    const uint8_t *p = bn_t2_group(w, r) + r % 4 * BN_T2_PIECE;
    const uint16_t *d = w->block_scale + r * (w->cols / w->block);
    int32x4_t part = vdupq_n_s32(0);
    int8x16_t f[8];
    float acc = 0.0f;
    for (size_t k = 0; k < w->cols; k += 32) {
        size_t i = k % BN_T2_STEP / 16;
        if (i == 0) {
            fields(f, p + k / BN_T2_STEP * 4 * BN_T2_PIECE);
            for (size_t j = 0; j < 8; j++) f[j] = vsubq_s8(f[j], vdupq_n_s8(1));
        }
        part = dot16(part, f[i], vld1q_s8(x + k));
        part = dot16(part, f[i + 1], vld1q_s8(x + k + 16));
        if ((k + 32) % w->block != 0) continue;
        acc += (float)vaddvq_s32(part) * bn_f16_to_f32(d[k / w->block]);
        part = vdupq_n_s32(0);
    }
    return acc;
}

static void mul_i8(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    const struct bn_packed *w = a->w;
    float *y = a->y;
    const size_t y_stride = a->y_stride, r0 = a->r0, r1 = a->r1, n_tok = a->n_tok;
    const int32_t *sum = x->sum;
    const float *inv = x->inv;
    size_t steps = bn_div_up(w->cols, BN_T2_STEP), t = 0;
    if (w->scale_kind == BN_SCALE_BLOCK) {
        for (size_t r = r0; r < r1; r++)
            for (t = 0; t < n_tok; t++)
                y[t * y_stride + r] = row_blocks(w, r, x->q + t * x->stride) * inv[t];
        return;
    }
    for (; t + 4 <= n_tok; t += 4)
        for (size_t r = r0; r < r1; r++) {
            int32_t s[4];
            row_four(s, bn_t2_group(w, r) + r % 4 * BN_T2_PIECE, x->q + t * x->stride, x->stride,
                     steps);
            for (size_t i = 0; i < 4; i++)
                y[(t + i) * y_stride + r] =
                    (float)(s[i] - sum[t + i]) * (bn_row_scale(w, r) * inv[t + i]);
        }
    for (; t < n_tok; t++)
        for (size_t r = r0; r < r1; r += 4) {
            int32_t s[4];
            group_one(s, bn_t2_group(w, r), x->q + t * x->stride, steps);
            for (size_t i = 0; i < 4 && r + i < r1; i++)
                y[t * y_stride + r + i] =
                    (float)(s[i] - sum[t]) * (bn_row_scale(w, r + i) * inv[t]);
        }
}

#endif
