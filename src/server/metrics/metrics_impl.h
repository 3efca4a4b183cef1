/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics_impl.h: how metrics.c keeps what it counts, for those who tell it: metrics_text.c,
 * metrics_json.c and history.c. All memory is taken at metrics_open, but for the labels of samples, of which there
 * are at most METRIC_MAX_SAMPLES a metric beside those of layers.
 */
#ifndef BN_SERVER_METRICS_METRICS_IMPL_H
#define BN_SERVER_METRICS_METRICS_IMPL_H

#include "base/os/mem.h"
#include "server/metrics/metrics.h"

enum {
    METRIC_MAX_LABELS = 4,
    METRIC_MAX_BUCKETS = 28,
    METRIC_MAX_SAMPLES = 256,
    METRIC_LABEL_MAX_BYTES = 128,
    METRICS_MOMENTS = 128,
    METRICS_SAMPLES = METRICS_HISTORY_S / METRICS_SAMPLE_S
};
#define METRICS_RECENT_NS (60ull * 1000000000u) /* what "recent" is */

enum metric {
#define COUNTER(id, name, labels, help)    M_##id,
#define GAUGE(id, name, labels, help)      M_##id,
#define HISTOGRAM(id, name, buckets, help) M_##id,
#include "server/metrics/metrics.def"
    N_METRICS
};

enum {
#define HISTOGRAM(id, name, buckets, help) HISTOGRAM_##id,
#include "server/metrics/metrics.def"
    N_HISTOGRAMS
};

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_info {
    enum metric_kind kind;
    const char *name, *help;
    const char *labels[METRIC_MAX_LABELS]; /* NULL after the last */
    const double *bounds;                  /* of buckets, ascending; the one without is not here */
    size_t n_bounds;
};
extern const struct metric_info metric_infos[N_METRICS];

struct metric_alert {
    const char *name;
    enum metric metric;
    bool above;            /* the bad side */
    double warn, critical; /* NaN: never */
    const char *text;
};
extern const struct metric_alert metric_alerts[];
extern const size_t n_metric_alerts;

struct sample {
    const char *label[METRIC_MAX_LABELS];
    double value; /* NaN: not known, and not told */
};

struct histogram {
    uint64_t count[METRIC_MAX_BUCKETS + 1]; /* of each bucket alone; the last one has no bound */
    uint64_t total;
    double sum;
};

/* A metric: samples, or a histogram. */
struct family {
    struct sample *samples;
    size_t n, room;
    struct histogram *histogram;
};

/* How things stood when somebody asked. */
struct moment {
    uint64_t ns;
    double value[N_METRICS]; /* sum of the samples, or number of observations */
    /* modulo 2^32, which differences over a minute do not notice */
    uint32_t count[N_HISTOGRAMS][METRIC_MAX_BUCKETS + 1];
};

enum {
#define HISTORY(id, part) HISTORY_##id##_##part,
#include "server/metrics/metrics.def"
    N_HISTORY
};

/* What is kept of the last hour. Memory that no sample has reached yet is not taken. */
struct history {
    struct history_sample {
        double time; /* seconds since 1970 */
        float value[N_HISTORY];
    } samples[METRICS_SAMPLES]; /* sample i at i % METRICS_SAMPLES */
    size_t n;                   /* so far */
    /* how counters and histograms stood at the last sample */
    uint64_t before_ns;
    double before[N_HISTORY], before_sum[N_HISTORY];
};

struct metrics {
    struct metrics_config config;
    struct bn_arena arena;
    const char *model_name, *backend; /* NULL: no model was loaded yet */
    const char *served_name;
    double before[N_METRICS]; /* what engines have counted that are no more */
    struct family families[N_METRICS];
    struct histogram histograms[N_HISTOGRAMS];
    struct moment moments[METRICS_MOMENTS]; /* moment i at i % METRICS_MOMENTS */
    size_t n_moments;                       /* so far; the first is that of metrics_open */
    struct history history;
    uint64_t now_ns;    /* of the last metrics_collect */
    size_t most_tokens; /* of a prompt and its answer */
};

/* Brings everything up to date. */
void metrics_collect(struct metrics *m, const struct metrics_now *now);
/* The newest moment that is at least so old, or the oldest there is. */
const struct moment *metrics_moment(const struct metrics *m, uint64_t age_ns);
/* Concerns the server, not a model. */
bool metrics_is_shared(enum metric id);
/* As moments hold it. */
double metrics_value(const struct metrics *m, enum metric id);
/* The name without "bitnet_". */
const char *metrics_short_name(enum metric id);
double metrics_wall_s(void); /* since 1970 */
/* What a histogram has observed in the last minute, bucket by bucket. Returns the moment it is counted from. */
const struct moment *metrics_recent(const struct metrics *m, enum metric id,
                                    uint64_t count[METRIC_MAX_BUCKETS + 1]);
/* NaN: nothing was observed. */
double metrics_quantile(const struct metric_info *info, const uint64_t *count, double q);

#endif
