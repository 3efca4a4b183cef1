/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/request_impl.h"

#include "base/buf.h"
#include "app/tokens.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ conversations */

/* A part that is no text, said so that one knows what is wrong. */
static bitnet_status fail_part(const char *type, const char *wanted, size_t at, bitnet_error *err)
{
    static const struct {
        const char *in_type, *what;
    } kinds[] = {{"image", "image"}, {"audio", "sound"}, {"video", "video"}, {"file", "file"}};
    for (size_t i = 0; type && i < BN_ARRAY_LEN(kinds); i++)
        if (strstr(type, kinds[i].in_type))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "%s input is not supported: this server has models of text only "
                           "(message %zu has a part of type '%.40s'; only %s is possible)",
                           kinds[i].what, at, type, wanted);
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "message %zu has a part of type '%.40s'; only %s is possible", at,
                   type ? type : "", wanted);
}

bitnet_status openai_read_content(struct openai_request *r, struct bn_json **out,
                                  const struct bn_json *content, const char *const *types,
                                  const char *key, size_t at, bitnet_error *err)
{
    static const char *const known[] = {"type",     "text",          "annotations", "refusal",
                                        "logprobs", "cache_control", NULL};
    const char *text;
    if (!bn_json_is_array(content)) {
        BN_TRY(openai_c_string(&text, content, key, err));
        *out = bn_json_ref((struct bn_json *)content);
        return BITNET_OK;
    }
    struct bn_buf joined;
    bn_buf_init(&joined, SIZE_MAX / 2);
    bitnet_status s = BITNET_OK;
    size_t i;
    const struct bn_json *part;
    bn_json_each(content, i, part)
    {
        const char *type = bn_json_text(bn_json_get(part, "type"));
        bool refusal = type && strcmp(type, "refusal") == 0; /* what an earlier answer said */
        if (!refusal && (!type || !openai_is_one_of(type, types)))
            s = fail_part(type, types[0], at, err);
        else
            s = openai_c_string(&text, bn_json_get(part, refusal ? type : "text"),
                                refusal ? type : "text", err);
        if (s == BITNET_OK) s = openai_known_members(&r->ignored, part, known, key, err);
        if (s != BITNET_OK) break;
        bn_buf_puts(&joined, text);
    }
    if (s == BITNET_OK) {
        *out = joined.failed ? NULL : bn_json_stringn(joined.data ? joined.data : "", joined.len);
        if (!*out) s = bn_fail_nomem(err, joined.len, "a message");
    }
    bn_buf_free(&joined);
    return s;
}

bitnet_status openai_begin_messages(struct openai_request *r, size_t n, const char *key,
                                    bitnet_error *err)
{
    if (n == 0) return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of messages", key);
    if (n > OPENAI_MAX_MESSAGES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu messages; at most %d are possible", n,
                       OPENAI_MAX_MESSAGES);
    r->prompts = openai_alloc(r, 1, sizeof *r->prompts);
    r->messages = bn_json_array();
    if (!r->prompts || !r->messages) return bn_fail_nomem(err, 0, "a conversation");
    r->n_prompts = 1;
    return BITNET_OK;
}

/* Arguments are a text that is JSON; some clients send the JSON itself, or nothing. Takes such a call apart. */
static struct bn_json *with_text(const struct bn_json *call)
{
    const struct bn_json *function = bn_json_get(call, "function"),
                         *given = bn_json_get(function, "arguments");
    char *text = openai_is_given(given) ? bn_json_dump(given, BN_JSON_COMPACT) : strdup("{}");
    struct bn_json *to =
        text ? bn_json_pack("{s:O?, s:s, s:{s:O, s:s}}", "id", bn_json_get(call, "id"), "type",
                            "function", "function", "name", bn_json_get(function, "name"),
                            "arguments", text)
             : NULL;
    free(text);
    return to;
}

static bitnet_status take_calls(struct bn_json *to, const struct bn_json *calls, size_t at,
                                bitnet_error *err)
{
    size_t i;
    const struct bn_json *call;
    if (!bn_json_is_array(calls))
        return bn_fail(err, BITNET_E_ARG, "'tool_calls' of message %zu is not a list", at);
    struct bn_json *list = bn_json_array();
    bitnet_status s =
        bn_json_set(to, "tool_calls", list) ? BITNET_OK : bn_fail_nomem(err, 0, "calls");
    bn_json_each(calls, i, call)
    {
        const struct bn_json *function = bn_json_get(call, "function"),
                             *given = bn_json_get(function, "arguments");
        const char *text;
        bool as_json = !openai_is_given(given) || bn_json_is_object(given);
        if (s == BITNET_OK) s = openai_c_string(&text, bn_json_get(function, "name"), "name", err);
        if (s == BITNET_OK && !as_json) s = openai_c_string(&text, given, "arguments", err);
        if (s != BITNET_OK) return s;
        bn_json_append(list, as_json ? with_text(call) : bn_json_ref((struct bn_json *)call));
    }
    return s;
}

