/* SPDX-License-Identifier: Apache-2.0
 * Strings of JSON: their characters and escapes, lengths, formats, keys that are none of some
 * names. */
#include "text/grammar/json_schema_impl.h"

#include "base/utf8.h"
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CHAR = 0x10ffff };

static const struct bn_expr *text(struct bn_schema *s, const char *t)
{
    return bn_expr_text(s->b, t);
}

/* ------------------------------------------------------------------ characters */

/* One ASCII character of a set written as in a regular expression: "0-9a-f". */
static const struct bn_expr *one_of(struct bn_schema *s, const char *set)
{
    struct bn_ranges r = {0};
    for (const char *p = set; *p; p++) {
        bool range = p[1] == '-' && p[2];
        bn_ranges_add(s->b, &r, (uint8_t)p[0], (uint8_t)(range ? p[2] : p[0]));
        if (range) p += 2;
    }
    const struct bn_expr *e = bn_expr_class(s->b, r.v, r.n);
    bn_ranges_free(&r);
    return e;
}

static const struct bn_expr *several(struct bn_schema *s, const char *set, uint32_t min,
                                     uint32_t max)
{
    return bn_expr_repeat(s->b, one_of(s, set), min, max);
}

static bool must_escape(uint32_t c) { return c < 0x20 || c == '"' || c == '\\'; }

/* Everything that may stand as it is, the given characters apart. */
static const struct bn_expr *plain_except(struct bn_schema *s, struct bn_ranges *except)
{
    bn_ranges_add(s->b, except, 0, 0x1f);
    bn_ranges_add(s->b, except, '"', '"');
    bn_ranges_add(s->b, except, '\\', '\\');
    bn_ranges_invert(s->b, except);
    const struct bn_expr *e = bn_expr_class(s->b, except->v, except->n);
    bn_ranges_free(except);
    return e;
}

const struct bn_expr *bn_schema_any_char(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const char *hex = "0-9a-fA-F";
    /* \uD800 to \uDFFF come in pairs, and a pair is one character */
    const struct bn_expr *unit =
        BN_ALT(b, BN_SEQ(b, one_of(s, "0-9a-cA-Ce-fE-F"), several(s, hex, 3, 3)),
               BN_SEQ(b, one_of(s, "dD"), one_of(s, "0-7"), several(s, hex, 2, 2)),
               BN_SEQ(b, one_of(s, "dD"), one_of(s, "89abAB"), several(s, hex, 2, 2),
                      text(s, "\\u"), one_of(s, "dD"), one_of(s, "c-fC-F"), several(s, hex, 2, 2)));
    return BN_ALT(b, plain_except(s, &(struct bn_ranges){0}),
                  BN_SEQ(b, text(s, "\\"),
                         BN_ALT(b, one_of(s, "\"\\/bfnrt"), BN_SEQ(b, text(s, "u"), unit))));
}

static const struct bn_expr *escaped(struct bn_schema *s, uint32_t c)
{
    static const char names[] = "\"\"\\\\b\bf\fn\nr\rt\t"; /* name, character, ... */
    char form[8];
    snprintf(form, sizeof form, "\\u%04x", c);
    for (size_t i = 0; i + 1 < sizeof names - 1; i += 2)
        if ((uint8_t)names[i + 1] == c) snprintf(form, sizeof form, "\\%c", names[i]);
    return text(s, form);
}

const struct bn_expr *bn_schema_class(struct bn_schema *s, struct bn_ranges *r)
{
    struct bn_builder *b = s->b;
    struct bn_exprs alts = {0};
    for (size_t i = 0; i < r->n; i++)
        for (uint32_t c = r->v[i].lo; c <= r->v[i].hi && c <= '\\'; c++)
            if (must_escape(c)) bn_exprs_add(b, &alts, escaped(s, c));
    bn_ranges_invert(b, r);
    bn_exprs_add(b, &alts, plain_except(s, r));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

/* ------------------------------------------------------------------ keys */

/* The rest of a key behind the first `at` bytes of those names that begin alike: names[0..n), sorted.
 * Every name's own rest is left out. */
static const struct bn_expr *other_rest(struct bn_schema *s, const char *const *names, size_t n,
                                        size_t at)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *any =
        bn_expr_repeat(b, plain_except(s, &(struct bn_ranges){0}), 0, BN_GRAMMAR_UNLIMITED);
    struct bn_ranges taken = {0};
    struct bn_exprs alts = {0};
    size_t i = 0;
    if (n > 0 && names[0][at] == '\0') i++;
    else bn_exprs_add(b, &alts, text(s, "\""));
    while (i < n && b->status == BITNET_OK) {
        uint32_t c;
        size_t len = bn_utf8_decode(names[i] + at, strlen(names[i] + at), &c), k = i;
        while (k < n && strncmp(names[k] + at, names[i] + at, len) == 0) k++;
        bn_ranges_add(b, &taken, c, c);
        if (!must_escape(c)) /* others cannot come up: these keys have no escapes */
            bn_exprs_add(b, &alts,
                         BN_SEQ(b, bn_expr_literal(b, names[i] + at, len),
                                other_rest(s, names + i, k - i, at + len)));
        i = k;
    }
    bn_exprs_add(b, &alts, BN_SEQ(b, plain_except(s, &taken), any, text(s, "\"")));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const struct bn_expr *bn_schema_other_key(struct bn_schema *s, const char *const *names, size_t n)
{
    enum { MAX_NAME = 100 }; /* bytes: each is a level of nesting */
    const char **sorted = bn_arena_alloc(&s->b->arena, (n + 1) * sizeof *sorted);
    if (!sorted) return bn_builder_nomem(s->b), NULL;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = names[i];
        if (strlen(names[i]) > MAX_NAME)
            return bn_schema_fail(
                s, BITNET_E_LIMIT,
                "a name of %zu bytes beside 'additionalProperties', the most is %d",
                strlen(names[i]), MAX_NAME);
    }
    qsort(sorted, n, sizeof *sorted, by_name);
    return BN_SEQ(s->b, text(s, "\""), other_rest(s, sorted, n, 0));
}

