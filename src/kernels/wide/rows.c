/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of dense matrices to f32, floats to halves, and dot products with such rows. */
#include "kernels/wide/lanes.h"

void W_NAME(row_f16)(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        w_storeu_ps(y + i, w_cvtph_ps(h_loadu_si128((const void *)(p + 2 * i))));
    for (; i < n; i++) y[i] = bn_f16_to_f32(bn_load_u16(p + 2 * i));
}

void W_NAME(row_bf16)(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        w_int v = w_cvtepu16_epi32(h_loadu_si128((const void *)(p + 2 * i)));
        w_storeu_ps(y + i, w_castsi256_ps(w_slli_epi32(v, 16)));
    }
    for (; i < n; i++) y[i] = bn_bf16_to_f32(bn_load_u16(p + 2 * i));
}

/* 8 signed bytes as floats, times d */
static inline w_f32 scaled_i8(h_int bytes, w_f32 d)
{
    return w_mul_ps(d, w_cvtepi32_ps(w_cvtepi8_epi32(bytes)));
}

void W_NAME(row_q8_0)(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, y += 32) {
        w_f32 d = w_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        for (size_t i = 0; i < 32; i += 8)
            w_storeu_ps(y + i, scaled_i8(h_loadl_epi64((const void *)(p + 2 + i)), d));
    }
}

/* 32 nibbles as floats: the low ones of 16 bytes, then the high ones, less 8, times d */
void W_NAME(row_q4_0)(float *y, const void *row, size_t n)
{
    const h_int nibble = h_set1_epi8(15), eight = h_set1_epi8(8);
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 18, y += 32) {
        w_f32 d = w_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        h_int q = h_loadu_si128((const void *)(p + 2));
        h_int lo = h_sub_epi8(h_and_si128(q, nibble), eight);
        h_int hi = h_sub_epi8(h_and_si128(h_srli_epi16(q, 4), nibble), eight);
        w_storeu_ps(y, scaled_i8(lo, d));
        w_storeu_ps(y + 8, scaled_i8(h_srli_si128(lo, 8), d));
        w_storeu_ps(y + 16, scaled_i8(hi, d));
        w_storeu_ps(y + 24, scaled_i8(h_srli_si128(hi, 8), d));
    }
}

/* The eight scales of 6 bits of a Q4_K block, then its eight minima, as bytes: the first four of
 * each lie alone, the others in nibbles and in the top bits of the first. */
static inline h_int q4_k_scales(const uint8_t *s)
{
    uint32_t a, b, c;
    memcpy(&a, s, 4);
    memcpy(&b, s + 4, 4);
    memcpy(&c, s + 8, 4);
    uint32_t scale = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t min = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return h_setr_epi32((int)(a & 0x3f3f3f3f), (int)scale, (int)(b & 0x3f3f3f3f), (int)min);
}

/* d * q - m of 32 bytes q below 16 */
static inline void q4_k_store(float *y, const uint8_t *p, const int shift, float d, float m)
{
    w_f32 scale = w_set1_ps(d), min = w_set1_ps(m);
    for (size_t i = 0; i < 32; i += 8) {
        w_int q = w_cvtepu8_epi32(h_loadl_epi64((const void *)(p + i)));
        q = w_and_si256(w_srli_epi32(q, shift), w_set1_epi32(15));
        w_storeu_ps(y + i, w_sub_ps(w_mul_ps(scale, w_cvtepi32_ps(q)), min));
    }
}

void W_NAME(row_q4_k)(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 144) {
        h_int six = q4_k_scales(p + 4);
        w_f32 d = w_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        w_f32 dmin = w_set1_ps(bn_f16_to_f32(bn_load_u16(p + 2)));
        float scale[8], min[8];
        w_storeu_ps(scale, scaled_i8(six, d));
        w_storeu_ps(min, scaled_i8(h_srli_si128(six, 8), dmin));
        for (size_t j = 0; j < 8; j += 2, y += 64) {
            q4_k_store(y, p + 16 + 16 * j, 0, scale[j], min[j]);
            q4_k_store(y + 32, p + 16 + 16 * j, 4, scale[j + 1], min[j + 1]);
        }
    }
}

