/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: attention over one block of keys. Up to four query heads go together, so that a key or
 * value is loaded (and widened, if it is f16) once for all of them, and so that there are always
 * eight independent chains of additions: heads times keys for the scores, heads times registers of
 * the head's dimension for the weighted sum of values. */
#include "kernels/x86/avx2.h"

#include <math.h>

#define ALWAYS static inline __attribute__((always_inline))

/* element `at` of keys or values of either kind */
ALWAYS __m256 load(const void *p, size_t at, bool half)
{
    return half ? bn_load_f16((const uint16_t *)p + at) : _mm256_loadu_ps((const float *)p + at);
}

ALWAYS __m256 load_head(const void *p, size_t at, size_t n, bool half)
{
    if (half) return bn_load_f16_head((const uint16_t *)p + at, n);
    return bn_load_head((const float *)p + at, n);
}

ALWAYS struct bn_l16 load16(const void *p, size_t at, bool half)
{
    return (struct bn_l16){load(p, at, half), load(p, at + 8, half)};
}

ALWAYS struct bn_l16 load16_head(const void *p, size_t at, size_t n, bool half)
{
    if (n < 8) return (struct bn_l16){load_head(p, at, n, half), _mm256_setzero_ps()};
    return (struct bn_l16){load(p, at, half),
                           n > 8 ? load_head(p, at + 8, n - 8, half) : _mm256_setzero_ps()};
}

/* p[h][j] = dot(q_h, k_j) * scale for nq heads (1, 2 or 4) and 4 / nq keys at a time; the last keys
 * may be the same one again, whose results are not stored. */
ALWAYS void scores(float (*p)[BN_ATTN_BLOCK], const float *q, const void *k, size_t stride,
                   size_t n, size_t dim, float scale, const size_t nq, const bool half)
{
    const size_t nk = 4 / nq;
    for (size_t j = 0; j < n; j += nk) {
        struct bn_l16 s[4];
        size_t at[4], i = 0;
        for (size_t x = 0; x < 4; x++) s[x] = bn_l16_zero();
        for (size_t x = 0; x < nk; x++) at[x] = bn_min_size(j + x, n - 1) * stride;
        for (; i + 16 <= dim; i += 16)
            for (size_t x = 0; x < nk; x++) {
                struct bn_l16 key = load16(k, at[x] + i, half);
                for (size_t h = 0; h < nq; h++)
                    s[h * nk + x] =
                        bn_l16_mul_add(s[h * nk + x], bn_l16_load(q + h * dim + i), key);
            }
        if (i < dim)
            for (size_t x = 0; x < nk; x++) {
                struct bn_l16 key = load16_head(k, at[x] + i, dim - i, half);
                for (size_t h = 0; h < nq; h++)
                    s[h * nk + x] = bn_l16_mul_add(s[h * nk + x],
                                                   bn_l16_load_head(q + h * dim + i, dim - i), key);
            }
        float out[4];
        _mm_storeu_ps(out, _mm_mul_ps(bn_l16_sum4(s[0], s[1], s[2], s[3]), _mm_set1_ps(scale)));
        for (size_t x = 0; x < nk && j + x < n; x++)
            for (size_t h = 0; h < nq; h++) p[h][j + x] = out[h * nk + x];
    }
}

/* Scores of one head to weights, and the state m, l takes in the block. The block is always four
 * registers; beyond n a score is -inf and a weight +0, which changes no maximum and no lane. */
ALWAYS void fold_block(float *p, size_t n, float *m, float *l, float *a, float *c)
{
    __m256 s[4], max;
    for (size_t i = n; i < BN_ATTN_BLOCK; i++) p[i] = -INFINITY;
    for (size_t i = 0; i < 4; i++) s[i] = _mm256_loadu_ps(p + 8 * i);
    max = _mm256_max_ps(s[0], _mm256_set1_ps(-INFINITY)); /* NaNs lose: they come first */
    for (size_t i = 1; i < 4; i++) max = _mm256_max_ps(s[i], max);
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    float mb = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h))) + 0.0f;
    for (size_t i = 0; i < 4; i++) {
        s[i] = bn_exp8(_mm256_sub_ps(s[i], _mm256_set1_ps(mb)));
        s[i] = _mm256_and_ps(s[i], _mm256_castsi256_ps(bn_mask8(n > 8 * i ? n - 8 * i : 0)));
        _mm256_storeu_ps(p + 8 * i, s[i]);
    }
    float lb = bn_l16_sum((struct bn_l16){_mm256_add_ps(s[0], s[2]), _mm256_add_ps(s[1], s[3])});
    float mn = mb > *m ? mb : *m;
    *a = bn_exp(*m - mn);
    *c = bn_exp(mb - mn);
    *l = *l * *a + lb * *c;
    *m = mn;
}

