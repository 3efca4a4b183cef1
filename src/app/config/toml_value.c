/* SPDX-License-Identifier: Apache-2.0
 *
 * toml_value.c: strings, numbers, dates, arrays and inline tables.
 */
#include "app/config/toml_impl.h"

#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ strings */

static bitnet_status read_code(struct bn_buf *b, struct toml_reader *r, size_t digits)
{
    uint32_t code = 0;
    char utf8[4];
    for (size_t i = 0; i < digits; i++, r->at++) {
        char c = toml_peek(r);
        uint32_t d = c >= '0' && c <= '9' ? (uint32_t)(c - '0') : (uint32_t)((c | 0x20) - 'a' + 10);
        if (!((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')))
            return toml_fail(r, digits == 4 ? "\\u needs 4 hexadecimal digits"
                                            : "\\U needs 8 hexadecimal digits");
        code = code << 4 | d;
    }
    size_t n = bn_utf8_encode(utf8, code);
    if (!n) return toml_fail(r, "an escape that is no character");
    bn_buf_append(b, utf8, n);
    return BITNET_OK;
}

/* A backslash at the end of a line: the line's end and the blanks of the next ones go. */
static bool skip_line_end(struct toml_reader *r)
{
    size_t start = r->at;
    toml_blanks(r);
    if (!toml_newline(r)) {
        r->at = start;
        return false;
    }
    do toml_blanks(r);
    while (toml_newline(r));
    return true;
}

static bitnet_status read_escape(struct bn_buf *b, struct toml_reader *r, bool multi)
{
    static const char names[] = "btnfr\"\\", values[] = "\b\t\n\f\r\"\\";
    r->at++;
    if (multi && skip_line_end(r)) return BITNET_OK;
    char c = toml_peek(r);
    const char *known = c ? strchr(names, c) : NULL;
    if (c) r->at++;
    if (c == 'u' || c == 'U') return read_code(b, r, c == 'u' ? 4 : 8);
    if (!known)
        return toml_fail(r, "a backslash begins one of \\b \\t \\n \\f \\r \\\" \\\\ \\u \\U; "
                            "between single quotes it stands for itself");
    bn_buf_putc(b, values[known - names]);
    return BITNET_OK;
}

/* How often the next byte stands there, up to max. */
static size_t run_of(const struct toml_reader *r, char c, size_t max)
{
    size_t n = 0;
    while (n < max && r->at + n < r->end && r->text[r->at + n] == c) n++;
    return n;
}

static bitnet_status read_string(struct bn_buf *b, struct toml_reader *r, char quote, bool multi)
{
    const unsigned first_line = r->line;
    for (;;) {
        char c = toml_peek(r);
        size_t quotes = run_of(r, quote, multi ? 5 : 1);
        if (quotes >= (multi ? 3u : 1u)) { /* up to two more are of the text */
            r->at += quotes;
            for (size_t i = 3; multi && i < quotes; i++) bn_buf_putc(b, quote);
            return BITNET_OK;
        }
        if (c == '\\' && quote == '"') {
            BN_TRY(read_escape(b, r, multi));
        } else if (multi && (c == '\n' || c == '\r')) {
            if (!toml_newline(r)) return toml_fail(r, "a carriage return alone in a text");
            bn_buf_putc(b, '\n');
        } else if (r->at == r->end || c == '\n' || c == '\r') {
            r->line = first_line;
            return toml_fail(r, "the text has no closing quote");
        } else if (((unsigned char)c < 0x20 && c != '\t') || c == 0x7f) {
            return toml_fail(r, "a control character in a text");
        } else {
            bn_buf_putc(b, c);
            r->at++;
        }
    }
}

bitnet_status toml_string(const char **text, size_t *n, struct toml_reader *r, bool long_too)
{
    char quote = toml_peek(r);
    bool multi = run_of(r, quote, 3) == 3;
    if (multi && !long_too) return toml_fail(r, "a name cannot have several lines");
    r->at += multi ? 3 : 1;
    if (multi) toml_newline(r);
    struct bn_buf b;
    bn_buf_init(&b, TOML_MAX_BYTES);
    bn_buf_puts(&b, "");
    bitnet_status s = read_string(&b, r, quote, multi);
    if (s == BITNET_OK) {
        *n = b.len;
        *text = b.failed ? NULL : bn_arena_strn(r->arena, b.data, b.len);
        if (!*text) s = bn_fail_nomem(r->err, b.len, r->name);
    }
    bn_buf_free(&b);
    return s;
}

/* ------------------------------------------------------------------ dates */

/* `form` has 9 for a digit; everything else stands for itself. */
static bool has_form(const char *s, size_t n, const char *form)
{
    if (n < strlen(form)) return false;
    for (; *form; form++, s++)
        if (*form == '9' ? *s < '0' || *s > '9' : *s != *form) return false;
    return true;
}

static int two(const char *s) { return (s[0] - '0') * 10 + (s[1] - '0'); }

static bool is_date(const char *s, size_t n)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (!has_form(s, n, "9999-99-99")) return false;
    int year = two(s) * 100 + two(s + 2), month = two(s + 5), day = two(s + 8);
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (month < 1 || month > 12 || day < 1) return false;
    return day <= days[month - 1] + (month == 2 && leap);
}

/* Its length; 0: there is none. */
static size_t time_bytes(const char *s, size_t n)
{
    if (!has_form(s, n, "99:99:99")) return 0;
    if (two(s) > 23 || two(s + 3) > 59 || two(s + 6) > 60) return 0;
    if (n == 8 || s[8] != '.') return 8;
    size_t digits = 0;
    while (9 + digits < n && s[9 + digits] >= '0' && s[9 + digits] <= '9') digits++;
    return digits ? 9 + digits : 0;
}

static bool is_offset(const char *s, size_t n)
{
    if (n == 1) return *s == 'Z' || *s == 'z';
    if (n != 6 || (!has_form(s, n, "+99:99") && !has_form(s, n, "-99:99"))) return false;
    return two(s + 1) <= 23 && two(s + 4) <= 59;
}

static bool read_date(enum toml_kind *kind, const char *s, size_t n)
{
    *kind = TOML_LOCAL_TIME;
    if (time_bytes(s, n) == n) return true;
    if (!is_date(s, n)) return false;
    *kind = TOML_LOCAL_DATE;
    if (n == 10) return true;
    if (s[10] != 'T' && s[10] != 't' && s[10] != ' ') return false;
    size_t time = time_bytes(s + 11, n - 11);
    *kind = TOML_LOCAL_DATETIME;
    if (!time || 11 + time == n) return time > 0;
    *kind = TOML_OFFSET_DATETIME;
    return is_offset(s + 11 + time, n - 11 - time);
}

/* ------------------------------------------------------------------ numbers */

enum { NUMBER_MAX_BYTES = 128 };

static const char hexadecimal[] = "0123456789abcdefABCDEF", decimal[] = "0123456789";

/* Copies digits without the underscores between them; false where one is not between digits. */
static bool strip(char out[NUMBER_MAX_BYTES], const char *s, size_t n, const char *digits)
{
    size_t len = 0;
    if (n >= NUMBER_MAX_BYTES) return false;
    for (size_t i = 0; i < n; i++) {
        bool between = i && i + 1 < n && strchr(digits, s[i - 1]) && strchr(digits, s[i + 1]);
        if (s[i] != '_') out[len++] = s[i];
        else if (!between) return false;
    }
    out[len] = 0;
    return len > 0;
}

/* 0x, 0o, 0b */
static bool read_based(int64_t *out, const char *digits, char letter)
{
    static const char all[] = "0123456789abcdef";
    const unsigned base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    uint64_t v = 0;
    if (!*digits) return false;
    for (; *digits; digits++) {
        char c = *digits >= 'A' && *digits <= 'F' ? (char)(*digits | 0x20) : *digits;
        const char *d = strchr(all, c);
        if (!d || (unsigned)(d - all) >= base) return false;
        if (!bn_mul_u64(&v, v, base) || !bn_add_u64(&v, v, (uint64_t)(d - all))) return false;
    }
    *out = (int64_t)v;
    return v <= INT64_MAX;
}

static size_t digits_at(const char *s) { return strspn(s, decimal); }

/* [+-] digits [. digits] [e [+-] digits], without leading zeros. */
static bool is_decimal(bool *whole, const char *s)
{
    s += *s == '+' || *s == '-';
    size_t n = digits_at(s);
    if (!n || (n > 1 && *s == '0')) return false;
    s += n;
    *whole = !*s;
    if (*s == '.') {
        if (!(n = digits_at(s + 1))) return false;
        s += 1 + n;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        if (!(n = digits_at(s))) return false;
        s += n;
    }
    return !*s;
}

static bool read_whole(int64_t *out, const char *s)
{
    bool minus = *s == '-';
    uint64_t v = 0;
    for (s += *s == '+' || *s == '-'; *s; s++)
        if (!bn_mul_u64(&v, v, 10) || !bn_add_u64(&v, v, (uint64_t)(*s - '0'))) return false;
    if (v > (uint64_t)INT64_MAX + minus) return false;
    *out = minus ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

static bool read_number(struct toml *t, const char *s, size_t n)
{
    char number[NUMBER_MAX_BYTES];
    bool based = n > 2 && s[0] == '0' && strchr("xob", s[1]), whole;
    t->kind = TOML_INTEGER;
    if (based) /* no underscore between the letter and the digits */
        return strip(number, s + 2, n - 2, hexadecimal) && read_based(&t->integer, number, s[1]);
    if (!strip(number, s, n, decimal)) return false;
    const char *size = number + (*number == '+' || *number == '-');
    if (strcmp(size, "inf") != 0 && strcmp(size, "nan") != 0) {
        if (!is_decimal(&whole, number)) return false;
        if (whole) return read_whole(&t->integer, number);
    }
    t->kind = TOML_FLOAT;
    t->real = strtod(number, NULL);
    return true;
}

/* ------------------------------------------------------------------ values */

/* Everything that stands in one word: numbers, dates, true and false. */
static bitnet_status read_word(struct toml *t, struct toml_reader *r)
{
    const char *s = r->text + r->at;
    size_t n = 0, left = r->end - r->at;
    while (n < left && !strchr(" \t\r\n,]}#=", s[n])) n++;
    /* a date and its time may have a blank between them */
    if (n == 10 && n + 1 < left && s[10] == ' ' && is_date(s, 10) && s[11] >= '0' && s[11] <= '9')
        for (n++; n < left && !strchr(" \t\r\n,]}#=", s[n]);) n++;
    r->at += n;
    if ((n == 4 && memcmp(s, "true", 4) == 0) || (n == 5 && memcmp(s, "false", 5) == 0)) {
        t->kind = TOML_BOOL;
        t->truth = n == 4;
        return BITNET_OK;
    }
    if (n && read_date(&t->kind, s, n)) {
        t->text = bn_arena_strn(r->arena, s, n);
        t->bytes = n;
        return t->text ? BITNET_OK : bn_fail_nomem(r->err, n, r->name);
    }
    if (n && read_number(t, s, n)) return BITNET_OK;
    if (!n) return toml_fail(r, "a value was expected");
    return bn_fail(r->err, BITNET_E_FORMAT,
                   "%s:%u: '%.*s' is no value; a text stands between quotes", r->name, r->line,
                   (int)bn_min_size(n, 60), s);
}

static bitnet_status read_array(struct toml *t, struct toml_reader *r, unsigned depth)
{
    t->kind = TOML_ARRAY;
    t->complete = true;
    for (r->at++;;) {
        struct toml *item;
        BN_TRY(toml_space(r));
        if (toml_peek(r) == ']') break;
        BN_TRY(toml_node(&item, r, TOML_STRING));
        BN_TRY(toml_value(item, r, depth + 1));
        toml_append(t, item);
        BN_TRY(toml_space(r));
        if (toml_peek(r) == ']') break;
        if (toml_peek(r) != ',') return toml_fail(r, "',' or ']' was expected");
        r->at++;
    }
    r->at++;
    return BITNET_OK;
}

static bitnet_status read_table(struct toml *t, struct toml_reader *r, unsigned depth)
{
    t->kind = TOML_TABLE;
    r->at++;
    toml_blanks(r);
    while (toml_peek(r) != '}') {
        BN_TRY(toml_pair(r, t, depth + 1));
        toml_blanks(r);
        if (toml_peek(r) == '}') break;
        if (toml_peek(r) != ',') return toml_fail(r, "',' or '}' was expected in this line");
        r->at++;
        toml_blanks(r);
        if (toml_peek(r) == '}') return toml_fail(r, "a name was expected behind the comma");
    }
    r->at++;
    t->complete = true;
    return BITNET_OK;
}

bitnet_status toml_value(struct toml *t, struct toml_reader *r, unsigned depth)
{
    if (depth > TOML_MAX_DEPTH)
        return bn_fail(r->err, BITNET_E_LIMIT, "%s:%u: more than %d brackets in each other",
                       r->name, r->line, TOML_MAX_DEPTH);
    char c = toml_peek(r);
    if (c == '[') return read_array(t, r, depth);
    if (c == '{') return read_table(t, r, depth);
    if (c != '"' && c != '\'') return read_word(t, r);
    t->kind = TOML_STRING;
    return toml_string(&t->text, &t->bytes, r, true);
}
