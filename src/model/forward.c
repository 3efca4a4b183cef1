/* SPDX-License-Identifier: Apache-2.0
 *
 * The transformer, straight down the page.
 *
 * Every worker of the pool walks through the same steps; inside a step each takes its share
 * (tokens, rows of a matrix, or attention tasks), and a barrier stands where the next step reads
 * what others wrote. Shares only decide who computes a value, never how: so the number of threads
 * cannot change a bit.
 *
 *   x [n][n_embd]          residual stream
 *   h [n][wide]            normed input of the next projections, or the output of attention and FFN
 *   q8 [n][wide padded]    the same as int8, with inv and sum per token
 */
#include "model/forward.h"

#include "base/mem.h"
#include "model/rope.h"
#include <math.h>
#include <stdlib.h>

enum { HEAD_ROWS = 8 /* rows of a dense matrix decoded at a time */ };

struct bn_forward {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_kv *kv;
    uint32_t max_tokens;
    size_t wide;                                /* the widest activation */
    size_t q8_stride;                           /* padded */
    size_t qkv_dim, kv_dim;                     /* n_head * head_dim, n_head_kv * head_dim */
    float *x, *h, *q, *k, *v, *gate, *up, *out; /* activations, [max_tokens] rows each */
    int8_t *q8;
    float *inv;   /* [max_tokens] */
    int32_t *sum; /* [max_tokens] */
    float *rope;  /* [n_ctx][rope_dim] */
    float *rows;  /* [threads][HEAD_ROWS][wide] decoded dense rows */
    float *state; /* [threads][2][n_head] running maximum and sum of attention */
    void *block;  /* all of the above */
    size_t block_bytes;
    /* the call in progress */
    const struct bn_batch_token *batch;
    size_t n, n_logits;
    float *logits;
};

/* ------------------------------------------------------------------ memory */

/* Hands out pieces of one block; with base NULL it only measures. */
struct plan {
    uint8_t *base;
    size_t used;
};

static void *piece(struct plan *p, size_t n, size_t size)
{
    void *at = p->base ? p->base + p->used : NULL;
    p->used += bn_align_up(n * size, 64);
    return at;
}

static void lay_out(struct bn_forward *f, struct plan *p, uint32_t n_ctx)
{
    const struct bn_config *c = &f->m->config;
    size_t n = f->max_tokens, threads = bn_pool_threads(f->pool);
    f->x = piece(p, n * c->n_embd, sizeof(float));
    f->h = piece(p, n * f->wide, sizeof(float));
    f->q = piece(p, n * f->qkv_dim, sizeof(float));
    f->k = piece(p, n * f->kv_dim, sizeof(float));
    f->v = piece(p, n * f->kv_dim, sizeof(float));
    f->gate = piece(p, n * c->n_ff, sizeof(float));
    f->up = piece(p, n * c->n_ff, sizeof(float));
    f->out = piece(p, n * c->n_embd, sizeof(float));
    f->q8 = piece(p, n * f->q8_stride, 1);
    f->inv = piece(p, n, sizeof(float));
    f->sum = piece(p, n, sizeof(int32_t));
    f->rope = piece(p, (size_t)n_ctx * c->rope_dim, sizeof(float));
    f->rows = piece(p, threads * HEAD_ROWS * f->wide, sizeof(float));
    f->state = piece(p, threads * 2 * c->n_head, sizeof(float));
}

bitnet_status bn_forward_open(struct bn_forward **out, const struct bn_model *m,
                              struct bn_pool *pool, struct bn_kv *kv, uint32_t n_ctx,
                              uint32_t max_tokens, bitnet_error *err)
{
    *out = NULL;
    const struct bn_config *c = &m->config;
    struct bn_forward *f = bn_calloc(1, sizeof *f);
    if (!f) return bn_fail_nomem(err, sizeof *f, "the forward pass");
    f->m = m;
    f->pool = pool;
    f->kv = kv;
    f->max_tokens = max_tokens;
    f->qkv_dim = (size_t)c->n_head * c->head_dim;
    f->kv_dim = (size_t)c->n_head_kv * c->head_dim;
    f->wide = bn_max_size(bn_max_size(c->n_embd, c->n_ff), f->qkv_dim);
    f->q8_stride = bn_align_up(f->wide, BN_K_ALIGN);
    struct plan p = {0};
    lay_out(f, &p, n_ctx);
    f->block_bytes = p.used;
    f->block = bn_block_alloc(p.used);
    if (!f->block) {
        bn_forward_close(f);
        return bn_fail(
            err, BITNET_E_NOMEM,
            "out of memory: %zu bytes for batches of %u tokens; smaller batches need less", p.used,
            max_tokens);
    }
    p = (struct plan){.base = f->block};
    lay_out(f, &p, n_ctx);
    bn_rope_table(f->rope, c, m->rope_factors, n_ctx);
    *out = f;
    return BITNET_OK;
}

