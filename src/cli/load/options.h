/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h: the options of `bitnet loadtest`, as typed, and what they mean.
 */
#ifndef BN_CLI_LOAD_OPTIONS_H
#define BN_CLI_LOAD_OPTIONS_H

#include "cli/load/load.h"

struct load_options {
    /* server */
    const char *host, *endpoint, *model, *api_key;
    struct opt_list headers;
    bool insecure;
    /* load */
    float rps, burstiness, trace_scale, trace_tokens;
    bool has_rps, has_concurrency, has_burstiness;
    const char *arrival, *trace;
    uint64_t trace_limit, requests;
    uint32_t concurrency, max_outstanding;
    struct opt_u32s batch_sizes;
    const char *duration, *warmup, *ramp_up, *timeout;
    /* requests */
    const char *input_len, *output_len, *dataset;
    uint32_t shared_prefix;
    bool ignore_eos, has_temperature, has_seed;
    float temperature;
    uint64_t seed;
    /* report */
    const char *goodput, *percentiles, *csv, *save_requests, *plot;
    uint32_t pid;
    bool soak, json, quiet;
};

/* For struct command. */
extern const struct opt_part load_option_parts[];

/* What the options ask for; what it holds is freed as a whole. Zero-initialise it. */
struct load_test {
    struct load_settings settings;
    struct load_target target; /* not yet opened */
    struct load_trace trace;
    struct load_dataset dataset;
};
bitnet_status load_test_read(struct load_test *t, const struct load_options *c, bitnet_error *err);
void load_test_free(struct load_test *t);

/* Values that are more than a number. */

/* "90", "90s", "1.5m", "2h", "500ms". false: none of these, or more than a year. */
bool load_parse_seconds(double *out, const char *text);
/* "20" is a number of requests, "10s" a time. */
bool load_parse_warmup(double *seconds, uint64_t *requests, const char *text);
/* "ttft:200,itl:50": milliseconds. */
bool load_parse_goals(double goals_ms[LOAD_GOALS], const char *text);
/* "50,90,99.9" */
bool load_parse_percentiles(double *out, size_t *n, const char *text);

#endif
