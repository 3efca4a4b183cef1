/* SPDX-License-Identifier: Apache-2.0
 * JSON Schema to rules: which keywords there are, what a schema says about its type, and schemas made
 * of schemas, taken one keyword at a time. Every schema of the document becomes one rule, so schemas
 * that refer to themselves need no care here; schemas that merging has made are one rule if they say
 * the same. What nothing fits is left out where there is another way, and an error where there is
 * none. */
#include "text/grammar/json_schema_impl.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { ANNOTATION, GENERAL, OBJECT, ARRAY, STRING, NUMBER };

/* what stands behind a keyword */
enum form {
    ANYTHING,
    SCHEMA,
    SCHEMAS,
    SCHEMA_MAP,
    NAMES,
    NAME_MAP,
    TEXT,
    COUNT,
    A_NUMBER,
    A_BOOL,
    A_LIST
};

static const struct {
    const char *name;
    enum kind kind;
    enum form form;
} keywords[] = {{"$schema", ANNOTATION, ANYTHING},
                {"$id", ANNOTATION, ANYTHING},
                {"id", ANNOTATION, ANYTHING},
                {"$comment", ANNOTATION, ANYTHING},
                {"$anchor", ANNOTATION, ANYTHING},
                {"$dynamicAnchor", ANNOTATION, ANYTHING},
                {"$recursiveAnchor", ANNOTATION, ANYTHING},
                {"$vocabulary", ANNOTATION, ANYTHING},
                {"$defs", ANNOTATION, SCHEMA_MAP},
                {"definitions", ANNOTATION, SCHEMA_MAP},
                {"title", ANNOTATION, ANYTHING},
                {"description", ANNOTATION, ANYTHING},
                {"default", ANNOTATION, ANYTHING},
                {"examples", ANNOTATION, ANYTHING},
                {"deprecated", ANNOTATION, ANYTHING},
                {"readOnly", ANNOTATION, ANYTHING},
                {"writeOnly", ANNOTATION, ANYTHING},
                {"contentEncoding", ANNOTATION, ANYTHING},
                {"contentMediaType", ANNOTATION, ANYTHING},
                {"contentSchema", ANNOTATION, ANYTHING},
                {"discriminator", ANNOTATION, ANYTHING},
                {"then", ANNOTATION, SCHEMA}, /* without 'if' they say nothing */
                {"else", ANNOTATION, SCHEMA},
                {"$ref", GENERAL, TEXT},
                {"$dynamicRef", GENERAL, TEXT},
                {"$recursiveRef", GENERAL, TEXT},
                {"allOf", GENERAL, SCHEMAS},
                {"anyOf", GENERAL, SCHEMAS},
                {"oneOf", GENERAL, SCHEMAS},
                {"not", GENERAL, SCHEMA},
                {"if", GENERAL, SCHEMA},
                {"type", GENERAL, ANYTHING},
                {"nullable", GENERAL, A_BOOL},
                {"enum", GENERAL, A_LIST},
                {"const", GENERAL, ANYTHING},
                {BN_SCHEMA_ALSO, GENERAL, SCHEMAS},
                {"properties", OBJECT, SCHEMA_MAP},
                {"patternProperties", OBJECT, SCHEMA_MAP},
                {"additionalProperties", OBJECT, SCHEMA},
                {"unevaluatedProperties", OBJECT, SCHEMA},
                {"propertyNames", OBJECT, SCHEMA},
                {"required", OBJECT, NAMES},
                {"minProperties", OBJECT, COUNT},
                {"maxProperties", OBJECT, COUNT},
                {"dependencies", OBJECT, ANYTHING},
                {"dependentRequired", OBJECT, NAME_MAP},
                {"dependentSchemas", OBJECT, SCHEMA_MAP},
                {"items", ARRAY, SCHEMA},
                {"additionalItems", ARRAY, SCHEMA},
                {"unevaluatedItems", ARRAY, SCHEMA},
                {"prefixItems", ARRAY, SCHEMAS},
                {"contains", ARRAY, SCHEMA},
                {"minContains", ARRAY, COUNT},
                {"maxContains", ARRAY, COUNT},
                {"minItems", ARRAY, COUNT},
                {"maxItems", ARRAY, COUNT},
                {"uniqueItems", ARRAY, A_BOOL},
                {"minLength", STRING, COUNT},
                {"maxLength", STRING, COUNT},
                {"pattern", STRING, TEXT},
                {"format", STRING, TEXT},
                {"minimum", NUMBER, A_NUMBER},
                {"maximum", NUMBER, A_NUMBER},
                {"exclusiveMinimum", NUMBER, A_NUMBER},
                {"exclusiveMaximum", NUMBER, A_NUMBER},
                {"multipleOf", NUMBER, A_NUMBER}};

