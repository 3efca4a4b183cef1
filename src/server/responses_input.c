/* SPDX-License-Identifier: Apache-2.0
 *
 * What a response is asked, as the messages of a chat: instructions become a system message, calls
 * of functions part of the assistant's message before them, their results messages of a tool.
 */
#include "server/openai_request_impl.h"

static bitnet_status add_message(struct openai_request *r, const char *role, json_t *content,
                                 bitnet_error *err)
{
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", content);
    return json_array_append_new(r->messages, m) == 0 ? BITNET_OK
                                                      : bn_fail_nomem(err, 0, "a message");
}

static bitnet_status add_text(struct openai_request *r, const json_t *item, size_t at,
                              bitnet_error *err)
{
    static const char *const known[] = {"type", "role", "content", "id", "status", "phase", NULL};
    static const char *const types[] = {"input_text", "output_text", "text", NULL};
    const char *role;
    json_t *content;
    BN_TRY(openai_check_members(item, known, "input", err));
    BN_TRY(openai_c_string(&role, json_object_get(item, "role"), "role", err));
    BN_TRY(
        openai_read_content(&content, json_object_get(item, "content"), types, "content", at, err));
    return add_message(r, role, content, err);
}

static bitnet_status add_call(struct openai_request *r, const json_t *item, bitnet_error *err)
{
    static const char *const known[] = {"type", "call_id", "name", "arguments",
                                        "id",   "status",  NULL};
    const char *id, *name, *arguments;
    BN_TRY(openai_check_members(item, known, "input", err));
    BN_TRY(openai_c_string(&id, json_object_get(item, "call_id"), "call_id", err));
    BN_TRY(openai_c_string(&name, json_object_get(item, "name"), "name", err));
    BN_TRY(openai_c_string(&arguments, json_object_get(item, "arguments"), "arguments", err));
    json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    if (!role || strcmp(role, "assistant") != 0) {
        BN_TRY(add_message(r, "assistant", json_string(""), err));
        last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    }
    json_t *calls = json_object_get(last, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(last, "tool_calls", calls);
    }
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function", "function",
                             "name", name, "arguments", arguments);
    return json_array_append_new(calls, call) == 0 ? BITNET_OK : bn_fail_nomem(err, 0, "a call");
}

static bitnet_status add_result(struct openai_request *r, const json_t *item, size_t at,
                                bitnet_error *err)
{
    static const char *const known[] = {"type", "call_id", "output", "id", "status", NULL};
    static const char *const types[] = {"input_text", NULL};
    const char *id;
    json_t *content;
    BN_TRY(openai_check_members(item, known, "input", err));
    BN_TRY(openai_c_string(&id, json_object_get(item, "call_id"), "call_id", err));
    BN_TRY(
        openai_read_content(&content, json_object_get(item, "output"), types, "output", at, err));
    BN_TRY(add_message(r, "tool", content, err));
    json_t *last = json_array_get(r->messages, json_array_size(r->messages) - 1);
    return json_object_set_new(last, "tool_call_id", json_string(id)) == 0
               ? BITNET_OK
               : bn_fail_nomem(err, 0, "a message");
}

static bitnet_status add_item(struct openai_request *r, const json_t *item, size_t at,
                              bitnet_error *err)
{
    const char *type = "message";
    BN_TRY(bn_json_str(&type, item, "type", "an item of 'input'", err));
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
                                const json_t *v, bitnet_error *err)
{
    const json_t *instructions = json_object_get(r->body, "instructions");
    bool is_text = json_is_string(v);
    const char *text;
    BN_TRY(openai_begin_messages(r, is_text ? 1 : json_array_size(v), f->key, err));
    if (openai_is_given(instructions)) {
        BN_TRY(openai_c_string(&text, instructions, "instructions", err));
        BN_TRY(add_message(r, "system", json_string(text), err));
    }
    if (is_text) {
        BN_TRY(openai_c_string(&text, v, f->key, err));
        return add_message(r, "user", json_string(text), err);
    }
    size_t i;
    const json_t *item;
    json_array_foreach(v, i, item) BN_TRY(add_item(r, item, i, err));
    return json_array_size(r->messages) ? BITNET_OK
                                        : bn_fail(err, BITNET_E_ARG, "'%s' has no message", f->key);
}

/* ------------------------------------------------------------------ tools */

/* {"type": "function", ...} -> {"type": "function", "function": {...}}; anything else stays as it is,
 * to be refused by name. A new reference. */
static json_t *wrap_function(json_t *flat)
{
    const char *type = json_string_value(json_object_get(flat, "type"));
    if (!type || strcmp(type, "function") != 0) return json_incref(flat);
    json_t *function = json_copy(flat);
    json_object_del(function, "type");
    return json_pack("{s:s, s:o}", "type", type, "function", function);
}

bool openai_wrap_tools(json_t **tools, json_t **choice)
{
    bool ok = true;
    if (json_is_array(*tools)) {
        json_t *list = json_array(), *one;
        size_t i;
        json_array_foreach(*tools, i, one) ok =
            ok && json_array_append_new(list, wrap_function(one)) == 0;
        json_decref(*tools);
        *tools = list;
    }
    if (*choice) {
        json_t *wrapped = wrap_function(*choice);
        json_decref(*choice);
        *choice = wrapped;
        ok = ok && wrapped;
    }
    return ok;
}
