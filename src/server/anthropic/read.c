/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of /v1/messages as one of a chat. Blocks of a message become what chats have for them: texts and
 * reasoning its content, uses of tools its calls, results of tools messages of their own.
 */
#include "server/anthropic/anthropic_impl.h"

#include <stdlib.h>

/* One message of the body on its way: what its blocks have brought so far. */
struct turn {
    struct bn_json *list; /* of the chat: where messages go */
    struct openai_ignored *ignored;
    const char *role;
    size_t at; /* of the message in the body, for errors */
    struct bn_json *texts, *calls, *reasoning;
};

static const char *text_of(const struct bn_json *v)
{
    return bn_json_text(v) ? bn_json_text(v) : "";
}

static bool is_text(const struct bn_json *v, const char *s) { return strcmp(text_of(v), s) == 0; }

static bitnet_status nomem(bitnet_error *err) { return bn_fail_nomem(err, 0, "a message"); }

/* ------------------------------------------------------------------ blocks */

/* A text, or blocks of text, as parts of a content; what else there is, is refused by its name. */
static bitnet_status add_texts(struct bn_json *parts, struct openai_ignored *g,
                               const struct bn_json *v, const char *what, bitnet_error *err)
{
    static const char *const known[] = {"type", "text", "cache_control", "citations", NULL};
    size_t i;
    const struct bn_json *block;
    if (bn_json_is_string(v))
        return bn_json_append(parts, bn_json_pack("{s:s, s:O}", "type", "text", "text", v))
                   ? BITNET_OK
                   : nomem(err);
    if (!bn_json_is_array(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is neither a text nor a list of blocks", what);
    bn_json_each(v, i, block)
    {
        const struct bn_json *type = bn_json_get(block, "type"), *text = bn_json_get(block, "text");
        if (is_text(type, "image"))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "image input is not supported: this server has models of text only");
        if (!is_text(type, "text") || !bn_json_is_string(text))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "'%s' has a block of type '%.40s', where text is possible", what,
                           text_of(type));
        BN_TRY(openai_known_members(g, block, known, what, err));
        if (!bn_json_append(parts, bn_json_pack("{s:s, s:O}", "type", "text", "text", text)))
            return nomem(err);
    }
    return BITNET_OK;
}

/* What was gathered as one message of the chat, if there is anything. */
static bitnet_status end_message(struct turn *t, bitnet_error *err)
{
    bool any = bn_json_size(t->texts) || bn_json_size(t->calls) || t->reasoning;
    struct bn_json *m = any ? bn_json_pack("{s:s}", "role", t->role) : NULL;
    if (bn_json_size(t->texts)) bn_json_set(m, "content", bn_json_ref(t->texts));
    else if (any) bn_json_set(m, "content", bn_json_string(""));
    if (bn_json_size(t->calls)) bn_json_set(m, "tool_calls", bn_json_ref(t->calls));
    if (t->reasoning) bn_json_set(m, "reasoning_content", bn_json_ref(t->reasoning));
    bn_json_free(t->texts);
    bn_json_free(t->calls);
    bn_json_free(t->reasoning);
    t->texts = bn_json_array();
    t->calls = bn_json_array();
    t->reasoning = NULL;
    return (!any || bn_json_append(t->list, m)) && t->texts && t->calls ? BITNET_OK : nomem(err);
}

static bitnet_status add_use(struct turn *t, const struct bn_json *block, bitnet_error *err)
{
    static const char *const known[] = {"type", "id", "name", "input", "cache_control", NULL};
    const struct bn_json *id = bn_json_get(block, "id"), *name = bn_json_get(block, "name"),
                         *input = bn_json_get(block, "input");
    if (!bn_json_is_string(id) || !bn_json_is_string(name) || !bn_json_is_object(input))
        return bn_fail(err, BITNET_E_ARG,
                       "message %zu: a block 'tool_use' needs 'id', 'name' and an object 'input'",
                       t->at);
    BN_TRY(openai_known_members(t->ignored, block, known, "messages.content", err));
    char *text = bn_json_dump(input, 0);
    struct bn_json *call =
        text ? bn_json_pack("{s:O, s:s, s:{s:O, s:s}}", "id", id, "type", "function", "function",
                            "name", name, "arguments", text)
             : NULL;
    free(text);
    return bn_json_append(t->calls, call) ? BITNET_OK : nomem(err);
}

static bitnet_status add_result(struct turn *t, const struct bn_json *block, bitnet_error *err)
{
    static const char *const known[] = {"type",     "tool_use_id",   "content",
                                        "is_error", "cache_control", NULL};
    const struct bn_json *id = bn_json_get(block, "tool_use_id"),
                         *content = bn_json_get(block, "content");
    if (!bn_json_is_string(id))
        return bn_fail(err, BITNET_E_ARG, "message %zu: a block 'tool_result' has no 'tool_use_id'",
                       t->at);
    BN_TRY(openai_known_members(t->ignored, block, known, "messages.content", err));
    BN_TRY(end_message(t, err));
    struct bn_json *parts = bn_json_array();
    bitnet_status s = parts ? BITNET_OK : nomem(err);
    if (s == BITNET_OK && content && !bn_json_is_null(content))
        s = add_texts(parts, t->ignored, content, "tool_result.content", err);
    if (s == BITNET_OK &&
        !bn_json_append(t->list, bn_json_pack("{s:s, s:O, s:O}", "role", "tool", "tool_call_id", id,
                                              "content", parts)))
        s = nomem(err);
    bn_json_free(parts);
    return s;
}

