/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: activations in planes times matrices in layout "g3" (ref/gemm_groups.c): fewer bytes a weight
 * than "g2" for more work, so it wins where cores share the memory's bandwidth and one plane is all.
 * Here is one token; more are in planes.c.
 *
 * As in t3.c the digits of a = |m| are never cut out: a, a1 = t1 + 3 t2 and a2 = t2 are
 * multiplied with the activation, negated where m < 0, and the rows are separated on the sums. Why the
 * 16-bit sums are exact: they are so modulo 2^16, and a row's own is 64 weights in {-1, 0, +1} times
 * activations within +-127, at most 8128. */
#include "kernels/x86/avx2/gemm/planes.h"

enum { FIELDS = 3, TRIPLES = 2, ALL = FIELDS * TRIPLES };

ALWAYS __m256i table16(const int8_t t[14])
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7],
                                                     t[8], t[9], t[10], t[11], t[12], t[13], 0, 0));
}

struct triple {
    __m256i s0, s1, s2;
};

/* A quad of one triple: v = |m|, x with the sign of m on it */
ALWAYS void triple_add(struct triple *t, __m256i v, __m256i x)
{
    const __m256i third = table16((const int8_t[]){0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
    const __m256i ninth = table16((const int8_t[]){0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    t->s0 = bn_lane_mul_add(t->s0, v, x);
    t->s1 = bn_lane_mul_add(t->s1, _mm256_shuffle_epi8(third, v), x);
    t->s2 = bn_lane_mul_add(t->s2, _mm256_shuffle_epi8(ninth, v), x);
}

/* The rows' sums from a triple's, to 32 bits */
ALWAYS void triple_rows(__m256i *out, const struct triple *t)
{
    const __m256i three = _mm256_set1_epi16(3);
    out[0] = bn_lane_sum(_mm256_sub_epi16(t->s0, _mm256_mullo_epi16(t->s1, three)));
    out[1] = bn_lane_sum(_mm256_sub_epi16(t->s1, _mm256_mullo_epi16(t->s2, three)));
    out[2] = bn_lane_sum(t->s2);
}

/* The sums of a piece's columns for one vector. The top bits of `sign` are the signs, first those of
 * the first triple: the next ones move up by additions, which every pipe can do. */
ALWAYS void add_piece(__m256i out[ALL], const uint8_t *p, const int8_t *q, size_t cols,
                      size_t ahead)
{
    const __m256i m15 = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    struct triple a = {zero, zero, zero}, b = a;
    for (; cols > 0; cols -= BN_G3_PART_QUADS * BN_QUAD, p += BN_G3_PART_BYTES) {
        __m256i sign = _mm256_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
        _mm_prefetch((const char *)p + ahead + 128, _MM_HINT_T0);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, q += BN_QUAD) {
            __m256i n = _mm256_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            __m256i x = bn_lane_quad(q), minus = _mm256_sub_epi8(zero, x);
            triple_add(&a, _mm256_and_si256(n, m15), _mm256_blendv_epi8(x, minus, sign));
            sign = _mm256_add_epi8(sign, sign);
            triple_add(&b, _mm256_and_si256(_mm256_srli_epi16(n, 4), m15),
                       _mm256_blendv_epi8(x, minus, sign));
            sign = _mm256_add_epi8(sign, sign);
        }
    }
    triple_rows(out, &a);
    triple_rows(out + FIELDS, &b);
}

static const uint8_t *piece(const struct bn_packed *w, size_t r, size_t col)
{
    return w->data + r / BN_G3_ROWS * bn_g3_group_bytes(w->cols) +
           col / (BN_G3_PART_QUADS * BN_QUAD) * BN_G3_PART_BYTES;
}

ALWAYS void group_one(float *y, const struct bn_packed *w, size_t r, size_t r1,
                      const struct bn_planes *x, const struct bn_pieces *in, const size_t n_planes)
{
    __m256 acc[ALL];
    for (size_t f = 0; f < ALL; f++) acc[f] = _mm256_setzero_ps();
    for (size_t i = 0; i < in->count; i++) {
        const uint8_t *p = piece(w, r, i * in->cols);
        const int8_t *q = x->q + i * in->cols;
        const uint16_t *scale = bn_piece_scales(w, in, r, BN_G3_ROWS, i);
        __m256 unit = _mm256_set1_ps(x->unit[i * in->cols / BN_K_ALIGN]);
        __m256i high[ALL], low[ALL];
        add_piece(high, p, q, in->cols, w->ahead);
        if (n_planes == 2) add_piece(low, p, q + x->plane_stride, in->cols, w->ahead);
        for (size_t f = 0; f < ALL; f++)
            acc[f] = bn_lane_fold(acc[f], n_planes == 2 ? bn_lane_both(high[f], low[f]) : high[f],
                                  scale ? scale + BN_LANE_ROWS * f : NULL, unit);
    }
    for (size_t f = 0; f < ALL; f++) bn_lane_store(y, w, r + BN_LANE_ROWS * f, r1, acc[f]);
}

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1,
                    const struct bn_planes *x)
{
    struct bn_pieces in = bn_pieces(w);
    for (size_t r = r0; r < r1; r += BN_G3_ROWS)
        if (x->n_planes == 2) group_one(y, w, r, r1, x, &in, 2);
        else group_one(y, w, r, r1, x, &in, 1);
}

/* A triple's codes in fields of two bits. The table has them for m >= 0; for -m each code is 2 minus
 * that, so all three are 0x2a minus it. */
static const uint8_t *codes(uint8_t *room, const struct bn_packed *w, size_t r, size_t piece_col,
                            size_t cols, size_t part)
{
#define C(t0, t1, t2) (int8_t)((t0) + 1 + 4 * ((t1) + 1) + 16 * ((t2) + 1))
    const __m256i table = table16((const int8_t[]){
        C(0, 0, 0), C(1, 0, 0), C(-1, 1, 0), C(0, 1, 0), C(1, 1, 0), C(-1, -1, 1), C(0, -1, 1),
        C(1, -1, 1), C(-1, 0, 1), C(0, 0, 1), C(1, 0, 1), C(-1, 1, 1), C(0, 1, 1), C(1, 1, 1)});
#undef C
    const __m256i m15 = _mm256_set1_epi8(15), all = _mm256_set1_epi8(0x2a);
    const uint8_t *p = piece(w, r, piece_col);
    uint8_t *to = room;
    for (; cols > 0; cols -= BN_G3_PART_QUADS * BN_QUAD, p += BN_G3_PART_BYTES) {
        __m256i sign = _mm256_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        if (part) sign = _mm256_add_epi8(sign, sign);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, to += BN_G3_QUAD_BYTES) {
            __m256i n = _mm256_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            if (part) n = _mm256_srli_epi16(n, 4);
            __m256i c = _mm256_shuffle_epi8(table, _mm256_and_si256(n, m15));
            c = _mm256_blendv_epi8(c, _mm256_sub_epi8(all, c), sign);
            _mm256_store_si256((void *)to, c);
            sign = _mm256_slli_epi16(sign, 2); /* into the sign bit of a byte come its own */
        }
    }
    return room;
}

static const struct bn_planes_plan g3 = {BN_G3_ROWS, TRIPLES, FIELDS, codes};

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x);
    else bn_mul_planes_avx2(a, x, &g3);
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    bn_mul_planes_tables_avx2(a, x, &g3, mul_planes);
}

static size_t many_bytes(size_t rows, size_t cols)
{
    return bn_planes_tables_bytes_avx2(rows, cols, BN_G3_ROWS);
}

const struct bn_gemm bn_gemm_g3_avx2 = {BN_GROUPS_LAYOUT(g3, BN_G3_ROWS), .mul_planes = mul_planes,
                                        .many_from = BN_PLANES_MANY_FROM, .many_bytes = many_bytes,
                                        .mul_planes_many = mul_many};
