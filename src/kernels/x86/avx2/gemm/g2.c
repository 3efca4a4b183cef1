/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: activations in planes times matrices in layout "g2" (ref/gemm_groups.c). Here is one token; more
 * are in planes.c.
 *
 * A byte has the codes w + 1 of four rows. They are masked in place, with one shift for four, so that
 * those of the second and the fourth row count four times. Why the 16-bit sums are exact: maddubs adds
 * a pair of products, at most 12 * 2 * 127 in size, far from saturation; the additions after it are
 * exact modulo 2^16. A sum begins at minus the sum of the activations it will meet, so that it ends at
 * the weights' own: 64 weights in {-1, 0, +1} times activations within +-127, and four times that, is
 * at most 32512 < 2^15. */
#include "kernels/x86/avx2/gemm/planes.h"

enum { FIELDS = 4, PIECES_MAX = BN_COLS_MAX / 32 };

/* Minus the sums of a piece's activations, those of the first two and of the last two columns of a quad:
 * two numbers of 16 bits. */
static int32_t minus_sums(const int8_t *q, size_t cols)
{
    __m256i s = _mm256_setzero_si256();
    for (size_t k = 0; k < cols; k += 32) /* -1 as the activation, 1 as the code */
        s = _mm256_sub_epi16(s, _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                                                     _mm256_loadu_si256((const void *)(q + k))));
    __m128i h = _mm_add_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi16(h, _mm_unpackhi_epi64(h, h));
    return _mm_cvtsi128_si32(_mm_add_epi16(h, _mm_shuffle_epi32(h, 1)));
}

struct sums {
    __m256i s0, s1, s2, s3;
};

ALWAYS struct sums begin(int32_t minus)
{
    __m256i one = _mm256_set1_epi32(minus), four = _mm256_slli_epi16(one, 2);
    return (struct sums){one, four, one, four};
}

/* A quad: the rows' codes times one vector's activations */
ALWAYS void add(struct sums *s, __m256i v, __m256i h, const int8_t *q)
{
    const __m256i m3 = _mm256_set1_epi8(3), m12 = _mm256_set1_epi8(12);
    __m256i x = bn_lane_quad(q);
    s->s0 = bn_lane_mul_add(s->s0, _mm256_and_si256(v, m3), x);
    s->s1 = bn_lane_mul_add(s->s1, _mm256_and_si256(v, m12), x);
    s->s2 = bn_lane_mul_add(s->s2, _mm256_and_si256(h, m3), x);
    s->s3 = bn_lane_mul_add(s->s3, _mm256_and_si256(h, m12), x);
}

/* Row by row, one plane or both: a field that counts four times is a multiple of four. */
ALWAYS __m256i field_sum(__m256i high, __m256i low, const bool four, const size_t n_planes)
{
    __m256i s = bn_lane_sum(high);
    if (n_planes == 2) s = bn_lane_both(s, bn_lane_sum(low));
    return four ? _mm256_srai_epi32(s, 2) : s;
}

ALWAYS void group_one(float *y, const struct bn_packed *w, size_t r, size_t r1,
                      const struct bn_planes *x, const int32_t (*minus)[2],
                      const struct bn_pieces *in, const size_t n_planes)
{
    const uint8_t *p = w->data + r / BN_G2_ROWS * bn_g2_group_bytes(w->cols);
    const int8_t *high = x->q, *low = x->q + x->plane_stride;
    __m256 acc0 = _mm256_setzero_ps(), acc1 = acc0, acc2 = acc0, acc3 = acc0;
    for (size_t i = 0; i < in->count; i++) {
        struct sums a = begin(minus[i][0]), b = begin(n_planes == 2 ? minus[i][1] : 0);
        for (size_t n = in->cols / BN_QUAD; n > 0; n -= 2, p += 2 * BN_G2_QUAD_BYTES) {
            _mm_prefetch((const char *)p + w->ahead, _MM_HINT_T0);
            for (size_t j = 0; j < 2; j++, high += BN_QUAD, low += BN_QUAD) {
                __m256i v = _mm256_loadu_si256((const void *)(p + j * BN_G2_QUAD_BYTES));
                __m256i h = _mm256_srli_epi16(v, 4);
                add(&a, v, h, high);
                if (n_planes == 2) add(&b, v, h, low);
            }
        }
        const uint16_t *scale = bn_piece_scales(w, in, r, BN_G2_ROWS, i);
        __m256 unit = _mm256_set1_ps(x->unit[i * in->cols / BN_K_ALIGN]);
#define FOLD(f, four)                                                        \
    acc##f = bn_lane_fold(acc##f, field_sum(a.s##f, b.s##f, four, n_planes), \
                          scale ? scale + BN_LANE_ROWS * f : NULL, unit)
        FOLD(0, false);
        FOLD(1, true);
        FOLD(2, false);
        FOLD(3, true);
#undef FOLD
    }
    bn_lane_store(y, w, r, r1, acc0);
    bn_lane_store(y, w, r + BN_LANE_ROWS, r1, acc1);
    bn_lane_store(y, w, r + 2 * BN_LANE_ROWS, r1, acc2);
    bn_lane_store(y, w, r + 3 * BN_LANE_ROWS, r1, acc3);
}

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1,
                    const struct bn_planes *x)
{
    int32_t minus[PIECES_MAX][2];
    struct bn_pieces in = bn_pieces(w);
    for (size_t i = 0; i < in.count; i++)
        for (size_t p = 0; p < x->n_planes; p++)
            minus[i][p] = minus_sums(x->q + p * x->plane_stride + i * in.cols, in.cols);
    for (size_t r = r0; r < r1; r += BN_G2_ROWS)
        if (x->n_planes == 2) group_one(y, w, r, r1, x, (const int32_t(*)[2])minus, &in, 2);
        else group_one(y, w, r, r1, x, (const int32_t(*)[2])minus, &in, 1);
}

/* The layout's own bytes. */
static const uint8_t *codes(uint8_t *room, const struct bn_packed *w, size_t r, size_t piece_col,
                            size_t cols, size_t part)
{
    (void)room, (void)cols, (void)part;
    return w->data + r / BN_G2_ROWS * bn_g2_group_bytes(w->cols) +
           piece_col / BN_QUAD * BN_G2_QUAD_BYTES;
}

static const struct bn_planes_plan g2 = {BN_G2_ROWS, 1, FIELDS, codes};

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x);
    else bn_mul_planes_avx2(a, x, &g2);
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    bn_mul_planes_tables_avx2(a, x, &g2, mul_planes);
}

static size_t many_bytes(size_t rows, size_t cols)
{
    return bn_planes_tables_bytes_avx2(rows, cols, BN_G2_ROWS);
}

const struct bn_gemm bn_gemm_g2_avx2 = {BN_GROUPS_LAYOUT(g2, BN_G2_ROWS), .mul_planes = mul_planes,
                                        .many_from = BN_PLANES_MANY_FROM, .many_bytes = many_bytes,
                                        .mul_planes_many = mul_many};
