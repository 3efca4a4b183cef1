/* SPDX-License-Identifier: Apache-2.0
 *
 * prune/report.c: what was removed and what it costs, as JSON, table and page.
 */
#include "app/report.h"
#include "app/svg.h"
#include "cli/prune/prune.h"
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE_MAX_BYTES = 1 << 20, PANEL_HEIGHT = 260, POINT_ROOM = 40, DATE_BYTES = 32 };

/* ------------------------------------------------------------------ making it */

/* The share of all layers' bytes that is left. */
static double share_left(const struct prune_facts *f, const bitnet_prune_step *s)
{
    double ffn = (double)f->bytes.ffn, all = ffn + (double)f->bytes.mixers;
    double width = (double)s->ffn_width / (double)f->model->shape.n_ff;
    double narrow = all > 0 ? (all - ffn * (1 - width)) / all : 1;
    return narrow * (double)s->layers_left / (double)f->model->shape.n_layer;
}

/* Decoding is bound by the bytes that a token reads. */
static double predicted(const struct prune_facts *f, const bitnet_prune_step *s)
{
    double layers = (double)f->model->memory.layer_bytes,
           head = (double)f->model->memory.head_bytes;
    return layers + head > 0 ? f->tok_s * (layers + head) / (layers * share_left(f, s) + head) : 0;
}

static struct bn_json *step_json(const struct prune_facts *f, size_t i)
{
    const bitnet_prune_result *r = f->result;
    const bitnet_prune_step *s = &r->steps[i];
    struct bn_json *o = bn_json_object(), *removed = bn_json_array();
    for (uint32_t k = 0; k < s->n_layers; k++)
        bn_json_append(removed, bn_json_int(s->first_layer + k));
    double layers = (double)(f->bytes.ffn + f->bytes.mixers);
    bool last = i > 0 && i + 1 == r->n_steps;
    set_int(o, "layers_left", s->layers_left);
    set_int(o, "ffn_width", s->ffn_width);
    bn_json_set(o, "removed", removed);
    set_real(o, "nll_per_token", s->nll_per_token);
    set_real(o, "perplexity", s->perplexity);
    set_real(o, "std_error", s->std_error);
    set_real(o, "ppl_ratio", s->perplexity / r->steps[0].perplexity);
    set_real(o, "kl", s->kl);
    if (f->tok_s > 0) set_real(o, "tok_s_predicted", predicted(f, s));
    if (i == 0 && f->tok_s > 0) set_real(o, "tok_s", f->tok_s);
    if (last && f->tok_s_after > 0) set_real(o, "tok_s", f->tok_s_after);
    set_int(o, "bytes", (uint64_t)(layers * share_left(f, s)) + f->bytes.others);
    return o;
}

static struct bn_json *text_json(const struct prune_facts *f)
{
    char sum[24];
    struct bn_json *o = bn_json_object();
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)f->text->checksum);
    set_text(o, "file", f->text_path);
    set_int(o, "texts", f->text->n_texts);
    set_int(o, "tokens", f->text->n);
    set_int(o, "tokens_scored", f->result->n_tokens);
    set_int(o, "window", f->window);
    set_text(o, "checksum", sum);
    return o;
}

struct bn_json *prune_report(const struct prune_facts *f)
{
    const bitnet_prune_result *r = f->result;
    struct bn_json *o = bn_json_object(), *steps = bn_json_array(), *removed = bn_json_array(),
                   *scores = bn_json_array();
    char date[DATE_BYTES];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    set_text(o, "date", date);
    set_text(o, "version", bitnet_version());
    bn_json_set(o, "model", report_model(f->model));
    bn_json_set(o, "calibration", text_json(f));
    set_text(o, "criterion", f->criterion);
    set_int(o, "unit", f->unit);
    for (uint32_t i = 0; r->scores && i < f->model->shape.n_layer; i++)
        bn_json_append(scores, bn_json_real(r->scores[i]));
    bn_json_set(o, "scores", scores);
    for (size_t i = 0; i < r->n_steps; i++) {
        bn_json_append(steps, step_json(f, i));
        for (uint32_t k = 0; k < r->steps[i].n_layers; k++)
            bn_json_append(removed, bn_json_int(r->steps[i].first_layer + k));
    }
    bn_json_set(o, "steps", steps);
    bn_json_set(o, "removed", removed);
    if (r->ffn_width < f->model->shape.n_ff) {
        struct bn_json *ffn = bn_json_object();
        set_int(ffn, "width_before", f->model->shape.n_ff);
        set_int(ffn, "width", r->ffn_width);
        set_real(ffn, "active_share", r->ffn_active);
        bn_json_set(o, "ffn", ffn);
    }
    if (r->over_budget > 0) set_real(o, "over_budget", r->over_budget);
    if (f->output) {
        set_text(o, "output", f->output);
        set_int(o, "output_bytes", f->output_bytes);
        set_text(o, "readers", f->readers);
    }
    set_int(o, "layer_tokens", r->layer_tokens);
    set_int(o, "head_tokens", r->head_tokens);
    set_int(o, "scratch_bytes", r->scratch_bytes);
    set_real(o, "seconds", (double)r->ns / 1e9);
    return o;
}

