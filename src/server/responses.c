/* SPDX-License-Identifier: Apache-2.0 */
#include "server/responses.h"

json_t *responses_echo(const struct openai_request *q)
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
    json_t *j =
        json_pack("{s:b, s:b, s:s}", "background", 0, "store", 0, "service_tier", "default");
    for (size_t i = 0; i < BN_ARRAY_LEN(members); i++) {
        json_t *v = json_object_get(q->body, members[i].key);
        v = v && !json_is_null(v) ? json_incref(v)
                                  : json_loads(members[i].otherwise, JSON_DECODE_ANY, NULL);
        if (json_object_set_new(j, members[i].key, v) != 0) {
            json_decref(j);
            return NULL;
        }
    }
    return j;
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

json_t *responses_message_id(const struct openai_reply *r)
{
    return json_sprintf("msg_%s", strchr(r->id, '_') + 1);
}

json_t *responses_call_id(const struct openai_reply *r, size_t i)
{
    return json_sprintf("fc_%s", strchr(r->choices->answer.calls[i].id, '_') + 1);
}

size_t responses_message_index(const struct openai_reply *r) { return r->choices->n_calls_before; }

size_t responses_call_index(const struct openai_reply *r, size_t i)
{
    return i + (r->choices->has_text && i >= r->choices->n_calls_before);
}

json_t *responses_part(const struct openai_reply *r, bool ended)
{
    const struct openai_choice *c = r->choices;
    json_t *text = ended ? openai_answer_text(c) : json_string("");
    json_t *logprobs = ended && r->logprobs ? openai_logprobs_json(r, c) : json_array();
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text, "annotations",
                     "logprobs", logprobs);
}

json_t *responses_message(const struct openai_reply *r, bool ended)
{
    json_t *content = json_array();
    if (ended) json_array_append_new(content, responses_part(r, true));
    return json_pack("{s:o, s:s, s:s, s:s, s:o}", "id", responses_message_id(r), "type", "message",
                     "status", item_status(ended, is_complete(r->choices)), "role", "assistant",
                     "content", content);
}

json_t *responses_call(const struct openai_reply *r, size_t i, bool ended)
{
    const struct tools_call *call = &r->choices->answer.calls[i];
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:o}", "id", responses_call_id(r, i), "type",
                     "function_call", "status", item_status(ended, call->complete), "call_id",
                     call->id, "name", call->name, "arguments",
                     ended ? openai_arguments_text(call) : json_string(""));
}

static json_t *output_json(const struct openai_reply *r)
{
    const struct openai_choice *c = r->choices;
    json_t *output = json_array();
    bool ok = output != NULL;
    for (size_t i = 0; ok && i < c->answer.n_calls; i++)
        ok = json_array_append_new(output, responses_call(r, i, true)) == 0;
    if (ok && c->has_text)
        ok = json_array_insert_new(output, c->n_calls_before, responses_message(r, true)) == 0;
    if (ok) return output;
    json_decref(output);
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

static json_t *incomplete_details(const struct openai_reply *r)
{
    const struct openai_choice *c = r->choices;
    if (is_complete(c) || r->error.status != BITNET_OK) return json_null();
    return json_pack("{s:s}", "reason",
                     c->finish == BITNET_FINISH_LENGTH ? "max_output_tokens"
                                                       : openai_finish_name(c));
}

static json_t *usage_json(const struct openai_reply *r, bool with_cached)
{
    json_int_t n_prompt = (json_int_t)r->n_prompt, n_answer = r->choices->n_generated;
    json_t *j = json_pack("{s:I, s:I, s:{s:i}, s:I}", "input_tokens", n_prompt, "output_tokens",
                          n_answer, "output_tokens_details", "reasoning_tokens", 0, "total_tokens",
                          n_prompt + n_answer);
    if (with_cached)
        json_object_set_new(j, "input_tokens_details",
                            json_pack("{s:I}", "cached_tokens", (json_int_t)r->n_cached));
    return j;
}

static json_t *error_json(const bitnet_error *e)
{
    if (e->status == BITNET_OK) return json_null();
    return json_pack("{s:s, s:o}", "code", "server_error", "message",
                     openai_text(e->text, strlen(e->text)));
}

json_t *responses_json(const struct openai_reply *r, bool ended, bool with_cached)
{
    json_t *j =
        json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s, s:o, s:o}", "id", r->id, "object",
                  "response", "created_at", (json_int_t)r->created, "status", status_name(r, ended),
                  "error", ended ? error_json(&r->error) : json_null(), "incomplete_details",
                  ended ? incomplete_details(r) : json_null(), "model", r->model, "output",
                  ended ? output_json(r) : json_array(), "usage",
                  ended ? usage_json(r, with_cached) : json_null());
    if (j) json_object_update_missing(j, r->echoed);
    return j;
}
