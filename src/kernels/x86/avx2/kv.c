/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: keys and values in fewer bits. Everything goes 32 channels at a time, in four registers; in
 * blocks with a step for every channel these are loaded once for all tokens. */
#include "kernels/fp8.h"
#include "kernels/x86/avx2/avx2.h"

#define ALWAYS static inline __attribute__((always_inline))

/* the lowest byte of eight integers */
ALWAYS __m128i low_bytes(__m256i v)
{
    __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return _mm_packus_epi16(w, w);
}

/* ---- elements ---- */

void bn_f32_to_bf16_avx2(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256i u = _mm256_castps_si256(v), odd = _mm256_srli_epi32(u, 16);
        odd = _mm256_and_si256(odd, _mm256_set1_epi32(1));
        __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
        r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
        r = _mm256_srli_epi32(r, 16);
        _mm_storeu_si128((void *)(p + 2 * i), _mm_packus_epi32(_mm256_castsi256_si128(r),
                                                               _mm256_extracti128_si256(r, 1)));
    }
    for (; i < n; i++) bn_store_u16(p + 2 * i, bn_f32_to_bf16(x[i]));
}

/* bn_f32_to_fp8() of eight */
ALWAYS __m128i narrow8(__m256 x, const struct bn_fp8 *f)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), inf = _mm256_set1_epi32(0x7f800000);
    __m256i bits = _mm256_castps_si256(x), u = _mm256_and_si256(bits, magnitude);
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256 a = _mm256_min_ps(_mm256_castsi256_ps(u), _mm256_set1_ps(f->max));
    __m256 magic = _mm256_set1_ps(f->magic);
    __m256i small =
        _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(a, magic)), _mm256_castps_si256(magic));
    __m256i w = _mm256_castps_si256(a), odd = _mm256_srli_epi32(w, f->shift);
    odd = _mm256_and_si256(odd, _mm256_set1_epi32(1));
    w = _mm256_add_epi32(w, _mm256_set1_epi32((1 << (f->shift - 1)) - 1));
    w = _mm256_srli_epi32(_mm256_add_epi32(w, odd), f->shift);
    w = _mm256_sub_epi32(w, _mm256_set1_epi32((int)f->rebias));
    __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(f->least), _CMP_LT_OQ);
    w = _mm256_blendv_epi8(w, small, _mm256_castps_si256(is_small));
    w = _mm256_blendv_epi8(w, _mm256_set1_epi32((int)f->infinity), _mm256_cmpeq_epi32(u, inf));
    w = _mm256_blendv_epi8(w, _mm256_set1_epi32((int)f->nan), _mm256_cmpgt_epi32(u, inf));
    return low_bytes(_mm256_or_si256(w, sign));
}

ALWAYS void narrow(uint8_t *p, const float *x, size_t n, const struct bn_fp8 *f)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storel_epi64((void *)(p + i), narrow8(_mm256_loadu_ps(x + i), f));
    for (; i < n; i++) p[i] = bn_f32_to_fp8(x[i], f);
}

void bn_f32_to_e4m3_avx2(void *row, const float *x, size_t n) { narrow(row, x, n, &bn_e4m3); }
void bn_f32_to_e5m2_avx2(void *row, const float *x, size_t n) { narrow(row, x, n, &bn_e5m2); }

/* Codes as the upper halves of 16 bits. */
ALWAYS __m256i upper16(const uint8_t *p)
{
    return _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p)), 8);
}

ALWAYS void store_halves(float *y, __m256i half, float scale)
{
    const __m256 k = _mm256_set1_ps(scale);
    __m256 lo = _mm256_cvtph_ps(_mm256_castsi256_si128(half));
    __m256 hi = _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
    _mm256_storeu_ps(y, scale == 1 ? lo : _mm256_mul_ps(lo, k));
    _mm256_storeu_ps(y + 8, scale == 1 ? hi : _mm256_mul_ps(hi, k));
}