/* What others call the reasoning of an earlier reply: vLLM, Ollama. */
static void take_reasoning(struct bn_json *to, const struct bn_json *from)
{
    static const char *const names[] = {"reasoning", "thinking"};
    for (size_t i = 0; i < BN_ARRAY_LEN(names) && !bn_json_get(to, "reasoning_content"); i++) {
        const struct bn_json *v = bn_json_get(from, names[i]);
        if (bn_json_is_string(v)) bn_json_set(to, "reasoning_content", bn_json_ref(v));
    }
}

/* A message with members that do not matter left out. Clients hand back what the server said:
 * "refusal" and the like, as long as there is nothing in them. */
static bitnet_status read_message(struct openai_request *r, struct bn_json *to,
                                  const struct bn_json *from, size_t at, bitnet_error *err)
{
    static const char *const types[] = {"text", NULL};
    static const char *const taken[] = {"role",         "content",           "tool_calls",
                                        "tool_call_id", "reasoning_content", NULL};
    static const char *const known[] = {"name",  "refusal",       "annotations",
                                        "audio", "function_call", NULL};
    static const char *const harmless[] = {"cache_control", "id",       "prefix", "partial",
                                           "reasoning",     "thinking", NULL};
    const char *role, *key;
    struct bn_json *v, *content = NULL;
    if (!bn_json_is_object(from))
        return bn_fail(err, BITNET_E_ARG, "message %zu is not an object", at);
    BN_TRY(openai_c_string(&role, bn_json_get(from, "role"), "role", err));
    bn_json_each_member(from, key, v)
    {
        bool take = openai_is_one_of(key, taken);
        if (openai_is_one_of(key, harmless)) continue;
        if (!take && !openai_is_one_of(key, known)) {
            BN_TRY(openai_ignore(&r->ignored, "messages", key, err));
            continue;
        }
        if (!take && strcmp(key, "name") != 0 && !openai_is_off(v))
            return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' of message %zu is not possible here",
                           key, at);
        bool empty = bn_json_is_array(v) && bn_json_size(v) == 0;
        if (take && openai_is_given(v) && !empty) bn_json_set(to, key, bn_json_ref(v));
    }
    /* a reply that consists of calls has no text */
    const struct bn_json *given = bn_json_get(from, "content"),
                         *calls = bn_json_get(to, "tool_calls");
    if (calls) BN_TRY(take_calls(to, bn_json_get(from, "tool_calls"), at, err));
    take_reasoning(to, from);
    const struct bn_json *reasoning = bn_json_get(to, "reasoning_content");
    if (reasoning && !bn_json_is_string(reasoning))
        return bn_fail(err, BITNET_E_ARG, "'reasoning_content' of message %zu is not a string", at);
    bool said = strcmp(role, "assistant") == 0; /* by a model, that may have had nothing to say */
    if (!openai_is_given(given) && (calls || reasoning || said)) content = bn_json_string("");
    else BN_TRY(openai_read_content(r, &content, given, types, "content", at, err));
    bn_json_set(to, "content", content);
    return bn_json_whole(to) ? BITNET_OK : bn_fail_nomem(err, 0, "a message");
}

bitnet_status openai_read_messages(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    BN_TRY(openai_begin_messages(r, bn_json_size(v), f->key, err));
    size_t i;
    const struct bn_json *message;
    bn_json_each(v, i, message)
    {
        struct bn_json *to = bn_json_object();
        if (!bn_json_append(r->messages, to)) return bn_fail_nomem(err, 0, "a message");
        BN_TRY(read_message(r, to, message, i, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ prompts */

static bitnet_status take_prompt(struct openai_prompt *p, const struct bn_json *v,
                                 bitnet_error *err)
{
    if (bn_json_is_array(v) && bn_json_size(v))
        return tokens_from_json(&p->tokens, &p->n_tokens, v, "prompt", err);
    if (!bn_json_is_string(v))
        return bn_fail(err, BITNET_E_ARG, "'prompt' is neither a text nor a list of token ids");
    p->text = bn_json_text(v);
    p->bytes = bn_json_bytes(v);
    return BITNET_OK;
}

/* A text, a list of token ids, or a list of these. */
bitnet_status openai_read_prompt(struct openai_request *r, const struct openai_field *f,
                                 const struct bn_json *v, bitnet_error *err)
{
    const struct bn_json *first = bn_json_at(v, 0);
    bool several = first && !bn_json_is_int(first);
    size_t n = several ? bn_json_size(v) : 1;
    if (n > OPENAI_MAX_PROMPTS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' holds %zu prompts; at most %d are possible",
                       f->key, n, OPENAI_MAX_PROMPTS);
    r->prompts = openai_alloc(r, n, sizeof *r->prompts);
    if (!r->prompts) return bn_fail_nomem(err, n * sizeof *r->prompts, f->key);
    r->n_prompts = n;
    for (size_t i = 0; i < n; i++)
        BN_TRY(take_prompt(&r->prompts[i], several ? bn_json_at(v, i) : v, err));
    return BITNET_OK;
}
