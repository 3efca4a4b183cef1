/* SPDX-License-Identifier: Apache-2.0
 *
 * SSE4.1: the operations on 128 bits of kernels/wide/wide.h. Halves are widened and made by integer
 * arithmetic; a multiplication and an addition stand for a fused operation, which is used only where
 * products are exact. */
#ifndef BN_KERNELS_X86_HALF_SSE41_H
#define BN_KERNELS_X86_HALF_SSE41_H

#include "base/base.h"
#include "base/half.h"

#include <smmintrin.h>

typedef __m128 h_f32;
typedef __m128i h_int;
typedef __m128d h_f64;

/* clang-format off */
#define h_abs_epi8 _mm_abs_epi8
#define h_add_epi16 _mm_add_epi16
#define h_add_epi32 _mm_add_epi32
#define h_add_epi64 _mm_add_epi64
#define h_add_epi8 _mm_add_epi8
#define h_add_pd _mm_add_pd
#define h_add_ps _mm_add_ps
#define h_add_ss _mm_add_ss
#define h_and_ps _mm_and_ps
#define h_and_si128 _mm_and_si128
#define h_andnot_ps _mm_andnot_ps
#define h_andnot_si128 _mm_andnot_si128
#define h_blendv_epi8 _mm_blendv_epi8
#define h_blendv_ps _mm_blendv_ps
#define h_castps_si128 _mm_castps_si128
#define h_castsi128_ps _mm_castsi128_ps
#define h_cmpeq_epi16 _mm_cmpeq_epi16
#define h_cmpeq_epi32 _mm_cmpeq_epi32
#define h_cmpgt_epi16 _mm_cmpgt_epi16
#define h_cmpgt_epi32 _mm_cmpgt_epi32
#define h_cmpgt_epi8 _mm_cmpgt_epi8
#define h_cvtepi16_epi32 _mm_cvtepi16_epi32
#define h_cvtepi32_pd _mm_cvtepi32_pd
#define h_cvtepi32_ps _mm_cvtepi32_ps
#define h_cvtepi8_epi16 _mm_cvtepi8_epi16
#define h_cvtepi8_epi32 _mm_cvtepi8_epi32
#define h_cvtepu16_epi32 _mm_cvtepu16_epi32
#define h_cvtepu8_epi16 _mm_cvtepu8_epi16
#define h_cvtepu8_epi32 _mm_cvtepu8_epi32
#define h_cvtpd_ps _mm_cvtpd_ps
#define h_cvtps_epi32 _mm_cvtps_epi32
#define h_cvtps_pd _mm_cvtps_pd
#define h_cvtsi128_si32 _mm_cvtsi128_si32
#define h_cvtsi32_si128 _mm_cvtsi32_si128
#define h_cvtss_f32 _mm_cvtss_f32
#define h_cvtss_si32 _mm_cvtss_si32
#define h_div_ps _mm_div_ps
#define h_extract_epi16 _mm_extract_epi16
#define h_hadd_epi16 _mm_hadd_epi16
#define h_hadd_epi32 _mm_hadd_epi32
#define h_hadd_pd _mm_hadd_pd
#define h_load_ps _mm_load_ps
#define h_load_si128 _mm_load_si128
#define h_loadl_epi64 _mm_loadl_epi64
#define h_loadu_ps _mm_loadu_ps
#define h_loadu_si128 _mm_loadu_si128
#define h_madd_epi16 _mm_madd_epi16
#define h_maddubs_epi16 _mm_maddubs_epi16
#define h_max_epi8 _mm_max_epi8
#define h_max_epu16 _mm_max_epu16
#define h_max_epu32 _mm_max_epu32
#define h_max_ps _mm_max_ps
#define h_max_ss _mm_max_ss
#define h_min_ps _mm_min_ps
#define h_minpos_epu16 _mm_minpos_epu16
#define h_movehdup_ps _mm_movehdup_ps
#define h_movehl_ps _mm_movehl_ps
#define h_movelh_ps _mm_movelh_ps
#define h_movemask_ps _mm_movemask_ps
#define h_mul_pd _mm_mul_pd
#define h_mul_ps _mm_mul_ps
#define h_mul_ss _mm_mul_ss
#define h_mulhrs_epi16 _mm_mulhrs_epi16
#define h_mullo_epi16 _mm_mullo_epi16
#define h_mullo_epi32 _mm_mullo_epi32
#define h_or_ps _mm_or_ps
#define h_or_si128 _mm_or_si128
#define h_packs_epi16 _mm_packs_epi16
#define h_packs_epi32 _mm_packs_epi32
#define h_packus_epi16 _mm_packus_epi16
#define h_packus_epi32 _mm_packus_epi32
#define h_sad_epu8 _mm_sad_epu8
#define h_set1_epi16 _mm_set1_epi16
#define h_set1_epi32 _mm_set1_epi32
#define h_set1_epi64x _mm_set1_epi64x
#define h_set1_epi8 _mm_set1_epi8
#define h_set1_pd _mm_set1_pd
#define h_set1_ps _mm_set1_ps
#define h_set_ss _mm_set_ss
#define h_setr_epi16 _mm_setr_epi16
#define h_setr_epi32 _mm_setr_epi32
#define h_setr_epi8 _mm_setr_epi8
#define h_setr_ps _mm_setr_ps
#define h_setzero_pd _mm_setzero_pd
#define h_setzero_ps _mm_setzero_ps
#define h_setzero_si128 _mm_setzero_si128
#define h_shuffle_epi32 _mm_shuffle_epi32
#define h_shuffle_epi8 _mm_shuffle_epi8
#define h_shuffle_low_epi8 _mm_shuffle_epi8
#define h_shuffle_ps _mm_shuffle_ps
#define h_sign_epi8 _mm_sign_epi8
#define h_slli_epi16 _mm_slli_epi16
#define h_slli_epi32 _mm_slli_epi32
#define h_srai_epi16 _mm_srai_epi16
#define h_srai_epi32 _mm_srai_epi32
#define h_srl_epi16 _mm_srl_epi16
#define h_srl_epi32 _mm_srl_epi32
#define h_srli_epi16 _mm_srli_epi16
#define h_srli_epi32 _mm_srli_epi32
#define h_srli_si128 _mm_srli_si128
#define h_store_ps _mm_store_ps
#define h_store_si128 _mm_store_si128
#define h_storel_epi64 _mm_storel_epi64
#define h_storeu_ps _mm_storeu_ps
#define h_storeu_si128 _mm_storeu_si128
#define h_sub_epi16 _mm_sub_epi16
#define h_sub_epi32 _mm_sub_epi32
#define h_sub_epi8 _mm_sub_epi8
#define h_sub_ps _mm_sub_ps
#define h_testz_si128 _mm_testz_si128
#define h_unpackhi_epi16 _mm_unpackhi_epi16
#define h_unpackhi_epi32 _mm_unpackhi_epi32
#define h_unpackhi_epi64 _mm_unpackhi_epi64
#define h_unpackhi_epi8 _mm_unpackhi_epi8
#define h_unpackhi_ps _mm_unpackhi_ps
#define h_unpacklo_epi16 _mm_unpacklo_epi16
#define h_unpacklo_epi32 _mm_unpacklo_epi32
#define h_unpacklo_epi64 _mm_unpacklo_epi64
#define h_unpacklo_epi8 _mm_unpacklo_epi8
#define h_unpacklo_ps _mm_unpacklo_ps
#define h_xor_ps _mm_xor_ps
#define h_xor_si128 _mm_xor_si128
/* clang-format on */
#define h_prefetch(p, hint)    _mm_prefetch(p, hint)
#define H_T0                   _MM_HINT_T0
#define H_T1                   _MM_HINT_T1
#define H_TRANSPOSE4_PS        _MM_TRANSPOSE4_PS
#define h_permute_ps(v, imm)   _mm_shuffle_ps(v, v, imm)
#define h_cmp_LT_OQ(a, b)      _mm_cmplt_ps(a, b)
#define h_cmp_GT_OQ(a, b)      _mm_cmpgt_ps(a, b)
#define h_cmp_GE_OQ(a, b)      _mm_cmpge_ps(a, b)
#define h_cmp_NLT_UQ(a, b)     _mm_cmpnlt_ps(a, b)
#define h_cmp_NEQ_UQ(a, b)     _mm_cmpneq_ps(a, b)
#define h_cmp_UNORD_Q(a, b)    _mm_cmpunord_ps(a, b)
#define h_cvtsh_ss(x)          bn_f16_to_f32(x)
#define h_fmadd_ps(a, b, c)    _mm_add_ps(_mm_mul_ps(a, b), c)
#define h_keep(v)              __asm__("" : "+x"(v))
#define h_cvthi_epi8_epi16(v)  _mm_cvtepi8_epi16(_mm_srli_si128(v, 8))
#define h_cvthi_epu8_epi16(v)  _mm_unpackhi_epi8(v, _mm_setzero_si128())
#define h_cvthi_epi16_epi32(v) _mm_srai_epi32(_mm_unpackhi_epi16(v, v), 16)
#define h_cvthi_epu16_epi32(v) _mm_unpackhi_epi16(v, _mm_setzero_si128())
#define h_cvthi_epi32_pd(v)    _mm_cvtepi32_pd(_mm_shuffle_epi32(v, 0xee))
#define h_cvthi_ps_pd(v)       _mm_cvtps_pd(_mm_movehl_ps(v, v))
#define h_join_pd_ps(lo, hi)   _mm_movelh_ps(_mm_cvtpd_ps(lo), _mm_cvtpd_ps(hi))

