/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values in fewer bits. Everything goes 32 channels at a time, in four registers; in
 * blocks with a step for every channel these are loaded once for all tokens. */
#include "kernels/fp8.h"
#include "kernels/wide/lanes.h"

#define ALWAYS static inline __attribute__((always_inline))

/* the lowest byte of eight integers */
ALWAYS h_int low_bytes(w_int v)
{
    h_int w = h_packus_epi32(w_castsi256_si128(v), w_extracti128_si256(v, 1));
    return h_packus_epi16(w, w);
}

/* ---- elements ---- */

void W_NAME(f32_to_bf16)(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        w_f32 v = w_loadu_ps(x + i);
        w_int u = w_castps_si256(v), odd = w_srli_epi32(u, 16);
        odd = w_and_si256(odd, w_set1_epi32(1));
        w_int r = w_add_epi32(u, w_add_epi32(odd, w_set1_epi32(0x7fff)));
        w_int nan = w_or_si256(u, w_set1_epi32(0x400000));
        r = w_blendv_epi8(r, nan, w_castps_si256(w_cmp_ps(v, v, UNORD_Q)));
        r = w_srli_epi32(r, 16);
        h_storeu_si128((void *)(p + 2 * i),
                       h_packus_epi32(w_castsi256_si128(r), w_extracti128_si256(r, 1)));
    }
    for (; i < n; i++) bn_store_u16(p + 2 * i, bn_f32_to_bf16(x[i]));
}

/* bn_f32_to_fp8() of eight */
ALWAYS h_int narrow8(w_f32 x, const struct bn_fp8 *f)
{
    const w_int magnitude = w_set1_epi32(0x7fffffff), inf = w_set1_epi32(0x7f800000);
    w_int bits = w_castps_si256(x), u = w_and_si256(bits, magnitude);
    w_int sign = w_and_si256(w_srli_epi32(bits, 24), w_set1_epi32(0x80));
    w_f32 a = w_min_ps(w_castsi256_ps(u), w_set1_ps(f->max));
    w_f32 magic = w_set1_ps(f->magic);
    w_int small = w_sub_epi32(w_castps_si256(w_add_ps(a, magic)), w_castps_si256(magic));
    w_int w = w_castps_si256(a), odd = w_srli_epi32(w, f->shift);
    odd = w_and_si256(odd, w_set1_epi32(1));
    w = w_add_epi32(w, w_set1_epi32((1 << (f->shift - 1)) - 1));
    w = w_srli_epi32(w_add_epi32(w, odd), f->shift);
    w = w_sub_epi32(w, w_set1_epi32((int)f->rebias));
    w_f32 is_small = w_cmp_ps(a, w_set1_ps(f->least), LT_OQ);
    w = w_blendv_epi8(w, small, w_castps_si256(is_small));
    w = w_blendv_epi8(w, w_set1_epi32((int)f->infinity), w_cmpeq_epi32(u, inf));
    w = w_blendv_epi8(w, w_set1_epi32((int)f->nan), w_cmpgt_epi32(u, inf));
    return low_bytes(w_or_si256(w, sign));
}

ALWAYS void narrow(uint8_t *p, const float *x, size_t n, const struct bn_fp8 *f)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) h_storel_epi64((void *)(p + i), narrow8(w_loadu_ps(x + i), f));
    for (; i < n; i++) p[i] = bn_f32_to_fp8(x[i], f);
}

void W_NAME(f32_to_e4m3)(void *row, const float *x, size_t n) { narrow(row, x, n, &bn_e4m3); }
void W_NAME(f32_to_e5m2)(void *row, const float *x, size_t n) { narrow(row, x, n, &bn_e5m2); }

/* Codes as the upper halves of 16 bits. */
ALWAYS w_int upper16(const uint8_t *p)
{
    return w_slli_epi16(w_cvtepu8_epi16(h_loadu_si128((const void *)p)), 8);
}

ALWAYS void store_halves(float *y, w_int half, float scale)
{
    const w_f32 k = w_set1_ps(scale);
    w_f32 lo = w_cvtph_ps(w_castsi256_si128(half));
    w_f32 hi = w_cvtph_ps(w_extracti128_si256(half, 1));
    w_storeu_ps(y, scale == 1 ? lo : w_mul_ps(lo, k));
    w_storeu_ps(y + 8, scale == 1 ? hi : w_mul_ps(hi, k));
}

/* As halves: the exponent moved down by a bit. A NaN, which that makes a number, is rare: then the
 * row is done again. */
