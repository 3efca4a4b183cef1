/* SPDX-License-Identifier: Apache-2.0
 * 8-bit floats of keys and values in plain C, the definitions that the vector kernels must match.
 * e4m3: 4 bits of exponent (bias 7), largest 448, no infinity, NaN 0x7f. e5m2: 5 bits (bias 15),
 * largest 57344, otherwise the upper half of a float16. */
#ifndef BN_KERNELS_FP8_H
#define BN_KERNELS_FP8_H

#include "base/half.h"

struct bn_fp8 {
    int shift;          /* bits of a float's mantissa that it lacks */
    uint32_t rebias;    /* what a float's code, shifted, has too much */
    float max;          /* larger numbers become this one */
    float least, magic; /* the least normal number; added to a smaller one it rounds it */
    uint32_t infinity;  /* code of an infinity, and of a NaN */
    uint32_t nan;
};
static const struct bn_fp8 bn_e4m3 = {20, 120 << 3, 448, 0x1p-6f, 0x1p14f, 0x7f, 0x7f};
static const struct bn_fp8 bn_e5m2 = {21, 112 << 2, 57344, 0x1p-14f, 0x1p7f, 0x7c, 0x7f};

static inline uint8_t bn_f32_to_fp8(float x, const struct bn_fp8 *f)
{
    uint32_t u = bn_f32_as_u32(x), sign = u >> 24 & 0x80;
    u &= 0x7fffffff;
    if (u >= 0x7f800000) return (uint8_t)(sign | (u == 0x7f800000 ? f->infinity : f->nan));
    float a = bn_u32_as_f32(u);
    if (a > f->max) a = f->max;
    u = bn_f32_as_u32(a);
    if (a < f->least)
        return (uint8_t)(sign | (bn_f32_as_u32(a + f->magic) - bn_f32_as_u32(f->magic)));
    u += (1u << (f->shift - 1)) - 1 + (u >> f->shift & 1);
    return (uint8_t)(sign | ((u >> f->shift) - f->rebias));
}

static inline float bn_e5m2_to_f32(uint8_t c) { return bn_f16_to_f32((uint16_t)(c << 8)); }

/* as a float16 with the same bits of mantissa and exponent, whose bias is larger by 8 */
static inline float bn_e4m3_to_f32(uint8_t c)
{
    uint16_t mag = c & 0x7f, sign = (uint16_t)((c & 0x80) << 8);
    return bn_f16_to_f32((uint16_t)(sign | (mag == 0x7f ? 0x7e00 : mag << 7))) * 256;
}

#endif
