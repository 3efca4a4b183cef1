/* SPDX-License-Identifier: Apache-2.0
 * Gated delta nets of a batch: convolution, norms of queries and keys, gates, the recurrence head by
 * head, and the gated norm behind it. The states of the batch's sequences are changed in place; of
 * drafted tokens what they would have changed is kept (state.h). Workers share out channels, then
 * sequences and heads; the result does not depend on how. */
#ifndef BN_MODEL_DELTA_DELTA_H
#define BN_MODEL_DELTA_DELTA_H

#include "base/threads/pool.h"
#include "model/model.h"
#include "model/delta/state.h"

struct bn_delta;
struct bn_batch_token;

/* Model, pool and states must outlive it. */
bitnet_status bn_delta_open(struct bn_delta **out, const struct bn_model *m, struct bn_pool *pool,
                            const struct bn_states *states, uint32_t max_tokens,
                            struct bn_backing *how, bitnet_error *err);
void bn_delta_close(struct bn_delta *d);
void bn_delta_touch(struct bn_delta *d); /* its memory */
size_t bn_delta_bytes(const struct bn_delta *d);

/* Around a batch, which is borrowed in between; by one thread. `end` moves the states on. */
void bn_delta_begin(struct bn_delta *d, const struct bn_batch_token *batch, size_t n);
void bn_delta_end(struct bn_delta *d);

/* One layer, rows of the batch's tokens: of the heads that are here (bn_parts_delta), `out` of all of
 * them. qkv is changed. */
struct bn_delta_layer {
    const struct bn_layer *weights;
    uint32_t index; /* among layers of this kind */
    float *out;     /* [n][out_stride], value width used */
    size_t out_stride;
    float *qkv;         /* [n][conv width] */
    const float *z;     /* [n][value width] */
    const float *alpha; /* [n][n_v_heads] */
    const float *beta;
};

/* Inside a job, called by every worker after a barrier; `out` is there after the next one. */
void bn_delta_work(struct bn_delta *d, const struct bn_delta_layer *layer, uint32_t worker);

#endif
