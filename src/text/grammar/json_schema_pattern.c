/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions of 'pattern': characters, '.', classes, groups, '|', '*', '+', '?', '{n,m}',
 * \d \w \s and their opposites (of ASCII), '^' at the beginning and '$' at the end of the whole or of
 * its alternatives. A pattern without anchors may be found anywhere in the string. Everything else
 * (back references, looking around, \b) is refused. */
#include "text/grammar/json_schema_impl.h"

#include "base/utf8.h"

struct pattern {
    struct bn_schema *s;
    const char *text;
    size_t n, at;
    uint32_t nesting;
};

static const struct bn_expr *refuse(struct pattern *p, size_t at, const char *what)
{
    return bn_schema_fail(p->s, BITNET_E_UNSUPPORTED, "'pattern', byte %zu: %s", at, what);
}

static bool good(const struct pattern *p) { return p->s->b->status == BITNET_OK; }
static bool more(const struct pattern *p) { return p->at < p->n; }
static bool next_is(const struct pattern *p, char c) { return more(p) && p->text[p->at] == c; }

static bool take(struct pattern *p, char c)
{
    if (!next_is(p, c)) return false;
    p->at++;
    return true;
}

/* ------------------------------------------------------------------ characters */

static const struct {
    char name;
    const char *ranges; /* pairs */
} sets[] = {{'d', "09"},         {'w', "09AZ__az"},         {'s', "\t\r  "},
            {'D', "\x01/:\x7f"}, {'W', "\x01/:@[^``{\x7f"}, {'S', "\x01\x08\x0e\x1f!\x7f"}};

static bool add_set(struct pattern *p, char name, struct bn_ranges *r)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(sets); i++) {
        if (sets[i].name != name) continue;
        for (const char *q = sets[i].ranges; *q; q += 2)
            bn_ranges_add(p->s->b, r, (uint8_t)q[0], (uint8_t)q[1]);
        return true;
    }
    return false;
}

static uint32_t take_hex(struct pattern *p, size_t digits)
{
    uint32_t value = 0;
    for (size_t i = 0; i < digits; i++, p->at++) {
        char c = more(p) ? p->text[p->at] : '\0';
        if (c >= '0' && c <= '9') value = 16 * value + (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') value = 16 * value + (uint32_t)(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') value = 16 * value + (uint32_t)(c - 'A' + 10);
        else return refuse(p, p->at, "a hexadecimal digit is missing"), 0;
    }
    return value;
}

/* Behind '\': a set goes to r and gives false; a character goes to *c. */
static bool take_escape(struct pattern *p, struct bn_ranges *r, uint32_t *c)
{
    static const char names[] = "n\nr\rt\tf\fv\v"; /* name, character, ... */
    static const char marks[] = "^$\\.*+?()[]{}|/-\"'#&,:;<=>@_`~!% ";
    size_t at = p->at;
    char e = more(p) ? p->text[p->at++] : '\0';
    if (add_set(p, e, r)) return false;
    *c = (uint8_t)e;
    if (e == 'x' || e == 'u') *c = take_hex(p, e == 'x' ? 2 : 4);
    else if (e == '\0' || !strchr(marks, e)) {
        size_t i = 0;
        while (i < sizeof names - 1 && names[i] != e) i += 2;
        if (i >= sizeof names - 1) return refuse(p, at, "this escape is not supported") != NULL;
        *c = (uint8_t)names[i + 1];
    }
    return true;
}

/* A character as it is, or behind '\' as above. */
static bool take_char(struct pattern *p, struct bn_ranges *r, uint32_t *c)
{
    if (take(p, '\\')) return take_escape(p, r, c);
    p->at += bn_utf8_decode(p->text + p->at, p->n - p->at, c); /* JSON is valid UTF-8 */
    return true;
}

static const struct bn_expr *class(struct pattern *p)
{
    size_t start = p->at++;
    struct bn_ranges r = {0};
    bool inverted = take(p, '^');
    while (good(p) && !next_is(p, ']')) {
        uint32_t lo, hi;
        if (!more(p)) {
            refuse(p, start, "'[' is not closed");
        } else if (take_char(p, &r, &lo)) {
            hi = lo;
            if (next_is(p, '-') && p->at + 1 < p->n && p->text[p->at + 1] != ']') {
                p->at++;
                if (!take_char(p, &r, &hi)) refuse(p, p->at, "a range up to a set");
            }
            if (good(p) && hi < lo) refuse(p, p->at, "a range that ends before it begins");
            bn_ranges_add(p->s->b, &r, lo, hi);
        }
    }
    if (good(p)) p->at++;
    if (inverted) bn_ranges_invert(p->s->b, &r);
    return bn_schema_class(p->s, &r);
}

