/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/dialects.h"

#include "base/os/mem.h"
#include "server/dialect.h"
#include <stdlib.h>

static const size_t head_max_bytes = 1 << 20;

/* ------------------------------------------------------------------ open and close */

/* What is the same in all chunks: everything before a choice. */
void openai_chunks_head(struct bn_buf *b, const struct openai_reply *r)
{
    bn_buf_puts(b, "data: {\"id\":");
    bn_json_quote(b, r->id, strlen(r->id));
    bn_buf_printf(b, ",\"object\":\"%s\",\"created\":%llu,\"model\":",
                  r->kind == OPENAI_CHAT ? "chat.completion.chunk" : "text_completion",
                  (unsigned long long)r->created);
    bn_json_quote(b, r->model, strlen(r->model));
    if (r->n_dropped) bn_buf_printf(b, ",\"dropped_messages\":%zu", r->n_dropped);
    bn_buf_puts(b, ",\"system_fingerprint\":\"bitnet-" BITNET_VERSION "\",\"choices\":[");
}

static bool make_head(struct openai_stream *s)
{
    bn_buf_init(&s->head, head_max_bytes);
    if (s->reply.dialect->stream_head) s->reply.dialect->stream_head(&s->head, &s->reply);
    return !s->head.failed;
}

bitnet_status openai_stream_open(struct openai_stream **out, const struct openai_request *q,
                                 const bitnet_model *m, const char *id, uint64_t created,
                                 bitnet_error *err)
{
    struct openai_stream *s = bn_calloc(1, sizeof *s);
    if (!s) return bn_fail_nomem(err, sizeof *s, "a stream");
    s->include_usage = q->include_usage;
    bitnet_status st = openai_reply_open(&s->reply, q, m, id, created, err);
    if (st == BITNET_OK) {
        s->sent = bn_calloc(s->reply.n_choices, sizeof *s->sent);
        if (!s->sent || !make_head(s)) st = bn_fail_nomem(err, head_max_bytes, "a stream");
    }
    if (st == BITNET_OK) *out = s;
    else openai_stream_close(s);
    return st;
}

void openai_stream_close(struct openai_stream *s)
{
    if (!s) return;
    openai_reply_close(&s->reply);
    bn_buf_free(&s->head);
    free(s->sent);
    free(s);
}

bitnet_status openai_stream_take(struct openai_stream *s, size_t i, const bitnet_event *e,
                                 bitnet_error *err)
{
    return openai_reply_take(&s->reply, i, e, err);
}

bool openai_stream_done(const struct openai_stream *s) { return openai_reply_done(&s->reply); }

/* ------------------------------------------------------------------ chunks */

static void put_buf(struct bn_buf *out, const struct bn_buf *b)
{
    bn_buf_append(out, b->data, b->len);
}

static void begin_chunk(const struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    put_buf(out, &s->head);
    bn_buf_printf(out, "{\"index\":%u,", i);
}

static void put_timings(const struct openai_choice *c, struct bn_buf *out)
{
    struct bn_json *timings = openai_timings_json(c);
    bn_buf_puts(out, ",\"timings\":");
    bn_json_write(out, timings, BN_JSON_COMPACT);
    bn_json_free(timings);
}

/* c: whose times are told; NULL: none. finish: NULL: the choice goes on */
static void end_chunk(const struct openai_stream *s, const struct openai_choice *c,
                      const struct openai_logprobs *logprobs, const char *finish,
                      struct bn_buf *out)
{
    bn_buf_puts(out, ",\"logprobs\":");
    if (logprobs) openai_logprobs_write(logprobs, out);
    else bn_buf_puts(out, "null");
    bn_buf_puts(out, ",\"finish_reason\":");
    if (finish) bn_json_quote(out, finish, strlen(finish));
    else bn_buf_puts(out, "null");
    bn_buf_puts(out, s->include_usage ? "}],\"usage\":null" : "}]");
    if (s->reply.timings && c && c->n_generated) put_timings(c, out);
    bn_buf_puts(out, "}\n\n");
}

/* [{"index", "id", "type", "function": {"name", "arguments"}}, ...]; of a call that has begun only the
 * index and more of the arguments */
static void put_calls(const struct openai_choice *c, struct openai_sent *sent, struct bn_buf *out)
{
    const struct tools_call *call;
    const char *comma = "[";
    while ((call = openai_next_call(c, sent))) {
        bn_buf_printf(out, "%s{\"index\":%zu,", comma, sent->n_calls);
        if (!sent->call_begun)
            bn_buf_printf(out, "\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":\"%s\",",
                          call->id, call->name);
        else bn_buf_puts(out, "\"function\":{");
        bn_buf_puts(out, "\"arguments\":");
        bn_json_quote(out, call->arguments.data + sent->argument_bytes,
                      call->arguments.len - sent->argument_bytes);
        bn_buf_puts(out, "}}");
        comma = ",";
        openai_call_sent(call, sent);
    }
    bn_buf_putc(out, ']');
}

