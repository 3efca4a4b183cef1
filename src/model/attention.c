/* SPDX-License-Identifier: Apache-2.0
 *
 * A task is a KV head, with the query heads that share it, of one token or of a few tokens of a
 * prompt. Tasks are dealt out in turn.
 *
 * That is not enough when single tokens meet long contexts: five heads on two workers are 3 to 2,
 * and of two sequences one may be much longer. Then the blocks of all tasks are put in one row and
 * every worker gets the same number of them. Blocks are independent of each other, only their
 * folding has an order (kernels.h). So the worker that has a task's first blocks folds them as ever;
 * those of the others stay apart, each with a state of its own, and are folded after a barrier, in
 * order: the same operations on the same numbers. */
#include "model/attention.h"

#include "base/mem.h"
#include "model/forward.h"
#include "model/rope.h"
#include <math.h>
#include <stdlib.h>

enum {
    RUN_TOKENS = 8,   /* tokens of a sequence whose attention is computed together */
    RUN_QUERIES = 32, /* at most, with the query heads that share a KV head */
    SPLIT_GAIN = 8    /* blocks of which the busiest worker must be relieved for splitting tasks to
                         pay: two barriers and the folding against about 1 us a block */
};

/* of running sums, or of one block: o [queries][head_dim], m and l [queries] */
struct state {
    float *o, *m, *l;
};

struct bn_attention {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_kv *kv;
    size_t dim, group;    /* of a head; query heads that share a KV head */
    size_t q_row, kv_row; /* floats of a token's queries, and of its keys or values */
    float *rope;          /* [n_ctx][rope_dim] */
    float *states;        /* [threads][state_floats], RUN_QUERIES or the group's; then queries */
    size_t state_queries, state_floats;
    float *blocks; /* [n_head_kv * pages of the cache][block_floats], with several threads */
    size_t block_floats;
    size_t *first; /* [max_tokens + 1] blocks of all heads of the tokens before */
    void *memory;  /* all of these */
    size_t memory_bytes;
    /* the batch in progress */
    const struct bn_batch_token *batch;
    size_t n;
    bool independent; /* no two tokens are of one sequence */
    bool split;
};

/* ------------------------------------------------------------------ memory */

/* Hands out pieces of one block; with base NULL it only measures. */
static void *piece(uint8_t *base, size_t *used, size_t n, size_t size)
{
    void *at = base ? base + *used : NULL;
    *used += bn_align_up(n * size, 64);
    return at;
}

static size_t lay_out(struct bn_attention *a, uint8_t *base, uint32_t n_ctx, uint32_t max_tokens)
{
    const struct bn_config *c = &a->m->config;
    size_t used = 0, threads = bn_pool_threads(a->pool);
    size_t n_blocks = threads > 1 ? (size_t)c->n_head_kv * a->kv->n_pages : 0;
    a->rope = piece(base, &used, (size_t)n_ctx * c->rope_dim, sizeof(float));
    a->states = piece(base, &used, threads * a->state_floats, sizeof(float));
    a->blocks = piece(base, &used, n_blocks * a->block_floats, sizeof(float));
    a->first = piece(base, &used, (size_t)max_tokens + 1, sizeof(size_t));
    return used;
}

bitnet_status bn_attention_open(struct bn_attention **out, const struct bn_model *m,
                                struct bn_pool *pool, struct bn_kv *kv, uint32_t n_ctx,
                                uint32_t max_tokens, bitnet_error *err)
{
    *out = NULL;
    const struct bn_config *c = &m->config;
    struct bn_attention *a = bn_calloc(1, sizeof *a);
    if (!a) return bn_fail_nomem(err, sizeof *a, "attention");
    a->m = m;
    a->pool = pool;
    a->kv = kv;
    a->dim = c->head_dim;
    a->group = c->n_head / c->n_head_kv;
    a->q_row = (size_t)c->n_head * a->dim;
    a->kv_row = (size_t)c->n_head_kv * a->dim;
    a->state_queries = bn_max_size(a->group, RUN_QUERIES);
    a->state_floats = bn_align_up(2 * a->state_queries * (a->dim + 1), 16);
    a->block_floats = bn_align_up(a->group * (a->dim + 2), 16);
    a->memory_bytes = lay_out(a, NULL, n_ctx, max_tokens);
    a->memory = bn_block_alloc(a->memory_bytes);
    if (!a->memory) {
        bitnet_status s = bn_fail_nomem(err, a->memory_bytes, "attention");
        bn_attention_close(a);
        return s;
    }
    lay_out(a, a->memory, n_ctx, max_tokens);
    bn_rope_table(a->rope, c, m->rope_factors, n_ctx);
    *out = a;
    return BITNET_OK;
}

