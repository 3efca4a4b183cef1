/* SPDX-License-Identifier: Apache-2.0
 * JSON Schema as rules of a grammar; only json_schema*.c and grammar_gbnf.c include it. Texts are compact JSON with
 * at most one space after ',' and ':'. A schema's grammar may allow less than the schema does (keys
 * come in the schema's order, say), never more. */
#ifndef BN_TEXT_GRAMMAR_JSON_SCHEMA_IMPL_H
#define BN_TEXT_GRAMMAR_JSON_SCHEMA_IMPL_H

#include "base/buf.h"
#include "json/json.h"
#include "text/grammar/grammar_impl.h"

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

struct bn_schema_rule {
    const struct bn_json *schema;
    uint32_t rule;
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
};

/* ---- json_schema.c ---- */

void bn_schema_open(struct bn_schema *s, struct bn_builder *b);
void bn_schema_close(struct bn_schema *s);
/* The rule for a document, which is taken over. name: what stands before '#' in its places. Documents
 * share rules such as those of strings. */
const struct bn_expr *bn_schema_add(struct bn_schema *s, struct bn_json *root, const char *name);

/* Says what is wrong where the reader stands, once; NULL. */
const struct bn_expr *bn_schema_fail(struct bn_schema *s, bitnet_status status, const char *fmt,
                                     ...) BN_PRINTF(3, 4);
/* The rule for a schema. name, key: where it hangs below the one being read; NULL: no such step. */
const struct bn_expr *bn_schema_rule_of(struct bn_schema *s, const struct bn_json *schema,
                                        const char *name, const char *key);
/* Whether a keyword demands nothing of a text ("title"). */
bool bn_schema_silent(const char *keyword);
/* What a schema's 'type' names (0: it has none); false after a failure. */
bool bn_schema_types(struct bn_schema *s, const struct bn_json *schema, uint32_t *types);
/* The types of a value: a whole number is an integer and a number. */
uint32_t bn_schema_types_of(const struct bn_json *value);
/* A whole number from 0 to BN_GRAMMAR_MAX_REPEAT; absent: as it was. */
bool bn_schema_count(struct bn_schema *s, const struct bn_json *schema, const char *key,
                     uint32_t *count);

/* ---- json_schema_parts.c: shared rules, objects, arrays ---- */

const struct bn_expr *bn_schema_shared(struct bn_schema *s, enum bn_shared_rule which);
const struct bn_expr *bn_schema_constant(struct bn_schema *s, const struct bn_json *value);
const struct bn_expr *bn_schema_object(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_array(struct bn_schema *s, const struct bn_json *schema);

/* ---- json_schema_merge.c: schemas made of schemas ---- */

/* What "#/..." points to; NULL after a failure. */
const struct bn_json *bn_schema_find(struct bn_schema *s, const char *pointer);
/* A schema that demands what both do; NULL after a failure. Lives as long as s. */
const struct bn_json *bn_schema_merge(struct bn_schema *s, const struct bn_json *a,
                                      const struct bn_json *b);
/* A copy without one keyword; NULL after a failure. */
const struct bn_json *bn_schema_without(struct bn_schema *s, const struct bn_json *schema,
                                        const char *key);
/* Whether no value can fit both. */
bool bn_schema_disjoint(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b);

/* ---- json_schema_number.c ---- */

const struct bn_expr *bn_schema_integer(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_number(struct bn_schema *s, const struct bn_json *schema);

/* ---- json_schema_string.c, json_schema_pattern.c ---- */

const struct bn_expr *bn_schema_string(struct bn_schema *s, const struct bn_json *schema);
const struct bn_expr *bn_schema_any_char(struct bn_schema *s);
/* One of these characters as it stands in a JSON string: escaped only where it must be. The ranges
 * are freed. */
const struct bn_expr *bn_schema_class(struct bn_schema *s, struct bn_ranges *r);
/* A key of characters that need no escape and that is none of the names. */
const struct bn_expr *bn_schema_other_key(struct bn_schema *s, const char *const *names, size_t n);
/* The regular expression's language between quotes. */
const struct bn_expr *bn_schema_pattern(struct bn_schema *s, const char *pattern, size_t n);

#endif
