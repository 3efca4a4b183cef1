/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over one block of rows of floats. The includer defines ATTN_WIDE, the kind of what
 * was widened into a buffer. Up to four query heads go together, so that a key or
 * value is loaded (and widened, if it is f16) once for all of them, and so that there are always
 * eight independent chains of additions: heads times keys for the scores, heads times registers of
 * the head's dimension for the weighted sum of values. Four, the usual group, have code of their
 * own: their scores lie side by side, so that the softmax is the same for one as for four.
 *
 * Many queries (several tokens of a prompt) pay for widening keys and values once, into a buffer,
 * and for turning the keys over, so that a register holds one dimension of eight keys: then the 16
 * lanes of a score are 16 registers, and their tree is plain additions without any shuffle.
 *
 * A block of keys and one of values lie in different pages of the cache, too short for the
 * hardware's prefetcher to get going. So while a row is worked on, the same row of the next block is
 * asked for: one by one, because a core waits when it asks for more than some twenty lines at a
 * time; into the second cache, because the first one would lose what is in use. For four queries the
 * values of the block itself are brought from there into the first cache while its scores are made. */
#ifndef BN_KERNELS_WIDE_ATTN_ROWS_H
#define BN_KERNELS_WIDE_ATTN_ROWS_H

#include "kernels/wide/attn.h"

#include <math.h>

/* n < 8 elements, the rest +0 */
ALWAYS w_f32 load_head(const void *p, size_t i, size_t n, const enum kind kind)
{
    const void *from = at(p, i, kind);
    uint16_t few[8] = {0};
    if (kind == F32 || kind == SHORT) return bn_load_head(from, n);
    memcpy(few, from, n * size_of(kind));
    return load(few, 0, kind);
}

ALWAYS struct bn_l16 load16(const void *p, size_t at, const enum kind kind)
{
    return (struct bn_l16){load(p, at, kind), load(p, at + 8, kind)};
}

ALWAYS struct bn_l16 load16_head(const void *p, size_t at, size_t n, const enum kind kind)
{
    if (n < 8) return (struct bn_l16){load_head(p, at, n, kind), w_setzero_ps()};
    return (struct bn_l16){load(p, at, kind),
                           n > 8 ? load_head(p, at + 8, n - 8, kind) : w_setzero_ps()};
}

ALWAYS struct bn_l16 mul_add16(struct bn_l16 s, struct bn_l16 a, struct bn_l16 b,
                               const enum kind kind)
{
    return (struct bn_l16){mul_add(s.lo, a.lo, b.lo, kind), mul_add(s.hi, a.hi, b.hi, kind)};
}

/* p[h][j] = dot(q_h, k_j) * scale for nq heads (1 or 2) and 4 / nq keys at a time; the last keys may
 * be the same one again, whose results are not stored. */
ALWAYS void scores(float (*p)[BN_ATTN_BLOCK], const struct bn_attn_args *a, const size_t nq,
                   const enum kind kind)
{
    const size_t nk = 4 / nq, n = a->n, dim = a->dim;
    const float *q = a->q;
    const void *k = a->k;
    for (size_t j = 0; j < n; j += nk) {
        struct bn_l16 s[4];
        size_t from[4], i = 0;
        for (size_t x = 0; x < 4; x++) s[x] = bn_l16_zero();
        for (size_t x = 0; x < nk; x++) {
            from[x] = bn_min_size(j + x, n - 1) * a->kv_stride;
            fetch(a->next_k, from[x], 0, dim, kind);
        }
        for (; i + 16 <= dim; i += 16)
            for (size_t x = 0; x < nk; x++) {
                struct bn_l16 key = load16(k, from[x] + i, kind);
                for (size_t h = 0; h < nq; h++)
                    s[h * nk + x] =
                        mul_add16(s[h * nk + x], bn_l16_load(q + h * dim + i), key, kind);
            }
        if (i < dim)
            for (size_t x = 0; x < nk; x++) {
                struct bn_l16 key = load16_head(k, from[x] + i, dim - i, kind);
                for (size_t h = 0; h < nq; h++)
                    s[h * nk + x] = mul_add16(
                        s[h * nk + x], bn_l16_load_head(q + h * dim + i, dim - i), key, kind);
            }
        float out[4];
        h_storeu_ps(out, h_mul_ps(bn_l16_sum4(s[0], s[1], s[2], s[3]), h_set1_ps(a->scale)));
        for (size_t x = 0; x < nk && j + x < n; x++)
            for (size_t h = 0; h < nq; h++) p[h][j + x] = out[h * nk + x];
    }
}

