/* SPDX-License-Identifier: Apache-2.0
 * The prefix cache: which beginnings of texts lie in pages of the KV cache, of sequences that run
 * and of those that have ended. A tree with a page a node. It is one more holder of its pages; those
 * that only it holds can be given up, the least recently used first, leaves before their parents.
 *
 * Of models with recurrent states a page is of use only where the state behind it is known as well: there
 * nodes may have snapshots (snapshots.h), and a text is taken over up to the last one on its way.
 *
 * The same tokens have other keys and values where adapters take part: a text is known by its tokens and
 * by a key, which stands for the adapters. */
#ifndef BN_ENGINE_PREFIX_PREFIX_H
#define BN_ENGINE_PREFIX_PREFIX_H

#include "engine/prefix/snapshots.h"
#include "model/attention/kv.h"

struct bn_prefix;

/* All memory is taken here. whole_pages: only full pages may be shared, not the beginning of one
 * (cache types that encode a page as a whole). n_snapshots: slots for states, of models that have some;
 * then whole_pages must be set. The cache must outlive it. */
bitnet_status bn_prefix_open(struct bn_prefix **out, struct bn_kv *kv, bool whole_pages,
                             uint32_t n_snapshots, bitnet_error *err);
void bn_prefix_close(struct bn_prefix *p); /* lets its pages go */

/* The empty sequence s takes over the longest known beginning of the n tokens, at most n - 1 of them
 * (the last must be computed, for its logits); returns how many. Page by page, and where texts part,
 * the page's common part. That page is copied when s grows, and cannot be given up until then: where
 * one page decides, bn_kv_truncate to the whole pages makes do without. */
uint32_t bn_prefix_match(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                         struct bn_kv_seq *s);
/* The same count, without taking or counting anything. */
uint32_t bn_prefix_peek(const struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n);

/* The empty sequence s takes over the longest known beginning of all n tokens, to be looked at only;
 * returns how many. Nothing is counted. */
uint32_t bn_prefix_share(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                         struct bn_kv_seq *s);
/* The text is forgotten from its end on, as far as neither others hold its pages nor other texts begin with
 * it. Returns how many tokens are not known any more. */
uint32_t bn_prefix_forget(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n);

/* The first n tokens of a text, as they lie in the pages of s, become known: whole pages, and when
 * the text has `ended` the page that is not full, too. Pages whose text is known already are left
 * out. Repeated calls while a text grows cost what is new. */
void bn_prefix_add(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                   const struct bn_kv_seq *s, bool ended);

/* Those of the nodes; NULL: it was opened without. */
struct bn_snapshots *bn_prefix_snapshots(const struct bn_prefix *p);
/* The slot, taken from there, holds the state behind the first n tokens (whole pages) of a text of which
 * they were added: it is kept with their node. Returns the slot with that node's snapshot, this one or
 * an older one, which makes do; BN_NO_SLOT if the text is not known after all. */
uint32_t bn_prefix_keep(struct bn_prefix *p, uint64_t key, const int32_t *tokens, uint32_t n,
                        const struct bn_kv_seq *s, uint32_t slot);
/* The slot with the state of all that bn_prefix_match has given to s, which is not empty. */
uint32_t bn_prefix_matched_slot(const struct bn_prefix *p, const struct bn_kv_seq *s);

/* Pages that nobody else holds, which evict can free now or after its leaves. */
uint32_t bn_prefix_evictable(const struct bn_prefix *p);
/* Frees up to n_pages; returns how many. */
uint32_t bn_prefix_evict(struct bn_prefix *p, uint32_t n_pages);
void bn_prefix_clear(struct bn_prefix *p);

/* How many tokens of a page are known; 0: it is not in the tree. */
uint32_t bn_prefix_page_tokens(const struct bn_prefix *p, uint32_t page);

struct bn_prefix_stats {
    uint64_t queries, hits;              /* requests */
    uint64_t queried_tokens, hit_tokens; /* of their prompts */
    uint64_t evicted_pages;
    uint32_t pages; /* known now */
};
const struct bn_prefix_stats *bn_prefix_stats(const struct bn_prefix *p);

#endif