void bn_attention_close(struct bn_attention *a)
{
    if (!a) return;
    bn_block_free(a->memory, a->memory_bytes);
    free(a);
}

size_t bn_attention_bytes(const struct bn_attention *a) { return a->memory_bytes; }

/* a worker's state for tasks that it computes alone */
static struct state own_state(const struct bn_attention *a, uint32_t worker)
{
    float *o = a->states + worker * a->state_floats, *m = o + 2 * a->state_queries * a->dim;
    return (struct state){o, m, m + a->state_queries};
}

/* the state of a block in the row of all blocks */
static struct state block_state(const struct bn_attention *a, size_t block)
{
    float *o = a->blocks + block * a->block_floats, *m = o + a->group * a->dim;
    return (struct state){o, m, m + a->group};
}

static void reset(const struct bn_attention *a, struct state s, size_t n_q)
{
    memset(s.o, 0, n_q * a->dim * sizeof *s.o);
    for (size_t i = 0; i < n_q; i++) {
        s.m[i] = -INFINITY;
        s.l[i] = 0;
    }
}

/* ------------------------------------------------------------------ tasks */

/* One token and one KV head: rotates its key and the queries that share it, and puts key and value
 * into the cache. */
static void rotate_and_store(struct bn_attention *a, const struct bn_attention_layer *y, size_t t,
                             uint32_t kv_head)
{
    const struct bn_config *c = &a->m->config;
    const struct bn_kernels *kn = &a->m->kernels;
    const struct bn_batch_token *b = &a->batch[t];
    bn_rope_fn *rope = c->rope == BN_ROPE_NEOX ? kn->rope_neox : kn->rope_norm;
    size_t dim = a->dim;
    float *q = y->q + t * a->q_row + kv_head * a->group * dim;
    float *k = y->k + t * a->kv_row + kv_head * dim, *v = y->v + t * a->kv_row + kv_head * dim;
    for (size_t i = 0; y->layer->q_norm && i < a->group; i++)
        kn->rmsnorm(q + i * dim, q + i * dim, y->layer->q_norm, dim, c->eps);
    if (y->layer->k_norm) kn->rmsnorm(k, k, y->layer->k_norm, dim, c->eps);
    const float *angles = a->rope + (size_t)b->pos * c->rope_dim;
    rope(q, a->group, dim, c->rope_dim / 2, angles);
    rope(k, 1, dim, c->rope_dim / 2, angles);
    uint32_t page = b->seq->pages[b->pos / BN_ATTN_BLOCK], slot = b->pos % BN_ATTN_BLOCK;
    uint8_t *keys = bn_kv_head(a->kv, y->index, page, kv_head, false);
    uint8_t *values = bn_kv_head(a->kv, y->index, page, kv_head, true);
    if (a->kv->f16) {
        kn->f32_to_f16((uint16_t *)keys + slot * dim, k, dim);
        kn->f32_to_f16((uint16_t *)values + slot * dim, v, dim);
    } else {
        memcpy((float *)keys + slot * dim, k, dim * sizeof *k);
        memcpy((float *)values + slot * dim, v, dim * sizeof *v);
    }
}

/* One block of keys, as far as token b sees it, for n_q queries; meanwhile the token's next block is
 * fetched, or the first of `next_head` if there is such a head. */
static void attend_block(const struct bn_attention *a, uint32_t il, const struct bn_batch_token *b,
                         uint32_t kv_head, uint32_t next_head, size_t block, struct state s,
                         const float *q, size_t n_q)
{
    const struct bn_kernels *kn = &a->m->kernels;
    const uint32_t *page = b->seq->pages + block;
    size_t dim = a->dim, n = bn_min_size(BN_ATTN_BLOCK, b->pos + 1 - block * BN_ATTN_BLOCK);
    const void *k = bn_kv_head(a->kv, il, page[0], kv_head, false);
    const void *v = bn_kv_head(a->kv, il, page[0], kv_head, true);
    const void *next_k = NULL, *next_v = NULL;
    if (block < b->pos / BN_ATTN_BLOCK) {
        next_k = bn_kv_head(a->kv, il, page[1], kv_head, false);
        next_v = bn_kv_head(a->kv, il, page[1], kv_head, true);
    } else if (next_head < a->m->config.n_head_kv) {
        next_k = bn_kv_head(a->kv, il, b->seq->pages[0], next_head, false);
        next_v = bn_kv_head(a->kv, il, b->seq->pages[0], next_head, true);
    }
    float scale = 1.0f / sqrtf((float)dim);
    if (a->kv->f16) kn->attn_f16(s.o, s.m, s.l, q, n_q, k, v, dim, n, dim, scale, next_k, next_v);
    else kn->attn_f32(s.o, s.m, s.l, q, n_q, k, v, dim, n, dim, scale, next_k, next_v);
}

