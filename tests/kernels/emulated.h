/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 by SIMD Everywhere, and what its version 0.7 lacks or does by undefined shifts. */
#ifndef BN_TESTS_KERNELS_EMULATED_H
#define BN_TESTS_KERNELS_EMULATED_H

#include <simde/x86/avx512.h>

#include <string.h>

static inline __m512i emulated_srai_epi32(__m512i a, unsigned n)
{
    int32_t x[16];
    memcpy(x, &a, sizeof x);
    for (size_t i = 0; i < 16; i++) x[i] >>= n;
    memcpy(&a, x, sizeof x);
    return a;
}

static inline int32_t emulated_reduce_add_epi32(__m512i a)
{
    int32_t x[16], sum = 0;
    memcpy(x, &a, sizeof x);
    for (size_t i = 0; i < 16; i++) sum += x[i];
    return sum;
}

static inline __m512i emulated_cvtepu8_epi32(__m128i a)
{
    uint8_t from[16];
    int32_t x[16];
    memcpy(from, &a, sizeof from);
    for (size_t i = 0; i < 16; i++) x[i] = from[i];
    return _mm512_loadu_epi32(x);
}

static inline void emulated_mask_storeu_epi32(void *p, __mmask16 mask, __m512i a)
{
    int32_t x[16];
    memcpy(x, &a, sizeof x);
    for (size_t i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((char *)p + i * sizeof *x, &x[i], sizeof *x);
}

static inline __m512 emulated_maskz_loadu_ps(__mmask16 mask, const void *p)
{
    float x[16] = {0};
    __m512 a;
    for (size_t i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy(&x[i], (const char *)p + i * sizeof *x, sizeof *x);
    memcpy(&a, x, sizeof x);
    return a;
}

static inline void emulated_mask_storeu_ps(void *p, __mmask16 mask, __m512 a)
{
    float x[16];
    memcpy(x, &a, sizeof x);
    for (size_t i = 0; i < 16; i++)
        if (mask >> i & 1) memcpy((char *)p + i * sizeof *x, &x[i], sizeof *x);
}

static inline __m512i emulated_multishift_epi64_epi8(__m512i from, __m512i a)
{
    uint8_t at[64], to[64];
    uint64_t x[8];
    memcpy(at, &from, sizeof at);
    memcpy(x, &a, sizeof x);
    for (size_t i = 0; i < 64; i++) {
        unsigned n = at[i] & 63;
        to[i] = (uint8_t)(x[i / 8] >> n | x[i / 8] << (-n & 63));
    }
    memcpy(&a, to, sizeof to);
    return a;
}

static inline __m512 emulated_cvtepi32_ps(__m512i a)
{
    int32_t from[16];
    float x[16];
    memcpy(from, &a, sizeof from);
    for (size_t i = 0; i < 16; i++) x[i] = (float)from[i];
    return _mm512_loadu_ps(x);
}

static inline __m512 emulated_cvtph_ps(__m256i a)
{
    float x[16];
    _mm256_storeu_ps(x, _mm256_cvtph_ps(_mm256_castsi256_si128(a)));
    _mm256_storeu_ps(x + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
    return _mm512_loadu_ps(x);
}

#undef _mm512_srai_epi32
#undef _mm512_reduce_add_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_mask_storeu_epi32
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_multishift_epi64_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtph_ps
#define _mm512_srai_epi32            emulated_srai_epi32
#define _mm512_reduce_add_epi32      emulated_reduce_add_epi32
#define _mm512_cvtepu8_epi32         emulated_cvtepu8_epi32
#define _mm512_mask_storeu_epi32     emulated_mask_storeu_epi32
#define _mm512_maskz_loadu_ps        emulated_maskz_loadu_ps
#define _mm512_mask_storeu_ps        emulated_mask_storeu_ps
#define _mm512_multishift_epi64_epi8 emulated_multishift_epi64_epi8
#define _mm512_cvtepi32_ps           emulated_cvtepi32_ps
#define _mm512_cvtph_ps              emulated_cvtph_ps

#endif