/* ------------------------------------------------------------------ failures */

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

const struct bn_expr *bn_schema_never(struct bn_schema *s, const char *fmt, ...)
{
    if (s->b->status != BITNET_OK) return NULL;
    if (!s->never) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(s->why, sizeof s->why, fmt, args);
        va_end(args);
        snprintf(s->why_place, sizeof s->why_place, "%.120s", s->place.data);
        s->never = bn_expr_class(s->b, NULL, 0);
    }
    return s->never;
}

bool bn_schema_is_never(const struct bn_schema *s, const struct bn_expr *e)
{
    return e && e == s->never;
}

const struct bn_expr *bn_schema_either(struct bn_schema *s, struct bn_exprs *alts)
{
    size_t n = 0;
    for (size_t i = 0; i < alts->n; i++)
        if (!bn_schema_is_never(s, alts->v[i])) alts->v[n++] = alts->v[i];
    if (n == 0) {
        free(alts->v);
        *alts = (struct bn_exprs){0};
        return bn_schema_never(s, "no value fits");
    }
    alts->n = n;
    return bn_exprs_take(s->b, alts, BN_EXPR_ALT);
}

bool bn_schema_count(struct bn_schema *s, const struct bn_json *schema, const char *key,
                     uint32_t *count)
{
    const struct bn_json *v = bn_json_get(schema, key);
    if (!v) return true;
    bool most = strncmp(key, "max", 3) == 0;
    double n = bn_json_number(v);
    if (n > BN_GRAMMAR_MAX_REPEAT && most) return true; /* more than there is room for */
    if (n > BN_GRAMMAR_MAX_REPEAT)
        return bn_schema_fail(s, BITNET_E_LIMIT, "'%s' is %.0f, the most is %d", key, n,
                              BN_GRAMMAR_MAX_REPEAT) != NULL;
    *count = (uint32_t)n;
    return true;
}

/* ------------------------------------------------------------------ keywords */

static size_t find_keyword(const char *key)
{
    size_t i = 0;
    while (i < BN_ARRAY_LEN(keywords) && strcmp(keywords[i].name, key) != 0) i++;
    return i;
}

bool bn_schema_silent(const char *keyword)
{
    size_t i = find_keyword(keyword);
    return i == BN_ARRAY_LEN(keywords) || keywords[i].kind == ANNOTATION;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* Whether two words are one slip apart: a letter too many, too few, or another one; case aside. */
static bool resembles(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), head = 0, tail = 0;
    while (a[head] && lower(a[head]) == lower(b[head])) head++;
    while (tail < n - head && tail < m - head && lower(a[n - 1 - tail]) == lower(b[m - 1 - tail]))
        tail++;
    return n - head - tail <= 1 && m - head - tail <= 1;
}

/* Unknown keywords are annotations, as the standard has it; but one that looks like a slip would leave
 * out what its writer asked for. */
static bool check_unknown(struct bn_schema *s, const char *key)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(keywords); i++)
        if (keywords[i].kind != ANNOTATION && strlen(key) > 3 && resembles(key, keywords[i].name))
            return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                                  "there is no keyword '%.80s'; is '%s' meant? A keyword of your "
                                  "own begins with x-",
                                  key, keywords[i].name) != NULL;
    return true;
}

static bool is_schema(const struct bn_json *v)
{
    return bn_json_is_object(v) || bn_json_is_bool(v);
}

