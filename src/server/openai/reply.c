/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/reply.h"

#include "base/map.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "server/dialect.h"
#include "server/openai/dialects.h"
#include "app/tokens.h"
#include <stdlib.h>

enum { SCORES_MAX_BYTES = 256 << 20 };

struct bn_json *openai_text(const char *s, size_t n)
{
    if (bn_utf8_valid(s, n, NULL)) return bn_json_stringn(s, n);
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX / 2);
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t len = bn_utf8_decode(s + i, n - i, &cp);
        bn_buf_append(&b, len ? s + i : "\xef\xbf\xbd", len ? len : 3);
        i += len ? len : 1;
    }
    struct bn_json *j = b.failed ? NULL : bn_json_stringn(b.data, b.len);
    bn_buf_free(&b);
    return j;
}

/* ------------------------------------------------------------------ gathering */

static char *full_id(const struct dialect *d, const char *id)
{
    struct bn_buf b;
    bn_buf_init(&b, SIZE_MAX / 2);
    bn_buf_puts(&b, d->id_prefix);
    bn_buf_puts(&b, id);
    return bn_buf_take(&b);
}

/* To all choices of prompt i. */
static bitnet_status add_to_choices(struct openai_reply *r, size_t i, const struct openai_token *t,
                                    bitnet_error *err)
{
    for (size_t k = i * r->n_each; k < (i + 1) * r->n_each; k++)
        BN_TRY(openai_logprobs_add(&r->choices[k].logprobs, t, err));
    return BITNET_OK;
}

/* {"id": {"logprob", "rank", "decoded_token"}, ...}: a token of the prompt, and the likeliest in its place, as
 * vLLM has it. How many are likelier than a token that is not among these is not known. */
static bitnet_status put_score(struct bn_buf *b, const bitnet_model *m, const bitnet_logprob *one,
                               size_t n_top, bitnet_error *err)
{
    bool own = true; /* it is not among the likeliest */
    bn_buf_putc(b, ',');
    for (size_t i = 1; i <= n_top; i++) own = own && one[i].token != one[0].token;
    for (size_t i = own ? 0 : 1; i <= n_top; i++) {
        char *text;
        size_t n;
        BN_TRY(tokens_decode(&text, &n, m, &one[i].token, 1, BITNET_TOK_SPECIAL, err));
        bn_buf_printf(b, "%s\"%d\":{\"logprob\":", i == (own ? 0 : 1) ? "{" : ",", one[i].token);
        openai_put_logprob(b, one[i].logprob);
        if (i) bn_buf_printf(b, ",\"rank\":%zu", i);
        else bn_buf_puts(b, ",\"rank\":null");
        bn_buf_puts(b, ",\"decoded_token\":");
        bn_json_quote(b, text, n);
        bn_buf_putc(b, '}');
        free(text);
    }
    bn_buf_putc(b, '}');
    return b->failed ? bn_fail_nomem(err, b->len, "log-probabilities") : BITNET_OK;
}

static struct bn_json *scores_json(const struct openai_choice *c)
{
    struct bn_json *j = NULL;
    struct bn_buf text;
    bn_buf_init(&text, SIZE_MAX / 2);
    bn_buf_puts(&text, "[null"); /* nothing stands before the first token */
    if (c->scores.len) bn_buf_append(&text, c->scores.data, c->scores.len);
    bn_buf_putc(&text, ']');
    if (!text.failed) bn_json_try(&j, text.data, text.len, 0);
    bn_buf_free(&text);
    return j;
}

/* Of a prompt that is echoed; choice 0 tells of it for all. */
static bitnet_status take_scored(struct openai_reply *r, size_t i, const bitnet_event *e,
                                 bitnet_error *err)
{
    for (size_t k = 0; k < e->n_scored; k++) {
        const bitnet_logprob *one = e->scored + k * (1 + e->n_top_scored);
        const struct openai_token t = {
            .id = one->token, .logprob = one->logprob, .top = one + 1, .n_top = e->n_top_scored};
        if (r->echo && r->logprobs) BN_TRY(add_to_choices(r, i, &t, err));
        struct openai_choice *first = &r->choices[i * r->n_each];
        if (r->prompt_scores)
            BN_TRY(put_score(&first->scores, first->logprobs.m, one, e->n_top_scored, err));
    }
    return BITNET_OK;
}

