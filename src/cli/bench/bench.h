/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: what the files of `bitnet bench` share. cmd_bench.c reads the options and leads;
 * run.c measures, kernels.c the kernels, kv.c types of the KV cache; report.c makes the JSON report and
 * the table, and reads reports; plot.c draws a report; diff.c compares two, and pairs.c has them made
 * in turn.
 *
 *   options --> plan of measurements --> rounds (each measurement once a round) --> report (JSON)
 *                                                                                   |-> table, plot
 *                                                               another report -----+-> diff
 */
#ifndef BN_CLI_BENCH_BENCH_H
#define BN_CLI_BENCH_BENCH_H

#include "json/json.h"
#include "cli/core/args.h"
#include "app/stats.h"
#include "cli/options/prompts.h"
#include "cli/options/model_opts.h"

/* Kernels are measured alone: they need no engine, and some hundred lines of their own. So are types
 * of the KV cache: each has an engine of its own. */
enum bench_mode {
    BENCH_STREAM,
    BENCH_PREFILL,
    BENCH_BATCH,
    BENCH_DEPTH,
    BENCH_KERNELS,
    BENCH_KV,
    BENCH_MODES
};
const char *bench_mode_name(enum bench_mode m);

#define BENCH_FORMAT "bitnet-bench-1" /* first member of every report */

enum {
    BENCH_REPORT_MAX_BYTES = 64 << 20,
    BENCH_MEASUREMENTS_MAX = 1 + 3 * OPT_LIST_MAX, /* without kernels */
    BENCH_REPEAT = 5,
    /* some hundred lines are compared, each at a level that makes one false alarm among all of them
     * unlikely; that takes more repeats */
    BENCH_REPEAT_KERNELS = 10,
    BENCH_NOTES_MAX = 16
};

/* What to measure. */
struct bench_settings {
    bool modes[BENCH_MODES];
    struct opt_u32s prompt_tokens, batch_sizes, depths;
    uint32_t max_new_tokens, warmup, repeat;
    bool no_mmap, engine_warmup;
    uint64_t seed;
    const char *op;               /* kernels: this operation only; NULL: all */
    const char *text;             /* kv: a file whose perplexity is measured; NULL: none */
    bool random_keys;             /* kv: in place of a prompt that is read */
    bool text_embedded;           /* by the embedded model, not the one whose speed is measured */
    bitnet_engine_options engine; /* threads, context, chunk and cache as the user wants them */
    const char *tuned;            /* what the tuning file had to say about it, "" if nothing */
};

/* kv: an engine with one request that goes on from round to round; with random keys, requests of all
 * depths in turn. */
struct bench_kv {
    bitnet_kv_type type;
    bitnet_engine *engine;
    bool borrowed; /* the engine is that of an item before */
    bitnet_engine_info info;
    double bits; /* of a key's or value's number, scales included */
    bool started;
    double attention_ms;   /* with random keys */
    bitnet_ppl_result ppl; /* n_tokens is 0 without a text */
};

/* One line of the report. */
struct bench_measurement {
    char name[96]; /* "stream", "prefill 512", "batch 8", "depth 1024": unique in a report */
    enum bench_mode mode;
    uint32_t at;           /* prompt tokens, requests at a time, or tokens in the cache before */
    uint32_t n_new;        /* tokens generated in one repeat */
    double bytes_per_step; /* weights, head and cache read by one decoding step */
    double ffn_tokens, ffn_left_out;  /* tokens decoded alone, bytes of weights they did without */
    double head_tokens, head_refined; /* tokens with a screened head, rows that it refined */
    double step_ns, forward_ns;       /* of requests: time in steps, of it in forward passes */
    double steps, exchanges, exchange_ns; /* with ranks: of requests, how often they waited for each
                                           * other, and how long */
    double *rates;                        /* tok/s, one a repeat; of kernels bench_kernel_unit */
    double *first_ms;                     /* stream: time to first token, one a repeat */
    size_t n_repeats;
    double *step_ms; /* every decoding step of all repeats */
    size_t n_steps, steps_room;
    bitnet_kernel_case kernel; /* kernels */
    struct bench_kv *kv;       /* kv; owned */
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
    bitnet_kernel_timer *timer;                 /* owned; kernels only, without engines */
    struct bench_measurement *items;            /* owned */
    size_t n_items;
    double *bandwidth;     /* bytes a second, the best pass of every round */
    double read_bandwidth; /* their median: now and then a pass is much faster than all others */
    size_t n_bandwidth, bandwidth_buffer_bytes;
    uint64_t peak_rss_bytes; /* before the buffer of the bandwidth measurement came */
    struct bench_load load;
    struct prompts prompts;
    float *logits; /* [n_vocab] */
    char notes[BENCH_NOTES_MAX][160];
    size_t n_notes;
};

