/* SPDX-License-Identifier: Apache-2.0
 * From a directory of tensors to a model's weights. Matrices are packed one after the other, each
 * by all threads of the pool, and the file's pages are let go as soon as they are packed: so the
 * peak is about one copy of the weights. */
#include "model/model.h"

#include "base/det_math.h"
#include "base/os/mem.h"
#include "model/config/hadamard.h"
#include "model/config/order.h"
#include "model/config/rope.h"
#include "model/weights/ternary.h"
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct loader {
    struct bn_model *m;
    const struct bn_source *s;
    struct bn_pool *pool;
    bitnet_error *err;
    uint8_t *claimed;           /* [n_tensors] 1: the architecture knows this tensor */
    int8_t *trits;              /* [threads][max_group][max_cols] */
    float *row;                 /* [threads][max_cols] */
    size_t max_cols, max_group; /* max_group: rows of a group in any layout */
    uint64_t n_rotated[2];      /* matrices with a rotated input; tables with rotated rows */
};

static void claim(struct loader *l, const struct bn_tensor *t)
{
    if (t) l->claimed[t - l->s->tensors] = 1;
}

/* A tensor of n finite floats as f32 in the slab, as it is stored. p, layer: its name if it is
 * missing. */
static bitnet_status load_floats(struct loader *l, float **out, const struct bn_tensor *t,
                                 enum bn_part p, uint32_t layer, uint64_t n)
{
    *out = NULL;
    if (!t) return bn_part_missing(l->s, p, layer, l->err);
    claim(l, t);
    BN_TRY(bn_source_fetch(l->s, t, l->err));
    struct bn_stored st = bn_tensor_stored(t);
    if (st.rows * st.cols != n || (t->type != BN_F32 && t->type != BN_F16 && t->type != BN_BF16))
        return bn_fail(l->err, BITNET_E_FORMAT,
                       "tensor '%s' should be %llu floats; it is %llu x %llu of type %s", t->name,
                       (unsigned long long)n, (unsigned long long)st.rows,
                       (unsigned long long)st.cols, bn_type_info(t->type)->name);
    float *v = bn_slab_alloc(&l->m->slab, n * sizeof *v);
    if (!v) return bn_fail_nomem(l->err, n * sizeof *v, t->name);
    st.cols = n;
    st.rows = 1;
    bn_dequant_row(v, &st, 0);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return bn_fail(l->err, BITNET_E_FORMAT, "tensor '%s' holds a value that is not finite",
                           t->name);
    l->m->n_params += n;
    *out = v;
    return BITNET_OK;
}

static bitnet_status load_norm(struct loader *l, const float **out, enum bn_part p, uint32_t layer)
{
    uint64_t rows, cols;
    float *v;
    bn_part_shape(&l->m->config, p, &rows, &cols);
    BN_TRY(load_floats(l, &v, bn_part_find(l->s, p, layer), p, layer, cols));
    for (uint64_t i = 0; l->m->config.norm_plus_one && p != BN_P_DELTA_NORM && i < cols; i++)
        v[i] += 1.0f;
    *out = v;
    return BITNET_OK;
}

/* Numbers of value heads, in the order of the model. Checkpoints have the logarithm of -A. */
static bitnet_status load_gate(struct loader *l, const float **out, enum bn_part p, uint32_t layer)
{
    const struct bn_config *c = &l->m->config;
    const struct bn_here here = bn_part_here(l->m, BN_P_DELTA_ALPHA);
    float *v, *stored;
    BN_TRY(load_floats(l, &stored, bn_part_find(l->s, p, layer), p, layer, c->delta.n_v_heads));
    v = bn_slab_alloc(&l->m->slab, here.n_rows * sizeof *v);
    if (!v) return bn_fail_nomem(l->err, here.n_rows * sizeof *v, "gates");
    for (size_t i = 0; i < here.n_rows; i++) {
        v[i] = stored[bn_order_row(c, p, bn_here_row(&here, i))];
        if (p == BN_P_DELTA_A && !l->s->is_gguf) v[i] = -(float)bn_det_exp((double)v[i]);
    }
    *out = v;
    return BITNET_OK;
}

