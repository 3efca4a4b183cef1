/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations to integers in planes, a group of 128 columns at a time. */
#include "kernels/wide/lanes.h"

enum { GROUP = BN_K_ALIGN };

/* eight of them, zeros beyond n */
static inline w_f32 load(const float *x, size_t at, size_t n)
{
    if (at + 8 <= n) return w_loadu_ps(x + at);
    return at < n ? bn_load_head(x + at, n - at) : w_setzero_ps();
}

/* The bits of the largest |x|: as numbers they have its order, with NaNs on top. */
static uint32_t largest(const float *x, size_t n)
{
    const w_int size = w_set1_epi32(0x7fffffff);
    w_int m = w_setzero_si256();
    for (size_t i = 0; i < n; i += 8)
        m = w_max_epu32(m, w_and_si256(w_castps_si256(load(x, i, n)), size));
    h_int h = h_max_epu32(w_castsi256_si128(m), w_extracti128_si256(m, 1));
    h = h_max_epu32(h, h_unpackhi_epi64(h, h));
    return (uint32_t)h_cvtsi128_si32(h_max_epu32(h, h_shuffle_epi32(h, 1)));
}

static inline void store32(int8_t *q, const w_int v[4]) { w_storeu_si256((void *)q, w_pack_i8(v)); }

/* k = 255 h + l: l / 255 is less than a half by far more than rounding errors, so h is k / 255 rounded. */
static void split32(int8_t *high, int8_t *low, const w_int k[4])
{
    w_int h[4], l[4];
    for (size_t j = 0; j < 4; j++) {
        w_f32 part = w_mul_ps(w_cvtepi32_ps(k[j]), w_set1_ps(1.0f / 255));
        h[j] = w_cvtps_epi32(part);
        l[j] = w_sub_epi32(w_add_epi32(k[j], h[j]), w_slli_epi32(h[j], 8));
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
    w_f32 s = w_set1_ps(most / m);
    for (size_t i = 0; i < GROUP; i += 32) {
        w_int k[4];
        for (size_t j = 0; j < 4; j++) k[j] = w_cvtps_epi32(w_mul_ps(load(x, i + 8 * j, n), s));
        if (n_planes == 2) split32(q + i, q + plane_stride + i, k);
        else store32(q + i, k);
    }
    return m / most;
}

void W_NAME(quant_planes)(int8_t *q, size_t plane_stride, size_t n_planes, float *unit,
                          const float *x, size_t n)
{
    for (size_t k = 0; k < n; k += GROUP)
        unit[k / GROUP] =
            quant_group(q + k, plane_stride, n_planes, x + k, bn_min_size(GROUP, n - k));
}
