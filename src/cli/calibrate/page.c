/* SPDX-License-Identifier: Apache-2.0
 *
 * calibrate/page.c: the report as a page: harm against bytes, and a line for each layer.
 */
#include "app/report.h"
#include "app/svg.h"
#include "cli/calibrate/calibrate.h"

enum { PAGE_MAX_BYTES = 16 << 20, HEIGHT = 380, MARKS = 5 };

struct plot {
    struct svg_panel panel;
    double least, most; /* bytes at the ends of the horizontal axis */
};

static double x_of(const struct plot *p, double bytes)
{
    return SVG_LEFT +
           (bytes - p->least) / (p->most - p->least) * (SVG_WIDTH - SVG_LEFT - SVG_RIGHT);
}

static void point(const struct plot *p, double bytes, double kl, const char *colour)
{
    if (kl > p->panel.max_y) return;
    bn_buf_printf(p->panel.out,
                  "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" style=\"fill:%s\"><title>%.0f bytes, KL "
                  "%.6f</title></circle>\n",
                  x_of(p, bytes), svg_y(&p->panel, kl), colour, bytes, kl);
}

static void trials(const struct plot *p, const struct bn_json *list, const char *colour)
{
    const struct bn_json *t;
    size_t i;
    bn_json_each(list, i, t) point(p, report_number(t, "bytes"),
                                   report_number(bn_json_get(t, "heldout"), "kl_mean"), colour);
}

/* What single harms promise for every budget. */
static void path(const struct plot *p, const struct bn_json *list)
{
    const struct bn_json *t;
    size_t i;
    bn_buf_puts(p->panel.out, "<polyline points=\"");
    bn_json_each(list, i, t)
    {
        double kl = report_number(t, "kl");
        if (kl <= p->panel.max_y)
            bn_buf_printf(p->panel.out, "%.1f,%.1f ", x_of(p, report_number(t, "bytes")),
                          svg_y(&p->panel, kl));
    }
    bn_buf_puts(p->panel.out, "\"/>\n");
}

static void draw(struct bn_buf *b, const struct bn_json *report)
{
    double kl = report_number(bn_json_get(report, "heldout"), "kl_mean");
    double before = report_number(report, "bytes_before");
    const struct bn_json *list = bn_json_get(report, "path");
    struct plot p = {.panel = {.out = b, .height = HEIGHT}, .most = before};
    p.panel.max_y = svg_round_up(kl > 0 ? 2.5 * kl : 0.02);
    p.least = report_number(bn_json_at(list, bn_json_size(list) - 1), "bytes");
    if (!(p.least < p.most)) p.least = p.most / 2;
    svg_begin(b, SVG_WIDTH, HEIGHT);
    svg_frame(&p.panel, "Harm against bytes read for a token", "mean KL, nats", "bytes a token");
    for (int i = 0; i <= MARKS; i++) {
        char text[TERM_SIZE_BYTES];
        double bytes = p.least + (p.most - p.least) * i / MARKS;
        svg_mark(&p.panel, x_of(&p, bytes), term_size(text, (uint64_t)bytes));
    }
    path(&p, list);
    trials(&p, bn_json_get(report, "uniform"), "#c62828");
    trials(&p, bn_json_get(report, "curve"), "#1565c0");
    point(&p, report_number(report, "bytes"), kl, "#2e7d32");
    svg_end(b);
}

static void rows(struct bn_buf *b, const struct bn_json *report)
{
    static const char *const inputs[] = {"mixer", "mixer_out", "gate_up", "down"};
    const struct bn_json *layers = bn_json_get(report, "layers"), *l;
    size_t i;
    bn_json_each(layers, i, l)
    {
        struct bn_buf saved;
        bn_buf_printf(b, "<tr><th>%zu</th>", i);
        for (size_t k = 0; k < BN_ARRAY_LEN(inputs); k++)
            bn_buf_printf(
                b, "<td>%.2f</td>",
                report_number(bn_json_get(bn_json_get(l, "inputs"), inputs[k]), "entropy_bits"));
        bn_buf_printf(b, "<td>%.1f&thinsp;%%</td><td>%.1f&thinsp;%%</td><td>",
                      report_number(bn_json_get(bn_json_get(l, "inputs"), "down"), "zero_share") *
                          100,
                      report_number(l, "gates_open") * 100);
        bn_buf_init(&saved, PAGE_MAX_BYTES);
        calibrate_savings(&saved, l);
        svg_text(b, saved.data ? saved.data : "");
        bn_buf_free(&saved);
        bn_buf_puts(b, "</td></tr>\n");
    }
}

static void figures(struct bn_buf *b, const char *name, const struct bn_json *d)
{
    bn_buf_printf(b,
                  "<tr><th>%s</th><td>%.6f &plusmn; %.6f</td><td>%.4f</td><td>%.3f</td>"
                  "<td>%.2f&thinsp;%%</td><td>%.5f &plusmn; %.5f</td></tr>\n",
                  name, report_number(d, "kl_mean"), report_number(d, "kl_stderr"),
                  report_number(d, "kl_p99"), report_number(d, "kl_max"),
                  report_number(d, "top1_agreement") * 100, report_number(d, "perplexity_ratio"),
                  report_number(d, "perplexity_ratio_stderr"));
}

char *calibrate_page(const struct bn_json *report)
{
    static const char HEAD[] =
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>bitnet "
        "calibrate</title>\n<style>:root{color-scheme:light dark}"
        "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "table{border-collapse:collapse;margin:1rem 0}th{text-align:left;font-weight:600}"
        "th,td{padding:.2rem .8rem .2rem 0}svg{max-width:100%;height:auto}</style>\n";
    struct bn_buf b;
    bn_buf_init(&b, PAGE_MAX_BYTES);
    bn_buf_puts(&b, HEAD);
    bn_buf_puts(&b, "<h1>");
    svg_text(&b, report_text(bn_json_get(report, "model"), "name"));
    bn_buf_puts(&b, "</h1>\n<p>bitnet ");
    svg_text(&b, report_text(report, "version"));
    bn_buf_puts(&b, ", ");
    svg_text(&b, report_text(report, "date"));
    bn_buf_printf(&b, ". %.0f samples of %.0f tokens, every second one held out.</p>\n",
                  report_number(report, "samples"), report_number(report, "sample_tokens"));
    bn_buf_puts(&b, "<table><tr><th></th><th>mean KL</th><th>P99</th><th>maximum</th><th>same best "
                    "token</th><th>perplexity ratio</th></tr>\n");
    figures(&b, "chosen by", bn_json_get(report, "promised"));
    figures(&b, "held-out", bn_json_get(report, "heldout"));
    bn_buf_puts(&b, "</table>\n");
    draw(&b, report);
    bn_buf_puts(&b,
                "<p>Line: what the harms of single savings add up to. Points, measured on held-out "
                "text: green the plan, blue other budgets, red the same step in every layer.</p>\n"
                "<table><tr><th>layer</th><th>mixer</th><th>out</th><th>gate, up</th><th>down</th>"
                "<th>zeros</th><th>gates</th><th>saved (KL alone)</th></tr>\n");
    rows(&b, report);
    bn_buf_puts(&b, "</table>\n<p>Entropy of the int8 codes of each input, in bits; zeros among "
                    "inputs of <code>down</code>; gates above zero.</p>\n</html>\n");
    return bn_buf_take(&b);
}
