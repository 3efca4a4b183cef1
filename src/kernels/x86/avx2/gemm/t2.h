/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the AVX2 matrix kernels share. */
#ifndef BN_KERNELS_X86_AVX2_GEMM_T2_H
#define BN_KERNELS_X86_AVX2_GEMM_T2_H

#include "kernels/t2.h"
#include "kernels/x86/avx2/avx2.h"

#include <immintrin.h>

bn_mul_i8_fn bn_t2_mul_i8_block_avx2; /* BN_SCALE_BLOCK */
bn_mul_f32_fn bn_t2_mul_f32_avx2, bn_t3_mul_f32_avx2, bn_b1_mul_f32_avx2;

/* TENSOR and ROW, two tokens or more */
bn_mul_i8_fn bn_t2_mul_i8_tokens_avx2, bn_t3_mul_i8_tokens_avx2;

/* 32-bit elements of 8 registers: row i, column j to row j, column i */
static inline void bn_transpose8_i32(__m256i v[8])
{
    __m256i a[8], b[8];
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm256_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm256_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* the codes of columns 0-31, 32-63, 64-95, 96-127 */
static inline void bn_t2_fields(__m256i f[4], __m256i q)
{
    const __m256i m3 = _mm256_set1_epi8(3);
    f[0] = _mm256_and_si256(q, m3);
    f[1] = _mm256_and_si256(_mm256_srli_epi16(q, 2), m3);
    f[2] = _mm256_and_si256(_mm256_srli_epi16(q, 4), m3);
    f[3] = _mm256_and_si256(_mm256_srli_epi16(q, 6), m3);
}

/* s + codes times activations. These are an operand in memory, and the empty statement keeps the sum
 * in its register: left to themselves compilers load activations or add up products first, and run
 * out of registers. */
static inline __m256i bn_t2_mul_add(__m256i s, __m256i c, const int8_t *y)
{
    __m256i p;
    __asm__("vpmaddubsw %2, %1, %0" : "=x"(p) : "x"(c), "m"(*(const __m256i_u *)y));
    s = _mm256_add_epi16(s, p);
    __asm__("" : "+x"(s));
    return s;
}

/* 128 columns of a row times one token: one shift and four masks for four fields, with fields 1 and
 * 3 left at four times their value in an accumulator of their own. */
static inline __attribute__((always_inline)) void bn_t2_row_step(__m256i *s, __m256i *t,
                                                                 const uint8_t *p, const int8_t *y)
{
    const __m256i m3 = _mm256_set1_epi8(3), m12 = _mm256_set1_epi8(12);
    __m256i q = _mm256_loadu_si256((const void *)p), h = _mm256_srli_epi16(q, 4);
    *s = bn_t2_mul_add(*s, _mm256_and_si256(q, m3), y);
    *t = bn_t2_mul_add(*t, _mm256_and_si256(q, m12), y + 32);
    *s = bn_t2_mul_add(*s, _mm256_and_si256(h, m3), y + 64);
    *t = bn_t2_mul_add(*t, _mm256_and_si256(h, m12), y + 96);
}

/* s + t / 4, exact because every term of t is a multiple of 4, to 32 bits */
static inline __m256i bn_t2_widen(__m256i acc, __m256i s, __m256i t)
{
    __m256i v = _mm256_add_epi16(s, _mm256_srai_epi16(t, 2));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(v, _mm256_set1_epi16(1)));
}

/* four sums of eight int32 each */
static inline __m128i bn_hsum4_i32(__m256i a, __m256i b, __m256i c, __m256i d)
{
    __m256i v = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    return _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
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
static inline void bn_t2_block_scales(__m128 d[8], const struct bn_packed *w, size_t r,
                                      size_t n_rows, size_t b0, size_t n_blocks)
{
    __m128i v[4];
    for (size_t i = 0; i < 4; i++) {
        if (i >= n_rows) {
            v[i] = _mm_setzero_si128();
            continue;
        }
        const uint16_t *s = w->block_scale + (r + i) * n_blocks + b0;
        uint16_t tail[8] = {0};
        for (size_t j = 0; b0 + 8 > n_blocks && b0 + j < n_blocks; j++) tail[j] = s[j];
        v[i] = _mm_loadu_si128((const void *)(b0 + 8 > n_blocks ? tail : s));
    }
    __m128i ab = _mm_unpacklo_epi16(v[0], v[1]), cd = _mm_unpacklo_epi16(v[2], v[3]);
    __m128i ef = _mm_unpackhi_epi16(v[0], v[1]), gh = _mm_unpackhi_epi16(v[2], v[3]);
    __m128i pair[4] = {_mm_unpacklo_epi32(ab, cd), _mm_unpackhi_epi32(ab, cd),
                       _mm_unpacklo_epi32(ef, gh), _mm_unpackhi_epi32(ef, gh)};
    for (size_t i = 0; i < 4; i++) { /* two blocks of four rows */
        __m256 f = _mm256_cvtph_ps(pair[i]);
        d[2 * i] = _mm256_castps256_ps128(f);
        d[2 * i + 1] = _mm256_extractf128_ps(f, 1);
    }
}

#endif
