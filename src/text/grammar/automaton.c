/* SPDX-License-Identifier: Apache-2.0
 * Deterministic automata. A state is a set of threads; a thread is a place in the tree's own automaton
 * and duties: looks that began on its way, each a state of a deterministic automaton of its own, made
 * first. A thread ends where a duty cannot be met any more; a text fits if a thread is at the end with
 * all its duties done. So looking ahead, what fits both of two trees, and what fits one and not the
 * other are the same thing. */
#include "text/grammar/automaton_impl.h"

#include "base/utf8.h"
#include <stdlib.h>

enum {
    MAX_STATES = 1 << 15,
    MAX_WORK = 1 << 26,   /* threads moved, in all automata of one tree */
    MAX_DUTIES = 1 << 15, /* different sets of them */
    MAX_DEPTH = 16,       /* of looks within looks */
    UNKNOWN = UINT32_MAX - 1
};

/* A look: an automaton that never gets stuck, and what its states are worth. */
struct total {
    uint32_t n_states;
    uint32_t *next; /* [n_states][n_symbols] */
    uint8_t *worth; /* [n_states] bits: */
};
enum { MET = 1, ALWAYS = 2, NEVER = 4 }; /* if the text ends here; however it goes on */

/* Lists of numbers, each kept once. */
struct lists {
    uint64_t *pool;
    size_t n_pool, pool_room;
    uint32_t *first; /* [n + 1] */
    size_t n, first_room;
    uint32_t *slots; /* 1 + list, by content */
    size_t n_slots;
};

struct maker {
    struct bn_builder *b;
    const struct bn_alphabet *a;
    struct bn_nfa nfa;
    struct total *looks; /* [3][BN_NFA_MAX_LOOKS], by what stands before */
    struct lists duties; /* list 0: none */
    struct lists
        threads;     /* of states: duty << 32 | nfa state; last: whether a letter came before */
    uint32_t *moved; /* [duties][n_symbols] */
    size_t moved_room;
    uint32_t *next; /* [states][n_symbols] */
    size_t next_room;
    uint8_t *final;
    size_t final_room;
    uint64_t *now; /* threads being gathered */
    size_t n_now, now_room;
    uint32_t *mark; /* by content of now */
    size_t n_marks;
    uint64_t *work; /* shared by the automata of a tree */
    int depth;
    bool at_start; /* the text begins here */
    bool letter;   /* before it stands a letter */
    bool large;
};

static bool fine(const struct maker *m) { return !m->large && m->b->status == BITNET_OK; }

static bool room_for(struct maker *m, void **v, size_t *room, size_t n, size_t size)
{
    if (fine(m) && !bn_grow(v, room, n, size)) bn_builder_nomem(m->b);
    return fine(m);
}

/* ------------------------------------------------------------------ lists */

static uint64_t hash_of(const uint64_t *v, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15u + n;
    for (size_t i = 0; i < n; i++) h = (h ^ v[i]) * 0xff51afd7ed558ccdu, h ^= h >> 29;
    return h;
}

static bool more_slots(struct maker *m, struct lists *l)
{
    size_t n = l->n_slots ? 2 * l->n_slots : 256;
    uint32_t *slots = bn_calloc(n, sizeof *slots);
    if (!slots) return bn_builder_nomem(m->b);
    for (size_t i = 0; i < l->n; i++) {
        size_t at = hash_of(l->pool + l->first[i], l->first[i + 1] - l->first[i]) % n;
        while (slots[at]) at = (at + 1) % n;
        slots[at] = (uint32_t)i + 1;
    }
    free(l->slots);
    l->slots = slots;
    l->n_slots = n;
    return true;
}

