/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_plot.c: a report as a drawing that needs nothing else: one panel a mode, tokens a second
 * over batch size, depth or prompt length, with the quartiles of the repeats as error bars. Numbers
 * are printed beside the points, so that the picture can be read without measuring it.
 */
#include "base/buf.h"
#include "cli/bench.h"
#include "cli/svg.h"
#include <math.h>
#include <stdlib.h>

enum {
    WIDTH = 720,
    PANEL_HEIGHT = 300,
    HEAD_HEIGHT = 70,
    LEFT = 80,
    RIGHT = 30,
    TOP = 40,
    BOTTOM = 50,
    POINT_ROOM = 40, /* between the frame and the first and last point */
    TICKS = 4,
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
    struct bn_buf *out;
    const json_t *items[BENCH_MEASUREMENTS_MAX];
    size_t n;
    double y0, top_value; /* upper edge in the drawing; value at the upper end of the axis */
};

static double y_of(const struct panel *p, double value)
{
    double height = PANEL_HEIGHT - TOP - BOTTOM;
    return p->y0 + TOP + height * (1 - value / p->top_value);
}

/* Points stand in equal steps: sizes and depths are chosen by the user, seldom evenly. */
static double x_of(const struct panel *p, size_t i)
{
    double from = LEFT + POINT_ROOM, to = WIDTH - RIGHT - POINT_ROOM;
    return p->n < 2 ? (from + to) / 2 : from + (to - from) * (double)i / (double)(p->n - 1);
}

static void draw_frame(const struct panel *p, const char *title, const char *axis)
{
    struct bn_buf *b = p->out;
    bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"title\">%s</text>\n", LEFT,
                  p->y0 + TOP - 14, title);
    for (int i = 0; i <= TICKS; i++) {
        double value = p->top_value * i / TICKS, y = y_of(p, value);
        bn_buf_printf(b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"%s\"/>\n", LEFT,
                      y, WIDTH - RIGHT, y, i ? "grid" : "axis");
        bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"end\">%.6g</text>\n", LEFT - 8, y + 4,
                      value);
    }
    double middle = p->y0 + TOP + (PANEL_HEIGHT - TOP - BOTTOM) / 2.0;
    bn_buf_printf(b,
                  "<text x=\"24\" y=\"%.1f\" class=\"mid\" transform=\"rotate(-90 24 %.1f)\">"
                  "tok/s</text>\n",
                  middle, middle);
    bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"mid\">%s</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, p->y0 + PANEL_HEIGHT - 10, axis);
}

static void draw_point(const struct panel *p, size_t i)
{
    struct bn_buf *b = p->out;
    const json_t *m = p->items[i];
    double x = x_of(p, i), median = bench_number(m, "median");
    double low = y_of(p, bench_number(m, "q1")), high = y_of(p, bench_number(m, "q3"));
    bn_buf_printf(b, "<path d=\"M%.1f %.1fH%.1fM%.1f %.1fV%.1fM%.1f %.1fH%.1f\" class=\"bar\"/>\n",
                  x - 5, low, x + 5, x, low, high, x - 5, high, x + 5);
    bn_buf_printf(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", x, y_of(p, median));
    svg_text(b, bench_text(m, "name"));
    bn_buf_printf(b, ": %.2f tok/s, quartiles %.2f to %.2f</title></circle>\n", median,
                  bench_number(m, "q1"), bench_number(m, "q3"));
    bn_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%.4g</text>\n", x,
                  fmin(high, y_of(p, median)) - 10, median);
    if (strcmp(bench_text(m, "mode"), "stream") != 0)
        bn_buf_printf(b, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%.0f</text>\n", x,
                      p->y0 + PANEL_HEIGHT - BOTTOM + 18, bench_number(m, "at"));
}

static void draw_panel(struct panel *p, const char *title, const char *axis)
{
    double most = 0;
    for (size_t i = 0; i < p->n; i++)
        most =
            fmax(most, fmax(bench_number(p->items[i], "q3"), bench_number(p->items[i], "median")));
    p->top_value = svg_round_up(most * 1.1);
    draw_frame(p, title, axis);
    bn_buf_puts(p->out, "<polyline points=\"");
    for (size_t i = 0; i < p->n; i++)
        bn_buf_printf(p->out, "%s%.1f,%.1f", i ? " " : "", x_of(p, i),
                      y_of(p, bench_number(p->items[i], "median")));
    bn_buf_puts(p->out, "\"/>\n");
    for (size_t i = 0; i < p->n; i++) draw_point(p, i);
}

static void draw_head(struct bn_buf *b, const json_t *r)
{
    const json_t *machine = json_object_get(r, "machine"), *s = json_object_get(r, "settings");
    bn_buf_printf(b, "<text x=\"%d\" y=\"30\" class=\"title\">", LEFT);
    svg_text(b, bench_text(json_object_get(r, "model"), "name"));
    bn_buf_printf(b, "</text>\n<text x=\"%d\" y=\"50\">", LEFT);
    svg_text(b, bench_text(machine, "cpu"));
    bn_buf_printf(b, ", %.0f threads, ", bench_number(s, "threads"));
    svg_text(b, bench_text(s, "backend"));
    bn_buf_printf(b, ", memory %.1f GB/s, bitnet ", bench_number(machine, "read_bandwidth_gb_s"));
    svg_text(b, bench_text(r, "version"));
    bn_buf_puts(b, ", ");
    svg_text(b, bench_text(r, "date"));
    bn_buf_puts(b, "</text>\n");
}

static void collect(struct panel *p, const json_t *r, const char *mode)
{
    const json_t *items = json_object_get(r, "measurements");
    p->n = 0;
    for (size_t i = 0; i < json_array_size(items) && p->n < BN_ARRAY_LEN(p->items); i++)
        if (strcmp(bench_text(json_array_get(items, i), "mode"), mode) == 0)
            p->items[p->n++] = json_array_get(items, i);
}

static void draw(struct bn_buf *b, const json_t *r)
{
    struct panel p = {.out = b};
    int n_panels = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(panels); i++) {
        collect(&p, r, panels[i].mode);
        n_panels += p.n > 0;
    }
    int height = HEAD_HEIGHT + n_panels * PANEL_HEIGHT;
    svg_begin(b, WIDTH, height);
    draw_head(b, r);
    p.y0 = HEAD_HEIGHT;
    for (size_t i = 0; i < BN_ARRAY_LEN(panels); i++) {
        collect(&p, r, panels[i].mode);
        if (!p.n) continue;
        draw_panel(&p, panels[i].title, panels[i].axis);
        p.y0 += PANEL_HEIGHT;
    }
    svg_end(b);
}

char *bench_plot(const json_t *report, bool html)
{
    struct bn_buf b;
    bn_buf_init(&b, PLOT_MAX_BYTES);
    if (html) {
        bn_buf_puts(&b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                        "<title>bitnet bench: ");
        svg_text(&b, bench_text(json_object_get(report, "model"), "name"));
        bn_buf_puts(&b, "</title>\n</head>\n<body>\n");
    } else {
        bn_buf_puts(&b, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    }
    draw(&b, report);
    if (html) bn_buf_puts(&b, "</body>\n</html>\n");
    char *text = bn_buf_take(&b);
    bn_buf_free(&b);
    return text;
}
