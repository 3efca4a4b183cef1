/* SPDX-License-Identifier: Apache-2.0
 *
 * charts.c: what a profile says, as drawings that are as wide as the page lets them be.
 */
#include "cli/profile/charts.h"
#include "app/report.h"
#include "app/units.h"
#include "app/svg.h"
#include <math.h>
#include <stdio.h>

enum { /* pixels */
       BAR_HEIGHT = 34,
       WORKER_HEIGHT = 20,
       GAUGE_HEIGHT = 10,
       FLAME_ROW = 26,
       PLOT_HEIGHT = 180,
       PLOT_TOP = 12, /* half of the uppermost figure of an axis */
       PLOT_BOTTOM = 20,
       AXIS_WIDTH = 58
};

enum { FLAME_GROUPS = 4, TIP_BYTES = 256 };
#define TOO_SMALL 2e-4 /* of a drawing's width: nobody could see it */

/* src/model/ops.def has the kinds; their colours are in style.c. */
const char *chart_kind_class(const char *kind)
{
    static const char *const names[][2] = {
        {"matrix", "k-matrix"},       {"attention", "k-attention"}, {"head", "k-head"},
        {"norm", "k-norm"},           {"quantise", "k-quantise"},   {"activation", "k-activation"},
        {"embedding", "k-embedding"}, {"sampling", "k-sampling"},   {"engine", "k-engine"},
        {"wait", "k-wait"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++)
        if (strcmp(kind, names[i][0]) == 0) return names[i][1];
    return "k-other";
}

static const struct bn_json *item(const struct bn_json *phase, const char *list, size_t i)
{
    return bn_json_at(bn_json_get(phase, list), i);
}

static size_t count(const struct bn_json *phase, const char *list)
{
    return bn_json_size(bn_json_get(phase, list));
}

/* ------------------------------------------------------------------ bars */

void chart_gauge(struct bn_buf *b, double share, const char *what)
{
    char text[UNITS_BYTES];
    units_share(text, share);
    svg_fluid_begin(b, GAUGE_HEIGHT, what);
    svg_block(b, &(struct svg_block){0, 1, 0, GAUGE_HEIGHT, "track", text, NULL});
    svg_block(b, &(struct svg_block){0, fmin(share, 1), 0, GAUGE_HEIGHT, "gauge", text, NULL});
    svg_end(b);
}

/* One kind in a bar: its part of the whole, from x on. Returns where it ends. */
static double draw_part(struct bn_buf *b, double x, double ns, double whole, int height,
                        const char *kind, const char *label)
{
    char tip[TIP_BYTES], time[UNITS_BYTES], share[UNITS_BYTES];
    double width = whole > 0 ? ns / whole : 0;
    snprintf(tip, sizeof tip, "%s: %s a token, %s", kind, units_time(time, ns),
             units_share(share, width));
    if (width > TOO_SMALL)
        svg_block(b, &(struct svg_block){x, width, 0, height, chart_kind_class(kind), tip, label});
    return x + width;
}

void chart_kinds(struct bn_buf *b, const struct bn_json *phase)
{
    char text[UNITS_BYTES];
    double sum = 0, x = 0;
    for (size_t i = 0; i < count(phase, "kinds"); i++)
        sum += report_number(item(phase, "kinds", i), "ns_per_token");
    svg_fluid_begin(b, BAR_HEIGHT, "time of a token by kind of work");
    for (size_t i = 0; i < count(phase, "kinds"); i++) {
        const struct bn_json *k = item(phase, "kinds", i);
        x = draw_part(b, x, report_number(k, "ns_per_token"), sum, BAR_HEIGHT,
                      report_text(k, "kind"), report_text(k, "kind"));
    }
    svg_end(b);
    bn_buf_puts(b, "<ul class=\"legend\">\n");
    for (size_t i = 0; i < count(phase, "kinds"); i++) {
        const struct bn_json *k = item(phase, "kinds", i);
        bn_buf_printf(b, "<li><i class=\"%s\"></i>", chart_kind_class(report_text(k, "kind")));
        svg_text(b, report_text(k, "kind"));
        bn_buf_printf(b, " <b>%s</b> ", units_share(text, report_number(k, "share")));
        bn_buf_printf(b, "<span>%s</span></li>\n",
                      units_time(text, report_number(k, "ns_per_token")));
    }
    bn_buf_puts(b, "</ul>\n");
}

static double worker_ns(const struct bn_json *phase, const struct bn_json *worker)
{
    const struct bn_json *kinds = bn_json_get(worker, "kinds");
    double sum = 0;
    for (size_t i = 0; i < count(phase, "kinds"); i++)
        sum += report_number(kinds, report_text(item(phase, "kinds", i), "kind"));
    return sum;
}

void chart_workers(struct bn_buf *b, const struct bn_json *phase)
{
    char text[UNITS_BYTES];
    double most = 0;
    for (size_t i = 0; i < count(phase, "workers"); i++)
        most = fmax(most, worker_ns(phase, item(phase, "workers", i)));
    bn_buf_puts(b, "<table class=\"workers\">\n");
    for (size_t i = 0; i < count(phase, "workers"); i++) {
        const struct bn_json *w = item(phase, "workers", i), *kinds = bn_json_get(w, "kinds");
        double x = 0;
        bn_buf_printf(b, "<tr><th>worker %.0f</th><td>", report_number(w, "worker"));
        svg_fluid_begin(b, WORKER_HEIGHT, "what this worker does");
        for (size_t k = 0; k < count(phase, "kinds"); k++) {
            const char *kind = report_text(item(phase, "kinds", k), "kind");
            x = draw_part(b, x, report_number(kinds, kind), most, WORKER_HEIGHT, kind, NULL);
        }
        svg_end(b);
        bn_buf_printf(b, "</td><td class=\"n\">waits %s</td></tr>\n",
                      units_share(text, report_number(w, "wait_share")));
    }
    bn_buf_puts(b, "</table>\n");
}

/* ------------------------------------------------------------------ plots */

static double plot_y(double value, double max)
{
    return PLOT_TOP + (PLOT_HEIGHT - PLOT_TOP - PLOT_BOTTOM) * (1 - value / max);
}

/* The vertical axis, and lines behind the plot, which then follows; ends with plot_end. */
static void plot_begin(struct bn_buf *b, double max, const char *(*show)(char *, double),
                       const char *what)
{
    char text[UNITS_BYTES];
    bn_buf_printf(b, "<div class=\"plot\"><svg width=\"%d\" height=\"%d\" aria-hidden=\"true\">\n",
                  AXIS_WIDTH, PLOT_HEIGHT);
    for (int i = 0; i <= SVG_TICKS; i++)
        bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"end\">%s</text>\n", AXIS_WIDTH - 8,
                      plot_y(i, SVG_TICKS) + 4, show(text, max * i / SVG_TICKS));
    svg_end(b);
    svg_fluid_begin(b, PLOT_HEIGHT, what);
    for (int i = 0; i <= SVG_TICKS; i++)
        bn_buf_printf(b, "<line x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n", plot_y(i, SVG_TICKS),
                      plot_y(i, SVG_TICKS));
}

