/* SPDX-License-Identifier: Apache-2.0
 * Expressions of a grammar, and classes of characters as sequences of byte ranges. */
#include "text/grammar/grammar_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

enum { MAX_CHAR = 0x10ffff, SURROGATE_LO = 0xd800, SURROGATE_HI = 0xdfff };

void bn_builder_free(struct bn_builder *b)
{
    bn_arena_free(&b->arena);
    free(b->rules);
    free(b->sets);
}

bool bn_builder_nomem(struct bn_builder *b)
{
    if (b->status == BITNET_OK) b->status = bn_fail_nomem(b->err, b->arena.used_bytes, "a grammar");
    return false;
}

static bool limit(struct bn_builder *b, size_t n, size_t most, const char *what)
{
    if (n > most && b->status == BITNET_OK)
        b->status = bn_fail(b->err, BITNET_E_LIMIT, "the grammar has %zu %s, the most is %zu", n,
                            what, most);
    return b->status == BITNET_OK;
}

uint32_t bn_rule_add(struct bn_builder *b, const char *name, size_t n)
{
    if (!limit(b, b->n_rules + 1, BN_GRAMMAR_MAX_RULES, "rules")) return 0;
    char *copy = bn_arena_strn(&b->arena, name, n);
    if (!copy || !bn_grow((void **)&b->rules, &b->rule_room, b->n_rules + 1, sizeof *b->rules))
        return bn_builder_nomem(b), 0;
    b->rules[b->n_rules] = (struct bn_rule){.name = copy};
    return (uint32_t)b->n_rules++;
}

/* ------------------------------------------------------------------ expressions */

static struct bn_expr *make(struct bn_builder *b, enum bn_expr_kind kind)
{
    if (b->status != BITNET_OK) return NULL;
    struct bn_expr *e = bn_arena_alloc(&b->arena, sizeof *e);
    if (!e) return bn_builder_nomem(b), NULL;
    e->kind = kind;
    return e;
}

const struct bn_expr *bn_expr_rule(struct bn_builder *b, uint32_t rule)
{
    struct bn_expr *e = make(b, BN_EXPR_RULE);
    if (e) e->index = rule;
    return e;
}

const struct bn_expr *bn_expr_literal(struct bn_builder *b, const char *s, size_t n)
{
    struct bn_expr *e = make(b, BN_EXPR_LITERAL);
    if (!e) return NULL;
    e->bytes = bn_arena_strn(&b->arena, s, n);
    e->n = (uint32_t)n;
    if (!e->bytes) return bn_builder_nomem(b), NULL;
    return e;
}

const struct bn_expr *bn_expr_text(struct bn_builder *b, const char *s)
{
    return bn_expr_literal(b, s, strlen(s));
}

static bool is_empty(const struct bn_expr *e) { return e->kind == BN_EXPR_LITERAL && e->n == 0; }

static struct bn_expr *make_parent(struct bn_builder *b, enum bn_expr_kind kind,
                                   const struct bn_expr *const *kids, size_t n)
{
    struct bn_expr *e = make(b, kind);
    if (!e) return NULL;
    e->kids = bn_arena_alloc(&b->arena, (n ? n : 1) * sizeof *e->kids);
    if (!e->kids) return bn_builder_nomem(b), NULL;
    e->n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        e->kids[i] = kids[i];
        if (kids[i]->nesting >= e->nesting) e->nesting = kids[i]->nesting + 1;
    }
    return limit(b, e->nesting, BN_GRAMMAR_MAX_NESTING, "levels of nesting") ? e : NULL;
}

/* Every expression but the empty text becomes at least one node: so the limit on nodes bounds the
 * work of nested repetitions. */
const struct bn_expr *bn_expr_repeat(struct bn_builder *b, const struct bn_expr *kid, uint32_t min,
                                     uint32_t max)
{
    if (b->status != BITNET_OK || (min == 1 && max == 1)) return kid;
    if (max == 0 || is_empty(kid)) return bn_expr_literal(b, "", 0);
    uint32_t number = max == BN_GRAMMAR_UNLIMITED ? min : max;
    if (!limit(b, number, BN_GRAMMAR_MAX_REPEAT, "repetitions in one place")) return NULL;
    struct bn_expr *e = make_parent(b, BN_EXPR_REPEAT, &kid, 1);
    if (!e) return NULL;
    e->min = min;
    e->max = max;
    return e;
}

const struct bn_expr *bn_expr_list(struct bn_builder *b, enum bn_expr_kind kind,
                                   const struct bn_expr *const *kids, size_t n)
{
    if (b->status != BITNET_OK) return NULL;
    if (n == 1) return kids[0];
    struct bn_expr *e = make_parent(b, kind, kids, n);
    if (!e || kind != BN_EXPR_SEQ) return e;
    e->n = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_empty(kids[i])) e->kids[e->n++] = kids[i];
    return e->n == 0 ? bn_expr_literal(b, "", 0) : e->n == 1 ? e->kids[0] : e;
}

