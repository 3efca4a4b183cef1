/* SPDX-License-Identifier: Apache-2.0
 * Whether a value fits a schema: for the values of 'enum' and 'const', which are what they are. Formats
 * are taken as annotations here, as the standard has it. */
#include "text/grammar/json_schema_impl.h"

#include <math.h>
#include <stdlib.h>

bool bn_schema_same(const struct bn_json *a, const struct bn_json *b)
{
    if (bn_json_is_number(a) && bn_json_is_number(b)) {
        if (bn_json_is_int(a) && bn_json_is_int(b)) return bn_json_integer(a) == bn_json_integer(b);
        return bn_json_number(a) == bn_json_number(b);
    }
    if (bn_json_typeof(a) != bn_json_typeof(b) || bn_json_size(a) != bn_json_size(b)) return false;
    if (!bn_json_is_array(a) && !bn_json_is_object(a)) return bn_json_equal(a, b);
    for (size_t i = 0; i < bn_json_size(a); i++) {
        const struct bn_json *x = bn_json_is_array(a) ? bn_json_at(a, i) : bn_json_value_at(a, i);
        const struct bn_json *y =
            bn_json_is_array(a) ? bn_json_at(b, i) : bn_json_get(b, bn_json_key_at(a, i));
        if (!y || !bn_schema_same(x, y)) return false;
    }
    return true;
}

static bool matches(struct bn_schema *s, const struct bn_json *pattern, const char *text, size_t n)
{
    const struct bn_re *re = bn_schema_pattern(s, pattern);
    const struct bn_dfa *d = re ? bn_dfa_make(s->b, re) : NULL;
    if (!d && s->b->status == BITNET_OK)
        bn_schema_fail(s, BITNET_E_LIMIT, "'pattern' needs an automaton with too many states");
    return d && bn_dfa_accepts(d, text, n);
}

bool bn_schema_key_matches(struct bn_schema *s, const char *pattern, const char *name)
{
    struct bn_json *text = bn_json_string(pattern);
    bool found = text ? matches(s, text, name, strlen(name)) : bn_builder_nomem(s->b);
    bn_json_free(text);
    return found;
}

static double number_of(const struct bn_json *schema, const char *key, double otherwise)
{
    const struct bn_json *v = bn_json_get(schema, key);
    return bn_json_is_number(v) ? bn_json_number(v) : otherwise;
}

static bool is_multiple(double x, double of)
{
    double q = x / of, nearest = round(q);
    return fabs(q - nearest) <= 1e-9 * fmax(1, fabs(q));
}

static bool valid_number(const struct bn_json *schema, double x)
{
    double step = number_of(schema, "multipleOf", 0);
    return x >= number_of(schema, "minimum", -INFINITY) &&
           x <= number_of(schema, "maximum", INFINITY) &&
           x > number_of(schema, "exclusiveMinimum", -INFINITY) &&
           x < number_of(schema, "exclusiveMaximum", INFINITY) &&
           (step == 0 || is_multiple(x, step));
}

static bool valid_string(struct bn_schema *s, const struct bn_json *schema, const struct bn_json *v)
{
    const struct bn_json *pattern = bn_json_get(schema, "pattern");
    const char *text = bn_json_text(v);
    size_t n = bn_json_bytes(v);
    double length = 0;
    for (size_t i = 0; i < n; i++) length += ((uint8_t)text[i] & 0xc0) != 0x80;
    return length >= number_of(schema, "minLength", 0) &&
           length <= number_of(schema, "maxLength", INFINITY) &&
           (!pattern || matches(s, pattern, text, n));
}

static bool valid_array(struct bn_schema *s, const struct bn_json *schema, const struct bn_json *v)
{
    const struct bn_json *prefix = bn_json_get(schema, "prefixItems");
    const struct bn_json *items = bn_json_get(schema, "items"),
                         *some = bn_json_get(schema, "contains");
    double n = (double)bn_json_size(v), found = 0;
    if (!items) items = bn_json_get(schema, "unevaluatedItems");
    if (n < number_of(schema, "minItems", 0) || n > number_of(schema, "maxItems", INFINITY))
        return false;
    for (size_t i = 0; i < bn_json_size(v); i++) {
        const struct bn_json *x = bn_json_at(v, i), *own = bn_json_at(prefix, i);
        if (!own) own = items;
        if (own && !bn_schema_valid(s, own, x)) return false;
        if (some) found += bn_schema_valid(s, some, x);
        for (size_t k = 0; k < i && bn_json_is_true(bn_json_get(schema, "uniqueItems")); k++)
            if (bn_schema_same(bn_json_at(v, k), x)) return false;
    }
    return !some || (found >= number_of(schema, "minContains", 1) &&
                     found <= number_of(schema, "maxContains", INFINITY));
}

