/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: what the files of `bitnet bench` share. cmd_bench.c reads the options and leads;
 * bench_run.c measures; bench_machine.c looks at the machine; bench_report.c makes the JSON report
 * and the table; bench_plot.c draws a report; bench_diff.c compares two; bench_stats.c does the
 * sums.
 *
 *   options --> plan of measurements --> rounds (each measurement once a round) --> report (JSON)
 *                                                                                   |-> table, plot
 *                                                               another report -----+-> diff
 */
#ifndef BN_CLI_BENCH_H
#define BN_CLI_BENCH_H

#include "base/json.h"
#include "cli/args.h"
#include "cli/bench_stats.h"

enum bench_mode { BENCH_STREAM, BENCH_PREFILL, BENCH_BATCH, BENCH_DEPTH, BENCH_MODES };
const char *bench_mode_name(enum bench_mode m);

#define BENCH_FORMAT "bitnet-bench-1" /* first member of every report */

enum {
    BENCH_REPORT_MAX_BYTES = 64 << 20,
    BENCH_MEASUREMENTS_MAX = 1 + 3 * OPT_LIST_MAX,
    BENCH_NOTES_MAX = 16
};

/* What to measure. */
struct bench_settings {
    bool modes[BENCH_MODES];
    struct opt_u32s prompt_tokens, batch_sizes, depths;
    uint32_t max_new_tokens, warmup, repeat;
    uint64_t seed;
    bitnet_engine_options engine; /* threads, context, chunk and cache as the user wants them */
};

/* One line of the report. */
struct bench_measurement {
    char name[32]; /* "stream", "prefill 512", "batch 8", "depth 1024": unique in a report */
    enum bench_mode mode;
    uint32_t at;           /* prompt tokens, requests at a time, or tokens in the cache before */
    uint32_t n_new;        /* tokens generated in one repeat */
    double bytes_per_step; /* weights, head and cache read by one decoding step */
    double *rates;         /* tok/s, one a repeat */
    double *first_ms;      /* stream: time to first token, one a repeat */
    size_t n_repeats;
    double *step_ms; /* every decoding step of all repeats */
    size_t n_steps, steps_room;
};

/* How busy the machine was, and with whom. */
struct bench_load {
    double average; /* load average of the last minute, at the start; negative: unknown */
    double others;  /* share of all cores that other programs used meanwhile; negative: unknown */
    uint32_t cores; /* of the machine, usable or not */
    bool disturbed; /* others used so much that they must have been in the way */
};

/* One run with all that came of it. */
struct bench {
    const struct bench_settings *settings;
    const bitnet_model *model;
    bitnet_model_info info;
    bitnet_engine_info single_info, batch_info; /* batch_info.size is 0 without batch mode */
    bitnet_engine *single, *batch;              /* owned */
    struct bench_measurement items[BENCH_MEASUREMENTS_MAX];
    size_t n_items;
    double *bandwidth; /* bytes a second, the best pass of every round */
    size_t n_bandwidth, bandwidth_buffer_bytes;
    uint64_t peak_rss_bytes; /* before the buffer of the bandwidth measurement came */
    struct bench_load load;
    int32_t *text; /* tokens that prompts are made of */
    size_t n_text;
    float *logits; /* [n_vocab] */
    uint64_t n_prompts;
    char notes[BENCH_NOTES_MAX][160];
    size_t n_notes;
};

/* bench_run.c: opens the engines, measures, closes nothing but what it opened itself. */
bitnet_status bench_run(struct bench *b, bitnet_error *err);
void bench_free(struct bench *b); /* half-built is fine */
void bench_note(struct bench *b, const char *fmt, ...) BN_PRINTF(2, 3);

/* bench_machine.c */
/* "0,2-3": from here on this process runs there only. */
bitnet_status bench_pin(const char *list, bitnet_error *err);
void bench_cpu_name(char *out, size_t n);
void bench_cpu_list(char *out, size_t n); /* usable CPUs, as --cpus takes them */
void bench_date(char *out, size_t n);     /* now, UTC, ISO 8601 */
struct bench_clock {
    double total, idle, own; /* CPU seconds since boot, of all cores; of this process */
};
struct bench_clock bench_clock_now(void);
double bench_load_average(void);
double bench_others(const struct bench_clock *from, const struct bench_clock *to);

/* bench_commit.c, made at build: "git describe", or "unknown" */
const char *bench_commit(void);

/* bench_report.c */
json_t *bench_report(const struct bench *b);   /* NULL: out of memory */
void bench_print_report(const json_t *report); /* the table, on standard output */
/* Reads a report back; says what is wrong with it if it is not one. */
bitnet_status bench_read_report(json_t **out, const char *path, bitnet_error *err);
/* Members of objects: a text or "", a number or 0. */
const char *bench_text(const json_t *o, const char *key);
double bench_number(const json_t *o, const char *key);

/* bench_plot.c: the drawing as SVG or, with html, a page around it. Owned text (free()), NULL when
 * memory is out. */
char *bench_plot(const json_t *report, bool html);

/* bench_diff.c: returns the exit code. */
int bench_diff(const char *old_path, const char *new_path, double fail_over, bool json);

#endif
