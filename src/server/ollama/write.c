/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c: replies of Ollama's interface: one object, or a line of JSON for each piece and one at the end.
 * Times are those of the engine, in nanoseconds.
 */
#include "server/ollama/ollama_impl.h"

#include <stdlib.h>

void ollama_time(char out[OLLAMA_TIME_BYTES], int64_t s)
{
    time_t t = (time_t)s;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || strftime(out, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        *out = 0;
}

struct bn_json *ollama_error_json(const struct openai_fault *f)
{
    return bn_json_pack("{s:o}", "error", openai_text(f->sentence, strlen(f->sentence)));
}

static struct bn_json *text_json(const struct bn_buf *b)
{
    return openai_text(b->len ? b->data : "", b->len);
}

/* Arguments match their function's schema, so they are an object. */
static struct bn_json *call_json(const struct tools_call *call, size_t i)
{
    struct bn_json *arguments = NULL;
    bn_json_try(&arguments, call->arguments.data, call->arguments.len, 0);
    return bn_json_pack("{s:s, s:{s:I, s:s, s:o}}", "id", call->id, "function", "index", (int64_t)i,
                        "name", call->name, "arguments", arguments);
}

/* Calls from the first-th on that are there to their ends; NULL: there are none. */
static struct bn_json *calls_json(const struct openai_choice *c, size_t *first)
{
    struct bn_json *list = NULL;
    for (; *first < c->parser.n_calls && c->parser.calls[*first].complete; ++*first) {
        if (!list) list = bn_json_array();
        bn_json_append(list, call_json(&c->parser.calls[*first], *first));
    }
    return list;
}

static void set_logprobs(struct bn_json *j, const struct openai_reply *r,
                         const struct openai_choice *c)
{
    if (!r->logprobs || !openai_logprobs_any(&c->logprobs)) return;
    struct bn_json *all = openai_logprobs_json(r, c);
    bn_json_set(j, "logprobs", bn_json_ref(bn_json_get(all, "content")));
    bn_json_free(all);
}

/* What has come of the choice, calls from the first-th on. */
static struct bn_json *piece_json(const struct openai_reply *r, const struct openai_choice *c,
                                  size_t *first)
{
    bool chat = r->dialect == &ollama_chat_dialect;
    char when[OLLAMA_TIME_BYTES];
    ollama_time(when, (int64_t)r->created);
    struct bn_json *j = bn_json_pack("{s:s, s:s}", "model", r->model, "created_at", when);
    struct bn_json *said = chat ? bn_json_pack("{s:s, s:o}", "role", "assistant", "content",
                                               text_json(&c->parser.text))
                                : bn_json_ref(j);
    if (!chat) bn_json_set(j, "response", text_json(&c->parser.text));
    if (c->reasoning.text.len) bn_json_set(said, "thinking", text_json(&c->reasoning.text));
    struct bn_json *calls = calls_json(c, first);
    if (calls) bn_json_set(said, "tool_calls", calls);
    if (chat) bn_json_set(j, "message", said);
    else bn_json_free(said);
    set_logprobs(j, r, c);
    return j;
}

static void set_end(struct bn_json *j, const struct openai_choice *c)
{
    const char *why = openai_finish_name(c);
    if (strcmp(why, "tool_calls") == 0) why = "stop";
    bn_json_set(j, "done", bn_json_bool(true));
    bn_json_set(j, "done_reason", bn_json_string(why));
    bn_json_set(j, "total_duration",
                bn_json_int((int64_t)(c->queue_ns + c->prefill_ns + c->decode_ns)));
    bn_json_set(j, "load_duration", bn_json_int(0));
    bn_json_set(j, "prompt_eval_count", bn_json_int(c->n_prompt));
    bn_json_set(j, "prompt_eval_duration", bn_json_int((int64_t)c->prefill_ns));
    bn_json_set(j, "eval_count", bn_json_int(c->n_generated));
    bn_json_set(j, "eval_duration", bn_json_int((int64_t)c->decode_ns));
}

struct bn_json *ollama_reply(const struct openai_reply *r, bool with_cached)
{
    (void)with_cached;
    size_t first = 0;
    struct bn_json *j = piece_json(r, &r->choices[0], &first);
    set_end(j, &r->choices[0]);
    return j;
}

/* ------------------------------------------------------------------ streams */

static void put_line(struct bn_buf *out, struct bn_json *j)
{
    bn_json_write(out, j, OPENAI_DUMP_FLAGS);
    bn_buf_putc(out, '\n');
    bn_json_free(j);
}

static bool any_news(const struct openai_choice *c, const struct openai_sent *sent)
{
    return c->parser.text.len || c->reasoning.text.len || openai_logprobs_any(&c->logprobs) ||
           (sent->n_calls < c->parser.n_calls && c->parser.calls[sent->n_calls].complete);
}

static void put_news(struct openai_stream *s, struct bn_buf *out)
{
    struct openai_choice *c = &s->reply.choices[0];
    if (!any_news(c, &s->sent[0])) return;
    struct bn_json *j = piece_json(&s->reply, c, &s->sent[0].n_calls);
    bn_json_set(j, "done", bn_json_bool(false));
    put_line(out, j);
    bn_buf_clear(&c->parser.text);
    bn_buf_clear(&c->reasoning.text);
    openai_logprobs_clear(&c->logprobs);
}

void ollama_flush(struct openai_stream *s, struct bn_buf *out)
{
    struct openai_choice *c = &s->reply.choices[0];
    put_news(s, out);
    if (!openai_reply_done(&s->reply)) return;
    struct bn_json *j = piece_json(&s->reply, c, &s->sent[0].n_calls);
    set_end(j, c);
    put_line(out, j);
    s->ended = true;
}

void ollama_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    const struct openai_fault f = openai_fault_of(why);
    put_news(s, out);
    put_line(out, ollama_error_json(&f));
}