/* Four quarters of 32 in each half: nibbles and bit pairs are put together 32 bytes at a time. */
void W_NAME(row_q6_k)(float *y, const void *row, size_t n)
{
    const w_int nibble = w_set1_epi8(15), top = w_set1_epi8(0x30);
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 210) {
        float d = bn_f16_to_f32(bn_load_u16(p + 208));
        for (size_t h = 0; h < 2; h++) {
            w_int l0 = w_loadu_si256((const void *)(p + 64 * h));
            w_int l1 = w_loadu_si256((const void *)(p + 64 * h + 32));
            w_int t = w_loadu_si256((const void *)(p + 128 + 32 * h));
            w_int q[4] = {w_or_si256(w_and_si256(l0, nibble), w_and_si256(w_slli_epi16(t, 4), top)),
                          w_or_si256(w_and_si256(l1, nibble), w_and_si256(w_slli_epi16(t, 2), top)),
                          w_or_si256(w_and_si256(w_srli_epi16(l0, 4), nibble), w_and_si256(t, top)),
                          w_or_si256(w_and_si256(w_srli_epi16(l1, 4), nibble),
                                     w_and_si256(w_srli_epi16(t, 2), top))};
            for (size_t k = 0; k < 4; k++, y += 32) {
                w_int v = w_sub_epi8(q[k], w_set1_epi8(32));
                h_int lo = w_castsi256_si128(v), hi = w_extracti128_si256(v, 1);
                w_f32 d0 = w_set1_ps(d * (float)(int8_t)p[192 + 8 * h + 2 * k]);
                w_f32 d1 = w_set1_ps(d * (float)(int8_t)p[193 + 8 * h + 2 * k]);
                w_storeu_ps(y, scaled_i8(lo, d0));
                w_storeu_ps(y + 8, scaled_i8(h_srli_si128(lo, 8), d0));
                w_storeu_ps(y + 16, scaled_i8(hi, d1));
                w_storeu_ps(y + 24, scaled_i8(h_srli_si128(hi, 8), d1));
            }
        }
    }
}

void W_NAME(f32_to_f16)(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) h_storeu_si128((void *)(y + i), w_cvtps_ph(w_loadu_ps(x + i), 0));
    for (; i < n; i++) y[i] = bn_f32_to_f16(x[i]);
}

/* The order within one sum is fixed, two registers of lanes; parallelism comes from several sums at
 * once. ROWS x TOK sums: 4x1 for one token, 2x2 for more, which needs fewer loads a product. */
static inline __attribute__((always_inline)) void dots_tile(float *y, size_t y_stride,
                                                            const float *rows, const float *x,
                                                            size_t x_stride, size_t n,
                                                            const size_t n_rows, const size_t n_tok)
{
    struct bn_l16 s[4];
    size_t i = 0;
    for (size_t j = 0; j < 4; j++) s[j] = bn_l16_zero();
    for (; i + 16 <= n; i += 16)
        for (size_t t = 0; t < n_tok; t++) {
            struct bn_l16 v = bn_l16_load(x + t * x_stride + i);
            for (size_t r = 0; r < n_rows; r++)
                s[t * n_rows + r] =
                    bn_l16_mul_add(s[t * n_rows + r], v, bn_l16_load(rows + r * n + i));
        }
    if (i < n)
        for (size_t t = 0; t < n_tok; t++) {
            struct bn_l16 v = bn_l16_load_head(x + t * x_stride + i, n - i);
            for (size_t r = 0; r < n_rows; r++)
                s[t * n_rows + r] =
                    bn_l16_mul_add(s[t * n_rows + r], v, bn_l16_load_head(rows + r * n + i, n - i));
        }
    float out[4];
    h_storeu_ps(out, bn_l16_sum4(s[0], s[1], s[2], s[3]));
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++) y[t * y_stride + r] = out[t * n_rows + r];
}

