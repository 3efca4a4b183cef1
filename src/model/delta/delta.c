/* SPDX-License-Identifier: Apache-2.0
 *
 *   channels   of a head of q, k or v: the convolution, in place; the norm of q and k
 *   gates      decay and beta of every token and value head
 *   ---------- barrier
 *   heads      a value head and a sequence's tokens: the recurrence, then the gated norm
 *
 * A run is the tokens of one sequence in the batch: first those that are sure, then drafts. */
#include "model/delta/delta.h"

#include "base/det_math.h"
#include "kernels/exp.h"
#include "model/forward.h"
#include "model/ops.h"
#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = BN_CONV_TAPS_MAX - 1 };

static const float l2_eps = 1e-6f;      /* of the norms of q and k, whatever the model's own is */
static const float softplus_max = 20.f; /* from there on it is its argument, as in the reference */

struct run {
    size_t first, n_sure, n_all; /* tokens of the batch */
    struct bn_state *state;
};

struct bn_delta {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    const struct bn_states *states;
    struct bn_delta_shape shape;
    size_t conv_width, key_width, value_width;
    size_t first_out; /* column of the first value head that is here */
    float q_scale;
    float *decay, *beta; /* [max_tokens][n_v_heads] */
    float *scratch;      /* [threads][2][head_floats]: a head that is kept as bf16; for drafts */
    struct run *runs;    /* [max_tokens] */
    void *memory;        /* all of these */
    size_t memory_bytes;
    /* the batch in progress */
    const struct bn_batch_token *batch;
    size_t n, n_runs;
};

/* Value heads of a key head. */
static size_t share_of(const struct bn_delta_shape *d) { return d->n_v_heads / d->n_k_heads; }

/* ------------------------------------------------------------------ life */

static void lay_out(struct bn_delta *d, struct bn_plan *p, size_t max_tokens)
{
    size_t heads = d->shape.n_v_heads, threads = bn_pool_threads(d->pool);
    d->decay = bn_plan_piece(p, max_tokens * heads, sizeof *d->decay);
    d->beta = bn_plan_piece(p, max_tokens * heads, sizeof *d->beta);
    d->scratch = bn_plan_piece(p, threads * 2 * d->states->head_floats, sizeof *d->scratch);
    d->runs = bn_plan_piece(p, max_tokens, sizeof *d->runs);
}

bitnet_status bn_delta_open(struct bn_delta **out, const struct bn_model *m, struct bn_pool *pool,
                            const struct bn_states *states, uint32_t max_tokens,
                            struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    struct bn_delta *d = bn_calloc(1, sizeof *d);
    if (!d) return bn_fail_nomem(err, sizeof *d, "delta nets");
    *d = (struct bn_delta){.m = m,
                           .pool = pool,
                           .prof = bn_pool_prof(pool),
                           .states = states,
                           .shape = bn_parts_delta(m)};
    d->first_out = bn_parts_delta_heads(m).begin * share_of(&m->config.delta) * d->shape.v_dim;
    d->conv_width = bn_delta_conv_width(&d->shape);
    d->key_width = bn_delta_key_width(&d->shape);
    d->value_width = bn_delta_value_width(&d->shape);
    d->q_scale = 1.0f / sqrtf((float)d->shape.k_dim);
    struct bn_plan p = {0};
    lay_out(d, &p, max_tokens);
    d->memory_bytes = p.used;
    bitnet_status s = bn_block_take(&d->memory, &d->memory_bytes, how, "delta nets", err);
    if (s != BITNET_OK) {
        bn_delta_close(d);
        return s;
    }
    p = (struct bn_plan){.base = d->memory};
    lay_out(d, &p, max_tokens);
    *out = d;
    return BITNET_OK;
}

void bn_delta_close(struct bn_delta *d)
{
    if (!d) return;
    bn_block_free(d->memory, d->memory_bytes);
    free(d);
}

void bn_delta_touch(struct bn_delta *d) { bn_touch(d->memory, d->memory_bytes); }
size_t bn_delta_bytes(const struct bn_delta *d) { return d->memory_bytes; }

