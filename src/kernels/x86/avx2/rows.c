/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: rows of dense matrices to f32, floats to halves, and dot products with such rows. */
#include "kernels/x86/avx2/avx2.h"

void bn_row_f16_avx2(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 2 * i))));
    for (; i < n; i++) y[i] = bn_f16_to_f32(bn_load_u16(p + 2 * i));
}

void bn_row_bf16_avx2(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 2 * i)));
        _mm256_storeu_ps(y + i, _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)));
    }
    for (; i < n; i++) y[i] = bn_bf16_to_f32(bn_load_u16(p + 2 * i));
}

/* 8 signed bytes as floats, times d */
static inline __m256 scaled_i8(__m128i bytes, __m256 d)
{
    return _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

void bn_row_q8_0_avx2(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, y += 32) {
        __m256 d = _mm256_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        for (size_t i = 0; i < 32; i += 8)
            _mm256_storeu_ps(y + i, scaled_i8(_mm_loadl_epi64((const void *)(p + 2 + i)), d));
    }
}

/* 32 nibbles as floats: the low ones of 16 bytes, then the high ones, less 8, times d */
void bn_row_q4_0_avx2(float *y, const void *row, size_t n)
{
    const __m128i nibble = _mm_set1_epi8(15), eight = _mm_set1_epi8(8);
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 18, y += 32) {
        __m256 d = _mm256_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        __m128i q = _mm_loadu_si128((const void *)(p + 2));
        __m128i lo = _mm_sub_epi8(_mm_and_si128(q, nibble), eight);
        __m128i hi = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(q, 4), nibble), eight);
        _mm256_storeu_ps(y, scaled_i8(lo, d));
        _mm256_storeu_ps(y + 8, scaled_i8(_mm_srli_si128(lo, 8), d));
        _mm256_storeu_ps(y + 16, scaled_i8(hi, d));
        _mm256_storeu_ps(y + 24, scaled_i8(_mm_srli_si128(hi, 8), d));
    }
}

/* The eight scales of 6 bits of a Q4_K block, then its eight minima, as bytes: the first four of
 * each lie alone, the others in nibbles and in the top bits of the first. */
static inline __m128i q4_k_scales(const uint8_t *s)
{
    uint32_t a, b, c;
    memcpy(&a, s, 4);
    memcpy(&b, s + 4, 4);
    memcpy(&c, s + 8, 4);
    uint32_t scale = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    uint32_t min = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    return _mm_setr_epi32((int)(a & 0x3f3f3f3f), (int)scale, (int)(b & 0x3f3f3f3f), (int)min);
}

/* d * q - m of 32 bytes q below 16 */
static inline void q4_k_store(float *y, const uint8_t *p, const int shift, float d, float m)
{
    __m256 scale = _mm256_set1_ps(d), min = _mm256_set1_ps(m);
    for (size_t i = 0; i < 32; i += 8) {
        __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + i)));
        q = _mm256_and_si256(_mm256_srli_epi32(q, shift), _mm256_set1_epi32(15));
        _mm256_storeu_ps(y + i, _mm256_sub_ps(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(q)), min));
    }
}

void bn_row_q4_k_avx2(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 144) {
        __m128i six = q4_k_scales(p + 4);
        __m256 d = _mm256_set1_ps(bn_f16_to_f32(bn_load_u16(p)));
        __m256 dmin = _mm256_set1_ps(bn_f16_to_f32(bn_load_u16(p + 2)));
        float scale[8], min[8];
        _mm256_storeu_ps(scale, scaled_i8(six, d));
        _mm256_storeu_ps(min, scaled_i8(_mm_srli_si128(six, 8), dmin));
        for (size_t j = 0; j < 8; j += 2, y += 64) {
            q4_k_store(y, p + 16 + 16 * j, 0, scale[j], min[j]);
            q4_k_store(y + 32, p + 16 + 16 * j, 4, scale[j + 1], min[j + 1]);
        }
    }
}

/* Four quarters of 32 in each half: nibbles and bit pairs are put together 32 bytes at a time. */
void bn_row_q6_k_avx2(float *y, const void *row, size_t n)
{
    const __m256i nibble = _mm256_set1_epi8(15), top = _mm256_set1_epi8(0x30);
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 210) {
        float d = bn_f16_to_f32(bn_load_u16(p + 208));
        for (size_t h = 0; h < 2; h++) {
            __m256i l0 = _mm256_loadu_si256((const void *)(p + 64 * h));
            __m256i l1 = _mm256_loadu_si256((const void *)(p + 64 * h + 32));
            __m256i t = _mm256_loadu_si256((const void *)(p + 128 + 32 * h));
            __m256i q[4] = {_mm256_or_si256(_mm256_and_si256(l0, nibble),
                                            _mm256_and_si256(_mm256_slli_epi16(t, 4), top)),
                            _mm256_or_si256(_mm256_and_si256(l1, nibble),
                                            _mm256_and_si256(_mm256_slli_epi16(t, 2), top)),
                            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l0, 4), nibble),
                                            _mm256_and_si256(t, top)),
                            _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(l1, 4), nibble),
                                            _mm256_and_si256(_mm256_srli_epi16(t, 2), top))};
            for (size_t k = 0; k < 4; k++, y += 32) {
                __m256i v = _mm256_sub_epi8(q[k], _mm256_set1_epi8(32));
                __m128i lo = _mm256_castsi256_si128(v), hi = _mm256_extracti128_si256(v, 1);
                __m256 d0 = _mm256_set1_ps(d * (float)(int8_t)p[192 + 8 * h + 2 * k]);
                __m256 d1 = _mm256_set1_ps(d * (float)(int8_t)p[193 + 8 * h + 2 * k]);
                _mm256_storeu_ps(y, scaled_i8(lo, d0));
                _mm256_storeu_ps(y + 8, scaled_i8(_mm_srli_si128(lo, 8), d0));
                _mm256_storeu_ps(y + 16, scaled_i8(hi, d1));
                _mm256_storeu_ps(y + 24, scaled_i8(_mm_srli_si128(hi, 8), d1));
            }
        }
    }
}

void bn_f32_to_f16_avx2(uint16_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((void *)(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
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
    _mm_storeu_ps(out, bn_l16_sum4(s[0], s[1], s[2], s[3]));
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < n_rows; r++) y[t * y_stride + r] = out[t * n_rows + r];
}

void bn_dots_avx2(float *y, size_t y_stride, const float *rows, size_t n_rows, const float *x,
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
            if (i % 32 == 0) _mm_prefetch(p + 2 * n_rows * n, _MM_HINT_T0);
            s[r] = bn_l16_mul_add(s[r], v, w);
        }
    }
    if (i < n) {
        struct bn_l16 v = bn_l16_load_head(x + i, n - i);
        for (size_t r = 0; r < n_rows; r++) {
            float w[16] = {0};
            bn_row_f16_avx2(w, rows + 2 * (r * n + i), n - i);
            s[r] = bn_l16_mul_add(s[r], v, bn_l16_load(w));
        }
    }
    float out[4];
    _mm_storeu_ps(out, bn_l16_sum4(s[0], s[1], s[2], s[3]));
    for (size_t r = 0; r < n_rows; r++) y[r] = out[r];
}

void bn_dots_f16_avx2(float *y, const void *rows, size_t n_rows, const float *x, size_t n)
{
    const uint8_t *p = rows;
    size_t r = 0;
    for (; r + 4 <= n_rows; r += 4) dots_f16_tile(y + r, p + 2 * r * n, x, n, 4);
    for (; r < n_rows; r++) dots_f16_tile(y + r, p + 2 * r * n, x, n, 1);
}
