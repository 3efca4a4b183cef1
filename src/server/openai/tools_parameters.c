/* SPDX-License-Identifier: Apache-2.0
 * Arguments written one by one, as plain text where they are strings:
 *
 *     <parameter=city>
 *     Ulm
 *     </parameter>
 *
 * Which of them are JSON, and the grammar of it all:
 *
 *     f-arguments ::= "<parameter=city>\n" text "\n" ("<parameter=days>\n" f-arguments-1 ... )?
 *     f-arguments-1 ::= %json {...}
 *     text   ::= [^\n]* "\n" text1                        # up to its end, "\n</parameter>"
 *     text1  ::= "<" text2 | "\n" text1 | [^<\n] text     # one byte of that was there, and so on
 */
#include "server/openai/tools_impl.h"

#include <stdlib.h>

enum { MAX_DEPTH = 16 }; /* of schemas in schemas */

/* ------------------------------------------------------------------ kinds */

static bool all_strings(const struct bn_json *list)
{
    size_t i;
    const struct bn_json *v;
    bn_json_each(list, i, v)
    {
        if (!bn_json_is_string(v)) return false;
    }
    return true;
}

static bool is_text(const struct bn_json *schema, int depth);

static bool any_is_text(const struct bn_json *list, int depth)
{
    size_t i;
    const struct bn_json *v;
    bn_json_each(list, i, v)
    {
        if (is_text(v, depth)) return true;
    }
    return false;
}

static bool is_text(const struct bn_json *schema, int depth)
{
    const struct bn_json *type = bn_json_get(schema, "type"), *v;
    size_t i;
    if (bn_json_is_string(type)) return strcmp(bn_json_text(type), "string") == 0;
    bn_json_each(type, i, v)
    {
        if (bn_json_is_string(v) && strcmp(bn_json_text(v), "string") == 0) return true;
    }
    if (type || depth == MAX_DEPTH) return false;
    if ((v = bn_json_get(schema, "enum"))) return all_strings(v);
    if ((v = bn_json_get(schema, "const"))) return bn_json_is_string(v);
    if ((v = bn_json_get(schema, "anyOf")) || (v = bn_json_get(schema, "oneOf")))
        return any_is_text(v, depth + 1);
    return !bn_json_get(schema, "$ref") && !bn_json_get(schema, "allOf");
}

bool tools_is_text(const struct bn_json *schema) { return is_text(schema, 0); }

const struct bn_json *tools_parameter(const struct bn_json *list, const char *function,
                                      const char *key)
{
    size_t i;
    const struct bn_json *tool;
    bn_json_each(list, i, tool)
    {
        const struct bn_json *f = bn_json_get(tool, "function");
        if (strcmp(bn_json_text(bn_json_get(f, "name")), function) == 0)
            return bn_json_get(bn_json_get(bn_json_get(f, "parameters"), "properties"), key);
    }
    return NULL;
}

/* ------------------------------------------------------------------ grammar */

void tools_put_value_rules(struct bn_buf *b, const struct tools_format *f)
{
    const char *end = f->parameter_close;
    size_t n = strlen(end);
    bn_buf_puts(b, "text ::= [^\\n]* \"\\n\" text1\n"); /* its first byte */
    for (size_t i = 1; i < n; i++) {
        bn_buf_printf(b, "text%zu ::= \"%c\"", i, end[i]);
        if (i + 1 < n) bn_buf_printf(b, " text%zu", i + 1);
        bn_buf_printf(b, " | \"\\n\" text1 | [^%c\\n] text\n", end[i]);
    }
}

static bool is_required(const struct bn_json *parameters, const char *key)
{
    size_t i;
    const struct bn_json *v;
    bn_json_each(bn_json_get(parameters, "required"), i, v)
    {
        if (bn_json_is_string(v) && strcmp(bn_json_text(v), key) == 0) return true;
    }
    return false;
}