static bool all_are(const struct bn_json *v, bool map, bool (*is)(const struct bn_json *))
{
    if (map ? !bn_json_is_object(v) : !bn_json_is_array(v)) return false;
    for (size_t i = 0; i < bn_json_size(v); i++)
        if (!is(map ? bn_json_value_at(v, i) : bn_json_at(v, i))) return false;
    return true;
}

static bool is_names(const struct bn_json *v) { return all_are(v, false, bn_json_is_string); }

static bool has_form(const struct bn_json *v, enum form form, const char **name)
{
    double n;
    switch (form) {
    case ANYTHING: return true;
    case SCHEMA: *name = "a schema"; return is_schema(v);
    case SCHEMAS: *name = "a list of schemas"; return all_are(v, false, is_schema);
    case SCHEMA_MAP: *name = "an object of schemas"; return all_are(v, true, is_schema);
    case NAMES: *name = "a list of names"; return is_names(v);
    case NAME_MAP: *name = "an object of lists of names"; return all_are(v, true, is_names);
    case TEXT: *name = "a string"; return bn_json_is_string(v);
    case A_NUMBER: *name = "a number"; return bn_json_is_number(v);
    case A_BOOL: *name = "true or false"; return bn_json_is_bool(v);
    case A_LIST: *name = "a list"; return bn_json_is_array(v);
    case COUNT:
        *name = "a whole number";
        n = bn_json_is_number(v) ? bn_json_number(v) : -1;
        return n >= 0 && (n > 0x1p53 || n == (double)(int64_t)n);
    }
    return false;
}

bool bn_schema_check(struct bn_schema *s, const struct bn_json *schema)
{
    const char *key, *form = NULL;
    struct bn_json *value;
    bn_json_each_member(schema, key, value)
    {
        size_t i = find_keyword(key);
        if (i == BN_ARRAY_LEN(keywords)) {
            if (strncmp(key, "x-", 2) != 0 && !check_unknown(s, key)) return false;
        } else if (!has_form(value, keywords[i].form, &form)) {
            return bn_schema_fail(s, BITNET_E_FORMAT, "'%s' is not %s", key, form) != NULL;
        }
    }
    return true;
}

/* Which kinds of keywords a schema has, as bits. */
static uint32_t kinds_of(const struct bn_json *schema)
{
    uint32_t kinds = 0;
    for (size_t i = 0; i < bn_json_size(schema); i++) {
        size_t k = find_keyword(bn_json_key_at(schema, i));
        if (k < BN_ARRAY_LEN(keywords)) kinds |= 1u << keywords[k].kind;
    }
    return kinds;
}

/* ------------------------------------------------------------------ types */

/* in the order of BN_TYPE_... */
static const char *const type_names[BN_N_TYPES] = {"null",   "boolean", "integer", "number",
                                                   "string", "array",   "object"};

const char *bn_schema_type_name(size_t i) { return type_names[i]; }

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
    return bn_schema_either(s, &alts);
}

/* 1.0 is an integer, too. */
uint32_t bn_schema_types_of(const struct bn_json *value)
{
    static const uint32_t types[] = {
        [BN_JSON_OBJECT] = BN_TYPE_OBJECT, [BN_JSON_ARRAY] = BN_TYPE_ARRAY,
        [BN_JSON_STRING] = BN_TYPE_STRING, [BN_JSON_INT] = BN_TYPE_INTEGER | BN_TYPE_NUMBER,
        [BN_JSON_REAL] = BN_TYPE_NUMBER,   [BN_JSON_TRUE] = BN_TYPE_BOOLEAN,
        [BN_JSON_FALSE] = BN_TYPE_BOOLEAN, [BN_JSON_NULL] = BN_TYPE_NULL};
    double n = bn_json_is_real(value) ? bn_json_number(value) : 0.5;
    return types[bn_json_typeof(value)] | (n == floor(n) ? BN_TYPE_INTEGER : 0);
}

