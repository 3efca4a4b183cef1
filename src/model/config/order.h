/* SPDX-License-Identifier: Apache-2.0
 *
 * One order in memory, whatever the file's: that of Hugging Face checkpoints. GGUF files have some
 * rows and columns elsewhere, for the sake of the engine they were made for:
 *   llama      partners of a rotation stand side by side in q and k, not half a head apart;
 *   qwen35     value heads of delta nets are tiled: the first one of every key head, then the second
 *              ones; in checkpoints those of a key head stand together;
 * and in both kinds of files q of a gated attention has a head's queries and gates by turns; here all
 * gates stand behind all queries. So a checkpoint and a GGUF made of it give the same bits, since
 * sums run over the same numbers in the same order. */
#ifndef BN_MODEL_CONFIG_ORDER_H
#define BN_MODEL_CONFIG_ORDER_H

#include "model/config/config.h"

/* The file's row of a part that is row r here. For vectors: of its elements. */
uint64_t bn_order_row(const struct bn_config *c, enum bn_part p, uint64_t r);

/* Value head h of checkpoints in the tiled order, and the other way round. */
uint32_t bn_order_tiled(const struct bn_delta_shape *d, uint32_t h);
uint32_t bn_order_grouped(const struct bn_delta_shape *d, uint32_t h);

/* Columns that are to stand elsewhere, in pieces of a value head's width. */
struct bn_order_cols {
    size_t width; /* 0: they stay */
    struct bn_delta_shape delta;
    bool tile; /* from the checkpoint's order to the tiled one, else back */
};
/* From the file's order to the model's. */
struct bn_order_cols bn_order_cols(const struct bn_config *c, enum bn_part p);
/* Column c of the result is this one of what is stored; neighbours inside a piece stay neighbours. */
static inline size_t bn_order_col(const struct bn_order_cols *o, size_t c)
{
    if (!o->width) return c;
    uint32_t h = (uint32_t)(c / o->width);
    h = o->tile ? bn_order_grouped(&o->delta, h) : bn_order_tiled(&o->delta, h);
    return h * o->width + c % o->width;
}

#endif