void bn_forward_close(struct bn_forward *f)
{
    if (!f) return;
    bn_block_free(f->block, f->block_bytes);
    free(f);
}

size_t bn_forward_bytes(const struct bn_forward *f) { return f->block_bytes; }

/* ------------------------------------------------------------------ linear layers */

/* A dense row range: decode a few rows, then their products with every token. */
static void dense_mul(struct bn_forward *f, float *y, size_t y_stride, const struct bn_stored *w,
                      struct bn_range rows, const float *x, size_t x_stride, size_t n,
                      uint32_t worker)
{
    float *decoded = f->rows + (size_t)worker * HEAD_ROWS * f->wide;
    for (size_t r = rows.begin; r < rows.end; r += HEAD_ROWS) {
        size_t some = bn_min_size(HEAD_ROWS, rows.end - r);
        for (size_t i = 0; i < some; i++)
            bn_stored_row(&f->m->kernels, decoded + i * w->cols, w, r + i);
        f->m->kernels.dots(y + r, y_stride, decoded, some, x, x_stride, n, w->cols);
    }
}

/* y[n][y_stride] = matrix times activations, this worker's rows. x: the floats that q8 was made
 * of. */
static void mul_share(struct bn_forward *f, float *y, size_t y_stride, const struct bn_matrix *w,
                      const float *x, size_t x_stride, uint32_t worker, struct bn_range *share)
{
    const struct bn_gemm *g = f->m->kernels.gemm_t2;
    size_t rows = w->dense ? w->stored.rows : w->packed.rows;
    *share = bn_pool_share(f->pool, worker, rows, g->group_rows);
    if (share->begin == share->end) return;
    if (w->dense) dense_mul(f, y, y_stride, &w->stored, *share, x, x_stride, f->n, worker);
    else if (f->m->config.act_quant == BN_AQ_INT8)
        g->mul_i8(y, y_stride, &w->packed, share->begin, share->end, f->q8, f->q8_stride, f->sum,
                  f->inv, f->n);
    else g->mul_f32(y, y_stride, &w->packed, share->begin, share->end, x, x_stride, f->n);
}

/* Norm (unless g is NULL) and int8 of this worker's tokens: h = norm(from), q8 = int8(h). */
static void norm_quant(struct bn_forward *f, const float *from, size_t from_stride, const float *g,
                       float eps, size_t n_cols, uint32_t worker)
{
    const struct bn_kernels *k = &f->m->kernels;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1);
    for (size_t t = tokens.begin; t < tokens.end; t++) {
        float *h = f->h + t * f->wide;
        const float *src = from + t * from_stride;
        if (g) k->rmsnorm(h, src, g, n_cols, eps);
        else if (src != h) memcpy(h, src, n_cols * sizeof *h);
        if (f->m->config.act_quant == BN_AQ_INT8)
            f->inv[t] = k->quant_i8(f->q8 + t * f->q8_stride, &f->sum[t], h, n_cols);
    }
}

/* The common input of several projections: normed and quantised into h and q8; or, where each
 * projection has a norm of its own in front (BitNet embeddings), only normed, into `out`, from
 * which project() makes each one's input. */
static void prepare(struct bn_forward *f, const float *g, uint32_t worker)
{
    const struct bn_config *c = &f->m->config;
    if (!c->in_norms) {
        norm_quant(f, f->x, c->n_embd, g, c->eps, c->n_embd, worker);
        return;
    }
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1);
    for (size_t t = tokens.begin; t < tokens.end; t++)
        f->m->kernels.rmsnorm(f->out + t * c->n_embd, f->x + t * c->n_embd, g, c->n_embd, c->eps);
}

/* A projection whose input was prepared by norm_quant; with a norm of its own the input is made
 * here from `raw`, which costs two barriers. */
static void project(struct bn_forward *f, float *y, size_t y_stride, const struct bn_layer *layer,
                    int which, const float *raw, size_t raw_stride, uint32_t worker,
                    struct bn_range *share)
{
    const struct bn_matrix *w = &layer->proj[which];
    if (layer->in_norm[which]) {
        size_t cols = w->dense ? w->stored.cols : w->packed.cols;
        bn_pool_barrier(f->pool);
        norm_quant(f, raw, raw_stride, layer->in_norm[which], f->m->config.in_norm_eps, cols,
                   worker);
        bn_pool_barrier(f->pool);
    }
    mul_share(f, y, y_stride, w, f->h, f->wide, worker, share);
}