/* Below the axis, at a share of the width. css: start, mid or end, and wide. */
static void plot_mark(struct bn_buf *b, double x, const char *css, const char *text)
{
    bn_buf_printf(b, "<text x=\"%.4f%%\" y=\"%d\" class=\"%s\">%s</text>\n", x * 100,
                  PLOT_HEIGHT - 4, css, text);
}

static void plot_end(struct bn_buf *b)
{
    svg_end(b);
    bn_buf_puts(b, "</div>\n");
}

/* ops: an object of operations and their times. */
static double kind_ns(const struct bn_json *phase, const struct bn_json *ops, const char *kind)
{
    double sum = 0;
    for (size_t i = 0; i < count(phase, "ops"); i++) {
        const struct bn_json *op = item(phase, "ops", i);
        if (strcmp(report_text(op, "kind"), kind) == 0)
            sum += report_number(ops, report_text(op, "op"));
    }
    return sum;
}

static void draw_column(struct bn_buf *b, const struct bn_json *phase, size_t i, double max)
{
    const struct bn_json *layer = item(phase, "layers", i), *ops = bn_json_get(layer, "ops");
    double n = (double)count(phase, "layers"), whole = report_number(layer, "ns_per_token"), at = 0;
    for (size_t k = 0; k < count(phase, "kinds"); k++) {
        const char *kind = report_text(item(phase, "kinds", k), "kind");
        char tip[TIP_BYTES], time[UNITS_BYTES], all[UNITS_BYTES];
        double ns = kind_ns(phase, ops, kind);
        if (!(ns > 0)) continue;
        snprintf(tip, sizeof tip, "layer %.0f, %s: %s of %s a token", report_number(layer, "layer"),
                 kind, units_time(time, ns), units_time(all, whole));
        struct svg_block block = {.x = ((double)i + 0.1) / n,
                                  .width = 0.8 / n,
                                  .y = plot_y(at + ns, max),
                                  .height = plot_y(at, max) - plot_y(at + ns, max),
                                  .css = chart_kind_class(kind),
                                  .tip = tip};
        svg_block(b, &block);
        at += ns;
    }
}

void chart_layers(struct bn_buf *b, const struct bn_json *phase)
{
    size_t n = count(phase, "layers");
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, report_number(item(phase, "layers", i), "ns_per_token"));
    most = svg_round_up(most);
    plot_begin(b, most, units_time, "time of a token in every layer");
    for (size_t i = 0; i < n; i++) draw_column(b, phase, i, most);
    size_t step = (n + 39) / 40, far = step * (n > 10 ? 5 : 1);
    for (size_t i = 0; i < n; i += step) {
        char text[UNITS_BYTES];
        snprintf(text, sizeof text, "%.0f", report_number(item(phase, "layers", i), "layer"));
        plot_mark(b, ((double)i + 0.5) / (double)n, i % far ? "mid wide" : "mid", text);
    }
    plot_end(b);
}

