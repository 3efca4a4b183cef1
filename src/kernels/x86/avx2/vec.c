/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: operations on vectors of floats. Elementwise loops load before they store, 8 values at a
 * time, so y may be one of the inputs; tails go through masked loads and stores. */
#include "kernels/x86/avx2/avx2.h"

#include <math.h>

static inline float sum_squares(const float *x, size_t n)
{
    struct bn_l16 s = bn_l16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        struct bn_l16 v = bn_l16_load(x + i);
        s = bn_l16_mul_add(s, v, v);
    }
    if (i < n) {
        struct bn_l16 v = bn_l16_load_head(x + i, n - i);
        s = bn_l16_mul_add(s, v, v);
    }
    return bn_l16_sum(s);
}

void bn_rmsnorm_avx2(float *y, const float *x, const float *g, size_t n, float eps)
{
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), r);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(g + i), v));
    }
    if (i < n) {
        __m256 v = _mm256_mul_ps(bn_load_head(x + i, n - i), r);
        bn_store_head(y + i, n - i, _mm256_mul_ps(bn_load_head(g + i, n - i), v));
    }
}

void bn_l2norm_avx2(float *y, const float *x, size_t n, float eps, float scale)
{
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(sum_squares(x, n) + eps)), c = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), r), c));
    if (i < n)
        bn_store_head(y + i, n - i, _mm256_mul_ps(_mm256_mul_ps(bn_load_head(x + i, n - i), r), c));
}

/* |x|, or +0 where x is a NaN: maxps returns its second operand for unordered inputs */
static inline __m256 abs_max(__m256 m, __m256 x)
{
    return _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), m);
}

/* Clamped first, with a NaN becoming -127, so that the conversion sees nothing out of range; the
 * conversion rounds half to even like the addition of the reference. */
static inline __m256i round_i32(__m256 x, __m256 s)
{
    __m256 v = _mm256_max_ps(_mm256_mul_ps(x, s), _mm256_set1_ps(-127.0f));
    return _mm256_cvtps_epi32(_mm256_min_ps(v, _mm256_set1_ps(127.0f)));
}

float bn_quant_i8_avx2(int8_t *q, int32_t *sum, const float *x, size_t n)
{
    __m256 m0 = _mm256_set1_ps(1e-5f), m1 = m0, m2 = m0, m3 = m0;
    size_t i = 0, room = bn_align_up(n, BN_K_ALIGN);
    for (; i + 32 <= n; i += 32) { /* a maximum has no order: four chains */
        m0 = abs_max(m0, _mm256_loadu_ps(x + i));
        m1 = abs_max(m1, _mm256_loadu_ps(x + i + 8));
        m2 = abs_max(m2, _mm256_loadu_ps(x + i + 16));
        m3 = abs_max(m3, _mm256_loadu_ps(x + i + 24));
    }
    for (; i < n; i += 8) m0 = abs_max(m0, bn_load_head(x + i, n - i));
    m0 = _mm256_max_ps(_mm256_max_ps(m0, m1), _mm256_max_ps(m2, m3));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(m0), _mm256_extractf128_ps(m0, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    float m = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));

    __m256 s = _mm256_set1_ps(127.0f / m);
    __m256i total = _mm256_setzero_si256();
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the packs */
    for (i = 0; i < room; i += 32) { /* zeros beyond n give the padding */
        __m256i v[4];
        for (size_t j = 0; j < 4; j++) {
            size_t at = i + 8 * j;
            __m256 f = at + 8 <= n ? _mm256_loadu_ps(x + at)
                       : at < n    ? bn_load_head(x + at, n - at)
                                   : _mm256_setzero_ps();
            v[j] = round_i32(f, s);
            total = _mm256_add_epi32(total, v[j]);
        }
        __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
        a = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
        _mm256_storeu_si256((void *)(q + i), a);
    }
    __m128i t = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4e));
    t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0xb1));
    *sum = _mm_cvtsi128_si32(t);
    return m / 127.0f;
}

void bn_add_avx2(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      _mm256_add_ps(bn_load_head(y + i, n - i), bn_load_head(x + i, n - i)));
}

/* maxps with the zero first: a NaN in g is the second operand, and stays */
static inline __m256 relu2_mul(__m256 g, __m256 u)
{
    __m256 r = _mm256_max_ps(_mm256_setzero_ps(), g);
    return _mm256_mul_ps(_mm256_mul_ps(r, r), u);
}

void bn_relu2_mul_avx2(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, relu2_mul(_mm256_loadu_ps(g + i), _mm256_loadu_ps(u + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      relu2_mul(bn_load_head(g + i, n - i), bn_load_head(u + i, n - i)));
}

static inline __m256 silu_mul(__m256 g, __m256 u)
{
    __m256 e = bn_exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
    return _mm256_mul_ps(_mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), u);
}

void bn_silu_mul_avx2(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, silu_mul(_mm256_loadu_ps(g + i), _mm256_loadu_ps(u + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      silu_mul(bn_load_head(g + i, n - i), bn_load_head(u + i, n - i)));
}

static inline __m256 sigmoid_mul(__m256 x, __m256 g)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    __m256 e = bn_exp8(_mm256_xor_ps(g, _mm256_set1_ps(-0.0f)));
    return _mm256_mul_ps(x, _mm256_div_ps(one, _mm256_add_ps(one, e)));
}

void bn_sigmoid_mul_avx2(float *y, const float *x, const float *g, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, sigmoid_mul(_mm256_loadu_ps(x + i), _mm256_loadu_ps(g + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      sigmoid_mul(bn_load_head(x + i, n - i), bn_load_head(g + i, n - i)));
}

static inline __m256 rot_a(__m256 a, __m256 b, __m256 c, __m256 s)
{
    return _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s));
}
static inline __m256 rot_b(__m256 a, __m256 b, __m256 c, __m256 s)
{
    return _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s));
}

void bn_rope_avx2(float *x, size_t n_heads, size_t dim, size_t half, const float *cs)
{
    for (size_t h = 0; h < n_heads; h++, x += dim) {
        size_t i = 0;
        for (; i + 8 <= half; i += 8) {
            __m256 c = _mm256_loadu_ps(cs + i), s = _mm256_loadu_ps(cs + half + i);
            __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + half + i);
            _mm256_storeu_ps(x + i, rot_a(a, b, c, s));
            _mm256_storeu_ps(x + half + i, rot_b(a, b, c, s));
        }
        if (i < half) {
            size_t m = half - i;
            __m256 c = bn_load_head(cs + i, m), s = bn_load_head(cs + half + i, m);
            __m256 a = bn_load_head(x + i, m), b = bn_load_head(x + half + i, m);
            bn_store_head(x + i, m, rot_a(a, b, c, s));
            bn_store_head(x + half + i, m, rot_b(a, b, c, s));
        }
    }
}
