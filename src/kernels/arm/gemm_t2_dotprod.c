/* SPDX-License-Identifier: Apache-2.0
 *
 * NEON with the dot product instruction. */
#include <arm_neon.h>

static inline int32x4_t dot16(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    return vdotq_s32(acc, a, b);
}

#include "kernels/arm/gemm_t2_arm.h"

const struct bn_gemm bn_gemm_t2_dotprod = {
    BN_T2_LAYOUT,
    .mul_i8 = mul_i8,
    .mul_f32 = bn_t2_mul_f32_c,
};
