/* SPDX-License-Identifier: Apache-2.0
 * Schemas made of schemas: references, what two schemas demand together, whether two exclude each
 * other. Where it cannot be said exactly, the schema is refused. */
#include "text/json_schema.h"

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

const json_t *bn_schema_find(struct bn_schema *s, const char *pointer)
{
    const json_t *at = pointer[0] == '#' ? s->root : NULL;
    for (const char *p = pointer + 1; at && *p;) {
        char step[256];
        size_t n = strcspn(p + 1, "/");
        if (*p != '/' || !pointer_step(step, sizeof step, p + 1, n)) at = NULL;
        else if (json_is_array(at)) at = json_array_get(at, strtoul(step, NULL, 10));
        else at = json_object_get(at, step);
        p += 1 + n;
    }
    if (!at)
        bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'$ref' to '%.80s', which is not in this document",
                       pointer);
    return at;
}

/* ------------------------------------------------------------------ both at once */

/* Keeps a new schema alive; NULL if it could not be made. */
static json_t *keep(struct bn_schema *s, json_t *made)
{
    if (!made || json_array_append_new(s->made, made) != 0) return bn_builder_nomem(s->b), NULL;
    return made;
}

const json_t *bn_schema_without(struct bn_schema *s, const json_t *schema, const char *key)
{
    json_t *copy = keep(s, json_copy((json_t *)schema));
    if (copy) json_object_del(copy, key);
    return copy;
}

static bool demands_nothing(const json_t *schema)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)schema, key, value) if (!bn_schema_silent(key)) return false;
    return true;
}

/* Properties of both; a name that both have must fit both schemas. */
static bool add_properties(json_t *to, const json_t *from)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)from, name, value)
    {
        json_t *old = json_object_get(to, name);
        int rc = old && !json_equal(old, value)
                     ? json_object_set_new(to, name, json_pack("{s:[O,O]}", "allOf", old, value))
                     : json_object_set(to, name, value);
        if (rc != 0) return false;
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

static bool merge_keyword(struct bn_schema *s, json_t *sum, const char *key, json_t *value)
{
    json_t *old = json_object_get(sum, key);
    int rule = stricter(key);
    if (!old || json_equal(old, value)) {
        /* copies of what later merges change */
        json_t *copy = json_copy(value);
        return json_object_set_new(sum, key, copy) == 0 || bn_builder_nomem(s->b);
    }
    if (rule && json_is_number(old) && json_is_number(value)) {
        double a = json_number_value(old), b = json_number_value(value);
        return (rule < 0 ? b <= a : b >= a) || json_object_set(sum, key, value) == 0 ||
               bn_builder_nomem(s->b);
    }
    if (strcmp(key, "properties") == 0 && json_is_object(old) && json_is_object(value))
        return add_properties(old, value) || bn_builder_nomem(s->b);
    bool lists = json_is_array(old) && json_is_array(value);
    if (lists && (strcmp(key, "required") == 0 || strcmp(key, "allOf") == 0))
        return json_array_extend(old, value) == 0 || bn_builder_nomem(s->b);
    return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "two schemas that differ in '%.80s' at once",
                          key) != NULL;
}

/* 'additionalProperties' looks at the properties beside it only. */
static bool speaks_for_others(const json_t *a, const json_t *b)
{
    return json_object_get(a, "additionalProperties") && json_object_get(b, "properties");
}

static const json_t *sum_of(struct bn_schema *s, const json_t *a, const json_t *b)
{
    json_t *sum = keep(s, json_object());
    const json_t *parts[] = {a, b};
    for (size_t i = 0; sum && i < 2; i++) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)parts[i], key, value)
        {
            if (!bn_schema_silent(key) && !merge_keyword(s, sum, key, value)) return NULL;
        }
    }
    return sum;
}

/* The schema with what its '$ref' demands, as a schema without '$ref'. */
static const json_t *expanded(struct bn_schema *s, const json_t *schema)
{
    const json_t *ref = json_object_get(schema, "$ref");
    if (!json_is_string(ref)) return schema;
    const json_t *target = bn_schema_find(s, json_string_value(ref));
    const json_t *rest = target ? bn_schema_without(s, schema, "$ref") : NULL;
    return rest ? bn_schema_merge(s, rest, target) : NULL;
}

const json_t *bn_schema_merge(struct bn_schema *s, const json_t *a, const json_t *b)
{
    if (json_is_true(b) || (json_is_object(b) && demands_nothing(b))) return a;
    if (!json_is_object(b)) {
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

static const json_t *followed(struct bn_schema *s, const json_t *schema)
{
    for (int i = 0; i < BN_GRAMMAR_MAX_NESTING; i++) {
        const json_t *ref = json_object_get(schema, "$ref");
        if (!json_is_string(ref)) return schema;
        schema = bn_schema_find(s, json_string_value(ref));
    }
    return NULL;
}

/* The values of 'enum' or 'const', as a new list; NULL: the schema has neither. */
static json_t *values_of(const json_t *schema)
{
    json_t *list = json_object_get(schema, "enum"), *constant = json_object_get(schema, "const");
    if (json_is_array(list)) return json_incref(list);
    return constant ? json_pack("[O]", constant) : NULL;
}

static bool same_value(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static bool lists_apart(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++)
            if (same_value(json_array_get(a, i), json_array_get(b, k))) return false;
    return true;
}

/* The types that values of a schema can have. */
static uint32_t possible_types(struct bn_schema *s, const json_t *schema, const json_t *values)
{
    uint32_t types = 0;
    for (size_t i = 0; i < json_array_size(values); i++)
        types |= bn_json_types(json_array_get(values, i));
    if (values || !bn_schema_types(s, schema, &types)) return types;
    if (types & BN_TYPE_NUMBER) types |= BN_TYPE_INTEGER;
    return types ? types : UINT32_MAX;
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, name) == 0) return true;
    }
    return false;
}

static bool apart(struct bn_schema *s, const json_t *a, const json_t *b, int nesting);

/* Objects are told apart by a property that both must have. */
static bool objects_apart(struct bn_schema *s, const json_t *a, const json_t *b, int nesting)
{
    const json_t *others = json_object_get(b, "properties");
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(a, "properties"), name, value)
    {
        const json_t *other = json_object_get(others, name);
        if (other && is_required(a, name) && is_required(b, name) &&
            apart(s, value, other, nesting + 1))
            return true;
    }
    return false;
}

static bool apart(struct bn_schema *s, const json_t *a, const json_t *b, int nesting)
{
    a = followed(s, a);
    b = followed(s, b);
    if (!json_is_object(a) || !json_is_object(b) || nesting > BN_GRAMMAR_MAX_NESTING) return false;
    json_t *left = values_of(a), *right = values_of(b);
    uint32_t one = possible_types(s, a, left), other = possible_types(s, b, right);
    bool result = !(one & other) || (left && right && lists_apart(left, right)) ||
                  ((one & other) == BN_TYPE_OBJECT && objects_apart(s, a, b, nesting));
    json_decref(left);
    json_decref(right);
    return result;
}

bool bn_schema_disjoint(struct bn_schema *s, const json_t *a, const json_t *b)
{
    return apart(s, a, b, 0);
}
