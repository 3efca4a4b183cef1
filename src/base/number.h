/* SPDX-License-Identifier: Apache-2.0
 * Numbers as text, with a point whatever the locale has for one. */
#ifndef BN_BASE_NUMBER_H
#define BN_BASE_NUMBER_H

enum { BN_NUMBER_BYTES = 40 };

/* v as printf has it with style 'e', 'f' or 'g', in the least precision from `least` to `most` that
 * gives v back. Returns that precision; most + 1 if none does: then the text has `most`. */
int bn_number_text(char out[BN_NUMBER_BYTES], char style, int least, int most, double v);

/* What the locale has for a decimal point. */
char bn_locale_point(void);

#endif
