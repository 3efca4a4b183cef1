/* SPDX-License-Identifier: Apache-2.0
 *
 * Screening, step by step, all workers together:
 *
 *   coarse    estimates of all logits from 2 bits a weight, and the best of them
 *   --------- barrier
 *   refine    the few candidates with the best estimates are computed exactly, which gives a threshold;
 *             rows whose bound reaches it get a better estimate and bound from 2 bits more
 *   --------- barrier
 *   collect   a threshold from the best of these estimates; rows whose bound reaches it survive
 *
 * A worker finds the thresholds of all tokens by itself, or, where tokens are many, those of some; then
 * the workers meet once more. Tokens of a batch share what is read: a tile of the coarse copy meets all
 * of them, and so does a piece of the finer one.
 *
 * Why no wanted row is lost: a threshold is the k-th largest of at least k true logits, so not above
 * the k-th largest of all, and a bound is not below its row's logit (docs/inside/numerics.md says with which
 * probability). Which candidates are taken decides only how many survive.
 */
#include "model/head/head_impl.h"

#include "base/gumbel.h"
#include <math.h>

enum {
    RESCORE = 16, /* scattered rows read until pages are let go */
    TILE = 128,   /* rows that meet all tokens while they are in the cache (84 KB) */
    VECTORS = 8   /* tokens whose estimates of a tile are made together */
};

static struct bn_head_found *found_by(const struct bn_head *h, uint32_t worker, size_t slot)
{
    return &h->found[worker * h->o.max_screened + slot];
}

static const struct bn_want *want_of(const struct bn_head *h, size_t slot)
{
    return &h->rows[h->slots[slot].row].want;
}

static float *logits_of(const struct bn_head *h, size_t slot)
{
    return h->logits + (size_t)h->slots[slot].row * h->m->config.n_vocab;
}

uint32_t bn_head_candidates_for(const struct bn_head *h, const struct bn_want *w)
{
    uint32_t vocab = h->n_here;
    if (w->kind == BN_WANT_DRAW) return (uint32_t)bn_min_size(1 + BN_HEAD_MORE, vocab);
    if (w->kind != BN_WANT_BEST) return 0;
    bool by_rank = w->k > 0 && w->k <= BN_HEAD_MAX_K && w->k + BN_HEAD_MORE < vocab;
    if (!by_rank && !(w->below < (double)INFINITY)) return 0;
    return (uint32_t)bn_min_size((by_rank ? w->k : 1) + BN_HEAD_MORE, vocab);
}

void bn_head_screen_put(struct bn_head *h, size_t slot, const float *x, uint32_t worker)
{
    const struct bn_screen *copy = bn_model_screen(h->m, bn_pool_node(h->pool, worker));
    size_t cols = h->m->config.n_embd;
    float *rotated = h->rotated + worker * 2 * h->wide;
    memcpy(rotated, x, cols * sizeof *x);
    memset(rotated + cols, 0, (h->wide - cols) * sizeof *x);
    bn_rotate(&copy->rotation, &h->m->kernels, rotated, rotated + h->wide, 1);
    h->slots[slot].good = bn_head_vector(&h->vectors[slot], copy, h->k + slot * h->wide,
                                         h->block_sums + slot * copy->rotation.blocks, rotated,
                                         h->o.no_margin ? 0 : h->slots[slot].z);
    h->coarse[slot] = h->vectors[slot].coarse;
}

/* ------------------------------------------------------------------ estimates and bounds */

/* What a draw compares, by a row's number among all: an estimate with its noise, and a bound with it, rounded up in double, then
 * to float, which keeps it one. */
static double noise_of(const struct bn_want *w, size_t r)
{
    return bn_gumbel_bound(bn_gumbel_unit(w->noise, r));
}

static void add_noise(float *estimate, size_t r, size_t n, const struct bn_want *w)
{
    for (size_t i = 0; i < n; i++)
        estimate[i] = (float)((double)estimate[i] * w->inv_t + noise_of(w, r + i));
}

static float noisy_bound(float bound, size_t r, const struct bn_want *w)
{
    double u = (double)bound * w->inv_t + noise_of(w, r);
    return (float)(u + fabs(u) * 0x1p-22);
}

static void note_one(struct bn_head_best *best, uint32_t room, float estimate, size_t r)
{
    if (best->n < room || estimate > best->heap[0].score)
        best->n =
            bn_best_push(best->heap, best->n, room, (struct bn_scored){estimate, (uint32_t)r});
}

/* Estimates of rows r .. r + n - 1 among the best. Mostly none is, which is quickly seen. */
static void note_best(struct bn_head_best *best, uint32_t room, const float *estimate, size_t r,
                      size_t n)
{
    float least = best->n == room ? best->heap[0].score : -INFINITY;
    int32_t better = 0;
    for (size_t i = 0; i < n; i++) better += estimate[i] > least;
    for (size_t i = 0; i < n && better; i++) note_one(best, room, estimate[i], r + i);
}

