/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernels for activations in planes share. A vector is one plane of one token. Rows stand
 * in lanes (ref/gemm_groups.c), so that at the end of a piece of columns the 16-bit sums of a lane's
 * two pairs of columns are added up by one instruction, and eight rows are folded together. */
#ifndef BN_KERNELS_WIDE_GEMM_PLANES_H
#define BN_KERNELS_WIDE_GEMM_PLANES_H

#include "kernels/groups.h"
#include "kernels/wide/lanes.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    BN_LANE_ROWS = 8,       /* of a register */
    BN_PLANES_MANY_FROM = 6 /* tokens for which tables may win, with two planes */
};

/* four activations, the same in all lanes */
ALWAYS w_int bn_lane_quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return w_set1_epi32(four);
}

/* the sum over k = 255 h + l */
ALWAYS w_int bn_lane_both(w_int high, w_int low)
{
    return w_add_epi32(w_slli_epi32(high, 8), w_sub_epi32(low, high));
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

/* Those of field f of a group, eight rows, out of what bn_piece_scales() found. */
ALWAYS w_f32 bn_piece_scale(const uint16_t *scale, size_t f)
{
    return scale ? bn_load_f16(scale + BN_LANE_ROWS * f) : w_set1_ps(1);
}

/* acc folded with the sums of a piece, as the contract has it; scale: of these eight rows */
ALWAYS w_f32 bn_lane_fold(w_f32 acc, w_int s, w_f32 scale, w_f32 unit)
{
    return w_add_ps(acc, w_mul_ps(w_cvtepi32_ps(s), w_mul_ps(scale, unit)));
}

/* y of rows [r, r1), eight at most */
ALWAYS void bn_lane_store(float *y, const struct bn_packed *w, size_t r, size_t r1, w_f32 acc)
{
    if (r >= r1) return;
    size_t n = bn_min_size(BN_LANE_ROWS, r1 - r);
    if (w->scale_kind == BN_SCALE_TENSOR) acc = w_mul_ps(w_set1_ps(w->scale), acc);
    if (w->scale_kind == BN_SCALE_ROW) acc = w_mul_ps(bn_load_head(w->row_scale + r, n), acc);
    if (n == BN_LANE_ROWS) w_storeu_ps(y + r, acc);
    else bn_store_head(y + r, n, acc);
}

/* ---- one token or several (planes.c) ---- */

/* Minus the sums of a piece's activations, those of the first two and of the last two columns of a quad:
 * two numbers of 16 bits; with dot products one of 32. */
static inline int32_t bn_minus_sums(const int8_t *q, size_t cols)
{
    w_int s = w_setzero_si256();
    for (size_t k = 0; k < cols; k += 32)
        s = w_add_pairs(s, w_set1_epi8(1), w_loadu_si256((const void *)(q + k)));
    s = w_sum_sub(w_setzero_si256(), s);
    h_int h = h_sum_add(w_castsi256_si128(s), w_extracti128_si256(s, 1));
    h = h_sum_add(h, h_unpackhi_epi64(h, h));
    return h_cvtsi128_si32(h_sum_add(h, h_shuffle_epi32(h, 1)));
}

/* What a group of rows meets at a time: one vector, the two planes of a token, or two tokens of a plane. */
enum bn_two_kind { BN_ONE_VECTOR, BN_TWO_PLANES, BN_TWO_TOKENS, BN_TWO_KINDS };

/* Of each vector; the second is not used where there is one, and the planes of a token share the rest. */
struct bn_two {
    enum bn_two_kind kind;
    const int8_t *q[2];
    const int32_t
        *minus[2]; /* [pieces]: minus the sums of q, those of the first two and of the last
                              * two columns of a quad in 16 bits each; where they are wanted */
    const float *unit[2];
    float *y[2];
};

/* The sums of eight rows and a piece, to 32 bits: folded into those of both tokens, or of the one. */
ALWAYS void bn_two_fold(w_f32 *acc, w_int first, w_int second, w_f32 scale, const struct bn_two *v,
                        size_t unit, const enum bn_two_kind kind)
{
    if (kind == BN_TWO_PLANES) first = bn_lane_both(first, second);
    acc[0] = bn_lane_fold(acc[0], first, scale, w_set1_ps(v->unit[0][unit]));
    if (kind == BN_TWO_TOKENS)
        acc[1] = bn_lane_fold(acc[1], second, scale, w_set1_ps(v->unit[1][unit]));
}

/* Rows r .. of a group, up to r1. */
typedef void bn_group_fn(const struct bn_two *v, const struct bn_packed *w, size_t r, size_t r1,
                         const struct bn_pieces *in);

enum { BN_TWOS = 8 };
typedef void bn_group_several_fn(const struct bn_two *two, size_t n, const struct bn_packed *w,
                                 size_t r, size_t r1, const struct bn_pieces *in);

/* group_ONE and so on out of a layout's group() for any kind */
#define BN_GROUP_FN(kind)                                                                 \
    static void group_##kind(const struct bn_two *v, const struct bn_packed *w, size_t r, \
                             size_t r1, const struct bn_pieces *in)                       \
    {                                                                                     \
        group(v, w, r, r1, in, kind);                                                     \
    }
#define BN_GROUP_FNS           \
    BN_GROUP_FN(BN_ONE_VECTOR) \
    BN_GROUP_FN(BN_TWO_PLANES) \
    BN_GROUP_FN(BN_TWO_TOKENS)
#define BN_GROUPS_BY_KIND                                             \
    {                                                                 \
        group_BN_ONE_VECTOR, group_BN_TWO_PLANES, group_BN_TWO_TOKENS \
    }

/* Bytes with codes w + 1 of up to four rows a lane, two bits each, for all quads of a piece: a part of a
 * group. Where a layout has other bytes it turns them into these, into `room`. */
typedef const uint8_t *bn_piece_codes_fn(uint8_t *room, const struct bn_packed *w, size_t r,
                                         size_t piece_col, size_t cols, size_t part);

struct bn_planes_plan {
    size_t group_rows, parts, fields; /* group_rows = parts * fields * BN_LANE_ROWS */
    bn_piece_codes_fn *codes;
    bn_group_fn *group[BN_TWO_KINDS];
    bool always_minus;                              /* these want bn_two.minus */
    int32_t (*minus)(const int8_t *q, size_t cols); /* bn_minus_sums(), as this variant adds up */
    /* Two of them or more, up to BN_TWOS, all with minus; NULL: one after the other */
    bn_group_several_fn *several;
};
void W_BASE(mul_planes)(const struct bn_gemm_args *a, const struct bn_planes *x,
                        const struct bn_planes_plan *l);

/* ---- many tokens (planes_tables.c) ---- */

/* mul_planes_many with the layout's plan and its kernel for fewer tokens or rows */
void W_BASE(mul_planes_tables)(const struct bn_gemm_args *a, const struct bn_planes *x,
                               const struct bn_planes_plan *l, bn_mul_planes_fn *otherwise);
size_t W_BASE(planes_tables_bytes)(size_t rows, size_t cols, size_t group_rows);

#endif
