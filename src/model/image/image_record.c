/* SPDX-License-Identifier: Apache-2.0
 * What packing has made, member by member. Writing and reading are one walk, so that they cannot
 * differ. What follows from the configuration alone is not in the record: it is read from the source
 * as ever. Numbers that come out of a file are checked where they are taken. */
#include "model/image/image.h"

#include <stdlib.h>

enum { NOWHERE_AT = -1, MAX_NAME = 32 };

struct walk {
    struct bn_model *m;
    bool reading;
    const char *bad; /* what did not fit; NULL: nothing */
    /* writing */
    struct bn_buf *out;
    const struct bn_image_span *spans;
    size_t n_spans;
    uint8_t *kept;
    /* reading */
    const uint8_t *in;
    size_t left;
    const uint8_t *data;
    uint64_t data_bytes;
    bitnet_error *err;
    bitnet_status status; /* of a tensor that was to be read */
};

static void fail(struct walk *w, const char *what)
{
    if (!w->bad) w->bad = what;
}

/* ------------------------------------------------------------------ numbers and names */

static void bytes_of(struct walk *w, void *x, size_t n)
{
    if (!w->reading) {
        bn_buf_append(w->out, x, n);
        return;
    }
    if (w->left < n) fail(w, "its end");
    if (w->bad) {
        memset(x, 0, n);
        return;
    }
    memcpy(x, w->in, n);
    w->in += n;
    w->left -= n;
}

static void u64_of(struct walk *w, uint64_t *x) { bytes_of(w, x, sizeof *x); }
static void f32_of(struct walk *w, float *x) { bytes_of(w, x, sizeof *x); }

static void size_of(struct walk *w, size_t *x, size_t max)
{
    uint64_t v = *x;
    u64_of(w, &v);
    if (v > max) fail(w, "a size");
    *x = w->bad ? 0 : (size_t)v;
}

static unsigned choice_of(struct walk *w, unsigned x, unsigned n)
{
    uint64_t v = x;
    u64_of(w, &v);
    if (v >= n) fail(w, "a choice");
    return w->bad ? 0 : (unsigned)v;
}

static void bool_of(struct walk *w, bool *x) { *x = choice_of(w, *x, 2) != 0; }

/* Names stay in the source's arena. NULL is "". */
static void name_of(struct walk *w, const char **name)
{
    char text[MAX_NAME] = {0};
    if (!w->reading && *name) memcpy(text, *name, bn_min_size(strlen(*name), MAX_NAME - 1));
    bytes_of(w, text, sizeof text);
    if (!w->reading) return;
    *name = bn_arena_strn(&w->m->source.arena, text, strnlen(text, MAX_NAME - 1));
    if (!*name) fail(w, "memory");
}

/* ------------------------------------------------------------------ memory */

/* n bytes at *p; NULL stays NULL. */
static void place_of(struct walk *w, const void **p, size_t n)
{
    uint64_t at = (uint64_t)NOWHERE_AT;
    const uint8_t *from = *p;
    for (size_t i = 0; !w->reading && from && i < w->n_spans; i++)
        if (from >= w->spans[i].from && n <= w->spans[i].bytes &&
            from - w->spans[i].from <= (ptrdiff_t)(w->spans[i].bytes - n))
            at = w->spans[i].at + (uint64_t)(from - w->spans[i].from);
    if (!w->reading && from && at == (uint64_t)NOWHERE_AT) fail(w, "a place");
    u64_of(w, &at);
    if (!w->reading) return;
    *p = NULL;
    if (w->bad || at == (uint64_t)NOWHERE_AT) return;
    if (at % 64 || n > w->data_bytes || at > w->data_bytes - n) fail(w, "a place");
    else *p = w->data + at;
}

static void floats_of(struct walk *w, const float **p, size_t n)
{
    const void *at = *p;
    place_of(w, &at, n * sizeof **p);
    *p = at;
}

/* ------------------------------------------------------------------ matrices */

static const struct bn_gemm *gemm_by_name(const struct bn_kernels *k, const char *name)
{
    const struct bn_gemm *all[] = {
#define K_REF(op, fn)
#define G_REF(op, obj) k->op,
#define K(op, isa, needs, fn)
#define G(op, isa, needs, obj)
#include "kernels/kernels.def"
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++)
        if (strcmp(all[i]->layout, name) == 0) return all[i];
    return NULL;
}

