/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting. What happens is counted as it happens; what others count (engine, connections, process) is
 * fetched by metrics_collect when somebody asks. Every collection is also kept for about a minute, so
 * that rates and recent quantiles are differences of two moments.
 */
#include "server/metrics/metrics_impl.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "app/process.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOMENT_NS = 500 * 1000 * 1000 }; /* between two moments that are kept */
#define BANDWIDTH_NS 5000000000u        /* steps that the share of the bandwidth looks at */

/* seconds: fine where replies live, so that a quantile read from them is good to a third or better */
static const double LATENCY[] = {
    0.0001, 0.0003, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1,
    0.15,   0.2,    0.3,   0.5,   0.75,  1,     1.5,    2.5,  5,     10,   20,   40,   60,    120};
static const double TOKENS[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
static const double BATCH[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
static const double RATIO[] = {0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15,
                               0.2,  0.3,  0.4,  0.5,  0.6,  0.8, 1};

#define NONE \
    {        \
        NULL \
    }
#define LABELS(...) \
    {               \
        __VA_ARGS__ \
    }
const struct metric_info metric_infos[N_METRICS] = {
#define COUNTER(id, name, labels, help) {METRIC_COUNTER, name, help, labels, NULL, 0},
#define GAUGE(id, name, labels, help)   {METRIC_GAUGE, name, help, labels, NULL, 0},
#define HISTOGRAM(id, name, buckets, help) \
    {METRIC_HISTOGRAM, name, help, NONE, buckets, BN_ARRAY_LEN(buckets)},
#include "server/metrics/metrics.def"
};
#undef NONE
#undef LABELS
_Static_assert(BN_ARRAY_LEN(LATENCY) <= METRIC_MAX_BUCKETS, "the longest list of bounds");

#define ABOVE true
#define BELOW false
#define NEVER NAN
const struct metric_alert metric_alerts[] = {
#define ALERT(name, metric, op, warn, critical, text) {name, M_##metric, op, warn, critical, text},
#include "server/metrics/metrics.def"
};
#undef ABOVE
#undef BELOW
#undef NEVER
const size_t n_metric_alerts = BN_ARRAY_LEN(metric_alerts);

/* ------------------------------------------------------------------ samples */

static void set(struct metrics *m, enum metric id, double v)
{
    m->families[id].samples[0].value = v;
}

static bool is_labelled(const struct sample *s, const char *const *label)
{
    for (size_t i = 0; i < METRIC_MAX_LABELS && (label[i] || s->label[i]); i++)
        if (!label[i] || !s->label[i] || strcmp(label[i], s->label[i]) != 0) return false;
    return true;
}

static struct sample *find(const struct family *f, const char *const *label)
{
    for (size_t i = 0; i < f->n; i++)
        if (is_labelled(&f->samples[i], label)) return &f->samples[i];
    return NULL;
}

/* A copy that is valid UTF-8, which both forms of output ask for. NULL: out of memory. */
static const char *keep_label(struct metrics *m, const char *s)
{
    if (!bn_utf8_valid(s, strlen(s), NULL)) s = "not UTF-8";
    size_t n = strlen(s);
    if (n > METRIC_LABEL_MAX_BYTES) {
        n = METRIC_LABEL_MAX_BYTES;
        n -= bn_utf8_tail(s, n);
    }
    return bn_arena_strn(&m->arena, s, n);
}

/* The sample with these labels; a new one is 0. The last place of a metric is for all that find none
 * of their own. NULL: out of memory. */
static struct sample *labelled(struct metrics *m, enum metric id,
                               const char *const label[METRIC_MAX_LABELS])
{
    static const char *const others[METRIC_MAX_LABELS] = {"other", "other", "other", "other"};
    struct family *f = &m->families[id];
    const char *wanted[METRIC_MAX_LABELS] = {NULL};
    struct sample *s = find(f, label);
    if (s) return s;
    bool full = f->n + 1 >= f->room;
    for (size_t i = 0; i < METRIC_MAX_LABELS && label[i]; i++)
        wanted[i] = full ? others[i] : label[i];
    if (full && (s = find(f, wanted))) return s;
    struct sample fresh = {.value = 0};
    for (size_t i = 0; i < METRIC_MAX_LABELS && wanted[i]; i++)
        if (!(fresh.label[i] = keep_label(m, wanted[i]))) return NULL;
    s = &f->samples[f->n++];
    *s = fresh;
    return s;
}

static void add_to(struct metrics *m, enum metric id, const char *l0, const char *l1, double v)
{
    struct sample *s = labelled(m, id, (const char *[METRIC_MAX_LABELS]){l0, l1});
    if (s) s->value += v;
}

static void add(struct metrics *m, enum metric id, double v)
{
    m->families[id].samples[0].value += v;
}

static void observe(struct metrics *m, enum metric id, double v)
{
    const struct metric_info *info = &metric_infos[id];
    struct histogram *h = m->families[id].histogram;
    size_t i = 0;
    while (i < info->n_bounds && v > info->bounds[i]) i++;
    h->count[i]++;
    h->total++;
    h->sum += v;
}

static void observe_ns(struct metrics *m, enum metric id, uint64_t ns)
{
    observe(m, id, (double)ns / 1e9);
}

/* ------------------------------------------------------------------ opening */

/* one a layer, or one a layer and side; what stands in them comes with metrics_collect */
static bool add_layers(struct metrics *m, enum metric id, uint32_t n_layers, const char *side)
{
    struct family *f = &m->families[id];
    for (uint32_t i = 0; i < n_layers; i++) {
        char number[16];
        snprintf(number, sizeof number, "%u", i);
        struct sample *s = &f->samples[f->n++];
        *s = (struct sample){.label = {keep_label(m, number), side}, .value = NAN};
        if (!s->label[0]) return false;
    }
    return true;
}

static bool open_family(struct metrics *m, int id, size_t room)
{
    struct family *f = &m->families[id];
    f->room = room;
    f->samples = bn_arena_alloc(&m->arena, room * sizeof *f->samples);
    return f->samples;
}

static bool is_layered(int id)
{
    return id == M_kv_entropy || id == M_kv_saturation || id == M_activation_zero;
}

/* Those by layer have to wait for a model. */
static bool open_families(struct metrics *m)
{
    struct histogram *next = m->histograms;
    for (int id = 0; id < N_METRICS; id++) {
        const struct metric_info *info = &metric_infos[id];
        struct family *f = &m->families[id];
        if (info->kind == METRIC_HISTOGRAM) {
            f->histogram = next++;
            continue;
        }
        if (is_layered(id)) continue;
        if (!open_family(m, id, info->labels[0] ? METRIC_MAX_SAMPLES : 1)) return false;
        if (info->labels[0]) continue;
        f->samples[f->n++].value = info->kind == METRIC_COUNTER ? 0 : NAN;
    }
    return true;
}

/* A file may have been replaced by another one before it was loaded again. */
bitnet_status metrics_set_model(struct metrics *m, const bitnet_model *model, bitnet_error *err)
{
    static const int layered[] = {M_kv_entropy, M_kv_saturation, M_activation_zero};
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(model, &info);
    uint32_t n = info.shape.n_layer;
    bool ok = true, same = m->model_name && strcmp(m->model_name, info.name) == 0 &&
                           m->families[M_activation_zero].n == n;
    if (same) return BITNET_OK;
    m->model_name = keep_label(m, info.name);
    m->backend = keep_label(m, info.backend);
    m->families[M_build_info].n = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(layered); i++) {
        m->families[layered[i]].n = 0;
        ok = ok && open_family(m, layered[i], 2 * (size_t)n);
    }
    if (ok && m->model_name && m->backend && add_layers(m, M_kv_entropy, n, "keys") &&
        add_layers(m, M_kv_entropy, n, "values") && add_layers(m, M_kv_saturation, n, "keys") &&
        add_layers(m, M_kv_saturation, n, "values") && add_layers(m, M_activation_zero, n, NULL))
        return BITNET_OK;
    return bn_fail_nomem(err, m->arena.used_bytes, "samples of metrics");
}

/* The words of OpenAI and vLLM. */
static const char *const finish_names[] = {
    [BITNET_FINISH_NONE] = "error",      [BITNET_FINISH_END] = "stop",
    [BITNET_FINISH_STOP] = "stop",       [BITNET_FINISH_LENGTH] = "length",
    [BITNET_FINISH_CANCELLED] = "abort", [BITNET_FINISH_ERROR] = "error",
    [BITNET_FINISH_TIMEOUT] = "timeout",
};

static void take_moment(struct metrics *m)
{
    struct moment *t = &m->moments[m->n_moments++ % METRICS_MOMENTS];
    t->ns = m->now_ns;
    for (int id = 0; id < N_METRICS; id++) t->value[id] = metrics_value(m, (enum metric)id);
    for (size_t h = 0; h < N_HISTOGRAMS; h++)
        for (size_t i = 0; i <= METRIC_MAX_BUCKETS; i++)
            t->count[h][i] = (uint32_t)m->histograms[h].count[i];
}

bitnet_status metrics_open(struct metrics **out, const struct metrics_config *c, bitnet_error *err)
{
    *out = NULL;
    struct metrics *m = bn_calloc(1, sizeof *m);
    if (!m) return bn_fail_nomem(err, sizeof *m, "metrics");
    m->config = *c;
    m->served_name = c->served_name ? keep_label(m, c->served_name) : NULL;
    bool ok = open_families(m) && (m->served_name || !c->served_name);
    bitnet_status s =
        ok ? BITNET_OK : bn_fail_nomem(err, m->arena.used_bytes, "samples of metrics");
    if (s == BITNET_OK && c->model) s = metrics_set_model(m, c->model, err);
    if (s != BITNET_OK) {
        metrics_close(m);
        return s;
    }
    /* What rates are taken of is there from the beginning: a first count is a growth, too. */
    for (size_t i = 0; i < BN_ARRAY_LEN(finish_names); i++)
        add_to(m, M_choices, finish_names[i], NULL, 0);
    set(m, M_start_time, process_start_seconds());
    m->now_ns = bn_now_ns();
    take_moment(m);
    *out = m;
    return BITNET_OK;
}

void metrics_close(struct metrics *m)
{
    if (!m) return;
    bn_arena_free(&m->arena);
    free(m);
}

/* ------------------------------------------------------------------ as it happens */

void metrics_request(struct metrics *m, const char *endpoint, int code, uint64_t ns)
{
    char number[16];
    snprintf(number, sizeof number, "%d", code);
    add_to(m, M_http_requests, endpoint, number, 1);
    add_to(m, M_http_seconds, endpoint, NULL, (double)ns / 1e9);
}

void metrics_ignored(struct metrics *m, uint32_t n) { add_to(m, M_ignored, NULL, NULL, n); }

void metrics_rejected(struct metrics *m, const char *reason)
{
    add_to(m, M_rejected, reason, NULL, 1);
}

void metrics_key_request(struct metrics *m, const char *key)
{
    add_to(m, M_key_requests, key, NULL, 1);
}

void metrics_key_tokens(struct metrics *m, const char *key, uint64_t n_prompt, uint64_t n_generated)
{
    add_to(m, M_key_tokens, key, "prompt", (double)n_prompt);
    add_to(m, M_key_tokens, key, "generation", (double)n_generated);
}

void metrics_key_rejected(struct metrics *m, const char *key, const char *reason)
{
    add_to(m, M_key_rejected, key, reason, 1);
}

void metrics_key_running(struct metrics *m, const char *key, int more)
{
    add_to(m, M_key_running, key, NULL, more);
}

void metrics_choice(struct metrics *m, const struct metrics_choice *c)
{
    add_to(m, M_choices, finish_names[c->finish], NULL, 1);
    if (c->n_generated == 0) return;
    if (c->first_ns) observe_ns(m, M_ttft, c->first_ns);
    observe_ns(m, M_queue_time, c->queue_ns);
    observe_ns(m, M_prefill_time, c->prefill_ns);
    m->most_tokens = bn_max_size(m->most_tokens, (size_t)c->n_prompt + c->n_generated);
    observe(m, M_request_prompt, c->n_prompt);
    observe(m, M_request_generation, c->n_generated);
    if (c->n_generated >= 3) observe(m, M_repetition, c->repetition);
    /* How long a choice took that somebody broke off says nothing. */
    if (strcmp(finish_names[c->finish], "stop") != 0 && c->finish != BITNET_FINISH_LENGTH) return;
    observe_ns(m, M_e2e, c->total_ns);
    observe_ns(m, M_decode_time, c->decode_ns);
    if (c->n_generated > 1)
        observe_ns(m, M_tpot, (c->total_ns - c->first_ns) / (c->n_generated - 1));
}

void metrics_token(struct metrics *m, uint64_t ns) { observe_ns(m, M_itl, ns); }

void metrics_step(struct metrics *m, const struct worker_step *s)
{
    observe_ns(m, M_step_time, s->ns);
    observe(m, M_batch_size, s->n_seqs);
    observe(m, M_iteration_tokens, (double)s->n_prompt_tokens + s->n_generated);
    add(m, M_prompt_computed, s->n_prompt_tokens);
    add(m, M_generation_tokens, s->n_generated);
}

/* ------------------------------------------------------------------ when somebody asks */

bool metrics_is_shared(enum metric id)
{
    return (id >= M_http_requests && id <= M_key_running) || id >= M_connections;
}

double metrics_value(const struct metrics *m, enum metric id)
{
    const struct family *f = &m->families[id];
    if (f->histogram) return (double)f->histogram->total;
    double sum = 0;
    for (size_t i = 0; i < f->n; i++) sum += f->samples[i].value;
    return sum;
}

const struct moment *metrics_moment(const struct metrics *m, uint64_t age_ns)
{
    size_t kept = bn_min_size(m->n_moments, METRICS_MOMENTS);
    const struct moment *t = NULL;
    for (size_t back = 1; back <= kept; back++) {
        t = &m->moments[(m->n_moments - back) % METRICS_MOMENTS];
        if (m->now_ns - t->ns >= age_ns) break;
    }
    return t;
}

/* What an engine counts goes on from where the one before it stopped. */
static void count_engine(struct metrics *m, const struct worker_state *w)
{
    const bitnet_engine_info *e = &w->engine;
    const struct {
        enum metric id;
        double value;
    } counts[] = {{M_recomputed, (double)e->work.recomputed_tokens},
                  {M_preemptions, (double)e->work.preemptions},
                  {M_prefix_queries, (double)e->prefix.queried_tokens},
                  {M_prefix_hits, (double)e->prefix.hit_tokens},
                  {M_draft_tokens, (double)e->draft.tokens},
                  {M_draft_accepted, (double)e->draft.accepted},
                  {M_busy_seconds, (double)e->work.step_ns / 1e9},
                  {M_weight_bytes, (double)e->work.weight_bytes},
                  {M_state_saves, (double)e->states.saves},
                  {M_state_restores, (double)e->states.restores},
                  {M_state_evictions, (double)e->states.evictions},
                  {M_nonfinite, (double)w->health.nonfinite_rows},
                  {M_scrub_passes, (double)w->health.scrub_passes},
                  {M_scrub_mismatches, (double)w->health.scrub_mismatches}};
    for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++)
        set(m, counts[i].id, m->before[counts[i].id] + counts[i].value);
    set(m, M_prompt_tokens, metrics_value(m, M_prompt_computed) + metrics_value(m, M_prefix_hits));
}

