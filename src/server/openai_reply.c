/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai_reply.h"

#include "base/utf8.h"
#include "server/tokens.h"
#include <math.h>
#include <stdlib.h>

static const size_t answer_max_bytes = (size_t)256 << 20; /* of one choice */

json_t *openai_text(const char *s, size_t n)
{
    if (bn_utf8_valid(s, n, NULL)) return json_stringn(s, n);
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX / 2);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = bn_utf8_decode(s + i, n - i, &cp);
        bn_buf_append(&b, len ? s + i : "\xef\xbf\xbd", len ? len : 3);
        i += len ? len : 1;
    }
    json_t *j = b.failed ? NULL : json_stringn(b.data, b.len);
    bn_buf_free(&b);
    return j;
}

/* ------------------------------------------------------------------ log-probabilities */

static json_t *empty_logprobs(enum openai_kind kind)
{
    if (kind == OPENAI_CHAT) return json_pack("{s:[], s:n}", "content", "refusal");
    return json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                     "text_offset");
}

/* JSON has no infinities; this is how OpenAI writes "as good as impossible" */
static double json_logprob(float logprob) { return isfinite(logprob) ? (double)logprob : -9999.0; }

/* A token's own text: part of a character may be all there is of it. */
static bitnet_status token_bytes(char **bytes, size_t *n, const struct openai_reply *r,
                                 int32_t token, bitnet_error *err)
{
    return tokens_decode(bytes, n, r->m, &token, 1, BITNET_TOK_SPECIAL, err);
}

/* {"token", "logprob", "bytes"} */
static bitnet_status chat_token(json_t **out, const struct openai_reply *r, int32_t token,
                                float logprob, bitnet_error *err)
{
    char *bytes;
    size_t n;
    BN_TRY(token_bytes(&bytes, &n, r, token, err));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    *out = json_pack("{s:o, s:f, s:o}", "token", openai_text(bytes, n), "logprob",
                     json_logprob(logprob), "bytes", list);
    free(bytes);
    return *out ? BITNET_OK : bn_fail_nomem(err, n, "log-probabilities");
}

static bitnet_status add_chat_logprob(struct openai_reply *r, struct openai_choice *c,
                                      const bitnet_event *e, bitnet_error *err)
{
    json_t *entry, *one;
    BN_TRY(chat_token(&entry, r, e->token, e->logprob, err));
    json_t *top = json_array();
    bitnet_status s = BITNET_OK;
    for (uint32_t i = 0; s == BITNET_OK && i < e->n_top; i++) {
        s = chat_token(&one, r, e->top[i].token, e->top[i].logprob, err);
        if (s == BITNET_OK) json_array_append_new(top, one);
    }
    json_object_set_new(entry, "top_logprobs", top);
    json_array_append_new(json_object_get(c->logprobs, "content"), entry);
    return s;
}

static size_t count_chars(const json_t *text)
{
    const char *s = json_string_value(text);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(text); i++) n += (s[i] & 0xc0) != 0x80;
    return n;
}

static bitnet_status text_token(json_t **out, const struct openai_reply *r, int32_t token,
                                bitnet_error *err)
{
    char *bytes;
    size_t n;
    BN_TRY(token_bytes(&bytes, &n, r, token, err));
    *out = openai_text(bytes, n);
    free(bytes);
    return *out ? BITNET_OK : bn_fail_nomem(err, n, "log-probabilities");
}

static bitnet_status add_text_logprob(struct openai_reply *r, struct openai_choice *c,
                                      const bitnet_event *e, bitnet_error *err)
{
    json_t *token, *one;
    BN_TRY(text_token(&token, r, e->token, err));
    json_t *top = json_object();
    bitnet_status s = BITNET_OK;
    for (uint32_t i = 0; s == BITNET_OK && i < e->n_top; i++) {
        s = text_token(&one, r, e->top[i].token, err);
        if (s != BITNET_OK) break;
        /* tokens may look the same; the likeliest one counts */
        if (!json_object_get(top, json_string_value(one)))
            json_object_set_new(top, json_string_value(one),
                                json_real(json_logprob(e->top[i].logprob)));
        json_decref(one);
    }
    json_t *l = c->logprobs;
    json_array_append_new(json_object_get(l, "text_offset"), json_integer((json_int_t)c->n_chars));
    c->n_chars += count_chars(token);
    json_array_append_new(json_object_get(l, "tokens"), token);
    json_array_append_new(json_object_get(l, "token_logprobs"),
                          json_real(json_logprob(e->logprob)));
    json_array_append_new(json_object_get(l, "top_logprobs"), top);
    return s;
}

/* ------------------------------------------------------------------ gathering */

