/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c: replies of llama-server's completions. Of every token its id, text and probabilities are gathered as
 * JSON in `own` of its choice, since a stream has an event for each.
 */
#include "server/llamacpp/llamacpp_impl.h"

#include "app/tokens.h"
#include <math.h>
#include <stdlib.h>

struct bn_json *llamacpp_error_json(const struct openai_fault *f)
{
    int status = f->status;
    const char *type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 501 ? "not_supported_error"
                       : status == 503 ? "unavailable_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    if (f->code && strcmp(f->code, "context_length_exceeded") == 0)
        type = "exceed_context_size_error";
    struct bn_json *e = bn_json_pack("{s:i, s:o, s:s}", "code", status, "message",
                                     openai_text(f->sentence, strlen(f->sentence)), "type", type);
    openai_tell_lengths(e, f);
    return bn_json_pack("{s:o}", "error", e);
}

/* ------------------------------------------------------------------ settings */

static struct bn_json *strings(const char *const *list, size_t n)
{
    struct bn_json *j = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(j, bn_json_string(list[i]));
    return j;
}

static int64_t or_all(uint32_t n) { return n ? (int64_t)n : -1; }

static void set_real(struct bn_json *j, const char *key, float v)
{
    bn_json_set(j, key, bn_json_real((double)v));
}

static void set_dry(struct bn_json *j, const bitnet_sampling *p)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    set_real(j, "dry_multiplier", p->dry_multiplier);
    set_real(j, "dry_base", p->dry_base > 0 ? p->dry_base : 1.75f);
    bn_json_set(j, "dry_allowed_length",
                bn_json_int(p->dry_allowed_length ? p->dry_allowed_length : 2));
    bn_json_set(j, "dry_penalty_last_n", bn_json_int(or_all(p->dry_last_n)));
    bn_json_set(j, "dry_sequence_breakers",
                p->dry_breakers ? strings(p->dry_breakers, p->n_dry_breakers)
                                : strings(usual, BN_ARRAY_LEN(usual)));
}

/* What does not exist here is told as it is: off. */
static void set_absent(struct bn_json *j)
{
    static const struct {
        const char *key;
        double off;
    } absent[] = {{"dynatemp_range", 0},   {"dynatemp_exponent", 1}, {"xtc_probability", 0},
                  {"xtc_threshold", 0.1},  {"mirostat_tau", 5},      {"mirostat_eta", 0.1},
                  {"adaptive_target", -1}, {"adaptive_decay", 0.9}};
    for (size_t i = 0; i < BN_ARRAY_LEN(absent); i++)
        bn_json_set(j, absent[i].key, bn_json_real(absent[i].off));
    bn_json_set(j, "mirostat", bn_json_int(0));
    bn_json_set(j, "n_keep", bn_json_int(0));
    bn_json_set(j, "n_discard", bn_json_int(0));
    bn_json_set(j, "min_keep", bn_json_int(0));
    bn_json_set(j, "lora", bn_json_array());
}

static struct bn_json *bias_json(int32_t token, float bias)
{
    return bn_json_pack("{s:I, s:o}", "token", (int64_t)token, "bias",
                        isfinite(bias) ? bn_json_real((double)bias) : bn_json_null());
}

/* Also that the text's end is not to be drawn. */
static struct bn_json *biases(const struct openai_request *q)
{
    const bitnet_sampling *p = &q->request.sampling;
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < p->n_logit_bias; i++)
        bn_json_append(list, bias_json(p->logit_bias[i].token, p->logit_bias[i].bias));
    if (q->request.ignore_end && q->model_of_words)
        bn_json_append(list, bias_json(bitnet_token_eos(q->model_of_words), -INFINITY));
    return list;
}

