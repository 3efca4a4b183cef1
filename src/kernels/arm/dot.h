/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64 with dot products (ARMv8.2 dotprod): codes of two bits times bytes.
 *
 * A byte has four codes 0 .. 3. All but the topmost are masked where they stand, so that they count
 * once, four and sixteen times, and have sums of their own; the topmost is shifted down. These are four
 * instructions for 64 codes, beside four dot products. Sums of 32 bits hold them:
 * 8192 * 48 * 127 < 2^26. What counts more than once is a multiple of that, so shifts are exact. */
#ifndef BN_KERNELS_ARM_DOT_H
#define BN_KERNELS_ARM_DOT_H

#include "kernels/kernels.h"

#include <arm_neon.h>

bn_mul_i8_fn bn_t2_mul_i8_dotprod;

#define ALWAYS static inline __attribute__((always_inline))

/* Sums of codes times activations: fields 0 and 3, 1, and 2 of the bytes. */
struct bn_dot_sums {
    int32x4_t one, four, sixteen;
};

ALWAYS struct bn_dot_sums bn_dot_zero(void)
{
    const int32x4_t z = vdupq_n_s32(0);
    return (struct bn_dot_sums){z, z, z};
}

ALWAYS int32x4_t bn_dot_all(struct bn_dot_sums s)
{
    return vaddq_s32(vaddq_s32(s.one, vshrq_n_s32(s.four, 2)), vshrq_n_s32(s.sixteen, 4));
}

/* The fields of 16 bytes: f[1] counts four times, f[2] sixteen times. */
ALWAYS void bn_dot_fields_of(int8x16_t f[4], uint8x16_t b)
{
    f[0] = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(3)));
    f[1] = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(12)));
    f[2] = vreinterpretq_s8_u8(vandq_u8(b, vdupq_n_u8(48)));
    f[3] = vreinterpretq_s8_u8(vshrq_n_u8(b, 6));
}

ALWAYS void bn_dot_fields(int8x16_t f[4], const uint8_t *p) { bn_dot_fields_of(f, vld1q_u8(p)); }

#endif