void chart_line(struct bn_buf *b, const struct bn_json *points, const char *what)
{
    size_t n = bn_json_size(points);
    double most = 0, last = 1;
    for (size_t i = 0; i < n; i++) {
        const struct bn_json *p = bn_json_at(points, i);
        last = bn_json_number(bn_json_at(p, 0));
        most = fmax(most, bn_json_number(bn_json_at(p, 1)));
    }
    most = svg_round_up(most);
    plot_begin(b, most, units_count, what);
    bn_buf_printf(b,
                  "<svg viewBox=\"0 0 1000 %d\" preserveAspectRatio=\"none\"><polyline points=\"",
                  PLOT_HEIGHT);
    for (size_t i = 0; i < n; i++) {
        const struct bn_json *p = bn_json_at(points, i);
        bn_buf_printf(b, "%s%.1f,%.1f", i ? " " : "",
                      1000 * bn_json_number(bn_json_at(p, 0)) / (last > 0 ? last : 1),
                      plot_y(bn_json_number(bn_json_at(p, 1)), most));
    }
    bn_buf_puts(b, "\"/></svg>\n");
    char text[UNITS_BYTES];
    plot_mark(b, 0, "start", "0 s");
    plot_mark(b, 1, "end", units_time(text, last * 1e9));
    plot_end(b);
}

/* ------------------------------------------------------------------ flame */

struct flame {
    struct bn_buf *out;
    const struct bn_json *phase;
    const char *name;
    double whole; /* ns of a token */
};

enum flame_row { ROW_PHASE, ROW_GROUP, ROW_KIND, ROW_OP, FLAME_ROWS };

/* path: what it is part of. */
static void flame_block(const struct flame *f, enum flame_row row, double x, double ns,
                        const char *css, const char *path, const char *label)
{
    char tip[TIP_BYTES], time[UNITS_BYTES], share[UNITS_BYTES];
    double width = f->whole > 0 ? ns / f->whole : 0;
    if (width < TOO_SMALL) return;
    snprintf(tip, sizeof tip, "%s%s: %s a token, %s", path, label, units_time(time, ns),
             units_share(share, width));
    svg_block(f->out, &(struct svg_block){x / f->whole, width, row * FLAME_ROW, FLAME_ROW - 1, css,
                                          tip, label});
}

/* Of an operation in layers [from, to). */
static double layers_ns(const struct flame *f, const char *op, size_t from, size_t to)
{
    double sum = 0;
    for (size_t i = from; i < to; i++)
        sum += report_number(bn_json_get(item(f->phase, "layers", i), "ops"), op);
    return sum;
}

/* Of an operation in a group: layers [from, to), or if there are none what is outside of layers. */
static double group_ns(const struct flame *f, const struct bn_json *op, size_t from, size_t to)
{
    const char *name = report_text(op, "op");
    if (from < to) return layers_ns(f, name, from, to);
    return fmax(
        report_number(op, "ns_per_token") - layers_ns(f, name, 0, count(f->phase, "layers")), 0);
}

/* From x on; returns where it ends. */
static double flame_group(const struct flame *f, double x, const char *label, size_t from,
                          size_t to)
{
    double at = x;
    char path[TIP_BYTES / 2];
    for (size_t k = 0; k < count(f->phase, "kinds"); k++) {
        const char *kind = report_text(item(f->phase, "kinds", k), "kind");
        double begin = at;
        snprintf(path, sizeof path, "%s, %s, %s, ", f->name, label, kind);
        for (size_t i = 0; i < count(f->phase, "ops"); i++) {
            const struct bn_json *op = item(f->phase, "ops", i);
            if (strcmp(report_text(op, "kind"), kind) != 0) continue;
            double ns = group_ns(f, op, from, to);
            flame_block(f, ROW_OP, at, ns, chart_kind_class(kind), path, report_text(op, "op"));
            at += ns;
        }
        snprintf(path, sizeof path, "%s, %s, ", f->name, label);
        flame_block(f, ROW_KIND, begin, at - begin, chart_kind_class(kind), path, kind);
    }
    snprintf(path, sizeof path, "%s, ", f->name);
    flame_block(f, ROW_GROUP, x, at - x, "track", path, label);
    return at;
}

void chart_flame(struct bn_buf *b, const char *name, const struct bn_json *phase)
{
    struct flame f = {b, phase, name, 0};
    size_t n = count(phase, "layers"), n_groups = n < FLAME_GROUPS ? n : FLAME_GROUPS;
    for (size_t i = 0; i < count(phase, "ops"); i++)
        f.whole += report_number(item(phase, "ops", i), "ns_per_token");
    svg_fluid_begin(b, FLAME_ROWS * FLAME_ROW, "time of a token, each part below its whole");
    flame_block(&f, ROW_PHASE, 0, f.whole, "track", "", name);
    double x = 0;
    for (size_t g = 0; g < n_groups; g++) {
        size_t from = g * n / n_groups, to = (g + 1) * n / n_groups;
        char label[48];
        if (to - from == 1) snprintf(label, sizeof label, "layer %zu", from);
        else snprintf(label, sizeof label, "layers %zu–%zu", from, to - 1);
        x = flame_group(&f, x, label, from, to);
    }
    flame_group(&f, x, "outside of layers", 0, 0);
    svg_end(b);
}
