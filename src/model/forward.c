/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformer, straight down the page.
 *
 * Every worker of the pool walks through the same steps; inside a step each takes its share
 * (tokens, rows of a matrix, or attention tasks), and a barrier stands where the next step reads
 * what others wrote. Shares only decide who computes a value, never how: so the number of threads
 * cannot change a bit. A single token, the case that counts for speed, passes five barriers a layer,
 * seven with a long context (attention.c), and one more where rows of `up`, another where columns of
 * `down` are left out (model/ffn): its norms are computed by every worker for itself, which is quicker
 * than waiting for one of them.
 *
 *   x [n][n_embd]       residual stream
 *   q, k, v, att        attention: projections, and its output [n][n_head * head_dim]
 *   qkv, z, alpha, beta a delta net: projections; its output is att, too
 *   gate, up            feed-forward; up then holds act(gate) * up
 *   out [n][n_embd]     what a block adds to x
 *   input               of a projection: normed floats, and the same as integers
 *
 * Where tokens of the batch have adapters (model/adapter), what these add is computed from the normed
 * floats: their first products before the projections, with one more barrier, and the second ones behind
 * every part of a projection's rows. A token alone is then prepared once for all, as several are.
 */
#include "model/forward.h"

#include "base/os/mem.h"
#include "model/adapter/adapt.h"
#include "model/attention/attention.h"
#include "model/config/order.h"
#include "model/delta/delta.h"
#include "model/ops.h"
#include "model/ranks.h"
#include <math.h>
#include <stdlib.h>

enum {
    DENSE_ROWS = 8,  /* rows of a dense matrix decoded at a time */
    DEAL_TOKENS = 32 /* from so many on every worker keeps its share of rows */
};
/* the projections of a layer, in the order of enum bn_part; as operations of a profile, too */
enum proj {
    Q,
    K,
    V,
    O,
    GATE,
    UP,
    DOWN,
    DELTA_QKV,
    DELTA_Z,
    DELTA_ALPHA,
    DELTA_BETA,
    DELTA_OUT,
    MTP_IN
};
_Static_assert(BN_OP_MTP_IN == BN_OP_Q + MTP_IN && MTP_IN + 1 == BN_N_PROJ, "the same order");

/* Rows as matrices want them: floats; or the same as int8 with a factor and a sum; or in planes. */
struct face {
    float *h;     /* [n][wide] */
    int8_t *q8;   /* [n][q8_stride], or [n][planes][q8_stride] */
    float *inv;   /* [n] */
    int32_t *sum; /* [n] */
    float *unit;  /* [n][units], with planes */
};

/* The prepared input of projections, and where some of these have rotated columns, that rotated. A
 * token alone is prepared by every worker in memory of its own; several tokens are shared out and
 * prepared once for all. */
struct input {
    struct face plain, rotated;
    enum bn_act_quant
        act; /* how its rows are taken; with one plane of two, the second is not used */
};

/* What becomes of rows on their way to projections. */
struct recipe {
    const float *from; /* [n][from_stride] */
    size_t from_stride, cols;
    bool tiled;                  /* value heads of a delta net, which come in the file's order */
    const float *norm, *in_norm; /* in this order; either may be NULL */
    bool plain, rotated;         /* which faces are wanted; neither: the plain one */
    uint32_t norm_width;         /* the mean of `norm` is taken over so many; 0: cols */
    enum bn_act_quant act;
    uint32_t codes_zero; /* int8: codes up to this magnitude become zero */
};

/* Where the rows of a projection that are here come to stand: heads by themselves, the others among
 * those of all ranks. */
struct place {
    size_t first, stride;
};

struct bn_forward {
    const struct bn_model *m;
    struct bn_ranks *ranks; /* NULL: this process alone */
    struct place place[BN_N_PROJ];
    const struct bn_savings *savings; /* NULL: none */
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    struct bn_attention *attention;
    struct bn_delta *delta; /* NULL: no layer has one */
    struct bn_head *head;
    struct bn_ffn *ffn;
    struct bn_adapt *adapt;
    struct bn_activity activity;
    struct bn_census *census; /* NULL: off */
    uint32_t max_tokens;
    uint64_t layer_bytes;
    size_t wide;          /* the widest activation */
    size_t q8_stride;     /* padded */
    size_t planes, units; /* of activations in groups, the most there are; 0: they are not */
    size_t q_dim;         /* n_head * head_dim */
    size_t mix_dim;       /* the wider one of the outputs of attention and delta nets */
    float *x, *q, *k, *v, *att, *gate, *up, *out; /* [max_tokens] rows each */
    float *qkv, *z, *alpha, *beta;                /* the same, of delta nets */
    float *draft; /* the same, [2 * n_embd] of the layer that drafts */
    float
        *bare; /* the same, [wide] inputs before the norms of projections, where these have some */
    struct input shared;              /* [max_tokens] rows */
    struct input own[BN_MAX_THREADS]; /* one row each */
    float *rows;                      /* [threads][DENSE_ROWS][wide] decoded dense rows */
    uint8_t *many; /* [threads][many_bytes] for the matrix kernel, if it wants memory */
    size_t many_bytes;
    void *block; /* all of the above */
    size_t block_bytes;
    /* the call in progress */
    const struct bn_batch_token *batch;
    size_t n;
    bool adapted;               /* a token has adapters */
    const struct bn_walk *part; /* NULL: all layers, from the embeddings on */
    bool drafts;                /* by the layer that drafts, behind these tokens of the last pass */
    const uint32_t *behind;     /* [n] */
    bool chained;
};

/* ------------------------------------------------------------------ memory */

static struct face face_piece(const struct bn_forward *f, struct bn_plan *p, size_t n)
{
    struct face face;
    face.h = bn_plan_piece(p, n * f->wide, sizeof(float));
    face.q8 = bn_plan_piece(p, n * bn_max_size(1, f->planes) * f->q8_stride, 1);
    face.inv = bn_plan_piece(p, n, sizeof(float));
    face.sum = bn_plan_piece(p, n, sizeof(int32_t));
    face.unit = bn_plan_piece(p, n * f->units, sizeof(float));
    return face;
}