void W_NAME(dots)(float *y, size_t y_stride, const float *rows, size_t n_rows, const float *x,
                  size_t x_stride, size_t n_tok, size_t n)
{
    size_t pairs = n_tok / 2 * 2, r = 0;
    for (; r + 4 <= n_rows; r += 4) {
        const float *m = rows + r * n;
        for (size_t t = 0; t < pairs; t += 2) {
            const float *v = x + t * x_stride;
            float *out = y + t * y_stride + r;
            dots_tile(out, y_stride, m, v, x_stride, n, 2, 2);
            dots_tile(out + 2, y_stride, m + 2 * n, v, x_stride, n, 2, 2);
        }
        if (pairs < n_tok)
            dots_tile(y + pairs * y_stride + r, y_stride, m, x + pairs * x_stride, x_stride, n, 4,
                      1);
    }
    for (; r < n_rows; r++) {
        for (size_t t = 0; t < pairs; t += 2)
            dots_tile(y + t * y_stride + r, y_stride, rows + r * n, x + t * x_stride, x_stride, n,
                      1, 2);
        if (pairs < n_tok)
            dots_tile(y + pairs * y_stride + r, y_stride, rows + r * n, x + pairs * x_stride,
                      x_stride, n, 1, 1);
    }
}

/* Rows come from memory, once: while one is used, the lines n_rows rows further are asked for. */
static inline __attribute__((always_inline)) void
dots_f16_tile(float *y, const uint8_t *rows, const float *x, size_t n, const size_t n_rows)
{
    struct bn_l16 s[4];
    size_t i = 0;
    for (size_t j = 0; j < 4; j++) s[j] = bn_l16_zero();
    for (; i + 16 <= n; i += 16) {
        struct bn_l16 v = bn_l16_load(x + i);
        for (size_t r = 0; r < n_rows; r++) {
            const uint8_t *p = rows + 2 * (r * n + i);
            struct bn_l16 w = {bn_load_f16((const void *)p), bn_load_f16((const void *)(p + 16))};
            if (i % 32 == 0) h_prefetch(p + 2 * n_rows * n, H_T0);
            s[r] = bn_l16_mul_add(s[r], v, w);
        }
    }
    if (i < n) {
        struct bn_l16 v = bn_l16_load_head(x + i, n - i);
        for (size_t r = 0; r < n_rows; r++) {
            float w[16] = {0};
            W_NAME(row_f16)(w, rows + 2 * (r * n + i), n - i);
            s[r] = bn_l16_mul_add(s[r], v, bn_l16_load(w));
        }
    }
    float out[4];
    h_storeu_ps(out, bn_l16_sum4(s[0], s[1], s[2], s[3]));
    for (size_t r = 0; r < n_rows; r++) y[r] = out[r];
}

void W_NAME(dots_f16)(float *y, const void *rows, size_t n_rows, const float *x, size_t n)
{
    const uint8_t *p = rows;
    size_t r = 0;
    for (; r + 4 <= n_rows; r += 4) dots_f16_tile(y + r, p + 2 * r * n, x, n, 4);
    for (; r < n_rows; r++) dots_f16_tile(y + r, p + 2 * r * n, x, n, 1);
}

static inline __attribute__((always_inline)) void low_rank_strip(float *y, const float *b,
                                                                 size_t b_stride, const float *u,
                                                                 size_t rank, w_f32 scale,
                                                                 const size_t n_regs)
{
    w_f32 s[4];
    for (size_t k = 0; k < n_regs; k++) s[k] = w_setzero_ps();
    for (size_t j = 0; j < rank; j++) {
        w_f32 v = w_broadcast_ss(u + j);
        for (size_t k = 0; k < n_regs; k++)
            s[k] = w_add_ps(s[k], w_mul_ps(w_loadu_ps(b + j * b_stride + 8 * k), v));
    }
    for (size_t k = 0; k < n_regs; k++)
        w_storeu_ps(y + 8 * k, w_add_ps(w_loadu_ps(y + 8 * k), w_mul_ps(scale, s[k])));
}

void W_NAME(low_rank)(float *y, const float *b, size_t b_stride, const float *u, size_t rank,
                      size_t n, float scale)
{
    w_f32 all = w_set1_ps(scale);
    size_t i = 0;
    for (; i + 32 <= n; i += 32) low_rank_strip(y + i, b + i, b_stride, u, rank, all, 4);
    for (; i + 8 <= n; i += 8) low_rank_strip(y + i, b + i, b_stride, u, rank, all, 1);
    if (i == n) return;
    w_f32 s = w_setzero_ps();
    for (size_t j = 0; j < rank; j++)
        s = w_add_ps(s, w_mul_ps(bn_load_head(b + j * b_stride + i, n - i), w_broadcast_ss(u + j)));
    bn_store_head(y + i, n - i, w_add_ps(bn_load_head(y + i, n - i), w_mul_ps(all, s)));
}
