/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "model/attention/kv.h"

#include <stdlib.h>

/* Where everything lies. */
static void lay_out(struct bn_kv *kv, const struct bn_kv_types *types)
{
    for (uint32_t i = 0; i < kv->n_layer; i++) {
        struct bn_kv_layer *l = &kv->layers[i];
        l->keys = bn_kv_side_make(types[i].keys, false, kv->dim);
        l->values = bn_kv_side_make(types[i].values, true, kv->dim);
        l->at = kv->page_bytes;
        l->tail = kv->n_tails;
        kv->page_bytes += (l->keys.head_bytes + l->values.head_bytes) * kv->n_head_kv;
        kv->n_tails += bn_kv_layer_has_blocks(kv, i);
    }
    kv->tail_bytes = (size_t)BN_KV_TAIL_PAGES * kv->n_tails * kv->n_head_kv * 2 * BN_ATTN_BLOCK *
                     kv->dim * sizeof(uint16_t);
}

bitnet_status bn_kv_open(struct bn_kv *kv, const struct bn_config *c,
                         const struct bn_kv_types *types, uint32_t n_pages, struct bn_backing *how,
                         bitnet_error *err)
{
    *kv = (struct bn_kv){.n_pages = n_pages,
                         .n_layer = bn_config_attn_before(c, bn_config_layers(c)),
                         .n_head_kv = c->n_head_kv,
                         .dim = c->head_dim,
                         .wide = bn_align_up(c->head_dim, BN_KV_GROUP)};
    kv->layers = bn_calloc_now(kv->n_layer, sizeof *kv->layers);
    if (!kv->layers) return bn_fail_nomem(err, kv->n_layer * sizeof *kv->layers, "the KV cache");
    lay_out(kv, types);
    uint64_t bytes;
    if (!bn_mul_u64(&bytes, n_pages, kv->page_bytes)) bytes = SIZE_MAX;
    kv->bytes = (size_t)bytes;
    bitnet_status s = bn_block_take((void **)&kv->data, &kv->bytes, how, "the KV cache", err);
    kv->free_pages = bn_calloc_now(n_pages, sizeof *kv->free_pages);
    kv->holders = bn_calloc_now(n_pages, sizeof *kv->holders);
    if (s != BITNET_OK || !kv->free_pages || !kv->holders) {
        bn_kv_close(kv);
        if (s == BITNET_E_LIMIT) return s;
        return bn_fail(
            err, BITNET_E_NOMEM,
            "out of memory: %llu bytes for a KV cache of %u tokens; a smaller context needs less",
            (unsigned long long)bytes, n_pages * BN_ATTN_BLOCK);
    }
    while (kv->n_free < n_pages) {
        kv->free_pages[kv->n_free] = n_pages - 1 - kv->n_free;
        kv->n_free++;
    }
    return BITNET_OK;
}

bitnet_status bn_kv_open_uniform(struct bn_kv *kv, const struct bn_config *c,
                                 struct bn_kv_types types, uint32_t n_pages, struct bn_backing *how,
                                 bitnet_error *err)
{
    struct bn_kv_types all[BN_MAX_LAYERS + 1];
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++) all[i] = types;
    return bn_kv_open(kv, c, all, n_pages, how, err);
}

void bn_kv_close(struct bn_kv *kv)
{
    bn_block_free(kv->data, kv->bytes);
    free(kv->layers);
    free(kv->free_pages);
    free(kv->holders);
    *kv = (struct bn_kv){0};
}

enum { FILL_PERIOD = 8191 /* prime, so that no two rows are alike */ };

/* One head's part of a page, from rows of [wide] numbers; those beyond dim are zeros. */
static void fill_head(const struct bn_kv_side *s, const struct bn_kernels *k, uint8_t *head,
                      float *rows, const float *numbers, uint64_t at)
{
    for (size_t t = 0; t < BN_ATTN_BLOCK; t++)
        for (size_t i = 0; i < s->dim; i++)
            rows[t * s->wide + i] = numbers[(at + t * s->dim + i) % FILL_PERIOD];
    if (s->block_bits) bn_kv_put_block(s, k, head, rows);
    else
        for (uint32_t t = 0; t < BN_ATTN_BLOCK; t++)
            bn_kv_put_row(s, k, head, t, rows + t * s->wide);
}

bool bn_kv_fill(struct bn_kv *kv, const struct bn_kernels *k, uint64_t seed)
{
    float *numbers = bn_calloc(FILL_PERIOD + BN_ATTN_BLOCK * kv->wide, sizeof *numbers);
    if (!numbers) return false;
    float *rows = numbers + FILL_PERIOD;
    struct bn_rng r = {seed};
    for (size_t i = 0; i < FILL_PERIOD; i++) numbers[i] = (float)(bn_rng_unit(&r) * 4 - 2);
    for (uint32_t page = 0; page < kv->n_pages; page++)
        for (uint32_t layer = 0; layer < kv->n_layer; layer++)
            for (uint32_t head = 0; head < 2 * kv->n_head_kv; head++) {
                bool values = head >= kv->n_head_kv;
                fill_head(bn_kv_side(kv, layer, values), k,
                          bn_kv_head(kv, layer, page, head % kv->n_head_kv, values), rows, numbers,
                          bn_rng_u64(&r) >> 1);
            }
    free(numbers);
    return true;
}

