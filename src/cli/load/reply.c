/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/reply.h"

#include "json/json.h"
#include <stdio.h>

/* ------------------------------------------------------------------ server-sent events */

void load_sse_init(struct load_sse *s)
{
    *s = (struct load_sse){0};
    bn_buf_init(&s->line, LOAD_SSE_MAX_BYTES);
    bn_buf_init(&s->data, LOAD_SSE_MAX_BYTES);
}

void load_sse_reset(struct load_sse *s)
{
    bn_buf_clear(&s->line);
    bn_buf_clear(&s->data);
    s->after_cr = s->has_data = s->failed = false;
}

void load_sse_free(struct load_sse *s)
{
    bn_buf_free(&s->line);
    bn_buf_free(&s->data);
}

static void take_line(struct load_sse *s, load_sse_event *event, void *user)
{
    const char *text = s->line.len ? s->line.data : "";
    if (s->line.len == 0) {
        if (s->has_data) event(user, s->data.len ? s->data.data : "", s->data.len);
        bn_buf_clear(&s->data);
        s->has_data = false;
    } else if (strncmp(text, "data", 4) == 0 && (text[4] == ':' || s->line.len == 4)) {
        if (s->has_data) bn_buf_putc(&s->data, '\n');
        size_t from = text[4] == ':' ? 5 + (text[5] == ' ') : 4;
        bn_buf_append(&s->data, text + from, s->line.len - from);
        s->has_data = true;
    }
    bn_buf_clear(&s->line);
}

void load_sse_feed(struct load_sse *s, const char *p, size_t n, load_sse_event *event, void *user)
{
    for (size_t i = 0; i < n && !s->failed;) {
        if (s->after_cr && p[i] == '\n') i++;
        s->after_cr = false;
        size_t from = i;
        while (i < n && p[i] != '\n' && p[i] != '\r') i++;
        if (i > from) s->failed = !bn_buf_append(&s->line, p + from, i - from);
        if (i < n && !s->failed) {
            s->after_cr = p[i++] == '\r';
            take_line(s, event, user);
            s->failed = s->data.failed;
        }
    }
}

/* ------------------------------------------------------------------ replies */

/* Members of a choice, or of its delta, that hold text of the model. */
static bool has_text(const struct bn_json *o)
{
    static const char *const keys[] = {"content", "text", "reasoning_content", "reasoning"};
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++)
        if (bn_json_bytes(bn_json_get(o, keys[i]))) return true;
    return bn_json_size(bn_json_get(o, "tool_calls")) > 0;
}

static void take_chunk(struct load_reply *r)
{
    if (!r->first_ns) r->first_ns = r->now_ns;
    else {
        uint64_t gap = r->now_ns - r->last_ns;
        if (gap > r->worst_gap_ns) r->worst_gap_ns = gap;
        if (r->gaps) load_hist_add(r->gaps, gap);
    }
    r->last_ns = r->now_ns;
    r->n_chunks++;
}

static void read_choices(struct load_reply *r, const struct bn_json *choices)
{
    bool text = false;
    for (size_t i = 0; i < bn_json_size(choices); i++) {
        const struct bn_json *c = bn_json_at(choices, i);
        text = text || has_text(c) || has_text(bn_json_get(c, "delta"));
        if (bn_json_is_string(bn_json_get(c, "finish_reason"))) r->finished = true;
    }
    if (text) take_chunk(r);
}

static uint32_t count_of(const struct bn_json *usage, const char *key)
{
    int64_t n = bn_json_integer(bn_json_get(usage, key));
    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Some servers send a usage with every chunk: the last one counts. */
static void read_usage(struct load_reply *r, const struct bn_json *usage)
{
    if (!bn_json_is_object(usage)) return;
    r->has_usage = true;
    r->n_prompt = count_of(usage, "prompt_tokens");
    r->n_output = count_of(usage, "completion_tokens");
    r->n_cached = count_of(bn_json_get(usage, "prompt_tokens_details"), "cached_tokens");
}

/* Where servers put the sentence: {"error": {"message": ...}}, {"error": ...}, {"message": ...} */
static const char *message_of(const struct bn_json *j)
{
    const struct bn_json *e = bn_json_get(j, "error");
    const struct bn_json *m = bn_json_get(bn_json_is_object(e) ? e : j, "message");
    return bn_json_is_string(m) ? bn_json_text(m) : bn_json_text(e);
}

static void on_event(void *user, const char *data, size_t n)
{
    struct load_reply *r = user;
    if (strcmp(data, "[DONE]") == 0) {
        r->finished = true;
        return;
    }
    struct bn_json *j;
    if (!bn_json_try(&j, data, n, 0)) {
        snprintf(r->error, sizeof r->error, "out of memory for an event");
    } else if (!bn_json_is_object(j)) {
        snprintf(r->error, sizeof r->error, "an event is no JSON object: %.60s", data);
    } else if (bn_json_get(j, "error") && !bn_json_is_null(bn_json_get(j, "error"))) {
        const char *m = message_of(j);
        snprintf(r->error, sizeof r->error, "error in the stream: %.120s", m ? m : "no message");
    } else {
        read_choices(r, bn_json_get(j, "choices"));
        read_usage(r, bn_json_get(j, "usage"));
    }
    bn_json_free(j);
}

void load_reply_init(struct load_reply *r)
{
    *r = (struct load_reply){0};
    load_sse_init(&r->sse);
}

void load_reply_start(struct load_reply *r, struct load_hist *gaps)
{
    struct load_sse sse = r->sse;
    *r = (struct load_reply){.sse = sse, .gaps = gaps};
    load_sse_reset(&r->sse);
}

void load_reply_feed(struct load_reply *r, const char *p, size_t n, uint64_t now_ns)
{
    r->now_ns = now_ns;
    load_sse_feed(&r->sse, p, n, on_event, r);
    if (r->sse.failed && !*r->error)
        snprintf(r->error, sizeof r->error, "an event has more than %d bytes", LOAD_SSE_MAX_BYTES);
}

void load_reply_free(struct load_reply *r) { load_sse_free(&r->sse); }

void load_reply_error(char *out, size_t room, const char *body, size_t n)
{
    struct bn_json *j = NULL;
    if (n) bn_json_try(&j, body, n, 0);
    const char *m = message_of(j);
    if (m) snprintf(out, room, "%s", m);
    else snprintf(out, room, "%.*s", (int)bn_min_size(n, room), n ? body : "");
    bn_json_free(j);
}
