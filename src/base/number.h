/* SPDX-License-Identifier: Apache-2.0
 * Numbers as text, with a point whatever the locale has for one. */
#ifndef BN_BASE_NUMBER_H
#define BN_BASE_NUMBER_H

#include <stddef.h>

enum { BN_NUMBER_BYTES = 40 };

/* v as printf has it with style 'e', 'f' or 'g', in the least precision from `least` to `most` that
 * gives v back. Returns that precision; most + 1 if none does: then the text has `most`. */
int bn_number_text(char out[BN_NUMBER_BYTES], char style, int least, int most, double v);

/* A float in as many digits as give it back, nine at most, as printf's %.9g has it, but many times faster.
 * Returns the length; no float: "null". */
size_t bn_number_float(char out[BN_NUMBER_BYTES], float v);

/* What the locale has for a decimal point. */
char bn_locale_point(void);

#endif
