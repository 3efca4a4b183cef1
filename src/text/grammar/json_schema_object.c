/* SPDX-License-Identifier: Apache-2.0
 * Objects: the declared keys in the schema's order, those that are not required left out as one likes,
 * then others, if there may be any. What may be a key, and which schemas its value must fit, is settled
 * here: for a declared name by trying it, for others by automata, one for every set of patterns that a
 * key may match. */
#include "text/grammar/json_schema_impl.h"

#include <stdlib.h>

enum { MAX_PATTERNS = 5, MAX_COUNTED = 64 };

struct object {
    const char **names; /* declared, then those only required */
    const struct bn_expr **values;
    bool *required;
    size_t n, room;
    const char **taken; /* no other key may be one of these */
    size_t n_taken;
    const struct bn_expr *other; /* any other pair; NULL: there are none */
    uint32_t min, max;           /* pairs */
};

static size_t find_name(const struct object *o, const char *name)
{
    size_t i = 0;
    while (i < o->n && strcmp(o->names[i], name) != 0) i++;
    return i;
}

static bool is_taken(const struct object *o, const char *name)
{
    size_t i = 0;
    while (i < o->n_taken && strcmp(o->taken[i], name) != 0) i++;
    return i < o->n_taken;
}

/* What is said of a key that is not in 'properties', when no pattern matches it. */
static const struct bn_json *others_of(const struct bn_json *schema)
{
    const struct bn_json *own = bn_json_get(schema, "additionalProperties");
    return own ? own : bn_json_get(schema, "unevaluatedProperties");
}

/* Not asked for beside named properties, others would only lead a model astray. Names that are only
 * forbidden are no such properties. */
static bool leaves_others(const struct bn_json *schema)
{
    const char *name;
    struct bn_json *value;
    bool named = false;
    bn_json_each_member(bn_json_get(schema, "properties"), name, value) named =
        named || !bn_json_is_false(value);
    return !named || others_of(schema);
}

/* The schema of a member's value; NULL after a failure. */
static const struct bn_json *member_schema(struct bn_schema *s, const struct bn_json *schema,
                                           const char *name)
{
    const struct bn_json *own = bn_json_get(bn_json_get(schema, "properties"), name);
    struct bn_json *parts = bn_schema_keep(s, bn_json_array()), *value;
    const char *pattern;
    if (own) bn_json_append(parts, bn_json_ref(own));
    bn_json_each_member(bn_json_get(schema, "patternProperties"), pattern, value)
    {
        if (bn_schema_key_matches(s, pattern, name)) bn_json_append(parts, bn_json_ref(value));
    }
    if (s->b->status != BITNET_OK) return NULL;
    if (bn_json_size(parts) == 0 && others_of(schema)) return others_of(schema);
    if (bn_json_size(parts) == 1) return bn_json_at(parts, 0);
    return bn_schema_keep(s, bn_json_size(parts) ? bn_json_pack("{sO}", "allOf", parts)
                                                 : bn_json_bool(true));
}

static bool add_member(struct bn_schema *s, struct object *o, const struct bn_json *schema,
                       const char *name, bool declared)
{
    const struct bn_json *names = bn_json_get(schema, "propertyNames");
    struct bn_json *text = names ? bn_json_string(name) : NULL;
    bool allowed = !names || bn_schema_valid(s, names, text);
    bn_json_free(text);
    if (is_taken(o, name) || s->b->status != BITNET_OK) return s->b->status == BITNET_OK;
    const struct bn_json *value =
        allowed ? member_schema(s, schema, name) : bn_schema_keep(s, bn_json_bool(false));
    if (!value) return false;
    o->taken[o->n_taken++] = name;
    if (bn_json_is_false(value)) return true;
    const struct bn_expr *e =
        bn_schema_rule_of(s, value, declared ? "properties" : NULL, declared ? name : NULL);
    if (!e || bn_schema_is_never(s, e)) return e != NULL;
    o->names[o->n] = name;
    o->values[o->n++] = e;
    return true;
}

/* The names that 'propertyNames' lists, if it does. */
static const struct bn_json *listed_names(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *names = bn_json_get(schema, "propertyNames");
    names = names ? bn_schema_normal(s, names) : NULL;
    return bn_json_get(names, "enum");
}

