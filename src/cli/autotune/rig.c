/* SPDX-License-Identifier: Apache-2.0
 *
 * rig.c: speeds of single points. Packing a model takes seconds and a fresh engine runs slowly at
 * first, so both stay open for the next round: models by layout and prefetch distance, lanes
 * (engines with a plan of one measurement) by point. The least recently used go when there are too
 * many or memory becomes scarce; then a search takes longer, and finds the same.
 */
#include "base/os/mem.h"
#include "app/term.h"
#include "cli/autotune/autotune.h"
#include <stdlib.h>

enum {
    MODELS_MAX = 18, /* three layouts, six distances */
    LANES_MAX = 48,
    SERVE_REQUESTS = 8,
    STEPS_MIN = 16 /* decoding steps of one measurement */
};
/* one measurement should take this share of the budget, within limits */
static const double measure_share = 1.0 / 400, measure_min_s = 0.05, measure_max_s = 1;

struct rig_model {
    bitnet_model *model; /* owned; NULL: the place is free */
    const char *layout;
    uint32_t prefetch_bytes;
    uint64_t used; /* turn */
};

struct rig_lane {
    struct rig_model *on; /* NULL: the place is free */
    enum autotune_metric metric;
    struct autotune_point point;
    struct bench_settings settings;
    struct bench bench;
    uint64_t used;
};

struct autotune_rig {
    const struct autotune_settings *settings;
    struct rig_model models[MODELS_MAX];
    struct rig_lane lanes[LANES_MAX];
    uint64_t turn, model_bytes; /* of one */
    uint32_t n_new, prompt_tokens;
    struct autotune_point start;
};

bool autotune_point_same(const struct autotune_point *a, const struct autotune_point *b)
{
    return a->threads == b->threads && a->batch_tokens == b->batch_tokens &&
           a->prefetch_bytes == b->prefetch_bytes && a->pin == b->pin &&
           strcmp(a->layout, b->layout) == 0;
}

const char *autotune_metric_name(enum autotune_metric m)
{
    static const char *const names[] = {"decode", "prefill", "serve"};
    return (unsigned)m < BN_ARRAY_LEN(names) ? names[m] : "unknown";
}

/* ------------------------------------------------------------------ models */

static void close_lane(struct rig_lane *l)
{
    bench_free(&l->bench);
    *l = (struct rig_lane){0};
}

static void close_lanes(struct autotune_rig *r, const struct rig_model *on)
{
    for (size_t i = 0; i < LANES_MAX; i++)
        if (r->lanes[i].on && (!on || r->lanes[i].on == on)) close_lane(&r->lanes[i]);
}

static void close_model(struct autotune_rig *r, struct rig_model *m)
{
    close_lanes(r, m);
    bitnet_model_close(m->model);
    *m = (struct rig_model){0};
}

/* A free place, and memory for what comes there. */
static struct rig_model *make_place(struct autotune_rig *r)
{
    for (;;) {
        struct rig_model *place = NULL, *oldest = NULL;
        for (size_t i = 0; i < MODELS_MAX; i++) {
            struct rig_model *m = &r->models[i];
            if (!m->model) place = m;
            else if (!oldest || m->used < oldest->used) oldest = m;
        }
        uint64_t available = term_available_bytes();
        bool scarce = available && available < 2 * r->model_bytes;
        if (place && (!scarce || !oldest)) return place;
        close_model(r, oldest);
    }
}

static bitnet_status get_model(struct autotune_rig *r, const char *layout, uint32_t prefetch_bytes,
                               struct rig_model **out, bitnet_error *err)
{
    for (size_t i = 0; i < MODELS_MAX; i++) {
        struct rig_model *m = &r->models[i];
        if (!m->model || m->prefetch_bytes != prefetch_bytes || strcmp(m->layout, layout) != 0)
            continue;
        m->used = ++r->turn;
        *out = m;
        return BITNET_OK;
    }
    struct rig_model *m = *out = make_place(r);
    struct model_opts o = r->settings->model;
    bitnet_model_options mo;
    o.layout = layout;
    o.prefetch_bytes = prefetch_bytes;
    model_options(&mo, &o, r->settings->engine.head, r->settings->engine.ffn);
    BN_TRY(bitnet_model_open(&m->model, r->settings->path, &mo, err));
    m->layout = layout;
    m->prefetch_bytes = prefetch_bytes;
    m->used = ++r->turn;
    return BITNET_OK;
}

bitnet_status autotune_rig_try_layout(struct autotune_rig *r, const char *layout, bool *is,
                                      bitnet_error *err)
{
    struct rig_model *m;
    BN_TRY(get_model(r, layout, r->start.prefetch_bytes, &m, err));
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m->model, &info);
    *is = strcmp(info.layout, layout) == 0;
    if (!*is) close_model(r, m);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ lanes */