void metrics_retire(struct metrics *m, const struct worker_state *w)
{
    count_engine(m, w);
    for (int id = 0; id < N_METRICS; id++)
        if (metric_infos[id].kind == METRIC_COUNTER && !metric_infos[id].labels[0])
            m->before[id] = metrics_value(m, (enum metric)id);
}

/* Of hybrid models; of others there is nothing to tell. */
static void collect_states(struct metrics *m, const bitnet_engine_info *e)
{
    const char *const states[] = {"used", "free"};
    const uint32_t n[] = {e->states.snapshots_used, e->states.snapshots - e->states.snapshots_used};
    for (size_t i = 0; e->states.seq_bytes && i < BN_ARRAY_LEN(states); i++) {
        struct sample *s =
            labelled(m, M_state_snapshots, (const char *[METRIC_MAX_LABELS]){states[i]});
        if (s) s->value = n[i];
    }
}

static void collect_engine(struct metrics *m, const struct worker_state *w)
{
    const bitnet_engine_info *e = &w->engine;
    set(m, M_ready, w->ready);
    set(m, M_engine_broken, w->broken.status != BITNET_OK);
    count_engine(m, w);
    const struct {
        const char *state;
        uint32_t n;
    } pages[] = {{"used", e->kv.pages - e->kv.pages_free - e->kv.pages_cached},
                 {"cached", e->kv.pages_cached},
                 {"free", e->kv.pages_free}};
    for (size_t i = 0; i < BN_ARRAY_LEN(pages); i++) {
        struct sample *s =
            labelled(m, M_kv_pages, (const char *[METRIC_MAX_LABELS]){pages[i].state});
        if (s) s->value = pages[i].n;
    }
    collect_states(m, e);
    if (!m->model_name || !e->kv.type) return; /* it is not in memory */
    struct sample *s =
        labelled(m, M_build_info,
                 (const char *[METRIC_MAX_LABELS]){bitnet_version(), m->model_name, m->backend,
                                                   e->kv.type ? e->kv.type : ""});
    if (s) s->value = 1;
}