/* [conv width][taps] in the file; here tap by tap, channels in the order of the model. */
static bitnet_status load_conv(struct loader *l, const float **out, uint32_t layer)
{
    const struct bn_config *c = &l->m->config;
    const struct bn_here here = bn_part_here(l->m, BN_P_DELTA_QKV);
    size_t width = here.n_rows, taps = c->delta.taps;
    float *w, *stored;
    BN_TRY(load_floats(l, &stored, bn_part_find(l->s, BN_P_DELTA_CONV, layer), BN_P_DELTA_CONV,
                       layer, bn_delta_conv_width(&c->delta) * taps));
    w = bn_slab_alloc(&l->m->slab, width * taps * sizeof *w);
    if (!w) return bn_fail_nomem(l->err, width * taps * sizeof *w, "a convolution");
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < taps; j++)
            w[j * width + i] =
                stored[bn_order_row(c, BN_P_DELTA_CONV, bn_here_row(&here, i)) * taps + j];
    *out = w;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ packing */

struct pack_job {
    struct loader *l;
    const struct bn_ternary *t;
    const struct bn_gemm *gemm;
    uint8_t *data;
    float *row_scale;
    uint16_t *block_scale;
    struct bn_here here;
    enum bn_part part;
    _Atomic uint64_t bad_row; /* UINT64_MAX: none */
};

static void pack_worker(void *arg, uint32_t worker)
{
    struct pack_job *j = arg;
    const struct bn_gemm *g = j->gemm;
    uint64_t rows = j->here.n_rows, cols = j->t->stored.cols;
    size_t blocks = j->t->block ? cols / j->t->block : 0, group_bytes = g->group_bytes(cols);
    uint16_t scales[BN_COLS_MAX / 32];
    int8_t *w = j->l->trits + worker * j->l->max_group * j->l->max_cols;
    float *scratch = j->l->row + worker * j->l->max_cols;
    struct bn_range share = bn_pool_share(j->l->pool, worker, rows, g->group_rows);
    for (size_t r0 = share.begin; r0 < share.end; r0 += g->group_rows) {
        size_t n = bn_min_size(g->group_rows, rows - r0);
        for (size_t r = r0; r < r0 + n; r++) {
            size_t row = bn_here_row(&j->here, r);
            if (!bn_ternary_row(w + (r - r0) * cols, j->row_scale ? j->row_scale + r : NULL,
                                j->block_scale ? scales : NULL, j->t,
                                bn_order_row(&j->l->m->config, j->part, row), scratch))
                atomic_store(&j->bad_row, row);
            for (size_t b = 0; j->block_scale && b < blocks; b++)
                j->block_scale[bn_scale_at(g, blocks, r, b)] = scales[b];
        }
        g->pack(j->data + r0 / g->group_rows * group_bytes, w, n, cols);
    }
}

static bitnet_status fail_code(const struct loader *l, const char *tensor, uint64_t row,
                               const struct bn_type_info *type)
{
    return bn_fail(l->err, BITNET_E_FORMAT, "tensor '%s', row %llu: a code that %s does not allow",
                   tensor, (unsigned long long)row, type->name);
}

