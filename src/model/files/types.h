/* SPDX-License-Identifier: Apache-2.0
 * Tensor storage types: sizes, and how to get values out of and into them, row by row. The one
 * place that knows the bit layouts of files (features: GGUF types, and the packed U8 of Hugging
 * Face checkpoints). */
#ifndef BN_MODEL_FILES_TYPES_H
#define BN_MODEL_FILES_TYPES_H

#include "base/status.h"

/* our own numbers; a GGUF id is resolved to one of these when the file is read */
enum bn_type {
    BN_F32,
    BN_F16,
    BN_BF16,
    BN_Q8_0,
    BN_Q6_K,
    BN_Q4_0,
    BN_Q4_K, /* embeddings and heads                           */
    BN_I2_S,
    BN_I2_S_64,
    BN_I2_S_ROWS4, /* 128/32 as published, and the two unmarked variants */
    BN_TQ1_0,
    BN_TQ2_0,
    BN_IQ2_BN,
    BN_IQ1_BN,
    BN_Q1_0,
    BN_Q2_0,
    BN_Q2_0_128, /* group 64, and the legacy group of 128            */
    BN_HF_U8,    /* 4 row quarters in one byte, scale beside it      */
    BN_I32,
    BN_I64,
    BN_F64,
    BN_U8,
    BN_I8,
    BN_I16,       /* may appear in files, never as weights            */
    BN_IQ2_BN_R4, /* IQ2_BN with four rows interleaved                */
    BN_PQ2_0,     /* the bits of Q2_0_128 under a number of its own   */
    BN_PTQ1_0,    /* base 3 in blocks of 128                          */
    BN_TQ2_0_128, /* codes of Q2_0_128 with the scale behind them     */
    BN_TYPE_COUNT
};

/* where a ternary type keeps its scale */
enum bn_type_scale { BN_TS_NONE, BN_TS_TENSOR, BN_TS_ROW_F32, BN_TS_ROW_F16, BN_TS_BLOCK_F16 };

struct bn_type_info {
    const char *name; /* as printed and as accepted by --type (case-insensitive) */
    int32_t gguf_id;  /* -1: not storable in GGUF */
    /* weights in a block; a row must be whole blocks (1 for I2_S and plain types) */
    uint32_t block;
    uint32_t block_bytes;
    uint32_t row_meta_bytes; /* IQ1_BN, IQ2_BN: bytes before a row's blocks */
    bool ternary; /* made for weights in {-1,0,+1} (or {-1,+1}, or {-1,0,+1,+2}) times a scale */
    bool binary;  /* holds only +-1 */
    enum bn_type_scale scale;
};
const struct bn_type_info *bn_type_info(enum bn_type t);
/* the largest weight of a ternary type: +2 in Q2_0 of either group and PQ2_0, else +1 */
int bn_type_w_max(enum bn_type t);
/* where the f16 scale stands in a block of a BLOCK type: before the codes or behind them */
uint32_t bn_type_scale_at(enum bn_type t);
bool bn_type_by_name(enum bn_type *out, const char *name); /* "i2_s", "TQ2_0", ... */

/* Bytes of a tensor of `rows` rows of `cols`; false if the shape does not fit the type or
 * overflows. */
bool bn_type_bytes(uint64_t *out, enum bn_type t, uint64_t rows, uint64_t cols);

/* A matrix as it lies in a file. */
struct bn_stored {
    enum bn_type type;
    const uint8_t *data;
    uint64_t bytes;
    uint64_t rows, cols;
    float hf_scale; /* BN_HF_U8: the factor to multiply with, sign convention already resolved */
};

/* Row r of a ternary type as integers -1, 0, +1 (+2 in Q2_0). false: a code that the type does not
 * allow. */
bool bn_unpack_trits(int8_t *out, const struct bn_stored *t, uint64_t r);
/* Are there such codes at all? */
bool bn_type_has_bad_codes(enum bn_type t);
/* Does a tensor hold a weight +2? Only a type with bn_type_w_max() 2 can. */
bool bn_holds_two(const struct bn_stored *t);
/* The scales of row r: 1 for TENSOR and ROW kinds, cols / block for BLOCK kinds, as f32 (exact).
 * Returns how many. */
size_t bn_unpack_scales(float *out, const struct bn_stored *t, uint64_t r);
/* The same as the f16 bits of the file; BLOCK kinds only. */
void bn_unpack_block_f16(uint16_t *out, const struct bn_stored *t, uint64_t r);

/* Row r of any type as floats, as the format defines its values. */
void bn_dequant_row(float *out, const struct bn_stored *t, uint64_t r);

/* Writing. A ternary row from integers and its scale(s): one per block for BLOCK types, else one.
 * dst points to the tensor's first byte (zeroed before the first row); I2_S puts its scale behind
 * the last row. Rows share bytes in U8 packed, I2_S_ROWS4 and in I2_S whose rows are no whole
 * blocks: those are packed by one thread at a time. */
void bn_pack_trits(uint8_t *dst, enum bn_type t, uint64_t rows, uint64_t cols, uint64_t r,
                   const int8_t *w, const float *scales);
/* A dense row (F32 F16 BF16 Q8_0 Q6_K Q4_0 Q4_K) from floats. dst: the row's first byte. */
void bn_quant_row(uint8_t *dst, enum bn_type t, const float *x, uint64_t cols);

#endif