/* The list with this content, new if it has to be. */
static uint32_t list_of(struct maker *m, struct lists *l, const uint64_t *v, size_t n)
{
    if (2 * (l->n + 1) > l->n_slots && !more_slots(m, l)) return 0;
    size_t at = hash_of(v, n) % l->n_slots;
    for (; l->slots[at]; at = (at + 1) % l->n_slots) {
        uint32_t i = l->slots[at] - 1;
        if (l->first[i + 1] - l->first[i] == n &&
            (n == 0 || memcmp(l->pool + l->first[i], v, n * sizeof *v) == 0))
            return i;
    }
    if (!room_for(m, (void **)&l->pool, &l->pool_room, l->n_pool + n + 1, sizeof *l->pool) ||
        !room_for(m, (void **)&l->first, &l->first_room, l->n + 2, sizeof *l->first))
        return 0;
    l->first[0] = 0;
    if (n) memcpy(l->pool + l->n_pool, v, n * sizeof *v);
    l->n_pool += n;
    l->slots[at] = (uint32_t)++l->n;
    l->first[l->n] = (uint32_t)l->n_pool;
    return (uint32_t)l->n - 1;
}

static void free_lists(struct lists *l)
{
    free(l->pool);
    free(l->first);
    free(l->slots);
}

static int by_number(const void *x, const void *y)
{
    uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* In order, each once; how many. */
static size_t in_order(uint64_t *v, size_t n)
{
    size_t k = 0;
    if (n > 1) qsort(v, n, sizeof *v, by_number);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || v[i] != v[k - 1]) v[k++] = v[i];
    return k;
}

/* ------------------------------------------------------------------ duties */

static const struct total *look_at(struct maker *m, uint32_t look);
enum { MAX_LIST = BN_NFA_MAX_LOOKS * 4 };

/* What stands before a look, where it makes a difference. */
enum { AT_START, AFTER_LETTER, AFTER_OTHER };

static bool knows_place(const struct bn_re *re)
{
    if (re->kind == BN_RE_START || re->kind == BN_RE_EDGE || re->kind == BN_RE_NOT_EDGE)
        return true;
    for (uint32_t i = 0; re->kind != BN_RE_SET && i < re->n; i++)
        if (knows_place(re->kid[i])) return true;
    return false;
}

static uint32_t variant_of(const struct maker *m, uint32_t look)
{
    if (!knows_place(m->nfa.looks[look].re)) return AFTER_OTHER;
    return m->at_start ? AT_START : m->letter ? AFTER_LETTER : AFTER_OTHER;
}

/* A duty is look << 32 | variant << 60 | state of the look's automaton. */
static const struct total *total_of(const struct maker *m, uint64_t duty)
{
    return &m->looks[(duty >> 60) * BN_NFA_MAX_LOOKS + (duty >> 32 & 0xfff)];
}

/* The list without what is met however the text goes on; BN_DFA_NONE: one cannot be met. */
static uint32_t duties_of(struct maker *m, uint64_t *v, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t worth = total_of(m, v[i])->worth[(uint32_t)v[i]];
        if (worth & NEVER) return BN_DFA_NONE;
        if (!(worth & ALWAYS)) v[k++] = v[i];
    }
    uint32_t list = list_of(m, &m->duties, v, in_order(v, k));
    if (list >= MAX_DUTIES) m->large = true;
    return list;
}

static size_t copy_duties(struct maker *m, uint32_t list, uint64_t *out)
{
    size_t n = m->duties.first[list + 1] - m->duties.first[list];
    if (n + 1 > MAX_LIST) {
        m->large = true;
        return 0;
    }
    if (n) memcpy(out, m->duties.pool + m->duties.first[list], n * sizeof *out);
    return n;
}

static uint32_t with_look(struct maker *m, uint32_t list, uint32_t look)
{
    uint64_t v[MAX_LIST];
    size_t n = copy_duties(m, list, v);
    if (!look_at(m, look) || !fine(m)) return BN_DFA_NONE;
    v[n++] = (uint64_t)variant_of(m, look) << 60 | (uint64_t)look << 32;
    return duties_of(m, v, n);
}

