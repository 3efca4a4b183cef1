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
#include "base/os/mem.h"
#include "model/attention/attention_impl.h"
#include "model/ops.h"
#include "model/config/rope.h"
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

/* ------------------------------------------------------------------ memory */

/* What one of the layers needs. */
static struct bn_attention_ways ways_of_all(const struct bn_kv *kv)
{
    struct bn_attention_ways all = {.in_place = true};
    for (uint32_t i = 0; i < kv->n_layer; i++) {
        struct bn_attention_ways w = bn_attention_ways(kv, i);
        all.in_place &= w.in_place;
        all.shorts |= w.shorts;
        all.codes |= w.codes;
    }
    return all;
}

static size_t lay_out(struct bn_attention *a, uint8_t *base, uint32_t n_ctx, uint32_t max_tokens)
{
    const struct bn_config *c = &a->m->config;
    const struct bn_attention_ways all = ways_of_all(a->kv);
    struct bn_plan plan = {.base = base};
    size_t threads = bn_pool_threads(a->pool);
    size_t buffers = all.in_place ? 0 : 2 * threads * BN_ATTN_BLOCK * a->kv->wide;
    a->blocks_room = threads > 1 ? (size_t)a->heads * a->kv->n_pages : 0;
    a->rope = bn_plan_piece(&plan, (size_t)n_ctx * c->rope_dim, sizeof(float));
    a->states = bn_plan_piece(&plan, threads * a->state_floats, sizeof(float));
    a->blocks = bn_plan_piece(&plan, a->blocks_room * a->block_floats, sizeof(float));
    a->buffers = bn_plan_piece(&plan, buffers, sizeof(float));
    size_t codes = all.codes ? threads * a->state_queries : 0;
    a->query_codes = bn_plan_piece(&plan, codes * a->dim, sizeof *a->query_codes);
    a->query_units = bn_plan_piece(&plan, codes, sizeof *a->query_units);
    a->query_shorts = bn_plan_piece(&plan, all.shorts ? threads * a->state_queries * a->dim : 0,
                                    sizeof *a->query_shorts);
    a->spans = bn_plan_piece(&plan, bn_kv_has_blocks(a->kv) ? max_tokens : 0, sizeof *a->spans);
    a->first = bn_plan_piece(&plan, (size_t)max_tokens + 1, sizeof(size_t));
    return plan.used;
}

