/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.h: what the drawings of bench and loadtest share: their first and last lines, the style, text
 * made safe, round numbers for axes, and the frame of a panel. Below: drawings that are part of a
 * page, which has the style.
 */
#ifndef BN_APP_SVG_H
#define BN_APP_SVG_H

#include "base/buf.h"

/* Classes: title, mid and end (anchors of text), grid, axis, bar. */
void svg_begin(struct bn_buf *b, int width, int height);
void svg_end(struct bn_buf *b);
/* Text for XML: what it cannot hold becomes a question mark. */
void svg_text(struct bn_buf *b, const char *s);
enum { /* in the drawing's own units: its width, the part above the first panel, margins of a panel */
       SVG_WIDTH = 720,
       SVG_HEAD = 70,
       SVG_LEFT = 80,
       SVG_RIGHT = 30,
       SVG_TOP = 40,
       SVG_BOTTOM = 50,
       SVG_TICKS = 4 /* of a vertical axis */
};

struct svg_panel {
    struct bn_buf *out;
    double y0, height; /* upper edge in the drawing */
    double max_y;      /* value at the upper end of the axis */
};
double svg_y(const struct svg_panel *p, double value);
/* Title, vertical axis with its unit, name of the horizontal one. */
void svg_frame(const struct svg_panel *p, const char *title, const char *unit, const char *axis);
/* Below the horizontal axis, at x of the drawing. */
void svg_mark(const struct svg_panel *p, double x, const char *text);

/* The smallest of 1, 2, 2.5, 5 times a power of ten that is not below v. */
double svg_round_up(double v);

/* A page around drawings and tables, light and dark; command: what has made it. */
extern const char page_colours[]; /* CSS: the colours of all reports, as variables */
void page_begin(struct bn_buf *b, const char *command, const char *subject);
void page_end(struct bn_buf *b);

/* A drawing as wide as its place in the page: x and widths are shares of it, y and heights pixels,
 * so that text keeps its size. what: said where the drawing cannot be seen. Ends with svg_end. */
void svg_fluid_begin(struct bn_buf *b, int height, const char *what);

/* A rectangle of a fluid drawing, coloured by its class (a name for CSS). */
struct svg_block {
    double x, width;  /* shares */
    double y, height; /* pixels */
    const char *css, *tip;
    const char *label; /* shown where there is room for it; NULL: none */
};
void svg_block(struct bn_buf *b, const struct svg_block *r);

#endif