/* ------------------------------------------------------------------ the batch */

void bn_delta_begin(struct bn_delta *d, const struct bn_batch_token *batch, size_t n)
{
    d->batch = batch;
    d->n = n;
    d->n_runs = 0;
    for (size_t t = 0; t < n; t++) {
        bool same = t && batch[t].seq == batch[t - 1].seq;
        if (!same) d->runs[d->n_runs++] = (struct run){.first = t, .state = batch[t].seq->state};
        struct run *r = &d->runs[d->n_runs - 1];
        r->n_all++;
        if (!batch[t].draft) r->n_sure++;
    }
}

void bn_delta_end(struct bn_delta *d)
{
    for (size_t i = 0; i < d->n_runs; i++) {
        const struct run *r = &d->runs[i];
        struct bn_state *s = r->state;
        s->n_tokens += s->n_accepted + (uint32_t)r->n_sure;
        s->n_accepted = 0;
        s->n_drafts = (uint32_t)(r->n_all - r->n_sure);
        s->turn ^= 1;
    }
}

/* ------------------------------------------------------------------ channels */

/* Some channels of a layer's convolution and of a run. */
struct channels {
    const struct bn_delta_layer *layer;
    const struct run *run;
    size_t begin, n;
};

/* Row i of the inputs as they follow each other: those before the run, then its own. */
static const float *input_row(const struct bn_delta *d, const struct channels *c,
                              const float *before, size_t i)
{
    size_t rows = d->shape.taps - 1;
    if (i < rows) return before + i * d->conv_width;
    return c->layer->qkv + (c->run->first + i - rows) * d->conv_width + c->begin;
}

/* The inputs that the first n tokens of the run leave behind. */
static void last_inputs(const struct bn_delta *d, const struct channels *c, const float *before,
                        size_t n, float *to, size_t to_stride)
{
    for (size_t i = 0; i < d->shape.taps - 1; i++)
        memcpy(to + i * to_stride, input_row(d, c, before, n + i), c->n * sizeof *to);
}

/* The inputs before the run, in the state's own place: zeros at the beginning of a text; drafts that
 * were accepted have moved on. */
static float *inputs_before(const struct bn_delta *d, const struct channels *c)
{
    const struct bn_state *s = c->run->state;
    size_t rows = d->shape.taps - 1;
    float *conv = bn_state_conv(d->states, s->slot, c->layer->index) + c->begin;
    for (size_t i = 0; s->n_tokens == 0 && i < rows; i++)
        memset(conv + i * d->conv_width, 0, c->n * sizeof *conv);
    for (uint32_t g = 0; g < s->n_accepted; g++) {
        const float *new = bn_state_draft(d->states, s, false, c->layer->index, g) + c->begin;
        for (size_t i = 0; i + 1 < rows; i++)
            memcpy(conv + i * d->conv_width, conv + (i + 1) * d->conv_width, c->n * sizeof *conv);
        memcpy(conv + (rows - 1) * d->conv_width, new, c->n * sizeof *conv);
    }
    return conv;
}

/* What is wanted of the raw inputs, before they are replaced. */
static void keep_inputs(const struct bn_delta *d, const struct channels *c, const float *before)
{
    const struct run *r = c->run;
    for (size_t t = 0; t < r->n_sure; t++) {
        uint32_t save = d->batch[r->first + t].save;
        if (!save) continue;
        float *to = bn_state_conv(d->states, save - 1, c->layer->index) + c->begin;
        last_inputs(d, c, before, t + 1, to, d->conv_width);
    }
    for (size_t t = r->n_sure; t < r->n_all; t++)
        memcpy(
            bn_state_draft(d->states, r->state, true, c->layer->index, (uint32_t)(t - r->n_sure)) +
                c->begin,
            input_row(d, c, before, t + d->shape.taps - 1), c->n * sizeof *before);
}

