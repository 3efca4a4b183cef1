/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the matrix kernels share. */
#ifndef BN_KERNELS_WIDE_GEMM_T2_H
#define BN_KERNELS_WIDE_GEMM_T2_H

#include "kernels/t2.h"
#include "kernels/wide/lanes.h"

bn_mul_i8_fn W_BASE(t2_mul_i8_block); /* BN_SCALE_BLOCK */
bn_mul_f32_fn W_BASE(t2_mul_f32), W_BASE(t3_mul_f32), W_BASE(b1_mul_f32);

/* TENSOR and ROW, two tokens or more */
bn_mul_i8_fn W_NAME(t2_mul_i8_tokens), W_NAME(t3_mul_i8_tokens);

/* 32-bit elements of 8 registers: row i, column j to row j, column i */
static inline void bn_transpose8_i32(w_int v[8])
{
    w_int a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = w_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = w_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            b[i + 2 * j] = w_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = w_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (size_t i = 0; i < 4; i++) {
        v[i] = w_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = w_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* the codes of columns 0-31, 32-63, 64-95, 96-127 */
static inline void bn_t2_fields(w_int f[4], w_int q)
{
    const w_int m3 = w_set1_epi8(3);
    f[0] = w_and_si256(q, m3);
    f[1] = w_and_si256(w_srli_epi16(q, 2), m3);
    f[2] = w_and_si256(w_srli_epi16(q, 4), m3);
    f[3] = w_and_si256(w_srli_epi16(q, 6), m3);
}

/* 128 columns of a row times one token: one shift and four masks for four fields, with fields 1 and
 * 3 left at four times their value in an accumulator of their own. */
static inline __attribute__((always_inline)) void bn_t2_row_step(w_int *s, w_int *t,
                                                                 const uint8_t *p, const int8_t *y)
{
    const w_int m3 = w_set1_epi8(3), m12 = w_set1_epi8(12);
    w_int q = w_loadu_si256((const void *)p), h = w_srli_epi16(q, 4);
    *s = w_add_products(*s, w_and_si256(q, m3), y);
    *t = w_add_products(*t, w_and_si256(q, m12), y + 32);
    *s = w_add_products(*s, w_and_si256(h, m3), y + 64);
    *t = w_add_products(*t, w_and_si256(h, m12), y + 96);
}

/* s + t / 4, exact because every term of t is a multiple of 4, to 32 bits */
static inline w_int bn_t2_widen(w_int acc, w_int s, w_int t)
{
    return w_add_epi32(acc, w_sum_32(w_sum_add(s, w_sum_quarter(t))));
}

/* four sums of eight int32 each */
static inline h_int bn_hsum4_i32(w_int a, w_int b, w_int c, w_int d)
{
    w_int v = w_hadd_epi32(w_hadd_epi32(a, b), w_hadd_epi32(c, d));
    return h_add_epi32(w_castsi256_si128(v), w_extracti128_si256(v, 1));
}

/* n floats, up to BN_K_ALIGN; where they are no multiple of 16, a copy with zeros after them, which
 * change no lane */
static inline const float *bn_f32_piece(float *copy, const float *x, size_t n)
{
    if (n % 16 == 0) return x;
    memset(copy, 0, BN_K_ALIGN * sizeof *copy);
    memcpy(copy, x, n * sizeof *x);
    return copy;
}

/* lanes of a few rows += decoded weights, `stride` from row to row, times x; n is a multiple of 16 */
static inline __attribute__((always_inline)) void bn_f32_rows(struct bn_l16 *lanes,
                                                              const size_t rows, const float *w,
                                                              size_t stride, const float *x,
                                                              size_t n)
{
    struct bn_l16 s[4];
    for (size_t r = 0; r < rows; r++) s[r] = lanes[r];
    for (size_t i = 0; i < n; i += 16) {
        struct bn_l16 v = bn_l16_load(x + i);
        for (size_t r = 0; r < rows; r++)
            s[r] = bn_l16_mul_add(s[r], bn_l16_load(w + r * stride + i), v);
    }
    for (size_t r = 0; r < rows; r++) lanes[r] = s[r];
}

/* the scales of block b of rows r .. r+3 as floats, for 8 blocks from b0 on: d[i] is block b0 + i.
 * Rows beyond the last and blocks beyond n_blocks give 0. */
static inline void bn_t2_block_scales(h_f32 d[8], const struct bn_packed *w, size_t r,
                                      size_t n_rows, size_t b0, size_t n_blocks)
{
    h_int v[4];
    for (size_t i = 0; i < 4; i++) {
        if (i >= n_rows) {
            v[i] = h_setzero_si128();
            continue;
        }
        const uint16_t *s = w->block_scale + (r + i) * n_blocks + b0;
        uint16_t tail[8] = {0};
        for (size_t j = 0; b0 + 8 > n_blocks && b0 + j < n_blocks; j++) tail[j] = s[j];
        v[i] = h_loadu_si128((const void *)(b0 + 8 > n_blocks ? tail : s));
    }
    h_int ab = h_unpacklo_epi16(v[0], v[1]), cd = h_unpacklo_epi16(v[2], v[3]);
    h_int ef = h_unpackhi_epi16(v[0], v[1]), gh = h_unpackhi_epi16(v[2], v[3]);
    h_int pair[4] = {h_unpacklo_epi32(ab, cd), h_unpackhi_epi32(ab, cd), h_unpacklo_epi32(ef, gh),
                     h_unpackhi_epi32(ef, gh)};
    for (size_t i = 0; i < 4; i++) { /* two blocks of four rows */
        w_f32 f = w_cvtph_ps(pair[i]);
        d[2 * i] = w_castps256_ps128(f);
        d[2 * i + 1] = w_extractf128_ps(f, 1);
    }
}

#endif