static bitnet_status pack_matrix(struct loader *l, struct bn_matrix *x, const struct bn_ternary *t,
                                 enum bn_part p, const struct bn_tensor *tensor)
{
    const struct bn_gemm *g = x->gemm;
    const struct bn_here here =
        bn_part_here(l->m, l->m->config.tied_head && p == BN_P_EMBED ? BN_P_HEAD : p);
    uint64_t rows = here.n_rows, cols = t->stored.cols;
    struct pack_job j = {.l = l, .t = t, .gemm = g, .here = here, .part = p, .bad_row = UINT64_MAX};
    if (!rows) { /* another rank's, all of them */
        x->dense = true;
        x->stored = (struct bn_stored){.cols = cols};
        return BITNET_OK;
    }
    size_t packed_bytes = bn_div_up(rows, g->group_rows) * g->group_bytes(cols);
    j.data = bn_slab_alloc(&l->m->slab, packed_bytes);
    if (!j.data) return bn_fail_nomem(l->err, packed_bytes, tensor->name);
    bn_place_weights(l->m, l->pool, j.data, packed_bytes, rows, g->group_rows);
    x->packed = (struct bn_packed){.data = j.data,
                                   .rows = rows,
                                   .cols = cols,
                                   .scale = t->scale,
                                   .ahead = l->m->prefetch_bytes};
    if (t->scale_kind == BN_TS_ROW_F32) {
        j.row_scale = bn_slab_alloc(&l->m->slab, rows * sizeof *j.row_scale);
        if (!j.row_scale) return bn_fail_nomem(l->err, rows * sizeof *j.row_scale, tensor->name);
        x->packed.scale_kind = BN_SCALE_ROW;
        x->packed.row_scale = j.row_scale;
    } else if (t->scale_kind == BN_TS_BLOCK_F16) {
        size_t bytes = bn_scale_count(g, cols / t->block, rows) * sizeof *j.block_scale;
        j.block_scale = bn_slab_alloc(&l->m->slab, bytes);
        if (!j.block_scale) return bn_fail_nomem(l->err, bytes, tensor->name);
        x->packed.scale_kind = BN_SCALE_BLOCK;
        x->packed.block_scale = j.block_scale;
        x->packed.block = t->block;
        l->m->packed_bytes += bytes;
    }
    bn_pool_run(l->pool, pack_worker, &j);
    uint64_t bad = atomic_load(&j.bad_row);
    if (bad != UINT64_MAX) return fail_code(l, tensor->name, bad, bn_type_info(t->stored.type));
    l->m->packed_bytes += packed_bytes;
    l->m->n_params_ternary += rows * cols;
    bn_source_release(l->s, tensor);
    return BITNET_OK;
}

/* The layout of a matrix: the wanted one, or "t2", which holds everything. */
static const struct bn_gemm *layout_of(const struct loader *l, const struct bn_ternary *t)
{
    enum bn_scale_kind kind = t->scale_kind == BN_TS_BLOCK_F16 ? BN_SCALE_BLOCK : BN_SCALE_TENSOR;
    const struct bn_gemm *g = t->binary ? l->m->gemm_binary : l->m->gemm;
    bool held = bn_gemm_accepts(g, kind, t->w_max, t->binary);
    return held ? g : l->m->kernels.gemm_t2;
}

/* "mixed" once two names differ; first NULL or "": none seen yet */
static const char *common_name(const char *first, const char *name)
{
    return !first || !*first || strcmp(first, name) == 0 ? name : "mixed";
}

/* A tensor that is used as it is stays in the file's mapping, or comes into the slab. */
static bitnet_status keep(struct loader *l, struct bn_stored *x, const struct bn_tensor *t)
{
    if (!l->s->to_read) return BITNET_OK;
    uint8_t *data = bn_slab_alloc(&l->m->slab, t->bytes);
    if (!data) return bn_fail_nomem(l->err, t->bytes, t->name);
    bn_place_shared(l->m, data, t->bytes);
    bn_source_release(l->s, t); /* if it was looked at */
    x->data = data;
    return bn_source_fetch_to(l->s, t, data, l->err);
}

/* The rows that are here. Those, or pieces of those, that stand elsewhere in the file are put in
 * order, in the slab. */
