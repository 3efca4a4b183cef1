/* SPDX-License-Identifier: Apache-2.0
 *
 * Neighbours in the batch with the same mix are a run. The n-th adapters of all runs come before the
 * (n+1)-th, so that each token gets its own in order; those that are the same adapter form groups of up
 * to GROUP_TOKENS tokens, which are worked on together. */
#include "model/adapter/adapt.h"

#include "base/os/mem.h"
#include "model/forward.h"
#include "model/ops.h"
#include <stdlib.h>

enum {
    GROUP_TOKENS = 64,
    ROWS = 8,            /* of A, taken at a time */
    STRIP_FLOATS = 16384 /* of B, as floats: as many columns as fit */
};

/* Neighbours with one mix, in the group of its n-th adapter. */
struct run {
    uint32_t token, n_tokens;
    uint32_t next; /* of the group; UINT32_MAX: none */
};

struct group {
    const struct bitnet_adapter *adapter;
    uint32_t place; /* of the adapter in each mix */
    uint32_t n_tokens;
    uint32_t first, last; /* runs */
};

struct bn_adapt {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    uint32_t max_tokens, width;
    float *u;      /* [max_tokens][width] */
    float *strips; /* [threads][strip_floats] */
    size_t strip_floats;
    struct run *runs;     /* [max_tokens * BN_MIX_MAX] */
    struct group *groups; /* the same */
    void *block;          /* all of the above; NULL: nothing is reserved */
    size_t bytes;
    /* the pass in progress */
    const struct bn_batch_token *batch;
    uint32_t n_runs, n_groups;
    uint64_t read_bytes;
};

/* ------------------------------------------------------------------ memory */

static size_t lay_out(struct bn_adapt *a, uint8_t *base, uint32_t width)
{
    struct bn_plan p = {.base = base};
    size_t n = a->max_tokens;
    a->u = bn_plan_piece(&p, n * width, sizeof *a->u);
    a->strips = bn_plan_piece(&p, bn_pool_threads(a->pool) * a->strip_floats, sizeof *a->strips);
    a->runs = bn_plan_piece(&p, n * BN_MIX_MAX, sizeof *a->runs);
    a->groups = bn_plan_piece(&p, n * BN_MIX_MAX, sizeof *a->groups);
    return p.used;
}

bitnet_status bn_adapt_open(struct bn_adapt **out, const struct bn_model *m, struct bn_pool *pool,
                            uint32_t max_tokens, bitnet_error *err)
{
    struct bn_adapt *a = *out = bn_calloc(1, sizeof *a);
    if (!a) return bn_fail_nomem(err, sizeof *a, "adapters");
    a->m = m;
    a->pool = pool;
    a->prof = bn_pool_prof(pool);
    a->max_tokens = max_tokens;
    a->strip_floats = bn_max_size(STRIP_FLOATS, ROWS * bn_config_widest(&m->config));
    return BITNET_OK;
}

void bn_adapt_close(struct bn_adapt *a)
{
    if (!a) return;
    bn_block_free(a->block, a->bytes);
    free(a);
}

size_t bn_adapt_bytes(const struct bn_adapt *a) { return a->block ? a->bytes : 0; }

