/* SPDX-License-Identifier: Apache-2.0
 *
 * load/plot.c: a load test as a drawing that needs nothing else: latencies over time for a single
 * run, tokens a second over clients for several, and the distributions on an axis that gives every
 * further nine the same room.
 */
#include "base/os/mem.h"
#include "app/report.h"
#include "app/stats.h"
#include "cli/load/load.h"
#include "app/svg.h"
#include <math.h>
#include <stdlib.h>

enum {
    PANEL_HEIGHT = 260,
    LEGEND_STEP = 56,
    TIME_SLICES = 120,
    CURVE_POINTS = 200,
    MAX_NINES = 4 /* the curve ends at 99.99 % */
};

static const char *const colours[] = {"#1565c0", "#c62828", "#2e7d32", "#ef6c00",
                                      "#6a1b9a", "#00838f", "#4e342e", "#546e7a"};

/* A line through points of one panel; label: shown at its legend. */
struct curve {
    double x[CURVE_POINTS], y[CURVE_POINTS];
    size_t n;
    char label[24];
};

struct panel {
    struct svg_panel svg;
    double max_x;
    struct curve *curves; /* [n_curves] */
    size_t n_curves;
};

static double x_of(const struct panel *p, double x)
{
    return SVG_LEFT + (SVG_WIDTH - SVG_LEFT - SVG_RIGHT) * x / p->max_x;
}

static double y_of(const struct panel *p, double y) { return svg_y(&p->svg, y); }

static void draw_curves(const struct panel *p)
{
    for (size_t k = 0; k < p->n_curves; k++) {
        const struct curve *c = &p->curves[k];
        const char *colour = colours[k % BN_ARRAY_LEN(colours)];
        bn_buf_printf(p->svg.out, "<polyline style=\"stroke:%s\" points=\"", colour);
        for (size_t i = 0; i < c->n; i++)
            bn_buf_printf(p->svg.out, "%s%.1f,%.1f", i ? " " : "", x_of(p, c->x[i]),
                          y_of(p, c->y[i]));
        bn_buf_printf(p->svg.out,
                      "\"/>\n<text x=\"%d\" y=\"%.1f\" class=\"end\" style=\"fill:%s\">%s</text>\n",
                      SVG_WIDTH - SVG_RIGHT - LEGEND_STEP * (int)(p->n_curves - 1 - k),
                      p->svg.y0 + SVG_TOP - 14, colour, c->label);
    }
}

/* Finds the ends of the axes. */
static void fit(struct panel *p)
{
    p->max_x = p->svg.max_y = 0;
    for (size_t k = 0; k < p->n_curves; k++)
        for (size_t i = 0; i < p->curves[k].n; i++) {
            p->max_x = fmax(p->max_x, p->curves[k].x[i]);
            p->svg.max_y = fmax(p->svg.max_y, p->curves[k].y[i]);
        }
    p->svg.max_y = svg_round_up(p->svg.max_y * 1.05);
    if (!(p->max_x > 0)) p->max_x = 1;
}

/* ------------------------------------------------------------------ over time */

static size_t slice_of(uint64_t due_ns, uint64_t end_ns)
{
    return (size_t)((double)due_ns / (double)end_ns * TIME_SLICES);
}

static bool has_time(const struct load_record *r, enum load_goal what)
{
    return r->outcome == LOAD_OK && load_record_ms(r, what) >= 0;
}

/* Median and worst of each slice of time; slices without requests are left out. values:
 * [n_records] */
static void slice_curves(struct curve out[2], const struct load_run *run, enum load_goal what,
                         double *values)
{
    size_t ends[TIME_SLICES + 1] = {0}; /* of the values of slice i - 1 */
    uint64_t end_ns = 1;
    for (size_t i = 0; i < run->n_records; i++)
        if (run->records[i].due_ns >= end_ns) end_ns = run->records[i].due_ns + 1;
    for (size_t i = 0; i < run->n_records; i++)
        if (has_time(&run->records[i], what)) ends[slice_of(run->records[i].due_ns, end_ns) + 1]++;
    for (size_t i = 1; i <= TIME_SLICES; i++) ends[i] += ends[i - 1];
    size_t next[TIME_SLICES];
    memcpy(next, ends, sizeof next);
    for (size_t i = 0; i < run->n_records; i++)
        if (has_time(&run->records[i], what))
            values[next[slice_of(run->records[i].due_ns, end_ns)]++] =
                load_record_ms(&run->records[i], what);
    for (size_t i = 0; i < TIME_SLICES; i++) {
        double *slice = values + ends[i], seconds = ((double)i + 0.5) / TIME_SLICES;
        size_t n = ends[i + 1] - ends[i];
        if (!n) continue;
        stats_sort(slice, n);
        for (int k = 0; k < 2; k++) {
            out[k].x[out[k].n] = seconds * (double)end_ns / 1e9;
            out[k].y[out[k].n++] = k ? slice[n - 1] : stats_quantile(slice, n, 0.5);
        }
    }
    snprintf(out[0].label, sizeof out[0].label, "median");
    snprintf(out[1].label, sizeof out[1].label, "worst");
}

