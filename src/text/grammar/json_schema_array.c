/* SPDX-License-Identifier: Apache-2.0
 * Arrays: a prefix, then items that repeat; some of them of a certain kind ('contains'); all of them
 * different, where they can be listed. */
#include "text/grammar/json_schema_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_STATES = 4096, MAX_LISTED = 10 };

struct array {
    const struct bn_json *prefix, *items; /* items NULL: not spoken of */
    uint32_t n_prefix, min, max;
};

/* The schema of item i; NULL: any. */
static const struct bn_json *item_at(const struct array *a, size_t i)
{
    const struct bn_json *own = bn_json_at(a->prefix, i);
    return own ? own : a->items;
}

static const struct bn_expr *item_expr(struct bn_schema *s, const struct array *a, uint32_t i)
{
    char index[24];
    const struct bn_json *item = item_at(a, i);
    if (!item) return bn_schema_shared(s, BN_RULE_VALUE);
    if (i >= a->n_prefix) return bn_schema_rule_of(s, item, "items", NULL);
    snprintf(index, sizeof index, "%u", i);
    return bn_schema_rule_of(s, item, "prefixItems", index);
}

static const struct bn_expr *behind_comma(struct bn_schema *s, uint32_t i,
                                          const struct bn_expr *item)
{
    return i > 0 ? BN_SEQ(s->b, bn_schema_mark(s, ","), item) : item;
}

static bool read_array(struct bn_schema *s, struct array *a, const struct bn_json *schema)
{
    a->prefix = bn_json_get(schema, "prefixItems");
    a->items = bn_json_get(schema, "items");
    if (!a->items) a->items = bn_json_get(schema, "unevaluatedItems");
    a->n_prefix = (uint32_t)bn_json_size(a->prefix);
    a->max = BN_GRAMMAR_UNLIMITED;
    if (!bn_schema_count(s, schema, "minItems", &a->min) ||
        !bn_schema_count(s, schema, "maxItems", &a->max))
        return false;
    /* not spoken of: free items where there is nothing else, or where they are needed */
    bool none =
        bn_json_is_false(a->items) ||
        (!a->items && a->n_prefix > 0 && a->min <= a->n_prefix && !bn_json_get(schema, "contains"));
    if (none && a->max > a->n_prefix) a->max = a->n_prefix;
    return true;
}

/* Where an item cannot be, the array ends before it. */
static bool find_end(struct bn_schema *s, struct array *a)
{
    for (uint32_t i = 0; i <= a->n_prefix && i < a->max; i++) {
        const struct bn_expr *e = item_expr(s, a, i);
        if (!e) return false;
        if (bn_schema_is_never(s, e)) a->max = i;
    }
    return true;
}

/* Built from the end: items that repeat, then the prefix (or the first item) one by one. */
static const struct bn_expr *free_items(struct bn_schema *s, const struct array *a)
{
    struct bn_builder *b = s->b;
    uint32_t i = a->n_prefix > 0 ? a->n_prefix : 1;
    const struct bn_expr *rest = bn_expr_text(b, "");
    if (a->max > i)
        rest =
            bn_expr_repeat(b, behind_comma(s, i, item_expr(s, a, i)), a->min > i ? a->min - i : 0,
                           a->max == BN_GRAMMAR_UNLIMITED ? a->max : a->max - i);
    while (i-- > 0 && b->status == BITNET_OK) {
        if (i >= a->max) continue;
        const struct bn_expr *item = behind_comma(s, i, item_expr(s, a, i));
        rest = bn_schema_as_rule(s, bn_expr_repeat(b, BN_SEQ(b, item, rest), a->min > i, 1));
    }
    return rest;
}

/* ------------------------------------------------------------------ contains */

struct some {
    const struct bn_json *schema, *other; /* what to contain; its opposite, with a most */
    uint32_t min, max;
};

