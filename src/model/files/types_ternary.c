/* SPDX-License-Identifier: Apache-2.0
 * The bit layouts of ternary and binary types: rows of the file to integers -1, 0, +1 and back.
 *
 * Loading a model runs every weight through here once, so the 2-bit types go eight weights at a
 * time in a 64-bit word ("lanes" of one byte): plain C that needs no vector unit and that
 * compilers turn into vector code where there is one.
 *
 * Codes: 2-bit types store w + 1. Code 3 means +2 in Q2_0 and PQ2_0 and nothing in the others:
 * those report it. Base-3 types (TQ1_0, PTQ1_0, IQ1_BN) decode every byte to valid trits, so damage
 * cannot be seen there. */
#include "model/files/types.h"

#include "base/half.h"

#define LANES 0x0101010101010101u

/* eight codes 0..3, one a byte, to w = code - 1; the high bit keeps borrows inside their byte */
static inline uint64_t lanes_minus_1(uint64_t codes)
{
    return ((codes | LANES * 0x80) - LANES) ^ LANES * 0x80;
}

static inline uint64_t load_lanes(const uint8_t *p) { return bn_load_u64(p); }
static inline void store_lanes(int8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }

/* A block of four planes: `width` bytes, whose 2-bit fields belong to elements m, width + m,
 * ...; the first plane sits in the top two bits or in the bottom ones. Returns set bits where a
 * code is 3. */
static inline __attribute__((always_inline)) uint64_t
planes(int8_t *restrict out, const uint8_t *restrict in, int width, bool top_first)
{
    uint64_t bad = 0;
    for (int m = 0; m < width; m += 8) {
        uint64_t x = load_lanes(in + m);
        bad |= x & x >> 1;
        for (int g = 0; g < 4; g++)
            store_lanes(out + g * width + m,
                        lanes_minus_1(x >> (top_first ? 6 - 2 * g : 2 * g) & LANES * 3));
    }
    return bad & LANES * 0x55;
}

/* n bytes whose 2-bit field at `shift` is wanted: layouts that keep several rows in one byte */
static bool one_field(int8_t *restrict out, const uint8_t *restrict in, uint64_t n, int shift)
{
    uint64_t bad = 0, k = 0;
    for (; k + 8 <= n; k += 8) {
        uint64_t c = load_lanes(in + k) >> shift & LANES * 3;
        bad |= c & c >> 1 & LANES;
        store_lanes(out + k, lanes_minus_1(c));
    }
    for (; k < n; k++) {
        int c = in[k] >> shift & 3;
        bad |= c == 3;
        out[k] = (int8_t)(c - 1);
    }
    return bad == 0;
}

/* elements from .. from + n of a tensor in blocks of 4 * width that may begin and end inside a
 * row */
static inline __attribute__((always_inline)) bool
i2s_run(int8_t *restrict out, const uint8_t *restrict in, uint64_t from, uint64_t n, int width)
{
    const uint64_t block = 4 * (uint64_t)width;
    uint64_t bad = 0, k = 0;
    while (k < n) {
        uint64_t e = from + k, j = e % block;
        if (j == 0 && n - k >= block) {
            bad |= planes(out + k, in + e / 4, width, true);
            k += block;
            continue;
        }
        int c = in[e / block * width + j % width] >> (6 - 2 * (j / width)) & 3;
        bad |= c == 3;
        out[k++] = (int8_t)(c - 1);
    }
    return bad == 0;
}

static bool tq2_0_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    uint64_t bad = 0;
    for (uint64_t b = 0; b < cols / 256; b++, in += 66, out += 256)
        bad |= planes(out, in, 32, false) | planes(out + 128, in + 32, 32, false);
    return bad == 0;
}

static bool iq2_bn_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    uint64_t bad = 0;
    in += 4; /* the row's scale */
    for (uint64_t b = 0; b < cols / 64; b++, in += 16, out += 64) bad |= planes(out, in, 16, false);
    return bad == 0;
}

/* Four rows share 4 scales and then 64 bytes for every 64 columns: byte 16 l + 4 k + i belongs
 * to row k and holds elements 16 l + i + 4 s at bits 2 s. */
