/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON of ARMv8.0: the operations on 128 bits of kernels/wide/wide.h. A maximum and a minimum give the
 * second operand where one is a NaN, as on x86: so they are a comparison and a choice. Conversions to
 * integers are defined everywhere, but differ from x86's where a number is out of range. */
#ifndef BN_KERNELS_ARM_HALF_NEON_H
#define BN_KERNELS_ARM_HALF_NEON_H

#include "base/base.h"
#include "base/half.h"

#include <arm_neon.h>

typedef float32x4_t h_f32;
typedef int32x4_t h_int;
typedef float64x2_t h_f64;

/* "g2" and screening have kernels of their own, in which sums have no pairs: rows_in_lanes.h */
#define W_ROWS_IN_LANES 1

#define H_INLINE static inline __attribute__((always_inline))

/* ---- two operands: in registers of the given type ---- */

#define H_OP(name, type, expr)                \
    H_INLINE h_int h_##name(h_int x, h_int y) \
    {                                         \
        const type a = (type)x, b = (type)y;  \
        return (h_int)(expr);                 \
    }
H_OP(add_epi8, uint8x16_t, vaddq_u8(a, b))
H_OP(add_epi16, uint16x8_t, vaddq_u16(a, b))
H_OP(add_epi32, uint32x4_t, vaddq_u32(a, b))
H_OP(add_epi64, uint64x2_t, vaddq_u64(a, b))
H_OP(sub_epi8, uint8x16_t, vsubq_u8(a, b))
H_OP(sub_epi16, uint16x8_t, vsubq_u16(a, b))
H_OP(sub_epi32, uint32x4_t, vsubq_u32(a, b))
H_OP(and_si128, uint32x4_t, vandq_u32(a, b))
H_OP(or_si128, uint32x4_t, vorrq_u32(a, b))
H_OP(xor_si128, uint32x4_t, veorq_u32(a, b))
H_OP(andnot_si128, uint32x4_t, vbicq_u32(b, a))
H_OP(max_epi8, int8x16_t, vmaxq_s8(a, b))
H_OP(max_epu16, uint16x8_t, vmaxq_u16(a, b))
H_OP(max_epu32, uint32x4_t, vmaxq_u32(a, b))
H_OP(mullo_epi16, uint16x8_t, vmulq_u16(a, b))
H_OP(mullo_epi32, uint32x4_t, vmulq_u32(a, b))
H_OP(mulhrs_epi16, int16x8_t, vqrdmulhq_s16(a, b))
H_OP(packs_epi16, int16x8_t, vqmovn_high_s16(vqmovn_s16(a), b))
H_OP(packs_epi32, int32x4_t, vqmovn_high_s32(vqmovn_s32(a), b))
H_OP(packus_epi16, int16x8_t, vqmovun_high_s16(vqmovun_s16(a), b))
H_OP(packus_epi32, int32x4_t, vqmovun_high_s32(vqmovun_s32(a), b))
H_OP(hadd_epi16, int16x8_t, vpaddq_s16(a, b))
H_OP(hadd_epi32, int32x4_t, vpaddq_s32(a, b))
H_OP(cmpeq_epi16, uint16x8_t, vceqq_u16(a, b))
H_OP(cmpeq_epi32, uint32x4_t, vceqq_u32(a, b))
H_OP(cmpgt_epi8, int8x16_t, vcgtq_s8(a, b))
H_OP(cmpgt_epi16, int16x8_t, vcgtq_s16(a, b))
H_OP(cmpgt_epi32, int32x4_t, vcgtq_s32(a, b))
H_OP(unpacklo_epi8, uint8x16_t, vzip1q_u8(a, b))
H_OP(unpackhi_epi8, uint8x16_t, vzip2q_u8(a, b))
H_OP(unpacklo_epi16, uint16x8_t, vzip1q_u16(a, b))
H_OP(unpackhi_epi16, uint16x8_t, vzip2q_u16(a, b))
H_OP(unpacklo_epi32, uint32x4_t, vzip1q_u32(a, b))
H_OP(unpackhi_epi32, uint32x4_t, vzip2q_u32(a, b))
H_OP(unpacklo_epi64, uint64x2_t, vzip1q_u64(a, b))
H_OP(unpackhi_epi64, uint64x2_t, vzip2q_u64(a, b))
/* indices below 16, or with the top bit set for a zero */
H_OP(shuffle_epi8, uint8x16_t, vqtbl1q_u8(a, b))
/* indices below 128, of which the lower four bits count */
H_OP(shuffle_low_epi8, uint8x16_t, vqtbl1q_u8(a, vandq_u8(b, vdupq_n_u8(15))))
/* the first operand's bytes below 128, so that both are signed */
H_OP(maddubs_epi16, int8x16_t,
     vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)))
