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

/* ------------------------------------------------------------------ formats */

static const struct bn_expr *two_digits(struct bn_schema *s, const char *high, const char *low)
{
    return BN_SEQ(s->b, one_of(s, high), one_of(s, low));
}

/* 1000 to 2999; February has 28 days: which years have one more cannot be told from here */
static const struct bn_expr *date(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *to28 =
        BN_ALT(b, two_digits(s, "0", "1-9"), two_digits(s, "1", "0-9"), two_digits(s, "2", "0-8"));
    const struct bn_expr *to30 = BN_ALT(b, to28, text(s, "29"), text(s, "30"));
    const struct bn_expr *to31 = BN_ALT(b, to30, text(s, "31"));
    const struct bn_expr *month31 =
        BN_ALT(b, two_digits(s, "0", "13578"), two_digits(s, "1", "02"));
    const struct bn_expr *month30 = BN_ALT(b, two_digits(s, "0", "469"), text(s, "11"));
    return BN_SEQ(b, one_of(s, "12"), several(s, "0-9", 3, 3), text(s, "-"),
                  BN_ALT(b, BN_SEQ(b, month31, text(s, "-"), to31),
                         BN_SEQ(b, month30, text(s, "-"), to30), BN_SEQ(b, text(s, "02-"), to28)));
}

static const struct bn_expr *clock_time(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *hour = BN_ALT(b, two_digits(s, "01", "0-9"), two_digits(s, "2", "0-3"));
    const struct bn_expr *sixty = two_digits(s, "0-5", "0-9");
    const struct bn_expr *part =
        bn_expr_repeat(b, BN_SEQ(b, text(s, "."), several(s, "0-9", 1, 6)), 0, 1);
    const struct bn_expr *zone =
        BN_ALT(b, text(s, "Z"), BN_SEQ(b, one_of(s, "+-"), hour, text(s, ":"), sixty));
    return BN_SEQ(b, hour, text(s, ":"), sixty, text(s, ":"), sixty, part, zone);
}

static const struct bn_expr *uuid(struct bn_schema *s)
{
    struct bn_exprs parts = {0};
    static const uint32_t lengths[] = {8, 4, 4, 4, 12};
    for (size_t i = 0; i < BN_ARRAY_LEN(lengths); i++) {
        if (i > 0) bn_exprs_add(s->b, &parts, text(s, "-"));
        bn_exprs_add(s->b, &parts, several(s, "0-9a-f", lengths[i], lengths[i]));
    }
    return bn_exprs_take(s->b, &parts, BN_EXPR_SEQ);
}

/* words with a mark between them, min to max of them */
static const struct bn_expr *words(struct bn_schema *s, const struct bn_expr *word,
                                   const char *mark, uint32_t min, uint32_t max)
{
    return BN_SEQ(s->b, word,
                  bn_expr_repeat(s->b, BN_SEQ(s->b, text(s, mark), word), min - 1, max - 1));
}

static const struct bn_expr *email(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *user = several(s, "a-zA-Z0-9_+-", 1, 20);
    const struct bn_expr *host =
        BN_SEQ(b, several(s, "a-z0-9", 1, 20),
               bn_expr_repeat(b, BN_SEQ(b, text(s, "-"), several(s, "a-z0-9", 1, 20)), 0, 1));
    return BN_SEQ(b, words(s, user, ".", 1, 3), text(s, "@"), words(s, host, ".", 1, 3),
                  text(s, "."), several(s, "a-z", 2, 10));
}

static const struct bn_expr *ipv4(struct bn_schema *s)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *byte = BN_ALT(b, one_of(s, "0-9"), two_digits(s, "1-9", "0-9"),
                                        BN_SEQ(b, text(s, "1"), two_digits(s, "0-9", "0-9")),
                                        BN_SEQ(b, text(s, "2"), two_digits(s, "0-4", "0-9")),
                                        BN_SEQ(b, text(s, "25"), one_of(s, "0-5")));
    return words(s, byte, ".", 4, 4);
}

static const struct bn_expr *format(struct bn_schema *s, const char *name)
{
    if (strcmp(name, "date") == 0) return date(s);
    if (strcmp(name, "time") == 0) return clock_time(s);
    if (strcmp(name, "date-time") == 0) return BN_SEQ(s->b, date(s), text(s, "T"), clock_time(s));
    if (strcmp(name, "uuid") == 0) return uuid(s);
    if (strcmp(name, "email") == 0) return email(s);
    if (strcmp(name, "ipv4") == 0) return ipv4(s);
    return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "the format '%.60s' cannot be enforced", name);
}

/* ------------------------------------------------------------------ strings */

const struct bn_expr *bn_schema_string(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    const struct bn_json *pattern = bn_json_get(schema, "pattern");
    const struct bn_json *name = bn_json_get(schema, "format");
    uint32_t min = 0, max = BN_GRAMMAR_UNLIMITED;
    if ((pattern && !bn_json_is_string(pattern)) || (name && !bn_json_is_string(name)))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'pattern' or 'format' is not a string");
    if (!bn_schema_count(s, schema, "minLength", &min) ||
        !bn_schema_count(s, schema, "maxLength", &max))
        return NULL;
    bool limited = min > 0 || max != BN_GRAMMAR_UNLIMITED;
    if ((pattern != NULL) + (name != NULL) + limited > 1)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "two of 'pattern', 'format' and a length together");
    if (min > max) return bn_schema_fail(s, BITNET_E_FORMAT, "'minLength' is above 'maxLength'");
    if (pattern) return bn_schema_pattern(s, bn_json_text(pattern), bn_json_bytes(pattern));
    if (name) return BN_SEQ(b, text(s, "\""), format(s, bn_json_text(name)), text(s, "\""));
    if (!limited) return bn_schema_shared(s, BN_RULE_STRING);
    const struct bn_expr *c = bn_schema_shared(s, BN_RULE_CHAR);
    if (max == BN_GRAMMAR_UNLIMITED)
        return BN_SEQ(b, text(s, "\""), bn_expr_repeat(b, c, min, min),
                      bn_schema_shared(s, BN_RULE_STRING_REST));
    return BN_SEQ(b, text(s, "\""), bn_expr_repeat(b, c, min, max), text(s, "\""));
}
