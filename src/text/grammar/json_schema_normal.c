/* SPDX-License-Identifier: Apache-2.0
 * Schemas in one form: older drafts' and OpenAPI's ways to say things rewritten, references followed,
 * 'allOf' merged. What is left of the keywords that hold schemas about the same value are 'anyOf',
 * 'oneOf', 'not', 'if' and the dependent ones; json_schema.c takes these one by one. */
#include "text/grammar/json_schema_impl.h"

#include <stdlib.h>

/* ------------------------------------------------------------------ references */

/* One step of a JSON pointer as it stands in a URI; false: too long. */
static bool pointer_step(char *out, size_t room, const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned hex;
        char c = p[i], digits[3] = {0};
        if (k + 1 == room) return false;
        if (c == '%' && i + 2 < n + 0 && memcpy(digits, p + i + 1, 2) &&
            strspn(digits, "0123456789abcdefABCDEF") == 2) {
            hex = (unsigned)strtoul(digits, NULL, 16);
            c = (char)hex;
            i += 2;
        }
        out[k++] = c;
    }
    size_t to = 0;
    for (size_t i = 0; i < k; i++) {
        bool escape = out[i] == '~' && i + 1 < k && (out[i + 1] == '0' || out[i + 1] == '1');
        out[to++] = escape ? (out[++i] == '1' ? '/' : '~') : out[i];
    }
    out[to] = '\0';
    return true;
}

static const struct bn_json *follow_pointer(const struct bn_json *at, const char *p)
{
    while (at && *p) {
        char step[256];
        size_t n = strcspn(p + 1, "/");
        if (*p != '/' || !pointer_step(step, sizeof step, p + 1, n)) return NULL;
        if (bn_json_is_array(at)) {
            char *end;
            unsigned long i = strtoul(step, &end, 10);
            at = *step >= '0' && *step <= '9' && !*end ? bn_json_at(at, i) : NULL;
        } else {
            at = bn_json_get(at, step);
        }
        p += 1 + n;
    }
    return at;
}

/* The schema below one with "$anchor": name. */
static const struct bn_json *find_anchor(const struct bn_json *at, const char *name, int depth)
{
    static const char *const keys[] = {"$anchor", "$dynamicAnchor"};
    if (depth > BN_GRAMMAR_MAX_NESTING) return NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++) {
        const char *own = bn_json_text(bn_json_get(at, keys[i]));
        if (own && strcmp(own, name) == 0) return at;
    }
    for (size_t i = 0; i < bn_json_size(at); i++) {
        const char *key = bn_json_key_at(at, i);
        if (key && (strcmp(key, "enum") == 0 || strcmp(key, "const") == 0)) continue;
        const struct bn_json *v =
            bn_json_is_array(at) ? bn_json_at(at, i) : bn_json_value_at(at, i);
        const struct bn_json *found = find_anchor(v, name, depth + 1);
        if (found) return found;
    }
    return NULL;
}

const struct bn_json *bn_schema_find(struct bn_schema *s, const char *ref)
{
    const char *id = bn_json_text(bn_json_get(s->root, "$id")), *at = ref;
    size_t n = id ? strcspn(id, "#") : 0;
    if (n > 0 && strncmp(ref, id, n) == 0 && (ref[n] == '#' || !ref[n])) at = ref + n;
    const struct bn_json *found = NULL;
    if (!*at || strcmp(at, "#") == 0) found = at == ref && !*ref ? NULL : s->root;
    else if (at[0] == '#' && at[1] == '/') found = follow_pointer(s->root, at + 1);
    else if (at[0] == '#') found = find_anchor(s->root, at + 1, 0);
    if (!found)
        bn_schema_fail(s, BITNET_E_UNSUPPORTED, "'$ref' to '%.80s', which is not in this document",
                       ref);
    return found;
}

/* ------------------------------------------------------------------ older forms */

struct bn_json *bn_schema_keep(struct bn_schema *s, struct bn_json *made)
{
    if (!made || !bn_json_append(s->made, made)) return bn_builder_nomem(s->b), NULL;
    return made;
}