/* As halves: the exponent moved down by a bit. A NaN, which that makes a number, is rare: then the
 * row is done again. */
void bn_row_e4m3_avx2(float *y, const void *row, size_t n)
{
    const __m256i nan = _mm256_set1_epi16(0x3f80);
    const uint8_t *p = row;
    __m256i found = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m256i half = _mm256_srai_epi16(upper16(p + i), 1);
        found = _mm256_or_si256(found, _mm256_cmpeq_epi16(_mm256_and_si256(half, nan), nan));
        half = _mm256_and_si256(half, _mm256_set1_epi16((short)0xbf80));
        store_halves(y + i, half, 256);
    }
    if (!_mm256_testz_si256(found, found)) i = 0;
    for (; i < n; i++) y[i] = bn_e4m3_to_f32(p[i]);
}

void bn_row_e5m2_avx2(float *y, const void *row, size_t n)
{
    const uint8_t *p = row;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) store_halves(y + i, upper16(p + i), 1);
    for (; i < n; i++) y[i] = bn_e5m2_to_f32(p[i]);
}

/* ---- groups of 32 ---- */

/* all ones where x is not finite */
ALWAYS __m256 not_finite(__m256 x)
{
    return _mm256_cmp_ps(_mm256_sub_ps(x, x), _mm256_setzero_ps(), _CMP_NEQ_UQ);
}

ALWAYS float largest(__m256 v)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

ALWAYS __m256 negative(__m256 v) { return _mm256_xor_ps(v, _mm256_set1_ps(-0.0f)); }

ALWAYS __m256 clamp(__m256 x, float lo, float hi)
{
    return _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(lo)), _mm256_set1_ps(hi));
}

/* 1 / d, or 0 where d is 0 */
ALWAYS __m256 inverse(__m256 d)
{
    __m256 positive = _mm256_cmp_ps(d, _mm256_setzero_ps(), _CMP_GT_OQ);
    return _mm256_and_ps(_mm256_div_ps(_mm256_set1_ps(1), d), positive);
}

void bn_f32_to_q8_0_avx2(void *row, const float *x, size_t n)
{
    uint8_t *p = row;
    for (size_t b = 0; b < n / 32; b++, p += 34, x += 32) {
        __m256 v[4], m = _mm256_setzero_ps(), bad = m;
        for (size_t i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            m = _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]), m);
            bad = _mm256_or_ps(bad, not_finite(v[i]));
        }
        uint16_t d = bn_f32_to_f16(largest(m) / 127);
        bool finite = _mm256_movemask_ps(bad) == 0 && (d & 0x7c00) != 0x7c00;
        bn_store_u16(p, finite ? d : BN_F16_NAN);
        if (!finite) {
            memset(p + 2, 0, 32);
            continue;
        }
        __m256 inv = inverse(_mm256_set1_ps(bn_f16_to_f32(d)));
        for (size_t i = 0; i < 4; i++) {
            __m256i q = _mm256_cvtps_epi32(clamp(_mm256_mul_ps(v[i], inv), -127, 127));
            _mm_storel_epi64((void *)(p + 2 + 8 * i),
                             low_bytes(_mm256_and_si256(q, _mm256_set1_epi32(255))));
        }
    }
}

/* ---- blocks ---- */

/* what the codes of a register's channels mean: min + code * step; to make them, inv = 1 / step */
struct scale {
    __m256 step, min, inv;
};

