/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplying by tables (gemm/tables.c) is the same for all layouts; what a layout brings is the
 * step from its packed rows to codes, the places of their entries in the tables. */
#ifndef BN_KERNELS_WIDE_GEMM_TABLES_H
#define BN_KERNELS_WIDE_GEMM_TABLES_H

#include "kernels/kernels.h"
#include "kernels/wide/wide.h"

enum {
    BN_TABLE_FROM = 11, /* tokens from which tables win: t3 from 11, t2 from 12 */
    BN_TABLE_ENTRIES = 81,
    BN_TABLE_VECTORS = 16,  /* whose sums are an entry */
    BN_TABLES = 8,          /* in use at a time */
    BN_TABLE_PASSES = 4,    /* words of codes of a row for 128 columns */
    BN_TABLE_ROW_BLOCK = 24 /* codes have room for a multiple of so many rows */
};

typedef int16_t bn_table[BN_TABLE_ENTRIES][BN_TABLE_VECTORS];

/* 16 rows of 16 bytes turned over: four times the two halves interleaved. */
static inline void bn_turn16(h_int a[16])
{
    h_int b[16];
    for (size_t round = 0; round < 4; round++) {
        for (size_t i = 0; i < 8; i++) {
            b[2 * i] = h_unpacklo_epi8(a[i], a[i + 8]);
            b[2 * i + 1] = h_unpackhi_epi8(a[i], a[i + 8]);
        }
        memcpy(a, b, sizeof b);
    }
}

/* Entry c0 + 3 c1 + 9 c2 + 27 c3 is the sum of (c_f - 1) times the activations of column f, each of 16
 * vectors. */
static __attribute__((noinline, unused)) void bn_table_build(bn_table table, const int8_t *column0,
                                                             const int8_t *column1,
                                                             const int8_t *column2,
                                                             const int8_t *column3)
{
    const int8_t *column[4] = {column0, column1, column2, column3};
    int16_t(*out)[BN_TABLE_VECTORS] = table;
    w_int a[4], low[9];
    for (size_t f = 0; f < 4; f++) a[f] = w_cvtepi8_epi16(h_loadu_si128((const void *)column[f]));
    low[4] = w_setzero_si256();
    low[3] = w_sub_epi16(low[4], a[0]);
    low[5] = a[0];
    for (size_t c = 3; c < 6; c++) {
        low[c - 3] = w_sub_epi16(low[c], a[1]);
        low[c + 3] = w_add_epi16(low[c], a[1]);
    }
    w_int row = w_sub_epi16(w_sub_epi16(w_setzero_si256(), a[2]), a[3]);
    for (size_t c3 = 0; c3 < 3; c3++) {
        w_int base = row;
        for (size_t c2 = 0; c2 < 3; c2++, out += 9) {
            w_store_si256((void *)out[0], w_add_epi16(base, low[0]));
            w_store_si256((void *)out[1], w_add_epi16(base, low[1]));
            w_store_si256((void *)out[2], w_add_epi16(base, low[2]));
            w_store_si256((void *)out[3], w_add_epi16(base, low[3]));
            w_store_si256((void *)out[4], base);
            w_store_si256((void *)out[5], w_add_epi16(base, low[5]));
            w_store_si256((void *)out[6], w_add_epi16(base, low[6]));
            w_store_si256((void *)out[7], w_add_epi16(base, low[7]));
            w_store_si256((void *)out[8], w_add_epi16(base, low[8]));
            base = w_add_epi16(base, a[2]);
        }
        row = w_add_epi16(row, a[3]);
    }
}

#if !defined(W_HALVES)
/* sum += an entry of each of eight tables, their numbers in the bytes of code: each is rotated to where
 * it counts 32 and cut out. The entries are operands of the additions: compilers load them first, or
 * spend instructions on addresses. */
#define BN_ADD_ENTRY(rotate, d)                               \
    "rorx $" #rotate ", %[c], %[o]\n\tand $0x1fe0, %k[o]\n\t" \
    "vpaddw %c[" #d "](%[t], %[o]), %[s], %[s]\n\t"
#define BN_TABLE_AT(n) [d##n] "i"(n * sizeof(bn_table))
#define BN_ADD_EIGHT(sum, t, code)                                                                 \
    do {                                                                                           \
        uint64_t offset_;                                                                          \
        __asm__(BN_ADD_ENTRY(59, d0) BN_ADD_ENTRY(3, d1) BN_ADD_ENTRY(11, d2) BN_ADD_ENTRY(19, d3) \
                    BN_ADD_ENTRY(27, d4) BN_ADD_ENTRY(35, d5) BN_ADD_ENTRY(43, d6)                 \
                        BN_ADD_ENTRY(51, d7)                                                       \
                : [s] "+&x"(sum), [o] "=&r"(offset_)                                               \
                : [c] "r"(code), [t] "r"(t), BN_TABLE_AT(0), BN_TABLE_AT(1), BN_TABLE_AT(2),       \
                  BN_TABLE_AT(3), BN_TABLE_AT(4), BN_TABLE_AT(5), BN_TABLE_AT(6), BN_TABLE_AT(7),  \
                  "m"(*t)                                                                          \
                : "cc");                                                                           \
    } while (0)
#else
#define BN_ADD_EIGHT(sum, t, code)            \
    for (size_t i_ = 0; i_ < BN_TABLES; i_++) \
    (sum) = w_add_epi16(sum, w_loadu_si256((*(t))[i_][(code) >> 8 * i_ & 255]))
#endif

/* Writes the codes of rows [r0, r1), r0 the first row of a group: for pass p of the step from column
 * 128 s on, row r's are the bytes of code[(BN_TABLE_PASSES * s + p) * stride + r - r0]. Byte j, from
 * the lowest on, stands for the columns 128 s + 32 f + 8 p + j, f = 0 .. 3, and is the sum of
 * 3^f (w + 1). stride is a multiple of BN_TABLE_ROW_BLOCK; the codes of rows from r1 up to there may
 * be anything. Returns false if there is a weight +2. */
typedef bool bn_codes_fn(uint64_t *code, size_t stride, const struct bn_packed *w, size_t r0,
                         size_t r1);
bn_codes_fn W_BASE(t2_codes), W_BASE(t3_codes);
bn_mul_i8_fn W_BASE(t2_mul_i8_many), W_BASE(t3_mul_i8_many);

/* mul_i8_many with the layout's codes and its kernel for fewer tokens or rows */
void W_BASE(mul_tables)(const struct bn_gemm_args *a, const struct bn_q8 *x, bn_codes_fn *codes,
                        bn_mul_i8_fn *otherwise);
size_t W_BASE(tables_bytes)(size_t rows, size_t cols);

/* The codes of four rows, c[i] the sums 3^f (w + 1) of row i as bytes, for all passes of a step. */
static inline void bn_codes_store4(uint64_t *out, size_t stride, const w_int c[4])
{
    w_int a = w_unpacklo_epi64(c[0], c[1]), b = w_unpackhi_epi64(c[0], c[1]);
    w_int d = w_unpacklo_epi64(c[2], c[3]), e = w_unpackhi_epi64(c[2], c[3]);
    w_storeu_si256((void *)out, w_permute2x128_si256(a, d, 0x20));
    w_storeu_si256((void *)(out + stride), w_permute2x128_si256(b, e, 0x20));
    w_storeu_si256((void *)(out + 2 * stride), w_permute2x128_si256(a, d, 0x31));
    w_storeu_si256((void *)(out + 3 * stride), w_permute2x128_si256(b, e, 0x31));
}

#endif
