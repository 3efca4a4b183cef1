/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformer, straight down the page.
 *
 * Every worker of the pool walks through the same steps; inside a step each takes its share
 * (tokens, rows of a matrix, or attention tasks), and a barrier stands where the next step reads
 * what others wrote. Shares only decide who computes a value, never how: so the number of threads
 * cannot change a bit. A single token, the case that counts for speed, passes five barriers a layer,
 * seven with a long context (attention.c), and one more where rows of `up` are left out (model/ffn):
 * its norms are computed by every worker for itself, which is quicker than waiting for one of them.
 *
 *   x [n][n_embd]       residual stream
 *   q, k, v, att        attention: projections, and its output [n][n_head * head_dim]
 *   gate, up            feed-forward; up then holds act(gate) * up
 *   out [n][n_embd]     what a block adds to x
 *   input               of a projection: normed floats, and the same as int8 with a factor and a sum
 */
#include "model/forward.h"

#include "base/mem.h"
#include "model/attention.h"
#include "model/ops.h"
#include <stdlib.h>

enum {
    DENSE_ROWS = 8,  /* rows of a dense matrix decoded at a time */
    DEAL_TOKENS = 32 /* from so many on every worker keeps its share of rows */
};
/* the projections of a layer, in the order of enum bn_part; as operations of a profile, too */
enum proj { Q, K, V, O, GATE, UP, DOWN };
_Static_assert(BN_OP_DOWN == BN_OP_Q + DOWN, "the same order");

/* The prepared input of projections. A token alone is prepared by every worker in memory of its
 * own; several tokens are shared out and prepared once for all. */
struct input {
    float *h;     /* [n][wide] */
    int8_t *q8;   /* [n][q8_stride] */
    float *inv;   /* [n] */
    int32_t *sum; /* [n] */
};

struct bn_forward {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    struct bn_attention *attention;
    struct bn_head *head;
    struct bn_ffn *ffn;
    struct bn_activity activity;
    uint32_t max_tokens;
    uint64_t layer_bytes;
    size_t wide;                                  /* the widest activation */
    size_t q8_stride;                             /* padded */
    size_t qkv_dim, kv_dim;                       /* n_head * head_dim, n_head_kv * head_dim */
    float *x, *q, *k, *v, *att, *gate, *up, *out; /* [max_tokens] rows each */
    struct input shared;                          /* [max_tokens] rows */
    struct input own[BN_MAX_THREADS];             /* one row each */
    float *rows;   /* [threads][DENSE_ROWS][wide] decoded dense rows */
    uint8_t *many; /* [threads][many_bytes] for the matrix kernel, if it wants memory */
    size_t many_bytes;
    void *block; /* all of the above */
    size_t block_bytes;
    /* the call in progress */
    const struct bn_batch_token *batch;
    size_t n;
};

/* ------------------------------------------------------------------ memory */

static struct input input_piece(const struct bn_forward *f, struct bn_plan *p, size_t n)
{
    struct input in;
    in.h = bn_plan_piece(p, n * f->wide, sizeof(float));
    in.q8 = bn_plan_piece(p, n * f->q8_stride, 1);
    in.inv = bn_plan_piece(p, n, sizeof(float));
    in.sum = bn_plan_piece(p, n, sizeof(int32_t));
    return in;
}

