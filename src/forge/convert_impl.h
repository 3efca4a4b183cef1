/* SPDX-License-Identifier: Apache-2.0
 * Shared by the two halves of convert: the plan (what becomes of each tensor, everything that can
 * be refused is refused here) and the writing of one tensor. */
#ifndef BN_FORGE_CONVERT_IMPL_H
#define BN_FORGE_CONVERT_IMPL_H

#include "forge/forge.h"
#include "model/config/config.h"
#include "model/files/gguf_write.h"
#include "model/weights/ternary.h"

/* One tensor of the output. */
struct bn_convert_item {
    enum { BN_ITEM_COPY, BN_ITEM_DENSE, BN_ITEM_TRITS, BN_ITEM_ROPE } how;
    char *name;                   /* in the output; in the plan's arena */
    const struct bn_tensor *from; /* NULL: made from the configuration (ROPE) */
    enum bn_type type;            /* in the output */
    uint32_t n_dims;
    uint64_t dims[4], rows, cols, bytes;
    struct bn_stored stored;         /* DENSE  */
    struct bn_ternary ternary;       /* TRITS  */
    const uint32_t *row_from;        /* [rows] of the input; NULL: kept as they are */
    struct bn_order_cols cols_order; /* of a row, likewise */
    enum { BN_VALUES_KEPT, BN_VALUES_PLUS_ONE, BN_VALUES_MINUS_EXP } values; /* DENSE */
    const float *factors;                                                    /* ROPE: [cols] */
};

struct bn_convert_plan {
    const struct bn_source *src;
    const struct bn_config *config;
    struct bn_config to; /* the same with GGUF's conventions; those of the input, if it is a GGUF */
    struct bn_choice type, head_type;
    bool allow_scale_rounding;
    struct bn_arena arena;
    struct bn_convert_item *items;
    size_t n, room;
    bool *used;             /* [src->n_tensors] has found its place */
    uint64_t total_bytes;   /* of all items */
    uint64_t largest_bytes; /* of a TRITS item */
    uint64_t largest_cols;
    enum bn_type proj_type; /* of the projections, if `one_type` */
    bool one_type;
};

/* Fills the plan; nothing has been written yet. plan is zeroed but for the fields above `arena`. */
bitnet_status bn_convert_plan_make(struct bn_convert_plan *p, bitnet_error *err);
void bn_convert_plan_free(struct bn_convert_plan *p);

/* convert_rows.c: memory for one row and one tensor, then the bytes of an item. */
struct bn_convert_rows {
    const struct bn_source *src; /* whose pages are given back once they were read */
    float *values, *scales;      /* [cols] */
    uint16_t *block_f16;         /* [cols] */
    int8_t *trits;               /* [cols] */
    uint8_t *out;                /* [out_bytes] */
    size_t out_bytes;
};
bitnet_status bn_convert_rows_open(struct bn_convert_rows *r, const struct bn_source *src,
                                   uint64_t cols, uint64_t out_bytes, bitnet_error *err);
void bn_convert_rows_close(struct bn_convert_rows *r);

/* Can this matrix be stored as item->type without changing a value? Reads it where that is needed,
 * and settles on one scale where the type has only one. */
bitnet_status bn_convert_check(struct bn_convert_item *it, bool allow_scale_rounding,
                               struct bn_convert_rows *r, bitnet_error *err);
bitnet_status bn_convert_write(const struct bn_convert_item *it, struct bn_gguf_writer *w,
                               struct bn_convert_rows *r, struct bn_work *work, bitnet_error *err);

/* A GGUF with packed weights (model/image/image.h). Storage types are those of the model as it would be
 * converted without; what is no GGUF, or is to have other types, becomes one first, beside the
 * output. (convert_packed.c) */
typedef bitnet_status bn_convert_fn(const char *in, const char *out,
                                    const bitnet_convert_options *o, bitnet_error *err);
bitnet_status bn_convert_packed(const char *in, const char *out, const bitnet_convert_options *o,
                                bn_convert_fn *convert, bitnet_error *err);
/* A plan to the metadata; NULL and "off": none. (convert.c) */
bitnet_status bn_convert_put_plan(struct bn_gguf_writer *w, const char *plan, bitnet_error *err);

#endif