static void draw_time(struct panel *p, const struct load_run *run, enum load_goal what,
                      const char *title, double *values)
{
    char text[24];
    p->n_curves = 2;
    memset(p->curves, 0, 2 * sizeof *p->curves);
    slice_curves(p->curves, run, what, values);
    fit(p);
    svg_frame(&p->svg, title, "ms", "seconds since the start, warm-up included");
    double step = svg_round_up(p->max_x / SVG_TICKS / 1.5);
    for (int i = 0; i * step <= p->max_x; i++) {
        snprintf(text, sizeof text, "%.6g", i * step);
        svg_mark(&p->svg, x_of(p, i * step), text);
    }
    draw_curves(p);
    p->svg.y0 += PANEL_HEIGHT;
}

/* ------------------------------------------------------------------ distributions */

/* Each nine has the same room: 0, 90 %, 99 %, ... */
static double share_at(size_t point)
{
    return 1 - pow(10, -(double)MAX_NINES * (double)point / (CURVE_POINTS - 1));
}

static void distribution(struct curve *c, const struct load_run *run, enum load_goal what,
                         double *values)
{
    size_t n = 0;
    for (size_t i = 0; i < run->n_records; i++) {
        const struct load_record *r = &run->records[i];
        double ms = r->counted && r->outcome == LOAD_OK ? load_record_ms(r, what) : -1;
        if (ms >= 0) values[n++] = ms;
    }
    stats_sort(values, n);
    bool gaps = what == LOAD_ITL;
    double last = 1 - 1 / (double)(gaps ? run->gaps->n : n); /* what lies above is not known */
    for (size_t i = 0; i < CURVE_POINTS && share_at(i) <= last; i++) {
        c->x[i] = (double)MAX_NINES * (double)i / (CURVE_POINTS - 1);
        c->y[i] = gaps ? load_hist_quantile(run->gaps, share_at(i)) / 1e6
                       : stats_quantile(values, n, share_at(i));
        c->n = i + 1;
    }
}

static void draw_distribution(struct panel *p, const struct load_run *runs, size_t n_runs,
                              enum load_goal what, const char *title, double *values)
{
    static const char *const marks[] = {"0 %", "90 %", "99 %", "99.9 %", "99.99 %"};
    p->n_curves = n_runs;
    memset(p->curves, 0, n_runs * sizeof *p->curves);
    for (size_t i = 0; i < n_runs; i++) {
        struct curve *c = &p->curves[i];
        distribution(c, &runs[i], what, values);
        if (n_runs > 1) snprintf(c->label, sizeof c->label, "%u", runs[i].at_a_time);
    }
    fit(p);
    p->max_x = MAX_NINES;
    svg_frame(&p->svg, title, "ms", "share that is not slower");
    for (int i = 0; i <= MAX_NINES; i++) svg_mark(&p->svg, x_of(p, i), marks[i]);
    draw_curves(p);
    p->svg.y0 += PANEL_HEIGHT;
}

/* ------------------------------------------------------------------ several runs */

static void draw_sizes(struct panel *p, const struct bn_json *report)
{
    const struct bn_json *runs = bn_json_get(report, "runs");
    struct curve *c = &p->curves[0];
    char text[24];
    p->n_curves = 1;
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < bn_json_size(runs); i++) {
        c->x[i] = (double)i + 0.5;
        c->y[i] = report_number(bn_json_at(runs, i), "output_tok_s");
        c->n = i + 1;
    }
    fit(p);
    p->max_x = (double)c->n;
    svg_frame(&p->svg, "Output of all requests", "tok/s", "requests open at a time");
    for (size_t i = 0; i < c->n; i++) {
        snprintf(text, sizeof text, "%.0f", report_number(bn_json_at(runs, i), "at_a_time"));
        svg_mark(&p->svg, x_of(p, c->x[i]), text);
        bn_buf_printf(p->svg.out, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%.4g</text>\n",
                      x_of(p, c->x[i]), y_of(p, c->y[i]) - 10, c->y[i]);
    }
    draw_curves(p);
    p->svg.y0 += PANEL_HEIGHT;
}

