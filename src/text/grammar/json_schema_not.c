/* SPDX-License-Identifier: Apache-2.0
 * What does not fit a schema, as schemas; and whether two exclude each other. A negation may leave
 * something out that does not fit either, but never has in it what fits. */
#include "text/grammar/json_schema_impl.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_DEPTH = 32 /* looked into, to see whether two schemas exclude each other */ };

/* ------------------------------------------------------------------ negation */

struct negation {
    struct bn_schema *s;
    struct bn_json *list;
    const char *lost; /* a keyword whose negation cannot be said; NULL: all could */
};

/* Takes the schema. */
static void add(struct negation *n, struct bn_json *schema) { bn_json_append(n->list, schema); }

static struct bn_json *not_type(uint32_t types)
{
    struct bn_json *names = bn_json_array();
    if (types & BN_TYPE_NUMBER) types |= BN_TYPE_INTEGER;
    if (types & BN_TYPE_INTEGER) types |= BN_TYPE_NUMBER; /* fractions are left out */
    for (size_t i = 0; i < BN_N_TYPES; i++)
        if (!(types >> i & 1) && i != 2)
            bn_json_append(names, bn_json_string(bn_schema_type_name(i)));
    return names;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return a < b ? -1 : a > b;
}

/* Integers between those of a list. */
static void add_between(struct negation *n, const struct bn_json *list)
{
    int64_t *v = bn_calloc(bn_json_size(list) + 1, sizeof *v);
    size_t k = 0;
    for (size_t i = 0; v && i < bn_json_size(list); i++)
        if (bn_json_is_number(bn_json_at(list, i)) &&
            fabs(bn_json_number(bn_json_at(list, i))) < 1e15)
            v[k++] = (int64_t)floor(bn_json_number(bn_json_at(list, i)));
    if (!v) bn_builder_nomem(n->s->b);
    if (k > 1) qsort(v, k, sizeof *v, by_value);
    for (size_t i = 0; v && i <= k && k > 0; i++) {
        if (i == 0) add(n, bn_json_pack("{sssI}", "type", "integer", "maximum", v[0] - 1));
        else if (i == k) add(n, bn_json_pack("{sssI}", "type", "integer", "minimum", v[k - 1] + 1));
        else if (v[i] > v[i - 1] + 1)
            add(n, bn_json_pack("{sssIsI}", "type", "integer", "minimum", v[i - 1] + 1, "maximum",
                                v[i] - 1));
    }
    free(v);
}

static void put_escaped(struct bn_buf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strchr("^$\\.*+?()[]{}|/", text[i]) && text[i]) bn_buf_putc(b, '\\');
        bn_buf_putc(b, text[i]);
    }
}

/* What is none of the values: other types, other strings, other integers. */
static void not_values(struct negation *n, const struct bn_json *list)
{
    enum { MAX_TEXT = 1 << 16 };
    struct bn_buf b;
    uint32_t types = 0;
    bool first = true, yes = false, no = false;
    bn_buf_init(&b, MAX_TEXT);
    bn_buf_puts(&b, "^(?!(?:");
    for (size_t i = 0; i < bn_json_size(list); i++) {
        const struct bn_json *v = bn_json_at(list, i);
        types |= bn_schema_types_of(v);
        yes = yes || bn_json_is_true(v);
        no = no || bn_json_is_false(v);
        if (!bn_json_is_string(v)) continue;
        if (!first) bn_buf_putc(&b, '|');
        put_escaped(&b, bn_json_text(v), bn_json_bytes(v));
        first = false;
    }
    bn_buf_puts(&b, ")$)");
    struct bn_json *names = not_type(types);
    if (bn_json_size(names)) add(n, bn_json_pack("{sO}", "type", names));
    bn_json_free(names);
    if (!first && b.failed) n->lost = "enum";
    else if (!first) add(n, bn_json_pack("{ssss}", "type", "string", "pattern", b.data));
    if (yes != no) add(n, bn_json_pack("{sb}", "const", !yes));
    add_between(n, list);
    if (types & (BN_TYPE_ARRAY | BN_TYPE_OBJECT)) n->lost = "enum";
    bn_buf_free(&b);
}

static void not_bound(struct negation *n, const char *key, const struct bn_json *v)
{
    static const char *const opposite[][2] = {{"minimum", "exclusiveMaximum"},
                                              {"maximum", "exclusiveMinimum"},
                                              {"exclusiveMinimum", "maximum"},
                                              {"exclusiveMaximum", "minimum"}};
    for (size_t i = 0; i < BN_ARRAY_LEN(opposite); i++)
        if (strcmp(key, opposite[i][0]) == 0)
            add(n, bn_json_pack("{sssO}", "type", "number", opposite[i][1], v));
}

