/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over codes: what the variants share. The includer defines dot_pairs(), and for how many
 * queries and octets at a time sums are kept in registers.
 *
 * Scores and values are the same work: rows of a tile hold pairs of codes, which are multiplied by a
 * pair of integers of each query, the same for all lanes, and summed. Lanes are keys or channels, so
 * that nothing is ever added across a register. Codes of 4 and 2 bits are not cut out of their bytes:
 * an octet is summed with the ones above it in the same byte, whose own sum is then subtracted, once a
 * tile. Sums may wrap around on the way. */
#ifndef BN_KERNELS_WIDE_ATTN_CODES_H
#define BN_KERNELS_WIDE_ATTN_CODES_H

#include "kernels/wide/attn.h"

enum { OCTETS = 4, QUERIES_MAX = 4, STEP = 4 /* rows at a time */ };

/* sums of a tile: of a query's octets */
typedef int32_t sums[QUERIES_MAX][OCTETS][8];

/* What a block's steps give once for all queries. */
struct shares {
    int16_t k[BN_KV_DIM_MAX], v[BN_KV_DIM_MAX];
    float k_most, v_most[BN_KV_DIM_MAX / BN_KV_GROUP];
};

/* ---- steps ---- */

/* The largest of n halves that are no less than 0, n a multiple of 16; the first `count` of them. */
ALWAYS float largest_half(const uint8_t *steps, size_t n, size_t count)
{
    w_int max = w_setzero_si256();
    for (size_t i = 0; i < n; i += 16) {
        w_int x = w_loadu_si256((const void *)(steps + 2 * i));
        if (count < n) {
            const w_int at = w_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            x = w_and_si256(x, w_cmpgt_epi16(w_set1_epi16((short)(count - i)), at));
        }
        max = w_max_epu16(max, x);
    }
    h_int m = h_max_epu16(w_castsi256_si128(max), w_extracti128_si256(max, 1));
    m = h_minpos_epu16(h_xor_si128(m, h_set1_epi16(-1)));
    float d = h_cvtsh_ss((unsigned short)~h_extract_epi16(m, 0));
    return d + (d - d);
}

/* D of n steps, of which `count` are there, and their shares. */
ALWAYS float make_shares(int16_t *e, const uint8_t *steps, size_t n, size_t count)
{
    float d = largest_half(steps, n, count);
    w_f32 inv = w_set1_ps(d > 0 ? 32767 / d : 0);
    for (size_t i = 0; i < n; i += 16) {
        w_int lo = w_cvtps_epi32(w_mul_ps(bn_load_f16((const void *)(steps + 2 * i)), inv));
        w_int hi = w_cvtps_epi32(w_mul_ps(bn_load_f16((const void *)(steps + 2 * i + 16)), inv));
        w_int x = w_pack_i16(lo, hi);
        w_storeu_si256((void *)(e + i), x);
    }
    return d;
}

/* to = h(x, e), n a multiple of 16 */
ALWAYS void parts(int16_t *to, const int16_t *x, const int16_t *e, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        w_storeu_si256((void *)(to + i), w_mulhrs_epi16(w_loadu_si256((const void *)(x + i)),
                                                        w_loadu_si256((const void *)(e + i))));
}

/* ---- tiles ---- */

/* Octets [first, first + n) of a row as 16 bits, with what is above them in their bytes. */
ALWAYS void row_codes(w_int *x, const uint8_t *row, const unsigned bits, const size_t first,
                      const size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t octet = first + i, per = 8 / bits;
        h_int bytes = h_loadu_si128((const void *)(row + octet / per * 16));
        if (bits == 8) x[i] = w_cvtepi8_epi16(bytes);
        else x[i] = w_srli_epi16(w_cvtepu8_epi16(bytes), (int)(octet % per * bits));
    }
}

