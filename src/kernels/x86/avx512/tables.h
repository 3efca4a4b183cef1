/* SPDX-License-Identifier: Apache-2.0
 *
 * Very many tokens with AVX-512 (avx512/tables.c): the same for all layouts. What a layout
 * brings is the step from its packed rows to fours, the form that rows have in "t2". */
#ifndef BN_KERNELS_X86_AVX512_TABLES_H
#define BN_KERNELS_X86_AVX512_TABLES_H

#include "kernels/kernels.h"

enum {
    BN_FOURS = BN_K_ALIGN / 4, /* bytes of a row and step */
    BN_FOURS_ROWS = 60,        /* whole groups of every layout */
    BN_FOURS_ROWS_BEYOND = 8   /* room after the last row, for what else its group has */
};

/* Writes fours of whole groups, which lie `stride` apart from p on, for one step: byte i of a row has
 * the codes w + 1 of the columns 32 f + i of the step in its bits 2 f and 2 f + 1. Returns false if
 * there is a weight +2. */
typedef bool bn_fours_fn(uint8_t (*out)[BN_FOURS], const uint8_t *p, size_t stride, size_t groups);

struct bn_fours_plan {
    bn_fours_fn *fours;
    size_t group_rows, step_bytes; /* of a group of the layout */
};
extern const struct bn_fours_plan bn_t2_fours_avx512, bn_t3_fours_avx512, bn_t5_fours_avx512;

/* mul_i8_many with the layout's fours and its kernel for fewer rows */
void bn_mul_tables_avx512(const struct bn_gemm_args *a, const struct bn_q8 *x,
                          const struct bn_fours_plan *l, bn_mul_i8_fn *otherwise);
size_t bn_tables_bytes_avx512(size_t rows, size_t cols);

#endif