/* What is new of a choice; then nothing is. */
static void put_news(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    struct openai_choice *c = &s->reply.choices[i];
    struct bn_buf *text = &c->parser.text, *reasoning = &c->reasoning.text;
    bool chat = s->reply.kind == OPENAI_CHAT, calls = openai_next_call(c, &s->sent[i]) != NULL,
         logprobs = openai_logprobs_any(&c->logprobs);
    if (!text->len && !reasoning->len && !calls && !logprobs) return;
    begin_chunk(s, i, out);
    if (chat) bn_buf_puts(out, "\"delta\":{");
    if (reasoning->len) {
        bn_buf_puts(out, "\"reasoning_content\":");
        bn_json_quote(out, reasoning->data, reasoning->len);
        if (text->len || calls) bn_buf_putc(out, ',');
    }
    if (text->len || (!calls && !reasoning->len)) {
        bn_buf_puts(out, chat ? "\"content\":" : "\"text\":");
        bn_json_quote(out, text->data ? text->data : "", text->len);
        if (calls) bn_buf_putc(out, ',');
    }
    if (calls) {
        bn_buf_puts(out, "\"tool_calls\":");
        put_calls(c, &s->sent[i], out);
    }
    if (chat) bn_buf_putc(out, '}');
    end_chunk(s, c, logprobs ? &c->logprobs : NULL, NULL, out);
    bn_buf_clear(text);
    bn_buf_clear(reasoning);
    openai_logprobs_clear(&c->logprobs);
}

/* A chunk that says how much of the prompt was read. */
static void put_progress(struct openai_stream *s, uint32_t i, uint32_t n_read, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    begin_chunk(s, i, out);
    bn_buf_puts(out, s->reply.kind == OPENAI_CHAT ? "\"delta\":{}" : "\"text\":\"\"");
    bn_buf_printf(out,
                  ",\"logprobs\":null,\"finish_reason\":null}],\"prompt_progress\":{\"total\":%u,"
                  "\"cache\":%u,\"processed\":%u,\"time_ms\":%llu}}\n\n",
                  c->n_prompt, c->n_cached, n_read, (unsigned long long)(c->prefill_ns / 1000000));
    s->sent[i].n_read = n_read;
    s->sent[i].progress = true;
}

/* First what was there before, then every step that the client has time for, then all of it. */
static void flush_progress(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    struct openai_sent *sent = &s->sent[i];
    uint32_t n_read = c->n_generated ? c->n_prompt : c->n_read;
    if (!s->reply.progress || i % s->reply.n_each || !c->n_prompt) return;
    if (!sent->progress) put_progress(s, i, c->n_cached, out);
    if (n_read > sent->n_read) put_progress(s, i, n_read, out);
}

static void flush_choice(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    struct openai_sent *sent = &s->sent[i];
    if (s->reply.kind == OPENAI_CHAT && !sent->begun &&
        (c->n_generated || c->finish != BITNET_FINISH_NONE)) {
        begin_chunk(s, i, out);
        bn_buf_printf(out, "\"delta\":{%s}", s->reply.dialect->opening);
        end_chunk(s, NULL, NULL, NULL, out);
        sent->begun = true;
    }
    put_news(s, i, out);
}

static void end_choice(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    if (c->finish == BITNET_FINISH_NONE || s->sent[i].ended) return;
    begin_chunk(s, i, out);
    bn_buf_puts(out, s->reply.kind == OPENAI_CHAT ? "\"delta\":{}" : "\"text\":\"\"");
    end_chunk(s, c, NULL, openai_finish_name(c), out);
    s->sent[i].ended = true;
}

static void put_usage(struct openai_stream *s, struct bn_buf *out)
{
    struct bn_json *usage = openai_usage_json(&s->reply, true);
    char *text = bn_json_dump(usage, BN_JSON_COMPACT);
    put_buf(out, &s->head);
    if (text) bn_buf_printf(out, "],\"usage\":%s", text);
    else out->failed = true;
    if (s->reply.timings) put_timings(&s->reply.choices[0], out);
    bn_buf_puts(out, "}\n\n");
    free(text);
    bn_json_free(usage);
}

void openai_chunks_flush(struct openai_stream *s, struct bn_buf *out)
{
    for (uint32_t i = 0; i < s->reply.n_choices; i++) {
        flush_progress(s, i, out);
        flush_choice(s, i, out);
        end_choice(s, i, out);
    }
    if (!openai_reply_done(&s->reply)) return;
    if (s->include_usage) put_usage(s, out);
    bn_buf_puts(out, "data: [DONE]\n\n");
    s->ended = true;
}

void openai_chunks_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    for (uint32_t i = 0; i < s->reply.n_choices; i++) flush_choice(s, i, out);
    const struct openai_fault f = openai_fault_of(why);
    struct bn_json *error = s->reply.dialect->error(&f);
    char *text = bn_json_dump(error, BN_JSON_COMPACT);
    if (text) bn_buf_printf(out, "data: %s\n\ndata: [DONE]\n\n", text);
    else out->failed = true;
    free(text);
    bn_json_free(error);
}

/* ------------------------------------------------------------------ any dialect */

bool openai_stream_flush(struct openai_stream *s, struct bn_buf *out)
{
    if (s->ended) return true;
    if (s->reply.error.status != BITNET_OK) return openai_stream_fail(s, &s->reply.error, out);
    s->reply.dialect->flush(s, out);
    return !out->failed;
}

bool openai_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    if (s->ended) return true;
    s->ended = true;
    s->reply.dialect->fail(s, why, out);
    return !out->failed;
}
