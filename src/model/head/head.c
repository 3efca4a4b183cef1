/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of the head, step by step, all workers together:
 *
 *   norm      the hidden state h of every row, and what screening needs of it (head_vector.c)
 *   --------- barrier
 *   screen    the list of rows that may be wanted (head_screen.c)
 *   --------- barrier
 *   rescore   those rows by their true logits; or the full pass, where all are wanted or too many
 *             survived
 *
 * The int8 head goes from norm to its own pass over all rows (head_int8.c).
 */
#include "model/head/head_impl.h"

#include "base/os/mem.h"
#include "model/adapter/adapt.h"
#include <stdlib.h>

enum { ROWS = BN_HEAD_DECODED, PLANES = 2 };

/* A page fault of the file's mapping brings its neighbours along: 140 KiB a row were seen, and 2 MiB
 * where the system caches the file in large pieces. So that the matrix does not come into memory row
 * by row after all, rows of a large one are copied from the file, which needs no page of it. Where
 * that cannot be, it is let go after every few survivors; and where only embeddings are read, whenever
 * these may have brought this much. */
static const uint64_t fault_bytes = 128 << 10, release_bytes = 48 << 20;

/* At most this share of the rows may survive; reading more of them, scattered, is no gain. */
static const double survivor_share = 0.08;

/* ------------------------------------------------------------------ life */

/* A ternary head takes hidden states as integers where the layers do: always of 16 bits, since logits
 * are at stake. */
static bool in_planes(const struct bn_head *h)
{
    return !h->m->head.dense && bn_act_planes(h->m->activations);
}

static void lay_out(struct bn_head *h, struct bn_plan *p, uint32_t max_rows)
{
    size_t threads = bn_pool_threads(h->pool), screened = h->o.max_screened;
    h->rows = bn_plan_piece(p, max_rows, sizeof *h->rows);
    h->slots = bn_plan_piece(p, screened, sizeof *h->slots);
    h->vectors = bn_plan_piece(p, screened, sizeof *h->vectors);
    h->coarse = bn_plan_piece(p, screened, sizeof *h->coarse);
    h->k = bn_plan_piece(p, screened, h->wide);
    h->block_sums = bn_plan_piece(p, screened * (h->wide / BN_ROTATE_BLOCK), sizeof *h->block_sums);
    if (screened) {
        h->rotated = bn_plan_piece(p, threads * 2 * h->wide, sizeof *h->rotated);
        h->lists = bn_plan_piece(p, threads, sizeof *h->lists);
    }
    h->survivors = bn_plan_piece(p, screened * h->o.limit, sizeof *h->survivors);
    h->found = bn_plan_piece(p, threads * screened, sizeof *h->found);
    h->decoded = bn_plan_piece(p, threads * ROWS * h->m->config.n_embd, sizeof *h->decoded);
    if (screened && !h->keep && h->m->head.stored.bytes > h->o.release_bytes)
        h->stored = bn_plan_piece(p, threads, h->m->head.stored.bytes / h->m->head.stored.rows);
    if (h->o.int8) bn_head_int8_lay_out(&h->int8, p, h->m, max_rows);
    if (!in_planes(h)) return;
    h->planes = bn_plan_piece(p, max_rows, PLANES * h->wide);
    h->units = bn_plan_piece(p, max_rows * (h->wide / BN_K_ALIGN), sizeof *h->units);
}

bitnet_status bn_head_open(struct bn_head **out, const struct bn_model *m, struct bn_pool *pool,
                           uint32_t max_rows, const struct bn_head_options *o,
                           struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    struct bn_head *h = bn_calloc(1, sizeof *h);
    if (!h) return bn_fail_nomem(err, sizeof *h, "the head");
    h->m = m;
    h->here = bn_parts_logits(m);
    h->n_here = (uint32_t)(h->here.end - h->here.begin);
    h->pool = pool;
    h->prof = bn_pool_prof(pool);
    h->o = *o;
    h->tensor = bn_part_find(&m->source, m->config.tied_head ? BN_P_EMBED : BN_P_HEAD, 0);
    h->keep = bn_model_keeps_pages(m);
    h->o.screened = o->screened && m->screen.coarse.data;
    if (!h->o.screened) h->o.max_screened = 0;
    if (h->o.release_bytes == 0) h->o.release_bytes = release_bytes;
    if (h->o.limit == 0) h->o.limit = (uint32_t)((double)h->n_here * survivor_share);
    h->wide = bn_align_up(m->config.n_embd, BN_K_ALIGN);
    struct bn_plan p = {0};
    lay_out(h, &p, max_rows);
    h->bytes = p.used;
    bitnet_status s = bn_block_take(&h->block, &h->bytes, how, "the head", err);
    if (s != BITNET_OK) {
        bn_head_close(h);
        return s;
    }
    p = (struct bn_plan){.base = h->block};
    lay_out(h, &p, max_rows);
    *out = h;
    return BITNET_OK;
}

