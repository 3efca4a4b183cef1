/* SPDX-License-Identifier: Apache-2.0
 *
 * What a response is asked, as the messages of a chat: instructions become a system message, calls
 * of functions part of the assistant's message before them, their results messages of a tool.
 */
#include "server/openai/request_impl.h"

static bitnet_status add_message(struct openai_request *r, const char *role,
                                 struct bn_json *content, bitnet_error *err)
{
    struct bn_json *m = bn_json_pack("{s:s, s:o}", "role", role, "content", content);
    return bn_json_append(r->messages, m) ? BITNET_OK : bn_fail_nomem(err, 0, "a message");
}

static bitnet_status add_text(struct openai_request *r, const struct bn_json *item, size_t at,
                              bitnet_error *err)
{
    static const char *const known[] = {"type", "role", "content", "id", "status", "phase", NULL};
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    const char *role;
    struct bn_json *content;
    BN_TRY(openai_known_members(&r->ignored, item, known, "input", err));
    BN_TRY(openai_c_string(&role, bn_json_get(item, "role"), "role", err));
    BN_TRY(
        openai_read_content(r, &content, bn_json_get(item, "content"), types, "content", at, err));
    return add_message(r, role, content, err);
}

static bitnet_status add_call(struct openai_request *r, const struct bn_json *item,
                              bitnet_error *err)
{
    static const char *const known[] = {"type", "call_id", "name", "arguments",
                                        "id",   "status",  NULL};
    const char *id, *name, *arguments;
    BN_TRY(openai_known_members(&r->ignored, item, known, "input", err));
    BN_TRY(openai_c_string(&id, bn_json_get(item, "call_id"), "call_id", err));
    BN_TRY(openai_c_string(&name, bn_json_get(item, "name"), "name", err));
    BN_TRY(openai_c_string(&arguments, bn_json_get(item, "arguments"), "arguments", err));
    struct bn_json *last = bn_json_at(r->messages, bn_json_size(r->messages) - 1);
    const char *role = bn_json_text(bn_json_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0) {
        BN_TRY(add_message(r, "assistant", bn_json_string(""), err));
        last = bn_json_at(r->messages, bn_json_size(r->messages) - 1);
    }
    struct bn_json *calls = bn_json_get(last, "tool_calls");
    if (!calls) {
        calls = bn_json_array();
        bn_json_set(last, "tool_calls", calls);
    }
    struct bn_json *call = bn_json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                        "function", "name", name, "arguments", arguments);
    return bn_json_append(calls, call) ? BITNET_OK : bn_fail_nomem(err, 0, "a call");
}

static bitnet_status add_result(struct openai_request *r, const struct bn_json *item, size_t at,
                                bitnet_error *err)
{
    static const char *const known[] = {"type", "call_id", "output", "id", "status", NULL};
    static const char *const types[] = {"input_text", NULL};
    const char *id;
    struct bn_json *content;
    BN_TRY(openai_known_members(&r->ignored, item, known, "input", err));
    BN_TRY(openai_c_string(&id, bn_json_get(item, "call_id"), "call_id", err));
    BN_TRY(openai_read_content(r, &content, bn_json_get(item, "output"), types, "output", at, err));
    BN_TRY(add_message(r, "tool", content, err));
    struct bn_json *last = bn_json_at(r->messages, bn_json_size(r->messages) - 1);
    return bn_json_set(last, "tool_call_id", bn_json_string(id))
               ? BITNET_OK
               : bn_fail_nomem(err, 0, "a message");
}

static bitnet_status add_item(struct openai_request *r, const struct bn_json *item, size_t at,
                              bitnet_error *err)
{
    const char *type = "message";
    BN_TRY(bn_json_read_str(&type, item, "type", "an item of 'input'", err));
    if (strcmp(type, "message") == 0) return add_text(r, item, at, err);
    if (strcmp(type, "function_call") == 0) return add_call(r, item, err);
    if (strcmp(type, "function_call_output") == 0) return add_result(r, item, at, err);
    if (strcmp(type, "reasoning") == 0) return BITNET_OK; /* templates do not show it again */
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "item %zu of 'input' is of type '%.40s'; message, function_call and "
                   "function_call_output are possible",
                   at, type);
}

bitnet_status openai_read_input(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    const struct bn_json *instructions = bn_json_get(r->body, "instructions");
    bool is_text = bn_json_is_string(v);
    const char *text;
    BN_TRY(openai_begin_messages(r, is_text ? 1 : bn_json_size(v), f->key, err));
    if (openai_is_given(instructions)) {
        BN_TRY(openai_c_string(&text, instructions, "instructions", err));
        BN_TRY(add_message(r, "system", bn_json_string(text), err));
    }
    if (is_text) {
        BN_TRY(openai_c_string(&text, v, f->key, err));
        return add_message(r, "user", bn_json_string(text), err);
    }
    size_t i;
    const struct bn_json *item;
    bn_json_each(v, i, item) BN_TRY(add_item(r, item, i, err));
    return bn_json_size(r->messages) ? BITNET_OK
                                     : bn_fail(err, BITNET_E_ARG, "'%s' has no message", f->key);
}

/* ------------------------------------------------------------------ tools */

/* {"type": "function", ...} -> {"type": "function", "function": {...}}; anything else stays as it is,
 * to be refused by name. A new reference. */
static struct bn_json *wrap_function(struct bn_json *flat)
{
    const char *type = bn_json_text(bn_json_get(flat, "type"));
    if (!type || strcmp(type, "function") != 0) return bn_json_ref(flat);
    struct bn_json *function = bn_json_copy(flat);
    bn_json_del(function, "type");
    return bn_json_pack("{s:s, s:o}", "type", type, "function", function);
}

bool openai_wrap_tools(struct bn_json **tools, struct bn_json **choice)
{
    bool ok = true;
    if (bn_json_is_array(*tools)) {
        struct bn_json *list = bn_json_array(), *one;
        size_t i;
        bn_json_each(*tools, i, one) ok = ok && bn_json_append(list, wrap_function(one));
        bn_json_free(*tools);
        *tools = list;
    }
    if (*choice) {
        struct bn_json *wrapped = wrap_function(*choice);
        bn_json_free(*choice);
        *choice = wrapped;
        ok = ok && wrapped;
    }
    return ok;
}
