/* SPDX-License-Identifier: Apache-2.0
 *
 * How int8 activations of several tokens go through a matrix (gemm/tokens.c), for the files
 * that multiply: up to 8 tokens at a time; units of a few rows; in a unit, blocks of columns. */
#ifndef BN_KERNELS_WIDE_GEMM_TOKENS_H
#define BN_KERNELS_WIDE_GEMM_TOKENS_H

#include "kernels/t3.h"
#include "kernels/wide/gemm/t2.h"

enum {
    BN_TOKENS = 8,        /* tokens that a row meets at a time */
    BN_UNIT_ROWS = 12,    /* whole groups of t2 and t3, and whole fours; */
    BN_T5_UNIT_ROWS = 20, /* the same of t5 */
    BN_UNIT_ROWS_MAX = BN_T5_UNIT_ROWS,
    BN_T2_STEP_BYTES = BN_T2_ROWS * BN_T2_PIECE
};

/* f(n) for every number of tokens n that has a function of its own, and the table of them, f_2 at
 * its index 2 */
#define BN_EACH_TOKENS(f) f(2) f(3) f(4) f(5) f(6) f(7) f(8)
#define BN_BY_TOKENS(f)                                             \
    {                                                               \
        NULL, NULL, f##_2, f##_3, f##_4, f##_5, f##_6, f##_7, f##_8 \
    }

/* A block: some steps of the rows of a unit. */
struct bn_block {
    const uint8_t *p;   /* of the first group */
    size_t group_bytes; /* from one group to the next */
    size_t groups, steps;
    bool first;   /* of the blocks of a unit: there are no sums yet */
    size_t ahead; /* from a byte to what is to be prefetched meanwhile */
};

/* The activations of some tokens, from the first column of a block on. */
struct bn_tokens {
    const int8_t *q;
    size_t stride;
};

/* Adds (or, in a first block, sets) the sums of codes w + 1 times activations: eight parts for every
 * row of a unit and token, sum[row * BN_TOKENS + token]. */
typedef void bn_block_fn(w_int *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok);

struct bn_tokens_plan {
    bn_block_fn *block;
    size_t group_rows, step_bytes; /* of a group of the layout */
    size_t rows;                   /* of a unit */
    size_t block_steps;            /* the most */
};

/* bn_mul_i8_fn, TENSOR and ROW */
void W_NAME(mul_tokens)(const struct bn_gemm_args *a, const struct bn_q8 *x,
                        const struct bn_tokens_plan *l);
extern const struct bn_tokens_plan bn_t2_tokens_avx512, bn_t3_tokens_avx512, bn_t5_tokens_avx512;

/* Two tokens of t3; false if there are too many columns: nothing is done then. */
bool W_NAME(t3_mul_i8_two)(const struct bn_gemm_args *a, const struct bn_q8 *x);

/* y of four rows (or the n that there are) and one token: codes less the sum of activations */
static inline void bn_store_rows(float *y, const struct bn_packed *w, size_t r, size_t n,
                                 h_int codes, int32_t sum, float inv)
{
    h_f32 s = h_cvtepi32_ps(h_sub_epi32(codes, h_set1_epi32(sum))), k = h_set1_ps(inv);
    if (n >= 4) {
        h_f32 scale =
            w->scale_kind == BN_SCALE_ROW ? h_loadu_ps(w->row_scale + r) : h_set1_ps(w->scale);
        h_storeu_ps(y + r, h_mul_ps(s, h_mul_ps(scale, k)));
        return;
    }
    float v[4];
    h_storeu_ps(v, s);
    for (size_t i = 0; i < n; i++) y[r + i] = v[i] * (bn_row_scale(w, r + i) * inv);
}

#endif
