/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: attention over codes, and the queries for it. */
#include <immintrin.h>

enum { ATTN_FULL_QUERIES = 2 /* up to so many all octets' sums are in registers at a time */ };

static inline __m256i dot_pairs(__m256i s, __m256i x, __m256i y)
{
    return _mm256_add_epi32(s, _mm256_madd_epi16(x, y));
}

#include "kernels/x86/avx2/attn_codes.h"

void bn_attn_codes_avx2(const struct bn_attn_codes *a) { attn_codes(a); }

float bn_quant_query_avx2(int16_t *y, const float *x, size_t n)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 max = _mm256_setzero_ps(), bad = max;
    size_t i = 0;
    for (; i < n; i += 8) {
        __m256 v = bn_load_head(x + i, n - i);
        max = _mm256_max_ps(_mm256_andnot_ps(sign, v), max); /* a NaN loses: it comes first */
        bad =
            _mm256_or_ps(bad, _mm256_cmp_ps(_mm256_sub_ps(v, v), _mm256_setzero_ps(), _CMP_NEQ_UQ));
    }
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    float m = _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
    if (_mm256_movemask_ps(bad)) {
        memset(y, 0, n * sizeof *y);
        return bn_f16_to_f32(BN_F16_NAN);
    }
    __m256 inv = _mm256_set1_ps(m < 0x1p-100f ? 0 : 32767 / m);
    for (i = 0; i + 8 <= n; i += 8) {
        __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inv));
        _mm_storeu_si128((void *)(y + i), _mm_packs_epi32(_mm256_castsi256_si128(q),
                                                          _mm256_extracti128_si256(q, 1)));
    }
    for (; i < n; i++)
        y[i] = (int16_t)_mm_cvtss_si32(_mm_mul_ss(_mm_set_ss(x[i]), _mm256_castps256_ps128(inv)));
    return m / 32767;
}
