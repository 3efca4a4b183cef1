/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load_reply.h"

#include <jansson.h>
#include <stdio.h>

/* Members of a choice, or of its delta, that hold text of the model. */
static bool has_text(const json_t *o)
{
    static const char *const keys[] = {"content", "text", "reasoning_content", "reasoning"};
    for (size_t i = 0; i < BN_ARRAY_LEN(keys); i++)
        if (json_string_length(json_object_get(o, keys[i]))) return true;
    return json_array_size(json_object_get(o, "tool_calls")) > 0;
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

static void read_choices(struct load_reply *r, const json_t *choices)
{
    bool text = false;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *c = json_array_get(choices, i);
        text = text || has_text(c) || has_text(json_object_get(c, "delta"));
        if (json_is_string(json_object_get(c, "finish_reason"))) r->finished = true;
    }
    if (text) take_chunk(r);
}

static uint32_t count_of(const json_t *usage, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(usage, key));
    return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

/* Some servers send a usage with every chunk: the last one counts. */
static void read_usage(struct load_reply *r, const json_t *usage)
{
    if (!json_is_object(usage)) return;
    r->has_usage = true;
    r->n_prompt = count_of(usage, "prompt_tokens");
    r->n_output = count_of(usage, "completion_tokens");
    r->n_cached = count_of(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

/* Where servers put the sentence: {"error": {"message": ...}}, {"error": ...}, {"message": ...} */
static const char *message_of(const json_t *j)
{
    const json_t *e = json_object_get(j, "error");
    const json_t *m = json_object_get(json_is_object(e) ? e : j, "message");
    return json_is_string(m) ? json_string_value(m) : json_string_value(e);
}

static void on_event(void *user, const char *data, size_t n)
{
    struct load_reply *r = user;
    if (strcmp(data, "[DONE]") == 0) {
        r->finished = true;
        return;
    }
    json_t *j = json_loadb(data, n, 0, NULL);
    if (!json_is_object(j)) {
        snprintf(r->error, sizeof r->error, "an event is no JSON object: %.60s", data);
    } else if (json_object_get(j, "error") && !json_is_null(json_object_get(j, "error"))) {
        const char *m = message_of(j);
        snprintf(r->error, sizeof r->error, "error in the stream: %.120s", m ? m : "no message");
    } else {
        read_choices(r, json_object_get(j, "choices"));
        read_usage(r, json_object_get(j, "usage"));
    }
    json_decref(j);
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
    json_t *j = n ? json_loadb(body, n, 0, NULL) : NULL;
    const char *m = message_of(j);
    if (m) snprintf(out, room, "%s", m);
    else snprintf(out, room, "%.*s", (int)bn_min_size(n, room), n ? body : "");
    json_decref(j);
}
