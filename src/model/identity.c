/* SPDX-License-Identifier: Apache-2.0
 *
 * The checksum of plans looks at norms and the embedding, which adapters that were merged, or a model
 * tuned from another one, may leave as they are. So rows of every matrix count here as well, as the
 * numbers that they stand for: the first ones, since they are the same however ranks divide a model.
 */
#include "model/identity.h"

#include "base/checksum.h"
#include "base/os/mem.h"
#include "base/rng.h"
#include <stdlib.h>

enum { ROWS = 8 }; /* of every matrix */

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

/* The first rows of a matrix to the sum; room: for them, and for a group of rows. */
static void add_rows(uint64_t *sum, const struct bn_model *m, const struct bn_matrix *w, void *room)
{
    size_t cols = cols_of(w), n = bn_min_size(rows_of(w), ROWS);
    if (w->dense) {
        for (size_t i = 0; i < n; i++) {
            bn_stored_row(&m->kernels, room, &w->stored, i);
            add(sum, room, cols * sizeof(float));
        }
        return;
    }
    const struct bn_gemm *g = w->gemm;
    for (size_t i = 0; i < n; i++) {
        size_t group = i / g->group_rows, in_group = i % g->group_rows;
        if (in_group == 0)
            g->unpack(room, w->packed.data + group * g->group_bytes(cols),
                      bn_min_size(g->group_rows, n - i), cols);
        add(sum, (const int8_t *)room + in_group * cols, cols);
        add_scales(sum, w, i);
    }
}

static size_t room_for(const struct bn_matrix *w)
{
    return cols_of(w) * (w->dense ? sizeof(float) : w->gemm->group_rows);
}

/* The matrices of all layers; an output head of its own is the last one. NULL: there is none. */
static const struct bn_matrix *matrix_at(const struct bn_model *m, uint32_t i)
{
    uint32_t n = bn_config_layers(&m->config) * BN_N_PROJ;
    const struct bn_matrix *w = i < n ? &m->layers[i / BN_N_PROJ].proj[i % BN_N_PROJ]
                                : m->config.tied_head ? NULL
                                                      : &m->head;
    return w && rows_of(w) ? w : NULL;
}

bitnet_status bn_model_identity(uint64_t *sum, const struct bn_model *m, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    uint32_t n = bn_config_layers(c) * BN_N_PROJ + 1;
    size_t bytes = 1;
    for (uint32_t i = 0; i < n; i++)
        if (matrix_at(m, i)) bytes = bn_max_size(bytes, room_for(matrix_at(m, i)));
    void *room = bn_calloc(1, bytes);
    if (!room) return bn_fail_nomem(err, bytes, "the model's identity");
    const uint32_t how = (uint32_t)m->activations;
    *sum = m->checksum;
    add(sum, &how, sizeof how);
    if (m->rope_factors) add(sum, m->rope_factors, c->rope_dim / 2 * sizeof *m->rope_factors);
    for (uint32_t i = 0; i < n; i++) {
        if (!matrix_at(m, i)) continue;
        add(sum, &i, sizeof i);
        add_rows(sum, m, matrix_at(m, i), room);
    }
    free(room);
    return BITNET_OK;
}
