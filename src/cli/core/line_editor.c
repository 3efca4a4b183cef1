/* SPDX-License-Identifier: Apache-2.0
 *
 * line_editor.c: owns the line being read. With libedit the characters still come through our own reader,
 * so that Ctrl-C returns from the middle of a line, with the terminal put back in order by libedit
 * itself, and nothing ever jumps out of a signal handler.
 */
#include "cli/core/line_editor.h"

#include "base/buf.h"
#include "base/utf8.h"
#include "app/interrupt.h"
#include "app/term.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>
#if HAVE_LIBEDIT
#include <histedit.h>
#endif

enum { LINE_MAX_BYTES = 1 << 20, HISTORY_LINES = 1000 };

struct line_editor {
    const char *prompt;
    bool interactive;
    struct bn_buf line;
    unsigned char input[4096]; /* read, not yet taken: [input_at, input_bytes) */
    size_t input_at, input_bytes;
#if HAVE_LIBEDIT
    EditLine *edit; /* NULL: plain reading */
    History *history;
#endif
};

#if HAVE_LIBEDIT
static char *edit_prompt(EditLine *e)
{
    struct line_editor *ed = NULL;
    el_get(e, EL_CLIENTDATA, &ed);
    return (char *)(ed ? ed->prompt : "");
}

/* One character for libedit: 1, 0 at the end of input, -1 on error or interrupt. Input that is not
 * UTF-8 comes through as U+FFFD rather than ending the line. */
static int edit_getc(EditLine *e, wchar_t *out)
{
    (void)e;
    char bytes[4];
    for (size_t n = 0; n < sizeof bytes;) {
        if (!interrupt_wait_readable(STDIN_FILENO)) return -1;
        ssize_t got = read(STDIN_FILENO, bytes + n, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return (int)got;
        uint32_t cp;
        n++;
        if (bn_utf8_decode(bytes, n, &cp)) {
            *out = (wchar_t)cp;
            return 1;
        }
        if (bn_utf8_tail(bytes, n) != n) break;
    }
    *out = 0xfffd;
    return 1;
}

static void edit_open(struct line_editor *ed)
{
    const char *kind = getenv("TERM");
    if (!term_is_tty(stdin) || !term_is_tty(stderr) || !kind || strcmp(kind, "dumb") == 0) return;
    ed->edit = el_init("bitnet", stdin, stderr, stderr);
    if (!ed->edit) return;
    el_set(ed->edit, EL_CLIENTDATA, ed);
    el_set(ed->edit, EL_PROMPT, edit_prompt);
    el_set(ed->edit, EL_EDITOR, "emacs");
    el_set(ed->edit, EL_SIGNAL, 0);
    el_wset(ed->edit, EL_GETCFN, edit_getc);
    HistEvent event;
    ed->history = history_init();
    if (ed->history) {
        history(ed->history, &event, H_SETSIZE, HISTORY_LINES);
        history(ed->history, &event, H_SETUNIQUE, 1);
        el_set(ed->edit, EL_HIST, history, ed->history);
    }
}

static enum line_result edit_read(struct line_editor *ed, const char **text)
{
    int n = 0;
    const char *got = el_gets(ed->edit, &n);
    if (!got || n <= 0) {
        fputc('\n', stderr);
        return interrupt_pending() ? LINE_INTERRUPTED : LINE_END;
    }
    HistEvent event;
    if (ed->history && n > 1) history(ed->history, &event, H_ENTER, got);
    bn_buf_clear(&ed->line);
    if (!bn_buf_append(&ed->line, got, (size_t)n)) return LINE_TOO_LONG;
    if (ed->line.data[ed->line.len - 1] == '\n') ed->line.data[--ed->line.len] = 0;
    *text = ed->line.data;
    return LINE_GOT;
}
#endif

/* The next byte of standard input: 0..255, or one of these. Not through stdio: its reads would
 * sleep through an interrupt. */
enum { BYTE_END = -1, BYTE_INTERRUPTED = -2, BYTE_FAILED = -3 };
static int next_byte(struct line_editor *ed)
{
    while (ed->input_at == ed->input_bytes) {
        if (!interrupt_wait_readable(STDIN_FILENO)) return BYTE_INTERRUPTED;
        ssize_t got = read(STDIN_FILENO, ed->input, sizeof ed->input);
        if (got < 0 && errno != EINTR && errno != EAGAIN) return BYTE_FAILED;
        if (got == 0) return BYTE_END;
        ed->input_at = 0;
        ed->input_bytes = got > 0 ? (size_t)got : 0;
    }
    return ed->input[ed->input_at++];
}

static enum line_result plain_read(struct line_editor *ed, const char **text)
{
    if (ed->interactive) {
        fputs(ed->prompt, stderr);
        fflush(stderr);
    }
    bn_buf_clear(&ed->line);
    bn_buf_puts(&ed->line, "");
    int byte;
    while ((byte = next_byte(ed)) >= 0 && byte != '\n')
        bn_buf_putc(&ed->line, (char)byte); /* what does not fit is read and remembered as failed */
    if (byte == BYTE_FAILED) return LINE_FAILED;
    if (byte == BYTE_INTERRUPTED) {
        if (ed->interactive) fputc('\n', stderr);
        return LINE_INTERRUPTED;
    }
    if (ed->line.failed) return LINE_TOO_LONG;
    if (byte == BYTE_END && ed->line.len == 0) return LINE_END;
    if (ed->line.len && ed->line.data[ed->line.len - 1] == '\r') ed->line.data[--ed->line.len] = 0;
    *text = ed->line.data;
    return LINE_GOT;
}

struct line_editor *line_editor_open(const char *prompt)
{
    struct line_editor *ed = calloc(1, sizeof *ed);
    if (!ed) return NULL;
    ed->prompt = prompt;
    ed->interactive = term_is_tty(stdin);
    bn_buf_init(&ed->line, LINE_MAX_BYTES);
#if HAVE_LIBEDIT
    edit_open(ed);
#endif
    return ed;
}

void line_editor_close(struct line_editor *ed)
{
    if (!ed) return;
#if HAVE_LIBEDIT
    if (ed->history) history_end(ed->history);
    if (ed->edit) el_end(ed->edit);
#endif
    bn_buf_free(&ed->line);
    free(ed);
}

enum line_result line_editor_read(struct line_editor *ed, const char **text)
{
#if HAVE_LIBEDIT
    if (ed->edit) return edit_read(ed, text);
#endif
    return plain_read(ed, text);
}

bool line_editor_is_interactive(const struct line_editor *ed) { return ed->interactive; }
