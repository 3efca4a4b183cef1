/* SPDX-License-Identifier: Apache-2.0
 * Trees to nondeterministic automata, built from the end: every state is made after those it leads
 * to. */
#include "text/grammar/automaton_impl.h"

#include <stdlib.h>

enum { MAX_CHAR = 0x10ffff };

bool bn_is_letter(uint32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}

/* ------------------------------------------------------------------ the alphabet */

struct marks {
    uint32_t *v; /* where sets begin, and the characters behind their ends */
    size_t n, room;
};

static void add_marks(struct bn_builder *b, struct marks *m, const struct bn_re *re)
{
    size_t n = re->kind == BN_RE_SET ? 2 * (size_t)re->n : 0;
    if (!bn_grow((void **)&m->v, &m->room, m->n + n + 1, sizeof *m->v)) {
        bn_builder_nomem(b);
        return;
    }
    for (size_t i = 0; i < n; i++)
        m->v[m->n++] = i % 2 ? re->range[i / 2].hi + 1 : re->range[i / 2].lo;
    for (uint32_t i = 0; re->kind != BN_RE_SET && i < re->n && b->status == BITNET_OK; i++)
        add_marks(b, m, re->kid[i]);
}

static int by_value(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static bool set_has(const struct bn_re *set, uint32_t c)
{
    uint32_t lo = 0, hi = set->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (set->range[mid].hi < c) lo = mid + 1;
        else hi = mid;
    }
    return lo < set->n && set->range[lo].lo <= c;
}

/* Splits the classes by one set: those that it has parts of become two. */
static bool split(struct bn_alphabet *a, const struct bn_re *set)
{
    uint16_t fresh[BN_DFA_MAX_SYMBOLS] = {0};
    bool outside[BN_DFA_MAX_SYMBOLS] = {false};
    uint32_t before = a->n_symbols;
    for (uint32_t i = 0; i < a->n; i++)
        if (!set_has(set, a->range[i].lo)) outside[a->symbol[i]] = true;
    for (uint32_t i = 0; i < a->n; i++) {
        uint16_t s = a->symbol[i];
        if (s >= before || !outside[s] || !set_has(set, a->range[i].lo)) continue;
        if (!fresh[s]) {
            if (a->n_symbols == BN_DFA_MAX_SYMBOLS) return false;
            fresh[s] = (uint16_t)a->n_symbols++;
        }
        a->symbol[i] = fresh[s];
    }
    return true;
}

static bool split_all(struct bn_alphabet *a, const struct bn_re *re)
{
    if (re->kind == BN_RE_SET) return split(a, re);
    for (uint32_t i = 0; i < re->n; i++)
        if (!split_all(a, re->kid[i])) return false;
    return true;
}

/* Single characters of a text are sets, too: equal ones split only once in effect, so the time is the
 * number of sets times that of ranges. */