void W_NAME(row_e4m3)(float *y, const void *row, size_t n)
{
    const w_int nan = w_set1_epi16(0x3f80);
    const uint8_t *p = row;
    w_int found = w_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        w_int half = w_srai_epi16(upper16(p + i), 1);
        found = w_or_si256(found, w_cmpeq_epi16(w_and_si256(half, nan), nan));
        half = w_and_si256(half, w_set1_epi16((short)0xbf80));
        store_halves(y + i, half, 256);
    }
    if (!w_testz_si256(found, found)) i = 0;
    for (; i < n; i++) y[i] = bn_e4m3_to_f32(p[i]);
}

void W_NAME(row_e5m2)(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) store_halves(y + i, upper16(p + i), 1);
    for (; i < n; i++) y[i] = bn_e5m2_to_f32(p[i]);
}

/* ---- groups of 32 ---- */

/* all ones where x is not finite */
ALWAYS w_f32 not_finite(w_f32 x) { return w_cmp_ps(w_sub_ps(x, x), w_setzero_ps(), NEQ_UQ); }

ALWAYS float largest(w_f32 v)
{
    h_f32 h = h_max_ps(w_castps256_ps128(v), w_extractf128_ps(v, 1));
    h = h_max_ps(h, h_movehl_ps(h, h));
    return h_cvtss_f32(h_max_ss(h, h_movehdup_ps(h)));
}

ALWAYS w_f32 negative(w_f32 v) { return w_xor_ps(v, w_set1_ps(-0.0f)); }

ALWAYS w_f32 clamp(w_f32 x, float lo, float hi)
{
    return w_min_ps(w_max_ps(x, w_set1_ps(lo)), w_set1_ps(hi));
}

/* 1 / d, or 0 where d is 0 */
ALWAYS w_f32 inverse(w_f32 d)
{
    w_f32 positive = w_cmp_ps(d, w_setzero_ps(), GT_OQ);
    return w_and_ps(w_div_ps(w_set1_ps(1), d), positive);
}

void W_NAME(f32_to_q8_0)(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, x += 32) {
        w_f32 v[4], m = w_setzero_ps(), bad = m;
        for (size_t i = 0; i < 4; i++) {
            v[i] = w_loadu_ps(x + 8 * i);
            m = w_max_ps(w_andnot_ps(w_set1_ps(-0.0f), v[i]), m);
            bad = w_or_ps(bad, not_finite(v[i]));
        }
        uint16_t d = bn_f32_to_f16(largest(m) / 127);
        bool finite = w_movemask_ps(bad) == 0 && (d & 0x7c00) != 0x7c00;
        bn_store_u16(p, finite ? d : BN_F16_NAN);
        if (!finite) {
            memset(p + 2, 0, 32);
            continue;
        }
        w_f32 inv = inverse(w_set1_ps(bn_f16_to_f32(d)));
        for (size_t i = 0; i < 4; i++) {
            w_int q = w_cvtps_epi32(clamp(w_mul_ps(v[i], inv), -127, 127));
            h_storel_epi64((void *)(p + 2 + 8 * i), low_bytes(w_and_si256(q, w_set1_epi32(255))));
        }
    }
}

/* ---- blocks ---- */

/* what the codes of a register's channels mean: min + code * step; to make them, inv = 1 / step */
struct scale {
    w_f32 step, min, inv;
};

/* From the extremes of eight groups: the scale, and its halves. `bad`: where a value is not finite. */
ALWAYS struct scale make_scale(h_int *step, h_int *min, w_f32 lo, w_f32 hi, w_f32 bad,
                               const unsigned bits)
{
    const h_int exponent = h_set1_epi16(0x7c00);
    const w_f32 most = w_set1_ps((float)((1 << bits) - 1));
    h_int d = w_cvtps_ph(w_div_ps(w_sub_ps(hi, lo), most), 0);
    h_int m = w_cvtps_ph(w_add_ps(lo, w_setzero_ps()), 0);
    w_int b = w_castps_si256(bad);
    h_int wrong = h_packs_epi32(w_castsi256_si128(b), w_extracti128_si256(b, 1));
    wrong = h_or_si128(wrong, h_cmpeq_epi16(h_and_si128(d, exponent), exponent));
    wrong = h_or_si128(wrong, h_cmpeq_epi16(h_and_si128(m, exponent), exponent));
    struct scale s = {w_cvtph_ps(d), w_cvtph_ps(m), w_setzero_ps()};
    s.inv = w_andnot_ps(w_castsi256_ps(w_cvtepi16_epi32(wrong)), inverse(s.step));
    *step = h_blendv_epi8(d, h_set1_epi16(BN_F16_NAN), wrong);
    *min = h_andnot_si128(wrong, m);
    return s;
}

/* 32 codes, a byte each. inv is 0 where a group is not finite; max() then drops the NaNs. */
ALWAYS void make_codes(uint8_t *to, const float *x, const struct scale *s, const unsigned bits)
{
    for (size_t i = 0; i < 4; i++) {
        w_f32 v = w_mul_ps(w_sub_ps(w_loadu_ps(x + 8 * i), s[i].min), s[i].inv);
        w_int q = w_cvtps_epi32(clamp(v, 0, (float)((1 << bits) - 1)));
        h_storel_epi64((void *)(to + 8 * i), low_bytes(q));
    }
}

