/* SPDX-License-Identifier: Apache-2.0
 * Attention of a batch: rotation of queries and keys, storing of keys and values, and the weighted
 * sums. Workers share out sequences, KV heads and, where contexts are long, blocks of keys; the
 * result does not depend on how. */
#ifndef BN_MODEL_ATTENTION_ATTENTION_H
#define BN_MODEL_ATTENTION_ATTENTION_H

#include "base/threads/pool.h"
#include "model/attention/kv.h"
#include "model/model.h"

struct bn_attention;
struct bn_batch_token;

/* The model, pool and cache must outlive it. n_ctx: positions below it are possible; max_tokens in
 * a batch. */
bitnet_status bn_attention_open(struct bn_attention **out, const struct bn_model *m,
                                struct bn_pool *pool, struct bn_kv *kv, uint32_t n_ctx,
                                uint32_t max_tokens, struct bn_backing *how, bitnet_error *err);
void bn_attention_close(struct bn_attention *a);
void bn_attention_touch(struct bn_attention *a); /* its memory */
size_t bn_attention_bytes(const struct bn_attention *a);

/* A batch begins; it is borrowed until the next one. Called by one thread. */
void bn_attention_begin(struct bn_attention *a, const struct bn_batch_token *batch, size_t n);

/* One layer, rows of the batch's tokens: q, k and v of the heads that are here (bn_parts_heads), out
 * of all of them. q and k are rotated in place. Where the model has gates (attn_gate), they stand
 * behind the queries. */
struct bn_attention_layer {
    const struct bn_layer *weights;
    uint32_t index; /* in the cache */
    float *out;
    size_t out_stride;
    float *q;
    size_t q_stride;
    float *k, *v;
};

/* Inside a job, called by every worker after a barrier; `out` is there after the next one. */
void bn_attention_work(struct bn_attention *a, const struct bn_attention_layer *layer,
                       uint32_t worker);

#endif
