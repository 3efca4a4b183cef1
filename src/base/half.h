/* SPDX-License-Identifier: Apache-2.0
 * 16-bit floats in plain C: exact widening, round-half-even narrowing. These are the definitions
 * that the vector kernels must match. */
#ifndef BN_BASE_HALF_H
#define BN_BASE_HALF_H

#include "base/base.h"

static inline float bn_u32_as_f32(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t bn_f32_as_u32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float bn_bf16_to_f32(uint16_t h) { return bn_u32_as_f32((uint32_t)h << 16); }

static inline uint16_t bn_f32_to_bf16(float f)
{
    uint32_t u = bn_f32_as_u32(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40); /* NaN stays NaN, quiet */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float bn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag >= 0x7c00) { /* infinity and NaN; a NaN comes out quiet, as the hardware makes it */
        uint32_t nan = mag > 0x7c00 ? 0x400000 : 0;
        return bn_u32_as_f32(sign | 0x7f800000 | nan | (mag & 0x3ff) << 13);
    }
    if (mag < 0x400) { /* zero and subnormals: mag * 2^-24, exactly */
        float v = (float)mag * 0x1p-24f;
        return bn_u32_as_f32(sign | bn_f32_as_u32(v));
    }
    return bn_u32_as_f32(sign | ((mag << 13) + 0x38000000));
}

static inline uint16_t bn_f32_to_f16(float f)
{
    uint32_t u = bn_f32_as_u32(f), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x1ff)); /* quiet NaN */
    if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds to infinity */
    if (u < 0x38800000) {
        /* subnormal or zero: adding 0.5 puts the wanted bits at the bottom of the sum */
        float v = bn_u32_as_f32(u) + 0.5f;
        return (uint16_t)(sign | (bn_f32_as_u32(v) - 0x3f000000));
    }
    return (uint16_t)(sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13));
}

#endif
