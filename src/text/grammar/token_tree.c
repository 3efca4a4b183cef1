/* SPDX-License-Identifier: Apache-2.0
 * The tokens of a vocabulary as a tree of their bytes. Sorted by their bytes, tokens with a common
 * beginning are neighbours, so the tree falls out of one pass over the sorted list. */
#include "text/grammar/grammar_impl.h"

#include <stdlib.h>

const char *bn_token_text(const struct bn_token_tree *t, int32_t id, size_t *n)
{
    *n = 0;
    if (id < 0 || (uint32_t)id >= t->n_vocab || bn_token_is_end(t->tokenizer, id)) return NULL;
    return bn_token_bytes(t->tokenizer, id, false, false, n);
}

uint32_t bn_token_tree_child(const struct bn_token_tree *t, uint32_t node, uint8_t byte)
{
    if (node == 0) return t->top[byte];
    for (uint32_t i = node + 1; i < t->end[node]; i = t->end[i])
        if (t->byte[i] == byte) return i;
    return 0;
}

struct entry {
    const char *s;
    size_t n;
    int32_t id;
};

static int by_bytes(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    int order = memcmp(a->s, b->s, bn_min_size(a->n, b->n));
    if (order) return order;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

static size_t common_prefix(const struct entry *a, const struct entry *b)
{
    size_t n = bn_min_size(a->n, b->n), i = 0;
    while (i < n && a->s[i] == b->s[i]) i++;
    return i;
}

/* Fills ends, and entries with the tokens that are text, sorted. */
static uint32_t list_tokens(struct bn_token_tree *t, struct entry *entries)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_vocab; i++) {
        struct entry *e = &entries[n];
        e->id = (int32_t)i;
        e->s = bn_token_text(t, e->id, &e->n);
        if (e->s) n++;
        else if (bn_token_is_end(t->tokenizer, e->id) && t->n_ends < BN_SYSFILES_MAX_ENDS)
            t->ends[t->n_ends++] = e->id;
    }
    qsort(entries, n, sizeof *entries, by_bytes);
    return n;
}

static size_t count_nodes(const struct entry *e, uint32_t n)
{
    size_t nodes = 1;
    for (uint32_t i = 0; i < n; i++) nodes += e[i].n - (i ? common_prefix(&e[i - 1], &e[i]) : 0);
    return nodes;
}

/* open: [max_depth + 1] the nodes from the root to the newest one */
static void fill(struct bn_token_tree *t, const struct entry *e, uint32_t *open)
{
    size_t level = 0;
    uint32_t node = 0;
    open[0] = 0;
    for (uint32_t i = 0; i < t->n_tokens; i++) {
        size_t common = i ? common_prefix(&e[i - 1], &e[i]) : 0;
        for (; level > common; level--) t->end[open[level]] = node + 1;
        for (; level < e[i].n; open[level] = node) {
            t->byte[++node] = (uint8_t)e[i].s[level++];
            t->depth[node] = (uint16_t)level;
            t->first[node] = i;
        }
        t->ids[i] = e[i].id;
    }
    for (;; level--) {
        t->end[open[level]] = t->n_nodes;
        if (level == 0) break;
    }
    t->first[t->n_nodes] = t->n_tokens;
    for (uint32_t i = 1; i < t->n_nodes; i = t->end[i]) t->top[t->byte[i]] = i;
    for (uint32_t i = t->n_nodes; i-- > 0;) {
        if (t->deepest[i] < t->depth[i]) t->deepest[i] = t->depth[i];
        for (uint32_t k = i + 1; k < t->end[i]; k = t->end[k]) /* children are complete */
            if (t->deepest[k] > t->deepest[i]) t->deepest[i] = t->deepest[k];
    }
}

/* n_longer, then the tokens: those of n bytes stand behind the n_longer[n] longer ones */
static void sort_by_length(struct bn_token_tree *t, const struct entry *e, uint32_t *place)
{
    for (uint32_t i = 0; i < t->n_tokens; i++) t->n_longer[e[i].n - 1]++;
    for (uint32_t d = t->max_depth; d-- > 0;) t->n_longer[d] += t->n_longer[d + 1];
    memcpy(place, t->n_longer, ((size_t)t->max_depth + 1) * sizeof *place);
    for (uint32_t i = 0; i < t->n_tokens; i++) t->by_length[place[e[i].n]++] = e[i].id;
}

static bool make(struct bn_token_tree *t, struct entry *e)
{
    t->n_tokens = list_tokens(t, e);
    size_t nodes = count_nodes(e, t->n_tokens);
    if (nodes >= UINT32_MAX) return false;
    t->n_nodes = (uint32_t)nodes;
    for (uint32_t i = 0; i < t->n_tokens; i++)
        if (e[i].n > t->max_depth) t->max_depth = (uint32_t)e[i].n;
    t->end = bn_calloc(nodes, sizeof *t->end);
    t->first = bn_calloc(nodes + 1, sizeof *t->first);
    t->depth = bn_calloc(nodes, sizeof *t->depth);
    t->deepest = bn_calloc(nodes, sizeof *t->deepest);
    t->byte = bn_calloc(nodes, 1);
    t->by_length = bn_calloc((size_t)t->n_tokens + 1, sizeof *t->by_length);
    t->n_longer = bn_calloc((size_t)t->max_depth + 1, sizeof *t->n_longer);
    t->ids = bn_calloc((size_t)t->n_tokens + 1, sizeof *t->ids);
    uint32_t *open = bn_calloc((size_t)t->max_depth + 1, sizeof *open);
    bool ok = t->end && t->first && t->depth && t->deepest && t->byte && t->ids && t->by_length &&
              t->n_longer && open;
    if (ok) {
        fill(t, e, open);
        sort_by_length(t, e, open);
    }
    free(open);
    return ok;
}

bitnet_status bn_token_tree_open(struct bn_token_tree **out, const struct bn_tokenizer *tokenizer,
                                 uint32_t n_vocab, bitnet_error *err)
{
    *out = NULL;
    struct bn_token_tree *t = bn_calloc(1, sizeof *t);
    struct entry *e = bn_calloc((size_t)n_vocab + 1, sizeof *e);
    if (t) {
        t->tokenizer = tokenizer;
        t->n_vocab = n_vocab;
        t->n_words = (uint32_t)bn_div_up(n_vocab, 64);
    }
    bool ok = t && e && make(t, e);
    free(e);
    if (!ok) {
        bn_token_tree_close(t);
        return bn_fail_nomem(err, (size_t)n_vocab * sizeof *e, "the tree of tokens");
    }
    *out = t;
    return BITNET_OK;
}

void bn_token_tree_close(struct bn_token_tree *t)
{
    if (!t) return;
    free(t->end);
    free(t->first);
    free(t->depth);
    free(t->deepest);
    free(t->byte);
    free(t->by_length);
    free(t->n_longer);
    free(t->ids);
    free(t);
}