/* nr registers of o at d for nq heads: o = o * a + (sum over keys of p v) * c; the last register
 * holds `last` elements. */
ALWAYS void values(float *o, const float (*p)[BN_ATTN_BLOCK], const void *v, size_t stride,
                   size_t n, size_t dim, size_t d, const float *a, const float *c, const size_t nq,
                   const size_t nr, size_t last, const bool half)
{
    __m256 s[8];
    for (size_t x = 0; x < nq * nr; x++) s[x] = _mm256_setzero_ps();
    for (size_t j = 0; j < n; j++)
        for (size_t r = 0; r < nr; r++) {
            size_t at = j * stride + d + 8 * r;
            __m256 val = last == 8 ? load(v, at, half) : load_head(v, at, last, half);
            for (size_t h = 0; h < nq; h++)
                s[h * nr + r] =
                    _mm256_add_ps(s[h * nr + r], _mm256_mul_ps(_mm256_broadcast_ss(&p[h][j]), val));
        }
    for (size_t h = 0; h < nq; h++)
        for (size_t r = 0; r < nr; r++) {
            float *out = o + h * dim + d + 8 * r;
            __m256 old = last == 8 ? _mm256_loadu_ps(out) : bn_load_head(out, last);
            __m256 v8 = _mm256_add_ps(_mm256_mul_ps(old, _mm256_broadcast_ss(&a[h])),
                                      _mm256_mul_ps(s[h * nr + r], _mm256_broadcast_ss(&c[h])));
            if (last == 8) _mm256_storeu_ps(out, v8);
            else bn_store_head(out, last, v8);
        }
}

ALWAYS void attn_heads(float *o, float *m, float *l, const float *q, const void *k, const void *v,
                       size_t stride, size_t n, size_t dim, float scale, const size_t nq,
                       const bool half)
{
    float p[4][BN_ATTN_BLOCK], a[4], c[4];
    const size_t nr = 8 / nq;
    size_t d = 0;
    scores(p, q, k, stride, n, dim, scale, nq, half);
    for (size_t h = 0; h < nq; h++) fold_block(p[h], n, &m[h], &l[h], &a[h], &c[h]);
    const float(*w)[BN_ATTN_BLOCK] = (const float(*)[BN_ATTN_BLOCK])p;
    for (; d + 8 * nr <= dim; d += 8 * nr)
        values(o, w, v, stride, n, dim, d, a, c, nq, nr, 8, half);
    for (; d + 8 <= dim; d += 8) values(o, w, v, stride, n, dim, d, a, c, nq, 1, 8, half);
    if (d < dim) values(o, w, v, stride, n, dim, d, a, c, nq, 1, dim - d, half);
}

ALWAYS void attn(float *o, float *m, float *l, const float *q, size_t n_q, const void *k,
                 const void *v, size_t stride, size_t n, size_t dim, float scale, const bool half)
{
    size_t h = 0;
    for (; h + 4 <= n_q; h += 4)
        attn_heads(o + h * dim, m + h, l + h, q + h * dim, k, v, stride, n, dim, scale, 4, half);
    for (; h + 2 <= n_q; h += 2)
        attn_heads(o + h * dim, m + h, l + h, q + h * dim, k, v, stride, n, dim, scale, 2, half);
    if (h < n_q)
        attn_heads(o + h * dim, m + h, l + h, q + h * dim, k, v, stride, n, dim, scale, 1, half);
}

void bn_attn_f32_avx2(float *o, float *m, float *l, const float *q, size_t n_q, const float *k,
                      const float *v, size_t kv_stride, size_t n, size_t dim, float scale)
{
    attn(o, m, l, q, n_q, k, v, kv_stride, n, dim, scale, false);
}

void bn_attn_f16_avx2(float *o, float *m, float *l, const float *q, size_t n_q, const uint16_t *k,
                      const uint16_t *v, size_t kv_stride, size_t n, size_t dim, float scale)
{
    attn(o, m, l, q, n_q, k, v, kv_stride, n, dim, scale, true);
}
