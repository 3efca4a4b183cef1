/* SPDX-License-Identifier: Apache-2.0
 *
 * A call of the head, step by step, all workers together:
 *
 *   norm      the hidden state h of every row, and what screening needs of it (head_vector.c)
 *   --------- barrier
 *   screen    upper bounds of this worker's vocabulary into the logits, and its best scores
 *   --------- barrier
 *   collect   every worker computes the few candidates with the best scores exactly and takes from
 *             them the same threshold; rows of its share whose bound reaches it join the survivors
 *   --------- barrier
 *   rescore   survivors by their true logits; or the full pass, where all are wanted or too many
 *             survived
 *
 * The int8 head goes from norm to its own pass over all rows (head_int8.c).
 *
 * Why no wanted row is lost: the threshold is the k-th largest of at least k true logits, so not
 * above the k-th largest of all, and a bound is not below its row's logit. Which candidates are
 * taken decides only how many survive.
 */
#include "model/head.h"
#include "model/best.h"
#include "model/head_int8.h"
#include "model/head_vector.h"

#include "base/det_math.h"
#include "base/gumbel.h"
#include "base/mem.h"
#include "model/ops.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    ROWS = 8,     /* rows of the matrix decoded at a time */
    RESCORE = 16, /* scattered rows read until pages are let go */
    TILE = 128,   /* rows that meet all tokens while they are in the cache (160 KiB) */
    VECTORS = 8,  /* tokens whose bounds of a tile are made together */
    MORE = 3,     /* candidates beyond k: a first guess is sometimes the second */
    MAX_CANDIDATES = BN_HEAD_MAX_K + MORE,
    FAIL_BITS = 60 /* a bound fails with a probability of at most 2^-60 a token */
};

/* A page fault of the file's mapping brings its neighbours along: 140 KiB a row were seen, and 2 MiB
 * where the system caches the file in large pieces. So that the matrix does not come into memory row
 * by row after all, a large one is let go after every few survivors, and the int8 head's, of which
 * only embeddings are read, whenever these may have brought this much. */
static const uint64_t fault_bytes = 128 << 10, release_bytes = 48 << 20;

/* At most this share of the rows may survive; reading more of them, scattered, is no gain. */
static const double survivor_share = 0.08;

enum how { FULL, SCREENED, FALLBACK };

struct row { /* of logits */
    uint32_t token;
    struct bn_want want;
    uint32_t slot; /* UINT32_MAX: none */
    enum how how;
};

struct slot { /* one row that is screened */
    uint32_t row, n_candidates;
    bool good; /* the vector allows bounds */
    _Atomic uint32_t n_survivors;
};

struct bn_head {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_prof *prof; /* NULL: off */
    struct bn_head_options o;
    double t; /* margin in units of step * |h|, for FAIL_BITS */
    size_t plane_bytes;
    struct row *rows;                 /* [max_rows] */
    struct slot *slots;               /* [max_screened] */
    struct bn_screen_vector *vectors; /* [max_screened] */
    int8_t *planes;                   /* [max_screened][2][plane_bytes] */
    uint32_t *survivors;              /* [max_screened][limit] */
    struct bn_scored *candidates;     /* [threads][max_screened][MAX_CANDIDATES] */
    uint32_t *n_candidates;           /* [threads][max_screened] */
    float *decoded;                   /* [threads][ROWS][cols] */
    struct bn_head_int8 int8;         /* with o.int8 */
    void *block;                      /* all of the above */
    size_t bytes;
    struct bn_head_stats stats;
    const struct bn_tensor *tensor; /* the matrix in the file */
    uint64_t touched_bytes;         /* at most, since it was last let go */
    uint64_t touched_full;          /* full passes by then */
    bool keep;                      /* it is never let go */
    uint64_t read_bytes;            /* by the last call */
    /* the call in progress */
    float *logits;
    size_t n_rows, n_slots;
};

/* ------------------------------------------------------------------ life */

static void lay_out(struct bn_head *h, struct bn_plan *p, uint32_t max_rows)
{
    size_t threads = bn_pool_threads(h->pool), screened = h->o.max_screened;
    h->rows = bn_plan_piece(p, max_rows, sizeof *h->rows);
    h->slots = bn_plan_piece(p, screened, sizeof *h->slots);
    h->vectors = bn_plan_piece(p, screened, sizeof *h->vectors);
    h->planes = bn_plan_piece(p, screened * 2, h->plane_bytes);
    h->survivors = bn_plan_piece(p, screened * h->o.limit, sizeof *h->survivors);
    h->candidates = bn_plan_piece(p, threads * screened * MAX_CANDIDATES, sizeof *h->candidates);
    h->n_candidates = bn_plan_piece(p, threads * screened, sizeof *h->n_candidates);
    h->decoded = bn_plan_piece(p, threads * ROWS * h->m->config.n_embd, sizeof *h->decoded);
    if (h->o.int8) bn_head_int8_lay_out(&h->int8, p, h->m, max_rows);
}