static void convolve(const struct bn_delta *d, const struct channels *c)
{
    const struct run *r = c->run;
    float after[ROWS_MAX * BN_DELTA_DIM_MAX];
    float *before = inputs_before(d, c);
    keep_inputs(d, c, before);
    last_inputs(d, c, before, r->n_sure, after, BN_DELTA_DIM_MAX);
    d->m->kernels.conv_silu(
        &(struct bn_conv_args){.x = c->layer->qkv + r->first * d->conv_width + c->begin,
                               .x_stride = d->conv_width,
                               .n = r->n_all,
                               .before = before,
                               .before_stride = d->conv_width,
                               .w = c->layer->weights->conv + c->begin,
                               .w_stride = d->conv_width,
                               .n_channels = c->n,
                               .taps = d->shape.taps});
    for (size_t i = 0; i < d->shape.taps - 1; i++)
        memcpy(before + i * d->conv_width, after + i * BN_DELTA_DIM_MAX, c->n * sizeof *before);
}

/* Head u of q, k and v, counted through. */
static struct channels head_channels(const struct bn_delta *d, const struct bn_delta_layer *layer,
                                     const struct run *r, size_t u)
{
    size_t keys = 2 * d->shape.n_k_heads, k_dim = d->shape.k_dim, v_dim = d->shape.v_dim;
    if (u < keys) return (struct channels){layer, r, u * k_dim, k_dim};
    return (struct channels){layer, r, keys * k_dim + (u - keys) * v_dim, v_dim};
}

static void work_channels(const struct bn_delta *d, const struct bn_delta_layer *layer,
                          uint32_t worker)
{
    size_t k_heads = d->shape.n_k_heads, units = 2 * k_heads + d->shape.n_v_heads;
    struct bn_range share = bn_pool_share(d->pool, worker, d->n_runs * units, 1);
    bn_prof_mark(d->prof, worker, BN_OP_CONV);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t u = i % units;
        struct channels c = head_channels(d, layer, &d->runs[i / units], u);
        convolve(d, &c);
        for (size_t t = 0; u < 2 * k_heads && t < c.run->n_all; t++) {
            float *x = layer->qkv + (c.run->first + t) * d->conv_width + c.begin;
            d->m->kernels.l2norm(x, x, c.n, l2_eps, u < k_heads ? d->q_scale : 1.0f);
        }
    }
}

/* ------------------------------------------------------------------ gates */

static float softplus(float x)
{
    if (x > softplus_max || !(x == x)) return x;
    double e = bn_det_exp((double)x);
    return (float)(e < 0x1p-20 ? e - e * e / 2 : bn_det_log(1 + e));
}

static void work_gates(const struct bn_delta *d, const struct bn_delta_layer *layer,
                       uint32_t worker)
{
    size_t heads = d->shape.n_v_heads;
    struct bn_range share = bn_pool_share(d->pool, worker, d->n * heads, 1);
    for (size_t i = share.begin; i < share.end; i++) {
        size_t h = i % heads;
        d->decay[i] = bn_exp(layer->weights->delta_a[h] *
                             softplus(layer->alpha[i] + layer->weights->delta_dt[h]));
        d->beta[i] = 1.0f / (1.0f + bn_exp(-layer->beta[i]));
    }
}

/* ------------------------------------------------------------------ heads */

/* A value head and a run. */
struct head {
    const struct bn_delta_layer *layer;
    const struct run *run;
    uint32_t h;
    const void *next; /* the state that this worker comes to next, or NULL */
};

/* Where its output stands. */
static float *output(const struct bn_delta *d, const struct head *x, size_t t)
{
    return x->layer->out + t * x->layer->out_stride + d->first_out + x->h * d->shape.v_dim;
}

static void round_bf16(const struct bn_kernels *k, float *x, size_t n)
{
    uint16_t part[512];
    for (size_t i = 0; i < n; i += BN_ARRAY_LEN(part)) {
        size_t some = bn_min_size(BN_ARRAY_LEN(part), n - i);
        k->f32_to_bf16(part, x + i, some);
        k->row_bf16(x + i, part, some);
    }
}

