/* SPDX-License-Identifier: Apache-2.0 */
#include "model/attention/kv_types.h"

#include "model/config/config.h"

enum { AT_ONCE = 8 /* rows of a block; what is fetched meanwhile is as much */ };

static const char *const names[] = {
    [BITNET_KV_F16] = "f16",           [BITNET_KV_F32] = "f32",           [BITNET_KV_BF16] = "bf16",
    [BITNET_KV_FP8_E4M3] = "fp8_e4m3", [BITNET_KV_FP8_E5M2] = "fp8_e5m2", [BITNET_KV_INT8] = "int8",
    [BITNET_KV_INT4] = "int4",         [BITNET_KV_INT2] = "int2",
};

const char *bn_kv_type_name(bitnet_kv_type t)
{
    return (size_t)t < BN_ARRAY_LEN(names) ? names[t] : NULL;
}

struct bn_kv_side bn_kv_side_make(bitnet_kv_type t, bool values, size_t dim)
{
    struct bn_kv_side s = {
        .type = t, .values = values, .dim = dim, .wide = bn_align_up(dim, BN_KV_GROUP)};
    switch (t) {
    case BITNET_KV_F32: s.row_bytes = dim * 4; break;
    case BITNET_KV_AUTO:
    case BITNET_KV_F16:
    case BITNET_KV_BF16: s.row_bytes = dim * 2; break;
    case BITNET_KV_FP8_E4M3:
    case BITNET_KV_FP8_E5M2: s.row_bytes = dim; break;
    case BITNET_KV_INT8: s.code_bits = 8; break;
    case BITNET_KV_INT4: s.code_bits = s.block_bits = 4; break;
    case BITNET_KV_INT2: s.code_bits = s.block_bits = 2; break;
    }
    s.head_bytes =
        s.code_bits ? bn_kv_block_bytes(s.wide, s.code_bits) : BN_ATTN_BLOCK * s.row_bytes;
    return s;
}

/* Token `slot` of a block of int8: its steps and codes, as those of q8_0. */
enum { Q8_0_BYTES = 2 + BN_KV_GROUP };

static void put_int8(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                     uint32_t slot, const float *x)
{
    float padded[BN_MAX_HEAD_DIM] = {0};
    uint8_t q[BN_MAX_HEAD_DIM / BN_KV_GROUP * Q8_0_BYTES], *from = q;
    memcpy(padded, x, s->dim * sizeof *x);
    k->f32_to_q8_0(q, padded, s->wide);
    for (size_t g = 0; g < s->wide / BN_KV_GROUP; g++, from += Q8_0_BYTES) {
        memcpy(head + 2 * (g * BN_ATTN_BLOCK + slot), from, 2);
        uint8_t *to = head + bn_kv_code_at(s->wide, 8, s->values, slot, g * BN_KV_GROUP).byte;
        for (size_t i = 0; i < BN_KV_GROUP; i++)
            to[s->values ? 2 * i : i / 2 * 64 + i % 2] = from[2 + i];
    }
}

static void get_int8(float *y, const struct bn_kv_side *s, const struct bn_kernels *k,
                     const uint8_t *head, size_t slot)
{
    uint8_t q[BN_MAX_HEAD_DIM / BN_KV_GROUP * Q8_0_BYTES], *to = q;
    for (size_t g = 0; g < s->wide / BN_KV_GROUP; g++, to += Q8_0_BYTES) {
        memcpy(to, head + 2 * (g * BN_ATTN_BLOCK + slot), 2);
        const uint8_t *from =
            head + bn_kv_code_at(s->wide, 8, s->values, slot, g * BN_KV_GROUP).byte;
        for (size_t i = 0; i < BN_KV_GROUP; i++)
            to[2 + i] = from[s->values ? 2 * i : i / 2 * 64 + i % 2];
    }
    k->row_q8_0(y, q, s->wide);
}

