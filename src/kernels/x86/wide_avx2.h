/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: wide vectors (kernels/wide/wide.h) are registers, and operations are instructions. */
#ifndef BN_KERNELS_X86_WIDE_AVX2_H
#define BN_KERNELS_X86_WIDE_AVX2_H

#include "base/base.h"

#include <immintrin.h>

typedef __m256 w_f32;
typedef __m256i w_int;
typedef __m256d w_f64;
typedef __m128 h_f32;
typedef __m128i h_int;

/* clang-format off */
#define w_abs_epi8 _mm256_abs_epi8
#define w_add_epi16 _mm256_add_epi16
#define w_add_epi32 _mm256_add_epi32
#define w_add_epi64 _mm256_add_epi64
#define w_add_epi8 _mm256_add_epi8
#define w_add_pd _mm256_add_pd
#define w_add_ps _mm256_add_ps
#define w_and_ps _mm256_and_ps
#define w_and_si256 _mm256_and_si256
#define w_andnot_ps _mm256_andnot_ps
#define w_blend_ps _mm256_blend_ps
#define w_blendv_epi8 _mm256_blendv_epi8
#define w_blendv_ps _mm256_blendv_ps
#define w_broadcast_ss _mm256_broadcast_ss
#define w_broadcastsi128_si256 _mm256_broadcastsi128_si256
#define w_castps256_ps128 _mm256_castps256_ps128
#define w_castps_si256 _mm256_castps_si256
#define w_castsi256_ps _mm256_castsi256_ps
#define w_castsi256_si128 _mm256_castsi256_si128
#define w_cmpeq_epi16 _mm256_cmpeq_epi16
#define w_cmpeq_epi32 _mm256_cmpeq_epi32
#define w_cmpgt_epi16 _mm256_cmpgt_epi16
#define w_cmpgt_epi32 _mm256_cmpgt_epi32
#define w_cmpgt_epi8 _mm256_cmpgt_epi8
#define w_cvtepi16_epi32 _mm256_cvtepi16_epi32
#define w_cvtepi32_pd _mm256_cvtepi32_pd
#define w_cvtepi32_ps _mm256_cvtepi32_ps
#define w_cvtepi8_epi16 _mm256_cvtepi8_epi16
#define w_cvtepi8_epi32 _mm256_cvtepi8_epi32
#define w_cvtepu16_epi32 _mm256_cvtepu16_epi32
#define w_cvtepu8_epi16 _mm256_cvtepu8_epi16
#define w_cvtepu8_epi32 _mm256_cvtepu8_epi32
#define w_cvtpd_ps _mm256_cvtpd_ps
#define w_cvtph_ps _mm256_cvtph_ps
#define w_cvtps_epi32 _mm256_cvtps_epi32
#define w_cvtps_pd _mm256_cvtps_pd
#define w_cvtps_ph _mm256_cvtps_ph
#define w_div_ps _mm256_div_ps
#define w_extractf128_ps _mm256_extractf128_ps
#define w_extracti128_si256 _mm256_extracti128_si256
#define w_fmadd_ps _mm256_fmadd_ps
#define w_hadd_epi16 _mm256_hadd_epi16
#define w_hadd_epi32 _mm256_hadd_epi32
#define w_hadd_pd _mm256_hadd_pd
#define w_load_ps _mm256_load_ps
#define w_load_si256 _mm256_load_si256
#define w_loadu_ps _mm256_loadu_ps
#define w_loadu_si256 _mm256_loadu_si256
#define w_madd_epi16 _mm256_madd_epi16
#define w_maddubs_epi16 _mm256_maddubs_epi16
#define w_max_epi8 _mm256_max_epi8
#define w_max_epu16 _mm256_max_epu16
#define w_max_epu32 _mm256_max_epu32
#define w_max_ps _mm256_max_ps
#define w_min_ps _mm256_min_ps
#define w_movemask_ps _mm256_movemask_ps
#define w_mul_pd _mm256_mul_pd
#define w_mul_ps _mm256_mul_ps
#define w_mulhrs_epi16 _mm256_mulhrs_epi16
#define w_mullo_epi16 _mm256_mullo_epi16
#define w_mullo_epi32 _mm256_mullo_epi32
#define w_or_ps _mm256_or_ps
#define w_or_si256 _mm256_or_si256
#define w_packs_epi16 _mm256_packs_epi16
#define w_packs_epi32 _mm256_packs_epi32
#define w_packus_epi16 _mm256_packus_epi16
#define w_permute2f128_pd _mm256_permute2f128_pd
#define w_permute2f128_ps _mm256_permute2f128_ps
#define w_permute2x128_si256 _mm256_permute2x128_si256
#define w_permute_ps _mm256_permute_ps
#define w_sad_epu8 _mm256_sad_epu8
#define w_set1_epi16 _mm256_set1_epi16
#define w_set1_epi32 _mm256_set1_epi32
#define w_set1_epi64x _mm256_set1_epi64x
#define w_set1_epi8 _mm256_set1_epi8
#define w_set1_pd _mm256_set1_pd
#define w_set1_ps _mm256_set1_ps
#define w_set_m128 _mm256_set_m128
#define w_setr_epi16 _mm256_setr_epi16
#define w_setr_epi32 _mm256_setr_epi32
#define w_setr_epi8 _mm256_setr_epi8
#define w_setr_ps _mm256_setr_ps
#define w_setzero_pd _mm256_setzero_pd
#define w_setzero_ps _mm256_setzero_ps
#define w_setzero_si256 _mm256_setzero_si256
#define w_shuffle_epi8 _mm256_shuffle_epi8
#define w_shuffle_low_epi8 _mm256_shuffle_epi8
#define w_shuffle_ps _mm256_shuffle_ps
#define w_sign_epi8 _mm256_sign_epi8
#define w_slli_epi16 _mm256_slli_epi16
#define w_slli_epi32 _mm256_slli_epi32
#define w_srai_epi16 _mm256_srai_epi16
#define w_srai_epi32 _mm256_srai_epi32
#define w_srl_epi16 _mm256_srl_epi16
#define w_srl_epi32 _mm256_srl_epi32
#define w_srli_epi16 _mm256_srli_epi16
#define w_srli_epi32 _mm256_srli_epi32
#define w_store_ps _mm256_store_ps
#define w_store_si256 _mm256_store_si256
#define w_storeu_ps _mm256_storeu_ps
#define w_storeu_si256 _mm256_storeu_si256
#define w_sub_epi16 _mm256_sub_epi16
#define w_sub_epi32 _mm256_sub_epi32
#define w_sub_epi8 _mm256_sub_epi8
#define w_sub_ps _mm256_sub_ps
#define w_testz_si256 _mm256_testz_si256
#define w_unpackhi_epi16 _mm256_unpackhi_epi16
#define w_unpackhi_epi32 _mm256_unpackhi_epi32
#define w_unpackhi_epi64 _mm256_unpackhi_epi64
#define w_unpackhi_epi8 _mm256_unpackhi_epi8
#define w_unpackhi_ps _mm256_unpackhi_ps
#define w_unpacklo_epi16 _mm256_unpacklo_epi16
#define w_unpacklo_epi32 _mm256_unpacklo_epi32
#define w_unpacklo_epi64 _mm256_unpacklo_epi64
#define w_unpacklo_epi8 _mm256_unpacklo_epi8
#define w_unpacklo_ps _mm256_unpacklo_ps
#define w_xor_ps _mm256_xor_ps
#define w_xor_si256 _mm256_xor_si256

