/* SPDX-License-Identifier: Apache-2.0 */
#include "text/template/chat_json.h"

#include <stdlib.h>

/* A content in parts as one text: templates of text models expect that. */
static bitnet_status join_parts(struct bn_json *message, const struct bn_json *parts, size_t at,
                                bitnet_error *err)
{
    struct bn_buf text;
    size_t i;
    const struct bn_json *part;
    bn_buf_init(&text, BN_CHAT_MAX_JSON);
    bn_json_each(parts, i, part)
    {
        const char *type = bn_json_text(bn_json_get(part, "type"));
        const struct bn_json *piece = bn_json_get(part, "text");
        if (!type || strcmp(type, "text") != 0 || !bn_json_is_string(piece)) {
            bn_buf_free(&text);
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "message %zu has a part of type '%.40s'; only text is possible", at,
                           type ? type : "");
        }
        bn_buf_append(&text, bn_json_text(piece), bn_json_bytes(piece));
    }
    bool ok = !text.failed && bn_json_set(message, "content",
                                          bn_json_stringn(text.data ? text.data : "", text.len));
    bn_buf_free(&text);
    return ok ? BITNET_OK : bn_fail_nomem(err, 0, "a message in parts");
}

/* What C cannot hold, a built-in cannot show. */
static bool is_c_string(const struct bn_json *v)
{
    return bn_json_is_string(v) && strlen(bn_json_text(v)) == bn_json_bytes(v);
}

static bitnet_status plain_message(bitnet_message *out, struct bn_json *message, size_t at,
                                   const char *builtin, bitnet_error *err)
{
    const struct bn_json *role = bn_json_get(message, "role"),
                         *content = bn_json_get(message, "content");
    const char *key;
    struct bn_json *value;
    bn_json_each_member(message, key, value)
    {
        if (value != role && value != content && !bn_json_is_null(value))
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "message %zu has '%.40s', which chat template '%s' cannot show", at, key,
                           builtin);
    }
    if (!is_c_string(role) || !is_c_string(content))
        return bn_fail(err, BITNET_E_ARG, "message %zu: '%s' is not a text without U+0000", at,
                       is_c_string(role) ? "content" : "role");
    *out = (bitnet_message){bn_json_text(role), bn_json_text(content)};
    return BITNET_OK;
}

static bitnet_status plain_messages(struct bn_talk *t, const char *builtin, bitnet_error *err)
{
    const struct bn_json *list = bn_json_get(t->vars, "messages"),
                         *tools = bn_json_get(t->vars, "tools");
    if (tools && !bn_json_is_null(tools))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "chat template '%s' cannot show tools", builtin);
    t->n_msgs = bn_json_size(list);
    t->msgs = bn_calloc(t->n_msgs, sizeof *t->msgs);
    if (!t->msgs) return bn_fail_nomem(err, t->n_msgs * sizeof *t->msgs, "messages");
    for (size_t i = 0; i < t->n_msgs; i++)
        BN_TRY(plain_message(&t->msgs[i], bn_json_at(list, i), i, builtin, err));
    return BITNET_OK;
}

static bitnet_status check_messages(struct bn_talk *t, bitnet_error *err)
{
    const struct bn_json *list = bn_json_get(t->vars, "messages");
    size_t i;
    struct bn_json *message;
    if (!bn_json_is_array(list))
        return bn_fail(err, BITNET_E_ARG, "the conversation has no list 'messages'");
    bn_json_each(list, i, message)
    {
        const struct bn_json *content = bn_json_get(message, "content");
        if (!bn_json_is_object(message))
            return bn_fail(err, BITNET_E_ARG, "message %zu is not an object", i);
        if (bn_json_is_array(content)) BN_TRY(join_parts(message, content, i, err));
    }
    return BITNET_OK;
}

bitnet_status bn_talk_read(struct bn_talk *t, const char *json, size_t len, const char *builtin,
                           bitnet_error *err)
{
    *t = (struct bn_talk){0};
    if (len > BN_CHAT_MAX_JSON)
        return bn_fail(err, BITNET_E_LIMIT, "a conversation of %zu bytes, the most is %d", len,
                       BN_CHAT_MAX_JSON);
    BN_TRY(bn_json_parse(&t->vars, json, len, 0, "conversation", err));
    bitnet_status st = check_messages(t, err);
    if (st == BITNET_OK && builtin) st = plain_messages(t, builtin, err);
    if (st != BITNET_OK) bn_talk_free(t);
    return st;
}

void bn_talk_free(struct bn_talk *t)
{
    free(t->msgs);
    bn_json_free(t->vars);
}