/* What can be said of an object whose members stand alone; of others the schema is refused. */
static bitnet_status check_parameters(const char *name, const struct bn_json *parameters,
                                      bitnet_error *err)
{
    static const char *const known[] = {
        "type",  "properties",  "required", "description", "title",   "additionalProperties",
        "$defs", "definitions", "$schema",  "examples",    "default", "strict"};
    const char *key;
    struct bn_json *v;
    bn_json_each_member(parameters, key, v)
    {
        size_t i = 0;
        while (i < BN_ARRAY_LEN(known) && strcmp(known[i], key) != 0) i++;
        if (i == BN_ARRAY_LEN(known))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "schema, at '%s-arguments#': '%.60s' cannot be kept where the model's "
                           "template has arguments written one by one",
                           name, key);
    }
    bn_json_each_member(bn_json_get(parameters, "properties"), key, v)
    {
        if (!*key || strpbrk(key, ">\n") || strlen(key) > TOOLS_MAX_KEY)
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "function '%s': a parameter called '%.60s' cannot be written", name,
                           key);
    }
    return BITNET_OK;
}

/* A schema of a property, with what its references point to. */
static bool put_schema(struct bn_buf *b, const struct bn_json *schema,
                       const struct bn_json *parameters)
{
    static const char *const shared[] = {"$defs", "definitions"};
    struct bn_json *made = bn_json_copy((struct bn_json *)schema);
    for (size_t i = 0; i < BN_ARRAY_LEN(shared); i++) {
        struct bn_json *v = bn_json_get(parameters, shared[i]);
        if (v && bn_json_is_object(made)) bn_json_set(made, shared[i], bn_json_ref(v));
    }
    char *text = made ? bn_json_dump(made, BN_JSON_COMPACT) : NULL;
    if (text) bn_buf_printf(b, "%%json %s\n", text);
    free(text);
    bn_json_free(made);
    return text != NULL;
}

/* A string that is one of a list, or any; with the end of the parameter. */
static void put_text_value(struct bn_buf *b, const struct tools_format *f,
                           const struct bn_json *schema)
{
    const struct bn_json *list = bn_json_get(schema, "enum"), *one = bn_json_get(schema, "const"),
                         *v;
    size_t i, n = 0;
    bn_json_each(list, i, v)
    {
        if (!bn_json_is_string(v)) continue;
        bn_buf_puts(b, n++ ? "| " : "(");
        tools_put_literal(b, (const char *const[]){bn_json_text(v), NULL});
    }
    if (n == 0 && bn_json_is_string(one)) {
        bn_buf_putc(b, '(');
        tools_put_literal(b, (const char *const[]){bn_json_text(one), NULL});
        n = 1;
    }
    if (n == 0) {
        bn_buf_puts(b, "text ");
        return;
    }
    bn_buf_puts(b, ") ");
    tools_put_literal(b, (const char *const[]){f->parameter_close, NULL});
}

bitnet_status tools_put_parameters(struct bn_buf *b, const struct tools_format *f, const char *name,
                                   const struct bn_json *parameters, bitnet_error *err)
{
    const struct bn_json *properties = bn_json_get(parameters, "properties");
    const char *key;
    struct bn_json *schema;
    size_t i = 0;
    BN_TRY(check_parameters(name, parameters, err));
    bn_buf_printf(b, "%s-arguments ::= ", name);
    bn_json_each_member(properties, key, schema)
    {
        bool required = is_required(parameters, key);
        if (!required) bn_buf_putc(b, '(');
        tools_put_literal(b, (const char *const[]){f->parameter, key, f->parameter_open, NULL});
        if (tools_is_text(schema)) {
            put_text_value(b, f, schema);
        } else {
            bn_buf_printf(b, "%s-arguments-%zu ", name, i);
            tools_put_literal(b, (const char *const[]){f->parameter_close, NULL});
        }
        bn_buf_puts(b, required ? "\"\\n\" " : "\"\\n\")? ");
        i++;
    }
    bn_buf_puts(b, i ? "\n" : "\"\"\n");
    i = 0;
    bn_json_each_member(properties, key, schema)
    {
        if (!tools_is_text(schema)) {
            bn_buf_printf(b, "%s-arguments-%zu ::= ", name, i);
            if (!put_schema(b, schema, parameters)) return bn_fail_nomem(err, 0, "a schema");
        }
        i++;
    }
    return BITNET_OK;
}
