/* SPDX-License-Identifier: Apache-2.0
 *
 * openapi.c: what can be asked, as an OpenAPI 3.1 document, made from the table of routes and the list of
 * members that bodies have. Paths that also work without "/v1" are told once.
 */
#include "server/anthropic/anthropic.h"
#include "server/llamacpp/llamacpp.h"
#include "server/ollama/ollama.h"
#include "server/openai/dialects.h"
#include "server/server_impl.h"
#include <ctype.h>
#include <stdio.h>

static const char about[] =
    "An inference server for language models with ternary weights. Requests are computed "
    "together; an answer does not depend on the others. Members of a body that are not known here "
    "are ignored and named in the header Warnings.";

/* ------------------------------------------------------------------ names */

static bool starts(const char *path, const char *with)
{
    return strncmp(path, with, strlen(with)) == 0;
}

static const char *tag_of(const struct route *r)
{
    if (r->dialect == &anthropic_dialect) return "Anthropic";
    if (r->dialect == &llamacpp_dialect) return "llama-server";
    if (starts(r->path, "/api/")) return "Ollama";
    if (starts(r->path, "/v1/") || r->dialect) return "OpenAI";
    return "Server";
}

/* "/v1/models/" stands for all that is below it. */
static void public_path(char *out, size_t room, const struct route *r)
{
    snprintf(out, room, "%s%s", r->path, r->flags & ROUTE_BELOW ? "{id}" : "");
}

/* "post_v1_chat_completions": letters, digits and '_' */
static void operation_id(char *out, size_t room, const char *method, const struct route *r)
{
    snprintf(out, room, "%s%s%s", method, r->path, r->flags & ROUTE_BELOW ? "id" : "");
    for (char *c = out; *c; c++)
        if (!isalnum((unsigned char)*c)) *c = '_';
}

/* ------------------------------------------------------------------ bodies */

static const char *const schema_names[] = {[OPENAI_CHAT] = "ChatRequest",
                                           [OPENAI_COMPLETION] = "CompletionRequest",
                                           [OPENAI_RESPONSE] = "ResponseRequest"};

static struct bn_json *body_schema(const struct route *r)
{
    char ref[64];
    for (int k = OPENAI_CHAT; k <= OPENAI_RESPONSE; k++) {
        bool more = k != OPENAI_RESPONSE && r->dialect == &llamacpp_over_openai[k];
        if (!more && r->dialect != &openai_dialects[k]) continue;
        snprintf(ref, sizeof ref, "#/components/schemas/%s", schema_names[k]);
        return bn_json_pack("{s:s}", "$ref", ref);
    }
    return bn_json_pack("{s:s}", "type", r->serve == serve_lora_adapters ? "array" : "object");
}

static struct bn_json *json_content(struct bn_json *schema)
{
    return bn_json_pack("{s:{s:o}}", "application/json", "schema", schema);
}

/* What an endpoint gives that does not give JSON alone. */
static struct bn_json *reply_content(const struct route *r)
{
    if (r->serve == serve_metrics || r->serve == serve_ping || r->serve == serve_load_lora ||
        r->serve == serve_unload_lora)
        return bn_json_pack("{s:{s:{s:s}}}", "text/plain", "schema", "type", "string");
    struct bn_json *content = json_content(bn_json_object());
    bool streams = r->serve == serve_generate || r->serve == serve_ollama_chat ||
                   r->serve == serve_ollama_generate;
    if (streams && r->dialect->stream_type)
        bn_json_set(content, r->dialect->stream_type,
                    bn_json_pack("{s:{s:s}}", "schema", "type", "string"));
    return content;
}

/* ------------------------------------------------------------------ operations */

/* Of one that is for all that is below its path. */
static struct bn_json *parameters(const struct route *r)
{
    struct bn_json *list = bn_json_array();
    bn_json_append(list, bn_json_pack("{s:s, s:s, s:b, s:{s:s}}", "name", "id", "in", "path",
                                      "required", 1, "schema", "type", "string"));
    if (r->serve == serve_llamacpp_slot)
        bn_json_append(list, bn_json_pack("{s:s, s:s, s:b, s:{s:s, s:[s, s, s]}}", "name", "action",
                                          "in", "query", "required", 1, "schema", "type", "string",
                                          "enum", "save", "restore", "erase"));
    return list;
}

