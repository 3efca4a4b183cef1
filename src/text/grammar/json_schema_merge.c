/* SPDX-License-Identifier: Apache-2.0
 * What two schemas demand of the same value, as one schema. Where that cannot be said exactly, it is
 * refused. */
#include "text/grammar/json_schema_impl.h"

#include <stdlib.h>
#include <stdio.h>

/* A schema that demands both; they may be NULL: nothing. A new reference. */
static struct bn_json *both_of(const struct bn_json *a, const struct bn_json *b)
{
    if (!a || !b) return bn_json_ref(a ? a : b);
    if (bn_json_is_true(a) || bn_json_is_false(b)) return bn_json_ref(b);
    if (bn_json_is_true(b) || bn_json_is_false(a) || bn_json_equal(a, b)) return bn_json_ref(a);
    return bn_json_pack("{s:[O,O]}", "allOf", a, b);
}

/* ------------------------------------------------------------------ objects */

/* What a schema says about a member; NULL: nothing. A new reference. */
static struct bn_json *about_member(struct bn_schema *s, const struct bn_json *schema,
                                    const char *name)
{
    const struct bn_json *own = bn_json_get(bn_json_get(schema, "properties"), name);
    struct bn_json *sum = bn_json_ref(own), *value;
    bool spoken = own != NULL;
    const char *pattern;
    bn_json_each_member(bn_json_get(schema, "patternProperties"), pattern, value)
    {
        if (!bn_schema_key_matches(s, pattern, name)) continue;
        struct bn_json *more = both_of(sum, value);
        bn_json_free(sum);
        sum = more;
        spoken = true;
    }
    return spoken ? sum : bn_json_ref(bn_json_get(schema, "additionalProperties"));
}

static bool merge_members(struct bn_schema *s, struct bn_json *sum, const struct bn_json *a,
                          const struct bn_json *b)
{
    const struct bn_json *parts[] = {bn_json_get(a, "properties"), bn_json_get(b, "properties")};
    struct bn_json *members = bn_json_object(), *value;
    const char *name;
    for (size_t i = 0; i < 2; i++) bn_json_each_member(parts[i], name, value)
        {
            if (bn_json_get(members, name)) continue;
            struct bn_json *x = about_member(s, a, name), *y = about_member(s, b, name);
            bn_json_set(members, name, both_of(x, y));
            bn_json_free(x);
            bn_json_free(y);
        }
    bool any = parts[0] || parts[1];
    if (any) return bn_json_set(sum, "properties", members) || bn_builder_nomem(s->b);
    bn_json_free(members);
    return true;
}

/* Members that no 'properties' names: patterns, and what is left. Of two schemas with patterns, of
 * which one speaks of what is left, it would take all combinations to say it. */
static bool merge_others(struct bn_schema *s, struct bn_json *sum, const struct bn_json *a,
                         const struct bn_json *b)
{
    const struct bn_json *schema[] = {a, b}, *patterns[2], *rest[2];
    for (size_t i = 0; i < 2; i++) {
        patterns[i] = bn_json_get(schema[i], "patternProperties");
        rest[i] = bn_json_get(schema[i], "additionalProperties");
        if (bn_json_is_true(rest[i]) && bn_json_size(patterns[i]) == 0) patterns[i] = NULL;
    }
    bool limits = (rest[0] && !bn_json_is_true(rest[0])) || (rest[1] && !bn_json_is_true(rest[1]));
    if (bn_json_size(patterns[0]) && bn_json_size(patterns[1]) && limits &&
        !bn_json_equal(patterns[0], patterns[1]))
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'patternProperties' of two schemas beside 'additionalProperties'") !=
               NULL;
    if (patterns[0] || patterns[1]) {
        struct bn_json *all = bn_json_object(), *value;
        const char *name;
        for (size_t i = 0; i < 2; i++) bn_json_each_member(patterns[i], name, value)
            {
                const struct bn_json *other = bn_json_get(patterns[1 - i], name);
                if (!other && !bn_json_size(patterns[1 - i])) other = rest[1 - i];
                if (!bn_json_get(all, name)) bn_json_set(all, name, both_of(value, other));
            }
        if (!bn_json_set(sum, "patternProperties", all)) return bn_builder_nomem(s->b);
    }
    if (!rest[0] && !rest[1]) return true;
    return bn_json_set(sum, "additionalProperties", both_of(rest[0], rest[1])) ||
           bn_builder_nomem(s->b);
}

