/* SPDX-License-Identifier: Apache-2.0 */
#include "app/term.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "app/interrupt.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    SENTENCE_MAX_BYTES = 8192,
    ESCAPE_BYTES = 16, /* "\u{10ffff}" */
    BAR_MAX_CELLS = 40,
    BAR_FIRST_MS = 150, /* work shorter than this shows no bar */
    BAR_EVERY_MS = 80
};

bool term_is_tty(FILE *f) { return isatty(fileno(f)) == 1; }

int term_width(FILE *f)
{
    struct winsize w;
    if (ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    return 80;
}

const char *term_style(FILE *f, enum term_style style)
{
    static const char *const codes[] = {
        [TERM_PLAIN] = "\033[0m", [TERM_BOLD] = "\033[1m",   [TERM_DIM] = "\033[2m",
        [TERM_RED] = "\033[31m",  [TERM_GREEN] = "\033[32m", [TERM_YELLOW] = "\033[33m"};
    const char *no_color = getenv("NO_COLOR"), *kind = getenv("TERM");
    if ((no_color && *no_color) || !kind || strcmp(kind, "dumb") == 0 || !term_is_tty(f)) return "";
    return codes[style];
}

const char *term_size(char out[TERM_SIZE_BYTES], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 999.5 && u + 1 < BN_ARRAY_LEN(units); u++) v /= 1000;
    snprintf(out, TERM_SIZE_BYTES,
             u && v < 9.995   ? "%.2f %s"
             : u && v < 99.95 ? "%.1f %s"
                              : "%.0f %s",
             v, units[u]);
    return out;
}

/* ------------------------------------------------------------------ safe text */

/* Characters that a terminal obeys instead of showing, or that reorder what stands around them. */
static bool is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x200e || cp == 0x200f ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069);
}

/* Bytes at the beginning of s that can be shown as they are. */
static size_t count_safe(const char *s, size_t n, bool keep_lines)
{
    size_t i = 0, len;
    for (uint32_t cp; i < n; i += len) {
        len = bn_utf8_decode(s + i, n - i, &cp);
        if (len == 0 || (is_unsafe(cp) && !(keep_lines && (cp == '\n' || cp == '\t')))) break;
    }
    return i;
}

/* What is shown for the first character of s; returns its bytes. */
static size_t escape(char out[ESCAPE_BYTES], const char *s, size_t n)
{
    uint32_t cp;
    size_t len = bn_utf8_decode(s, n, &cp);
    if (len == 0) snprintf(out, ESCAPE_BYTES, "\\x%02x", (unsigned char)*s);
    else if (cp == '\n' || cp == '\t') snprintf(out, ESCAPE_BYTES, cp == '\n' ? "\\n" : "\\t");
    else snprintf(out, ESCAPE_BYTES, cp < 0x80 ? "\\x%02x" : "\\u{%x}", (unsigned)cp);
    return len ? len : 1;
}

typedef void put_fn(void *to, const char *s, size_t n);

static void put_clean(put_fn *put, void *to, const char *s, size_t n, bool keep_lines)
{
    for (size_t i = 0; i < n;) {
        char shown[ESCAPE_BYTES];
        size_t safe = count_safe(s + i, n - i, keep_lines);
        if (safe) put(to, s + i, safe);
        i += safe;
        if (i == n) return;
        i += escape(shown, s + i, n - i);
        put(to, shown, strlen(shown));
    }
}

static void to_buf(void *b, const char *s, size_t n) { bn_buf_append(b, s, n); }
static void to_file(void *f, const char *s, size_t n) { fwrite(s, 1, n, f); }

void term_wrap(FILE *to, const char *text, int at, int column, int width)
{
    enum { MIN_ROOM = 30 };
    if (at && at > column - 2) {
        fputc('\n', to);
        at = 0;
    }
    fprintf(to, "%*s", column - at, "");
    int room = (int)bn_max_size((size_t)(width > column ? width - column : 0), MIN_ROOM), used = 0;
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (used && used + 1 + len > room) {
            fprintf(to, "\n%*s", column, "");
            used = 0;
        }
        if (used) fputc(' ', to);
        fprintf(to, "%.*s", len, text);
        used += len + (used > 0);
        text += len + (text[len] == ' ');
    }
    fputc('\n', to);
}

void term_clean(struct bn_buf *b, const char *s, size_t n, bool keep_lines)
{
    put_clean(to_buf, b, s, n, keep_lines);
}

void term_print_clean(FILE *f, const char *s) { put_clean(to_file, f, s, strlen(s), false); }

bool term_print_text(const char *s, size_t n)
{
    bool ok = true;
    if (term_is_tty(stdout)) {
        put_clean(to_file, stdout, s, n, true);
        ok = !ferror(stdout);
    } else {
        ok = fwrite(s, 1, n, stdout) == n;
    }
    return fflush(stdout) == 0 && ok;
}

/* ------------------------------------------------------------------ progress */

