/* SPDX-License-Identifier: Apache-2.0
 * JSON Schema to rules: which keywords there are, what a schema says about its type, and how schemas
 * refer to each other. A keyword that is not enforced is an error; only those that say nothing about
 * the text are passed over. Every schema of the document becomes one rule, so schemas that refer to
 * themselves need no care here. */
#include "text/grammar/json_schema_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { ANNOTATION, REFERENCE, GENERAL, OBJECT, ARRAY, STRING, NUMBER };
static const struct {
    const char *name;
    enum kind kind;
} keywords[] = {{"$schema", ANNOTATION},
                {"$id", ANNOTATION},
                {"$comment", ANNOTATION},
                {"$defs", ANNOTATION},
                {"definitions", ANNOTATION},
                {"title", ANNOTATION},
                {"description", ANNOTATION},
                {"default", ANNOTATION},
                {"examples", ANNOTATION},
                {"deprecated", ANNOTATION},
                {"readOnly", ANNOTATION},
                {"writeOnly", ANNOTATION},
                {"$ref", REFERENCE},
                {"allOf", REFERENCE},
                {"anyOf", REFERENCE},
                {"oneOf", REFERENCE},
                {"type", GENERAL},
                {"enum", GENERAL},
                {"const", GENERAL},
                {"properties", OBJECT},
                {"required", OBJECT},
                {"additionalProperties", OBJECT},
                {"items", ARRAY},
                {"prefixItems", ARRAY},
                {"minItems", ARRAY},
                {"maxItems", ARRAY},
                {"minLength", STRING},
                {"maxLength", STRING},
                {"pattern", STRING},
                {"format", STRING},
                {"minimum", NUMBER},
                {"maximum", NUMBER},
                {"exclusiveMinimum", NUMBER},
                {"exclusiveMaximum", NUMBER}};