static uint32_t after_symbol(struct maker *m, uint32_t list, uint32_t symbol)
{
    uint64_t v[MAX_LIST];
    size_t at = (size_t)list * m->a->n_symbols + symbol, old = m->moved_room;
    if (!room_for(m, (void **)&m->moved, &m->moved_room, at + 1, sizeof *m->moved))
        return BN_DFA_NONE;
    for (; old < m->moved_room; old++) m->moved[old] = UNKNOWN;
    if (m->moved[at] != UNKNOWN) return m->moved[at];
    size_t n = copy_duties(m, list, v);
    for (size_t i = 0; i < n; i++) {
        const struct total *t = total_of(m, v[i]);
        uint64_t state = t->next[(size_t)(uint32_t)v[i] * m->a->n_symbols + symbol];
        v[i] = (v[i] & ~(uint64_t)UINT32_MAX) | state;
    }
    return m->moved[at] = fine(m) ? duties_of(m, v, n) : BN_DFA_NONE;
}

static bool all_met(const struct maker *m, uint32_t list)
{
    for (uint32_t i = m->duties.first[list]; i < m->duties.first[list + 1]; i++)
        if (!(total_of(m, m->duties.pool[i])->worth[(uint32_t)m->duties.pool[i]] & MET))
            return false;
    return true;
}

/* ------------------------------------------------------------------ states */

/* Adds a thread to those of now, once. */
static bool add_thread(struct maker *m, uint32_t state, uint32_t duties)
{
    uint64_t t = (uint64_t)duties << 32 | state;
    if (2 * (m->n_now + 1) > m->n_marks) {
        size_t n = m->n_marks ? 2 * m->n_marks : 64;
        uint32_t *mark = bn_calloc(n, sizeof *mark);
        if (!mark) return bn_builder_nomem(m->b);
        for (size_t i = 0; i < m->n_now; i++) {
            size_t at = hash_of(&m->now[i], 1) % n;
            while (mark[at]) at = (at + 1) % n;
            mark[at] = (uint32_t)i + 1;
        }
        free(m->mark);
        m->mark = mark;
        m->n_marks = n;
    }
    size_t at = hash_of(&t, 1) % m->n_marks;
    for (; m->mark[at]; at = (at + 1) % m->n_marks)
        if (m->now[m->mark[at] - 1] == t) return false;
    if (!room_for(m, (void **)&m->now, &m->now_room, m->n_now + 1, sizeof *m->now)) return false;
    m->now[m->n_now++] = t;
    m->mark[at] = (uint32_t)m->n_now;
    if (++*m->work > MAX_WORK) m->large = true;
    return fine(m);
}

/* Follows what needs no character; the list of threads grows while it is read. */
static void close_threads(struct maker *m)
{
    for (size_t i = 0; i < m->n_now && fine(m); i++) {
        uint32_t duties = (uint32_t)(m->now[i] >> 32);
        const struct bn_nfa_state s = m->nfa.states[(uint32_t)m->now[i]];
        uint32_t next = duties;
        switch ((enum bn_nfa_kind)s.kind) {
        case BN_NFA_CHAR:
        case BN_NFA_MATCH: continue;
        case BN_NFA_FORK: add_thread(m, s.a, duties); break;
        case BN_NFA_LOOK: next = with_look(m, duties, s.a); break;
        case BN_NFA_EDGE: next = with_look(m, duties, s.a + !m->letter); break;
        case BN_NFA_START: next = m->at_start ? duties : BN_DFA_NONE; break;
        }
        if (next != BN_DFA_NONE && fine(m)) add_thread(m, s.b, next);
    }
}

/* The state of the threads of now. */
static uint32_t state_of_now(struct maker *m)
{
    bool final = false;
    size_t n = 0;
    close_threads(m);
    for (size_t i = 0; i < m->n_now && fine(m); i++) {
        uint8_t kind = m->nfa.states[(uint32_t)m->now[i]].kind;
        if (kind == BN_NFA_MATCH && all_met(m, (uint32_t)(m->now[i] >> 32))) final = true;
        if (kind == BN_NFA_CHAR || kind == BN_NFA_MATCH) m->now[n++] = m->now[i];
    }
    n = in_order(m->now, n);
    if (m->n_marks) memset(m->mark, 0, m->n_marks * sizeof *m->mark);
    m->n_now = 0;
    if (n == 0 || !fine(m)) return BN_DFA_NONE;
    if (m->nfa.edges) {
        if (!room_for(m, (void **)&m->now, &m->now_room, n + 1, sizeof *m->now)) return BN_DFA_NONE;
        m->now[n++] = UINT64_MAX - m->letter;
    }
    uint32_t state = list_of(m, &m->threads, m->now, n);
    if (state >= MAX_STATES) m->large = true;
    if (!room_for(m, (void **)&m->final, &m->final_room, (size_t)state + 1, 1)) return BN_DFA_NONE;
    m->final[state] = final;
    return state;
}

