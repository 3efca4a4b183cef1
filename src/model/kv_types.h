/* SPDX-License-Identifier: Apache-2.0
 * How keys or values of a head lie in a page of the KV cache: token by token (floats of 32, 16 and 8
 * bits, int8 as blocks q8_0), or as one block of all tokens (int4, int2), which is made when its last
 * token is there. */
#ifndef BN_MODEL_KV_TYPES_H
#define BN_MODEL_KV_TYPES_H

#include "kernels/kernels.h"

/* Keys or values. */
struct bn_kv_side {
    bitnet_kv_type type; /* never AUTO */
    bool values;
    unsigned block_bits; /* of a code in a block of all tokens; 0: token by token */
    size_t dim;          /* of a head */
    size_t wide;         /* dim up to a multiple of BN_KV_GROUP: floats of a row when it is read */
    size_t row_bytes;    /* token by token: of a row */
    size_t head_bytes;   /* of a head in one page */
};

const char *bn_kv_type_name(bitnet_kv_type t); /* NULL: there is no such type */
struct bn_kv_side bn_kv_side_make(bitnet_kv_type t, bool values, size_t dim);

/* One row, x[dim], to its place in a head's part of a page. Not for blocks. */
void bn_kv_put_row(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                   uint32_t slot, const float *x);
/* All rows of a block, x[BN_ATTN_BLOCK][wide] with zeros from dim on. */
void bn_kv_put_block(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                     const float *x);
/* The first n rows, of a block all of them, to y[n][wide], of which [dim] count. next: what will be
 * asked for next, laid out alike, so that it can be on its way meanwhile; or NULL. */
void bn_kv_get(float *y, const struct bn_kv_side *s, const struct bn_kernels *k,
               const uint8_t *head, size_t n, const uint8_t *next);

#endif
