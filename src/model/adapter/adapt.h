/* SPDX-License-Identifier: Apache-2.0
 * What adapters add in a forward pass. Tokens are grouped by adapter, so that one that several of them
 * have is read once for all. The workers of a pool call it as they walk through the layers:
 *
 *   bn_adapt_input     before some projections that take the same input: u = A x of all of them
 *   ---- barrier
 *   bn_adapt_output    behind each part of a projection's rows: y += scale * B u
 *
 * and the head likewise, a row of logits at a time. u of a token is overwritten by the next input. */
#ifndef BN_MODEL_ADAPTER_ADAPT_H
#define BN_MODEL_ADAPTER_ADAPT_H

#include "base/threads/pool.h"
#include "model/adapter/adapter.h"

struct bn_adapt;
struct bn_batch_token;

/* Takes next to no memory before bn_adapt_reserve. Model and pool must outlive it. */
bitnet_status bn_adapt_open(struct bn_adapt **out, const struct bn_model *m, struct bn_pool *pool,
                            uint32_t max_tokens, bitnet_error *err);
void bn_adapt_close(struct bn_adapt *a);
size_t bn_adapt_bytes(const struct bn_adapt *a);
/* Room for requests whose products take this width. Between passes only. */
bitnet_status bn_adapt_reserve(struct bn_adapt *a, uint32_t width, struct bn_backing *how,
                               bitnet_error *err);

/* A pass begins, by one thread; the batch is borrowed until the next one. Has any token an adapter? */
bool bn_adapt_begin(struct bn_adapt *a, const struct bn_batch_token *batch, size_t n);
/* Bytes of adapters that the pass reads. */
uint64_t bn_adapt_read_bytes(const struct bn_adapt *a);

/* Adds what adapters of the embedding give to token t, x[n_embd]. */
void bn_adapt_embed(struct bn_adapt *a, float *x, size_t t, uint32_t worker);

/* This worker's share of u, of projections first to last of layer il. x: [tokens][stride] */
void bn_adapt_input(struct bn_adapt *a, uint32_t il, enum bn_part first, enum bn_part last,
                    const float *x, size_t stride, uint32_t worker);
/* Some rows of a projection's output, which are there: y[tokens][stride]. */
struct bn_adapt_rows {
    float *y;
    size_t stride;
    struct bn_range rows;
};
void bn_adapt_output(struct bn_adapt *a, uint32_t il, enum bn_part p,
                     const struct bn_adapt_rows *to, uint32_t worker);

/* Has token t an adapter of the head? */
bool bn_adapt_has_head(const struct bn_adapt *a, size_t t);
/* u of token t, whose hidden state behind the norm is x[n_embd]: by one worker. */
void bn_adapt_head_input(struct bn_adapt *a, size_t t, const float *x, uint32_t worker);
/* Rows of the matrix in n rows of logits, of tokens[i] each. */
struct bn_adapt_logits {
    float *logits; /* [n][n_vocab] */
    size_t n;
    const uint32_t *tokens; /* the first; the next are `token_stride` bytes on */
    size_t token_stride;
};
void bn_adapt_head_output(struct bn_adapt *a, const struct bn_adapt_logits *to,
                          struct bn_range rows, uint32_t worker);

#endif
