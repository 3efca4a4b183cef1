/* SPDX-License-Identifier: Apache-2.0
 * Schemas made of schemas: references, what two schemas demand together, whether two exclude each
 * other. Where it cannot be said exactly, the schema is refused. */
#include "text/grammar/json_schema_impl.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ references */

/* One step of a JSON pointer, "~1" and "~0" decoded; false: too long. */
static bool pointer_step(char *out, size_t room, const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (k + 1 == room) return false;
        bool escape = p[i] == '~' && i + 1 < n && (p[i + 1] == '0' || p[i + 1] == '1');
        out[k++] = escape ? (p[++i] == '1' ? '/' : '~') : p[i];
    }
    out[k] = '\0';
    return true;
}

const struct bn_json *bn_schema_find(struct bn_schema *s, const char *pointer)
{
    const struct bn_json *at = pointer[0] == '#' ? s->root : NULL;
    for (const char *p = pointer + 1; at && *p;) {
        char step[256];
        size_t n = strcspn(p + 1, "/");
        if (*p != '/' || !pointer_step(step, sizeof step, p + 1, n)) at = NULL;
        else if (bn_json_is_array(at)) at = bn_json_at(at, strtoul(step, NULL, 10));
        else at = bn_json_get(at, step);
        p += 1 + n;
    }
    if (!at)
        bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'$ref' to '%.80s', which is not in this document",
                       pointer);
    return at;
}

/* ------------------------------------------------------------------ both at once */

/* Keeps a new schema alive; NULL if it could not be made. */
static struct bn_json *keep(struct bn_schema *s, struct bn_json *made)
{
    if (!made || !bn_json_append(s->made, made)) return bn_builder_nomem(s->b), NULL;
    return made;
}

const struct bn_json *bn_schema_without(struct bn_schema *s, const struct bn_json *schema,
                                        const char *key)
{
    struct bn_json *copy = keep(s, bn_json_copy((struct bn_json *)schema));
    if (copy) bn_json_del(copy, key);
    return copy;
}

static bool demands_nothing(const struct bn_json *schema)
{
    const char *key;
    struct bn_json *value;
    bn_json_each_member(schema, key, value) if (!bn_schema_silent(key)) return false;
    return true;
}

/* Properties of both; a name that both have must fit both schemas. */
static bool add_properties(struct bn_json *to, const struct bn_json *from)
{
    const char *name;
    struct bn_json *value;
    bn_json_each_member(from, name, value)
    {
        struct bn_json *old = bn_json_get(to, name);
        bool both = old && !bn_json_equal(old, value);
        struct bn_json *made =
            both ? bn_json_pack("{s:[O,O]}", "allOf", old, value) : bn_json_ref(value);
        if (!bn_json_set(to, name, made)) return false;
    }
    return true;
}

/* The stricter of two numbers. -1: the larger one is, 1: the smaller one is, 0: no such keyword */
static int stricter(const char *key)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems"};
    for (size_t i = 0; i < BN_ARRAY_LEN(least); i++) {
        if (strcmp(key, least[i]) == 0) return -1;
        if (strcmp(key, most[i]) == 0) return 1;
    }
    return 0;
}

static bool merge_keyword(struct bn_schema *s, struct bn_json *sum, const char *key,
                          struct bn_json *value)
{
    struct bn_json *old = bn_json_get(sum, key);
    int rule = stricter(key);
    if (!old || bn_json_equal(old, value)) {
        /* copies of what later merges change */
        struct bn_json *copy = bn_json_copy(value);
        return bn_json_set(sum, key, copy) || bn_builder_nomem(s->b);
    }
    if (rule && bn_json_is_number(old) && bn_json_is_number(value)) {
        double a = bn_json_number(old), b = bn_json_number(value);
        return (rule < 0 ? b <= a : b >= a) || bn_json_set(sum, key, bn_json_ref(value)) ||
               bn_builder_nomem(s->b);
    }
    if (strcmp(key, "properties") == 0 && bn_json_is_object(old) && bn_json_is_object(value))
        return add_properties(old, value) || bn_builder_nomem(s->b);
    bool lists = bn_json_is_array(old) && bn_json_is_array(value);
    if (lists && (strcmp(key, "required") == 0 || strcmp(key, "allOf") == 0))
        return bn_json_extend(old, value) || bn_builder_nomem(s->b);
    return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "two schemas that differ in '%.80s' at once",
                          key) != NULL;
}