/* Of the steps of the last seconds; longer ago if nobody has asked since. */
static double bandwidth_ratio(const struct metrics *m)
{
    const struct moment *then = metrics_moment(m, BANDWIDTH_NS);
    double seconds = metrics_value(m, M_busy_seconds) - then->value[M_busy_seconds];
    double bytes = metrics_value(m, M_weight_bytes) - then->value[M_weight_bytes];
    if (!(m->config.memory_bytes_s > 0)) return NAN;
    return seconds > 0 ? bytes / seconds / m->config.memory_bytes_s : 0;
}

static void collect_health(struct metrics *m, const struct worker_state *w)
{
    const bitnet_health *h = &w->health;
    set(m, M_kv_usage, h->kv_used);
    set(m, M_repetition_mean, h->choices ? h->repetition : NAN);
    size_t n = bn_min_size(m->families[M_activation_zero].n, w->layers ? w->n_layers : 0);
    for (size_t i = 0; i < n; i++) {
        const struct worker_layer *l = &w->layers[i];
        size_t side[2] = {i, m->families[M_activation_zero].n + i};
        const bitnet_kv_side_health *kv[2] = {&l->kv.keys, &l->kv.values};
        for (size_t k = 0; k < 2; k++) {
            bool known = l->kv.rows > 0;
            m->families[M_kv_entropy].samples[side[k]].value = known ? kv[k]->entropy_bits : NAN;
            m->families[M_kv_saturation].samples[side[k]].value = known ? kv[k]->saturated : NAN;
        }
        m->families[M_activation_zero].samples[i].value =
            l->ffn.sampled ? l->ffn.sampled_zeros : NAN;
    }
}