static bitnet_status add_block(struct turn *t, const struct bn_json *block, bitnet_error *err)
{
    const struct bn_json *type = bn_json_get(block, "type");
    bool assistant = strcmp(t->role, "assistant") == 0;
    if (assistant && is_text(type, "tool_use")) return add_use(t, block, err);
    if (assistant && is_text(type, "redacted_thinking")) return BITNET_OK; /* of others' servers */
    if (assistant && is_text(type, "thinking")) {
        const struct bn_json *text = bn_json_get(block, "thinking");
        if (!bn_json_is_string(text))
            return bn_fail(err, BITNET_E_ARG, "message %zu: a block 'thinking' has no 'thinking'",
                           t->at);
        bn_json_free(t->reasoning);
        t->reasoning = bn_json_ref(text);
        return BITNET_OK;
    }
    if (!assistant && is_text(type, "tool_result")) return add_result(t, block, err);
    struct bn_json *one = bn_json_pack("[O]", block);
    bitnet_status s =
        one ? add_texts(t->texts, t->ignored, one, "messages.content", err) : nomem(err);
    bn_json_free(one);
    return s;
}

static bitnet_status add_message(struct turn *t, const struct bn_json *m, bitnet_error *err)
{
    static const char *const known[] = {"role", "content", "id", NULL};
    const struct bn_json *role = bn_json_get(m, "role"), *content = bn_json_get(m, "content");
    size_t i;
    const struct bn_json *block;
    if (!bn_json_is_object(m))
        return bn_fail(err, BITNET_E_ARG, "message %zu is not an object", t->at);
    if (!is_text(role, "user") && !is_text(role, "assistant") && !is_text(role, "system"))
        return bn_fail(err, BITNET_E_ARG,
                       "message %zu has the role '%.40s'; user and assistant are possible", t->at,
                       text_of(role));
    BN_TRY(openai_known_members(t->ignored, m, known, "messages", err));
    t->role = bn_json_text(role);
    if (bn_json_is_string(content)) {
        BN_TRY(add_texts(t->texts, t->ignored, content, "content", err));
    } else {
        if (!bn_json_is_array(content))
            return bn_fail(err, BITNET_E_ARG,
                           "'content' of message %zu is neither a text nor a list of blocks",
                           t->at);
        bn_json_each(content, i, block) BN_TRY(add_block(t, block, err));
    }
    return end_message(t, err);
}

static bitnet_status add_messages(struct bn_json *list, struct openai_ignored *g,
                                  const struct bn_json *body, bitnet_error *err)
{
    const struct bn_json *system = bn_json_get(body, "system"),
                         *messages = bn_json_get(body, "messages"), *m;
    struct turn t = {.list = list,
                     .ignored = g,
                     .role = "system",
                     .texts = bn_json_array(),
                     .calls = bn_json_array()};
    bitnet_status s = BITNET_OK;
    if (system && !bn_json_is_null(system)) s = add_texts(t.texts, g, system, "system", err);
    if (s == BITNET_OK) s = end_message(&t, err);
    if (s == BITNET_OK && !bn_json_size(messages))
        s = bn_fail(err, BITNET_E_ARG, "'messages' is not a list with messages");
    for (; s == BITNET_OK && (m = bn_json_at(messages, t.at)) != NULL; t.at++)
        s = add_message(&t, m, err);
    bn_json_free(t.texts);
    bn_json_free(t.calls);
    bn_json_free(t.reasoning);
    return s;
}

/* ------------------------------------------------------------------ tools */