/* An item that is of that kind, or is not. */
static const struct bn_expr *item_of(struct bn_schema *s, const struct array *a, uint32_t i,
                                     const struct bn_json *kind)
{
    const struct bn_json *item = item_at(a, i), *any = bn_schema_keep(s, bn_json_object());
    if (!kind) return item_expr(s, a, i);
    const struct bn_json *one = any ? bn_schema_merge(s, any, item ? item : any) : NULL;
    const struct bn_json *both = one ? bn_schema_merge(s, one, kind) : NULL;
    return both ? bn_schema_rule_of(s, both, "contains", NULL) : NULL;
}

/* States: how many items there are, up to where it does not matter any more, and how many of the kind. */
static const struct bn_expr *some_items(struct bn_schema *s, const struct array *a,
                                        const struct some *c)
{
    struct bn_builder *b = s->b;
    struct bn_edges edges = {0};
    bool counted = c->max != BN_GRAMMAR_UNLIMITED;
    uint32_t last = a->max != BN_GRAMMAR_UNLIMITED ? a->max
                    : a->min > a->n_prefix         ? a->min
                                                   : a->n_prefix;
    if (last == 0) last = 1;
    uint64_t kinds = (uint64_t)(counted ? c->max : c->min) + 1, n = (last + 1) * kinds;
    if (n > MAX_STATES)
        return bn_schema_fail(s, BITNET_E_LIMIT, "'contains' needs %llu states, the most is %d",
                              (unsigned long long)n, MAX_STATES);
    bool *final = bn_calloc(n, sizeof *final);
    if (!final) return bn_builder_nomem(b), NULL;
    for (uint32_t i = 0; i <= last && b->status == BITNET_OK; i++)
        for (uint32_t k = 0; k < kinds && b->status == BITNET_OK; k++) {
            uint32_t state = i * (uint32_t)kinds + k, next = i < last ? i + 1 : i;
            final[state] = i >= a->min && k >= c->min;
            if (i == last && a->max != BN_GRAMMAR_UNLIMITED) continue;
            const struct bn_expr *yes = item_of(s, a, i, c->schema),
                                 *no = item_of(s, a, i, c->other);
            uint32_t more = k + 1 < kinds ? k + 1 : k;
            if (yes && !bn_schema_is_never(s, yes) && !(counted && more == k))
                bn_edges_add(b, &edges, state, next * (uint32_t)kinds + more,
                             behind_comma(s, i, yes));
            if (no && !bn_schema_is_never(s, no))
                bn_edges_add(b, &edges, state, next * (uint32_t)kinds + k, behind_comma(s, i, no));
        }
    const struct bn_expr *e = bn_edges_take(b, &edges, final, (uint32_t)n);
    free(final);
    return e;
}

static bool read_some(struct bn_schema *s, struct some *c, const struct bn_json *schema)
{
    *c = (struct some){
        .schema = bn_json_get(schema, "contains"), .min = 1, .max = BN_GRAMMAR_UNLIMITED};
    if (!c->schema || !bn_schema_count(s, schema, "minContains", &c->min) ||
        !bn_schema_count(s, schema, "maxContains", &c->max))
        return false;
    if (c->max != BN_GRAMMAR_UNLIMITED)
        c->other = bn_schema_keep(s, bn_json_pack("{sO}", "not", c->schema));
    return c->min > 0 || c->max != BN_GRAMMAR_UNLIMITED;
}

/* ------------------------------------------------------------------ uniqueItems */

static bool add_value(struct bn_schema *s, struct bn_json *list, const struct bn_json *schema,
                      struct bn_json *v)
{
    bool known = !bn_schema_valid(s, schema, v);
    for (size_t i = 0; i < bn_json_size(list); i++)
        known = known || bn_schema_same(bn_json_at(list, i), v);
    if (known) bn_json_free(v);
    else bn_json_append(list, v);
    return bn_json_size(list) <= MAX_LISTED;
}

