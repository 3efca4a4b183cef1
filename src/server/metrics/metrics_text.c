/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics as Prometheus reads them (text format 0.0.4). A metric without a known value is left out.
 */
#include "base/number.h"
#include "server/metrics/metrics_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* So that it reads back the same, in as few digits as 15 to 17 allow. */
static void put_number(struct bn_buf *b, double v)
{
    char text[BN_NUMBER_BYTES];
    bn_number_text(text, 'g', 15, 17, v);
    bn_buf_puts(b, text);
}

static void put_label(struct bn_buf *b, bool *open, const char *name, const char *value)
{
    bn_buf_printf(b, "%c%s=\"", *open ? ',' : '{', name);
    *open = true;
    for (; *value; value++) {
        if (*value == '\n') bn_buf_puts(b, "\\n");
        else {
            if (*value == '"' || *value == '\\') bn_buf_putc(b, '\\');
            bn_buf_putc(b, *value);
        }
    }
    bn_buf_putc(b, '"');
}

/* How a metric is told: under its own name, or under another server's, which adds its label. */
struct telling {
    struct bn_buf *out;
    const char *name;
    const char *model; /* NULL: no label of that name */
    bool begun;
};

/* Once, before the first sample of the first model that has one. */
static void put_head(struct telling *t, const char *type, const char *help)
{
    if (t->begun) return;
    t->begun = true;
    bn_buf_printf(t->out, "# HELP %s %s\n# TYPE %s %s\n", t->name, help, t->name, type);
}

/* s: NULL for no labels of its own; le: NULL for no bound */
static void put_line(const struct telling *t, const char *suffix, const struct metric_info *info,
                     const struct sample *s, const char *le, double v)
{
    bool open = false;
    bn_buf_printf(t->out, "%s%s", t->name, suffix);
    if (t->model) put_label(t->out, &open, "model_name", t->model);
    for (size_t i = 0; s && i < METRIC_MAX_LABELS && s->label[i]; i++)
        put_label(t->out, &open, info->labels[i], s->label[i]);
    if (le) put_label(t->out, &open, "le", le);
    bn_buf_puts(t->out, open ? "} " : " ");
    put_number(t->out, v);
    bn_buf_putc(t->out, '\n');
}

static void put_samples(struct telling *t, const struct metric_info *info, const struct family *f)
{
    for (size_t i = 0; i < f->n; i++) {
        if (!isfinite(f->samples[i].value)) continue;
        put_head(t, info->kind == METRIC_COUNTER ? "counter" : "gauge", info->help);
        put_line(t, "", info, &f->samples[i], NULL, f->samples[i].value);
    }
}

static void put_histogram(struct telling *t, const struct metric_info *info,
                          const struct histogram *h)
{
    put_head(t, "histogram", info->help);
    uint64_t below = 0;
    for (size_t i = 0; i < info->n_bounds; i++) {
        char bound[32];
        snprintf(bound, sizeof bound, "%.15g", info->bounds[i]);
        below += h->count[i];
        put_line(t, "_bucket", info, NULL, bound, (double)below);
    }
    put_line(t, "_bucket", info, NULL, "+Inf", (double)h->total);
    put_line(t, "_sum", info, NULL, NULL, h->sum);
    put_line(t, "_count", info, NULL, NULL, (double)h->total);
}

/* What of a metric another server's name stands for. */
enum part { SELF, COUNT, SUM, MEAN };

static void put_metric(const struct metrics *m, struct telling *t, enum metric id, enum part part)
{
    const struct metric_info *info = &metric_infos[id];
    const struct histogram *h = m->families[id].histogram;
    if (!h) {
        put_samples(t, info, &m->families[id]);
    } else if (part == SELF) {
        put_histogram(t, info, h);
    } else {
        double count = (double)h->total;
        double v = part == COUNT ? count : part == SUM ? h->sum : count > 0 ? h->sum / count : 0;
        put_head(t, part == MEAN ? "gauge" : "counter", info->help);
        put_line(t, "", info, NULL, NULL, v);
    }
}

/* What stands in labels alone; the value is the time. */
static void put_lora(const struct metrics_now *now, struct telling *t)
{
    struct bn_buf *out = t->out;
    char most[16];
    bool open = false;
    snprintf(most, sizeof most, "%d", BITNET_MAX_ADAPTERS);
    put_head(t, "gauge", "Adapters that requests use, by whether these run or wait.");
    bn_buf_puts(out, t->name);
    put_label(out, &open, "model_name", t->model);
    put_label(out, &open, "max_lora", most);
    put_label(out, &open, "running_lora_adapters", now->lora_running ? now->lora_running : "");
    put_label(out, &open, "waiting_lora_adapters", now->lora_waiting ? now->lora_waiting : "");
    bn_buf_printf(out, "} %lld\n", (long long)time(NULL));
}

static void put_count_label(struct bn_buf *out, bool *open, const char *label, uint64_t v)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    put_label(out, open, label, text);
}