static bool iq2_bn_r4_row(int8_t *restrict out, const uint8_t *restrict group, uint64_t cols, int k)
{
    uint32_t bad = 0;
    const uint8_t *in = group + 16 + 4 * k;
    for (uint64_t b = 0; b < cols / 64; b++, in += 64, out += 64)
        for (int l = 0; l < 4; l++) {
            uint32_t x = bn_load_u32(in + 16 * l);
            bad |= x & x >> 1 & 0x55555555;
            for (int s = 0; s < 4; s++) {
                uint32_t w = ((x >> 2 * s & 0x03030303) | 0x80808080) - 0x01010101;
                bn_store_u32(out + 16 * l + 4 * s, w ^ 0x80808080);
            }
        }
    return bad == 0;
}

/* Four consecutive weights a byte, which begin `codes_at` in a block; two bytes are spread over
 * eight lanes. Returns set bits where a code is 3. */
static inline __attribute__((always_inline)) uint64_t q2_row(int8_t *restrict out,
                                                             const uint8_t *restrict in,
                                                             uint64_t cols, uint64_t block,
                                                             int codes_at)
{
    uint64_t bad = 0;
    in += codes_at;
    for (uint64_t b = 0; b < cols / block; b++, in += 2 + block / 4, out += block)
        for (uint64_t k = 0; k < block; k += 8) {
            uint64_t x = bn_load_u16(in + k / 4);
            bad |= x & x >> 1;
            x = (x | x << 24) & 0x000000ff000000ffu;
            x = (x | x << 12) & 0x000f000f000f000fu;
            x = (x | x << 6) & LANES * 3;
            store_lanes(out + k, lanes_minus_1(x));
        }
    return bad & 0x5555;
}

/* eight weights a byte: bit k is moved to lane k, then 0 -> -1 and 1 -> +1 */
static void q1_0_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 128; b++, in += 18, out += 128)
        for (int k = 0; k < 16; k++) {
            uint64_t x = in[2 + k] * LANES & 0x8040201008040201u;
            x = (x + LANES * 0x7f) >> 7 & LANES;
            store_lanes(out + 8 * k, lanes_minus_1(x << 1));
        }
}

/* A byte holds a base-3 number of up to five trits as the fraction v / 243 in 8 bits, rounded
 * up: times 3^n modulo 256 leaves digit n at the front, and times 3 divided by 256 reads it. Which
 * is 1 from 86 on and 2 from 171 on: comparisons, that need no more than the byte. */
static inline int8_t first_trit(uint8_t q) { return (int8_t)((q >= 86) + (q >= 171) - 1); }
static inline int8_t trit_at(uint8_t byte, uint8_t pow3)
{
    return first_trit((uint8_t)(byte * pow3));
}

/* 3 * x modulo 256 in every lane: sums of seven bits, and the eighth by itself */
static inline uint64_t lanes_times_3(uint64_t x)
{
    const uint64_t low = LANES * 0x7f;
    uint64_t two = x << 1 & LANES * 0xfe;
    return ((two & low) + (x & low)) ^ ((two ^ x) & ~low);
}

/* `bytes` bytes of five trits each: the first digits of all, then the second ones, ... */
static inline __attribute__((always_inline)) void base3_run(int8_t *restrict out,
                                                            const uint8_t *restrict in, int bytes)
{
    uint8_t q[32];
    memcpy(q, in, (size_t)bytes);
    for (int n = 0; n < 5; n++, out += bytes)
        for (int m = 0; m < bytes; m++) {
            out[m] = first_trit(q[m]);
            q[m] = (uint8_t)(q[m] + q[m] + q[m]);
        }
}

/* four bytes of four trits each behind the runs of 32 and 16 */
static void tq1_0_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    static const uint8_t pow3[4] = {1, 3, 9, 27};
    for (uint64_t b = 0; b < cols / 256; b++, in += 54, out += 256) {
        base3_run(out, in, 32);
        base3_run(out + 160, in + 32, 16);
        for (int n = 0; n < 4; n++)
            for (int m = 0; m < 4; m++) out[240 + n * 4 + m] = trit_at(in[48 + m], pow3[n]);
    }
}

