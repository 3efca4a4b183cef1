/* SPDX-License-Identifier: Apache-2.0
 * A packed file may come from another CPU. What lies in a layout without a kernel here would be
 * computed by the reference, slowly; so such matrices are packed again when the model is opened. */
#include "model/image/image.h"

#include <stdlib.h>

struct job {
    struct bn_pool *pool;
    const struct bn_matrix *from;
    const struct bn_gemm *to;
    uint8_t *data;
    int8_t *trits; /* [threads][room] */
    size_t room;
};

/* Groups of both layouts begin at multiples of so many rows. */
static size_t step_rows(const struct bn_gemm *a, const struct bn_gemm *b)
{
    size_t n = a->group_rows;
    while (n % b->group_rows) n += a->group_rows;
    return n;
}

static void repack_worker(void *arg, uint32_t worker)
{
    struct job *j = arg;
    const struct bn_gemm *a = j->from->gemm, *b = j->to;
    size_t rows = j->from->packed.rows, cols = j->from->packed.cols, step = step_rows(a, b);
    int8_t *w = j->trits + worker * j->room;
    struct bn_range share = bn_pool_share(j->pool, worker, rows, step);
    for (size_t r0 = share.begin; r0 < share.end; r0 += step) {
        size_t n = bn_min_size(step, share.end - r0);
        for (size_t i = 0; i < n; i += a->group_rows)
            a->unpack(w + i * cols,
                      j->from->packed.data + (r0 + i) / a->group_rows * a->group_bytes(cols),
                      bn_min_size(a->group_rows, n - i), cols);
        for (size_t i = 0; i < n; i += b->group_rows)
            b->pack(j->data + (r0 + i) / b->group_rows * b->group_bytes(cols), w + i * cols,
                    bn_min_size(b->group_rows, n - i), cols);
    }
}

/* Block scales stand in the order of the layout. */
static bool order_scales(struct bn_model *m, struct bn_matrix *x, const struct bn_gemm *to)
{
    struct bn_packed *p = &x->packed;
    if (p->scale_kind != BN_SCALE_BLOCK || to->scale_rows == x->gemm->scale_rows) return true;
    size_t blocks = p->cols / p->block, n = bn_scale_count(to, blocks, p->rows);
    uint16_t *scales = bn_slab_alloc(&m->slab, n * sizeof *scales);
    if (!scales) return false;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t b = 0; b < blocks; b++)
            scales[bn_scale_at(to, blocks, r, b)] =
                p->block_scale[bn_scale_at(x->gemm, blocks, r, b)];
    p->block_scale = scales;
    return true;
}

static bitnet_status repack(struct bn_model *m, struct bn_matrix *x, const struct bn_gemm *to,
                            struct bn_pool *pool, bitnet_error *err)
{
    size_t rows = x->packed.rows, cols = x->packed.cols, threads = bn_pool_threads(pool);
    size_t bytes = bn_div_up(rows, to->group_rows) * to->group_bytes(cols);
    size_t before = bn_matrix_bytes(x) + bn_matrix_scale_bytes(x);
    struct job j = {.pool = pool, .from = x, .to = to, .room = step_rows(x->gemm, to) * cols};
    j.data = bn_slab_alloc(&m->slab, bytes);
    j.trits = bn_calloc(threads, j.room);
    if (!j.data || !j.trits || !order_scales(m, x, to)) {
        free(j.trits);
        return bn_fail_nomem(err, bytes, "packing weights again");
    }
    bn_place_weights(m, pool, j.data, bytes, rows, to->group_rows);
    bn_pool_run(pool, repack_worker, &j);
    free(j.trits);
    x->gemm = to;
    x->packed.data = j.data;
    m->packed_bytes += bn_matrix_bytes(x) + bn_matrix_scale_bytes(x) - before;
    return BITNET_OK;
}

/* Has a layout more than the reference for the model's activations? */
static bool has_kernel(const struct bn_model *m, const struct bn_gemm *g)
{
    static const struct bn_gemm *const all[] = {
#define K_REF(op, fn)
#define G_REF(op, obj) &obj,
#define K(op, isa, needs, fn)
#define G(op, isa, needs, obj)
#include "kernels/kernels.def"
    };
    enum bn_act_quant act = m->activations;
    const struct bn_gemm *ref = g;
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++)
        if (strcmp(all[i]->layout, g->layout) == 0) ref = all[i];
    if (act == BN_AQ_F32) return g->mul_f32 != ref->mul_f32;
    return bn_act_planes(act) ? g->mul_planes != ref->mul_planes : g->mul_i8 != ref->mul_i8;
}

/* The layout that a matrix should have here; "t2" holds everything. */
static const struct bn_gemm *wanted(const struct bn_model *m, const struct bn_matrix *x, bool named)
{
    const struct bn_gemm *g = x->gemm->binary ? m->gemm_binary : m->gemm, *now = x->gemm;
    if (!bn_gemm_accepts(g, x->packed.scale_kind, now->w_max, now->binary)) g = m->kernels.gemm_t2;
    if (now == g || named) return g;
    return !has_kernel(m, now) && has_kernel(m, g) ? g : now;
}

bitnet_status bn_image_repack(struct bn_model *m, struct bn_pool *pool, const char *layout,
                              bitnet_error *err)
{
    bool named = layout && strcmp(layout, "auto") != 0;
    const char *before = m->layout, *after = NULL;
    uint32_t n = bn_config_layers(&m->config);
    for (size_t i = 0; i <= (size_t)n * BN_N_PROJ; i++) {
        struct bn_matrix *x =
            i < (size_t)n * BN_N_PROJ ? &m->layers[i / BN_N_PROJ].proj[i % BN_N_PROJ] : &m->head;
        if (x->dense) continue;
        const struct bn_gemm *to = wanted(m, x, named);
        uint64_t bytes = m->packed_bytes;
        if (to != x->gemm) BN_TRY(repack(m, x, to, pool, err));
        if (x == &m->head) m->head_packed_bytes += m->packed_bytes - bytes;
        else if (i / BN_N_PROJ >= m->config.n_layer) m->mtp_bytes += m->packed_bytes - bytes;
        if (x != &m->head) after = !after || strcmp(after, to->layout) == 0 ? to->layout : "mixed";
    }
    if (!after || strcmp(before, after) == 0) return BITNET_OK;
    m->layout = after;
    bn_buf_printf(&m->note,
                  "%sThe weights in '%s' are packed as %s; for %s they were packed again as %s, "
                  "which 'convert --packed' on this machine saves.",
                  m->note.len ? " " : "", m->image.path, before,
                  named ? "the layout asked for" : "the kernels of this CPU", after);
    return BITNET_OK;
}
