/* SPDX-License-Identifier: Apache-2.0
 *
 * history.c: the last hour, for a dashboard that is opened later: some metrics (HISTORY in metrics.def) every
 * few seconds, in a ring whose memory is known beforehand.
 */
#include "server/metrics/metrics_impl.h"

#include <math.h>

enum part { VALUE, RATE, MEAN, P50, P90, P99 };

static const struct {
    enum metric id;
    enum part part;
} columns[] = {
#define HISTORY(id, part) {M_##id, part},
#include "server/metrics/metrics.def"
};
_Static_assert(BN_ARRAY_LEN(columns) == N_HISTORY, "one for each line");

/* ------------------------------------------------------------------ taking */

/* Without a sample before, it has grown from nothing in a time that nobody knows. */
static double grown(double now, double before, double over, bool known)
{
    return known && over > 0 ? (now - before) / over : (double)NAN;
}

static double column_value(const struct metrics *m, size_t i, double *count, double *sum)
{
    static const double q[] = {[P50] = 0.5, [P90] = 0.9, [P99] = 0.99};
    const struct history *h = &m->history;
    enum metric id = columns[i].id;
    const struct histogram *seen = m->families[id].histogram;
    uint64_t recent[METRIC_MAX_BUCKETS + 1];
    *count = metrics_value(m, id);
    *sum = seen ? seen->sum : 0;
    switch (columns[i].part) {
    case VALUE: return *count;
    case RATE:
        return grown(*count, h->before[i], (double)(m->now_ns - h->before_ns) / 1e9, h->n > 0);
    case MEAN: return grown(*sum, h->before_sum[i], *count - h->before[i], h->n > 0);
    default: break;
    }
    metrics_recent(m, id, recent);
    return metrics_quantile(&metric_infos[id], recent, q[columns[i].part]);
}

void metrics_sample(struct metrics *m, const struct metrics_now *now)
{
    struct history *h = &m->history;
    struct history_sample *s = &h->samples[h->n % METRICS_SAMPLES];
    metrics_collect(m, now);
    s->time = metrics_wall_s();
    for (size_t i = 0; i < N_HISTORY; i++) {
        double count, sum;
        s->value[i] = (float)column_value(m, i, &count, &sum);
        h->before[i] = count;
        h->before_sum[i] = sum;
    }
    h->before_ns = m->now_ns;
    h->n++;
}

/* ------------------------------------------------------------------ telling */

static size_t first_kept(const struct history *h, double oldest)
{
    size_t i = h->n > METRICS_SAMPLES ? h->n - METRICS_SAMPLES : 0;
    while (i < h->n && h->samples[i % METRICS_SAMPLES].time < oldest) i++;
    return i;
}

/* A list of samples from `first` on; column N_HISTORY is the time. Four digits are more than a chart shows. */
static void put_column(struct bn_buf *out, const struct history *h, size_t first, size_t column)
{
    bn_buf_append(out, "[", 1);
    for (size_t i = first; i < h->n; i++) {
        const struct history_sample *s = &h->samples[i % METRICS_SAMPLES];
        if (i > first) bn_buf_append(out, ",", 1);
        if (column == N_HISTORY) bn_buf_printf(out, "%.3f", s->time);
        else if (isfinite(s->value[column])) bn_buf_printf(out, "%.4g", (double)s->value[column]);
        else bn_buf_append(out, "null", 4);
    }
    bn_buf_append(out, "]", 1);
}

/* The columns of one part as members of an object. */
static void put_group(struct bn_buf *out, const struct metrics *m, size_t first, enum part part)
{
    const char *comma = "";
    for (size_t i = 0; i < N_HISTORY; i++) {
        if (columns[i].part != part) continue;
        bn_buf_printf(out, "%s\"%s\":", comma, metrics_short_name(columns[i].id));
        put_column(out, &m->history, first, i);
        comma = ",";
    }
}

/* The parts of one histogram stand side by side in the list. */
static void put_histograms(struct bn_buf *out, const struct metrics *m, size_t first)
{
    static const char *const parts[] = {
        [MEAN] = "mean", [P50] = "p50", [P90] = "p90", [P99] = "p99"};
    enum metric last = N_METRICS;
    for (size_t i = 0; i < N_HISTORY; i++) {
        if (columns[i].part < MEAN) continue;
        bool same = columns[i].id == last;
        if (!same)
            bn_buf_printf(out, "%s\"%s\":{", last == N_METRICS ? "" : "},",
                          metrics_short_name(columns[i].id));
        bn_buf_printf(out, "%s\"%s\":", same ? "," : "", parts[columns[i].part]);
        put_column(out, &m->history, first, i);
        last = columns[i].id;
    }
    bn_buf_append(out, "}", 1);
}

/* Written at once as text: there are some twenty thousand numbers. */
void metrics_history(const struct metrics *m, const char *model, struct bn_buf *out)
{
    size_t first = first_kept(&m->history, metrics_wall_s() - METRICS_HISTORY_S);
    bn_buf_printf(out, "{\"model\":");
    bn_json_quote(out, model, strlen(model));
    bn_buf_printf(out, ",\"interval\":%d,\"span\":%d,\"time\":", METRICS_SAMPLE_S,
                  METRICS_HISTORY_S);
    put_column(out, &m->history, first, N_HISTORY);
    bn_buf_printf(out, ",\"values\":{");
    put_group(out, m, first, VALUE);
    bn_buf_printf(out, "},\"rates\":{");
    put_group(out, m, first, RATE);
    bn_buf_printf(out, "},\"histograms\":{");
    put_histograms(out, m, first);
    bn_buf_printf(out, "}}");
}