/* A run of 16, then 8 bytes of five trits and two of four: these 48 go to their places first. */
static void ptq1_0_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    for (uint64_t b = 0; b < cols / 128; b++, in += 28, out += 128) {
        uint64_t eight = load_lanes(in + 16), two = bn_load_u16(in + 24), q[6];
        for (int n = 0; n < 5; n++, eight = lanes_times_3(eight)) q[n] = eight;
        two |= (lanes_times_3(two) & 0xffff) << 16;
        q[5] = two | lanes_times_3(lanes_times_3(two)) << 32;
        base3_run(out, in, 16);
        memcpy(out + 80, q, sizeof q);
        for (int m = 80; m < 128; m++) out[m] = first_trit((uint8_t)out[m]);
    }
}

static void iq1_bn_row(int8_t *restrict out, const uint8_t *restrict in, uint64_t cols)
{
    static const uint8_t pow3[5] = {81, 27, 9, 3, 1}; /* first element: least significant digit */
    in += 2;                                          /* the row's scale */
    for (uint64_t b = 0; b < cols / 64; b++, in += 13, out += 64)
        for (int g = 0; g < 4; g++) {
            for (int k = 0; k < 3; k++)
                for (int j = 0; j < 5; j++)
                    out[16 * g + 5 * k + j] = trit_at(in[3 * g + k], pow3[j]);
            out[16 * g + 15] = trit_at(in[12], pow3[g]);
        }
}

/* bytes of one row of the types that are whole blocks a row */
static uint64_t row_bytes(const struct bn_type_info *i, uint64_t cols)
{
    return i->row_meta_bytes + cols / i->block * i->block_bytes;
}

/* IQ2_BN_R4: the first byte of the four rows that r belongs to */
static const uint8_t *row4(const uint8_t *data, const struct bn_type_info *i, uint64_t cols,
                           uint64_t r)
{
    return data + r / 4 * 4 * row_bytes(i, cols);
}

bool bn_unpack_trits(int8_t *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    const uint8_t *row = t->data + r * row_bytes(i, t->cols);
    switch (t->type) {
    case BN_I2_S: return i2s_run(out, t->data, r * t->cols, t->cols, 32);
    case BN_I2_S_64: return i2s_run(out, t->data, r * t->cols, t->cols, 16);
    case BN_I2_S_ROWS4:
        return one_field(out, t->data + r / 4 * t->cols, t->cols, 6 - 2 * (int)(r % 4));
    case BN_HF_U8: { /* rows are split in four contiguous quarters */
        uint64_t quarter = bn_div_up(t->rows, 4);
        return one_field(out, t->data + r % quarter * t->cols, t->cols, 2 * (int)(r / quarter));
    }
    case BN_TQ2_0: return tq2_0_row(out, row, t->cols);
    case BN_IQ2_BN: return iq2_bn_row(out, row, t->cols);
    case BN_IQ2_BN_R4:
        return iq2_bn_r4_row(out, row4(t->data, i, t->cols, r), t->cols, (int)(r % 4));
    case BN_TQ1_0: tq1_0_row(out, row, t->cols); return true;
    case BN_IQ1_BN: iq1_bn_row(out, row, t->cols); return true;
    case BN_Q1_0: q1_0_row(out, row, t->cols); return true;
    case BN_PTQ1_0: ptq1_0_row(out, row, t->cols); return true;
    case BN_Q2_0: q2_row(out, row, t->cols, 64, 2); return true;
    case BN_Q2_0_128:
    case BN_PQ2_0: q2_row(out, row, t->cols, 128, 2); return true;
    case BN_TQ2_0_128: return q2_row(out, row, t->cols, 128, 0) == 0;
    default: return false; /* not a ternary type */
    }
}

/* Codes lie after the scale of a block, a multiple of eight bytes. */
bool bn_holds_two(const struct bn_stored *t)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    uint64_t blocks = t->rows * (t->cols / i->block), found = 0;
    if (bn_type_w_max(t->type) < 2) return false;
    for (uint64_t b = 0; b < blocks && !found; b++)
        for (uint32_t k = 2; k < i->block_bytes; k += 8) {
            uint64_t x = bn_load_u64(t->data + b * i->block_bytes + k);
            found |= x & x >> 1 & 0x5555555555555555u;
        }
    return found != 0;
}

bool bn_type_has_bad_codes(enum bn_type t)
{
    switch (t) {
    case BN_I2_S:
    case BN_I2_S_64:
    case BN_I2_S_ROWS4:
    case BN_HF_U8:
    case BN_TQ2_0:
    case BN_IQ2_BN:
    case BN_IQ2_BN_R4:
    case BN_TQ2_0_128: return true;
    default: return false; /* one or two bits whose every value is a weight, and base 3 */
    }
}