static void lay_out(struct bn_forward *f, struct bn_plan *p)
{
    const struct bn_config *c = &f->m->config;
    size_t n = f->max_tokens, threads = bn_pool_threads(f->pool);
    f->x = bn_plan_piece(p, n * c->n_embd, sizeof(float));
    f->q = bn_plan_piece(p, n * f->qkv_dim, sizeof(float));
    f->k = bn_plan_piece(p, n * f->kv_dim, sizeof(float));
    f->v = bn_plan_piece(p, n * f->kv_dim, sizeof(float));
    f->att = bn_plan_piece(p, n * f->qkv_dim, sizeof(float));
    f->gate = bn_plan_piece(p, n * c->n_ff, sizeof(float));
    f->up = bn_plan_piece(p, n * c->n_ff, sizeof(float));
    f->out = bn_plan_piece(p, n * c->n_embd, sizeof(float));
    f->shared = input_piece(f, p, n);
    for (size_t i = 0; i < threads; i++) f->own[i] = input_piece(f, p, 1);
    f->rows = bn_plan_piece(p, threads * DENSE_ROWS * f->wide, sizeof(float));
    f->many = bn_plan_piece(p, threads, f->many_bytes);
}

/* What the kernels for many tokens want for the largest share of any matrix; 0 without them. */
static size_t many_bytes(const struct bn_forward *f)
{
    size_t most = 0, threads = bn_pool_threads(f->pool);
    if (f->m->config.act_quant != BN_AQ_INT8) return 0;
    for (uint32_t il = 0; il < f->m->config.n_layer; il++)
        for (size_t i = 0; i < BN_N_PROJ; i++) {
            const struct bn_matrix *w = &f->m->layers[il].proj[i];
            const struct bn_gemm *g = w->gemm;
            if (w->dense || !g->mul_i8_many || f->max_tokens < g->many_from) continue;
            for (uint32_t worker = 0; worker < threads; worker++) {
                struct bn_range r = bn_pool_share(f->pool, worker, w->packed.rows, g->group_rows);
                most = bn_max_size(most, g->many_bytes(r.end - r.begin, w->packed.cols));
            }
        }
    return bn_align_up(most, 64);
}

bitnet_status bn_forward_open(struct bn_forward **out, const struct bn_model *m,
                              struct bn_pool *pool, struct bn_kv *kv, uint32_t n_ctx,
                              uint32_t max_tokens, const struct bn_head_options *head,
                              enum bn_ffn_mode ffn, struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    const struct bn_config *c = &m->config;
    struct bn_forward *f = bn_calloc(1, sizeof *f);
    if (!f) return bn_fail_nomem(err, sizeof *f, "the forward pass");
    f->m = m;
    f->pool = pool;
    f->prof = bn_pool_prof(pool);
    f->max_tokens = max_tokens;
    f->layer_bytes = bn_model_layer_bytes(m);
    f->qkv_dim = (size_t)c->n_head * c->head_dim;
    f->kv_dim = (size_t)c->n_head_kv * c->head_dim;
    f->wide = bn_max_size(bn_max_size(c->n_embd, c->n_ff), f->qkv_dim);
    /* an odd multiple: tokens a power of two apart would share the same few lines of the caches */
    f->q8_stride = bn_align_up(f->wide, BN_K_ALIGN) | BN_K_ALIGN;
    f->many_bytes = many_bytes(f);
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
        s = bn_attention_open(&f->attention, m, pool, kv, n_ctx, max_tokens, how, err);
    if (s == BITNET_OK) s = bn_head_open(&f->head, m, pool, max_tokens, head, how, err);
    if (s == BITNET_OK) s = bn_ffn_open(&f->ffn, m, pool, ffn, how, err);
    if (s == BITNET_OK) s = bn_activity_open(&f->activity, c->n_layer, c->n_ff, err);
    if (s != BITNET_OK) bn_forward_close(f);
    else *out = f;
    return s;
}

void bn_forward_close(struct bn_forward *f)
{
    if (!f) return;
    bn_head_close(f->head);
    bn_attention_close(f->attention);
    bn_ffn_close(f->ffn);
    bn_activity_close(&f->activity);
    bn_block_free(f->block, f->block_bytes);
    free(f);
}

size_t bn_forward_bytes(const struct bn_forward *f)
{
    return f->block_bytes + bn_attention_bytes(f->attention) + bn_head_bytes(f->head) +
           bn_ffn_bytes(f->ffn);
}

