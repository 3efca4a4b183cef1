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

size_t bn_kv_block_bytes(size_t dim, unsigned bits)
{
    return dim * (2 * sizeof(uint16_t) + BN_ATTN_BLOCK * bits / 8);
}

/* the places of a group's step and minimum, and of a token's codes */
static uint8_t *step_at(uint8_t *block, size_t i) { return block + 2 * i; }
static uint8_t *min_at(uint8_t *block, size_t dim, size_t i) { return block + 2 * (dim + i); }
static size_t codes_at(size_t dim, size_t t, unsigned bits) { return 4 * dim + t * dim * bits / 8; }

/* Channel c of a row of codes: its byte, and the shift in it. Groups of 32 channels have 4 * bits
 * bytes; byte i holds channels i, i + 4 * bits, ... */
static size_t code_byte(size_t c, unsigned bits)
{
    return c / BN_KV_GROUP * 4 * bits + c % BN_KV_GROUP % (4 * bits);
}
static unsigned code_shift(size_t c, unsigned bits)
{
    return (unsigned)(c % BN_KV_GROUP / (4 * bits)) * bits;
}

/* A group: 32 values of a channel or of a token, `stride` apart; number `group` of the block. The
 * first value is of token t and channel c, the next ones of the next tokens or channels. */
static void put_group(uint8_t *block, const float *x, size_t stride, size_t dim, unsigned bits,
                      size_t group, size_t t, size_t c, bool by_token)
{
    const float most = (float)((1 << bits) - 1);
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
        size_t token = by_token ? t : t + i, channel = by_token ? c + i : c;
        float q = finite ? round_even(clamp((x[i * stride] - base) * inv, 0, most)) : 0;
        uint8_t *p = block + codes_at(dim, token, bits) + code_byte(channel, bits);
        *p = (uint8_t)(*p | (unsigned)q << code_shift(channel, bits));
    }
}

void bn_kv_put_keys_c(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    memset(block, 0, bn_kv_block_bytes(dim, bits));
    for (size_t c = 0; c < dim; c++) put_group(block, x + c, dim, dim, bits, c, 0, c, false);
}

void bn_kv_put_values_c(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    memset(block, 0, bn_kv_block_bytes(dim, bits));
    for (size_t g = 0; g < dim; g++) {
        size_t t = g / (dim / BN_KV_GROUP), c = g % (dim / BN_KV_GROUP) * BN_KV_GROUP;
        put_group(block, x + t * dim + c, 1, dim, bits, g, t, c, true);
    }
}

static void get(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim, unsigned bits,
                bool by_token)
{
    for (size_t t = t0; t < t0 + n; t++)
        for (size_t c = 0; c < dim; c++) {
            size_t group = by_token ? (t * dim + c) / BN_KV_GROUP : c;
            float d = bn_f16_to_f32(bn_load_u16(block + 2 * group));
            float base = bn_f16_to_f32(bn_load_u16(block + 2 * (dim + group)));
            uint8_t byte = block[codes_at(dim, t, bits) + code_byte(c, bits)];
            *y++ = base + d * (float)(byte >> code_shift(c, bits) & ((1 << bits) - 1));
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