static void step(struct maker *m, uint32_t state, uint32_t symbol)
{
    for (uint32_t i = m->threads.first[state]; i < m->threads.first[state + 1] && fine(m); i++) {
        uint64_t t = m->threads.pool[i];
        if (t >= UINT64_MAX - 1) continue;
        const struct bn_nfa_state s = m->nfa.states[(uint32_t)t];
        if (s.kind != BN_NFA_CHAR || !m->nfa.sets[s.a][symbol]) continue;
        uint32_t duties = after_symbol(m, (uint32_t)(t >> 32), symbol);
        if (duties != BN_DFA_NONE && fine(m)) add_thread(m, s.b, duties);
    }
    m->letter = bn_is_letter(m->a->example[symbol]);
    uint32_t next = state_of_now(m);
    if (fine(m)) m->next[(size_t)state * m->a->n_symbols + symbol] = next;
}

/* All states; what can never fit has none. */
static void make_states(struct maker *m, const struct bn_re *re)
{
    size_t k = m->a->n_symbols;
    m->looks = bn_calloc((size_t)3 * BN_NFA_MAX_LOOKS, sizeof *m->looks);
    if (!m->looks) bn_builder_nomem(m->b);
    if (!fine(m)) return;
    if (!bn_nfa_make(&m->nfa, m->b, m->a, re)) {
        m->large = m->large || m->nfa.large;
        return;
    }
    list_of(m, &m->duties, NULL, 0);
    add_thread(m, m->nfa.start, 0);
    state_of_now(m);
    m->at_start = false;
    for (uint32_t s = 0; s < m->threads.n && fine(m); s++) {
        if (!room_for(m, (void **)&m->next, &m->next_room, (s + 1) * k, sizeof *m->next)) return;
        for (uint32_t c = 0; c < k && fine(m); c++) step(m, s, c);
    }
}

static void free_maker(struct maker *m)
{
    for (size_t i = 0; m->looks && i < (size_t)3 * BN_NFA_MAX_LOOKS; i++) {
        free(m->looks[i].next);
        free(m->looks[i].worth);
    }
    bn_nfa_free(&m->nfa);
    free_lists(&m->duties);
    free_lists(&m->threads);
    free(m->looks);
    free(m->moved);
    free(m->next);
    free(m->final);
    free(m->now);
    free(m->mark);
}

/* States from which a marked one can be reached become marked, too. */
static bool spread(struct maker *m, size_t n, uint8_t *marked)
{
    size_t edges = n * m->a->n_symbols;
    uint32_t *head = bn_calloc(n + 1, sizeof *head); /* 1 + an edge that leads here */
    uint32_t *link = bn_calloc(edges + 1, sizeof *link), *todo = bn_calloc(n + 1, sizeof *todo);
    bool ok = head && link && todo;
    size_t n_todo = 0;
    for (size_t i = 0; ok && i < edges; i++) {
        if (m->next[i] == BN_DFA_NONE) continue;
        link[i] = head[m->next[i]];
        head[m->next[i]] = (uint32_t)i + 1;
    }
    for (size_t i = 0; ok && i < n; i++)
        if (marked[i]) todo[n_todo++] = (uint32_t)i;
    while (ok && n_todo) {
        for (uint32_t e = head[todo[--n_todo]]; e; e = link[e - 1]) {
            uint32_t from = (e - 1) / m->a->n_symbols;
            if (marked[from]) continue;
            marked[from] = 1;
            todo[n_todo++] = from;
        }
    }
    free(head);
    free(link);
    free(todo);
    return ok || bn_builder_nomem(m->b);
}

