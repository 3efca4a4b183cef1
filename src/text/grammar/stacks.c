/* SPDX-License-Identifier: Apache-2.0
 * The stacks of a text in a grammar. Frames are kept once each (a stack is known by its top frame's
 * number), so a set of stacks is a short list of numbers and duplicates are seen at once.
 *
 * No dead ends: a node knows how many frames finishing its rule needs at least (`need`), and a stack
 * that could not be finished within BN_GRAMMAR_MAX_DEPTH is dropped when it comes up, not when it
 * gets there. */
#include "text/grammar/grammar_impl.h"

#include "base/rng.h"

enum { FRAME_SLOTS = 2 * BN_GRAMMAR_MAX_FRAMES, SEEN_SLOTS = 2 * BN_GRAMMAR_MAX_STACKS };

struct bn_seen {
    bn_config config;
    uint32_t round; /* when it was seen: older ones do not count */
};

static void lay_out(struct bn_stacks *s, struct bn_plan *p)
{
    s->frames = bn_plan_piece(p, BN_GRAMMAR_MAX_FRAMES, sizeof *s->frames);
    s->depth = bn_plan_piece(p, BN_GRAMMAR_MAX_FRAMES, sizeof *s->depth);
    s->cost = bn_plan_piece(p, BN_GRAMMAR_MAX_FRAMES, sizeof *s->cost);
    s->slots = bn_plan_piece(p, FRAME_SLOTS, sizeof *s->slots);
    s->open = bn_plan_piece(p, BN_GRAMMAR_MAX_STACKS, sizeof *s->open);
    s->seen = bn_plan_piece(p, SEEN_SLOTS, sizeof *s->seen);
}

bool bn_stacks_init(struct bn_stacks *s, const struct bn_grammar *g)
{
    struct bn_plan p = {0};
    *s = (struct bn_stacks){.g = g, .n_frames = 1};
    lay_out(s, &p);
    s->block_bytes = p.used;
    s->block = bn_block_alloc(p.used);
    p = (struct bn_plan){.base = s->block};
    lay_out(s, &p);
    return s->block;
}

void bn_stacks_free(struct bn_stacks *s) { bn_block_free(s->block, s->block_bytes); }

/* ------------------------------------------------------------------ frames */

/* The slot that holds a frame with this content, or the free one where it belongs. */
static uint32_t *frame_slot(struct bn_stacks *s, uint32_t node, uint32_t below)
{
    uint64_t at = bn_mix64((uint64_t)below << 32 | node);
    for (;; at++) {
        uint32_t *slot = &s->slots[at % FRAME_SLOTS];
        if (!*slot || (s->frames[*slot].node == node && s->frames[*slot].below == below))
            return slot;
    }
}

/* The frame with this content, found or made; 0: no room. */
static uint32_t push_frame(struct bn_stacks *s, uint32_t node, uint32_t below)
{
    uint32_t *slot = frame_slot(s, node, below);
    if (*slot) return *slot;
    if (s->n_frames == BN_GRAMMAR_MAX_FRAMES) {
        s->overflow = true;
        return 0;
    }
    s->frames[s->n_frames] = (struct bn_frame){node, below};
    s->depth[s->n_frames] = (uint16_t)(s->depth[below] + 1);
    s->cost[s->n_frames] = bn_stacks_cost(s, bn_config_make(node, below));
    return *slot = s->n_frames++;
}

void bn_stacks_truncate(struct bn_stacks *s, uint32_t n_frames)
{
    /* newest first: then no search ever passed over the slot that becomes free */
    while (s->n_frames > n_frames) {
        const struct bn_frame *f = &s->frames[--s->n_frames];
        *frame_slot(s, f->node, f->below) = 0;
    }
}

void bn_stacks_collect(struct bn_stacks *s, bn_config *set, uint32_t n)
{
    enum { KEPT = 1 << 15 }; /* a bit of depth that no depth has */
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t f = bn_config_frame(set[i]); f && !(s->depth[f] & KEPT);
             f = s->frames[f].below)
            s->depth[f] |= KEPT;
    uint32_t before = s->n_frames, kept = 1;
    bn_stacks_truncate(s, 1);
    uint32_t *renumbered = s->slots;        /* all free now, so it can serve for a moment */
    for (uint32_t f = 1; f < before; f++) { /* a frame comes after the one below it */
        if (!(s->depth[f] & KEPT)) continue;
        s->frames[kept] = (struct bn_frame){s->frames[f].node, renumbered[s->frames[f].below]};
        s->depth[kept] = s->depth[f] & (KEPT - 1);
        s->cost[kept] = s->cost[f];
        renumbered[f] = kept++;
    }
    for (uint32_t i = 0; i < n; i++)
        set[i] = bn_config_make(bn_config_node(set[i]), renumbered[bn_config_frame(set[i])]);
    memset(s->slots, 0, before * sizeof *s->slots);
    s->n_frames = kept;
    for (uint32_t f = 1; f < kept; f++) *frame_slot(s, s->frames[f].node, s->frames[f].below) = f;
}

/* ------------------------------------------------------------------ steps */

