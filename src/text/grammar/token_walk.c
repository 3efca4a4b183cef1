/* SPDX-License-Identifier: Apache-2.0
 * A set of stacks over the token tree. A set becomes a number the first time it is met; when the
 * walk first comes through it, what every class of bytes makes of it is written down. So the walk
 * over a hundred thousand tokens costs a look-up a node, and subtrees that begin with a byte that
 * does not fit are passed over. */
#include "text/grammar/grammar_impl.h"

#include "base/map.h"

enum { DEAD = 0, FIRST_STATE = 1, STATE_SLOTS = 2 * BN_WALK_MAX_STATES };

struct bn_walk_state {
    uint32_t first, n; /* its stacks: configs[first] .. */
    bool known;        /* its steps are written down, and: */
    bool complete;     /* the text may end here */
};

static void lay_out(struct bn_walk *w, struct bn_plan *p)
{
    const struct bn_grammar *g = w->stacks->g;
    w->states = bn_plan_piece(p, w->max_states, sizeof *w->states);
    w->steps = bn_plan_piece(p, (size_t)w->max_states * g->n_classes, sizeof *w->steps);
    w->configs = bn_plan_piece(p, BN_WALK_MAX_CONFIGS, sizeof *w->configs);
    w->slots = bn_plan_piece(p, STATE_SLOTS, sizeof *w->slots);
    w->path = bn_plan_piece(p, (size_t)g->tree->max_depth + 1, sizeof *w->path);
    w->scratch = bn_plan_piece(p, BN_GRAMMAR_MAX_STACKS, sizeof *w->scratch);
}

bool bn_walk_init(struct bn_walk *w, struct bn_stacks *s)
{
    const struct bn_grammar *g = s->g;
    struct bn_plan p = {0};
    uint32_t states = BN_WALK_MAX_STEPS / g->n_classes;
    *w = (struct bn_walk){.stacks = s, .tree = g->tree, .n_states = FIRST_STATE};
    w->max_states = states < BN_WALK_MAX_STATES ? states : BN_WALK_MAX_STATES;
    lay_out(w, &p);
    w->block_bytes = p.used;
    w->block = bn_block_alloc(p.used);
    p = (struct bn_plan){.base = w->block};
    lay_out(w, &p);
    return w->block;
}

void bn_walk_free(struct bn_walk *w) { bn_block_free(w->block, w->block_bytes); }

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
    uint16_t id = (uint16_t)w->n_states++;
    w->states[id] = (struct bn_walk_state){.first = w->n_configs, .n = n};
    memcpy(w->configs + w->n_configs, set, n * sizeof *set);
    w->n_configs += n;
    return *slot = id;
}

/* Writes down what follows a set. */
static void learn(struct bn_walk *w, uint16_t id)
{
    const struct bn_grammar *g = w->stacks->g;
    struct bn_walk_state *s = &w->states[id];
    uint16_t *steps = w->steps + (size_t)id * g->n_classes;
    bn_stacks_close(w->stacks, w->configs + s->first, s->n);
    s->complete = w->stacks->complete;
    s->known = true;
    for (uint32_t c = 0; c < g->n_classes; c++)
        steps[c] = state_of(w, w->scratch, bn_stacks_step(w->stacks, g->byte_of[c], w->scratch));
}

/* Remembers a node where the text may end although tokens go on. */
static void note_exit(struct bn_walk *w, uint16_t state, uint32_t node, struct bn_exits *exits)
{
    if (!exits || !w->states[state].complete || w->tree->end[node] == node + 1) return;
    if (exits->n == BN_GRAMMAR_MAX_EXITS) w->stacks->overflow = true;
    else exits->nodes[exits->n++] = node;
}

void bn_walk_tokens(struct bn_walk *w, const bn_config *set, uint32_t n, uint32_t from,
                    uint32_t longer, uint64_t *bits, struct bn_exits *exits)
{
    const struct bn_token_tree *t = w->tree;
    const struct bn_grammar *g = w->stacks->g;
    uint16_t state = state_of(w, set, n);
    if (state == DEAD) return;
    if (!w->states[state].known) learn(w, state);
    w->path[t->depth[from]] = state;
    note_exit(w, state, from, exits);
    for (uint32_t i = from + 1; i < t->end[from] && !w->stacks->overflow;) {
        state = w->steps[(size_t)w->path[t->depth[i] - 1] * g->n_classes + g->class_of[t->byte[i]]];
        if (state == DEAD || t->deepest[i] <= longer) {
            i = t->end[i];
            continue;
        }
        if (!w->states[state].known) learn(w, state);
        w->path[t->depth[i]] = state;
        if (t->depth[i] > longer)
            for (uint32_t k = t->first[i]; k < t->first[i + 1]; k++)
                bits[t->ids[k] / 64] |= 1ull << t->ids[k] % 64;
        note_exit(w, state, i, exits);
        i++;
    }
}