static void draw_head(struct bn_buf *b, const struct bn_json *report)
{
    bn_buf_printf(b, "<text x=\"%d\" y=\"30\" class=\"title\">", SVG_LEFT);
    svg_text(b, report_text(bn_json_get(report, "settings"), "model"));
    bn_buf_printf(b, "</text>\n<text x=\"%d\" y=\"50\">", SVG_LEFT);
    svg_text(b, report_text(report, "url"));
    bn_buf_printf(b, ", times from when a request was %s, ", report_text(report, "latency_from"));
    svg_text(b, report_text(report, "date"));
    bn_buf_puts(b, "</text>\n");
}

static void put_times(struct bn_buf *b, const struct bn_json *run, const char *name)
{
    const struct bn_json *t = bn_json_get(run, name);
    bn_buf_printf(b, "<td>%.1f</td><td>%.1f</td>", report_number(t, "p50"),
                  report_number(t, "p99"));
}

static void put_table(struct bn_buf *b, const struct bn_json *runs)
{
    const struct bn_json *r;
    size_t i;
    bn_buf_puts(b,
                "<div class=\"wide\"><table>\n<thead><tr><th>open at a time</th><th>answered</th>"
                "<th>failed</th><th>requests/s</th><th>output tok/s</th><th>first token P50</th>"
                "<th>P99 ms</th><th>between tokens P50</th><th>P99 ms</th><th>whole P50</th>"
                "<th>P99 ms</th></tr></thead>\n<tbody>\n");
    bn_json_each(runs, i, r)
    {
        bn_buf_printf(b, "<tr><th>%.0f</th><td>%.0f</td><td>%.0f</td><td>%.2f</td><td>%.1f</td>",
                      report_number(r, "at_a_time"), report_number(r, "ok"),
                      report_number(r, "failed"), report_number(r, "rps"),
                      report_number(r, "output_tok_s"));
        put_times(b, r, "ttft_ms");
        put_times(b, r, "itl_ms");
        put_times(b, r, "e2e_ms");
        bn_buf_puts(b, "</tr>\n");
    }
    bn_buf_puts(b, "</tbody></table></div>\n");
}

void load_plot(struct bn_buf *out, bool page, const struct bn_json *report,
               const struct load_run *runs, size_t n_runs)
{
    int n_panels = n_runs == 1 ? 5 : 4;
    size_t most = 1;
    for (size_t i = 0; i < n_runs; i++) most = bn_max_size(most, runs[i].n_records);
    double *values = bn_calloc(most, sizeof *values);
    struct panel p = {.svg = {.out = out, .y0 = SVG_HEAD, .height = PANEL_HEIGHT}};
    p.curves = bn_calloc(bn_max_size(n_runs, 2), sizeof *p.curves);
    if (!values || !p.curves) {
        out->failed = true;
    } else {
        if (page)
            page_begin(out, "loadtest", report_text(bn_json_get(report, "settings"), "model"));
        else bn_buf_puts(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        svg_begin(out, SVG_WIDTH, SVG_HEAD + n_panels * PANEL_HEIGHT);
        draw_head(out, report);
        if (n_runs > 1) draw_sizes(&p, report);
        else {
            draw_time(&p, runs, LOAD_TTFT, "Time to first token", values);
            draw_time(&p, runs, LOAD_E2E, "Whole request", values);
        }
        draw_distribution(&p, runs, n_runs, LOAD_TTFT, "Time to first token, all", values);
        draw_distribution(&p, runs, n_runs, LOAD_ITL, "Between tokens", values);
        draw_distribution(&p, runs, n_runs, LOAD_E2E, "Whole request, all", values);
        svg_end(out);
        if (page) {
            put_table(out, bn_json_get(report, "runs"));
            page_end(out);
        }
    }
    free(values);
    free(p.curves);
}
