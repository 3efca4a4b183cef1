/* SPDX-License-Identifier: Apache-2.0
 *
 * history.h: what was typed before, also in earlier runs: a file with one entry a line, in which line ends and
 * backslashes are escaped. Only its owner can read it.
 */
#ifndef BN_CLI_CHAT_HISTORY_H
#define BN_CLI_CHAT_HISTORY_H

#include "base/base.h"
#include "base/buf.h"

enum { HISTORY_ENTRIES = 1000, HISTORY_ENTRY_MAX_BYTES = 64 << 10 };

struct history {
    char **entries; /* owned; oldest first */
    size_t n, room;
    char *path; /* owned; NULL: for this run only */
};

/* path: NULL for none. A file that cannot be read or made is no error: the history is then for this run only. */
void history_open(struct history *h, const char *path);
/* Appends, also to the file, unless it repeats the last entry or is longer than the limit. */
void history_add(struct history *h, const char *text);
/* The entry before `at` that contains the text; SIZE_MAX: none. */
size_t history_find(const struct history *h, size_t at, const char *text);
void history_close(struct history *h);

#endif
