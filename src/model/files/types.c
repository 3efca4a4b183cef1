/* SPDX-License-Identifier: Apache-2.0
 * The table of storage types and what follows from it alone: names and sizes. The bits inside are
 * the business of types_ternary.c, types_dense.c and types_quant.c. */
#include "model/files/types.h"

static const struct bn_type_info infos[BN_TYPE_COUNT] = {
    [BN_F32] = {"F32", 0, 1, 4, 0, false, false, BN_TS_NONE},
    [BN_F16] = {"F16", 1, 1, 2, 0, false, false, BN_TS_NONE},
    [BN_BF16] = {"BF16", 30, 1, 2, 0, false, false, BN_TS_NONE},
    [BN_Q8_0] = {"Q8_0", 8, 32, 34, 0, false, false, BN_TS_NONE},
    [BN_Q6_K] = {"Q6_K", 14, 256, 210, 0, false, false, BN_TS_NONE},
    [BN_Q4_0] = {"Q4_0", 2, 32, 18, 0, false, false, BN_TS_NONE},
    [BN_Q4_K] = {"Q4_K", 12, 256, 144, 0, false, false, BN_TS_NONE},
    /* I2_S: blocks run over the whole tensor, not over rows; bn_type_bytes knows the true sizes */
    [BN_I2_S] = {"I2_S", 36, 1, 0, 0, true, false, BN_TS_TENSOR},
    [BN_I2_S_64] = {"I2_S_64", -1, 1, 0, 0, true, false, BN_TS_TENSOR},
    [BN_I2_S_ROWS4] = {"I2_S_ROWS4", -1, 1, 0, 0, true, false, BN_TS_TENSOR},
    [BN_TQ1_0] = {"TQ1_0", 34, 256, 54, 0, true, false, BN_TS_BLOCK_F16},
    [BN_TQ2_0] = {"TQ2_0", 35, 256, 66, 0, true, false, BN_TS_BLOCK_F16},
    [BN_IQ2_BN] = {"IQ2_BN", 135, 64, 16, 4, true, false, BN_TS_ROW_F32},
    [BN_IQ1_BN] = {"IQ1_BN", 134, 64, 13, 2, true, false, BN_TS_ROW_F16},
    [BN_Q1_0] = {"Q1_0", 41, 128, 18, 0, true, true, BN_TS_BLOCK_F16},
    [BN_Q2_0] = {"Q2_0", 42, 64, 18, 0, true, false, BN_TS_BLOCK_F16},
    [BN_Q2_0_128] = {"Q2_0_128", -1, 128, 34, 0, true, false, BN_TS_BLOCK_F16},
    [BN_HF_U8] = {"U8 packed", -1, 1, 0, 0, true, false, BN_TS_TENSOR},
    [BN_I32] = {"I32", 26, 1, 4, 0, false, false, BN_TS_NONE},
    [BN_I64] = {"I64", 27, 1, 8, 0, false, false, BN_TS_NONE},
    [BN_F64] = {"F64", 28, 1, 8, 0, false, false, BN_TS_NONE},
    [BN_U8] = {"U8", -1, 1, 1, 0, false, false, BN_TS_NONE},
    [BN_I8] = {"I8", 24, 1, 1, 0, false, false, BN_TS_NONE},
    [BN_I16] = {"I16", 25, 1, 2, 0, false, false, BN_TS_NONE},
    [BN_IQ2_BN_R4] = {"IQ2_BN_R4", 335, 64, 16, 4, true, false, BN_TS_ROW_F32},
    [BN_PQ2_0] = {"PQ2_0", 142, 128, 34, 0, true, false, BN_TS_BLOCK_F16},
    [BN_PTQ1_0] = {"PTQ1_0", 143, 128, 28, 0, true, false, BN_TS_BLOCK_F16},
    [BN_TQ2_0_128] = {"TQ2_0_G128", -1, 128, 34, 0, true, false, BN_TS_BLOCK_F16},
};

const struct bn_type_info *bn_type_info(enum bn_type t) { return &infos[t]; }

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

int bn_type_w_max(enum bn_type t)
{
    return t == BN_Q2_0 || t == BN_Q2_0_128 || t == BN_PQ2_0 ? 2 : 1;
}

uint32_t bn_type_scale_at(enum bn_type t)
{
    bool behind = t == BN_TQ1_0 || t == BN_TQ2_0 || t == BN_PTQ1_0 || t == BN_TQ2_0_128;
    return behind ? infos[t].block_bytes - 2 : 0;
}

bool bn_type_by_name(enum bn_type *out, const char *name)
{
    for (int t = 0; t < BN_TYPE_COUNT; t++) {
        const char *a = infos[t].name, *b = name;
        while (*a && lower(*a) == lower(*b)) a++, b++;
        if (*a == 0 && *b == 0) {
            *out = (enum bn_type)t;
            return true;
        }
    }
    return false;
}

bool bn_type_bytes(uint64_t *out, enum bn_type t, uint64_t rows, uint64_t cols)
{
    const struct bn_type_info *i = &infos[t];
    uint64_t n, row;
    if (!bn_mul_u64(&n, rows, cols) || n > INT64_MAX) return false;
    switch (t) {
    case BN_I2_S:
        if (n % 128) return false;
        *out = n / 4 + 32;
        return true;
    case BN_I2_S_64:
        if (n % 64) return false;
        *out = n / 4 + 32;
        return true;
    case BN_I2_S_ROWS4:
        if (rows % 4) return false;
        *out = n / 4 + 32;
        return true;
    case BN_HF_U8: return bn_mul_u64(out, bn_div_up(rows, 4), cols);
    default:
        if (cols % i->block || (t == BN_IQ2_BN_R4 && rows % 4)) return false;
        return bn_mul_u64(&row, cols / i->block, i->block_bytes) &&
               bn_add_u64(&row, row, i->row_meta_bytes) && bn_mul_u64(out, rows, row) &&
               *out <= INT64_MAX;
    }
}
