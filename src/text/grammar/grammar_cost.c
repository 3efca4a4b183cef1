/* SPDX-License-Identifier: Apache-2.0
 * What it costs to finish: for every node the fewest tokens that end its rule, as far as they can be
 * counted rule by rule. Tokens are matched along bytes that follow each other within a rule; of a set
 * of bytes one stands for all. So the number may be too large by what tokens across such borders
 * would save, but it is never too small: whoever has so many tokens left can finish. */
#include "text/grammar/grammar_impl.h"

#include <stdlib.h>

/* The byte that stands for a set: one that is a token of its own, letters and digits before blanks
 * and control characters. */
static uint16_t choose_byte(const struct bn_token_tree *t, const struct bn_byte_set *s)
{
    for (unsigned i = 0; i < 256; i++) {
        uint8_t byte = (uint8_t)('0' + i);
        uint32_t node = bn_byte_set_has(s, byte) ? bn_token_tree_child(t, 0, byte) : 0;
        if (node && t->first[node] < t->first[node + 1]) return byte;
    }
    return BN_NO_BYTE;
}

/* Bit k: the first k + 1 bytes from this node on, the chosen one of each set, are a token. */
static uint64_t tokens_from(const struct bn_grammar *g, uint32_t node)
{
    const struct bn_token_tree *t = g->tree;
    uint64_t lengths = 0;
    for (uint32_t k = 0, at = 0; k < 64 && g->nodes[node].kind == BN_NODE_BYTES; k++) {
        uint16_t byte = g->chosen[g->nodes[node].a];
        at = byte == BN_NO_BYTE ? 0 : bn_token_tree_child(t, at, (uint8_t)byte);
        if (!at) break;
        if (t->first[at] < t->first[at + 1]) lengths |= 1ull << k;
        node = g->nodes[node].b;
    }
    return lengths;
}

static bool less(struct bn_cost a, struct bn_cost b)
{
    return a.tokens < b.tokens || (a.tokens == b.tokens && a.frames < b.frames);
}

uint32_t bn_cheaper(const struct bn_node *nodes, const struct bn_node *split)
{
    return less(nodes[split->a].cost, nodes[split->b].cost) ? split->a : split->b;
}

static struct bn_cost cost_of_bytes(const struct bn_grammar *g, uint32_t node, uint64_t lengths)
{
    struct bn_cost best = {BN_NO_COST, 0};
    for (; lengths; lengths >>= 1) {
        node = g->nodes[node].b;
        struct bn_cost c = g->nodes[node].cost;
        c.tokens = bn_cost_sum(c.tokens, 1);
        if (lengths & 1 && less(c, best)) best = c;
    }
    return best;
}

static struct bn_cost cost_of_call(struct bn_cost rule, struct bn_cost rest, bool pushes)
{
    rule.frames += pushes;
    return (struct bn_cost){bn_cost_sum(rule.tokens, rest.tokens),
                            rule.frames > rest.frames ? rule.frames : rest.frames};
}

static struct bn_cost cost_of(const struct bn_grammar *g, uint32_t node, uint64_t lengths)
{
    const struct bn_node *nodes = g->nodes, *n = &nodes[node];
    switch ((enum bn_node_kind)n->kind) {
    case BN_NODE_RETURN: break;
    case BN_NODE_BYTES: return cost_of_bytes(g, node, lengths);
    case BN_NODE_SPLIT: return nodes[bn_cheaper(nodes, n)].cost;
    case BN_NODE_CALL: return cost_of_call(nodes[n->a].cost, nodes[n->b].cost, n->b != 0);
    }
    return (struct bn_cost){0, 0};
}

/* All nodes, in order [n_nodes], each after those that it refers to, as far as there are no circles.
 * todo: room for 3 * n_nodes + 1; seen: zeros, [n_nodes] */
static void order_nodes(const struct bn_grammar *g, uint32_t *order, uint32_t *todo, uint8_t *seen)
{
    enum { NEW, OPEN, DONE };
    uint32_t n_order = 0;
    for (uint32_t i = 0, n = 0; i < g->n_nodes; i++) {
        todo[n++] = i;
        while (n) {
            uint32_t at = todo[--n];
            const struct bn_node *node = &g->nodes[at];
            if (seen[at] == OPEN) order[n_order++] = at;
            if (seen[at] != NEW) {
                seen[at] = DONE;
                continue;
            }
            seen[at] = OPEN;
            todo[n++] = at; /* again, when those below are done */
            if (node->kind == BN_NODE_RETURN) continue;
            if (node->kind != BN_NODE_BYTES && seen[node->a] == NEW) todo[n++] = node->a;
            if (seen[node->b] == NEW) todo[n++] = node->b;
        }
    }
}

bitnet_status bn_grammar_settle(const struct bn_grammar *g,
                                bool (*update)(void *user, uint32_t node), void *user,
                                bitnet_error *err)
{
    size_t n = g->n_nodes, bytes = (4 * n + 1) * sizeof(uint32_t) + n;
    uint32_t *order = bn_calloc(bytes, 1);
    if (!order) return bn_fail_nomem(err, bytes, "a grammar");
    order_nodes(g, order, order + n, (uint8_t *)(order + 4 * n + 1));
    bool changed = true;
    for (size_t visits = 0; visits < BN_GRAMMAR_MAX_VISITS && changed; visits += n) {
        changed = false;
        for (size_t i = 0; i < n; i++) changed |= update(user, order[i]);
    }
    free(order);
    if (!changed) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_LIMIT,
        "the grammar's rules depend on each other in circles that %d steps do not settle",
        BN_GRAMMAR_MAX_VISITS);
}

struct costs {
    struct bn_grammar *g;
    const uint64_t *lengths; /* [n_nodes], of tokens_from */
};

static bool update_cost(void *user, uint32_t node)
{
    const struct costs *c = user;
    struct bn_cost cost = cost_of(c->g, node, c->lengths[node]);
    bool changed = less(cost, c->g->nodes[node].cost);
    if (changed) c->g->nodes[node].cost = cost;
    return changed;
}

bitnet_status bn_grammar_find_costs(struct bn_grammar *g, bitnet_error *err)
{
    uint64_t *lengths = bn_calloc(g->n_nodes, sizeof *lengths);
    g->chosen = bn_calloc((size_t)g->n_sets + 1, sizeof *g->chosen);
    if (!lengths || !g->chosen) {
        free(lengths);
        return bn_fail_nomem(err, g->n_nodes * sizeof *lengths, "a grammar");
    }
    for (uint32_t i = 0; i < g->n_sets; i++) g->chosen[i] = choose_byte(g->tree, &g->sets[i]);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        g->nodes[i].cost.tokens = BN_NO_COST;
        lengths[i] = tokens_from(g, i);
    }
    struct costs c = {g, lengths};
    bitnet_status st = bn_grammar_settle(g, update_cost, &c, err);
    free(lengths);
    return st;
}