const struct bn_expr *bn_schema_fail(struct bn_schema *s, bitnet_status status, const char *fmt,
                                     ...)
{
    if (s->b->status != BITNET_OK) return NULL;
    char what[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    s->b->status = bn_fail(s->b->err, status, "schema, at '%.120s': %s", s->place.data, what);
    return NULL;
}

bool bn_schema_count(struct bn_schema *s, const struct bn_json *schema, const char *key,
                     uint32_t *count)
{
    const struct bn_json *v = bn_json_get(schema, key);
    if (!v) return true;
    double n = bn_json_is_number(v) ? bn_json_number(v) : -1;
    if (n < 0 || n != (double)(int64_t)n)
        return bn_schema_fail(s, BITNET_E_FORMAT, "'%s' is not a whole number", key) != NULL;
    if (n > BN_GRAMMAR_MAX_REPEAT)
        return bn_schema_fail(s, BITNET_E_LIMIT, "'%s' is %.0f, the most is %d", key, n,
                              BN_GRAMMAR_MAX_REPEAT) != NULL;
    *count = (uint32_t)n;
    return true;
}

static size_t find_keyword(const char *key)
{
    size_t i = 0;
    while (i < BN_ARRAY_LEN(keywords) && strcmp(keywords[i].name, key) != 0) i++;
    return i;
}

bool bn_schema_silent(const char *keyword)
{
    size_t i = find_keyword(keyword);
    return i < BN_ARRAY_LEN(keywords) && keywords[i].kind == ANNOTATION;
}

/* Which kinds of keywords a schema has, as bits; 0 after a failure. */
static uint32_t kinds_of(struct bn_schema *s, const struct bn_json *schema)
{
    uint32_t kinds = 1u << ANNOTATION;
    const char *key;
    struct bn_json *value;
    bn_json_each_member(schema, key, value)
    {
        size_t i = find_keyword(key);
        if (i < BN_ARRAY_LEN(keywords)) kinds |= 1u << keywords[i].kind;
        else if (strcmp(key, "uniqueItems") != 0 || !bn_json_is_false(value))
            return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'%.80s' cannot be enforced", key), 0;
    }
    return kinds;
}

/* ------------------------------------------------------------------ types */

/* in the order of BN_TYPE_... */
static const char *const type_names[] = {"null",   "boolean", "integer", "number",
                                         "string", "array",   "object"};

static bool add_type(struct bn_schema *s, const struct bn_json *name, uint32_t *types)
{
    const char *text = bn_json_text(name);
    for (size_t i = 0; text && i < BN_ARRAY_LEN(type_names); i++)
        if (strcmp(text, type_names[i]) == 0) {
            *types |= 1u << i;
            return true;
        }
    return bn_schema_fail(s, BITNET_E_FORMAT, "'type' is '%.40s', which is no type",
                          text ? text : "not a string") != NULL;
}

bool bn_schema_types(struct bn_schema *s, const struct bn_json *schema, uint32_t *types)
{
    const struct bn_json *type = bn_json_get(schema, "type");
    *types = 0;
    if (!type) return true;
    if (!bn_json_is_array(type)) return add_type(s, type, types);
    if (bn_json_size(type) == 0)
        return bn_schema_fail(s, BITNET_E_FORMAT, "'type' is an empty list") != NULL;
    for (size_t i = 0; i < bn_json_size(type); i++)
        if (!add_type(s, bn_json_at(type, i), types)) return false;
    return true;
}

/* For a schema without 'type': the types its keywords speak of; 0: any. */
static uint32_t implied_types(uint32_t kinds)
{
    return (kinds & 1u << OBJECT ? BN_TYPE_OBJECT : 0) | (kinds & 1u << ARRAY ? BN_TYPE_ARRAY : 0) |
           (kinds & 1u << STRING ? BN_TYPE_STRING : 0) |
           (kinds & 1u << NUMBER ? BN_TYPE_NUMBER : 0);
}

static const struct bn_expr *typed(struct bn_schema *s, const struct bn_json *schema,
                                   uint32_t types)
{
    struct bn_builder *b = s->b;
    struct bn_exprs alts = {0};
    if (types & BN_TYPE_NULL) bn_exprs_add(b, &alts, bn_expr_text(b, "null"));
    if (types & BN_TYPE_BOOLEAN) bn_exprs_add(b, &alts, bn_schema_shared(s, BN_RULE_BOOLEAN));
    if (types & BN_TYPE_NUMBER) bn_exprs_add(b, &alts, bn_schema_number(s, schema));
    else if (types & BN_TYPE_INTEGER) bn_exprs_add(b, &alts, bn_schema_integer(s, schema));
    if (types & BN_TYPE_STRING) bn_exprs_add(b, &alts, bn_schema_string(s, schema));
    if (types & BN_TYPE_ARRAY) bn_exprs_add(b, &alts, bn_schema_array(s, schema));
    if (types & BN_TYPE_OBJECT) bn_exprs_add(b, &alts, bn_schema_object(s, schema));
    return bn_exprs_take(b, &alts, BN_EXPR_ALT);
}

uint32_t bn_schema_types_of(const struct bn_json *value)
{
    static const uint32_t types[] = {
        [BN_JSON_OBJECT] = BN_TYPE_OBJECT, [BN_JSON_ARRAY] = BN_TYPE_ARRAY,
        [BN_JSON_STRING] = BN_TYPE_STRING, [BN_JSON_INT] = BN_TYPE_INTEGER | BN_TYPE_NUMBER,
        [BN_JSON_REAL] = BN_TYPE_NUMBER,   [BN_JSON_TRUE] = BN_TYPE_BOOLEAN,
        [BN_JSON_FALSE] = BN_TYPE_BOOLEAN, [BN_JSON_NULL] = BN_TYPE_NULL};
    return types[bn_json_typeof(value)];
}

/* enum, const: the values written out */
static const struct bn_expr *values(struct bn_schema *s, const struct bn_json *schema,
                                    uint32_t kinds)
{
    const struct bn_json *list = bn_json_get(schema, "enum");
    const struct bn_json *constant = bn_json_get(schema, "const");
    uint32_t types;
    struct bn_exprs alts = {0};
    if (kinds & ~(1u << ANNOTATION | 1u << GENERAL) || (list && constant))
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'enum' or 'const' beside other keywords than 'type'");
    if (list && !bn_json_is_array(list))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'enum' is not a list");
    if (!bn_schema_types(s, schema, &types)) return NULL;
    for (size_t i = 0; i < (list ? bn_json_size(list) : 1); i++) {
        const struct bn_json *v = list ? bn_json_at(list, i) : constant;
        if (!types || bn_schema_types_of(v) & types)
            bn_exprs_add(s->b, &alts, bn_schema_constant(s, v));
    }
    if (alts.n == 0) return bn_schema_fail(s, BITNET_E_FORMAT, "no value fits");
    return bn_exprs_take(s->b, &alts, BN_EXPR_ALT);
}

/* ------------------------------------------------------------------ references */

static const struct bn_json *list_of(struct bn_schema *s, const struct bn_json *schema,
                                     const char *key)
{
    const struct bn_json *list = bn_json_get(schema, key);
    if (bn_json_is_array(list) && bn_json_size(list) > 0) return list;
    bn_schema_fail(s, BITNET_E_FORMAT, "'%s' is not a list of schemas", key);
    return NULL;
}

static const struct bn_expr *all_of(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = list_of(s, schema, "allOf");
    const struct bn_json *sum = list ? bn_schema_without(s, schema, "allOf") : NULL;
    for (size_t i = 0; sum && i < bn_json_size(list); i++)
        sum = bn_schema_merge(s, sum, bn_json_at(list, i));
    return sum ? bn_schema_rule_of(s, sum, NULL, NULL) : NULL;
}

static const struct bn_expr *any_of(struct bn_schema *s, const struct bn_json *schema,
                                    const char *key)
{
    const struct bn_json *list = list_of(s, schema, key);
    const struct bn_json *rest = list ? bn_schema_without(s, schema, key) : NULL;
    struct bn_exprs alts = {0};
    bool one = strcmp(key, "oneOf") == 0;
    size_t n = rest ? bn_json_size(list) : 0;
    for (size_t i = 0; one && i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!bn_schema_disjoint(s, bn_json_at(list, k), bn_json_at(list, i)))
                return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                                      "'oneOf': a value may fit both schema %zu and schema %zu", k,
                                      i);
    for (size_t i = 0; i < n && s->b->status == BITNET_OK; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        const struct bn_json *branch = bn_schema_merge(s, rest, bn_json_at(list, i));
        if (branch) bn_exprs_add(s->b, &alts, bn_schema_rule_of(s, branch, key, index));
    }
    return bn_exprs_take(s->b, &alts, BN_EXPR_ALT);
}