struct bn_json *llamacpp_settings(const struct openai_request *q)
{
    static const char *const order[] = {"penalties", "dry",   "top_n_sigma", "top_k",
                                        "typ_p",     "top_p", "min_p",       "temperature"};
    const bitnet_request *r = &q->request;
    const bitnet_sampling *p = &r->sampling;
    const struct bn_json *per_token = bn_json_get(q->body, "timings_per_token");
    struct bn_json *j = bn_json_object();
    int64_t n = r->prompt_only ? 0 : or_all(r->max_new_tokens);
    bn_json_set(j, "n_predict", bn_json_int(n));
    bn_json_set(j, "max_tokens", bn_json_int(n));
    bn_json_set(j, "seed", bn_json_int((int64_t)p->seed));
    set_real(j, "temperature", p->temperature);
    bn_json_set(j, "top_k", bn_json_int(p->top_k));
    set_real(j, "top_p", p->top_p);
    set_real(j, "min_p", p->min_p);
    set_real(j, "top_n_sigma", p->top_n_sigma > 0 ? p->top_n_sigma : -1);
    set_real(j, "typical_p", p->typical_p);
    bn_json_set(j, "repeat_last_n", bn_json_int(or_all(p->penalty_last_n)));
    set_real(j, "repeat_penalty", p->repetition_penalty);
    set_real(j, "presence_penalty", p->presence_penalty);
    set_real(j, "frequency_penalty", p->frequency_penalty);
    set_dry(j, p);
    bn_json_set(j, "logit_bias", biases(q));
    set_absent(j);
    bn_json_set(j, "stop", strings(r->stop, r->n_stop));
    bn_json_set(j, "ignore_eos", bn_json_bool(r->ignore_end));
    bn_json_set(j, "stream", bn_json_bool(q->stream));
    bn_json_set(j, "n_probs", bn_json_int(r->logprobs ? r->n_top_logprobs : 0));
    bn_json_set(j, "post_sampling_probs", bn_json_bool(r->drawn_logprobs));
    bn_json_set(j, "grammar", bn_json_string(r->grammar ? r->grammar : ""));
    bn_json_set(j, "samplers", strings(order, BN_ARRAY_LEN(order)));
    bn_json_set(j, "timings_per_token", bn_json_bool(bn_json_is_true(per_token)));
    return j;
}

/* Ids of the prompts as bytes, which is the shortest that JSON can hold. */
struct bn_json *llamacpp_echo(const struct openai_request *q)
{
    static const char *const members[] = {"response_fields", "return_tokens", "id_slot",
                                          "timings_per_token", "post_sampling_probs"};
    struct bn_json *prompts = bn_json_array();
    for (size_t i = 0; i < q->n_prompts; i++)
        bn_json_append(prompts,
                       bn_json_raw(q->prompts[i].tokens ? (const char *)q->prompts[i].tokens : "",
                                   q->prompts[i].n_tokens * sizeof *q->prompts[i].tokens));
    struct bn_json *j = bn_json_pack("{s:o, s:o, s:b}", "prompts", prompts, "settings",
                                     llamacpp_settings(q), "stream", q->stream);
    bn_json_set(j, "n_ctx", bn_json_int(q->ctx_tokens));
    for (size_t i = 0; i < BN_ARRAY_LEN(members); i++)
        if (bn_json_get(q->body, members[i]))
            bn_json_set(j, members[i], bn_json_ref(bn_json_get(q->body, members[i])));
    return j;
}

/* ------------------------------------------------------------------ tokens */

/* {"id", "token", "bytes", "logprob"}, or {..., "prob"}, without the last brace. */
static bitnet_status put_token(struct bn_buf *b, const bitnet_model *m, const bitnet_logprob *t,
                               bool drawn, bitnet_error *err)
{
    char *bytes;
    size_t n;
    BN_TRY(tokens_decode(&bytes, &n, m, &t->token, 1, BITNET_TOK_SPECIAL, err));
    bn_buf_printf(b, "{\"id\":%d,\"token\":", t->token);
    bn_json_quote(b, bytes, n);
    bn_buf_puts(b, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++) bn_buf_printf(b, "%s%d", i ? "," : "", (unsigned char)bytes[i]);
    if (drawn) bn_buf_printf(b, "],\"prob\":%.9g", exp((double)t->logprob));
    else bn_buf_printf(b, "],\"logprob\":%.9g", (double)t->logprob);
    free(bytes);
    return BITNET_OK;
}