/* The 32 tokens and 32 channels of a tile, a byte each. */
typedef uint8_t tile[BN_ATTN_BLOCK][BN_KV_GROUP];

/* Turns a tile over in pairs of channels: 16 rows of 32 pairs. */
ALWAYS void turn_pairs(uint16_t out[BN_KV_ROWS][BN_ATTN_BLOCK], const tile t)
{
    for (size_t j = 0; j < BN_ATTN_BLOCK; j++) {
        uint16_t pair[BN_KV_ROWS];
        memcpy(pair, t[j], sizeof pair);
        for (size_t r = 0; r < BN_KV_ROWS; r++) out[r][j] = pair[r];
    }
}

/* Rows of 64 codes to their bytes in the tile. */
ALWAYS void put_row(uint8_t *p, const h_int *octet, const unsigned bits)
{
    if (bits == 4) {
        for (size_t i = 0; i < 2; i++)
            h_storeu_si128((void *)(p + 16 * i),
                           h_or_si128(octet[2 * i], h_slli_epi16(octet[2 * i + 1], 4)));
        return;
    }
    h_int lo = h_or_si128(octet[0], h_slli_epi16(octet[1], 2));
    h_int hi = h_or_si128(h_slli_epi16(octet[2], 4), h_slli_epi16(octet[3], 6));
    h_storeu_si128((void *)p, h_or_si128(lo, hi));
}

ALWAYS void put_tile_keys(uint8_t *p, const tile t, const unsigned bits)
{
    uint16_t pairs[BN_KV_ROWS][BN_ATTN_BLOCK];
    turn_pairs(pairs, t);
    for (size_t r = 0; r < BN_KV_ROWS; r++) {
        h_int octet[4];
        for (size_t i = 0; i < 4; i++) octet[i] = h_loadu_si128((const void *)(pairs[r] + 8 * i));
        put_row(p + r * 8 * bits, octet, bits);
    }
}

ALWAYS void put_tile_values(uint8_t *p, const tile t, const unsigned bits)
{
    for (size_t r = 0; r < BN_KV_ROWS; r++) {
        h_int octet[4];
        for (size_t i = 0; i < 2; i++) {
            h_int a = h_loadu_si128((const void *)(t[2 * r] + 16 * i));
            h_int b = h_loadu_si128((const void *)(t[2 * r + 1] + 16 * i));
            octet[2 * i] = h_unpacklo_epi8(a, b);
            octet[2 * i + 1] = h_unpackhi_epi8(a, b);
        }
        put_row(p + r * 8 * bits, octet, bits);
    }
}

/* The pairs of an octet as 16 bits. */
ALWAYS w_int octet_codes(const uint8_t *row, size_t octet, const unsigned bits)
{
    const size_t per = 8 / bits;
    w_int x = w_cvtepu8_epi16(h_loadu_si128((const void *)(row + octet / per * 16)));
    h_int by = h_cvtsi32_si128((int)(octet % per * bits));
    return w_and_si256(w_srl_epi16(x, by), w_set1_epi16((1 << bits) - 1));
}

/* min + code * step; a product has at most 15 bits, so fusing changes nothing */
ALWAYS w_f32 value_of(w_int code, w_f32 step, w_f32 min)
{
    return w_fmadd_ps(w_cvtepi32_ps(code), step, min);
}

ALWAYS void put_keys(uint8_t *block, const float *x, size_t dim, const unsigned bits)
{
    for (size_t c = 0; c < dim; c += BN_KV_GROUP) {
        struct scale s[4];
        for (size_t i = 0; i < 4; i++) {
            const float *from = x + c + 8 * i;
            w_f32 lo = w_loadu_ps(from), hi = lo, bad = not_finite(lo);
            for (size_t t = 1; t < BN_ATTN_BLOCK; t++) {
                w_f32 v = w_loadu_ps(from + t * dim);
                lo = w_min_ps(v, lo);
                hi = w_max_ps(v, hi);
                bad = w_or_ps(bad, not_finite(v));
            }
            h_int step, min;
            s[i] = make_scale(&step, &min, lo, hi, bad, bits);
            h_storeu_si128((void *)(block + 2 * (c + 8 * i)), step);
            h_storeu_si128((void *)(block + 2 * (dim + c + 8 * i)), min);
        }
        tile codes;
        for (size_t t = 0; t < BN_ATTN_BLOCK; t++) make_codes(codes[t], x + t * dim + c, s, bits);
        put_tile_keys(block + bn_kv_tile_at(dim, bits, c / BN_KV_GROUP), codes, bits);
    }
}