/* One row. w: its pair of integers, for each query. */
ALWAYS void add_row(w_int *acc, const uint8_t *row, const int16_t *w, size_t w_stride,
                    const unsigned bits, const size_t first, const size_t nq, const size_t no)
{
    w_int x[OCTETS];
    row_codes(x, row, bits, first, no);
    for (size_t h = 0; h < nq; h++) {
        int32_t two;
        memcpy(&two, w + h * w_stride, sizeof two);
        w_int pair = w_set1_epi32(two);
        for (size_t i = 0; i < no; i++) {
            acc[h * no + i] = dot_pairs(acc[h * no + i], x[i], pair);
            W_KEEP(acc[h * no + i]); /* else gcc keeps two of each */
        }
    }
}

/* Rows of codes and what they are multiplied with. */
struct rows {
    const uint8_t *codes;
    size_t n;
    const int16_t *w;    /* pairs of integers, */
    size_t w_stride;     /* a query so many after the other */
    const uint8_t *next; /* asked for meanwhile */
};

/* Sums of nq queries and no octets from the first one on. */
ALWAYS void some_sums(sums s, const struct rows *a, const unsigned bits, const size_t first,
                      const size_t nq, const size_t no)
{
    const uint8_t *codes = a->codes, *next = a->next;
    const int16_t *w = a->w;
    w_int acc[16];
    for (size_t i = 0; i < nq * no; i++) acc[i] = w_setzero_si256();
    for (size_t r = 0; r < a->n; r += STEP) {
        for (size_t i = 0; i < STEP; i++)
            add_row(acc, codes + i * 8 * bits, w + 2 * i, a->w_stride, bits, first, nq, no);
        for (size_t i = 0; first == 0 && i < STEP * 8 * bits; i += 64)
            h_prefetch((const char *)next + i, H_T1);
        codes += STEP * 8 * bits;
        next += STEP * 8 * bits;
        w += 2 * STEP;
    }
    for (size_t h = 0; h < nq; h++)
        for (size_t i = 0; i < no; i++) w_store_si256((void *)s[h][first + i], acc[h * no + i]);
}

/* Functions of their own, for each number of queries and bits: their loops are where the time goes, and
 * need all registers. */
#define SUMS(nq, bits)                                                                             \
    static __attribute__((noinline)) void sums_##nq##_##bits(sums s, const uint8_t *codes,         \
                                                             size_t n, const int16_t *w,           \
                                                             size_t w_stride, const uint8_t *next) \
    {                                                                                              \
        const size_t no = nq > ATTN_FULL_QUERIES ? 2 : OCTETS;                                     \
        const struct rows a = {codes, n, w, w_stride, next};                                       \
        for (size_t first = 0; first < OCTETS; first += no) some_sums(s, &a, bits, first, nq, no); \
    }
SUMS(4, 8)
SUMS(4, 4)
SUMS(4, 2)
SUMS(2, 8)
SUMS(2, 4)
SUMS(2, 2)
SUMS(1, 8)
SUMS(1, 4)
SUMS(1, 2)

ALWAYS void all_sums(sums s, const uint8_t *codes, size_t rows, const int16_t *w, size_t w_stride,
                     const unsigned bits, const uint8_t *next, const size_t nq)
{
    if (nq == 4)
        (bits == 8 ? sums_4_8 : bits == 4 ? sums_4_4 : sums_4_2)(s, codes, rows, w, w_stride, next);
    else if (nq == 2)
        (bits == 8 ? sums_2_8 : bits == 4 ? sums_2_4 : sums_2_2)(s, codes, rows, w, w_stride, next);
    else
        (bits == 8 ? sums_1_8 : bits == 4 ? sums_1_4 : sums_1_2)(s, codes, rows, w, w_stride, next);
}

/* An octet's own sum, as a float. */
ALWAYS w_f32 sum_of(const int32_t (*s)[8], const size_t octet, const unsigned bits)
{
    w_int x = w_load_si256((const void *)s[octet]);
    if (bits < 8 && (octet + 1) % (8 / bits) != 0) {
        w_int above = w_load_si256((const void *)s[octet + 1]);
        x = w_sub_epi32(x, w_slli_epi32(above, (int)bits));
    }
    return w_cvtepi32_ps(x);
}

/* ---- scores ---- */