/* Of the least and the most of characters, items and members. */
static void not_count(struct negation *n, const char *key, const struct bn_json *v)
{
    static const char *const pairs[][3] = {{"minLength", "maxLength", "string"},
                                           {"minItems", "maxItems", "array"},
                                           {"minProperties", "maxProperties", "object"}};
    int64_t count = (int64_t)bn_json_number(v);
    for (size_t i = 0; i < BN_ARRAY_LEN(pairs); i++) {
        if (strcmp(key, pairs[i][0]) == 0 && count > 0)
            add(n, bn_json_pack("{sssI}", "type", pairs[i][2], pairs[i][1], count - 1));
        if (strcmp(key, pairs[i][1]) == 0)
            add(n, bn_json_pack("{sssI}", "type", pairs[i][2], pairs[i][0], count + 1));
    }
}

static void not_members(struct negation *n, const struct bn_json *properties)
{
    const char *name;
    struct bn_json *value;
    bn_json_each_member(properties, name, value)
    {
        if (bn_json_is_true(value) || bn_json_size(value) + bn_json_is_false(value) == 0) continue;
        add(n, bn_json_pack("{sss[s]s{s{sO}}}", "type", "object", "required", name, "properties",
                            name, "not", value));
    }
}

static void not_items(struct negation *n, const struct bn_json *schema)
{
    const struct bn_json *prefix = bn_json_get(schema, "prefixItems"),
                         *items = bn_json_get(schema, "items");
    for (size_t i = 0; i < bn_json_size(prefix); i++) {
        struct bn_json *list = bn_json_array();
        for (size_t k = 0; k < i; k++) bn_json_append(list, bn_json_bool(true));
        bn_json_append(list, bn_json_pack("{sO}", "not", bn_json_at(prefix, i)));
        add(n, bn_json_pack("{sssosisb}", "type", "array", "prefixItems", list, "minItems",
                            (int)i + 1, "items", 1));
    }
    if (!items || bn_json_is_true(items)) return;
    if (!prefix) add(n, bn_json_pack("{sss{sO}}", "type", "array", "contains", "not", items));
    else n->lost = "items";
}

/* allOf [not each of them] */
static struct bn_json *all_not(const struct bn_json *list)
{
    struct bn_json *parts = bn_json_array();
    for (size_t i = 0; i < bn_json_size(list); i++)
        bn_json_append(parts, bn_json_pack("{sO}", "not", bn_json_at(list, i)));
    return bn_json_pack("{so}", "allOf", parts);
}

static void not_choice(struct negation *n, const struct bn_json *schema)
{
    const struct bn_json *cond = bn_json_get(schema, "if");
    const struct bn_json *then = bn_json_get(schema, "then"), *other = bn_json_get(schema, "else");
    if (then) add(n, bn_json_pack("{s[O{sO}]}", "allOf", cond, "not", then));
    if (other) add(n, bn_json_pack("{s[{sO}{sO}]}", "allOf", "not", cond, "not", other));
}

static void not_keyword(struct negation *n, const struct bn_json *schema, const char *key,
                        struct bn_json *v)
{
    uint32_t types;
    if (strcmp(key, "type") == 0) {
        if (!bn_schema_types(n->s, schema, &types)) return;
        struct bn_json *names = not_type(types);
        if (bn_json_size(names)) add(n, bn_json_pack("{sO}", "type", names));
        bn_json_free(names);
    } else if (strcmp(key, "enum") == 0) {
        not_values(n, v);
    } else if (strcmp(key, "const") == 0) {
        struct bn_json *one = bn_json_pack("[O]", v);
        not_values(n, one);
        bn_json_free(one);
    } else if (strcmp(key, "pattern") == 0) {
        add(n, bn_json_pack("{ssso}", "type", "string", "pattern",
                            bn_json_printf("^(?![^]*(?:%s))", bn_json_text(v))));
    } else if (strcmp(key, "required") == 0) {
        for (size_t i = 0; i < bn_json_size(v); i++)
            add(n, bn_json_pack("{sss{sb}}", "type", "object", "properties",
                                bn_json_text(bn_json_at(v, i)), 0));
    } else if (strcmp(key, "properties") == 0) {
        not_members(n, v);
    } else if (strcmp(key, "items") == 0 || strcmp(key, "prefixItems") == 0) {
        if (strcmp(key, "items") == 0 || !bn_json_get(schema, "items")) not_items(n, schema);
    } else if (strcmp(key, "contains") == 0) {
        if (!bn_json_get(schema, "minContains") && !bn_json_get(schema, "maxContains"))
            add(n, bn_json_pack("{sss{sO}}", "type", "array", "items", "not", v));
        else n->lost = key;
    } else if (strcmp(key, "anyOf") == 0) {
        add(n, all_not(v));
    } else if (strcmp(key, "oneOf") == 0) {
        add(n, all_not(v));
        n->lost = key;
    } else if (strcmp(key, "not") == 0) {
        add(n, bn_json_ref(v));
    } else if (strcmp(key, "if") == 0) {
        not_choice(n, schema);
    } else if (strcmp(key, BN_SCHEMA_ALSO) == 0) {
        for (size_t i = 0; i < bn_json_size(v); i++)
            add(n, bn_json_pack("{sO}", "not", bn_json_at(v, i)));
    } else if (strncmp(key, "min", 3) == 0 || strncmp(key, "max", 3) == 0 ||
               strncmp(key, "exclusiveM", 10) == 0) {
        not_bound(n, key, v);
        not_count(n, key, v);
    } else if (!bn_schema_silent(key)) {
        n->lost = key;
    }
}