bitnet_status bn_head_open(struct bn_head **out, const struct bn_model *m, struct bn_pool *pool,
                           uint32_t max_rows, const struct bn_head_options *o,
                           struct bn_backing *how, bitnet_error *err)
{
    *out = NULL;
    struct bn_head *h = bn_calloc(1, sizeof *h);
    if (!h) return bn_fail_nomem(err, sizeof *h, "the head");
    size_t vocab = m->config.n_vocab;
    h->m = m;
    h->pool = pool;
    h->prof = bn_pool_prof(pool);
    h->o = *o;
    h->tensor = bn_part_find(&m->source, m->config.tied_head ? BN_P_EMBED : BN_P_HEAD, 0);
    h->keep = bn_model_keeps_pages(m);
    h->o.screened = o->screened && m->screen.data;
    if (!h->o.screened) h->o.max_screened = 0;
    if (h->o.limit == 0) h->o.limit = (uint32_t)((double)vocab * survivor_share);
    /* 4 V exp(-6 t^2) = 2^-FAIL_BITS, rounded up */
    double ln2 = bn_det_log(2.0);
    h->t = sqrt((bn_det_log((double)vocab) + (FAIL_BITS + 2) * ln2) / 6) * (1 + 0x1p-20);
    h->plane_bytes = bn_align_up(m->config.n_embd, BN_K_ALIGN);
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

void bn_head_begin(struct bn_head *h, float *logits)
{
    h->logits = logits;
    h->n_rows = h->n_slots = 0;
}

/* How many candidates a want needs; 0: it cannot be screened. */
static uint32_t candidates_for(const struct bn_head *h, const struct bn_want *w)
{
    uint32_t vocab = h->m->config.n_vocab;
    if (h->n_slots == h->o.max_screened) return 0;
    if (w->kind == BN_WANT_DRAW) return (uint32_t)bn_min_size(1 + MORE, vocab);
    if (w->kind != BN_WANT_BEST) return 0;
    bool by_rank = w->k > 0 && w->k <= BN_HEAD_MAX_K && w->k + MORE < vocab;
    if (!by_rank && !(w->below < (double)INFINITY)) return 0;
    return (uint32_t)bn_min_size((by_rank ? w->k : 1) + MORE, vocab);
}

void bn_head_add(struct bn_head *h, uint32_t token, struct bn_want want)
{
    struct row *row = &h->rows[h->n_rows];
    uint32_t n = candidates_for(h, &want);
    *row = (struct row){token, want, UINT32_MAX, FULL};
    if (n) {
        struct slot *s = &h->slots[h->n_slots];
        row->slot = (uint32_t)h->n_slots++;
        s->row = (uint32_t)h->n_rows;
        s->n_candidates = n;
        atomic_store_explicit(&s->n_survivors, 0, memory_order_relaxed);
    }
    h->n_rows++;
}

size_t bn_head_rows(const struct bn_head *h) { return h->n_rows; }

/* What a profile should know: some rows of the matrix or a copy, which has `bytes` in all, times n
 * hidden states. */
static void note_work(const struct bn_head *h, uint64_t bytes, struct bn_range rows, size_t n,
                      uint32_t worker)
{
    const struct bn_config *c = &h->m->config;
    if (!bn_prof_on(h->prof)) return;
    bn_prof_work(h->prof, worker, bn_rows_bytes(bytes, c->n_vocab, rows),
                 (uint64_t)(rows.end - rows.begin) * c->n_embd * n);
}

static void norm(struct bn_head *h, const float *x, float *normed, uint32_t worker)
{
    const struct bn_config *c = &h->m->config;
    bn_prof_mark(h->prof, worker, BN_OP_HEAD_NORM);
    for (size_t i = worker; i < h->n_rows; i += bn_pool_threads(h->pool)) {
        float *to = normed + i * c->n_embd;
        h->m->kernels.rmsnorm(to, x + (size_t)h->rows[i].token * c->n_embd, h->m->out_norm,
                              c->n_embd, c->eps);
        if (h->o.int8) bn_head_int8_put(&h->int8, i, to);
        uint32_t s = h->rows[i].slot;
        if (s != UINT32_MAX)
            h->slots[s].good =
                bn_head_vector(&h->vectors[s], h->m, h->planes + s * 2 * h->plane_bytes, to, h->t,
                               !h->o.no_margin);
    }
}

/* ------------------------------------------------------------------ candidates */

static struct bn_scored *candidates_of(struct bn_head *h, uint32_t worker, size_t slot)
{
    return h->candidates + (worker * h->o.max_screened + slot) * MAX_CANDIDATES;
}

/* Scores and bounds of logits become those of what a draw compares. Rounding up in double, then to
 * float, keeps a bound one. */
static void add_noise(float *score, float *upper, size_t r, size_t n, const struct bn_want *w)
{
    for (size_t i = 0; i < n; i++) {
        double g = bn_gumbel_bound(bn_gumbel_unit(w->noise, r + i));
        double u = (double)upper[i] * w->inv_t + g;
        score[i] = (float)((double)score[i] * w->inv_t + g);
        upper[i] = (float)(u + fabs(u) * 0x1p-22);
    }
}

/* Bounds of rows [r, end) and of n tokens from slot `first` on. */
static void screen_tile(struct bn_head *h, size_t first, size_t n, size_t r, size_t end,
                        uint32_t worker)
{
    float score[VECTORS][TILE], upper[VECTORS][TILE];
    uint32_t *counts = h->n_candidates + worker * h->o.max_screened;
    const struct bn_screen *copy = bn_model_screen(h->m, bn_pool_node(h->pool, worker));
    h->m->kernels.screen4(score[0], upper[0], TILE, copy, r, end, h->vectors + first, n);
    for (size_t i = 0; i < n; i++) {
        const struct slot *s = &h->slots[first + i];
        const struct bn_want *want = &h->rows[s->row].want;
        struct bn_scored *best = candidates_of(h, worker, first + i);
        if (want->kind == BN_WANT_DRAW) add_noise(score[i], upper[i], r, end - r, want);
        uint32_t count = counts[first + i];
        memcpy(h->logits + (size_t)s->row * h->m->config.n_vocab + r, upper[i],
               (end - r) * sizeof(float));
        for (size_t k = r; k < end; k++)
            if (count < s->n_candidates || score[i][k - r] > best[0].score)
                count = bn_best_push(best, count, s->n_candidates,
                                     (struct bn_scored){score[i][k - r], (uint32_t)k});
        counts[first + i] = count;
    }
}

static void screen(struct bn_head *h, uint32_t worker)
{
    struct bn_range some;
    bn_prof_mark(h->prof, worker, BN_OP_SCREEN);
    memset(h->n_candidates + worker * h->o.max_screened, 0, h->n_slots * sizeof *h->n_candidates);
    bn_pool_deal(h->pool, worker, h->m->config.n_vocab, BN_SCREEN_ROWS, false);
    while (bn_pool_take(h->pool, worker, &some)) {
        note_work(h, h->m->head_copy_bytes, some, h->n_slots, worker);
        for (size_t r = some.begin; r < some.end; r += TILE)
            for (size_t i = 0; i < h->n_slots; i += VECTORS)
                screen_tile(h, i, bn_min_size(VECTORS, h->n_slots - i), r,
                            bn_min_size(r + TILE, some.end), worker);
    }
}

/* ------------------------------------------------------------------ survivors */

/* Whether rows read one by one should not stay: not where full passes need the whole matrix now and
 * then. */
static bool scattered(const struct bn_head *h)
{
    return !h->keep && h->m->head.stored.bytes > release_bytes && h->touched_full == h->stats.full;
}

static void release(const struct bn_head *h, uint32_t worker)
{
    bn_prof_mark(h->prof, worker, BN_OP_RELEASE);
    bn_source_release(&h->m->source, h->tensor);
}

/* The true logits of a few rows, at most RESCORE. */
static void rescore(struct bn_head *h, float *out, const uint32_t *ids, size_t n, const float *x,
                    uint32_t worker)
{
    const struct bn_stored *w = &h->m->head.stored;
    float *decoded = h->decoded + worker * ROWS * w->cols;
    for (size_t i = 0; i < n; i++)
        bn_stored_dots(&h->m->kernels, out + i, 1, w, ids[i], 1, x, w->cols, 1, decoded);
    if (scattered(h)) release(h, worker);
}

static float round_down(double x)
{
    float f = (float)x;
    return (double)f > x ? nextafterf(f, -INFINITY) : f;
}

static float draw_threshold(const struct bn_want *w, const uint32_t *ids, const float *logit,
                            uint32_t n)
{
    double most = -(double)INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double y = (double)logit[i] * w->inv_t + bn_gumbel(bn_gumbel_unit(w->noise, ids[i]));
        most = y > most ? y : most;
    }
    return round_down(most);
}