#define h_add_epi16 _mm_add_epi16
#define h_add_epi32 _mm_add_epi32
#define h_add_epi64 _mm_add_epi64
#define h_add_ps _mm_add_ps
#define h_add_ss _mm_add_ss
#define h_and_si128 _mm_and_si128
#define h_andnot_si128 _mm_andnot_si128
#define h_blendv_epi8 _mm_blendv_epi8
#define h_cmpeq_epi16 _mm_cmpeq_epi16
#define h_cvtepi32_ps _mm_cvtepi32_ps
#define h_cvtph_ps _mm_cvtph_ps
#define h_cvtsi128_si32 _mm_cvtsi128_si32
#define h_cvtsi32_si128 _mm_cvtsi32_si128
#define h_cvtss_f32 _mm_cvtss_f32
#define h_cvtss_si32 _mm_cvtss_si32
#define h_extract_epi16 _mm_extract_epi16
#define h_load_si128 _mm_load_si128
#define h_loadl_epi64 _mm_loadl_epi64
#define h_loadu_ps _mm_loadu_ps
#define h_loadu_si128 _mm_loadu_si128
#define h_max_epu16 _mm_max_epu16
#define h_max_epu32 _mm_max_epu32
#define h_max_ps _mm_max_ps
#define h_max_ss _mm_max_ss
#define h_minpos_epu16 _mm_minpos_epu16
#define h_movehdup_ps _mm_movehdup_ps
#define h_movehl_ps _mm_movehl_ps
#define h_mul_ps _mm_mul_ps
#define h_mul_ss _mm_mul_ss
#define h_or_si128 _mm_or_si128
#define h_packs_epi32 _mm_packs_epi32
#define h_packus_epi16 _mm_packus_epi16
#define h_packus_epi32 _mm_packus_epi32
#define h_set1_epi16 _mm_set1_epi16
#define h_set1_epi32 _mm_set1_epi32
#define h_set1_epi8 _mm_set1_epi8
#define h_set1_ps _mm_set1_ps
#define h_set_ss _mm_set_ss
#define h_setr_epi32 _mm_setr_epi32
#define h_setr_epi8 _mm_setr_epi8
#define h_setzero_ps _mm_setzero_ps
#define h_setzero_si128 _mm_setzero_si128
#define h_shuffle_epi32 _mm_shuffle_epi32
#define h_slli_epi16 _mm_slli_epi16
#define h_srai_epi16 _mm_srai_epi16
#define h_srli_epi16 _mm_srli_epi16
#define h_srli_si128 _mm_srli_si128
#define h_storel_epi64 _mm_storel_epi64
#define h_storeu_ps _mm_storeu_ps
#define h_storeu_si128 _mm_storeu_si128
#define h_sub_epi32 _mm_sub_epi32
#define h_sub_epi8 _mm_sub_epi8
#define h_unpackhi_epi16 _mm_unpackhi_epi16
#define h_unpackhi_epi32 _mm_unpackhi_epi32
#define h_unpackhi_epi64 _mm_unpackhi_epi64
#define h_unpackhi_epi8 _mm_unpackhi_epi8
#define h_unpacklo_epi16 _mm_unpacklo_epi16
#define h_unpacklo_epi32 _mm_unpacklo_epi32
#define h_unpacklo_epi8 _mm_unpacklo_epi8
#define h_xor_si128 _mm_xor_si128
/* clang-format on */
#define w_cmp_ps(a, b, how) _mm256_cmp_ps(a, b, _CMP_##how)
#define h_cvtsh_ss          _cvtsh_ss
#define h_prefetch(p, hint) _mm_prefetch(p, hint)
#define H_T0                _MM_HINT_T0
#define H_T1                _MM_HINT_T1
#define H_TRANSPOSE4_PS     _MM_TRANSPOSE4_PS