/* Query i of a state to its place in `out`. */
static void finish(const struct bn_attention *a, float *out, struct state s, size_t i)
{
    for (size_t d = 0; d < a->dim; d++) out[d] = s.o[i * a->dim + d] / s.l[i];
}

/* Tokens from t on that are taken together: of one sequence, in a row, and not across a block of
 * RUN_TOKENS positions, so that they differ in what they see in one block of keys only. */
static size_t run_length(const struct bn_attention *a, size_t t)
{
    const struct bn_batch_token *b = a->batch + t;
    size_t most = RUN_QUERIES / a->group, n = 1;
    while (t + n < a->n && n < most && b[n].seq == b[0].seq && b[n].pos == b[0].pos + n &&
           b[n].pos % RUN_TOKENS != 0)
        n++;
    return n;
}

/* A whole task: nt tokens as run_length() says and one KV head. Blocks that all of them see whole
 * are taken together, so that keys and values are read once; the last one by each token alone. */
static void attend(struct bn_attention *a, const struct bn_attention_layer *y, size_t t, size_t nt,
                   uint32_t kv_head, uint32_t worker)
{
    const struct bn_batch_token *b = &a->batch[t];
    size_t group = a->group, wide = group * a->dim, block = 0;
    uint32_t next_head = kv_head + bn_pool_threads(a->pool); /* of this worker */
    struct state s = own_state(a, worker);
    float *out = y->out + t * a->q_row + kv_head * wide;
    const float *q = y->q + t * a->q_row + kv_head * wide;
    if (nt > 1) { /* the queries side by side, behind the state's o */
        float *side = s.o + a->state_queries * a->dim;
        for (size_t i = 0; i < nt; i++) memcpy(side + i * wide, q + i * a->q_row, wide * sizeof *q);
        q = side;
    }
    reset(a, s, nt * group);
    for (; (block + 1) * BN_ATTN_BLOCK <= b->pos + 1; block++)
        attend_block(a, y->index, b, kv_head, next_head, block, s, q, nt * group);
    for (size_t i = 0; i < nt; i++) {
        struct state one = {s.o + i * wide, s.m + i * group, s.l + i * group};
        if (b[i].pos >= block * BN_ATTN_BLOCK)
            attend_block(a, y->index, b + i, kv_head, next_head, block, one, q + i * wide, group);
        for (size_t h = 0; h < group; h++) finish(a, out + i * a->q_row + h * a->dim, one, h);
    }
}

static void attend_all(struct bn_attention *a, const struct bn_attention_layer *y, uint32_t worker)
{
    uint32_t heads = a->m->config.n_head_kv, threads = bn_pool_threads(a->pool);
    size_t task = 0;
    for (size_t t = 0, nt; t < a->n; t += nt) {
        nt = run_length(a, t);
        for (uint32_t head = 0; head < heads; head++) {
            if (task++ % threads != worker) continue;
            if (a->independent) rotate_and_store(a, y, t, head);
            attend(a, y, t, nt, head, worker);
        }
    }
}

/* ------------------------------------------------------------------ split tasks */

static size_t n_blocks(const struct bn_attention *a, size_t t)
{
    return a->batch[t].pos / BN_ATTN_BLOCK + 1;
}

/* a task's blocks in the row of all */
static struct bn_range task_blocks(const struct bn_attention *a, size_t t, uint32_t kv_head)
{
    size_t begin = a->first[t] + kv_head * n_blocks(a, t);
    return (struct bn_range){begin, begin + n_blocks(a, t)};
}