/* x += the rows of `out` that this worker made */
static void add_residual(struct bn_forward *f, struct bn_range rows)
{
    size_t n_embd = f->m->config.n_embd;
    for (size_t t = 0; t < f->n; t++)
        f->m->kernels.add(f->x + t * n_embd + rows.begin, f->out + t * n_embd + rows.begin,
                          rows.end - rows.begin);
}

/* gate = act(gate) * up in the rows that this worker made */
static void activate(struct bn_forward *f, struct bn_range rows)
{
    const struct bn_kernels *k = &f->m->kernels;
    size_t n_ff = f->m->config.n_ff, n = rows.end - rows.begin;
    for (size_t t = 0; t < f->n; t++) {
        float *g = f->gate + t * n_ff + rows.begin;
        const float *u = f->up + t * n_ff + rows.begin;
        if (f->m->config.act == BN_ACT_RELU2) k->relu2_mul(g, g, u, n);
        else k->silu_mul(g, g, u, n);
    }
}

/* ------------------------------------------------------------------ attention */

/* Rotates q and k of this worker's tokens and puts k and v into the cache. */
static void rotate_and_store(struct bn_forward *f, const struct bn_layer *layer, uint32_t il,
                             uint32_t worker)
{
    const struct bn_config *c = &f->m->config;
    const struct bn_kernels *kn = &f->m->kernels;
    bn_rope_fn *rope = c->rope == BN_ROPE_NEOX ? kn->rope_neox : kn->rope_norm;
    size_t dim = c->head_dim;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1);
    for (size_t t = tokens.begin; t < tokens.end; t++) {
        const struct bn_batch_token *b = &f->batch[t];
        float *q = f->q + t * f->qkv_dim, *k = f->k + t * f->kv_dim, *v = f->v + t * f->kv_dim;
        for (uint32_t i = 0; layer->q_norm && i < c->n_head; i++)
            kn->rmsnorm(q + i * dim, q + i * dim, layer->q_norm, dim, c->eps);
        for (uint32_t i = 0; layer->k_norm && i < c->n_head_kv; i++)
            kn->rmsnorm(k + i * dim, k + i * dim, layer->k_norm, dim, c->eps);
        const float *angles = f->rope + (size_t)b->pos * c->rope_dim;
        rope(q, c->n_head, dim, c->rope_dim / 2, angles);
        rope(k, c->n_head_kv, dim, c->rope_dim / 2, angles);
        uint32_t page = b->seq->pages[b->pos / BN_ATTN_BLOCK], slot = b->pos % BN_ATTN_BLOCK;
        for (uint32_t i = 0; i < c->n_head_kv; i++) {
            uint8_t *kd = bn_kv_head(f->kv, il, page, i, false),
                    *vd = bn_kv_head(f->kv, il, page, i, true);
            if (f->kv->f16) {
                kn->f32_to_f16((uint16_t *)kd + slot * dim, k + i * dim, dim);
                kn->f32_to_f16((uint16_t *)vd + slot * dim, v + i * dim, dim);
            } else {
                memcpy((float *)kd + slot * dim, k + i * dim, dim * sizeof(float));
                memcpy((float *)vd + slot * dim, v + i * dim, dim * sizeof(float));
            }
        }
    }
}