static void gemm_of(struct walk *w, const struct bn_gemm **gemm)
{
    const char *name = *gemm ? (*gemm)->layout : "";
    name_of(w, &name);
    if (!w->reading) return;
    *gemm = !w->bad && *name ? gemm_by_name(&w->m->kernels, name) : NULL;
    if (!w->bad && *name && !*gemm) fail(w, "a layout");
}

static void packed_of(struct walk *w, struct bn_matrix *x)
{
    struct bn_packed *p = &x->packed;
    size_of(w, &p->rows, UINT32_MAX);
    size_of(w, &p->cols, BN_COLS_MAX);
    p->scale_kind = (enum bn_scale_kind)choice_of(w, p->scale_kind, BN_SCALE_BLOCK + 1);
    f32_of(w, &p->scale);
    size_of(w, &p->block, BN_COLS_MAX);
    if (!x->gemm || !p->rows ||
        (p->scale_kind == BN_SCALE_BLOCK && (!p->block || p->cols % p->block)))
        fail(w, "a matrix");
    if (w->bad) return;
    const void *data = p->data, *blocks = p->block_scale;
    place_of(w, &data, bn_matrix_bytes(x));
    place_of(w, &blocks, bn_matrix_scale_bytes(x));
    floats_of(w, &p->row_scale, p->rows);
    p->data = data;
    p->block_scale = blocks;
    p->ahead = w->m->prefetch_bytes;
    if (!w->bad && (!data || (p->scale_kind == BN_SCALE_ROW && !p->row_scale) ||
                    (p->scale_kind == BN_SCALE_BLOCK && !blocks)))
        fail(w, "weights");
}

/* In memory that was taken for it, if the source is read. */
static void take_tensor(struct walk *w, struct bn_stored *s, const struct bn_tensor *t)
{
    s->data = t->data;
    if (!w->m->source.to_read) return;
    uint8_t *to = bn_slab_alloc(&w->m->slab, (size_t)t->bytes);
    s->data = to;
    if (!to) fail(w, "memory");
    else if ((w->status = bn_source_fetch_to(&w->m->source, t, to, w->err)) != BITNET_OK)
        fail(w, "a tensor");
}

/* As in the file: there, or in the data because its rows stand in another order. */
static void stored_of(struct walk *w, struct bn_stored *s, enum bn_part p, uint32_t layer)
{
    const struct bn_source *src = &w->m->source;
    const struct bn_tensor *t = bn_part_find(src, p, bn_config_named_layer(&w->m->config, layer));
    bool in_file = t && s->data == t->data;
    s->type = (enum bn_type)choice_of(w, s->type, BN_TYPE_COUNT);
    u64_of(w, &s->bytes);
    u64_of(w, &s->rows);
    u64_of(w, &s->cols);
    f32_of(w, &s->hf_scale);
    bool_of(w, &in_file);
    const void *data = in_file ? NULL : s->data;
    place_of(w, &data, (size_t)s->bytes);
    if (!in_file) s->data = data;
    if (in_file && w->kept) w->kept[t - src->tensors] = 1;
    if (!w->reading || w->bad || !s->rows) return;
    uint64_t bytes;
    if (!bn_type_bytes(&bytes, s->type, s->rows, s->cols) || bytes != s->bytes ||
        (in_file && (!t || t->packed || t->bytes != s->bytes)) || (!in_file && !s->data))
        fail(w, "a tensor");
    else if (in_file) take_tensor(w, s, t);
}

static void matrix_of(struct walk *w, struct bn_matrix *x, enum bn_part p, uint32_t layer)
{
    bool_of(w, &x->dense);
    bool_of(w, &x->rotated);
    gemm_of(w, &x->gemm);
    bool stored = x->stored.rows != 0;
    bool_of(w, &stored);
    if (!x->dense) packed_of(w, x);
    if (stored) stored_of(w, &x->stored, p, layer);
}

static void part_copy_of(struct walk *w, struct bn_part_copy *c, const struct bn_matrix *of,
                         size_t bytes)
{
    bool there = c->w.data != NULL;
    bool_of(w, &there);
    if (!there || w->bad) return;
    if (of->dense) fail(w, "a copy");
    const void *data = c->w.data;
    place_of(w, &data, bytes);
    if (!w->reading) return;
    c->w = of->packed;
    c->w.data = data;
    c->bytes = bytes;
}

