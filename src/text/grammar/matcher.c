/* SPDX-License-Identifier: Apache-2.0
 * One text's place in a grammar, and the tokens that may come next.
 *
 * A mask comes from up to three sources: masks seen a moment ago for the same stacks (`recent`);
 * masks of loops, made with the grammar, to which only the tokens that leave the loop's rule are
 * added; and a walk over the token tree for the rest. Masks of loops treat stacks one by one, so the
 * sum of what they needed is compared with the limits. Where all stacks together might meet a limit,
 * they are walked together; where they do, each token is tried as bn_matcher_accept would take it. So
 * mask and accept never differ. */
#include "text/grammar/grammar_impl.h"

#include <stdlib.h>

enum { N_RECENT = 8, MAX_KEY = 256 };

struct recent {
    uint64_t key[MAX_KEY]; /* the stacks, then their frames */
    uint32_t n_key, n_set; /* n_key 0: free */
    uint64_t used;         /* when */
    uint64_t *mask;
    uint32_t n_allowed;
};

struct bn_matcher {
    const struct bn_grammar *g;
    struct bn_stacks stacks;
    struct bn_walk walk;
    bn_config *set, *next; /* where the text is; scratch for steps */
    uint32_t n_set;
    bool complete; /* the text may end here */
    bool finished; /* and nothing can follow */
    bool ended;    /* by a token that ends texts */
    uint64_t clock;
    struct recent recent[N_RECENT];
    uint64_t *masks;   /* of recent, and: */
    uint64_t *shorter; /* scratch for one */
};

/* What the stacks of a text might come to, taken together. */
struct need {
    uint32_t width, frames;
};

static void close_set(struct bn_matcher *m)
{
    m->stacks.overflow = false;
    bn_stacks_close(&m->stacks, m->set, m->n_set);
}

/* Whether the text may or must end where the stacks were closed last. */
static void note_end(struct bn_matcher *m)
{
    const struct bn_stacks *s = &m->stacks;
    m->complete = m->finished = s->complete;
    for (uint32_t i = 0; i < s->n_open && m->finished; i++)
        m->finished = m->g->nodes[bn_config_node(s->open[i])].kind != BN_NODE_BYTES;
}

/* ------------------------------------------------------------------ open */

bitnet_status bn_matcher_open(struct bn_matcher **out, const struct bn_grammar *g,
                              bitnet_error *err)
{
    *out = NULL;
    struct bn_matcher *m = bn_calloc(1, sizeof *m);
    if (!m) return bn_fail_nomem(err, sizeof *m, "a matcher");
    m->g = g;
    size_t words = g->tree->n_words;
    bool ok = bn_stacks_init(&m->stacks, g);
    ok = bn_walk_init(&m->walk, &m->stacks) && ok;
    m->set = bn_calloc(BN_GRAMMAR_MAX_STACKS, sizeof *m->set);
    m->next = bn_calloc(BN_GRAMMAR_MAX_STACKS, sizeof *m->next);
    m->masks = bn_calloc((N_RECENT + 1) * words + 1, sizeof *m->masks);
    if (!ok || !m->set || !m->next || !m->masks) {
        bn_matcher_close(m);
        return bn_fail_nomem(err, N_RECENT * words * sizeof *m->masks, "a matcher");
    }
    for (size_t i = 0; i < N_RECENT; i++) m->recent[i].mask = m->masks + i * words;
    m->shorter = m->masks + N_RECENT * words;
    m->set[m->n_set++] = bn_config_make(g->root, 0);
    close_set(m);
    note_end(m);
    bn_stacks_truncate(&m->stacks, 1);
    *out = m;
    return BITNET_OK;
}

void bn_matcher_close(struct bn_matcher *m)
{
    if (!m) return;
    bn_walk_free(&m->walk);
    bn_stacks_free(&m->stacks);
    free(m->set);
    free(m->next);
    free(m->masks);
    free(m);
}

/* ------------------------------------------------------------------ tokens one by one */