const struct bn_head *bn_forward_head(const struct bn_forward *f) { return f->head; }
const struct bn_ffn *bn_forward_ffn(const struct bn_forward *f) { return f->ffn; }
const struct bn_activity *bn_forward_activity(const struct bn_forward *f) { return &f->activity; }

/* ------------------------------------------------------------------ linear layers */

/* A dense row range: decode a few rows, then their products with every token. */
static void dense_mul(struct bn_forward *f, float *y, size_t y_stride, const struct bn_stored *w,
                      struct bn_range rows, const float *x, size_t x_stride, size_t n,
                      uint32_t worker)
{
    float *decoded = f->rows + (size_t)worker * DENSE_ROWS * f->wide;
    for (size_t r = rows.begin; r < rows.end; r += DENSE_ROWS) {
        size_t some = bn_min_size(DENSE_ROWS, rows.end - r);
        bn_stored_dots(&f->m->kernels, y + r, y_stride, w, r, some, x, x_stride, n, decoded);
    }
}

/* Makes the input of projections out of rows of `from`: g and then in_g are norms (either may be
 * NULL). When it returns, all of it can be read. */
static const struct input *prepare(struct bn_forward *f, const float *from, size_t from_stride,
                                   const float *g, const float *in_g, size_t cols, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    const struct bn_config *c = &f->m->config;
    bool alone = f->n == 1;
    struct input *in = alone ? &f->own[worker] : &f->shared;
    struct bn_range tokens = {0, 1};
    if (!alone) tokens = bn_pool_share(f->pool, worker, f->n, 1);
    for (size_t t = tokens.begin; t < tokens.end; t++) {
        float *h = in->h + t * f->wide;
        const float *src = from + t * from_stride;
        bn_prof_mark(f->prof, worker, BN_OP_NORM);
        if (g) k->rmsnorm(h, src, g, cols, c->eps);
        else memcpy(h, src, cols * sizeof *h);
        if (in_g) k->rmsnorm(h, h, in_g, cols, c->in_norm_eps);
        if (c->act_quant != BN_AQ_INT8) continue;
        bn_prof_mark(f->prof, worker, BN_OP_QUANT);
        in->inv[t] = k->quant_i8(in->q8 + t * f->q8_stride, &in->sum[t], h, cols);
    }
    if (!alone) bn_pool_barrier(f->pool, worker);
    return in;
}

/* The input of the next projection in the same step: the same one, unless the projection has a norm
 * of its own in front (BitNet embeddings). */