/* ------------------------------------------------------------------ layers */

static void vectors_of(struct walk *w, struct bn_layer *layer)
{
    const struct {
        const float **x;
        enum bn_part part;
    } vectors[] = {{&layer->attn_norm, BN_P_ATTN_NORM},
                   {&layer->ffn_norm, BN_P_FFN_NORM},
                   {&layer->attn_sub_norm, BN_P_ATTN_SUB_NORM},
                   {&layer->ffn_sub_norm, BN_P_FFN_SUB_NORM},
                   {&layer->q_norm, BN_P_Q_NORM},
                   {&layer->k_norm, BN_P_K_NORM},
                   {&layer->delta_norm, BN_P_DELTA_NORM},
                   {&layer->delta_a, BN_P_DELTA_A},
                   {&layer->delta_dt, BN_P_DELTA_DT},
                   {&layer->conv, BN_P_DELTA_CONV},
                   {&layer->mtp_embed_norm, BN_P_MTP_EMBED_NORM},
                   {&layer->mtp_hidden_norm, BN_P_MTP_HIDDEN_NORM},
                   {&layer->mtp_out_norm, BN_P_MTP_OUT_NORM}};
    for (size_t k = 0; k < BN_ARRAY_LEN(vectors); k++) {
        uint64_t rows, cols;
        bn_part_shape(&w->m->config, vectors[k].part, &rows, &cols);
        floats_of(w, vectors[k].x, (size_t)(rows * cols));
    }
}

/* Shapes that the forward pass counts on. */
static void check_shape(struct walk *w, const struct bn_matrix *x, enum bn_part p, uint32_t layer)
{
    uint64_t rows, cols;
    if (w->bad || !bn_part_in_layer(&w->m->config, p, bn_config_named_layer(&w->m->config, layer)))
        return;
    bn_part_shape(&w->m->config, p, &rows, &cols);
    uint64_t has_rows = x->dense ? x->stored.rows : x->packed.rows;
    uint64_t has_cols = x->dense ? x->stored.cols : x->packed.cols;
    if (has_rows != rows || has_cols != cols || !x->gemm) fail(w, "a matrix");
}

static void layer_of(struct walk *w, uint32_t i)
{
    struct bn_layer *layer = &w->m->layers[i];
    const struct bn_config *c = &w->m->config;
    if (w->reading) {
        layer->number = i;
        layer->is_delta = bn_config_is_delta(c, i);
        layer->index = layer->is_delta ? bn_config_delta_before(c, i) : bn_config_attn_before(c, i);
    }
    vectors_of(w, layer);
    for (int k = 0; k < BN_N_PROJ && !w->bad; k++) {
        struct bn_matrix *x = &layer->proj[k];
        enum bn_part p = (enum bn_part)(BN_P_Q + k);
        matrix_of(w, x, p, i);
        check_shape(w, x, p, i);
        floats_of(w, &layer->in_norm[k], (size_t)(x->dense ? x->stored.cols : x->packed.cols));
    }
    const struct bn_matrix *up = &layer->proj[BN_P_UP - BN_P_Q],
                           *down = &layer->proj[BN_P_DOWN - BN_P_Q];
    part_copy_of(w, &layer->up_rows, up, up->packed.rows * bn_r2_row_bytes(up->packed.cols));
    part_copy_of(w, &layer->down_cols, down,
                 down->packed.cols * bn_c2_column_bytes(down->packed.rows));
    f32_of(w, &layer->up_scale_max);
}

/* ------------------------------------------------------------------ the model */

static size_t lay_out_head(struct bn_model *m, bool int8, uint8_t *base)
{
    struct bn_plan p = {.base = base};
    size_t rows = (size_t)m->head.stored.rows, cols = (size_t)m->head.stored.cols;
    struct bn_screen screen;
    struct bn_dense8 dense;
    if (int8) bn_dense8_lay_out(base ? &m->head_int8 : &dense, &p, rows, cols, m->prefetch_bytes);
    else bn_screen_lay_out(base ? &m->screen : &screen, &p, rows, cols, m->prefetch_bytes);
    return p.used;
}

