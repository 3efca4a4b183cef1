/* SPDX-License-Identifier: Apache-2.0
 * JSON Schema as rules of a grammar; only json_schema*.c and grammar_gbnf.c include it. Texts are compact JSON with
 * at most one space after ',' and ':'. A schema's grammar may allow less than the schema does (keys
 * come in the schema's order, say), never more. */
#ifndef BN_TEXT_GRAMMAR_JSON_SCHEMA_IMPL_H
#define BN_TEXT_GRAMMAR_JSON_SCHEMA_IMPL_H

#include "base/buf.h"
#include "base/map.h"
#include "json/json.h"
#include "text/grammar/regex_impl.h"

/* Rules that many schemas share, made when first asked for. */
enum bn_shared_rule {
    BN_RULE_VALUE, /* anything */
    BN_RULE_OBJECT,
    BN_RULE_ARRAY,
    BN_RULE_CHAR,        /* one character of a string, escaped or not */
    BN_RULE_STRING_REST, /* any characters and the closing quote */
    BN_RULE_STRING,
    BN_RULE_INTEGER,
    BN_RULE_NUMBER,
    BN_RULE_BOOLEAN,
    BN_N_RULES
};

/* the types of JSON values, as bits of a set */
enum {
    BN_TYPE_NULL = 1,
    BN_TYPE_BOOLEAN = 2,
    BN_TYPE_INTEGER = 4,
    BN_TYPE_NUMBER = 8,
    BN_TYPE_STRING = 16,
    BN_TYPE_ARRAY = 32,
    BN_TYPE_OBJECT = 64
};

enum { BN_N_TYPES = 7 };

/* A keyword of our own: a list of schemas with one keyword each that the schema beside them has, too. */
#define BN_SCHEMA_ALSO \
    "\x01"             \
    "also"

struct bn_schema_rule {
    const struct bn_json *schema;
    uint32_t rule;
    bool used;  /* something refers to it */
    bool never; /* nothing fits it */
};

struct bn_schema {
    struct bn_builder *b;
    const struct bn_json *root; /* the document being read */
    struct bn_json *made;       /* all documents, and schemas made by merging others */
    struct bn_buf place;        /* JSON pointer of what is being read */
    uint32_t nesting;
    uint32_t shared[BN_N_RULES];  /* 1 + rule */
    struct bn_schema_rule *rules; /* of schemas met so far */
    size_t n_rules, rule_room;
    size_t first_rule;             /* of this document */
    struct bn_map strings;         /* rules by what they demand of a string */
    struct bn_map contents;        /* entries of rules by the schema's text, of this document */
    const struct bn_expr *never;   /* what nothing fits; NULL: not met yet */
    char why[200], why_place[128]; /* it was met first */
};

/* ---- json_schema.c ---- */

void bn_schema_open(struct bn_schema *s, struct bn_builder *b);
void bn_schema_close(struct bn_schema *s);
/* The rule for a document, which is taken over. name: what stands before '#' in its places. Documents
 * share rules such as those of strings. */
const struct bn_expr *bn_schema_add(struct bn_schema *s, struct bn_json *root, const char *name);

/* The place that errors name from now on. */
bool bn_schema_at(struct bn_schema *s, const char *name);
/* Says what is wrong where the reader stands, once; NULL. */
const struct bn_expr *bn_schema_fail(struct bn_schema *s, bitnet_status status, const char *fmt,
                                     ...) BN_PRINTF(3, 4);
/* What nothing fits, with the reason, which is shown if it comes to that. */
const struct bn_expr *bn_schema_never(struct bn_schema *s, const char *fmt, ...) BN_PRINTF(2, 3);
bool bn_schema_is_never(const struct bn_schema *s, const struct bn_expr *e);
/* One of these, those apart that nothing fits; the list is empty afterwards. */
const struct bn_expr *bn_schema_either(struct bn_schema *s, struct bn_exprs *alts);
/* The rule for a schema. name, key: where it hangs below the one being read; NULL: no such step. */
const struct bn_expr *bn_schema_rule_of(struct bn_schema *s, const struct bn_json *schema,
                                        const char *name, const char *key);
void bn_schema_put_step(struct bn_buf *place, const char *key);
/* Whether a keyword demands nothing of a text ("title"). */
bool bn_schema_silent(const char *keyword);
/* Every keyword is known, and has behind it what it should; false after a failure. */
bool bn_schema_check(struct bn_schema *s, const struct bn_json *schema);
/* What a schema's 'type' names (0: it has none); false after a failure. */
bool bn_schema_types(struct bn_schema *s, const struct bn_json *schema, uint32_t *types);
const char *bn_schema_type_name(size_t i); /* of bit i */
/* The types of a value: a whole number is an integer and a number. */
uint32_t bn_schema_types_of(const struct bn_json *value);
/* A whole number from 0 to BN_GRAMMAR_MAX_REPEAT; absent, or a larger maximum: as it was. */
bool bn_schema_count(struct bn_schema *s, const struct bn_json *schema, const char *key,
                     uint32_t *count);