void bn_exprs_add(struct bn_builder *b, struct bn_exprs *l, const struct bn_expr *e)
{
    if (b->status != BITNET_OK) return;
    if (!bn_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v)) bn_builder_nomem(b);
    else l->v[l->n++] = e;
}

const struct bn_expr *bn_exprs_take(struct bn_builder *b, struct bn_exprs *l,
                                    enum bn_expr_kind kind)
{
    const struct bn_expr *e = bn_expr_list(b, kind, l->v, l->n);
    free(l->v);
    *l = (struct bn_exprs){0};
    return e;
}

/* ------------------------------------------------------------------ graphs */

void bn_edges_add(struct bn_builder *b, struct bn_edges *l, uint32_t from, uint32_t to,
                  const struct bn_expr *e)
{
    if (b->status != BITNET_OK) return;
    if (!bn_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v)) bn_builder_nomem(b);
    else l->v[l->n++] = (struct bn_edge){from, to, e};
}

const struct bn_expr *bn_edges_take(struct bn_builder *b, struct bn_edges *l, const bool *final,
                                    uint32_t n_states)
{
    struct bn_expr *e = make(b, BN_EXPR_GRAPH);
    struct bn_edge *edges = e ? bn_arena_alloc(&b->arena, (l->n + 1) * sizeof *edges) : NULL;
    bool *copy = e ? bn_arena_alloc(&b->arena, n_states + 1) : NULL;
    if (e && (!edges || !copy)) bn_builder_nomem(b);
    if (e && b->status == BITNET_OK) {
        for (size_t i = 0; i < l->n; i++) {
            edges[i] = l->v[i];
            if (l->v[i].expr->nesting >= e->nesting) e->nesting = l->v[i].expr->nesting + 1;
        }
        memcpy(copy, final, n_states);
        e->edges = edges;
        e->final = copy;
        e->n = (uint32_t)l->n;
        e->min = n_states;
        limit(b, e->nesting, BN_GRAMMAR_MAX_NESTING, "levels of nesting");
    }
    free(l->v);
    *l = (struct bn_edges){0};
    return b->status == BITNET_OK ? e : NULL;
}

/* ------------------------------------------------------------------ classes of characters */

void bn_ranges_free(struct bn_ranges *r)
{
    free(r->v);
    *r = (struct bn_ranges){0};
}

void bn_ranges_add(struct bn_builder *b, struct bn_ranges *r, uint32_t lo, uint32_t hi)
{
    if (b->status != BITNET_OK) return;
    if (!bn_grow((void **)&r->v, &r->room, r->n + 1, sizeof *r->v)) bn_builder_nomem(b);
    else r->v[r->n++] = (struct bn_range){lo, hi};
}

static int by_start(const void *left, const void *right)
{
    const struct bn_range *a = left, *b = right;
    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

/* Sorts and joins in place; how many are left. */
static size_t join(struct bn_range *r, size_t n)
{
    size_t k = 0;
    if (n > 0) qsort(r, n, sizeof *r, by_start);
    for (size_t i = 0; i < n; i++) {
        if (k > 0 && r[i].lo <= r[k - 1].hi + 1) {
            if (r[i].hi > r[k - 1].hi) r[k - 1].hi = r[i].hi;
        } else {
            r[k++] = r[i];
        }
    }
    return k;
}

void bn_ranges_invert(struct bn_builder *b, struct bn_ranges *r)
{
    struct bn_ranges out = {0};
    uint32_t next = 0;
    r->n = join(r->v, r->n);
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].lo > next) bn_ranges_add(b, &out, next, r->v[i].lo - 1);
        next = r->v[i].hi + 1;
    }
    if (next <= MAX_CHAR) bn_ranges_add(b, &out, next, MAX_CHAR);
    bn_ranges_free(r);
    *r = out;
}

static const struct bn_expr *byte_set(struct bn_builder *b, const struct bn_byte_set *set)
{
    struct bn_expr *e = make(b, BN_EXPR_BYTES);
    if (!e) return NULL;
    size_t i = 0;
    while (i < b->n_sets && memcmp(&b->sets[i], set, sizeof *set) != 0) i++;
    if (i == b->n_sets) {
        if (!limit(b, i + 1, BN_GRAMMAR_MAX_SETS, "different classes of bytes")) return NULL;
        if (!bn_grow((void **)&b->sets, &b->set_room, i + 1, sizeof *b->sets))
            return bn_builder_nomem(b), NULL;
        b->sets[b->n_sets++] = *set;
    }
    e->index = (uint32_t)i;
    return e;
}

static void set_add(struct bn_byte_set *s, unsigned lo, unsigned hi)
{
    for (unsigned c = lo; c <= hi; c++) s->bits[c / 64] |= 1ull << c % 64;
}