void bn_head_close(struct bn_head *h)
{
    if (!h) return;
    bn_block_free(h->block, h->bytes);
    free(h);
}

void bn_head_warm(struct bn_head *h)
{
    bn_touch(h->block, h->bytes);
    h->keep = true;
}

size_t bn_head_bytes(const struct bn_head *h) { return h->bytes; }
const struct bn_head_stats *bn_head_stats(const struct bn_head *h) { return &h->stats; }

/* ------------------------------------------------------------------ a call */

void bn_head_begin(struct bn_head *h, float *logits, const float *norm, struct bn_adapt *adapt)
{
    h->logits = logits ? logits + h->here.begin : NULL;
    h->norm = norm;
    h->adapt = adapt;
    h->adapted = false;
    h->n_rows = h->n_slots = 0;
    atomic_store_explicit(&h->touched_rows, 0, memory_order_relaxed);
}

void bn_head_add(struct bn_head *h, uint32_t token, struct bn_want want)
{
    struct bn_head_row *row = &h->rows[h->n_rows];
    bool adapted = h->adapt && bn_adapt_has_head(h->adapt, token);
    uint32_t n = h->n_slots < h->o.max_screened && !adapted ? bn_head_candidates_for(h, &want) : 0;
    h->adapted |= adapted;
    *row = (struct bn_head_row){token, want, UINT32_MAX, BN_HEAD_FULL, false};
    if (n) {
        struct bn_head_slot *s = &h->slots[h->n_slots];
        row->slot = (uint32_t)h->n_slots++;
        s->row = (uint32_t)h->n_rows;
        s->n_candidates = n;
        s->z = bn_head_z(want.kind == BN_WANT_DRAW ? 1 : want.k ? want.k : h->m->config.n_vocab);
        atomic_store_explicit(&s->n_refined, 0, memory_order_relaxed);
        atomic_store_explicit(&s->n_survivors, 0, memory_order_relaxed);
    }
    h->n_rows++;
}

size_t bn_head_rows(const struct bn_head *h) { return h->n_rows; }

void bn_head_note_work(const struct bn_head *h, uint64_t bytes, struct bn_range rows, size_t n,
                       uint32_t worker)
{
    const struct bn_config *c = &h->m->config;
    if (!bn_prof_on(h->prof)) return;
    bn_prof_work(h->prof, worker, bn_rows_bytes(bytes, h->n_here, rows),
                 (uint64_t)(rows.end - rows.begin) * c->n_embd * n);
}

static void norm(struct bn_head *h, const float *x, float *normed, uint32_t worker)
{
    const struct bn_config *c = &h->m->config;
    bn_prof_mark(h->prof, worker, BN_OP_HEAD_NORM);
    for (size_t i = worker; i < h->n_rows; i += bn_pool_threads(h->pool)) {
        float *to = normed + i * c->n_embd;
        h->m->kernels.rmsnorm(to, x + (size_t)h->rows[i].token * c->n_embd, h->norm, c->n_embd,
                              c->eps);
        if (h->adapted) bn_adapt_head_input(h->adapt, h->rows[i].token, to, worker);
        if (h->m->head.rotated) bn_model_rotate(h->m, to, to, c->n_embd, false);
        if (h->planes)
            h->m->kernels.quant_planes(h->planes + i * PLANES * h->wide, h->wide, PLANES,
                                       h->units + i * (h->wide / BN_K_ALIGN), to, c->n_embd);
        if (h->o.int8) bn_head_int8_put(&h->int8, i, to);
        if (h->rows[i].slot != UINT32_MAX) bn_head_screen_put(h, h->rows[i].slot, to, worker);
    }
}

