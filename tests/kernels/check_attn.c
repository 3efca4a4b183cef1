/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of attention: several blocks in a row over one running state, with f32 and f16 keys. */
#include "check.h"
#include "kernels/fp8.h"

#include <math.h>

enum kind { F32, F16, BF16, E4M3, E5M2 };

struct attn {
    bn_any_fn *fn;
    enum kind kind;
    float *o, *m, *l;
    const float *q;
    const void *k, *v, *next_k, *next_v;
    size_t n_q, stride, n, dim;
    float scale;
};

static void run_attn(void *p)
{
    const struct attn *a = p;
    const struct bn_attn_args args = {a->o,      a->m, a->l,   a->q,     a->n_q,    a->k,     a->v,
                                      a->stride, a->n, a->dim, a->scale, a->next_k, a->next_v};
    ((bn_attn_rows_fn *)a->fn)(&args);
}

static size_t size_of(enum kind kind) { return kind == F32 ? 4 : kind <= BF16 ? 2 : 1; }

/* Runs all blocks; n_keys keys in blocks of at most `block`. */
static bool run_blocks(struct ck *c, struct attn a, bn_any_fn *fn, size_t n_keys, size_t block,
                       struct attn *out)
{
    size_t element = size_of(a.kind);
    const uint8_t *k = a.k, *v = a.v;
    a.fn = fn;
    a.o = ck_buffer(c, a.n_q * a.dim * sizeof *a.o);
    a.m = ck_buffer(c, a.n_q * sizeof *a.m);
    a.l = ck_buffer(c, a.n_q * sizeof *a.l);
    for (size_t i = 0; i < a.n_q * a.dim; i++) a.o[i] = 0;
    for (size_t h = 0; h < a.n_q; h++) a.m[h] = -INFINITY, a.l[h] = 0;
    for (size_t j = 0; j < n_keys; j += block) {
        a.n = bn_min_size(block, n_keys - j);
        a.k = k + j * a.stride * element;
        a.v = v + j * a.stride * element;
        /* the last block's hint points behind the buffers: nothing may be read there */
        a.next_k = j % 2 ? NULL : k + (j + a.n) * a.stride * element;
        a.next_v = j % 2 ? NULL : v + (j + a.n) * a.stride * element;
        if (!ck_run(c, run_attn, &a)) return false;
    }
    *out = a;
    return true;
}

static double element(const struct attn *a, const void *p, size_t key, size_t d)
{
    size_t i = key * a->stride + d;
    switch (a->kind) {
    case F32: return (double)((const float *)p)[i];
    case F16: return (double)bn_f16_to_f32(((const uint16_t *)p)[i]);
    case BF16: return (double)bn_bf16_to_f32(((const uint16_t *)p)[i]);
    case E4M3: return (double)bn_e4m3_to_f32(((const uint8_t *)p)[i]);
    case E5M2: return (double)bn_e5m2_to_f32(((const uint8_t *)p)[i]);
    }
    return 0;
}

/* Keys or values; a row of e4m3 with a NaN has nothing else. */
static void fill_rows(struct ck *c, void *p, size_t n, size_t stride, enum kind kind,
                      enum ck_fill f)
{
    uint8_t *codes = p;
    if (kind == F32) ck_fill_f32(c, p, n, f);
    if (kind == F16) ck_fill_f16(c, p, n, f);
    if (kind < BF16) return;
    float *x = ck_buffer(c, n * sizeof *x);
    ck_fill_f32(c, x, n, f);
    if (kind == BF16) bn_f32_to_bf16_c(p, x, n);
    if (kind == E4M3) bn_f32_to_e4m3_c(p, x, n);
    if (kind == E5M2) bn_f32_to_e5m2_c(p, x, n);
    for (size_t i = 0; kind == E4M3 && i < n; i++)
        if ((codes[i] & 0x7f) == 0x7f)
            memset(codes + i / stride * stride, 0x7f, bn_min_size(stride, n - i / stride * stride));
}

/* Softmax in double. A score is off by at most e = (dim / 16 + 10) 2^-24 sum|q k| scale, which is
 * the relative error of its weight; the rest is a few roundings a key. */
