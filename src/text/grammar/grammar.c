/* SPDX-License-Identifier: Apache-2.0
 * From expressions to the nodes of a grammar. Nodes are made from the end of a rule to its
 * beginning, so each knows what follows it. Then the rules are checked: every one that is used is
 * defined, none refers to itself before a byte, all can end. */
#include "text/grammar/grammar_impl.h"

#include <stdlib.h>

/* A loop met so far: what it repeats and what follows. */
struct loop {
    uint32_t head, next;
    const struct bn_expr *body;
};

struct compiler {
    struct bn_grammar *g;
    struct bn_builder *b;
    size_t node_room;
    struct loop *loops; /* [loop_room] */
    size_t n_loops, loop_room;
    uint32_t single[256]; /* 1 + set of one byte */
    uint32_t *todo;       /* [n_nodes] of the search for left recursion */
    uint8_t *mark;        /* [n_rules] */
    bool *empty;          /* [n_nodes] the rule can end here without a byte */
    uint32_t *rule_at;    /* [n_nodes] of first nodes: the rule */
    bitnet_error *err;
};

static bitnet_status fail_rule(struct compiler *c, const struct bn_rule *r, bitnet_status status,
                               const char *what)
{
    if (r->line == 0) return bn_fail(c->err, status, "schema: '%.80s' %s", r->name, what);
    return bn_fail(c->err, status, "grammar, line %u, column %u: rule '%.80s' %s", r->line,
                   r->column, r->name, what);
}

/* ------------------------------------------------------------------ nodes */

/* A new node; 0 (which is the common RETURN) after a failure, which stays in the builder. */
static uint32_t add_node(struct compiler *c, enum bn_node_kind kind, uint32_t a, uint32_t b)
{
    struct bn_grammar *g = c->g;
    if (c->b->status != BITNET_OK) return 0;
    if (g->n_nodes == BN_GRAMMAR_MAX_NODES) {
        c->b->status = bn_fail(c->err, BITNET_E_LIMIT,
                               "the grammar has more than %d symbols, repetitions counted",
                               BN_GRAMMAR_MAX_NODES);
        return 0;
    }
    if (!bn_grow((void **)&g->nodes, &c->node_room, (size_t)g->n_nodes + 1, sizeof *g->nodes))
        return bn_builder_nomem(c->b), 0;
    g->nodes[g->n_nodes] = (struct bn_node){.kind = kind, .a = a, .b = b};
    return g->n_nodes++;
}

static uint32_t emit(struct compiler *c, const struct bn_expr *e, uint32_t next);

static uint32_t single_set(struct compiler *c, uint8_t byte)
{
    struct bn_grammar *g = c->g;
    if (!c->single[byte]) {
        struct bn_byte_set *s = &g->sets[g->n_sets++];
        *s = (struct bn_byte_set){{0}};
        s->bits[byte / 64] = 1ull << byte % 64;
        c->single[byte] = g->n_sets;
    }
    return c->single[byte] - 1;
}

static bool same_body(const struct bn_expr *a, const struct bn_expr *b)
{
    return a == b || (a->kind == BN_EXPR_RULE && b->kind == BN_EXPR_RULE && a->index == b->index);
}

static bool same_node(const struct bn_grammar *g, uint32_t a, uint32_t b)
{
    const struct bn_node *x = &g->nodes[a], *y = &g->nodes[b];
    return a == b ||
           (x->kind == BN_NODE_BYTES && y->kind == BN_NODE_BYTES && x->a == y->a && x->b == y->b);
}

/* The head of a loop without end. Loops that repeat the same and go on alike share the first one's
 * mask: all strings of a JSON schema do. */