/* ------------------------------------------------------------------ coarse */

/* Rows [r, end) and n tokens from slot `first` on. */
static void coarse_tile(struct bn_head *h, size_t first, size_t n, size_t r, size_t end,
                        uint32_t worker)
{
    int32_t sum[VECTORS][TILE];
    float noisy[TILE];
    const struct bn_screen *copy = bn_model_screen(h->m, bn_pool_node(h->pool, worker));
    h->m->kernels.screen2(sum[0], TILE, &copy->coarse, r, end, h->coarse + first, n);
    for (size_t i = 0; i < n; i++) {
        const struct bn_want *want = want_of(h, first + i);
        float *estimate = logits_of(h, first + i) + r, unit = h->vectors[first + i].unit;
        const float *score = estimate;
        for (size_t k = 0; k < end - r; k++)
            estimate[k] = copy->scale[r + k] * unit * (float)sum[i][k];
        if (want->kind == BN_WANT_DRAW) {
            memcpy(noisy, estimate, (end - r) * sizeof *noisy);
            add_noise(noisy, h->here.begin + r, end - r, want);
            score = noisy;
        }
        note_best(&found_by(h, worker, first + i)->coarse, h->slots[first + i].n_candidates, score,
                  r, end - r);
    }
}

static void coarse(struct bn_head *h, uint32_t worker)
{
    uint64_t bytes = bn_head_coarse_bytes(h->m);
    struct bn_range some;
    bn_prof_mark(h->prof, worker, BN_OP_SCREEN);
    for (size_t i = 0; i < h->n_slots; i++)
        found_by(h, worker, i)->coarse.n = found_by(h, worker, i)->fine.n = 0;
    bn_pool_deal(h->pool, worker, h->n_here, BN_SCREEN2_ROWS, false);
    while (bn_pool_take(h->pool, worker, &some)) {
        bn_head_note_work(h, bytes, some, h->n_slots, worker);
        for (size_t r = some.begin; r < some.end; r += TILE)
            for (size_t i = 0; i < h->n_slots; i += VECTORS)
                coarse_tile(h, i, bn_min_size(VECTORS, h->n_slots - i), r,
                            bn_min_size(r + TILE, some.end), worker);
    }
}

/* ------------------------------------------------------------------ thresholds */

/* Whether rows read one by one should not stay: not where full passes need the whole matrix now and
 * then. */
static bool scattered(const struct bn_head *h)
{
    return !h->keep && h->m->head.stored.bytes > h->o.release_bytes &&
           h->touched_full == h->stats.full;
}

/* Rows lie scattered in memory: one is on its way while another is used. */
static void ask_for_row(const struct bn_stored *w, uint32_t r)
{
    size_t bytes = w->bytes / w->rows;
    const char *row = (const char *)w->data + r * bytes;
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(row + i, 0, 2);
}

/* A row of the matrix as a matrix of its own, copied from the file; false: it cannot be copied. */
static bool copy_row(const struct bn_head *h, struct bn_stored *row, uint32_t r, uint32_t worker)
{
    const struct bn_stored *w = &h->m->head.stored;
    size_t bytes = w->bytes / w->rows;
    uint8_t *to = h->stored + worker * bytes;
    *row = *w;
    row->data = to;
    row->bytes = bytes;
    row->rows = 1;
    return bn_source_copy(&h->m->source, to, w->data + r * bytes, bytes);
}

/* The true logits of a few rows, at most RESCORE. */
static void true_logits(struct bn_head *h, float *out, const uint32_t *ids, size_t n,
                        const float *x, uint32_t worker)
{
    const struct bn_stored *w = &h->m->head.stored;
    struct bn_stored row;
    struct bn_stored_product p = {.y_stride = 1,
                                  .n_rows = 1,
                                  .x = x,
                                  .x_stride = w->cols,
                                  .n_tok = 1,
                                  .wide = h->decoded + worker * BN_HEAD_DECODED * w->cols};
    bool copies = h->stored && scattered(h), touched = false;
    for (size_t i = 0; i < n; i++) {
        bool copied = copies && copy_row(h, &row, ids[i], worker);
        if (!copied && !copies && i + 1 < n) ask_for_row(w, ids[i + 1]);
        p.y = out + i;
        p.r = copied ? 0 : ids[i];
        bn_stored_dots(&h->m->kernels, copied ? &row : w, &p);
        touched |= !copied;
    }
    if (!touched) return;
    atomic_fetch_add(&h->touched_rows, (uint32_t)n);
    if (scattered(h)) bn_head_release(h, worker);
}

static float round_down(double x)
{
    float f = (float)x;
    return (double)f > x ? nextafterf(f, -INFINITY) : f;
}