static struct input input_piece(const struct bn_forward *f, struct bn_plan *p, size_t n)
{
    size_t rotated = f->m->config.hadamard.block ? n : 0;
    struct input in = {.act = f->m->activations};
    in.plain = face_piece(f, p, n);
    in.rotated = face_piece(f, p, rotated);
    return in;
}

static void find_places(struct bn_forward *f)
{
    for (int i = 0; i < BN_N_PROJ; i++) {
        uint64_t rows, cols;
        enum bn_part p = (enum bn_part)(BN_P_Q + i);
        const struct bn_here here = bn_part_here(f->m, p);
        bool heads = p <= BN_P_V || (p >= BN_P_DELTA_QKV && p <= BN_P_DELTA_BETA);
        bn_part_shape(&f->m->config, p, &rows, &cols);
        if (heads) f->place[i] = (struct place){0, here.n_rows};
        else f->place[i] = (struct place){here.piece[0].begin, (size_t)rows};
    }
}

static void lay_out(struct bn_forward *f, struct bn_plan *p)
{
    const struct bn_config *c = &f->m->config;
    size_t n = f->max_tokens, threads = bn_pool_threads(f->pool);
    f->x = bn_plan_piece(p, n * c->n_embd, sizeof(float));
    f->q = bn_plan_piece(p, n * f->place[Q].stride, sizeof(float));
    f->k = bn_plan_piece(p, n * f->place[K].stride, sizeof(float));
    f->v = bn_plan_piece(p, n * f->place[V].stride, sizeof(float));
    f->att = bn_plan_piece(p, n * f->mix_dim, sizeof(float));
    f->qkv = bn_plan_piece(p, n * f->place[DELTA_QKV].stride, sizeof(float));
    f->z = bn_plan_piece(p, n * f->place[DELTA_Z].stride, sizeof(float));
    f->alpha = bn_plan_piece(p, n * f->place[DELTA_ALPHA].stride, sizeof(float));
    f->beta = bn_plan_piece(p, n * f->place[DELTA_BETA].stride, sizeof(float));
    f->draft = bn_plan_piece(p, c->n_mtp ? 2 * n * c->n_embd : 0, sizeof(float));
    f->gate = bn_plan_piece(p, n * c->n_ff, sizeof(float));
    f->up = bn_plan_piece(p, n * c->n_ff, sizeof(float));
    f->out = bn_plan_piece(p, n * c->n_embd, sizeof(float));
    f->bare = bn_plan_piece(p, c->in_norms ? n * f->wide : 0, sizeof(float));
    f->shared = input_piece(f, p, n);
    for (size_t i = 0; i < threads; i++) f->own[i] = input_piece(f, p, 1);
    f->rows = bn_plan_piece(p, threads * DENSE_ROWS * f->wide, sizeof(float));
    f->many = bn_plan_piece(p, threads, f->many_bytes);
}

/* What the kernels for many tokens want for the largest share of any matrix; 0 without them. */
static size_t many_bytes(const struct bn_forward *f)
{
    size_t most = 0, threads = bn_pool_threads(f->pool);
    if (f->m->activations == BN_AQ_F32 && !f->planes) return 0;
    for (uint32_t il = 0; il < bn_config_layers(&f->m->config); il++)
        for (size_t i = 0; i < BN_N_PROJ; i++) {
            const struct bn_matrix *w = &f->m->layers[il].proj[i];
            const struct bn_gemm *g = w->gemm;
            bool many = f->planes ? g->mul_planes_many != NULL : g->mul_i8_many != NULL;
            if (w->dense || !many || f->max_tokens < g->many_from) continue;
            for (uint32_t worker = 0; worker < threads; worker++) {
                struct bn_range r = bn_pool_share(f->pool, worker, w->packed.rows, g->group_rows);
                most = bn_max_size(most, g->many_bytes(r.end - r.begin, w->packed.cols));
            }
        }
    return bn_align_up(most, 64);
}

/* The plan of a layer; NULL: there is none, as for the layer that drafts. */
static const struct bn_savings_layer *savings_of(const struct bn_forward *f, uint32_t il)
{
    return f->savings && il < f->savings->n_layer ? &f->savings->layers[il] : NULL;
}

static enum bn_act_quant act_of(const struct bn_forward *f, uint32_t il, enum bn_savings_input in)
{
    const struct bn_savings_layer *plan = savings_of(f, il);
    return plan ? plan->activations[in] : f->m->activations;
}

static size_t most_planes(const struct bn_forward *f)
{
    size_t most = bn_act_planes(f->m->activations);
    for (uint32_t il = 0; il < f->m->config.n_layer; il++)
        for (enum bn_savings_input in = 0; in < BN_N_INPUTS; in++)
            most = bn_max_size(most, bn_act_planes(act_of(f, il, in)));
    return most;
}

