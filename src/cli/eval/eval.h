/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.h: the parts of `bitnet eval`. tasks.c knows the tasks and finds their files; read.c and
 * tables.c make items of them; score.c turns items into tokens and has the model judge them, write.c has it
 * write answers; result.c adds up, with errors; report.c shows it; diff.c compares two results; kl.c
 * compares distributions.
 *
 *   files --> items (context, choices, which is right) --> pairs of tokens --> log-likelihoods --> figures
 *
 * Prompts, what counts as right and how lengths are taken out are those of lm-evaluation-harness, so that
 * figures can be compared with published ones; docs/use/eval.md says where data makes them differ.
 */
#ifndef BN_CLI_EVAL_EVAL_H
#define BN_CLI_EVAL_EVAL_H

#include "base/os/mem.h"
#include "json/json.h"

enum {
    EVAL_OPTIONS_MAX = 64,        /* choices of an item */
    EVAL_ITEMS_MAX = 10000000,    /* of a task */
    EVAL_FILE_MAX_BYTES = 1 << 30 /* of a file that is read whole */
};

/* ------------------------------------------------------------------ items */

/* One way an item may go on. Texts belong to the set. */
struct eval_option {
    const char *context, *continuation;
    uint32_t chars; /* of the choice itself, by which acc_norm divides */
};

struct eval_item {
    struct eval_option *options;
    uint32_t n_options;
    uint32_t gold;      /* the right one */
    uint32_t group;     /* subject, of tasks with several: an index of names */
    const char *answer; /* of items whose answer is written: what it must be; else NULL */
};

struct eval_set {
    struct bn_arena texts;
    struct eval_item *items; /* owned */
    size_t n, room;
    const char **groups; /* names; owned, the names are in `texts` */
    size_t n_groups, groups_room;
};

void eval_set_free(struct eval_set *s);
/* A 0-terminated text of the set; NULL: out of memory. */
const char *eval_text(struct eval_set *s, const char *fmt, ...) BN_PRINTF(2, 3);

/* ------------------------------------------------------------------ tasks */

/* How an item is judged. */
enum eval_kind {
    EVAL_CHOICE,  /* the likeliest choice is the right one */
    EVAL_CLOZE,   /* the continuation is what the model itself would have written */
    EVAL_WRITTEN, /* the model writes, and the number at the end is right */
};

struct eval_task;
/* Makes an item of one line of the task's file. */
typedef bitnet_status (*eval_reader)(struct eval_set *s, const struct bn_json *line,
                                     const char *where, bitnet_error *err);

struct eval_task {
    const char *name;
    const char *about;
    enum eval_kind kind;
    bool normed; /* the figure that counts is acc_norm */
    uint32_t shots;
    const char
        *files; /* names below the data folder, the first that is there counts; '|' between */
    const char *origin; /* where the data come from */
    eval_reader read;   /* NULL: of another form than lines of JSON */
};

extern const struct eval_task eval_tasks[];
const struct eval_task *eval_task_find(const char *name); /* NULL: there is none of this name */

bool eval_task_ready(const struct eval_task *t, const char *folder); /* its data is there */

/* Reads a task's items from below `folder`, at most `limit` of them (0: all). */
bitnet_status eval_read_task(struct eval_set *out, const struct eval_task *t, const char *folder,
                             size_t limit, bitnet_error *err);
/* Reads a user's own file of JSON lines in one of the three open forms. */
bitnet_status eval_read_file(struct eval_set *out, enum eval_kind *kind, const char *path,
                             size_t limit, bitnet_error *err);

/* ------------------------------------------------------------------ the model's judgement */

/* What the model makes of an item's options, or of an item that it has written. */
struct eval_score {
    double logprob; /* of the continuation */
    uint32_t n_tokens;
    bool greedy; /* the model would have written it itself */
};

struct eval_settings {
    uint32_t max_new_tokens; /* of written answers */
    bool add_bos;            /* a token that begins a text stands before every context */
    bitnet_progress_fn progress;
    void *progress_user;
};

/* One task with all that came of it. */
struct eval_run {
    const char *name;
    enum eval_kind kind;
    bool normed;
    struct eval_set set;
    struct eval_score *scores;     /* owned: one an option, item after item */
    bool *right, *right_norm;      /* owned: [set.n]; by acc, by acc_norm or flexible extraction */
    uint64_t n_tokens, n_computed; /* of all texts; that went through the model */
    uint64_t n_cut;                /* texts that lost their beginning for want of context */
    uint64_t ns;
};
void eval_run_free(struct eval_run *r);

/* Fills scores and verdicts (score.c, write.c). */
bitnet_status eval_judge(struct eval_run *r, bitnet_engine *e, const bitnet_model *m,
                         const struct eval_settings *o, bitnet_error *err);
bitnet_status eval_judge_written(struct eval_run *r, bitnet_engine *e, const bitnet_model *m,
                                 const struct eval_settings *o, bitnet_error *err);

/* ------------------------------------------------------------------ figures */

/* A mean with its standard error. */
struct eval_figure {
    double value, error;
};
struct eval_figure eval_share(const bool *right, size_t n);
/* exp of the mean loss, with the error of that mean carried through. */
struct eval_figure eval_perplexity(const struct eval_score *scores, size_t n);

/* The likeliest option, by its log-probability or by that over its characters; the first of equals. */
uint32_t eval_best(const struct eval_score *scores, const struct eval_item *item, bool normed);

/* "#### 42" at the end of a worked answer, or the last number in it, without commas and the like. Empty:
 * there is none. */
enum { EVAL_NUMBER_BYTES = 64 };
void eval_number_strict(char out[EVAL_NUMBER_BYTES], const char *text);
void eval_number_flexible(char out[EVAL_NUMBER_BYTES], const char *text);

/* McNemar's test, exact: how likely are two models that are equally good to disagree at least as
 * one-sidedly? only_a, only_b: items that only one of them has right. */
double eval_mcnemar(uint64_t only_a, uint64_t only_b);

/* ------------------------------------------------------------------ reports */

#define EVAL_FORMAT "bitnet-eval-1" /* first member of every report */

struct bn_json *eval_task_json(const struct eval_run *r, bool items); /* NULL: out of memory */
void eval_print_table(const struct bn_json *report);
char *eval_page(const struct bn_json *report); /* HTML; owned text, NULL when memory is out */
/* Compares two reports with items; returns the exit code. */
int eval_diff(const char *path_a, const char *path_b, bool json);

#endif