bitnet_status bn_attention_open(struct bn_attention **out, const struct bn_model *m,
                                struct bn_pool *pool, struct bn_kv *kv, uint32_t n_ctx,
                                uint32_t max_tokens, struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    const struct bn_config *c = &m->config;
    struct bn_attention *a = bn_calloc(1, sizeof *a);
    if (!a) return bn_fail_nomem(err, sizeof *a, "attention");
    a->m = m;
    a->pool = pool;
    a->prof = bn_pool_prof(pool);
    a->kv = kv;
    a->dim = c->head_dim;
    const struct bn_range here = bn_parts_heads(m);
    a->first_head = here.begin;
    a->heads = (uint32_t)(here.end - here.begin);
    a->group = c->n_head / c->n_head_kv;
    a->q_row = (size_t)a->heads * a->group * a->dim;
    a->kv_row = (size_t)a->heads * a->dim;
    a->state_queries = bn_max_size(a->group, RUN_QUERIES);
    a->state_floats = bn_align_up(2 * a->state_queries * (a->dim + 1), 16);
    a->block_floats = bn_align_up(a->group * (a->dim + 2), 16);
    a->memory_bytes = lay_out(a, NULL, n_ctx, max_tokens);
    bitnet_status s = bn_block_take((void **)&a->memory, &a->memory_bytes, how, "attention", err);
    if (s != BITNET_OK) {
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

void bn_attention_touch(struct bn_attention *a) { bn_touch(a->memory, a->memory_bytes); }
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

/* One token and one KV head: rotates its key and the queries that share it, and puts key and value
 * into the cache. */
static void rotate_and_store(struct bn_attention *a, const struct bn_attention_layer *layer,
                             size_t t, uint32_t kv_head, uint32_t worker)
{
    (void)worker;
    const struct bn_config *c = &a->m->config;
    const struct bn_kernels *kn = &a->m->kernels;
    size_t dim = a->dim;
    float *q = layer->q + t * layer->q_stride + kv_head * a->group * dim;
    float *k = bn_attention_row(a, layer, t, kv_head, false);
    for (size_t i = 0; layer->weights->q_norm && i < a->group; i++)
        kn->rmsnorm(q + i * dim, q + i * dim, layer->weights->q_norm, dim, c->eps);
    if (layer->weights->k_norm) kn->rmsnorm(k, k, layer->weights->k_norm, dim, c->eps);
    const float *angles = a->rope + (size_t)a->batch[t].pos * c->rope_dim;
    kn->rope(q, a->group, dim, c->rope_dim / 2, angles);
    kn->rope(k, 1, dim, c->rope_dim / 2, angles);
    bn_attention_store(a, layer, t, kv_head, false);
    bn_attention_store(a, layer, t, kv_head, true);
}

/* This worker's share of tokens and KV heads: rotating, or storing. */
typedef void step_fn(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                     uint32_t kv_head, uint32_t worker);
static void for_share(struct bn_attention *a, const struct bn_attention_layer *layer,
                      uint32_t worker, step_fn *step)
{
    uint32_t heads = a->heads, threads = bn_pool_threads(a->pool);
    bn_prof_mark(a->prof, worker, BN_OP_ROPE);
    for (size_t i = worker; i < a->n * heads; i += threads)
        step(a, layer, i / heads, (uint32_t)(i % heads), worker);
}

/* ------------------------------------------------------------------ tasks */

/* Queries of a task, with codes as a worker's kernels want them. */
struct queries {
    const float *q; /* [n][dim] */
    const int16_t *codes;
    const float *units;
};

static struct queries take_queries(const struct bn_attention *a, uint32_t layer, const float *q,
                                   size_t n, uint32_t worker)
{
    const struct bn_attention_ways ways = bn_attention_ways(a->kv, layer);
    struct queries out = {q, NULL, NULL};
    if (ways.shorts) {
        float *shorts = a->query_shorts + worker * a->state_queries * a->dim;
        a->m->kernels.short_query(shorts, q, n * a->dim);
        out.q = shorts;
    }
    if (!ways.codes) return out;
    int16_t *codes = a->query_codes + worker * a->state_queries * a->dim;
    float *units = a->query_units + worker * a->state_queries;
    for (size_t i = 0; i < n; i++)
        units[i] = a->m->kernels.quant_query(codes + i * a->dim, q + i * a->dim, a->dim);
    return (struct queries){q, codes, units};
}

static struct queries from_query(const struct bn_attention *a, struct queries s, size_t i)
{
    if (!s.codes) return (struct queries){s.q + i * a->dim, NULL, NULL};
    return (struct queries){s.q + i * a->dim, s.codes + i * a->dim, s.units + i};
}

/* The first n keys of a block, at most all, for n_q queries. */
static void attend_block(const struct bn_attention *a, const struct bn_attention_layer *layer,
                         const struct bn_attention_view *w, size_t n, struct state s,
                         struct queries q, size_t n_q)
{
    const struct bn_kernels *kn = &a->m->kernels;
    const struct bn_kv_side *keys = bn_kv_side(a->kv, layer->index, false);
    bool in_place = bn_attention_ways(a->kv, layer->index).in_place;
    size_t dim = a->dim, stride = in_place ? dim : a->kv->wide;
    float scale = 1.0f / sqrtf((float)dim);
    n = bn_min_size(n, BN_ATTN_BLOCK);
    if (w->codes) {
        kn->attn_codes(&(struct bn_attn_codes){
            s.o, s.m, s.l, q.q, q.codes, q.units, n_q, w->k, w->v, keys->code_bits,
            bn_kv_side(a->kv, layer->index, true)->code_bits, n, dim, scale, w->next_k, w->next_v});
        return;
    }
    const struct bn_attn_args x = {s.o,    s.m, s.l, q.q,   n_q,       w->k,     w->v,
                                   stride, n,   dim, scale, w->next_k, w->next_v};
    switch (in_place ? keys->type : BITNET_KV_F32) {
    case BITNET_KV_F16: kn->attn_f16(&x); break;
    case BITNET_KV_BF16: kn->attn_bf16(&x); break;
    case BITNET_KV_FP8_E4M3: kn->attn_e4m3(&x); break;
    case BITNET_KV_FP8_E5M2: kn->attn_e5m2(&x); break;
    default: kn->attn_f32(&x); break;
    }
}

/* What a profile should know: keys and values of so many positions are read, as pages hold them, and
 * so many of the tokens' pairs of a query head and a position are computed. */
static void note_work(const struct bn_attention *a, uint32_t layer, size_t positions, size_t pairs,
                      uint32_t worker)
{
    const struct bn_kv_layer *l = &a->kv->layers[layer];
    uint64_t page = l->keys.head_bytes + l->values.head_bytes;
    bn_prof_work(a->prof, worker, positions * page / BN_ATTN_BLOCK, 2 * pairs * a->dim);
}

/* Query i of a state is done: head `head` of token t. */
static void finish(const struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                   size_t head, struct state s, size_t i)
{
    float *out = layer->out + t * layer->out_stride + head * a->dim;
    for (size_t d = 0; d < a->dim; d++) out[d] = s.o[i * a->dim + d] / s.l[i];
    if (a->m->config.attn_gate)
        a->m->kernels.sigmoid_mul(
            out, out, layer->q + t * layer->q_stride + a->q_row + head * a->dim, a->dim);
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
static void attend(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                   size_t nt, uint32_t kv_head, uint32_t worker)
{
    const struct bn_batch_token *b = &a->batch[t];
    size_t group = a->group, wide = group * a->dim, block = 0;
    uint32_t next_head = kv_head + bn_pool_threads(a->pool); /* of this worker */
    struct state s = own_state(a, worker);
    const float *q = layer->q + t * layer->q_stride + kv_head * wide;
    bn_prof_mark(a->prof, worker, BN_OP_ATTN);
    if (bn_prof_on(a->prof)) /* token i sees pos + 1 + i positions */
        note_work(a, layer->index, b->pos + nt, group * (nt * (b->pos + 1) + nt * (nt - 1) / 2),
                  worker);
    if (nt > 1) { /* the queries side by side, behind the state's o */
        float *side = s.o + a->state_queries * a->dim;
        for (size_t i = 0; i < nt; i++)
            memcpy(side + i * wide, q + i * layer->q_stride, wide * sizeof *q);
        q = side;
    }
    struct queries all = take_queries(a, layer->index, q, nt * group, worker);
    reset(a, s, nt * group);
    for (; (block + 1) * BN_ATTN_BLOCK <= b->pos + 1; block++) {
        struct bn_attention_view w =
            bn_attention_view(a, layer, t, kv_head, next_head, block, worker);
        attend_block(a, layer, &w, BN_ATTN_BLOCK, s, all, nt * group);
    }
    struct bn_attention_view last = {0};
    bool more = block <= b->pos / BN_ATTN_BLOCK;
    if (more) last = bn_attention_view(a, layer, t + nt - 1, kv_head, next_head, block, worker);
    for (size_t i = 0; i < nt; i++) {
        struct state one = {s.o + i * wide, s.m + i * group, s.l + i * group};
        if (more)
            attend_block(a, layer, &last, b[i].pos + 1 - block * BN_ATTN_BLOCK, one,
                         from_query(a, all, i * group), group);
        for (size_t h = 0; h < group; h++) finish(a, layer, t + i, kv_head * group + h, one, h);
    }
}

static void attend_all(struct bn_attention *a, const struct bn_attention_layer *layer,
                       uint32_t worker)
{
    uint32_t heads = a->heads, threads = bn_pool_threads(a->pool);
    size_t task = 0;
    for (size_t t = 0, nt; t < a->n; t += nt) {
        nt = run_length(a, t);
        for (uint32_t head = 0; head < heads; head++) {
            if (task++ % threads != worker) continue;
            if (a->independent) {
                bn_prof_mark(a->prof, worker, BN_OP_ROPE);
                rotate_and_store(a, layer, t, head, worker);
            }
            attend(a, layer, t, nt, head, worker);
            if (a->independent && bn_kv_layer_has_blocks(a->kv, layer->index)) {
                bn_prof_mark(a->prof, worker, BN_OP_ROPE);
                bn_attention_store_page(a, layer, t, head, worker);
                bn_attention_store_tail(a, layer, t, head, worker);
            }
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
static void attend_share(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                         uint32_t kv_head, struct bn_range share, uint32_t worker)
{
    struct bn_range task = task_blocks(a, t, kv_head);
    size_t from = bn_max_size(task.begin, share.begin), to = bn_min_size(task.end, share.end);
    const float *q = layer->q + t * layer->q_stride + kv_head * a->group * a->dim;
    if (from >= to) return;
    bn_prof_mark(a->prof, worker, BN_OP_ATTN);
    if (bn_prof_on(a->prof)) {
        size_t end = bn_min_size((to - task.begin) * BN_ATTN_BLOCK, a->batch[t].pos + 1);
        size_t positions = end - (from - task.begin) * BN_ATTN_BLOCK;
        note_work(a, layer->index, positions, a->group * positions, worker);
    }
    struct queries all = take_queries(a, layer->index, q, a->group, worker);
    for (size_t i = from; i < to; i++) {
        struct state s = block_state(a, from == task.begin ? from : i);
        if (i == from || from != task.begin) reset(a, s, a->group);
        size_t block = i - task.begin;
        struct bn_attention_view w =
            bn_attention_view(a, layer, t, kv_head, kv_head + 1, block, worker);
        attend_block(a, layer, &w, a->batch[t].pos + 1 - block * BN_ATTN_BLOCK, s, all, a->group);
    }
}

/* Query i of a task: folds the blocks that were computed apart. */
static void fold_rest(struct bn_attention *a, const struct bn_attention_layer *layer, size_t t,
                      uint32_t kv_head, size_t i)
{
    struct bn_range task = task_blocks(a, t, kv_head);
    struct state s = block_state(a, task.begin);
    float *o = s.o + i * a->dim;
    for (size_t block = first_cut(a, task); block < task.end; block++) {
        struct state b = block_state(a, block);
        a->m->kernels.attn_fold(o, &s.m[i], &s.l[i], b.o + i * a->dim, b.m[i], b.l[i], a->dim);
    }
    finish(a, layer, t, kv_head * a->group + i, s, i);
}

static void attend_split(struct bn_attention *a, const struct bn_attention_layer *layer,
                         uint32_t worker)
{
    uint32_t heads = a->heads, threads = bn_pool_threads(a->pool);
    struct bn_range share = bn_pool_share(a->pool, worker, a->first[a->n], 1);
    for (size_t t = 0; t < a->n; t++)
        for (uint32_t head = 0; head < heads; head++)
            attend_share(a, layer, t, head, share, worker);
    bn_pool_barrier(a->pool, worker);
    bn_prof_mark(a->prof, worker, BN_OP_FOLD);
    for (size_t i = worker; i < a->n * a->group * heads; i += threads)
        fold_rest(a, layer, i / (a->group * heads), (uint32_t)(i / a->group % heads), i % a->group);
    if (!bn_kv_layer_has_blocks(a->kv, layer->index)) return;
    for_share(a, layer, worker, bn_attention_store_page);
    for_share(a, layer, worker, bn_attention_store_tail);
}

/* Whether it pays: compares the busiest worker's blocks with an equal share. Sequences that share
 * pages may have more blocks than there is room for. */
static bool split_pays(const struct bn_attention *a)
{
    uint32_t heads = a->heads, threads = bn_pool_threads(a->pool);
    size_t load[BN_MAX_THREADS] = {0}, most = 0, task = 0;
    if (threads == 1 || !a->independent || a->first[a->n] > a->blocks_room) return false;
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
    for (size_t t = 0; t < n; t++) a->first[t + 1] = a->first[t] + a->heads * n_blocks(a, t);
    a->split = split_pays(a);
    if (bn_kv_has_blocks(a->kv)) bn_attention_begin_blocks(a);
}

/* Tokens of one sequence see each other's keys, and workers that share a task need its queries: then
 * these are all made first. Else each task begins with its own. */
void bn_attention_work(struct bn_attention *a, const struct bn_attention_layer *all,
                       uint32_t worker)
{
    struct bn_attention_layer own = *all;
    const struct bn_attention_layer *layer = &own;
    own.out += a->first_head * a->group * a->dim;
    bool together = !a->independent && bn_kv_layer_has_blocks(a->kv, layer->index);
    if (!a->independent || a->split) {
        for_share(a, layer, worker, rotate_and_store);
        bn_pool_barrier(a->pool, worker);
    }
    if (together && a->page_ends) {
        for_share(a, layer, worker, bn_attention_store_page);
        bn_pool_barrier(a->pool, worker);
    }
    if (a->split) attend_split(a, layer, worker);
    else attend_all(a, layer, worker);
    if (!together) return;
    bn_pool_barrier(a->pool, worker);
    for_share(a, layer, worker, bn_attention_store_tail);
}