static bitnet_status keep_in_order(struct loader *l, struct bn_stored *x, enum bn_part p,
                                   const struct bn_tensor *t)
{
    const struct bn_config *c = &l->m->config;
    const struct bn_type_info *type = bn_type_info(x->type);
    const struct bn_here here = bn_part_here(l->m, p);
    struct bn_order_cols cols = bn_order_cols(c, p);
    bool moved = cols.width != 0;
    for (size_t r = 0; !moved && r < here.n_rows; r++)
        moved = bn_order_row(c, p, bn_here_row(&here, r)) != here.piece[0].begin + r;
    if (!moved) {
        BN_TRY(keep(l, x, t));
        bn_stored_cut(x, (struct bn_range){here.piece[0].begin, here.piece[0].begin + here.n_rows});
        return BITNET_OK;
    }
    size_t width = cols.width ? cols.width : (size_t)x->cols;
    if (width % type->block)
        return bn_fail(l->err, BITNET_E_UNSUPPORTED,
                       "tensor '%s': heads of %zu columns cannot be told apart in type %s", t->name,
                       width, type->name);
    size_t piece = width / type->block * type->block_bytes, pieces = (size_t)x->cols / width;
    size_t bytes = here.n_rows * pieces * piece;
    uint8_t *data = bn_slab_alloc(&l->m->slab, bytes);
    if (!data) return bn_fail_nomem(l->err, bytes, t->name);
    bn_place_shared(l->m, data, bytes);
    for (size_t r = 0; r < here.n_rows; r++) {
        uint64_t row = bn_order_row(c, p, bn_here_row(&here, r));
        for (size_t i = 0; i < pieces; i++) {
            size_t from = bn_order_col(&cols, i * width) / width;
            memcpy(data + (r * pieces + i) * piece, x->data + (row * pieces + from) * piece, piece);
        }
    }
    x->data = data;
    x->rows = here.n_rows;
    x->bytes = bytes;
    bn_source_release(l->s, t);
    return BITNET_OK;
}

/* Is the input of a matrix rotated? Then there must be signs of its width. */
static bitnet_status look_for_rotation(struct loader *l, bool *rotated, const struct bn_tensor *t,
                                       bool inverse)
{
    const struct bn_hadamard *h = &l->m->config.hadamard;
    *rotated = h->block && bn_hadamard_has(l->s, t->name, inverse);
    if (!*rotated) return BITNET_OK;
    l->n_rotated[inverse]++;
    bool width = !h->signs;
    for (uint32_t i = 0; i < h->n_widths; i++) width |= h->widths[i] == t->dims[0];
    if (width && t->dims[0] % h->block == 0) return BITNET_OK;
    return bn_fail(l->err, BITNET_E_FORMAT,
                   "tensor '%s' is rotated, and there are no signs for its %llu columns", t->name,
                   (unsigned long long)t->dims[0]);
}

static bitnet_status open_projection(struct loader *l, struct bn_matrix *x, struct bn_ternary *t,
                                     enum bn_part p, uint32_t layer)
{
    const struct bn_tensor *tensor = bn_part_find(l->s, p, layer);
    BN_TRY(bn_source_fetch(l->s, tensor, l->err));
    BN_TRY(bn_source_fetch(l->s, bn_part_scale(l->s, p, layer), l->err));
    struct bn_order_cols cols = bn_order_cols(&l->m->config, p);
    BN_TRY(bn_ternary_open(t, &x->dense, l->s, &l->m->config, p, layer, &cols, l->err));
    BN_TRY(look_for_rotation(l, &x->rotated, tensor, false));
    if (p == BN_P_DELTA_OUT && l->m->config.hadamard.block &&
        !x->rotated) /* order.c counts on it */
        return bn_fail(l->err, BITNET_E_UNSUPPORTED,
                       "tensor '%s' is not rotated, but others are: this is not supported",
                       tensor->name);
    claim(l, tensor);
    claim(l, bn_part_scale(l->s, p, layer));
    l->m->n_params += t->stored.rows * t->stored.cols;
    if (p < BN_P_DELTA_ALPHA || p > BN_P_DELTA_BETA) /* these are small, and often floats */
        l->m->weight_type = common_name(l->m->weight_type, bn_type_info(t->stored.type)->name);
    x->gemm = layout_of(l, t);
    return BITNET_OK;
}