static void naive_attn(struct ck *c, const struct attn *a, const void *k, const void *v, size_t n,
                       const struct attn *got)
{
    for (size_t h = 0; h < a->n_q; h++) {
        double s[512], max = -INFINITY, sum = 0, err = 0;
        for (size_t j = 0; j < n; j++) {
            double size = 0;
            s[j] = 0;
            for (size_t d = 0; d < a->dim; d++) {
                double p = (double)a->q[h * a->dim + d] * element(a, k, j, d) * a->scale;
                s[j] += p;
                size += fabs(p);
            }
            err = fmax(err, size * ((double)a->dim / 16 + 10) * 0x1p-24);
            max = fmax(max, s[j]);
        }
        for (size_t j = 0; j < n; j++) sum += s[j] = exp(s[j] - max);
        for (size_t d = 0; d < a->dim; d++) {
            double want = 0, size = 0;
            for (size_t j = 0; j < n; j++) {
                want += s[j] / sum * element(a, v, j, d);
                size += s[j] / sum * fabs(element(a, v, j, d));
            }
            double o = got->o[h * a->dim + d] / (double)got->l[h];
            double bound = size * (4 * err + ((double)n + 16) * 0x1p-23) + 0x1p-110;
            if (a->kind >= E4M3) bound += size * 0x1p-16 + 0x1p-50; /* short weights */
            if (!ck_near(c, "o / l", want, o, bound, h * a->dim + d)) return;
        }
    }
}

static void check_attn_case(struct ck *c, enum kind kind, size_t n_q, size_t dim, size_t n,
                            size_t block, size_t pad, enum ck_fill f)
{
    ck_case(c, "queries=%zu dim=%zu keys=%zu block=%zu pad=%zu fill=%s", n_q, dim, n, block, pad,
            ck_fill_name(f));
    size_t stride = dim + pad, n_kv = (n - 1) * stride + dim, size = size_of(kind);
    float *q = ck_buffer(c, n_q * dim * sizeof *q);
    void *k = ck_buffer(c, n_kv * size), *v = ck_buffer(c, n_kv * size);
    ck_fill_f32(c, q, n_q * dim, f == CK_HUGE || f == CK_TINY ? CK_RANDOM : f);
    if (kind >= E4M3) bn_short_query_c(q, q, n_q * dim);
    fill_rows(c, k, n_kv, stride, kind, f);
    fill_rows(c, v, n_kv, stride, kind, f);
    struct attn a = {.kind = kind,
                     .q = q,
                     .k = k,
                     .v = v,
                     .n_q = n_q,
                     .stride = stride,
                     .dim = dim,
                     .scale = 0.0884f},
                want, got;
    if (f == CK_WIDE) a.scale = 1e-12f;
    if (f == CK_TINY) a.scale = 0x1p-149f; /* scores of +0 and -0 */
    if (!run_blocks(c, a, c->ref->fn, n, block, &want)) return;
    if (c->naive && f <= CK_WIDE) naive_attn(c, &a, k, v, n, &want);
    if (c->naive || !run_blocks(c, a, c->v->fn, n, block, &got)) return;
    ck_same_f32(c, "m", want.m, got.m, n_q, n_q);
    ck_same_f32(c, "l", want.l, got.l, n_q, n_q);
    ck_same_f32(c, "o", want.o, got.o, n_q * dim, dim);
}

static void check_attn(struct ck *c, enum kind kind)
{
    static const size_t dims[] = {1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 80, 96, 100, 128, 129, 256};
    for (size_t i = 0; i < BN_ARRAY_LEN(dims); i++)
        for (size_t n_q = 1; n_q <= 9; n_q++)
            check_attn_case(c, kind, n_q, dims[i], 1 + (5 * i + 7 * n_q) % 40, BN_ATTN_BLOCK,
                            n_q % 3, CK_RANDOM);
    for (size_t n_q = 10; n_q <= 75; n_q += 5) /* many queries */
        check_attn_case(c, kind, n_q, dims[(7 * n_q) % BN_ARRAY_LEN(dims)], 1 + 11 * n_q % 70,
                        BN_ATTN_BLOCK, n_q % 3, CK_RANDOM);
    for (size_t n_q = 14; n_q <= 35; n_q += 7)
        check_attn_case(c, kind, n_q, 256, 3 * n_q, BN_ATTN_BLOCK, n_q % 2, CK_RANDOM);
    for (size_t n = 1; n <= BN_ATTN_BLOCK + 1; n++)
        check_attn_case(c, kind, 9 + n % 4, n % 2 ? 128 : 80, n, BN_ATTN_BLOCK, 0, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n_q = 8; n_q <= 35; n_q += 9)
            check_attn_case(c, kind, n_q, 96, 75, BN_ATTN_BLOCK, 3, f);
    for (size_t n = 1; n <= 2 * BN_ATTN_BLOCK + 1; n++)
        check_attn_case(c, kind, 4, 32, n, BN_ATTN_BLOCK, 0, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n_q = 1; n_q <= 5; n_q++)
            check_attn_case(c, kind, n_q, 100, 75, BN_ATTN_BLOCK, 3, f);
    if (!c->quick) check_attn_case(c, kind, 4, 128, 500, BN_ATTN_BLOCK, 512, CK_RANDOM);
    check_attn_case(c, kind, 6, 80, 70, 5, 0, CK_RANDOM);
}
void check_attn_f32(struct ck *c) { check_attn(c, F32); }
void check_attn_f16(struct ck *c) { check_attn(c, F16); }
void check_attn_bf16(struct ck *c) { check_attn(c, BF16); }
void check_attn_e4m3(struct ck *c) { check_attn(c, E4M3); }
void check_attn_e5m2(struct ck *c) { check_attn(c, E5M2); }

