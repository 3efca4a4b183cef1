/* SPDX-License-Identifier: Apache-2.0
 * Shared by the two halves of convert: the plan (what becomes of each tensor, everything that can
 * be refused is refused here) and the writing of one tensor. */
#ifndef BN_FORGE_CONVERT_IMPL_H
#define BN_FORGE_CONVERT_IMPL_H

#include "forge/forge.h"
#include "model/adapter/adapter.h"
#include "model/config/config.h"
#include "model/files/gguf_write.h"
#include "model/weights/ternary.h"

/* One tensor of the output. */
struct bn_convert_item {
    enum { BN_ITEM_COPY, BN_ITEM_DENSE, BN_ITEM_TRITS, BN_ITEM_FLOATS } how;
    char *name;                   /* in the output; in the plan's arena */
    const struct bn_tensor *from; /* NULL: made here (FLOATS) */
    enum bn_type type;            /* in the output */
    uint32_t n_dims;
    uint64_t dims[4], rows, cols, bytes;
    struct bn_stored stored;         /* DENSE  */
    struct bn_ternary ternary;       /* TRITS  */
    const uint32_t *row_from;        /* [rows] of the input; NULL: kept as they are */
    const uint32_t *col_from;        /* [cols] likewise */
    float factor;                    /* DENSE: of values; 0: none */
    struct bn_order_cols cols_order; /* of a row, likewise */
    enum { BN_VALUES_KEPT, BN_VALUES_PLUS_ONE, BN_VALUES_MINUS_EXP } values; /* DENSE */
    const float *floats;                                                     /* FLOATS: [cols] */
    const struct bn_convert_merged *merged; /* DENSE: what adapters add; NULL: nothing */
};

/* The pairs of some adapters beside one matrix of the output. */
struct bn_convert_merged {
    size_t n;
    const uint32_t *row_of; /* [rows] of the pairs, by the output's; NULL: the same */
    bool table;             /* A has a row for each of the matrix, B one for each rank */
    struct bn_convert_pair {
        const struct bn_low_rank *pair;
        float scale;
    } pairs[];
};

/* What prune leaves of a model. */
struct bn_convert_cut {
    const uint32_t *kept; /* [n_kept] layers of the input in rising order: 0 and on in the output */
    uint32_t n_kept;
    uint32_t n_ff;      /* feed-forward channels in the output; 0: all of them */
    uint32_t *ffn_from; /* [n_kept][n_ff] channels of the input; owned */
    bool fold_norm;     /* norms are scaled to the new width; else the output says the old one */
    const bitnet_prune_output *record; /* what the output says about it */
};

/* What stands in the way of an output (convert_obstacles.c). */
enum bn_obstacle_kind {
    BN_OBSTACLE_SHAPE,    /* rows that the type does not hold */
    BN_OBSTACLE_ROUNDING, /* scales that the type would change */
    BN_OBSTACLE_RANGE,    /* … that it cannot hold at all */
    BN_OBSTACLE_SCALES,   /* several where it has one */
    BN_OBSTACLE_SIGN,
    BN_OBSTACLE_ZEROS,
    BN_OBSTACLE_TWOS,
    BN_OBSTACLE_UNKNOWN, /* a tensor without a place in the output */
    BN_N_OBSTACLES
};
struct bn_obstacles {
    struct bn_obstacle {
        char text[224], others[72]; /* about the first tensor; the names of the next */
        size_t others_len;
        uint32_t n, listed; /* tensors; of others: how many are named */
        const char *last;
    } of[BN_N_OBSTACLES];
};
/* tensor: lives as long as the obstacles. One is noted once for each kind. */
void bn_obstacle_add(struct bn_obstacles *o, enum bn_obstacle_kind kind, const char *tensor,
                     const char *format, ...) BN_PRINTF(4, 5);
/* An error that names all of them, BITNET_OK if there are none. */
bitnet_status bn_obstacles_end(const struct bn_obstacles *o, bitnet_error *err);

struct bn_convert_plan {
    const struct bn_source *src;
    const struct bn_config *config;
    const struct bn_convert_cut *cut; /* NULL: all of it is converted */
    bool to_hf;                       /* tensors are for a checkpoint; else for a GGUF */
    bool packs;                       /* to_hf: some are packed, which config.json has to say */
    struct bn_config to;              /* with the conventions of the output */
    struct bn_choice type, head_type;
    bool allow_scale_rounding;
    struct bn_merge *merge; /* adapters that go into the weights; NULL: none */
    struct bn_arena arena;
    struct bn_convert_item *items;
    size_t n, room;
    bool *used; /* [src->n_tensors] has found its place */
    struct bn_obstacles obstacles;
    uint64_t total_bytes;   /* of all items */
    uint64_t largest_bytes; /* of a TRITS item */
    uint64_t largest_cols;
    enum bn_type proj_type; /* of the projections, if `one_type` */
    bool one_type;
};

/* Fills the plan; nothing has been written yet. plan is zeroed but for the fields above `arena`. */
bitnet_status bn_convert_plan_make(struct bn_convert_plan *p, bitnet_error *err);
void bn_convert_plan_free(struct bn_convert_plan *p);

