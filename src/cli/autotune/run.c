/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune/run.c: from the default to the choice, one question after the other. Threads and layout are
 * asked together, since the better layout depends on the threads; what is left has little to do
 * with each other. In the end the choice must beat the default side by side, or the default stays.
 */
#include "base/clock.h"
#include "app/machine_report.h"
#include "base/machine/cores.h"
#include "base/os/mem.h"
#include "app/term.h"
#include "cli/autotune/autotune.h"
#include <stdlib.h>

enum { THREADS_ALL = 8, THREADS_MAX = 16, LAYOUTS_MAX = 4 };

static const uint32_t distances[] = {1, 1024, 2048, 4096, 8192, 16384}; /* bytes; 1: none */
static const uint32_t batches[] = {64, 128, 256, 512, 1024, 2048, 4096};

/* Shares of the budget at whose end the questions must be through. */
static const double end_threads = 0.45, end_threads_tie = 0.5, end_pin = 0.58, end_prefetch = 0.72,
                    end_batch = 0.85, end_check = 0.95, end_check_tie = 1;

/* A run with what its parts share. */
struct run {
    struct autotune *autotune;
    struct autotune_rig *rig;
    struct autotune_stage *stage;
    uint64_t start_ns, end_ns; /* of all; of the stage */
    struct term_progress bar;
    uint32_t threads[THREADS_MAX];
    const char *layouts[LAYOUTS_MAX];
    size_t n_threads, n_layouts;
    uint64_t done, total; /* sweep: measurements; total 0: a search, which counts seconds */
};

/* ------------------------------------------------------------------ stages */

static bitnet_status begin(struct run *r, const char *name, enum autotune_metric metric, size_t n,
                           bitnet_error *err)
{
    struct autotune_stage *g = r->stage = &r->autotune->stages[r->autotune->n_stages++];
    *g = (struct autotune_stage){.metric = metric};
    snprintf(g->name, sizeof g->name, "%s", name);
    g->points = bn_calloc(n, sizeof *g->points);
    g->search = bn_calloc(1, sizeof *g->search);
    if (!g->points || !g->search) return bn_fail_nomem(err, sizeof *g->search, "the candidates");
    g->search->rounds_max = AUTOTUNE_ROUNDS_MAX;
    return BITNET_OK;
}

static void add(struct run *r, struct autotune_point p)
{
    struct autotune_search *s = r->stage->search;
    if (autotune_point_same(&p, &r->autotune->choice)) s->preferred = s->n;
    r->stage->points[s->n++] = p;
}

static bitnet_status measure(void *user, size_t i, double *rate, bitnet_error *err)
{
    struct run *r = user;
    uint64_t seconds = (bn_now_ns() - r->start_ns) / 1000000000;
    uint64_t done = r->total ? r->done++ : bn_min_size(seconds, r->autotune->settings->budget_s);
    uint64_t total = r->total ? r->total : r->autotune->settings->budget_s;
    if (term_progress_show(&r->bar, r->stage->name, done, total))
        return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
    return autotune_rig_measure(r->rig, r->stage->metric, &r->stage->points[i], rate, err);
}

static bool time_left(void *user)
{
    const struct run *r = user;
    return bn_now_ns() < r->end_ns;
}

/* The stage's candidates until that share of the budget is used; what is chosen becomes the choice. */
static bitnet_status search(struct run *r, double share, bitnet_error *err)
{
    struct autotune_stage *g = r->stage;
    r->end_ns = r->start_ns + (uint64_t)(share * 1e9 * r->autotune->settings->budget_s);
    g->search->measure = measure;
    g->search->time_left = time_left;
    g->search->user = r;
    BN_TRY(autotune_search_run(g->search, err));
    r->autotune->choice = g->points[g->search->choice];
    return BITNET_OK;
}

/* Those that the stage before could not tell apart, by another measure. */
static bitnet_status break_tie(struct run *r, enum autotune_metric metric, double share,
                               bitnet_error *err)
{
    const struct autotune_stage *before = r->stage;
    if (autotune_search_left(before->search) < 2) return BITNET_OK;
    BN_TRY(begin(r, before->name, metric, before->search->n, err));
    for (size_t i = 0; i < before->search->n; i++)
        if (!before->search->candidates[i].dropped) add(r, before->points[i]);
    return search(r, share, err);
}

/* ------------------------------------------------------------------ questions */

/* All numbers on small machines; on others powers of two, three quarters and all. */
static void list_threads(struct run *r)
{
    uint32_t usable = bn_usable_cores(), start = r->autotune->start.threads;
    for (uint32_t n = 1; n <= usable && n <= AUTOTUNE_FILE_MAX_THREADS;
         n = usable <= THREADS_ALL ? n + 1 : 2 * n)
        r->threads[r->n_threads++] = n;
    const uint32_t more[] = {usable / 4 * 3, usable, start};
    for (size_t i = 0; i < BN_ARRAY_LEN(more); i++) {
        bool known = more[i] < 1 || more[i] > AUTOTUNE_FILE_MAX_THREADS;
        for (size_t k = 0; k < r->n_threads; k++) known |= r->threads[k] == more[i];
        if (!known) r->threads[r->n_threads++] = more[i];
    }
}

