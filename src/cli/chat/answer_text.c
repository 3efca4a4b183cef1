/* SPDX-License-Identifier: Apache-2.0
 *
 * answer_text.c: two steps. Tags are taken out first (put_plain), then words are held back until they are whole and
 * go to the next line if they do not fit (wrap). Code between ``` keeps its lines.
 */
#include "cli/chat/answer_text.h"

#include "cli/chat/screen.h"
#include "app/term.h"
#include "base/utf8.h"
#include <ctype.h>

enum { WORD_MAX_BYTES = 1 << 16, NARROWEST = 8, FENCE = 3 };
static const char open_tag[] = "<think>", close_tag[] = "</think>";

void answer_text_open(struct answer_text *a, bool fold, bool thinks)
{
    *a = (struct answer_text){.terminal = term_is_tty(stdout),
                              .fold = fold,
                              .may_think = true,
                              .thinking = thinks,
                              .at_start = true};
    a->width = a->terminal ? term_width(stdout) : 0;
    if (a->width < NARROWEST) a->width = 0;
    bn_buf_init(&a->held, sizeof close_tag);
    bn_buf_init(&a->word, WORD_MAX_BYTES);
}

void answer_text_close(struct answer_text *a)
{
    bn_buf_free(&a->held);
    bn_buf_free(&a->word);
}

size_t answer_text_thought(const char *text)
{
    const char *begin = text + strspn(text, " \n"), *end = strstr(text, close_tag);
    if (!end || strncmp(begin, open_tag, sizeof open_tag - 1) != 0) return 0;
    return (size_t)(end - text) + sizeof close_tag - 1;
}

/* ------------------------------------------------------------------ lines */

static void out(struct answer_text *a, const char *s, size_t n)
{
    if (fwrite(s, 1, n, stdout) != n) a->failed = true;
}

static void new_row(struct answer_text *a)
{
    out(a, "\n", 1);
    a->column = 0;
}

static void put_spaces(struct answer_text *a)
{
    for (; a->spaces > 0; a->spaces--, a->column++) out(a, " ", 1);
}

/* "-", "*", "12.", "3)": the lines of an item begin below its text. */
static bool is_marker(const char *s, size_t n)
{
    if (n == 1) return *s == '-' || *s == '*' || *s == '+';
    if (n < 2 || n > 4 || (s[n - 1] != '.' && s[n - 1] != ')')) return false;
    for (size_t i = 0; i + 1 < n; i++)
        if (!isdigit((unsigned char)s[i])) return false;
    return true;
}

static void flush_word(struct answer_text *a)
{
    struct bn_buf *w = &a->word;
    if (!w->len) return;
    if (a->at_start) {
        a->indent = a->spaces;
        if (is_marker(w->data, w->len)) a->indent += a->word_columns + 1;
        if (a->indent > a->width / 2) a->indent = 0;
        a->at_start = false;
    }
    if (!a->fence && a->column && a->column + a->spaces + a->word_columns > a->width) {
        new_row(a);
        a->spaces = a->indent;
    }
    put_spaces(a);
    out(a, w->data, w->len);
    a->column += a->word_columns;
    a->word_columns = 0;
    bn_buf_clear(w);
}

static void end_line(struct answer_text *a)
{
    flush_word(a);
    if (a->ticks >= FENCE) a->fence = !a->fence;
    a->spaces = a->ticks = a->indent = 0;
    a->at_start = true;
    new_row(a);
}

/* One character of a terminal's line. */
static void put_character(struct answer_text *a, const char *s, size_t n)
{
    int columns;
    if (*s == '\n') {
        end_line(a);
        return;
    }
    if (*s == ' ' || *s == '\t') {
        flush_word(a);
        a->spaces += *s == ' ' ? 1 : 4;
        return;
    }
    if (a->at_start && *s == '`' && (size_t)a->ticks == a->word.len) a->ticks++;
    screen_cluster(s, n, &columns);
    bool wide = columns == 2; /* Chinese, Japanese: a line may end behind every character */
    if (wide) flush_word(a);
    if (a->word_columns + columns > a->width - a->indent) flush_word(a);
    bn_buf_append(&a->word, s, n);
    a->word_columns += columns;
    if (wide) flush_word(a);
}

