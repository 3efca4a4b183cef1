/* SPDX-License-Identifier: Apache-2.0
 *
 * profile.h: what the files of `bitnet profile` share.
 *
 *   cmd_profile.c      options, files
 *   profile/run.c      prompts and steps, each by the clock        --> struct profile
 *   sums.c     the engine's entries, added up              --> its phases
 *   profile/report.c   struct profile                              --> report (JSON)
 *   profile/verdict.c  report                                      --> a paragraph in words
 *   print.c    report                                      --> tables
 *   profile/trace.c    spans and steps, sums                       --> trace events, folded stacks
 */
#ifndef BN_CLI_PROFILE_PROFILE_H
#define BN_CLI_PROFILE_PROFILE_H

#include "cli/options/model_opts.h"
#include "base/os/file.h"
#include "json/json.h"
#include "app/report.h"
#include "cli/options/prompts.h"
#include "cli/profile/counters.h"
#include "cli/profile/sensors.h"

#define PROFILE_FORMAT "bitnet-profile-1" /* first member of every report */

enum {
    PROFILE_PHASES = 2, /* by bitnet_phase */
    PROFILE_OPS_MAX = 64,
    PROFILE_TOKENS_MAX = 1 << 20, /* of a prompt, and decoded */
    PROFILE_BATCH_MAX = 256,
    PROFILE_CLOCKS_MAX = 4096, /* samples of the CPU's clock; ten a second */
    PROFILE_NOTES_MAX = 16
};

struct profile_settings {
    bitnet_engine_options engine; /* threads, context, chunk and cache as the user wants them */
    struct adapter_opts adapters;
    uint32_t new_tokens, prompt_tokens, batch;
    uint64_t seed;
    bool trace;
};

struct profile_op {
    const char *name, *kind;
};

/* Sums of entries. */
struct profile_sum {
    uint64_t ns, calls, bytes, macs;
};

/* One call of bitnet_step by our own clock. */
struct profile_step {
    uint64_t begin_ns, ns;
    uint32_t tokens;
    bitnet_phase phase;
};

struct profile_clock {
    uint64_t at_ns;
    struct sensor_clock clock;
};

/* What is read where a phase begins and ends. */
struct profile_gauges {
    struct counter_reading counters[COUNTERS];
    double joules, throttled;
    uint64_t at_ns, marks;
};

struct profile_phase {
    uint64_t n_steps, n_tokens, wall_ns;
    /* in its steps, and not between them */
    uint64_t minor_faults, major_faults, switches, switches_forced, heap_calls;
    struct profile_gauges from, to;
    struct profile_sum *by_row;    /* [n_rows][n_ops], all workers together; row 0: of no layer */
    struct profile_sum *by_worker; /* [n_workers][n_ops], all rows together */
};

/* One run with all that came of it. Zero-initialise; settings and model are the caller's. */
struct profile {
    const struct profile_settings *settings;
    const bitnet_model *model;
    bitnet_model_info info;
    bitnet_engine *engine; /* owned, as all below */
    struct adapters adapters;
    bitnet_engine_info engine_info;
    struct counters counters;
    bool counting; /* counters are open */
    struct sensor_energy energy;
    cpu_set_t cpus;
    double bandwidth; /* bytes a second */
    double others;    /* share of the machine that other programs used; negative: unknown */
    uint64_t peak_rss_bytes;
    struct prompts prompts;
    struct profile_step *steps; /* [steps_room] */
    size_t n_steps, steps_room;
    struct profile_clock *clocks; /* [PROFILE_CLOCKS_MAX] */
    size_t n_clocks;
    enum sensor_source clock_source;
    struct profile_op ops[PROFILE_OPS_MAX];
    uint32_t n_ops, n_rows, n_workers;
    struct profile_phase phases[PROFILE_PHASES];
    bitnet_profile_info prof;
    /* products a second of the chosen kernel on all threads, weights in the cache; 0: unknown */
    double kernel_macs_per_s;
    char notes[PROFILE_NOTES_MAX][240];
    size_t n_notes;
};

/* profile/run.c: opens the engine, measures; closes nothing but what it opened itself. */
bitnet_status profile_run(struct profile *p, bitnet_error *err);
void profile_free(struct profile *p); /* half-built is fine */
void profile_note(struct profile *p, const char *fmt, ...) BN_PRINTF(2, 3);

/* sums.c */
bitnet_status profile_sum_up(struct profile *p, bitnet_error *err);
const char *profile_phase_name(bitnet_phase phase);

/* profile/report.c */
struct bn_json *profile_report(const struct profile *p); /* NULL: out of memory */

/* profile/verdict.c: what limits decoding and what would help, from a report alone. free(); NULL:
 * out of memory. */
char *profile_verdict(const struct bn_json *report);

/* print.c: tables on standard output. */
void profile_print(const struct bn_json *report, bool by_layer);

/* profile/trace.c: Chrome's trace events; folded stacks, nanoseconds summed over
 * workers. Both write all and commit. */
bitnet_status profile_trace(struct bn_out *out, const struct profile *p, bitnet_error *err);
bitnet_status profile_folded(struct bn_out *out, const struct profile *p, bitnet_error *err);

#endif