/* The first four halves as floats: the exponent is put right by an exact multiplication, which
 * normalises subnormals as well; what is not finite gets its exponent afterwards. */
static inline h_f32 h_cvtph_ps(h_int v)
{
    __m128i x = _mm_cvtepu16_epi32(v);
    __m128i mag = _mm_slli_epi32(_mm_and_si128(x, _mm_set1_epi32(0x7fff)), 13);
    __m128i sign = _mm_slli_epi32(_mm_and_si128(x, _mm_set1_epi32(0x8000)), 16);
    __m128 y = _mm_mul_ps(_mm_castsi128_ps(mag), _mm_set1_ps(0x1p112f));
    __m128i special = _mm_cmpgt_epi32(mag, _mm_set1_epi32(0x0f7fffff));
    special = _mm_and_si128(special, _mm_set1_epi32(0x7f800000));
    return _mm_or_ps(y, _mm_castsi128_ps(_mm_or_si128(special, sign)));
}

#define h_cvthi_ph_ps(v) h_cvtph_ps(_mm_unpackhi_epi64(v, v))

/* Four floats to halves in 32 bits, rounded half to even: normal numbers by adding to their bits, small
 * ones by an addition that puts the last bit of the result where a float ends. */
static inline __m128i h_narrow_f16(h_f32 v)
{
    const __m128 magic = _mm_set1_ps(0.5f);
    __m128i u = _mm_castps_si128(v), a = _mm_and_si128(u, _mm_set1_epi32(0x7fffffff));
    __m128i sign = _mm_srli_epi32(_mm_andnot_si128(_mm_set1_epi32(0x7fffffff), u), 16);
    __m128i odd = _mm_and_si128(_mm_srli_epi32(a, 13), _mm_set1_epi32(1));
    __m128i normal = _mm_add_epi32(a, _mm_add_epi32(odd, _mm_set1_epi32(0xfff - (112 << 23))));
    normal = _mm_srli_epi32(normal, 13);
    __m128i small = _mm_castps_si128(_mm_add_ps(_mm_castsi128_ps(a), magic));
    small = _mm_sub_epi32(small, _mm_castps_si128(magic));
    __m128i y = _mm_blendv_epi8(normal, small, _mm_cmplt_epi32(a, _mm_set1_epi32(0x38800000)));
    y = _mm_blendv_epi8(y, _mm_set1_epi32(0x7c00), _mm_cmpgt_epi32(a, _mm_set1_epi32(0x477fffff)));
    y = _mm_blendv_epi8(y, _mm_set1_epi32(0x7e00), _mm_cmpgt_epi32(a, _mm_set1_epi32(0x7f800000)));
    return _mm_or_si128(y, sign);
}

#define h_join_ph(lo, hi) _mm_packus_epi32(h_narrow_f16(lo), h_narrow_f16(hi))

/* pairs of bytes, the first unsigned, the second signed, as maddubs multiplies and adds them; which two
 * are a pair */
#define h_products(codes, x) _mm_maddubs_epi16(codes, x)
static inline h_int h_add_products(h_int s, h_int codes, h_int x)
{
    return _mm_add_epi16(s, _mm_maddubs_epi16(codes, x));
}

#endif