ALWAYS void scores8(float (*p)[BN_ATTN_BLOCK], const struct bn_attn_codes *a, size_t query,
                    const uint8_t *next, const size_t nq)
{
    _Alignas(32) sums s;
    const int16_t *q = a->q_code + query * a->dim;
    memset(p, 0, nq * sizeof *p);
    for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++) {
        size_t at = bn_kv_tile_at(a->dim, 8, g);
        all_sums(s, a->k + at, BN_KV_ROWS, q + g * BN_KV_GROUP, a->dim, 8, next + at, nq);
        for (size_t i = 0; i < OCTETS; i++) {
            w_f32 d = bn_load_f16((const void *)(a->k + 2 * (g * BN_ATTN_BLOCK + 8 * i)));
            for (size_t h = 0; h < nq; h++) {
                w_f32 x = w_mul_ps(sum_of(s[h], i, 8), d);
                w_storeu_ps(p[h] + 8 * i, w_add_ps(w_loadu_ps(p[h] + 8 * i), x));
            }
        }
    }
    for (size_t h = 0; h < nq; h++) {
        w_f32 f = w_set1_ps(a->q_unit[query + h] * a->scale);
        for (size_t i = 0; i < OCTETS; i++)
            w_storeu_ps(p[h] + 8 * i, w_mul_ps(w_loadu_ps(p[h] + 8 * i), f));
    }
}

/* dot(q, min) of nq queries */
ALWAYS void bases(float *to, const float *q, const uint8_t *min, size_t dim, const size_t nq)
{
    struct bn_l16 s[QUERIES_MAX];
    for (size_t h = 0; h < QUERIES_MAX; h++) s[h] = bn_l16_zero();
    for (size_t i = 0; i < dim; i += 16) {
        struct bn_l16 m = {bn_load_f16((const void *)(min + 2 * i)),
                           bn_load_f16((const void *)(min + 2 * i + 16))};
        for (size_t h = 0; h < nq; h++)
            s[h] = bn_l16_mul_add(s[h], bn_l16_load(q + h * dim + i), m);
    }
    h_storeu_ps(to, bn_l16_sum4(s[0], s[1], s[2], s[3]));
}

ALWAYS void scores42(float (*p)[BN_ATTN_BLOCK], const struct bn_attn_codes *a, size_t query,
                     const struct shares *e, const uint8_t *next, const size_t nq,
                     const unsigned bits)
{
    _Alignas(32) sums s;
    int16_t w[QUERIES_MAX * BN_KV_DIM_MAX];
    float base[QUERIES_MAX];
    size_t at = bn_kv_tile_at(a->dim, bits, 0);
    for (size_t h = 0; h < nq; h++)
        parts(w + h * a->dim, a->q_code + (query + h) * a->dim, e->k, a->dim);
    all_sums(s, a->k + at, a->dim / 2, w, a->dim, bits, next + at, nq);
    bases(base, a->q + query * a->dim, a->k + 2 * a->dim, a->dim, nq);
    for (size_t h = 0; h < nq; h++) {
        w_f32 f = w_set1_ps(a->q_unit[query + h] * (e->k_most * BN_CODES_UNIT));
        for (size_t i = 0; i < OCTETS; i++) {
            w_f32 x = w_add_ps(w_mul_ps(sum_of(s[h], i, bits), f), w_set1_ps(base[h]));
            w_storeu_ps(p[h] + 8 * i, w_mul_ps(x, w_set1_ps(a->scale)));
        }
    }
}

/* The last two levels of four sums or maxima of eight, side by side. */
ALWAYS h_f32 max4(const w_f32 *x)
{
    h_f32 v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = h_max_ps(w_castps256_ps128(x[i]), w_extractf128_ps(x[i], 1));
    H_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
    return h_max_ps(h_max_ps(v[0], v[1]), h_max_ps(v[2], v[3]));
}

/* Of a block, for some queries: scores and then weights, their sums, and factors for the old state and
 * for the block. */
struct weights {
    float p[QUERIES_MAX][BN_ATTN_BLOCK], lb[QUERIES_MAX], fa[QUERIES_MAX], fc[QUERIES_MAX];
};

/* Scores of nq queries to weights, and their states take in the block. Beyond n a score is -inf, its weight +0, or with a maximum of -inf a NaN, but then so
 * is every weight. */