/* ------------------------------------------------------------------ arrays */

static const struct bn_json *about_item(const struct bn_json *schema, size_t i)
{
    const struct bn_json *own = bn_json_at(bn_json_get(schema, "prefixItems"), i);
    return own ? own : bn_json_get(schema, "items");
}

static bool merge_items(struct bn_schema *s, struct bn_json *sum, const struct bn_json *a,
                        const struct bn_json *b)
{
    size_t n = bn_json_size(bn_json_get(a, "prefixItems")),
           m = bn_json_size(bn_json_get(b, "prefixItems"));
    const struct bn_json *x = bn_json_get(a, "items"), *y = bn_json_get(b, "items");
    struct bn_json *prefix = bn_json_array();
    for (size_t i = 0; i < (n > m ? n : m); i++) {
        struct bn_json *item = both_of(about_item(a, i), about_item(b, i));
        bn_json_append(prefix, item ? item : bn_json_bool(true));
    }
    bool ok = bn_json_whole(prefix);
    if (ok && bn_json_size(prefix)) ok = bn_json_set(sum, "prefixItems", bn_json_ref(prefix));
    if (ok && (x || y)) ok = bn_json_set(sum, "items", both_of(x, y));
    bn_json_free(prefix);
    return ok || bn_builder_nomem(s->b);
}

/* ------------------------------------------------------------------ other keywords */

/* The stricter of two numbers. -1: the larger one is, 1: the smaller one is, 0: no such keyword */
static int stricter(const char *key)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                       "maxProperties"};
    for (size_t i = 0; i < BN_ARRAY_LEN(least); i++) {
        if (strcmp(key, least[i]) == 0) return -1;
        if (strcmp(key, most[i]) == 0) return 1;
    }
    return 0;
}

/* The types that both allow, by their names: a number may be an integer. */
static struct bn_json *common_types(struct bn_schema *s, const struct bn_json *a,
                                    const struct bn_json *b)
{
    struct bn_json *x = bn_json_pack("{sO}", "type", a), *y = bn_json_pack("{sO}", "type", b);
    struct bn_json *list = bn_json_array();
    uint32_t one = 0, other = 0;
    bool ok = x && y && list && bn_schema_types(s, x, &one) && bn_schema_types(s, y, &other);
    bn_json_free(x);
    bn_json_free(y);
    if (one & BN_TYPE_NUMBER) one |= BN_TYPE_INTEGER;
    if (other & BN_TYPE_NUMBER) other |= BN_TYPE_INTEGER;
    uint32_t both = one & other;
    if (both & BN_TYPE_NUMBER) both &= ~(uint32_t)BN_TYPE_INTEGER;
    for (size_t i = 0; ok && i < BN_N_TYPES; i++)
        if (both >> i & 1) bn_json_append(list, bn_json_string(bn_schema_type_name(i)));
    return ok ? list : (bn_json_free(list), NULL);
}

static struct bn_json *common_values(const struct bn_json *a, const struct bn_json *b)
{
    struct bn_json *list = bn_json_array(), *x;
    size_t i;
    bn_json_each(a, i, x)
    {
        bool known = false;
        for (size_t k = 0; k < bn_json_size(b); k++)
            known = known || bn_schema_same(x, bn_json_at(b, k));
        if (known) bn_json_append(list, bn_json_ref(x));
    }
    return list;
}

static struct bn_json *both_patterns(const struct bn_json *a, const struct bn_json *b)
{
    return bn_json_printf("^(?=[^]*(?:%s))(?=[^]*(?:%s))", bn_json_text(a), bn_json_text(b));
}