void bn_unpack_block_f16(uint16_t *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    const uint8_t *p = t->data + r * row_bytes(i, t->cols) + bn_type_scale_at(t->type);
    for (uint64_t b = 0; b < t->cols / i->block; b++) out[b] = bn_load_u16(p + b * i->block_bytes);
}

size_t bn_unpack_scales(float *out, const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *i = bn_type_info(t->type);
    const uint8_t *row = t->data + r * row_bytes(i, t->cols);
    switch (i->scale) {
    case BN_TS_NONE: return 0;
    case BN_TS_TENSOR:
        out[0] = t->type == BN_HF_U8 ? t->hf_scale : bn_load_f32(t->data + t->rows * t->cols / 4);
        return 1;
    case BN_TS_ROW_F32:
        out[0] =
            bn_load_f32(t->type == BN_IQ2_BN_R4 ? row4(t->data, i, t->cols, r) + r % 4 * 4 : row);
        return 1;
    case BN_TS_ROW_F16: out[0] = bn_f16_to_f32(bn_load_u16(row)); return 1;
    case BN_TS_BLOCK_F16: break;
    }
    const uint8_t *p = row + bn_type_scale_at(t->type);
    for (uint64_t b = 0; b < t->cols / i->block; b++)
        out[b] = bn_f16_to_f32(bn_load_u16(p + b * i->block_bytes));
    return (size_t)(t->cols / i->block);
}

/* ------------------------------------------------------------------ packing */

static inline uint8_t code(int8_t w) { return (uint8_t)(w + 1) & 3; }

/* the byte that ggml writes for a base-3 number v < 243: the fraction v / 243, rounded up */
static inline uint8_t base3_byte(unsigned v) { return (uint8_t)((v * 256 + 242) / 243); }

/* `bytes` bytes of `digits` trits each, the first run of elements being the most significant
 * digits. Four trits leave the fifth, least significant digit 0. */
static void pack_base3(uint8_t *dst, const int8_t *w, int bytes, int digits)
{
    for (int m = 0; m < bytes; m++) {
        unsigned v = 0;
        for (int n = 0; n < 5; n++) v = v * 3 + (n < digits ? code(w[n * bytes + m]) : 0);
        dst[m] = base3_byte(v);
    }
}

static void pack_tq1_0(uint8_t *dst, const int8_t *w)
{
    pack_base3(dst, w, 32, 5);
    pack_base3(dst + 32, w + 160, 16, 5);
    pack_base3(dst + 48, w + 240, 4, 4);
}

static void pack_ptq1_0(uint8_t *dst, const int8_t *w)
{
    pack_base3(dst, w, 16, 5);
    pack_base3(dst + 16, w + 80, 8, 5);
    pack_base3(dst + 24, w + 120, 2, 4);
}

static void pack_iq1_bn(uint8_t *dst, const int8_t *w)
{
    unsigned extra = 0;
    for (int g = 3; g >= 0; g--) {
        for (int k = 0; k < 3; k++) {
            unsigned v = 0;
            for (int j = 4; j >= 0; j--) v = v * 3 + code(w[16 * g + 5 * k + j]);
            dst[3 * g + k] = base3_byte(v);
        }
        extra = extra * 3 + code(w[16 * g + 15]);
    }
    dst[12] = base3_byte(extra);
}

/* four planes of `width` bytes, the first in the bottom bits */
static void pack_planes(uint8_t *dst, const int8_t *w, int width)
{
    for (int m = 0; m < width; m++)
        dst[m] = (uint8_t)(code(w[m]) | code(w[width + m]) << 2 | code(w[2 * width + m]) << 4 |
                           code(w[3 * width + m]) << 6);
}

