/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: attention over one block of keys for four queries, the usual group; the rest is AVX2's.
 * Registers are of 32 bytes here as well: an instruction that widens 16 halves takes longer than two
 * that widen 8, and sums of 16 lanes cost more shuffles. What helps is that there are 32 of them: 16
 * hold sums, so that weights and queries are loaded kind as often. */
#include "kernels/x86/avx2/attn.h"

/* dim is a multiple of 16 */
ALWAYS void scores(four p, const float *q, const void *k, const void *v, size_t stride, size_t n,
                   size_t dim, float scale, const void *next, const enum kind kind)
{
    for (size_t j = 0; j < n; j += 2) {
        size_t r0 = j * stride, r1 = bn_min_size(j + 1, n - 1) * stride; /* perhaps the same one */
        __m256 lo[8], hi[8];                                             /* 2 * query + key */
        for (size_t x = 0; x < 8; x++) lo[x] = hi[x] = _mm256_setzero_ps();
        for (size_t i = 0; i < dim; i += BN_LANES) {
            fetch_step(at(next, r0, kind), i, false, kind);
            fetch_step(at(v, r0, kind), i, true, kind);
            __m256 lo0 = load(k, r0 + i, kind), hi0 = load(k, r0 + i + 8, kind);
            __m256 lo1 = load(k, r1 + i, kind), hi1 = load(k, r1 + i + 8, kind);
            for (size_t h = 0; h < 4; h++) {
                struct bn_l16 y = bn_l16_load(q + h * dim + i);
                lo[2 * h] = _mm256_add_ps(lo[2 * h], _mm256_mul_ps(y.lo, lo0));
                lo[2 * h + 1] = _mm256_add_ps(lo[2 * h + 1], _mm256_mul_ps(y.lo, lo1));
                hi[2 * h] = _mm256_add_ps(hi[2 * h], _mm256_mul_ps(y.hi, hi0));
                hi[2 * h + 1] = _mm256_add_ps(hi[2 * h + 1], _mm256_mul_ps(y.hi, hi1));
            }
        }
        _mm256_storeu_ps(p[j], _mm256_mul_ps(four_sums(lo, hi), _mm256_set1_ps(scale)));
    }
    for (size_t j = n; j < BN_ATTN_BLOCK; j++) _mm_storeu_ps(p[j], _mm_set1_ps(-INFINITY));
}

/* nr registers of o at d: o = o * a + (sum over keys of p v) * c */
ALWAYS void values(float *o, const four p, const void *v, size_t stride, size_t n, size_t dim,
                   size_t d, const float *a, const float *c, const void *next, const size_t nr,
                   const enum kind kind)
{
    __m256 s[16], val[4];
    for (size_t x = 0; x < 4 * nr; x++) s[x] = _mm256_setzero_ps();
    for (size_t j = 0; j < n; j++) {
        fetch(next, j * stride, d, 8 * nr, kind);
        for (size_t r = 0; r < nr; r++) val[r] = load(v, j * stride + d + 8 * r, kind);
        for (size_t h = 0; h < 4; h++) {
            __m256 w = _mm256_broadcast_ss(&p[j][h]);
            for (size_t r = 0; r < nr; r++)
                s[h * nr + r] = _mm256_add_ps(s[h * nr + r], _mm256_mul_ps(w, val[r]));
        }
    }
    for (size_t h = 0; h < 4; h++)
        for (size_t r = 0; r < nr; r++) {
            float *out = o + h * dim + d + 8 * r;
            __m256 old = _mm256_mul_ps(_mm256_loadu_ps(out), _mm256_broadcast_ss(&a[h]));
            __m256 new = _mm256_mul_ps(s[h * nr + r], _mm256_broadcast_ss(&c[h]));
            _mm256_storeu_ps(out, _mm256_add_ps(old, new));
        }
}

ALWAYS void attn_four(float *o, float *m, float *l, const float *q, const void *k, const void *v,
                      size_t stride, size_t n, size_t dim, float scale, const void *next_k,
                      const void *next_v, const enum kind kind)
{
    four p;
    float a[4], c[4];
    size_t d = 0;
    scores(p, q, k, v, stride, n, dim, scale, next_k ? next_k : k, kind);
    four_weigh(p, m, l, a, c);
    for (; d + 32 <= dim; d += 32) values(o, p, v, stride, n, dim, d, a, c, next_v, 4, kind);
    if (d < dim) values(o, p, v, stride, n, dim, d, a, c, next_v, 2, kind);
}

/* Queries that are taken in fours here. */
ALWAYS size_t in_fours(size_t n_q, size_t dim)
{
    bool many = n_q >= ATTN_MANY && dim <= ATTN_MANY_DIM;
    return !many && dim % BN_LANES == 0 ? n_q / 4 * 4 : 0;
}

void bn_attn_f32_avx512(float *o, float *m, float *l, const float *q, size_t n_q, const float *k,
                        const float *v, size_t kv_stride, size_t n, size_t dim, float scale,
                        const float *next_k, const float *next_v)
{
    size_t fours = in_fours(n_q, dim);
    for (size_t h = 0; h < fours; h += 4)
        attn_four(o + h * dim, m + h, l + h, q + h * dim, k, v, kv_stride, n, dim, scale, next_k,
                  next_v, F32);
    bn_attn_f32_avx2(o + fours * dim, m + fours, l + fours, q + fours * dim, n_q - fours, k, v,
                     kv_stride, n, dim, scale, next_k, next_v);
}

void bn_attn_f16_avx512(float *o, float *m, float *l, const float *q, size_t n_q, const uint16_t *k,
                        const uint16_t *v, size_t kv_stride, size_t n, size_t dim, float scale,
                        const uint16_t *next_k, const uint16_t *next_v)
{
    size_t fours = in_fours(n_q, dim);
    for (size_t h = 0; h < fours; h += 4)
        attn_four(o + h * dim, m + h, l + h, q + h * dim, k, v, kv_stride, n, dim, scale, next_k,
                  next_v, F16);
    bn_attn_f16_avx2(o + fours * dim, m + fours, l + fours, q + fours * dim, n_q - fours, k, v,
                     kv_stride, n, dim, scale, next_k, next_v);
}
