/* SPDX-License-Identifier: Apache-2.0
 * Reading JSON: a walk down the text, as deep as BN_JSON_DEPTH_MAX. */
#include "base/number.h"
#include "base/os/file.h"
#include "base/utf8.h"
#include "json/value_impl.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_BYTES = 64 /* of one that needs no memory of its own */ };

struct parser {
    const char *p, *end;
    unsigned flags, depth;
    const char *wrong; /* what is wrong at p; NULL and no value: memory is out */
    bitnet_status status;
};

static struct bn_json *parse_value(struct parser *s);

static struct bn_json *wrong(struct parser *s, const char *what)
{
    s->wrong = what;
    return NULL;
}

static void skip_space(struct parser *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\r' || *s->p == '\t'))
        s->p++;
}

/* ------------------------------------------------------------------ strings */

static bool hex4(const char *p, const char *end, uint32_t *out)
{
    *out = 0;
    if (end - p < 4) return false;
    for (const char *stop = p + 4; p < stop; p++) {
        int c = *p | 0x20, d = *p >= '0' && *p <= '9' ? *p - '0' : c - 'a' + 10;
        if (d < 0 || d > 15 || (d > 9 && (c < 'a' || c > 'f'))) return false;
        *out = *out << 4 | (uint32_t)d;
    }
    return true;
}

/* The character after "\u"; its length in the text, 0 if it is none. */
static size_t unicode_escape(const char *p, const char *end, uint32_t *cp)
{
    uint32_t low;
    if (!hex4(p, end, cp)) return 0;
    if (*cp < 0xd800 || *cp > 0xdfff) return 4;
    if (*cp > 0xdbff || end - p < 10 || p[4] != '\\' || p[5] != 'u' || !hex4(p + 6, end, &low) ||
        low < 0xdc00 || low > 0xdfff)
        return 0; /* half a pair */
    *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
    return 10;
}

/* One escape at s->p, behind its backslash; bytes written, 0: it is none. */
static size_t escape(struct parser *s, char *to)
{
    static const char named[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    uint32_t cp;
    if (s->p == s->end) return 0;
    for (const char *n = named; *n; n += 2)
        if (*n == *s->p) {
            *to = n[1];
            s->p++;
            return 1;
        }
    size_t len = *s->p == 'u' ? unicode_escape(s->p + 1, s->end, &cp) : 0;
    if (!len) return 0;
    s->p += 1 + len;
    return bn_utf8_encode(to, cp);
}

/* The bytes of the string that begins at s->p, up to its end, into `to`, which has room for the text's own
 * bytes: none of them becomes more. SIZE_MAX: s->wrong. */
static size_t string_bytes(struct parser *s, char *to)
{
    char *at = to;
    for (;;) {
        const char *plain = s->p;
        while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20)
            s->p++;
        size_t n = (size_t)(s->p - plain), bad;
        if (!bn_utf8_valid(plain, n, &bad)) {
            s->p = plain + bad;
            s->wrong = "a string is not UTF-8";
            return SIZE_MAX;
        }
        memcpy(at, plain, n);
        at += n;
        if (s->p == s->end) s->wrong = "a string has no end";
        else if (*s->p != '"' && *s->p != '\\') s->wrong = "a control character in a string";
        else if (*s->p++ == '"') return (size_t)(at - to);
        else if ((n = escape(s, at)) == 0) s->wrong = "a bad escape in a string";
        else at += n;
        if (s->wrong) return SIZE_MAX;
    }
}

/* Bytes up to the string's last quote: as much room as it may need. */
static size_t string_room(const struct parser *s)
{
    const char *p = s->p;
    while (p < s->end && *p != '"') p += *p == '\\' ? 2 : 1;
    return (size_t)((p < s->end ? p : s->end) - s->p);
}

static struct bn_json *parse_string(struct parser *s)
{
    s->p++;
    struct bn_json_string_value *v = bn_json_string_room(string_room(s));
    if (!v) return NULL;
    size_t n = string_bytes(s, v->s);
    if (n == SIZE_MAX) {
        bn_json_free(&v->head);
        return NULL;
    }
    memset(v->s + n, 0, v->n - n + 1);
    v->n = n;
    return &v->head;
}

/* ------------------------------------------------------------------ numbers */

static size_t digits(struct parser *s)
{
    const char *from = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') s->p++;
    return (size_t)(s->p - from);
}

