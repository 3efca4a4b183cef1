/* SPDX-License-Identifier: Apache-2.0
 * The paged KV cache. A page holds BN_ATTN_BLOCK tokens of one sequence for all layers; a sequence
 * is a list of pages. One block of memory, reserved at open. Belongs to the thread that drives the
 * engine; workers write rows of pages that were handed out before. */
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
/* Pages for n_tokens in all; false if the pool has not enough, then nothing changes. No
 * allocation. */
bool bn_kv_reserve(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens);
void bn_kv_release(struct bn_kv *kv,
                   struct bn_kv_seq *s); /* all pages go back, n_tokens becomes 0 */

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