bitnet_status bn_forward_open(struct bn_forward **out, const struct bn_model *m,
                              struct bn_pool *pool, const struct bn_forward_options *o,
                              struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    uint32_t max_tokens = o->max_tokens;
    const struct bn_config *c = &m->config;
    struct bn_forward *f = bn_calloc(1, sizeof *f);
    if (!f) return bn_fail_nomem(err, sizeof *f, "the forward pass");
    f->m = m;
    f->savings = o->savings;
    f->pool = pool;
    f->prof = bn_pool_prof(pool);
    f->max_tokens = max_tokens;
    f->layer_bytes = bn_model_layer_bytes(m);
    f->q_dim = (size_t)c->n_head * c->head_dim;
    f->mix_dim = bn_max_size(f->q_dim, bn_delta_value_width(&c->delta));
    f->wide = bn_config_widest(c);
    f->q8_stride = bn_q8_stride(f->wide);
    f->planes = most_planes(f);
    f->units = f->planes ? f->q8_stride / BN_K_ALIGN : 0;
    f->many_bytes = many_bytes(f);
    find_places(f);
    struct bn_plan p = {0};
    lay_out(f, &p);
    f->block_bytes = p.used;
    bitnet_status s = bn_block_take(&f->block, &f->block_bytes, how, "batches", err);
    if (s == BITNET_E_NOMEM)
        s = bn_fail(err, s,
                    "out of memory: %zu bytes for batches of %u tokens; smaller batches need less",
                    p.used, max_tokens);
    p = (struct bn_plan){.base = f->block};
    if (s == BITNET_OK) lay_out(f, &p);
    if (s == BITNET_OK)
        s = bn_attention_open(&f->attention, m, pool, o->kv, o->n_ctx, max_tokens, how, err);
    if (s == BITNET_OK && o->states && o->states->n_layer)
        s = bn_delta_open(&f->delta, m, pool, o->states, max_tokens, how, err);
    if (s == BITNET_OK) s = bn_head_open(&f->head, m, pool, max_tokens, &o->head, how, err);
    if (s == BITNET_OK) s = bn_ffn_open(&f->ffn, m, pool, o->ffn, o->savings, how, err);
    if (s == BITNET_OK) s = bn_adapt_open(&f->adapt, m, pool, max_tokens, err);
    if (s == BITNET_OK) s = bn_activity_open(&f->activity, c->n_layer, c->n_ff, err);
    if (s == BITNET_OK && m->dist)
        s = bn_ranks_open(&f->ranks, m, o->kv, o->states, max_tokens * f->wide, err);
    if (s != BITNET_OK) bn_forward_close(f);
    else *out = f;
    return s;
}

void bn_forward_close(struct bn_forward *f)
{
    if (!f) return;
    bn_head_close(f->head);
    bn_attention_close(f->attention);
    bn_delta_close(f->delta);
    bn_ffn_close(f->ffn);
    bn_adapt_close(f->adapt);
    bn_activity_close(&f->activity);
    bn_census_close(f->census);
    bn_ranks_close(f->ranks);
    bn_block_free(f->block, f->block_bytes);
    free(f);
}

size_t bn_forward_bytes(const struct bn_forward *f)
{
    return f->block_bytes + bn_attention_bytes(f->attention) + bn_head_bytes(f->head) +
           bn_ffn_bytes(f->ffn) + bn_adapt_bytes(f->adapt) +
           (f->delta ? bn_delta_bytes(f->delta) : 0);
}

const struct bn_head *bn_forward_head(const struct bn_forward *f) { return f->head; }
const struct bn_ffn *bn_forward_ffn(const struct bn_forward *f) { return f->ffn; }
const struct bn_activity *bn_forward_activity(const struct bn_forward *f) { return &f->activity; }
const struct bn_census *bn_forward_census(const struct bn_forward *f) { return f->census; }

bitnet_status bn_forward_reserve_adapters(struct bn_forward *f, uint32_t width,
                                          struct bn_backing *how, bitnet_error *err)
{
    return bn_adapt_reserve(f->adapt, width, how, err);
}

bitnet_status bn_forward_watch(struct bn_forward *f, bitnet_error *err)
{
    bn_census_close(f->census);
    return bn_census_open(&f->census, f->m->config.n_layer, bn_pool_threads(f->pool), err);
}

/* ------------------------------------------------------------------ linear layers */

/* A dense row range: decode a few rows, then their products with every token. */
static void dense_mul(struct bn_forward *f, float *y, size_t y_stride, const struct bn_stored *w,
                      struct bn_range rows, const float *x, uint32_t worker)
{
    struct bn_stored_product p = {.y_stride = y_stride,
                                  .x = x,
                                  .x_stride = f->wide,
                                  .n_tok = f->n,
                                  .wide = f->rows + (size_t)worker * DENSE_ROWS * f->wide};
    for (p.r = rows.begin; p.r < rows.end; p.r += DENSE_ROWS) {
        p.y = y + p.r;
        p.n_rows = bn_min_size(DENSE_ROWS, rows.end - p.r);
        bn_stored_dots(&f->m->kernels, w, &p);
    }
}

/* Codes up to a magnitude become zero; returns the sum of those left. */
static int32_t drop_codes(int8_t *q, size_t n, uint32_t magnitude)
{
    int32_t sum = 0, most = (int32_t)magnitude;
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)(q[i] <= most && q[i] >= -most ? 0 : q[i]);
        sum += q[i];
    }
    return sum;
}

/* Token t of a face: its row h is there. */
static void quantise(struct bn_forward *f, const struct face *face, size_t t,
                     const struct recipe *r, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    size_t cols = r->cols;
    const float *h = face->h + t * f->wide;
    if (r->act == BN_AQ_F32) return;
    bn_prof_mark(f->prof, worker, BN_OP_QUANT);
    if (f->planes)
        k->quant_planes(face->q8 + t * f->planes * f->q8_stride, f->q8_stride,
                        bn_act_planes(r->act), face->unit + t * f->units, h, cols);
    else {
        int8_t *q = face->q8 + t * f->q8_stride;
        face->inv[t] = k->quant_i8(q, &face->sum[t], h, cols);
        if (r->codes_zero) face->sum[t] = drop_codes(q, cols, r->codes_zero);
    }
}

/* rmsnorm of n values as if further ones, all zero, stood among them: the same bits as with these, if
 * every value has stayed in its lane (forge/prune/channels.c). */
static void norm_among(const struct bn_kernels *k, float *y, const float *x, const float *g,
                       size_t n, size_t width, float eps)
{
    float sum;
    k->dots(&sum, 1, x, 1, x, n, 1, n);
    float r = 1.0f / sqrtf(sum / (float)width + eps);
    for (size_t i = 0; i < n; i++) y[i] = g[i] * (x[i] * r);
}