/* Layouts are known before the first matrix is packed, because gate and up need the same one: the
 * forward pass multiplies the rows of the two that a worker has made (activate). */
static bitnet_status load_projections(struct loader *l, struct bn_layer *layer, uint32_t name)
{
    struct bn_ternary t[BN_N_PROJ];
    struct bn_matrix *gate = &layer->proj[BN_P_GATE - BN_P_Q], *up = &layer->proj[BN_P_UP - BN_P_Q];
    for (int k = 0; k < BN_N_PROJ; k++) {
        enum bn_part p = (enum bn_part)(BN_P_Q + k);
        if (bn_part_in_layer(&l->m->config, p, name))
            BN_TRY(open_projection(l, &layer->proj[k], &t[k], p, name));
        else layer->proj[k] = (struct bn_matrix){.dense = true, .gemm = l->m->kernels.gemm_t2};
    }
    if (gate->gemm != up->gemm) gate->gemm = up->gemm = l->m->kernels.gemm_t2;
    for (int k = 0; k < BN_N_PROJ; k++) {
        struct bn_matrix *x = &layer->proj[k];
        enum bn_part p = (enum bn_part)(BN_P_Q + k);
        const struct bn_tensor *tensor = bn_part_find(l->s, p, name);
        if (!bn_part_in_layer(&l->m->config, p, name)) continue;
        if (x->dense) {
            x->stored = t[k].stored;
            BN_TRY(keep_in_order(l, &x->stored, p, tensor));
            continue;
        }
        l->m->layout = common_name(l->m->layout, x->gemm->layout);
        BN_TRY(pack_matrix(l, x, &t[k], p, tensor));
    }
    return BITNET_OK;
}

static bitnet_status load_layer(struct loader *l, uint32_t i)
{
    struct bn_layer *layer = &l->m->layers[i];
    const struct bn_config *c = &l->m->config;
    uint32_t name = bn_config_named_layer(c, i);
    const struct {
        const float **to;
        enum bn_part part;
    } norms[] = {{&layer->attn_norm, BN_P_ATTN_NORM},
                 {&layer->ffn_norm, BN_P_FFN_NORM},
                 {&layer->ffn_norm, BN_P_POST_NORM},
                 {&layer->attn_sub_norm, BN_P_ATTN_SUB_NORM},
                 {&layer->ffn_sub_norm, BN_P_FFN_SUB_NORM},
                 {&layer->q_norm, BN_P_Q_NORM},
                 {&layer->k_norm, BN_P_K_NORM},
                 {&layer->delta_norm, BN_P_DELTA_NORM},
                 {&layer->mtp_embed_norm, BN_P_MTP_EMBED_NORM},
                 {&layer->mtp_hidden_norm, BN_P_MTP_HIDDEN_NORM},
                 {&layer->mtp_out_norm, BN_P_MTP_OUT_NORM}};
    layer->number = i;
    layer->is_delta = bn_config_is_delta(c, i);
    layer->index = layer->is_delta ? bn_config_delta_before(c, i) : bn_config_attn_before(c, i);
    for (size_t k = 0; k < BN_ARRAY_LEN(norms); k++) {
        enum bn_part p = norms[k].part;
        if (!bn_part_in_layer(c, p, name)) continue;
        if (p == BN_P_MTP_OUT_NORM && !bn_part_find(l->s, p, name))
            layer->mtp_out_norm = l->m->out_norm; /* it has none of its own */
        else BN_TRY(load_norm(l, norms[k].to, p, name));
    }
    if (layer->is_delta) {
        BN_TRY(load_conv(l, &layer->conv, name));
        BN_TRY(load_gate(l, &layer->delta_a, BN_P_DELTA_A, name));
        BN_TRY(load_gate(l, &layer->delta_dt, BN_P_DELTA_DT, name));
    }
    BN_TRY(load_projections(l, layer, name));
    for (int k = 0; c->in_norms && k < BN_N_PROJ; k++) {
        enum bn_part p = (enum bn_part)(BN_P_Q + k);
        float *norm;
        if (!bn_part_in_layer(c, p, name)) continue;
        BN_TRY(load_floats(l, &norm, bn_part_in_norm(l->s, p, name), p, name,
                           layer->proj[k].dense ? layer->proj[k].stored.cols
                                                : layer->proj[k].packed.cols));
        layer->in_norm[k] = norm;
    }
    return BITNET_OK;
}