bitnet_status openai_reply_open(struct openai_reply *r, const struct openai_request *q,
                                const bitnet_model *m, bitnet_error *err)
{
    uint32_t n = q->request.n_choices;
    *r = (struct openai_reply){.kind = q->kind, .m = m, .n_choices = n};
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    r->model = strdup(*q->model ? q->model : info.name);
    r->choices = bn_calloc(n, sizeof *r->choices);
    bool ok = r->model && r->choices;
    for (uint32_t i = 0; ok && i < n; i++) {
        bn_buf_init(&r->choices[i].text, answer_max_bytes);
        if (!q->request.logprobs) continue;
        r->choices[i].logprobs = empty_logprobs(q->kind);
        ok = r->choices[i].logprobs != NULL;
    }
    if (ok) return BITNET_OK;
    openai_reply_close(r);
    return bn_fail_nomem(err, n * sizeof *r->choices, "a reply");
}

bitnet_status openai_reply_take(struct openai_reply *r, const bitnet_event *e, bitnet_error *err)
{
    if (e->choice >= r->n_choices)
        return bn_fail(err, BITNET_E_INTERNAL, "an event of choice %u of %u", e->choice,
                       r->n_choices);
    struct openai_choice *c = &r->choices[e->choice];
    r->n_prompt = e->n_prompt;
    c->n_generated = e->n_generated;
    if (e->text_bytes && !bn_buf_append(&c->text, e->text, e->text_bytes))
        return bn_fail(err, BITNET_E_LIMIT, "the answer is longer than %zu bytes",
                       answer_max_bytes);
    if (e->token >= 0 && c->logprobs)
        BN_TRY((r->kind == OPENAI_CHAT ? add_chat_logprob : add_text_logprob)(r, c, e, err));
    if (e->finish == BITNET_FINISH_NONE) return BITNET_OK;
    c->finish = e->finish;
    r->n_done++;
    if (e->finish == BITNET_FINISH_ERROR)
        bn_error_set(&r->error, BITNET_E_INTERNAL, "%s",
                     e->error ? e->error : "the request failed");
    return BITNET_OK;
}

bool openai_reply_done(const struct openai_reply *r)
{
    return r->n_done == r->n_choices || r->error.status != BITNET_OK;
}

void openai_reply_close(struct openai_reply *r)
{
    for (uint32_t i = 0; r->choices && i < r->n_choices; i++) {
        bn_buf_free(&r->choices[i].text);
        json_decref(r->choices[i].logprobs);
    }
    free(r->choices);
    free(r->model);
    *r = (struct openai_reply){0};
}

/* ------------------------------------------------------------------ the object */

static const char *finish_name(bitnet_finish f)
{
    switch (f) {
    case BITNET_FINISH_END:
    case BITNET_FINISH_STOP: return "stop";
    case BITNET_FINISH_LENGTH: return "length";
    case BITNET_FINISH_TIMEOUT: return "timeout";
    case BITNET_FINISH_CANCELLED: return "cancelled";
    case BITNET_FINISH_NONE:
    case BITNET_FINISH_ERROR: break;
    }
    return "error";
}

static json_t *choice_json(const struct openai_reply *r, uint32_t i)
{
    const struct openai_choice *c = &r->choices[i];
    json_t *text = openai_text(c->text.data ? c->text.data : "", c->text.len);
    json_t *j = r->kind == OPENAI_CHAT ? json_pack("{s:i, s:{s:s, s:o}}", "index", (int)i,
                                                   "message", "role", "assistant", "content", text)
                                       : json_pack("{s:i, s:o}", "index", (int)i, "text", text);
    if (!j) return NULL;
    json_object_set_new(j, "logprobs", c->logprobs ? json_incref(c->logprobs) : json_null());
    json_object_set_new(j, "finish_reason", json_string(finish_name(c->finish)));
    return j;
}

json_t *openai_reply_json(const struct openai_reply *r, const char *id, uint64_t created)
{
    bool chat = r->kind == OPENAI_CHAT;
    char full_id[64];
    snprintf(full_id, sizeof full_id, "%s-%s", chat ? "chatcmpl" : "cmpl", id);
    json_int_t n_answer = 0;
    json_t *choices = json_array();
    for (uint32_t i = 0; i < r->n_choices; i++) {
        n_answer += r->choices[i].n_generated;
        if (json_array_append_new(choices, choice_json(r, i)) != 0) {
            json_decref(choices);
            return NULL;
        }
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:{s:I, s:I, s:I}, s:s}", "id", full_id, "object",
                     chat ? "chat.completion" : "text_completion", "created", (json_int_t)created,
                     "model", r->model, "choices", choices, "usage", "prompt_tokens",
                     (json_int_t)r->n_prompt, "completion_tokens", n_answer, "total_tokens",
                     r->n_prompt + n_answer, "system_fingerprint", "bitnet-" BITNET_VERSION);
}

int openai_error_code(bitnet_status s)
{
    return s == BITNET_E_NOMEM || s == BITNET_E_INTERNAL || s == BITNET_E_IO || s == BITNET_E_STATE
               ? 500
               : 400;
}

json_t *openai_error_json(const bitnet_error *err)
{
    const char *type =
        openai_error_code(err->status) == 400 ? "invalid_request_error" : "server_error";
    return json_pack("{s:{s:o, s:s, s:n, s:n}}", "error", "message",
                     openai_text(err->text, strlen(err->text)), "type", type, "param", "code");
}