/* Keeps v in its register, as it is here: compilers otherwise do things in another order, and run out
 * of registers. */
#define W_KEEP(v) __asm__("" : "+x"(v))

/* ---- the first n of some elements; the others are +0, and are not stored ---- */

static inline w_int w_mask_head(size_t n)
{
    static const int32_t bits[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const void *)(bits + 8 - bn_min_size(n, 8)));
}

static inline w_f32 w_load_head(const float *p, size_t n)
{
    return _mm256_maskload_ps(p, w_mask_head(n));
}

static inline void w_store_head(float *p, size_t n, w_f32 v)
{
    _mm256_maskstore_ps(p, w_mask_head(n), v);
}

static inline void w_store_head_i32(int32_t *p, size_t n, w_int v)
{
    _mm256_maskstore_epi32(p, w_mask_head(n), v);
}

static inline h_f32 h_load_head(const float *p, size_t n)
{
    return _mm_maskload_ps(p, _mm256_castsi256_si128(w_mask_head(n)));
}

static inline void h_store_head(float *p, size_t n, h_f32 v)
{
    _mm_maskstore_ps(p, _mm256_castsi256_si128(w_mask_head(n)), v);
}

/* ---- what is more than one instruction, or none, elsewhere ---- */

#if defined(__AVXVNNI__) || defined(__AVX512VNNI__)
#define W_DOT 1
#if defined(__AVXVNNI__)
#define W_DPBUSD "%{vex%} vpdpbusd"
#else
#define W_DPBUSD "vpdpbusd"
#endif
/* s + codes times activations, four bytes side by side to 32 bits. As an instruction, like those below. */
static inline __attribute__((always_inline)) w_int w_add_pairs(w_int s, w_int codes, w_int x)
{
    __asm__(W_DPBUSD " %2, %1, %0" : "+x"(s) : "x"(codes), "xm"(x));
    return s;
}