/* Embedding and head stay as they are; a ternary head is packed besides. */
static bitnet_status load_table(struct loader *l, struct bn_matrix *x, enum bn_part p)
{
    bool online;
    const struct bn_tensor *t = bn_part_find(l->s, p, 0);
    BN_TRY(bn_part_stored(&x->stored, &online, l->s, &l->m->config, p, 0, l->err));
    BN_TRY(keep(l, &x->stored, t));
    claim(l, t);
    x->dense = true;
    l->m->n_params += x->stored.rows * x->stored.cols;
    /* An embedding is decoded row by row while it is used, when nobody can refuse a code any more.
     * Packing looks at the codes of a head. */
    const struct bn_type_info *type = bn_type_info(x->stored.type);
    bool look = p == BN_P_EMBED && !l->m->config.tied_head && bn_type_has_bad_codes(x->stored.type);
    for (uint64_t r = 0; look && r < x->stored.rows; r++)
        if (!bn_unpack_trits(l->trits, &x->stored, r)) return fail_code(l, t->name, r, type);
    return BITNET_OK;
}

/* All logits are a product with it, so it is a matrix like others if its values are ternary. */
static bitnet_status load_head(struct loader *l)
{
    struct bn_model *m = l->m;
    enum bn_part p = m->config.tied_head ? BN_P_EMBED : BN_P_HEAD;
    const struct bn_tensor *tensor = bn_part_find(l->s, p, 0);
    struct bn_ternary t;
    m->head = m->embed;
    if (!m->config.tied_head) BN_TRY(load_table(l, &m->head, BN_P_HEAD));
    BN_TRY(look_for_rotation(l, &m->head.rotated, tensor, false));
    /* rows that are turned back when they are looked up are turned as a head's, too */
    if (m->config.tied_head) m->head.rotated |= m->embed_rotated;
    struct bn_stored stored = m->head.stored;
    bn_stored_cut(&m->head.stored, bn_parts_logits(m));
    if (!bn_type_info(stored.type)->ternary && stored.type > BN_BF16) return BITNET_OK;
    BN_TRY(bn_source_fetch(l->s, tensor, l->err));
    BN_TRY(bn_ternary_open(&t, &m->head.dense, l->s, &m->config, p, 0, NULL, l->err));
    if (m->head.dense) return BITNET_OK;
    m->head.gemm = layout_of(l, &t);
    uint64_t params = m->n_params_ternary, bytes = m->packed_bytes;
    BN_TRY(pack_matrix(l, &m->head, &t, p, tensor));
    m->n_params_ternary = params;
    m->head_packed_bytes = m->packed_bytes - bytes;
    bn_stored_cut(&stored, bn_parts_logits(m));
    m->head.stored = stored;
    return BITNET_OK;
}

static bitnet_status load_signs(struct loader *l)
{
    const struct bn_hadamard *h = &l->m->config.hadamard;
    for (uint32_t i = 0; i < h->n_widths; i++) {
        float *signs = bn_slab_alloc(&l->m->slab, h->widths[i] * sizeof *signs);
        if (!signs) return bn_fail_nomem(l->err, h->widths[i] * sizeof *signs, "signs");
        bn_hadamard_signs(signs, h, l->s, h->widths[i]);
        l->m->signs[i] = signs;
    }
    l->m->delta_out_tiled = h->block && l->m->config.v_tiled && !h->v_grouped;
    return BITNET_OK;
}