static void pack_block(uint8_t *dst, enum bn_type t, const int8_t *w)
{
    switch (t) {
    case BN_TQ1_0: pack_tq1_0(dst, w); break;
    case BN_TQ2_0:
        pack_planes(dst, w, 32);
        pack_planes(dst + 32, w + 128, 32);
        break;
    case BN_IQ2_BN: pack_planes(dst, w, 16); break;
    case BN_IQ1_BN: pack_iq1_bn(dst, w); break;
    case BN_Q1_0:
        for (int k = 0; k < 16; k++) {
            unsigned bits = 0;
            for (int j = 0; j < 8; j++) bits |= (unsigned)(w[8 * k + j] > 0) << j;
            dst[2 + k] = (uint8_t)bits;
        }
        break;
    case BN_PTQ1_0: pack_ptq1_0(dst, w); break;
    default: /* Q2_0 and its relatives */
        if (t != BN_TQ2_0_128) dst += 2;
        for (uint32_t k = 0; k < bn_type_info(t)->block / 4; k++)
            dst[k] = (uint8_t)(code(w[4 * k]) | code(w[4 * k + 1]) << 2 | code(w[4 * k + 2]) << 4 |
                               code(w[4 * k + 3]) << 6);
        break;
    }
}

/* I2_S in blocks of 4 * width over the whole tensor: a row may share its first and last bytes
 * with its neighbours, so there fields are added to what the bytes hold */
static void pack_i2s(uint8_t *dst, const int8_t *w, uint64_t from, uint64_t n, unsigned width)
{
    const uint64_t block = 4 * (uint64_t)width;
    uint64_t k = 0;
    while (k < n) {
        uint64_t e = from + k, j = e % block;
        if (j == 0 && n - k >= block) {
            const int8_t *p = w + k;
            for (unsigned m = 0; m < width; m++)
                dst[e / 4 + m] = (uint8_t)(code(p[m]) << 6 | code(p[width + m]) << 4 |
                                           code(p[2 * width + m]) << 2 | code(p[3 * width + m]));
            k += block;
            continue;
        }
        dst[e / block * width + j % width] |= (uint8_t)(code(w[k++]) << (6 - 2 * (j / width)));
    }
}

static void pack_field(uint8_t *dst, const int8_t *w, uint64_t n, int shift)
{
    for (uint64_t k = 0; k < n; k++) dst[k] |= (uint8_t)(code(w[k]) << shift);
}

static void pack_iq2_bn_r4(uint8_t *group, const int8_t *w, uint64_t cols, unsigned k)
{
    uint8_t *p = group + 16 + 4 * k;
    for (uint64_t b = 0; b < cols / 64; b++, p += 64, w += 64)
        for (int l = 0; l < 4; l++)
            for (int i = 0; i < 4; i++) {
                const int8_t *e = w + 16 * l + i;
                p[16 * l + i] =
                    (uint8_t)(code(e[0]) | code(e[4]) << 2 | code(e[8]) << 4 | code(e[12]) << 6);
            }
}

void bn_pack_trits(uint8_t *dst, enum bn_type t, uint64_t rows, uint64_t cols, uint64_t r,
                   const int8_t *w, const float *scales)
{
    const struct bn_type_info *i = bn_type_info(t);
    switch (t) {
    case BN_I2_S:
    case BN_I2_S_64:
        pack_i2s(dst, w, r * cols, cols, t == BN_I2_S ? 32 : 16);
        bn_store_f32(dst + rows * cols / 4, scales[0]);
        return;
    case BN_I2_S_ROWS4:
        pack_field(dst + r / 4 * cols, w, cols, 6 - 2 * (int)(r % 4));
        bn_store_f32(dst + rows * cols / 4, scales[0]);
        return;
    case BN_HF_U8: {
        uint64_t quarter = bn_div_up(rows, 4);
        pack_field(dst + r % quarter * cols, w, cols, 2 * (int)(r / quarter));
        return;
    }
    case BN_IQ2_BN_R4: {
        uint8_t *group = dst + r / 4 * 4 * row_bytes(i, cols);
        bn_store_f32(group + r % 4 * 4, scales[0]);
        pack_iq2_bn_r4(group, w, cols, (unsigned)(r % 4));
        return;
    }
    default: break;
    }
    uint8_t *p = dst + r * row_bytes(i, cols);
    if (i->scale == BN_TS_ROW_F32) bn_store_f32(p, scales[0]);
    if (i->scale == BN_TS_ROW_F16) bn_store_u16(p, bn_f32_to_f16(scales[0]));
    p += i->row_meta_bytes;
    for (uint64_t b = 0; b < cols / i->block; b++, p += i->block_bytes) {
        pack_block(p, t, w + b * i->block);
        if (i->scale == BN_TS_BLOCK_F16)
            bn_store_u16(p + bn_type_scale_at(t), bn_f32_to_f16(scales[b]));
    }
}