/* Those of the model; or those by which the token was drawn. */
static bitnet_status put_probabilities(struct bn_buf *b, const bitnet_model *m,
                                       const bitnet_event *e, bool drawn, bitnet_error *err)
{
    const bitnet_logprob self = {e->token, e->logprob};
    BN_TRY(put_token(b, m, &self, drawn, err));
    bn_buf_puts(b, drawn ? ",\"top_probs\":[" : ",\"top_logprobs\":[");
    for (size_t i = 0; i < e->n_top; i++) {
        if (i) bn_buf_putc(b, ',');
        BN_TRY(put_token(b, m, &e->top[i], drawn, err));
        bn_buf_putc(b, '}');
    }
    bn_buf_puts(b, "]}");
    return BITNET_OK;
}

/* {"id", "text"} without the last brace. */
static void put_piece(struct bn_buf *b, const bitnet_event *e)
{
    if (b->len) bn_buf_putc(b, ',');
    bn_buf_printf(b, "{\"id\":%d,\"text\":", e->token);
    bn_json_quote(b, e->text ? e->text : "", e->text_bytes);
}

bitnet_status llamacpp_gather(struct openai_choice *c, const bitnet_event *e, bitnet_error *err)
{
    struct bn_buf *b = &c->own;
    put_piece(b, e);
    bn_buf_putc(b, '}');
    return b->failed ? bn_fail_nomem(err, b->len, "tokens") : BITNET_OK;
}

bitnet_status llamacpp_take(struct openai_reply *r, struct openai_choice *c, const bitnet_event *e,
                            bitnet_error *err)
{
    struct bn_buf *b = &c->own;
    bool drawn = bn_json_is_true(bn_json_get(r->echoed, "post_sampling_probs"));
    if (e->token < 0) return BITNET_OK;
    if (!r->logprobs) return llamacpp_gather(c, e, err);
    openai_logprobs_clear(&c->logprobs); /* they are told here, with ids */
    put_piece(b, e);
    bn_buf_puts(b, ",\"p\":");
    BN_TRY(put_probabilities(b, c->logprobs.m, e, drawn, err));
    bn_buf_putc(b, '}');
    return b->failed ? bn_fail_nomem(err, b->len, "tokens") : BITNET_OK;
}

/* What was gathered, as a list; NULL: out of memory. */
static struct bn_json *gathered(const struct openai_choice *c)
{
    struct bn_buf text;
    struct bn_json *j = NULL;
    bn_buf_init(&text, SIZE_MAX / 2);
    bn_buf_putc(&text, '[');
    if (c->own.len) bn_buf_append(&text, c->own.data, c->own.len);
    bn_buf_putc(&text, ']');
    if (!text.failed) bn_json_try(&j, text.data, text.len, 0);
    bn_buf_free(&text);
    return j;
}

/* One member of every item. */
static struct bn_json *column(const struct bn_json *items, const char *key)
{
    struct bn_json *j = bn_json_array();
    size_t i;
    const struct bn_json *item;
    bn_json_each(items, i, item) bn_json_append(j, bn_json_ref(bn_json_get(item, key)));
    return j;
}

/* ------------------------------------------------------------------ the end of a choice */

static const char *stop_type(const struct openai_choice *c)
{
    switch (c->finish) {
    case BITNET_FINISH_END: return "eos";
    case BITNET_FINISH_STOP: return "word";
    case BITNET_FINISH_LENGTH:
    case BITNET_FINISH_TIMEOUT: return "limit";
    default: return "none";
    }
}