/* What routers that send equal beginnings to one server want to know of its cache. */
static void put_cache_config(const struct metrics_now *now, struct telling *t)
{
    struct bn_buf *out = t->out;
    const bitnet_engine_info *e = &now->worker->engine;
    bool open = false;
    if (!e->kv.pages) return; /* it is not in memory */
    put_head(t, "gauge", "The KV cache: tokens of a page, and pages.");
    bn_buf_puts(out, t->name);
    put_label(out, &open, "model_name", t->model);
    put_count_label(out, &open, "block_size", e->kv.page_tokens);
    put_label(out, &open, "cache_dtype", e->kv.type ? e->kv.type : "");
    put_count_label(out, &open, "num_gpu_blocks", e->kv.pages);
    bn_buf_puts(out, "} 1\n");
}

/* A figure that is told of each model. */
struct alone {
    const char *name, *type, *help;
    double (*value)(const struct metrics *m);
};

static double per_second(const struct metrics *m, enum metric tokens, enum metric seconds)
{
    double s = m->families[seconds].histogram->sum;
    return s > 0 ? metrics_value(m, tokens) / s : 0;
}

static double most_tokens(const struct metrics *m) { return (double)m->most_tokens; }

static double prompt_speed(const struct metrics *m)
{
    return per_second(m, M_prompt_computed, M_prefill_time);
}

static double answer_speed(const struct metrics *m)
{
    return per_second(m, M_generation_tokens, M_decode_time);
}

/* Models that are told together; of several the first is the server, and no model. */
struct models {
    struct metrics *const *m;
    const struct metrics_now *now;
    size_t n;
    bool several;
};

/* vLLM's label is the model's own name; of several models that by which they are asked for. */
static const char *label_of(const struct models *all, size_t i)
{
    const struct metrics *m = all->m[i];
    return all->several ? m->served_name : m->model_name;
}

static void put_all(const struct models *all, const char *name, enum metric id, enum part part,
                    struct bn_buf *out, bool vllm)
{
    struct telling t = {.out = out, .name = name};
    bool shared = all->several && metrics_is_shared(id);
    for (size_t i = shared ? 0 : all->several; i < (shared ? 1 : all->n); i++) {
        t.model = !shared && (all->several || vllm) ? label_of(all, i) : NULL;
        put_metric(all->m[i], &t, id, part);
    }
}

static void put_infos(const struct models *all, struct bn_buf *out)
{
    struct telling lora = {.out = out, .name = "vllm:lora_requests_info"},
                   cache = {.out = out, .name = "vllm:cache_config_info"};
    for (size_t i = all->several; i < all->n; i++) {
        lora.model = label_of(all, i);
        if (lora.model) put_lora(&all->now[i], &lora);
    }
    for (size_t i = all->several; i < all->n; i++) {
        cache.model = label_of(all, i);
        if (cache.model) put_cache_config(&all->now[i], &cache);
    }
}

/* What no single metric stands for. */
static void put_llamacpp(const struct models *all, struct bn_buf *out)
{
    static const struct alone alone[] = {
        {"llamacpp:n_tokens_max", "counter", "The most tokens of a prompt and its answer together.",
         most_tokens},
        {"llamacpp:prompt_tokens_seconds", "gauge",
         "Tokens of prompts computed in a second of reading.", prompt_speed},
        {"llamacpp:predicted_tokens_seconds", "gauge", "Tokens generated in a second of an answer.",
         answer_speed}};
    for (size_t k = 0; k < BN_ARRAY_LEN(alone); k++) {
        struct telling t = {.out = out, .name = alone[k].name};
        for (size_t i = all->several; i < all->n; i++) {
            bool open = false;
            put_head(&t, alone[k].type, alone[k].help);
            bn_buf_puts(out, t.name);
            if (all->several) put_label(out, &open, "model_name", label_of(all, i));
            bn_buf_printf(out, open ? "} %.9g\n" : " %.9g\n", alone[k].value(all->m[i]));
        }
    }
}

static void tell(const struct models *all, struct bn_buf *out)
{
    static const struct {
        const char *name;
        enum metric metric;
        enum part part;
        bool vllm;
    } others[] = {
#define VLLM(name, of, part)     {name, M_##of, part, true},
#define LLAMACPP(name, of, part) {name, M_##of, part, false},
#include "server/metrics/metrics.def"
    };
    const struct metrics_config *c = &all->m[all->n - 1]->config;
    for (size_t i = 0; i < all->n; i++) metrics_collect(all->m[i], &all->now[i]);
    for (int id = 0; id < N_METRICS; id++)
        put_all(all, metric_infos[id].name, (enum metric)id, SELF, out, false);
    for (size_t i = 0; i < BN_ARRAY_LEN(others); i++)
        if (others[i].vllm ? c->vllm : c->llamacpp)
            put_all(all, others[i].name, others[i].metric, others[i].part, out, others[i].vllm);
    if (c->llamacpp) put_llamacpp(all, out);
    if (c->vllm) put_infos(all, out);
}

void metrics_text(struct metrics *m, const struct metrics_now *now, struct bn_buf *out)
{
    const struct models one = {&m, now, 1, false};
    tell(&one, out);
}

void metrics_text_several(struct metrics *const *m, const struct metrics_now *now, size_t n,
                          struct bn_buf *out)
{
    const struct models all = {m, now, n, true};
    tell(&all, out);
}
