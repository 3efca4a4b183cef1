/* SPDX-License-Identifier: Apache-2.0
 * The constraint on a choice, as GBNF with the schemas of the functions in it. With the tags of in_tags:
 *
 *     root   ::= [^<]* ("<" said1)?                       # text, up to what may be a marker
 *     said1  ::= ("t" said2 | "<" said1 | [^t<] root)?    # one byte of it was there, and so on
 *     said10 ::= (">" answer | "<" said1 | [^><] root)?
 *     answer ::= call ("\n<tool_call>" call){0,31}
 *     call   ::= "\n{\"name\": \"" ("f\", \"arguments\": " f-arguments | ...) "}\n</tool_call>"
 *     f-arguments ::= %json {...}
 *
 * Where a call is required, the root is the marker and answer. A text without markers stays at one
 * place of the grammar, so that its mask is made once.
 */
#include "server/openai/tools_impl.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_GRAMMAR = 1 << 20 }; /* bytes; the engine takes no longer ones */

void tools_put_literal(struct bn_buf *b, const char *const *texts)
{
    bn_buf_putc(b, '"');
    for (; *texts; texts++)
        for (const char *s = *texts; *s; s++) {
            if (*s == '\n') bn_buf_puts(b, "\\n");
            else bn_buf_printf(b, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
        }
    bn_buf_puts(b, "\" ");
}
#define PUT_LITERAL(b, ...) tools_put_literal(b, (const char *const[]){__VA_ARGS__, NULL})

/* Text that may turn into a call: a state for every byte of the marker that has just been there. A
 * marker that is not completed starts again with its first byte only, as no other byte equals that. */
static void put_text(struct bn_buf *b, const struct tools_format *f)
{
    size_t n = strlen(f->marker);
    for (size_t i = 0; i < n; i++) {
        char next[24], c[2] = {f->marker[i]}, first[2] = {f->marker[0]};
        if (i + 1 < n) snprintf(next, sizeof next, "said%zu", i + 1);
        else snprintf(next, sizeof next, "answer");
        if (i > 0) bn_buf_printf(b, "said%zu ::= (", i);
        else if (f->at_start) bn_buf_puts(b, "root ::= (");
        else bn_buf_printf(b, "root ::= [^%s]* (", c);
        PUT_LITERAL(b, c);
        bn_buf_puts(b, next);
        if (f->at_start) {
            bn_buf_printf(b, " | [^%s] .*", c);
        } else if (i > 0) {
            bn_buf_puts(b, " | ");
            PUT_LITERAL(b, first);
            bn_buf_printf(b, "said1 | [^%s%s] root", c, first);
        }
        bn_buf_puts(b, ")?\n");
    }
}

/* Arguments are an object, also if the schema forgets to say so; without a schema there are none. */
static bool put_schema(struct bn_buf *b, const struct bn_json *parameters)
{
    struct bn_json *schema = bn_json_is_object(parameters)
                                 ? bn_json_copy((struct bn_json *)parameters)
                                 : bn_json_pack("{s{}sb}", "properties", "additionalProperties", 0);
    bool ok = schema && bn_json_set(schema, "type", bn_json_string("object"));
    char *text = ok ? bn_json_dump(schema, BN_JSON_COMPACT) : NULL;
    if (text) bn_buf_printf(b, "%%json %s\n", text);
    free(text);
    bn_json_free(schema);
    return text != NULL;
}

static bitnet_status put_arguments(struct bn_buf *b, const struct tools *t, size_t i,
                                   bitnet_error *err)
{
    const char *name = tools_name(t, i);
    const struct bn_json *parameters = bn_json_get(tools_function(t, i), "parameters");
    if (t->format->parameter) return tools_put_parameters(b, t->format, name, parameters, err);
    bn_buf_printf(b, "%s-arguments ::= ", name);
    return put_schema(b, parameters) ? BITNET_OK : bn_fail_nomem(err, 0, "the grammar of tools");
}

static bitnet_status put_functions(struct bn_buf *b, const struct tools *t, bitnet_error *err)
{
    const struct tools_format *f = t->format;
    bool first = true;
    bn_buf_puts(b, "call ::= ");
    PUT_LITERAL(b, f->open);
    for (size_t i = 0; i < bn_json_size(t->list); i++) {
        const char *name = tools_name(t, i);
        if (t->only && strcmp(t->only, name) != 0) continue;
        bn_buf_puts(b, first ? "(" : "| ");
        PUT_LITERAL(b, name, f->middle);
        bn_buf_printf(b, "%s-arguments ", name);
        first = false;
    }
    bn_buf_puts(b, ") ");
    PUT_LITERAL(b, f->close);
    bn_buf_putc(b, '\n');
    if (f->parameter) tools_put_value_rules(b, f);
    for (size_t i = 0; i < bn_json_size(t->list); i++)
        if (!t->only || strcmp(t->only, tools_name(t, i)) == 0) BN_TRY(put_arguments(b, t, i, err));
    return BITNET_OK;
}

bitnet_status tools_grammar(const struct tools *t, char **out, bitnet_error *err)
{
    const struct tools_format *f = t->format;
    struct bn_buf b;
    *out = NULL;
    if (t->choice == TOOLS_NONE) return BITNET_OK;
    bn_buf_init(&b, MAX_GRAMMAR);
    if (t->choice == TOOLS_AUTO) {
        put_text(&b, f);
    } else {
        bn_buf_puts(&b, "root ::= ");
        PUT_LITERAL(&b, f->marker);
        bn_buf_puts(&b, "answer\n");
    }
    bn_buf_puts(&b, "answer ::= call ");
    if (t->parallel && f->between) {
        bn_buf_putc(&b, '(');
        PUT_LITERAL(&b, f->between, f->marker);
        bn_buf_printf(&b, "call){0,%d}", TOOLS_MAX_CALLS - 1);
    }
    bn_buf_putc(&b, '\n');
    bitnet_status s = put_functions(&b, t, err);
    bool full = b.full;
    if (s == BITNET_OK) *out = bn_buf_take(&b);
    bn_buf_free(&b);
    if (s != BITNET_OK || *out) return s;
    if (full)
        return bn_fail(err, BITNET_E_LIMIT, "the schemas of all tools take more than %d bytes",
                       MAX_GRAMMAR);
    return bn_fail_nomem(err, 0, "the grammar of tools");
}