static bool valid_member(struct bn_schema *s, const struct bn_json *schema, const char *name,
                         const struct bn_json *v)
{
    const struct bn_json *own = bn_json_get(bn_json_get(schema, "properties"), name);
    const struct bn_json *names = bn_json_get(schema, "propertyNames");
    const struct bn_json *others = bn_json_get(schema, "additionalProperties");
    const char *pattern;
    struct bn_json *value;
    bool spoken = own != NULL;
    if (!others) others = bn_json_get(schema, "unevaluatedProperties");
    if (own && !bn_schema_valid(s, own, v)) return false;
    bn_json_each_member(bn_json_get(schema, "patternProperties"), pattern, value)
    {
        if (!bn_schema_key_matches(s, pattern, name)) continue;
        spoken = true;
        if (!bn_schema_valid(s, value, v)) return false;
    }
    if (!spoken && others && !bn_schema_valid(s, others, v)) return false;
    if (!names) return true;
    struct bn_json *text = bn_json_string(name);
    bool good = text ? bn_schema_valid(s, names, text) : bn_builder_nomem(s->b);
    bn_json_free(text);
    return good;
}

static bool has_all(const struct bn_json *v, const struct bn_json *names)
{
    for (size_t i = 0; i < bn_json_size(names); i++)
        if (!bn_json_get(v, bn_json_text(bn_json_at(names, i)))) return false;
    return true;
}

static bool valid_object(struct bn_schema *s, const struct bn_json *schema, const struct bn_json *v)
{
    double n = (double)bn_json_size(v);
    const char *name;
    struct bn_json *value;
    if (n < number_of(schema, "minProperties", 0) ||
        n > number_of(schema, "maxProperties", INFINITY) ||
        !has_all(v, bn_json_get(schema, "required")))
        return false;
    bn_json_each_member(v, name, value) if (!valid_member(s, schema, name, value)) return false;
    bn_json_each_member(bn_json_get(schema, "dependentRequired"), name, value)
    {
        if (bn_json_get(v, name) && !has_all(v, value)) return false;
    }
    bn_json_each_member(bn_json_get(schema, "dependentSchemas"), name, value)
    {
        if (bn_json_get(v, name) && !bn_schema_valid(s, value, v)) return false;
    }
    return true;
}

/* How many schemas of a list it fits. */
static size_t n_valid(struct bn_schema *s, const struct bn_json *list, const struct bn_json *v)
{
    size_t n = 0;
    for (size_t i = 0; i < bn_json_size(list); i++) n += bn_schema_valid(s, bn_json_at(list, i), v);
    return n;
}

static bool valid_by_others(struct bn_schema *s, const struct bn_json *schema,
                            const struct bn_json *v)
{
    const struct bn_json *any = bn_json_get(schema, "anyOf"), *one = bn_json_get(schema, "oneOf");
    const struct bn_json *no = bn_json_get(schema, "not"), *cond = bn_json_get(schema, "if");
    const struct bn_json *rest = bn_json_get(schema, BN_SCHEMA_ALSO);
    if (any && n_valid(s, any, v) == 0) return false;
    if (one && n_valid(s, one, v) != 1) return false;
    if (no && bn_schema_valid(s, no, v)) return false;
    if (rest && n_valid(s, rest, v) != bn_json_size(rest)) return false;
    if (!cond) return true;
    const struct bn_json *then = bn_json_get(schema, bn_schema_valid(s, cond, v) ? "then" : "else");
    return !then || bn_schema_valid(s, then, v);
}

static bool valid_value(struct bn_schema *s, const struct bn_json *schema, const struct bn_json *v)
{
    const struct bn_json *list = bn_json_get(schema, "enum"),
                         *constant = bn_json_get(schema, "const");
    uint32_t types;
    if (!bn_schema_types(s, schema, &types) || (types && !(types & bn_schema_types_of(v))))
        return false;
    bool known = !list;
    for (size_t i = 0; i < bn_json_size(list); i++)
        known = known || bn_schema_same(bn_json_at(list, i), v);
    if (!known || (constant && !bn_schema_same(constant, v))) return false;
    if (bn_json_is_number(v) && !valid_number(schema, bn_json_number(v))) return false;
    if (bn_json_is_string(v) && !valid_string(s, schema, v)) return false;
    if (bn_json_is_array(v) && !valid_array(s, schema, v)) return false;
    if (bn_json_is_object(v) && !valid_object(s, schema, v)) return false;
    return valid_by_others(s, schema, v);
}

bool bn_schema_valid(struct bn_schema *s, const struct bn_json *schema, const struct bn_json *value)
{
    schema = bn_schema_normal(s, schema);
    if (!schema || bn_json_is_bool(schema)) return bn_json_is_true(schema);
    if (++s->nesting > BN_GRAMMAR_MAX_NESTING)
        return bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep",
                              BN_GRAMMAR_MAX_NESTING) != NULL;
    bool valid = valid_value(s, schema, value);
    s->nesting--;
    return valid && s->b->status == BITNET_OK;
}