static bool read_members(struct bn_schema *s, struct object *o, const struct bn_json *schema)
{
    const struct bn_json *properties = bn_json_get(schema, "properties");
    const struct bn_json *required = bn_json_get(schema, "required"),
                         *listed = listed_names(s, schema);
    o->room = bn_json_size(properties) + bn_json_size(required) + bn_json_size(listed) + 1;
    o->names = bn_arena_alloc(&s->b->arena, o->room * sizeof *o->names);
    o->taken = bn_arena_alloc(&s->b->arena, o->room * sizeof *o->taken);
    o->values = bn_arena_alloc(&s->b->arena, o->room * sizeof *o->values);
    o->required = bn_arena_alloc(&s->b->arena, o->room * sizeof *o->required);
    if (!o->names || !o->taken || !o->values || !o->required) return bn_builder_nomem(s->b);
    for (size_t i = 0; i < bn_json_size(properties); i++)
        if (!add_member(s, o, schema, bn_json_key_at(properties, i), true)) return false;
    for (size_t i = 0; i < bn_json_size(required); i++) {
        const char *name = bn_json_text(bn_json_at(required, i));
        if (!add_member(s, o, schema, name, false)) return false;
        size_t k = find_name(o, name);
        if (k == o->n)
            return bn_schema_never(s, "'%.80s' is required and not allowed", name) != NULL;
        o->required[k] = true;
    }
    for (size_t i = 0; leaves_others(schema) && i < bn_json_size(listed); i++) {
        const char *name = bn_json_text(bn_json_at(listed, i));
        if (name && !add_member(s, o, schema, name, false)) return false;
    }
    return s->b->status == BITNET_OK;
}

/* ------------------------------------------------------------------ other keys */

static const struct bn_re *names_re(struct bn_schema *s, const struct object *o)
{
    struct bn_res alts = {0};
    for (size_t i = 0; i < o->n_taken; i++)
        bn_res_add(s->b, &alts, bn_re_text(s->b, o->taken[i], strlen(o->taken[i])));
    return alts.n ? bn_res_take(s->b, &alts, BN_RE_ALT) : NULL;
}

/* Pairs whose key matches the patterns of `set`, and no other. */
static bool add_others(struct bn_schema *s, struct bn_exprs *alts, const struct object *o,
                       const struct bn_json *schema, uint32_t set)
{
    const struct bn_json *patterns = bn_json_get(schema, "patternProperties");
    struct bn_builder *b = s->b;
    struct bn_json *parts = bn_schema_keep(s, bn_json_array());
    const struct bn_re *taken = names_re(s, o), *key = NULL, *names = NULL;
    if (bn_json_get(schema, "propertyNames") &&
        !bn_schema_string_shape(s, bn_json_get(schema, "propertyNames"), &names))
        return false;
    key = bn_re_both(b, names, bn_re_repeat(b, bn_re_any(b), 0, BN_GRAMMAR_UNLIMITED));
    if (taken) key = bn_re_but(b, key, taken);
    for (size_t i = 0; i < bn_json_size(patterns); i++) {
        struct bn_json *text = bn_json_string(bn_json_key_at(patterns, i));
        const struct bn_re *re = text ? bn_schema_pattern(s, text) : NULL;
        bn_json_free(text);
        if (!re) return b->status != BITNET_OK || bn_builder_nomem(b);
        key = set >> i & 1 ? bn_re_both(b, re, key) : bn_re_but(b, key, re);
        if (set >> i & 1) bn_json_append(parts, bn_json_ref(bn_json_value_at(patterns, i)));
    }
    const struct bn_json *rest = others_of(schema);
    if (set == 0 && (!leaves_others(schema) || (rest && bn_json_is_false(rest)))) return true;
    if (set == 0) bn_json_append(parts, rest ? bn_json_ref(rest) : bn_json_bool(true));
    const struct bn_dfa *d = bn_dfa_make(b, key);
    if (!d && b->status == BITNET_OK)
        bn_schema_fail(s, BITNET_E_LIMIT, "the keys need an automaton with too many states");
    if (!d || d->n_states == 0) return b->status == BITNET_OK;
    const struct bn_json *value = bn_json_size(parts) == 1
                                      ? bn_json_at(parts, 0)
                                      : bn_schema_keep(s, bn_json_pack("{sO}", "allOf", parts));
    const struct bn_expr *e =
        value
            ? bn_schema_rule_of(s, value, set ? "patternProperties" : "additionalProperties", NULL)
            : NULL;
    if (e && !bn_schema_is_never(s, e))
        bn_exprs_add(b, alts, BN_SEQ(b, bn_schema_quoted(s, d), bn_schema_mark(s, ":"), e));
    return b->status == BITNET_OK;
}