/* 'additionalProperties' looks at the properties beside it only. */
static bool speaks_for_others(const struct bn_json *a, const struct bn_json *b)
{
    return bn_json_get(a, "additionalProperties") && bn_json_get(b, "properties");
}

static const struct bn_json *sum_of(struct bn_schema *s, const struct bn_json *a,
                                    const struct bn_json *b)
{
    struct bn_json *sum = keep(s, bn_json_object());
    const struct bn_json *parts[] = {a, b};
    for (size_t i = 0; sum && i < 2; i++) {
        const char *key;
        struct bn_json *value;
        bn_json_each_member(parts[i], key, value)
        {
            if (!bn_schema_silent(key) && !merge_keyword(s, sum, key, value)) return NULL;
        }
    }
    return sum;
}

/* The schema with what its '$ref' demands, as a schema without '$ref'. */
static const struct bn_json *expanded(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *ref = bn_json_get(schema, "$ref");
    if (!bn_json_is_string(ref)) return schema;
    const struct bn_json *target = bn_schema_find(s, bn_json_text(ref));
    const struct bn_json *rest = target ? bn_schema_without(s, schema, "$ref") : NULL;
    return rest ? bn_schema_merge(s, rest, target) : NULL;
}

const struct bn_json *bn_schema_merge(struct bn_schema *s, const struct bn_json *a,
                                      const struct bn_json *b)
{
    if (bn_json_is_true(b) || (bn_json_is_object(b) && demands_nothing(b))) return a;
    if (!bn_json_is_object(b)) {
        bn_schema_fail(s, BITNET_E_FORMAT, "neither an object nor true");
        return NULL;
    }
    if (demands_nothing(a)) return b;
    if (++s->nesting > BN_GRAMMAR_MAX_NESTING) {
        bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep", BN_GRAMMAR_MAX_NESTING);
        return NULL;
    }
    a = expanded(s, a);
    b = a ? expanded(s, b) : NULL;
    if (!b) return NULL;
    s->nesting--;
    if (speaks_for_others(a, b) || speaks_for_others(b, a)) {
        bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                       "'additionalProperties' beside the properties of another schema");
        return NULL;
    }
    return sum_of(s, a, b);
}

/* ------------------------------------------------------------------ one or the other */

static const struct bn_json *followed(struct bn_schema *s, const struct bn_json *schema)
{
    for (int i = 0; i < BN_GRAMMAR_MAX_NESTING; i++) {
        const struct bn_json *ref = bn_json_get(schema, "$ref");
        if (!bn_json_is_string(ref)) return schema;
        schema = bn_schema_find(s, bn_json_text(ref));
    }
    return NULL;
}

/* The values of 'enum' or 'const', as a new list; NULL: the schema has neither. */
static struct bn_json *values_of(const struct bn_json *schema)
{
    struct bn_json *list = bn_json_get(schema, "enum"), *constant = bn_json_get(schema, "const");
    if (bn_json_is_array(list)) return bn_json_ref(list);
    return constant ? bn_json_pack("[O]", constant) : NULL;
}

static bool same_value(const struct bn_json *a, const struct bn_json *b)
{
    if (bn_json_is_number(a) && bn_json_is_number(b)) return bn_json_number(a) == bn_json_number(b);
    return bn_json_equal(a, b);
}

static bool lists_apart(const struct bn_json *a, const struct bn_json *b)
{
    for (size_t i = 0; i < bn_json_size(a); i++)
        for (size_t k = 0; k < bn_json_size(b); k++)
            if (same_value(bn_json_at(a, i), bn_json_at(b, k))) return false;
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
    a = followed(s, a);
    b = followed(s, b);
    if (!bn_json_is_object(a) || !bn_json_is_object(b) || nesting > BN_GRAMMAR_MAX_NESTING)
        return false;
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