static void tile_heads(const struct bn_delta_shape *d, float *to, const float *from)
{
    for (uint32_t h = 0; h < d->n_v_heads; h++)
        memcpy(to + (size_t)bn_order_tiled(d, h) * d->v_dim, from + (size_t)h * d->v_dim,
               d->v_dim * sizeof *to);
}

static void prepare_token(struct bn_forward *f, const struct input *in, const struct recipe *r,
                          size_t t, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    const struct bn_config *c = &f->m->config;
    float *h = in->plain.h + t * f->wide;
    const float *src = r->from + t * r->from_stride;
    bn_prof_mark(f->prof, worker, BN_OP_NORM);
    if (r->norm && r->norm_width) norm_among(k, h, src, r->norm, r->cols, r->norm_width, c->eps);
    else if (r->norm) k->rmsnorm(h, src, r->norm, r->cols, c->eps);
    else if (r->tiled) tile_heads(&c->delta, h, src);
    else memcpy(h, src, r->cols * sizeof *h);
    if (r->in_norm && f->adapted) memcpy(f->bare + t * f->wide, h, r->cols * sizeof *h);
    if (r->in_norm) k->rmsnorm(h, h, r->in_norm, r->cols, c->in_norm_eps);
    if (r->plain || !r->rotated) quantise(f, &in->plain, t, r, worker);
    if (!r->rotated) return;
    bn_prof_mark(f->prof, worker, BN_OP_HADAMARD);
    bn_model_rotate(f->m, in->rotated.h + t * f->wide, h, r->cols, false);
    quantise(f, &in->rotated, t, r, worker);
}

/* Makes the input of projections. When it returns, all of it can be read. */
static const struct input *prepare(struct bn_forward *f, const struct recipe *r, uint32_t worker)
{
    bool alone = f->n == 1 && !f->adapted;
    struct input *in = alone ? &f->own[worker] : &f->shared;
    struct bn_range tokens = {0, 1};
    if (alone || worker == 0) in->act = r->act;
    if (!alone) tokens = bn_pool_share(f->pool, worker, f->n, 1);
    for (size_t t = tokens.begin; t < tokens.end; t++) prepare_token(f, in, r, t, worker);
    if (!alone) bn_pool_barrier(f->pool, worker);
    return in;
}

/* The recipe of some projections of a layer that take the same rows: `norm`, then that of the
 * projection itself, where there is one (BitNet embeddings: then each has its own). */
static struct recipe recipe_of(const struct bn_layer *layer, enum proj first, enum proj last,
                               const float *from, size_t from_stride, const float *norm,
                               size_t cols)
{
    struct recipe r = {.from = from,
                       .from_stride = from_stride,
                       .cols = cols,
                       .norm = norm,
                       .in_norm = layer->in_norm[first]};
    for (enum proj p = first; p <= last; p++) {
        r.rotated |= layer->proj[p].rotated;
        r.plain |= !layer->proj[p].rotated;
    }
    return r;
}

/* The same for the first of the projections `first` to `last`, and what adapters want of the input of all
 * of them. */
static const struct input *prepare_for(struct bn_forward *f, uint32_t il, enum proj first,
                                       enum proj last, const struct recipe *r, uint32_t worker)
{
    const struct input *in = prepare(f, r, worker);
    if (!f->adapted || il >= f->m->config.n_layer) return in;
    bn_adapt_input(f->adapt, il, BN_P_Q + (enum bn_part)first, BN_P_Q + (enum bn_part)last,
                   r->in_norm ? f->bare : in->plain.h, f->wide, worker);
    bn_pool_barrier(f->pool, worker);
    return in;
}

/* The input of the next projection in the same step: the same one, unless the projection has a norm
 * of its own in front. */
static const struct input *next_input(struct bn_forward *f, const struct input *in, struct recipe r,
                                      const float *in_norm, uint32_t worker)
{
    if (!in_norm) return in;
    if (in == &f->shared) bn_pool_barrier(f->pool, worker); /* others may still be reading it */
    r.in_norm = in_norm;
    return prepare(f, &r, worker);
}

/* As the worker's node has it. */
static const struct bn_layer *layer_of(const struct bn_forward *f, uint32_t il, uint32_t worker)
{
    return bn_model_layers(f->m, bn_pool_node(f->pool, worker)) + il;
}

static size_t rows_of(const struct bn_matrix *w)
{
    return w->dense ? w->stored.rows : w->packed.rows;
}

/* What a profile should know of some rows of a matrix. */
static void note_work(struct bn_forward *f, const struct bn_matrix *w, struct bn_range r,
                      uint32_t worker)
{
    if (!bn_prof_on(f->prof)) return;
    uint64_t cols = w->dense ? w->stored.cols : w->packed.cols;
    bn_prof_work(f->prof, worker, bn_rows_bytes(bn_matrix_bytes(w), rows_of(w), r),
                 (r.end - r.begin) * cols * f->n);
}

/* Whether the kernel for many tokens is taken. */
static bool takes_many(const struct bn_forward *f, const struct bn_gemm *g, enum bn_act_quant act)
{
    if (f->n < g->many_from) return false;
    if (bn_act_planes(act)) return g->mul_planes_many != NULL;
    return act == BN_AQ_INT8 && g->mul_i8_many;
}