/* From the extremes of eight groups: the scale, and its halves. `bad`: where a value is not finite. */
ALWAYS struct scale make_scale(__m128i *step, __m128i *min, __m256 lo, __m256 hi, __m256 bad,
                               const unsigned bits)
{
    const __m128i exponent = _mm_set1_epi16(0x7c00);
    const __m256 most = _mm256_set1_ps((float)((1 << bits) - 1));
    __m128i d = _mm256_cvtps_ph(_mm256_div_ps(_mm256_sub_ps(hi, lo), most), 0);
    __m128i m = _mm256_cvtps_ph(_mm256_add_ps(lo, _mm256_setzero_ps()), 0);
    __m256i b = _mm256_castps_si256(bad);
    __m128i wrong = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    wrong = _mm_or_si128(wrong, _mm_cmpeq_epi16(_mm_and_si128(d, exponent), exponent));
    wrong = _mm_or_si128(wrong, _mm_cmpeq_epi16(_mm_and_si128(m, exponent), exponent));
    struct scale s = {_mm256_cvtph_ps(d), _mm256_cvtph_ps(m), _mm256_setzero_ps()};
    s.inv = _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cvtepi16_epi32(wrong)), inverse(s.step));
    *step = _mm_blendv_epi8(d, _mm_set1_epi16(BN_F16_NAN), wrong);
    *min = _mm_andnot_si128(wrong, m);
    return s;
}

/* 32 codes, a byte each. inv is 0 where a group is not finite; max() then drops the NaNs. */
ALWAYS void make_codes(uint8_t *to, const float *x, const struct scale *s, const unsigned bits)
{
    for (size_t i = 0; i < 4; i++) {
        __m256 v = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), s[i].min), s[i].inv);
        __m256i q = _mm256_cvtps_epi32(clamp(v, 0, (float)((1 << bits) - 1)));
        _mm_storel_epi64((void *)(to + 8 * i), low_bytes(q));
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
ALWAYS void put_row(uint8_t *p, const __m128i *octet, const unsigned bits)
{
    if (bits == 4) {
        for (size_t i = 0; i < 2; i++)
            _mm_storeu_si128((void *)(p + 16 * i),
                             _mm_or_si128(octet[2 * i], _mm_slli_epi16(octet[2 * i + 1], 4)));
        return;
    }
    __m128i lo = _mm_or_si128(octet[0], _mm_slli_epi16(octet[1], 2));
    __m128i hi = _mm_or_si128(_mm_slli_epi16(octet[2], 4), _mm_slli_epi16(octet[3], 6));
    _mm_storeu_si128((void *)p, _mm_or_si128(lo, hi));
}

ALWAYS void put_tile_keys(uint8_t *p, const tile t, const unsigned bits)
{
    uint16_t pairs[BN_KV_ROWS][BN_ATTN_BLOCK];
    turn_pairs(pairs, t);
    for (size_t r = 0; r < BN_KV_ROWS; r++) {
        __m128i octet[4];
        for (size_t i = 0; i < 4; i++) octet[i] = _mm_loadu_si128((const void *)(pairs[r] + 8 * i));
        put_row(p + r * 8 * bits, octet, bits);
    }
}

ALWAYS void put_tile_values(uint8_t *p, const tile t, const unsigned bits)
{
    for (size_t r = 0; r < BN_KV_ROWS; r++) {
        __m128i octet[4];
        for (size_t i = 0; i < 2; i++) {
            __m128i a = _mm_loadu_si128((const void *)(t[2 * r] + 16 * i));
            __m128i b = _mm_loadu_si128((const void *)(t[2 * r + 1] + 16 * i));
            octet[2 * i] = _mm_unpacklo_epi8(a, b);
            octet[2 * i + 1] = _mm_unpackhi_epi8(a, b);
        }
        put_row(p + r * 8 * bits, octet, bits);
    }
}

/* The pairs of an octet as 16 bits. */
ALWAYS __m256i octet_codes(const uint8_t *row, size_t octet, const unsigned bits)
{
    const size_t per = 8 / bits;
    __m256i x = _mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)(row + octet / per * 16)));
    __m128i by = _mm_cvtsi32_si128((int)(octet % per * bits));
    return _mm256_and_si256(_mm256_srl_epi16(x, by), _mm256_set1_epi16((1 << bits) - 1));
}

/* min + code * step; a product has at most 15 bits, so fusing changes nothing */
ALWAYS __m256 value_of(__m256i code, __m256 step, __m256 min)
{
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(code), step, min);
}

