/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations in planes times matrices in layout "g3" (ref/gemm_groups.c): fewer bytes a weight
 * than "g2" for more work, so it wins where cores share the memory's bandwidth and one plane is all.
 * Here is a group of rows with one vector or two, or with several; how groups and tokens follow each
 * other is in planes.c.
 *
 * As in t3.c the digits of a = |m| are never cut out: a, a1 = t1 + 3 t2 and a2 = t2 are
 * multiplied with the activation, negated where m < 0, and the rows are separated on the sums. Why the
 * 16-bit sums are exact: they are so modulo 2^16, and a row's own is 64 weights in {-1, 0, +1} times
 * activations within +-127, at most 8128. */
#include "kernels/wide/gemm/planes.h"

enum { FIELDS = 3, TRIPLES = 2, ALL = FIELDS * TRIPLES };

ALWAYS w_int table16(const int8_t t[14])
{
    return w_broadcastsi128_si256(h_setr_epi8(t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8],
                                              t[9], t[10], t[11], t[12], t[13], 0, 0));
}

struct triple {
    w_int s0, s1, s2;
};

/* A quad of one triple: v = |m|, x with the sign of m on it */
ALWAYS void triple_add(struct triple *t, w_int v, w_int x)
{
    const w_int third = table16((const int8_t[]){0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
    const w_int ninth = table16((const int8_t[]){0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    t->s0 = w_add_pairs(t->s0, v, x);
    t->s1 = w_add_pairs(t->s1, w_shuffle_epi8(third, v), x);
    t->s2 = w_add_pairs(t->s2, w_shuffle_epi8(ninth, v), x);
}

/* The rows' sums from a triple's, to 32 bits */
ALWAYS void triple_rows(w_int *out, const struct triple *t)
{
    out[0] = w_sum_32(w_sum_sub(t->s0, w_sum_thrice(t->s1)));
    out[1] = w_sum_32(w_sum_sub(t->s1, w_sum_thrice(t->s2)));
    out[2] = w_sum_32(t->s2);
}

/* The sums of a piece's columns for one vector. The top bits of `sign` are the signs, first those of
 * the first triple: the next ones move up by additions, which every pipe can do. */
ALWAYS void add_piece(w_int out[ALL], const uint8_t *p, const int8_t *q, size_t cols, size_t ahead)
{
    const w_int m15 = w_set1_epi8(15), zero = w_setzero_si256();
    struct triple a = {zero, zero, zero}, b = a;
    for (; cols > 0; cols -= BN_G3_PART_QUADS * BN_QUAD, p += BN_G3_PART_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        h_prefetch((const char *)p + ahead, H_T0);
        h_prefetch((const char *)p + ahead + 64, H_T0);
        h_prefetch((const char *)p + ahead + 128, H_T0);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, q += BN_QUAD) {
            w_int n = w_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            w_int x = bn_lane_quad(q), minus = w_sub_epi8(zero, x);
            triple_add(&a, w_and_si256(n, m15), w_blendv_epi8(x, minus, sign));
            sign = w_add_epi8(sign, sign);
            triple_add(&b, w_and_si256(w_srli_epi16(n, 4), m15), w_blendv_epi8(x, minus, sign));
            sign = w_add_epi8(sign, sign);
        }
    }
    triple_rows(out, &a);
    triple_rows(out + FIELDS, &b);
}

/* The same for two vectors: triple h of the two, since six sums, what they need and what is decoded fill
 * the registers. Both share what is decoded; so the sign goes onto activations by vpsignb, which wants a
 * number that is not 0. */
ALWAYS void triple_two(w_int *first, w_int *second, const uint8_t *p, const int8_t *const q[2],
                       size_t cols, size_t ahead, const int h)
{
    const w_int third = table16((const int8_t[]){0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4});
    const w_int ninth = table16((const int8_t[]){0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    const w_int m15 = w_set1_epi8(15), one = w_set1_epi8(1);
    const w_int zero = w_setzero_si256();
    struct triple a = {zero, zero, zero}, b = a;
    for (size_t k = 0; k < cols; p += BN_G3_PART_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        if (h) sign = w_add_epi8(sign, sign);
        for (size_t i = 0; h == 0 && i < BN_G3_PART_BYTES; i += 64)
            h_prefetch((const char *)p + ahead + i, H_T0);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, k += BN_QUAD) {
            w_int n = w_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            w_int v = w_and_si256(h ? w_srli_epi16(n, 4) : n, m15);
            w_int v1 = w_shuffle_epi8(third, v), v2 = w_shuffle_epi8(ninth, v);
            w_int s = w_or_si256(sign, one);
            w_int x = w_sign_epi8(bn_lane_quad(q[0] + k), s);
            a.s0 = w_add_pairs(a.s0, v, x);
            a.s1 = w_add_pairs(a.s1, v1, x);
            a.s2 = w_add_pairs(a.s2, v2, x);
            x = w_sign_epi8(bn_lane_quad(q[1] + k), s);
            b.s0 = w_add_pairs(b.s0, v, x);
            b.s1 = w_add_pairs(b.s1, v1, x);
            b.s2 = w_add_pairs(b.s2, v2, x);
            sign = w_slli_epi16(sign, 2); /* into the sign bit of a byte come its own */
        }
    }
    triple_rows(first, &a);
    triple_rows(second, &b);
}

static const uint8_t *piece(const struct bn_packed *w, size_t r, size_t col)
{
    return w->data + r / BN_G3_ROWS * bn_g3_group_bytes(w->cols) +
           col / (BN_G3_PART_QUADS * BN_QUAD) * BN_G3_PART_BYTES;
}

ALWAYS void group(const struct bn_two *two, const struct bn_packed *w, size_t r, size_t r1,
                  const struct bn_pieces *in, const enum bn_two_kind kind)
{
    const size_t n_tok = kind == BN_TWO_TOKENS ? 2 : 1;
    w_f32 acc[ALL][2];
    for (size_t f = 0; f < ALL; f++) acc[f][0] = acc[f][1] = w_setzero_ps();
    for (size_t i = 0; i < in->count; i++) {
        const uint8_t *p = piece(w, r, i * in->cols);
        const int8_t *const q[2] = {two->q[0] + i * in->cols, two->q[1] + i * in->cols};
        const uint16_t *scale = bn_piece_scales(w, in, r, BN_G3_ROWS, i);
        w_int first[ALL], second[ALL];
        if (kind == BN_ONE_VECTOR) add_piece(first, p, q[0], in->cols, w->ahead);
        else {
            triple_two(first, second, p, q, in->cols, w->ahead, 0);
            triple_two(first + FIELDS, second + FIELDS, p, q, in->cols, w->ahead, 1);
        }
        for (size_t f = 0; f < ALL; f++)
            bn_two_fold(acc[f], first[f], kind == BN_ONE_VECTOR ? first[f] : second[f],
                        bn_piece_scale(scale, f), two, i * in->cols / BN_K_ALIGN, kind);
    }
    for (size_t f = 0; f < ALL; f++)
        for (size_t t = 0; t < n_tok; t++)
            bn_lane_store(two->y[t], w, r + BN_LANE_ROWS * f, r1, acc[f][t]);
}
BN_GROUP_FNS

/* A triple's codes w + 1 in fields of two bits. The table has them for m >= 0; for -m each code is 2 minus
 * that, so all three are 0x2a minus it. */
ALWAYS w_int triple_codes(w_int v, w_int sign)
{
#define C(t0, t1, t2) (int8_t)((t0) + 1 + 4 * ((t1) + 1) + 16 * ((t2) + 1))
    const w_int table = table16((const int8_t[]){
        C(0, 0, 0), C(1, 0, 0), C(-1, 1, 0), C(0, 1, 0), C(1, 1, 0), C(-1, -1, 1), C(0, -1, 1),
        C(1, -1, 1), C(-1, 0, 1), C(0, 0, 1), C(1, 0, 1), C(-1, 1, 1), C(0, 1, 1), C(1, 1, 1)});
#undef C
    w_int c = w_shuffle_epi8(table, v);
    return w_blendv_epi8(c, w_sub_epi8(w_set1_epi8(0x2a), c), sign);
}

static const uint8_t *codes(uint8_t *room, const struct bn_packed *w, size_t r, size_t piece_col,
                            size_t cols, size_t part)
{
    const w_int m15 = w_set1_epi8(15);
    const uint8_t *p = piece(w, r, piece_col);
    uint8_t *to = room;
    for (; cols > 0; cols -= BN_G3_PART_QUADS * BN_QUAD, p += BN_G3_PART_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        if (part) sign = w_add_epi8(sign, sign);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, to += BN_G3_QUAD_BYTES) {
            w_int n = w_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            if (part) n = w_srli_epi16(n, 4);
            w_store_si256((void *)to, triple_codes(w_and_si256(n, m15), sign));
            sign = w_slli_epi16(sign, 2); /* into the sign bit of a byte come its own */
        }
    }
    return room;
}

/* ---- several vectors ----
 * A piece is decoded once for all of them, into bytes with a code each, which stay in the first cache
 * while two vectors at a time meet it: a product and an addition for 32 weights and nothing else.
 * A sum begins at minus the sum of the activations, as those of g2.c do, and ends at most 8128 in size. */

enum { PIECE_BYTES = BN_STEP_QUADS * BN_G3_QUAD_BYTES /* of eight rows, at most */ };

struct decoded {
    _Alignas(32) uint8_t code[ALL][PIECE_BYTES];
    w_f32 scale[ALL];
};

ALWAYS void cut(uint8_t (*to)[PIECE_BYTES], size_t at, w_int c)
{
    const w_int m3 = w_set1_epi8(3);
    w_store_si256((void *)(to[0] + at), w_and_si256(c, m3));
    w_store_si256((void *)(to[1] + at), w_and_si256(w_srli_epi16(c, 2), m3));
    w_store_si256((void *)(to[2] + at), w_and_si256(w_srli_epi16(c, 4), m3));
}

static void decode(struct decoded *to, const struct bn_packed *w, size_t r,
                   const struct bn_pieces *in, size_t i)
{
    const w_int m15 = w_set1_epi8(15);
    const uint8_t *p = piece(w, r, i * in->cols);
    for (size_t at = 0; at < in->cols * BN_LANE_ROWS; p += BN_G3_PART_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + BN_G3_PART_QUADS * BN_G3_QUAD_BYTES));
        for (size_t k = 0; k < BN_G3_PART_BYTES; k += 64)
            h_prefetch((const char *)p + w->ahead + k, H_T0);
        for (size_t j = 0; j < BN_G3_PART_QUADS; j++, at += BN_G3_QUAD_BYTES) {
            w_int n = w_loadu_si256((const void *)(p + j * BN_G3_QUAD_BYTES));
            cut(to->code, at, triple_codes(w_and_si256(n, m15), sign));
            sign = w_add_epi8(sign, sign);
            cut(to->code + FIELDS, at, triple_codes(w_and_si256(w_srli_epi16(n, 4), m15), sign));
            sign = w_add_epi8(sign, sign);
        }
    }
    const uint16_t *scale = bn_piece_scales(w, in, r, BN_G3_ROWS, i);
    for (size_t f = 0; f < ALL; f++) to->scale[f] = bn_piece_scale(scale, f);
}

ALWAYS struct triple begin(int32_t minus)
{
    w_int s = w_set1_epi32(minus);
    return (struct triple){s, s, s};
}

ALWAYS void add(struct triple *s, w_int c0, w_int c1, w_int c2, const int8_t *q)
{
    w_int x = bn_lane_quad(q);
    s->s0 = w_add_pairs(s->s0, c0, x);
    s->s1 = w_add_pairs(s->s1, c1, x);
    s->s2 = w_add_pairs(s->s2, c2, x);
}

/* Piece i of the rows of fields f, f + 1 and f + 2 */
ALWAYS void meet(w_f32 (*acc)[2], const struct decoded *d, const struct bn_two *two,
                 const struct bn_pieces *in, size_t i, size_t f, const enum bn_two_kind kind)
{
    const bool both = kind != BN_ONE_VECTOR;
    const uint8_t *c = d->code[f];
    const int8_t *first = two->q[0] + i * in->cols, *second = two->q[1] + i * in->cols;
    struct triple a = begin(two->minus[0][i]), b = begin(both ? two->minus[1][i] : 0);
    for (size_t k = 0; k < in->cols; k += BN_QUAD, c += BN_G3_QUAD_BYTES) {
        w_int c0 = w_load_si256((const void *)c);
        w_int c1 = w_load_si256((const void *)(c + PIECE_BYTES));
        w_int c2 = w_load_si256((const void *)(c + 2 * PIECE_BYTES));
        add(&a, c0, c1, c2, first + k);
        if (both) add(&b, c0, c1, c2, second + k);
    }
    const size_t unit = i * in->cols / BN_K_ALIGN;
#define FOLD(n) \
    bn_two_fold(acc[f + n], w_sum_32(a.s##n), w_sum_32(b.s##n), d->scale[f + n], two, unit, kind)
    FOLD(0);
    FOLD(1);
    FOLD(2);
#undef FOLD
}

#define MEET_FN(kind)                                                                          \
    static __attribute__((noinline)) void meet_##kind(w_f32(*acc)[2], const struct decoded *d, \
                                                      const struct bn_two *two,                \
                                                      const struct bn_pieces *in, size_t i)    \
    {                                                                                          \
        meet(acc, d, two, in, i, 0, kind);                                                     \
        meet(acc, d, two, in, i, FIELDS, kind);                                                \
    }
MEET_FN(BN_ONE_VECTOR)
MEET_FN(BN_TWO_PLANES)
MEET_FN(BN_TWO_TOKENS)

static void several(const struct bn_two *two, size_t n, const struct bn_packed *w, size_t r,
                    size_t r1, const struct bn_pieces *in)
{
    struct decoded d;
    w_f32 acc[BN_TWOS][ALL][2];
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < ALL; f++) acc[t][f][0] = acc[t][f][1] = w_setzero_ps();
    for (size_t i = 0; i < in->count; i++) {
        decode(&d, w, r, in, i);
        for (size_t t = 0; t < n; t++)
            if (two[t].kind == BN_TWO_PLANES) meet_BN_TWO_PLANES(acc[t], &d, two + t, in, i);
            else if (two[t].kind == BN_TWO_TOKENS) meet_BN_TWO_TOKENS(acc[t], &d, two + t, in, i);
            else meet_BN_ONE_VECTOR(acc[t], &d, two + t, in, i);
    }
    for (size_t t = 0; t < n; t++)
        for (size_t f = 0; f < ALL; f++)
            for (size_t i = 0; i < (two[t].kind == BN_TWO_TOKENS ? 2 : 1); i++)
                bn_lane_store(two[t].y[i], w, r + BN_LANE_ROWS * f, r1, acc[t][f][i]);
}

static const struct bn_planes_plan g3 = {
    BN_G3_ROWS,        TRIPLES, FIELDS,        codes,
    BN_GROUPS_BY_KIND, false,   bn_minus_sums, W_FRUGAL ? several : NULL};

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    W_BASE(mul_planes)(a, x, &g3);
}

static void mul_many(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    W_BASE(mul_planes_tables)(a, x, &g3, mul_planes);
}

static size_t many_bytes(size_t rows, size_t cols)
{
    return W_BASE(planes_tables_bytes)(rows, cols, BN_G3_ROWS);
}

const struct bn_gemm W_NAME(gemm_g3) = {
    BN_GROUPS_LAYOUT(g3, BN_G3_ROWS), .frugal = W_FRUGAL,       .mul_planes = mul_planes,
    .many_from = BN_PLANES_MANY_FROM, .many_bytes = many_bytes, .mul_planes_many = mul_many};
