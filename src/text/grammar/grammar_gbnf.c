/* SPDX-License-Identifier: Apache-2.0
 * GBNF, the notation of llama.cpp's grammars:
 *
 *     root   ::= greeting (", " name)* "\n"    # a comment
 *     name   ::= [A-Z] [a-z]{1,20} | "you"
 *     age    ::= %json {"type": "integer", "minimum": 0}
 *
 *     zip    ::= %regex "[0-9]{5}(-[0-9]{4})?"
 *
 * The last two are this engine's own: the texts that fit a JSON Schema, and those that a regular
 * expression matches as a whole.
 * A rule ends with its line, except inside parentheses and after '|' or '::='. */
#include "text/grammar/json_schema_impl.h"

#include "base/map.h"
#include "base/utf8.h"
#include <stdlib.h>

struct reader {
    struct bn_builder b;
    struct bn_schema schemas; /* those after %json */
    struct bn_map names;      /* of rules */
    uint32_t rule;            /* being read */
    const char *text;
    size_t n, at;
    uint32_t nesting;
    size_t counted; /* bytes up to which lines and columns are counted */
    uint32_t line, column;
    bitnet_error *err;
};

static void place(struct reader *r, size_t at, uint32_t *line, uint32_t *column)
{
    if (at < r->counted) r->counted = 0;
    if (r->counted == 0) r->line = r->column = 1;
    for (; r->counted < at; r->counted++) {
        if (r->text[r->counted] == '\n') {
            r->line++;
            r->column = 1;
        } else if (((unsigned char)r->text[r->counted] & 0xc0) != 0x80) {
            r->column++;
        }
    }
    *line = r->line;
    *column = r->column;
}

/* Says what is wrong at a byte of the text, once; false. */
static bool fail(struct reader *r, size_t at, bitnet_status status, const char *what)
{
    uint32_t line, column;
    if (r->b.status != BITNET_OK) return false;
    place(r, at, &line, &column);
    r->b.status = bn_fail(r->err, status, "grammar, line %u, column %u: %s", line, column, what);
    return false;
}

static bool good(const struct reader *r) { return r->b.status == BITNET_OK; }
static bool more(const struct reader *r) { return r->at < r->n; }
static bool next_is(const struct reader *r, char c) { return more(r) && r->text[r->at] == c; }

static bool take(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    if (r->n - r->at < n || memcmp(r->text + r->at, s, n) != 0) return false;
    r->at += n;
    return true;
}

static void skip_space(struct reader *r, bool lines)
{
    for (; more(r); r->at++) {
        char c = r->text[r->at];
        if (c == '#')
            while (more(r) && !next_is(r, '\n') && !next_is(r, '\r')) r->at++;
        if (!more(r)) return;
        c = r->text[r->at];
        if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) return;
    }
}

/* ------------------------------------------------------------------ characters */

static bool take_hex(struct reader *r, int digits, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < digits; i++, r->at++) {
        char c = more(r) ? r->text[r->at] : '\0';
        uint32_t d = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                            : 16;
        if (d == 16) return fail(r, r->at, BITNET_E_FORMAT, "a hexadecimal digit is missing");
        *value = *value << 4 | d;
    }
    return true;
}

static bool take_escape(struct reader *r, uint32_t *c)
{
    static const char plain[] = "\\\"[]-^/.|()*+?{}'";
    size_t at = r->at++;
    char e = more(r) ? r->text[r->at++] : '\0';
    switch (e) {
    case 'n': *c = '\n'; return true;
    case 'r': *c = '\r'; return true;
    case 't': *c = '\t'; return true;
    case 'x': return take_hex(r, 2, c);
    case 'u': return take_hex(r, 4, c);
    case 'U': return take_hex(r, 8, c);
    default:
        *c = (uint8_t)e;
        if (e && strchr(plain, e)) return true;
        return fail(r, at, BITNET_E_FORMAT, "unknown escape after '\\'");
    }
}

static bool take_char(struct reader *r, uint32_t *c)
{
    char form[4];
    size_t at = r->at;
    if (next_is(r, '\\')) {
        if (!take_escape(r, c)) return false;
    } else {
        size_t n = bn_utf8_decode(r->text + at, r->n - at, c);
        if (n == 0) return fail(r, at, BITNET_E_FORMAT, "the text is not valid UTF-8");
        r->at += n;
    }
    if (bn_utf8_encode(form, *c) == 0) return fail(r, at, BITNET_E_FORMAT, "not a character");
    return true;
}

static const struct bn_expr *literal(struct reader *r)
{
    struct bn_exprs chars = {0};
    size_t start = r->at++;
    while (good(r) && !next_is(r, '"')) {
        uint32_t c;
        char form[4];
        if (!more(r) || next_is(r, '\n')) fail(r, start, BITNET_E_FORMAT, "'\"' is not closed");
        else if (take_char(r, &c))
            bn_exprs_add(&r->b, &chars, bn_expr_literal(&r->b, form, bn_utf8_encode(form, c)));
    }
    if (good(r)) r->at++;
    return bn_exprs_take(&r->b, &chars, BN_EXPR_SEQ);
}

