/* SPDX-License-Identifier: Apache-2.0
 *
 * A page stands in the tree at most once, so its number is also that of its node: all nodes are one
 * array, made at open.
 *
 * Where a text goes on. The children of a node are kept in the order of their tokens, in a treap: a
 * search tree that is also a heap by a random number of each node, so it is balanced whatever the
 * order of arrival. No child's text is the beginning of a sibling's (a longer page replaces a shorter
 * one), so the first token that differs decides, and the child with the longest common beginning lies
 * on the path of the search. Texts of different keys are siblings at the root and nowhere else; the key
 * decides before the tokens do. Most nodes have one child, which is one comparison; of k children log k
 * are looked at.
 *
 * What may be given up. A node is pinned while others hold its page or that of a node below it; the
 * cache tells when holders come and go. Nodes without a pin stand in a list in the order of their
 * last use, that is, of losing their last pin. A child loses it before its parent and so is older:
 * the oldest node is always a leaf, and only the tree holds its page. No clock, no search.
 */
#include "engine/prefix/prefix.h"

#include "base/os/mem.h"
#include "base/rng.h"
#include <stdlib.h>

struct node {
    uint64_t key;
    int32_t tokens[BN_ATTN_BLOCK];
    uint32_t n_tokens;      /* 0: the page is not in the tree */
    uint32_t parent, child; /* child: top of the treap of children */
    uint32_t left, right;   /* among the siblings, by tokens */
    uint32_t newer, older;  /* in the list of nodes without a pin */
    uint32_t pins;          /* 1 if others hold the page, and 1 for each child with a pin */
};

struct bn_prefix {
    struct bn_kv *kv;
    bool whole_pages;
    struct node *nodes; /* [kv->n_pages + 1] by page, then the root */
    uint32_t root;      /* also stands for "no node"; both ends of the list hang on it */
    uint32_t n_unpinned;
    uint32_t *path;                 /* [kv->n_pages] of a match */
    struct bn_snapshots *snapshots; /* NULL: pages are all there is to know */
    struct bn_prefix_stats stats;
};

/* ------------------------------------------------------------------ children */

static uint64_t rank(uint32_t i) { return bn_mix64(i); }

/* Of siblings: they differ in their key, or in a token. */
static bool stands_before(const struct node *a, const struct node *b)
{
    uint32_t k = 0;
    if (a->key != b->key) return a->key < b->key;
    while (a->tokens[k] == b->tokens[k]) k++;
    return a->tokens[k] < b->tokens[k];
}

static void insert_child(struct bn_prefix *p, uint32_t i)
{
    struct node *nodes = p->nodes, *new = &nodes[i];
    uint32_t *at = &nodes[new->parent].child;
    while (*at != p->root && rank(*at) > rank(i))
        at = stands_before(new, &nodes[*at]) ? &nodes[*at].left : &nodes[*at].right;
    uint32_t rest = *at, *left = &new->left, *right = &new->right;
    *at = i;
    while (rest != p->root) { /* what was here is split around it */
        struct node *r = &nodes[rest];
        if (stands_before(new, r)) *right = rest, right = &r->left, rest = r->left;
        else *left = rest, left = &r->right, rest = r->right;
    }
    *left = *right = p->root;
}

static void remove_child(struct bn_prefix *p, uint32_t i)
{
    struct node *nodes = p->nodes, *old = &nodes[i];
    uint32_t *at = &nodes[old->parent].child, left = old->left, right = old->right;
    while (*at != i) at = stands_before(old, &nodes[*at]) ? &nodes[*at].left : &nodes[*at].right;
    while (left != p->root && right != p->root) /* merged in its place */
        if (rank(left) > rank(right)) *at = left, at = &nodes[left].right, left = *at;
        else *at = right, at = &nodes[right].left, right = *at;
    *at = left != p->root ? left : right;
}

/* The child with this key whose text has the longest common beginning with these tokens; the root if none
 * has. */
static uint32_t find_child(const struct bn_prefix *p, uint32_t parent, uint64_t key,
                           const int32_t *tokens, uint32_t n, uint32_t *common)
{
    uint32_t best = p->root, i = p->nodes[parent].child;
    *common = 0;
    while (i != p->root) {
        const struct node *c = &p->nodes[i];
        if (key != c->key) {
            i = key < c->key ? c->left : c->right;
            continue;
        }
        uint32_t end = n < c->n_tokens ? n : c->n_tokens, k = 0;
        while (k < end && tokens[k] == c->tokens[k]) k++;
        if (k > *common) best = i, *common = k;
        if (k == end) break;
        i = tokens[k] < c->tokens[k] ? c->left : c->right;
    }
    return best;
}

/* ------------------------------------------------------------------ pins */

static void list_take(struct bn_prefix *p, uint32_t i)
{
    struct node *n = &p->nodes[i];
    p->nodes[n->newer].older = n->older;
    p->nodes[n->older].newer = n->newer;
    p->n_unpinned--;
}

