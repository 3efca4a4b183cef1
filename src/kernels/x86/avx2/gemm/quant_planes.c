/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: activations to integers in planes, a group of 128 columns at a time. */
#include "kernels/x86/avx2/avx2.h"

enum { GROUP = BN_K_ALIGN };

/* eight of them, zeros beyond n */
static inline __m256 load(const float *x, size_t at, size_t n)
{
    if (at + 8 <= n) return _mm256_loadu_ps(x + at);
    return at < n ? bn_load_head(x + at, n - at) : _mm256_setzero_ps();
}

/* The bits of the largest |x|: as numbers they have its order, with NaNs on top. */
static uint32_t largest(const float *x, size_t n)
{
    const __m256i size = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8)
        m = _mm256_max_epu32(m, _mm256_and_si256(_mm256_castps_si256(load(x, i, n)), size));
    __m128i h = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    h = _mm_max_epu32(h, _mm_unpackhi_epi64(h, h));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(h, _mm_shuffle_epi32(h, 1)));
}

static inline void store32(int8_t *q, const __m256i v[4])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the packs */
    __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
    _mm256_storeu_si256((void *)q, _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order));
}

/* k = 255 h + l: l / 255 is less than a half by far more than rounding errors, so h is k / 255 rounded. */
static void split32(int8_t *high, int8_t *low, const __m256i k[4])
{
    __m256i h[4], l[4];
    for (size_t j = 0; j < 4; j++) {
        __m256 part = _mm256_mul_ps(_mm256_cvtepi32_ps(k[j]), _mm256_set1_ps(1.0f / 255));
        h[j] = _mm256_cvtps_epi32(part);
        l[j] = _mm256_sub_epi32(_mm256_add_epi32(k[j], h[j]), _mm256_slli_epi32(h[j], 8));
    }
    store32(high, h);
    store32(low, l);
}

static float quant_group(int8_t *q, size_t plane_stride, size_t n_planes, const float *x, size_t n)
{
    uint32_t size = largest(x, n);
    float m = bn_u32_as_f32(size), most = n_planes == 2 ? (float)BN_PLANES_MOST : 127.0f;
    if (size >= 0x7f800000 || m < 0x1p-100f) {
        for (size_t p = 0; p < n_planes; p++) memset(q + p * plane_stride, 0, GROUP);
        return size >= 0x7f800000 ? bn_u32_as_f32(0x7fc00000) : 0.0f;
    }
    __m256 s = _mm256_set1_ps(most / m);
    for (size_t i = 0; i < GROUP; i += 32) {
        __m256i k[4];
        for (size_t j = 0; j < 4; j++)
            k[j] = _mm256_cvtps_epi32(_mm256_mul_ps(load(x, i + 8 * j, n), s));
        if (n_planes == 2) split32(q + i, q + plane_stride + i, k);
        else store32(q + i, k);
    }
    return m / most;
}

void bn_quant_planes_avx2(int8_t *q, size_t plane_stride, size_t n_planes, float *unit,
                          const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += GROUP)
        unit[k / GROUP] =
            quant_group(q + k, plane_stride, n_planes, x + k, bn_min_size(GROUP, n - k));
}