void metrics_collect(struct metrics *m, const struct metrics_now *now)
{
    m->now_ns = bn_now_ns();
    set(m, M_draining, now->draining);
    set(m, M_running, now->n_running);
    set(m, M_waiting, now->n_waiting);
    set(m, M_resident_model, now->resident);
    set(m, M_resident_bytes, (double)now->resident_bytes);
    set(m, M_model_loads, (double)now->n_loads);
    set(m, M_model_load_failures, (double)now->n_load_failures);
    set(m, M_model_unloads, (double)now->n_unloads);
    set(m, M_queue_usage, now->max_queue ? (double)now->n_waiting / now->max_queue : NAN);
    collect_engine(m, now->worker);
    set(m, M_bandwidth, bandwidth_ratio(m));
    collect_health(m, now->worker);
    set(m, M_connections, now->net->n_connections);
    set(m, M_accepted, (double)now->net->n_accepted);
    set(m, M_refused, (double)now->net->n_refused);
    set(m, M_broken_requests, (double)now->net->n_broken);
    set(m, M_bytes_in, (double)now->net->n_bytes_in);
    set(m, M_bytes_out, (double)now->net->n_bytes_out);
    set(m, M_resident, process_resident_bytes(0));
    set(m, M_cpu_seconds, process_cpu_seconds());
    set(m, M_open_fds, process_open_fds());
    if (m->now_ns - metrics_moment(m, 0)->ns >= MOMENT_NS) take_moment(m);
}
