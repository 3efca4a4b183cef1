/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics as Prometheus reads them (text format 0.0.4). A metric without a known value is left out.
 */
#include "base/number.h"
#include "server/metrics/metrics_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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
};

static void put_head(const struct telling *t, const char *type, const char *help)
{
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

static void put_samples(const struct telling *t, const struct metric_info *info,
                        const struct family *f)
{
    bool head = false;
    for (size_t i = 0; i < f->n; i++) {
        if (!isfinite(f->samples[i].value)) continue;
        if (!head) put_head(t, info->kind == METRIC_COUNTER ? "counter" : "gauge", info->help);
        head = true;
        put_line(t, "", info, &f->samples[i], NULL, f->samples[i].value);
    }
}

static void put_histogram(const struct telling *t, const struct metric_info *info,
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

static void put_metric(const struct metrics *m, const struct telling *t, enum metric id,
                       enum part part)
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

void metrics_text(struct metrics *m, const struct metrics_now *now, struct bn_buf *out)
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
    metrics_collect(m, now);
    for (int id = 0; id < N_METRICS; id++)
        put_metric(m, &(struct telling){out, metric_infos[id].name, NULL}, (enum metric)id, SELF);
    for (size_t i = 0; i < BN_ARRAY_LEN(others); i++) {
        if (!(others[i].vllm ? m->config.vllm : m->config.llamacpp)) continue;
        struct telling t = {out, others[i].name, others[i].vllm ? m->model_name : NULL};
        put_metric(m, &t, others[i].metric, others[i].part);
    }
}
