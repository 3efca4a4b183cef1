/* SPDX-License-Identifier: Apache-2.0
 * What attention.c, which shares out and sums up, and attention_kv.c, which passes keys and values to
 * the cache and back, know of each other. */
#ifndef BN_MODEL_ATTENTION_ATTENTION_IMPL_H
#define BN_MODEL_ATTENTION_ATTENTION_IMPL_H

#include "model/attention/attention.h"
#include "model/forward.h"

/* positions of a token's sequence in the batch */
struct bn_attention_span {
    uint32_t first, last;
};

struct bn_attention {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    struct bn_kv *kv;
    size_t first_head;    /* of those that are here */
    uint32_t heads;       /* of keys, here */
    size_t dim, group;    /* of a head; query heads that share a KV head */
    size_t q_row, kv_row; /* floats of a token's queries, and of its keys or values, here */
    float *rope;          /* [n_ctx][rope_dim] */
    float *states;        /* [threads][state_floats], RUN_QUERIES or the group's; then queries */
    size_t state_queries, state_floats;
    float *blocks;                    /* [blocks_room][block_floats], with several threads */
    size_t block_floats, blocks_room; /* for all pages of the cache, each in one sequence */
    float *buffers;                   /* [threads][2][BN_ATTN_BLOCK][wide], unless all `in_place` */
    struct bn_attention_span *spans;  /* [max_tokens], with blocks in the cache */
    int16_t *query_codes;             /* [threads][state_queries][dim], if a layer has codes */
    float *query_units;               /* [threads][state_queries] */
    float *query_shorts;              /* [threads][state_queries][dim], if one has shorts */
    size_t *first; /* [max_tokens + 1] blocks of all heads of the tokens before */
    void *memory;  /* all of these */
    size_t memory_bytes;
    /* the batch in progress */
    const struct bn_batch_token *batch;
    size_t n;
    bool independent; /* no two tokens are of one sequence */
    bool split;
    bool page_ends; /* with blocks in the cache: a token is the last one of its page */
};

/* How a layer's keys and values are read, which follows from their types. */
struct bn_attention_ways {
    bool in_place; /* floats: keys and values are used where they lie */
    bool shorts;   /* and queries are short floats for that */
    bool codes;    /* blocks of codes: the same, but for a page of the tail */
};
static inline struct bn_attention_ways bn_attention_ways(const struct bn_kv *kv, uint32_t layer)
{
    const struct bn_kv_side *k = &kv->layers[layer].keys, *v = &kv->layers[layer].values;
    struct bn_attention_ways w = {.in_place = k->type == v->type && !k->code_bits};
    w.shorts = w.in_place && (k->type == BITNET_KV_FP8_E4M3 || k->type == BITNET_KV_FP8_E5M2);
    w.codes = k->code_bits != 0 && v->code_bits != 0 && kv->dim % BN_KV_GROUP == 0;
    return w;
}

/* A token's key or value in the batch. */
static inline float *bn_attention_row(const struct bn_attention *a,
                                      const struct bn_attention_layer *layer, size_t t,
                                      uint32_t kv_head, bool values)
{
    return (values ? layer->v : layer->k) + t * a->kv_row + kv_head * a->dim;
}

/* With blocks in the cache, at a batch's begin. */
void bn_attention_begin_blocks(struct bn_attention *a);
/* A key or value to its page; that of a block is rounded in the batch, where others see it. */
void bn_attention_store(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                        uint32_t kv_head, bool values);
/* With blocks in the cache, if token t is the last one of its page: the page's blocks. */
void bn_attention_store_page(struct bn_attention *a, const struct bn_attention_layer *layer,
                             size_t t, uint32_t kv_head, uint32_t worker);
/* With blocks in the cache: token t's rows to the tail, if it is in one of the last pages. */
void bn_attention_store_tail(struct bn_attention *a, const struct bn_attention_layer *layer,
                             size_t t, uint32_t kv_head, uint32_t worker);

/* Keys and values of a block for the kernels; what comes next is on its way meanwhile. */
struct bn_attention_view {
    const void *k, *v, *next_k, *next_v;
    bool codes; /* blocks of codes; else rows of floats */
};
/* One block of token t's keys and values, as far as it sees them. Next comes its next block, or the
 * first one of `next_head` if there is such a head. Holds until the worker's next call. */
struct bn_attention_view bn_attention_view(const struct bn_attention *a,
                                           const struct bn_attention_layer *layer, size_t t,
                                           uint32_t kv_head, uint32_t next_head, size_t block,
                                           uint32_t worker);

#endif
