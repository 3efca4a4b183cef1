/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: attention over codes in their blocks (contract in kernels/attention.h). */
#include "base/half.h"
#include "kernels/ref/softmax.h"

/* half to even; |x| < 2^22 */
static float round_even(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

static bool is_finite(float x) { return x - x == 0; }

float bn_quant_query_c(int16_t *y, const float *x, size_t n)
{
    float max = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        float a = x[i] < 0 ? -x[i] : x[i];
        if (a > max) max = a;
        finite &= is_finite(x[i]);
    }
    float inv = max < 0x1p-100f || !finite ? 0 : 32767 / max;
    for (size_t i = 0; i < n; i++) y[i] = (int16_t)(finite ? round_even(x[i] * inv) : 0);
    return finite ? max / 32767 : bn_f16_to_f32(BN_F16_NAN);
}

/* D, and in e the steps' shares of it. */
static float shares(int16_t *e, const uint8_t *steps, size_t n)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) most = (uint16_t)bn_max_size(most, bn_load_u16(steps + 2 * i));
    float d = bn_f16_to_f32(most);
    if (!is_finite(d)) d = bn_f16_to_f32(BN_F16_NAN);
    float inv = d > 0 ? 32767 / d : 0;
    for (size_t i = 0; i < n; i++)
        e[i] = (int16_t)(is_finite(d) ? round_even(bn_f16_to_f32(bn_load_u16(steps + 2 * i)) * inv)
                                      : 0);
    return d;
}

/* h(x, y) */
static int16_t part(int16_t x, int16_t y) { return (int16_t)((x * y + (1 << 14)) >> 15); }

/* The codes of a row of a tile. */
static void row_codes(int16_t x[64], const uint8_t *row, unsigned bits)
{
    const size_t per = 8 / bits;
    if (bits == 8) {
        for (size_t i = 0; i < 64; i++) x[i] = (int8_t)row[i];
        return;
    }
    for (size_t octet = 0; octet < 4; octet++)
        for (size_t i = 0; i < 16; i++)
            x[octet * 16 + i] = row[octet / per * 16 + i] >> octet % per * bits & ((1 << bits) - 1);
}

/* s[lane] += the products of a tile's rows with pairs of w: 32 sums of 32 products */
static void tile(int32_t s[32], const uint8_t *rows, unsigned bits, const int16_t *w)
{
    for (size_t r = 0; r < BN_KV_ROWS; r++, rows += 8 * bits) {
        int16_t x[64];
        row_codes(x, rows, bits);
        for (size_t i = 0; i < 32; i++) s[i] += x[2 * i] * w[2 * r] + x[2 * i + 1] * w[2 * r + 1];
    }
}

static void scores8(float *p, const struct bn_attn_codes *a, const int16_t *q, float unit)
{
    float sum[BN_ATTN_BLOCK] = {0}, step[BN_ATTN_BLOCK];
    for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++) {
        int32_t s[32] = {0};
        tile(s, a->k + bn_kv_tile_at(a->dim, 8, g), 8, q + g * BN_KV_GROUP);
        bn_row_f16_c(step, a->k + 2 * g * BN_ATTN_BLOCK, BN_ATTN_BLOCK);
        for (size_t j = 0; j < BN_ATTN_BLOCK; j++) sum[j] += (float)s[j] * step[j];
    }
    for (size_t j = 0; j < a->n; j++) p[j] = sum[j] * (unit * a->scale);
}

/* Of a query's codes; e, d: of the keys, with 4 and 2 bits. */
static void scores(float *p, const struct bn_attn_codes *a, size_t query, const int16_t *e, float d)
{
    const int16_t *q = a->q_code + query * a->dim;
    float unit = a->q_unit[query], min[BN_KV_DIM_MAX];
    if (a->k_bits == 8) {
        scores8(p, a, q, unit);
        return;
    }
    int32_t s[32] = {0};
    for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++) {
        int16_t w[BN_KV_GROUP];
        for (size_t i = 0; i < BN_KV_GROUP; i++)
            w[i] = part(q[g * BN_KV_GROUP + i], e[g * BN_KV_GROUP + i]);
        tile(s, a->k + bn_kv_tile_at(a->dim, a->k_bits, g), a->k_bits, w);
    }
    bn_row_f16_c(min, a->k + 2 * a->dim, a->dim);
    float base = bn_lanes_dot(a->q + query * a->dim, min, a->dim);
    for (size_t j = 0; j < a->n; j++)
        p[j] = ((float)s[j] * (unit * (d * BN_CODES_UNIT)) + base) * a->scale;
}

/* The channels of tile g: o = o * fa + ob * fc */
static void values(float *o, const struct bn_attn_codes *a, size_t g, const float *p, float lb,
                   float fa, float fc)
{
    int16_t w[BN_ATTN_BLOCK] = {0};
    int32_t s[32] = {0};
    float min[BN_ATTN_BLOCK], base = 0;
    const uint8_t *steps = a->v + 2 * g * BN_ATTN_BLOCK;
    float f = shares(w, steps, a->n) * (BN_CODES_UNIT / 32767) + (lb - lb);
    for (size_t j = 0; j < a->n; j++) /* a NaN has made f one */
        w[j] = is_finite(p[j]) ? part((int16_t)round_even(p[j] * 32767), w[j]) : 0;
    tile(s, a->v + bn_kv_tile_at(a->dim, a->v_bits, g), a->v_bits, w);
    if (a->v_bits < 8) {
        bn_row_f16_c(min, steps + 2 * a->dim, a->n);
        base = bn_lanes_dot(p, min, a->n);
    }
    for (size_t i = 0; i < BN_KV_GROUP; i++) {
        float ob = (float)s[i] * f;
        if (a->v_bits < 8) ob += base;
        o[g * BN_KV_GROUP + i] = o[g * BN_KV_GROUP + i] * fa + ob * fc;
    }
}

void bn_attn_codes_c(const struct bn_attn_codes *a)
{
    int16_t e[BN_KV_DIM_MAX];
    float d = a->k_bits < 8 ? shares(e, a->k, a->dim) : 0;
    for (size_t i = 0; i < a->n_q; i++) {
        float p[BN_ATTN_BLOCK], fa, fc, lb;
        scores(p, a, i, e, d);
        float mb = bn_softmax_block(p, a->n, &lb);
        bn_fold_block(&a->m[i], &a->l[i], mb, lb, &fa, &fc);
        for (size_t g = 0; g < a->dim / BN_KV_GROUP; g++)
            values(a->o + i * a->dim, a, g, p, lb, fa, fc);
    }
}