/* enum, const: the values that fit everything else, written out; 1.0 as 1 */
static const struct bn_expr *values(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = bn_json_get(schema, "enum");
    const struct bn_json *constant = bn_json_get(schema, "const");
    struct bn_exprs alts = {0};
    for (size_t i = 0; i < (list ? bn_json_size(list) : 1) && s->b->status == BITNET_OK; i++) {
        const struct bn_json *v = list ? bn_json_at(list, i) : constant;
        if (bn_schema_valid(s, schema, v)) bn_exprs_add(s->b, &alts, bn_schema_constant(s, v));
    }
    if (alts.n == 0) bn_schema_never(s, "no value of '%s' fits", list ? "enum" : "const");
    return bn_schema_either(s, &alts);
}

/* ------------------------------------------------------------------ schemas of schemas */

/* What fits the rest and one of these. name: of the list, for places; NULL: they have none. What a
 * negation says evaluates nothing, as 'unevaluated...' see it. */
static const struct bn_expr *one_of_list(struct bn_schema *s, const struct bn_json *rest,
                                         const struct bn_json *list, const char *name,
                                         bool negation)
{
    struct bn_exprs alts = {0};
    for (size_t i = 0; rest && i < bn_json_size(list) && s->b->status == BITNET_OK; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        const struct bn_json *item = bn_json_at(list, i);
        const struct bn_json *branch =
            negation ? bn_schema_merge(s, rest, item) : bn_schema_merge_own(s, rest, item);
        if (branch)
            bn_exprs_add(s->b, &alts, bn_schema_rule_of(s, branch, name, name ? index : NULL));
    }
    if (s->b->status != BITNET_OK) alts.n = 0;
    return bn_schema_either(s, &alts);
}

static const struct bn_expr *any_of(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = bn_json_get(schema, "anyOf");
    if (bn_json_size(list) == 0)
        return bn_schema_fail(s, BITNET_E_FORMAT, "'anyOf' is an empty list");
    return one_of_list(s, bn_schema_without(s, schema, "anyOf"), list, "anyOf", false);
}

/* Each of them without those that might fit, too. */
static const struct bn_expr *one_of(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = bn_json_get(schema, "oneOf");
    struct bn_json *alone = bn_schema_keep(s, bn_json_array());
    size_t n = bn_json_size(list);
    if (n == 0) return bn_schema_fail(s, BITNET_E_FORMAT, "'oneOf' is an empty list");
    for (size_t i = 0; alone && i < n; i++) {
        struct bn_json *parts = bn_json_pack("[O]", bn_json_at(list, i));
        for (size_t k = 0; k < n; k++)
            if (k != i && !bn_schema_disjoint(s, bn_json_at(list, k), bn_json_at(list, i)))
                bn_json_append(parts, bn_json_pack("{sO}", "not", bn_json_at(list, k)));
        bool one = bn_json_size(parts) == 1;
        bn_json_append(alone, one ? bn_json_ref(bn_json_at(list, i))
                                  : bn_json_pack("{sO}", "allOf", parts));
        bn_json_free(parts);
    }
    if (!alone || !bn_json_whole(alone)) return bn_builder_nomem(s->b), NULL;
    return one_of_list(s, bn_schema_without(s, schema, "oneOf"), alone, "oneOf", false);
}

static const struct bn_expr *none_of(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = bn_schema_negation(s, bn_json_get(schema, "not"));
    return list ? one_of_list(s, bn_schema_without(s, schema, "not"), list, NULL, true) : NULL;
}

static const struct bn_expr *choice(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *cond = bn_json_get(schema, "if");
    struct bn_json *yes = bn_json_get(schema, "then"), *no = bn_json_get(schema, "else");
    struct bn_json *rest = bn_schema_keep(s, bn_json_copy(schema));
    if (!rest) return NULL;
    bn_json_del(rest, "if");
    bn_json_del(rest, "then");
    bn_json_del(rest, "else");
    yes = yes ? bn_json_ref(yes) : bn_json_bool(true);
    no = no ? bn_json_ref(no) : bn_json_bool(true);
    struct bn_json *list = bn_schema_keep(
        s, bn_json_pack("[{s[Oo]}{s[{sO}o]}]", "allOf", cond, yes, "allOf", "not", cond, no));
    return list ? one_of_list(s, rest, list, NULL, false) : NULL;
}

