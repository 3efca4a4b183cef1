/* SPDX-License-Identifier: Apache-2.0
 * Rows of floats into the dense storage types. Integers are rounded half-even against the scale
 * as it is stored (f16), so that what is read back is the nearest the format can say. Where a
 * block has one free number, a handful of candidates is tried and the one with the least squared
 * error kept. */
#include "model/files/types.h"

#include "base/half.h"
#include <math.h>

/* Half-even to a whole number in lo..hi; NaN becomes lo. Adding 1.5 * 2^23 to a value below 2^22
 * leaves it rounded; the two comparisons are written so that they become vector instructions. */
static inline float nearest_f(float v, int lo, int hi)
{
    v = v > (float)lo ? v : (float)lo;
    v = v < (float)hi ? v : (float)hi;
    return v + 12582912.0f - 12582912.0f;
}

static inline int nearest(float v, int lo, int hi) { return (int)nearest_f(v, lo, hi); }

/* sums run in lanes, so that the compiler may use vectors without changing the order */
enum { LANES = 8 };
static inline float sum_lanes(const float *v)
{
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static inline float inverse(float d) { return d != 0 ? 1 / d : 0; }

/* f16 bits of a scale; large ones stop at the largest finite value */
static uint16_t scale_f16(float d)
{
    if (d > 65504) d = 65504;
    if (d < -65504) d = -65504;
    return bn_f32_to_f16(d);
}

/* the value of largest magnitude, with its sign */
static float signed_max(const float *x, int n)
{
    float best = 0;
    for (int j = 0; j < n; j++)
        if (fabsf(x[j]) > fabsf(best)) best = x[j];
    return best;
}

static void quant_q8_0(uint8_t *dst, const float *x)
{
    uint16_t d = scale_f16(fabsf(signed_max(x, 32)) / 127);
    float inv = inverse(bn_f16_to_f32(d));
    bn_store_u16(dst, d);
    for (int j = 0; j < 32; j++) dst[2 + j] = (uint8_t)nearest(x[j] * inv, -127, 127);
}

/* Scale for n values as integers in -half .. half - 1: the extreme value is put near -half (the
 * side with one step more), which is tried slightly wider and narrower; with the integers fixed
 * the best scale is sum(xq) / sum(qq). Returns the scale with the least squared error, 0 for
 * zeros. */
static inline __attribute__((always_inline)) float search_scale(const float *x, int n, int half)
{
    float extreme = signed_max(x, n), best = 0, best_gain = 0;
    if (!(fabsf(extreme) > 0)) return 0;
    for (int step = -4; step <= 4; step++) {
        float inv = -((float)half + 0.2f * (float)step) / extreme, xq, qq;
        float xqs[LANES] = {0}, qqs[LANES] = {0};
        for (int j = 0; j < n; j += LANES) {
            float q[LANES];
            for (int k = 0; k < LANES; k++) q[k] = nearest_f(x[j + k] * inv, -half, half - 1);
            for (int k = 0; k < LANES; k++) xqs[k] += x[j + k] * q[k];
            for (int k = 0; k < LANES; k++) qqs[k] += q[k] * q[k];
        }
        xq = sum_lanes(xqs);
        qq = sum_lanes(qqs);
        if (qq > 0 && xq * xq > best_gain * qq) { /* error = sum(xx) - xq^2 / qq */
            best_gain = xq * xq / qq;
            best = xq / qq;
        }
    }
    return best != 0 ? best : extreme / (float)-half;
}

static void quant_q4_0(uint8_t *dst, const float *x)
{
    uint16_t d = scale_f16(search_scale(x, 32, 8));
    float inv = inverse(bn_f16_to_f32(d));
    bn_store_u16(dst, d);
    for (int j = 0; j < 16; j++)
        dst[2 + j] = (uint8_t)((nearest(x[j] * inv, -8, 7) + 8) |
                               (nearest(x[16 + j] * inv, -8, 7) + 8) << 4);
}

static void quant_q6_k(uint8_t *dst, const float *x)
{
    float scales[16];
    for (int g = 0; g < 16; g++) scales[g] = search_scale(x + 16 * g, 16, 32);
    uint16_t d16 = scale_f16(signed_max(scales, 16) / -128);
    float d = bn_f16_to_f32(d16), inv_d = inverse(d);
    memset(dst, 0, 208);
    bn_store_u16(dst + 208, d16);
    for (int g = 0; g < 16; g++) {
        int scale = nearest(scales[g] * inv_d, -128, 127);
        float inv = inverse(d * (float)scale);
        dst[192 + g] = (uint8_t)scale;
        for (int j = 0; j < 16; j++) { /* places as in types_dense.c */
            int e = 16 * g + j, h = e / 128, l = e % 128 / 32, m = e % 32;
            int q = nearest(x[e] * inv, -32, 31) + 32;
            dst[h * 64 + l % 2 * 32 + m] |= (uint8_t)((q & 15) << l / 2 * 4);
            dst[128 + h * 32 + m] |= (uint8_t)(q >> 4 << 2 * l);
        }
    }
}

/* x ~ scale * q - min with q in 0..15 and both >= 0: start from the range, try it narrower, and
 * with the integers fixed solve for the best line through them. */
static void search_line(const float *x, float *scale, float *min)
{
    float lo = 0, hi = 0, sx = 0, sxx = 0, best = INFINITY;
    for (int j = 0; j < 32; j++) {
        if (x[j] < lo) lo = x[j];
        if (x[j] > hi) hi = x[j];
        sx += x[j];
        sxx += x[j] * x[j];
    }
    *scale = (hi - lo) / 15;
    *min = -lo;
    if (!(hi > lo)) return;
    for (int step = 0; step <= 6; step++) {
        float inv = (15 + 0.2f * (float)step) / (hi - lo), sq, sqq, sxq;
        float qs[LANES] = {0}, qqs[LANES] = {0}, xqs[LANES] = {0};
        for (int j = 0; j < 32; j += LANES)
            for (int k = 0; k < LANES; k++) {
                float q = nearest_f((x[j + k] - lo) * inv, 0, 15);
                qs[k] += q;
                qqs[k] += q * q;
                xqs[k] += q * x[j + k];
            }
        sq = sum_lanes(qs);
        sqq = sum_lanes(qqs);
        sxq = sum_lanes(xqs);
        float det = 32 * sqq - sq * sq;
        if (!(det > 0)) continue;
        float s = (32 * sxq - sq * sx) / det, m = (sq * sxq - sqq * sx) / det;
        if (m < 0) m = 0, s = sxq / sqq;
        if (!(s > 0)) continue;
        float error = sxx + s * s * sqq + 32 * m * m - 2 * s * sxq + 2 * m * sx - 2 * s * m * sq;
        if (error < best) best = error, *scale = s, *min = m;
    }
}

static void quant_q4_k(uint8_t *dst, const float *x)
{
    float scales[8], mins[8], max_scale = 0, max_min = 0;
    for (int g = 0; g < 8; g++) {
        search_line(x + 32 * g, &scales[g], &mins[g]);
        if (scales[g] > max_scale) max_scale = scales[g];
        if (mins[g] > max_min) max_min = mins[g];
    }
    uint16_t d16 = scale_f16(max_scale / 63), m16 = scale_f16(max_min / 63);
    float d = bn_f16_to_f32(d16), dmin = bn_f16_to_f32(m16), inv_d = inverse(d);
    float inv_dmin = inverse(dmin);
    memset(dst, 0, 144);
    bn_store_u16(dst, d16);
    bn_store_u16(dst + 2, m16);
    for (int g = 0; g < 8; g++) {
        int scale = nearest(scales[g] * inv_d, 0, 63), min = nearest(mins[g] * inv_dmin, 0, 63);
        if (g < 4) {
            dst[4 + g] |= (uint8_t)scale;
            dst[8 + g] |= (uint8_t)min;
        } else {
            dst[8 + g] |= (uint8_t)((scale & 15) | (min & 15) << 4);
            dst[g] |= (uint8_t)(scale >> 4 << 6);
            dst[4 + g] |= (uint8_t)(min >> 4 << 6);
        }
        float inv = inverse(d * (float)scale), m = dmin * (float)min;
        for (int j = 0; j < 32; j++)
            dst[16 + g / 2 * 32 + j] |=
                (uint8_t)(nearest((x[32 * g + j] + m) * inv, 0, 15) << 4 * (g % 2));
    }
}

void bn_quant_row(uint8_t *dst, enum bn_type t, const float *x, uint64_t cols)
{
    const struct bn_type_info *i = bn_type_info(t);
    switch (t) {
    case BN_F32: memcpy(dst, x, cols * 4); return;
    case BN_F16:
        for (uint64_t k = 0; k < cols; k++) bn_store_u16(dst + 2 * k, bn_f32_to_f16(x[k]));
        return;
    case BN_BF16:
        for (uint64_t k = 0; k < cols; k++) bn_store_u16(dst + 2 * k, bn_f32_to_bf16(x[k]));
        return;
    default: break;
    }
    for (uint64_t b = 0; b < cols / i->block; b++, dst += i->block_bytes, x += i->block)
        switch (t) {
        case BN_Q8_0: quant_q8_0(dst, x); break;
        case BN_Q6_K: quant_q6_k(dst, x); break;
        case BN_Q4_0: quant_q4_0(dst, x); break;
        case BN_Q4_K: quant_q4_k(dst, x); break;
        default: return; /* not a dense type */
        }
}