/* run.c: opens the engines, measures, closes nothing but what it opened itself. */
bitnet_status bench_run(struct bench *b, bitnet_error *err);
/* Its parts, for measurements that are arranged otherwise: engines and plan; one measurement, whose
 * figures are added to m if they are to be kept. */
bitnet_status bench_open(struct bench *b, bitnet_error *err);
bitnet_status bench_measure(struct bench *b, struct bench_measurement *m, bool keep,
                            bitnet_error *err);
void bench_free(struct bench *b); /* half-built is fine */
void bench_note(struct bench *b, const char *fmt, ...) BN_PRINTF(2, 3);

/* kernels.c: items[i] is case i of the timer. */
bitnet_status bench_kernels_plan(struct bench *b, bitnet_error *err);
bitnet_status bench_kernels_measure(struct bench *b, struct bench_measurement *m, bool keep,
                                    bitnet_error *err);
double bench_kernel_amount(const bitnet_kernel_case *c); /* over nanoseconds: the rate */
const char *bench_kernel_unit(const bitnet_kernel_case *c);
const struct bench_measurement *bench_kernel_reference(const struct bench *b,
                                                       const bitnet_kernel_case *c);
void bench_print_kernels(const struct bn_json *items);

/* kv.c */
bitnet_status bench_kv_plan(struct bench *b, bitnet_error *err);
bitnet_status bench_kv_measure(struct bench *b, struct bench_measurement *m, bool keep,
                               bitnet_error *err);
bitnet_status bench_kv_perplexity(struct bench *b, bitnet_error *err);
const struct bench_measurement *
bench_kv_base(const struct bench *b, const struct bench_measurement *m); /* the default, f16 */
void bench_kv_free(struct bench_kv *kv);                                 /* NULL is fine */
void bench_print_kv(const struct bn_json *items);

/* run.c, for the others */
void bench_make_prompt(struct bench *b, int32_t *tokens, size_t n);

/* report.c */
struct bn_json *bench_report(const struct bench *b); /* NULL: out of memory */
/* Is anything faster than the memory allows? Then the sentence that says why, without its full stop. */
bool bench_beyond_memory(const struct bn_json *r);
extern const char bench_beyond_words[];
void bench_print_report(const struct bn_json *report); /* the table, on standard output */
/* Reads a report back; says what is wrong with it if it is not one. */
bitnet_status bench_read_report(struct bn_json **out, const char *path, bitnet_error *err);

/* plot.c: the drawing as SVG or, with html, a page around it. Owned text (free()), NULL when
 * memory is out. */
char *bench_plot(const struct bn_json *report, bool html);

/* diff.c: returns the exit code. */
struct bench_diff_options {
    const char *old_name, *new_name; /* reports, or with bench_pairs programs */
    double fail_over;
    bool json;
    bool paired; /* repeat i of both reports was taken in turn */
};
int bench_diff(const struct bench_diff_options *o);
int bench_diff_reports(const struct bn_json *old_report, const struct bn_json *new_report,
                       const struct bench_diff_options *o);

/* pairs.c: runs `PROGRAM bench ARGS` of two programs in turn, n times each, and compares the
 * pairs. Returns the exit code. */
int bench_pairs(const struct bench_diff_options *o, uint32_t n, char *const *args, size_t n_args);

#endif
