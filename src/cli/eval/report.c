/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/report.c: results as JSON; and from that, and nothing else, the table and the page.
 */
#include "app/report.h"
#include "app/svg.h"
#include "cli/eval/eval.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE_MAX_BYTES = 16 << 20 };

/* ------------------------------------------------------------------ making it */

static void set_figure(struct bn_json *o, const char *name, struct eval_figure f)
{
    bn_json_set(o, name, bn_json_pack("{s:f, s:f}", "value", f.value, "stderr", f.error));
}

static const char *kind_name(enum eval_kind kind)
{
    return kind == EVAL_CHOICE ? "choice" : kind == EVAL_CLOZE ? "cloze" : "written";
}

static struct bn_json *item_json(const struct eval_run *r, size_t i, const struct eval_score *s)
{
    const struct eval_item *item = &r->set.items[i];
    struct bn_json *o = bn_json_object(), *logprobs = bn_json_array();
    set_int(o, "item", i);
    bn_json_set(o, "right", bn_json_bool(r->right[i]));
    bn_json_set(o, "right_norm", bn_json_bool(r->right_norm[i]));
    if (r->kind == EVAL_WRITTEN) {
        bn_json_free(logprobs);
        return o;
    }
    for (uint32_t k = 0; k < item->n_options; k++)
        bn_json_append(logprobs, bn_json_real(s[k].logprob));
    set_int(o, "gold", item->gold);
    bn_json_set(o, "logprobs", logprobs);
    return o;
}

/* Accuracy of each subject. */
static struct bn_json *groups_json(const struct eval_run *r)
{
    struct bn_json *list = bn_json_array();
    bool *right = bn_calloc(r->set.n + 1, sizeof *right);
    for (size_t g = 0; right && g < r->set.n_groups; g++) {
        size_t n = 0;
        for (size_t i = 0; i < r->set.n; i++)
            if (r->set.items[i].group == g) right[n++] = r->right[i];
        struct bn_json *o = bn_json_object();
        set_text(o, "name", r->set.groups[g]);
        set_int(o, "items", n);
        set_figure(o, "acc", eval_share(right, n));
        bn_json_append(list, o);
    }
    if (!right) bn_json_append(list, NULL); /* broken: it is not whole */
    free(right);
    return list;
}

struct bn_json *eval_task_json(const struct eval_run *r, bool items)
{
    struct bn_json *o = bn_json_object(), *list = NULL;
    set_text(o, "task", r->name);
    set_text(o, "kind", kind_name(r->kind));
    set_int(o, "items", r->set.n);
    if (r->kind == EVAL_WRITTEN) {
        set_figure(o, "exact_match", eval_share(r->right, r->set.n));
        set_figure(o, "exact_match_flexible", eval_share(r->right_norm, r->set.n));
        set_text(o, "counts", "exact_match");
    } else {
        set_figure(o, "acc", eval_share(r->right, r->set.n));
        if (r->kind == EVAL_CHOICE) set_figure(o, "acc_norm", eval_share(r->right_norm, r->set.n));
        if (r->kind == EVAL_CLOZE)
            set_figure(o, "perplexity", eval_perplexity(r->scores, r->set.n));
        set_text(o, "counts", r->normed ? "acc_norm" : "acc");
    }
    if (r->set.n_groups) bn_json_set(o, "subjects", groups_json(r));
    set_int(o, "tokens", r->n_tokens);
    set_int(o, "tokens_computed", r->n_computed);
    set_int(o, "texts_cut", r->n_cut);
    set_real(o, "seconds", (double)r->ns / 1e9);
    if (items) {
        const struct eval_score *s = r->scores;
        list = bn_json_array();
        for (size_t i = 0; i < r->set.n; i++) {
            bn_json_append(list, item_json(r, i, s));
            s += s ? r->set.items[i].n_options : 0;
        }
        bn_json_set(o, "results", list);
    }
    return o;
}

/* ------------------------------------------------------------------ showing it */

static const char *const FIGURES[] = {"acc", "acc_norm", "perplexity", "exact_match",
                                      "exact_match_flexible"};