/* The number of a layer in the output: of one that has a place there, BN_LAYER_MTP as in the input. */
#define BN_LAYER_CUT UINT32_MAX /* it has none */
uint32_t bn_convert_layer(const struct bn_convert_plan *p, uint32_t layer);

/* Layers in and GGUF out: what bn_convert and bn_prune share. cut: NULL, or what is left. */
bitnet_status bn_convert_to_gguf(const char *in, const char *out, const bitnet_convert_options *o,
                                 const struct bn_convert_cut *cut, bitnet_error *err);

/* ---- prune/write.c: what becomes of names and metadata ---- */

/* The layer that a tensor's name says it belongs to, as bn_config_named_layer has it; and the bytes of
 * the name that are its number. false: to none. */
bool bn_prune_name(const char *name, uint32_t n_layer, uint32_t *layer, size_t *at, size_t *end);
/* The configuration of what is left. */
void bn_prune_config(struct bn_config *c, const struct bn_convert_cut *cut);
/* An entry of the input's metadata, changed if it has to be. false: it is to be copied as it is. */
bool bn_prune_put_meta(struct bn_gguf_writer *w, const struct bn_convert_plan *p,
                       const struct bn_meta *m);
/* ---- prune/channels.c ---- */

/* Lists the feed-forward channels that can do something: cut->n_ff and cut->ffn_from, which the caller
 * frees. n_ff is 0 if none can go. */
bitnet_status bn_prune_dead(struct bn_convert_cut *cut, const struct bn_source *src,
                            const struct bn_config *c, bitnet_error *err);

/* Numbers of channels that a file can be left with: multiples of this. An error where none can go. */
bitnet_status bn_prune_grain(uint32_t *grain, const struct bn_source *src,
                             const struct bn_config *c, bitnet_error *err);
/* The channels that somebody has chosen, checked. */
bitnet_status bn_prune_chosen(struct bn_convert_cut *cut, const struct bn_source *src,
                              const struct bn_config *c, bitnet_error *err);

/* ---- prune/checkpoint.c: what is left, as a checkpoint ---- */
bitnet_status bn_prune_checkpoint(const char *out, const struct bn_source *src,
                                  const struct bn_config *c, const struct bn_convert_cut *cut,
                                  bitnet_error *err);

/* Not 0: this channel of the input's is none of the output's layer. gone: [n_ff] of the input. */
void bn_prune_removed(uint8_t *gone, const struct bn_convert_plan *p, uint32_t layer);
/* What is new in the output's metadata. */
void bn_prune_put_record(struct bn_gguf_writer *w, const struct bn_convert_plan *p);

/* convert_rows.c: memory for one row and one tensor, then the bytes of an item. */
struct bn_convert_rows {
    const struct bn_source *src; /* whose pages are given back once they were read */
    float *values, *scales;      /* [cols] */
    uint16_t *block_f16;         /* [cols] */
    int8_t *trits, *picked;      /* [cols] */
    uint8_t *out;                /* [out_bytes] */
    size_t out_bytes;
};
bitnet_status bn_convert_rows_open(struct bn_convert_rows *r, const struct bn_source *src,
                                   uint64_t cols, uint64_t out_bytes, bitnet_error *err);
void bn_convert_rows_close(struct bn_convert_rows *r);

/* Can this matrix be stored as item->type without changing a value? Reads it where that is needed,
 * and settles on one scale where the type has only one. What it cannot hold goes to o. */
bitnet_status bn_convert_check(struct bn_convert_item *it, bool allow_scale_rounding,
                               struct bn_convert_rows *r, struct bn_obstacles *o,
                               bitnet_error *err);
/* ---- convert_merge.c: adapters that go into the weights ---- */

/* Those of o, for a GGUF of src; *out is NULL where there are none. */
bitnet_status bn_merge_open(struct bn_merge **out, const struct bn_source *src,
                            const struct bn_config *c, const bitnet_convert_options *o,
                            bitnet_error *err);
void bn_merge_close(struct bn_merge *m);
/* An item that is to be written: the pairs of its part go into it, and it becomes F32. Refused, with the
 * reason, where the result would not be what base model and adapter compute. dense: it is no ternary
 * matrix. A part without pairs stays as it is. */
bitnet_status bn_merge_take(struct bn_convert_item *it, struct bn_convert_plan *p,
                            enum bn_part part, uint32_t layer, bool dense, bitnet_error *err);
/* Does the item's part get something? */
bool bn_merge_has(const struct bn_merge *m, enum bn_part part, uint32_t layer);
/* Adds to a row of the output. */
void bn_merge_add(float *values, const struct bn_convert_item *it, uint64_t row);

/* Where the bytes go. */
struct bn_convert_sink {
    bitnet_status (*put)(void *user, const void *p, size_t n, bitnet_error *err);
    void *user;
};
bitnet_status bn_convert_write(const struct bn_convert_item *it, const struct bn_convert_sink *to,
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