static const struct bn_expr *class(struct reader *r)
{
    struct bn_ranges ranges = {0};
    size_t start = r->at++;
    bool inverted = take(r, "^");
    while (good(r) && !next_is(r, ']')) {
        uint32_t lo, hi;
        size_t at = r->at;
        if (!more(r) || next_is(r, '\n')) {
            fail(r, start, BITNET_E_FORMAT, "'[' is not closed");
        } else if (take_char(r, &lo)) {
            hi = lo;
            bool range = next_is(r, '-') && r->at + 1 < r->n && r->text[r->at + 1] != ']';
            if (range) r->at++;
            if (range && !take_char(r, &hi)) break;
            if (hi < lo) fail(r, at, BITNET_E_FORMAT, "the range ends before it begins");
            bn_ranges_add(&r->b, &ranges, lo, hi);
        }
    }
    if (good(r)) r->at++;
    if (inverted) bn_ranges_invert(&r->b, &ranges);
    const struct bn_expr *e = bn_expr_class(&r->b, ranges.v, ranges.n);
    bn_ranges_free(&ranges);
    return e;
}

/* ------------------------------------------------------------------ rules */

static size_t name_length(const struct reader *r)
{
    size_t n = 0;
    for (; r->at + n < r->n; n++) {
        char c = r->text[r->at + n];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_'))
            break;
    }
    return n;
}

/* The rule whose name stands here, made when it is named first. */
static uint32_t take_name(struct reader *r, size_t n)
{
    uint32_t rule = (uint32_t)r->b.n_rules;
    bool existing;
    if (!bn_map_add(&r->names, r->text + r->at, n, &rule, &existing)) bn_builder_nomem(&r->b);
    else if (!existing) {
        rule = bn_rule_add(&r->b, r->text + r->at, n);
        if (good(r)) place(r, r->at, &r->b.rules[rule].line, &r->b.rules[rule].column);
    }
    r->at += n;
    return rule;
}

static bool take_number(struct reader *r, uint32_t *value)
{
    size_t at = r->at;
    uint64_t v = 0;
    while (more(r) && r->text[r->at] >= '0' && r->text[r->at] <= '9' && v <= BN_GRAMMAR_MAX_REPEAT)
        v = 10 * v + (uint64_t)(r->text[r->at++] - '0');
    *value = (uint32_t)v;
    if (at == r->at) return fail(r, at, BITNET_E_FORMAT, "a number is missing after '{'");
    if (v > BN_GRAMMAR_MAX_REPEAT)
        return fail(r, at, BITNET_E_LIMIT, "more than 16384 repetitions");
    return true;
}

/* {n} {n,} {n,m} */
static bool take_bounds(struct reader *r, uint32_t *min, uint32_t *max)
{
    size_t start = r->at++;
    skip_space(r, true);
    if (!take_number(r, min)) return false;
    *max = *min;
    skip_space(r, true);
    if (take(r, ",")) {
        skip_space(r, true);
        *max = BN_GRAMMAR_UNLIMITED;
        if (!next_is(r, '}') && !take_number(r, max)) return false;
        skip_space(r, true);
    }
    if (!take(r, "}")) return fail(r, start, BITNET_E_FORMAT, "'{' is not closed");
    if (*max < *min) return fail(r, start, BITNET_E_FORMAT, "the second number is smaller");
    return true;
}

static const struct bn_expr *repeated(struct reader *r, const struct bn_expr *e)
{
    while (good(r)) {
        uint32_t min = 0, max = BN_GRAMMAR_UNLIMITED;
        if (take(r, "?")) max = 1;
        else if (take(r, "+")) min = 1;
        else if (next_is(r, '{')) take_bounds(r, &min, &max);
        else if (!take(r, "*")) break;
        if (good(r)) e = bn_expr_repeat(&r->b, e, min, max);
        skip_space(r, r->nesting > 0);
    }
    return e;
}

static const struct bn_expr *alternatives(struct reader *r);

static const struct bn_expr *group(struct reader *r)
{
    size_t start = r->at++;
    if (++r->nesting > BN_GRAMMAR_MAX_NESTING)
        fail(r, start, BITNET_E_LIMIT, "more than 256 parentheses inside each other");
    skip_space(r, true);
    const struct bn_expr *e = good(r) ? alternatives(r) : NULL;
    r->nesting--;
    if (!take(r, ")")) fail(r, start, BITNET_E_FORMAT, "'(' is not closed");
    return e;
}