static void list_put_newest(struct bn_prefix *p, uint32_t i)
{
    struct node *n = &p->nodes[i], *root = &p->nodes[p->root];
    n->newer = p->root;
    n->older = root->older;
    p->nodes[root->older].newer = i;
    root->older = i;
    p->n_unpinned++;
}

static void pin(struct bn_prefix *p, uint32_t i)
{
    for (; i != p->root && p->nodes[i].pins++ == 0; i = p->nodes[i].parent) list_take(p, i);
}

static void unpin(struct bn_prefix *p, uint32_t i)
{
    for (; i != p->root && --p->nodes[i].pins == 0; i = p->nodes[i].parent) list_put_newest(p, i);
}

/* From the cache: others hold a page from now on, or do no longer. */
static void holders_changed(void *user, uint32_t page, bool shared)
{
    struct bn_prefix *p = user;
    if (p->nodes[page].n_tokens) (shared ? pin : unpin)(p, page);
}

/* ------------------------------------------------------------------ nodes */

/* The page is held by its sequence, too, so the node begins with a pin. */
static void insert_node(struct bn_prefix *p, uint32_t page, uint32_t parent, uint64_t key,
                        const int32_t *tokens, uint32_t n)
{
    struct node *new = &p->nodes[page];
    bn_kv_hold(p->kv, page);
    *new = (struct node){.key = key, .n_tokens = n, .parent = parent, .child = p->root, .pins = 1};
    memcpy(new->tokens, tokens, n * sizeof *tokens);
    insert_child(p, page);
    pin(p, parent);
    p->stats.pages++;
}

/* Of a leaf. */
static void remove_node(struct bn_prefix *p, uint32_t i)
{
    struct node *old = &p->nodes[i];
    remove_child(p, i);
    if (old->pins) unpin(p, old->parent);
    else list_take(p, i);
    if (p->snapshots) bn_snapshots_drop(p->snapshots, i);
    old->n_tokens = 0;
    bn_kv_let_go(p->kv, i);
    p->stats.pages--;
}

static void make_empty(struct bn_prefix *p)
{
    struct node *root = &p->nodes[p->root];
    root->child = root->newer = root->older = p->root;
    p->n_unpinned = p->stats.pages = 0;
}

static uint32_t parent_of(const void *user, uint32_t i)
{
    return ((const struct bn_prefix *)user)->nodes[i].parent;
}

bitnet_status bn_prefix_open(struct bn_prefix **out, struct bn_kv *kv, bool whole_pages,
                             uint32_t n_snapshots, bitnet_error *err)
{
    *out = NULL;
    struct bn_prefix *p = bn_calloc(1, sizeof *p);
    struct node *nodes = bn_calloc_now((size_t)kv->n_pages + 1, sizeof *nodes);
    uint32_t *path = bn_calloc_now(kv->n_pages, sizeof *path);
    if (!p || !nodes || !path) {
        free(p);
        free(nodes);
        free(path);
        return bn_fail_nomem(err, ((size_t)kv->n_pages + 1) * (sizeof *nodes + sizeof *path),
                             "the prefix cache");
    }
    *p = (struct bn_prefix){
        .kv = kv, .whole_pages = whole_pages, .nodes = nodes, .root = kv->n_pages, .path = path};
    make_empty(p);
    const struct bn_snapshot_tree tree = {p, parent_of, p->root};
    bitnet_status status =
        n_snapshots ? bn_snapshots_open(&p->snapshots, n_snapshots, &tree, err) : BITNET_OK;
    if (status != BITNET_OK) {
        bn_prefix_close(p);
        return status;
    }
    kv->on_shared = holders_changed;
    kv->on_shared_user = p;
    *out = p;
    return BITNET_OK;
}

void bn_prefix_clear(struct bn_prefix *p)
{
    make_empty(p);
    if (p->snapshots) bn_snapshots_clear(p->snapshots);
    for (uint32_t i = 0; i < p->root; i++) {
        if (!p->nodes[i].n_tokens) continue;
        p->nodes[i].n_tokens = 0;
        bn_kv_let_go(p->kv, i);
    }
}

void bn_prefix_close(struct bn_prefix *p)
{
    if (!p) return;
    bn_prefix_clear(p);
    p->kv->on_shared = NULL;
    bn_snapshots_close(p->snapshots);
    free(p->nodes);
    free(p->path);
    free(p);
}

/* ------------------------------------------------------------------ the doors */

static uint32_t page_part(uint32_t n) { return n < BN_ATTN_BLOCK ? n : BN_ATTN_BLOCK; }

/* How many of the n tokens are known, and in which pages (may be NULL) they lie. */
static uint32_t walk(const struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                     uint32_t *pages)
{
    uint32_t at = p->root, done = 0, common = BN_ATTN_BLOCK, with_state = 0;
    if (p->whole_pages) n -= n % BN_ATTN_BLOCK;
    while (done < n && common == BN_ATTN_BLOCK) {
        at = find_child(p, at, key, tokens + done, page_part(n - done), &common);
        if (!common || (p->whole_pages && common < BN_ATTN_BLOCK)) break;
        if (pages) pages[done / BN_ATTN_BLOCK] = at;
        done += common;
        if (p->snapshots && bn_snapshots_at(p->snapshots, at) != BN_NO_SLOT) with_state = done;
    }
    return p->snapshots ? with_state : done;
}