/* Where products are to be exact: the weights of nq queries as short floats. Values of e4m3 come by
 * 2^-8, so that what they give must be taken 2^8 times. */
ALWAYS void short_weights(float *p, float *c, size_t nq, const enum kind kind)
{
    if (kind < E4M3) return;
    for (size_t i = 0; i < nq * BN_ATTN_BLOCK; i += 8)
        w_storeu_ps(p + i, bn_short8(w_loadu_ps(p + i)));
    for (size_t h = 0; h < nq; h++) c[h] *= kind == E4M3 ? 0x1p8f : 1;
}

/* The weights of a block for nq heads: that of head h and key j is p[h * ph + j * pj]; and the factors
 * of the old state and of the block, [nq]. */
struct weights {
    const float *p;
    size_t ph, pj, nq;
    const float *fa, *fc;
};

/* nr registers of o at d: o = o * fa + (sum over keys of p v) * fc; the last register holds `last`
 * elements. v: from element d of the first value on. */
ALWAYS void values(const struct bn_attn_args *a, const struct weights *w, const void *v, size_t d,
                   const size_t nr, size_t last, const enum kind kind)
{
    const size_t nq = w->nq, n = a->n, stride = a->kv_stride;
    const void *next = a->next_v;
    const float *p = w->p;
    w_f32 s[8];
    for (size_t x = 0; x < nq * nr; x++) s[x] = w_setzero_ps();
    for (size_t j = 0; j < n; j++) {
        fetch(next, j * stride, d, 8 * nr, kind);
        w_f32 val[8];
        if (kind == E4M3 && nr % 2 == 0)
            for (size_t r = 0; r < nr; r += 2)
                widen16_e4m3(&val[r], &val[r + 1], h_loadu_si128(at(v, j * stride + 8 * r, kind)));
        else
            for (size_t r = 0; r < nr; r++) {
                size_t e = j * stride + 8 * r;
                val[r] = last == 8 ? load(v, e, kind) : load_head(v, e, last, kind);
            }
        for (size_t h = 0; h < nq; h++) {
            w_f32 x = w_broadcast_ss(&p[h * w->ph + j * w->pj]);
            for (size_t r = 0; r < nr; r++) s[h * nr + r] = mul_add(s[h * nr + r], x, val[r], kind);
        }
    }
    for (size_t h = 0; h < nq; h++)
        for (size_t r = 0; r < nr; r++) {
            float *out = a->o + h * a->dim + d + 8 * r;
            w_f32 old = last == 8 ? w_loadu_ps(out) : bn_load_head(out, last);
            w_f32 v8 = w_add_ps(w_mul_ps(old, w_broadcast_ss(&w->fa[h])),
                                w_mul_ps(s[h * nr + r], w_broadcast_ss(&w->fc[h])));
            if (last == 8) w_storeu_ps(out, v8);
            else bn_store_head(out, last, v8);
        }
}

/* values() for all dimensions */
ALWAYS void head_values(const struct bn_attn_args *a, const struct weights *w, const enum kind kind)
{
    const size_t nr = 8 / w->nq, dim = a->dim;
    size_t d = 0;
    for (; d + 8 * nr <= dim; d += 8 * nr) values(a, w, at(a->v, d, kind), d, nr, 8, kind);
    for (; d + 8 <= dim; d += 8) values(a, w, at(a->v, d, kind), d, 1, 8, kind);
    if (d < dim) values(a, w, at(a->v, d, kind), d, 1, dim - d, kind);
}

/* The first nq queries, 1 or 2 */
ALWAYS void attn_heads(const struct bn_attn_args *a, const size_t nq, const enum kind kind)
{
    float p[2][BN_ATTN_BLOCK], fa[2], fc[2];
    scores(p, a, nq, kind);
    for (size_t h = 0; h < nq; h++) fold_block(p[h], a->n, &a->m[h], &a->l[h], &fa[h], &fc[h]);
    short_weights(p[0], fc, nq, kind);
    head_values(a, &(struct weights){p[0], BN_ATTN_BLOCK, 1, nq, fa, fc}, kind);
}

