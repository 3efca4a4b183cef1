/* SPDX-License-Identifier: Apache-2.0 */
#include "model/delta/state.h"

#include <stdlib.h>

static uint32_t n_delta(const struct bn_config *c) { return bn_config_delta_before(c, c->n_layer); }

static size_t head_bytes(const struct bn_states *s, bool bf16)
{
    return bn_align_up(s->head_floats * (bf16 ? 2 : 4), 64);
}

/* Shapes of what is in a slot, without its layers. */
static void measure(struct bn_states *s, const struct bn_config *c,
                    const struct bn_states_types *types)
{
    const struct bn_delta_shape *d = &c->delta;
    *s = (struct bn_states){.shape = *d, .n_layer = n_delta(c)};
    if (!s->n_layer) return;
    s->conv_floats = bn_align_up((d->taps - 1) * bn_delta_conv_width(d), 16);
    s->head_floats = bn_align_up((size_t)d->k_dim * d->v_dim, 16);
    for (uint32_t i = 0; i < s->n_layer; i++)
        s->slot_bytes += s->conv_floats * sizeof(float) +
                         d->n_v_heads * head_bytes(s, types && bn_states_is_bf16(types, i));
    s->draft_floats = bn_delta_conv_width(d) + bn_delta_key_width(d) + bn_delta_value_width(d) +
                      2 * (size_t)d->n_v_heads;
}

static void lay_out(struct bn_states *s, const struct bn_states_types *types)
{
    size_t at = 0;
    for (uint32_t i = 0; i < s->n_layer; i++) {
        struct bn_states_layer *l = &s->layers[i];
        l->bf16 = types && bn_states_is_bf16(types, i);
        l->head_bytes = head_bytes(s, l->bf16);
        l->at = at;
        at += s->conv_floats * sizeof(float) + s->shape.n_v_heads * l->head_bytes;
    }
}

uint64_t bn_state_slot_bytes(const struct bn_config *c, const struct bn_states_types *types)
{
    struct bn_states s;
    measure(&s, c, types);
    return s.slot_bytes;
}

static uint64_t draft_bytes(const struct bn_states *s, uint32_t max_drafts)
{
    return 2 * (uint64_t)s->n_layer * max_drafts * s->draft_floats * sizeof(float);
}

uint64_t bn_state_draft_bytes(const struct bn_config *c, uint32_t max_drafts)
{
    struct bn_states s;
    measure(&s, c, NULL);
    return draft_bytes(&s, max_drafts);
}

bitnet_status bn_states_open(struct bn_states *s, const struct bn_config *c,
                             const struct bn_states_types *types, uint32_t n_slots,
                             uint32_t max_drafts, struct bn_backing *how, bitnet_error *err)
{
    uint64_t bytes;
    measure(s, c, types);
    s->max_drafts = max_drafts;
    if (!s->n_layer) return BITNET_OK;
    s->layers = bn_calloc_now(s->n_layer, sizeof *s->layers);
    if (!s->layers) return bn_fail_nomem(err, s->n_layer * sizeof *s->layers, "recurrent states");
    lay_out(s, types);
    if (!bn_mul_u64(&bytes, n_slots, s->slot_bytes) || bytes > SIZE_MAX) bytes = SIZE_MAX;
    s->bytes = (size_t)bytes;
    bitnet_status st = bn_block_take((void **)&s->data, &s->bytes, how, "recurrent states", err);
    if (st == BITNET_E_NOMEM)
        return bn_fail(err, st,
                       "out of memory: %llu bytes for %u recurrent states of %zu; fewer sequences "
                       "and a smaller state cache need less",
                       (unsigned long long)bytes, n_slots, s->slot_bytes);
    if (st == BITNET_OK) s->n_slots = n_slots;
    return st;
}

bool bn_states_lend(struct bn_states *s)
{
    s->lent = bn_block_alloc(s->slot_bytes);
    return s->lent != NULL;
}

void bn_states_take_back(struct bn_states *s)
{
    bn_block_free(s->lent, s->slot_bytes);
    s->lent = NULL;
}

void bn_states_close(struct bn_states *s)
{
    bn_states_take_back(s);
    bn_block_free(s->data, s->bytes);
    free(s->layers);
    *s = (struct bn_states){0};
}

bool bn_state_open(struct bn_state *t, const struct bn_states *s, uint32_t slot)
{
    *t = (struct bn_state){.slot = slot};
    if (!s->max_drafts) return true;
    t->drafts = bn_calloc(1, (size_t)draft_bytes(s, s->max_drafts));
    return t->drafts != NULL;
}

void bn_state_close(struct bn_state *t)
{
    free(t->drafts);
    *t = (struct bn_state){0};
}

void bn_state_truncate(struct bn_state *t, uint32_t n)
{
    if (n == 0) bn_state_reset(t);
    else t->n_accepted = (uint32_t)bn_min_size(n - t->n_tokens, t->n_drafts);
}

void bn_states_copy(struct bn_states *s, uint32_t from, uint32_t to)
{
    uint32_t pair[2] = {from, to};
    memcpy(bn_state_slot(s, to), bn_state_slot(s, from), s->slot_bytes);
    if (s->copies) bn_buf_append(s->copies, pair, sizeof pair);
}

void bn_state_restore(struct bn_states *s, struct bn_state *t, uint32_t slot, uint32_t n)
{
    bn_states_copy(s, slot, t->slot);
    *t = (struct bn_state){.slot = t->slot, .n_tokens = n, .drafts = t->drafts, .turn = t->turn};
}