/* The choices of a prompt begin with it. */
static bitnet_status echo_prompt(struct openai_reply *r, const struct openai_request *q, size_t i,
                                 const bitnet_model *m, bitnet_error *err)
{
    const struct openai_prompt *p = &q->prompts[i];
    char *decoded = NULL;
    size_t n = p->bytes;
    if (!p->text) BN_TRY(tokens_decode(&decoded, &n, m, p->tokens, p->n_tokens, 0, err));
    bool ok = true;
    for (size_t k = i * r->n_each; k < (i + 1) * r->n_each; k++) {
        struct openai_choice *c = &r->choices[k];
        ok = ok && bn_buf_append(&c->parser.text, p->text ? p->text : decoded, n);
        c->has_text = true;
    }
    free(decoded);
    if (!ok) return bn_fail_nomem(err, n, "the prompt's echo");
    if (!r->logprobs || !p->n_tokens) return BITNET_OK;
    return add_to_choices(r, i, &(struct openai_token){.id = p->tokens[0], .first = true}, err);
}

static bitnet_status open_reply(struct openai_reply *r, const struct openai_request *q,
                                const bitnet_model *m, const char *id, bitnet_error *err)
{
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    r->id = full_id(q->dialect, id);
    r->model = strdup(*q->model ? q->model : info.name);
    r->choices = bn_calloc(r->n_choices, sizeof *r->choices);
    if (!r->id || !r->model || !r->choices)
        return bn_fail_nomem(err, r->n_choices * sizeof *r->choices, "a reply");
    for (uint32_t i = 0; i < r->n_choices; i++) {
        reasoning_open(&r->choices[i].reasoning, q->reasoning);
        tools_parser_open(&r->choices[i].parser, q->tools,
                          bn_mix64(bn_hash(r->id, strlen(r->id)) + i));
        openai_logprobs_open(&r->choices[i].logprobs, q->kind, m);
        bn_buf_init(&r->choices[i].own, SIZE_MAX / 2);
        bn_buf_init(&r->choices[i].scores, SCORES_MAX_BYTES);
    }
    if (q->dialect->echo) {
        r->echoed = q->dialect->echo(q);
        if (!bn_json_whole(r->echoed)) return bn_fail_nomem(err, 0, "a reply");
    }
    for (size_t i = 0; q->echo && i < q->n_prompts; i++) BN_TRY(echo_prompt(r, q, i, m, err));
    return BITNET_OK;
}

bitnet_status openai_reply_open(struct openai_reply *r, const struct openai_request *q,
                                const bitnet_model *m, const char *id, uint64_t created,
                                bitnet_error *err)
{
    *r = (struct openai_reply){.kind = q->kind,
                               .dialect = q->dialect,
                               .created = created,
                               .logprobs = q->logprobs,
                               .n_told = q->n_told,
                               .n_dropped = q->n_dropped,
                               .progress = q->progress,
                               .echo = q->echo,
                               .prompt_scores = q->prompt_scores,
                               .timings = q->timings,
                               .cut_tokens = q->tools ? q->request.max_new_tokens : 0,
                               .n_each = q->request.n_choices,
                               .n_choices = (uint32_t)q->n_prompts * q->request.n_choices};
    bitnet_status s = open_reply(r, q, m, id, err);
    if (s != BITNET_OK) openai_reply_close(r);
    return s;
}

/* What has come of a choice, and whether that is all. */
static bool take_text(struct openai_choice *c, const bitnet_event *e)
{
    struct tools_parser *p = &c->parser;
    bool ended = e->finish != BITNET_FINISH_NONE;
    if (!reasoning_feed(&c->reasoning, e->text, e->text_bytes, p) ||
        (ended && !reasoning_end(&c->reasoning, p)))
        return false;
    if (!c->has_text && (p->text.len || (ended && !p->n_calls))) {
        c->has_text = true;
        c->n_calls_before = p->n_calls;
    }
    return true;
}