/* Rows of y[n][all rows] = a matrix of the layer times input; r: among those that are here. */
static void multiply(struct bn_forward *f, float *y, const struct bn_layer *layer, enum proj which,
                     const struct input *in, struct bn_range r, uint32_t worker)
{
    const struct bn_matrix *w = &layer->proj[which];
    const struct face *x = w->rotated ? &in->rotated : &in->plain;
    const struct bn_gemm *g = w->gemm;
    const bool many = !w->dense && takes_many(f, g, in->act);
    const struct place at = f->place[which];
    const struct bn_gemm_args a = {.y = y + at.first,
                                   .y_stride = at.stride,
                                   .w = &w->packed,
                                   .r0 = r.begin,
                                   .r1 = r.end,
                                   .n_tok = f->n,
                                   .scratch = many ? f->many + worker * f->many_bytes : NULL};
    bn_prof_mark(f->prof, worker, BN_OP_Q + which);
    note_work(f, w, r, worker);
    if (w->dense) dense_mul(f, y + at.first, at.stride, &w->stored, r, x->h, worker);
    else if (bn_act_planes(in->act)) {
        struct bn_planes p = {.q = x->q8,
                              .n_planes = bn_act_planes(in->act),
                              .plane_stride = f->q8_stride,
                              .stride = f->planes * f->q8_stride,
                              .unit = x->unit,
                              .unit_stride = f->units};
        (many ? g->mul_planes_many : g->mul_planes)(&a, &p);
    } else if (in->act == BN_AQ_INT8) {
        struct bn_q8 q = {x->q8, f->q8_stride, x->sum, x->inv};
        (many ? g->mul_i8_many : g->mul_i8)(&a, &q);
    } else g->mul_f32(&a, x->h, f->wide);
}

/* The same, and what adapters add. */
static void project(struct bn_forward *f, float *y, const struct bn_layer *layer, enum proj which,
                    const struct input *in, struct bn_range r, uint32_t worker)
{
    multiply(f, y, layer, which, in, r, worker);
    if (!f->adapted || layer->number >= f->m->config.n_layer) return;
    const struct bn_adapt_rows rows = {y, rows_of(&layer->proj[which]), r};
    bn_adapt_output(f->adapt, layer->number, BN_P_Q + (enum bn_part)which, &rows, worker);
}

/* A few tokens wait for the memory, which is not shared out evenly, so workers help each other; with
 * many tokens a kernel wants its rows together. */
static void deal(struct bn_forward *f, const struct bn_matrix *w, const struct input *in,
                 uint32_t worker)
{
    bool whole = f->n >= DEAL_TOKENS || (!w->dense && takes_many(f, w->gemm, in->act));
    bn_pool_deal(f->pool, worker, rows_of(w), w->gemm->group_rows, whole);
}

static void project_all(struct bn_forward *f, float *y, const struct bn_layer *layer,
                        enum proj which, const struct input *in, uint32_t worker)
{
    struct bn_range r;
    deal(f, &layer->proj[which], in, worker);
    while (bn_pool_take(f->pool, worker, &r)) project(f, y, layer, which, in, r, worker);
}

/* Rows of a projection that are here, among all of them. */
static struct bn_range among_all(const struct bn_forward *f, enum proj which, struct bn_range r)
{
    return (struct bn_range){f->place[which].first + r.begin, f->place[which].first + r.end};
}

/* x += some rows of `out` */
static void add_residual(struct bn_forward *f, struct bn_range rows, uint32_t worker)
{
    size_t n_embd = f->m->config.n_embd;
    bn_prof_mark(f->prof, worker, BN_OP_RESIDUAL);
    for (size_t t = 0; t < f->n; t++)
        f->m->kernels.add(f->x + t * n_embd + rows.begin, f->out + t * n_embd + rows.begin,
                          rows.end - rows.begin);
}

/* x += matrix times input */
static void project_residual(struct bn_forward *f, const struct bn_layer *layer, enum proj which,
                             const struct input *in, uint32_t worker)
{
    struct bn_range r;
    deal(f, &layer->proj[which], in, worker);
    while (bn_pool_take(f->pool, worker, &r)) {
        project(f, f->out, layer, which, in, r, worker);
        add_residual(f, among_all(f, which, r), worker);
    }
}

/* act(gate) * up where a plan closes gates that are barely open. A NaN is none of them. */
static void close_gates(float *act, const float *gate, size_t n, float gate_min)
{
    for (size_t i = 0; i < n; i++) act[i] = gate[i] <= gate_min ? 0 : act[i];
}

/* The channels of a layer that a walk takes as zero; NULL: none. */
static const uint8_t *channels_off(const struct bn_forward *f, uint32_t il)
{
    if (!f->part || !f->part->ffn_off) return NULL;
    return f->part->ffn_off + (size_t)il * f->m->config.n_ff;
}

static void close_channels(float *act, const uint8_t *off, size_t n)
{
    for (size_t i = 0; i < n; i++) act[i] = off[i] ? 0 : act[i];
}

/* up = act(gate) * up in some rows */
static void activate(struct bn_forward *f, uint32_t il, struct bn_range rows, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    const struct bn_savings_layer *plan = savings_of(f, il);
    const uint8_t *off = channels_off(f, il);
    size_t n_ff = f->m->config.n_ff, n = rows.end - rows.begin;
    bn_prof_mark(f->prof, worker, BN_OP_ACT);
    for (size_t t = 0; t < f->n; t++) {
        const float *g = f->gate + t * n_ff + rows.begin;
        float *u = f->up + t * n_ff + rows.begin;
        if (f->m->config.act == BN_ACT_RELU2) k->relu2_mul(u, g, u, n);
        else k->silu_mul(u, g, u, n);
        if (plan && plan->gate_min > 0) close_gates(u, g, n, plan->gate_min);
        if (off) close_channels(u, off + rows.begin, n);
    }
}

/* up = act(`gate` times input) * (`up` times input): part after part of both matrices, which have the
 * same rows and layout. Where closed gates are to be left out, or the two do not have the same input,
 * all gates come first; others may be looking at them then, and they are left as they are. */
