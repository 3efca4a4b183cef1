/* SPDX-License-Identifier: Apache-2.0
 * Which node memory goes to. Workers are bound before they write, and the first to write a page
 * decides where it lies; but a huge page holds rows of several, and the first is any of them. */
#include "model/model.h"

static size_t to_page(size_t offset)
{
    return (offset + BN_HUGE_PAGE / 2) & ~(size_t)(BN_HUGE_PAGE - 1);
}

/* Shares follow each other as nodes do. At both ends the page belongs to what follows, here or in the
 * next matrix: so every page is asked for once, and none outside of the block. */
static void cut_by_nodes(const struct bn_model *m, const struct bn_pool *pool, uint8_t *data,
                         size_t bytes, size_t rows, size_t grain)
{
    size_t before = (uintptr_t)data % BN_HUGE_PAGE, from = 0, to;
    size_t whole = (before + bytes) / BN_HUGE_PAGE * BN_HUGE_PAGE;
    size_t grain_bytes = bytes / bn_div_up(rows, grain);
    uint32_t n = bn_pool_threads(pool);
    for (uint32_t w = 0; w < n; w++, from = to) {
        size_t end = bn_pool_share(pool, w, rows, grain).end;
        uint32_t node = bn_pool_node(pool, w);
        to = from;
        if (w + 1 < n && bn_pool_node(pool, w + 1) == node) continue;
        to = w + 1 < n ? bn_min_size(to_page(before + end / grain * grain_bytes), whole) : whole;
        bn_numa_bind(m->numa, data - before + from, to - from, node);
    }
}

void bn_place_weights(const struct bn_model *m, const struct bn_pool *pool, void *data,
                      size_t bytes, size_t rows, size_t grain)
{
    enum bn_numa_mode mode = bn_numa_mode(m->numa);
    if (mode == BN_NUMA_OFF) return;
    if (mode != BN_NUMA_DISTRIBUTE) bn_numa_bind(m->numa, data, bytes, 0);
    else if (rows) cut_by_nodes(m, pool, data, bytes, rows, grain);
    else bn_numa_interleave(m->numa, data, bytes);
}

/* A page of the KV cache holds all heads of its tokens, and heads are dealt to all workers: wherever
 * it lay, most would read it from afar. In turn, all nodes have the same to do. */
void bn_place_shared(const struct bn_model *m, void *data, size_t bytes)
{
    if (bn_numa_mode(m->numa) == BN_NUMA_OFF) return;
    if (bn_numa_nodes(m->numa) == 1) bn_numa_bind(m->numa, data, bytes, 0);
    else bn_numa_interleave(m->numa, data, bytes);
}