H_OP(madd_epi16, int16x8_t,
     vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b)))
/* the sums of eight bytes; the other operand is zero */
H_OP(sad_epu8, uint8x16_t, vpaddlq_u32(vpaddlq_u16(vpaddlq_u8(vabdq_u8(a, b)))))
/* the first operand, negated where the second is below 0; that is never 0 */
H_OP(sign_epi8, int8x16_t, vbslq_s8(vcltzq_s8(b), vnegq_s8(a), a))
#undef H_OP

#define H_OP(name, expr) \
    H_INLINE h_f32 h_##name(h_f32 a, h_f32 b) { return (expr); }
#define H_BITS(a) ((uint32x4_t)(a))
H_OP(add_ps, vaddq_f32(a, b))
H_OP(sub_ps, vsubq_f32(a, b))
H_OP(mul_ps, vmulq_f32(a, b))
H_OP(div_ps, vdivq_f32(a, b))
H_OP(max_ps, vbslq_f32(vcgtq_f32(a, b), a, b))
H_OP(min_ps, vbslq_f32(vcltq_f32(a, b), a, b))
H_OP(and_ps, (h_f32)vandq_u32(H_BITS(a), H_BITS(b)))
H_OP(or_ps, (h_f32)vorrq_u32(H_BITS(a), H_BITS(b)))
H_OP(xor_ps, (h_f32)veorq_u32(H_BITS(a), H_BITS(b)))
H_OP(andnot_ps, (h_f32)vbicq_u32(H_BITS(b), H_BITS(a)))
H_OP(unpacklo_ps, vzip1q_f32(a, b))
H_OP(unpackhi_ps, vzip2q_f32(a, b))
H_OP(cmp_LT_OQ, (h_f32)vcltq_f32(a, b))
H_OP(cmp_GT_OQ, (h_f32)vcgtq_f32(a, b))
H_OP(cmp_GE_OQ, (h_f32)vcgeq_f32(a, b))
H_OP(cmp_NLT_UQ, (h_f32)vmvnq_u32(vcltq_f32(a, b)))
H_OP(cmp_NEQ_UQ, (h_f32)vmvnq_u32(vceqq_f32(a, b)))
H_OP(cmp_UNORD_Q, (h_f32)vmvnq_u32(vandq_u32(vceqq_f32(a, a), vceqq_f32(b, b))))
#undef H_OP

H_INLINE h_f64 h_add_pd(h_f64 a, h_f64 b) { return vaddq_f64(a, b); }
H_INLINE h_f64 h_mul_pd(h_f64 a, h_f64 b) { return vmulq_f64(a, b); }
H_INLINE h_f64 h_hadd_pd(h_f64 a, h_f64 b) { return vpaddq_f64(a, b); }

/* a * b + c with one rounding */
H_INLINE h_f32 h_fmadd_ps(h_f32 a, h_f32 b, h_f32 c) { return vfmaq_f32(c, a, b); }

/* b where m says so: masks of whole elements, or the top bits of bytes */
H_INLINE h_f32 h_blendv_ps(h_f32 a, h_f32 b, h_f32 m) { return vbslq_f32(H_BITS(m), b, a); }
H_INLINE h_int h_blendv_epi8(h_int a, h_int b, h_int m)
{
    return (h_int)vbslq_s8(vcltzq_s8((int8x16_t)m), (int8x16_t)b, (int8x16_t)a);
}

H_INLINE h_int h_abs_epi8(h_int v) { return (h_int)vabsq_s8((int8x16_t)v); }

/* ---- shifts; by a constant they are one instruction ---- */

