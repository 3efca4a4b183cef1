/* SPDX-License-Identifier: Apache-2.0
 * Copies of the packed matrices for nodes other than the first, made of what lies there. A copy is one
 * block, bound to its node before it is written. */
#include "base/os/mem.h"
#include "model/model.h"
#include <stdlib.h>

enum { COPY_GRAIN = 4096 };

struct job {
    struct bn_pool *pool;
    struct bn_plan plan; /* base NULL: only measures */
    const uint8_t *from;
    uint8_t *to;
    size_t bytes;
};

static void copy_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    struct bn_range r = bn_pool_share(j->pool, worker, j->bytes, COPY_GRAIN);
    memcpy(j->to + r.begin, j->from + r.begin, r.end - r.begin);
}

/* The place of a copy, with the bytes in it; the original while it is measured, or where there is
 * none. */
static const void *copy(struct job *j, const void *from, size_t bytes)
{
    if (!from || !bytes) return from;
    j->to = bn_plan_piece(&j->plan, bytes, 1);
    if (!j->to) return from;
    j->from = from;
    j->bytes = bytes;
    bn_pool_run(j->pool, copy_worker, j);
    return j->to;
}

static void copy_matrix(struct job *j, struct bn_matrix *w)
{
    struct bn_packed *p = &w->packed;
    if (w->dense) return;
    p->data = copy(j, p->data, bn_matrix_bytes(w));
    p->row_scale = copy(j, p->row_scale, p->rows * sizeof *p->row_scale);
    if (p->scale_kind == BN_SCALE_BLOCK)
        p->block_scale = copy(j, p->block_scale, bn_matrix_scale_bytes(w));
}

/* A copy for lists has the scales of its matrix. */
static void copy_part(struct job *j, struct bn_part_copy *c, const struct bn_matrix *of)
{
    c->w.data = copy(j, c->w.data, c->bytes);
    c->w.row_scale = of->packed.row_scale;
}

/* The head's copy is one block. */
static void copy_head(struct job *j, struct bn_replica *r, const struct bn_model *m)
{
    const void *from = bn_head_copy_data(&m->screen, &m->head_int8);
    struct bn_plan p = {.base = (uint8_t *)copy(j, from, m->head_copy_bytes)};
    if (m->screen.coarse.data)
        bn_screen_lay_out(&r->screen, &p, m->head.stored.rows, m->head.stored.cols,
                          m->prefetch_bytes);
    else if (from)
        bn_dense8_lay_out(&r->head_int8, &p, m->head.stored.rows, m->head.stored.cols,
                          m->prefetch_bytes);
}

static void copy_all(struct job *j, struct bn_replica *r, const struct bn_model *m)
{
    uint32_t n_layer = bn_config_layers(&m->config);
    memcpy(r->layers, m->layers, n_layer * sizeof *r->layers);
    for (uint32_t i = 0; i < n_layer; i++) {
        struct bn_layer *layer = &r->layers[i];
        for (int k = 0; k < BN_N_PROJ; k++) copy_matrix(j, &layer->proj[k]);
        copy_part(j, &layer->up_rows, &layer->proj[BN_P_UP - BN_P_Q]);
        copy_part(j, &layer->down_cols, &layer->proj[BN_P_DOWN - BN_P_Q]);
    }
    copy_head(j, r, m);
}

static bitnet_status make(struct bn_model *m, struct bn_replica *r, uint32_t node,
                          struct bn_pool *pool, bitnet_error *err)
{
    struct job j = {.pool = pool};
    uint32_t n_layer = bn_config_layers(&m->config);
    r->layers = bn_calloc(n_layer, sizeof *r->layers);
    if (!r->layers) return bn_fail_nomem(err, n_layer * sizeof *r->layers, "a copy of the layers");
    copy_all(&j, r, m);
    r->bytes = j.plan.used;
    BN_TRY(bn_block_take((void **)&r->block, &r->bytes, &m->backing,
                         "a copy of the weights for each node (numa 'distribute' has one for all)",
                         err));
    bn_numa_bind(m->numa, r->block, r->bytes, node);
    j.plan = (struct bn_plan){.base = r->block};
    copy_all(&j, r, m);
    m->replica_bytes += r->bytes;
    m->packed_bytes += r->bytes;
    return BITNET_OK;
}

bitnet_status bn_replicas_make(struct bn_model *m, struct bn_pool *pool, bitnet_error *err)
{
    if (bn_numa_mode(m->numa) != BN_NUMA_REPLICATE || m->n_nodes == 1) return BITNET_OK;
    m->replicas = bn_calloc(m->n_nodes - 1, sizeof *m->replicas);
    if (!m->replicas)
        return bn_fail_nomem(err, m->n_nodes * sizeof *m->replicas, "copies of the weights");
    m->n_replicas = m->n_nodes - 1;
    for (uint32_t i = 0; i < m->n_replicas; i++) BN_TRY(make(m, &m->replicas[i], i + 1, pool, err));
    return BITNET_OK;
}

void bn_replicas_free(struct bn_model *m)
{
    for (uint32_t i = 0; i < m->n_replicas; i++) {
        free(m->replicas[i].layers);
        bn_block_free(m->replicas[i].block, m->replicas[i].bytes);
    }
    free(m->replicas);
    m->replicas = NULL;
    m->n_replicas = 0;
}
