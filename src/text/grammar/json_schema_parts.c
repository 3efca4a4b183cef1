/* SPDX-License-Identifier: Apache-2.0
 * JSON as rules: values of any kind, constants. */
#include "text/grammar/json_schema_impl.h"

#include <stdio.h>
#include <stdlib.h>

static const struct bn_expr *text(struct bn_schema *s, const char *t)
{
    return bn_expr_text(s->b, t);
}

/* ',' or ':' and, as the model likes, one space */
const struct bn_expr *bn_schema_mark(struct bn_schema *s, const char *m)
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
        bn_expr_repeat(b, BN_SEQ(b, bn_schema_mark(s, ","), item), 0, BN_GRAMMAR_UNLIMITED);
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
    return BN_SEQ(s->b, bn_schema_shared(s, BN_RULE_STRING), bn_schema_mark(s, ":"),
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

/* A whole number is written as one. */
const struct bn_expr *bn_schema_constant(struct bn_schema *s, const struct bn_json *value)
{
    double x = bn_json_is_real(value) ? bn_json_number(value) : 0.5;
    if (x == (double)(int64_t)x && x > -1e15 && x < 1e15) {
        char digits[24];
        snprintf(digits, sizeof digits, "%lld", (long long)x);
        return text(s, digits);
    }
    char *dump = bn_json_dump(value, BN_JSON_COMPACT);
    if (!dump) return bn_builder_nomem(s->b), NULL;
    const struct bn_expr *e = text(s, dump);
    free(dump);
    return e;
}

const struct bn_expr *bn_schema_as_rule(struct bn_schema *s, const struct bn_expr *e)
{
    uint32_t rule = bn_rule_add(s->b, s->place.data, s->place.len);
    if (s->b->status != BITNET_OK) return NULL;
    s->b->rules[rule].expr = e;
    return bn_expr_rule(s->b, rule);
}
