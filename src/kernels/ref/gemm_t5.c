/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: matrices of ternary weights in 8 bits for 5, layout "t5": 1.6 bits a weight. It holds
 * {-1, 0, +1} only, with one scale a row or matrix.
 *
 * Groups of 5 rows, a byte a column, in the order of the columns. With the codes c = w + 1 of a
 * column, rows 0-3 are the number n = c0 + 3 c1 + 9 c2 + 27 c3 in 0..80. Where n < 64 it is in bits
 * 0-5 and c4 in bits 6-7: the byte is n + 64 c4, at most 191. Otherwise it is 192 + 17 c4 + n - 64, at
 * most 242. So rows 0-3 of a byte are in a table of 64 for bits 0-5, and in a second one from 192 on;
 * row 4 needs no table but there: that is what makes the layout fast. */
#include "kernels/ref/steps.h"
#include "kernels/t5.h"

enum { STEP = BN_T5_STEP, HIGH = BN_T5_HIGH, N_HIGH = BN_T5_N_HIGH };

/* Both cases are computed for every column, so that compilers use vector instructions. */
static void encode(uint8_t *to, const struct bn_step *s)
{
    const int8_t(*x)[STEP] = s->w;
    for (size_t k = 0; k < STEP; k++) {
        uint8_t n = (uint8_t)(40 + x[0][k] + 3 * x[1][k] + 9 * x[2][k] + 27 * x[3][k]);
        uint8_t c4 = (uint8_t)(x[4][k] + 1);
        uint8_t low = (uint8_t)(n + (c4 << 6));
        uint8_t high = (uint8_t)(n + HIGH - 64 + N_HIGH * c4);
        to[k] = n < 64 ? low : high;
    }
}

static void decode(struct bn_step *s, const uint8_t *p)
{
    for (size_t k = 0; k < STEP; k++) {
        int at = p[k] - HIGH, n = at < 0 ? p[k] % 64 : 64 + at % N_HIGH;
        for (size_t r = 0; r < 4; r++, n /= 3) s->w[r][k] = (int8_t)(n % 3 - 1);
        s->w[4][k] = (int8_t)((at < 0 ? p[k] / 64 : at / N_HIGH) - 1);
    }
}

static const struct bn_steps t5 = {BN_T5_ROWS, BN_T5_STEP_BYTES, encode, decode};

size_t bn_t5_group_bytes(size_t cols) { return bn_steps_group_bytes(&t5, cols); }

void bn_t5_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols)
{
    bn_steps_pack(&t5, dst, w, n_rows, cols);
}

void bn_t5_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols)
{
    bn_steps_unpack(&t5, w, src, n_rows, cols);
}

static void mul_i8(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                   const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                   size_t n_tok)
{
    (void)sum; /* weights are added up, not codes */
    bn_steps_mul_i8(&t5, y, y_stride, w, r0, r1, q, q_stride, inv, n_tok);
}

void bn_t5_mul_f32_c(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                     const float *x, size_t x_stride, size_t n_tok)
{
    bn_steps_mul_f32(&t5, y, y_stride, w, r0, r1, x, x_stride, n_tok);
}

const struct bn_gemm bn_gemm_t5_c = {
    BN_T5_LAYOUT,
    .mul_i8 = mul_i8,
    .mul_f32 = bn_t5_mul_f32_c,
};