static struct bn_json *operation(const struct server *s, const struct route *r, const char *method)
{
    char id[96];
    operation_id(id, sizeof id, method, r);
    struct bn_json *o = bn_json_pack(
        "{s:s, s:s, s:[s], s:{s:{s:s, s:o}, s:{s:s}}}", "operationId", id, "summary",
        r->about ? r->about : "", "tags", tag_of(r), "responses", "200", "description", "The reply",
        "content", reply_content(r), "default", "$ref", "#/components/responses/Error");
    if (r->flags & ROUTE_BELOW) bn_json_set(o, "parameters", parameters(r));
    bool open = r->flags & ROUTE_PUBLIC || (r->flags & ROUTE_METRICS && s->c->public_metrics);
    if (open) bn_json_set(o, "security", bn_json_array());
    if (strcmp(method, "get") != 0 && r->serve != serve_ping)
        bn_json_set(o, "requestBody",
                    bn_json_pack("{s:b, s:o}", "required", r->serve != serve_llamacpp_slot,
                                 "content", json_content(body_schema(r))));
    return o;
}

static struct bn_json *paths(const struct server *s)
{
    static const struct {
        unsigned flag;
        const char *method;
    } methods[] = {{ROUTE_GET, "get"}, {ROUTE_POST, "post"}, {ROUTE_DELETE, "delete"}};
    struct bn_json *all = bn_json_object();
    const struct route *r;
    for (size_t i = 0; (r = route_at(i)); i++) {
        char path[96];
        struct bn_json *item = bn_json_object();
        public_path(path, sizeof path, r);
        for (size_t k = 0; k < BN_ARRAY_LEN(methods); k++)
            if (r->flags & methods[k].flag)
                bn_json_set(item, methods[k].method, operation(s, r, methods[k].method));
        bn_json_set(all, path, item);
    }
    return all;
}

/* ------------------------------------------------------------------ the whole */

static struct bn_json *components(void)
{
    struct bn_json *schemas = bn_json_object();
    for (int k = OPENAI_CHAT; k <= OPENAI_RESPONSE; k++)
        bn_json_set(schemas, schema_names[k], openai_body_schema((enum openai_kind)k));
    struct bn_json *error = bn_json_pack("{s:s, s:{s:{s:s, s:[s], s:{s:{s:s}}}}}", "type", "object",
                                         "properties", "error", "type", "object", "required",
                                         "message", "properties", "message", "type", "string");
    bn_json_set(schemas, "Error", error);
    return bn_json_pack("{s:o, s:{s:{s:s, s:o}}, s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}}", "schemas",
                        schemas, "responses", "Error", "description",
                        "What is wrong; of Anthropic and Ollama in their form", "content",
                        json_content(bn_json_pack("{s:s}", "$ref", "#/components/schemas/Error")),
                        "securitySchemes", "key", "type", "http", "scheme", "bearer", "x-api-key",
                        "type", "apiKey", "in", "header", "name", "X-Api-Key");
}

/* Where the server has keys, either form of one will do. */
static struct bn_json *security(const struct server *s)
{
    if (s->keys.n == 0) return bn_json_array();
    return bn_json_pack("[{s:[]}, {s:[]}]", "key", "x-api-key");
}

void serve_openapi(struct exchange *x)
{
    exchange_reply_json(
        x, 200,
        bn_json_pack("{s:s, s:{s:s, s:s, s:s, s:{s:s, s:s}}, s:[{s:s}], s:o, s:o, s:o}", "openapi",
                     "3.1.0", "info", "title", "bitnet", "version", bitnet_version(), "description",
                     about, "license", "name", "Apache-2.0", "identifier", "Apache-2.0", "servers",
                     "url", "/", "security", security(x->s), "paths", paths(x->s), "components",
                     components()));
}