static bool read_others(struct bn_schema *s, struct object *o, const struct bn_json *schema)
{
    const struct bn_json *patterns = bn_json_get(schema, "patternProperties"),
                         *rest = others_of(schema);
    size_t n = bn_json_size(patterns);
    struct bn_builder *b = s->b;
    struct bn_exprs alts = {0};
    if (listed_names(s, schema)) return b->status == BITNET_OK; /* they are members now */
    if (n > MAX_PATTERNS)
        return bn_schema_fail(s, BITNET_E_LIMIT,
                              "%zu patterns of 'patternProperties', the most is %d", n,
                              MAX_PATTERNS) != NULL;
    if (n > 0 || bn_json_get(schema, "propertyNames")) {
        for (uint32_t set = 0; set < 1u << n; set++)
            if (!add_others(s, &alts, o, schema, set)) break;
    } else if (leaves_others(schema) && !bn_json_is_false(rest)) {
        const struct bn_expr *value = rest
                                          ? bn_schema_rule_of(s, rest, "additionalProperties", NULL)
                                          : bn_schema_shared(s, BN_RULE_VALUE);
        if (value && !bn_schema_is_never(s, value))
            bn_exprs_add(b, &alts,
                         BN_SEQ(b, bn_schema_other_key(s, o->taken, o->n_taken),
                                bn_schema_mark(s, ":"), value));
    }
    if (alts.n > 0) o->other = bn_schema_as_rule(s, bn_exprs_take(b, &alts, BN_EXPR_ALT));
    free(alts.v);
    return b->status == BITNET_OK;
}

/* ------------------------------------------------------------------ texts */

static const struct bn_expr *pair(struct bn_schema *s, const struct object *o, size_t i)
{
    struct bn_json *name = bn_json_string(o->names[i]);
    if (!name) return bn_builder_nomem(s->b), NULL;
    const struct bn_expr *key = bn_schema_constant(s, name);
    bn_json_free(name);
    return BN_SEQ(s->b, key, bn_schema_mark(s, ":"), o->values[i]);
}

/* Built from the last property to the first: `after` is the rest behind a pair, `first` the rest
 * when none has come yet. */
static const struct bn_expr *free_pairs(struct bn_schema *s, const struct object *o)
{
    struct bn_builder *b = s->b;
    const struct bn_expr *after = bn_expr_text(b, ""), *first = after;
    if (o->other) {
        after =
            bn_expr_repeat(b, BN_SEQ(b, bn_schema_mark(s, ","), o->other), 0, BN_GRAMMAR_UNLIMITED);
        first = bn_expr_repeat(b, BN_SEQ(b, o->other, after), 0, 1);
    }
    for (size_t i = o->n; i-- > 0 && b->status == BITNET_OK;) {
        const struct bn_expr *next = BN_SEQ(b, bn_schema_mark(s, ","), pair(s, o, i));
        after = bn_schema_as_rule(s, after);
        const struct bn_expr *here = BN_SEQ(b, pair(s, o, i), after);
        first = o->required[i] ? here : BN_ALT(b, here, bn_schema_as_rule(s, first));
        after = BN_SEQ(b, bn_expr_repeat(b, next, o->required[i], 1), after);
    }
    return first;
}

/* With a number of pairs to keep to: states are how many properties have been passed and how many of
 * them are there. All other keys together count as one towards the least, since one may come twice. */
struct counted {
    struct bn_schema *s;
    const struct object *o;
    struct bn_edges edges;
    bool *final;
    uint32_t width; /* states of each property: 0 to so many pairs */
};

