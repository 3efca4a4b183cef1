/* SPDX-License-Identifier: Apache-2.0
 *
 * The typed events of a response. Pieces of text and arguments are written by hand; what is told once
 * (items, the response itself) is made by responses.c.
 */
#include "server/openai/stream_impl.h"
#include "server/openai/responses.h"

#include <stdlib.h>

static void begin_event(struct openai_stream *s, const char *type, struct bn_buf *out)
{
    bn_buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%llu,", type, type,
                  (unsigned long long)s->sequence++);
}

/* An event with these members, which are taken; NULL: out of memory. */
static void put_event(struct openai_stream *s, const char *type, struct bn_json *members,
                      struct bn_buf *out)
{
    char *text = members ? bn_json_dump(members, OPENAI_DUMP_FLAGS) : NULL;
    begin_event(s, type, out);
    if (text) bn_buf_printf(out, "%s\n\n", text + 1); /* without its opening brace */
    else out->failed = true;
    free(text);
    bn_json_free(members);
}

static void put_response(struct openai_stream *s, const char *type, bool ended, struct bn_buf *out)
{
    put_event(s, type, bn_json_pack("{s:o}", "response", responses_json(&s->reply, ended, true)),
              out);
}

/* ------------------------------------------------------------------ text */

void responses_stream_head(struct bn_buf *head, const struct openai_reply *r)
{
    struct bn_json *id = responses_message_id(r);
    bn_buf_puts(head, "\"content_index\":0,\"item_id\":");
    if (id) bn_json_quote(head, bn_json_text(id), bn_json_bytes(id));
    else head->failed = true;
    bn_json_free(id);
    bn_buf_puts(head, ",\"delta\":");
}

/* An event about the text, with one more member, which is taken. */
static void put_text_event(struct openai_stream *s, const char *type, const char *key,
                           struct bn_json *v, struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    put_event(s, type,
              bn_json_pack("{s:o, s:i, s:i, s:o}", "item_id", responses_message_id(r),
                           "output_index", (int)responses_message_index(r), "content_index", 0, key,
                           v),
              out);
}

static void begin_message(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    put_event(s, "response.output_item.added",
              bn_json_pack("{s:i, s:o}", "output_index", (int)responses_message_index(r), "item",
                           responses_message(r, false)),
              out);
    put_text_event(s, "response.content_part.added", "part", responses_part(r, false), out);
    s->sent->begun = true;
}

static void put_delta(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_choice *c = s->reply.choices;
    const struct bn_buf *text = &c->parser.text, *logprobs = &c->logprobs.lists[0];
    struct openai_sent *sent = s->sent;
    if (text->len == sent->text_bytes && logprobs->len == sent->logprob_bytes) return;
    begin_event(s, "response.output_text.delta", out);
    bn_buf_printf(out, "\"output_index\":%zu,", responses_message_index(&s->reply));
    bn_buf_append(out, s->head.data, s->head.len);
    bn_json_quote(out, text->data ? text->data + sent->text_bytes : "",
                  text->len - sent->text_bytes);
    bn_buf_puts(out, ",\"logprobs\":[");
    if (logprobs->len > sent->logprob_bytes) {
        size_t at = sent->logprob_bytes + (sent->logprob_bytes > 0); /* after the comma */
        bn_buf_append(out, logprobs->data + at, logprobs->len - at);
    }
    bn_buf_puts(out, "]}\n\n");
    sent->text_bytes = text->len;
    sent->logprob_bytes = logprobs->len;
}

static void end_message(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    struct bn_json *part = responses_part(r, true);
    put_event(s, "response.output_text.done",
              bn_json_pack("{s:o, s:i, s:i, s:O, s:O}", "item_id", responses_message_id(r),
                           "output_index", (int)responses_message_index(r), "content_index", 0,
                           "text", bn_json_get(part, "text"), "logprobs",
                           bn_json_get(part, "logprobs")),
              out);
    put_text_event(s, "response.content_part.done", "part", part, out);
    put_event(s, "response.output_item.done",
              bn_json_pack("{s:i, s:o}", "output_index", (int)responses_message_index(r), "item",
                           responses_message(r, true)),
              out);
}

/* ------------------------------------------------------------------ calls */

static void put_call_item(struct openai_stream *s, const char *type, size_t i, bool ended,
                          struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    put_event(s, type,
              bn_json_pack("{s:i, s:o}", "output_index", (int)responses_call_index(r, i), "item",
                           responses_call(r, i, ended)),
              out);
}

static void put_arguments(struct openai_stream *s, size_t i, const char *more, size_t n,
                          struct bn_buf *out)
{
    struct bn_json *id = responses_call_id(&s->reply, i);
    begin_event(s, "response.function_call_arguments.delta", out);
    bn_buf_printf(out,
                  "\"item_id\":\"%s\",\"output_index\":%zu,\"delta\":", id ? bn_json_text(id) : "",
                  responses_call_index(&s->reply, i));
    bn_json_quote(out, more, n);
    bn_buf_puts(out, "}\n\n");
    if (!id) out->failed = true;
    bn_json_free(id);
}

static void end_call(struct openai_stream *s, size_t i, struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    const struct tools_call *call = &r->choices->parser.calls[i];
    put_event(s, "response.function_call_arguments.done",
              bn_json_pack("{s:o, s:i, s:s, s:o}", "item_id", responses_call_id(r, i),
                           "output_index", (int)responses_call_index(r, i), "name", call->name,
                           "arguments", openai_arguments_text(call)),
              out);
    put_call_item(s, "response.output_item.done", i, true, out);
}

/* What is new of the first n calls. */
static void put_calls(struct openai_stream *s, size_t n, struct bn_buf *out)
{
    const struct openai_choice *c = s->reply.choices;
    struct openai_sent *sent = s->sent;
    const struct tools_call *call;
    while (sent->n_calls < n && (call = openai_next_call(c, sent))) {
        size_t i = sent->n_calls;
        if (!sent->call_begun) put_call_item(s, "response.output_item.added", i, false, out);
        put_arguments(s, i, call->arguments.data + sent->argument_bytes,
                      call->arguments.len - sent->argument_bytes, out);
        openai_call_sent(call, sent);
        if (call->complete) end_call(s, i, out);
    }
}

/* ------------------------------------------------------------------ the whole */

static void put_news(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_choice *c = s->reply.choices;
    if (!s->begun) {
        put_response(s, "response.created", false, out);
        put_response(s, "response.in_progress", false, out);
        s->begun = true;
    }
    if (c->has_text) {
        put_calls(s, c->n_calls_before, out); /* items begin in the order of the output */
        if (!s->sent->begun) begin_message(s, out);
        put_delta(s, out);
    }
    put_calls(s, c->parser.n_calls, out);
}

void responses_stream_flush(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_reply *r = &s->reply;
    put_news(s, out);
    if (!openai_reply_done(r)) return;
    if (s->sent->call_begun) end_call(s, s->sent->n_calls, out); /* cut off */
    if (s->sent->begun) end_message(s, out);
    const char *why = openai_finish_name(r->choices);
    bool whole = strcmp(why, "stop") == 0 || strcmp(why, "tool_calls") == 0;
    put_response(s, whole ? "response.completed" : "response.incomplete", true, out);
    s->ended = true;
}

void responses_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    put_news(s, out);
    s->reply.error = *why;
    put_response(s, "response.failed", true, out);
}
