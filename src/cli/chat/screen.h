/* SPDX-License-Identifier: Apache-2.0
 *
 * screen.h: the lines being edited, as they stand on the terminal. Rows are broken here and not by the terminal, so
 * that it is always known where the cursor is; a text higher than the terminal is shown in part.
 */
#ifndef BN_CLI_CHAT_SCREEN_H
#define BN_CLI_CHAT_SCREEN_H

#include "base/buf.h"

struct screen {
    size_t cursor_row; /* below the first row that is shown */
    size_t rows_below; /* the cursor */
};

/* Bytes of the first character of s[0..n) as people count them, with accents and joined emoji, and its
 * columns. n must be at least 1. */
size_t screen_cluster(const char *s, size_t n, int *columns);
/* Columns of a text without line ends. */
int screen_columns(const char *s, size_t n);

/* Draws it again, with the cursor at byte `at`. prompt: before the first line; `more` before the others. */
void screen_draw(struct screen *s, const char *prompt, const char *more, const char *text, size_t n,
                 size_t at);
/* The cursor goes below what was drawn. */
void screen_leave(struct screen *s);

#endif