/* The stop text is what tokens say beyond the text: all their bytes end with it, or with it and more. */
static struct bn_json *stopping_word(const struct openai_reply *r, const struct openai_choice *c,
                                     const struct bn_json *items)
{
    const struct bn_json *stop = bn_json_get(bn_json_get(r->echoed, "settings"), "stop"), *one,
                         *found = NULL;
    size_t n_ids = bn_json_size(items), n, at = SIZE_MAX, i;
    int32_t *ids = c->finish == BITNET_FINISH_STOP ? calloc(n_ids + 1, sizeof *ids) : NULL;
    char *text = NULL;
    for (i = 0; ids && i < n_ids; i++)
        ids[i] = (int32_t)bn_json_integer(bn_json_get(bn_json_at(items, i), "id"));
    if (ids && tokens_decode(&text, &n, c->logprobs.m, ids, n_ids, 0, NULL) == BITNET_OK)
        bn_json_each(stop, i, one)
        {
            const char *p = strstr(text, bn_json_text(one));
            if (p && (size_t)(p - text) < at) {
                at = (size_t)(p - text);
                found = one;
            }
        }
    free(text);
    free(ids);
    return found ? bn_json_ref(found) : bn_json_string("");
}

static struct bn_json *prompt_text(const struct openai_reply *r, uint32_t i)
{
    const struct bn_json *raw = bn_json_at(bn_json_get(r->echoed, "prompts"), i / r->n_each);
    size_t n = bn_json_bytes(raw) / sizeof(int32_t), bytes;
    int32_t *ids = calloc(n + 1, sizeof *ids);
    char *text = NULL;
    struct bn_json *j = NULL;
    if (ids && n) memcpy(ids, bn_json_text(raw), n * sizeof *ids);
    if (ids && tokens_decode(&text, &bytes, r->choices[i].logprobs.m, ids, n, BITNET_TOK_SPECIAL,
                             NULL) == BITNET_OK)
        j = openai_text(text, bytes);
    free(text);
    free(ids);
    return j;
}

static int64_t slot_of(const struct openai_reply *r, uint32_t i)
{
    const struct bn_json *v = bn_json_get(r->echoed, "id_slot");
    return bn_json_is_int(v) && bn_json_integer(v) >= 0 ? bn_json_integer(v) : (int64_t)i;
}

/* Did the context end the text, and not the request? */
static bool is_truncated(const struct openai_reply *r, const struct openai_choice *c)
{
    int64_t n = (int64_t)c->n_prompt + c->n_generated;
    return c->finish == BITNET_FINISH_LENGTH &&
           n >= bn_json_integer(bn_json_get(r->echoed, "n_ctx"));
}

/* Members that stand in the last event, or in the whole reply. */
static void set_end(struct bn_json *j, const struct openai_reply *r, uint32_t i,
                    struct bn_json *word)
{
    const struct openai_choice *c = &r->choices[i];
    bn_json_set(j, "model", bn_json_string(r->model));
    bn_json_set(j, "tokens_predicted", bn_json_int(c->n_generated));
    bn_json_set(j, "tokens_evaluated", bn_json_int(c->n_prompt));
    bn_json_set(j, "generation_settings", bn_json_ref(bn_json_get(r->echoed, "settings")));
    bn_json_set(j, "prompt", prompt_text(r, i));
    bn_json_set(j, "truncated", bn_json_bool(is_truncated(r, c)));
    bn_json_set(j, "stop_type", bn_json_string(stop_type(c)));
    bn_json_set(j, "stopping_word", word);
    bn_json_set(j, "tokens_cached", bn_json_int(c->n_cached));
    bn_json_set(j, "timings", openai_timings_json(c));
}

/* ------------------------------------------------------------------ whole replies */

/* "a/b" is member b of a. */
static const struct bn_json *find_field(const struct bn_json *j, const char *path)
{
    const char *slash = strchr(path, '/'), *key;
    struct bn_json *v;
    if (!slash) return bn_json_get(j, path);
    bn_json_each_member(j, key, v)
    {
        if (strlen(key) == (size_t)(slash - path) && strncmp(key, path, strlen(key)) == 0)
            return bn_json_get(v, slash + 1);
    }
    return NULL;
}