static bitnet_status list_layouts(struct run *r, bitnet_error *err)
{
    /* b1 is the default wherever it is fast */
    static const char *const plain[] = {"t2", "t3", "t5"}, *const grouped[] = {"g2", "g3", "g5"};
    const char *start = r->autotune->start.layout;
    r->layouts[r->n_layouts++] = start;
    if (strcmp(start, "auto") == 0) return BITNET_OK;
    const char *const *others = start[0] == 'g' ? grouped : plain;
    for (size_t i = 0; i < BN_ARRAY_LEN(plain); i++) {
        bool is;
        if (strcmp(others[i], start) == 0) continue;
        BN_TRY(autotune_rig_try_layout(r->rig, others[i], &is, err));
        if (is) r->layouts[r->n_layouts++] = others[i];
    }
    return BITNET_OK;
}

static enum autotune_metric second_metric(enum autotune_metric first)
{
    return first == AUTOTUNE_PREFILL ? AUTOTUNE_DECODE : AUTOTUNE_PREFILL;
}

static bitnet_status ask_threads(struct run *r, bitnet_error *err)
{
    enum autotune_metric metric = r->autotune->settings->metric;
    BN_TRY(begin(r, "threads and layout", metric, r->n_threads * r->n_layouts, err));
    for (size_t l = 0; l < r->n_layouts; l++)
        for (size_t i = 0; i < r->n_threads; i++) {
            struct autotune_point p = r->autotune->start;
            p.layout = r->layouts[l];
            p.threads = r->threads[i];
            add(r, p);
        }
    r->stage->search->rounds_min = AUTOTUNE_ROUNDS_TELLING;
    BN_TRY(search(r, end_threads, err));
    return break_tie(r, second_metric(metric), end_threads_tie, err);
}

static bitnet_status ask_pin(struct run *r, bitnet_error *err)
{
    struct autotune_point p = r->autotune->choice;
    if (p.threads < 2) return BITNET_OK;
    BN_TRY(begin(r, "pin", r->autotune->settings->metric, 2, err));
    add(r, p);
    p.pin = true;
    add(r, p);
    return search(r, end_pin, err);
}

static bitnet_status ask_prefetch(struct run *r, bitnet_error *err)
{
    struct autotune_point p = r->autotune->choice;
    if (!p.prefetch_bytes) return BITNET_OK;
    BN_TRY(begin(r, "prefetch", r->autotune->settings->metric, BN_ARRAY_LEN(distances), err));
    for (size_t i = 0; i < BN_ARRAY_LEN(distances); i++) {
        p.prefetch_bytes = distances[i];
        add(r, p);
    }
    return search(r, end_prefetch, err);
}

/* Of a prompt that is shorter, a batch takes all, whatever its size; the default is always asked. */
static bool batch_matters(const struct run *r, uint32_t batch)
{
    return batch == r->autotune->start.batch_tokens ||
           batch <= r->autotune->settings->prompt_tokens;
}

static bitnet_status ask_batch(struct run *r, bitnet_error *err)
{
    struct autotune_point p = r->autotune->choice;
    if (r->autotune->settings->prompt_tokens < batches[0]) return BITNET_OK;
    BN_TRY(begin(r, "batch", AUTOTUNE_PREFILL, BN_ARRAY_LEN(batches), err));
    for (size_t i = 0; i < BN_ARRAY_LEN(batches); i++) {
        p.batch_tokens = batches[i];
        if (batch_matters(r, batches[i])) add(r, p);
    }
    return search(r, end_batch, err);
}

