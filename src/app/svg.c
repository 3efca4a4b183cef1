/* SPDX-License-Identifier: Apache-2.0 */
#include "app/svg.h"

#include <math.h>

void svg_begin(struct bn_buf *b, int width, int height)
{
    bn_buf_printf(b,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\">\n",
                  width, height, width, height);
    /* viewers that do not know light-dark() keep the colours before it */
    bn_buf_puts(b, "<style>:root{color-scheme:light dark}text{font:12px sans-serif;fill:#222;"
                   "fill:light-dark(#23211d,#ebe9e4)}.title{font-size:15px;"
                   "font-weight:bold}.mid{text-anchor:middle}.end{text-anchor:end}"
                   ".grid{stroke:#ddd;stroke:light-dark(#e0dcd3,#38352f)}"
                   ".axis{stroke:#444;stroke:light-dark(#656057,#a9a59b)}"
                   ".bar,polyline{stroke:#0f766e;stroke:light-dark(#0f766e,#55c9ba);"
                   "stroke-width:1.5;fill:none}"
                   "circle{fill:#0f766e;fill:light-dark(#0f766e,#55c9ba)}"
                   ".paper{fill:#fff;fill:light-dark(#fdfcfa,#161614)}</style>\n");
    bn_buf_printf(b, "<rect width=\"%d\" height=\"%d\" class=\"paper\"/>\n", width, height);
}

const char page_colours[] =
    ":root{color-scheme:light dark;--bg:light-dark(#fdfcfa,#161614);"
    "--panel:light-dark(#f3f0ea,#211f1d);--line:light-dark(#e0dcd3,#38352f);"
    "--text:light-dark(#23211d,#ebe9e4);--muted:light-dark(#656057,#a9a59b);"
    "--accent:light-dark(#0f766e,#55c9ba)}\n";

void page_begin(struct bn_buf *b, const char *command, const char *subject)
{
    bn_buf_printf(b,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                  "<title>bitnet %s: ",
                  command);
    svg_text(b, subject);
    bn_buf_puts(b, "</title>\n<style>");
    bn_buf_puts(b, page_colours);
    bn_buf_puts(b, "body{margin:0 auto;max-width:60rem;padding:1.5rem 1.25rem 3rem;"
                   "background:var(--bg);color:var(--text);font:1rem/1.5 system-ui,sans-serif;"
                   "font-variant-numeric:tabular-nums}"
                   "h1{font-size:1.7rem;margin:0 0 1rem;overflow-wrap:anywhere}"
                   "main>svg{width:100%;height:auto}.wide{overflow-x:auto}"
                   "table{border-collapse:collapse;width:100%}"
                   "th,td{padding:.4rem .6rem;text-align:right;border-bottom:1px solid var(--line);"
                   "white-space:nowrap}th:first-child{text-align:left}"
                   "thead th,p{color:var(--muted);font-weight:normal}</style>\n</head>\n<body>\n"
                   "<main>\n<h1>");
    svg_text(b, subject);
    bn_buf_puts(b, "</h1>\n");
}

void page_end(struct bn_buf *b) { bn_buf_puts(b, "</main>\n</body>\n</html>\n"); }

void svg_end(struct bn_buf *b) { bn_buf_puts(b, "</svg>\n"); }

void svg_text(struct bn_buf *b, const char *s)
{
    for (; *s; s++) switch (*s) {
        case '&': bn_buf_puts(b, "&amp;"); break;
        case '<': bn_buf_puts(b, "&lt;"); break;
        case '>': bn_buf_puts(b, "&gt;"); break;
        case '"': bn_buf_puts(b, "&quot;"); break;
        default:
            if (strncmp(s, "\xef\xbf\xbe", 3) == 0 || strncmp(s, "\xef\xbf\xbf", 3) == 0) {
                bn_buf_putc(b, '?'); /* U+FFFE and U+FFFF: UTF-8 has them, XML has not */
                s += 2;
            } else {
                bn_buf_putc(b, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
            }
        }
}

double svg_y(const struct svg_panel *p, double value)
{
    return p->y0 + SVG_TOP + (p->height - SVG_TOP - SVG_BOTTOM) * (1 - value / p->max_y);
}

void svg_frame(const struct svg_panel *p, const char *title, const char *unit, const char *axis)
{
    struct bn_buf *b = p->out;
    double middle = svg_y(p, p->max_y / 2);
    bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"title\">%s</text>\n", SVG_LEFT,
                  p->y0 + SVG_TOP - 14, title);
    for (int i = 0; i <= SVG_TICKS; i++) {
        double value = p->max_y * i / SVG_TICKS, y = svg_y(p, value);
        bn_buf_printf(b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" class=\"%s\"/>\n",
                      SVG_LEFT, y, SVG_WIDTH - SVG_RIGHT, y, i ? "grid" : "axis");
        bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"end\">%.6g</text>\n", SVG_LEFT - 8,
                      y + 4, value);
    }
    bn_buf_printf(b,
                  "<text x=\"24\" y=\"%.1f\" class=\"mid\" transform=\"rotate(-90 24 %.1f)\">"
                  "%s</text>\n",
                  middle, middle, unit);
    bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\" class=\"mid\">%s</text>\n",
                  (SVG_LEFT + SVG_WIDTH - SVG_RIGHT) / 2, p->y0 + p->height - 10, axis);
}

void svg_mark(const struct svg_panel *p, double x, const char *text)
{
    bn_buf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"mid\">%s</text>\n", x,
                  p->y0 + p->height - SVG_BOTTOM + 18, text);
}

double svg_round_up(double v)
{
    static const double steps[] = {1, 2, 2.5, 5, 10};
    if (!(v > 0)) return 1;
    double unit = pow(10, floor(log10(v)));
    for (size_t i = 0; i < BN_ARRAY_LEN(steps); i++)
        if (v <= steps[i] * unit * (1 + 1e-9)) return steps[i] * unit;
    return 10 * unit;
}

enum {                     /* pixels */
       FLUID_NARROW = 330, /* width of a drawing on a telephone */
       FLUID_WIDE = 1000,  /* on a large screen; class wide is for these */
       FLUID_LETTER = 7,
       FLUID_PAD = 5
};

void svg_fluid_begin(struct bn_buf *b, int height, const char *what)
{
    bn_buf_printf(
        b, "<svg class=\"fluid\" width=\"100%%\" height=\"%d\" role=\"img\" aria-label=\"", height);
    svg_text(b, what);
    bn_buf_puts(b, "\">\n");
}

void svg_block(struct bn_buf *b, const struct svg_block *r)
{
    size_t label_px = r->label ? strlen(r->label) * FLUID_LETTER + 2 * FLUID_PAD : 0;
    bn_buf_printf(
        b, "<svg x=\"%.4f%%\" y=\"%.1f\" width=\"%.4f%%\" height=\"%.1f\" class=\"%s\"><title>",
        r->x * 100, r->y, r->width * 100, r->height, r->css);
    svg_text(b, r->tip);
    bn_buf_puts(b, "</title><rect width=\"100%\" height=\"100%\"/>");
    if (r->label && (double)label_px <= r->width * FLUID_WIDE) {
        bn_buf_printf(b, "<text x=\"%d\" y=\"%.1f\"%s>", FLUID_PAD, r->height / 2 + 4,
                      (double)label_px <= r->width * FLUID_NARROW ? "" : " class=\"wide\"");
        svg_text(b, r->label);
        bn_buf_puts(b, "</text>");
    }
    bn_buf_puts(b, "</svg>\n");
}