/* Only these members, under the names that were asked for. Takes j. */
static struct bn_json *select_fields(struct bn_json *j, const struct bn_json *fields)
{
    struct bn_json *to = bn_json_whole(j) ? bn_json_object() : NULL;
    size_t i;
    const struct bn_json *field;
    bn_json_each(fields, i, field)
    {
        const char *path = bn_json_text(field);
        const struct bn_json *v = path ? find_field(j, path) : NULL;
        if (v) bn_json_set(to, path, bn_json_ref(v));
    }
    bn_json_free(j);
    return to;
}

static struct bn_json *whole_json(const struct openai_reply *r, uint32_t i,
                                  const struct bn_json *items)
{
    const struct openai_choice *c = &r->choices[i];
    bool tokens = bn_json_is_true(bn_json_get(r->echoed, "return_tokens"));
    bool new_line = c->parser.text.len && memchr(c->parser.text.data, '\n', c->parser.text.len);
    struct bn_json *j = bn_json_pack("{s:I, s:o, s:o, s:I, s:b, s:b}", "index", (int64_t)i,
                                     "content", openai_choice_text(c), "tokens",
                                     tokens ? column(items, "id") : bn_json_array(), "id_slot",
                                     slot_of(r, i), "stop", 1, "has_new_line", new_line);
    set_end(j, r, i, stopping_word(r, c, items));
    return j;
}

struct bn_json *llamacpp_choice_json(const struct openai_reply *r, uint32_t i)
{
    struct bn_json *items = gathered(&r->choices[i]);
    struct bn_json *j = items ? whole_json(r, i, items) : NULL;
    bn_json_free(items);
    return j;
}

static struct bn_json *choice_json(const struct openai_reply *r, uint32_t i)
{
    struct bn_json *items = gathered(&r->choices[i]);
    if (!items) return NULL;
    struct bn_json *j = whole_json(r, i, items);
    if (r->logprobs) bn_json_set(j, "completion_probabilities", column(items, "p"));
    bn_json_free(items);
    const struct bn_json *fields = bn_json_get(r->echoed, "response_fields");
    return bn_json_size(fields) ? select_fields(j, fields) : j;
}

struct bn_json *llamacpp_reply(const struct openai_reply *r, bool with_cached)
{
    (void)with_cached;
    if (r->n_choices == 1) return choice_json(r, 0);
    struct bn_json *list = bn_json_array();
    for (uint32_t i = 0; i < r->n_choices; i++) bn_json_append(list, choice_json(r, i));
    return list;
}

/* ------------------------------------------------------------------ streams */

static void put_event(struct bn_buf *out, struct bn_json *j)
{
    bn_buf_puts(out, "data: ");
    bn_json_write(out, j, OPENAI_DUMP_FLAGS);
    bn_buf_puts(out, "\n\n");
    bn_json_free(j);
}

static struct bn_json *piece_json(const struct openai_reply *r, uint32_t i,
                                  const struct bn_json *item, uint32_t n_before)
{
    const struct openai_choice *c = &r->choices[i];
    struct bn_json *j =
        bn_json_pack("{s:I, s:O, s:[O], s:b, s:I, s:I, s:I}", "index", (int64_t)i, "content",
                     bn_json_get(item, "text"), "tokens", bn_json_get(item, "id"), "stop", 0,
                     "id_slot", slot_of(r, i), "tokens_predicted", (int64_t)n_before + 1,
                     "tokens_evaluated", (int64_t)c->n_prompt);
    if (r->logprobs)
        bn_json_set(j, "completion_probabilities", bn_json_pack("[O]", bn_json_get(item, "p")));
    if (bn_json_is_true(bn_json_get(r->echoed, "timings_per_token")))
        bn_json_set(j, "timings", openai_timings_json(c));
    return j;
}

