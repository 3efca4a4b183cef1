/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values of a layer that are floats of one type, or both codes, are used where they lie in the cache.
 * Others are read into a worker's buffer, a block at a time, once for all queries that see it. Where the cache holds
 * blocks (kv.h), a token's own page comes from the batch and from the sequence's tail; the tail is
 * written last, since the batch may need what it replaces. */
#include "model/attention/attention_impl.h"

static float *buffer_of(const struct bn_attention *a, uint32_t worker, bool values)
{
    return a->buffers + (2 * worker + (values ? 1 : 0)) * BN_ATTN_BLOCK * a->kv->wide;
}

void bn_attention_store(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                        uint32_t kv_head, bool values)
{
    const struct bn_kernels *kn = &a->m->kernels;
    const struct bn_kv_side *side = bn_kv_side(a->kv, layer->index, values);
    const struct bn_batch_token *b = &a->batch[t];
    float *x = bn_attention_row(a, layer, t, kv_head, values);
    if (side->block_bits) {
        uint16_t half[BN_MAX_HEAD_DIM];
        kn->f32_to_f16(half, x, a->dim);
        kn->row_f16(x, half, a->dim);
        return;
    }
    uint32_t page = b->seq->pages[b->pos / BN_ATTN_BLOCK];
    bn_kv_put_row(side, kn, bn_kv_head(a->kv, layer->index, page, kv_head, values),
                  b->pos % BN_ATTN_BLOCK, x);
}

/* The rows of token t's own page up to its own, as they are before they become part of a block. */
static void gather(float *to, const struct bn_attention *a, const struct bn_attention_layer *layer,
                   size_t t, uint32_t kv_head, bool values)
{
    const struct bn_batch_token *b = &a->batch[t];
    size_t wide = a->kv->wide;
    for (uint32_t pos = b->pos - b->pos % BN_ATTN_BLOCK; pos <= b->pos; pos++, to += wide) {
        if (pos >= a->spans[t].first)
            memcpy(to, bn_attention_row(a, layer, t - (b->pos - pos), kv_head, values),
                   a->dim * sizeof *to);
        else
            a->m->kernels.row_f16(
                to, bn_kv_tail_row(a->kv, b->seq->tail, layer->index, pos, kv_head, values),
                a->dim);
        memset(to + a->dim, 0, (wide - a->dim) * sizeof *to);
    }
}

void bn_attention_store_page(struct bn_attention *a, const struct bn_attention_layer *layer,
                             size_t t, uint32_t kv_head, uint32_t worker)
{
    const struct bn_batch_token *b = &a->batch[t];
    if (b->pos % BN_ATTN_BLOCK != BN_ATTN_BLOCK - 1) return;
    uint32_t page = b->seq->pages[b->pos / BN_ATTN_BLOCK];
    for (int values = 0; values < 2; values++) {
        if (!bn_kv_side(a->kv, layer->index, values)->block_bits) continue;
        float *rows = buffer_of(a, worker, values);
        gather(rows, a, layer, t, kv_head, values);
        bn_kv_put_block(bn_kv_side(a->kv, layer->index, values), &a->m->kernels,
                        bn_kv_head(a->kv, layer->index, page, kv_head, values), rows);
    }
}

void bn_attention_store_tail(struct bn_attention *a, const struct bn_attention_layer *layer,
                             size_t t, uint32_t kv_head, uint32_t worker)
{
    (void)worker;
    const struct bn_batch_token *b = &a->batch[t];
    if (b->pos / BN_ATTN_BLOCK + BN_KV_TAIL_PAGES <= a->spans[t].last / BN_ATTN_BLOCK) return;
    for (int values = 0; values < 2; values++)
        if (bn_kv_side(a->kv, layer->index, values)->block_bits)
            a->m->kernels.f32_to_f16(
                bn_kv_tail_row(a->kv, b->seq->tail, layer->index, b->pos, kv_head, values),
                bn_attention_row(a, layer, t, kv_head, values), a->dim);
}

struct bn_attention_view bn_attention_view(const struct bn_attention *a,
                                           const struct bn_attention_layer *layer, size_t t,
                                           uint32_t kv_head, uint32_t next_head, size_t block,
                                           uint32_t worker)
{
    const struct bn_batch_token *b = &a->batch[t];
    const uint32_t *page = b->seq->pages + block;
    uint32_t il = layer->index;
    bool own = block == b->pos / BN_ATTN_BLOCK;
    const struct bn_attention_ways ways = bn_attention_ways(a->kv, il);
    struct bn_attention_view w = {bn_kv_head(a->kv, il, page[0], kv_head, false),
                                  bn_kv_head(a->kv, il, page[0], kv_head, true), NULL, NULL,
                                  ways.codes && !(own && bn_kv_layer_has_blocks(a->kv, il))};
    if (!own) {
        w.next_k = bn_kv_head(a->kv, il, page[1], kv_head, false);
        w.next_v = bn_kv_head(a->kv, il, page[1], kv_head, true);
    } else if (next_head < a->heads) {
        w.next_k = bn_kv_head(a->kv, il, b->seq->pages[0], next_head, false);
        w.next_v = bn_kv_head(a->kv, il, b->seq->pages[0], next_head, true);
    }
    if (ways.in_place || w.codes) return w;
    size_t n = bn_min_size(BN_ATTN_BLOCK, b->pos + 1 - block * BN_ATTN_BLOCK);
    for (int values = 0; values < 2; values++) {
        const struct bn_kv_side *side = bn_kv_side(a->kv, layer->index, values);
        float *rows = buffer_of(a, worker, values);
        if (side->block_bits && own) gather(rows, a, layer, t, kv_head, values);
        else
            bn_kv_get(rows, side, &a->m->kernels, values ? w.v : w.k, n,
                      values ? w.next_v : w.next_k);
    }
    return (struct bn_attention_view){buffer_of(a, worker, false), buffer_of(a, worker, true), NULL,
                                      NULL, false};
}

/* Spans, whether a page ends, and what will be in the tails. */
void bn_attention_begin_blocks(struct bn_attention *a)
{
    a->page_ends = false;
    for (size_t t = 0, end; t < a->n; t = end) {
        const struct bn_batch_token *b = a->batch + t;
        for (end = t + 1; end < a->n && a->batch[end].seq == b->seq;) end++;
        struct bn_attention_span span = {b->pos, a->batch[end - 1].pos};
        for (size_t i = t; i < end; i++) a->spans[i] = span;
        uint32_t page = span.last / BN_ATTN_BLOCK, from = span.first / BN_ATTN_BLOCK;
        a->page_ends |= (span.last + 1) / BN_ATTN_BLOCK > from;
        for (uint32_t i = 0; i < BN_KV_TAIL_PAGES && page - i + 1 > from; i++)
            b->seq->tail->page[(page - i) % BN_KV_TAIL_PAGES] = page - i;
    }
}