/* The default, which a tie goes to, beside the choice. */
static bitnet_status check(struct run *r, bitnet_error *err)
{
    struct autotune *t = r->autotune;
    struct autotune_point found = t->choice;
    t->checked = autotune_point_same(&found, &t->start);
    if (t->checked) return BITNET_OK;
    t->choice = t->start;
    BN_TRY(begin(r, "check", t->settings->metric, 2, err));
    add(r, t->start);
    add(r, found);
    r->stage->search->rounds_min = AUTOTUNE_ROUNDS_TELLING;
    BN_TRY(search(r, end_check, err));
    BN_TRY(break_tie(r, second_metric(t->settings->metric), end_check_tie, err));
    const struct autotune_search *s = r->stage->search;
    t->checked = autotune_search_left(s) == 1 || s->rounds == s->rounds_max;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the sweep */

/* All candidates of the stage, so many rounds. */
static bitnet_status measure_all(struct run *r, size_t rounds, bitnet_error *err)
{
    struct autotune_search *s = r->stage->search;
    s->rounds_max = rounds;
    s->keep_all = true;
    s->measure = measure;
    s->time_left = time_left;
    s->user = r;
    r->end_ns = UINT64_MAX;
    r->done = 0;
    r->total = s->n * rounds;
    return autotune_search_run(s, err);
}

/* The best of many noisy figures owes a part of its place to luck: so it has to show it once more, side
 * by side with the choice. */
static bitnet_status sweep(struct run *r, bitnet_error *err)
{
    struct autotune_stage *g = r->stage;
    BN_TRY(measure_all(r, r->autotune->settings->sweep_rounds, err));
    g->is_sweep = true;
    if (g->search->best == g->search->preferred) return BITNET_OK;
    BN_TRY(begin(r, "its best again", g->metric, 2, err));
    add(r, g->points[g->search->preferred]);
    add(r, g->points[g->search->best]);
    r->stage->is_rematch = true;
    return measure_all(r, AUTOTUNE_ROUNDS_MAX, err);
}

/* Models outermost: where memory does not hold all of them, each is opened once a round. */
static bitnet_status sweep_all(struct run *r, bitnet_error *err)
{
    struct autotune_point p = r->autotune->choice;
    size_t n_distances = p.prefetch_bytes ? BN_ARRAY_LEN(distances) : 1;
    BN_TRY(begin(r, "sweep", r->autotune->settings->metric,
                 2 * LAYOUTS_MAX * THREADS_MAX * n_distances, err));
    for (size_t l = 0; l < r->n_layouts; l++)
        for (size_t d = 0; d < n_distances; d++)
            for (size_t i = 0; i < r->n_threads; i++)
                for (int pin = 0; pin < (r->threads[i] > 1 ? 2 : 1); pin++) {
                    p.layout = r->layouts[l];
                    if (p.prefetch_bytes) p.prefetch_bytes = distances[d];
                    p.threads = r->threads[i];
                    p.pin = pin;
                    add(r, p);
                }
    return sweep(r, err);
}

static bitnet_status sweep_batches(struct run *r, bitnet_error *err)
{
    struct autotune_point p = r->autotune->choice;
    BN_TRY(begin(r, "sweep of batches", AUTOTUNE_PREFILL,
                 LAYOUTS_MAX * THREADS_MAX * BN_ARRAY_LEN(batches), err));
    for (size_t l = 0; l < r->n_layouts; l++)
        for (size_t i = 0; i < r->n_threads; i++)
            for (size_t b = 0; b < BN_ARRAY_LEN(batches); b++) {
                p.layout = r->layouts[l];
                p.threads = r->threads[i];
                p.batch_tokens = batches[b];
                if (batch_matters(r, batches[b])) add(r, p);
            }
    return sweep(r, err);
}

/* ------------------------------------------------------------------ all of it */

static bitnet_status ask(struct run *r, bitnet_error *err)
{
    struct autotune *t = r->autotune;
    BN_TRY(autotune_rig_open(&r->rig, t->settings, err));
    autotune_rig_default(r->rig, &t->start);
    t->choice = t->start;
    list_threads(r);
    BN_TRY(list_layouts(r, err));
    BN_TRY(ask_threads(r, err));
    BN_TRY(ask_pin(r, err));
    BN_TRY(ask_prefetch(r, err));
    BN_TRY(ask_batch(r, err));
    BN_TRY(check(r, err));
    t->used_s = (double)(bn_now_ns() - r->start_ns) / 1e9;
    if (!t->settings->sweep_rounds) return BITNET_OK;
    BN_TRY(sweep_all(r, err));
    return sweep_batches(r, err);
}

bitnet_status autotune_run(struct autotune *t, bitnet_error *err)
{
    struct run r = {.autotune = t, .start_ns = bn_now_ns()};
    struct machine_clock from = machine_clock_now();
    bitnet_status s = ask(&r, err);
    struct machine_clock to = machine_clock_now();
    t->others = machine_others(&from, &to);
    term_progress_end(&r.bar);
    autotune_rig_close(r.rig);
    return s;
}

void autotune_free(struct autotune *t)
{
    for (size_t i = 0; i < t->n_stages; i++) {
        free(t->stages[i].points);
        free(t->stages[i].search);
    }
    t->n_stages = 0;
}

void autotune_result(const struct autotune *t, struct autotune_values *out)
{
    const struct autotune_point *p = &t->choice, *d = &t->start;
    *out = (struct autotune_values){0};
    machine_date(out->date, sizeof out->date);
    /* the default layout depends on the threads */
    if (p->threads != d->threads || strcmp(p->layout, d->layout) != 0) {
        out->threads = p->threads;
        if (strcmp(p->layout, "auto") != 0)
            snprintf(out->layout, sizeof out->layout, "%s", p->layout);
    }
    if (p->pin) snprintf(out->pin, sizeof out->pin, "on");
    if (p->prefetch_bytes != d->prefetch_bytes) out->prefetch_bytes = p->prefetch_bytes;
    if (p->batch_tokens != d->batch_tokens) out->batch_tokens = p->batch_tokens;
}