static void gated_up(struct bn_forward *f, uint32_t il, const struct input *in,
                     const struct recipe *recipe, uint32_t worker)
{
    const struct bn_layer *layer = layer_of(f, il, worker);
    const struct face *x = &in->plain; /* feed-forward lists are made where nothing is rotated */
    bool apart = bn_ffn_wants_up(f->ffn, il) || layer->in_norm[UP];
    struct bn_range r;
    if (apart) {
        project_all(f, f->gate, layer, GATE, in, worker);
        bn_pool_barrier(f->pool, worker);
        if (bn_ffn_wants_up(f->ffn, il) && !channels_off(f, il) &&
            bn_ffn_up(f->ffn, il, f->up, f->gate, x->q8, x->sum[0], x->inv[0], worker))
            return;
        in = next_input(f, in, *recipe, layer->in_norm[UP], worker);
    }
    deal(f, &layer->proj[UP], in, worker);
    while (bn_pool_take(f->pool, worker, &r)) {
        if (!apart) project(f, f->gate, layer, GATE, in, r, worker);
        project(f, f->up, layer, UP, in, r, worker);
        activate(f, il, among_all(f, UP, r), worker);
    }
}

/* x += `down` times input */
static void project_down(struct bn_forward *f, uint32_t il, const struct input *in, uint32_t worker)
{
    struct bn_range rows;
    if (bn_ffn_down(f->ffn, il, f->out, in->plain.q8, in->plain.inv[0], &rows, worker))
        add_residual(f, rows, worker);
    else project_residual(f, layer_of(f, il, worker), DOWN, in, worker);
}

/* By worker 0: the last token's gates and inputs of `down`, in a pass that is to be looked at. */
static void note_activity(struct bn_forward *f, uint32_t il, const struct input *in)
{
    size_t t = f->n - 1;
    bool int8 = f->m->activations == BN_AQ_INT8;
    const struct bn_savings_layer *plan = savings_of(f, il);
    bn_prof_mark(f->prof, 0, BN_OP_CHECK);
    bn_activity_note(&f->activity, il, f->gate + t * f->m->config.n_ff, plan ? plan->gate_min : 0,
                     int8 ? in->plain.q8 + t * f->q8_stride : NULL, in->plain.h + t * f->wide);
}

/* Tokens that a worker counts. What one of them prepared for itself is counted by worker 0. */
static struct bn_range counted(const struct bn_forward *f, uint32_t il, uint32_t worker)
{
    if (!f->census || il >= f->m->config.n_layer) return (struct bn_range){0, 0};
    if (f->n == 1) return (struct bn_range){0, worker == 0};
    return bn_pool_share(f->pool, worker, f->n, 1);
}

static void count_input(struct bn_forward *f, uint32_t il, enum bn_savings_input which,
                        const struct input *in, size_t cols, uint32_t worker)
{
    struct bn_range r = counted(f, il, worker);
    bool int8 = f->m->activations == BN_AQ_INT8;
    for (size_t t = r.begin; t < r.end; t++)
        bn_census_row(f->census, worker, il, which, in->plain.h + t * f->wide,
                      int8 ? in->plain.q8 + t * f->q8_stride : NULL, cols);
}

static void count_gates(struct bn_forward *f, uint32_t il, uint32_t worker)
{
    struct bn_range r = counted(f, il, worker);
    size_t n_ff = f->m->config.n_ff;
    for (size_t t = r.begin; t < r.end; t++)
        bn_census_gate_row(f->census, worker, il, f->gate + t * n_ff, n_ff);
}

/* By channels, so that sums run over the tokens in their order whatever the number of workers. */
static void sum_channels(struct bn_forward *f, uint32_t il, const struct input *in, uint32_t worker)
{
    const struct bn_channel_sums *sums = f->part ? f->part->ffn_sums : NULL;
    size_t n_ff = f->m->config.n_ff, at = il * n_ff;
    if (!sums) return;
    struct bn_range r = bn_pool_share(f->pool, worker, n_ff, BN_LANES);
    bool int8 = f->m->activations == BN_AQ_INT8;
    for (size_t t = 0; t < f->n; t++) {
        const float *h = in->plain.h + t * f->wide;
        const int8_t *q = in->plain.q8 + t * f->q8_stride;
        for (size_t i = r.begin; i < r.end; i++) {
            double v = int8 && q[i] == 0 ? 0 : (double)h[i];
            sums->energy[at + i] += v * v;
            sums->active[at + i] += v != 0;
        }
    }
}

/* ------------------------------------------------------------------ the pass */

/* All workers meet, and where several ranks compute the model, these too: rows[n][stride], of which each
 * has made its part, are whole on all of them then. */
static void meet(struct bn_forward *f, float *rows, size_t stride, const struct bn_cut *cut,
                 uint32_t worker)
{
    bn_pool_barrier(f->pool, worker);
    if (!f->ranks) return;
    bn_prof_mark(f->prof, worker, BN_OP_RANKS);
    if (worker == 0) bn_dist_gather(f->m->dist, rows, f->n, stride, cut);
    bn_pool_barrier(f->pool, worker);
}

/* The same of x, once a block was added. */
static void meet_outputs(struct bn_forward *f, uint32_t worker)
{
    if (f->m->parts.whole) bn_pool_barrier(f->pool, worker);
    else meet(f, f->x, f->m->config.n_embd, &f->m->parts.outputs, worker);
}

/* Attention of a layer: out of x into att. */
static void attend(struct bn_forward *f, uint32_t il, uint32_t worker)
{
    const struct bn_layer *layer = layer_of(f, il, worker);
    size_t n_embd = f->m->config.n_embd;
    const float *const *ng = layer->in_norm;
    struct recipe r = recipe_of(layer, Q, V, f->x, n_embd, layer->attn_norm, n_embd);
    r.act = act_of(f, il, BN_IN_MIXER);
    const struct input *in = prepare_for(f, il, Q, V, &r, worker);
    count_input(f, il, BN_IN_MIXER, in, n_embd, worker);
    project_all(f, f->q, layer, Q, in, worker);
    in = next_input(f, in, r, ng[K], worker);
    project_all(f, f->k, layer, K, in, worker);
    in = next_input(f, in, r, ng[V], worker);
    project_all(f, f->v, layer, V, in, worker);
    bn_pool_barrier(f->pool, worker);
    bn_attention_work(f->attention,
                      &(struct bn_attention_layer){layer, layer->index, f->att, f->mix_dim, f->q,
                                                   f->place[Q].stride, f->k, f->v},
                      worker);
}

