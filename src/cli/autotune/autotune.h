/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune.h: what the files of `bitnet bench --autotune` share. rig.c measures one point, autotune/run.c
 * leads from the default to the choice and through a sweep, autotune/report.c shows what came of it,
 * bench_autotune.c does all of it; autotune/search.c chooses among candidates, tuning.c keeps the file.
 *
 *   default --> threads x layout --> pin --> prefetch --> batch --> choice beside default --> file
 */
#ifndef BN_CLI_AUTOTUNE_AUTOTUNE_H
#define BN_CLI_AUTOTUNE_AUTOTUNE_H

#include "cli/bench/bench.h"
#include "cli/options/model_opts.h"
#include "cli/autotune/search.h"

enum tune_metric { TUNE_DECODE, TUNE_PREFILL, TUNE_SERVE };
const char *tune_metric_name(enum tune_metric m);

/* One way to run the model. Everything is named: a default that depends on the number of threads
 * would be another one elsewhere. */
struct tune_point {
    uint32_t threads, batch_tokens;
    uint32_t prefetch_bytes; /* 0: not to be had in this build */
    const char *layout;      /* "t2", "t3", "t5", "b1"; "auto": the model has none of them */
    bool pin;
};
bool tune_point_same(const struct tune_point *a, const struct tune_point *b);

/* What the user gives. */
struct tune_opts {
    bool autotune, exhaustive;
    const char *objective; /* name of a metric */
    uint32_t budget_s;
};
extern const struct opt tune_opts_table[]; /* bench_autotune.c */

struct tune_settings {
    const char *path;        /* of the model; NULL: the embedded one */
    struct model_opts model; /* backend and activations as the user wants them */
    struct engine_opts engine;
    enum tune_metric metric; /* what is to be fast; prefill, or else decode, settles a tie */
    uint32_t budget_s;
    uint32_t prompt_tokens, max_new_tokens;
    uint32_t sweep_rounds; /* 0: no sweep */
    uint64_t seed;
};

/* ------------------------------------------------------------------ rig.c */

/* Models in several layouts and engines on them, kept open as far as memory allows. */
struct tune_rig;
bitnet_status tune_rig_open(struct tune_rig **out, const struct tune_settings *s,
                            bitnet_error *err);
void tune_rig_close(struct tune_rig *r);
void tune_rig_default(const struct tune_rig *r, struct tune_point *out);
/* Tokens a second. */
bitnet_status tune_rig_measure(struct tune_rig *r, enum tune_metric metric,
                               const struct tune_point *p, double *rate, bitnet_error *err);
/* Does the model really lie like that? *is: yes. */
bitnet_status tune_rig_try_layout(struct tune_rig *r, const char *layout, bool *is,
                                  bitnet_error *err);

/* ------------------------------------------------------------------ autotune/run.c */

enum { TUNE_STAGES_MAX = 12, TUNE_NAME_BYTES = 32 };

/* One search or sweep: its candidates, and what was measured of them. */
struct tune_stage {
    char name[TUNE_NAME_BYTES];
    enum tune_metric metric;
    struct tune_point *points;  /* [search->n], owned */
    struct tune_search *search; /* owned */
    bool is_sweep;              /* all were measured; the preferred one is the choice */
    bool is_rematch;            /* of a sweep: the choice, and the one that was best there */
};

struct tune {
    const struct tune_settings *settings;
    struct tune_point start, choice; /* the default; what was found */
    struct tune_stage stages[TUNE_STAGES_MAX];
    size_t n_stages;
    bool checked;  /* the choice beside the default came to a result */
    double used_s; /* without the sweep */
    double others; /* share of the machine that other programs used; negative: unknown */
};

bitnet_status tune_run(struct tune *t, bitnet_error *err);
void tune_free(struct tune *t); /* half-built is fine */
/* What is to be written: where the choice differs from the default. */
void tune_result(const struct tune *t, struct tuning *out);

/* ------------------------------------------------------------------ autotune/report.c */

#define TUNE_FORMAT "bitnet-autotune-1" /* first member of the report */

struct bn_json *tune_entry(const struct tune *t);  /* for tuning_write */
struct bn_json *tune_report(const struct tune *t); /* the same with all measurements */
void tune_print(const struct tune *t);

/* bench_autotune.c: measures, writes the tuning file and a report (NULL: none), prints. Returns the
 * exit code. */
int bench_autotune(const struct tune_settings *s, const char *report_path, bool json);

#endif
