/* SPDX-License-Identifier: Apache-2.0
 * The paged KV cache. A page holds BN_ATTN_BLOCK tokens for all layers; a sequence is a list of
 * pages. Sequences that begin alike may share pages: a page counts who holds it, and a page that
 * several hold is copied before one of them writes to it. One block of memory, reserved at open.
 * Belongs to the thread that drives the engine; workers write rows of pages that were handed out
 * before.
 *
 * Types that are stored as blocks (int4, int2) have a page's contents only when its last token is
 * there. Until then its keys and values are float16 in the sequence's tail. Every token sees its own
 * page as float16 and the pages before as blocks, whatever was computed when. The tail holds the page
 * in progress and the one before, so that drafts can be taken back across a border. */
#ifndef BN_MODEL_ATTENTION_KV_H
#define BN_MODEL_ATTENTION_KV_H

#include "base/buf.h"
#include "base/os/mem.h"
#include "model/config/config.h"
#include "model/attention/kv_types.h"
#include "model/delta/state.h"

enum { BN_KV_TAIL_PAGES = 2, BN_KV_NO_PAGE = -1 };

/* Types of one layer. */
struct bn_kv_types {
    bitnet_kv_type keys, values; /* never AUTO */
};

/* One layer's part of every page: keys [n_head_kv] heads, then values. */
struct bn_kv_layer {
    struct bn_kv_side keys, values;
    size_t at;     /* where it begins in a page */
    uint32_t tail; /* its place in tails, among layers with blocks */
};

struct bn_kv {
    uint32_t n_pages, n_layer, n_head_kv; /* n_layer: with attention */
    size_t dim, wide;                     /* of all sides (kv_types.h) */
    struct bn_kv_layer *layers;           /* [n_layer] */
    size_t page_bytes;                    /* of all layers */
    uint32_t n_tails;                     /* layers that have blocks */
    size_t tail_bytes; /* of every sequence, reserved when it is opened; 0: no type has blocks */
    uint8_t *data;     /* [n_pages][page_bytes]: a short text touches little memory */
    size_t bytes;
    uint32_t *free_pages; /* stack */
    uint32_t n_free;
    uint32_t *holders; /* [n_pages] how many hold a page; 0: it is free */
    /* Told when a page gets a second holder, and when it is left with one; may be NULL. */
    void (*on_shared)(void *user, uint32_t page, bool shared);
    void *on_shared_user;
    /* pages that were copied since it was emptied, from and to, as uint32_t; NULL: nobody asks */
    struct bn_buf *copies;
};

/* Pages of a sequence as float16; page i is in place i % BN_KV_TAIL_PAGES. */
struct bn_kv_tail {
    int64_t page[BN_KV_TAIL_PAGES]; /* which one is there, or BN_KV_NO_PAGE */
    /* [BN_KV_TAIL_PAGES][n_tails][n_head_kv][keys, values][BN_ATTN_BLOCK][head_dim] */
    uint16_t *data;
};

/* One sequence's pages in order. */
struct bn_kv_seq {
    uint32_t *pages; /* [room] */
    uint32_t n_pages, room;
    uint32_t n_tokens;       /* stored so far */
    uint32_t id;             /* the owner's */
    struct bn_kv_tail *tail; /* NULL: no type has blocks */
    struct bn_state
        *state; /* of a hybrid's other layers; NULL: there are none. Follows the text when
                              * it is truncated or let go; where pages are shared, the owner restores it */
};

/* types: [layers with attention], those that draft included. */
bitnet_status bn_kv_open(struct bn_kv *kv, const struct bn_config *c,
                         const struct bn_kv_types *types, uint32_t n_pages, struct bn_backing *how,
                         bitnet_error *err);
void bn_kv_copy_page(struct bn_kv *kv, uint32_t from, uint32_t to);
/* The same with one type for all keys and one for all values. */
bitnet_status bn_kv_open_uniform(struct bn_kv *kv, const struct bn_config *c,
                                 struct bn_kv_types types, uint32_t n_pages, struct bn_backing *how,
                                 bitnet_error *err);