/* The same on every worker: the best candidates of all, their true logits, and from these the
 * logit that the wanted ones have at least. */
static float threshold(struct bn_head *h, size_t slot, const float *x, uint32_t worker)
{
    const struct slot *s = &h->slots[slot];
    const struct bn_want *want = &h->rows[s->row].want;
    struct bn_scored best[MAX_CANDIDATES] = {{0}};
    uint32_t ids[MAX_CANDIDATES] = {0}, n = 0;
    float logit[MAX_CANDIDATES] = {0};
    for (uint32_t w = 0; w < bn_pool_threads(h->pool); w++)
        for (uint32_t i = 0; i < h->n_candidates[w * h->o.max_screened + slot]; i++)
            n = bn_best_push(best, n, s->n_candidates, candidates_of(h, w, slot)[i]);
    for (uint32_t i = 0; i < n; i++) ids[i] = best[i].id;
    for (uint32_t i = 0; i < n; i += RESCORE) {
        bn_prof_mark(h->prof, worker, BN_OP_RESCORE);
        rescore(h, logit + i, ids + i, bn_min_size(RESCORE, n - i), x, worker);
    }
    bn_prof_mark(h->prof, worker, BN_OP_CHOOSE);
    if (want->kind == BN_WANT_DRAW) return draw_threshold(want, ids, logit, n);
    for (uint32_t i = 1; i < n; i++) { /* sorted, the largest first */
        float v = logit[i];
        uint32_t k = i;
        for (; k > 0 && logit[k - 1] < v; k--) logit[k] = logit[k - 1];
        logit[k] = v;
    }
    float least = want->k > 0 && want->k <= n ? logit[want->k - 1] : -INFINITY;
    if (want->below < (double)INFINITY) {
        float floor = round_down((double)logit[0] - want->below);
        if (floor > least) least = floor;
    }
    return least;
}