/* ---- json_schema_parts.c, json_schema_object.c, json_schema_array.c ---- */

const struct bn_expr *bn_schema_shared(struct bn_schema *s, enum bn_shared_rule which);
const struct bn_expr *bn_schema_mark(struct bn_schema *s, const char *m); /* and perhaps a space */
/* A rule of its own for an expression that is used more than once. */
const struct bn_expr *bn_schema_as_rule(struct bn_schema *s, const struct bn_expr *e);
const struct bn_expr *bn_schema_constant(struct bn_schema *s, const struct bn_json *value);
const struct bn_expr *bn_schema_object(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_array(struct bn_schema *s, const struct bn_json *schema);

/* ---- json_schema_normal.c, json_schema_merge.c, json_schema_not.c: schemas made of schemas ---- */

/* Keeps a new schema as long as s; NULL if it could not be made. */
struct bn_json *bn_schema_keep(struct bn_schema *s, struct bn_json *made);
/* What a '$ref' points to; NULL after a failure. */
const struct bn_json *bn_schema_find(struct bn_schema *s, const char *ref);
/* The same demands, or true or false, without '$ref', 'allOf' and older drafts' forms; checked. NULL
 * after a failure. */
const struct bn_json *bn_schema_normal(struct bn_schema *s, const struct bn_json *schema);
/* A schema, which is normal, that demands what both do; NULL after a failure. `a` is normal. */
const struct bn_json *bn_schema_merge(struct bn_schema *s, const struct bn_json *a,
                                      const struct bn_json *b);
/* The same where b is one of a's own 'anyOf' and the like, so that a's 'unevaluated...' see it. */
const struct bn_json *bn_schema_merge_own(struct bn_schema *s, const struct bn_json *a,
                                          const struct bn_json *b);
/* A copy without one keyword; NULL after a failure. */
const struct bn_json *bn_schema_without(struct bn_schema *s, const struct bn_json *schema,
                                        const char *key);
/* A list of schemas, each of which no value of this one fits; NULL after a failure. */
const struct bn_json *bn_schema_negation(struct bn_schema *s, const struct bn_json *schema);
/* Whether no value can fit both. */
bool bn_schema_disjoint(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b);

/* ---- json_schema_valid.c ---- */

/* Whether a value fits; false, too, after a failure. */
bool bn_schema_valid(struct bn_schema *s, const struct bn_json *schema,
                     const struct bn_json *value);
bool bn_schema_same(const struct bn_json *a, const struct bn_json *b); /* 1 and 1.0 are the same */
/* Whether a pattern of 'patternProperties' is found in a name. */
bool bn_schema_key_matches(struct bn_schema *s, const char *pattern, const char *name);

/* ---- json_schema_number.c ---- */

const struct bn_expr *bn_schema_integer(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_number(struct bn_schema *s, const struct bn_json *schema);

/* ---- json_schema_string.c ---- */

const struct bn_expr *bn_schema_string(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_any_char(struct bn_schema *s);
/* One of these characters as it stands in a JSON string: escaped only where it must be. The ranges
 * are freed. */
const struct bn_expr *bn_schema_class(struct bn_schema *s, struct bn_ranges *r);
/* Strings of a schema that speaks of pattern, format and length only; NULL with a good status: all. */
bool bn_schema_string_shape(struct bn_schema *s, const struct bn_json *schema,
                            const struct bn_re **out);
/* The strings of an automaton, in quotes. */
const struct bn_expr *bn_schema_quoted(struct bn_schema *s, const struct bn_dfa *d);
/* A key of characters that need no escape and that is none of the names. */
const struct bn_expr *bn_schema_other_key(struct bn_schema *s, const char *const *names, size_t n);
/* The strings that 'pattern' is found in; NULL after a failure. */
const struct bn_re *bn_schema_pattern(struct bn_schema *s, const struct bn_json *pattern);
/* Texts that a regular expression matches as a whole, without quotes. */
const struct bn_expr *bn_schema_regex(struct bn_schema *s, const char *regex, size_t n);

/* ---- json_schema_format.c ---- */

const struct bn_re *bn_schema_format(struct bn_schema *s, const char *name); /* NULL: unknown */

#endif