#define h_slli_epi16(v, n) ((h_int)((uint16x8_t)(v) << (n)))
#define h_srli_epi16(v, n) ((h_int)((uint16x8_t)(v) >> (n)))
#define h_srai_epi16(v, n) ((h_int)((int16x8_t)(v) >> (n)))
#define h_slli_epi32(v, n) ((h_int)((uint32x4_t)(v) << (n)))
#define h_srli_epi32(v, n) ((h_int)((uint32x4_t)(v) >> (n)))
#define h_srai_epi32(v, n) ((h_int)((int32x4_t)(v) >> (n)))
#define h_srl_epi16(v, n)  ((h_int)((uint16x8_t)(v) >> vgetq_lane_s32(n, 0)))
#define h_srl_epi32(v, n)  ((h_int)((uint32x4_t)(v) >> vgetq_lane_s32(n, 0)))
#define h_srli_si128(v, n) ((h_int)vextq_u8((uint8x16_t)(v), vdupq_n_u8(0), n))

/* ---- places ---- */

#define H_PAIRS(v)              ((float64x2_t)(v))
#define h_shuffle_ps(a, b, imm) h_shuffle_ps_##imm(a, b)
#define h_shuffle_ps_0x44(a, b) ((h_f32)vzip1q_f64(H_PAIRS(a), H_PAIRS(b)))
#define h_shuffle_ps_0xee(a, b) ((h_f32)vzip2q_f64(H_PAIRS(a), H_PAIRS(b)))
#define h_shuffle_ps_0x88(a, b) vuzp1q_f32(a, b)
#define h_shuffle_ps_0xdd(a, b) vuzp2q_f32(a, b)
#define h_permute_ps(v, imm)    h_permute_ps_##imm(v)
#define h_permute_ps_0x4e(v)    vextq_f32(v, v, 2)
#define h_permute_ps_0xb1(v)    vrev64q_f32(v)
#define h_shuffle_epi32(v, imm) h_shuffle_epi32_##imm(v)
#define h_shuffle_epi32_0x4e(v) vextq_s32(v, v, 2)
#define h_shuffle_epi32_0xb1(v) vrev64q_s32(v)
#define h_shuffle_epi32_1(v)    vextq_s32(v, v, 1) /* of use is the first only */
#define h_movehl_ps(a, b)       ((h_f32)vzip2q_f64(H_PAIRS(b), H_PAIRS(a)))
#define h_movehdup_ps(v)        vtrn2q_f32(v, v)
#define H_TRANSPOSE4_PS(a, b, c, d)                                           \
    do {                                                                      \
        h_f32 ab_ = vtrn1q_f32(a, b), cd_ = vtrn1q_f32(c, d);                 \
        h_f32 ef_ = vtrn2q_f32(a, b), gh_ = vtrn2q_f32(c, d);                 \
        (a) = h_shuffle_ps_0x44(ab_, cd_), (b) = h_shuffle_ps_0x44(ef_, gh_); \
        (c) = h_shuffle_ps_0xee(ab_, cd_), (d) = h_shuffle_ps_0xee(ef_, gh_); \
    } while (0)

/* ---- numbers and memory ---- */

#define h_set1_ps(x)      vdupq_n_f32(x)
#define h_set1_pd(x)      vdupq_n_f64(x)
#define h_set1_epi8(x)    ((h_int)vdupq_n_s8((int8_t)(x)))
#define h_set1_epi16(x)   ((h_int)vdupq_n_s16(x))
#define h_set1_epi32(x)   vdupq_n_s32(x)
#define h_set1_epi64x(x)  ((h_int)vdupq_n_s64(x))
#define h_setzero_ps()    vdupq_n_f32(0)
#define h_setzero_si128() vdupq_n_s32(0)
#define h_setr_ps(...)    ((h_f32){__VA_ARGS__})
#define h_setr_epi32(...) ((h_int){__VA_ARGS__})
#define h_setr_epi16(...) ((h_int)(int16x8_t){__VA_ARGS__})
#define h_setr_epi8(...)  ((h_int)(int8x16_t){__VA_ARGS__})
#define h_set_ss(x)       vsetq_lane_f32(x, vdupq_n_f32(0), 0)

H_INLINE h_f32 h_loadu_ps(const float *p) { return vld1q_f32(p); }
H_INLINE void h_storeu_ps(float *p, h_f32 v) { vst1q_f32(p, v); }
H_INLINE h_int h_loadu_si128(const void *p) { return (h_int)vld1q_u8(p); }
H_INLINE void h_storeu_si128(void *p, h_int v) { vst1q_u8(p, (uint8x16_t)v); }
H_INLINE h_int h_loadl_epi64(const void *p) { return (h_int)vcombine_u8(vld1_u8(p), vdup_n_u8(0)); }
H_INLINE void h_storel_epi64(void *p, h_int v) { vst1_u8(p, vget_low_u8((uint8x16_t)v)); }
#define h_load_si128        h_loadu_si128
#define h_prefetch(p, hint) __builtin_prefetch(p, 0, hint)
#define H_T0                3
#define H_T1                2