void bn_head_release(const struct bn_head *h, uint32_t worker)
{
    bn_prof_mark(h->prof, worker, BN_OP_RELEASE);
    bn_source_release(&h->m->source, h->tensor);
}

/* ------------------------------------------------------------------ the full pass */

/* What adapters add to some columns of all rows of logits. */
static void add_adapters(struct bn_head *h, struct bn_range columns, uint32_t worker)
{
    if (!h->adapted) return;
    const struct bn_adapt_logits to = {h->logits, h->n_rows, &h->rows[0].token, sizeof *h->rows};
    bn_adapt_head_output(h->adapt, &to, columns, worker);
}

enum bn_head_how bn_head_how(const struct bn_head *h, const struct bn_head_row *row)
{
    if (row->slot == UINT32_MAX) return BN_HEAD_FULL;
    const struct bn_head_slot *s = &h->slots[row->slot];
    bool few = s->good && atomic_load(&s->n_survivors) <= h->o.limit;
    return few ? BN_HEAD_BY_SCREEN : BN_HEAD_FALLBACK;
}

/* A few rows of the matrix are decoded, then meet the rows of logits that take all of them; those
 * that stand together, together. */
static void full_rows(struct bn_head *h, const float *normed, size_t n_full, struct bn_range some,
                      uint32_t worker)
{
    const struct bn_stored *w = &h->m->head.stored;
    size_t vocab = h->m->config.n_vocab, cols = w->cols;
    struct bn_stored_product p = {
        .y_stride = vocab, .x_stride = cols, .wide = h->decoded + worker * ROWS * cols};
    bn_prof_mark(h->prof, worker, BN_OP_HEAD);
    bn_head_note_work(h, w->bytes, some, n_full, worker);
    for (p.r = some.begin; p.r < some.end; p.r += ROWS) {
        p.n_rows = bn_min_size(ROWS, some.end - p.r);
        for (size_t from = 0, to; from < h->n_rows; from = to + 1) {
            for (to = from; to < h->n_rows && bn_head_how(h, &h->rows[to]) != BN_HEAD_BY_SCREEN;)
                to++;
            if (to == from) continue;
            p.y = h->logits + from * vocab + p.r;
            p.x = normed + from * cols;
            p.n_tok = to - from;
            bn_stored_dots(&h->m->kernels, w, &p);
        }
    }
    add_adapters(h, some, worker);
}

static void full_pass(struct bn_head *h, const float *normed, size_t n_full, uint32_t worker)
{
    bn_pool_deal(h->pool, worker, h->n_here, ROWS, true);
    for (struct bn_range r; bn_pool_take(h->pool, worker, &r);)
        full_rows(h, normed, n_full, r, worker);
}

/* The same with a ternary matrix. Nothing is screened then. */
static void packed_pass(struct bn_head *h, const float *normed, uint32_t worker)
{
    const struct bn_matrix *w = &h->m->head;
    size_t vocab = h->m->config.n_vocab;
    struct bn_planes x = {h->planes,        PLANES,   h->wide,
                          PLANES * h->wide, h->units, h->wide / BN_K_ALIGN};
    struct bn_range r;
    bn_pool_deal(h->pool, worker, h->n_here, w->gemm->group_rows, false);
    while (bn_pool_take(h->pool, worker, &r)) {
        bn_prof_mark(h->prof, worker, BN_OP_HEAD);
        bn_head_note_work(h, h->m->head_packed_bytes, r, h->n_rows, worker);
        const struct bn_gemm_args a = {.y = h->logits,
                                       .y_stride = vocab,
                                       .w = &w->packed,
                                       .r0 = r.begin,
                                       .r1 = r.end,
                                       .n_tok = h->n_rows};
        if (h->planes) w->gemm->mul_planes(&a, &x);
        else w->gemm->mul_f32(&a, normed, w->packed.cols);
        add_adapters(h, r, worker);
    }
}