bool bn_alphabet_make(struct bn_alphabet *a, struct bn_builder *b, const struct bn_re *re)
{
    static const struct bn_range words[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    const struct bn_re letters = {
        .kind = BN_RE_SET, .n = BN_ARRAY_LEN(words), .range = words, .plain = true};
    struct marks m = {0};
    *a = (struct bn_alphabet){.n_symbols = 1};
    add_marks(b, &m, re);
    add_marks(b, &m, &letters);
    if (b->status == BITNET_OK && bn_grow((void **)&m.v, &m.room, m.n + 1, sizeof *m.v))
        m.v[m.n++] = 0;
    a->range = bn_arena_alloc(&b->arena, (m.n + 1) * sizeof *a->range);
    a->symbol = bn_arena_alloc(&b->arena, (m.n + 1) * sizeof *a->symbol);
    if (!a->range || !a->symbol) bn_builder_nomem(b);
    if (b->status == BITNET_OK) {
        qsort(m.v, m.n, sizeof *m.v, by_value);
        for (size_t i = 0; i < m.n; i++) {
            if (m.v[i] > MAX_CHAR || (i > 0 && m.v[i] == m.v[i - 1])) continue;
            if (a->n > 0) a->range[a->n - 1].hi = m.v[i] - 1;
            a->range[a->n] = (struct bn_range){m.v[i], MAX_CHAR};
            a->symbol[a->n++] = 0;
        }
    }
    free(m.v);
    if (b->status != BITNET_OK || !split_all(a, re) || !split(a, &letters)) return false;
    a->example = bn_arena_alloc(&b->arena, a->n_symbols * sizeof *a->example);
    if (!a->example) return bn_builder_nomem(b);
    for (uint32_t i = 0; i < a->n; i++) a->example[a->symbol[i]] = a->range[i].lo;
    return true;
}

/* ------------------------------------------------------------------ states */

static uint32_t add_state(struct bn_nfa *n, enum bn_nfa_kind kind, uint32_t a, uint32_t b)
{
    if (n->large || n->b->status != BITNET_OK) return 0;
    if (n->n_states == BN_NFA_MAX_STATES) {
        n->large = true;
        return 0;
    }
    if (!bn_grow((void **)&n->states, &n->state_room, n->n_states + 1, sizeof *n->states))
        return bn_builder_nomem(n->b), 0;
    n->states[n->n_states] = (struct bn_nfa_state){(uint8_t)kind, a, b};
    return (uint32_t)n->n_states++;
}

static uint32_t add_set(struct bn_nfa *n, const struct bn_re *re)
{
    const struct bn_alphabet *a = n->alphabet;
    for (size_t i = 0; i < n->n_sets; i++)
        if (n->set_of[i] == re) return (uint32_t)i;
    uint8_t *set = bn_calloc(a->n_symbols, 1);
    if (!set || !bn_grow((void **)&n->sets, &n->set_room, n->n_sets + 1, sizeof *n->sets) ||
        !bn_grow((void **)&n->set_of, &n->set_of_room, n->n_sets + 1, sizeof *n->set_of)) {
        free(set);
        return bn_builder_nomem(n->b), 0;
    }
    for (uint32_t i = 0; i < a->n_symbols; i++) set[i] = set_has(re, a->example[i]);
    n->sets[n->n_sets] = set;
    n->set_of[n->n_sets] = re;
    return (uint32_t)n->n_sets++;
}

static uint32_t add_look(struct bn_nfa *n, const struct bn_re *re, bool not )
{
    for (uint32_t i = 0; i < n->n_looks; i++)
        if (n->looks[i].re == re && n->looks[i].not == not ) return i;
    if (n->n_looks == BN_NFA_MAX_LOOKS) {
        n->large = true;
        return 0;
    }
    n->looks[n->n_looks] = (struct bn_look){re, not };
    return n->n_looks++;
}

static uint32_t build(struct bn_nfa *n, const struct bn_re *re, uint32_t next);

static uint32_t build_repeat(struct bn_nfa *n, const struct bn_re *re, uint32_t next)
{
    uint32_t at = next;
    if (re->max == BN_GRAMMAR_UNLIMITED) {
        at = add_state(n, BN_NFA_FORK, 0, next);
        uint32_t body = build(n, re->kid[0], at);
        if (!n->large && n->b->status == BITNET_OK) n->states[at].a = body;
    } else {
        for (uint32_t i = re->min; i < re->max && !n->large && n->b->status == BITNET_OK; i++)
            at = add_state(n, BN_NFA_FORK, build(n, re->kid[0], at), next);
    }
    for (uint32_t i = 0; i < re->min && !n->large && n->b->status == BITNET_OK; i++)
        at = build(n, re->kid[0], at);
    return at;
}

static uint32_t build(struct bn_nfa *n, const struct bn_re *re, uint32_t next)
{
    if (n->large || n->b->status != BITNET_OK) return 0;
    uint32_t at = next;
    switch (re->kind) {
    case BN_RE_SET: return add_state(n, BN_NFA_CHAR, add_set(n, re), next);
    case BN_RE_SEQ:
        for (uint32_t i = re->n; i-- > 0;) at = build(n, re->kid[i], at);
        return at;
    case BN_RE_ALT:
        if (re->n == 0)
            return add_state(n, BN_NFA_LOOK,
                             add_look(n, bn_re_list(n->b, BN_RE_SEQ, NULL, 0), true), next);
        at = build(n, re->kid[re->n - 1], next);
        for (uint32_t i = re->n - 1; i-- > 0;)
            at = add_state(n, BN_NFA_FORK, build(n, re->kid[i], next), at);
        return at;
    case BN_RE_REPEAT: return build_repeat(n, re, next);
    case BN_RE_AHEAD:
    case BN_RE_NOT_AHEAD:
        return add_state(n, BN_NFA_LOOK, add_look(n, re->kid[0], re->kind == BN_RE_NOT_AHEAD),
                         next);
    case BN_RE_START: return add_state(n, BN_NFA_START, 0, next);
    case BN_RE_END: return add_state(n, BN_NFA_LOOK, add_look(n, bn_re_any(n->b), true), next);
    case BN_RE_EDGE:
    case BN_RE_NOT_EDGE: {
        n->edges = true;
        const struct bn_re *word = bn_re_known(n->b, "[A-Za-z0-9_]");
        uint32_t look = n->n_looks;
        add_look(n, word, re->kind == BN_RE_EDGE);
        add_look(n, word, re->kind != BN_RE_EDGE);
        return add_state(n, BN_NFA_EDGE, look, next);
    }
    }
    return 0;
}

bool bn_nfa_make(struct bn_nfa *n, struct bn_builder *b, const struct bn_alphabet *a,
                 const struct bn_re *re)
{
    *n = (struct bn_nfa){.b = b, .alphabet = a};
    n->start = build(n, re, add_state(n, BN_NFA_MATCH, 0, 0));
    return !n->large && b->status == BITNET_OK;
}

void bn_nfa_free(struct bn_nfa *n)
{
    for (size_t i = 0; i < n->n_sets; i++) free(n->sets[i]);
    free(n->sets);
    free(n->set_of);
    free(n->states);
}
