/* SPDX-License-Identifier: Apache-2.0 */
#include "server/anthropic/anthropic_impl.h"

struct bn_json *anthropic_error(const struct openai_fault *f)
{
    static const struct {
        int status;
        const char *type;
    } known[] = {
        {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
        {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"},
        {504, "timeout_error"},
    };
    const char *type = f->status < 500 ? "invalid_request_error" : "api_error";
    for (size_t i = 0; i < BN_ARRAY_LEN(known); i++)
        if (known[i].status == f->status) type = known[i].type;
    return bn_json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                        openai_text(f->sentence, strlen(f->sentence)));
}

const char *anthropic_stop_reason(const struct openai_choice *c)
{
    switch (c->finish) {
    case BITNET_FINISH_STOP: return "stop_sequence";
    case BITNET_FINISH_END: return c->parser.n_calls ? "tool_use" : "end_turn";
    case BITNET_FINISH_LENGTH: return "max_tokens";
    default: return openai_finish_name(c);
    }
}

/* What was read from the prefix cache counts apart. */
struct bn_json *anthropic_usage(const struct openai_choice *c)
{
    return bn_json_pack("{s:I, s:i, s:I, s:I}", "input_tokens",
                        (int64_t)c->n_prompt - (int64_t)c->n_cached, "cache_creation_input_tokens",
                        0, "cache_read_input_tokens", (int64_t)c->n_cached, "output_tokens",
                        (int64_t)c->n_generated);
}

struct bn_json *anthropic_message(const struct openai_reply *r, struct bn_json *content,
                                  const char *stop_reason)
{
    const struct openai_choice *c = &r->choices[0];
    struct bn_json *m = bn_json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", r->id, "type", "message", "role",
        "assistant", "model", r->model, "content", content, "stop_reason", stop_reason,
        "stop_sequence", stop_reason ? c->stop : NULL, "usage", anthropic_usage(c));
    if (r->n_dropped) bn_json_set(m, "dropped_messages", bn_json_int((int64_t)r->n_dropped));
    return m;
}

/* The arguments as an object; what was cut off is none any more, and told as it came. */
static struct bn_json *use_json(const struct tools_call *call)
{
    struct bn_json *input = NULL;
    bn_json_try(&input, call->arguments.data, call->arguments.len, 0);
    if (!bn_json_is_object(input)) {
        bn_json_free(input);
        input = bn_json_pack("{s:o}", "cut_off", openai_arguments_text(call));
    }
    return bn_json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", call->id, "name",
                        call->name, "input", input);
}

struct bn_json *anthropic_reply(const struct openai_reply *r, bool with_cached)
{
    const struct openai_choice *c = &r->choices[0];
    const struct bn_buf *reasoning = &c->reasoning.text;
    struct bn_json *content = bn_json_array();
    (void)with_cached; /* there is no batch of these */
    if (reasoning->len)
        bn_json_append(content,
                       bn_json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                    openai_text(reasoning->data, reasoning->len), "signature", ""));
    for (size_t i = 0; i <= c->parser.n_calls; i++) {
        if (c->has_text && i == c->n_calls_before)
            bn_json_append(
                content, bn_json_pack("{s:s, s:o}", "type", "text", "text", openai_choice_text(c)));
        if (i < c->parser.n_calls) bn_json_append(content, use_json(&c->parser.calls[i]));
    }
    return anthropic_message(r, content, anthropic_stop_reason(c));
}

const struct dialect anthropic_dialect = {.id_prefix = "msg_",
                                          .stream_type = "text/event-stream",
                                          .id_header = "Request-Id",
                                          .read = anthropic_read,
                                          .reply = anthropic_reply,
                                          .flush = anthropic_flush,
                                          .fail = anthropic_fail,
                                          .error = anthropic_error};