/* ------------------------------------------------------------------ patterns */

static const struct bn_expr *write_quoted(void *user, struct bn_ranges *r)
{
    return bn_schema_class(user, r);
}

static const struct bn_expr *write_plain(void *user, struct bn_ranges *r)
{
    struct bn_schema *s = user;
    const struct bn_expr *e = bn_expr_class(s->b, r->v, r->n);
    bn_ranges_free(r);
    return e;
}

static const struct bn_expr *too_large(struct bn_schema *s, const char *what)
{
    return bn_schema_fail(s, BITNET_E_LIMIT, "%s needs an automaton with too many states", what);
}

static const struct bn_expr *quoted(struct bn_schema *s, const struct bn_expr *e)
{
    const struct bn_expr *quote = text(s, "\"");
    return BN_SEQ(s->b, quote, e, quote);
}

const struct bn_re *bn_schema_pattern(struct bn_schema *s, const struct bn_json *pattern)
{
    const char *what;
    size_t at;
    const struct bn_re *re =
        bn_re_parse(s->b, bn_json_text(pattern), bn_json_bytes(pattern), &what, &at);
    if (what) bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'pattern', byte %zu: %s", at, what);
    return re ? bn_re_found(s->b, re) : NULL;
}

const struct bn_expr *bn_schema_regex(struct bn_schema *s, const char *regex, size_t n)
{
    const char *what;
    size_t at;
    const struct bn_re *re = bn_re_parse(s->b, regex, n, &what, &at);
    if (what)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "the regular expression, byte %zu: %s", at,
                              what);
    re = re ? bn_re_whole(s->b, re) : NULL;
    const struct bn_expr *e = re ? bn_re_expr(s->b, re, write_plain, s) : NULL;
    return e || s->b->status != BITNET_OK ? e : too_large(s, "the regular expression");
}

/* ------------------------------------------------------------------ strings */

struct string {
    const struct bn_re *pattern, *format; /* NULL: none */
    uint32_t min, max;
};

static bool read_string(struct bn_schema *s, const struct bn_json *schema, struct string *t)
{
    const struct bn_json *pattern = bn_json_get(schema, "pattern");
    const struct bn_json *name = bn_json_get(schema, "format");
    *t = (struct string){.max = BN_GRAMMAR_UNLIMITED};
    if (!bn_schema_count(s, schema, "minLength", &t->min) ||
        !bn_schema_count(s, schema, "maxLength", &t->max))
        return false;
    if (pattern) t->pattern = bn_schema_pattern(s, pattern);
    if (name) t->format = bn_schema_format(s, bn_json_text(name));
    return s->b->status == BITNET_OK;
}

/* Of pattern and format both, if anything fits both: else of the pattern, which says more. */
static const struct bn_re *shape_of(struct bn_schema *s, const struct string *t,
                                    const struct bn_dfa **dfa)
{
    *dfa = NULL;
    if (!t->pattern || !t->format) return t->pattern ? t->pattern : t->format;
    const struct bn_re *both = bn_re_both(s->b, t->format, t->pattern);
    *dfa = bn_dfa_make(s->b, both);
    if (*dfa && (*dfa)->n_states > 0) return both;
    *dfa = NULL;
    return t->pattern;
}

/* A shape and a length: the automaton counts, so that there may be room for less than the schema
 * allows. */
static const struct bn_expr *with_length(struct bn_schema *s, const struct bn_re *shape,
                                         const struct bn_dfa *dfa, uint32_t min, uint32_t max)
{
    enum { ROOM = 4096 }; /* states */
    struct bn_builder *b = s->b;
    uint32_t least, most;
    if (!dfa) dfa = bn_dfa_make(b, shape);
    if (!dfa) return too_large(s, "'pattern'");
    bn_dfa_lengths(b, dfa, &least, &most);
    if (min <= least && most <= max)
        return shape->plain ? bn_re_expr(b, shape, write_quoted, s)
                            : bn_dfa_expr(b, dfa, write_quoted, s);
    uint32_t room = ROOM / (dfa->n_states + 1), need = least > min ? least : min;
    if (dfa->n_states == 0 || least > max || most + (most < BN_GRAMMAR_UNLIMITED) <= min)
        return bn_schema_never(s, "no text of this length fits 'pattern' or 'format'");
    if (room < need + 16) room = need + 16;
    if (max != BN_GRAMMAR_UNLIMITED && max > room) max = room;
    const struct bn_re *length = bn_re_repeat(b, bn_re_any(b), min, max);
    dfa = bn_dfa_make(b, bn_re_both(b, length, shape));
    return dfa ? bn_dfa_expr(b, dfa, write_quoted, s) : too_large(s, "'pattern' with this length");
}