ALWAYS void put_keys(uint8_t *block, const float *x, size_t dim, const unsigned bits)
{
    for (size_t c = 0; c < dim; c += BN_KV_GROUP) {
        struct scale s[4];
        for (size_t i = 0; i < 4; i++) {
            const float *from = x + c + 8 * i;
            __m256 lo = _mm256_loadu_ps(from), hi = lo, bad = not_finite(lo);
            for (size_t t = 1; t < BN_ATTN_BLOCK; t++) {
                __m256 v = _mm256_loadu_ps(from + t * dim);
                lo = _mm256_min_ps(v, lo);
                hi = _mm256_max_ps(v, hi);
                bad = _mm256_or_ps(bad, not_finite(v));
            }
            __m128i step, min;
            s[i] = make_scale(&step, &min, lo, hi, bad, bits);
            _mm_storeu_si128((void *)(block + 2 * (c + 8 * i)), step);
            _mm_storeu_si128((void *)(block + 2 * (dim + c + 8 * i)), min);
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
    __m256 v = _mm256_loadu_ps(from), lo = v, hi = v, bad = not_finite(v);
    for (size_t i = 1; i < 4; i++) {
        v = _mm256_loadu_ps(from + 8 * i);
        lo = _mm256_min_ps(v, lo);
        hi = _mm256_max_ps(v, hi);
        bad = _mm256_or_ps(bad, not_finite(v));
    }
    bad = _mm256_castsi256_ps(_mm256_set1_epi32(_mm256_movemask_ps(bad) ? -1 : 0));
    __m128i step, min;
    struct scale one = make_scale(&step, &min, _mm256_set1_ps(-largest(negative(lo))),
                                  _mm256_set1_ps(largest(hi)), bad, bits);
    const struct scale s[4] = {one, one, one, one};
    bn_store_u16(block + 2 * at, (uint16_t)_mm_extract_epi16(step, 0));
    bn_store_u16(block + 2 * (dim + at), (uint16_t)_mm_extract_epi16(min, 0));
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
            __m256i x = octet_codes(row, i, bits), code[2];
            code[0] = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
            code[1] = _mm256_srli_epi32(x, 16);
            for (size_t b = 0; b < 2; b++) {
                __m256 step = _mm256_set1_ps(_cvtsh_ss(bn_load_u16(block + 2 * (c + b))));
                __m256 min = _mm256_set1_ps(_cvtsh_ss(bn_load_u16(block + 2 * (dim + c + b))));
                _mm256_storeu_ps(out[b] + 8 * i, value_of(code[b], step, min));
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
            __m256 step = _mm256_set1_ps(_cvtsh_ss(bn_load_u16(block + 2 * at)));
            __m256 min = _mm256_set1_ps(_cvtsh_ss(bn_load_u16(block + 2 * (dim + at))));
            for (size_t i = 0; i < 4; i++) {
                __m256i x = octet_codes(row, i, bits);
                x = t % 2 ? _mm256_srli_epi32(x, 16)
                          : _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
                _mm256_storeu_ps(y + g * BN_KV_GROUP + 8 * i, value_of(x, step, min));
            }
        }
}

void bn_kv_put_keys_avx2(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    if (bits == 4) put_keys(block, x, dim, 4);
    else put_keys(block, x, dim, 2);
}

void bn_kv_put_values_avx2(uint8_t *block, const float *x, size_t dim, unsigned bits)
{
    if (bits == 4) put_values(block, x, dim, 4);
    else put_values(block, x, dim, 2);
}

void bn_kv_get_keys_avx2(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                         unsigned bits)
{
    if (bits == 4) get_keys(y, block, t0, n, dim, 4);
    else get_keys(y, block, t0, n, dim, 2);
}

void bn_kv_get_values_avx2(float *y, const uint8_t *block, size_t t0, size_t n, size_t dim,
                           unsigned bits)
{
    if (bits == 4) get_values(y, block, t0, n, dim, 4);
    else get_values(y, block, t0, n, dim, 2);
}