/* ------------------------------------------------------------------ table */

/* What a step removed: numbers of layers with commas, or channels; "-" for nothing. */
static const char *removed_text(char out[64], const struct bn_json *steps, size_t step)
{
    const struct bn_json *s = bn_json_at(steps, step), *list = bn_json_get(s, "removed");
    size_t at = 0, n = bn_json_size(list);
    double before = step ? report_number(bn_json_at(steps, step - 1), "ffn_width") : 0;
    snprintf(out, 64, "-");
    if (step && !n) snprintf(out, 64, "%.0f ch.", before - report_number(s, "ffn_width"));
    for (size_t i = 0; i < n && at < 48; i++)
        at += (size_t)snprintf(out + at, 64 - at, "%s%lld", i ? "," : "",
                               (long long)bn_json_integer(bn_json_at(list, i)));
    return out;
}

static void print_rate(const struct bn_json *step, const char *key)
{
    if (bn_json_is_number(bn_json_get(step, key))) printf(" %9.1f", report_number(step, key));
    else printf(" %9s", "-");
}

void prune_print_table(const struct bn_json *report)
{
    const struct bn_json *steps = bn_json_get(report, "steps"), *s,
                         *text = bn_json_get(report, "calibration");
    char list[64], size[TERM_SIZE_BYTES];
    size_t i;
    printf("%6s %6s  %-10s %12s %9s %10s %10s %9s %9s\n", "layers", "width", "removed",
           "perplexity", "+/-", "KL", "bytes", "predicted", "tok/s");
    bn_json_each(steps, i, s)
    {
        printf("%6.0f %6.0f  %-10s %12.4f %9.4f %10.5f %10s", report_number(s, "layers_left"),
               report_number(s, "ffn_width"), removed_text(list, steps, i),
               report_number(s, "perplexity"), report_number(s, "std_error"),
               report_number(s, "kl"), term_size(size, (uint64_t)report_number(s, "bytes")));
        print_rate(s, "tok_s_predicted");
        print_rate(s, "tok_s");
        putchar('\n');
    }
    printf("\ncriterion %s; %.0f tokens in windows of %.0f; %.1f s\n",
           report_text(report, "criterion"), report_number(text, "tokens_scored"),
           report_number(text, "window"), report_number(report, "seconds"));
    if (bn_json_get(report, "ffn"))
        printf("the channels that went were active at %.1f %% of the tokens, in the mean\n",
               100 * report_number(bn_json_get(report, "ffn"), "active_share"));
    if (report_number(report, "over_budget") > 0)
        printf("the next step would have had perplexity %.4f, over the budget\n",
               report_number(report, "over_budget"));
    if (!*report_text(report, "output")) return;
    term_print_clean(stdout, report_text(report, "output"));
    printf(": %s; read by %s\n", term_size(size, (uint64_t)report_number(report, "output_bytes")),
           report_text(report, "readers"));
}

/* ------------------------------------------------------------------ page */

struct panel {
    struct svg_panel svg;
    const struct bn_json *steps;
    const char *key;
};

static double x_of(const struct panel *p, size_t i)
{
    double from = SVG_LEFT + POINT_ROOM, to = SVG_WIDTH - SVG_RIGHT - POINT_ROOM;
    size_t n = bn_json_size(p->steps);
    return n < 2 ? (from + to) / 2 : from + (to - from) * (double)i / (double)(n - 1);
}

