/* SPDX-License-Identifier: Apache-2.0
 * The paged KV cache. A page holds BN_ATTN_BLOCK tokens for all layers; a sequence is a list of
 * pages. Sequences that begin alike may share pages: a page counts who holds it, and a page that
 * several hold is copied before one of them writes to it. One block of memory, reserved at open.
 * Belongs to the thread that drives the engine; workers write rows of pages that were handed out
 * before. */
#ifndef BN_MODEL_KV_H
#define BN_MODEL_KV_H

#include "kernels/kernels.h"
#include "model/config.h"

struct bn_kv {
    bool f16;
    uint32_t n_pages, n_layer, n_head_kv, head_dim;
    size_t head_bytes; /* keys or values of one head in one page: [BN_ATTN_BLOCK][head_dim] */
    size_t page_bytes; /* one page of one layer: keys [n_head_kv] heads, then values */
    uint8_t *data;     /* [n_pages][n_layer][page_bytes]: a short text touches little memory */
    size_t bytes;
    uint32_t *free_pages; /* stack */
    uint32_t n_free;
    uint32_t *holders; /* [n_pages] how many hold a page; 0: it is free */
    /* Told when a page gets a second holder, and when it is left with one; may be NULL. */
    void (*on_shared)(void *user, uint32_t page, bool shared);
    void *on_shared_user;
};

/* One sequence's pages in order. */
struct bn_kv_seq {
    uint32_t *pages; /* [room] */
    uint32_t n_pages, room;
    uint32_t n_tokens; /* stored so far */
};

bitnet_status bn_kv_open(struct bn_kv *kv, const struct bn_config *c, bool f16, uint32_t n_pages,
                         bitnet_error *err);
void bn_kv_close(struct bn_kv *kv);

bool bn_kv_seq_open(struct bn_kv_seq *s, uint32_t max_tokens); /* false: out of memory */
void bn_kv_seq_close(struct bn_kv_seq *s);
/* What bn_kv_reserve would take from the free pages, a copy included. */
uint32_t bn_kv_need(const struct bn_kv *kv, const struct bn_kv_seq *s, uint32_t n_tokens);
/* Pages for n_tokens in all, those from s->n_tokens on for this sequence alone; false if the pool
 * has not enough, then nothing changes. No allocation. */
bool bn_kv_reserve(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens);
/* Back to the first n_tokens, of those stored; pages behind them are let go. */
void bn_kv_truncate(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens);
/* All pages are let go, n_tokens becomes 0. */
void bn_kv_release(struct bn_kv *kv, struct bn_kv_seq *s);
/* An empty sequence takes n_tokens that are stored in these pages, as one more holder. */
void bn_kv_share(struct bn_kv *kv, struct bn_kv_seq *s, const uint32_t *pages, uint32_t n_tokens);
/* One more holder, one less; the last one's page becomes free. */
void bn_kv_hold(struct bn_kv *kv, uint32_t page);
void bn_kv_let_go(struct bn_kv *kv, uint32_t page);

static inline uint32_t bn_kv_pages_for(uint32_t n_tokens)
{
    return (n_tokens + BN_ATTN_BLOCK - 1) / BN_ATTN_BLOCK;
}

/* First key (value: [.. + n_head_kv * head_bytes]) of a head in a page: rows of head_dim follow. */
static inline uint8_t *bn_kv_head(const struct bn_kv *kv, uint32_t layer, uint32_t page,
                                  uint32_t head, bool value)
{
    return kv->data + ((size_t)page * kv->n_layer + layer) * kv->page_bytes +
           (value ? kv->n_head_kv + head : head) * kv->head_bytes;
}

#endif