static const struct bn_expr *shaped(struct bn_schema *s, const struct string *t)
{
    const struct bn_dfa *dfa;
    const struct bn_re *shape = shape_of(s, t, &dfa);
    const struct bn_expr *e;
    if (!shape) return NULL;
    if (t->min > 0 || t->max != BN_GRAMMAR_UNLIMITED)
        e = with_length(s, shape, dfa, t->min, t->max);
    else if (dfa) e = bn_dfa_expr(s->b, dfa, write_quoted, s);
    else e = bn_re_expr(s->b, shape, write_quoted, s);
    if (!e && s->b->status == BITNET_OK) return too_large(s, "'pattern'");
    return bn_schema_is_never(s, e) ? e : quoted(s, e);
}

/* Strings of the same demands are one rule. */
static const struct bn_expr *shared_string(struct bn_schema *s, const struct bn_json *schema,
                                           const struct string *t)
{
    static const char *const keys[] = {"pattern", "format", "minLength", "maxLength"};
    struct bn_json *key = bn_json_array();
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++) {
        struct bn_json *v = bn_json_get(schema, keys[i]);
        bn_json_append(key, v ? bn_json_ref(v) : bn_json_null());
    }
    char *text = bn_json_dump(key, BN_JSON_COMPACT);
    bn_json_free(key);
    char *kept = text ? bn_arena_strn(&s->b->arena, text, strlen(text)) : NULL;
    free(text);
    uint32_t rule = 0;
    if (!kept) return bn_builder_nomem(s->b), NULL;
    if (bn_map_get(&s->strings, kept, strlen(kept), &rule)) return bn_expr_rule(s->b, rule);
    const struct bn_expr *e = shaped(s, t);
    if (!e || bn_schema_is_never(s, e)) return e;
    rule = bn_rule_add(s->b, s->place.data, s->place.len);
    if (s->b->status != BITNET_OK) return NULL;
    s->b->rules[rule].expr = e;
    if (!bn_map_add(&s->strings, kept, strlen(kept), &rule, NULL)) bn_builder_nomem(s->b);
    return bn_expr_rule(s->b, rule);
}

bool bn_schema_string_shape(struct bn_schema *s, const struct bn_json *schema,
                            const struct bn_re **out)
{
    static const char *const said[] = {"type", "pattern", "format", "minLength", "maxLength"};
    struct string t;
    const char *key;
    struct bn_json *value;
    *out = NULL;
    schema = bn_schema_normal(s, schema);
    if (!schema || bn_json_is_true(schema)) return schema != NULL;
    bn_json_each_member(schema, key, value)
    {
        size_t i = 0;
        while (i < BN_ARRAY_LEN(said) && strcmp(key, said[i]) != 0) i++;
        if (i == BN_ARRAY_LEN(said) && !bn_schema_silent(key))
            return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'%.80s' of keys cannot be enforced",
                                  key) != NULL;
    }
    if (bn_json_is_false(schema)) {
        *out = bn_re_set(s->b, &(struct bn_ranges){0}); /* no key */
        return *out != NULL;
    }
    const struct bn_dfa *dfa;
    if (!read_string(s, schema, &t)) return false;
    *out = shape_of(s, &t, &dfa);
    if (t.min > 0 || t.max != BN_GRAMMAR_UNLIMITED)
        *out = bn_re_both(s->b, *out, bn_re_repeat(s->b, bn_re_any(s->b), t.min, t.max));
    return s->b->status == BITNET_OK;
}

const struct bn_expr *bn_schema_quoted(struct bn_schema *s, const struct bn_dfa *d)
{
    return quoted(s, bn_dfa_expr(s->b, d, write_quoted, s));
}

const struct bn_expr *bn_schema_string(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    struct string t;
    if (!read_string(s, schema, &t)) return NULL;
    if (t.min > t.max)
        return bn_schema_never(s, "'minLength' %u is above 'maxLength' %u", t.min, t.max);
    if (t.pattern || t.format) return shared_string(s, schema, &t);
    if (t.min == 0 && t.max == BN_GRAMMAR_UNLIMITED) return bn_schema_shared(s, BN_RULE_STRING);
    const struct bn_expr *c = bn_schema_shared(s, BN_RULE_CHAR);
    if (t.max == BN_GRAMMAR_UNLIMITED)
        return BN_SEQ(b, text(s, "\""), bn_expr_repeat(b, c, t.min, t.min),
                      bn_schema_shared(s, BN_RULE_STRING_REST));
    return quoted(s, bn_expr_repeat(b, c, t.min, t.max));
}