/* The same of a layer with a delta net. */
static void mix_delta(struct bn_forward *f, uint32_t il, uint32_t worker)
{
    const struct bn_layer *layer = layer_of(f, il, worker);
    size_t n_embd = f->m->config.n_embd;
    struct recipe r =
        recipe_of(layer, DELTA_QKV, DELTA_BETA, f->x, n_embd, layer->attn_norm, n_embd);
    r.act = act_of(f, il, BN_IN_MIXER);
    const struct input *in = prepare_for(f, il, DELTA_QKV, DELTA_BETA, &r, worker);
    count_input(f, il, BN_IN_MIXER, in, n_embd, worker);
    project_all(f, f->qkv, layer, DELTA_QKV, in, worker);
    project_all(f, f->z, layer, DELTA_Z, in, worker);
    project_all(f, f->alpha, layer, DELTA_ALPHA, in, worker);
    project_all(f, f->beta, layer, DELTA_BETA, in, worker);
    bn_pool_barrier(f->pool, worker);
    bn_delta_work(f->delta,
                  &(struct bn_delta_layer){.weights = layer,
                                           .index = layer->index,
                                           .out = f->att,
                                           .qkv = f->qkv,
                                           .z = f->z,
                                           .alpha = f->alpha,
                                           .beta = f->beta,
                                           .out_stride = f->mix_dim},
                  worker);
}

/* One layer: x is its input, and then its output. */
static void walk_layer(struct bn_forward *f, uint32_t il, uint32_t worker)
{
    const struct bn_layer *layer = layer_of(f, il, worker);
    size_t n_embd = f->m->config.n_embd, n_ff = f->m->config.n_ff;
    enum proj last = layer->is_delta ? DELTA_OUT : O;
    size_t mixed = layer->is_delta ? bn_delta_value_width(&f->m->config.delta) : f->q_dim;
    const struct bn_savings_layer *plan = savings_of(f, il);

    bn_prof_row(f->prof, worker, il + 1);
    if (layer->is_delta) mix_delta(f, il, worker);
    else attend(f, il, worker);
    meet(f, f->att, f->mix_dim, bn_ranks_mixed(f->ranks, layer->is_delta), worker);
    struct recipe r = recipe_of(layer, last, last, f->att, f->mix_dim, layer->attn_sub_norm, mixed);
    r.act = act_of(f, il, BN_IN_MIXER_OUT);
    r.tiled = layer->is_delta && f->m->delta_out_tiled;
    const struct input *in = prepare_for(f, il, last, last, &r, worker);
    count_input(f, il, BN_IN_MIXER_OUT, in, mixed, worker);
    project_residual(f, layer, last, in, worker);
    meet_outputs(f, worker);

    r = recipe_of(layer, GATE, UP, f->x, n_embd, layer->ffn_norm, n_embd);
    r.act = act_of(f, il, BN_IN_GATE_UP);
    in = prepare_for(f, il, GATE, UP, &r, worker);
    count_input(f, il, BN_IN_GATE_UP, in, n_embd, worker);
    gated_up(f, il, in, &r, worker);
    meet(f, f->up, n_ff, &f->m->parts.channels, worker);
    count_gates(f, il, worker);
    r = recipe_of(layer, DOWN, DOWN, f->up, n_ff, layer->ffn_sub_norm, n_ff);
    r.act = act_of(f, il, BN_IN_DOWN);
    r.norm_width = f->m->config.ffn_norm_width;
    r.codes_zero = plan ? plan->down_codes : 0;
    in = prepare_for(f, il, DOWN, DOWN, &r, worker);
    count_input(f, il, BN_IN_DOWN, in, n_ff, worker);
    sum_channels(f, il, in, worker);
    if (f->activity.due && worker == 0) note_activity(f, il, in);
    project_down(f, il, in, worker);
    meet_outputs(f, worker);
}

/* States before the first layer: of this worker's tokens. */
static void enter(struct bn_forward *f, struct bn_range tokens, uint32_t worker)
{
    size_t n_embd = f->m->config.n_embd, at = tokens.begin * n_embd;
    if (f->part && f->part->from)
        memcpy(f->x + at, f->part->from + at, (tokens.end - tokens.begin) * n_embd * sizeof *f->x);
    else
        for (size_t t = tokens.begin; t < tokens.end; t++) {
            bn_model_embed(f->m, f->x + t * n_embd, f->batch[t].token);
            if (f->adapted) bn_adapt_embed(f->adapt, f->x + t * n_embd, t, worker);
        }
}

/* The layers of bn_forward_walk. */
static void walk_part(struct bn_forward *f, struct bn_range tokens, uint32_t worker)
{
    const struct bn_walk *part = f->part;
    size_t n_embd = f->m->config.n_embd, at = tokens.begin * n_embd;
    for (uint32_t i = 0; i < part->n_layers; i++) walk_layer(f, part->layers[i], worker);
    if (part->to)
        memcpy(part->to + at, f->x + at, (tokens.end - tokens.begin) * n_embd * sizeof *f->x);
}

static void walk(void *arg, uint32_t worker)
{
    struct bn_forward *f = arg;
    const struct bn_config *c = &f->m->config;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1);

    bn_prof_mark(f->prof, worker, BN_OP_EMBED);
    enter(f, tokens, worker);
    bn_pool_barrier(f->pool, worker);
    if (f->part) walk_part(f, tokens, worker);
    else
        for (uint32_t il = 0; il < c->n_layer; il++) walk_layer(f, il, worker);
    bn_prof_row(f->prof, worker, 0);
    if (bn_head_rows(f->head)) bn_head_work(f->head, f->x, f->shared.plain.h, worker);
}