static uint32_t emit_loop(struct compiler *c, const struct bn_expr *body, uint32_t next)
{
    enum { MAX_LOOK = 64 };
    uint32_t node = add_node(c, BN_NODE_SPLIT, 0, next), start = emit(c, body, node);
    if (!bn_grow((void **)&c->loops, &c->loop_room, c->n_loops + 1, sizeof *c->loops))
        bn_builder_nomem(c->b);
    if (c->b->status != BITNET_OK) return 0;
    struct bn_node *n = &c->g->nodes[node];
    n->a = start;
    n->left = BN_LOOP_FOREVER;
    n->head = node;
    for (size_t i = 0; i < c->n_loops && i < MAX_LOOK; i++)
        if (same_body(c->loops[i].body, body) && same_node(c->g, c->loops[i].next, next)) {
            n->head = c->loops[i].head;
            return node;
        }
    c->loops[c->n_loops++] = (struct loop){node, next, body};
    return node;
}

static uint32_t emit_repeat(struct compiler *c, const struct bn_expr *e, uint32_t next)
{
    enum { LONG = 8 }; /* rounds from which a loop without end, made for its mask, pays */
    const struct bn_expr *body = e->kids[0];
    uint32_t node = next;
    if (e->max == BN_GRAMMAR_UNLIMITED) {
        node = emit_loop(c, body, next);
    } else {
        uint32_t rounds = e->max - e->min;
        uint32_t loop = rounds >= LONG ? emit_loop(c, body, next) : 0;
        uint32_t head = c->g->nodes[loop].head; /* node 0 has none */
        for (uint32_t i = 0; i < rounds && c->b->status == BITNET_OK; i++) {
            node = add_node(c, BN_NODE_SPLIT, emit(c, body, node), next);
            c->g->nodes[node].head = head;
            c->g->nodes[node].left = (uint16_t)(i + 1);
        }
    }
    for (uint32_t i = 0; i < e->min && c->b->status == BITNET_OK; i++) node = emit(c, body, node);
    return node;
}

/* Each state is a node, made before all edges, that leads to a chain of forks; one without edges leads
 * on if it is final, otherwise to itself, which is nowhere. */
static uint32_t emit_graph(struct compiler *c, const struct bn_expr *e, uint32_t next)
{
    uint32_t first = c->g->n_nodes;
    for (uint32_t i = 0; i < e->min && c->b->status == BITNET_OK; i++)
        add_node(c, BN_NODE_SPLIT, e->final[i] ? next : first + i, e->final[i] ? next : first + i);
    for (uint32_t i = 0; i < e->n && c->b->status == BITNET_OK;) {
        uint32_t state = e->edges[i].from, rest = next;
        bool any = e->final[state];
        for (; i < e->n && e->edges[i].from == state && c->b->status == BITNET_OK; i++) {
            uint32_t node = emit(c, e->edges[i].expr, first + e->edges[i].to);
            rest = any ? add_node(c, BN_NODE_SPLIT, node, rest) : node;
            any = true;
        }
        if (c->b->status != BITNET_OK) return 0;
        c->g->nodes[first + state].a = c->g->nodes[first + state].b = rest;
    }
    return first;
}

/* The first node of an expression that is followed by `next`. */
static uint32_t emit(struct compiler *c, const struct bn_expr *e, uint32_t next)
{
    uint32_t node = next;
    switch (e->kind) {
    case BN_EXPR_LITERAL:
        for (uint32_t i = e->n; i-- > 0 && c->b->status == BITNET_OK;)
            node = add_node(c, BN_NODE_BYTES, single_set(c, (uint8_t)e->bytes[i]), node);
        return node;
    case BN_EXPR_BYTES: return add_node(c, BN_NODE_BYTES, e->index, next);
    case BN_EXPR_RULE: return add_node(c, BN_NODE_CALL, e->index, next);
    case BN_EXPR_REPEAT: return emit_repeat(c, e, next);
    case BN_EXPR_GRAPH: return emit_graph(c, e, next);
    case BN_EXPR_SEQ:
        for (uint32_t i = e->n; i-- > 0;) node = emit(c, e->kids[i], node);
        return node;
    case BN_EXPR_ALT:
        node = emit(c, e->kids[e->n - 1], next);
        for (uint32_t i = e->n - 1; i-- > 0;)
            node = add_node(c, BN_NODE_SPLIT, emit(c, e->kids[i], next), node);
        return node;
    }
    return 0;
}

