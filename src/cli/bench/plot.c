/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/plot.c: a report as a drawing that needs nothing else: one panel a mode, tokens a second
 * over batch size, depth or prompt length, with the quartiles of the repeats as error bars. Numbers
 * are printed beside the points, so that the picture can be read without measuring it.
 */
#include "base/buf.h"
#include "app/report.h"
#include "cli/bench/bench.h"
#include "app/svg.h"
#include <math.h>
#include <stdlib.h>

enum {
    PANEL_HEIGHT = 300,
    POINT_ROOM = 40, /* between the frame and the first and last point */
    PLOT_MAX_BYTES = 1 << 20
};

static const struct {
    const char *mode, *title, *axis;
} panels[] = {
    {"stream", "Decoding, one request", ""},
    {"prefill", "Reading a prompt", "tokens in the prompt"},
    {"batch", "Decoding, several requests", "requests at a time"},
    {"depth", "Decoding behind a long text", "tokens in the cache"},
};

struct panel {
    struct svg_panel svg;
    const struct bn_json *items[BENCH_MEASUREMENTS_MAX];
    size_t n;
};

static double y_of(const struct panel *p, double value) { return svg_y(&p->svg, value); }

/* Points stand in equal steps: sizes and depths are chosen by the user, seldom evenly. */
static double x_of(const struct panel *p, size_t i)
{
    double from = SVG_LEFT + POINT_ROOM, to = SVG_WIDTH - SVG_RIGHT - POINT_ROOM;
    return p->n < 2 ? (from + to) / 2 : from + (to - from) * (double)i / (double)(p->n - 1);
}

static void draw_point(const struct panel *p, size_t i)
{
    struct bn_buf *b = p->svg.out;
    const struct bn_json *m = p->items[i];
    double x = x_of(p, i), median = report_number(m, "median");
    double low = y_of(p, report_number(m, "q1")), high = y_of(p, report_number(m, "q3"));
    bn_buf_printf(b, "<path d=\"M%.1f %.1fH%.1fM%.1f %.1fV%.1fM%.1f %.1fH%.1f\" class=\"bar\"/>\n",
                  x - 5, low, x + 5, x, low, high, x - 5, high, x + 5);
    bn_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", x, y_of(p, median));
    svg_text(b, report_text(m, "name"));
    bn_buf_printf(b, ": %.2f tok/s, quartiles %.2f to %.2f</title></circle>\n", median,
                  report_number(m, "q1"), report_number(m, "q3"));
    bn_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%.4g</text>\n", x,
                  fmin(high, y_of(p, median)) - 10, median);
    if (strcmp(report_text(m, "mode"), "stream") == 0) return;
    char at[24];
    snprintf(at, sizeof at, "%.0f", report_number(m, "at"));
    svg_mark(&p->svg, x, at);
}

static void draw_panel(struct panel *p, const char *title, const char *axis)
{
    double most = 0;
    for (size_t i = 0; i < p->n; i++)
        most = fmax(most,
                    fmax(report_number(p->items[i], "q3"), report_number(p->items[i], "median")));
    p->svg.max_y = svg_round_up(most * 1.1);
    svg_frame(&p->svg, title, "tok/s", axis);
    bn_buf_puts(p->svg.out, "<polyline points=\"");
    for (size_t i = 0; i < p->n; i++)
        bn_buf_printf(p->svg.out, "%s%.1f,%.1f", i ? " " : "", x_of(p, i),
                      y_of(p, report_number(p->items[i], "median")));
    bn_buf_puts(p->svg.out, "\"/>\n");
    for (size_t i = 0; i < p->n; i++) draw_point(p, i);
}

static void draw_head(struct bn_buf *b, const struct bn_json *r)
{
    const struct bn_json *machine = bn_json_get(r, "machine"), *s = bn_json_get(r, "settings");
    bn_buf_printf(b, "<text x=\"%d\" y=\"30\" class=\"title\">", SVG_LEFT);
    svg_text(b, report_text(bn_json_get(r, "model"), "name"));
    bn_buf_printf(b, "</text>\n<text x=\"%d\" y=\"50\">", SVG_LEFT);
    svg_text(b, report_text(machine, "cpu"));
    bn_buf_printf(b, ", %.0f threads, ", report_number(s, "threads"));
    svg_text(b, report_text(s, "backend"));
    bn_buf_printf(b, ", memory %.1f GB/s, bitnet ", report_number(machine, "read_bandwidth_gb_s"));
    svg_text(b, report_text(r, "version"));
    bn_buf_puts(b, ", ");
    svg_text(b, report_text(r, "date"));
    bn_buf_puts(b, "</text>\n");
}