static inline __attribute__((always_inline)) w_int w_add_products(w_int s, w_int codes,
                                                                  const int8_t *x)
{
    __asm__(W_DPBUSD " %2, %1, %0" : "+x"(s) : "x"(codes), "m"(*(const __m256i_u *)x));
    return s;
}
#else
/* s + codes times activations, pairs of bytes side by side to 16 bits. Written as instructions, because
 * compilers would rather add up products first, or load all activations. */
static inline __attribute__((always_inline)) w_int w_add_pairs(w_int s, w_int codes, w_int x)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(s), "=&x"(p) : "x"(codes), "xm"(x));
    return s;
}

/* The same with activations in memory. Which two bytes make a pair is left open, but the same always. */
static inline __attribute__((always_inline)) w_int w_add_products(w_int s, w_int codes,
                                                                  const int8_t *x)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(s), "=&x"(p)
            : "x"(codes), "m"(*(const __m256i_u *)x));
    return s;
}
#endif

/* x, or what lies at `other` where the top bit of a byte of sign is set; compilers would compare first */
static inline __attribute__((always_inline)) w_int w_load_by_sign(const int8_t *x,
                                                                  const int8_t *other, w_int sign)
{
    __m256i a = _mm256_loadu_si256((const void *)x);
    __asm__("vpblendvb %2, %1, %0, %0" : "+x"(a) : "m"(*(const __m256i_u *)other), "x"(sign));
    return a;
}

/* the lower two bits of each code, less 1, as floats: vpermilps looks at two bits only */
static inline w_f32 w_weights(w_int codes)
{
    return _mm256_permutevar_ps(_mm256_setr_ps(-1, 0, 1, 2, -1, 0, 1, 2), codes);
}

/* the bits of byte 2 or 3 of `four` as floats -1 and +1: blendv, to which compilers add a comparison of
 * their own */
static inline w_f32 w_bit_signs(uint32_t four, const size_t byte)
{
    const __m256i at3 = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    const __m256i at = byte == 2 ? _mm256_add_epi32(at3, _mm256_set1_epi32(8)) : at3;
    const __m256 minus = _mm256_set1_ps(-1), plus = _mm256_set1_ps(1);
    __m256i v = _mm256_sllv_epi32(_mm256_set1_epi32((int32_t)four), at);
    __m256 y;
    __asm__("vblendvps %3, %2, %1, %0" : "=x"(y) : "x"(minus), "x"(plus), "x"(v));
    return y;
}

/* 2 x 8 integers to 16 bits and 4 x 8 to 8 bits, in order */
static inline w_int w_pack_i16(w_int a, w_int b)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

static inline w_int w_pack_i8(const w_int v[4])
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the packs */
    __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
}

#endif