static bitnet_status load_rope_factors(struct loader *l)
{
    const struct bn_config *c = &l->m->config;
    const struct bn_tensor *t = bn_part_find(l->s, BN_P_ROPE_FREQS, 0);
    float *f;
    if (t) {
        BN_TRY(load_floats(l, &f, t, BN_P_ROPE_FREQS, 0, c->rope_dim / 2));
        l->m->rope_factors = f;
        return BITNET_OK;
    }
    f = bn_slab_alloc(&l->m->slab, c->rope_dim / 2 * sizeof *f);
    if (!f) return bn_fail_nomem(l->err, c->rope_dim / 2 * sizeof *f, "rotation factors");
    bn_rope_factors(f, c);
    l->m->rope_factors = f;
    return BITNET_OK;
}

/* A tensor that nobody asked for means that the file is of another architecture than it says, and
 * running it would give wrong text. Left aside: buffers that older exports carry along, and a tied
 * head that is stored all the same. */
static bitnet_status refuse_unknown(const struct loader *l)
{
    for (size_t i = 0; i < l->s->n_tensors; i++) {
        const char *name = l->s->tensors[i].name;
        if (l->claimed[i] || strstr(name, "rotary_emb.inv_freq") || strstr(name, "attn_rot_embd"))
            continue;
        if (l->m->config.tied_head && &l->s->tensors[i] == bn_part_find(l->s, BN_P_HEAD, 0))
            continue;
        if (bn_source_is_aside(l->s, name)) continue;
        return bn_fail(l->err, BITNET_E_UNSUPPORTED,
                       "'%s': tensor '%s' has no place in architecture '%s' as known here",
                       l->s->path, name, l->m->config.arch);
    }
    return BITNET_OK;
}

/* A name that nobody asked for means a rotation that nobody makes. */
static bitnet_status refuse_unused_rotations(const struct loader *l)
{
    for (int inverse = 0; l->m->config.hadamard.block && inverse < 2; inverse++) {
        const char *key;
        uint64_t n = bn_hadamard_names(l->s, inverse, &key);
        if (n != l->n_rotated[inverse])
            return bn_fail(l->err, BITNET_E_UNSUPPORTED,
                           "'%s': metadata '%s' has %llu names, of which %llu are %s of this model",
                           l->s->path, key, (unsigned long long)n,
                           (unsigned long long)l->n_rotated[inverse],
                           inverse ? "the embedding" : "matrices");
    }
    return BITNET_OK;
}

static bitnet_status load_all(struct loader *l, bitnet_progress_fn progress, void *user)
{
    struct bn_model *m = l->m;
    uint32_t n_layer = bn_config_layers(&m->config);
    BN_TRY(load_table(l, &m->embed, BN_P_EMBED));
    BN_TRY(look_for_rotation(l, &m->embed_rotated, bn_part_find(l->s, BN_P_EMBED, 0), true));
    BN_TRY(load_signs(l));
    BN_TRY(load_head(l));
    BN_TRY(load_norm(l, &m->out_norm, BN_P_OUT_NORM, 0));
    BN_TRY(load_rope_factors(l));
    for (uint32_t i = 0; i < n_layer; i++) {
        if (progress && progress(user, "loading", i, n_layer))
            return bn_fail(l->err, BITNET_E_CANCELLED, "loading was stopped");
        uint64_t packed = m->packed_bytes;
        BN_TRY(load_layer(l, i));
        if (i >= m->config.n_layer) m->mtp_bytes += m->packed_bytes - packed;
    }
    if (progress) progress(user, "loading", n_layer, n_layer);
    BN_TRY(refuse_unused_rotations(l));
    return refuse_unknown(l);
}

