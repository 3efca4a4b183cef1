/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/constraint_opts.h"

#include "base/os/file.h"
#include <stddef.h>

enum { FORM_MAX_BYTES = 1 << 20 };

#define AT(field) offsetof(struct constraint_opts, field)
const struct opt constraint_opts_table[] = {
    {.kind = OPT_STR,
     .name = "grammar",
     .metavar = "GBNF",
     .help = "the answer must match this grammar: a file, or its text",
     .offset = AT(grammar),
     .aliases = "grammar-file"},
    {.kind = OPT_STR,
     .letter = 'j',
     .name = "json-schema",
     .metavar = "SCHEMA",
     .help = "the answer is JSON that follows this schema: a file, or its text",
     .offset = AT(json_schema),
     .aliases = "json-schema-file"},
    {.kind = OPT_FLAG,
     .name = "json-object",
     .help = "the answer is a JSON object",
     .offset = AT(json_object)},
    {.kind = OPT_END},
};
#undef AT

/* Is it a file's name, there or not? A grammar has rules, a schema is an object, true or false. */
static bool is_file_name(const char *text, bool grammar)
{
    if (bn_exists(text)) return true;
    if (grammar) return !strstr(text, "::=");
    text += strspn(text, " \t\r\n");
    return *text && *text != '{' && strncmp(text, "true", 4) != 0 && strncmp(text, "false", 5) != 0;
}

static bitnet_status text_or_file(const char **text, bool grammar, char **owned, bitnet_error *err)
{
    size_t n;
    if (!*text || !is_file_name(*text, grammar)) return BITNET_OK;
    BN_TRY(bn_read_file(owned, &n, *text, FORM_MAX_BYTES, err));
    *text = *owned;
    return BITNET_OK;
}

bitnet_status constraint_from_opts(bitnet_request *r, char **owned, const struct constraint_opts *o,
                                   bitnet_error *err)
{
    *owned = NULL;
    r->grammar = o->grammar;
    r->json_schema = o->json_schema;
    r->json_object = o->json_object;
    if (o->grammar && o->json_schema) return BITNET_OK; /* refused by the library */
    return text_or_file(o->grammar ? &r->grammar : &r->json_schema, o->grammar != NULL, owned, err);
}