/* Adds all values of a schema; false: there are too many. `with`: what else they must fit. */
static bool list_values(struct bn_schema *s, struct bn_json *list, const struct bn_json *schema,
                        const struct bn_json *with)
{
    schema = bn_schema_normal(s, schema);
    const struct bn_json *values = bn_json_get(schema, "enum"),
                         *constant = bn_json_get(schema, "const");
    const struct bn_json *any = bn_json_get(schema, "anyOf");
    uint32_t types = 0;
    if (!any) any = bn_json_get(schema, "oneOf");
    if (!schema || bn_json_is_true(schema)) return false;
    if (constant) return add_value(s, list, with, bn_json_ref(constant));
    for (size_t i = 0; i < bn_json_size(values); i++)
        if (!add_value(s, list, with, bn_json_ref(bn_json_at(values, i)))) return false;
    for (size_t i = 0; !values && i < bn_json_size(any); i++)
        if (!list_values(s, list, bn_json_at(any, i), with)) return false;
    if (values || any || bn_json_is_false(schema)) return true;
    if (!bn_schema_types(s, schema, &types) || !types) return false;
    double lo = bn_json_number(bn_json_get(schema, "minimum")),
           hi = bn_json_number(bn_json_get(schema, "maximum"));
    bool range = bn_json_get(schema, "minimum") && bn_json_get(schema, "maximum") &&
                 hi - lo < 2 * MAX_LISTED;
    if (types & ~(uint32_t)(BN_TYPE_NULL | BN_TYPE_BOOLEAN | (range ? BN_TYPE_INTEGER : 0)))
        return false;
    for (double x = ceil(lo); types & BN_TYPE_INTEGER && x <= hi; x++)
        if (!add_value(s, list, with, bn_json_int((int64_t)x))) return false;
    if (types & BN_TYPE_NULL && !add_value(s, list, with, bn_json_null())) return false;
    for (int v = 0; types & BN_TYPE_BOOLEAN && v < 2; v++)
        if (!add_value(s, list, with, bn_json_bool(v))) return false;
    return true;
}

/* States: the set of values that are there. */
static const struct bn_expr *unique_items(struct bn_schema *s, const struct array *a)
{
    struct bn_builder *b = s->b;
    struct bn_json *list = bn_schema_keep(s, bn_json_array());
    for (uint32_t i = 0; i < a->n_prefix + (a->max > a->n_prefix); i++) {
        const struct bn_json *item = item_at(a, i);
        if (item && list_values(s, list, item, item)) continue;
        return bn_schema_fail(
            s, BITNET_E_UNSUPPORTED,
            "'uniqueItems' where the items are not among at most %d values that are listed",
            MAX_LISTED);
    }
    size_t n = bn_json_size(list);
    struct bn_edges edges = {0};
    bool *final = bn_calloc((size_t)1 << n, sizeof *final);
    if (!list || !final) return bn_builder_nomem(b), NULL;
    for (uint32_t set = 0; set < 1u << n && b->status == BITNET_OK; set++) {
        uint32_t i = (uint32_t)__builtin_popcount(set);
        final[set] = i >= a->min;
        for (size_t k = 0; k < n && i < a->max; k++) {
            const struct bn_json *v = bn_json_at(list, k);
            if (set >> k & 1 || !bn_schema_valid(s, item_at(a, i) ? item_at(a, i) : v, v)) continue;
            bn_edges_add(b, &edges, set, set | 1u << k,
                         behind_comma(s, i, bn_schema_constant(s, v)));
        }
    }
    const struct bn_expr *e = bn_edges_take(b, &edges, final, 1u << n);
    free(final);
    return e;
}

const struct bn_expr *bn_schema_array(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    struct array a = {0};
    struct some some;
    bool unique = bn_json_is_true(bn_json_get(schema, "uniqueItems"));
    if (!read_array(s, &a, schema) || !find_end(s, &a)) return NULL;
    if (a.min > a.max) return bn_schema_never(s, "at least %u items and at most %u", a.min, a.max);
    bool contains = read_some(s, &some, schema);
    if (s->b->status != BITNET_OK) return NULL;
    if (unique && a.max > 1 && contains)
        return bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'uniqueItems' beside 'contains'");
    const struct bn_expr *items = unique && a.max > 1 ? unique_items(s, &a)
                                  : contains          ? some_items(s, &a, &some)
                                                      : free_items(s, &a);
    return BN_SEQ(b, bn_expr_text(b, "["), items, bn_expr_text(b, "]"));
}