static const struct bn_expr *reference(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *ref = bn_json_get(schema, "$ref");
    if (!bn_json_is_string(ref))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'$ref' is not a string");
    const struct bn_json *target = bn_schema_find(s, bn_json_text(ref));
    const struct bn_json *rest = target ? bn_schema_without(s, schema, "$ref") : NULL;
    const struct bn_json *both = rest ? bn_schema_merge(s, rest, target) : NULL;
    return both ? bn_schema_rule_of(s, both, NULL, NULL) : NULL;
}

/* ------------------------------------------------------------------ schemas */

static const struct bn_expr *build(struct bn_schema *s, const struct bn_json *schema)
{
    if (bn_json_is_true(schema)) return bn_schema_shared(s, BN_RULE_VALUE);
    if (!bn_json_is_object(schema))
        return bn_schema_fail(s, BITNET_E_FORMAT, "neither an object nor true");
    uint32_t types, kinds = kinds_of(s, schema);
    if (kinds == 0) return NULL;
    if (bn_json_get(schema, "$ref")) return reference(s, schema);
    if (bn_json_get(schema, "allOf")) return all_of(s, schema);
    if (bn_json_get(schema, "anyOf")) return any_of(s, schema, "anyOf");
    if (bn_json_get(schema, "oneOf")) return any_of(s, schema, "oneOf");
    if (bn_json_get(schema, "enum") || bn_json_get(schema, "const"))
        return values(s, schema, kinds);
    if (!bn_schema_types(s, schema, &types)) return NULL;
    if (!types) types = implied_types(kinds);
    return types ? typed(s, schema, types) : bn_schema_shared(s, BN_RULE_VALUE);
}

