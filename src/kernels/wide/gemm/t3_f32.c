/* SPDX-License-Identifier: Apache-2.0
 *
 * Float activations times matrices in layout "t3". A step of the group's six rows is decoded to
 * floats once and meets up to eight tokens; the lanes of each (token, row) wait in memory between
 * steps. A triple at a time is six chains of additions. */
#include "kernels/t3.h"
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

enum { TOKENS = 8, STEP = BN_T3_STEP, ROWS = BN_T3_ROWS };

/* The weights of the three rows of a triple in 32 columns: v = |m|, minus where m < 0. */
static inline void decode_triple(int8_t (*w)[STEP], w_int v, w_int minus)
{
    static const int8_t weight[3][16] = {{0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1},
                                         {0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1},
                                         {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    for (size_t j = 0; j < 3; j++) {
        w_int table = w_broadcastsi128_si256(h_loadu_si128((const void *)weight[j]));
        w_int x = w_xor_si256(w_shuffle_epi8(table, v), minus);
        w_store_si256((void *)w[j], w_sub_epi8(x, minus));
    }
}

static void decode_step(float (*wide)[STEP], const uint8_t *p)
{
    const w_int m15 = w_set1_epi8(15), zero = w_setzero_si256();
    _Alignas(32) int8_t w[ROWS][STEP];
    w_int sign = w_loadu_si256((const void *)(p + STEP));
    for (size_t f = 0; f < STEP; f += 32) {
        w_int n = w_loadu_si256((const void *)(p + f));
        for (size_t h = 0; h < 2; h++) {
            w_int v = w_and_si256(h ? w_srli_epi16(n, 4) : n, m15);
            decode_triple((int8_t(*)[STEP])(w[3 * h] + f), v, w_cmpgt_epi8(zero, sign));
            sign = w_add_epi8(sign, sign);
        }
    }
    for (size_t r = 0; r < ROWS; r++)
        for (size_t k = 0; k < STEP; k += 8) {
            w_int i = w_cvtepi8_epi32(h_loadl_epi64((const void *)(w[r] + k)));
            w_store_ps(wide[r] + k, w_cvtepi32_ps(i));
        }
}

/* One group, up to TOKENS tokens. */
static void group(const struct bn_gemm_args *a, size_t r, size_t n_rows, const float *x,
                  size_t x_stride)
{
    const struct bn_packed *w = a->w;
    const size_t n_tok = a->n_tok;
    _Alignas(32) float wide[ROWS][STEP];
    struct bn_l16 lanes[TOKENS][ROWS];
    const uint8_t *p = bn_t3_group(w, r);
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < ROWS; i++) lanes[t][i] = bn_l16_zero();
    for (size_t k = 0; k < w->cols; k += STEP, p += BN_T3_STEP_BYTES) {
        size_t n = bn_min_size(STEP, w->cols - k);
        for (size_t i = 0; i < BN_T3_STEP_BYTES; i += 64)
            h_prefetch((const char *)p + w->ahead + i, H_T0);
        decode_step(wide, p);
        for (size_t t = 0; t < n_tok; t++) {
            float tail[STEP];
            const float *v = bn_f32_piece(tail, x + t * x_stride + k, n);
            bn_f32_rows(lanes[t], 3, wide[0], STEP, v, bn_align_up(n, 16));
            bn_f32_rows(lanes[t] + 3, 3, wide[3], STEP, v, bn_align_up(n, 16));
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_rows; i++)
            a->y[t * a->y_stride + r + i] = bn_row_scale(w, r + i) * bn_l16_sum(lanes[t][i]);
}

void W_NAME(t3_mul_f32)(const struct bn_gemm_args *a, const float *x, size_t x_stride)
{
    for (size_t t = 0; t < a->n_tok; t += TOKENS) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(TOKENS, a->n_tok - t));
        for (size_t r = a->r0; r < a->r1; r += ROWS)
            group(&some, r, bn_min_size(ROWS, a->r1 - r), x + t * x_stride, x_stride);
    }
}
