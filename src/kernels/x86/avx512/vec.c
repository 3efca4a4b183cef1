/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: what consists of exponentials. An exponential is one long chain of steps, and a core sees
 * so few instructions ahead that it waits for them: the same number of wider ones is further ahead,
 * also where they take two turns each. */
#include "kernels/exp.h"
#include "kernels/kernels.h"

#include <immintrin.h>

#define ALWAYS static inline __attribute__((always_inline))

/* n > 16 counts as 16 */
ALWAYS __m512 get(const float *p, size_t n)
{
    return n >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

ALWAYS void put(float *p, size_t n, __m512 v)
{
    if (n >= 16) _mm512_storeu_ps(p, v);
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}

/* The steps of bn_exp() */
ALWAYS __m512 exp16(__m512 x)
{
    const __m512 round = _mm512_set1_ps(BN_EXP_ROUND);
    __m512 t = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(BN_EXP_LOG2E)), round);
    __m512 n = _mm512_sub_ps(t, round);
    __m512 r = _mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(BN_EXP_LN2_HI)));
    r = _mm512_sub_ps(r, _mm512_mul_ps(n, _mm512_set1_ps(BN_EXP_LN2_LO)));
    __m512 p = _mm512_set1_ps(BN_EXP_C4);
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(BN_EXP_C3));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(BN_EXP_C2));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(BN_EXP_C1));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(BN_EXP_C0));
    p = _mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
    __m512 y = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), bits));
    __mmask16 low = _mm512_cmp_ps_mask(x, _mm512_set1_ps(BN_EXP_MIN), _CMP_LT_OQ);
    __mmask16 high = _mm512_cmp_ps_mask(x, _mm512_set1_ps(BN_EXP_MAX), _CMP_GT_OQ);
    y = _mm512_mask_mov_ps(y, low, _mm512_setzero_ps());
    y = _mm512_mask_mov_ps(y, high, _mm512_set1_ps(bn_u32_as_f32(0x7f800000)));
    return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

/* x / (1 + exp(-g)) */
ALWAYS __m512 over(__m512 x, __m512 g)
{
    __m512i minus = _mm512_xor_si512(_mm512_castps_si512(g), _mm512_set1_epi32(INT32_MIN));
    __m512 e = exp16(_mm512_castsi512_ps(minus));
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

void bn_silu_mul_avx512(float *y, const float *g, const float *u, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = get(g + i, n - i), w = get(u + i, n - i);
        put(y + i, n - i, _mm512_mul_ps(over(v, v), w));
    }
}

void bn_sigmoid_mul_avx512(float *y, const float *x, const float *g, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        __m512 v = get(x + i, n - i), w = get(g + i, n - i);
        put(y + i, n - i, _mm512_mul_ps(v, over(_mm512_set1_ps(1.0f), w)));
    }
}

ALWAYS void conv_token(const struct bn_conv_args *a, size_t t, const size_t taps)
{
    const float *in[BN_CONV_TAPS_MAX];
    for (size_t j = 0; j < taps; j++) in[j] = bn_conv_input(a, t, taps - 1 - j);
    for (size_t i = 0, n = a->n_channels; i < n; i += 16) {
        __m512 s = _mm512_setzero_ps();
        for (size_t j = 0; j < taps; j++) {
            __m512 w = get(a->w + j * a->w_stride + i, n - i);
            s = _mm512_add_ps(s, _mm512_mul_ps(w, get(in[j] + i, n - i)));
        }
        put(a->x + t * a->x_stride + i, n - i, over(s, s));
    }
}

void bn_conv_silu_avx512(const struct bn_conv_args *a)
{
    for (size_t t = a->n; t-- > 0;)
        if (a->taps == 4) conv_token(a, t, 4);
        else conv_token(a, t, a->taps);
}