const struct bn_expr *bn_schema_rule_of(struct bn_schema *s, const struct bn_json *schema,
                                        const char *name, const char *key)
{
    for (size_t i = 0; i < s->n_rules; i++)
        if (s->rules[i].schema == schema) return bn_expr_rule(s->b, s->rules[i].rule);
    size_t place = s->place.len;
    if (name) bn_buf_printf(&s->place, "/%s", name);
    if (key) bn_buf_printf(&s->place, "/%.200s", key);
    if (s->place.failed && !s->place.full) return bn_builder_nomem(s->b), NULL;
    if (s->place.full || ++s->nesting > BN_GRAMMAR_MAX_NESTING)
        return bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep",
                              BN_GRAMMAR_MAX_NESTING);
    uint32_t rule = bn_rule_add(s->b, s->place.data, s->place.len);
    if (!bn_grow((void **)&s->rules, &s->rule_room, s->n_rules + 1, sizeof *s->rules))
        bn_builder_nomem(s->b);
    if (s->b->status != BITNET_OK) return NULL;
    s->rules[s->n_rules++] = (struct bn_schema_rule){schema, rule};
    const struct bn_expr *e = build(s, schema);
    if (s->b->status != BITNET_OK) return NULL;
    s->b->rules[rule].expr = e;
    s->nesting--;
    s->place.len = place;
    s->place.data[place] = '\0';
    return bn_expr_rule(s->b, rule);
}

/* ------------------------------------------------------------------ documents */

void bn_schema_open(struct bn_schema *s, struct bn_builder *b)
{
    enum { MAX_PLACE = 1 << 16 };
    *s = (struct bn_schema){.b = b, .made = bn_json_array()};
    bn_buf_init(&s->place, MAX_PLACE);
    if (!s->made) bn_builder_nomem(b);
}

void bn_schema_close(struct bn_schema *s)
{
    free(s->rules);
    bn_buf_free(&s->place);
    bn_json_free(s->made);
}

const struct bn_expr *bn_schema_add(struct bn_schema *s, struct bn_json *root, const char *name)
{
    if (!bn_json_append(s->made, root)) return bn_builder_nomem(s->b), NULL;
    bn_buf_clear(&s->place);
    if (!bn_buf_printf(&s->place, "%s#", name)) return bn_builder_nomem(s->b), NULL;
    s->root = root;
    return bn_schema_rule_of(s, root, NULL, NULL);
}

bitnet_status bn_grammar_from_schema(struct bn_grammar **out, const struct bn_token_tree *t,
                                     const char *schema, size_t n, bitnet_error *err)
{
    static const char any_object[] = "{\"type\": \"object\"}";
    *out = NULL;
    if (!schema) {
        schema = any_object;
        n = strlen(any_object);
    }
    if (n > BN_GRAMMAR_MAX_TEXT)
        return bn_fail(err, BITNET_E_LIMIT, "a schema of %zu bytes, the most is %d", n,
                       BN_GRAMMAR_MAX_TEXT);
    struct bn_json *root;
    BN_TRY(bn_json_parse(&root, schema, n, 0, "schema", err));
    struct bn_builder b = {.err = err};
    struct bn_schema s;
    bn_schema_open(&s, &b);
    bn_schema_add(&s, root, "");
    bitnet_status st = bn_grammar_build(out, t, &b, err);
    bn_schema_close(&s);
    bn_builder_free(&b);
    return st;
}