static void forget_tail(struct bn_kv_seq *s)
{
    for (size_t i = 0; s->tail && i < BN_KV_TAIL_PAGES; i++) s->tail->page[i] = BN_KV_NO_PAGE;
}

bool bn_kv_seq_open(struct bn_kv_seq *s, const struct bn_kv *kv, uint32_t max_tokens)
{
    *s = (struct bn_kv_seq){.room = bn_kv_pages_for(max_tokens)};
    s->pages = bn_calloc_now(s->room, sizeof *s->pages);
    if (s->pages && !bn_kv_has_blocks(kv)) return true;
    s->tail = bn_calloc(1, sizeof *s->tail);
    if (s->tail) s->tail->data = bn_calloc(1, kv->tail_bytes);
    forget_tail(s);
    if (s->pages && s->tail && s->tail->data) return true;
    bn_kv_seq_close(s);
    return false;
}

void bn_kv_seq_close(struct bn_kv_seq *s)
{
    if (s->tail) free(s->tail->data);
    free(s->tail);
    free(s->pages);
    *s = (struct bn_kv_seq){0};
}

void bn_kv_hold(struct bn_kv *kv, uint32_t page)
{
    if (++kv->holders[page] == 2 && kv->on_shared) kv->on_shared(kv->on_shared_user, page, true);
}

void bn_kv_let_go(struct bn_kv *kv, uint32_t page)
{
    uint32_t left = --kv->holders[page];
    if (left == 0) kv->free_pages[kv->n_free++] = page;
    if (left == 1 && kv->on_shared) kv->on_shared(kv->on_shared_user, page, false);
}

static uint32_t take_page(struct bn_kv *kv)
{
    uint32_t page = kv->free_pages[--kv->n_free];
    kv->holders[page] = 1;
    return page;
}

/* The page that the next token goes to, if it is there already and others hold it, too. */
static uint32_t *shared_page(const struct bn_kv *kv, const struct bn_kv_seq *s, uint32_t n_tokens)
{
    uint32_t i = s->n_tokens / BN_ATTN_BLOCK;
    return n_tokens > s->n_tokens && i < s->n_pages && kv->holders[s->pages[i]] > 1 ? s->pages + i
                                                                                    : NULL;
}

uint32_t bn_kv_need(const struct bn_kv *kv, const struct bn_kv_seq *s, uint32_t n_tokens)
{
    uint32_t pages = bn_kv_pages_for(n_tokens);
    return (pages > s->n_pages ? pages - s->n_pages : 0) + (shared_page(kv, s, n_tokens) ? 1 : 0);
}

void bn_kv_copy_page(struct bn_kv *kv, uint32_t from, uint32_t to)
{
    const uint32_t pair[] = {from, to};
    memcpy(kv->data + to * kv->page_bytes, kv->data + from * kv->page_bytes, kv->page_bytes);
    if (kv->copies) bn_buf_append(kv->copies, pair, sizeof pair);
}

bool bn_kv_reserve(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens)
{
    uint32_t pages = bn_kv_pages_for(n_tokens);
    if (pages > s->room || bn_kv_need(kv, s, n_tokens) > kv->n_free) return false;
    uint32_t *shared = shared_page(kv, s, n_tokens);
    if (shared) {
        uint32_t own = take_page(kv);
        bn_kv_copy_page(kv, *shared, own);
        bn_kv_let_go(kv, *shared);
        *shared = own;
    }
    while (s->n_pages < pages) s->pages[s->n_pages++] = take_page(kv);
    return true;
}

static bool in_tail(const struct bn_kv_tail *tail, uint32_t page)
{
    return tail->page[page % BN_KV_TAIL_PAGES] == page;
}

void bn_kv_truncate(struct bn_kv *kv, struct bn_kv_seq *s, uint32_t n_tokens)
{
    if (n_tokens < s->n_tokens && s->tail && !in_tail(s->tail, n_tokens / BN_ATTN_BLOCK))
        n_tokens -= n_tokens % BN_ATTN_BLOCK;
    uint32_t pages = bn_kv_pages_for(n_tokens);
    while (s->n_pages > pages) bn_kv_let_go(kv, s->pages[--s->n_pages]);
    s->n_tokens = n_tokens;
    if (n_tokens == 0) forget_tail(s);
    if (s->state) bn_state_truncate(s->state, n_tokens);
}

void bn_kv_release(struct bn_kv *kv, struct bn_kv_seq *s) { bn_kv_truncate(kv, s, 0); }

void bn_kv_share(struct bn_kv *kv, struct bn_kv_seq *s, const uint32_t *pages, uint32_t n_tokens)
{
    while (s->n_pages < bn_kv_pages_for(n_tokens)) {
        s->pages[s->n_pages] = pages[s->n_pages];
        bn_kv_hold(kv, s->pages[s->n_pages++]);
    }
    s->n_tokens = n_tokens;
}
