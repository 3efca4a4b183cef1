/* SPDX-License-Identifier: Apache-2.0
 *
 * line_editor.h: what a person types, with editing, history, search, completion and pasting where both ends are a
 * terminal that can move its cursor, plain lines otherwise. No prompt is shown when standard input is no
 * terminal.
 */
#ifndef BN_CLI_CHAT_LINE_EDITOR_H
#define BN_CLI_CHAT_LINE_EDITOR_H

#include "cli/chat/history.h"

struct line_editor;

enum line_result { LINE_GOT, LINE_END, LINE_INTERRUPTED, LINE_TOO_LONG, LINE_FAILED };

/* Words that could stand where the cursor is, with what is known of them. */
struct line_choices {
    size_t start;      /* where in the text the word begins that they would replace */
    struct bn_buf all; /* one after the other, each with its 0 */
    size_t n;
};
void line_choices_offer(struct line_choices *c, const char *word);
/* Offers every file that begins with what is typed from c->start on. */
void line_choices_files(struct line_choices *c, const char *typed);

/* Offers what could stand at the end of `text`. */
typedef void line_complete_fn(void *user, const char *text, struct line_choices *c);

/* history: borrowed, may be NULL. NULL: out of memory. */
struct line_editor *line_editor_open(struct history *history, line_complete_fn *complete,
                                     void *user);
/* The terminal is as it was before. */
void line_editor_close(struct line_editor *ed);

/* *text: without its line end, 0-terminated, borrowed until the next call; over several lines where
 * such a text was pasted, or a line ended by Alt-Enter. */
enum line_result line_editor_read(struct line_editor *ed, const char *prompt, const char **text);
/* A question to answer with yes; anything else, an interrupt too, is no. Not kept in the history. */
bool line_editor_ask(struct line_editor *ed, const char *question);
/* The next line begins with this text. */
void line_editor_prefill(struct line_editor *ed, const char *text);

bool line_editor_is_interactive(const struct line_editor *ed);
/* Has the terminal more than lines, so that text can be taken back? */
bool line_editor_can_edit(const struct line_editor *ed);

#endif