ALWAYS void weigh_some(struct weights *to, size_t n, float *m, float *l, const size_t nq)
{
    float(*p)[BN_ATTN_BLOCK] = to->p;
    w_f32 max[4];
    struct bn_l16 s[4];
    float mb[4];
    for (size_t h = 0; h < 4; h++) {
        float *x = p[h % nq];
        for (size_t i = n; i < BN_ATTN_BLOCK; i++) x[i] = -INFINITY;
        max[h] = w_max_ps(w_loadu_ps(x), w_set1_ps(-INFINITY));
        for (size_t i = 8; i < BN_ATTN_BLOCK; i += 8) max[h] = w_max_ps(w_loadu_ps(x + i), max[h]);
    }
    h_f32 most = h_add_ps(max4(max), h_setzero_ps());
    h_storeu_ps(mb, most);
    for (size_t h = 0; h < 4; h++) {
        w_f32 w[OCTETS];
        if (h >= nq) {
            s[h] = s[0];
            continue;
        }
        for (size_t i = 0; i < OCTETS; i++) {
            w[i] = bn_exp8(w_sub_ps(w_loadu_ps(p[h] + 8 * i), w_set1_ps(mb[h])));
            w_storeu_ps(p[h] + 8 * i, w[i]);
        }
        s[h] = (struct bn_l16){w_add_ps(w[0], w[2]), w_add_ps(w[1], w[3])};
    }
    h_f32 sum = bn_l16_sum4(s[0], s[1], s[2], s[3]), old = h_load_head(m, nq);
    h_f32 mn = h_max_ps(most, old); /* most > old ? most : old */
    w_f32 f = bn_exp8(w_sub_ps(w_set_m128(most, old), w_set_m128(mn, mn)));
    h_f32 a = w_castps256_ps128(f), c = w_extractf128_ps(f, 1);
    h_storeu_ps(to->lb, sum);
    h_storeu_ps(to->fa, a);
    h_storeu_ps(to->fc, c);
    h_store_head(l, nq, h_add_ps(h_mul_ps(h_load_head(l, nq), a), h_mul_ps(sum, c)));
    h_store_head(m, nq, mn);
}

/* ---- values ---- */

/* Weights as integers. */
ALWAYS void int_weights(int16_t *to, const float *p)
{
    for (size_t i = 0; i < BN_ATTN_BLOCK; i += 16) {
        const w_f32 f = w_set1_ps(32767);
        w_int lo = w_cvtps_epi32(w_mul_ps(w_loadu_ps(p + i), f));
        w_int hi = w_cvtps_epi32(w_mul_ps(w_loadu_ps(p + i + 8), f));
        w_storeu_si256((void *)(to + i), w_pack_i16(lo, hi));
    }
}

/* Lane sums of p * min for nq queries. A sum may be -0 instead of +0: it is added to a number that is
 * not -0. Weights beyond the block's keys are zeros, its minima are all there. */
ALWAYS void value_bases(float *to, const float (*p)[BN_ATTN_BLOCK], const uint8_t *min,
                        const size_t nq)
{
    struct bn_l16 s[QUERIES_MAX];
    w_f32 m[OCTETS];
    for (size_t i = 0; i < OCTETS; i++) m[i] = bn_load_f16((const void *)(min + 16 * i));
    for (size_t h = 0; h < QUERIES_MAX; h++) {
        s[h] = bn_l16_zero();
        if (h >= nq) continue;
        w_f32 x[OCTETS];
        for (size_t i = 0; i < OCTETS; i++) x[i] = w_mul_ps(w_loadu_ps(p[h] + 8 * i), m[i]);
        s[h].lo = w_add_ps(x[0], x[2]);
        s[h].hi = w_add_ps(x[1], x[3]);
    }
    h_storeu_ps(to, bn_l16_sum4(s[0], s[1], s[2], s[3]));
}

