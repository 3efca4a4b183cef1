/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/svg.h"

#include <math.h>

void svg_begin(struct bn_buf *b, int width, int height)
{
    bn_buf_printf(b,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\">\n",
                  width, height, width, height);
    bn_buf_puts(b, "<style>text{font:12px sans-serif;fill:#222}.title{font-size:15px;"
                   "font-weight:bold}.mid{text-anchor:middle}.end{text-anchor:end}"
                   ".grid{stroke:#ddd}.axis{stroke:#444}.bar{stroke:#1565c0;stroke-width:1.5;"
                   "fill:none}circle{fill:#1565c0}polyline{stroke:#1565c0;stroke-width:1.5;"
                   "fill:none}</style>\n");
    bn_buf_printf(b, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", width, height);
}

void svg_end(struct bn_buf *b) { bn_buf_puts(b, "</svg>\n"); }

void svg_text(struct bn_buf *b, const char *s)
{
    for (; *s; s++) switch (*s) {
        case '&': bn_buf_puts(b, "&amp;"); break;
        case '<': bn_buf_puts(b, "&lt;"); break;
        case '>': bn_buf_puts(b, "&gt;"); break;
        case '"': bn_buf_puts(b, "&quot;"); break;
        default: bn_buf_putc(b, (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
        }
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