static void rename_key(struct bn_json *schema, const char *from, const char *to)
{
    struct bn_json *v = bn_json_get(schema, from);
    if (!v) return;
    bn_json_set(schema, to, bn_json_ref(v));
    bn_json_del(schema, from);
}

/* "type": "string", "nullable": true */
static void allow_null(struct bn_json *schema)
{
    struct bn_json *type = bn_json_get(schema, "type"), *list = bn_json_get(schema, "enum");
    bool nullable = bn_json_is_true(bn_json_get(schema, "nullable"));
    bn_json_del(schema, "nullable");
    if (!nullable) return;
    if (!type) { /* beside "$ref", "anyOf", ...: or null */
        struct bn_json *rest = bn_json_copy(schema);
        struct bn_json *either = bn_json_pack("[o{ss}]", rest, "type", "null");
        while (bn_json_size(schema) > 0) bn_json_del(schema, bn_json_key_at(schema, 0));
        bn_json_set(schema, "anyOf", either);
        return;
    }
    struct bn_json *types = bn_json_is_array(type) ? bn_json_copy(type) : bn_json_pack("[O]", type);
    bn_json_append(types, bn_json_string("null"));
    bn_json_set(schema, "type", types);
    if (!bn_json_is_array(list)) return;
    struct bn_json *values = bn_json_copy(list);
    bn_json_append(values, bn_json_null());
    bn_json_set(schema, "enum", values);
}

/* "exclusiveMinimum": true says that of "minimum". */
static void exclude_bound(struct bn_json *schema, const char *exclusive, const char *bound)
{
    struct bn_json *v = bn_json_get(schema, exclusive);
    if (!bn_json_is_bool(v)) return;
    bool strict = bn_json_is_true(v);
    bn_json_del(schema, exclusive);
    if (strict) rename_key(schema, bound, exclusive);
}

/* "dependencies": of names or of schemas. */
static void split_dependencies(struct bn_json *schema)
{
    struct bn_json *all = bn_json_get(schema, "dependencies"), *v;
    if (!bn_json_is_object(all)) return;
    struct bn_json *names = bn_json_object(), *schemas = bn_json_object();
    const char *key;
    bn_json_each_member(all, key, v)
        bn_json_set(bn_json_is_array(v) ? names : schemas, key, bn_json_ref(v));
    bn_json_set(schema, "dependentRequired", names);
    bn_json_set(schema, "dependentSchemas", schemas);
    bn_json_del(schema, "dependencies");
}

static bool is_old(const struct bn_json *schema)
{
    return bn_json_get(schema, "nullable") ||
           bn_json_is_bool(bn_json_get(schema, "exclusiveMinimum")) ||
           bn_json_is_bool(bn_json_get(schema, "exclusiveMaximum")) ||
           bn_json_is_array(bn_json_get(schema, "items")) || bn_json_get(schema, "dependencies") ||
           bn_json_get(schema, "additionalItems") || bn_json_get(schema, "$dynamicRef") ||
           bn_json_get(schema, "$recursiveRef");
}

static const struct bn_json *modern(struct bn_schema *s, const struct bn_json *schema)
{
    if (!is_old(schema)) return schema;
    struct bn_json *copy = bn_schema_keep(s, bn_json_copy(schema));
    if (!copy) return NULL;
    allow_null(copy);
    exclude_bound(copy, "exclusiveMinimum", "minimum");
    exclude_bound(copy, "exclusiveMaximum", "maximum");
    split_dependencies(copy);
    if (bn_json_is_array(bn_json_get(copy, "items"))) {
        rename_key(copy, "items", "prefixItems");
        rename_key(copy, "additionalItems", "items");
    }
    bn_json_del(copy, "additionalItems");
    if (!bn_json_get(copy, "$ref")) {
        rename_key(copy, "$dynamicRef", "$ref");
        rename_key(copy, "$recursiveRef", "$ref");
    }
    return bn_json_whole(copy) ? copy : (bn_builder_nomem(s->b), NULL);
}

/* ------------------------------------------------------------------ the one form */