/* The first name of 'dependentRequired' or 'dependentSchemas': absent, or what it asks for. */
static const struct bn_expr *dependent(struct bn_schema *s, const struct bn_json *schema,
                                       const char *key)
{
    const struct bn_json *all = bn_json_get(schema, key);
    const char *name = bn_json_key_at(all, 0);
    struct bn_json *rest = bn_schema_keep(s, bn_json_copy(schema)), *others = bn_json_copy(all);
    if (!rest || !others) return bn_json_free(others), bn_builder_nomem(s->b), NULL;
    bn_json_del(rest, key);
    if (!name) return bn_json_free(others), bn_schema_rule_of(s, rest, NULL, NULL);
    bn_json_del(others, name);
    bn_json_set(rest, key, others);
    struct bn_json *value = bn_json_value_at(all, 0), *absent = bn_json_pack("{sb}", name, 0);
    struct bn_json *asked =
        bn_json_is_array(value) ? bn_json_pack("{sO}", "required", value) : bn_json_ref(value);
    struct bn_json *list =
        bn_schema_keep(s, bn_json_pack("[{so}{s[o{s[s]}]}]", "properties", absent, "allOf", asked,
                                       "required", name));
    return list ? one_of_list(s, rest, list, NULL, false) : NULL;
}

/* One of those that merging has put aside. */
static const struct bn_expr *also(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_json *rest = bn_schema_keep(s, bn_json_copy(schema));
    struct bn_json *list = rest ? bn_json_copy(bn_json_get(rest, BN_SCHEMA_ALSO)) : NULL;
    if (!list) return bn_builder_nomem(s->b), NULL;
    const struct bn_json *first = bn_schema_keep(s, bn_json_ref(bn_json_at(list, 0)));
    bn_json_remove(list, 0);
    bn_json_del(rest, BN_SCHEMA_ALSO);
    if (bn_json_size(list)) bn_json_set(rest, BN_SCHEMA_ALSO, list);
    else bn_json_free(list);
    const struct bn_json *sum = first ? bn_schema_merge_own(s, rest, first) : NULL;
    return sum ? bn_schema_rule_of(s, sum, NULL, NULL) : NULL;
}

/* ------------------------------------------------------------------ schemas */

static const struct bn_expr *build(struct bn_schema *s, const struct bn_json *schema)
{
    schema = bn_schema_normal(s, schema);
    if (!schema) return NULL;
    if (bn_json_is_true(schema)) return bn_schema_shared(s, BN_RULE_VALUE);
    if (bn_json_is_false(schema)) return bn_schema_never(s, "nothing is allowed here");
    uint32_t types, kinds = kinds_of(schema);
    if (bn_json_get(schema, "enum") || bn_json_get(schema, "const")) return values(s, schema);
    if (bn_json_get(schema, "if")) return choice(s, schema);
    if (bn_json_get(schema, "not")) return none_of(s, schema);
    if (bn_json_get(schema, "dependentRequired")) return dependent(s, schema, "dependentRequired");
    if (bn_json_get(schema, "dependentSchemas")) return dependent(s, schema, "dependentSchemas");
    if (bn_json_get(schema, "oneOf")) return one_of(s, schema);
    if (bn_json_get(schema, "anyOf")) return any_of(s, schema);
    if (bn_json_get(schema, BN_SCHEMA_ALSO)) return also(s, schema);
    if (!bn_schema_types(s, schema, &types)) return NULL;
    if (!types) types = implied_types(kinds);
    return types ? typed(s, schema, types) : bn_schema_shared(s, BN_RULE_VALUE);
}

/* The entry of a schema met before, or of one that says the same; n_rules: there is none. */
static size_t find_rule(struct bn_schema *s, const struct bn_json *schema)
{
    size_t i = s->first_rule;
    while (i < s->n_rules && s->rules[i].schema != schema) i++;
    if (i < s->n_rules || !bn_json_is_object(schema)) return i;
    char *text = bn_json_dump(schema, BN_JSON_COMPACT);
    char *kept = text ? bn_arena_strn(&s->b->arena, text, strlen(text)) : NULL;
    free(text);
    uint32_t same = (uint32_t)s->n_rules;
    bool known = false;
    if (!kept || !bn_map_add(&s->contents, kept, strlen(kept), &same, &known))
        return bn_builder_nomem(s->b), s->n_rules;
    return known ? same : s->n_rules;
}