enum { N_FIGURES = sizeof FIGURES / sizeof *FIGURES };

static bool is_share(const char *name) { return strcmp(name, "perplexity") != 0; }

void eval_print_table(const struct bn_json *report)
{
    const struct bn_json *tasks = bn_json_get(report, "tasks"), *t;
    size_t i;
    printf("%-16s %7s  %-22s %9s %9s\n", "task", "items", "figure", "value", "+/-");
    bn_json_each(tasks, i, t)
    {
        const char *name = report_text(t, "task");
        for (size_t k = 0; k < N_FIGURES; k++) {
            const struct bn_json *f = bn_json_get(t, FIGURES[k]);
            if (!f) continue;
            double scale = is_share(FIGURES[k]) ? 100 : 1;
            printf("%-16s %7.0f %c%-22s %8.2f%s %8.2f\n", name, report_number(t, "items"),
                   strcmp(report_text(t, "counts"), FIGURES[k]) == 0 ? '*' : ' ', FIGURES[k],
                   report_number(f, "value") * scale, scale > 1 ? "%" : " ",
                   report_number(f, "stderr") * scale);
            name = "";
        }
    }
    printf("\n* the figure that is usually quoted; +/-: its standard error\n");
    bn_json_each(tasks, i, t)
    {
        double cut = report_number(t, "texts_cut");
        if (cut > 0)
            printf("%s: %.0f %s longer than the context and lost %s beginning\n",
                   report_text(t, "task"), cut, cut == 1 ? "text was" : "texts were",
                   cut == 1 ? "its" : "their");
    }
}

/* One bar: the share that is right, and the range of one standard error. */
static void draw_bar(struct bn_buf *b, const char *task, const char *figure,
                     const struct bn_json *f)
{
    double v = report_number(f, "value"), e = report_number(f, "stderr");
    bn_buf_puts(b, "<tr><th>");
    svg_text(b, task);
    bn_buf_printf(
        b,
        "</th><td>%s</td><td class=\"n\">%.2f&thinsp;%% &plusmn; %.2f</td><td class=\"b\">"
        "<span style=\"width:%.2f%%\"></span>"
        "<i style=\"left:%.2f%%;width:%.2f%%\"></i></td></tr>\n",
        figure, v * 100, e * 100, v * 100, (v > e ? v - e : 0) * 100, 2 * e * 100);
}

char *eval_page(const struct bn_json *report)
{
    static const char HEAD[] =
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>bitnet "
        "eval</title>\n<style>"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;"
        "margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;width:100%}"
        "th{text-align:left;font-weight:600}th,td{padding:.25rem .6rem .25rem 0}"
        ".n{text-align:right;white-space:nowrap}.b{width:50%;position:relative}"
        ".b span{display:block;height:1.1rem;background:#3b76c4;border-radius:2px}"
        ".b i{position:absolute;top:.75rem;height:3px;background:currentColor}</style>\n";
    const struct bn_json *tasks = bn_json_get(report, "tasks"), *t;
    struct bn_buf b;
    size_t i;
    bn_buf_init(&b, PAGE_MAX_BYTES);
    bn_buf_puts(&b, HEAD);
    bn_buf_puts(&b, "<h1>");
    svg_text(&b, report_text(bn_json_get(report, "model"), "name"));
    bn_buf_puts(&b, "</h1>\n<p>bitnet ");
    svg_text(&b, report_text(report, "version"));
    bn_buf_puts(&b, ", ");
    svg_text(&b, report_text(report, "date"));
    bn_buf_puts(&b, ". Bars: share of items that are right; the line: one standard error to each "
                    "side.</p>\n<table>\n");
    bn_json_each(tasks, i, t)
    {
        const char *name = report_text(t, "task");
        for (size_t k = 0; k < N_FIGURES; k++) {
            const struct bn_json *f = bn_json_get(t, FIGURES[k]);
            if (!f || !is_share(FIGURES[k])) continue;
            draw_bar(&b, name, FIGURES[k], f);
            name = "";
        }
    }
    bn_buf_puts(&b, "</table>\n</html>\n");
    return bn_buf_take(&b);
}
