/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses.h"

struct bn_json *responses_echo(const struct openai_request *q)
{
    static const struct {
        const char *key, *otherwise;
    } members[] = {
        {"instructions", "null"},
        {"max_output_tokens", "null"},
        {"metadata", "{}"},
        {"parallel_tool_calls", "true"},
        {"previous_response_id", "null"},
        {"reasoning", "{\"effort\":null,\"summary\":null}"},
        {"temperature", "1.0"},
        {"text", "{\"format\":{\"type\":\"text\"}}"},
        {"tool_choice", "\"auto\""},
        {"tools", "[]"},
        {"top_logprobs", "0"},
        {"top_p", "1.0"},
        {"truncation", "\"disabled\""},
        {"user", "null"},
    };
    struct bn_json *j =
        bn_json_pack("{s:b, s:b, s:s}", "background", 0, "store", 0, "service_tier", "default");
    for (size_t i = 0; i < BN_ARRAY_LEN(members); i++) {
        struct bn_json *v = bn_json_get(q->body, members[i].key);
        if (v && !bn_json_is_null(v)) bn_json_ref(v);
        else bn_json_try(&v, members[i].otherwise, strlen(members[i].otherwise), BN_JSON_ANY);
        bn_json_set(j, members[i].key, v);
    }
    if (bn_json_whole(j)) return j;
    bn_json_free(j);
    return NULL;
}

/* ------------------------------------------------------------------ items */

static bool is_complete(const struct openai_choice *c)
{
    return c->finish == BITNET_FINISH_END || c->finish == BITNET_FINISH_STOP;
}

/* completed: as far as this item goes */
static const char *item_status(bool ended, bool completed)
{
    if (!ended) return "in_progress";
    return completed ? "completed" : "incomplete";
}

struct bn_json *responses_message_id(const struct openai_reply *r)
{
    return bn_json_printf("msg_%s", strchr(r->id, '_') + 1);
}

struct bn_json *responses_call_id(const struct openai_reply *r, size_t i)
{
    return bn_json_printf("fc_%s", strchr(r->choices->parser.calls[i].id, '_') + 1);
}

size_t responses_message_index(const struct openai_reply *r) { return r->choices->n_calls_before; }

size_t responses_call_index(const struct openai_reply *r, size_t i)
{
    return i + (r->choices->has_text && i >= r->choices->n_calls_before);
}

struct bn_json *responses_part(const struct openai_reply *r, bool ended)
{
    const struct openai_choice *c = r->choices;
    struct bn_json *text = ended ? openai_choice_text(c) : bn_json_string("");
    struct bn_json *logprobs = ended && r->logprobs ? openai_logprobs_json(r, c) : bn_json_array();
    return bn_json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations",
                        "logprobs", logprobs);
}

struct bn_json *responses_message(const struct openai_reply *r, bool ended)
{
    struct bn_json *content = bn_json_array();
    if (ended) bn_json_append(content, responses_part(r, true));
    return bn_json_pack("{s:o, s:s, s:s, s:s, s:o}", "id", responses_message_id(r), "type",
                        "message", "status", item_status(ended, is_complete(r->choices)), "role",
                        "assistant", "content", content);
}

struct bn_json *responses_call(const struct openai_reply *r, size_t i, bool ended)
{
    const struct tools_call *call = &r->choices->parser.calls[i];
    return bn_json_pack("{s:o, s:s, s:s, s:s, s:s, s:o}", "id", responses_call_id(r, i), "type",
                        "function_call", "status", item_status(ended, call->complete), "call_id",
                        call->id, "name", call->name, "arguments",
                        ended ? openai_arguments_text(call) : bn_json_string(""));
}

static struct bn_json *output_json(const struct openai_reply *r)
{
    const struct openai_choice *c = r->choices;
    struct bn_json *output = bn_json_array();
    bool ok = output != NULL;
    for (size_t i = 0; ok && i < c->parser.n_calls; i++)
        ok = bn_json_append(output, responses_call(r, i, true));
    if (ok && c->has_text)
        ok = bn_json_insert(output, c->n_calls_before, responses_message(r, true));
    if (ok) return output;
    bn_json_free(output);
    return NULL;
}

/* ------------------------------------------------------------------ the object */

static const char *status_name(const struct openai_reply *r, bool ended)
{
    const struct openai_choice *c = r->choices;
    if (ended && r->error.status != BITNET_OK) return "failed";
    if (ended && c->finish == BITNET_FINISH_CANCELLED) return "cancelled";
    return item_status(ended, is_complete(c));
}

static struct bn_json *incomplete_details(const struct openai_reply *r)
{
    const struct openai_choice *c = r->choices;
    if (is_complete(c) || r->error.status != BITNET_OK) return bn_json_null();
    return bn_json_pack("{s:s}", "reason",
                        c->finish == BITNET_FINISH_LENGTH ? "max_output_tokens"
                                                          : openai_finish_name(c));
}

static struct bn_json *usage_json(const struct openai_reply *r, bool with_cached)
{
    int64_t n_prompt = (int64_t)r->n_prompt, n_generated = r->choices->n_generated;
    struct bn_json *j = bn_json_pack("{s:I, s:I, s:{s:i}, s:I}", "input_tokens", n_prompt,
                                     "output_tokens", n_generated, "output_tokens_details",
                                     "reasoning_tokens", 0, "total_tokens", n_prompt + n_generated);
    if (with_cached)
        bn_json_set(j, "input_tokens_details",
                    bn_json_pack("{s:I}", "cached_tokens", (int64_t)r->n_cached));
    return j;
}

static struct bn_json *error_json(const bitnet_error *e)
{
    if (e->status == BITNET_OK) return bn_json_null();
    return bn_json_pack("{s:s, s:o}", "code", "server_error", "message",
                        openai_text(e->text, strlen(e->text)));
}

struct bn_json *responses_json(const struct openai_reply *r, bool ended, bool with_cached)
{
    struct bn_json *j =
        bn_json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:o, s:o}", "id", r->id, "object",
                     "response", "created_at", (int64_t)r->created, "status", status_name(r, ended),
                     "error", ended ? error_json(&r->error) : bn_json_null(), "incomplete_details",
                     ended ? incomplete_details(r) : bn_json_null(), "model", r->model, "output",
                     ended ? output_json(r) : bn_json_array(), "usage",
                     ended ? usage_json(r, with_cached) : bn_json_null());
    bn_json_update(j, r->echoed, false);
    if (r->n_dropped) bn_json_set(j, "dropped_messages", bn_json_int((int64_t)r->n_dropped));
    return j;
}