static bitnet_status add_tools(struct bn_json *chat, struct openai_ignored *g,
                               const struct bn_json *tools, bitnet_error *err)
{
    static const char *const known[] = {
        "name", "description", "input_schema", "type", "cache_control", "strict", NULL};
    struct bn_json *list = bn_json_array();
    size_t i;
    const struct bn_json *tool;
    bn_json_each(tools, i, tool)
    {
        const struct bn_json *type = bn_json_get(tool, "type"), *name = bn_json_get(tool, "name"),
                             *about = bn_json_get(tool, "description");
        bitnet_status s = BITNET_OK;
        /* what runs on Anthropic's machines, or has a form of its own, is not shown to the model */
        bool foreign = bn_json_is_string(type) && !is_text(type, "custom");
        if (foreign) s = openai_ignore_tool(g, i, text_of(type), err);
        else s = openai_known_members(g, tool, known, "tools", err);
        if (s != BITNET_OK) {
            bn_json_free(list);
            return s;
        }
        if (foreign) continue;
        struct bn_json *function = bn_json_pack("{s:O?, s:O?}", "name", name, "parameters",
                                                bn_json_get(tool, "input_schema"));
        if (bn_json_is_string(about)) bn_json_set(function, "description", bn_json_ref(about));
        bn_json_append(list, bn_json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return bn_json_set(chat, "tools", list) ? BITNET_OK : nomem(err);
}

static bitnet_status add_choice(struct bn_json *chat, const struct bn_json *choice,
                                bitnet_error *err)
{
    static const struct {
        const char *theirs, *ours;
    } words[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const struct bn_json *type = bn_json_get(choice, "type"), *name = bn_json_get(choice, "name");
    struct bn_json *ours = NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(words); i++)
        if (is_text(type, words[i].theirs)) ours = bn_json_string(words[i].ours);
    if (is_text(type, "tool") && bn_json_is_string(name))
        ours = bn_json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    if (!ours)
        return bn_fail(err, BITNET_E_ARG,
                       "'tool_choice' is not of type auto, any, none or tool with a 'name'");
    if (bn_json_is_true(bn_json_get(choice, "disable_parallel_tool_use")))
        bn_json_set(chat, "parallel_tool_calls", bn_json_bool(false));
    return bn_json_set(chat, "tool_choice", ours) ? BITNET_OK : nomem(err);
}

/* ------------------------------------------------------------------ the body */

/* {"type": "enabled" | "disabled" | "adaptive"}: a variable of templates that know it. */
static bitnet_status add_thinking(struct bn_json *chat, const struct bn_json *v, bitnet_error *err)
{
    const struct bn_json *type = bn_json_get(v, "type");
    if (is_text(type, "adaptive")) return BITNET_OK;
    if (!is_text(type, "enabled") && !is_text(type, "disabled"))
        return bn_fail(err, BITNET_E_ARG,
                       "'thinking' is not of type enabled, disabled or adaptive");
    return bn_json_set(chat, "enable_thinking", bn_json_bool(is_text(type, "enabled")))
               ? BITNET_OK
               : nomem(err);
}

/* {"format": {"type": "json_schema", "schema"}} */
static bitnet_status add_format(struct bn_json *chat, const struct bn_json *v, bitnet_error *err)
{
    const struct bn_json *format = bn_json_get(v, "format");
    if (!format) return BITNET_OK;
    struct bn_json *ours = bn_json_pack("{s:O?, s:{s:O?}}", "type", bn_json_get(format, "type"),
                                        "json_schema", "schema", bn_json_get(format, "schema"));
    return bn_json_set(chat, "response_format", ours) ? BITNET_OK : nomem(err);
}

/* Members of chats that would ask for more than a message can hold. */
static bool is_of_chats(const char *key)
{
    static const char *const list[] = {
        "n",    "logprobs", "top_logprobs", "n_probs", "stream_options", "timings_per_token",
        "stop", NULL};
    return openai_is_one_of(key, list);
}

static bitnet_status add_member(struct bn_json *chat, struct openai_ignored *g, const char *key,
                                const struct bn_json *v, bitnet_error *err)
{
    static const char *const passed_over[] = {"messages", "system",        "container",
                                              "betas",    "inference_geo", NULL};
    if (openai_is_one_of(key, passed_over) || bn_json_is_null(v)) return BITNET_OK;
    if (strcmp(key, "tools") == 0) return add_tools(chat, g, v, err);
    if (strcmp(key, "tool_choice") == 0) return add_choice(chat, v, err);
    if (strcmp(key, "thinking") == 0) return add_thinking(chat, v, err);
    if (strcmp(key, "output_config") == 0) return add_format(chat, v, err);
    if (is_of_chats(key)) return openai_ignore(g, "", key, err);
    const char *ours = strcmp(key, "stop_sequences") == 0 ? "stop" : key;
    return bn_json_set(chat, ours, bn_json_ref(v)) ? BITNET_OK : nomem(err);
}

static bitnet_status as_chat(struct bn_json *chat, struct openai_ignored *g,
                             const struct bn_json *body, bitnet_error *err)
{
    struct bn_json *list = bn_json_array(), *v;
    const char *key;
    bitnet_status s = bn_json_set(chat, "messages", list) ? BITNET_OK : nomem(err);
    if (s == BITNET_OK) s = add_messages(list, g, body, err);
    bn_json_each_member(body, key, v)
    {
        if (s == BITNET_OK) s = add_member(chat, g, key, v, err);
    }
    if (s == BITNET_OK && !bn_json_whole(chat)) s = nomem(err); /* something could not be put in */
    return s;
}

bitnet_status anthropic_read(struct openai_request *q, struct bn_json *body,
                             const struct openai_defaults *d, bitnet_error *err)
{
    struct openai_ignored ignored = {.strict = d->strict};
    struct bn_json *chat = bn_json_object();
    *q = (struct openai_request){0};
    bitnet_status s = as_chat(chat, &ignored, body, err);
    if (s == BITNET_OK) s = openai_request_read(q, OPENAI_CHAT, chat, d, err);
    bn_json_free(chat);
    if (s != BITNET_OK) return s;
    q->dialect = &anthropic_dialect;
    openai_add_ignored(&q->ignored, &ignored);
    return BITNET_OK;
}