/* How much of lo..hi the ranges, in order, cover: 0 nothing, 1 some, 2 all of it. */
static int covered(const struct bn_ranges *r, uint32_t lo, uint32_t hi)
{
    size_t from = 0, to = r->n;
    while (from < to) {
        size_t mid = (from + to) / 2;
        if (r->v[mid].hi < lo) from = mid + 1;
        else to = mid;
    }
    if (from == r->n || r->v[from].lo > hi) return 0;
    return r->v[from].lo <= lo && r->v[from].hi >= hi ? 2 : 1;
}

static bool same_expr(const struct bn_expr *x, const struct bn_expr *y)
{
    if (x == y) return true;
    if (!x || !y || x->kind != y->kind || x->n != y->n || x->index != y->index) return false;
    for (uint32_t i = 0; i < x->n; i++)
        if (!same_expr(x->kids[i], y->kids[i])) return false;
    return true;
}

/* The bytes behind the first of a character, of blocks of 64 characters or powers of it. */
static const struct bn_expr *block(struct bn_builder *b, const struct bn_ranges *r, uint32_t base,
                                   int bits);

/* Blocks of 2^bits characters each, with first bytes from `byte` on: those that end alike together.
 * bits 0: single characters. */
static void add_blocks(struct bn_builder *b, struct bn_exprs *alts, const struct bn_ranges *r,
                       uint32_t base, int bits, uint32_t n, uint8_t byte)
{
    const struct bn_expr *rest[64];
    struct bn_byte_set set[64];
    uint32_t n_rest = 0;
    for (uint32_t i = 0; i < n && b->status == BITNET_OK; i++) {
        uint32_t lo = base + (i << bits), k = 0;
        if (!covered(r, lo, lo + (1u << bits) - 1)) continue;
        const struct bn_expr *e = bits ? block(b, r, lo, bits) : NULL;
        while (k < n_rest && !same_expr(rest[k], e)) k++;
        if (k == n_rest) {
            rest[n_rest] = e;
            set[n_rest++] = (struct bn_byte_set){{0}};
        }
        set_add(&set[k], byte + i, byte + i);
    }
    for (uint32_t k = 0; k < n_rest && b->status == BITNET_OK; k++) {
        const struct bn_expr *first = byte_set(b, &set[k]);
        bn_exprs_add(b, alts, rest[k] ? BN_SEQ(b, first, rest[k]) : first);
    }
}

static const struct bn_expr *block(struct bn_builder *b, const struct bn_ranges *r, uint32_t base,
                                   int bits)
{
    struct bn_exprs alts = {0};
    if (bits > 6 && covered(r, base, base + (1u << bits) - 1) == 2) {
        struct bn_byte_set any = {{0, 0, UINT64_MAX, 0}}; /* 0x80 to 0xbf */
        const struct bn_expr *e = byte_set(b, &any);
        return bits == 12 ? BN_SEQ(b, e, e) : BN_SEQ(b, e, BN_SEQ(b, e, e));
    }
    add_blocks(b, &alts, r, base, bits - 6, 64, 0x80);
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

const struct bn_expr *bn_expr_class(struct bn_builder *b, const struct bn_range *ranges, size_t n)
{
    struct bn_ranges r = {0};
    struct bn_exprs alts = {0};
    struct bn_byte_set ascii = {0};
    for (size_t i = 0; i < n; i++) { /* without surrogates, which UTF-8 has no form for */
        const struct bn_range *x = &ranges[i];
        if (x->lo < SURROGATE_LO)
            bn_ranges_add(b, &r, x->lo, x->hi < SURROGATE_LO ? x->hi : SURROGATE_LO - 1);
        if (x->hi > SURROGATE_HI)
            bn_ranges_add(b, &r, x->lo > SURROGATE_HI ? x->lo : SURROGATE_HI + 1, x->hi);
    }
    r.n = join(r.v, r.n);
    for (size_t i = 0; i < r.n; i++)
        if (r.v[i].lo < 0x80) set_add(&ascii, r.v[i].lo, r.v[i].hi < 0x7f ? r.v[i].hi : 0x7f);
    if (r.n > 0 && r.v[r.n - 1].hi >= 0x80) {
        add_blocks(b, &alts, &r, 0x80, 6, 30, 0xc2);
        struct bn_ranges wide = {0}; /* three bytes from 0x800 on, though blocks begin at 0 */
        for (size_t i = 0; i < r.n; i++)
            if (r.v[i].hi >= 0x800)
                bn_ranges_add(b, &wide, r.v[i].lo < 0x800 ? 0x800 : r.v[i].lo, r.v[i].hi);
        add_blocks(b, &alts, &wide, 0, 12, 16, 0xe0);
        wide.n = 0;
        for (size_t i = 0; i < r.n; i++)
            if (r.v[i].hi >= 0x10000)
                bn_ranges_add(b, &wide, r.v[i].lo < 0x10000 ? 0x10000 : r.v[i].lo, r.v[i].hi);
        add_blocks(b, &alts, &wide, 0, 18, 5, 0xf0);
        bn_ranges_free(&wide);
    }
    bn_ranges_free(&r);
    if (ascii.bits[0] || ascii.bits[1] || alts.n == 0) bn_exprs_add(b, &alts, byte_set(b, &ascii));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}