static const struct input *next_input(struct bn_forward *f, const struct input *in,
                                      const float *from, size_t from_stride, const float *g,
                                      const float *in_g, size_t cols, uint32_t worker)
{
    if (!in_g) return in;
    if (in == &f->shared) bn_pool_barrier(f->pool, worker); /* others may still be reading it */
    return prepare(f, from, from_stride, g, in_g, cols, worker);
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

/* Rows of y[n][rows of w] = a layer's matrix times input. */
static void project(struct bn_forward *f, float *y, const struct bn_layer *layer, enum proj which,
                    const struct input *in, struct bn_range r, uint32_t worker)
{
    const struct bn_matrix *w = &layer->proj[which];
    const struct bn_gemm *g = w->gemm;
    size_t rows = rows_of(w);
    bn_prof_mark(f->prof, worker, BN_OP_Q + which);
    note_work(f, w, r, worker);
    if (w->dense) dense_mul(f, y, rows, &w->stored, r, in->h, f->wide, f->n, worker);
    else if (f->m->config.act_quant == BN_AQ_INT8 && g->mul_i8_many && f->n >= g->many_from)
        g->mul_i8_many(y, rows, &w->packed, r.begin, r.end, in->q8, f->q8_stride, in->sum, in->inv,
                       f->n, f->many + worker * f->many_bytes);
    else if (f->m->config.act_quant == BN_AQ_INT8)
        g->mul_i8(y, rows, &w->packed, r.begin, r.end, in->q8, f->q8_stride, in->sum, in->inv,
                  f->n);
    else g->mul_f32(y, rows, &w->packed, r.begin, r.end, in->h, f->wide, f->n);
}

/* A few tokens wait for the memory, which is not shared out evenly, so workers help each other; with
 * many tokens a kernel wants its rows together. */
static void deal(struct bn_forward *f, const struct bn_matrix *w, uint32_t worker)
{
    bn_pool_deal(f->pool, worker, rows_of(w), w->gemm->group_rows, f->n >= DEAL_TOKENS);
}

static void project_all(struct bn_forward *f, float *y, const struct bn_layer *layer,
                        enum proj which, const struct input *in, uint32_t worker)
{
    struct bn_range r;
    deal(f, &layer->proj[which], worker);
    while (bn_pool_take(f->pool, worker, &r)) project(f, y, layer, which, in, r, worker);
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
    deal(f, &layer->proj[which], worker);
    while (bn_pool_take(f->pool, worker, &r)) {
        project(f, f->out, layer, which, in, r, worker);
        add_residual(f, r, worker);
    }
}

/* up = act(gate) * up in some rows */
static void activate(struct bn_forward *f, struct bn_range rows, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    size_t n_ff = f->m->config.n_ff, n = rows.end - rows.begin;
    bn_prof_mark(f->prof, worker, BN_OP_ACT);
    for (size_t t = 0; t < f->n; t++) {
        const float *g = f->gate + t * n_ff + rows.begin;
        float *u = f->up + t * n_ff + rows.begin;
        if (f->m->config.act == BN_ACT_RELU2) k->relu2_mul(u, g, u, n);
        else k->silu_mul(u, g, u, n);
    }
}

/* up = act(`gate` times input) * (`up` times input): part after part of both matrices, which have the
 * same rows and layout. Where closed gates are to be left out, or the two do not have the same input,
 * all gates come first; others may be looking at them then, and they are left as they are. */
static void gated_up(struct bn_forward *f, uint32_t il, const struct input *in, uint32_t worker)
{
    const struct bn_layer *y = layer_of(f, il, worker);
    bool apart = bn_ffn_wants_up(f->ffn, il) || y->in_norm[UP];
    struct bn_range r;
    if (apart) {
        project_all(f, f->gate, y, GATE, in, worker);
        bn_pool_barrier(f->pool, worker);
        if (bn_ffn_wants_up(f->ffn, il) &&
            bn_ffn_up(f->ffn, il, f->up, f->gate, in->q8, in->sum[0], in->inv[0], worker))
            return;
        in = next_input(f, in, f->x, f->m->config.n_embd, y->ffn_norm, y->in_norm[UP],
                        f->m->config.n_embd, worker);
    }
    deal(f, &y->proj[UP], worker);
    while (bn_pool_take(f->pool, worker, &r)) {
        if (!apart) project(f, f->gate, y, GATE, in, r, worker);
        project(f, f->up, y, UP, in, r, worker);
        activate(f, r, worker);
    }
}

/* x += `down` times input */
static void project_down(struct bn_forward *f, uint32_t il, const struct input *in, uint32_t worker)
{
    struct bn_range rows;
    if (bn_ffn_down(f->ffn, il, f->out, in->q8, in->inv[0], &rows, worker))
        add_residual(f, rows, worker);
    else project_residual(f, layer_of(f, il, worker), DOWN, in, worker);
}

/* By worker 0: the last token's gates and inputs of `down`, in a pass that is to be looked at. */
static void note_activity(struct bn_forward *f, uint32_t il, const struct input *in)
{
    size_t t = f->n - 1;
    bool int8 = f->m->config.act_quant == BN_AQ_INT8;
    bn_prof_mark(f->prof, 0, BN_OP_CHECK);
    bn_activity_note(&f->activity, il, f->gate + t * f->m->config.n_ff,
                     int8 ? in->q8 + t * f->q8_stride : NULL, in->h + t * f->wide);
}

/* ------------------------------------------------------------------ the pass */

static void walk(void *arg, uint32_t worker)
{
    struct bn_forward *f = arg;
    const struct bn_model *m = f->m;
    const struct bn_config *c = &m->config;
    size_t n_embd = c->n_embd;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1);
    const struct input *in;

    bn_prof_mark(f->prof, worker, BN_OP_EMBED);
    for (size_t t = tokens.begin; t < tokens.end; t++)
        bn_stored_row(&m->kernels, f->x + t * n_embd, &m->embed.stored,
                      (uint64_t)f->batch[t].token);
    bn_pool_barrier(f->pool, worker);

    for (uint32_t il = 0; il < c->n_layer; il++) {
        const struct bn_layer *y = layer_of(f, il, worker);
        const float *const *ng = y->in_norm;

        bn_prof_row(f->prof, worker, il + 1);
        in = prepare(f, f->x, n_embd, y->attn_norm, ng[Q], n_embd, worker);
        project_all(f, f->q, y, Q, in, worker);
        in = next_input(f, in, f->x, n_embd, y->attn_norm, ng[K], n_embd, worker);
        project_all(f, f->k, y, K, in, worker);
        in = next_input(f, in, f->x, n_embd, y->attn_norm, ng[V], n_embd, worker);
        project_all(f, f->v, y, V, in, worker);
        bn_pool_barrier(f->pool, worker);
        bn_attention_work(f->attention,
                          &(struct bn_attention_layer){y, il, f->att, f->q, f->k, f->v}, worker);
        bn_pool_barrier(f->pool, worker);
        in = prepare(f, f->att, f->qkv_dim, y->attn_sub_norm, ng[O], f->qkv_dim, worker);
        project_residual(f, y, O, in, worker);
        bn_pool_barrier(f->pool, worker);

        in = prepare(f, f->x, n_embd, y->ffn_norm, ng[GATE], n_embd, worker);
        gated_up(f, il, in, worker);
        bn_pool_barrier(f->pool, worker);
        in = prepare(f, f->up, c->n_ff, y->ffn_sub_norm, ng[DOWN], c->n_ff, worker);
        if (f->activity.due && worker == 0) note_activity(f, il, in);
        project_down(f, il, in, worker);
        bn_pool_barrier(f->pool, worker);
    }
    bn_prof_row(f->prof, worker, 0);
    if (bn_head_rows(f->head)) bn_head_work(f->head, f->x, f->shared.h, worker);
}

/* A pass, up to the counting. */
static void pass(struct bn_forward *f, const struct bn_batch_token *batch, size_t n, float *logits)
{
    f->batch = batch;
    f->n = n;
    bn_attention_begin(f->attention, batch, n);
    bn_head_begin(f->head, logits);
    for (size_t t = 0; logits && t < n; t++)
        if (batch[t].want.kind != BN_WANT_NONE) bn_head_add(f->head, (uint32_t)t, batch[t].want);
    bn_ffn_begin(f->ffn, n);
    bn_pool_run(f->pool, walk, f);
}

void bn_forward_run(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits)
{
    bn_activity_begin(&f->activity);
    pass(f, batch, n, logits);
    bn_prof_mark(f->prof, 0, BN_OP_PLAN);
    bn_ffn_end(f->ffn);
    bn_head_end(f->head);
}

void bn_forward_try(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits)
{
    f->activity.due = false;
    pass(f, batch, n, logits);
}

void bn_forward_warm(struct bn_forward *f)
{
    bn_touch(f->block, f->block_bytes);
    bn_attention_touch(f->attention);
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
    uint64_t left_out = (uint64_t)bn_ffn_left_out(f->ffn);
    return f->layer_bytes - left_out + bn_head_read_bytes(f->head);
}
