/* SPDX-License-Identifier: Apache-2.0
 *
 * load.h: what the files of `bitnet loadtest` share. cmd_loadtest.c reads the options and leads;
 * load/run.c sends requests and keeps a record of each; load/report.c makes the JSON report and the
 * table, files.c the CSV file and the list of requests, load/plot.c the drawing.
 *
 *   load_arrivals (when)  --+
 *   load_prompt   (what)  --+--> load_run --> load_conn --> server
 *                                   |  <-- load_reply (stream) <-- http
 *                                   +--> records, load_hist --> report --> table, CSV, plot
 */
#ifndef BN_CLI_LOAD_LOAD_H
#define BN_CLI_LOAD_LOAD_H

#include "base/os/file.h"
#include "cli/core/args.h"
#include "cli/load/arrivals.h"
#include "cli/load/conn.h"
#include "cli/load/prompt.h"
#include "cli/load/server.h"
#include "cli/load/stats.h"

#define LOAD_FORMAT "bitnet-loadtest-1" /* first member of every report */

enum {
    LOAD_MAX_RECORDS = 2 << 20, /* requests of one run */
    LOAD_MAX_OUTSTANDING = 16384,
    LOAD_LATE_MS = 10 /* a request that leaves this long after it was due counts as late */
};

enum load_loop {
    LOAD_CLOSED, /* N clients, each waits for its answer before it asks again */
    LOAD_RATE,   /* requests are due at a rate */
    LOAD_TRACE   /* requests are due as in a trace file */
};

enum load_goal { LOAD_TTFT, LOAD_ITL, LOAD_TPOT, LOAD_E2E, LOAD_GOALS };
extern const char *const load_goal_names[LOAD_GOALS];

struct load_settings {
    enum load_loop loop;
    const char *url, *trace, *dataset, *input_len, *output_len; /* as typed, for the report */
    struct load_prompts prompts;
    struct load_arrivals arrivals; /* open loop: as it is before the first request */
    double duration_s;             /* 0: until n_requests */
    uint64_t n_requests;           /* counted ones; 0: until duration_s, or the trace's end */
    double ramp_s, warmup_s;
    uint64_t warmup_requests;
    double timeout_s;
    double goals_ms[LOAD_GOALS]; /* 0: not asked for */
    double percentiles[LOAD_MAX_PERCENTILES];
    size_t n_percentiles;
    uint32_t pid; /* of the server, to watch its memory; 0: none */
    bool soak, quiet;
};

enum load_outcome {
    LOAD_OK,
    LOAD_BUSY,         /* 429 */
    LOAD_CLIENT_ERROR, /* another 4xx, or a code that is no answer */
    LOAD_SERVER_ERROR, /* 5xx */
    LOAD_NO_CONNECTION,
    LOAD_TIMEOUT,
    LOAD_BAD_STREAM,
    LOAD_UNFINISHED, /* interrupted while it was on its way */
    LOAD_OUTCOMES
};
extern const char *const load_outcome_names[LOAD_OUTCOMES];

/* One request. Times in nanoseconds since the run began; 0 where there was no such moment. */
struct load_record {
    uint64_t due_ns, sent_ns, first_ns, last_ns, end_ns;
    uint64_t worst_gap_ns;
    uint32_t asked_in, asked_out;
    uint32_t n_prompt, n_cached, n_output, n_chunks;
    uint32_t retry_after_s;
    uint16_t status;
    uint8_t outcome;
    bool counted; /* false: warm-up */
    bool has_usage;
};

struct load_run {
    const struct load_settings *settings;
    uint32_t at_a_time;          /* clients of a closed loop; requests an open one may have open */
    uint64_t first_prompt;       /* prompts of runs before: a prefix cache may know them */
    struct load_record *records; /* in the order in which they ended */
    size_t n_records, room;
    struct load_hist *gaps;   /* between chunks with text, of counted requests */
    uint64_t n_due, n_unsent; /* counted requests that were due; of them never sent */
    uint64_t ns;              /* of the whole run */
    uint64_t until_ns;        /* when its time was over; 0: something else ended it */
    double own_cpu_share;     /* of one core, spent by this program */
    bool interrupted, full;   /* full: LOAD_MAX_RECORDS ended it */
    char why[LOAD_OUTCOMES][LOAD_MAX_WHY_BYTES]; /* the first reason of each kind */
    struct load_scrape before, after;
    struct load_memory memory; /* of the server */
};

/* One whole run. BITNET_OK also when all requests failed or Ctrl-C ended it. Free it in any case;
 * zero-initialise it. */
bitnet_status load_run(struct load_run *run, const struct load_settings *s, uint32_t at_a_time,
                       const struct load_target *target, bitnet_error *err);
void load_run_free(struct load_run *run);

/* Does a request meet all goals? Only LOAD_OK ones do. */
bool load_record_good(const struct load_record *r, const struct load_settings *s);
/* Milliseconds; negative: the request has no such time. tpot: from the first to the last text, over
 * the tokens after the first. */
double load_record_ms(const struct load_record *r, enum load_goal what);

/* The report of all runs. NULL: out of memory. */
struct bn_json *load_report(const struct load_settings *s, const struct load_run *runs,
                            size_t n_runs);
void load_print_table(const struct bn_json *report);
void load_csv(struct bn_buf *out, const struct bn_json *report);
bitnet_status load_requests_jsonl(struct bn_out *out, const struct load_run *runs, size_t n_runs,
                                  bitnet_error *err);
/* page: HTML with a table of the runs, otherwise SVG */
void load_plot(struct bn_buf *out, bool page, const struct bn_json *report,
               const struct load_run *runs, size_t n_runs);

#endif
