/* SPDX-License-Identifier: Apache-2.0
 * Rows of any storage type as floats. The values are those that the formats define: each product is
 * one f32 rounding, in the order written here. */
#include "model/types.h"

#include "base/half.h"

static void q8_0_row(float *out, const uint8_t *in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 32; b++, in += 34, out += 32) {
        float d = bn_f16_to_f32(bn_load_u16(in));
        for (int j = 0; j < 32; j++) out[j] = d * (float)(int8_t)in[2 + j];
    }
}

/* elements j and j + 16 share a byte, low half first */
static void q4_0_row(float *out, const uint8_t *in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 32; b++, in += 18, out += 32) {
        float d = bn_f16_to_f32(bn_load_u16(in));
        for (int j = 0; j < 16; j++) {
            out[j] = d * (float)((in[2 + j] & 15) - 8);
            out[16 + j] = d * (float)((in[2 + j] >> 4) - 8);
        }
    }
}

/* f16 d, f16 dmin, 12 bytes with eight 6-bit scales and eight 6-bit minima, 128 bytes of nibbles */
static void q4_k_row(float *out, const uint8_t *in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 256; b++, in += 144, out += 256) {
        float d = bn_f16_to_f32(bn_load_u16(in)), dmin = bn_f16_to_f32(bn_load_u16(in + 2));
        const uint8_t *s = in + 4, *q = in + 16;
        for (int g = 0; g < 8; g++) {
            int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
            int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
            float dg = d * (float)scale, mg = dmin * (float)min;
            for (int j = 0; j < 32;
                 j++) /* groups 2i and 2i + 1 are the halves of the same 32 bytes */
                out[32 * g + j] = dg * (float)(q[g / 2 * 32 + j] >> 4 * (g % 2) & 15) - mg;
        }
    }
}

/* 128 bytes of low nibbles, 64 of high pairs, 16 signed scales, f16 d. In each half of 128
 * elements, group l of 32: nibble from byte (l % 2) * 32 + m, low half for l < 2; pair at bits 2
 * l of byte m. */
static void q6_k_row(float *out, const uint8_t *in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 256; b++, in += 210, out += 256) {
        float d = bn_f16_to_f32(bn_load_u16(in + 208));
        for (int h = 0; h < 2; h++)
            for (int l = 0; l < 4; l++)
                for (int m = 0; m < 32; m++) {
                    int low = in[h * 64 + l % 2 * 32 + m] >> l / 2 * 4 & 15;
                    int high = in[128 + h * 32 + m] >> 2 * l & 3;
                    int8_t scale = (int8_t)in[192 + h * 8 + l * 2 + m / 16];
                    out[h * 128 + l * 32 + m] = d * (float)scale * (float)((low | high << 4) - 32);
                }
    }
}

/* The trits are first unpacked into the last quarter of the output's own bytes and then widened
 * from the front: float i ends before trit i + 1 begins, so nothing is overwritten unread. */
static void ternary_row(float *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    const int8_t *w = (int8_t *)out + 3 * t->cols;
    (void)bn_unpack_trits((int8_t *)out + 3 * t->cols, t, r); /* code 3 widens to +2 */
    float scale = 0;
    if (i->scale != BN_TS_BLOCK_F16) bn_unpack_scales(&scale, t, r);
    uint64_t bytes = t->cols / i->block * i->block_bytes;
    const uint8_t *d =
        t->data + r * bytes + (t->type == BN_TQ1_0 || t->type == BN_TQ2_0 ? i->block_bytes - 2 : 0);
    for (uint64_t k = 0; k < t->cols; k++) {
        if (i->scale == BN_TS_BLOCK_F16 && k % i->block == 0)
            scale = bn_f16_to_f32(bn_load_u16(d + k / i->block * i->block_bytes));
        out[k] = scale * (float)w[k];
    }
}

void bn_dequant_row(float *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    if (i->ternary) {
        ternary_row(out, t, r);
        return;
    }
    const uint8_t *in = t->data + r * (t->cols / i->block * i->block_bytes);
    uint64_t n = t->cols;
    switch (t->type) {
    case BN_F32: memcpy(out, in, n * 4); break;
    case BN_F16:
        for (uint64_t k = 0; k < n; k++) out[k] = bn_f16_to_f32(bn_load_u16(in + 2 * k));
        break;
    case BN_BF16:
        for (uint64_t k = 0; k < n; k++) out[k] = bn_bf16_to_f32(bn_load_u16(in + 2 * k));
        break;
    case BN_Q8_0: q8_0_row(out, in, n); break;
    case BN_Q6_K: q6_k_row(out, in, n); break;
    case BN_Q4_0: q4_0_row(out, in, n); break;
    case BN_Q4_K: q4_k_row(out, in, n); break;
    case BN_F64:
        for (uint64_t k = 0; k < n; k++) {
            uint64_t u = bn_load_u64(in + 8 * k);
            double v;
            memcpy(&v, &u, sizeof v);
            out[k] = (float)v;
        }
        break;
    case BN_I64:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int64_t)bn_load_u64(in + 8 * k);
        break;
    case BN_I32:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int32_t)bn_load_u32(in + 4 * k);
        break;
    case BN_I16:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int16_t)bn_load_u16(in + 2 * k);
        break;
    case BN_I8:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)(int8_t)in[k];
        break;
    case BN_U8:
        for (uint64_t k = 0; k < n; k++) out[k] = (float)in[k];
        break;
    default: break; /* every type is above; the ternary ones returned */
    }
}
