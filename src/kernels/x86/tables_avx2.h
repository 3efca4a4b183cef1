/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplying by tables (gemm_tables_avx2.c) is the same for all layouts; what a layout brings is the
 * step from its packed rows to codes, the places of their entries in the tables. */
#ifndef BN_KERNELS_X86_TABLES_AVX2_H
#define BN_KERNELS_X86_TABLES_AVX2_H

#include "kernels/kernels.h"

#include <immintrin.h>

enum {
    BN_TABLE_FROM = 11,     /* tokens from which tables win */
    BN_TABLE_PASSES = 4,    /* words of codes of a row for 128 columns */
    BN_TABLE_ROW_BLOCK = 24 /* codes have room for a multiple of so many rows */
};

/* Writes the codes of rows [r0, r1), r0 the first row of a group: for pass p of the step from column
 * 128 s on, row r's are the bytes of code[(BN_TABLE_PASSES * s + p) * stride + r - r0]. Byte j, from
 * the lowest on, stands for the columns 128 s + 32 f + 8 p + j, f = 0 .. 3, and is the sum of
 * 3^f (w + 1). stride is a multiple of BN_TABLE_ROW_BLOCK; the codes of rows from r1 up to there may
 * be anything. Returns false if there is a weight +2. */
typedef bool bn_codes_fn(uint64_t *code, size_t stride, const struct bn_packed *w, size_t r0,
                         size_t r1);
bn_codes_fn bn_t2_codes_avx2, bn_t3_codes_avx2;
bn_mul_i8_many_fn bn_t2_mul_i8_many_avx2, bn_t3_mul_i8_many_avx2;

/* bn_mul_i8_many_fn with the layout's codes and its kernel for fewer tokens or rows */
void bn_mul_tables_avx2(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                        const int8_t *q, size_t q_stride, const int32_t *sum, const float *inv,
                        size_t n_tok, void *scratch, bn_codes_fn *codes, bn_mul_i8_fn *otherwise);
size_t bn_tables_bytes_avx2(size_t rows, size_t cols);

/* The codes of four rows, c[i] the sums 3^f (w + 1) of row i as bytes, for all passes of a step. */
static inline void bn_codes_store4(uint64_t *out, size_t stride, const __m256i c[4])
{
    __m256i a = _mm256_unpacklo_epi64(c[0], c[1]), b = _mm256_unpackhi_epi64(c[0], c[1]);
    __m256i d = _mm256_unpacklo_epi64(c[2], c[3]), e = _mm256_unpackhi_epi64(c[2], c[3]);
    _mm256_storeu_si256((void *)out, _mm256_permute2x128_si256(a, d, 0x20));
    _mm256_storeu_si256((void *)(out + stride), _mm256_permute2x128_si256(b, e, 0x20));
    _mm256_storeu_si256((void *)(out + 2 * stride), _mm256_permute2x128_si256(a, d, 0x31));
    _mm256_storeu_si256((void *)(out + 3 * stride), _mm256_permute2x128_si256(b, e, 0x31));
}

#endif
