/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics for the dashboard (docs/serve/metrics.md has the members). Names are those of Prometheus
 * without "bitnet_"; what is not known is null.
 */
#include "server/metrics/metrics_impl.h"

#include <math.h>
#include <time.h>

#define SECOND_NS 1000000000u

const char *metrics_short_name(enum metric id)
{
    static const char ours[] = "bitnet_";
    const char *name = metric_infos[id].name;
    size_t n = sizeof ours - 1;
    return strncmp(name, ours, n) == 0 ? name + n : name;
}

double metrics_wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ------------------------------------------------------------------ values and rates */

static struct bn_json *values_json(const struct metrics *m)
{
    struct bn_json *o = bn_json_object();
    for (int id = 0; id < N_METRICS; id++) {
        const struct family *f = &m->families[id];
        if (f->histogram || metric_infos[id].labels[0]) continue;
        bn_json_set(o, metrics_short_name((enum metric)id), bn_json_real(f->samples[0].value));
    }
    return o;
}

static struct bn_json *samples_json(const struct metric_info *info, const struct family *f)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < f->n; i++) {
        struct bn_json *o = bn_json_object();
        for (size_t k = 0; k < METRIC_MAX_LABELS && f->samples[i].label[k]; k++)
            bn_json_set(o, info->labels[k], bn_json_string(f->samples[i].label[k]));
        bn_json_set(o, "value", bn_json_real(f->samples[i].value));
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *labelled_json(const struct metrics *m)
{
    struct bn_json *o = bn_json_object();
    for (int id = 0; id < N_METRICS; id++) {
        const struct metric_info *info = &metric_infos[id];
        if (info->labels[0])
            bn_json_set(o, metrics_short_name((enum metric)id),
                        samples_json(info, &m->families[id]));
    }
    return o;
}

static double rate(const struct metrics *m, enum metric id, uint64_t window_ns)
{
    const struct moment *then = metrics_moment(m, window_ns);
    double seconds = (double)(m->now_ns - then->ns) / 1e9;
    return (metrics_value(m, id) - then->value[id]) / seconds;
}

/* Growth a second of counters and of the observations of histograms. */
static struct bn_json *rates_json(const struct metrics *m)
{
    struct bn_json *o = bn_json_object();
    for (int id = 0; id < N_METRICS; id++) {
        if (metric_infos[id].kind == METRIC_GAUGE) continue;
        struct bn_json *r = bn_json_object();
        bn_json_set(r, "1s", bn_json_real(rate(m, (enum metric)id, SECOND_NS)));
        bn_json_set(r, "10s", bn_json_real(rate(m, (enum metric)id, 10ull * SECOND_NS)));
        bn_json_set(o, metrics_short_name((enum metric)id), r);
    }
    return o;
}

/* ------------------------------------------------------------------ histograms */

/* As Prometheus' histogram_quantile: linear inside a bucket, the first from 0 on; beyond the last
 * bound, that bound. */
double metrics_quantile(const struct metric_info *info, const uint64_t *count, double q)
{
    uint64_t total = 0;
    for (size_t i = 0; i <= info->n_bounds; i++) total += count[i];
    double rank = q * (double)total, below = 0;
    if (total == 0) return NAN;
    for (size_t i = 0; i < info->n_bounds; i++) {
        double n = (double)count[i], low = i ? info->bounds[i - 1] : 0;
        if (count[i] && below + n >= rank)
            return low + (info->bounds[i] - low) * (rank - below) / n;
        below += n;
    }
    return info->bounds[info->n_bounds - 1];
}

static void put_quantiles(struct bn_json *o, const struct metric_info *info, const uint64_t *count)
{
    bn_json_set(o, "p50", bn_json_real(metrics_quantile(info, count, 0.5)));
    bn_json_set(o, "p90", bn_json_real(metrics_quantile(info, count, 0.9)));
    bn_json_set(o, "p99", bn_json_real(metrics_quantile(info, count, 0.99)));
}

const struct moment *metrics_recent(const struct metrics *m, enum metric id,
                                    uint64_t count[METRIC_MAX_BUCKETS + 1])
{
    const struct moment *then = metrics_moment(m, METRICS_RECENT_NS);
    const struct histogram *h = m->families[id].histogram;
    const uint32_t *old = then->count[h - m->histograms];
    for (size_t i = 0; i <= metric_infos[id].n_bounds; i++)
        count[i] = (uint32_t)h->count[i] - old[i];
    return then;
}

static struct bn_json *recent_json(const struct metrics *m, enum metric id)
{
    const struct metric_info *info = &metric_infos[id];
    uint64_t count[METRIC_MAX_BUCKETS + 1] = {0}, total = 0;
    const struct moment *then = metrics_recent(m, id, count);
    for (size_t i = 0; i <= info->n_bounds; i++) total += count[i];
    struct bn_json *o = bn_json_object();
    bn_json_set(o, "seconds", bn_json_real((double)(m->now_ns - then->ns) / 1e9));
    bn_json_set(o, "count", bn_json_int((int64_t)total));
    put_quantiles(o, info, count);
    return o;
}

static struct bn_json *histogram_json(const struct metrics *m, enum metric id)
{
    const struct metric_info *info = &metric_infos[id];
    const struct histogram *h = m->families[id].histogram;
    struct bn_json *o = bn_json_object(), *buckets = bn_json_array();
    for (size_t i = 0; i <= info->n_bounds; i++) {
        struct bn_json *pair = bn_json_array();
        bn_json_append(pair, i < info->n_bounds ? bn_json_real(info->bounds[i]) : bn_json_null());
        bn_json_append(pair, bn_json_int((int64_t)h->count[i]));
        bn_json_append(buckets, pair);
    }
    bn_json_set(o, "count", bn_json_int((int64_t)h->total));
    bn_json_set(o, "sum", bn_json_real(h->sum));
    put_quantiles(o, info, h->count);
    bn_json_set(o, "recent", recent_json(m, id));
    bn_json_set(o, "buckets", buckets);
    return o;
}

static struct bn_json *histograms_json(const struct metrics *m)
{
    struct bn_json *o = bn_json_object();
    for (int id = 0; id < N_METRICS; id++) {
        enum metric one = (enum metric)id;
        if (m->families[id].histogram)
            bn_json_set(o, metrics_short_name(one), histogram_json(m, one));
    }
    return o;
}

/* ------------------------------------------------------------------ layers, alerts, the whole */

/* samples [from, from + n) of a metric */
static struct bn_json *array_json(const struct metrics *m, enum metric id, size_t from, size_t n)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = from; i < from + n; i++)
        bn_json_append(a, bn_json_real(m->families[id].samples[i].value));
    return a;
}