int term_progress_show(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct term_progress *p = user;
    uint64_t now = bn_now_ns();
    if (p->last_ns == 0) /* as if drawn a little later than now: short work then draws nothing */
        p->last_ns = now + (uint64_t)(BAR_FIRST_MS - BAR_EVERY_MS) * 1000000u;
    bool due = now > p->last_ns && now - p->last_ns >= (uint64_t)BAR_EVERY_MS * 1000000u;
    if (due && total && term_is_tty(stderr)) {
        double share = done < total ? (double)done / (double)total : 1;
        const char *note = p->note ? p->note : "";
        int room = term_width(stderr) - 36 - (int)strlen(note);
        int cells = room > BAR_MAX_CELLS ? BAR_MAX_CELLS : room < 5 ? 5 : room;
        int full = (int)(share * cells);
        char bar[BAR_MAX_CELLS + 1];
        memset(bar, '.', (size_t)cells);
        memset(bar, '#', (size_t)full);
        bar[cells] = 0;
        fprintf(stderr, "\r\033[K%.24s [%s] %3.0f %%%s", what ? what : "", bar, share * 100, note);
        fflush(stderr);
        p->last_ns = now;
        p->drawn = true;
    }
    return interrupt_pending();
}

void term_progress_end(struct term_progress *p)
{
    if (p->drawn) fputs("\r\033[K", stderr);
    *p = (struct term_progress){0};
}

/* ------------------------------------------------------------------ error line, notes */

static void say(const char *mark, const char *text, const char *hint)
{
    fflush(stdout); /* what was written before the error stands before it */
    const char *red = term_style(stderr, *mark ? TERM_YELLOW : TERM_RED);
    flockfile(stderr);
    fprintf(stderr, "%sbitnet:%s %s", red, *red ? term_style(stderr, TERM_PLAIN) : "", mark);
    term_print_clean(stderr, text); /* needs no memory, which may be what is missing */
    fprintf(stderr, "%s\n", hint);
    funlockfile(stderr);
}

int term_fail(const bitnet_error *err)
{
    if (err->status == BITNET_E_CANCELLED && interrupt_pending()) {
        say("", "interrupted", "");
        return interrupt_exit_code();
    }
    say("", err->text[0] ? err->text : bitnet_status_name(err->status), "");
    return EXIT_FAILED;
}

int term_fail_text(const char *fmt, ...)
{
    char text[SENTENCE_MAX_BYTES / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    say("", text, "");
    return EXIT_FAILED;
}

int term_usage(const char *command, const char *fmt, ...)
{
    char text[SENTENCE_MAX_BYTES / 2], hint[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(hint, sizeof hint, "%s 'bitnet %s%s--help'",
             bn_ends_with(text, "?") ? " Try" : "; try", command, *command ? " " : "");
    say("", text, hint);
    return EXIT_USAGE;
}

void term_note(const char *text) { say("note: ", text, ""); }

/* ------------------------------------------------------------------ reports */

int term_print_json(struct bn_json *j)
{
    if (!j) return term_fail_text("out of memory while building the JSON report");
    /* a program reads one line, a person reads many */
    bool person = term_is_tty(stdout);
    char *text = bn_json_dump(j, (person ? BN_JSON_INDENT(2) : 0) | BN_JSON_DIGITS(12));
    bn_json_free(j);
    if (!text) return term_fail_text("out of memory while printing the JSON report");
    /* JSON lets DEL and the second block of control characters through: a terminal must not see
     * them, which term_print_text takes care of */
    bool ok = term_print_text(text, strlen(text));
    free(text);
    fputc('\n', stdout);
    return term_finish(ok ? EXIT_DONE : EXIT_FAILED);
}

struct bn_json *term_json_string(const char *s, size_t n)
{
    if (bn_utf8_valid(s, n, NULL)) return bn_json_stringn(s, n);
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX / 2);
    term_clean(&b, s, n, true);
    struct bn_json *j = b.failed ? NULL : bn_json_stringn(b.data ? b.data : "", b.len);
    bn_buf_free(&b);
    return j;
}

int term_finish(int code)
{
    bool bad = fflush(stdout) != 0;
    int e = errno;
    if (!bad && !ferror(stdout)) return code;
    clearerr(stdout); /* said once */
    if (bad) return term_fail_text("cannot write to standard output: %s", strerror(e));
    return term_fail_text("cannot write to standard output");
}

/* "NAME: N kB" in a file of the kernel; 0 if there is no such line. */
static uint64_t kernel_bytes(const char *path, const char *name)
{
    unsigned long kb = 0;
    char line[160];
    size_t n = strlen(name);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0 && sscanf(line + n, ": %lu kB", &kb) == 1) break;
    if (f) fclose(f);
    return (uint64_t)kb * 1024;
}

uint64_t term_available_bytes(void) { return kernel_bytes("/proc/meminfo", "MemAvailable"); }

uint64_t term_peak_rss_bytes(void)
{
    /* getrusage also counts the process that started us before exec; the kernel's own line does
     * not */
    uint64_t bytes = kernel_bytes("/proc/self/status", "VmHWM");
    if (bytes) return bytes;
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