/* Token t's 32 channels of group g: its step and minimum to their places, its codes to `to`. */
ALWAYS void put_token(uint8_t *block, uint8_t *to, const float *from, size_t dim, size_t at,
                      const unsigned bits)
{
    w_f32 v = w_loadu_ps(from), lo = v, hi = v, bad = not_finite(v);
    for (size_t i = 1; i < 4; i++) {
        v = w_loadu_ps(from + 8 * i);
        lo = w_min_ps(v, lo);
        hi = w_max_ps(v, hi);
        bad = w_or_ps(bad, not_finite(v));
    }
    bad = w_castsi256_ps(w_set1_epi32(w_movemask_ps(bad) ? -1 : 0));
    h_int step, min;
    struct scale one = make_scale(&step, &min, w_set1_ps(-largest(negative(lo))),
                                  w_set1_ps(largest(hi)), bad, bits);
    const struct scale s[4] = {one, one, one, one};
    bn_store_u16(block + 2 * at, (uint16_t)h_extract_epi16(step, 0));
    bn_store_u16(block + 2 * (dim + at), (uint16_t)h_extract_epi16(min, 0));
    make_codes(to, from, s, bits);
}

ALWAYS void put_values(uint8_t *block, const float *x, size_t dim, const unsigned bits)
{
    for (size_t g = 0; g < dim / BN_KV_GROUP; g++) {
        tile codes;
        for (size_t t = 0; t < BN_ATTN_BLOCK; t++)
            put_token(block, codes[t], x + t * dim + g * BN_KV_GROUP, dim, g * BN_ATTN_BLOCK + t,
                      bits);
        put_tile_values(block + bn_kv_tile_at(dim, bits, g), codes, bits);
    }
}

/* Tokens are lanes of a row: channels of all that are asked for are made, then turned over. */
ALWAYS void get_keys(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                     const unsigned bits)
{
    for (size_t c = 0; c < dim; c += 2) {
        const uint8_t *row =
            block + bn_kv_tile_at(dim, bits, c / BN_KV_GROUP) + c % BN_KV_GROUP / 2 * 8 * bits;
        float out[2][BN_ATTN_BLOCK];
        for (size_t i = 0; i < 4; i++) {
            w_int x = octet_codes(row, i, bits), code[2];
            code[0] = w_and_si256(x, w_set1_epi32(0xffff));
            code[1] = w_srli_epi32(x, 16);
            for (size_t b = 0; b < 2; b++) {
                w_f32 step = w_set1_ps(h_cvtsh_ss(bn_load_u16(block + 2 * (c + b))));
                w_f32 min = w_set1_ps(h_cvtsh_ss(bn_load_u16(block + 2 * (dim + c + b))));
                w_storeu_ps(out[b] + 8 * i, value_of(code[b], step, min));
            }
        }
        for (size_t t = 0; t < n; t++) {
            y[t * dim + c] = out[0][t0 + t];
            y[t * dim + c + 1] = out[1][t0 + t];
        }
    }
}

ALWAYS void get_values(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                       const unsigned bits)
{
    for (size_t t = t0; t < t0 + n; t++, y += dim)
        for (size_t g = 0; g < dim / BN_KV_GROUP; g++) {
            size_t at = g * BN_ATTN_BLOCK + t;
            const uint8_t *row = block + bn_kv_tile_at(dim, bits, g) + t / 2 * 8 * bits;
            w_f32 step = w_set1_ps(h_cvtsh_ss(bn_load_u16(block + 2 * at)));
            w_f32 min = w_set1_ps(h_cvtsh_ss(bn_load_u16(block + 2 * (dim + at))));
            for (size_t i = 0; i < 4; i++) {
                w_int x = octet_codes(row, i, bits);
                x = t % 2 ? w_srli_epi32(x, 16) : w_and_si256(x, w_set1_epi32(0xffff));
                w_storeu_ps(y + g * BN_KV_GROUP + 8 * i, value_of(x, step, min));
            }
        }
}

void W_NAME(kv_put_keys)(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    if (bits == 4) put_keys(block, x, dim, 4);
    else put_keys(block, x, dim, 2);
}

void W_NAME(kv_put_values)(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    if (bits == 4) put_values(block, x, dim, 4);
    else put_values(block, x, dim, 2);
}

void W_NAME(kv_get_keys)(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                         unsigned bits)
{
    if (bits == 4) get_keys(y, block, t0, n, dim, 4);
    else get_keys(y, block, t0, n, dim, 2);
}

void W_NAME(kv_get_values)(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                           unsigned bits)
{
    if (bits == 4) get_values(y, block, t0, n, dim, 4);
    else get_values(y, block, t0, n, dim, 2);
}