static struct bn_json *layers_json(const struct metrics *m)
{
    size_t n = m->families[M_activation_zero].n;
    struct bn_json *o = bn_json_object();
    bn_json_set(o, "kv_entropy_keys", array_json(m, M_kv_entropy, 0, n));
    bn_json_set(o, "kv_entropy_values", array_json(m, M_kv_entropy, n, n));
    bn_json_set(o, "kv_saturation_keys", array_json(m, M_kv_saturation, 0, n));
    bn_json_set(o, "kv_saturation_values", array_json(m, M_kv_saturation, n, n));
    bn_json_set(o, "activation_zero", array_json(m, M_activation_zero, 0, n));
    return o;
}

/* The sample farthest on the bad side; NaN: none is known. */
static double worst(const struct family *f, bool above)
{
    double v = NAN;
    for (size_t i = 0; i < f->n; i++)
        v = above ? fmax(v, f->samples[i].value) : fmin(v, f->samples[i].value);
    return v;
}

static bool beyond(double v, double threshold, bool above)
{
    return above ? v > threshold : v < threshold;
}

static struct bn_json *alerts_json(const struct metrics *m)
{
    struct bn_json *a = bn_json_array();
    for (size_t i = 0; i < n_metric_alerts; i++) {
        const struct metric_alert *t = &metric_alerts[i];
        double v = worst(&m->families[t->metric], t->above);
        bool critical = beyond(v, t->critical, t->above), warn = beyond(v, t->warn, t->above);
        struct bn_json *o = bn_json_object();
        bn_json_set(o, "name", bn_json_string(t->name));
        bn_json_set(o, "level", bn_json_string(critical ? "crit" : warn ? "warn" : "ok"));
        bn_json_set(o, "value", bn_json_real(v));
        bn_json_set(o, "op", bn_json_string(t->above ? ">" : "<"));
        bn_json_set(o, "threshold",
                    bn_json_real(critical || isnan(t->warn) ? t->critical : t->warn));
        bn_json_set(o, "metric", bn_json_string(metrics_short_name(t->metric)));
        bn_json_set(o, "text", bn_json_string(t->text));
        bn_json_append(a, o);
    }
    return a;
}