const struct bn_json *bn_schema_negation(struct bn_schema *s, const struct bn_json *schema)
{
    struct negation n = {.s = s, .list = bn_schema_keep(s, bn_json_array())};
    schema = n.list ? bn_schema_normal(s, schema) : NULL;
    if (!schema) return NULL;
    if (bn_json_is_false(schema)) add(&n, bn_json_bool(true));
    const char *key;
    struct bn_json *value;
    bn_json_each_member(schema, key, value) not_keyword(&n, schema, key, value);
    if (!bn_json_whole(n.list)) return bn_builder_nomem(s->b), NULL;
    if (n.lost && bn_json_size(n.list) == 0)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'not' of '%.80s' cannot be enforced",
                              n.lost),
               NULL;
    return s->b->status == BITNET_OK ? n.list : NULL;
}

/* ------------------------------------------------------------------ one or the other */

/* The values of 'enum' or 'const', as a new list; NULL: the schema has neither. */
static struct bn_json *values_of(const struct bn_json *schema)
{
    struct bn_json *list = bn_json_get(schema, "enum"), *constant = bn_json_get(schema, "const");
    if (bn_json_is_array(list)) return bn_json_ref(list);
    return constant ? bn_json_pack("[O]", constant) : NULL;
}

static bool lists_apart(const struct bn_json *a, const struct bn_json *b)
{
    for (size_t i = 0; i < bn_json_size(a); i++)
        for (size_t k = 0; k < bn_json_size(b); k++)
            if (bn_schema_same(bn_json_at(a, i), bn_json_at(b, k))) return false;
    return true;
}

/* The types that values of a schema can have. */
static uint32_t possible_types(struct bn_schema *s, const struct bn_json *schema,
                               const struct bn_json *values)
{
    uint32_t types = 0;
    for (size_t i = 0; i < bn_json_size(values); i++)
        types |= bn_schema_types_of(bn_json_at(values, i));
    if (values || !bn_schema_types(s, schema, &types)) return types;
    if (types & BN_TYPE_NUMBER) types |= BN_TYPE_INTEGER;
    return types ? types : UINT32_MAX;
}

static bool is_required(const struct bn_json *schema, const char *name)
{
    const struct bn_json *list = bn_json_get(schema, "required");
    for (size_t i = 0; i < bn_json_size(list); i++) {
        const char *s = bn_json_text(bn_json_at(list, i));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

static bool apart(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b,
                  int nesting);

/* Objects are told apart by a property that both must have. */
static bool objects_apart(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b,
                          int nesting)
{
    const struct bn_json *others = bn_json_get(b, "properties");
    const char *name;
    struct bn_json *value;
    bn_json_each_member(bn_json_get(a, "properties"), name, value)
    {
        const struct bn_json *other = bn_json_get(others, name);
        if (other && is_required(a, name) && is_required(b, name) &&
            apart(s, value, other, nesting + 1))
            return true;
    }
    return false;
}

static bool apart(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b,
                  int nesting)
{
    a = bn_schema_normal(s, a);
    b = bn_schema_normal(s, b);
    if (bn_json_is_false(a) || bn_json_is_false(b)) return true;
    if (!bn_json_is_object(a) || !bn_json_is_object(b) || nesting > MAX_DEPTH) return false;
    struct bn_json *left = values_of(a), *right = values_of(b);
    uint32_t one = possible_types(s, a, left), other = possible_types(s, b, right);
    bool result = !(one & other) || (left && right && lists_apart(left, right)) ||
                  ((one & other) == BN_TYPE_OBJECT && objects_apart(s, a, b, nesting));
    bn_json_free(left);
    bn_json_free(right);
    return result;
}

bool bn_schema_disjoint(struct bn_schema *s, const struct bn_json *a, const struct bn_json *b)
{
    return apart(s, a, b, 0);
}
