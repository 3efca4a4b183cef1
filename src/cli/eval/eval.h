/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.h: the parts of `bitnet eval`. tasks.c knows the tasks and finds their files; read.c makes items
 * of them; pairs.c turns items into tokens; score.c has the model judge them; result.c adds up, with
 * errors; report.c shows it; diff.c compares two results.
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

/* Reads a task's items from below `folder`, at most `limit` of them (0: all). */
bitnet_status eval_read_task(struct eval_set *out, const struct eval_task *t, const char *folder,
                             size_t limit, bitnet_error *err);
/* Reads a user's own file of JSON lines in one of the three open forms. */
bitnet_status eval_read_file(struct eval_set *out, enum eval_kind *kind, const char *path,
                             size_t limit, bitnet_error *err);

#endif
