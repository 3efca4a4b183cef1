/* SPDX-License-Identifier: Apache-2.0
 *
 * svg.h: what the drawings of bench and loadtest share: their first and last lines, the style, text
 * made safe, round numbers for axes.
 */
#ifndef BN_CLI_SVG_H
#define BN_CLI_SVG_H

#include "base/buf.h"

/* Classes: title, mid and end (anchors of text), grid, axis, bar. */
void svg_begin(struct bn_buf *b, int width, int height);
void svg_end(struct bn_buf *b);
/* Text for XML: what it cannot hold becomes a question mark. */
void svg_text(struct bn_buf *b, const char *s);
/* The smallest of 1, 2, 2.5, 5 times a power of ten that is not below v. */
double svg_round_up(double v);

#endif