bitnet_status bn_weights_load(struct bn_model *m, struct bn_pool *pool, bitnet_progress_fn progress,
                              void *user, bitnet_error *err)
{
    const struct bn_config *c = &m->config;
    if (m->source.n_tensors == 0)
        return bn_fail(err, BITNET_E_FORMAT, "'%s' holds no tensors: a vocabulary, not a model",
                       m->source.path);
    struct loader l = {.m = m, .s = &m->source, .pool = pool, .err = err};
    l.max_cols = bn_config_widest(c);
    size_t threads = bn_pool_threads(pool);
    l.claimed = bn_calloc(m->source.n_tensors, 1);
    l.max_group = bn_max_size(m->gemm_binary->group_rows, m->gemm->group_rows);
    l.max_group = bn_max_size(m->kernels.gemm_t2->group_rows, l.max_group);
    l.trits = bn_calloc(threads * l.max_group, l.max_cols);
    l.row = bn_calloc(threads * l.max_cols, sizeof *l.row);
    m->layers = bn_calloc(bn_config_layers(c), sizeof *m->layers);
    bitnet_status s;
    if (!l.claimed || !l.trits || !l.row || !m->layers)
        s = bn_fail_nomem(err, threads * l.max_cols * 8, "packing weights");
    else s = load_all(&l, progress, user);
    free(l.claimed);
    free(l.trits);
    free(l.row);
    return s;
}

void bn_model_rotate(const struct bn_model *m, float *y, const float *x, size_t n, bool back)
{
    const struct bn_hadamard *h = &m->config.hadamard;
    const float *signs = NULL;
    for (uint32_t i = 0; i < h->n_widths; i++)
        if (h->widths[i] == n) signs = m->signs[i];
    m->kernels.hadamard(&(struct bn_hadamard_args){.y = y,
                                                   .x = x,
                                                   .before = back ? NULL : signs,
                                                   .after = back ? signs : NULL,
                                                   .n = n,
                                                   .block = h->block,
                                                   .scale = 1.0f / sqrtf((float)h->block)});
}

void bn_model_embed(const struct bn_model *m, float *out, int32_t token)
{
    bn_stored_row(&m->kernels, out, &m->embed.stored, (uint64_t)token);
    if (m->embed_rotated) bn_model_rotate(m, out, out, m->config.n_embd, true);
}

static const uint8_t *stored_row(const struct bn_stored *t, uint64_t r)
{
    const struct bn_type_info *type = bn_type_info(t->type);
    return t->data + r * (t->cols / type->block * type->block_bytes);
}

void bn_stored_row(const struct bn_kernels *k, float *out, const struct bn_stored *t, uint64_t r)
{
    const uint8_t *row = stored_row(t, r);
    switch (t->type) {
    case BN_F16: k->row_f16(out, row, t->cols); break;
    case BN_BF16: k->row_bf16(out, row, t->cols); break;
    case BN_Q8_0: k->row_q8_0(out, row, t->cols); break;
    case BN_Q4_0: k->row_q4_0(out, row, t->cols); break;
    case BN_Q4_K: k->row_q4_k(out, row, t->cols); break;
    case BN_Q6_K: k->row_q6_k(out, row, t->cols); break;
    default: bn_dequant_row(out, t, r); break; /* F32, and ternary tables */
    }
}

void bn_stored_dots(const struct bn_kernels *k, const struct bn_stored *t,
                    const struct bn_stored_product *p)
{
    if (t->type == BN_F16 && p->n_tok == 1) {
        k->dots_f16(p->y, stored_row(t, p->r), p->n_rows, p->x, t->cols);
        return;
    }
    for (size_t i = 0; i < p->n_rows; i++) bn_stored_row(k, p->wide + i * t->cols, t, p->r + i);
    k->dots(p->y, p->y_stride, p->wide, p->n_rows, p->x, p->x_stride, p->n_tok, t->cols);
}

void bn_weights_free(struct bn_model *m)
{
    bn_slab_free(&m->slab);
    free(m->layers);
    m->layers = NULL;
}