static bitnet_status take_logprobs(struct openai_choice *c, const bitnet_event *e,
                                   bitnet_error *err)
{
    const struct openai_token t = {
        .id = e->token, .logprob = e->logprob, .top = e->top, .n_top = e->n_top};
    return openai_logprobs_add(&c->logprobs, &t, err);
}

bitnet_status openai_reply_take(struct openai_reply *r, size_t i, const bitnet_event *e,
                                bitnet_error *err)
{
    if (e->choice >= r->n_each || i >= r->n_choices / r->n_each)
        return bn_fail(err, BITNET_E_INTERNAL, "an event of choice %u of %u, prompt %zu of %u",
                       e->choice, r->n_each, i, r->n_choices / r->n_each);
    struct openai_choice *c = &r->choices[i * r->n_each + e->choice];
    c->n_generated = e->n_generated;
    c->n_prompt = e->n_prompt;
    c->n_cached = e->n_cached;
    c->n_read = e->n_read;
    if (e->token >= 0) c->sum += (double)e->logprob;
    c->queue_ns = e->queue_ns;
    c->prefill_ns = e->prefill_ns;
    c->decode_ns = e->decode_ns;
    if (!take_text(c, e)) return bn_fail_nomem(err, c->parser.text.len + e->text_bytes, "a choice");
    BN_TRY(take_scored(r, i, e, err));
    if (e->token >= 0 && r->logprobs) BN_TRY(take_logprobs(c, e, err));
    if (r->dialect->take) BN_TRY(r->dialect->take(r, c, e, err));
    if (e->finish == BITNET_FINISH_NONE) return BITNET_OK;
    bool cut = r->cut_tokens && e->n_generated >= r->cut_tokens && !c->parser.n_calls;
    c->finish = cut && e->finish == BITNET_FINISH_END ? BITNET_FINISH_LENGTH : e->finish;
    r->n_done++;
    if (e->stop && !(c->stop = strdup(e->stop)))
        return bn_fail_nomem(err, strlen(e->stop) + 1, "a stop string");
    if (e->choice == 0) { /* the others have the same prompt */
        r->n_prompt += e->n_prompt;
        r->n_cached += e->n_cached;
    }
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
        reasoning_close(&r->choices[i].reasoning);
        tools_parser_close(&r->choices[i].parser);
        openai_logprobs_close(&r->choices[i].logprobs);
        bn_buf_free(&r->choices[i].own);
        bn_buf_free(&r->choices[i].scores);
        free(r->choices[i].stop);
    }
    bn_json_free(r->echoed);
    free(r->choices);
    free(r->model);
    free(r->id);
    *r = (struct openai_reply){0};
}

/* ------------------------------------------------------------------ the object */

const char *openai_finish_name(const struct openai_choice *c)
{
    switch (c->finish) {
    case BITNET_FINISH_END:
    case BITNET_FINISH_STOP: return c->parser.n_calls ? "tool_calls" : "stop";
    case BITNET_FINISH_LENGTH: return "length";
    case BITNET_FINISH_TIMEOUT: return "timeout";
    case BITNET_FINISH_CANCELLED: return "cancelled";
    case BITNET_FINISH_NONE:
    case BITNET_FINISH_ERROR: break;
    }
    return "error";
}

struct bn_json *openai_logprobs_json(const struct openai_reply *r, const struct openai_choice *c)
{
    if (!r->logprobs) return bn_json_null();
    struct bn_buf text;
    bn_buf_init(&text, SIZE_MAX / 2);
    struct bn_json *j = NULL;
    if (openai_logprobs_write(&c->logprobs, &text)) bn_json_try(&j, text.data, text.len, 0);
    bn_buf_free(&text);
    return j;
}