const struct bn_expr *bn_schema_rule_of(struct bn_schema *s, const struct bn_json *schema,
                                        const char *name, const char *key)
{
    if (s->b->status != BITNET_OK) return NULL;
    size_t at = find_rule(s, schema);
    if (s->b->status != BITNET_OK) return NULL;
    if (at < s->n_rules) {
        s->rules[at].used = true;
        return s->rules[at].never ? s->never : bn_expr_rule(s->b, s->rules[at].rule);
    }
    size_t place = s->place.len;
    if (name) bn_buf_printf(&s->place, "/%s", name);
    if (key) bn_schema_put_step(&s->place, key);
    if (s->place.failed && !s->place.full) return bn_builder_nomem(s->b), NULL;
    if (s->place.full || ++s->nesting > BN_GRAMMAR_MAX_NESTING)
        return bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep",
                              BN_GRAMMAR_MAX_NESTING);
    uint32_t rule = bn_rule_add(s->b, s->place.data, s->place.len);
    if (!bn_grow((void **)&s->rules, &s->rule_room, s->n_rules + 1, sizeof *s->rules))
        bn_builder_nomem(s->b);
    if (s->b->status != BITNET_OK) return NULL;
    s->rules[s->n_rules++] = (struct bn_schema_rule){.schema = schema, .rule = rule};
    const struct bn_expr *e = build(s, schema);
    if (s->b->status != BITNET_OK) return NULL;
    bool never = bn_schema_is_never(s, e);
    s->rules[at].never = never;
    /* a rule that nothing refers to must have an expression, too */
    s->b->rules[rule].expr = never && !s->rules[at].used ? bn_expr_text(s->b, "") : e;
    s->nesting--;
    s->place.len = place;
    s->place.data[place] = '\0';
    return never ? s->never : bn_expr_rule(s->b, rule);
}

/* ------------------------------------------------------------------ documents */

void bn_schema_open(struct bn_schema *s, struct bn_builder *b)
{
    enum { MAX_PLACE = 1 << 16 };
    *s = (struct bn_schema){.b = b, .made = bn_json_array()};
    bn_buf_init(&s->place, MAX_PLACE);
    if (!s->made || !bn_map_init(&s->strings, 16) || !bn_map_init(&s->contents, 64))
        bn_builder_nomem(b);
}

void bn_schema_close(struct bn_schema *s)
{
    free(s->rules);
    bn_map_free(&s->strings);
    bn_map_free(&s->contents);
    bn_buf_free(&s->place);
    bn_json_free(s->made);
}

/* A step of a JSON pointer. */
void bn_schema_put_step(struct bn_buf *place, const char *key)
{
    bn_buf_putc(place, '/');
    for (size_t i = 0; key[i] && i < 200; i++)
        if (key[i] == '~' || key[i] == '/') bn_buf_puts(place, key[i] == '~' ? "~0" : "~1");
        else bn_buf_putc(place, key[i]);
}

bool bn_schema_at(struct bn_schema *s, const char *name)
{
    bn_buf_clear(&s->place);
    return bn_buf_printf(&s->place, "%s#", name) || bn_builder_nomem(s->b);
}

const struct bn_expr *bn_schema_add(struct bn_schema *s, struct bn_json *root, const char *name)
{
    if (!bn_json_append(s->made, root)) return bn_builder_nomem(s->b), NULL;
    if (!bn_schema_at(s, name)) return NULL;
    s->root = root;
    s->first_rule = s->n_rules; /* references of another document are others */
    bn_map_free(&s->contents);
    if (!bn_map_init(&s->contents, 64)) return bn_builder_nomem(s->b), NULL;
    const struct bn_expr *e = bn_schema_rule_of(s, root, NULL, NULL);
    if (!bn_schema_is_never(s, e)) return e;
    s->b->status = bn_fail(s->b->err, BITNET_E_FORMAT, "schema, at '%s': %s", s->why_place, s->why);
    return NULL;
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