/* A JSON Schema, where its text begins. */
static const struct bn_expr *schema(struct reader *r)
{
    struct bn_json *root;
    size_t used;
    bitnet_status s =
        bn_json_parse_prefix(&root, r->text + r->at, r->n - r->at, 0, &used, "", NULL);
    r->at += used;
    if (s != BITNET_OK) {
        fail(r, r->at, s, s == BITNET_E_NOMEM ? "out of memory" : "bad JSON after '%json'");
        return NULL;
    }
    return bn_schema_add(&r->schemas, root, r->b.rules[r->rule].name);
}

/* A regular expression as a JSON string: %regex "[a-z]+\\d". */
static const struct bn_expr *regex(struct reader *r)
{
    struct bn_json *text;
    size_t used, start = r->at;
    bitnet_status s =
        bn_json_parse_prefix(&text, r->text + r->at, r->n - r->at, BN_JSON_ANY, &used, "", NULL);
    r->at += used;
    const struct bn_expr *e = NULL;
    if (s != BITNET_OK || !bn_json_is_string(text))
        fail(r, start, s == BITNET_E_NOMEM ? s : BITNET_E_FORMAT,
             s == BITNET_E_NOMEM ? "out of memory" : "no JSON string after '%regex'");
    else {
        bn_schema_at(&r->schemas, r->b.rules[r->rule].name);
        e = bn_schema_regex(&r->schemas, bn_json_text(text), bn_json_bytes(text));
    }
    bn_json_free(text);
    return e;
}

static const struct bn_expr *sequence(struct reader *r)
{
    struct bn_exprs parts = {0};
    while (good(r) && more(r)) {
        const struct bn_expr *e;
        size_t n = name_length(r);
        if (next_is(r, '"')) e = literal(r);
        else if (next_is(r, '[')) e = class(r);
        else if (next_is(r, '(')) e = group(r);
        else if (take(r, ".")) e = bn_expr_class(&r->b, &(struct bn_range){0, 0x10ffff}, 1);
        else if (take(r, "%json")) e = schema(r);
        else if (take(r, "%regex")) e = regex(r);
        else if (n > 0) e = bn_expr_rule(&r->b, take_name(r, n));
        else break;
        skip_space(r, r->nesting > 0);
        bn_exprs_add(&r->b, &parts, repeated(r, e));
    }
    return bn_exprs_take(&r->b, &parts, BN_EXPR_SEQ);
}

static const struct bn_expr *alternatives(struct reader *r)
{
    struct bn_exprs alts = {0};
    do {
        skip_space(r, true);
        bn_exprs_add(&r->b, &alts, sequence(r));
    } while (good(r) && take(r, "|"));
    return bn_exprs_take(&r->b, &alts, BN_EXPR_ALT);
}

static void rule(struct reader *r)
{
    size_t at = r->at, n = name_length(r);
    if (n == 0) {
        fail(r, at, BITNET_E_FORMAT, "the name of a rule is missing");
        return;
    }
    uint32_t i = take_name(r, n);
    skip_space(r, false);
    if (!take(r, "::=")) fail(r, r->at, BITNET_E_FORMAT, "'::=' is missing");
    if (!good(r)) return;
    if (r->b.rules[i].expr) {
        fail(r, at, BITNET_E_FORMAT, "a rule of this name is already defined");
        return;
    }
    place(r, at, &r->b.rules[i].line, &r->b.rules[i].column);
    r->rule = i;
    const struct bn_expr *e = alternatives(r);
    if (good(r)) r->b.rules[i].expr = e;
    if (more(r) && !next_is(r, '\n') && !next_is(r, '\r'))
        fail(r, r->at, BITNET_E_FORMAT, "not understood");
}

bitnet_status bn_grammar_from_gbnf(struct bn_grammar **out, const struct bn_token_tree *t,
                                   const char *text, size_t n, bitnet_error *err)
{
    *out = NULL;
    if (n > BN_GRAMMAR_MAX_TEXT)
        return bn_fail(err, BITNET_E_LIMIT, "a grammar of %zu bytes, the most is %d", n,
                       BN_GRAMMAR_MAX_TEXT);
    struct reader r = {.b.err = err, .text = text, .n = n, .err = err};
    bn_schema_open(&r.schemas, &r.b);
    if (!bn_map_init(&r.names, 64)) bn_builder_nomem(&r.b);
    else bn_map_add(&r.names, "root", 4, &(uint32_t){bn_rule_add(&r.b, "root", 4)}, NULL);
    for (skip_space(&r, true); good(&r) && more(&r); skip_space(&r, true)) rule(&r);
    if (good(&r) && !r.b.rules[0].expr)
        r.b.status = bn_fail(err, BITNET_E_FORMAT, "the grammar has no rule 'root'");
    bitnet_status st = bn_grammar_build(out, t, &r.b, err);
    bn_schema_close(&r.schemas);
    bn_map_free(&r.names);
    bn_builder_free(&r.b);
    return st;
}
