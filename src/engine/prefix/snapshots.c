/* SPDX-License-Identifier: Apache-2.0
 *
 * A slot is free, out (somebody puts a state into it), or kept, with its node. Every kept one knows the
 * nearest one above it on the way to the root.
 *
 * Which one goes when none is free. A text that would have begun with it begins with the one above and
 * computes the tokens in between, its gap. So a snapshot is worth its gap, and the less the longer
 * nobody has used it. GreedyDual weighs the two without a clock: there is a level, which only rises; a
 * snapshot's rank is the level at its last use plus its gap; the least rank goes, and becomes the
 * level. One that is used again and again stays; one with a large gap outlives many small ones, but not
 * for ever; and of a row of neighbours every other one goes first, since a gap grows when the one above
 * goes. Equal ranks: the one that was used less recently.
 *
 * Slots are few (a state takes megabytes, and copying it more time than looking at all of them), so
 * everything is a loop over an array.
 */
#include "engine/prefix/snapshots.h"

#include "base/os/mem.h"
#include <stdlib.h>

enum slot_state { FREE = 0, OUT, KEPT };

struct slot {
    enum slot_state state;
    uint32_t node, depth; /* tokens up to the node's end */
    uint32_t above;       /* the nearest one kept on the way to the root, or BN_NO_SLOT */
    uint32_t pins;
    uint64_t level; /* at its last use */
    uint64_t used;  /* when that was: uses are counted */
    uint64_t stamp; /* of this snapshot; no other has the same */
};

struct bn_snapshots {
    struct bn_snapshot_tree tree;
    struct slot *slots; /* [stats.slots] */
    uint32_t *at;       /* [tree.n_nodes] slot + 1 of a node; 0: none */
    uint64_t level, n_uses, n_stamps;
    struct bn_snapshots_stats stats;
};

bitnet_status bn_snapshots_open(struct bn_snapshots **out, uint32_t n_slots,
                                const struct bn_snapshot_tree *tree, bitnet_error *err)
{
    *out = NULL;
    struct bn_snapshots *s = bn_calloc(1, sizeof *s);
    struct slot *slots = bn_calloc_now(n_slots, sizeof *slots);
    uint32_t *at = bn_calloc_now(tree->n_nodes, sizeof *at);
    if (!s || !slots || !at) {
        free(s);
        free(slots);
        free(at);
        return bn_fail_nomem(err, n_slots * sizeof *slots, "snapshots of states");
    }
    *s = (struct bn_snapshots){.tree = *tree, .slots = slots, .at = at, .stats.slots = n_slots};
    *out = s;
    return BITNET_OK;
}

void bn_snapshots_close(struct bn_snapshots *s)
{
    if (!s) return;
    free(s->slots);
    free(s->at);
    free(s);
}

/* ------------------------------------------------------------------ among each other */

static uint32_t parent(const struct bn_snapshots *s, uint32_t node)
{
    return s->tree.parent(s->tree.user, node);
}

static uint32_t nearest_above(const struct bn_snapshots *s, uint32_t node)
{
    for (uint32_t i = parent(s, node); i != s->tree.n_nodes; i = parent(s, i))
        if (s->at[i]) return s->at[i] - 1;
    return BN_NO_SLOT;
}

static bool is_above(const struct bn_snapshots *s, uint32_t above, uint32_t node)
{
    while (node != s->tree.n_nodes && node != above) node = parent(s, node);
    return node == above;
}

static uint32_t gap(const struct bn_snapshots *s, const struct slot *x)
{
    return x->depth - (x->above == BN_NO_SLOT ? 0 : s->slots[x->above].depth);
}

/* It comes between those below it and the one above them. */
static void link_in(struct bn_snapshots *s, uint32_t slot)
{
    struct slot *x = &s->slots[slot];
    x->above = nearest_above(s, x->node);
    for (uint32_t i = 0; i < s->stats.slots; i++) {
        struct slot *y = &s->slots[i];
        if (i != slot && y->state == KEPT && y->above == x->above && y->depth > x->depth &&
            is_above(s, x->node, y->node))
            y->above = slot;
    }
}

static void link_out(struct bn_snapshots *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->stats.slots; i++)
        if (s->slots[i].state == KEPT && s->slots[i].above == slot)
            s->slots[i].above = s->slots[slot].above;
}

/* No longer kept. */
static void forget(struct bn_snapshots *s, uint32_t slot, enum slot_state state)
{
    struct slot *x = &s->slots[slot];
    link_out(s, slot);
    s->at[x->node] = 0;
    *x = (struct slot){.state = state};
    s->stats.kept--;
    s->stats.out += state == OUT;
}