static void draw_panel(struct panel *p, const char *title, const char *unit)
{
    struct bn_buf *b = p->svg.out;
    const struct bn_json *s;
    double most = 0;
    size_t i;
    bn_json_each(p->steps, i, s) most = fmax(most, report_number(s, p->key));
    p->svg.max_y = svg_round_up(most > 0 ? most * 1.1 : 1);
    svg_frame(&p->svg, title, unit, "layers left, and channels where they were narrowed");
    bn_buf_puts(b, "<polyline points=\"");
    bn_json_each(p->steps, i, s) bn_buf_printf(b, "%s%.1f,%.1f", i ? " " : "", x_of(p, i),
                                               svg_y(&p->svg, report_number(s, p->key)));
    bn_buf_puts(b, "\"/>\n");
    bn_json_each(p->steps, i, s)
    {
        char left[24];
        double v = report_number(s, p->key), y = svg_y(&p->svg, v);
        bool narrowed = i > 0 && bn_json_size(bn_json_get(s, "removed")) == 0;
        snprintf(left, sizeof left, "%.0f",
                 report_number(s, narrowed ? "ffn_width" : "layers_left"));
        bn_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", x_of(p, i), y);
        bn_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%.4g</text>\n", x_of(p, i),
                      y - 10, v);
        svg_mark(&p->svg, x_of(p, i), left);
    }
}

static void draw_rows(struct bn_buf *b, const struct bn_json *steps)
{
    const struct bn_json *s;
    char list[64], size[TERM_SIZE_BYTES];
    size_t i;
    bn_buf_puts(
        b,
        "<table>\n<tr><th>layers</th><th>width</th><th>removed</th><th>perplexity</th><th>KL</th>"
        "<th>bytes</th><th>tok/s, predicted</th><th>measured</th></tr>\n");
    bn_json_each(steps, i, s)
    {
        bn_buf_printf(b,
                      "<tr><td>%.0f</td><td>%.0f</td><td>%s</td><td>%.4f &plusmn; %.4f</td>"
                      "<td>%.5f</td><td>%s</td><td>%.1f</td><td>",
                      report_number(s, "layers_left"), report_number(s, "ffn_width"),
                      removed_text(list, steps, i), report_number(s, "perplexity"),
                      report_number(s, "std_error"), report_number(s, "kl"),
                      term_size(size, (uint64_t)report_number(s, "bytes")),
                      report_number(s, "tok_s_predicted"));
        if (bn_json_get(s, "tok_s")) bn_buf_printf(b, "%.1f", report_number(s, "tok_s"));
        bn_buf_puts(b, "</td></tr>\n");
    }
    bn_buf_puts(b, "</table>\n");
}

char *prune_page(const struct bn_json *report)
{
    static const struct {
        const char *key, *title, *unit;
    } panels[] = {{"perplexity", "Perplexity", ""},
                  {"kl", "Mean KL divergence from the whole model", "nats"},
                  {"tok_s_predicted", "Decoding, predicted from bytes", "tok/s"}};
    static const char HEAD[] =
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>bitnet prune</title>\n"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;"
        "padding:0 1rem}table{border-collapse:collapse}th,td{text-align:right;"
        "padding:.25rem .8rem .25rem 0}</style>\n<h1>";
    struct bn_buf b;
    struct panel p = {.svg = {.out = &b, .height = PANEL_HEIGHT},
                      .steps = bn_json_get(report, "steps")};
    bn_buf_init(&b, PAGE_MAX_BYTES);
    bn_buf_puts(&b, HEAD);
    svg_text(&b, report_text(bn_json_get(report, "model"), "name"));
    bn_buf_puts(&b, "</h1>\n<p>bitnet ");
    svg_text(&b, report_text(report, "version"));
    bn_buf_puts(&b, ", ");
    svg_text(&b, report_text(report, "date"));
    bn_buf_puts(&b, ", criterion ");
    svg_text(&b, report_text(report, "criterion"));
    bn_buf_puts(&b, ".</p>\n");
    draw_rows(&b, p.steps);
    svg_begin(&b, SVG_WIDTH, (int)BN_ARRAY_LEN(panels) * PANEL_HEIGHT);
    for (size_t i = 0; i < BN_ARRAY_LEN(panels); i++, p.svg.y0 += PANEL_HEIGHT) {
        p.key = panels[i].key;
        draw_panel(&p, panels[i].title, panels[i].unit);
    }
    svg_end(&b);
    bn_buf_puts(&b, "</html>\n");
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
