/* SPDX-License-Identifier: Apache-2.0
 *
 * term.h: how things look on a terminal, and how commands speak: colours (never when NO_COLOR is
 * set or the stream is no terminal), a progress bar on standard error, sizes for people, text made
 * safe to show, the one error line, and reports as JSON.
 */
#ifndef BN_APP_TERM_H
#define BN_APP_TERM_H

#include "base/buf.h"
#include "json/json.h"
#include <stdio.h>

/* What commands end with. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };

bool term_is_tty(FILE *f);
int term_width(FILE *f); /* columns; 80 when unknown */

enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_RED, TERM_GREEN, TERM_YELLOW };
/* The escape sequence that starts a style on that stream; "" where colours are not wanted. */
const char *term_style(FILE *f, enum term_style style);

/* "1.2 GB", "317 kB", "12 B" */
enum { TERM_SIZE_BYTES = 24 };
const char *term_size(char out[TERM_SIZE_BYTES], uint64_t bytes);

/* Text from a column on to the end of the line, broken between words; `at`: how far the line is already,
 * and where that is too far, the text begins in the next. However narrow, there is room for some words. */
void term_wrap(FILE *to, const char *text, int at, int column, int width);

/* Appends s[0..n) so that it can be shown: control characters, characters that turn the writing
 * direction and bytes that are not UTF-8 become \xNN or \u{N}; newline and tab too, unless
 * keep_lines. */
void term_clean(struct bn_buf *b, const char *s, size_t n, bool keep_lines);
void term_print_clean(FILE *f, const char *s); /* one string, nothing kept */

/* Text of a model on standard output: as it is, but made safe when standard output is a
 * terminal. false when it could not be written. */
bool term_print_text(const char *s, size_t n);

/* A bar on standard error while the work goes on; for a bitnet_progress_fn. Zero-initialise. */
struct term_progress {
    uint64_t last_ns;
    bool drawn;
    const char *note; /* short text behind the bar, or NULL */
};
/* user: a struct term_progress. Also the place where long work hears of Ctrl-C. */
int term_progress_show(void *user, const char *what, uint64_t done, uint64_t total);
void term_progress_end(struct term_progress *p);

/* "bitnet: <sentence>" on standard error. They return the exit code that belongs to it. */
int term_fail(const bitnet_error *err);
int term_fail_text(const char *fmt, ...) BN_PRINTF(1, 2);
/* Ends with "; try 'bitnet COMMAND --help'"; command may be "". */
int term_usage(const char *command, const char *fmt, ...) BN_PRINTF(2, 3);
/* "bitnet: note: <sentence>" */
void term_note(const char *text);

/* Prints *j (taken) and a newline on standard output, and returns the exit code. NULL: out of
 * memory. */
int term_print_json(struct bn_json *j);
/* A JSON string, which is strict UTF-8: other bytes appear as \xNN. */
struct bn_json *term_json_string(const char *s, size_t n);

/* Flushes standard output; `code` if all went well, 1 with an error line if not. */
int term_finish(int code);

uint64_t term_peak_rss_bytes(void);
uint64_t term_available_bytes(void); /* memory; 0 where the system does not tell */

#endif
