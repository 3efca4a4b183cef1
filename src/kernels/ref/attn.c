/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: attention over one block of keys with a running maximum (contract in kernels.h). The
 * other versions widen keys and values, which is exact, and are otherwise the f32 version. */
#include "base/half.h"
#include "kernels/ref/softmax.h"

enum {
    HEADS = 8, /* heads that share a key or value once it is widened */
    PIECE = 64 /* elements of a head taken at a time; a multiple of 16 keeps the lanes */
};

enum kind { F32, F16, BF16, E4M3, E5M2 };

/* n elements of keys or values as floats, in place or widened into buf */
static inline const float *piece(float *buf, const void *p, size_t at, size_t n, enum kind kind)
{
    switch (kind) {
    case F32: return (const float *)p + at;
    case F16: bn_row_f16_c(buf, (const uint16_t *)p + at, n); break;
    case BF16: bn_row_bf16_c(buf, (const uint8_t *)p + 2 * at, n); break;
    case E4M3: bn_row_e4m3_c(buf, (const uint8_t *)p + at, n); break;
    case E5M2: bn_row_e5m2_c(buf, (const uint8_t *)p + at, n); break;
    }
    return buf;
}

static float short_float(float x)
{
    uint32_t u = bn_f32_as_u32(x);
    float size = x < 0 ? -x : x;
    if (!(size < 0x1p100f)) return bn_f16_to_f32(BN_F16_NAN);
    return size < 0x1p-60f ? 0 : bn_u32_as_f32((u + 0x7f + (u >> 8 & 1)) & ~0xffu);
}

void bn_short_query_c(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = short_float(x[i]);
}

static void fold_values(float *o, const float *ob, size_t n, float a, float c)
{
    for (size_t d = 0; d < n; d++) o[d] = o[d] * a + ob[d] * c;
}

/* At most HEADS queries. */
static inline void attn_heads(const struct bn_attn_args *x, enum kind kind)
{
    float p[HEADS][BN_ATTN_BLOCK], a[HEADS], c[HEADS], buf[PIECE];
    const size_t n_q = x->n_q, n = x->n, dim = x->dim;
    for (size_t j = 0; j < n; j++) {
        struct bn_lanes s[HEADS] = {{{0}}};
        for (size_t d = 0; d < dim; d += PIECE) {
            size_t nd = bn_min_size(PIECE, dim - d);
            const float *key = piece(buf, x->k, j * x->kv_stride + d, nd, kind);
            for (size_t h = 0; h < n_q; h++)
                s[h] = bn_lanes_mul_add(s[h], x->q + h * dim + d, key, nd);
        }
        for (size_t h = 0; h < n_q; h++) p[h][j] = bn_lanes_sum(s[h]) * x->scale;
    }
    for (size_t h = 0; h < n_q; h++) {
        float lb, mb = bn_softmax_block(p[h], n, &lb);
        bn_fold_block(&x->m[h], &x->l[h], mb, lb, &a[h], &c[h]);
        if (kind >= E4M3) bn_short_query_c(p[h], p[h], n);
    }
    for (size_t d0 = 0; d0 < dim; d0 += PIECE) {
        float ob[HEADS][PIECE] = {{0}};
        size_t nd = bn_min_size(PIECE, dim - d0);
        for (size_t j = 0; j < n; j++) {
            const float *val = piece(buf, x->v, j * x->kv_stride + d0, nd, kind);
            for (size_t h = 0; h < n_q; h++)
                for (size_t d = 0; d < nd; d++) ob[h][d] += p[h][j] * val[d];
        }
        for (size_t h = 0; h < n_q; h++) fold_values(x->o + h * dim + d0, ob[h], nd, a[h], c[h]);
    }
}

static void attn(const struct bn_attn_args *a, enum kind kind)
{
    for (size_t h = 0; h < a->n_q; h += HEADS) {
        struct bn_attn_args some = bn_attn_from(a, h);
        some.n_q = bn_min_size(HEADS, some.n_q);
        attn_heads(&some, kind);
    }
}

void bn_attn_f32_c(const struct bn_attn_args *a) { attn(a, F32); }
void bn_attn_f16_c(const struct bn_attn_args *a) { attn(a, F16); }
void bn_attn_bf16_c(const struct bn_attn_args *a) { attn(a, BF16); }
void bn_attn_e4m3_c(const struct bn_attn_args *a) { attn(a, E4M3); }
void bn_attn_e5m2_c(const struct bn_attn_args *a) { attn(a, E5M2); }

void bn_attn_fold_c(float *o, float *m, float *l, const float *ob, float mb, float lb, size_t dim)
{
    float a, c;
    bn_fold_block(m, l, mb, lb, &a, &c);
    fold_values(o, ob, dim, a, c);
}