/* The recurrence; token after token where states are rounded. */
static void run_delta(const struct bn_delta *d, uint32_t layer, struct bn_delta_args a)
{
    const struct bn_kernels *k = &d->m->kernels;
    size_t n = a.n;
    if (!d->states->layers[layer].bf16) {
        k->delta(&a);
        return;
    }
    a.n = 1;
    for (size_t t = 0; t < n; t++) {
        k->delta(&a);
        round_bf16(k, a.s, a.k_dim * a.v_dim);
        if (a.o) a.q += a.qk_stride, a.o += a.o_stride;
        a.k += a.qk_stride;
        a.v += a.v_stride;
        a.decay += a.gate_stride;
        a.beta += a.gate_stride;
    }
}

/* Tokens [t, t + n) of the batch on a state. */
static void advance(const struct bn_delta *d, const struct head *x, float *state, size_t t,
                    size_t n, const void *next)
{
    size_t k_dim = d->shape.k_dim, heads = d->shape.n_v_heads;
    size_t k_head = x->h / share_of(&d->shape);
    const float *qkv = x->layer->qkv + t * d->conv_width;
    if (!n) return;
    run_delta(d, x->layer->index,
              (struct bn_delta_args){.s = state,
                                     .k_dim = k_dim,
                                     .v_dim = d->shape.v_dim,
                                     .q = qkv + k_head * k_dim,
                                     .k = qkv + d->key_width + k_head * k_dim,
                                     .v = qkv + 2 * d->key_width + x->h * d->shape.v_dim,
                                     .decay = d->decay + t * heads + x->h,
                                     .beta = d->beta + t * heads + x->h,
                                     .o = output(d, x, t),
                                     .qk_stride = d->conv_width,
                                     .v_stride = d->conv_width,
                                     .gate_stride = heads,
                                     .o_stride = x->layer->out_stride,
                                     .n = n,
                                     .next = next});
}

/* Drafts of the last step that were accepted. */
static void catch_up(const struct bn_delta *d, const struct head *x, float *state)
{
    const struct bn_state *s = x->run->state;
    const struct bn_states *all = d->states;
    if (!s->n_accepted) return;
    size_t k_head = x->h / share_of(&d->shape);
    const float *g = bn_state_draft(all, s, false, x->layer->index, 0);
    run_delta(d, x->layer->index,
              (struct bn_delta_args){.s = state,
                                     .k_dim = d->shape.k_dim,
                                     .v_dim = d->shape.v_dim,
                                     .k = g + bn_state_draft_k(all) + k_head * d->shape.k_dim,
                                     .v = g + bn_state_draft_v(all) + x->h * d->shape.v_dim,
                                     .decay = g + bn_state_draft_decay(all) + x->h,
                                     .beta = g + bn_state_draft_beta(all) + x->h,
                                     .qk_stride = all->draft_floats,
                                     .v_stride = all->draft_floats,
                                     .gate_stride = all->draft_floats,
                                     .n = s->n_accepted});
}

/* What draft i would put into the state. Heads that share a key head have the same k. */
static void keep_draft(const struct bn_delta *d, const struct head *x, uint32_t i)
{
    const struct bn_states *all = d->states;
    size_t t = x->run->first + x->run->n_sure + i, heads = d->shape.n_v_heads;
    size_t share = share_of(&d->shape), k_dim = d->shape.k_dim, v_dim = d->shape.v_dim;
    float *g = bn_state_draft(all, x->run->state, true, x->layer->index, i);
    const float *qkv = x->layer->qkv + t * d->conv_width;
    if (x->h % share == 0)
        memcpy(g + bn_state_draft_k(all) + x->h / share * k_dim,
               qkv + d->key_width + x->h / share * k_dim, k_dim * sizeof *g);
    memcpy(g + bn_state_draft_v(all) + x->h * v_dim, qkv + 2 * d->key_width + x->h * v_dim,
           v_dim * sizeof *g);
    g[bn_state_draft_decay(all) + x->h] = d->decay[t * heads + x->h];
    g[bn_state_draft_beta(all) + x->h] = d->beta[t * heads + x->h];
}

