/* SPDX-License-Identifier: Apache-2.0
 *
 * line_editor.h: lines typed by a person: with editing and history where libedit was there at build and
 * both ends are a terminal, plain otherwise. No prompt is shown when standard input is no terminal.
 */
#ifndef BN_CLI_CORE_LINE_EDITOR_H
#define BN_CLI_CORE_LINE_EDITOR_H

#include "base/status.h"

struct line_editor;

enum line_result { LINE_GOT, LINE_END, LINE_INTERRUPTED, LINE_TOO_LONG, LINE_FAILED };

/* prompt: borrowed while the editor lives. NULL: out of memory. */
struct line_editor *line_editor_open(const char *prompt);
void line_editor_close(struct line_editor *ed);

/* *text: without its line end, 0-terminated, borrowed until the next call. */
enum line_result line_editor_read(struct line_editor *ed, const char **text);

bool line_editor_is_interactive(const struct line_editor *ed);

#endif
