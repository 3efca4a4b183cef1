/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/diff.c: two reports of the same items. Items on which both agree say nothing about which is
 * better; of the others McNemar's test tells whether they are more one-sided than chance makes them.
 */
#include "app/report.h"
#include "cli/eval/eval.h"

#include <stdio.h>
#include <string.h>

enum { REPORT_MAX_BYTES = 1 << 30 };
#define ALPHA 0.05

static bitnet_status read_report(struct bn_json **out, const char *path, bitnet_error *err)
{
    BN_TRY(bn_json_read_file(out, path, REPORT_MAX_BYTES, err));
    if (strcmp(report_text(*out, "format"), EVAL_FORMAT) == 0) return BITNET_OK;
    bn_json_free(*out);
    *out = NULL;
    return bn_fail(err, BITNET_E_FORMAT, "'%s' is no report of bitnet eval (format %s)", path,
                   EVAL_FORMAT);
}

static const struct bn_json *task_of(const struct bn_json *report, const char *name)
{
    const struct bn_json *t;
    size_t i;
    bn_json_each(bn_json_get(report, "tasks"), i,
                 t) if (strcmp(report_text(t, "task"), name) == 0) return t;
    return NULL;
}

/* Compares one task's items by the figure that counts. NULL: they are not the same items. */
static struct bn_json *compare(const struct bn_json *a, const struct bn_json *b)
{
    const struct bn_json *items_a = bn_json_get(a, "results"), *items_b = bn_json_get(b, "results");
    const char *member = strcmp(report_text(a, "counts"), "acc_norm") == 0 ? "right_norm" : "right";
    size_t n = bn_json_size(items_a), i;
    uint64_t only_a = 0, only_b = 0, right_a = 0, right_b = 0;
    if (!n || bn_json_size(items_b) != n) return NULL;
    for (i = 0; i < n; i++) {
        const struct bn_json *x = bn_json_at(items_a, i), *y = bn_json_at(items_b, i);
        if (report_number(x, "gold") != report_number(y, "gold")) return NULL;
        bool xa = bn_json_is_true(bn_json_get(x, member));
        bool yb = bn_json_is_true(bn_json_get(y, member));
        right_a += xa;
        right_b += yb;
        only_a += xa && !yb;
        only_b += yb && !xa;
    }
    double p = eval_mcnemar(only_a, only_b);
    return bn_json_pack("{s:s, s:s, s:I, s:f, s:f, s:I, s:I, s:f, s:s}", "task",
                        report_text(a, "task"), "figure", report_text(a, "counts"), "items",
                        (int64_t)n, "a", (double)right_a / (double)n, "b",
                        (double)right_b / (double)n, "only_a", (int64_t)only_a, "only_b",
                        (int64_t)only_b, "p_value", p, "verdict",
                        p >= ALPHA        ? "noise"
                        : only_a > only_b ? "a is better"
                                          : "b is better");
}

static void print_rows(const struct bn_json *rows)
{
    const struct bn_json *r;
    size_t i;
    printf("%-16s %-12s %7s %8s %8s %7s %7s %9s  %s\n", "task", "figure", "items", "a", "b",
           "only a", "only b", "p", "verdict");
    bn_json_each(rows, i, r)
        printf("%-16s %-12s %7.0f %7.2f%% %7.2f%% %7.0f %7.0f %9.4f  %s\n", report_text(r, "task"),
               report_text(r, "figure"), report_number(r, "items"), report_number(r, "a") * 100,
               report_number(r, "b") * 100, report_number(r, "only_a"), report_number(r, "only_b"),
               report_number(r, "p_value"), report_text(r, "verdict"));
    printf("\np: how likely models that are equally good differ so much (McNemar, exact); noise: "
           "p >= %.2f\n",
           ALPHA);
}

int eval_diff(const char *path_a, const char *path_b, bool json)
{
    struct bn_json *a = NULL, *b = NULL, *rows = bn_json_array();
    const struct bn_json *t;
    bitnet_error err = {0};
    int code = EXIT_DONE;
    size_t i;
    if (read_report(&a, path_a, &err) != BITNET_OK || read_report(&b, path_b, &err) != BITNET_OK)
        code = term_fail(&err);
    bn_json_each(bn_json_get(a, "tasks"), i, t)
    {
        const struct bn_json *other = task_of(b, report_text(t, "task"));
        struct bn_json *row = code == EXIT_DONE && other ? compare(t, other) : NULL;
        if (row) bn_json_append(rows, row);
        else if (code == EXIT_DONE && other)
            code =
                term_fail_text("the items of task %s are not the same in both reports, or were not "
                               "kept (eval --items)",
                               report_text(t, "task"));
    }
    if (code == EXIT_DONE && !bn_json_size(rows))
        code = term_fail_text("the two reports have no task in common");
    if (code == EXIT_DONE && !json) print_rows(rows);
    if (code == EXIT_DONE && json) code = term_print_json(bn_json_pack("{s:O}", "tasks", rows));
    bn_json_free(rows);
    bn_json_free(a);
    bn_json_free(b);
    return code == EXIT_DONE ? term_finish(EXIT_DONE) : code;
}