static float draw_threshold(const struct bn_want *w, size_t first, const uint32_t *ids,
                            const float *logit, uint32_t n)
{
    double most = -(double)INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double y =
            (double)logit[i] * w->inv_t + bn_gumbel(bn_gumbel_unit(w->noise, first + ids[i]));
        most = y > most ? y : most;
    }
    return round_down(most);
}

static float best_threshold(const struct bn_want *w, float *logit, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) { /* sorted, the largest first */
        float v = logit[i];
        uint32_t k = i;
        for (; k > 0 && logit[k - 1] < v; k--) logit[k] = logit[k - 1];
        logit[k] = v;
    }
    float least = w->k > 0 && w->k <= n ? logit[w->k - 1] : -INFINITY;
    if (w->below < (double)INFINITY) {
        float floor = round_down((double)logit[0] - w->below);
        if (floor > least) least = floor;
    }
    return least;
}

/* The same on every worker: the best candidates of all, their true logits, and from these the
 * logit that the wanted ones have at least. */
static float threshold(struct bn_head *h, size_t slot, bool fine, const float *x, uint32_t worker)
{
    const struct bn_want *want = want_of(h, slot);
    struct bn_head_best best = {.n = 0};
    uint32_t ids[BN_HEAD_CANDIDATES] = {0};
    float logit[BN_HEAD_CANDIDATES] = {0};
    for (uint32_t w = 0; w < bn_pool_threads(h->pool); w++) {
        const struct bn_head_found *f = found_by(h, w, slot);
        const struct bn_head_best *b = fine ? &f->fine : &f->coarse;
        for (uint32_t i = 0; i < b->n; i++)
            best.n = bn_best_push(best.heap, best.n, h->slots[slot].n_candidates, b->heap[i]);
    }
    for (uint32_t i = 0; i < best.n; i++) ids[i] = best.heap[i].id;
    for (uint32_t i = 0; i < best.n; i += RESCORE) {
        bn_prof_mark(h->prof, worker, BN_OP_RESCORE);
        true_logits(h, logit + i, ids + i, bn_min_size(RESCORE, best.n - i), x, worker);
    }
    bn_prof_mark(h->prof, worker, BN_OP_CHOOSE);
    if (want->kind == BN_WANT_DRAW) return draw_threshold(want, h->here.begin, ids, logit, best.n);
    return best_threshold(want, logit, best.n);
}

/* Whether each worker finds the thresholds of some tokens, not of all. */
static bool thresholds_shared(const struct bn_head *h)
{
    uint32_t threads = bn_pool_threads(h->pool);
    return threads > 1 && h->n_slots >= threads;
}

static float *least_of(const struct bn_head *h, uint32_t worker, size_t slot, bool fine)
{
    struct bn_head_found *f = found_by(h, worker, slot);
    return fine ? &f->fine_least : &f->least;
}

static void find_thresholds(struct bn_head *h, bool fine, const float *normed, uint32_t worker)
{
    bool shared = thresholds_shared(h);
    for (size_t i = 0; i < h->n_slots; i++) {
        const float *x = normed + h->slots[i].row * (size_t)h->m->config.n_embd;
        if (!h->slots[i].good || (shared && i % bn_pool_threads(h->pool) != worker)) continue;
        *least_of(h, worker, i, fine) = threshold(h, i, fine, x, worker);
    }
    if (shared) bn_pool_barrier(h->pool, worker);
}

static float least_found(const struct bn_head *h, size_t slot, bool fine, uint32_t worker)
{
    if (thresholds_shared(h)) worker = (uint32_t)(slot % bn_pool_threads(h->pool));
    return *least_of(h, worker, slot, fine);
}

/* ------------------------------------------------------------------ refine */

/* Rows of [r, end) whose bound reaches `least`, added to a list of n. */
static size_t list_tile(const struct bn_head *h, size_t slot, const float *noise, size_t r,
                        size_t end, float least, uint32_t *list, size_t n)
{
    const struct bn_want *want = want_of(h, slot);
    const float *estimate = logits_of(h, slot);
    float bound[TILE], margin = h->vectors[slot].margin;
    for (size_t i = r; i < end; i++) bound[i - r] = estimate[i] + noise[i] * margin;
    for (size_t i = r; i < end && want->kind == BN_WANT_DRAW; i++)
        bound[i - r] = noisy_bound(bound[i - r], h->here.begin + i, want);
    for (size_t i = r; i < end; i++) {
        list[n] = (uint32_t)i;
        n += bound[i - r] >= least;
    }
    return n;
}

/* Better estimates of rows [r, end) that may be wanted; their bounds become the logits, -infinity
 * those of all others. */
