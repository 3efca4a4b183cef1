/* SPDX-License-Identifier: Apache-2.0
 * JSON as rules: values of any kind, objects, arrays, constants. */
#include "text/grammar/json_schema_impl.h"

#include <stdio.h>
#include <stdlib.h>

static const struct bn_expr *text(struct bn_schema *s, const char *t)
{
    return bn_expr_text(s->b, t);
}

/* ',' or ':' and, as the model likes, one space */
static const struct bn_expr *mark(struct bn_schema *s, const char *m)
{
    return BN_SEQ(s->b, text(s, m), bn_expr_repeat(s->b, text(s, " "), 0, 1));
}

/* ------------------------------------------------------------------ shared rules */

/* open item (, item)* close, or none between open and close */
static const struct bn_expr *list(struct bn_schema *s, const char *open, const struct bn_expr *item,
                                  const char *close)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *more =
        bn_expr_repeat(b, BN_SEQ(b, mark(s, ","), item), 0, BN_GRAMMAR_UNLIMITED);
    return BN_SEQ(b, text(s, open), bn_expr_repeat(b, BN_SEQ(b, item, more), 0, 1), text(s, close));
}

static const struct bn_expr *any_value(struct bn_schema *s)
{
    return BN_ALT(s->b, bn_schema_shared(s, BN_RULE_OBJECT), bn_schema_shared(s, BN_RULE_ARRAY),
                  bn_schema_shared(s, BN_RULE_STRING), bn_schema_shared(s, BN_RULE_NUMBER),
                  bn_schema_shared(s, BN_RULE_BOOLEAN), text(s, "null"));
}

static const struct bn_expr *any_pair(struct bn_schema *s)
{
    return BN_SEQ(s->b, bn_schema_shared(s, BN_RULE_STRING), mark(s, ":"),
                  bn_schema_shared(s, BN_RULE_VALUE));
}

static const struct bn_expr *shared(struct bn_schema *s, enum bn_shared_rule which)
{
    struct bn_builder *b = s->b;
    switch (which) {
    case BN_RULE_VALUE: return any_value(s);
    case BN_RULE_OBJECT: return list(s, "{", any_pair(s), "}");
    case BN_RULE_ARRAY: return list(s, "[", bn_schema_shared(s, BN_RULE_VALUE), "]");
    case BN_RULE_CHAR: return bn_schema_any_char(s);
    case BN_RULE_STRING_REST:
        return BN_SEQ(b,
                      bn_expr_repeat(b, bn_schema_shared(s, BN_RULE_CHAR), 0, BN_GRAMMAR_UNLIMITED),
                      text(s, "\""));
    case BN_RULE_STRING: return BN_SEQ(b, text(s, "\""), bn_schema_shared(s, BN_RULE_STRING_REST));
    case BN_RULE_INTEGER: return bn_schema_integer(s, NULL);
    case BN_RULE_NUMBER: return bn_schema_number(s, NULL);
    case BN_RULE_BOOLEAN: return BN_ALT(b, text(s, "true"), text(s, "false"));
    case BN_N_RULES: break;
    }
    return NULL;
}

const struct bn_expr *bn_schema_shared(struct bn_schema *s, enum bn_shared_rule which)
{
    static const char *const names[] = {"value",  "object",  "array",  "character", "rest",
                                        "string", "integer", "number", "boolean"};
    if (!s->shared[which]) {
        uint32_t rule = bn_rule_add(s->b, names[which], strlen(names[which]));
        if (s->b->status != BITNET_OK) return NULL;
        s->shared[which] = rule + 1;
        const struct bn_expr *e = shared(s, which);
        if (s->b->status != BITNET_OK) return NULL;
        s->b->rules[rule].expr = e;
    }
    return bn_expr_rule(s->b, s->shared[which] - 1);
}

const struct bn_expr *bn_schema_constant(struct bn_schema *s, const struct bn_json *value)
{
    char *dump = bn_json_dump(value, BN_JSON_COMPACT);
    if (!dump) return bn_builder_nomem(s->b), NULL;
    const struct bn_expr *e = text(s, dump);
    free(dump);
    return e;
}