/* This worker's rows: those that may reach the threshold join the list, all become -infinity. */
static void collect(struct bn_head *h, size_t slot, const float *x, uint32_t worker)
{
    struct slot *s = &h->slots[slot];
    size_t vocab = h->m->config.n_vocab;
    struct bn_range share = bn_pool_share(h->pool, worker, vocab, BN_SCREEN_ROWS);
    float least = threshold(h, slot, x, worker), *upper = h->logits + s->row * vocab;
    uint32_t n = 0;
    for (size_t r = share.begin; r < share.end; r++) n += upper[r] >= least;
    uint32_t at = atomic_fetch_add(&s->n_survivors, n);
    bool fits = n <= h->o.limit && at <= h->o.limit - n;
    uint32_t *list = h->survivors + slot * h->o.limit + (fits ? at : 0);
    for (size_t r = share.begin; r < share.end; r++) {
        if (fits && upper[r] >= least) *list++ = (uint32_t)r;
        upper[r] = -INFINITY;
    }
}

static void rescore_share(struct bn_head *h, size_t slot, const float *x, uint32_t worker)
{
    struct slot *s = &h->slots[slot];
    float *logits = h->logits + (size_t)s->row * h->m->config.n_vocab, y[RESCORE];
    struct bn_range share = bn_pool_share(h->pool, worker, atomic_load(&s->n_survivors), 1);
    for (size_t i = share.begin; i < share.end; i += RESCORE) {
        const uint32_t *ids = h->survivors + slot * h->o.limit + i;
        size_t n = bn_min_size(RESCORE, share.end - i);
        bn_prof_mark(h->prof, worker, BN_OP_RESCORE);
        note_work(h, h->m->head.stored.bytes, (struct bn_range){i, i + n}, 1, worker);
        rescore(h, y, ids, n, x, worker);
        for (size_t k = 0; k < n; k++) logits[ids[k]] = y[k];
    }
}

/* ------------------------------------------------------------------ the full pass */

static enum how how(const struct bn_head *h, const struct row *row)
{
    if (row->slot == UINT32_MAX) return FULL;
    const struct slot *s = &h->slots[row->slot];
    return s->good && atomic_load(&s->n_survivors) <= h->o.limit ? SCREENED : FALLBACK;
}

/* A few rows of the matrix are decoded, then meet the rows of logits that take all of them; those
 * that stand together, together. */
