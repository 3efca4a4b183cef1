/* SPDX-License-Identifier: Apache-2.0
 *
 * load/server.h: the server's side of a run: its own counters, from /metrics before and after, and
 * the memory of its process while the run goes on.
 */
#ifndef BN_CLI_LOAD_SERVER_H
#define BN_CLI_LOAD_SERVER_H

#include "base/base.h"

enum { LOAD_MAX_METRICS_BYTES = 16 << 20 };

/* What is looked for, under the names of several servers. Means between two scrapes. */
enum load_metric {
    LOAD_METRIC_BATCH, /* sequences in a step */
    LOAD_METRIC_STEP,  /* seconds of a step */
    LOAD_METRIC_QUEUE, /* seconds a request waited */
    LOAD_METRIC_TTFT,  /* seconds to the first token, as the server sees it */
    LOAD_METRIC_ITL,
    LOAD_METRIC_E2E,
    LOAD_METRICS
};
extern const struct load_metric_info {
    const char *key, *label, *unit;
    double factor; /* from the server's unit to the one shown */
} load_metric_infos[LOAD_METRICS];

struct load_scrape {
    bool found; /* the server has metrics */
    struct {
        double sum, count;
        bool has; /* a histogram of this name was there */
    } metrics[LOAD_METRICS];
};

/* Prometheus text; series of one name are added up over their labels. */
void load_scrape_parse(struct load_scrape *s, const char *text);
/* NAN: not known, or nothing happened between the two. */
double load_scrape_mean(const struct load_scrape *before, const struct load_scrape *after,
                        enum load_metric m);

/* Resident memory of a process. When there are too many samples every other one is forgotten. */
enum { LOAD_MEMORY_SAMPLES = 4096 };
struct load_memory {
    double seconds[LOAD_MEMORY_SAMPLES], bytes[LOAD_MEMORY_SAMPLES];
    size_t n;
    double every_s, next_s;
};

/* Takes a sample if it is time for one. */
void load_memory_watch(struct load_memory *m, uint32_t pid, double now_s);
double load_memory_slope(const struct load_memory *m); /* bytes a second */

#endif