static void refine_piece(struct bn_head *h, size_t slot, size_t r, size_t end, uint32_t worker)
{
    const struct bn_screen *copy = bn_model_screen(h->m, bn_pool_node(h->pool, worker));
    const struct bn_head_vector *v = &h->vectors[slot];
    const struct bn_want *want = want_of(h, slot);
    struct bn_head_found *found = found_by(h, worker, slot);
    float *fine = h->lists[worker].fine, *logits = logits_of(h, slot), half = (float)v->sum / 2;
    float least = least_found(h, slot, false, worker);
    uint32_t *list = h->lists[worker].id;
    size_t n = 0;
    for (size_t i = r; i < end; i += TILE)
        n = list_tile(h, slot, copy->noise, i, bn_min_size(i + TILE, end), least, list, n);
    if (n) h->m->kernels.rows_r2(fine, &copy->fine, list, n, v->coarse.k, v->sum, 1);
    for (size_t i = 0; i < n; i++)
        fine[i] = logits[list[i]] + copy->fine_scale[list[i]] * v->unit * (fine[i] - half);
    for (size_t i = r; i < end; i++) logits[i] = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = list[i];
        float bound = fine[i] + copy->fine_noise[id] * v->margin;
        bool draw = want->kind == BN_WANT_DRAW;
        logits[id] = draw ? noisy_bound(bound, h->here.begin + id, want) : bound;
        if (draw) add_noise(&fine[i], h->here.begin + id, 1, want);
        note_one(&found->fine, h->slots[slot].n_candidates, fine[i], id);
    }
    bn_head_note_work(h, copy->fine.rows * bn_r2_row_bytes(h->wide), (struct bn_range){0, n}, 1,
                      worker);
    atomic_fetch_add(&h->slots[slot].n_refined, (uint32_t)n);
}

static void refine(struct bn_head *h, uint32_t worker)
{
    struct bn_range some;
    bn_prof_mark(h->prof, worker, BN_OP_REFINE);
    bn_pool_deal(h->pool, worker, h->n_here, BN_SCREEN2_ROWS, false);
    while (bn_pool_take(h->pool, worker, &some))
        for (size_t r = some.begin; r < some.end; r += BN_HEAD_PIECE)
            for (size_t i = 0; i < h->n_slots; i++)
                if (h->slots[i].good)
                    refine_piece(h, i, r, bn_min_size(r + BN_HEAD_PIECE, some.end), worker);
}

/* ------------------------------------------------------------------ survivors */

/* This worker's rows: those that may reach the threshold join the list, all become -infinity. */
static void collect(struct bn_head *h, size_t slot, uint32_t worker)
{
    struct bn_head_slot *s = &h->slots[slot];
    struct bn_range share = bn_pool_share(h->pool, worker, h->n_here, BN_SCREEN2_ROWS);
    float least = least_found(h, slot, true, worker), *bound = logits_of(h, slot);
    float before = least_found(h, slot, false, worker);
    uint32_t n = 0;
    if (before > least) least = before;
    for (size_t r = share.begin; r < share.end; r++) n += bound[r] >= least;
    uint32_t at = atomic_fetch_add(&s->n_survivors, n);
    bool fits = n <= h->o.limit && at <= h->o.limit - n;
    uint32_t *list = h->survivors + slot * h->o.limit + (fits ? at : 0);
    for (size_t r = share.begin; r < share.end; r++) {
        if (fits && bound[r] >= least) *list++ = (uint32_t)r;
        bound[r] = -INFINITY;
    }
}

void bn_head_screen_all(struct bn_head *h, const float *normed, uint32_t worker)
{
    coarse(h, worker);
    bn_pool_barrier(h->pool, worker);
    find_thresholds(h, false, normed, worker);
    refine(h, worker);
    bn_pool_barrier(h->pool, worker);
    find_thresholds(h, true, normed, worker);
    for (size_t i = 0; i < h->n_slots; i++)
        if (h->slots[i].good) collect(h, i, worker);
}

void bn_head_rescore(struct bn_head *h, size_t slot, const float *x, uint32_t worker)
{
    struct bn_head_slot *s = &h->slots[slot];
    const struct bn_stored *w = &h->m->head.stored;
    float *logits = logits_of(h, slot), y[RESCORE];
    struct bn_range share = bn_pool_share(h->pool, worker, atomic_load(&s->n_survivors), 1);
    for (size_t i = share.begin; i < share.end; i += RESCORE) {
        const uint32_t *ids = h->survivors + slot * h->o.limit + i;
        size_t n = bn_min_size(RESCORE, share.end - i);
        bn_prof_mark(h->prof, worker, BN_OP_RESCORE);
        bn_head_note_work(h, w->bytes, (struct bn_range){i, i + n}, 1, worker);
        true_logits(h, y, ids, n, x, worker);
        for (size_t k = 0; k < n; k++) logits[ids[k]] = y[k];
    }
}