/* Where the bytes lead from the text's place: m->next, closed; how many stacks, 0: nowhere. Leaves
 * new frames behind. */
static uint32_t follow(struct bn_matcher *m, const char *p, size_t n)
{
    uint32_t n_next = 0;
    close_set(m);
    for (size_t i = 0; i < n; i++) {
        n_next = bn_stacks_step(&m->stacks, (uint8_t)p[i], m->next);
        if (n_next == 0) return 0;
        bn_stacks_close(&m->stacks, m->next, n_next);
    }
    return m->stacks.overflow ? 0 : n_next;
}

bool bn_matcher_allows(struct bn_matcher *m, int32_t token)
{
    size_t n;
    if (m->ended) return false;
    const char *p = bn_token_text(m->g->tree, token, &n);
    if (!p) return bn_token_is_end(m->g->tree->tokenizer, token) && m->complete;
    uint32_t frames = m->stacks.n_frames;
    bool allowed = follow(m, p, n) > 0;
    bn_stacks_truncate(&m->stacks, frames);
    return allowed;
}

bool bn_matcher_accept(struct bn_matcher *m, int32_t token)
{
    size_t n;
    if (m->ended) return false;
    const char *p = bn_token_text(m->g->tree, token, &n);
    if (!p) return m->ended = bn_matcher_allows(m, token);
    uint32_t frames = m->stacks.n_frames, n_next = follow(m, p, n);
    if (n_next == 0) {
        bn_stacks_truncate(&m->stacks, frames);
        return false;
    }
    note_end(m);
    bn_config *old = m->set;
    m->set = m->next;
    m->next = old;
    m->n_set = n_next;
    bn_stacks_collect(&m->stacks, m->set, n_next);
    return true;
}

bool bn_matcher_done(const struct bn_matcher *m) { return m->ended || m->finished; }

/* ------------------------------------------------------------------ the way to the end */

static uint32_t lowest_cost(const struct bn_stacks *s, const bn_config *set, uint32_t n,
                            bn_config *which)
{
    uint32_t lowest = BN_NO_COST;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t cost = bn_stacks_cost(s, set[i]);
        if (cost >= lowest) continue;
        lowest = cost;
        *which = set[i];
    }
    return lowest;
}

uint32_t bn_matcher_cost(const struct bn_matcher *m)
{
    bn_config which;
    return m->complete ? 0 : lowest_cost(&m->stacks, m->set, m->n_set, &which);
}

uint32_t bn_matcher_cost_after(struct bn_matcher *m, int32_t token)
{
    size_t n;
    const char *p = bn_token_text(m->g->tree, token, &n);
    if (m->ended || !p) return bn_matcher_allows(m, token) ? 0 : BN_NO_COST;
    uint32_t frames = m->stacks.n_frames, n_next = follow(m, p, n);
    bn_config which;
    uint32_t cost =
        n_next && m->stacks.complete ? 0 : lowest_cost(&m->stacks, m->next, n_next, &which);
    bn_stacks_truncate(&m->stacks, frames);
    return cost;
}

/* Tokens along the cheapest way from here that leave a text which `left` more can end. */
static bool add_cheapest(struct bn_matcher *m, bn_config c, uint32_t left, uint64_t *mask)
{
    const struct bn_token_tree *t = m->g->tree;
    bool any = false;
    for (uint32_t at = 0;;) {
        c = bn_stacks_cheapest(&m->stacks, c);
        const struct bn_node *node = &m->g->nodes[bn_config_node(c)];
        if (node->kind != BN_NODE_BYTES) return any;
        at = bn_token_tree_child(t, at, (uint8_t)m->g->chosen[node->a]);
        if (!at) return any;
        for (uint32_t k = t->first[at]; k < t->first[at + 1]; k++) {
            if (bn_matcher_cost_after(m, t->ids[k]) > left) continue;
            mask[t->ids[k] / 64] |= 1ull << t->ids[k] % 64;
            any = true;
        }
        c = bn_config_make(node->b, bn_config_frame(c));
    }
}