uint32_t bn_prefix_peek(const struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n)
{
    return n ? walk(p, key, tokens, n - 1, NULL) : 0;
}

uint32_t bn_prefix_share(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                         struct bn_kv_seq *s)
{
    uint32_t known = walk(p, key, tokens, n, p->path);
    bn_kv_share(p->kv, s, p->path, known);
    return known;
}

uint32_t bn_prefix_match(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                         struct bn_kv_seq *s)
{
    uint32_t known = bn_prefix_share(p, key, tokens, n ? n - 1 : 0, s);
    p->stats.queries++;
    p->stats.queried_tokens += n;
    p->stats.hits += known > 0;
    p->stats.hit_tokens += known;
    return known;
}

uint32_t bn_prefix_forget(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n)
{
    uint32_t at = p->root, done = 0, depth = 0, gone = 0, common;
    while (done < n) { /* the nodes that hold nothing but this text */
        at = find_child(p, at, key, tokens + done, page_part(n - done), &common);
        if (at == p->root || common < p->nodes[at].n_tokens) break;
        p->path[depth++] = at;
        done += common;
        if (common < BN_ATTN_BLOCK) break;
    }
    while (depth--) {
        const struct node *last = &p->nodes[p->path[depth]];
        if (last->child != p->root || last->pins) break;
        gone += last->n_tokens;
        remove_node(p, p->path[depth]);
    }
    return gone;
}

void bn_prefix_add(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                   const struct bn_kv_seq *s, bool ended)
{
    if (!ended || p->whole_pages) n -= n % BN_ATTN_BLOCK;
    uint32_t at = p->root, done = n - n % BN_ATTN_BLOCK;
    /* A whole page of s that is a node: the text up to there is known. */
    while (done && p->nodes[s->pages[done / BN_ATTN_BLOCK - 1]].n_tokens < BN_ATTN_BLOCK)
        done -= BN_ATTN_BLOCK;
    if (done) at = s->pages[done / BN_ATTN_BLOCK - 1];
    while (done < n) {
        uint32_t some = page_part(n - done), common, parent = at;
        at = find_child(p, parent, key, tokens + done, some, &common);
        if (common < some) {
            if (common && common == p->nodes[at].n_tokens) remove_node(p, at);
            at = s->pages[done / BN_ATTN_BLOCK];
            insert_node(p, at, parent, key, tokens + done, some);
        }
        done += some;
    }
}

struct bn_snapshots *bn_prefix_snapshots(const struct bn_prefix *p) { return p->snapshots; }

/* The node with which n tokens (whole pages) end; the root if they are not known. */
static uint32_t find_node(const struct bn_prefix *p, uint64_t key, const int32_t *tokens,
                          uint32_t n, const struct bn_kv_seq *s)
{
    uint32_t at = s->pages[n / BN_ATTN_BLOCK - 1], common;
    if (p->nodes[at].n_tokens == BN_ATTN_BLOCK) return at; /* as in bn_prefix_add */
    at = p->root;
    for (uint32_t done = 0; done < n; done += BN_ATTN_BLOCK) {
        at = find_child(p, at, key, tokens + done, BN_ATTN_BLOCK, &common);
        if (common < BN_ATTN_BLOCK) return p->root;
    }
    return at;
}

uint32_t bn_prefix_keep(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                        const struct bn_kv_seq *s, uint32_t slot)
{
    uint32_t node = find_node(p, key, tokens, n, s);
    if (node == p->root) {
        bn_snapshots_give_back(p->snapshots, slot);
        return BN_NO_SLOT;
    }
    bn_snapshots_keep(p->snapshots, slot, node, n);
    return bn_snapshots_at(p->snapshots, node);
}

uint32_t bn_prefix_matched_slot(const struct bn_prefix *p, const struct bn_kv_seq *s)
{
    return bn_snapshots_at(p->snapshots, s->pages[s->n_tokens / BN_ATTN_BLOCK - 1]);
}

uint32_t bn_prefix_evictable(const struct bn_prefix *p) { return p->n_unpinned; }

uint32_t bn_prefix_evict(struct bn_prefix *p, uint32_t n_pages)
{
    uint32_t n = 0;
    for (; n < n_pages && p->n_unpinned; n++) remove_node(p, p->nodes[p->root].newer);
    p->stats.evicted_pages += n;
    return n;
}

uint32_t bn_prefix_page_tokens(const struct bn_prefix *p, uint32_t page)
{
    return p->nodes[page].n_tokens;
}

const struct bn_prefix_stats *bn_prefix_stats(const struct bn_prefix *p) { return &p->stats; }
