/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: attention over one block of keys for four queries, the usual group; the rest is AVX2's.
 * Registers are of 32 bytes here as well: an instruction that widens 16 halves takes longer than two
 * that widen 8, and sums of 16 lanes cost more shuffles. What helps is that there are 32 of them: 16
 * hold sums, so that weights and queries are loaded kind as often. */
#include "kernels/wide/attn.h"

/* dim is a multiple of 16 */
ALWAYS void scores(four p, const struct bn_attn_args *a, const enum kind kind)
{
    const size_t n = a->n, dim = a->dim, stride = a->kv_stride;
    const float *q = a->q;
    const void *k = a->k, *v = a->v, *next = a->next_k ? a->next_k : k;
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
        _mm256_storeu_ps(p[j], _mm256_mul_ps(four_sums(lo, hi), _mm256_set1_ps(a->scale)));
    }
    for (size_t j = n; j < BN_ATTN_BLOCK; j++) _mm_storeu_ps(p[j], _mm_set1_ps(-INFINITY));
}

/* nr registers of o at d: o = o * fa + (sum over keys of p v) * fc */
ALWAYS void values(const struct bn_attn_args *a, const four p, const float *fa, const float *fc,
                   size_t d, const size_t nr, const enum kind kind)
{
    const size_t n = a->n, stride = a->kv_stride;
    const void *v = a->v, *next = a->next_v;
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
            float *out = a->o + h * a->dim + d + 8 * r;
            __m256 old = _mm256_mul_ps(_mm256_loadu_ps(out), _mm256_broadcast_ss(&fa[h]));
            __m256 new = _mm256_mul_ps(s[h * nr + r], _mm256_broadcast_ss(&fc[h]));
            _mm256_storeu_ps(out, _mm256_add_ps(old, new));
        }
}

/* The first four queries */
ALWAYS void attn_four(const struct bn_attn_args *a, const enum kind kind)
{
    four p;
    float fa[4], fc[4];
    size_t d = 0;
    scores(p, a, kind);
    four_weigh(p, a->m, a->l, fa, fc);
    for (; d + 32 <= a->dim; d += 32) values(a, p, fa, fc, d, 4, kind);
    if (d < a->dim) values(a, p, fa, fc, d, 2, kind);
}

/* Queries in fours here, others as AVX2 does. */
ALWAYS void attn(const struct bn_attn_args *a, bn_attn_rows_fn *others, const enum kind kind)
{
    const bool many = a->n_q >= ATTN_MANY && a->dim <= ATTN_MANY_DIM;
    const size_t fours = !many && a->dim % BN_LANES == 0 ? a->n_q / 4 * 4 : 0;
    for (size_t h = 0; h < fours; h += 4) {
        const struct bn_attn_args some = bn_attn_from(a, h);
        attn_four(&some, kind);
    }
    const struct bn_attn_args rest = bn_attn_from(a, fours);
    others(&rest);
}

void bn_attn_f32_avx512(const struct bn_attn_args *a) { attn(a, bn_attn_f32_avx2, F32); }
void bn_attn_f16_avx512(const struct bn_attn_args *a) { attn(a, bn_attn_f16_avx2, F16); }