/* ------------------------------------------------------------------ objects */

struct object {
    const char **names; /* declared, then those only required */
    const struct bn_expr **values;
    bool *required;
    size_t n;
    const struct bn_expr *other; /* value of any other key; NULL: there are none */
};

static size_t find_name(const struct object *o, const char *name)
{
    size_t i = 0;
    while (i < o->n && strcmp(o->names[i], name) != 0) i++;
    return i;
}

static bool read_properties(struct bn_schema *s, struct object *o, const struct bn_json *properties)
{
    const char *name;
    struct bn_json *value;
    if (properties && !bn_json_is_object(properties))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'properties' is not an object") != NULL;
    bn_json_each_member(properties, name, value)
    {
        o->names[o->n] = name;
        o->values[o->n++] = bn_schema_rule_of(s, value, "properties", name);
    }
    return s->b->status == BITNET_OK;
}

static bool read_required(struct bn_schema *s, struct object *o, const struct bn_json *required)
{
    if (required && !bn_json_is_array(required))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'required' is not a list") != NULL;
    for (size_t i = 0; i < bn_json_size(required); i++) {
        const char *name = bn_json_text(bn_json_at(required, i));
        if (!name)
            return bn_schema_fail(s, BITNET_E_FORMAT, "'required' holds what is no name") != NULL;
        size_t k = find_name(o, name);
        o->required[k] = true;
        if (k < o->n) continue;
        if (!o->other)
            return bn_schema_fail(s, BITNET_E_FORMAT, "'%.80s' is required and not allowed",
                                  name) != NULL;
        o->names[o->n] = name;
        o->values[o->n++] = o->other;
    }
    return true;
}

static bool read_object(struct bn_schema *s, struct object *o, const struct bn_json *schema)
{
    const struct bn_json *properties = bn_json_get(schema, "properties");
    const struct bn_json *required = bn_json_get(schema, "required");
    const struct bn_json *others = bn_json_get(schema, "additionalProperties");
    size_t room = bn_json_size(properties) + bn_json_size(required) + 1;
    o->names = bn_arena_alloc(&s->b->arena, room * sizeof *o->names);
    o->values = bn_arena_alloc(&s->b->arena, room * sizeof *o->values);
    o->required = bn_arena_alloc(&s->b->arena, room * sizeof *o->required);
    if (!o->names || !o->values || !o->required) return bn_builder_nomem(s->b);
    if (!read_properties(s, o, properties)) return false;
    if (bn_json_is_object(others))
        o->other = bn_schema_rule_of(s, others, "additionalProperties", NULL);
    else if (!bn_json_is_false(others)) o->other = bn_schema_shared(s, BN_RULE_VALUE);
    if (!read_required(s, o, required)) return false;
    /* not asked for beside named properties, others would only lead a model astray */
    if (!others && o->n > 0) o->other = NULL;
    return s->b->status == BITNET_OK;
}

static const struct bn_expr *pair(struct bn_schema *s, const struct object *o, size_t i)
{
    struct bn_json *name = bn_json_string(o->names[i]);
    if (!name) return bn_builder_nomem(s->b), NULL;
    const struct bn_expr *key = bn_schema_constant(s, name);
    bn_json_free(name);
    return BN_SEQ(s->b, key, mark(s, ":"), o->values[i]);
}

/* A rule of its own for an expression that is used twice. */
static const struct bn_expr *as_rule(struct bn_schema *s, const struct bn_expr *e)
{
    uint32_t rule = bn_rule_add(s->b, s->place.data, s->place.len);
    if (s->b->status != BITNET_OK) return NULL;
    s->b->rules[rule].expr = e;
    return bn_expr_rule(s->b, rule);
}

/* Built from the last property to the first: `after` is the rest behind a pair, `first` the rest
 * when none has come yet. */
