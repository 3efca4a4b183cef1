/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a message: its beginning, its blocks one after the other, each with a start, pieces and a
 * stop, and its end. Put together they are what anthropic_reply says.
 */
#include "server/anthropic/anthropic_impl.h"

enum block { NO_BLOCK, THINKING, TEXT, TOOL_USE };

static void put_event(const char *type, struct bn_json *members, struct bn_buf *out)
{
    struct bn_json *event = bn_json_pack("{s:s}", "type", type);
    bn_json_update(event, members, true);
    bn_buf_printf(out, "event: %s\ndata: ", type);
    if (members && bn_json_whole(members)) bn_json_write(out, event, BN_JSON_COMPACT);
    else out->failed = true;
    bn_buf_puts(out, "\n\n");
    bn_json_free(event);
    bn_json_free(members);
}

/* ------------------------------------------------------------------ blocks */

static void stop_block(struct openai_sent *sent, struct bn_buf *out)
{
    if (sent->block == NO_BLOCK) return;
    put_event("content_block_stop", bn_json_pack("{s:i}", "index", (int)sent->n_blocks), out);
    sent->block = NO_BLOCK;
    sent->n_blocks++;
}

/* first: the block as it begins, taken. */
static void start_block(struct openai_sent *sent, enum block block, struct bn_json *first,
                        struct bn_buf *out)
{
    stop_block(sent, out);
    put_event("content_block_start",
              bn_json_pack("{s:i, s:o}", "index", (int)sent->n_blocks, "content_block", first),
              out);
    sent->block = (uint8_t)block;
}

static void put_delta(const struct openai_sent *sent, const char *type, const char *key,
                      const struct bn_buf *text, size_t from, struct bn_buf *out)
{
    if (text->len == from) return;
    put_event("content_block_delta",
              bn_json_pack("{s:i, s:{s:s, s:o}}", "index", (int)sent->n_blocks, "delta", "type",
                           type, key, openai_text(text->data + from, text->len - from)),
              out);
}

static void put_thinking(struct openai_choice *c, struct openai_sent *sent, struct bn_buf *out)
{
    struct bn_buf *text = &c->reasoning.text;
    if (text->len == 0) return;
    if (sent->block != THINKING)
        start_block(
            sent, THINKING,
            bn_json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""),
            out);
    put_delta(sent, "thinking_delta", "thinking", text, 0, out);
    bn_buf_clear(text);
}

static void put_text(struct openai_choice *c, struct openai_sent *sent, struct bn_buf *out)
{
    struct bn_buf *text = &c->parser.text;
    bool first = c->has_text && !sent->begun;
    if (text->len == 0 && !first) return;
    if (sent->block != TEXT)
        start_block(sent, TEXT, bn_json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
    sent->begun = true;
    put_delta(sent, "text_delta", "text", text, 0, out);
    bn_buf_clear(text);
}

/* What is new of the first n calls. */
static void put_calls(const struct openai_choice *c, struct openai_sent *sent, size_t n,
                      struct bn_buf *out)
{
    const struct tools_call *call;
    while (sent->n_calls < n && (call = openai_next_call(c, sent)) != NULL) {
        if (!sent->call_begun)
            start_block(sent, TOOL_USE,
                        bn_json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", call->id,
                                     "name", call->name, "input"),
                        out);
        put_delta(sent, "input_json_delta", "partial_json", &call->arguments, sent->argument_bytes,
                  out);
        openai_call_sent(call, sent);
        if (call->complete) stop_block(sent, out);
    }
}

/* ------------------------------------------------------------------ the whole */

static void put_news(struct openai_stream *s, struct bn_buf *out)
{
    struct openai_choice *c = &s->reply.choices[0];
    struct openai_sent *sent = &s->sent[0];
    if (!s->begun) {
        put_event(
            "message_start",
            bn_json_pack("{s:o}", "message", anthropic_message(&s->reply, bn_json_array(), NULL)),
            out);
        put_event("ping", bn_json_object(), out);
        s->begun = true;
    }
    put_thinking(c, sent, out);
    if (c->has_text) {
        put_calls(c, sent, c->n_calls_before, out);
        put_text(c, sent, out);
    }
    put_calls(c, sent, c->parser.n_calls, out);
}

void anthropic_flush(struct openai_stream *s, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[0];
    put_news(s, out);
    if (!openai_reply_done(&s->reply)) return;
    stop_block(&s->sent[0], out);
    put_event("message_delta",
              bn_json_pack("{s:{s:s, s:s?}, s:o}", "delta", "stop_reason", anthropic_stop_reason(c),
                           "stop_sequence", c->stop, "usage", anthropic_usage(c)),
              out);
    put_event("message_stop", bn_json_object(), out);
    s->ended = true;
}

void anthropic_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    const struct openai_fault f = openai_fault_of(why);
    put_news(s, out);
    put_event("error", anthropic_error(&f), out);
}
