/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune.h: what the files of `bitnet bench --autotune` share. rig.c measures one point, run.c
 * leads from the default to the choice and through a sweep, report.c shows what came of it,
 * autotune.c does all of it; search.c chooses among candidates, app/autotune_file.c keeps the file.
 *
 *   default --> threads x layout --> pin --> prefetch --> batch --> choice beside default --> file
 */
#ifndef BN_CLI_AUTOTUNE_AUTOTUNE_H
#define BN_CLI_AUTOTUNE_AUTOTUNE_H

#include "cli/bench/bench.h"
#include "cli/options/model_opts.h"
#include "cli/autotune/search.h"

enum autotune_metric { AUTOTUNE_DECODE, AUTOTUNE_PREFILL, AUTOTUNE_SERVE };
const char *autotune_metric_name(enum autotune_metric m);

/* One way to run the model. Everything is named: a default that depends on the number of threads
 * would be another one elsewhere. */
struct autotune_point {
    uint32_t threads, batch_tokens;
    uint32_t prefetch_bytes; /* 0: not to be had in this build */
    const char *layout;      /* "t2", "t3", "t5", "b1"; "auto": the model has none of them */
    bool pin;
};
bool autotune_point_same(const struct autotune_point *a, const struct autotune_point *b);

/* What the user gives. */
struct autotune_opts {
    bool on, exhaustive;
    const char *objective; /* name of a metric */
    uint32_t budget_s;
};
extern const struct opt autotune_opts_table[]; /* autotune.c */

struct autotune_settings {
    const char *path;        /* of the model; NULL: the embedded one */
    struct model_opts model; /* backend and activations as the user wants them */
    struct engine_opts engine;
    enum autotune_metric metric; /* what is to be fast; prefill, or else decode, settles a tie */
    uint32_t budget_s;
    uint32_t prompt_tokens, max_new_tokens;
    uint32_t sweep_rounds; /* 0: no sweep */
    uint64_t seed;
};

/* ------------------------------------------------------------------ rig.c */

/* Models in several layouts and engines on them, kept open as far as memory allows. */
struct autotune_rig;
bitnet_status autotune_rig_open(struct autotune_rig **out, const struct autotune_settings *s,
                                bitnet_error *err);
void autotune_rig_close(struct autotune_rig *r);
void autotune_rig_default(const struct autotune_rig *r, struct autotune_point *out);
/* Tokens a second. */
bitnet_status autotune_rig_measure(struct autotune_rig *r, enum autotune_metric metric,
                                   const struct autotune_point *p, double *rate, bitnet_error *err);
/* Does the model really lie like that? *is: yes. */
bitnet_status autotune_rig_try_layout(struct autotune_rig *r, const char *layout, bool *is,
                                      bitnet_error *err);

/* ------------------------------------------------------------------ autotune/run.c */

enum { AUTOTUNE_STAGES_MAX = 12, AUTOTUNE_NAME_BYTES = 32 };

/* One search or sweep: its candidates, and what was measured of them. */
struct autotune_stage {
    char name[AUTOTUNE_NAME_BYTES];
    enum autotune_metric metric;
    struct autotune_point *points;  /* [search->n], owned */
    struct autotune_search *search; /* owned */
    bool is_sweep;                  /* all were measured; the preferred one is the choice */
    bool is_rematch;                /* of a sweep: the choice, and the one that was best there */
};

struct autotune {
    const struct autotune_settings *settings;
    struct autotune_point start, choice; /* the default; what was found */
    struct autotune_stage stages[AUTOTUNE_STAGES_MAX];
    size_t n_stages;
    bool checked;  /* the choice beside the default came to a result */
    double used_s; /* without the sweep */
    double others; /* share of the machine that other programs used; negative: unknown */
};

bitnet_status autotune_run(struct autotune *t, bitnet_error *err);
void autotune_free(struct autotune *t); /* half-built is fine */
/* What is to be written: where the choice differs from the default. */
void autotune_result(const struct autotune *t, struct autotune_values *out);

/* ------------------------------------------------------------------ autotune/report.c */

#define AUTOTUNE_FORMAT "bitnet-autotune-1" /* first member of the report */

struct bn_json *autotune_entry(const struct autotune *t);  /* for autotune_file_write */
struct bn_json *autotune_report(const struct autotune *t); /* the same with all measurements */
void autotune_print(const struct autotune *t);

/* autotune.c: measures, writes the tuning file and a report (NULL: none), prints. Returns the
 * exit code. */
int autotune_command(const struct autotune_settings *s, const char *report_path, bool json);

#endif
