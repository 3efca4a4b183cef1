/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64: activations in planes times matrices in layout "g2" (ref/gemm_groups.c). Rows stand in lanes: a
 * lane of four bytes is four columns, the same for all lanes. Two vectors go together, the two planes of a
 * token or two tokens.
 *
 * The includer defines piece_sum(), what it wants to know of a vector's piece, and add_piece(), the sums of
 * a group's piece; where there is one vector, q has it twice. */
#ifndef BN_KERNELS_ARM_ROWS_IN_LANES_H
#define BN_KERNELS_ARM_ROWS_IN_LANES_H

#include "kernels/groups.h"
#include "kernels/wide/gemm/planes.h"

#include <arm_neon.h>

enum {
    FIELDS = 4,
    HALVES = 2,              /* of a quad's 32 bytes, four rows of a field each */
    PARTS = FIELDS * HALVES, /* registers of sums for the rows of a group */
    QUADS = 4,               /* in a register of activations */
    PIECES_MAX = BN_COLS_MAX / 32
};

static int32_t piece_sum(const int8_t *q, size_t cols);
ALWAYS void add_piece(int32x4_t s[2][PARTS], const uint8_t *p, const int8_t *const q[2],
                      const int32_t sum[2], size_t cols, size_t ahead, const size_t nv);

/* What one pass over a group makes: two planes of a token, or one plane of one or two tokens. */
struct vectors {
    const int8_t *q[2];
    const float *unit[2];
    float *y[2];
    const int32_t (*sum)[2]; /* of the pieces */
};

ALWAYS float32x4_t fold(float32x4_t acc, int32x4_t s, const uint16_t *scale, float unit)
{
    float32x4_t k = vdupq_n_f32(unit);
    if (scale) k = vmulq_f32(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(scale))), k);
    return vaddq_f32(acc, vmulq_f32(vcvtq_f32_s32(s), k));
}

/* y of the rows [r, r1) of a group */
static void store(float *y, const struct bn_packed *w, size_t r, size_t r1,
                  const float32x4_t acc[PARTS])
{
    float v[BN_G2_ROWS];
    for (size_t i = 0; i < PARTS; i++) vst1q_f32(v + 4 * i, acc[i]);
    for (size_t i = 0; i < BN_G2_ROWS && r + i < r1; i++)
        y[r + i] = w->scale_kind == BN_SCALE_BLOCK ? v[i] : bn_row_scale(w, r + i) * v[i];
}

ALWAYS void group(const struct bn_packed *w, size_t r, size_t r1, const struct vectors *x,
                  const struct bn_pieces *in, const size_t nv, const bool planes)
{
    const uint8_t *p = w->data + r / BN_G2_ROWS * bn_g2_group_bytes(w->cols);
    float32x4_t acc[2][PARTS];
    for (size_t v = 0; v < 2; v++)
        for (size_t i = 0; i < PARTS; i++) acc[v][i] = vdupq_n_f32(0);
    for (size_t piece = 0; piece < in->count; piece++) {
        int32x4_t s[2][PARTS];
        size_t col = piece * in->cols, g = col / BN_K_ALIGN;
        const int8_t *q[2] = {x->q[0] + col, x->q[1] + col};
        const uint16_t *scale = bn_piece_scales(w, in, r, BN_G2_ROWS, piece);
        add_piece(s, p, q, x->sum[piece], in->cols, w->ahead, nv);
        p += in->cols / BN_QUAD * BN_G2_QUAD_BYTES;
        for (size_t i = 0; i < PARTS; i++) {
            const uint16_t *d = scale ? scale + 4 * i : NULL;
            if (planes) /* 255 h + l */
                s[0][i] = vaddq_s32(vshlq_n_s32(s[0][i], 8), vsubq_s32(s[1][i], s[0][i]));
            acc[0][i] = fold(acc[0][i], s[0][i], d, x->unit[0][g]);
            if (!planes && nv == 2) acc[1][i] = fold(acc[1][i], s[1][i], d, x->unit[1][g]);
        }
    }
    store(x->y[0], w, r, r1, acc[0]);
    if (!planes && nv == 2) store(x->y[1], w, r, r1, acc[1]);
}

/* One pass: a token with two planes, or nv tokens with one. */
static void mul_vectors(const struct bn_gemm_args *a, const struct bn_planes *x, size_t t,
                        const size_t nv)
{
    const struct bn_packed *w = a->w;
    struct bn_pieces in = bn_pieces(w);
    int32_t sum[PIECES_MAX][2];
    const bool planes = x->n_planes == 2;
    size_t other = planes ? x->plane_stride : nv == 2 ? x->stride : 0;
    size_t second = planes || nv < 2 ? 0 : 1; /* token */
    const int8_t *q = x->q + t * x->stride;
    struct vectors v = {
        .q = {q, q + other},
        .unit = {x->unit + t * x->unit_stride, x->unit + (t + second) * x->unit_stride},
        .y = {a->y + t * a->y_stride, a->y + (t + second) * a->y_stride},
        .sum = (const int32_t(*)[2])sum};
    for (size_t i = 0; i < in.count; i++)
        for (size_t k = 0; k < 2; k++) sum[i][k] = piece_sum(v.q[k] + i * in.cols, in.cols);
    for (size_t r = a->r0; r < a->r1; r += BN_G2_ROWS)
        if (planes) group(w, r, a->r1, &v, &in, 2, true);
        else if (nv == 2) group(w, r, a->r1, &v, &in, 2, false);
        else group(w, r, a->r1, &v, &in, 1, false);
}

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    /* a few groups stay in the second cache while the tokens pass */
    enum { AT_ONCE = 4 * BN_G2_ROWS };
    for (size_t r = a->r0; r < a->r1; r += AT_ONCE) {
        struct bn_gemm_args rows = bn_gemm_rows(a, r, bn_min_size(a->r1, r + AT_ONCE));
        for (size_t t = 0, n; t < a->n_tok; t += n) {
            n = x->n_planes == 2 ? 1 : bn_min_size(2, a->n_tok - t);
            mul_vectors(&rows, x, t, n);
        }
    }
}

#endif
