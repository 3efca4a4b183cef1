/* SPDX-License-Identifier: Apache-2.0
 *
 * line_editor.h: lines typed by a person: with editing and history where libedit was there at build and
 * both ends are a terminal, plain otherwise. No prompt is shown when standard input is no terminal.
 */
#ifndef BN_CLI_CORE_LINE_EDITOR_H
#define BN_CLI_CORE_LINE_EDITOR_H

#include "base/status.h"

struct line_reader;

enum line_result { LINE_GOT, LINE_END, LINE_INTERRUPTED, LINE_TOO_LONG, LINE_FAILED };

/* prompt: borrowed while the reader lives. NULL: out of memory. */
struct line_reader *line_open(const char *prompt);
void line_close(struct line_reader *r);

/* *text: without its line end, 0-terminated, borrowed until the next call. */
enum line_result line_read(struct line_reader *r, const char **text);

bool line_is_interactive(const struct line_reader *r);

#endif