static struct bn_json *common_multiple(const struct bn_json *a, const struct bn_json *b)
{
    int64_t x = bn_json_integer(a), y = bn_json_integer(b), u = x, v = y;
    if (x <= 0 || y <= 0 || x > INT32_MAX || y > INT32_MAX) return NULL;
    while (v) {
        int64_t r = u % v;
        u = v;
        v = r;
    }
    return bn_json_int(x / u * y);
}

/* Demands of one kind that both schemas have, as one; NULL: no such kind. */
static struct bn_json *joined(struct bn_schema *s, const char *key, const struct bn_json *a,
                              const struct bn_json *b)
{
    int rule = stricter(key);
    if (rule != 0) {
        double x = bn_json_number(a), y = bn_json_number(b);
        return bn_json_ref((rule < 0 ? y > x : y < x) ? b : a);
    }
    if (strcmp(key, "type") == 0) return common_types(s, a, b);
    if (strcmp(key, "enum") == 0) return common_values(a, b);
    if (strcmp(key, "required") == 0) {
        struct bn_json *all = bn_json_copy(a);
        bn_json_extend(all, b);
        return all;
    }
    if (strcmp(key, "pattern") == 0 && bn_json_is_string(a) && bn_json_is_string(b))
        return both_patterns(a, b);
    if (strcmp(key, "multipleOf") == 0) return common_multiple(a, b);
    if (strcmp(key, "propertyNames") == 0) return both_of(a, b);
    if (strcmp(key, "uniqueItems") == 0) return bn_json_ref(bn_json_is_true(a) ? a : b);
    return NULL;
}