static bitnet_status emit_rules(struct compiler *c)
{
    struct bn_builder *b = c->b;
    add_node(c, BN_NODE_RETURN, 0, 0);
    for (size_t i = 0; i < b->n_rules && b->status == BITNET_OK; i++) {
        struct bn_rule *r = &b->rules[i];
        if (!r->expr) return fail_rule(c, r, BITNET_E_FORMAT, "is not defined");
        r->start = emit(c, r->expr, 0);
    }
    BN_TRY(b->status);
    for (uint32_t i = 0; i < c->g->n_nodes; i++)
        if (c->g->nodes[i].kind == BN_NODE_CALL)
            c->g->nodes[i].a = b->rules[c->g->nodes[i].a].start;
    c->g->root = b->rules[0].start;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ checks */

static uint32_t max_need(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t need_of(const struct bn_grammar *g, const struct bn_node *n)
{
    static const struct bn_byte_set none;
    switch ((enum bn_node_kind)n->kind) {
    case BN_NODE_RETURN: return 0;
    case BN_NODE_BYTES:
        return memcmp(&g->sets[n->a], &none, sizeof none) == 0 ? BN_GRAMMAR_NO_NEED
                                                               : g->nodes[n->b].need;
    case BN_NODE_SPLIT:
        return g->nodes[n->a].need < g->nodes[n->b].need ? g->nodes[n->a].need
                                                         : g->nodes[n->b].need;
    case BN_NODE_CALL: return max_need(g->nodes[n->a].need + (n->b != 0), g->nodes[n->b].need);
    }
    return 0;
}

static bool update_need(void *user, uint32_t node)
{
    const struct bn_grammar *g = user;
    uint32_t need = need_of(g, &g->nodes[node]);
    bool changed = need < g->nodes[node].need;
    if (changed) g->nodes[node].need = (uint16_t)need;
    return changed;
}

/* Frames that finishing needs, from below: once nothing changes, what is left cannot end. */
static bitnet_status find_needs(struct compiler *c)
{
    struct bn_grammar *g = c->g;
    for (uint32_t i = 0; i < g->n_nodes; i++) g->nodes[i].need = BN_GRAMMAR_NO_NEED;
    BN_TRY(bn_grammar_settle(g, update_need, g, c->err));
    for (size_t i = 0; i < c->b->n_rules; i++) {
        const struct bn_rule *r = &c->b->rules[i];
        if (g->nodes[r->start].need > BN_GRAMMAR_MAX_DEPTH)
            return fail_rule(c, r, BITNET_E_FORMAT, "can never be complete");
    }
    return BITNET_OK;
}

static bool update_empty(void *user, uint32_t node)
{
    const struct compiler *c = user;
    const struct bn_node *n = &c->g->nodes[node];
    if (c->empty[node] || n->kind == BN_NODE_BYTES) return false;
    bool a = c->empty[n->a], b = c->empty[n->b];
    return c->empty[node] = n->kind == BN_NODE_CALL ? a && b : a || b;
}

static bitnet_status find_empty(struct compiler *c)
{
    c->empty[0] = true;
    return bn_grammar_settle(c->g, update_empty, c, c->err);
}

enum { NEW, OPEN, DONE };

/* Follows everything that the rule reaches before its first byte. seen: [n_nodes] */
static bitnet_status check_left(struct compiler *c, uint32_t rule, bool *seen, uint32_t base)
{
    const struct bn_grammar *g = c->g;
    uint32_t n = base;
    c->mark[rule] = OPEN;
    c->todo[n++] = c->b->rules[rule].start;
    while (n > base) {
        uint32_t at = c->todo[--n];
        const struct bn_node *node = &g->nodes[at];
        if (seen[at] || node->kind == BN_NODE_BYTES || node->kind == BN_NODE_RETURN) continue;
        seen[at] = true;
        if (node->kind == BN_NODE_SPLIT || c->empty[node->a]) c->todo[n++] = node->b;
        if (node->kind == BN_NODE_SPLIT) {
            c->todo[n++] = node->a;
            continue;
        }
        uint32_t callee = c->rule_at[node->a];
        if (c->mark[callee] == OPEN)
            return fail_rule(c, &c->b->rules[callee], BITNET_E_FORMAT,
                             "refers to itself before any character (left recursion)");
        if (c->mark[callee] == NEW) BN_TRY(check_left(c, callee, seen, n));
    }
    c->mark[rule] = DONE;
    return BITNET_OK;
}

static bitnet_status check_rules(struct compiler *c)
{
    size_t n = c->g->n_nodes;
    bool *seen = bn_calloc(n, sizeof *seen);
    c->empty = bn_calloc(n, sizeof *c->empty);
    c->todo = bn_calloc(2 * n + c->b->n_rules, sizeof *c->todo);
    c->mark = bn_calloc(c->b->n_rules, 1);
    c->rule_at = bn_calloc(n, sizeof *c->rule_at);
    bitnet_status st = BITNET_OK;
    if (!seen || !c->empty || !c->todo || !c->mark || !c->rule_at)
        st = bn_fail_nomem(c->err, n * 16, "a grammar");
    if (st == BITNET_OK) {
        st = find_empty(c);
        for (size_t i = 0; i < c->b->n_rules; i++) c->rule_at[c->b->rules[i].start] = (uint32_t)i;
    }
    for (uint32_t i = 0; i < c->b->n_rules && st == BITNET_OK; i++)
        if (c->mark[i] == NEW) st = check_left(c, i, seen, 0);
    if (st == BITNET_OK) st = find_needs(c);
    free(seen);
    return st;
}

/* ------------------------------------------------------------------ what walks need */

/* Splits the classes of bytes by every set; two bytes stay together if all sets agree on them. */
static void find_classes(struct bn_grammar *g)
{
    g->n_classes = 1;
    for (uint32_t i = 0; i < g->n_sets; i++) {
        uint8_t fresh[256] = {0}; /* class -> its part inside the set, 0: not met yet */
        bool outside[256] = {0};
        uint32_t before = g->n_classes;
        for (unsigned c = 0; c < 256; c++)
            if (!bn_byte_set_has(&g->sets[i], (uint8_t)c)) outside[g->class_of[c]] = true;
        for (unsigned c = 0; c < 256; c++) {
            uint8_t class = g->class_of[c];
            if (class >= before || !outside[class] || !bn_byte_set_has(&g->sets[i], (uint8_t)c))
                continue;
            if (!fresh[class]) fresh[class] = (uint8_t)g->n_classes++;
            g->class_of[c] = fresh[class];
        }
    }
    for (unsigned c = 0; c < 256; c++) g->byte_of[g->class_of[c]] = (uint8_t)c;
}

/* The mask of one loop, kept if it is broad: narrow ones are as quickly walked. */
static bitnet_status make_loop(struct bn_grammar *g, struct bn_walk *w, uint32_t node,
                               struct bn_loop_mask *scratch, bitnet_error *err)
{
    enum { BROAD = 512 }; /* tokens */
    const struct bn_token_tree *t = g->tree;
    struct bn_stacks *s = w->stacks;
    bn_config start = bn_config_make(node, 0);
    memset(scratch->bits, 0, t->n_words * sizeof *scratch->bits);
    scratch->exits.n = 0;
    s->overflow = false;
    s->width = s->height = 0;
    bn_walk_tokens(w, &start, 1, 0, 0, scratch->bits, &scratch->exits);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_words; i++) n += (uint32_t)__builtin_popcountll(scratch->bits[i]);
    if (!s->overflow && n >= BROAD) {
        struct bn_loop_mask *m = &g->loops[g->n_loops];
        size_t bits = t->n_words * sizeof *m->bits, exits = scratch->exits.n * sizeof(uint32_t);
        *m = (struct bn_loop_mask){.exits.n = scratch->exits.n,
                                   .width = s->width,
                                   .height = s->height,
                                   .frames = s->n_frames};
        m->bits = bn_arena_alloc(&g->arena, bits);
        m->exits.nodes = bn_arena_alloc(&g->arena, exits + 1);
        if (!m->bits || !m->exits.nodes)
            return bn_fail_nomem(err, bits + exits, "masks of a grammar");
        memcpy(m->bits, scratch->bits, bits);
        memcpy(m->exits.nodes, scratch->exits.nodes, exits);
        g->nodes[node].mask = (uint8_t)++g->n_loops;
    }
    bn_stacks_truncate(s, 1);
    bn_walk_forget(w);
    return BITNET_OK;
}

static bitnet_status make_loops(struct compiler *c)
{
    struct bn_grammar *g = c->g;
    struct bn_stacks s;
    struct bn_walk w = {0};
    struct bn_loop_mask scratch = {
        .bits = bn_calloc((size_t)g->tree->n_words + 1, sizeof *scratch.bits),
        .exits.nodes = bn_calloc(BN_GRAMMAR_MAX_EXITS, sizeof(uint32_t))};
    bitnet_status st = BITNET_OK;
    if (!bn_stacks_init(&s, g) || !bn_walk_init(&w, &s) || !scratch.bits || !scratch.exits.nodes)
        st = bn_fail_nomem(c->err, BN_WALK_MAX_CONFIGS * sizeof *w.configs, "masks of a grammar");
    for (size_t i = 0; i < c->n_loops && g->n_loops < BN_GRAMMAR_MAX_LOOPS && st == BITNET_OK; i++)
        st = make_loop(g, &w, c->loops[i].head, &scratch, c->err);
    free(scratch.bits);
    free(scratch.exits.nodes);
    bn_walk_free(&w);
    bn_stacks_free(&s);
    return st;
}

/* ------------------------------------------------------------------ the grammar */

static bitnet_status compile(struct compiler *c)
{
    struct bn_grammar *g = c->g;
    g->n_sets = (uint32_t)c->b->n_sets;
    g->sets = bn_calloc(c->b->n_sets + 256, sizeof *g->sets); /* and one for every single byte */
    if (!g->sets) return bn_fail_nomem(c->err, c->b->n_sets * sizeof *g->sets, "a grammar");
    if (g->n_sets) memcpy(g->sets, c->b->sets, g->n_sets * sizeof *g->sets);
    BN_TRY(emit_rules(c));
    BN_TRY(check_rules(c));
    find_classes(g);
    BN_TRY(bn_grammar_find_costs(g, c->err));
    return make_loops(c);
}

bitnet_status bn_grammar_build(struct bn_grammar **out, const struct bn_token_tree *t,
                               struct bn_builder *b, bitnet_error *err)
{
    *out = NULL;
    if (b->status != BITNET_OK) return b->status;
    struct compiler c = {.b = b, .err = err, .g = bn_calloc(1, sizeof *c.g)};
    if (!c.g) return bn_fail_nomem(err, sizeof *c.g, "a grammar");
    c.g->tree = t;
    bitnet_status st = compile(&c);
    free(c.loops);
    free(c.todo);
    free(c.mark);
    free(c.empty);
    free(c.rule_at);
    if (st != BITNET_OK) {
        bn_grammar_close(c.g);
        return st;
    }
    *out = c.g;
    return BITNET_OK;
}

size_t bn_grammar_bytes(const struct bn_grammar *g)
{
    return sizeof *g + g->n_nodes * sizeof *g->nodes + g->n_sets * sizeof *g->sets +
           g->arena.used_bytes;
}

void bn_grammar_close(struct bn_grammar *g)
{
    if (!g) return;
    bn_arena_free(&g->arena);
    free(g->nodes);
    free(g->sets);
    free(g->chosen);
    free(g);
}