struct bn_json *openai_choice_text(const struct openai_choice *c)
{
    const struct bn_buf *text = &c->parser.text;
    return openai_text(text->data ? text->data : "", text->len);
}

struct bn_json *openai_arguments_text(const struct tools_call *call)
{
    return openai_text(call->arguments.data, call->arguments.len); /* at least a brace */
}

static struct bn_json *message_json(const struct openai_choice *c)
{
    struct bn_json *calls = bn_json_array();
    for (size_t i = 0; i < c->parser.n_calls; i++) {
        const struct tools_call *call = &c->parser.calls[i];
        bn_json_append(calls, bn_json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", call->id, "type",
                                           "function", "function", "name", call->name, "arguments",
                                           openai_arguments_text(call)));
    }
    struct bn_json *m =
        bn_json_pack("{s:s, s:o, s:n}", "role", "assistant", "content",
                     c->has_text ? openai_choice_text(c) : bn_json_null(), "refusal");
    const struct bn_buf *reasoning = &c->reasoning.text;
    if (reasoning->len)
        bn_json_set(m, "reasoning_content", openai_text(reasoning->data, reasoning->len));
    if (c->parser.n_calls) bn_json_set(m, "tool_calls", calls);
    else bn_json_free(calls);
    return m;
}

static struct bn_json *choice_json(const struct openai_reply *r, uint32_t i, size_t index)
{
    const struct openai_choice *c = &r->choices[i];
    bool chat = r->kind == OPENAI_CHAT;
    struct bn_json *j =
        bn_json_pack("{s:i, s:o, s:o, s:s}", "index", (int)index, chat ? "message" : "text",
                     chat ? message_json(c) : openai_choice_text(c), "logprobs",
                     openai_logprobs_json(r, c), "finish_reason", openai_finish_name(c));
    if (r->prompt_scores && !chat)
        bn_json_set(j, "prompt_logprobs", scores_json(&r->choices[i - i % r->n_each]));
    return j;
}

static double mean_logprob(const struct openai_choice *c)
{
    return c->n_generated ? c->sum / c->n_generated : 0;
}

/* Which of a prompt's choices, the first of which is `first`, is told as its rank-th: in their order if all
 * are told, otherwise by how likely their tokens were in the mean. */
static uint32_t by_rank(const struct openai_reply *r, uint32_t first, uint32_t rank)
{
    const struct openai_choice *c = &r->choices[first];
    if (r->n_told == r->n_each) return rank;
    for (uint32_t i = 0; i < r->n_each; i++) {
        uint32_t better = 0;
        for (uint32_t k = 0; k < r->n_each; k++) {
            double a = mean_logprob(&c[k]), b = mean_logprob(&c[i]);
            better += a > b || (a == b && k < i); /* of equal ones the first */
        }
        if (better == rank) return i;
    }
    return 0;
}

struct bn_json *openai_usage_json(const struct openai_reply *r, bool with_cached)
{
    int64_t n_generated = 0, n_prompt = (int64_t)r->n_prompt;
    for (uint32_t i = 0; i < r->n_choices; i++) n_generated += r->choices[i].n_generated;
    struct bn_json *j =
        bn_json_pack("{s:I, s:I, s:I}", "prompt_tokens", n_prompt, "completion_tokens", n_generated,
                     "total_tokens", n_prompt + n_generated);
    if (with_cached)
        bn_json_set(j, "prompt_tokens_details",
                    bn_json_pack("{s:I}", "cached_tokens", (int64_t)r->n_cached));
    return j;
}

