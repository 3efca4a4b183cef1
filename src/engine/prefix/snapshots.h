/* SPDX-License-Identifier: Apache-2.0
 * Snapshots of recurrent states: of which beginnings of texts a state has been put aside, and in which
 * slot. A snapshot belongs to a node of the prefix cache's tree and goes with it. Slots only: what is
 * in them is model/state's, and is written and read by those who have one. */
#ifndef BN_ENGINE_PREFIX_SNAPSHOTS_H
#define BN_ENGINE_PREFIX_SNAPSHOTS_H

#include "base/status.h"

enum { BN_MAX_SNAPSHOTS = 4096 };
#define BN_NO_SLOT UINT32_MAX

struct bn_snapshots;

/* Nodes are numbers below n_nodes; n_nodes itself stands above all of them. */
struct bn_snapshot_tree {
    const void *user;
    uint32_t (*parent)(const void *user, uint32_t node);
    uint32_t n_nodes;
};

/* A snapshot as somebody remembers it: what is gone, or has been replaced since, is told apart. All
 * zero: none. */
struct bn_snapshot_ref {
    uint32_t slot;
    uint64_t stamp;
};

/* All memory is taken here. Slots are 0 to n_slots - 1, n_slots >= 1. */
bitnet_status bn_snapshots_open(struct bn_snapshots **out, uint32_t n_slots,
                                const struct bn_snapshot_tree *tree, bitnet_error *err);
void bn_snapshots_close(struct bn_snapshots *s);

/* A slot to put a state into; the snapshot worth least is given up for it, unless only `free_only`
 * will do. BN_NO_SLOT: there is none. It is out until it is kept or given back. */
uint32_t bn_snapshots_take(struct bn_snapshots *s, bool free_only);
/* The slot of a snapshot that is replaced by what is put there next; BN_NO_SLOT if it is gone or
 * pinned. */
uint32_t bn_snapshots_retake(struct bn_snapshots *s, struct bn_snapshot_ref ref);
void bn_snapshots_give_back(struct bn_snapshots *s, uint32_t slot);
/* What is in the slot is the state behind the first `depth` tokens of a text, which end with this
 * node. Where the node has a snapshot already, the slot is given back. */
void bn_snapshots_keep(struct bn_snapshots *s, uint32_t slot, uint32_t node, uint32_t depth);

/* The slot with a node's snapshot, or BN_NO_SLOT. */
uint32_t bn_snapshots_at(const struct bn_snapshots *s, uint32_t node);
struct bn_snapshot_ref bn_snapshots_ref(const struct bn_snapshots *s, uint32_t slot);
/* A text begins with this snapshot. */
void bn_snapshots_use(struct bn_snapshots *s, uint32_t slot);
/* While it is pinned a snapshot goes with its node only. */
void bn_snapshots_pin(struct bn_snapshots *s, struct bn_snapshot_ref ref);
void bn_snapshots_unpin(struct bn_snapshots *s, struct bn_snapshot_ref ref);

/* The node goes; others keep their parents, or go, too. */
void bn_snapshots_drop(struct bn_snapshots *s, uint32_t node);
void bn_snapshots_clear(struct bn_snapshots *s); /* all nodes go; slots that are out stay so */

struct bn_snapshots_stats {
    uint32_t slots, kept, out;
    uint64_t saved, used, thinned; /* so far; thinned: given up for others */
};
const struct bn_snapshots_stats *bn_snapshots_stats(const struct bn_snapshots *s);

#endif