ALWAYS void values(const struct bn_attn_codes *a, size_t query, const struct weights *from,
                   const struct shares *e, const uint8_t *next, const size_t nq,
                   const unsigned bits)
{
    const float(*p)[BN_ATTN_BLOCK] = (const float(*)[BN_ATTN_BLOCK])from->p;
    const float *lb = from->lb, *fa = from->fa, *fc = from->fc;
    _Alignas(32) sums s;
    int16_t ip[QUERIES_MAX][BN_ATTN_BLOCK], w[QUERIES_MAX][BN_ATTN_BLOCK];
    float base[QUERIES_MAX];
    for (size_t h = 0; h < nq; h++) int_weights(ip[h], p[h]);
    for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++) {
        size_t at = bn_kv_tile_at(a->dim, bits, g);
        for (size_t h = 0; h < nq; h++) parts(w[h], ip[h], e->v + g * BN_ATTN_BLOCK, BN_ATTN_BLOCK);
        all_sums(s, a->v + at, BN_KV_ROWS, w[0], BN_ATTN_BLOCK, bits, next + at, nq);
        if (bits < 8) value_bases(base, p, a->v + 2 * (a->dim + g * BN_ATTN_BLOCK), nq);
        for (size_t h = 0; h < nq; h++) {
            float *o = a->o + (query + h) * a->dim + g * BN_KV_GROUP;
            w_f32 f = w_set1_ps(e->v_most[g] * (BN_CODES_UNIT / 32767) + (lb[h] - lb[h]));
            for (size_t i = 0; i < OCTETS; i++) {
                w_f32 x = w_mul_ps(sum_of(s[h], i, bits), f);
                if (bits < 8) x = w_add_ps(x, w_set1_ps(base[h]));
                w_f32 old = w_mul_ps(w_loadu_ps(o + 8 * i), w_set1_ps(fa[h]));
                w_storeu_ps(o + 8 * i, w_add_ps(old, w_mul_ps(x, w_set1_ps(fc[h]))));
            }
        }
    }
}

/* ---- blocks ---- */

ALWAYS void codes_scores(float (*p)[BN_ATTN_BLOCK], const struct bn_attn_codes *a, size_t query,
                         const struct shares *e, const uint8_t *next, const size_t nq)
{
    if (a->k_bits == 8) scores8(p, a, query, next, nq);
    else if (a->k_bits == 4) scores42(p, a, query, e, next, nq, 4);
    else scores42(p, a, query, e, next, nq, 2);
}

ALWAYS void some_queries(const struct bn_attn_codes *a, size_t query, const struct shares *e,
                         const uint8_t *next_k, const uint8_t *next_v, const size_t nq)
{
    struct weights w;
    codes_scores(w.p, a, query, e, next_k, nq);
    weigh_some(&w, a->n, a->m + query, a->l + query, nq);
    if (a->v_bits == 8) values(a, query, &w, e, next_v, nq, 8);
    else if (a->v_bits == 4) values(a, query, &w, e, next_v, nq, 4);
    else values(a, query, &w, e, next_v, nq, 2);
}

/* Asks for the steps and minima of a block; its codes follow row by row. */
ALWAYS void fetch_steps(const uint8_t *block, size_t dim, unsigned bits)
{
    for (size_t i = 0; i < bn_kv_tile_at(dim, bits, 0); i += 64)
        h_prefetch((const char *)block + i, H_T1);
}

ALWAYS void attn_codes(const struct bn_attn_codes *a)
{
    struct shares e;
    const uint8_t *next_k = a->next_k ? a->next_k : a->k, *next_v = a->next_v ? a->next_v : a->v;
    fetch_steps(next_k, a->dim, a->k_bits);
    fetch_steps(next_v, a->dim, a->v_bits);
    if (a->k_bits < 8) e.k_most = make_shares(e.k, a->k, a->dim, a->dim);
    for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++)
        e.v_most[g] =
            make_shares(e.v + g * BN_ATTN_BLOCK, a->v + 2 * g * BN_ATTN_BLOCK, BN_ATTN_BLOCK, a->n);
    size_t i = 0;
    for (; i + 4 <= a->n_q; i += 4) some_queries(a, i, &e, next_k, next_v, 4);
    for (; i + 2 <= a->n_q; i += 2) some_queries(a, i, &e, next_k, next_v, 2);
    if (i < a->n_q) some_queries(a, i, &e, next_k, next_v, 1);
}

#endif
