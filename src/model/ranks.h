/* SPDX-License-Identifier: Apache-2.0
 * A pass of the ranks that compute a model together: rank 0 says what is to be computed, the others read
 * it, and all have the same batch over their own parts of the weights and of the KV cache. */
#ifndef BN_MODEL_RANKS_H
#define BN_MODEL_RANKS_H

#include "model/forward.h"

struct bn_ranks;

/* The first word of what rank 0 sends (bn_dist_send); of others than PASS the door knows more. */
enum bn_ranks_word {
    BN_RANKS_END,
    BN_RANKS_OPEN_MODEL,
    BN_RANKS_CLOSE_MODEL,
    BN_RANKS_OPEN_ENGINE,
    BN_RANKS_CLOSE_ENGINE,
    BN_RANKS_PASS
};

/* What is computed by all. */
struct bn_ranks_pass {
    const struct bn_batch_token *batch;
    size_t n;
    float *logits;          /* NULL: nobody wants some */
    const uint32_t *behind; /* of bn_forward_draft; NULL: it is another pass */
    bool chained;
};

/* Where those that follow put what they read: tokens, and the sequences of the engine by their id. */
struct bn_ranks_desk {
    struct bn_batch_token *batch; /* [max_tokens] */
    size_t max_tokens;
    uint32_t *behind; /* the same; NULL: nothing is drafted here */
    struct bn_kv_seq *seqs;
    uint32_t n_seqs;
};

/* exchange_floats: the most that is gathered at a time. states: NULL without delta nets. */
bitnet_status bn_ranks_open(struct bn_ranks **out, const struct bn_model *m, struct bn_kv *kv,
                            struct bn_states *states, size_t exchange_floats, bitnet_error *err);
void bn_ranks_close(struct bn_ranks *r);
/* Columns of attention's output by ranks, or of a delta net's; NULL without ranks. */
const struct bn_cut *bn_ranks_mixed(const struct bn_ranks *r, bool delta);
/* Room for messages. */
struct bn_buf *bn_ranks_room(struct bn_ranks *r);
/* By rank 0, in front of a pass; by others it does nothing. */
void bn_ranks_announce(struct bn_ranks *r, const struct bn_ranks_pass *pass);
/* By others: what rank 0 has announced, in the desk's memory and in that of `r`. false: it cannot be
 * computed here. */
bool bn_ranks_read(struct bn_ranks *r, const struct bn_buf *message,
                   const struct bn_ranks_desk *desk, struct bn_ranks_pass *pass);

#endif