static void full_pass(struct bn_head *h, const float *normed, size_t n_full, uint32_t worker)
{
    const struct bn_stored *w = &h->m->head.stored;
    size_t vocab = h->m->config.n_vocab, cols = w->cols;
    float *decoded = h->decoded + worker * ROWS * cols;
    struct bn_range share = bn_pool_share(h->pool, worker, vocab, ROWS);
    bn_prof_mark(h->prof, worker, BN_OP_HEAD);
    note_work(h, w->bytes, share, n_full, worker);
    for (size_t r = share.begin; r < share.end; r += ROWS) {
        size_t some = bn_min_size(ROWS, share.end - r);
        for (size_t from = 0, to; from < h->n_rows; from = to + 1) {
            for (to = from; to < h->n_rows && how(h, &h->rows[to]) != SCREENED;) to++;
            if (to > from)
                bn_stored_dots(&h->m->kernels, h->logits + from * vocab + r, vocab, w, r, some,
                               normed + from * cols, cols, to - from, decoded);
        }
    }
}

void bn_head_work(struct bn_head *h, const float *x, float *normed, uint32_t worker)
{
    size_t cols = h->m->config.n_embd, vocab = h->m->config.n_vocab, n_full = 0;
    norm(h, x, normed, worker);
    bn_pool_barrier(h->pool, worker);
    if (h->o.int8) {
        struct bn_range share = bn_pool_share(h->pool, worker, vocab, BN_DENSE8_ROWS);
        bn_prof_mark(h->prof, worker, BN_OP_HEAD);
        note_work(h, h->m->head_copy_bytes, share, h->n_rows, worker);
        bn_head_int8_pass(&h->int8, bn_model_head_int8(h->m, bn_pool_node(h->pool, worker)),
                          h->logits, h->n_rows, share);
        return;
    }
    if (h->n_slots) {
        screen(h, worker);
        bn_pool_barrier(h->pool, worker);
        bn_prof_mark(h->prof, worker, BN_OP_CHOOSE);
        for (size_t i = 0; i < h->n_slots; i++)
            if (h->slots[i].good) collect(h, i, normed + h->slots[i].row * cols, worker);
        bn_pool_barrier(h->pool, worker);
    }
    for (size_t i = 0; i < h->n_rows; i++) {
        if (how(h, &h->rows[i]) == SCREENED)
            rescore_share(h, h->rows[i].slot, normed + i * cols, worker);
        else n_full++;
    }
    if (n_full) full_pass(h, normed, n_full, worker);
}

/* ------------------------------------------------------------------ counts */

/* Not where full passes need the whole matrix now and then. n: rows read in this call. */
static void release_pages(struct bn_head *h, uint64_t n)
{
    uint64_t row_bytes = h->m->head.stored.bytes / h->m->head.stored.rows;
    h->touched_bytes += n * (row_bytes > fault_bytes ? row_bytes : fault_bytes);
    if (h->keep || h->touched_bytes <= release_bytes) return;
    if (h->o.int8 || h->touched_full == h->stats.full) release(h, 0);
    h->touched_full = h->stats.full;
    h->touched_bytes = 0;
}

/* The matrix is read once for all that need all of it, and so is the copy. */
static void count_bytes(struct bn_head *h, bool full, uint64_t survivors)
{
    const struct bn_stored *w = &h->m->head.stored;
    bool copy = h->n_slots || (full && h->o.int8);
    h->read_bytes = survivors * (w->bytes / w->rows);
    if (copy) h->read_bytes += h->m->head_copy_bytes;
    if (full && !h->o.int8) h->read_bytes += w->bytes;
}

void bn_head_end(struct bn_head *h)
{
    uint64_t before = h->stats.survivors, full_before = h->stats.full;
    struct bn_head_stats *s = &h->stats;
    for (size_t i = 0; i < h->n_rows; i++) {
        struct row *row = &h->rows[i];
        row->how = how(h, row);
        s->full += row->how != SCREENED;
        s->fallbacks += row->how == FALLBACK;
        if (row->how != SCREENED) continue;
        uint32_t n = atomic_load(&h->slots[row->slot].n_survivors), log2 = 0;
        while (log2 + 1 < BN_HEAD_HISTOGRAM && n > 1u << log2) log2++;
        s->histogram[log2]++;
        s->screened++;
        s->survivors += n;
        if (n > s->survivors_max) s->survivors_max = n;
    }
    count_bytes(h, s->full > full_before, s->survivors - before);
    /* beside the int8 copy only embeddings are read there, about one a row of logits */
    release_pages(h, h->o.int8 ? h->n_rows : s->survivors - before);
}

bool bn_head_was_screened(const struct bn_head *h, size_t row)
{
    return h->rows[row].how == SCREENED;
}

uint64_t bn_head_read_bytes(const struct bn_head *h) { return h->read_bytes; }