/* ---- four queries ---- */

/* Lanes x to x + 7 (x is 0 or 8) of the scores of four queries with the keys at k0 and k1: a query
 * is loaded once for both. s[2 * query + key]. ahead: the next block's keys if x is 0, else the values
 * of these. */
ALWAYS void four_lanes(w_f32 *s, const float *q, const void *k0, const void *k1, const void *ahead,
                       const size_t x, size_t dim, const enum kind kind)
{
    size_t i = x;
    for (size_t h = 0; h < 8; h++) s[h] = w_setzero_ps();
    for (; i + 8 <= dim; i += BN_LANES) {
        w_f32 a = load(k0, i, kind), b = load(k1, i, kind);
        fetch_step(ahead, i - x, x > 0, kind);
        for (size_t h = 0; h < 4; h++) {
            w_f32 y = w_loadu_ps(q + h * dim + i);
            s[2 * h] = mul_add(s[2 * h], y, a, kind);
            s[2 * h + 1] = mul_add(s[2 * h + 1], y, b, kind);
        }
    }
    if (i >= dim) return;
    w_f32 a = load_head(k0, i, dim - i, kind), b = load_head(k1, i, dim - i, kind);
    for (size_t h = 0; h < 4; h++) {
        w_f32 y = bn_load_head(q + h * dim + i, dim - i);
        s[2 * h] = mul_add(s[2 * h], y, a, kind);
        s[2 * h + 1] = mul_add(s[2 * h + 1], y, b, kind);
    }
}

ALWAYS void four_scores(four p, const struct bn_attn_args *a, const enum kind kind)
{
    const size_t n = a->n, dim = a->dim, stride = a->kv_stride;
    const void *next = a->next_k ? a->next_k : a->k;
    for (size_t j = 0; j < n; j += 2) {
        size_t second = bn_min_size(j + 1, n - 1); /* perhaps the same one again */
        const void *k0 = at(a->k, j * stride, kind), *k1 = at(a->k, second * stride, kind);
        w_f32 lo[8], lanes[8];
        four_lanes(lanes, a->q, k0, k1, at(next, j * stride, kind), 0, dim, kind);
        for (size_t i = 0; i < 8; i++) lo[i] = lanes[i];
        __asm__("" : "+m"(lo)); /* else clang has half of both in memory, in the loops as well */
        four_lanes(lanes, a->q, k0, k1, at(a->v, j * stride, kind), 8, dim, kind);
        w_storeu_ps(p[j], w_mul_ps(four_sums(lo, lanes), w_set1_ps(a->scale)));
    }
    for (size_t j = n; j < BN_ATTN_BLOCK; j++) h_storeu_ps(p[j], h_set1_ps(-INFINITY));
}

/* The first four queries */
ALWAYS void attn_four(const struct bn_attn_args *a, const enum kind kind)
{
    four p;
    float fa[4], fc[4];
    four_scores(p, a, kind);
    four_weigh(p, a->m, a->l, fa, fc);
    short_weights(p[0], fc, 4, kind);
    head_values(a, &(struct weights){p[0], 1, 4, 4, fa, fc}, kind);
}

/* ---- many queries ---- */

enum {
    QUERIES = 32, /* queries at a time: they share a buffer of keys or values */
    KEYS = 16,    /* keys in the buffer, whose dimensions are always a multiple of 16 */
    PIECE = 64    /* dimensions of 32 values in the buffer */
};

typedef float buffer[ATTN_MANY_DIM * KEYS];