/* Those that can be put beside others only by 'allOf': kept as they are, in a list. */
static bool is_applicator(const char *key)
{
    static const char *const keys[] = {"anyOf",           "oneOf", "not", "if", "dependentRequired",
                                       "dependentSchemas"};
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* Into the list of what is taken one by one later: 'also', which is this engine's own. */
static bool add_also(struct bn_schema *s, struct bn_json *sum, const char *key,
                     struct bn_json *value, const struct bn_json *from)
{
    struct bn_json *list = bn_json_get(sum, BN_SCHEMA_ALSO);
    struct bn_json *one = bn_json_pack("{sO}", key, value);
    static const char *const beside[] = {"then", "else"};
    for (size_t i = 0; strcmp(key, "if") == 0 && i < 2; i++) {
        struct bn_json *v = bn_json_get(from, beside[i]);
        if (v) bn_json_set(one, beside[i], bn_json_ref(v));
    }
    struct bn_json *copy = list ? bn_json_copy(list) : bn_json_array();
    bn_json_append(copy, one);
    return bn_json_set(sum, BN_SCHEMA_ALSO, copy) || bn_builder_nomem(s->b);
}

static bool is_grouped(const char *key)
{
    static const char *const keys[] = {"properties",
                                       "patternProperties",
                                       "additionalProperties",
                                       "items",
                                       "prefixItems",
                                       "then",
                                       "else",
                                       "const"};
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

static bool merge_keyword(struct bn_schema *s, struct bn_json *sum, const char *key,
                          struct bn_json *value, const struct bn_json *from)
{
    struct bn_json *old = bn_json_get(sum, key);
    if (strcmp(key, "if") == 0 && !old) {
        static const char *const beside[] = {"then", "else"};
        for (size_t i = 0; i < 2; i++)
            if (bn_json_get(from, beside[i]))
                bn_json_set(sum, beside[i], bn_json_ref(bn_json_get(from, beside[i])));
    }
    if (!old || (bn_json_equal(old, value) && strcmp(key, "if") != 0))
        return bn_json_set(sum, key, bn_json_ref(value)) || bn_builder_nomem(s->b);
    if (strcmp(key, BN_SCHEMA_ALSO) == 0) {
        struct bn_json *copy = bn_json_copy(old);
        bn_json_extend(copy, value);
        return bn_json_set(sum, key, copy) || bn_builder_nomem(s->b);
    }
    if (is_applicator(key)) return add_also(s, sum, key, value, from);
    if (strcmp(key, "format") == 0) return true; /* two kinds of text: the first one's */
    struct bn_json *made = joined(s, key, old, value);
    if (made) return bn_json_set(sum, key, made) || bn_builder_nomem(s->b);
    return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "two schemas that differ in '%.80s' at once",
                          key) != NULL;
}

/* "const": x is "enum": [x]. */
static const struct bn_json *with_enum(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_json *constant = bn_json_get(schema, "const"), *list = bn_json_get(schema, "enum");
    if (!constant) return schema;
    struct bn_json *one = bn_json_pack("[O]", constant),
                   *copy = bn_schema_keep(s, bn_json_copy(schema));
    if (!copy) return bn_json_free(one), NULL;
    bn_json_del(copy, "const");
    struct bn_json *both = list ? common_values(one, list) : bn_json_ref(one);
    bn_json_free(one);
    return bn_json_set(copy, "enum", both) ? copy : (bn_builder_nomem(s->b), NULL);
}

static const struct bn_json *sum_of(struct bn_schema *s, const struct bn_json *a,
                                    const struct bn_json *b)
{
    struct bn_json *sum = bn_schema_keep(s, bn_json_object());
    a = sum ? with_enum(s, a) : NULL;
    b = a ? with_enum(s, b) : NULL;
    if (!b) return NULL;
    const struct bn_json *parts[] = {a, b};
    for (size_t i = 0; i < 2; i++) {
        const char *key;
        struct bn_json *value;
        bn_json_each_member(parts[i], key, value)
        {
            if (!bn_schema_silent(key) && !is_grouped(key) &&
                !merge_keyword(s, sum, key, value, parts[i]))
                return NULL;
        }
    }
    if (!merge_members(s, sum, a, b) || !merge_others(s, sum, a, b) || !merge_items(s, sum, a, b))
        return NULL;
    static const char *const lists[] = {"type", "enum"};
    for (size_t i = 0; i < BN_ARRAY_LEN(lists); i++) {
        const struct bn_json *list = bn_json_get(sum, lists[i]);
        if (!bn_json_is_array(list) || bn_json_size(list) > 0) continue;
        if (!bn_schema_never(s, "two schemas agree on no '%s'", lists[i])) return NULL;
        return bn_schema_keep(s, bn_json_bool(false));
    }
    return sum;
}

/* 'unevaluated...' sees what is beside it in its own schema only. */
static bool speaks_for_others(const struct bn_json *a, const struct bn_json *b)
{
    static const char *const seen[][8] = {
        {"unevaluatedProperties", "properties", "patternProperties", "additionalProperties"},
        {"unevaluatedItems", "items", "prefixItems", "contains"}};
    static const char *const both[] = {"anyOf", "oneOf", "if", "dependentSchemas", BN_SCHEMA_ALSO};
    for (size_t i = 0; i < BN_ARRAY_LEN(seen); i++) {
        const struct bn_json *v = bn_json_get(a, seen[i][0]);
        if (!v || bn_json_is_true(v)) continue;
        for (size_t k = 1; k < 8 && seen[i][k]; k++)
            if (bn_json_get(b, seen[i][k])) return true;
        for (size_t k = 0; k < BN_ARRAY_LEN(both); k++)
            if (bn_json_get(b, both[k])) return true;
    }
    return false;
}

static bool demands_nothing(const struct bn_json *schema)
{
    const char *key;
    struct bn_json *value;
    if (!bn_json_is_object(schema)) return bn_json_is_true(schema);
    bn_json_each_member(schema, key, value) if (!bn_schema_silent(key)) return false;
    return true;
}

const struct bn_json *bn_schema_merge(struct bn_schema *s, const struct bn_json *a,
                                      const struct bn_json *b)
{
    if (++s->nesting > BN_GRAMMAR_MAX_NESTING) {
        bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep", BN_GRAMMAR_MAX_NESTING);
        return NULL;
    }
    b = bn_schema_normal(s, b);
    s->nesting--;
    if (!b || bn_json_is_false(a) || demands_nothing(b)) return b ? a : NULL;
    if (bn_json_is_false(b) || demands_nothing(a)) return b;
    if (speaks_for_others(a, b) || speaks_for_others(b, a)) {
        bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                       "'unevaluatedProperties' or 'unevaluatedItems' beside another schema's");
        return NULL;
    }
    return sum_of(s, a, b);
}