/* ------------------------------------------------------------------ slots */

static uint32_t find_free(const struct bn_snapshots *s)
{
    if (s->stats.kept + s->stats.out == s->stats.slots) return BN_NO_SLOT;
    uint32_t i = 0;
    while (s->slots[i].state != FREE) i++;
    return i;
}

static uint64_t rank(const struct bn_snapshots *s, const struct slot *x)
{
    return x->level + gap(s, x);
}

static uint32_t find_least(const struct bn_snapshots *s)
{
    uint32_t best = BN_NO_SLOT;
    for (uint32_t i = 0; i < s->stats.slots; i++) {
        const struct slot *x = &s->slots[i], *b = &s->slots[best == BN_NO_SLOT ? i : best];
        if (x->state != KEPT || x->pins) continue;
        uint64_t mine = rank(s, x), least = rank(s, b);
        if (best == BN_NO_SLOT || mine < least || (mine == least && x->used < b->used)) best = i;
    }
    return best;
}

uint32_t bn_snapshots_take(struct bn_snapshots *s, bool free_only)
{
    uint32_t slot = find_free(s);
    if (slot != BN_NO_SLOT) {
        s->slots[slot].state = OUT;
        s->stats.out++;
        return slot;
    }
    if (free_only || (slot = find_least(s)) == BN_NO_SLOT) return BN_NO_SLOT;
    s->level = rank(s, &s->slots[slot]);
    s->stats.thinned++;
    forget(s, slot, OUT);
    return slot;
}

static struct slot *find_ref(const struct bn_snapshots *s, struct bn_snapshot_ref ref)
{
    struct slot *x = &s->slots[ref.slot];
    return ref.stamp && x->state == KEPT && x->stamp == ref.stamp ? x : NULL;
}

uint32_t bn_snapshots_retake(struct bn_snapshots *s, struct bn_snapshot_ref ref)
{
    const struct slot *x = find_ref(s, ref);
    if (!x || x->pins) return BN_NO_SLOT;
    forget(s, ref.slot, OUT);
    return ref.slot;
}

void bn_snapshots_give_back(struct bn_snapshots *s, uint32_t slot)
{
    s->slots[slot].state = FREE;
    s->stats.out--;
}

void bn_snapshots_keep(struct bn_snapshots *s, uint32_t slot, uint32_t node, uint32_t depth)
{
    if (s->at[node]) {
        bn_snapshots_give_back(s, slot);
        return;
    }
    s->slots[slot] = (struct slot){.state = KEPT,
                                   .node = node,
                                   .depth = depth,
                                   .level = s->level,
                                   .used = ++s->n_uses,
                                   .stamp = ++s->n_stamps};
    s->at[node] = slot + 1;
    link_in(s, slot);
    s->stats.out--;
    s->stats.kept++;
    s->stats.saved++;
}

/* ------------------------------------------------------------------ who has one */

uint32_t bn_snapshots_at(const struct bn_snapshots *s, uint32_t node)
{
    return s->at[node] ? s->at[node] - 1 : BN_NO_SLOT;
}

struct bn_snapshot_ref bn_snapshots_ref(const struct bn_snapshots *s, uint32_t slot)
{
    return (struct bn_snapshot_ref){slot, s->slots[slot].stamp};
}

void bn_snapshots_use(struct bn_snapshots *s, uint32_t slot)
{
    s->slots[slot].level = s->level;
    s->slots[slot].used = ++s->n_uses;
    s->stats.used++;
}

void bn_snapshots_pin(struct bn_snapshots *s, struct bn_snapshot_ref ref)
{
    struct slot *x = find_ref(s, ref);
    if (x) x->pins++;
}

void bn_snapshots_unpin(struct bn_snapshots *s, struct bn_snapshot_ref ref)
{
    struct slot *x = find_ref(s, ref);
    if (x) x->pins--;
}

void bn_snapshots_drop(struct bn_snapshots *s, uint32_t node)
{
    if (s->at[node]) forget(s, s->at[node] - 1, FREE);
}

void bn_snapshots_clear(struct bn_snapshots *s)
{
    for (uint32_t i = 0; i < s->stats.slots; i++) {
        struct slot *x = &s->slots[i];
        if (x->state != KEPT) continue;
        s->at[x->node] = 0;
        *x = (struct slot){.state = FREE};
    }
    s->stats.kept = 0;
}

const struct bn_snapshots_stats *bn_snapshots_stats(const struct bn_snapshots *s)
{
    return &s->stats;
}
