/* SPDX-License-Identifier: Apache-2.0
 *
 * autotune.c: `bitnet bench --autotune` from its settings to the tuning file. What could fail at
 * the end, the files, is looked at before the minutes of measuring.
 */
#include "base/os/file.h"
#include "cli/core/command.h"
#include "app/term.h"
#include "cli/autotune/autotune.h"
#include <stdlib.h>

const struct opt autotune_opts_table[] = {
    {.kind = OPT_FLAG,
     .name = "autotune",
     .help = "find threads, layout, pinning, prefetch distance and batch for this machine and "
             "model, and write them to the file of --tuning",
     .offset = offsetof(struct autotune_opts, on)},
    {.kind = OPT_CHOICE,
     .name = "for",
     .help = "what to optimise for: one answer, prompts, or 8 answers at once",
     .offset = offsetof(struct autotune_opts, objective),
     .initial = "decode",
     .choices = "decode|prefill|serve"},
    {.kind = OPT_U32,
     .name = "budget",
     .metavar = "S",
     .help = "time limit in seconds; large models need several hundred",
     .offset = offsetof(struct autotune_opts, budget_s),
     .initial = "60",
     .min = 1,
     .max = 86400},
    {.kind = OPT_FLAG,
     .name = "exhaustive",
     .help = "then measure every combination, --repeat times, and show how far the choice is "
             "behind the best",
     .offset = offsetof(struct autotune_opts, exhaustive)},
    {.kind = OPT_END},
};

static const double busy_others = 0.05; /* share above which a note is made */

/* Reads what is there already, to find it damaged now if it is. */
static bitnet_status check_file(const char *path, bitnet_error *err)
{
    struct bn_json *file = NULL;
    if (!bn_exists(path)) return BITNET_OK;
    bitnet_status s = autotune_file_read(&file, path, err);
    bn_json_free(file);
    return s;
}

static bitnet_status write_entry(const struct autotune *t, const char *path,
                                 const struct bn_json *key, bitnet_error *err)
{
    struct bn_json *entry = autotune_entry(t);
    bitnet_status s = entry ? autotune_file_write(path, key, entry, err)
                            : bn_fail_nomem(err, 0, "the entry of the tuning file");
    bn_json_free(entry);
    return s;
}

/* Questions that were left open because time was short. */
static void note_open_questions(const struct autotune *t)
{
    struct bn_buf b;
    bn_buf_init(&b, 512);
    bn_buf_printf(&b, "%u s were too short for", t->settings->budget_s);
    size_t n = 0;
    for (size_t i = 0; i < t->n_stages; i++) {
        const struct autotune_stage *g = &t->stages[i];
        if (g->is_sweep || autotune_search_left(g->search) < 2 ||
            g->search->rounds >= AUTOTUNE_ROUNDS_TELLING)
            continue;
        bn_buf_printf(&b, "%s %s (%s)", n++ ? "," : "", g->name, autotune_metric_name(g->metric));
    }
    bn_buf_puts(&b, ", where the default stays; --budget gives more");
    if (n && !b.failed) term_note(b.data);
    bn_buf_free(&b);
}

static void print_notes(const struct autotune *t)
{
    note_open_questions(t);
    char note[192];
    if (t->others > busy_others) {
        snprintf(note, sizeof note,
                 "other programs used %.0f %% of the machine meanwhile: what is best beside them "
                 "need not be best alone",
                 t->others * 100);
        term_note(note);
    }
    if (!t->checked) {
        snprintf(note, sizeof note,
                 "%u s did not suffice to see the choice beat the default, which stays; --budget "
                 "gives more",
                 t->settings->budget_s);
        term_note(note);
    }
}

static int show(const struct autotune *t, const struct bn_json *key, struct bn_out *report,
                bool json, bitnet_error *err)
{
    struct bn_json *j = autotune_report(t);
    bn_json_update(j, key, true);
    char *text = bn_json_dump(j, BN_JSON_INDENT(1) | BN_JSON_DIGITS(12));
    int code = text ? EXIT_DONE : term_fail_text("out of memory while building the report");
    if (text && report->fd >= 0 &&
        (bn_out_write(report, text, strlen(text), err) != BITNET_OK ||
         bn_out_commit(report, err) != BITNET_OK))
        code = term_fail(err);
    if (code == EXIT_DONE && json) code = term_print_json(bn_json_ref(j));
    else if (code == EXIT_DONE) autotune_print(t);
    free(text);
    bn_json_free(j);
    fflush(stdout);
    return code;
}

/* path: of the tuning file; NULL: none is wanted. */
static int autotune_and_write(struct autotune *t, const char *path, struct bn_out *report,
                              bool json, bitnet_error *err)
{
    const struct autotune_settings *s = t->settings;
    struct bn_json *key = NULL;
    int code = EXIT_DONE;
    if (autotune_file_key(&key, s->path, s->model.backend, s->model.activations, err) !=
            BITNET_OK ||
        autotune_run(t, err) != BITNET_OK || (path && write_entry(t, path, key, err) != BITNET_OK))
        code = term_fail(err);
    if (code == EXIT_DONE) code = show(t, key, report, json, err);
    if (code == EXIT_DONE) {
        print_notes(t);
        char note[AUTOTUNE_FILE_PATH_BYTES + 64];
        snprintf(note, sizeof note, path ? "written to %s" : "written nowhere: --tuning is off",
                 path);
        term_note(note);
    }
    bn_json_free(key);
    return code;
}

int autotune_command(const struct autotune_settings *s, const char *report_path, bool json)
{
    bitnet_error err = {0};
    struct autotune *t = calloc(1, sizeof *t);
    struct bn_out report = {.fd = -1};
    char path[AUTOTUNE_FILE_PATH_BYTES];
    bool wanted = autotune_file_path(path, s->model.tuning);
    int code = t ? EXIT_DONE : term_fail_text("out of memory");
    if (code == EXIT_DONE &&
        ((wanted && check_file(path, &err) != BITNET_OK) ||
         (report_path && bn_out_open(&report, report_path, true, &err) != BITNET_OK)))
        code = term_fail(&err);
    if (code == EXIT_DONE) {
        t->settings = s;
        code = autotune_and_write(t, wanted ? path : NULL, &report, json, &err);
    }
    if (t) autotune_free(t);
    free(t);
    bn_out_close(&report);
    return code;
}