void bn_kv_close(struct bn_kv *kv);
/* All pages with random keys and values, as they would be stored; false: out of memory. */
bool bn_kv_fill(struct bn_kv *kv, const struct bn_kernels *k, uint64_t seed);

/* false: out of memory */
bool bn_kv_seq_open(struct bn_kv_seq *s, const struct bn_kv *kv, uint32_t max_tokens);
void bn_kv_seq_close(struct bn_kv_seq *s);
/* What bn_kv_reserve would take from the free pages, a copy included. */
uint32_t bn_kv_need(const struct bn_kv *kv, const struct bn_kv_seq *s, uint32_t n_tokens);
/* Pages for n_tokens in all, those from s->n_tokens on for this sequence alone; false if the pool
 * has not enough, then nothing changes. No allocation. */
bool bn_kv_reserve(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens);
/* Back to the first n_tokens, of those stored; pages behind them are let go. With blocks, where the
 * page of the last token is no longer in the tail, back to that page's beginning. It is there if this
 * page or the next one was the sequence's last. */
void bn_kv_truncate(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens);
/* All pages are let go, n_tokens becomes 0. */
void bn_kv_release(struct bn_kv *kv, struct bn_kv_seq *s);
/* An empty sequence takes n_tokens that are stored in these pages, as one more holder. Whole pages
 * only if bn_kv_has_blocks(). */
void bn_kv_share(struct bn_kv *kv, struct bn_kv_seq *s, const uint32_t *pages, uint32_t n_tokens);
/* One more holder, one less; the last one's page becomes free. */
void bn_kv_hold(struct bn_kv *kv, uint32_t page);
void bn_kv_let_go(struct bn_kv *kv, uint32_t page);

static inline uint32_t bn_kv_pages_for(uint32_t n_tokens)
{
    return (n_tokens + BN_ATTN_BLOCK - 1) / BN_ATTN_BLOCK;
}

static inline bool bn_kv_has_blocks(const struct bn_kv *kv) { return kv->tail_bytes != 0; }

/* What a token takes in pages, all layers; tails are not counted. */
static inline uint64_t bn_kv_token_bytes(const struct bn_kv *kv)
{
    return kv->page_bytes / BN_ATTN_BLOCK;
}

static inline const struct bn_kv_side *bn_kv_side(const struct bn_kv *kv, uint32_t layer,
                                                  bool values)
{
    return values ? &kv->layers[layer].values : &kv->layers[layer].keys;
}

/* Has one of its sides blocks? */
static inline bool bn_kv_layer_has_blocks(const struct bn_kv *kv, uint32_t layer)
{
    return kv->layers[layer].keys.block_bits || kv->layers[layer].values.block_bits;
}

/* The keys of a head in a page, or its values. */
static inline uint8_t *bn_kv_head(const struct bn_kv *kv, uint32_t layer, uint32_t page,
                                  uint32_t head, bool values)
{
    const struct bn_kv_layer *l = &kv->layers[layer];
    size_t at = values ? kv->n_head_kv * l->keys.head_bytes + head * l->values.head_bytes
                       : head * l->keys.head_bytes;
    return kv->data + page * kv->page_bytes + l->at + at;
}

/* The float16 row of a position in the tail, if its page is there. */
static inline uint16_t *bn_kv_tail_row(const struct bn_kv *kv, const struct bn_kv_tail *tail,
                                       uint32_t layer, uint32_t pos, uint32_t head, bool values)
{
    size_t page = pos / BN_ATTN_BLOCK % BN_KV_TAIL_PAGES;
    size_t place = page * kv->n_tails + kv->layers[layer].tail;
    size_t block = (place * kv->n_head_kv + head) * 2 + (values ? 1 : 0);
    return tail->data + (block * BN_ATTN_BLOCK + pos % BN_ATTN_BLOCK) * kv->dim;
}

#endif