static struct bn_json *limits_json(const struct metrics *m, const struct metrics_now *now)
{
    const bitnet_engine_info *e = &now->worker->engine;
    struct bn_json *o = bn_json_object();
    bn_json_set(o, "max_queue", bn_json_int(now->max_queue));
    bn_json_set(o, "max_seqs", bn_json_int(e->max_seqs));
    bn_json_set(o, "max_batch_tokens", bn_json_int(e->max_batch_tokens));
    bn_json_set(o, "ctx_tokens", bn_json_int(e->ctx_tokens));
    bn_json_set(o, "kv_pages", bn_json_int(e->kv.pages));
    bn_json_set(o, "kv_page_tokens", bn_json_int(e->kv.page_tokens));
    bn_json_set(o, "threads", bn_json_int(e->threads));
    bn_json_set(o, "memory_bytes_per_second",
                m->config.memory_bytes_s > 0 ? bn_json_real(m->config.memory_bytes_s)
                                             : bn_json_null());
    return o;
}

struct bn_json *metrics_json(struct metrics *m, const struct metrics_now *now)
{
    metrics_collect(m, now);
    const bitnet_error *broken = &now->worker->broken;
    struct bn_json *o = bn_json_object();
    bn_json_set(o, "time", bn_json_real(metrics_wall_s()));
    bn_json_set(o, "broken",
                broken->status == BITNET_OK ? bn_json_null() : bn_json_string(broken->text));
    bn_json_set(o, "limits", limits_json(m, now));
    bn_json_set(o, "values", values_json(m));
    bn_json_set(o, "labelled", labelled_json(m));
    bn_json_set(o, "rates", rates_json(m));
    bn_json_set(o, "histograms", histograms_json(m));
    bn_json_set(o, "layers", layers_json(m));
    bn_json_set(o, "alerts", alerts_json(m));
    if (bn_json_whole(o)) return o;
    bn_json_free(o);
    return NULL;
}

/* Members of `to` whose metric is the server's get the values that they have in `from`. */
static void take_shared(struct bn_json *to, const struct bn_json *from)
{
    static const char *const groups[] = {"values", "labelled", "rates"};
    for (size_t g = 0; g < BN_ARRAY_LEN(groups); g++) {
        struct bn_json *into = bn_json_get(to, groups[g]);
        const struct bn_json *of = bn_json_get(from, groups[g]);
        for (int id = 0; id < N_METRICS; id++) {
            const char *name = metrics_short_name((enum metric)id);
            const struct bn_json *v = bn_json_get(of, name);
            if (metrics_is_shared((enum metric)id) && v) bn_json_set(into, name, bn_json_ref(v));
        }
    }
}

struct bn_json *metrics_json_beside(struct metrics *m, struct metrics *all,
                                    const struct metrics_now *now)
{
    struct bn_json *j = metrics_json(m, now), *server = metrics_json(all, now);
    if (j && server) take_shared(j, server);
    bn_json_free(server);
    if (j && server && bn_json_whole(j)) return j;
    bn_json_free(j);
    return NULL;
}
