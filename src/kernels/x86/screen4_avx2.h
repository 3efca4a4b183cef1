/* SPDX-License-Identifier: Apache-2.0
 *
 * From sums of a screening copy to bounds (kernels.h), for the variants that make the sums. */
#ifndef BN_KERNELS_X86_SCREEN4_AVX2_H
#define BN_KERNELS_X86_SCREEN4_AVX2_H

#include "kernels/x86/avx2.h"
#include "kernels/x86/t2_avx2.h"

/* step, norm and shift of four rows */
struct bn_screen_rows4 {
    __m256d step, norm, shift;
};

static inline __m256d bn_screen_load4(const float *p, size_t n)
{
    float x[4] = {0};
    memcpy(x, p, n * sizeof *x);
    return _mm256_cvtps_pd(_mm_loadu_ps(x));
}

static inline void bn_screen_bounds4(float score[4], float upper[4], __m128i sums,
                                     const struct bn_screen_rows4 *w,
                                     const struct bn_screen_vector *v)
{
    const __m256d sign = _mm256_set1_pd(-0.0);
    __m256d y = _mm256_sub_pd(_mm256_cvtepi32_pd(sums), w->shift);
    y = _mm256_add_pd(_mm256_mul_pd(y, _mm256_set1_pd(v->unit)), _mm256_set1_pd(v->offset));
    y = _mm256_mul_pd(w->step, y);
    __m256d m = _mm256_mul_pd(w->norm, _mm256_set1_pd(v->per_norm));
    m = _mm256_mul_pd(w->step, _mm256_add_pd(_mm256_set1_pd(v->margin), m));
    __m256d b = _mm256_add_pd(y, m);
    b = _mm256_add_pd(b, _mm256_mul_pd(_mm256_andnot_pd(sign, b), _mm256_set1_pd(0x1p-23)));
    b = _mm256_add_pd(b, _mm256_set1_pd(v->tiny));
    _mm_storeu_ps(score, _mm256_cvtpd_ps(y));
    _mm_storeu_ps(upper, _mm256_cvtpd_ps(b));
}

/* Bounds of up to four rows and n vectors, sums[row * n + vector] in eight parts each. */
static inline __attribute__((always_inline)) void
bn_screen_bounds(float *score, float *upper, size_t stride, const struct bn_screen *w, size_t r,
                 size_t some, const __m256i *sums, const struct bn_screen_vector *v, const size_t n)
{
    struct bn_screen_rows4 rows = {bn_screen_load4(w->step + r, some),
                                   bn_screen_load4(w->norm + r, some),
                                   bn_screen_load4(w->shift + r, some)};
    float out[2][4];
    for (size_t i = 0; i < n; i++) {
        __m128i s = bn_hsum4_i32(sums[i], sums[n + i], sums[2 * n + i], sums[3 * n + i]);
        if (some == 4) {
            bn_screen_bounds4(score + i * stride, upper + i * stride, s, &rows, &v[i]);
            continue;
        }
        bn_screen_bounds4(out[0], out[1], s, &rows, &v[i]);
        memcpy(score + i * stride, out[0], some * sizeof **out);
        memcpy(upper + i * stride, out[1], some * sizeof **out);
    }
}

#endif