/* Whether the rule can be finished from this node on this stack. */
static bool fits(struct bn_stacks *s, uint32_t node, uint32_t frame)
{
    uint32_t height = s->depth[frame] + (uint32_t)s->g->nodes[node].need;
    if (height > s->height) s->height = height;
    return height <= BN_GRAMMAR_MAX_DEPTH;
}

static void reach(struct bn_stacks *s, uint32_t node, uint32_t frame)
{
    if (!fits(s, node, frame)) return;
    bn_config c = bn_config_make(node, frame);
    uint64_t at = bn_mix64(c);
    for (;; at++) {
        struct bn_seen *slot = &s->seen[at % SEEN_SLOTS];
        if (slot->round != s->round) {
            if (s->n_open == BN_GRAMMAR_MAX_STACKS) {
                s->overflow = true;
                return;
            }
            *slot = (struct bn_seen){c, s->round};
            s->open[s->n_open++] = c;
            return;
        }
        if (slot->config == c) return;
    }
}

static void call(struct bn_stacks *s, const struct bn_node *n, uint32_t frame)
{
    if (n->b == 0) { /* nothing is left to do after it: no frame, so lists by recursion stay flat */
        reach(s, n->a, frame);
        return;
    }
    uint32_t top = push_frame(s, n->b, frame);
    if (top) reach(s, n->a, top);
}

void bn_stacks_close(struct bn_stacks *s, const bn_config *set, uint32_t n)
{
    if (++s->round == 0) {
        memset(s->seen, 0, SEEN_SLOTS * sizeof *s->seen);
        s->round = 1;
    }
    s->n_open = 0;
    s->complete = false;
    for (uint32_t i = 0; i < n; i++) reach(s, bn_config_node(set[i]), bn_config_frame(set[i]));
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct bn_node *node = &s->g->nodes[bn_config_node(s->open[i])];
        uint32_t frame = bn_config_frame(s->open[i]);
        switch ((enum bn_node_kind)node->kind) {
        case BN_NODE_BYTES: break;
        case BN_NODE_CALL: call(s, node, frame); break;
        case BN_NODE_SPLIT:
            reach(s, node->a, frame);
            reach(s, node->b, frame);
            break;
        case BN_NODE_RETURN:
            if (frame) reach(s, s->frames[frame].node, s->frames[frame].below);
            else s->complete = true;
            break;
        }
    }
    if (s->n_open > s->width) s->width = s->n_open;
}

uint32_t bn_stacks_cost(const struct bn_stacks *s, bn_config c)
{
    struct bn_cost cost = s->g->nodes[bn_config_node(c)].cost;
    uint32_t frame = bn_config_frame(c);
    if (s->depth[frame] + cost.frames > BN_GRAMMAR_MAX_DEPTH) return BN_NO_COST;
    return bn_cost_sum(cost.tokens, s->cost[frame]);
}

bn_config bn_stacks_cheapest(struct bn_stacks *s, bn_config c)
{
    const struct bn_node *nodes = s->g->nodes;
    uint32_t node = bn_config_node(c), frame = bn_config_frame(c);
    for (;;) {
        const struct bn_node *n = &nodes[node];
        if (n->kind == BN_NODE_BYTES || (n->kind == BN_NODE_RETURN && !frame))
            return bn_config_make(node, frame);
        if (n->kind == BN_NODE_RETURN) {
            node = s->frames[frame].node;
            frame = s->frames[frame].below;
        } else if (n->kind == BN_NODE_CALL) {
            if (n->b) frame = push_frame(s, n->b, frame);
            node = n->b && !frame ? 0 : n->a; /* no room: as if the text ended */
        } else {
            node = bn_cheaper(nodes, n);
        }
    }
}

/* Shell's sort: short lists, and qsort may allocate. */
static void sort(bn_config *v, uint32_t n)
{
    for (uint32_t gap = n / 2; gap > 0; gap /= 2)
        for (uint32_t i = gap; i < n; i++) {
            bn_config c = v[i];
            uint32_t k = i;
            for (; k >= gap && v[k - gap] > c; k -= gap) v[k] = v[k - gap];
            v[k] = c;
        }
}

/* Behind returns and last calls, so that equal places look equal. */
static bn_config settled(const struct bn_stacks *s, uint32_t node, uint32_t frame)
{
    for (;;) {
        const struct bn_node *n = &s->g->nodes[node];
        if (n->kind == BN_NODE_CALL && n->b == 0) {
            node = n->a;
        } else if (n->kind == BN_NODE_RETURN && frame) {
            node = s->frames[frame].node;
            frame = s->frames[frame].below;
        } else {
            return bn_config_make(node, frame);
        }
    }
}

uint32_t bn_stacks_step(struct bn_stacks *s, uint8_t byte, bn_config *out)
{
    uint32_t n = 0, distinct = 0;
    for (uint32_t i = 0; i < s->n_open; i++) {
        const struct bn_node *node = &s->g->nodes[bn_config_node(s->open[i])];
        uint32_t frame = bn_config_frame(s->open[i]);
        if (node->kind == BN_NODE_BYTES && bn_byte_set_has(&s->g->sets[node->a], byte))
            out[n++] = settled(s, node->b, frame);
    }
    if (s->overflow) return 0;
    sort(out, n);
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || out[i] != out[distinct - 1]) out[distinct++] = out[i];
    return distinct;
}