/* The head's copy is one block. */
static void head_copy_of(struct walk *w)
{
    struct bn_model *m = w->m;
    enum { NONE, SCREEN, INT8, KINDS };
    unsigned kind = m->screen.coarse.data ? SCREEN : m->head_int8.data ? INT8 : NONE;
    kind = choice_of(w, kind, KINDS);
    if (kind == NONE || w->bad) return;
    if (!m->head.dense || m->head.stored.cols > BN_MAX_WIDTH) {
        fail(w, "the head");
        return;
    }
    const void *block = bn_head_copy_data(&m->screen, &m->head_int8);
    size_t bytes = lay_out_head(m, kind == INT8, NULL);
    place_of(w, &block, bytes);
    if (!w->reading || w->bad || !block) return;
    lay_out_head(m, kind == INT8, (uint8_t *)block);
    m->head_copy_bytes = bytes;
    m->image.head_copy = true;
}

static void facts_of(struct walk *w)
{
    struct bn_model *m = w->m;
    uint64_t packed = m->packed_bytes - m->replica_bytes - m->head_copy_bytes;
    uint64_t head = m->head_packed_bytes;
    uint64_t *numbers[] = {&m->n_params, &m->n_params_ternary, &packed,
                           &head,        &m->mtp_bytes,        &m->ffn_bytes};
    for (size_t i = 0; i < BN_ARRAY_LEN(numbers); i++) u64_of(w, numbers[i]);
    if (w->reading) {
        m->packed_bytes = packed;
        m->head_packed_bytes = (size_t)head;
    }
    name_of(w, &m->weight_type);
    name_of(w, &m->layout);
    bool_of(w, &m->embed_rotated);
    bool_of(w, &m->delta_out_tiled);
}

static void model_of(struct walk *w)
{
    struct bn_model *m = w->m;
    const struct bn_config *c = &m->config;
    enum bn_part head = c->tied_head ? BN_P_EMBED : BN_P_HEAD;
    facts_of(w);
    for (uint32_t i = 0; i < c->hadamard.n_widths; i++)
        floats_of(w, &m->signs[i], c->hadamard.widths[i]);
    floats_of(w, &m->out_norm, c->n_embd);
    floats_of(w, &m->rope_factors, c->rope_dim / 2);
    matrix_of(w, &m->embed, BN_P_EMBED, 0);
    matrix_of(w, &m->head, head, 0);
    if (m->embed.stored.rows != c->n_vocab || m->embed.stored.cols != c->n_embd ||
        m->head.stored.rows != c->n_vocab || m->head.stored.cols != c->n_embd || !m->embed.dense)
        fail(w, "the embedding");
    for (uint32_t i = 0; i < bn_config_layers(c) && !w->bad; i++) layer_of(w, i);
    if (!w->bad) head_copy_of(w);
    if (w->reading && !w->bad) m->packed_bytes += m->head_copy_bytes;
}

bool bn_image_record_write(const struct bn_model *m, const struct bn_image_span *spans, size_t n,
                           struct bn_buf *out, uint8_t *kept)
{
    struct walk w = {
        .m = (struct bn_model *)m, .out = out, .spans = spans, .n_spans = n, .kept = kept};
    model_of(&w);
    return !w.bad && !out->failed;
}

bitnet_status bn_image_record_read(struct bn_model *m, const uint8_t *record, size_t bytes,
                                   const uint8_t *data, uint64_t data_bytes, bitnet_error *err)
{
    struct walk w = {.m = m,
                     .reading = true,
                     .in = record,
                     .left = bytes,
                     .data = data,
                     .data_bytes = data_bytes,
                     .err = err,
                     .status = BITNET_OK};
    size_t layers = bn_config_layers(&m->config);
    m->layers = bn_calloc(layers, sizeof *m->layers);
    if (!m->layers) return bn_fail_nomem(err, layers * sizeof *m->layers, "the layers");
    model_of(&w);
    if (w.status != BITNET_OK) return w.status;
    if (!w.bad && w.left) w.bad = "its end";
    if (!w.bad) return BITNET_OK;
    return bn_fail(err, BITNET_E_FORMAT, "'%s' is no packed form of this model: %s does not fit",
                   m->image.path, w.bad);
}