/* The first token comes with the prompt. */
struct bn_json *openai_timings_json(const struct openai_choice *c)
{
    double prompt_ms = (double)c->prefill_ns / 1e6, ms = (double)c->decode_ns / 1e6;
    uint32_t n_prompt = c->n_prompt - c->n_cached, steps = c->n_generated ? c->n_generated - 1 : 0;
    return bn_json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                        (int64_t)c->n_cached, "prompt_n", (int64_t)n_prompt, "prompt_ms", prompt_ms,
                        "prompt_per_token_ms", n_prompt ? prompt_ms / n_prompt : 0.0,
                        "prompt_per_second", prompt_ms > 0 ? 1e3 / prompt_ms * n_prompt : 0.0,
                        "predicted_n", (int64_t)c->n_generated, "predicted_ms", ms,
                        "predicted_per_token_ms", steps ? ms / steps : 0.0, "predicted_per_second",
                        steps && ms > 0 ? 1e3 / ms * steps : 0.0);
}

size_t openai_reply_bytes(const struct openai_reply *r)
{
    size_t n = 0;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const struct openai_choice *c = &r->choices[i];
        n += c->parser.text.len + c->reasoning.text.len + c->own.len + c->scores.len +
             openai_logprobs_bytes(&c->logprobs);
    }
    return n;
}

struct bn_json *openai_reply_json(const struct openai_reply *r, bool with_cached)
{
    return r->dialect->reply(r, with_cached);
}

struct bn_json *openai_chunks_reply(const struct openai_reply *r, bool with_cached)
{
    struct bn_json *choices = bn_json_array();
    for (uint32_t p = 0; p < r->n_choices; p += r->n_each)
        for (uint32_t rank = 0; rank < r->n_told; rank++)
            bn_json_append(choices, choice_json(r, p + by_rank(r, p, rank), bn_json_size(choices)));
    struct bn_json *j = bn_json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:s}", "id", r->id, "object",
                                     r->kind == OPENAI_CHAT ? "chat.completion" : "text_completion",
                                     "created", (int64_t)r->created, "model", r->model, "choices",
                                     choices, "usage", openai_usage_json(r, with_cached),
                                     "system_fingerprint", "bitnet-" BITNET_VERSION);
    if (r->prompt_scores && r->kind == OPENAI_CHAT)
        bn_json_set(j, "prompt_logprobs", scores_json(&r->choices[0]));
    if (r->n_dropped) bn_json_set(j, "dropped_messages", bn_json_int((int64_t)r->n_dropped));
    if (r->timings) bn_json_set(j, "timings", openai_timings_json(&r->choices[0]));
    return j;
}

/* ------------------------------------------------------------------ errors */

int openai_error_code(bitnet_status s)
{
    return s == BITNET_E_NOMEM || s == BITNET_E_INTERNAL || s == BITNET_E_IO || s == BITNET_E_STATE
               ? 500
               : 400;
}

struct openai_fault openai_fault_of(const bitnet_error *err)
{
    return (struct openai_fault){.status = openai_error_code(err->status), .sentence = err->text};
}

struct bn_json *openai_error_json(const struct openai_fault *f)
{
    static const struct {
        int status;
        const char *type, *code;
    } known[] = {
        {401, "authentication_error", "invalid_api_key"},
        {403, "permission_error", NULL},
        {404, "not_found_error", NULL},
        {408, "timeout_error", NULL},
        {429, "rate_limit_error", "rate_limit_exceeded"},
        {504, "timeout_error", NULL},
    };
    const char *type = f->status < 500 ? "invalid_request_error" : "server_error", *code = f->code;
    for (size_t i = 0; i < BN_ARRAY_LEN(known); i++) {
        if (known[i].status != f->status) continue;
        type = known[i].type;
        if (!code) code = known[i].code;
    }
    struct bn_json *e = bn_json_pack("{s:o, s:s, s:s?, s:s?}", "message",
                                     openai_text(f->sentence, strlen(f->sentence)), "type", type,
                                     "param", f->param, "code", code);
    openai_tell_lengths(e, f);
    return bn_json_pack("{s:o}", "error", e);
}

void openai_tell_lengths(struct bn_json *e, const struct openai_fault *f)
{
    if (f->n_prompt == 0) return;
    bn_json_set(e, "n_prompt_tokens", bn_json_int((int64_t)f->n_prompt));
    bn_json_set(e, "n_ctx", bn_json_int(f->n_ctx));
}