/* eight keys of eight dimensions turned over; keys beyond n are zeros */
ALWAYS void turn8(float *out, const void *k, size_t from, size_t stride, size_t n,
                  const enum kind kind)
{
    w_f32 v[8], a[8], b[8];
    for (size_t i = 0; i < 8; i++) v[i] = i < n ? load(k, from + i * stride, kind) : w_setzero_ps();
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = w_unpacklo_ps(v[i], v[i + 1]);
        a[i + 1] = w_unpackhi_ps(v[i], v[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            b[i + 2 * j] = w_shuffle_ps(a[i + j], a[i + j + 2], 0x44);
            b[i + 2 * j + 1] = w_shuffle_ps(a[i + j], a[i + j + 2], 0xee);
        }
    for (size_t i = 0; i < 4; i++) {
        w_storeu_ps(out + i * KEYS, w_permute2f128_ps(b[i], b[i + 4], 0x20));
        w_storeu_ps(out + (i + 4) * KEYS, w_permute2f128_ps(b[i], b[i + 4], 0x31));
    }
}

/* p[h][j] = dot(q_h, k_j) * scale for nq queries and the 16 keys of the buffer kt: [dim][KEYS] */
ALWAYS void scores_turned(float (*p)[BN_ATTN_BLOCK], const float *q, const float *kt, size_t dim,
                          float scale, const size_t nq, const enum kind kind)
{
    w_f32 lane[BN_LANES][4][2];
    for (size_t j = 0; j < BN_LANES; j++) {
        w_f32 s[4][2];
        for (size_t h = 0; h < nq; h++) s[h][0] = s[h][1] = w_setzero_ps();
        for (size_t i = j; i < dim; i += BN_LANES) {
            w_f32 k0 = w_loadu_ps(kt + i * KEYS), k1 = w_loadu_ps(kt + i * KEYS + 8);
            for (size_t h = 0; h < nq; h++) {
                w_f32 x = w_broadcast_ss(q + h * dim + i);
                s[h][0] = mul_add(s[h][0], x, k0, kind);
                s[h][1] = mul_add(s[h][1], x, k1, kind);
            }
        }
        for (size_t h = 0; h < nq; h++) lane[j][h][0] = s[h][0], lane[j][h][1] = s[h][1];
    }
    for (size_t h = 0; h < nq; h++)
        for (size_t x = 0; x < 2; x++) {
            w_f32 t[8];
            for (size_t j = 0; j < 8; j++) t[j] = w_add_ps(lane[j][h][x], lane[j + 8][h][x]);
            for (size_t n = 4; n > 0; n /= 2)
                for (size_t j = 0; j < n; j++) t[j] = w_add_ps(t[j], t[j + n]);
            w_storeu_ps(p[h] + 8 * x, w_mul_ps(t[0], w_set1_ps(scale)));
        }
}

static __attribute__((noinline)) void scores4(float (*p)[BN_ATTN_BLOCK], const float *q,
                                              const float *kt, size_t dim, float scale)
{
    scores_turned(p, q, kt, dim, scale, 4, ATTN_WIDE);
}

static __attribute__((noinline)) void scores1(float (*p)[BN_ATTN_BLOCK], const float *q,
                                              const float *kt, size_t dim, float scale)
{
    scores_turned(p, q, kt, dim, scale, 1, ATTN_WIDE);
}

ALWAYS void all_scores(float (*p)[BN_ATTN_BLOCK], float *kt, const struct bn_attn_args *a,
                       const enum kind kind)
{
    const size_t n_q = a->n_q, n = a->n, dim = a->dim, stride = a->kv_stride;
    for (size_t j = 0; j < n; j += KEYS) {
        size_t h = 0;
        for (size_t i = j; i < bn_min_size(j + KEYS, n); i++)
            fetch(a->next_k, i * stride, 0, dim, kind);
        for (size_t d = 0; d < dim; d += 8)
            for (size_t i = 0; i < KEYS; i += 8)
                turn8(kt + d * KEYS + i, a->k, (j + i) * stride + d, stride,
                      n > j + i ? n - j - i : 0, kind);
        float(*out)[BN_ATTN_BLOCK] = (void *)&p[0][j];
        for (; h + 4 <= n_q; h += 4) scores4(out + h, a->q + h * dim, kt, dim, a->scale);
        for (; h < n_q; h++) scores1(out + h, a->q + h * dim, kt, dim, a->scale);
    }
}

/* 16 dimensions from d on of nq queries from h on; v: these dimensions of the values, widened */
ALWAYS void wide_values(const struct bn_attn_args *a, const struct weights *w, size_t h,
                        const float *v, size_t d, const size_t nq)
{
    const struct bn_attn_args rest = bn_attn_from(a, h);
    const struct weights some = {w->p + h * w->ph, w->ph, w->pj, nq, w->fa + h, w->fc + h};
    values(&rest, &some, v, d, 2, 8, ATTN_WIDE);
}

ALWAYS void all_values(const struct bn_attn_args *a, const struct weights *w, float *wide,
                       const enum kind kind)
{
    const size_t n = a->n, dim = a->dim, stride = a->kv_stride;
    struct bn_attn_args x = *a;
    x.kv_stride = kind == F32 ? stride : PIECE;
    x.next_v = NULL;
    for (size_t d0 = 0; d0 < dim; d0 += PIECE) {
        size_t nd = bn_min_size(PIECE, dim - d0);
        const float *from = kind == F32 ? (const float *)a->v + d0 : wide;
        for (size_t j = 0; j < n; j++) fetch(a->next_v, j * stride, d0, nd, kind);
        for (size_t j = 0; kind != F32 && j < n; j++)
            for (size_t d = 0; d < nd; d += 8)
                w_storeu_ps(wide + j * PIECE + d, load(a->v, j * stride + d0 + d, kind));
        for (size_t d = 0; d < nd; d += 16) {
            size_t h = 0;
            for (; h + 4 <= w->nq; h += 4) wide_values(&x, w, h, from + d, d0 + d, 4);
            for (; h < w->nq; h++) wide_values(&x, w, h, from + d, d0 + d, 1);
        }
    }
}

/* At most QUERIES */
ALWAYS void attn_many(const struct bn_attn_args *a, const enum kind kind)
{
    float p[QUERIES][BN_ATTN_BLOCK], fa[QUERIES], fc[QUERIES], lb[QUERIES], mb[QUERIES];
    buffer wide;
    const size_t n_q = a->n_q;
    float *m = a->m, *l = a->l;
    all_scores(p, wide, a, kind);
    for (size_t h = 0; h < n_q; h++) mb[h] = weigh(p[h], a->n, &lb[h]);
    for (size_t h = 0; h < n_q; h += 8) { /* fold_block() of eight */
        size_t some = bn_min_size(8, n_q - h);
        w_f32 old = bn_load_head(m + h, some), new = bn_load_head(mb + h, some);
        w_f32 mn = w_max_ps(new, old); /* new > old ? new : old */
        w_f32 a8 = bn_exp8(w_sub_ps(old, mn)), c8 = bn_exp8(w_sub_ps(new, mn));
        w_storeu_ps(fa + h, a8);
        w_storeu_ps(fc + h, c8);
        bn_store_head(l + h, some,
                      w_add_ps(w_mul_ps(bn_load_head(l + h, some), a8),
                               w_mul_ps(bn_load_head(lb + h, some), c8)));
        bn_store_head(m + h, some, mn);
    }
    short_weights(p[0], fc, n_q, kind);
    all_values(a, &(struct weights){p[0], BN_ATTN_BLOCK, 1, n_q, fa, fc}, wide, kind);
}

/* many: attn_many(), a function of its own, so that its buffers are not in the frame of few queries */
ALWAYS void attn(const struct bn_attn_args *a, bn_attn_rows_fn *many, const enum kind kind)
{
    struct bn_attn_args rest = *a; /* in registers: only copies of it are passed on */
    if (kind == E4M3) rest.scale *= 0x1p8f;
    while (rest.n_q >= ATTN_MANY && rest.dim % 16 == 0 && rest.dim <= ATTN_MANY_DIM) {
        struct bn_attn_args some = rest;
        some.n_q = bn_min_size(QUERIES, rest.n_q);
        rest = bn_attn_from(&rest, some.n_q);
        many(&some);
        rest.next_k = rest.next_v = NULL;
    }
    for (; rest.n_q >= 4; rest = bn_attn_from(&rest, 4)) attn_four(&rest, kind);
    for (; rest.n_q >= 2; rest = bn_attn_from(&rest, 2)) attn_heads(&rest, 2, kind);
    if (rest.n_q > 0) attn_heads(&rest, 1, kind);
}

#define ATTN(name, kind)                                                            \
    static __attribute__((noinline)) void many_##name(const struct bn_attn_args *a) \
    {                                                                               \
        const struct bn_attn_args own = *a;                                         \
        attn_many(&own, kind);                                                      \
    }                                                                               \
    static void attn_##name(const struct bn_attn_args *a) { attn(a, many_##name, kind); }

#endif