/* ------------------------------------------------------------------ looks */

/* The states and one more where nothing fits; spread over them all, whence what each is worth. */
static void make_total(struct maker *sub, struct total *t, bool not )
{
    size_t n = sub->threads.n, k = sub->a->n_symbols;
    uint8_t *fit = bn_calloc(2 * n + 2, 1), *unfit = fit ? fit + n + 1 : NULL;
    t->next = bn_calloc((n + 1) * k, sizeof *t->next);
    t->worth = bn_calloc(n + 1, 1);
    if (!fit || !t->next || !t->worth ||
        !room_for(sub, (void **)&sub->next, &sub->next_room, (n + 1) * k, sizeof *sub->next)) {
        free(fit);
        bn_builder_nomem(sub->b);
        return;
    }
    for (size_t i = 0; i < (n + 1) * k; i++)
        if (i >= n * k || sub->next[i] == BN_DFA_NONE) sub->next[i] = (uint32_t)n;
    for (size_t i = 0; i <= n; i++) {
        fit[i] = i < n && sub->final[i];
        unfit[i] = !fit[i];
        if (fit[i] != not ) t->worth[i] |= MET;
    }
    if (spread(sub, n + 1, fit) && spread(sub, n + 1, unfit))
        for (size_t i = 0; i <= n; i++) {
            if (!unfit[i]) t->worth[i] |= not ? NEVER : ALWAYS;
            if (!fit[i]) t->worth[i] |= not ? ALWAYS : NEVER;
        }
    memcpy(t->next, sub->next, (n + 1) * k * sizeof *t->next);
    t->n_states = (uint32_t)n + 1;
    free(fit);
}

/* The automaton of a look that begins here, made when it is first needed. */
static const struct total *look_at(struct maker *m, uint32_t look)
{
    uint32_t variant = variant_of(m, look);
    struct total *t = &m->looks[variant * BN_NFA_MAX_LOOKS + look];
    if (t->n_states) return t;
    if (m->depth == MAX_DEPTH) {
        m->large = true;
        return NULL;
    }
    struct bn_builder *b = m->b;
    const struct bn_re *rest = bn_re_repeat(b, bn_re_any(b), 0, BN_GRAMMAR_UNLIMITED);
    const struct bn_re *re = bn_re_pair(b, BN_RE_SEQ, m->nfa.looks[look].re, rest);
    struct maker sub = {.b = b,
                        .a = m->a,
                        .work = m->work,
                        .depth = m->depth + 1,
                        .at_start = variant == AT_START,
                        .letter = variant == AFTER_LETTER};
    if (fine(m)) make_states(&sub, re);
    if (fine(m) && fine(&sub)) make_total(&sub, t, m->nfa.looks[look].not );
    m->large = m->large || sub.large;
    free_maker(&sub);
    return fine(m) ? t : NULL;
}

/* ------------------------------------------------------------------ the automaton */

/* States that can be finished, in their old order. */
static struct bn_dfa *take_states(struct maker *m)
{
    struct bn_builder *b = m->b;
    size_t n = m->threads.n, k = m->a->n_symbols, live = 0;
    uint8_t *marked = bn_calloc(n + 1, 1);
    uint32_t *number = bn_calloc(n + 1, sizeof *number);
    struct bn_dfa *d = bn_arena_alloc(&b->arena, sizeof *d);
    bool ok = marked && number && d;
    if (ok && n) memcpy(marked, m->final, n);
    ok = ok && spread(m, n, marked);
    for (size_t i = 0; ok && i < n; i++) number[i] = marked[i] ? (uint32_t)live++ : BN_DFA_NONE;
    if (ok && (n == 0 || !marked[0])) live = 0;
    if (ok) *d = (struct bn_dfa){.n_states = (uint32_t)live, .n_symbols = m->a->n_symbols};
    if (ok) {
        d->n_ranges = m->a->n;
        d->range = m->a->range;
        d->symbol = m->a->symbol;
        d->next = bn_arena_alloc(&b->arena, (live + 1) * k * sizeof *d->next);
        d->final = bn_arena_alloc(&b->arena, (live + 1) * sizeof *d->final);
        ok = d->next && d->final;
    }
    for (size_t i = 0; ok && live && i < n; i++) {
        if (number[i] == BN_DFA_NONE) continue;
        d->final[number[i]] = m->final[i];
        for (size_t c = 0; c < k; c++) {
            uint32_t next = m->next[i * k + c];
            d->next[number[i] * k + c] = next == BN_DFA_NONE ? BN_DFA_NONE : number[next];
        }
    }
    free(marked);
    free(number);
    if (!ok) bn_builder_nomem(b);
    return ok ? d : NULL;
}

