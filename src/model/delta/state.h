/* SPDX-License-Identifier: Apache-2.0
 *
 * Recurrent states: what the delta nets of a sequence know of its text. One has a fixed size,
 * whatever the text's length: for every layer the last inputs of the convolution and a matrix for
 * every value head. All states are slots of one block of memory, reserved at open: one for each
 * sequence, and further ones for snapshots, which are states that were put aside.
 *
 * Drafts. A state cannot be taken back token by token, so a step does not put drafted tokens into it:
 * they run on a copy of one head at a time, and what they would have put in (inputs of the
 * convolution, k, v, decay and beta) is kept. Those that are accepted are put in when the head is
 * passed through next, with the same operations in the same order.
 *
 * Heads are f32, or bf16 on demand, layer by layer: then a head is rounded behind every token, so that
 * it makes no difference how a text was cut. Inputs of the convolution are f32 always.
 *
 * Belongs to the thread that drives the engine; workers write heads and channels that no other works
 * on. */
#ifndef BN_MODEL_DELTA_STATE_H
#define BN_MODEL_DELTA_STATE_H

#include "base/buf.h"
#include "base/os/mem.h"
#include "model/config/config.h"

/* Which layers keep their heads as bf16, a bit each, counted among those with a delta net. */
struct bn_states_types {
    uint32_t bf16[BN_MAX_LAYERS / 32];
};
static inline bool bn_states_is_bf16(const struct bn_states_types *t, uint32_t layer)
{
    return t->bf16[layer / 32] >> layer % 32 & 1;
}
static inline void bn_states_set_bf16(struct bn_states_types *t, uint32_t layer)
{
    t->bf16[layer / 32] |= UINT32_C(1) << layer % 32;
}

/* A layer's part of a slot: inputs of the convolution, then heads. */
struct bn_states_layer {
    size_t at, head_bytes;
    bool bf16;
};

struct bn_states {
    struct bn_delta_shape shape;
    uint32_t n_layer;               /* with a delta net */
    size_t conv_floats;             /* [taps - 1][conv width] of a layer, the oldest first */
    size_t head_floats;             /* [k_dim][v_dim] */
    struct bn_states_layer *layers; /* [n_layer] */
    size_t slot_bytes;              /* of all layers */
    size_t draft_floats;            /* of a draft in a layer: conv inputs, k, v, decay, beta */
    uint32_t n_slots, max_drafts;
    uint8_t *data; /* [n_slots][slot_bytes] */
    size_t bytes;
    uint8_t *lent; /* slot n_slots, which is there for a time only; or NULL */
    /* slots that were copied since it was emptied, from and to, as uint32_t; NULL: nobody asks */
    struct bn_buf *copies;
};

/* A sequence's state. It holds the first n_tokens tokens; of the drafts behind them n_accepted are
 * known to be accepted. */
struct bn_state {
    uint32_t slot;
    uint32_t n_tokens, n_drafts, n_accepted;
    uint32_t turn; /* which half of `drafts` holds the last ones */
    float *drafts; /* [2][n_layer][max_drafts][draft_floats], or NULL */
};

/* A model without delta nets: all is zero, and nothing is taken. types: NULL for f32; max_drafts of one
 * step. */
bitnet_status bn_states_open(struct bn_states *s, const struct bn_config *c,
                             const struct bn_states_types *types, uint32_t n_slots,
                             uint32_t max_drafts, struct bn_backing *how, bitnet_error *err);
void bn_states_close(struct bn_states *s);
/* Of one state, for plans: bytes of a slot and of the drafts beside it. */
uint64_t bn_state_slot_bytes(const struct bn_config *c, const struct bn_states_types *types);
uint64_t bn_state_draft_bytes(const struct bn_config *c, uint32_t max_drafts);

/* One more slot, n_slots, until it is taken back. false: out of memory. */
bool bn_states_lend(struct bn_states *s);
void bn_states_take_back(struct bn_states *s);
void bn_states_copy(struct bn_states *s, uint32_t from, uint32_t to);

bool bn_state_open(struct bn_state *t, const struct bn_states *s,
                   uint32_t slot); /* false: out of memory */
void bn_state_close(struct bn_state *t);

/* Back to the beginning of a text. */
static inline void bn_state_reset(struct bn_state *t)
{
    t->n_tokens = t->n_drafts = t->n_accepted = 0;
}
/* The text has n tokens: what was drafted behind them was rejected. n is at least n_tokens, or 0. */
void bn_state_truncate(struct bn_state *t, uint32_t n);
/* Takes over a snapshot of n tokens. */
void bn_state_restore(struct bn_states *s, struct bn_state *t, uint32_t slot, uint32_t n);

static inline uint8_t *bn_state_slot(const struct bn_states *s, uint32_t slot)
{
    return slot < s->n_slots ? s->data + slot * s->slot_bytes : s->lent;
}
/* The last inputs of the convolution, [taps - 1][conv width]; a head, [k_dim][v_dim]. */
static inline float *bn_state_conv(const struct bn_states *s, uint32_t slot, uint32_t layer)
{
    return (float *)(bn_state_slot(s, slot) + s->layers[layer].at);
}
static inline void *bn_state_head(const struct bn_states *s, uint32_t slot, uint32_t layer,
                                  uint32_t head)
{
    const struct bn_states_layer *l = &s->layers[layer];
    return bn_state_slot(s, slot) + l->at + s->conv_floats * sizeof(float) + head * l->head_bytes;
}

/* What draft i of the last step (now: of the step in progress) would put into a layer. */
static inline float *bn_state_draft(const struct bn_states *s, const struct bn_state *t, bool now,
                                    uint32_t layer, uint32_t i)
{
    size_t half = (t->turn + (now ? 1 : 0)) % 2;
    return t->drafts + ((half * s->n_layer + layer) * s->max_drafts + i) * s->draft_floats;
}
/* Where k, v and the gates stand in it; inputs of the convolution come first. */
static inline size_t bn_state_draft_k(const struct bn_states *s)
{
    return bn_delta_conv_width(&s->shape);
}
static inline size_t bn_state_draft_v(const struct bn_states *s)
{
    return bn_state_draft_k(s) + bn_delta_key_width(&s->shape);
}
static inline size_t bn_state_draft_decay(const struct bn_states *s)
{
    return bn_state_draft_v(s) + bn_delta_value_width(&s->shape);
}
static inline size_t bn_state_draft_beta(const struct bn_states *s)
{
    return bn_state_draft_decay(s) + s->shape.n_v_heads;
}

#endif