bitnet_status bn_adapt_reserve(struct bn_adapt *a, uint32_t width, struct bn_backing *how,
                               bitnet_error *err)
{
    void *block;
    if (a->block && width <= a->width) return BITNET_OK;
    struct bn_adapt measure = *a;
    size_t bytes = lay_out(&measure, NULL, width);
    BN_TRY(bn_block_take(&block, &bytes, how, "adapters in batches", err));
    bn_touch(block, bytes);
    if (how->lock && a->block) how->locked_bytes -= a->bytes;
    bn_block_free(a->block, a->bytes);
    a->block = block;
    a->bytes = bytes;
    a->width = width;
    lay_out(a, block, width);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ who has what */

static const struct bn_mix_part *part_of(const struct bn_adapt *a, size_t t, uint32_t place)
{
    return &a->batch[t].mix->parts[place];
}

/* Into a group of the same adapter at the same place, or into a new one. */
static void add_run(struct bn_adapt *a, struct run run, uint32_t place, uint32_t from_group)
{
    const struct bitnet_adapter *adapter = part_of(a, run.token, place)->adapter;
    uint32_t at = a->n_runs++, g = from_group;
    a->runs[at] = run;
    while (g < a->n_groups &&
           (a->groups[g].adapter != adapter || a->groups[g].n_tokens + run.n_tokens > GROUP_TOKENS))
        g++;
    struct group *to = &a->groups[g];
    if (g == a->n_groups) {
        a->n_groups++;
        *to = (struct group){.adapter = adapter, .place = place, .first = at};
        a->read_bytes += adapter->layer_bytes + adapter->head_bytes;
    } else {
        a->runs[to->last].next = at;
    }
    to->last = at;
    to->n_tokens += run.n_tokens;
}

bool bn_adapt_begin(struct bn_adapt *a, const struct bn_batch_token *batch, size_t n)
{
    uint32_t most = 0;
    a->batch = batch;
    a->n_runs = a->n_groups = 0;
    a->read_bytes = 0;
    for (size_t t = 0; t < n; t++)
        if (batch[t].mix && batch[t].mix->n > most) most = batch[t].mix->n;
    for (uint32_t place = 0; place < most; place++) {
        uint32_t from_group = a->n_groups;
        for (size_t t = 0, end; t < n; t = end) {
            const struct bn_mix *mix = batch[t].mix;
            for (end = t + 1; end < n && batch[end].mix == mix && end - t < GROUP_TOKENS;) end++;
            if (!mix || place >= mix->n) continue;
            struct run run = {(uint32_t)t, (uint32_t)(end - t), UINT32_MAX};
            add_run(a, run, place, from_group);
        }
    }
    return most > 0;
}

uint64_t bn_adapt_read_bytes(const struct bn_adapt *a) { return a->read_bytes; }

/* Where the products of a projection stand among those of its adapter: projections that take the same
 * input have a place each. */
static uint32_t slot_of(enum bn_part p)
{
    switch (p) {
    case BN_P_K:
    case BN_P_UP:
    case BN_P_DELTA_Z: return 1;
    case BN_P_V:
    case BN_P_DELTA_ALPHA: return 2;
    case BN_P_DELTA_BETA: return 3;
    default: return 0;
    }
}

static float *product(const struct bn_adapt *a, size_t t, uint32_t place, uint32_t slot)
{
    const struct bn_mix_part *x = part_of(a, t, place);
    return a->u + t * a->width + x->at + (size_t)slot * x->adapter->rank_max;
}

static float *strip_of(const struct bn_adapt *a, uint32_t worker)
{
    return a->strips + worker * a->strip_floats;
}

/* ------------------------------------------------------------------ u = A x */

/* Some rows of a group's A times its tokens. */
static void multiply(const struct bn_adapt *a, const struct group *g, const struct bn_low_rank *w,
                     uint32_t slot, struct bn_stored_product *p, const float *x)
{
    for (uint32_t i = g->first; i != UINT32_MAX; i = a->runs[i].next) {
        const struct run *run = &a->runs[i];
        p->y = product(a, run->token, g->place, slot) + p->r;
        p->x = x + run->token * p->x_stride;
        p->n_tok = run->n_tokens;
        bn_stored_dots(&a->m->kernels, &w->a, p);
    }
}

void bn_adapt_input(struct bn_adapt *a, uint32_t il, enum bn_part first, enum bn_part last,
                    const float *x, size_t stride, uint32_t worker)
{
    uint32_t threads = bn_pool_threads(a->pool), unit = 0;
    struct bn_stored_product p = {
        .y_stride = a->width, .x_stride = stride, .wide = strip_of(a, worker)};
    bn_prof_mark(a->prof, worker, BN_OP_ADAPTER);
    for (uint32_t i = 0; i < a->n_groups; i++)
        for (enum bn_part part = first; part <= last; part++) {
            const struct group *g = &a->groups[i];
            const struct bn_low_rank *w = bn_adapter_part(g->adapter, il, part);
            for (p.r = 0; p.r < w->rank; p.r += ROWS) {
                if (unit++ % threads != worker) continue;
                p.n_rows = bn_min_size(ROWS, (size_t)(w->rank - p.r));
                bn_prof_work(a->prof, worker, p.n_rows * w->a.bytes / w->rank,
                             p.n_rows * w->a.cols * g->n_tokens);
                multiply(a, g, w, slot_of(part), &p, x);
            }
        }
}

/* ------------------------------------------------------------------ y += scale * B u */

/* Columns [from, from + n) of a turned B as floats; from row to row go *stride. */
static const float *take_strip(const struct bn_adapt *a, const struct bn_stored *b, size_t from,
                               size_t n, float *strip, size_t *stride)
{
    const struct bn_kernels *k = &a->m->kernels;
    *stride = (size_t)b->cols;
    if (b->type == BN_F32) return (const float *)(const void *)b->data + from;
    *stride = n;
    for (size_t j = 0; j < b->rows; j++)
        (b->type == BN_F16 ? k->row_f16 : k->row_bf16)(
            strip + j * n, b->data + (j * b->cols + from) * sizeof(uint16_t), n);
    return strip;
}

/* Columns of B that are taken at a time. */
static size_t strip_cols(const struct bn_low_rank *w)
{
    return bn_min_size(512, STRIP_FLOATS / w->rank / 16 * 16);
}

static void note_b(const struct bn_adapt *a, const struct bn_low_rank *w, struct bn_range rows,
                   size_t n_tokens, uint32_t worker)
{
    bn_prof_work(a->prof, worker, bn_rows_bytes(w->b.bytes, w->b.cols, rows),
                 (rows.end - rows.begin) * w->rank * n_tokens);
}

static void add_group(struct bn_adapt *a, const struct group *g, const struct bn_low_rank *w,
                      uint32_t slot, const struct bn_adapt_rows *to, uint32_t worker)
{
    size_t most = strip_cols(w), stride;
    note_b(a, w, to->rows, g->n_tokens, worker);
    for (size_t from = to->rows.begin, n; from < to->rows.end; from += n) {
        n = bn_min_size(most, to->rows.end - from);
        const float *b = take_strip(a, &w->b, from, n, strip_of(a, worker), &stride);
        for (uint32_t i = g->first; i != UINT32_MAX; i = a->runs[i].next) {
            const struct run *run = &a->runs[i];
            float scale = part_of(a, run->token, g->place)->scale * w->scale;
            for (size_t t = run->token; t < run->token + run->n_tokens; t++)
                a->m->kernels.low_rank(to->y + t * to->stride + from, b, stride,
                                       product(a, t, g->place, slot), w->rank, n, scale);
        }
    }
}

void bn_adapt_output(struct bn_adapt *a, uint32_t il, enum bn_part p,
                     const struct bn_adapt_rows *to, uint32_t worker)
{
    bn_prof_mark(a->prof, worker, BN_OP_ADAPTER);
    for (uint32_t i = 0; i < a->n_groups; i++) {
        const struct bn_low_rank *w = bn_adapter_part(a->groups[i].adapter, il, p);
        if (w->rank) add_group(a, &a->groups[i], w, slot_of(p), to, worker);
    }
}

void bn_adapt_embed(struct bn_adapt *a, float *x, size_t t, uint32_t worker)
{
    const struct bn_mix *mix = a->batch[t].mix;
    float u[BN_ADAPTER_MAX_RANK];
    for (uint32_t place = 0; mix && place < mix->n; place++) {
        const struct bn_low_rank *w = &mix->parts[place].adapter->embed;
        size_t most = w->rank ? strip_cols(w) : 0, all = (size_t)w->b.cols, stride;
        if (!w->rank) continue;
        bn_prof_mark(a->prof, worker, BN_OP_ADAPTER);
        bn_stored_row(&a->m->kernels, u, &w->a, (uint64_t)a->batch[t].token);
        for (size_t from = 0, n; from < all; from += n) {
            n = bn_min_size(most, all - from);
            const float *b = take_strip(a, &w->b, from, n, strip_of(a, worker), &stride);
            a->m->kernels.low_rank(x + from, b, stride, u, w->rank, n,
                                   mix->parts[place].scale * w->scale);
        }
    }
}

/* ------------------------------------------------------------------ the head */

static const struct bn_low_rank *head_of(const struct bn_adapt *a, size_t t, uint32_t place)
{
    const struct bn_mix *mix = a->batch[t].mix;
    if (!mix || place >= mix->n || !mix->parts[place].adapter->head.rank) return NULL;
    return &mix->parts[place].adapter->head;
}

bool bn_adapt_has_head(const struct bn_adapt *a, size_t t)
{
    for (uint32_t place = 0; place < BN_MIX_MAX; place++)
        if (head_of(a, t, place)) return true;
    return false;
}

void bn_adapt_head_input(struct bn_adapt *a, size_t t, const float *x, uint32_t worker)
{
    for (uint32_t place = 0; place < BN_MIX_MAX; place++) {
        const struct bn_low_rank *w = head_of(a, t, place);
        if (!w) continue;
        struct bn_stored_product p = {
            .y_stride = a->width, .x = x, .n_tok = 1, .wide = strip_of(a, worker)};
        bn_prof_mark(a->prof, worker, BN_OP_ADAPTER);
        bn_prof_work(a->prof, worker, w->a.bytes, w->rank * w->a.cols);
        for (p.r = 0; p.r < w->rank; p.r += ROWS) {
            p.n_rows = bn_min_size(ROWS, (size_t)(w->rank - p.r));
            p.y = product(a, t, place, 0) + p.r;
            bn_stored_dots(&a->m->kernels, &w->a, &p);
        }
    }
}

static size_t token_at(const struct bn_adapt_logits *to, size_t i)
{
    return *(const uint32_t *)(const void *)((const char *)to->tokens + i * to->token_stride);
}

/* Rows of logits from the first that has this matrix at this place on. */
static void add_logits(struct bn_adapt *a, const struct bn_adapt_logits *to, size_t first,
                       uint32_t place, struct bn_range rows, uint32_t worker)
{
    const struct bn_low_rank *w = head_of(a, token_at(to, first), place);
    size_t most = strip_cols(w), stride;
    for (size_t from = rows.begin, n; from < rows.end; from += n) {
        n = bn_min_size(most, rows.end - from);
        const float *b = take_strip(a, &w->b, from, n, strip_of(a, worker), &stride);
        for (size_t i = first; i < to->n; i++) {
            size_t t = token_at(to, i);
            if (head_of(a, t, place) != w) continue;
            a->m->kernels.low_rank(to->logits + i * a->m->config.n_vocab + from, b, stride,
                                   product(a, t, place, 0), w->rank, n,
                                   part_of(a, t, place)->scale * w->scale);
        }
    }
    note_b(a, w, rows, 1, worker);
}

void bn_adapt_head_output(struct bn_adapt *a, const struct bn_adapt_logits *to,
                          struct bn_range rows, uint32_t worker)
{
    bn_prof_mark(a->prof, worker, BN_OP_ADAPTER);
    for (uint32_t place = 0; place < BN_MIX_MAX; place++)
        for (size_t i = 0; i < to->n; i++) {
            const struct bn_low_rank *w = head_of(a, token_at(to, i), place);
            bool seen = !w;
            for (size_t k = 0; k < i && !seen; k++) seen = head_of(a, token_at(to, k), place) == w;
            if (!seen) add_logits(a, to, i, place, rows, worker);
        }
}
