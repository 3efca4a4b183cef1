/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: attention over one block of keys with a running maximum (contract in kernels.h). The
 * f16 version widens keys and values, which is exact, and is otherwise the f32 version. */
#include "kernels/ref/softmax.h"

enum {
    HEADS = 8, /* heads that share a key or value once it is widened */
    PIECE = 64 /* elements of a head taken at a time; a multiple of 16 keeps the lanes */
};

/* n elements of keys or values as floats, in place or widened into buf */
static inline const float *piece(float *buf, const void *p, size_t at, size_t n, bool half)
{
    if (!half) return (const float *)p + at;
    bn_row_f16_c(buf, (const uint16_t *)p + at, n);
    return buf;
}

static void fold_values(float *o, const float *ob, size_t n, float a, float c)
{
    for (size_t d = 0; d < n; d++) o[d] = o[d] * a + ob[d] * c;
}

/* n_q <= HEADS */
static inline void attn_heads(float *o, float *m, float *l, const float *q, size_t n_q,
                              const void *k, const void *v, size_t kv_stride, size_t n, size_t dim,
                              float scale, bool half)
{
    float p[HEADS][BN_ATTN_BLOCK], a[HEADS], c[HEADS], buf[PIECE];
    for (size_t j = 0; j < n; j++) {
        struct bn_lanes s[HEADS] = {{{0}}};
        for (size_t d = 0; d < dim; d += PIECE) {
            size_t nd = bn_min_size(PIECE, dim - d);
            const float *key = piece(buf, k, j * kv_stride + d, nd, half);
            for (size_t h = 0; h < n_q; h++)
                s[h] = bn_lanes_mul_add(s[h], q + h * dim + d, key, nd);
        }
        for (size_t h = 0; h < n_q; h++) p[h][j] = bn_lanes_sum(s[h]) * scale;
    }
    for (size_t h = 0; h < n_q; h++) {
        float lb, mb = bn_softmax_block(p[h], n, &lb);
        bn_fold_block(&m[h], &l[h], mb, lb, &a[h], &c[h]);
    }
    for (size_t d0 = 0; d0 < dim; d0 += PIECE) {
        float ob[HEADS][PIECE] = {{0}};
        size_t nd = bn_min_size(PIECE, dim - d0);
        for (size_t j = 0; j < n; j++) {
            const float *val = piece(buf, v, j * kv_stride + d0, nd, half);
            for (size_t h = 0; h < n_q; h++)
                for (size_t d = 0; d < nd; d++) ob[h][d] += p[h][j] * val[d];
        }
        for (size_t h = 0; h < n_q; h++) fold_values(o + h * dim + d0, ob[h], nd, a[h], c[h]);
    }
}

void bn_attn_f32_c(float *o, float *m, float *l, const float *q, size_t n_q, const float *k,
                   const float *v, size_t kv_stride, size_t n, size_t dim, float scale,
                   const float *next_k, const float *next_v)
{
    (void)next_k;
    (void)next_v;
    for (size_t h = 0; h < n_q; h += HEADS)
        attn_heads(o + h * dim, m + h, l + h, q + h * dim, bn_min_size(HEADS, n_q - h), k, v,
                   kv_stride, n, dim, scale, false);
}

void bn_attn_f16_c(float *o, float *m, float *l, const float *q, size_t n_q, const uint16_t *k,
                   const uint16_t *v, size_t kv_stride, size_t n, size_t dim, float scale,
                   const uint16_t *next_k, const uint16_t *next_v)
{
    (void)next_k;
    (void)next_v;
    for (size_t h = 0; h < n_q; h += HEADS)
        attn_heads(o + h * dim, m + h, l + h, q + h * dim, bn_min_size(HEADS, n_q - h), k, v,
                   kv_stride, n, dim, scale, true);
}

void bn_attn_fold_c(float *o, float *m, float *l, const float *ob, float mb, float lb, size_t dim)
{
    float a, c;
    bn_fold_block(m, l, mb, lb, &a, &c);
    fold_values(o, ob, dim, a, c);
}
