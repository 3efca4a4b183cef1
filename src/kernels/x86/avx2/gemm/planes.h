/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: what the kernels for activations in planes share. A vector is one plane of one token. Rows stand
 * in lanes (ref/gemm_groups.c), so that at the end of a piece of columns the 16-bit sums of a lane's
 * two pairs of columns are added up by one instruction, and eight rows are folded together. */
#ifndef BN_KERNELS_X86_AVX2_GEMM_PLANES_H
#define BN_KERNELS_X86_AVX2_GEMM_PLANES_H

#include "kernels/groups.h"
#include "kernels/x86/avx2/avx2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    BN_LANE_ROWS = 8,       /* of a register */
    BN_PLANES_MANY_FROM = 6 /* tokens for which tables may win, with two planes */
};

/* s + codes times activations. The empty statement keeps a sum in its register: compilers otherwise
 * add up products first, in the order they like, and run out of registers. */
ALWAYS __m256i bn_lane_mul_add(__m256i s, __m256i codes, __m256i x)
{
    s = _mm256_add_epi16(s, _mm256_maddubs_epi16(codes, x));
    __asm__("" : "+x"(s));
    return s;
}

/* four activations, the same in all lanes */
ALWAYS __m256i bn_lane_quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* the two pairs of a lane to 32 bits */
ALWAYS __m256i bn_lane_sum(__m256i s) { return _mm256_madd_epi16(s, _mm256_set1_epi16(1)); }

/* the sum over k = 255 h + l */
ALWAYS __m256i bn_lane_both(__m256i high, __m256i low)
{
    return _mm256_add_epi32(_mm256_slli_epi32(high, 8), _mm256_sub_epi32(low, high));
}

/* The pieces that columns are folded in. */
struct bn_pieces {
    size_t cols;   /* of a piece; those of the last step are filled up with zeros */
    size_t count;  /* of them in a row */
    size_t blocks; /* of a row, 0: one scale a row or matrix */
    size_t block;  /* columns of one */
};

static inline struct bn_pieces bn_pieces(const struct bn_packed *w)
{
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t cols = blocks ? bn_min_size(w->block, BN_K_ALIGN) : BN_K_ALIGN;
    return (struct bn_pieces){cols, bn_div_up(w->cols, cols), blocks ? w->cols / w->block : 0,
                              blocks ? w->block : 1};
}

/* The scales of a piece, for the group of `group_rows` that row r begins; NULL: there are none. */
static inline const uint16_t *bn_piece_scales(const struct bn_packed *w, const struct bn_pieces *in,
                                              size_t r, size_t group_rows, size_t piece)
{
    if (!in->blocks) return NULL;
    return w->block_scale +
           (r / group_rows * in->blocks + piece * in->cols / in->block) * group_rows;
}

/* acc folded with the sums of a piece, as the contract has it; scale: of these eight rows, or NULL */
ALWAYS __m256 bn_lane_fold(__m256 acc, __m256i s, const uint16_t *scale, __m256 unit)
{
    __m256 k = scale ? _mm256_mul_ps(bn_load_f16(scale), unit) : unit;
    return _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(s), k));
}

/* y of rows [r, r1), eight at most */
ALWAYS void bn_lane_store(float *y, const struct bn_packed *w, size_t r, size_t r1, __m256 acc)
{
    if (r >= r1) return;
    size_t n = bn_min_size(BN_LANE_ROWS, r1 - r);
    if (w->scale_kind == BN_SCALE_TENSOR) acc = _mm256_mul_ps(_mm256_set1_ps(w->scale), acc);
    if (w->scale_kind == BN_SCALE_ROW) acc = _mm256_mul_ps(bn_load_head(w->row_scale + r, n), acc);
    if (n == BN_LANE_ROWS) _mm256_storeu_ps(y + r, acc);
    else bn_store_head(y + r, n, acc);
}

/* ---- several tokens (planes.c) ---- */

/* Bytes with codes w + 1 of up to four rows a lane, two bits each, for all quads of a piece: a part of a
 * group. Where a layout has other bytes it turns them into these, into `room`. */
typedef const uint8_t *bn_piece_codes_fn(uint8_t *room, const struct bn_packed *w, size_t r,
                                         size_t piece_col, size_t cols, size_t part);

struct bn_planes_plan {
    size_t group_rows, parts, fields; /* group_rows = parts * fields * BN_LANE_ROWS */
    bn_piece_codes_fn *codes;
};
void bn_mul_planes_avx2(const struct bn_gemm_args *a, const struct bn_planes *x,
                        const struct bn_planes_plan *l);

/* ---- many tokens (planes_tables.c) ---- */

/* mul_planes_many with the layout's plan and its kernel for fewer tokens or rows */
void bn_mul_planes_tables_avx2(const struct bn_gemm_args *a, const struct bn_planes *x,
                               const struct bn_planes_plan *l, bn_mul_planes_fn *otherwise);
size_t bn_planes_tables_bytes_avx2(size_t rows, size_t cols, size_t group_rows);

#endif