/* Where the first worker's part of a task ends. */
static size_t first_cut(const struct bn_attention *a, struct bn_range task)
{
    size_t end = 0;
    for (uint32_t w = 0; end <= task.begin; w++)
        end = bn_pool_share(a->pool, w, a->first[a->n], 1).end;
    return bn_min_size(end, task.end);
}

/* Those blocks of a task that lie in `share`. A task's running state is in its first block's place. */
static void attend_share(struct bn_attention *a, const struct bn_attention_layer *y, size_t t,
                         uint32_t kv_head, struct bn_range share)
{
    struct bn_range task = task_blocks(a, t, kv_head);
    size_t from = bn_max_size(task.begin, share.begin), to = bn_min_size(task.end, share.end);
    const float *q = y->q + t * a->q_row + kv_head * a->group * a->dim;
    for (size_t i = from; i < to; i++) {
        struct state s = block_state(a, from == task.begin ? from : i);
        if (i == from || from != task.begin) reset(a, s, a->group);
        attend_block(a, y->index, &a->batch[t], kv_head, kv_head + 1, i - task.begin, s, q,
                     a->group);
    }
}

/* Query i of a task: folds the blocks that were computed apart. */
static void fold_rest(struct bn_attention *a, const struct bn_attention_layer *y, size_t t,
                      uint32_t kv_head, size_t i)
{
    struct bn_range task = task_blocks(a, t, kv_head);
    struct state s = block_state(a, task.begin);
    float *o = s.o + i * a->dim;
    for (size_t block = first_cut(a, task); block < task.end; block++) {
        struct state b = block_state(a, block);
        a->m->kernels.attn_fold(o, &s.m[i], &s.l[i], b.o + i * a->dim, b.m[i], b.l[i], a->dim);
    }
    finish(a, y->out + t * a->q_row + (kv_head * a->group + i) * a->dim, s, i);
}

static void attend_split(struct bn_attention *a, const struct bn_attention_layer *y,
                         uint32_t worker)
{
    uint32_t heads = a->m->config.n_head_kv, threads = bn_pool_threads(a->pool);
    struct bn_range share = bn_pool_share(a->pool, worker, a->first[a->n], 1);
    for (size_t t = 0; t < a->n; t++)
        for (uint32_t head = 0; head < heads; head++) attend_share(a, y, t, head, share);
    bn_pool_barrier(a->pool);
    for (size_t i = worker; i < a->n * a->group * heads; i += threads)
        fold_rest(a, y, i / (a->group * heads), (uint32_t)(i / a->group % heads), i % a->group);
}

/* Whether it pays: compares the busiest worker's blocks with an equal share. */
static bool split_pays(const struct bn_attention *a)
{
    uint32_t heads = a->m->config.n_head_kv, threads = bn_pool_threads(a->pool);
    size_t load[BN_MAX_THREADS] = {0}, most = 0, task = 0;
    if (threads == 1 || !a->independent) return false;
    for (size_t t = 0; t < a->n; t++)
        for (uint32_t head = 0; head < heads; head++) {
            size_t *worker = &load[task++ % threads];
            *worker += n_blocks(a, t);
            most = bn_max_size(most, *worker);
        }
    return most >= (a->first[a->n] + threads - 1) / threads + SPLIT_GAIN;
}

/* ------------------------------------------------------------------ the batch */

void bn_attention_begin(struct bn_attention *a, const struct bn_batch_token *batch, size_t n)
{
    a->batch = batch;
    a->n = n;
    a->independent = true;
    for (size_t t = 1; t < n; t++) a->independent &= batch[t].seq != batch[t - 1].seq;
    a->first[0] = 0;
    for (size_t t = 0; t < n; t++)
        a->first[t + 1] = a->first[t] + a->m->config.n_head_kv * n_blocks(a, t);
    a->split = split_pays(a);
}

/* Tokens of one sequence see each other's keys, and workers that share a task need its queries: then
 * these are all made first. Else each task begins with its own. */
void bn_attention_work(struct bn_attention *a, const struct bn_attention_layer *y, uint32_t worker)
{
    uint32_t heads = a->m->config.n_head_kv, threads = bn_pool_threads(a->pool);
    if (!a->independent || a->split) {
        for (size_t i = worker; i < a->n * heads; i += threads)
            rotate_and_store(a, y, i / heads, (uint32_t)(i % heads));
        bn_pool_barrier(a->pool);
    }
    if (a->split) attend_split(a, y, worker);
    else attend_all(a, y, worker);
}
