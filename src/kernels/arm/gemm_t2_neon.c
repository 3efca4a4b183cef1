/* SPDX-License-Identifier: Apache-2.0
 *
 * Baseline NEON: bytes are multiplied to 16 bits, two products a place (|sum| <= 2 * 3 * 127), and
 * added in pairs to 32. */
#include <arm_neon.h>

static inline int32x4_t dot16(int32x4_t acc, int8x16_t a, int8x16_t b)
{
    int16x8_t p = vmull_s8(vget_low_s8(a), vget_low_s8(b));
    return vpadalq_s16(acc, vmlal_high_s8(p, a, b));
}

#include "kernels/arm/gemm_t2_arm.h"

const struct bn_gemm bn_gemm_t2_neon = {
    BN_T2_LAYOUT,
    .mul_i8 = mul_i8,
    .mul_f32 = bn_t2_mul_f32_c,
};