struct shorts {
    bn_short_query_fn *fn;
    float *y;
    const float *x;
    size_t n;
};

static void run_shorts(void *p)
{
    struct shorts *a = p;
    a->fn(a->y, a->x, a->n);
}

static void naive_shorts(struct ck *c, const struct shorts *a)
{
    for (size_t i = 0; i < a->n; i++) {
        double x = (double)a->x[i], y = (double)a->y[i];
        if (!(fabs(x) < 0x1p100)) {
            if (!isnan(y)) ck_fail(c, "%a becomes %a", x, y);
            continue;
        }
        int e;
        frexp(x, &e);
        double unit = ldexp(1, e - 16), want = fabs(x) < 0x1p-60 ? 0 : rint(x / unit) * unit;
        if (!ck_near(c, "y", want, y, 0, i)) return;
    }
}

void check_short_query(struct ck *c)
{
    for (size_t n = 1; n <= 300; n += n < 40 ? 1 : 37)
        for (enum ck_fill f = 0; f < CK_FILLS; f++) {
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(f));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, f);
            if (n > 2) x[1] = 0x1.00010p3f, x[2] = -0x1.00030p3f; /* ties */
            struct shorts a = {(bn_short_query_fn *)c->ref->fn, ck_buffer(c, n * sizeof *x), x, n};
            if (!ck_run(c, run_shorts, &a)) continue;
            if (c->naive) naive_shorts(c, &a);
            if (c->naive) continue;
            struct shorts b = {(bn_short_query_fn *)c->v->fn, ck_buffer(c, n * sizeof *x), x, n};
            if (ck_run(c, run_shorts, &b)) ck_same_f32(c, "y", a.y, b.y, n, n);
        }
}

struct fold {
    bn_attn_fold_fn *fn;
    float *o, *m, *l;
    const float *ob;
    float mb, lb;
    size_t dim;
};

static void run_fold(void *p)
{
    struct fold *a = p;
    a->fn(a->o, a->m, a->l, a->ob, a->mb, a->lb, a->dim);
}

/* Blocks computed apart and folded give the bits of the running state. */
static void check_fold_case(struct ck *c, size_t dim, size_t n, enum ck_fill f)
{
    ck_case(c, "dim=%zu keys=%zu fill=%s", dim, n, ck_fill_name(f));
    float *q = ck_buffer(c, dim * sizeof *q);
    float *k = ck_buffer(c, n * dim * sizeof *k), *v = ck_buffer(c, n * dim * sizeof *v);
    ck_fill_f32(c, q, dim, f == CK_HUGE || f == CK_TINY ? CK_RANDOM : f);
    ck_fill_f32(c, k, n * dim, f);
    ck_fill_f32(c, v, n * dim, f);
    struct attn a = {.q = q, .n_q = 1, .stride = dim, .dim = dim, .scale = 0.0884f}, want, got;
    a.k = k, a.v = v;
    if (f == CK_WIDE) a.scale = 1e-12f;
    if (!run_blocks(c, a, (bn_any_fn *)bn_attn_f32_c, n, BN_ATTN_BLOCK, &want)) return;
    struct fold s = {.fn = (bn_attn_fold_fn *)c->v->fn, .dim = dim};
    s.o = ck_buffer(c, dim * sizeof *s.o);
    s.m = ck_buffer(c, sizeof *s.m);
    s.l = ck_buffer(c, sizeof *s.l);
    for (size_t i = 0; i < dim; i++) s.o[i] = 0;
    *s.m = -INFINITY, *s.l = 0;
    for (size_t j = 0; j < n; j += BN_ATTN_BLOCK) {
        size_t buffers = c->n_buffers;
        a.k = k + j * dim, a.v = v + j * dim;
        if (!run_blocks(c, a, (bn_any_fn *)bn_attn_f32_c, bn_min_size(n - j, BN_ATTN_BLOCK),
                        BN_ATTN_BLOCK, &got))
            return;
        s.ob = got.o, s.mb = *got.m, s.lb = *got.l;
        if (!ck_run(c, run_fold, &s)) return;
        c->n_buffers = buffers;
    }
    ck_same_f32(c, "m", want.m, s.m, 1, 1);
    ck_same_f32(c, "l", want.l, s.l, 1, 1);
    ck_same_f32(c, "o", want.o, s.o, dim, dim);
}

void check_attn_fold(struct ck *c)
{
    for (size_t dim = 1; dim <= 40; dim++) check_fold_case(c, dim, 1 + 37 * dim % 130, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++) check_fold_case(c, 80, 101, f);
    check_fold_case(c, 128, 300, CK_RANDOM);
}