const struct bn_dfa *bn_dfa_make(struct bn_builder *b, const struct bn_re *re)
{
    struct bn_alphabet a;
    uint64_t work = 0;
    if (b->status != BITNET_OK || !bn_alphabet_make(&a, b, re)) return NULL;
    struct maker m = {.b = b, .a = &a, .work = &work, .at_start = true};
    make_states(&m, re);
    struct bn_dfa *d = fine(&m) ? take_states(&m) : NULL;
    free_maker(&m);
    return d;
}

bool bn_dfa_accepts(const struct bn_dfa *d, const char *text, size_t n)
{
    uint32_t state = 0;
    for (size_t i = 0; i < n && d->n_states;) {
        uint32_t c = 0, lo = 0, hi = d->n_ranges;
        size_t len = bn_utf8_decode(text + i, n - i, &c);
        if (len == 0) return false;
        i += len;
        while (hi - lo > 1) {
            uint32_t mid = (lo + hi) / 2;
            if (d->range[mid].lo <= c) lo = mid;
            else hi = mid;
        }
        state = d->next[(size_t)state * d->n_symbols + d->symbol[lo]];
        if (state == BN_DFA_NONE) return false;
    }
    return d->n_states && d->final[state];
}

/* By breadth for the shortest; the longest from the states that lead nowhere, backwards, if those
 * that are left make no circle. */
void bn_dfa_lengths(struct bn_builder *b, const struct bn_dfa *d, uint32_t *least, uint32_t *most)
{
    size_t n = d->n_states, k = d->n_symbols, n_todo = 0;
    uint32_t *depth = bn_calloc(3 * n + 1, sizeof *depth), *todo = depth ? depth + n : NULL;
    uint32_t *into = depth ? depth + 2 * n : NULL; /* edges that lead to a state */
    *least = *most = BN_GRAMMAR_UNLIMITED;
    if (!depth) bn_builder_nomem(b);
    if (!depth || n == 0) {
        free(depth);
        return;
    }
    for (size_t i = 1; i < n; i++) depth[i] = BN_GRAMMAR_UNLIMITED;
    todo[n_todo++] = 0;
    for (size_t i = 0; i < n_todo; i++)
        for (size_t c = 0; c < k; c++) {
            uint32_t next = d->next[todo[i] * k + c];
            if (next == BN_DFA_NONE) continue;
            into[next]++;
            if (depth[next] != BN_GRAMMAR_UNLIMITED) continue;
            depth[next] = depth[todo[i]] + 1;
            todo[n_todo++] = next;
        }
    for (size_t i = 0; i < n; i++)
        if (d->final[i] && depth[i] < *least) *least = depth[i];
    uint32_t longest = 0;
    n_todo = 0;
    memset(depth, 0, n * sizeof *depth);
    if (into[0] == 0) todo[n_todo++] = 0;
    for (size_t i = 0; i < n_todo; i++) {
        if (d->final[todo[i]] && depth[todo[i]] > longest) longest = depth[todo[i]];
        for (size_t c = 0; c < k; c++) {
            uint32_t next = d->next[todo[i] * k + c];
            if (next == BN_DFA_NONE) continue;
            if (depth[todo[i]] + 1 > depth[next]) depth[next] = depth[todo[i]] + 1;
            if (--into[next] == 0) todo[n_todo++] = next;
        }
    }
    if (n_todo == n) *most = longest;
    free(depth);
}