/* 'unevaluated...' looks at everything that is said about the value here, so it waits until that is
 * merged. */
static const char *const unevaluated[][2] = {{"unevaluatedProperties", "additionalProperties"},
                                             {"unevaluatedItems", "items"}};

static const struct bn_json *with_unevaluated(struct bn_schema *s, const struct bn_json *sum,
                                              const struct bn_json *schema)
{
    for (size_t i = 0; sum && i < BN_ARRAY_LEN(unevaluated); i++) {
        struct bn_json *v = bn_json_get(schema, unevaluated[i][0]);
        if (!v || bn_json_is_true(v) || !bn_json_is_object(sum) ||
            bn_json_get(sum, unevaluated[i][1]))
            continue;
        struct bn_json *copy = bn_schema_keep(s, bn_json_copy(sum));
        if (!copy || !bn_json_set(copy, unevaluated[i][0], bn_json_ref(v)))
            return bn_builder_nomem(s->b), NULL;
        sum = copy;
    }
    return sum;
}

const struct bn_json *bn_schema_merge_own(struct bn_schema *s, const struct bn_json *a,
                                          const struct bn_json *b)
{
    const struct bn_json *rest = a;
    for (size_t i = 0; rest && i < BN_ARRAY_LEN(unevaluated); i++)
        if (bn_json_get(rest, unevaluated[i][0]))
            rest = bn_schema_without(s, rest, unevaluated[i][0]);
    const struct bn_json *sum = rest ? bn_schema_merge(s, rest, b) : NULL;
    return sum ? with_unevaluated(s, sum, a) : NULL;
}

static const struct bn_json *merge_all(struct bn_schema *s, const struct bn_json *schema)
{
    const struct bn_json *list = bn_json_get(schema, "allOf"), *ref = bn_json_get(schema, "$ref");
    struct bn_json *rest = bn_schema_keep(s, bn_json_copy(schema));
    if (!rest) return NULL;
    if (list && (!bn_json_is_array(list) || bn_json_size(list) == 0))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'allOf' is not a list of schemas"), NULL;
    if (ref && !bn_json_is_string(ref))
        return bn_schema_fail(s, BITNET_E_FORMAT, "'$ref' is not a string"), NULL;
    bn_json_del(rest, "allOf");
    bn_json_del(rest, "$ref");
    for (size_t i = 0; i < BN_ARRAY_LEN(unevaluated); i++) bn_json_del(rest, unevaluated[i][0]);
    const struct bn_json *sum = rest;
    if (ref) {
        const struct bn_json *target = bn_schema_find(s, bn_json_text(ref));
        sum = target ? bn_schema_merge(s, sum, target) : NULL;
    }
    for (size_t i = 0; sum && i < bn_json_size(list); i++)
        sum = bn_schema_merge(s, sum, bn_json_at(list, i));
    return sum ? with_unevaluated(s, sum, schema) : NULL;
}

const struct bn_json *bn_schema_normal(struct bn_schema *s, const struct bn_json *schema)
{
    if (s->b->status != BITNET_OK) return NULL;
    if (bn_json_is_bool(schema)) return schema;
    if (!bn_json_is_object(schema))
        return bn_schema_fail(s, BITNET_E_FORMAT,
                              "a schema is neither an object nor true or false"),
               NULL;
    schema = modern(s, schema);
    if (!schema || !bn_schema_check(s, schema)) return NULL;
    if (!bn_json_get(schema, "$ref") && !bn_json_get(schema, "allOf")) return schema;
    if (++s->nesting > BN_GRAMMAR_MAX_NESTING)
        return bn_schema_fail(s, BITNET_E_LIMIT, "schemas more than %d deep",
                              BN_GRAMMAR_MAX_NESTING),
               NULL;
    const struct bn_json *sum = merge_all(s, schema);
    s->nesting--;
    return sum;
}

const struct bn_json *bn_schema_without(struct bn_schema *s, const struct bn_json *schema,
                                        const char *key)
{
    struct bn_json *copy = bn_schema_keep(s, bn_json_copy(schema));
    if (copy) bn_json_del(copy, key);
    return copy;
}