/* The layer that drafts: out of hidden states, behind the norm of the pass that made them, and of the
 * tokens that follow. */
static void walk_draft(void *arg, uint32_t worker)
{
    struct bn_forward *f = arg;
    const struct bn_config *c = &f->m->config;
    const struct bn_layer *layer = layer_of(f, c->n_layer, worker);
    const struct bn_kernels *k = &f->m->kernels;
    size_t n_embd = c->n_embd;
    const float *norm = f->chained ? layer->mtp_out_norm : f->m->out_norm;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1), r;

    bn_prof_row(f->prof, worker, c->n_layer + 1);
    bn_prof_mark(f->prof, worker, BN_OP_EMBED);
    for (size_t t = tokens.begin; t < tokens.end; t++) {
        float *e = f->draft + t * 2 * n_embd, *h = e + n_embd;
        bn_model_embed(f->m, e, f->batch[t].token);
        k->rmsnorm(e, e, layer->mtp_embed_norm, n_embd, c->eps);
        k->rmsnorm(h, f->x + f->behind[t] * n_embd, norm, n_embd, c->eps);
        k->rmsnorm(h, h, layer->mtp_hidden_norm, n_embd, c->eps);
    }
    bn_pool_barrier(f->pool, worker);
    struct recipe recipe = recipe_of(layer, MTP_IN, MTP_IN, f->draft, 2 * n_embd, NULL, 2 * n_embd);
    recipe.act = f->m->activations;
    const struct input *in = prepare(f, &recipe, worker);
    deal(f, &layer->proj[MTP_IN], in, worker);
    while (bn_pool_take(f->pool, worker, &r)) project(f, f->x, layer, MTP_IN, in, r, worker);
    meet_outputs(f, worker);
    walk_layer(f, c->n_layer, worker);
    bn_prof_row(f->prof, worker, 0);
    if (bn_head_rows(f->head)) bn_head_work(f->head, f->x, f->shared.plain.h, worker);
}

/* A pass, up to the counting. */
static void pass(struct bn_forward *f, const struct bn_batch_token *batch, size_t n, float *logits)
{
    if (f->ranks) {
        const struct bn_ranks_pass told = {batch, n, logits, f->drafts ? f->behind : NULL,
                                           f->chained};
        f->activity.due = false; /* gates are not whole */
        bn_ranks_announce(f->ranks, &told);
    }
    f->batch = batch;
    f->n = n;
    /* drafts decide when tokens come, not which: they do without */
    f->adapted = !f->drafts && bn_adapt_begin(f->adapt, batch, n);
    const struct bn_layer *last = &f->m->layers[f->m->config.n_layer];
    bn_attention_begin(f->attention, batch, n);
    bn_head_begin(f->head, logits, f->drafts ? last->mtp_out_norm : f->m->out_norm,
                  f->adapted ? f->adapt : NULL);
    for (size_t t = 0; logits && t < n; t++)
        if (batch[t].want.kind != BN_WANT_NONE) bn_head_add(f->head, (uint32_t)t, batch[t].want);
    bn_ffn_begin(f->ffn, n, f->adapted);
    bool states = f->delta && !f->drafts;
    if (states) bn_delta_begin(f->delta, batch, n);
    bn_pool_run(f->pool, f->drafts ? walk_draft : walk, f);
    if (states) bn_delta_end(f->delta);
    if (f->ranks && logits && bn_head_rows(f->head))
        bn_head_collect(f->head, bn_ranks_room(f->ranks));
}

bool bn_forward_follow(struct bn_forward *f, const struct bn_buf *message,
                       const struct bn_ranks_desk *desk)
{
    struct bn_ranks_pass told;
    if (!bn_ranks_read(f->ranks, message, desk, &told)) return false;
    if (told.behind)
        bn_forward_draft(f, told.batch, told.behind, told.chained, told.n, told.logits);
    else bn_forward_run(f, told.batch, told.n, told.logits);
    return true;
}

void bn_forward_run(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits)
{
    f->drafts = false;
    bn_activity_begin(&f->activity);
    pass(f, batch, n, logits);
    bn_prof_mark(f->prof, 0, BN_OP_PLAN);
    bn_ffn_end(f->ffn);
    bn_head_end(f->head);
}

void bn_forward_try(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits)
{
    f->activity.due = f->drafts = false;
    pass(f, batch, n, logits);
}

void bn_forward_walk(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                     const struct bn_walk *part, float *logits)
{
    f->part = part;
    bn_forward_try(f, batch, n, logits);
    f->part = NULL;
}

void bn_forward_draft(struct bn_forward *f, const struct bn_batch_token *batch,
                      const uint32_t *rows, bool chained, size_t n, float *logits)
{
    f->activity.due = false;
    f->drafts = true;
    f->behind = rows;
    f->chained = chained;
    pass(f, batch, n, logits);
    bn_head_end(f->head);
}

void bn_forward_warm(struct bn_forward *f)
{
    bn_touch(f->block, f->block_bytes);
    bn_attention_touch(f->attention);
    if (f->delta) bn_delta_touch(f->delta);
    bn_ffn_touch(f->ffn);
    bn_head_warm(f->head);
}

void bn_forward_hidden(const struct bn_forward *f, size_t t, float *out)
{
    const struct bn_config *c = &f->m->config;
    f->m->kernels.rmsnorm(out, f->x + t * c->n_embd, f->m->out_norm, c->n_embd, c->eps);
}

uint64_t bn_forward_read_bytes(const struct bn_forward *f)
{
    uint64_t left_out = (uint64_t)bn_ffn_left_out(f->ffn), head = bn_head_read_bytes(f->head);
    if (f->drafts) return f->m->mtp_bytes + head;
    uint64_t adapters = f->adapted ? bn_adapt_read_bytes(f->adapt) : 0;
    return f->layer_bytes - left_out + head + adapters;
}
