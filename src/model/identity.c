/* SPDX-License-Identifier: Apache-2.0
 *
 * The checksum of plans looks at norms and the embedding, which adapters that were merged, or a model
 * tuned from another one, may leave as they are. So the first and the last row of every matrix count here
 * as well, as the numbers that they stand for.
 */
#include "model/identity.h"

#include "base/checksum.h"
#include "base/os/mem.h"
#include "base/rng.h"
#include <stdlib.h>

static void add(uint64_t *sum, const void *data, size_t n)
{
    *sum = bn_mix64(*sum ^ bn_checksum(data, n));
}

static size_t cols_of(const struct bn_matrix *w)
{
    return w->dense ? w->stored.cols : w->packed.cols;
}

static size_t rows_of(const struct bn_matrix *w)
{
    return w->dense ? w->stored.rows : w->packed.rows;
}

static void add_scales(uint64_t *sum, const struct bn_matrix *w, size_t row)
{
    const struct bn_packed *p = &w->packed;
    if (p->scale_kind == BN_SCALE_BLOCK) {
        size_t n = p->cols / p->block;
        for (size_t b = 0; b < n; b++)
            *sum = bn_mix64(*sum ^ p->block_scale[bn_scale_at(w->gemm, n, row, b)]);
    } else {
        float scale = bn_row_scale(p, row);
        add(sum, &scale, sizeof scale);
    }
}

/* One row to the sum; room: for a group of rows, or one of floats. */
static void add_row(uint64_t *sum, const struct bn_model *m, const struct bn_matrix *w, size_t row,
                    void *room)
{
    size_t cols = cols_of(w);
    if (w->dense) {
        bn_stored_row(&m->kernels, room, &w->stored, row);
        add(sum, room, cols * sizeof(float));
        return;
    }
    const struct bn_gemm *g = w->gemm;
    size_t group = row / g->group_rows, in_group = row % g->group_rows;
    g->unpack(room, w->packed.data + group * g->group_bytes(cols), in_group + 1, cols);
    add(sum, (const int8_t *)room + in_group * cols, cols);
    add_scales(sum, w, row);
}

static size_t room_for(const struct bn_matrix *w)
{
    return cols_of(w) * (w->dense ? sizeof(float) : w->gemm->group_rows);
}

bitnet_status bn_model_identity(uint64_t *sum, const struct bn_model *m, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    uint32_t n_layer = bn_config_layers(c);
    size_t bytes = 1;
    for (uint32_t i = 0; i < n_layer * BN_N_PROJ; i++) {
        const struct bn_matrix *w = &m->layers[i / BN_N_PROJ].proj[i % BN_N_PROJ];
        if (rows_of(w)) bytes = bn_max_size(bytes, room_for(w));
    }
    void *room = bn_calloc(1, bytes);
    if (!room) return bn_fail_nomem(err, bytes, "the model's identity");
    const uint32_t how = (uint32_t)m->activations;
    *sum = m->checksum;
    add(sum, &how, sizeof how);
    if (m->rope_factors) add(sum, m->rope_factors, c->rope_dim / 2 * sizeof *m->rope_factors);
    for (uint32_t i = 0; i < n_layer * BN_N_PROJ; i++) {
        const struct bn_matrix *w = &m->layers[i / BN_N_PROJ].proj[i % BN_N_PROJ];
        size_t rows = rows_of(w);
        if (!rows) continue;
        add(sum, &i, sizeof i);
        add_row(sum, m, w, 0, room);
        add_row(sum, m, w, rows - 1, room);
    }
    free(room);
    return BITNET_OK;
}
