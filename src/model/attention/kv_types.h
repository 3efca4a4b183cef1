/* SPDX-License-Identifier: Apache-2.0
 * How keys or values of a head lie in a page of the KV cache: as rows (floats of 32, 16 and 8 bits), or
 * as a block of codes (kernels/attention.h), to which tokens are added one by one (int8) or which is
 * made when its last token is there (int4, int2). */
#ifndef BN_MODEL_ATTENTION_KV_TYPES_H
#define BN_MODEL_ATTENTION_KV_TYPES_H

#include "kernels/kernels.h"

/* Keys or values. */
struct bn_kv_side {
    bitnet_kv_type type; /* never AUTO */
    bool values;
    unsigned code_bits; /* of a code in a block (kernels/attention.h); 0: floats */
    unsigned
        block_bits;    /* the same where a block is made of all tokens at once; 0: token by token */
    size_t dim;        /* of a head */
    size_t wide;       /* dim up to a multiple of BN_KV_GROUP: floats of a row when it is read */
    size_t row_bytes;  /* of floats: of a row */
    size_t head_bytes; /* of a head in one page */
};

const char *bn_kv_type_name(bitnet_kv_type t); /* NULL: there is no such type */
struct bn_kv_side bn_kv_side_make(bitnet_kv_type t, bool values, size_t dim);

/* One row, x[dim], to its place in a head's part of a page. Not for blocks. */
void bn_kv_put_row(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                   uint32_t slot, const float *x);
/* All rows of a block, x[BN_ATTN_BLOCK][wide] with zeros from dim on. */
void bn_kv_put_block(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                     const float *x);
/* Rows from the n-th on become zero. Not for blocks that are made at once. */
void bn_kv_clear_rows(const struct bn_kv_side *s, uint8_t *head, uint32_t n);
/* The first n rows, of a block all of them, to y[n][wide], of which [dim] count. next: what will be
 * asked for next, laid out alike, so that it can be on its way meanwhile; or NULL. */
void bn_kv_get(float *y, const struct bn_kv_side *s, const struct bn_kernels *k,
               const uint8_t *head, size_t n, const uint8_t *next);

#endif