static bool add_ends(const struct bn_token_tree *t, uint64_t *mask)
{
    for (uint32_t i = 0; i < t->n_ends; i++) mask[t->ends[i] / 64] |= 1ull << t->ends[i] % 64;
    return t->n_ends > 0;
}

bool bn_matcher_closing_mask(struct bn_matcher *m, uint32_t left, uint64_t *mask)
{
    uint32_t frames = m->stacks.n_frames;
    bn_config c;
    memset(mask, 0, m->g->tree->n_words * sizeof *mask);
    if (m->ended) return false;
    if (m->complete) return add_ends(m->g->tree, mask);
    if (lowest_cost(&m->stacks, m->set, m->n_set, &c) == BN_NO_COST) return false;
    bool any = add_cheapest(m, c, left, mask);
    bn_stacks_truncate(&m->stacks, frames);
    return any;
}

/* ------------------------------------------------------------------ masks */

/* Adds what may follow a stack in the middle of a loop; `need` gets what all stacks together might
 * come to. false: the loop's mask does not tell.
 *
 * A loop with r rounds left is like one without end for tokens of up to r bytes; the longer ones are
 * looked at one by one. After k bytes its stacks may stand in k + 1 different rounds. */
static bool add_loop(struct bn_matcher *m, bn_config c, uint64_t *mask, struct need *need)
{
    const struct bn_token_tree *t = m->g->tree;
    const struct bn_node *node = &m->g->nodes[bn_config_node(c)];
    const struct bn_loop_mask *loop = &m->g->loops[m->g->nodes[node->head].mask - 1];
    uint32_t frame = bn_config_frame(c), rounds = 1, longest = t->max_depth;
    if (m->stacks.depth[frame] + loop->height > BN_GRAMMAR_MAX_DEPTH) return false;
    const uint64_t *bits = loop->bits;
    if (node->left != BN_LOOP_FOREVER) {
        if (node->left < longest) longest = node->left;
        rounds = longest + 1;
        memcpy(m->shorter, bits, t->n_words * sizeof *bits);
        for (uint32_t i = 0; i < t->n_longer[longest]; i++)
            m->shorter[t->by_length[i] / 64] &= ~(1ull << t->by_length[i] % 64);
        bn_walk_tokens(&m->walk, &c, 1, 0, longest, mask, NULL);
        bits = m->shorter;
    }
    for (uint32_t i = 0; i < t->n_words; i++) mask[i] |= bits[i];
    const struct bn_frame *f = &m->stacks.frames[frame];
    bn_config after = bn_config_make(f->node, f->below);
    for (uint32_t i = 0; frame && i < loop->exits.n && !m->stacks.overflow; i++)
        if (t->depth[loop->exits.nodes[i]] <= longest)
            bn_walk_tokens(&m->walk, &after, 1, loop->exits.nodes[i], 0, mask, NULL);
    need->width += loop->width * rounds;
    need->frames += loop->frames * rounds;
    return true;
}

/* The mask of the text's place. by_loops: with masks of loops where there are any. false: a limit
 * might have been met. */
static bool add_stacks(struct bn_matcher *m, bool by_loops, uint64_t *mask)
{
    struct bn_stacks *s = &m->stacks;
    struct need need = {0};
    bn_config *rest = m->next;
    uint32_t n_rest = 0;
    memset(mask, 0, m->g->tree->n_words * sizeof *mask);
    s->overflow = false;
    for (uint32_t i = 0; i < m->n_set; i++) {
        uint32_t head = m->g->nodes[bn_config_node(m->set[i])].head;
        s->width = 0;
        if (!by_loops || !head || !m->g->nodes[head].mask) rest[n_rest++] = m->set[i];
        else if (!add_loop(m, m->set[i], mask, &need)) return false;
        need.width += s->width;
    }
    s->width = 0;
    bn_walk_tokens(&m->walk, rest, n_rest, 0, 0, mask, NULL);
    return !s->overflow && need.width + s->width <= BN_GRAMMAR_MAX_STACKS &&
           need.frames + s->n_frames <= BN_GRAMMAR_MAX_FRAMES;
}

