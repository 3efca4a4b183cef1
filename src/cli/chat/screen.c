/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat/screen.h"

#include "app/term.h"
#include "base/utf8.h"
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

enum { TAB_COLUMNS = 4, ROWS_UNKNOWN = 24, DRAWN_MAX_BYTES = 1 << 22, ZERO_WIDTH_JOINER = 0x200d };

size_t screen_cluster(const char *s, size_t n, int *columns)
{
    uint32_t cp, last;
    size_t at = bn_utf8_decode(s, n, &cp);
    *columns = 1;
    if (at == 0) return 1;
    if (cp == '\t') *columns = TAB_COLUMNS;
    else *columns = utf8proc_charwidth((utf8proc_int32_t)cp);
    if (cp == '\t' || cp == '\n') return at;
    utf8proc_int32_t state = 0;
    for (last = cp; at < n; last = cp) {
        size_t len = bn_utf8_decode(s + at, n - at, &cp);
        if (len == 0 ||
            utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)cp, &state))
            break;
        if (cp == 0xfe0f) *columns = 2; /* "shown as emoji" */
        else if (last != ZERO_WIDTH_JOINER && *columns < 2)
            *columns += utf8proc_charwidth((utf8proc_int32_t)cp);
        at += len;
    }
    return at;
}

int screen_columns(const char *s, size_t n)
{
    int sum = 0, columns;
    for (size_t at = 0; at < n; sum += columns) at += screen_cluster(s + at, n - at, &columns);
    return sum;
}

/* Where the next character goes. */
struct pen {
    size_t row;
    int column, width;
};

/* Goes on by one character; true: a new row was begun before it, or by it. */
static bool advance(struct pen *p, const char *s, int columns, int indent)
{
    if (*s == '\n') {
        p->row++;
        p->column = indent;
        return true;
    }
    bool wraps = p->column + columns > p->width;
    if (wraps) {
        p->row++;
        p->column = 0;
    }
    p->column += columns;
    return wraps;
}

static size_t height(void)
{
    struct winsize w;
    bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 0;
    return known ? w.ws_row : ROWS_UNKNOWN;
}

/* The cursor stands behind the character before it: in the next row, if that one is full. */
static struct pen cursor_place(struct pen p)
{
    if (p.column >= p.width) return (struct pen){p.row + 1, 0, p.width};
    return p;
}

static void append_shown(struct bn_buf *out, const char *s, size_t len)
{
    if (*s == '\t') bn_buf_printf(out, "%*s", TAB_COLUMNS, "");
    else term_clean(out, s, len, false);
}

void screen_draw(struct screen *s, const char *prompt, const char *more, const char *text, size_t n,
                 size_t at)
{
    const char *bold = term_style(stderr, TERM_BOLD), *plain = term_style(stderr, TERM_PLAIN);
    int width = term_width(stderr), columns, indent = (int)strlen(more);
    struct pen start = {0, (int)strlen(prompt), width}, p = start, cursor = start;
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        if (i == at) cursor = cursor_place(p);
        len = screen_cluster(text + i, n - i, &columns);
        advance(&p, text + i, columns, indent);
    }
    struct pen end = cursor_place(p);
    if (at >= n) cursor = end;

    size_t rows = end.row + 1, high = height(), top = 0;
    if (rows > high) {
        top = cursor.row > high / 2 ? cursor.row - high / 2 : 0;
        if (top + high > rows) top = rows - high;
        rows = high;
    }
    struct bn_buf out;
    bn_buf_init(&out, DRAWN_MAX_BYTES);
    if (s->cursor_row) bn_buf_printf(&out, "\033[%zuA", s->cursor_row);
    bn_buf_puts(&out, "\r\033[J");
    if (top == 0) bn_buf_printf(&out, "%s%s%s", bold, prompt, plain);
    p = start;
    for (size_t i = 0; i < n; i += len) {
        len = screen_cluster(text + i, n - i, &columns);
        bool breaks = advance(&p, text + i, columns, indent);
        if (p.row < top || p.row >= top + rows) continue;
        if (breaks && p.row > top) bn_buf_puts(&out, "\n");
        if (text[i] == '\n') bn_buf_printf(&out, "%s%s%s", bold, more, plain);
        else append_shown(&out, text + i, len);
    }
    size_t last = p.row < top + rows ? p.row : top + rows - 1;
    if (end.row > p.row && end.row < top + rows) {
        bn_buf_puts(&out, "\n");
        last = end.row;
    }
    if (last > cursor.row) bn_buf_printf(&out, "\033[%zuA", last - cursor.row);
    bn_buf_puts(&out, "\r");
    if (cursor.column) bn_buf_printf(&out, "\033[%dC", cursor.column);
    if (!out.failed) {
        fwrite(out.data, 1, out.len, stderr);
        fflush(stderr);
    }
    s->cursor_row = cursor.row - top;
    s->rows_below = last - cursor.row;
    bn_buf_free(&out);
}

void screen_leave(struct screen *s)
{
    if (s->rows_below) fprintf(stderr, "\033[%zuB", s->rows_below);
    fputs("\r\n", stderr);
    fflush(stderr);
    *s = (struct screen){0};
}