static void add_tail(struct counted *c, uint32_t state, uint32_t pairs)
{
    const struct object *o = c->o;
    struct bn_builder *b = c->s->b;
    uint32_t end = ((uint32_t)o->n + 1) * c->width; /* the last state */
    c->final[state] = pairs >= o->min;
    if (!o->other || pairs >= o->max || pairs + 1 < o->min) return;
    uint32_t more = o->max == BN_GRAMMAR_UNLIMITED ? o->max : o->max - pairs - 1;
    const struct bn_expr *first = pairs ? BN_SEQ(b, bn_schema_mark(c->s, ","), o->other) : o->other;
    const struct bn_expr *rest =
        bn_expr_repeat(b, BN_SEQ(b, bn_schema_mark(c->s, ","), o->other), 0, more);
    bn_edges_add(b, &c->edges, state, end, BN_SEQ(b, first, rest));
}

/* From a state, every property that may come next: those between are left out. */
static void add_pairs(struct counted *c, size_t from, uint32_t pairs)
{
    const struct object *o = c->o;
    struct bn_builder *b = c->s->b;
    uint32_t state = (uint32_t)from * c->width + pairs;
    size_t i = from;
    for (; i < o->n && pairs < o->max && b->status == BITNET_OK; i++) {
        const struct bn_expr *e = pair(c->s, o, i);
        if (pairs) e = BN_SEQ(b, bn_schema_mark(c->s, ","), e);
        bn_edges_add(b, &c->edges, state, (uint32_t)(i + 1) * c->width + pairs + 1, e);
        if (o->required[i]) return;
    }
    for (; i < o->n; i++)
        if (o->required[i]) return;
    add_tail(c, state, pairs);
}

static const struct bn_expr *counted_pairs(struct bn_schema *s, const struct object *o)
{
    struct bn_builder *b = s->b;
    struct counted c = {.s = s, .o = o, .width = (uint32_t)o->n + 1};
    if (o->n > MAX_COUNTED)
        return bn_schema_fail(
            s, BITNET_E_LIMIT,
            "%zu properties beside 'minProperties' or 'maxProperties', the most is %d", o->n,
            MAX_COUNTED);
    if (o->min > o->n + (o->other != NULL))
        return o->other && o->min <= o->max
                   ? bn_schema_fail(
                         s, BITNET_E_UNSUPPORTED,
                         "'minProperties' %u: more than one key that is not named cannot be "
                         "enforced, since the same may come twice",
                         o->min)
                   : bn_schema_never(s, "'minProperties' %u is more than there may be", o->min);
    uint32_t n = ((uint32_t)o->n + 1) * c.width + 1;
    c.final = bn_calloc(n, sizeof *c.final);
    if (!c.final) return bn_builder_nomem(b), NULL;
    for (size_t from = 0; from <= o->n; from++)
        for (uint32_t pairs = 0; pairs <= from; pairs++) add_pairs(&c, from, pairs);
    c.final[n - 1] = true;
    const struct bn_expr *e = bn_edges_take(b, &c.edges, c.final, n);
    free(c.final);
    return e;
}

const struct bn_expr *bn_schema_object(struct bn_schema *s, const struct bn_json *schema)
{
    struct bn_builder *b = s->b;
    struct object o = {.max = BN_GRAMMAR_UNLIMITED};
    if (!bn_schema_count(s, schema, "minProperties", &o.min) ||
        !bn_schema_count(s, schema, "maxProperties", &o.max) || !read_members(s, &o, schema))
        return NULL;
    for (size_t i = 0; i < bn_json_size(bn_json_get(schema, "required")); i++)
        if (find_name(&o, bn_json_text(bn_json_at(bn_json_get(schema, "required"), i))) == o.n)
            return s->never;
    if (!read_others(s, &o, schema)) return NULL;
    bool counted = o.min > 0 || o.max != BN_GRAMMAR_UNLIMITED;
    if (o.n_taken == 0 && !counted && bn_json_size(bn_json_get(schema, "patternProperties")) == 0 &&
        !bn_json_get(schema, "propertyNames") && !others_of(schema))
        return bn_schema_shared(s, BN_RULE_OBJECT);
    const struct bn_expr *pairs = counted ? counted_pairs(s, &o) : free_pairs(s, &o);
    if (bn_schema_is_never(s, pairs)) return pairs;
    return BN_SEQ(b, bn_expr_text(b, "{"), pairs, bn_expr_text(b, "}"));
}