void bn_head_work(struct bn_head *h, const float *x, float *normed, uint32_t worker)
{
    size_t cols = h->m->config.n_embd, n_full = 0;
    norm(h, x, normed, worker);
    bn_pool_barrier(h->pool, worker);
    if (!h->m->head.dense) {
        packed_pass(h, normed, worker);
        return;
    }
    if (h->o.int8) {
        bn_pool_deal(h->pool, worker, h->n_here, BN_DENSE8_ROWS, true);
        for (struct bn_range r; bn_pool_take(h->pool, worker, &r);) {
            bn_prof_mark(h->prof, worker, BN_OP_HEAD);
            bn_head_note_work(h, h->m->head_copy_bytes, r, h->n_rows, worker);
            bn_head_int8_pass(&h->int8, bn_model_head_int8(h->m, bn_pool_node(h->pool, worker)),
                              h->logits, h->n_rows, r);
            add_adapters(h, r, worker);
        }
        return;
    }
    if (h->n_slots) {
        bn_head_screen_all(h, normed, worker);
        bn_pool_barrier(h->pool, worker);
    }
    for (size_t i = 0; i < h->n_rows; i++) {
        if (bn_head_how(h, &h->rows[i]) == BN_HEAD_BY_SCREEN)
            bn_head_rescore(h, h->rows[i].slot, normed + i * cols, worker);
        else n_full++;
    }
    if (n_full) full_pass(h, normed, n_full, worker);
}

/* ------------------------------------------------------------------ counts */

/* Not where full passes need the whole matrix now and then. Beside screened rows and the int8 copy
 * only embeddings are read, about one a row of logits. */
static void release_pages(struct bn_head *h)
{
    uint64_t row_bytes = h->m->head.stored.bytes / h->m->head.stored.rows;
    uint64_t n = h->n_rows + atomic_load(&h->touched_rows);
    h->touched_bytes += n * (row_bytes > fault_bytes ? row_bytes : fault_bytes);
    if (h->keep || h->touched_bytes <= h->o.release_bytes) return;
    if (h->o.int8 || h->touched_full == h->stats.full) bn_head_release(h, 0);
    h->touched_full = h->stats.full;
    h->touched_bytes = 0;
}

/* The matrix is read once for all that need all of it, and so is a copy, except for the fine code. */
static void count_bytes(struct bn_head *h, bool full, uint64_t refined, uint64_t survivors)
{
    const struct bn_stored *w = &h->m->head.stored;
    h->read_bytes = survivors * (w->bytes / w->rows) + refined * bn_r2_row_bytes(h->wide);
    if (h->n_slots) h->read_bytes += bn_head_coarse_bytes(h->m);
    if (full)
        h->read_bytes += h->o.int8          ? h->m->head_copy_bytes
                         : h->m->head.dense ? w->bytes
                                            : h->m->head_packed_bytes;
}

void bn_head_end(struct bn_head *h)
{
    struct bn_head_stats before = h->stats, *s = &h->stats;
    for (size_t i = 0; i < h->n_slots; i++) s->refined += atomic_load(&h->slots[i].n_refined);
    for (size_t i = 0; i < h->n_rows; i++) {
        struct bn_head_row *row = &h->rows[i];
        row->how = bn_head_how(h, row);
        s->full += row->how != BN_HEAD_BY_SCREEN;
        s->fallbacks += row->how == BN_HEAD_FALLBACK;
        if (row->how != BN_HEAD_BY_SCREEN) continue;
        uint32_t n = atomic_load(&h->slots[row->slot].n_survivors), log2 = 0;
        while (log2 + 1 < BN_HEAD_HISTOGRAM && n > 1u << log2) log2++;
        s->histogram[log2]++;
        s->screened++;
        s->survivors += n;
        if (n > s->survivors_max) s->survivors_max = n;
    }
    uint64_t survivors = s->survivors - before.survivors;
    count_bytes(h, s->full > before.full, s->refined - before.refined, survivors);
    release_pages(h);
}

bool bn_head_was_screened(const struct bn_head *h, size_t row)
{
    return h->rows[row].how == BN_HEAD_BY_SCREEN || h->rows[row].partial;
}

uint64_t bn_head_read_bytes(const struct bn_head *h) { return h->read_bytes; }
