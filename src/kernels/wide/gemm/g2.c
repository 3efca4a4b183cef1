/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations in planes times matrices in layout "g2" (ref/gemm_groups.c): a group of rows
 * with one vector or two. How groups and tokens follow each other is in planes.c.
 *
 * A byte has the codes w + 1 of four rows. They are masked in place, with one shift for four, so that
 * those of the second and the fourth row count four times. Why the 16-bit sums are exact: maddubs adds
 * a pair of products, at most 12 * 2 * 127 in size, far from saturation; the additions after it are
 * exact modulo 2^16. A sum begins at minus the sum of the activations it will meet, so that it ends at
 * the weights' own: 64 weights in {-1, 0, +1} times activations within +-127, and four times that, is
 * at most 32512 < 2^15. */
#include "kernels/wide/gemm/planes.h"

enum { FIELDS = 4 };

struct sums {
    w_int s0, s1, s2, s3;
};

ALWAYS struct sums begin(int32_t minus)
{
    w_int one = w_set1_epi32(minus), four = w_sum_fourfold(one);
    return (struct sums){one, four, one, four};
}

/* A quad: the rows' codes times one vector's activations */
ALWAYS void add(struct sums *s, w_int v, w_int h, const int8_t *q)
{
    const w_int m3 = w_set1_epi8(3), m12 = w_set1_epi8(12);
    w_int x = bn_lane_quad(q);
    s->s0 = w_add_pairs(s->s0, w_and_si256(v, m3), x);
    s->s1 = w_add_pairs(s->s1, w_and_si256(v, m12), x);
    s->s2 = w_add_pairs(s->s2, w_and_si256(h, m3), x);
    s->s3 = w_add_pairs(s->s3, w_and_si256(h, m12), x);
}

/* To 32 bits; a field that counts four times is a multiple of four. */
ALWAYS w_int field_sum(w_int s, const bool four)
{
    s = w_sum_32(s);
    return four ? w_srai_epi32(s, 2) : s;
}

ALWAYS void group(const struct bn_two *two, const struct bn_packed *w, size_t r, size_t r1,
                  const struct bn_pieces *in, const enum bn_two_kind kind)
{
    const uint8_t *p = w->data + r / BN_G2_ROWS * bn_g2_group_bytes(w->cols);
    const int8_t *first = two->q[0], *second = two->q[1];
    const bool both = kind != BN_ONE_VECTOR;
    const size_t n_tok = kind == BN_TWO_TOKENS ? 2 : 1;
    w_f32 acc[FIELDS][2];
    for (size_t f = 0; f < FIELDS; f++) acc[f][0] = acc[f][1] = w_setzero_ps();
    for (size_t i = 0; i < in->count; i++) {
        struct sums a = begin(two->minus[0][i]), b = begin(both ? two->minus[1][i] : 0);
        for (size_t n = in->cols / BN_QUAD; n > 0; n -= 2, p += 2 * BN_G2_QUAD_BYTES) {
            h_prefetch((const char *)p + w->ahead, H_T0);
            for (size_t j = 0; j < 2; j++, first += BN_QUAD, second += BN_QUAD) {
                w_int v = w_loadu_si256((const void *)(p + j * BN_G2_QUAD_BYTES));
                w_int h = w_srli_epi16(v, 4);
                add(&a, v, h, first);
                if (both) add(&b, v, h, second);
            }
        }
        const uint16_t *scale = bn_piece_scales(w, in, r, BN_G2_ROWS, i);
        size_t unit = i * in->cols / BN_K_ALIGN;
#define FOLD(f, four)                                                     \
    bn_two_fold(acc[f], field_sum(a.s##f, four), field_sum(b.s##f, four), \
                bn_piece_scale(scale, f), two, unit, kind)
        FOLD(0, false);
        FOLD(1, true);
        FOLD(2, false);
        FOLD(3, true);
#undef FOLD
    }
    for (size_t f = 0; f < FIELDS; f++)
        for (size_t t = 0; t < n_tok; t++)
            bn_lane_store(two->y[t], w, r + BN_LANE_ROWS * f, r1, acc[f][t]);
}
BN_GROUP_FNS

/* The layout's own bytes. */
static const uint8_t *codes(uint8_t *room, const struct bn_packed *w, size_t r, size_t piece_col,
                            size_t cols, size_t part)
{
    (void)room, (void)cols, (void)part;
    return w->data + r / BN_G2_ROWS * bn_g2_group_bytes(w->cols) +
           piece_col / BN_QUAD * BN_G2_QUAD_BYTES;
}

static const struct bn_planes_plan g2 = {BN_G2_ROWS,        1,    FIELDS,        codes,
                                         BN_GROUPS_BY_KIND, true, bn_minus_sums, NULL};

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    W_BASE(mul_planes)(a, x, &g2);
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    W_BASE(mul_planes_tables)(a, x, &g2, mul_planes);
}

static size_t many_bytes(size_t rows, size_t cols)
{
    return W_BASE(planes_tables_bytes)(rows, cols, BN_G2_ROWS);
}

const struct bn_gemm W_NAME(gemm_g2) = {BN_GROUPS_LAYOUT(g2, BN_G2_ROWS), .mul_planes = mul_planes,
                                        .many_from = BN_PLANES_MANY_FROM, .many_bytes = many_bytes,
                                        .mul_planes_many = mul_many};
