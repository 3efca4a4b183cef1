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

/* The system is asked once for so many bytes. */
enum { ASK_BYTES = 64 << 10 };

static uint64_t near_share(const struct bn_model *m, const struct bn_pool *pool,
                           const struct bn_matrix *x, uint32_t worker)
{
    size_t grain = x->gemm->group_rows, grain_bytes = x->gemm->group_bytes(x->packed.cols);
    struct bn_range r = bn_pool_share(pool, worker, x->packed.rows, grain);
    size_t end = bn_div_up(r.end, grain) * grain_bytes, near = 0;
    for (size_t at = r.begin / grain * grain_bytes; at < end; at += ASK_BYTES)
        if (bn_numa_where(m->numa, x->packed.data + at) == (int)bn_pool_node(pool, worker))
            near += bn_min_size(ASK_BYTES, end - at);
    return near;
}

uint64_t bn_place_near(const struct bn_model *m, const struct bn_pool *pool)
{
    uint64_t near = 0;
    for (uint32_t w = 0; m->numa && w < bn_pool_threads(pool); w++) {
        const struct bn_layer *layers = bn_model_layers(m, bn_pool_node(pool, w));
        for (uint32_t i = 0; i < bn_config_layers(&m->config); i++)
            for (int k = 0; k < BN_N_PROJ; k++)
                if (!layers[i].proj[k].dense) near += near_share(m, pool, &layers[i].proj[k], w);
    }
    return near;
}