/* What the text from `from` to s->p means, whatever the locale has for a decimal point. */
static struct bn_json *parse_real(struct parser *s, const char *from)
{
    char room[NUMBER_BYTES];
    size_t n = (size_t)(s->p - from);
    char *text = n < sizeof room ? room : malloc(n + 1);
    if (!text) return NULL;
    memcpy(text, from, n);
    text[n] = 0;
    char *dot = strchr(text, '.');
    if (dot) *dot = bn_locale_point();
    double v = strtod(text, NULL);
    if (text != room) free(text);
    return isfinite(v) ? bn_json_real(v) : wrong(s, "a number is too large");
}

static bool whole_number(const char *p, const char *end, int64_t *out)
{
    bool minus = *p == '-';
    *out = 0;
    for (p += minus; p < end; p++) {
        int d = minus ? '0' - *p : *p - '0';
        if (__builtin_mul_overflow(*out, (int64_t)10, out) ||
            __builtin_add_overflow(*out, (int64_t)d, out))
            return false;
    }
    return true;
}

static struct bn_json *parse_number(struct parser *s)
{
    const char *from = s->p;
    bool whole = true;
    if (*s->p == '-') s->p++;
    bool zero = s->p < s->end && *s->p == '0';
    size_t n = digits(s);
    if (n == 0 || (zero && n > 1)) return wrong(s, "a bad number");
    if (s->p < s->end && *s->p == '.') {
        whole = false;
        s->p++;
        if (!digits(s)) return wrong(s, "a bad number");
    }
    if (s->p < s->end && (*s->p | 0x20) == 'e') {
        whole = false;
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-')) s->p++;
        if (!digits(s)) return wrong(s, "a bad number");
    }
    int64_t v;
    if (whole && !(s->flags & BN_JSON_REALS) && whole_number(from, s->p, &v)) return bn_json_int(v);
    return parse_real(s, from);
}

/* ------------------------------------------------------------------ arrays and objects */

static bool at_char(struct parser *s, char c)
{
    skip_space(s);
    return s->p < s->end && *s->p == c;
}

typedef bool item_fn(struct parser *s, struct bn_json *to);

/* What stands between a bracket at s->p and `close`, put into `to` by `item`. */
static struct bn_json *parse_items(struct parser *s, struct bn_json *to, char close, item_fn *item,
                                   const char *expected)
{
    bool ok = to != NULL;
    s->p++;
    if (ok && at_char(s, close)) {
        s->p++;
        return to;
    }
    while (ok && item(s, to)) {
        ok = at_char(s, ',');
        if (!ok && at_char(s, close)) {
            s->p++;
            return to;
        }
        if (ok) s->p++;
        else s->wrong = expected;
    }
    bn_json_free(to);
    return NULL;
}

static bool parse_element(struct parser *s, struct bn_json *array)
{
    struct bn_json *v = parse_value(s);
    return v && bn_json_append(array, v);
}

/* The key that begins at s->p, in memory of its own. */
static char *parse_key(struct parser *s)
{
    if (!at_char(s, '"')) {
        s->wrong = "a key in quotes expected";
        return NULL;
    }
    s->p++;
    char *key = malloc(string_room(s) + 1);
    size_t n = key ? string_bytes(s, key) : SIZE_MAX;
    if (n == SIZE_MAX) {
        free(key);
        return NULL;
    }
    key[n] = 0;
    if (strlen(key) == n) return key;
    s->wrong = "a key has a character 0";
    free(key);
    return NULL;
}

/* "key": value */
static bool parse_member(struct parser *s, struct bn_json *object)
{
    char *key = parse_key(s);
    struct bn_json *v = NULL;
    bool ok = key != NULL;
    if (ok && (s->flags & BN_JSON_UNIQUE) && bn_json_get(object, key)) {
        s->wrong = "a key appears twice";
        ok = false;
    } else if (ok && !at_char(s, ':')) {
        s->wrong = "':' expected";
        ok = false;
    }
    if (ok) {
        s->p++;
        v = parse_value(s);
    }
    ok = v && bn_json_set_key(object, key, strlen(key), v);
    free(key);
    return ok;
}

/* ------------------------------------------------------------------ values */

static bool word(struct parser *s, const char *name)
{
    size_t n = strlen(name);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, name, n) != 0) return false;
    s->p += n;
    return true;
}