static void wrap(struct answer_text *a, const char *s, size_t n)
{
    struct bn_buf safe;
    bn_buf_init(&safe, SIZE_MAX / 2);
    term_clean(&safe, s, n, true);
    if (safe.failed) a->failed = true;
    if (!a->width) out(a, safe.data, safe.len);
    for (size_t at = 0, len; a->width && at < safe.len; at += len) {
        int columns;
        len = screen_cluster(safe.data + at, safe.len - at, &columns);
        put_character(a, safe.data + at, len);
    }
    if (safe.len) a->line_open = safe.data[safe.len - 1] != '\n';
    bn_buf_free(&safe);
}

/* ------------------------------------------------------------------ thinking */

static void put_plain(struct answer_text *a, const char *s, size_t n)
{
    if (!n) return;
    if (!a->thinking) {
        /* nothing but line ends stands between the block and the answer */
        for (; a->thought_words && !a->said && n && *s == '\n'; s++) n--;
        a->said = a->said || n;
        wrap(a, s, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        bool space = isspace((unsigned char)s[i]);
        if (!space && !a->in_word && !a->thought_words++ && a->fold)
            printf("%sthinking ...%s", term_style(stdout, TERM_DIM),
                   term_style(stdout, TERM_PLAIN));
        a->in_word = !space;
    }
    if (a->fold) return;
    fputs(term_style(stdout, TERM_DIM), stdout);
    wrap(a, s, n);
    fflush(stdout);
    fputs(term_style(stdout, TERM_PLAIN), stdout);
}

static void end_thinking(struct answer_text *a)
{
    const char *dim = term_style(stdout, TERM_DIM), *plain = term_style(stdout, TERM_PLAIN);
    if (!a->fold) {
        fputs(dim, stdout);
        if (a->width) flush_word(a);
        fputs(plain, stdout);
        if (a->line_open) a->width ? end_line(a) : new_row(a);
        if (a->thought_words) new_row(a);
    } else if (a->thought_words) {
        const char *back = *dim ? "\r" : "\n";
        printf("%s%s[%u words of thinking; /show thinking shows them]%s\n", back, dim,
               a->thought_words, plain);
    }
    a->line_open = a->thinking = a->said = false;
    a->may_think = false;
}

/* Takes a tag out of the stream, at the start of the answer or, when it thinks, anywhere. */
static void put_byte(struct answer_text *a, char c)
{
    const char *tag = a->thinking ? close_tag : open_tag;
    if (!a->thinking && (!a->may_think || (a->held.len == 0 && isspace((unsigned char)c)))) {
        put_plain(a, &c, 1);
        return;
    }
    if (c != tag[a->held.len]) {
        put_plain(a, a->held.data, a->held.len);
        bn_buf_clear(&a->held);
        if (!a->thinking) a->may_think = false;
        if (a->thinking && c == tag[0]) bn_buf_putc(&a->held, c);
        else put_plain(a, &c, 1);
        return;
    }
    bn_buf_putc(&a->held, c);
    if (tag[a->held.len]) return;
    bn_buf_clear(&a->held);
    if (a->thinking) end_thinking(a);
    else a->thinking = true;
}

bool answer_text_put(struct answer_text *a, const char *text, size_t n)
{
    if (!a->terminal) return term_print_text(text, n);
    size_t at = 0;
    /* whole characters go on together: a byte at a time is only for what may be a tag */
    while (at < n && (a->thinking || a->may_think)) {
        size_t len = 1;
        uint32_t cp;
        if ((unsigned char)text[at] >= 0x80) len = bn_utf8_decode(text + at, n - at, &cp);
        if (len > 1) {
            put_plain(a, a->held.data, a->held.len);
            bn_buf_clear(&a->held);
            if (!a->thinking) a->may_think = false;
            put_plain(a, text + at, len);
        } else {
            len = 1;
            put_byte(a, text[at]);
        }
        at += len;
    }
    put_plain(a, text + at, n - at);
    return fflush(stdout) == 0 && !a->failed;
}

void answer_text_end(struct answer_text *a)
{
    if (!a->terminal) return;
    put_plain(a, a->held.data, a->held.len);
    bn_buf_clear(&a->held);
    if (a->thinking) end_thinking(a);
    if (a->width) flush_word(a);
    fflush(stdout);
}
