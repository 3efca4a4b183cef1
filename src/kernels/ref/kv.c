/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: keys and values in fewer bits (contracts and layouts in kernels.h). */
#include "base/half.h"
#include "kernels/fp8.h"
#include "kernels/kernels.h"

void bn_row_e4m3_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t i = 0; i < n; i++) y[i] = bn_e4m3_to_f32(p[i]);
}

void bn_row_e5m2_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t i = 0; i < n; i++) y[i] = bn_e5m2_to_f32(p[i]);
}

void bn_f32_to_bf16_c(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t i = 0; i < n; i++) bn_store_u16(p + 2 * i, bn_f32_to_bf16(x[i]));
}

void bn_f32_to_e4m3_c(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t i = 0; i < n; i++) p[i] = bn_f32_to_fp8(x[i], &bn_e4m3);
}

void bn_f32_to_e5m2_c(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t i = 0; i < n; i++) p[i] = bn_f32_to_fp8(x[i], &bn_e5m2);
}

/* half to even; |x| < 2^22 */
static float round_even(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

static float clamp(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

static bool is_finite_f16(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

void bn_f32_to_q8_0_c(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, x += 32) {
        float m = 0;
        bool finite = true;
        for (size_t i = 0; i < 32; i++) {
            float a = x[i] < 0 ? -x[i] : x[i];
            if (a > m) m = a;
            finite &= x[i] - x[i] == 0;
        }
        uint16_t d = bn_f32_to_f16(m / 127);
        finite &= is_finite_f16(d);
        float scale = bn_f16_to_f32(d), inv = scale > 0 ? 1 / scale : 0;
        bn_store_u16(p, finite ? d : BN_F16_NAN);
        for (size_t i = 0; i < 32; i++)
            p[2 + i] = (uint8_t)(int8_t)(finite ? round_even(clamp(x[i] * inv, -127, 127)) : 0);
    }
}

/* ---- blocks ---- */

/* The places of a group's step and minimum. */
static uint8_t *step_at(uint8_t *block, size_t i) { return block + 2 * i; }
static uint8_t *min_at(uint8_t *block, size_t dim, size_t i) { return block + 2 * (dim + i); }

/* A group's number among the steps: by channel, or by 32 channels and token. */
static size_t group_of(size_t token, size_t channel, bool values)
{
    return values ? channel / BN_KV_GROUP * BN_ATTN_BLOCK + token : channel;
}

/* A group: 32 values of a channel or of a token, `stride` apart. The first one is of token t and
 * channel c, the next ones of the next tokens or channels. */
static void put_group(uint8_t *block, const float *x, size_t stride, size_t dim, unsigned bits,
                      size_t t, size_t c, bool values)
{
    const float most = (float)((1 << bits) - 1);
    size_t group = group_of(t, c, values);
    float lo = x[0], hi = x[0];
    bool finite = true;
    for (size_t i = 0; i < BN_KV_GROUP; i++) {
        float v = x[i * stride];
        if (v < lo) lo = v;
        if (v > hi) hi = v;
        finite &= v - v == 0;
    }
    uint16_t step = bn_f32_to_f16((hi - lo) / most), min = bn_f32_to_f16(lo + 0.0f);
    finite &= is_finite_f16(step) && is_finite_f16(min);
    float d = bn_f16_to_f32(step), inv = d > 0 ? 1 / d : 0, base = bn_f16_to_f32(min);
    bn_store_u16(step_at(block, group), finite ? step : BN_F16_NAN);
    bn_store_u16(min_at(block, dim, group), finite ? min : 0);
    for (size_t i = 0; i < BN_KV_GROUP; i++) {
        float q = finite ? round_even(clamp((x[i * stride] - base) * inv, 0, most)) : 0;
        struct bn_kv_place at =
            bn_kv_code_at(dim, bits, values, values ? t : t + i, values ? c + i : c);
        block[at.byte] = (uint8_t)(block[at.byte] | (unsigned)q << at.shift);
    }
}

void bn_kv_put_keys_c(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    memset(block, 0, bn_kv_block_bytes(dim, bits));
    for (size_t c = 0; c < dim; c++) put_group(block, x + c, dim, dim, bits, 0, c, false);
}

void bn_kv_put_values_c(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    memset(block, 0, bn_kv_block_bytes(dim, bits));
    for (size_t t = 0; t < BN_ATTN_BLOCK; t++)
        for (size_t c = 0; c < dim; c += BN_KV_GROUP)
            put_group(block, x + t * dim + c, 1, dim, bits, t, c, true);
}

static void get(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim, unsigned bits,
                bool values)
{
    for (size_t t = t0; t < t0 + n; t++)
        for (size_t c = 0; c < dim; c++) {
            size_t group = group_of(t, c, values);
            float d = bn_f16_to_f32(bn_load_u16(block + 2 * group));
            float base = bn_f16_to_f32(bn_load_u16(block + 2 * (dim + group)));
            struct bn_kv_place at = bn_kv_code_at(dim, bits, values, t, c);
            *y++ = base + d * (float)(block[at.byte] >> at.shift & ((1 << bits) - 1));
        }
}

void bn_kv_get_keys_c(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                      unsigned bits)
{
    get(y, block, t0, n, dim, bits, false);
}

void bn_kv_get_values_c(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                        unsigned bits)
{
    get(y, block, t0, n, dim, bits, true);
}