/* A head as states keep it; rounded it is already. */
static void put_head(const struct bn_delta *d, uint32_t layer, void *to, const float *state,
                     size_t floats)
{
    if (d->states->layers[layer].bf16) d->m->kernels.f32_to_bf16(to, state, floats);
    else memcpy(to, state, floats * sizeof *state);
}

static void work_head(const struct bn_delta *d, const struct head *x, uint32_t worker)
{
    const struct run *r = x->run;
    size_t floats = (size_t)d->shape.k_dim * d->shape.v_dim, from = r->first;
    uint32_t layer = x->layer->index;
    float *desk = d->scratch + worker * 2 * d->states->head_floats;
    void *stored = bn_state_head(d->states, r->state->slot, layer, x->h);
    float *state = d->states->layers[layer].bf16 ? desk : stored;
    if (r->state->n_tokens == 0) memset(state, 0, floats * sizeof *state);
    else if (state != stored) d->m->kernels.row_bf16(state, stored, floats);
    catch_up(d, x, state);
    for (size_t t = r->first; t < r->first + r->n_sure; t++) {
        uint32_t save = d->batch[t].save;
        if (!save) continue;
        advance(d, x, state, from, t + 1 - from, NULL);
        put_head(d, layer, bn_state_head(d->states, save - 1, layer, x->h), state, floats);
        from = t + 1;
    }
    advance(d, x, state, from, r->first + r->n_sure - from, state == stored ? x->next : NULL);
    if (state != stored) put_head(d, layer, stored, state, floats);
    if (r->n_all == r->n_sure) return;
    float *copy = desk + d->states->head_floats;
    memcpy(copy, state, floats * sizeof *copy);
    advance(d, x, copy, r->first + r->n_sure, r->n_all - r->n_sure, NULL);
    for (uint32_t i = 0; i < r->n_all - r->n_sure; i++) keep_draft(d, x, i);
}

static void gated_norm(const struct bn_delta *d, const struct head *x)
{
    const struct bn_kernels *k = &d->m->kernels;
    size_t v_dim = d->shape.v_dim;
    for (size_t t = x->run->first; t < x->run->first + x->run->n_all; t++) {
        float *o = output(d, x, t);
        k->rmsnorm(o, o, x->layer->weights->delta_norm, v_dim, d->m->config.eps);
        k->silu_mul(o, x->layer->z + t * d->value_width + x->h * v_dim, o, v_dim);
    }
}

/* Head i of all runs. */
static struct head head_at(const struct bn_delta *d, const struct bn_delta_layer *layer, size_t i,
                           bool more)
{
    uint32_t heads = d->shape.n_v_heads, h = (uint32_t)(i % heads),
             next = (uint32_t)(i + 1) % heads;
    const struct run *r = &d->runs[i / heads];
    struct head x = {layer, r, h, NULL};
    if (more)
        x.next = bn_state_head(d->states, d->runs[(i + 1) / heads].state->slot, layer->index, next);
    return x;
}

static void work_heads(const struct bn_delta *d, const struct bn_delta_layer *layer,
                       uint32_t worker)
{
    uint32_t heads = d->shape.n_v_heads;
    struct bn_range r;
    bn_pool_deal(d->pool, worker, d->n_runs * heads, 1, false);
    while (bn_pool_take(d->pool, worker, &r)) {
        bn_prof_mark(d->prof, worker, BN_OP_DELTA);
        if (bn_prof_on(d->prof)) /* every state is read and written */
            bn_prof_work(d->prof, worker,
                         (r.end - r.begin) * 2 * d->states->layers[layer->index].head_bytes,
                         3 * (r.end - r.begin) * d->states->head_floats * d->n / d->n_runs);
        for (size_t i = r.begin; i < r.end; i++) {
            struct head x = head_at(d, layer, i, i + 1 < r.end);
            work_head(d, &x, worker);
            gated_norm(d, &x);
        }
    }
}

void bn_delta_work(struct bn_delta *d, const struct bn_delta_layer *layer, uint32_t worker)
{
    work_channels(d, layer, worker);
    work_gates(d, layer, worker);
    bn_pool_barrier(d->pool, worker);
    work_heads(d, layer, worker);
}