static void clear_int8(const struct bn_kv_side *s, uint8_t *head, uint32_t slot)
{
    for (size_t g = 0; g < s->wide / BN_KV_GROUP; g++) {
        memset(head + 2 * (g * BN_ATTN_BLOCK + slot), 0, 2);
        uint8_t *to = head + bn_kv_code_at(s->wide, 8, s->values, slot, g * BN_KV_GROUP).byte;
        for (size_t i = 0; i < BN_KV_GROUP; i++) to[s->values ? 2 * i : i / 2 * 64 + i % 2] = 0;
    }
}

void bn_kv_clear_rows(const struct bn_kv_side *s, uint8_t *head, uint32_t n)
{
    if (!s->code_bits) memset(head + n * s->row_bytes, 0, (BN_ATTN_BLOCK - n) * s->row_bytes);
    else
        for (; n < BN_ATTN_BLOCK; n++) clear_int8(s, head, n);
}

/* A row with a NaN is nothing but NaNs, as the kernels want it: an infinity becomes one, too. */
static void put_e4m3(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *row,
                     const float *x)
{
    bool nan = false;
    k->f32_to_e4m3(row, x, s->dim);
    for (size_t i = 0; i < s->dim; i++) nan |= (row[i] & 0x7f) == 0x7f;
    if (nan) memset(row, 0x7f, s->dim);
}

void bn_kv_put_row(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                   uint32_t slot, const float *x)
{
    uint8_t *row = head + slot * s->row_bytes;
    switch (s->type) {
    case BITNET_KV_F32: memcpy(row, x, s->row_bytes); break;
    case BITNET_KV_F16: k->f32_to_f16((uint16_t *)row, x, s->dim); break;
    case BITNET_KV_BF16: k->f32_to_bf16(row, x, s->dim); break;
    case BITNET_KV_FP8_E4M3: put_e4m3(s, k, row, x); break;
    case BITNET_KV_FP8_E5M2: k->f32_to_e5m2(row, x, s->dim); break;
    case BITNET_KV_INT8: put_int8(s, k, head, slot, x); break;
    case BITNET_KV_AUTO:
    case BITNET_KV_INT4:
    case BITNET_KV_INT2: break;
    }
}

void bn_kv_put_block(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                     const float *x)
{
    (s->values ? k->kv_put_values : k->kv_put_keys)(head, x, s->wide, s->block_bits);
}

static void fetch(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 64) __builtin_prefetch(p + i, 0, 2);
}

static void get_block(float *y, const struct bn_kv_side *s, const struct bn_kernels *k,
                      const uint8_t *head, size_t n, const uint8_t *next)
{
    bn_kv_get_fn *get = s->values ? k->kv_get_values : k->kv_get_keys;
    size_t part = s->head_bytes / (BN_ATTN_BLOCK / AT_ONCE);
    for (size_t t = 0; t < n; t += AT_ONCE) {
        if (next) fetch(next + t / AT_ONCE * part, part);
        get(y + t * s->wide, head, t, bn_min_size(AT_ONCE, n - t), s->wide, s->block_bits);
    }
}

void bn_kv_get(float *y, const struct bn_kv_side *s, const struct bn_kernels *k,
               const uint8_t *head, size_t n, const uint8_t *next)
{
    bn_row_fn *row = s->type == BITNET_KV_F16        ? k->row_f16
                     : s->type == BITNET_KV_BF16     ? k->row_bf16
                     : s->type == BITNET_KV_FP8_E4M3 ? k->row_e4m3
                     : s->type == BITNET_KV_FP8_E5M2 ? k->row_e5m2
                                                     : NULL;
    if (s->block_bits) {
        get_block(y, s, k, head, n, next);
        return;
    }
    if (s->code_bits) {
        if (next) fetch(next, s->head_bytes);
        for (size_t t = 0; t < n; t++) get_int8(y + t * s->wide, s, k, head, t);
        return;
    }
    for (size_t t = 0; t < n; t++, head += s->row_bytes, y += s->wide) {
        if (next) fetch(next + t * s->row_bytes, s->row_bytes);
        if (row) row(y, head, s->dim);
        else memcpy(y, head, s->row_bytes);
    }
}