/* Each token as bn_matcher_accept would take it, first bytes first. */
static void try_every_token(struct bn_matcher *m, uint64_t *mask)
{
    const struct bn_token_tree *t = m->g->tree;
    uint32_t frames = m->stacks.n_frames;
    memset(mask, 0, t->n_words * sizeof *mask);
    for (uint32_t i = 1; i < t->n_nodes; i = t->end[i]) {
        bool begins = follow(m, (const char *)&t->byte[i], 1) > 0;
        bn_stacks_truncate(&m->stacks, frames);
        for (uint32_t k = t->first[i]; begins && k < t->first[t->end[i]]; k++)
            if (bn_matcher_allows(m, t->ids[k])) mask[t->ids[k] / 64] |= 1ull << t->ids[k] % 64;
    }
}

static void make_mask(struct bn_matcher *m, uint64_t *mask)
{
    uint32_t frames = m->stacks.n_frames;
    bool exact = false;
    for (int by_loops = 1; by_loops >= 0 && !exact; by_loops--) {
        exact = add_stacks(m, by_loops, mask);
        bn_stacks_truncate(&m->stacks, frames);
        bn_walk_forget(&m->walk);
    }
    if (!exact) try_every_token(m, mask);
    if (m->complete) add_ends(m->g->tree, mask);
}

/* The place among the recent ones: this one's, or the one to be replaced, or NULL if the key is too
 * long to be kept. */
static struct recent *find_recent(struct bn_matcher *m, bool *found)
{
    const struct bn_stacks *s = &m->stacks;
    uint32_t n_frames = s->n_frames - 1, n_key = m->n_set + n_frames;
    struct recent *oldest = &m->recent[0];
    *found = false;
    if (n_key > MAX_KEY) return NULL;
    size_t set_bytes = m->n_set * sizeof *m->set, frame_bytes = n_frames * sizeof *s->frames;
    for (struct recent *r = m->recent; r < m->recent + N_RECENT; r++) {
        if (r->used < oldest->used) oldest = r;
        if (r->n_key != n_key || r->n_set != m->n_set || memcmp(r->key, m->set, set_bytes) != 0 ||
            memcmp(r->key + m->n_set, s->frames + 1, frame_bytes) != 0)
            continue;
        *found = true;
        return r;
    }
    memcpy(oldest->key, m->set, set_bytes);
    memcpy(oldest->key + m->n_set, s->frames + 1, frame_bytes);
    oldest->n_key = n_key;
    oldest->n_set = m->n_set;
    return oldest;
}

static uint32_t count(const uint64_t *mask, uint32_t n_words)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_words; i++) n += (uint32_t)__builtin_popcountll(mask[i]);
    return n;
}

uint32_t bn_matcher_mask(struct bn_matcher *m, uint64_t *mask, int32_t *only)
{
    uint32_t n_words = m->g->tree->n_words, n_allowed;
    size_t bytes = n_words * sizeof *mask;
    *only = -1;
    if (m->ended) {
        memset(mask, 0, bytes);
        return 0;
    }
    bool found;
    struct recent *r = find_recent(m, &found);
    if (found) {
        memcpy(mask, r->mask, bytes);
        n_allowed = r->n_allowed;
    } else {
        make_mask(m, mask);
        n_allowed = count(mask, n_words);
        if (r) memcpy(r->mask, mask, bytes);
    }
    if (r) {
        r->used = ++m->clock;
        r->n_allowed = n_allowed;
    }
    for (uint32_t i = 0; i < n_words && *only < 0; i++)
        if (mask[i]) *only = (int32_t)(64 * i) + __builtin_ctzll(mask[i]);
    return n_allowed;
}