/* What '.' stands for; lines: line ends, too. */
static const struct bn_expr *any_char(struct pattern *p, bool lines)
{
    struct bn_ranges r = {0};
    if (!lines) {
        bn_ranges_add(p->s->b, &r, '\n', '\n');
        bn_ranges_add(p->s->b, &r, '\r', '\r');
        bn_ranges_add(p->s->b, &r, 0x2028, 0x2029);
    }
    bn_ranges_invert(p->s->b, &r);
    return bn_schema_class(p->s, &r);
}

static const struct bn_expr *one_char(struct pattern *p)
{
    struct bn_ranges r = {0};
    uint32_t c;
    if (take_char(p, &r, &c)) bn_ranges_add(p->s->b, &r, c, c);
    return bn_schema_class(p->s, &r);
}

/* ------------------------------------------------------------------ structure */

static bool take_number(struct pattern *p, uint32_t *value)
{
    size_t start = p->at;
    *value = 0;
    while (more(p) && p->text[p->at] >= '0' && p->text[p->at] <= '9' &&
           *value <= BN_GRAMMAR_MAX_REPEAT)
        *value = 10 * *value + (uint32_t)(p->text[p->at++] - '0');
    return p->at > start;
}

static bool take_bounds(struct pattern *p, uint32_t *min, uint32_t *max)
{
    size_t start = p->at++;
    bool ok = take_number(p, min);
    *max = *min;
    if (ok && take(p, ',') && !take_number(p, max)) *max = BN_GRAMMAR_UNLIMITED;
    if (!ok || !take(p, '}') || *max < *min)
        return refuse(p, start, "'{' without two numbers in order and '}'") != NULL;
    return true;
}

static const struct bn_expr *repeated(struct pattern *p, const struct bn_expr *e)
{
    uint32_t min = 0, max = BN_GRAMMAR_UNLIMITED;
    size_t at = p->at;
    if (take(p, '?')) max = 1;
    else if (take(p, '+')) min = 1;
    else if (next_is(p, '{')) take_bounds(p, &min, &max);
    else if (!take(p, '*')) return e;
    if (next_is(p, '?') || next_is(p, '*') || next_is(p, '+') || next_is(p, '{'))
        refuse(p, at, "a repetition of a repetition");
    return bn_expr_repeat(p->s->b, e, min, max);
}

static const struct bn_expr *alternatives(struct pattern *p);

static const struct bn_expr *group(struct pattern *p)
{
    size_t start = p->at++;
    if (take(p, '?') && !take(p, ':')) return refuse(p, start, "this group is not supported");
    if (++p->nesting > BN_GRAMMAR_MAX_NESTING / 2) return refuse(p, start, "groups too deep");
    const struct bn_expr *e = alternatives(p);
    p->nesting--;
    if (!take(p, ')')) return refuse(p, start, "'(' is not closed");
    return e;
}

static const struct bn_expr *sequence(struct pattern *p)
{
    struct bn_exprs parts = {0};
    struct bn_builder *b = p->s->b;
    bool whole = p->nesting == 0; /* anchors are allowed */
    const struct bn_expr *anything =
        bn_expr_repeat(b, any_char(p, true), 0, whole ? BN_GRAMMAR_UNLIMITED : 0);
    if (!(whole && take(p, '^'))) bn_exprs_add(b, &parts, anything);
    while (good(p) && more(p) && !next_is(p, '|') && !next_is(p, ')')) {
        const struct bn_expr *e;
        if (whole && take(p, '$')) {
            anything = bn_expr_text(b, "");
            if (more(p) && !next_is(p, '|')) refuse(p, p->at, "something behind '$'");
            break;
        }
        if (next_is(p, '[')) e = class(p);
        else if (next_is(p, '(')) e = group(p);
        else if (take(p, '.')) e = any_char(p, false);
        else if (strchr("^$*+?{", p->text[p->at])) e = refuse(p, p->at, "not supported here");
        else e = one_char(p);
        if (good(p)) bn_exprs_add(b, &parts, repeated(p, e));
    }
    bn_exprs_add(b, &parts, anything);
    return bn_exprs_take(b, &parts, BN_EXPR_SEQ);
}

static const struct bn_expr *alternatives(struct pattern *p)
{
    struct bn_exprs alts = {0};
    do bn_exprs_add(p->s->b, &alts, sequence(p));
    while (good(p) && take(p, '|'));
    return bn_exprs_take(p->s->b, &alts, BN_EXPR_ALT);
}

const struct bn_expr *bn_schema_pattern(struct bn_schema *s, const char *pattern, size_t n)
{
    struct pattern p = {.s = s, .text = pattern, .n = n};
    const struct bn_expr *e = alternatives(&p);
    if (good(&p) && more(&p)) return refuse(&p, p.at, "')' without '('");
    const struct bn_expr *quote = bn_expr_text(s->b, "\"");
    return BN_SEQ(s->b, quote, e, quote);
}