/* An event that says how much of the prompt was read; times are those until then. */
static void put_progress(struct openai_stream *s, uint32_t i, uint32_t n_read, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    struct openai_choice then = {.n_prompt = n_read, .n_cached = c->n_cached};
    if (n_read > c->n_cached) then.prefill_ns = c->prefill_ns;
    struct bn_json *j = bn_json_pack(
        "{s:I, s:s, s:[], s:b, s:I, s:{s:I, s:I, s:I, s:I}}", "index", (int64_t)i, "content", "",
        "tokens", "stop", 0, "id_slot", slot_of(&s->reply, i), "prompt_progress", "total",
        (int64_t)c->n_prompt, "cache", (int64_t)c->n_cached, "processed", (int64_t)n_read,
        "time_ms", (int64_t)(then.prefill_ns / 1000000));
    if (bn_json_is_true(bn_json_get(s->reply.echoed, "timings_per_token")))
        bn_json_set(j, "timings", openai_timings_json(&then));
    put_event(out, j);
    s->sent[i].n_read = n_read;
    s->sent[i].progress = true;
}

/* First what was there before, then every step that the client has time for, then all of it. */
static void flush_progress(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    const struct openai_choice *c = &s->reply.choices[i];
    uint32_t n_read = c->n_generated ? c->n_prompt : c->n_read;
    if (!s->reply.progress || i % s->reply.n_each || !c->n_prompt) return;
    if (!s->sent[i].progress) put_progress(s, i, c->n_cached, out);
    if (n_read > s->sent[i].n_read) put_progress(s, i, n_read, out);
}

/* An event for every token. What the text has beyond them belongs to the end. sent->text_bytes counts tokens,
 * logprob_bytes line ends. */
static void put_news(struct openai_stream *s, uint32_t i, struct bn_buf *out)
{
    struct openai_choice *c = &s->reply.choices[i];
    struct openai_sent *sent = &s->sent[i];
    struct bn_json *items = gathered(c);
    const struct bn_json *item;
    size_t k, done = 0;
    out->failed |= !items;
    bn_json_each(items, k, item)
    {
        put_event(out, piece_json(&s->reply, i, item, (uint32_t)sent->text_bytes++));
        done += bn_json_bytes(bn_json_get(item, "text"));
    }
    bn_json_free(items);
    struct bn_buf *text = &c->parser.text;
    for (k = 0; k < text->len; k++) sent->logprob_bytes += text->data[k] == '\n';
    bool ended = c->finish != BITNET_FINISH_NONE && !sent->ended;
    done = bn_min_size(done, text->len);
    if (ended) {
        struct bn_json *j = bn_json_pack(
            "{s:I, s:o, s:[], s:I, s:b, s:b}", "index", (int64_t)i, "content",
            openai_text(text->len ? text->data + done : "", text->len - done), "tokens", "id_slot",
            slot_of(&s->reply, i), "stop", 1, "has_new_line", sent->logprob_bytes > 0);
        const struct bn_json *stop = bn_json_get(bn_json_get(s->reply.echoed, "settings"),
                                                 "stop"); /* which one: if there is one */
        bool known = c->finish == BITNET_FINISH_STOP && bn_json_size(stop) == 1;
        set_end(j, &s->reply, i, known ? bn_json_ref(bn_json_at(stop, 0)) : bn_json_string(""));
        put_event(out, j);
        sent->ended = true;
    }
    bn_buf_clear(text);
    bn_buf_clear(&c->own);
}

void llamacpp_flush(struct openai_stream *s, struct bn_buf *out)
{
    for (uint32_t i = 0; i < s->reply.n_choices; i++) {
        flush_progress(s, i, out);
        put_news(s, i, out);
    }
    s->ended = openai_reply_done(&s->reply);
}

void llamacpp_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out)
{
    const struct openai_fault f = openai_fault_of(why);
    for (uint32_t i = 0; i < s->reply.n_choices; i++) put_news(s, i, out);
    put_event(out, llamacpp_error_json(&f));
}