const struct bn_expr *bn_schema_object(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    struct object o = {0};
    if (!read_object(s, &o, schema)) return NULL;
    if (o.n == 0 && o.other && !bn_json_get(schema, "additionalProperties"))
        return bn_schema_shared(s, BN_RULE_OBJECT);
    const struct bn_expr *after = text(s, ""), *first = after;
    if (o.other) {
        const struct bn_expr *other =
            as_rule(s, BN_SEQ(b, bn_schema_other_key(s, o.names, o.n), mark(s, ":"), o.other));
        after = bn_expr_repeat(b, BN_SEQ(b, mark(s, ","), other), 0, BN_GRAMMAR_UNLIMITED);
        first = bn_expr_repeat(b, BN_SEQ(b, other, after), 0, 1);
    }
    for (size_t i = o.n; i-- > 0 && b->status == BITNET_OK;) {
        const struct bn_expr *next = BN_SEQ(b, mark(s, ","), pair(s, &o, i));
        after = as_rule(s, after);
        const struct bn_expr *here = BN_SEQ(b, pair(s, &o, i), after);
        first = o.required[i] ? here : BN_ALT(b, here, as_rule(s, first));
        after = BN_SEQ(b, bn_expr_repeat(b, next, o.required[i], 1), after);
    }
    return BN_SEQ(b, text(s, "{"), first, text(s, "}"));
}

/* ------------------------------------------------------------------ arrays */

struct array {
    const struct bn_expr **prefix;
    uint32_t n_prefix, min, max;
    const struct bn_expr *item; /* NULL: none after the prefix */
};

static bool read_array(struct bn_schema *s, struct array *a, const struct bn_json *schema)
{
    const struct bn_json *prefix = bn_json_get(schema, "prefixItems");
    const struct bn_json *items = bn_json_get(schema, "items");
    if ((prefix && !bn_json_is_array(prefix)) || bn_json_is_array(items))
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED,
                              "'prefixItems' must be a list and 'items' a schema") != NULL;
    size_t n = bn_json_size(prefix);
    a->prefix = bn_arena_alloc(&s->b->arena, (n + 1) * sizeof *a->prefix);
    if (!a->prefix) return bn_builder_nomem(s->b);
    for (size_t i = 0; i < n; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        a->prefix[i] = bn_schema_rule_of(s, bn_json_at(prefix, i), "prefixItems", index);
    }
    a->n_prefix = (uint32_t)n;
    a->max = BN_GRAMMAR_UNLIMITED;
    if (!bn_schema_count(s, schema, "minItems", &a->min) ||
        !bn_schema_count(s, schema, "maxItems", &a->max))
        return false;
    /* items not spoken of: free ones where there is nothing else, or where they are needed */
    if (bn_json_is_object(items)) a->item = bn_schema_rule_of(s, items, "items", NULL);
    else if (bn_json_is_true(items) || (!items && (n == 0 || a->min > n)))
        a->item = bn_schema_shared(s, BN_RULE_VALUE);
    if (!a->item && a->max > n) a->max = a->n_prefix;
    if (a->min > a->max)
        return bn_schema_fail(s, BITNET_E_FORMAT, "at least %u items and at most %u", a->min,
                              a->max) != NULL;
    return s->b->status == BITNET_OK;
}

/* Built from the end: items that repeat, then the prefix (or the first item) one by one. */
const struct bn_expr *bn_schema_array(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    struct array a = {0};
    if (!read_array(s, &a, schema)) return NULL;
    uint32_t i = a.n_prefix > 0 ? a.n_prefix : 1;
    const struct bn_expr *rest = text(s, "");
    if (a.max > i)
        rest = bn_expr_repeat(b, BN_SEQ(b, mark(s, ","), a.item), a.min > i ? a.min - i : 0,
                              a.max == BN_GRAMMAR_UNLIMITED ? a.max : a.max - i);
    while (i-- > 0 && b->status == BITNET_OK) {
        if (i >= a.max) continue;
        const struct bn_expr *comma = i > 0 ? mark(s, ",") : text(s, "");
        const struct bn_expr *item = i < a.n_prefix ? a.prefix[i] : a.item;
        rest = as_rule(s, bn_expr_repeat(b, BN_SEQ(b, comma, item, rest), a.min > i, 1));
    }
    return BN_SEQ(b, text(s, "["), rest, text(s, "]"));
}