static void plan_lane(const struct autotune_rig *r, struct bench_settings *s,
                      enum autotune_metric metric, const struct autotune_point *p)
{
    static const enum bench_mode modes[] = {BENCH_STREAM, BENCH_PREFILL, BENCH_BATCH};
    struct model_opts m = r->settings->model;
    struct engine_opts e = r->settings->engine;
    m.threads = p->threads;
    m.pin = p->pin ? "on" : "off";
    e.batch_tokens = p->batch_tokens;
    *s = (struct bench_settings){.prompt_tokens = {{r->prompt_tokens}, 1},
                                 .batch_sizes = {{SERVE_REQUESTS}, 1},
                                 .max_new_tokens = r->n_new,
                                 .repeat = 1,
                                 .seed = r->settings->seed,
                                 .tuned = ""};
    s->modes[modes[metric]] = true;
    model_engine_options(&s->engine, &m, &e);
}

static bitnet_status get_lane(struct autotune_rig *r, enum autotune_metric metric,
                              const struct autotune_point *p, struct rig_lane **out,
                              bitnet_error *err)
{
    struct rig_lane *l = &r->lanes[0];
    for (size_t i = 0; i < LANES_MAX; i++) {
        struct rig_lane *x = &r->lanes[i];
        if (x->on && x->metric == metric && autotune_point_same(&x->point, p)) {
            x->used = x->on->used = ++r->turn;
            *out = x;
            return BITNET_OK;
        }
        if (x->used < l->used) l = x; /* free ones were never used */
    }
    if (l->on) close_lane(l);
    struct rig_model *on;
    BN_TRY(get_model(r, p->layout, p->prefetch_bytes, &on, err));
    *l = (struct rig_lane){.on = on, .metric = metric, .point = *p, .used = ++r->turn};
    plan_lane(r, &l->settings, metric, p);
    l->bench.settings = &l->settings;
    l->bench.model = on->model;
    bitnet_status s = bench_open(&l->bench, err);
    if (s == BITNET_OK) s = bench_measure(&l->bench, l->bench.items, false, err); /* warm */
    if (s != BITNET_OK) close_lane(l);
    *out = l;
    return s;
}

bitnet_status autotune_rig_measure(struct autotune_rig *r, enum autotune_metric metric,
                                   const struct autotune_point *p, double *rate, bitnet_error *err)
{
    struct rig_lane *l;
    BN_TRY(get_lane(r, metric, p, &l, err));
    struct bench_measurement *m = l->bench.items;
    m->n_repeats = m->n_steps = 0;
    BN_TRY(bench_measure(&l->bench, m, true, err));
    *rate = m->rates[0];
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the rig */

/* The default, by the names of what it turns out to be. */
static bitnet_status find_default(struct autotune_rig *r, bitnet_error *err)
{
    static const char *const layouts[] = {"t2", "t3", "t5", "b1", "g2", "g3", "g5"};
    struct rig_model *m;
    BN_TRY(get_model(r, "auto", 0, &m, err));
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m->model, &info);
    const char *layout = "auto"; /* "mixed", or none at all */
    for (size_t i = 0; i < BN_ARRAY_LEN(layouts); i++)
        if (strcmp(info.layout, layouts[i]) == 0) layout = layouts[i];
    r->model_bytes = info.memory.packed_bytes;
    r->prompt_tokens = (uint32_t)bn_min_size(r->settings->prompt_tokens, info.shape.n_ctx_train);
    r->start = (struct autotune_point){.threads = bitnet_default_threads(),
                                       .batch_tokens = 512,
                                       .prefetch_bytes = info.memory.prefetch_bytes,
                                       .layout = layout};
    m->layout = layout;
    m->prefetch_bytes = info.memory.prefetch_bytes;
    return BITNET_OK;
}

/* As many tokens as take the time that a measurement should. */
static bitnet_status find_length(struct autotune_rig *r, bitnet_error *err)
{
    double rate, seconds = r->settings->budget_s * measure_share;
    r->n_new = STEPS_MIN;
    BN_TRY(autotune_rig_measure(r, AUTOTUNE_DECODE, &r->start, &rate, err));
    if (seconds < measure_min_s) seconds = measure_min_s;
    if (seconds > measure_max_s) seconds = measure_max_s;
    double n = rate * seconds;
    if (n > STEPS_MIN) r->n_new = (uint32_t)bn_min_size((size_t)n, r->settings->max_new_tokens);
    close_lanes(r, NULL); /* they are of another length */
    return BITNET_OK;
}

bitnet_status autotune_rig_open(struct autotune_rig **out, const struct autotune_settings *s,
                                bitnet_error *err)
{
    struct autotune_rig *r = *out = bn_calloc(1, sizeof *r);
    if (!r) return bn_fail_nomem(err, sizeof *r, "the measurements");
    r->settings = s;
    BN_TRY(find_default(r, err));
    return find_length(r, err);
}

void autotune_rig_close(struct autotune_rig *r)
{
    for (size_t i = 0; r && i < MODELS_MAX; i++)
        if (r->models[i].model) close_model(r, &r->models[i]);
    free(r);
}

void autotune_rig_default(const struct autotune_rig *r, struct autotune_point *out)
{
    *out = r->start;
}