static void collect(struct panel *p, const struct bn_json *r, const char *mode)
{
    const struct bn_json *items = bn_json_get(r, "measurements");
    p->n = 0;
    for (size_t i = 0; i < bn_json_size(items) && p->n < BN_ARRAY_LEN(p->items); i++)
        if (strcmp(report_text(bn_json_at(items, i), "mode"), mode) == 0)
            p->items[p->n++] = bn_json_at(items, i);
}

static void draw(struct bn_buf *b, const struct bn_json *r)
{
    struct panel p = {.svg = {.out = b, .height = PANEL_HEIGHT}};
    int n_panels = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(panels); i++) {
        collect(&p, r, panels[i].mode);
        n_panels += p.n > 0;
    }
    int height = SVG_HEAD + n_panels * PANEL_HEIGHT;
    svg_begin(b, SVG_WIDTH, height);
    draw_head(b, r);
    p.svg.y0 = SVG_HEAD;
    for (size_t i = 0; i < BN_ARRAY_LEN(panels); i++) {
        collect(&p, r, panels[i].mode);
        if (!p.n) continue;
        draw_panel(&p, panels[i].title, panels[i].axis);
        p.svg.y0 += PANEL_HEIGHT;
    }
    svg_end(b);
}

/* ------------------------------------------------------------------ the page */

static void put_number(struct bn_buf *b, const struct bn_json *v, double scale, const char *unit)
{
    if (bn_json_is_number(v))
        bn_buf_printf(b, "<td>%.*f%s</td>", *unit ? 0 : 2, bn_json_number(v) * scale, unit);
    else bn_buf_puts(b, "<td>–</td>");
}

static void put_row(struct bn_buf *b, const struct bn_json *m)
{
    const struct bn_json *step = bn_json_get(m, "step_ms");
    bn_buf_puts(b, "<tr><th>");
    svg_text(b, report_text(m, "name"));
    bn_buf_printf(b, "</th><td>%.2f</td><td>%.2f to %.2f</td>", report_number(m, "median"),
                  report_number(m, "q1"), report_number(m, "q3"));
    put_number(b, bn_json_get(m, "ttft_ms"), 1, "");
    put_number(b, bn_json_get(step, "p50"), 1, "");
    put_number(b, bn_json_get(step, "p95"), 1, "");
    put_number(b, bn_json_get(step, "p99"), 1, "");
    put_number(b, bn_json_get(m, "bytes_per_token"), 1e-6, "");
    put_number(b, bn_json_get(m, "roofline_share"), 100, " %");
    bn_buf_puts(b, "</tr>\n");
}

static void put_table(struct bn_buf *b, const struct bn_json *report)
{
    const struct bn_json *items = bn_json_get(report, "measurements"),
                         *notes = bn_json_get(report, "notes"), *m;
    size_t i;
    bn_buf_puts(b, "<div class=\"wide\"><table>\n<thead><tr><th></th><th>tok/s</th>"
                   "<th>quartiles</th><th>first ms</th><th>step P50</th><th>P95</th><th>P99 ms</th>"
                   "<th>MB/token</th><th>roofline</th></tr></thead>\n<tbody>\n");
    bn_json_each(items, i, m) put_row(b, m);
    bn_buf_puts(b, "</tbody></table></div>\n");
    if (bench_beyond_memory(report)) bn_buf_printf(b, "<p>%s.</p>\n", bench_beyond_words);
    bn_json_each(notes, i, m)
    {
        bn_buf_puts(b, "<p>Note: ");
        svg_text(b, bn_json_is_string(m) ? bn_json_text(m) : "");
        bn_buf_puts(b, "</p>\n");
    }
}

char *bench_plot(const struct bn_json *report, bool html)
{
    struct bn_buf b;
    bn_buf_init(&b, PLOT_MAX_BYTES);
    if (html) page_begin(&b, "bench", report_text(bn_json_get(report, "model"), "name"));
    else bn_buf_puts(&b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    draw(&b, report);
    if (html) {
        put_table(&b, report);
        page_end(&b);
    }
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
