/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: rows of dense matrices to f32, one decoder per storage type, for embeddings and heads.
 * The one place that knows the arithmetic of these formats; the order of multiplications is the
 * formats' own. Blocks need no alignment. */
#include "base/half.h"
#include "kernels/kernels.h"

/* bn_f16_to_f32() without branches, so that loops over it are vectorised: the exponent is put right
 * by an exact multiplication, which normalises subnormals as well. */
static inline float widen_f16(uint16_t h)
{
    uint32_t mag = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t bits = bn_f32_as_u32(bn_u32_as_f32(mag) * 0x1p112f);
    bits = mag >= 0x0f800000 ? mag | 0x7f800000 : bits;
    bits = mag > 0x0f800000 ? bits | 0x400000 : bits;
    return bn_u32_as_f32(sign | bits);
}

void bn_row_f16_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t i = 0; i < n; i++) y[i] = widen_f16(bn_load_u16(p + 2 * i));
}

void bn_row_bf16_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t i = 0; i < n; i++) y[i] = bn_bf16_to_f32(bn_load_u16(p + 2 * i));
}

void bn_f32_to_f16_c(uint16_t *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = bn_f32_to_f16(x[i]);
}

/* block of 32: f16 d, int8 q[32]; value d * q */
void bn_row_q8_0_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, y += 32) {
        float d = bn_f16_to_f32(bn_load_u16(p));
        for (size_t i = 0; i < 32; i++) y[i] = d * (float)(int8_t)p[2 + i];
    }
}

/* block of 32: f16 d, 16 bytes; byte i holds q of elements i (low nibble) and 16 + i;
 * value d * (q - 8) */
void bn_row_q4_0_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 18, y += 32) {
        float d = bn_f16_to_f32(bn_load_u16(p));
        int8_t q[32];
        for (size_t i = 0; i < 16; i++) {
            q[i] = (int8_t)((p[2 + i] & 15) - 8);
            q[16 + i] = (int8_t)((p[2 + i] >> 4) - 8);
        }
        for (size_t i = 0; i < 32; i++) y[i] = d * (float)q[i];
    }
}

/* Scale and minimum j of the eight of a Q4_K block, 6 bits each: the first four lie in the low bits
 * of bytes j and j + 4, the others are put together from nibbles and the two spare top bits. */
static void q4_k_scale(uint8_t *scale, uint8_t *min, const uint8_t *s, size_t j)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
    }
}

/* block of 256: f16 d, f16 dmin, 12 bytes of scales, 128 bytes; 32 bytes hold 64 elements, low
 * nibbles first; value (d * scale) * q - (dmin * min) */
void bn_row_q4_k_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 144) {
        float d = bn_f16_to_f32(bn_load_u16(p)), dmin = bn_f16_to_f32(bn_load_u16(p + 2));
        const uint8_t *q = p + 16;
        for (size_t j = 0; j < 8; j += 2, q += 32, y += 64) {
            uint8_t s0, m0, s1, m1;
            q4_k_scale(&s0, &m0, p + 4, j);
            q4_k_scale(&s1, &m1, p + 4, j + 1);
            float d0 = d * (float)s0, n0 = dmin * (float)m0;
            float d1 = d * (float)s1, n1 = dmin * (float)m1;
            for (size_t i = 0; i < 32; i++) y[i] = d0 * (float)(q[i] & 15) - n0;
            for (size_t i = 0; i < 32; i++) y[32 + i] = d1 * (float)(q[i] >> 4) - n1;
        }
    }
}

/* block of 256: 128 bytes of low nibbles, 64 of high bit pairs, int8 scale[16], f16 d. Each half of
 * 128 elements: quarter k of 32 takes nibble k / 2 of bytes (k % 2) * 32 + i and bit pair k of byte
 * i; scale 2k + i / 16; value (d * scale) * (q - 32) */
void bn_row_q6_k_c(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    for (size_t b = 0; b < n / 256; b++, p += 210) {
        float d = bn_f16_to_f32(bn_load_u16(p + 208));
        for (size_t h = 0; h < 2; h++) {
            const uint8_t *low = p + 64 * h, *high = p + 128 + 32 * h, *scale = p + 192 + 8 * h;
            for (size_t k = 0; k < 4; k++, y += 32) {
                float d0 = d * (float)(int8_t)scale[2 * k];
                float d1 = d * (float)(int8_t)scale[2 * k + 1];
                int8_t q[32];
                for (size_t i = 0; i < 32; i++)
                    q[i] = (int8_t)(((low[k % 2 * 32 + i] >> k / 2 * 4 & 15) |
                                     (high[i] >> 2 * k & 3) << 4) -
                                    32);
                for (size_t i = 0; i < 32; i++) y[i] = (i < 16 ? d0 : d1) * (float)q[i];
            }
        }
    }
}

/* Columns are independent, so a strip of them at a time. */
void bn_low_rank_c(float *y, const float *b, size_t b_stride, const float *u, size_t rank, size_t n,
                   float scale)
{
    float sum[64];
    for (size_t from = 0; from < n; from += BN_ARRAY_LEN(sum)) {
        size_t some = bn_min_size(BN_ARRAY_LEN(sum), n - from);
        memset(sum, 0, some * sizeof *sum);
        for (size_t j = 0; j < rank; j++)
            for (size_t i = 0; i < some; i++) sum[i] += b[j * b_stride + from + i] * u[j];
        for (size_t i = 0; i < some; i++) y[from + i] += scale * sum[i];
    }
}
