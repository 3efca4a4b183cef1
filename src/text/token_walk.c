/* SPDX-License-Identifier: Apache-2.0
 * A set of stacks over the token tree. A set becomes a number the first time it is met; what a
 * class of bytes makes of it is computed when it is first asked for and looked up from then on. So
 * the walk over a hundred thousand tokens costs a look-up a node, and subtrees that begin with a
 * byte that does not fit are passed over. */
#include "text/grammar_impl.h"

#include "base/map.h"
#include <stdlib.h>

enum { UNKNOWN = 0, DEAD = 1, FIRST_STATE = 2, STATE_SLOTS = 2 * BN_WALK_MAX_STATES };

struct bn_walk_state {
    uint32_t first, n; /* its stacks: configs[first] .. */
    bool complete;     /* the text may end here */
};

bool bn_walk_init(struct bn_walk *w, struct bn_stacks *s)
{
    const struct bn_grammar *g = s->g;
    uint32_t states = BN_WALK_MAX_STEPS / g->n_classes;
    *w = (struct bn_walk){.stacks = s, .tree = g->tree, .n_states = FIRST_STATE};
    w->max_states = states < BN_WALK_MAX_STATES ? states : BN_WALK_MAX_STATES;
    w->states = bn_calloc(w->max_states, sizeof *w->states);
    w->steps = bn_calloc((size_t)w->max_states * g->n_classes, sizeof *w->steps);
    w->configs = bn_calloc(BN_WALK_MAX_CONFIGS, sizeof *w->configs);
    w->slots = bn_calloc(STATE_SLOTS, sizeof *w->slots);
    w->path = bn_calloc((size_t)g->tree->max_depth + 1, sizeof *w->path);
    w->scratch = bn_calloc(BN_GRAMMAR_MAX_STACKS, sizeof *w->scratch);
    return w->states && w->steps && w->configs && w->slots && w->path && w->scratch;
}

void bn_walk_free(struct bn_walk *w)
{
    free(w->states);
    free(w->steps);
    free(w->configs);
    free(w->slots);
    free(w->path);
    free(w->scratch);
}

void bn_walk_forget(struct bn_walk *w)
{
    w->n_states = FIRST_STATE;
    w->n_configs = 0;
    memset(w->slots, 0, STATE_SLOTS * sizeof *w->slots);
}

/* The number of a set, sorted; DEAD if it is empty or there is no room. */
static uint16_t state_of(struct bn_walk *w, const bn_config *set, uint32_t n)
{
    if (n == 0) return DEAD;
    uint64_t at = bn_hash(set, n * sizeof *set);
    uint16_t *slot;
    for (; *(slot = &w->slots[at % STATE_SLOTS]); at++) {
        const struct bn_walk_state *s = &w->states[*slot];
        if (s->n == n && memcmp(w->configs + s->first, set, n * sizeof *set) == 0) return *slot;
    }
    if (w->n_states == w->max_states || n > BN_WALK_MAX_CONFIGS - w->n_configs) {
        w->stacks->overflow = true;
        return DEAD;
    }
    bn_stacks_close(w->stacks, set, n);
    uint16_t id = (uint16_t)w->n_states++;
    w->states[id] = (struct bn_walk_state){w->n_configs, n, w->stacks->complete};
    memcpy(w->configs + w->n_configs, set, n * sizeof *set);
    w->n_configs += n;
    uint32_t n_classes = w->stacks->g->n_classes;
    memset(w->steps + (size_t)id * n_classes, 0, n_classes * sizeof *w->steps);
    return *slot = id;
}

static uint16_t step(struct bn_walk *w, uint16_t from, uint8_t byte)
{
    const struct bn_grammar *g = w->stacks->g;
    uint16_t *known = &w->steps[(size_t)from * g->n_classes + g->class_of[byte]];
    if (*known == UNKNOWN) {
        const struct bn_walk_state *s = &w->states[from];
        bn_stacks_close(w->stacks, w->configs + s->first, s->n);
        *known = state_of(w, w->scratch, bn_stacks_step(w->stacks, byte, w->scratch));
    }
    return *known;
}

void bn_walk_tokens(struct bn_walk *w, const bn_config *set, uint32_t n, uint32_t from,
                    uint64_t *bits, uint32_t *exits, uint32_t *n_exits)
{
    const struct bn_token_tree *t = w->tree;
    w->path[t->depth[from]] = state_of(w, set, n);
    if (w->path[t->depth[from]] == DEAD) return;
    for (uint32_t i = from + 1; i < t->end[from] && !w->stacks->overflow;) {
        uint16_t state = step(w, w->path[t->depth[i] - 1], t->byte[i]);
        if (state == DEAD) {
            i = t->end[i];
            continue;
        }
        w->path[t->depth[i]] = state;
        for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++)
            bits[t->ids[k] / 64] |= 1ull << t->ids[k] % 64;
        if (exits && w->states[state].complete && t->end[i] > i + 1) {
            if (*n_exits == BN_GRAMMAR_MAX_EXITS) w->stacks->overflow = true;
            else exits[(*n_exits)++] = i;
        }
        i++;
    }
}
