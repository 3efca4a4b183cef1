/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/server.h"

#include "cli/load/stats.h"
#include "app/process.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const struct load_metric_info load_metric_infos[LOAD_METRICS] = {
    [LOAD_METRIC_BATCH] = {"batch_mean", "batch", "sequences", 1},
    [LOAD_METRIC_STEP] = {"step_ms_mean", "step", "ms", 1e3},
    [LOAD_METRIC_QUEUE] = {"queue_ms_mean", "queue", "ms", 1e3},
    [LOAD_METRIC_TTFT] = {"ttft_ms_mean", "ttft", "ms", 1e3},
    [LOAD_METRIC_ITL] = {"itl_ms_mean", "itl", "ms", 1e3},
    [LOAD_METRIC_E2E] = {"e2e_ms_mean", "e2e", "ms", 1e3},
};

/* Histograms: this project's names are vLLM's with another beginning. */
static const char *const prefixes[] = {"bitnet_", "vllm:"};
static const char *const names[LOAD_METRICS] = {
    [LOAD_METRIC_BATCH] = "batch_size",
    [LOAD_METRIC_STEP] = "step_seconds",
    [LOAD_METRIC_QUEUE] = "request_queue_time_seconds",
    [LOAD_METRIC_TTFT] = "time_to_first_token_seconds",
    [LOAD_METRIC_ITL] = "inter_token_latency_seconds",
    [LOAD_METRIC_E2E] = "e2e_request_latency_seconds",
};

/* The value at the end of a line that begins with name and suffix: "name_sum{labels} 1.5". */
static bool value_of(double *out, const char *line, size_t n, const char *name, const char *suffix)
{
    size_t n_name = strlen(name), n_suffix = strlen(suffix), at = n_name + n_suffix;
    if (n <= at || memcmp(line, name, n_name) != 0 || memcmp(line + n_name, suffix, n_suffix) != 0)
        return false;
    if (line[at] == '{') {
        const char *end = memrchr(line, '}', n);
        if (!end) return false;
        at = (size_t)(end + 1 - line);
    }
    if (at >= n || line[at] != ' ') return false;
    *out = strtod(line + at, NULL); /* the line ends with a line feed or the text's 0 */
    return isfinite(*out);
}

static void add_histogram(struct load_scrape *s, enum load_metric m, const char *name,
                          const char *text)
{
    double v;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        if (value_of(&v, p, n, name, "_sum")) s->metrics[m].sum += v;
        if (value_of(&v, p, n, name, "_count")) {
            s->metrics[m].count += v;
            s->metrics[m].has = true;
        }
        p += n + (p[n] == '\n');
    }
}

void load_scrape_parse(struct load_scrape *s, const char *text)
{
    *s = (struct load_scrape){.found = true};
    for (int m = 0; m < LOAD_METRICS; m++)
        for (size_t i = 0; i < BN_ARRAY_LEN(prefixes) && !s->metrics[m].has; i++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", prefixes[i], names[m]);
            add_histogram(s, (enum load_metric)m, name, text);
        }
}

double load_scrape_mean(const struct load_scrape *before, const struct load_scrape *after,
                        enum load_metric m)
{
    double count = after->metrics[m].count - before->metrics[m].count;
    if (!before->metrics[m].has || !after->metrics[m].has || count <= 0) return NAN;
    return (after->metrics[m].sum - before->metrics[m].sum) / count;
}

/* ------------------------------------------------------------------ memory */

static void forget_every_other(struct load_memory *m)
{
    for (size_t i = 0; i < m->n / 2; i++) {
        m->seconds[i] = m->seconds[2 * i];
        m->bytes[i] = m->bytes[2 * i];
    }
    m->n /= 2;
    m->every_s *= 2;
}

void load_memory_watch(struct load_memory *m, uint32_t pid, double now_s)
{
    if (now_s < m->next_s) return;
    double bytes = process_resident_bytes(pid);
    if (!(bytes > 0)) return; /* it is no more */
    if (m->every_s == 0) m->every_s = 1;
    if (m->n == LOAD_MEMORY_SAMPLES) forget_every_other(m);
    m->seconds[m->n] = now_s;
    m->bytes[m->n++] = bytes;
    m->next_s = now_s + m->every_s;
}

double load_memory_slope(const struct load_memory *m)
{
    return load_slope(m->seconds, m->bytes, m->n);
}