/* One task: one token and one KV head with the query heads that share it. Output to h. */
static void attend(struct bn_forward *f, uint32_t il, size_t t, uint32_t kv_head, uint32_t worker)
{
    const struct bn_config *c = &f->m->config;
    const struct bn_kernels *kn = &f->m->kernels;
    const struct bn_batch_token *b = &f->batch[t];
    size_t dim = c->head_dim, group = c->n_head / c->n_head_kv;
    float *o = f->h + t * f->wide + kv_head * group * dim;
    const float *q = f->q + t * f->qkv_dim + kv_head * group * dim;
    float *m = f->state + (size_t)worker * 2 * c->n_head, *l = m + c->n_head;
    float scale = 1.0f / sqrtf((float)dim);
    for (size_t i = 0; i < group; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
    memset(o, 0, group * dim * sizeof *o);
    for (uint32_t from = 0; from <= b->pos; from += BN_ATTN_BLOCK) {
        uint32_t page = b->seq->pages[from / BN_ATTN_BLOCK];
        size_t n = bn_min_size(BN_ATTN_BLOCK, b->pos + 1 - from);
        const uint8_t *k = bn_kv_head(f->kv, il, page, kv_head, false),
                      *v = bn_kv_head(f->kv, il, page, kv_head, true);
        if (f->kv->f16)
            kn->attn_f16(o, m, l, q, group, (const uint16_t *)k, (const uint16_t *)v, dim, n, dim,
                         scale);
        else
            kn->attn_f32(o, m, l, q, group, (const float *)k, (const float *)v, dim, n, dim, scale);
    }
    for (size_t i = 0; i < group; i++)
        for (size_t d = 0; d < dim; d++) o[i * dim + d] /= l[i];
}

/* ------------------------------------------------------------------ the pass */

static void walk(void *arg, uint32_t worker)
{
    struct bn_forward *f = arg;
    const struct bn_model *m = f->m;
    const struct bn_config *c = &m->config;
    struct bn_range tokens = bn_pool_share(f->pool, worker, f->n, 1), rows;

    for (size_t t = tokens.begin; t < tokens.end; t++)
        bn_stored_row(&m->kernels, f->x + t * c->n_embd, &m->embed.stored,
                      (uint64_t)f->batch[t].token);

    for (uint32_t il = 0; il < c->n_layer; il++) {
        const struct bn_layer *y = &m->layers[il];

        prepare(f, y->attn_norm, worker);
        bn_pool_barrier(f->pool);
        project(f, f->q, f->qkv_dim, y, BN_P_Q - BN_P_Q, f->out, c->n_embd, worker, &rows);
        project(f, f->k, f->kv_dim, y, BN_P_K - BN_P_Q, f->out, c->n_embd, worker, &rows);
        project(f, f->v, f->kv_dim, y, BN_P_V - BN_P_Q, f->out, c->n_embd, worker, &rows);
        bn_pool_barrier(f->pool);
        rotate_and_store(f, y, il, worker);
        bn_pool_barrier(f->pool);
        size_t n_tasks = f->n * c->n_head_kv;
        for (size_t i = worker; i < n_tasks; i += bn_pool_threads(f->pool))
            attend(f, il, i / c->n_head_kv, (uint32_t)(i % c->n_head_kv), worker);
        bn_pool_barrier(f->pool);
        norm_quant(f, f->h, f->wide, y->attn_sub_norm, c->eps, f->qkv_dim, worker);
        bn_pool_barrier(f->pool);
        project(f, f->out, c->n_embd, y, BN_P_O - BN_P_Q, f->h, f->wide, worker, &rows);
        add_residual(f, rows);
        bn_pool_barrier(f->pool);

        prepare(f, y->ffn_norm, worker);
        bn_pool_barrier(f->pool);
        project(f, f->gate, c->n_ff, y, BN_P_GATE - BN_P_Q, f->out, c->n_embd, worker, &rows);
        project(f, f->up, c->n_ff, y, BN_P_UP - BN_P_Q, f->out, c->n_embd, worker, &rows);
        activate(f, rows); /* gate and up have the same rows, so the same share */
        bn_pool_barrier(f->pool);
        norm_quant(f, f->gate, c->n_ff, y->ffn_sub_norm, c->eps, c->n_ff, worker);
        bn_pool_barrier(f->pool);
        project(f, f->out, c->n_embd, y, BN_P_DOWN - BN_P_Q, f->h, f->wide, worker, &rows);
        add_residual(f, rows);
        bn_pool_barrier(f->pool);
    }
    if (!f->n_logits) return;

    /* the rows that want logits move together at the start of h */
    for (size_t t = 0, i = 0; t < f->n; t++)
        if (f->batch[t].want_logits) {
            if (i % bn_pool_threads(f->pool) == worker)
                m->kernels.rmsnorm(f->h + i * c->n_embd, f->x + t * c->n_embd, m->out_norm,
                                   c->n_embd, c->eps);
            i++;
        }
    bn_pool_barrier(f->pool);
    dense_mul(f, f->logits, c->n_vocab, &m->head.stored,
              bn_pool_share(f->pool, worker, c->n_vocab, HEAD_ROWS), f->h, c->n_embd, f->n_logits,
              worker);
}

void bn_forward_run(struct bn_forward *f, const struct bn_batch_token *batch, size_t n,
                    float *logits)
{
    f->batch = batch;
    f->n = n;
    f->logits = logits;
    f->n_logits = 0;
    for (size_t t = 0; logits && t < n; t++) f->n_logits += batch[t].want_logits;
    bn_pool_run(f->pool, walk, f);
}