static struct bn_json *parse_value(struct parser *s)
{
    skip_space(s);
    if (s->p == s->end) return wrong(s, "the text ends where a value is expected");
    char c = *s->p;
    if (c == '{' || c == '[') {
        if (s->depth == BN_JSON_DEPTH_MAX) {
            s->status = BITNET_E_LIMIT;
            return wrong(s, "arrays and objects in more than 512 levels");
        }
        s->depth++;
        struct bn_json *v =
            c == '{' ? parse_items(s, bn_json_object(), '}', parse_member, "',' or '}' expected")
                     : parse_items(s, bn_json_array(), ']', parse_element, "',' or ']' expected");
        s->depth--;
        return v;
    }
    if (c == '"') return parse_string(s);
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(s);
    if (word(s, "null")) return bn_json_null();
    if (word(s, "true")) return bn_json_bool(true);
    if (word(s, "false")) return bn_json_bool(false);
    return wrong(s, "a value expected");
}

bitnet_status bn_json_parse_prefix(struct bn_json **out, const char *text, size_t n, unsigned flags,
                                   size_t *used, const char *what, bitnet_error *err)
{
    struct parser s = {.p = text, .end = text + n, .flags = flags, .status = BITNET_E_FORMAT};
    *out = parse_value(&s);
    if (*out && !(flags & BN_JSON_ANY) && !bn_json_is_array(*out) && !bn_json_is_object(*out))
        s.wrong = "'[' or '{' expected";
    if (*out && !s.wrong && !used) {
        skip_space(&s);
        if (s.p < s.end) s.wrong = "something follows the value";
    }
    if (used) *used = (size_t)(s.p - text);
    if (*out && !s.wrong) return BITNET_OK;
    bn_json_free(*out);
    *out = NULL;
    if (!s.wrong) return bn_fail_nomem(err, n, "JSON");
    if (!what)
        return bn_fail(err, s.status, "bad JSON at byte %zu: %s", (size_t)(s.p - text), s.wrong);
    size_t line = 1, column = 1;
    for (const char *p = text; p < s.p; p++, column++)
        if (*p == '\n') line++, column = 0;
    return bn_fail(err, s.status, "%s: bad JSON in line %zu, column %zu: %s", what, line, column,
                   s.wrong);
}

bitnet_status bn_json_parse(struct bn_json **out, const char *text, size_t n, unsigned flags,
                            const char *what, bitnet_error *err)
{
    return bn_json_parse_prefix(out, text, n, flags, NULL, what, err);
}

bool bn_json_try(struct bn_json **out, const char *text, size_t n, unsigned flags)
{
    return bn_json_parse(out, text, n, flags, "", NULL) != BITNET_E_NOMEM;
}

bitnet_status bn_json_read_file(struct bn_json **out, const char *path, size_t max_bytes,
                                bitnet_error *err)
{
    *out = NULL;
    char *text;
    size_t n;
    BN_TRY(bn_read_file(&text, &n, path, max_bytes, err));
    bitnet_status s = bn_json_parse(out, text, n, 0, path, err);
    free(text);
    return s;
}

/* ------------------------------------------------------------------ members of a given kind */

static bool present(const struct bn_json **v, const struct bn_json *object, const char *key)
{
    *v = bn_json_get(object, key);
    return *v && !bn_json_is_null(*v);
}

bitnet_status bn_json_read_u32(uint32_t *out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err)
{
    const struct bn_json *v;
    if (!present(&v, object, key)) return BITNET_OK;
    /* 4.0 is a whole number: some languages write all of them so */
    double number = bn_json_is_number(v) ? bn_json_number(v) : -1;
    if (!(number >= 0 && number <= UINT32_MAX) || number != floor(number))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a whole number from 0 to 2^32-1",
                       what, key);
    *out = (uint32_t)number;
    return BITNET_OK;
}

bitnet_status bn_json_read_f32(float *out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err)
{
    const struct bn_json *v;
    if (!present(&v, object, key)) return BITNET_OK;
    if (!bn_json_is_number(v) || !isfinite((float)bn_json_number(v)))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a number", what, key);
    *out = (float)bn_json_number(v);
    return BITNET_OK;
}

bitnet_status bn_json_read_bool(bool *out, const struct bn_json *object, const char *key,
                                const char *what, bitnet_error *err)
{
    const struct bn_json *v;
    if (!present(&v, object, key)) return BITNET_OK;
    if (!bn_json_is_bool(v))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not true or false", what, key);
    *out = bn_json_is_true(v);
    return BITNET_OK;
}

bitnet_status bn_json_read_str(const char **out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err)
{
    const struct bn_json *v;
    if (!present(&v, object, key)) return BITNET_OK;
    if (!bn_json_is_string(v))
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is not a string", what, key);
    *out = bn_json_text(v);
    return BITNET_OK;
}
