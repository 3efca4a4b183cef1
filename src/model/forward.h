/* SPDX-License-Identifier: Apache-2.0
 * The forward pass over a ragged batch: tokens of any sequences at their own positions, no padding.
 * A token's result does not depend on what else is in the batch, on how a prompt was cut, or on the
 * number of threads. */
#ifndef BN_MODEL_FORWARD_H
#define BN_MODEL_FORWARD_H

#include "model/adapter/adapter.h"
#include "model/census.h"
#include "model/ffn/activity.h"
#include "model/ffn/ffn.h"
#include "model/head/head.h"
#include "model/attention/kv.h"
#include "model/model.h"
#include "model/savings.h"

/* One token to compute. Tokens of one sequence stand together, in order of position; a token sees
 * those of its own sequence that stand before it in the batch or were computed earlier. */
struct bn_batch_token {
    int32_t token;
    uint32_t pos;
    const struct bn_kv_seq *seq; /* its pages must reach up to pos */
    bool draft;                  /* it may be taken back; those of a sequence stand at its end */
    const struct bn_mix *mix;    /* its adapters; NULL: none */
    uint32_t save;       /* slot + 1 where the recurrent state behind it is put; 0: nowhere */
    struct bn_want want; /* of its logits */
};

struct bn_forward; /* scratch memory for batches up to a maximum, and the pool that works on them */

struct bn_forward_options {
    struct bn_kv *kv;
    struct bn_states *states; /* of delta nets; NULL: the model has none */
    uint32_t n_ctx;           /* positions below it are possible */
    uint32_t max_tokens;      /* of a batch */
    struct bn_head_options head;
    enum bn_ffn_mode ffn;
    const struct bn_savings *savings; /* the plan; NULL: none */
};

/* The model, pool, cache, states and plan must outlive it. */
bitnet_status bn_forward_open(struct bn_forward **out, const struct bn_model *m,
                              struct bn_pool *pool, const struct bn_forward_options *o,
                              struct bn_backing *how, bitnet_error *err);
void bn_forward_close(struct bn_forward *f);
size_t bn_forward_bytes(const struct bn_forward *f);
const struct bn_head *bn_forward_head(const struct bn_forward *f);
const struct bn_ffn *bn_forward_ffn(const struct bn_forward *f);
const struct bn_activity *bn_forward_activity(const struct bn_forward *f);

/* Room for adapters whose products take this width (struct bn_mix). Between passes. */
bitnet_status bn_forward_reserve_adapters(struct bn_forward *f, uint32_t width,
                                          struct bn_backing *how, bitnet_error *err);

/* From now on all inputs of matrices are counted; of the layers, not of those that draft. */
bitnet_status bn_forward_watch(struct bn_forward *f, bitnet_error *err);
const struct bn_census *bn_forward_census(const struct bn_forward *f); /* NULL: not watched */

/* Computes the batch; n <= max_tokens. logits: [tokens that want some][n_vocab], in batch order; may
 * be NULL if nobody does. Where only the best are wanted, the others may be -infinity
 * (bn_head_was_screened). Allocates nothing. */
void bn_forward_run(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits);
/* The same, of which nothing is counted. */
void bn_forward_try(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits);
/* What comes out of feed-forward channels, added up over tokens: [n_layer][n_ff] each. */
struct bn_channel_sums {
    double
        *energy; /* squares of what enters `down`; where that is int8, of codes that are not zero */
    uint64_t *active; /* tokens at which it is not zero */
};
/* Part of a pass, for those who take the stack apart: some of its layers, from given states on. */
struct bn_walk {
    const uint32_t *layers; /* [n_layers], walked in this order. The others pass x on as it is; what
                             * they keep of earlier tokens is neither read nor written */
    uint32_t n_layers;
    const float *from;      /* [n][n_embd] states before the first; NULL: the tokens' embeddings */
    float *to;              /* [n][n_embd] states behind the last; may be `from`, or NULL */
    const uint8_t *ffn_off; /* [n_layer][n_ff] not 0: this channel is taken as zero; NULL: none */
    const struct bn_channel_sums *ffn_sums; /* they are added to; NULL: not wanted */
};
/* bn_forward_try through these layers, and the head if somebody wants logits. Tokens see what these
 * layers have stored of their sequence: a text is one batch, from position 0 on. */
void bn_forward_walk(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                     const struct bn_walk *part, float *logits);
/* The layer that drafts (config.n_mtp), over tokens that follow others: rows[t] is the token of the
 * last pass behind which batch[t].token stands; batch[t].pos is that one's position, at which the
 * layer's keys and values are put. Its logits are of the token after that. chained: the last pass was
 * one of these, too. max_tokens as ever; counts nothing. */
void bn_forward_draft(struct bn_forward *f, const struct bn_batch_token *batch,
                      const uint32_t *rows, bool chained, size_t n, float *logits);
/* By the other ranks, where several compute the model (bitnet_ranks): what a message of rank 0 says is
 * computed. false: it is no batch of this engine. */
struct bn_ranks_desk;
bool bn_forward_follow(struct bn_forward *f, const struct bn_buf *message,
                       const struct bn_ranks_desk *desk);
/* Its memory is touched, and pages of the model's file that are read stay from now on. */
void bn_forward_warm(struct bn_forward *f);
/* Of token t of the last batch: its state behind the last layer and the final norm, out[n_embd]. */
void bn_forward_hidden(const struct bn_forward *f, size_t t, float *out);
/* Bytes of matrices that the last pass has read, layers, head and adapters. */
uint64_t bn_forward_read_bytes(const struct bn_forward *f);

#endif
