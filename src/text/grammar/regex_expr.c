/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions as expressions of a grammar: a plain tree part by part, so that its loops get
 * their masks; others by way of their automaton, a graph. */
#include "text/grammar/regex_impl.h"

#include <stdlib.h>

struct writer {
    struct bn_builder *b;
    bn_re_writer *write;
    void *user;
};

static const struct bn_expr *plain(const struct writer *w, const struct bn_re *re)
{
    struct bn_builder *b = w->b;
    if (b->status != BITNET_OK) return NULL;
    struct bn_ranges r = {0};
    struct bn_exprs parts = {0};
    switch (re->kind) {
    case BN_RE_SET:
        for (uint32_t i = 0; i < re->n; i++) bn_ranges_add(b, &r, re->range[i].lo, re->range[i].hi);
        return w->write(w->user, &r);
    case BN_RE_REPEAT: return bn_expr_repeat(b, plain(w, re->kid[0]), re->min, re->max);
    default: break;
    }
    if (re->kind == BN_RE_ALT && re->n == 0) return bn_expr_class(b, NULL, 0);
    for (uint32_t i = 0; i < re->n; i++) bn_exprs_add(b, &parts, plain(w, re->kid[i]));
    return bn_exprs_take(b, &parts, re->kind == BN_RE_ALT ? BN_EXPR_ALT : BN_EXPR_SEQ);
}

/* ------------------------------------------------------------------ automata */

/* Expressions of sets of symbols, each made once; those of several nodes are rules. */
struct sets {
    const struct writer *w;
    const struct bn_dfa *d;
    uint64_t *bits; /* [n][words] */
    const struct bn_expr **expr;
    size_t n, words, bits_room, expr_room;
};

static const struct bn_expr *set_expr(struct sets *s, const uint64_t *bits)
{
    struct bn_builder *b = s->w->b;
    for (size_t i = 0; i < s->n; i++)
        if (memcmp(s->bits + i * s->words, bits, s->words * sizeof *bits) == 0) return s->expr[i];
    struct bn_ranges r = {0};
    for (uint32_t i = 0; i < s->d->n_ranges; i++)
        if (bits[s->d->symbol[i] / 64] >> s->d->symbol[i] % 64 & 1)
            bn_ranges_add(b, &r, s->d->range[i].lo, s->d->range[i].hi);
    const struct bn_expr *e = s->w->write(s->w->user, &r);
    if (b->status == BITNET_OK && e->kind != BN_EXPR_BYTES) {
        uint32_t rule = bn_rule_add(b, "characters", 10);
        if (b->status != BITNET_OK) return NULL;
        b->rules[rule].expr = e;
        e = bn_expr_rule(b, rule);
    }
    if (!bn_grow((void **)&s->bits, &s->bits_room, (s->n + 1) * s->words, sizeof *s->bits) ||
        !bn_grow((void **)&s->expr, &s->expr_room, s->n + 1, sizeof *s->expr))
        bn_builder_nomem(b);
    if (b->status != BITNET_OK) return NULL;
    memcpy(s->bits + s->n * s->words, bits, s->words * sizeof *bits);
    return s->expr[s->n++] = e;
}

/* One edge to each state that comes next. todo: [n_symbols], bits: [words] */
static void add_edges(struct sets *s, struct bn_edges *edges, uint32_t state, bool *done,
                      uint64_t *bits)
{
    const struct bn_dfa *d = s->d;
    const uint32_t *next = d->next + (size_t)state * d->n_symbols;
    memset(done, 0, d->n_symbols * sizeof *done);
    for (uint32_t i = 0; i < d->n_symbols; i++) {
        if (done[i] || next[i] == BN_DFA_NONE) continue;
        memset(bits, 0, s->words * sizeof *bits);
        for (uint32_t k = i; k < d->n_symbols; k++) {
            if (next[k] != next[i]) continue;
            bits[k / 64] |= 1ull << k % 64;
            done[k] = true;
        }
        bn_edges_add(s->w->b, edges, state, next[i], set_expr(s, bits));
    }
}

const struct bn_expr *bn_dfa_expr(struct bn_builder *b, const struct bn_dfa *d, bn_re_writer *write,
                                  void *user)
{
    if (b->status != BITNET_OK) return NULL;
    if (d->n_states == 0) return bn_expr_class(b, NULL, 0);
    const struct writer w = {b, write, user};
    struct sets s = {.w = &w, .d = d, .words = (d->n_symbols + 63) / 64};
    struct bn_edges edges = {0};
    bool *done = bn_calloc(d->n_symbols, sizeof *done);
    uint64_t *bits = bn_calloc(s.words, sizeof *bits);
    if (!done || !bits) bn_builder_nomem(b);
    for (uint32_t i = 0; i < d->n_states && b->status == BITNET_OK; i++)
        add_edges(&s, &edges, i, done, bits);
    const struct bn_expr *e = bn_edges_take(b, &edges, d->final, d->n_states);
    free(done);
    free(bits);
    free(s.bits);
    free(s.expr);
    return e;
}

const struct bn_expr *bn_re_expr(struct bn_builder *b, const struct bn_re *re, bn_re_writer *write,
                                 void *user)
{
    if (b->status != BITNET_OK) return NULL;
    if (re->plain) return plain(&(struct writer){b, write, user}, re);
    const struct bn_dfa *d = bn_dfa_make(b, re);
    return d ? bn_dfa_expr(b, d, write, user) : NULL;
}