#define h_castps_si128(v)     ((h_int)(v))
#define h_castsi128_ps(v)     ((h_f32)(v))
#define h_cvtss_f32(v)        vgetq_lane_f32(v, 0)
#define h_cvtsi128_si32(v)    vgetq_lane_s32(v, 0)
#define h_cvtsi32_si128(x)    vsetq_lane_s32(x, vdupq_n_s32(0), 0)
#define h_extract_epi16(v, i) vgetq_lane_u16((uint16x8_t)(v), i)
/* of one number only */
#define h_add_ss h_add_ps
#define h_mul_ss h_mul_ps
#define h_max_ss h_max_ps

/* ---- conversions ---- */

#define h_cvtepi32_ps(v)       vcvtq_f32_s32(v)
#define h_cvtps_epi32(v)       vcvtnq_s32_f32(v)
#define h_cvtss_si32(v)        vgetq_lane_s32(vcvtnq_s32_f32(v), 0)
#define h_cvtepi8_epi16(v)     ((h_int)vmovl_s8(vget_low_s8((int8x16_t)(v))))
#define h_cvthi_epi8_epi16(v)  ((h_int)vmovl_high_s8((int8x16_t)(v)))
#define h_cvtepu8_epi16(v)     ((h_int)vmovl_u8(vget_low_u8((uint8x16_t)(v))))
#define h_cvthi_epu8_epi16(v)  ((h_int)vmovl_high_u8((uint8x16_t)(v)))
#define h_cvtepi16_epi32(v)    ((h_int)vmovl_s16(vget_low_s16((int16x8_t)(v))))
#define h_cvthi_epi16_epi32(v) ((h_int)vmovl_high_s16((int16x8_t)(v)))
#define h_cvtepu16_epi32(v)    ((h_int)vmovl_u16(vget_low_u16((uint16x8_t)(v))))
#define h_cvthi_epu16_epi32(v) ((h_int)vmovl_high_u16((uint16x8_t)(v)))
#define h_cvtepi32_pd(v)       vcvtq_f64_s64(vmovl_s32(vget_low_s32(v)))
#define h_cvthi_epi32_pd(v)    vcvtq_f64_s64(vmovl_high_s32(v))
#define h_cvtps_pd(v)          vcvt_f64_f32(vget_low_f32(v))
#define h_cvthi_ps_pd(v)       vcvt_high_f64_f32(v)
#define h_join_pd_ps(lo, hi)   vcvt_high_f32_f64(vcvt_f32_f64(lo), hi)
#define h_cvtph_ps(v)          vcvt_f32_f16(vget_low_f16((float16x8_t)(v)))
#define h_cvthi_ph_ps(v)       vcvt_high_f32_f16((float16x8_t)(v))
#define h_join_ph(lo, hi)      ((h_int)vcvt_high_f16_f32(vcvt_f16_f32(lo), hi))
#define h_cvtsh_ss(x)          bn_f16_to_f32(x)

/* ---- tests ---- */

H_INLINE int h_movemask_ps(h_f32 v)
{
    const uint32x4_t bit = {1, 2, 4, 8};
    return (int)vaddvq_u32(vandq_u32((uint32x4_t)((int32x4_t)v >> 31), bit));
}
#define h_testz_si128(a, b) (vmaxvq_u32((uint32x4_t)h_and_si128(a, b)) == 0)
#define h_minpos_epu16(v)   ((h_int)vdupq_n_u16(vminvq_u16((uint16x8_t)(v))))

/* ---- written out on x86 ---- */

#define h_keep(v) __asm__("" : "+w"(v))

/* products of the bytes 8 apart: two instructions add them up, without a step for pairs */
H_INLINE h_int h_add_products(h_int s, h_int codes, h_int x)
{
    const int8x16_t a = (int8x16_t)codes, b = (int8x16_t)x;
    int16x8_t sum = vmlal_s8((int16x8_t)s, vget_low_s8(a), vget_low_s8(b));
    return (h_int)vmlal_high_s8(sum, a, b);
}

#endif
