/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai_request.h"

#include "server/tokens.h"
#include <math.h>
#include <stdlib.h>

/* A member of the body: how it is read, and the number's place in bitnet_request. */
struct field {
    const char *key;
    bitnet_status (*read)(struct openai_request *r, const struct field *f, const json_t *v,
                          bitnet_error *err);
    size_t offset;
};

static void *place(struct openai_request *r, const struct field *f)
{
    return (char *)&r->request + f->offset;
}

static void *alloc(struct openai_request *r, size_t n, size_t size) /* n and size are bounded */
{
    return bn_arena_alloc(&r->arena, n * size);
}

/* ------------------------------------------------------------------ numbers */

static bitnet_status read_f32(struct openai_request *r, const struct field *f, const json_t *v,
                              bitnet_error *err)
{
    (void)v;
    return bn_json_f32(place(r, f), r->body, f->key, "body", err);
}

static bitnet_status read_u32(struct openai_request *r, const struct field *f, const json_t *v,
                              bitnet_error *err)
{
    (void)v;
    return bn_json_u32(place(r, f), r->body, f->key, "body", err);
}

static bitnet_status read_flag(struct openai_request *r, const struct field *f, const json_t *v,
                               bitnet_error *err)
{
    (void)v;
    bool on = false;
    BN_TRY(bn_json_bool(&on, r->body, f->key, "body", err));
    *(uint32_t *)place(r, f) = on;
    return BITNET_OK;
}

static bitnet_status read_up_to(struct openai_request *r, const struct field *f, uint32_t min,
                                uint32_t max, bitnet_error *err)
{
    uint32_t *to = place(r, f);
    BN_TRY(bn_json_u32(to, r->body, f->key, "body", err));
    if (*to < min || *to > max)
        return bn_fail(err, BITNET_E_ARG, "'%s' is %u; %u to %u is possible", f->key, *to, min,
                       max);
    return BITNET_OK;
}

static bitnet_status read_max_tokens(struct openai_request *r, const struct field *f,
                                     const json_t *v, bitnet_error *err)
{
    (void)v;
    return read_up_to(r, f, 1, UINT32_MAX, err);
}

static bitnet_status read_choices(struct openai_request *r, const struct field *f, const json_t *v,
                                  bitnet_error *err)
{
    (void)v;
    return read_up_to(r, f, 1, OPENAI_MAX_CHOICES, err);
}

/* -1 is how others write "off" */
static bitnet_status read_top_k(struct openai_request *r, const struct field *f, const json_t *v,
                                bitnet_error *err)
{
    if (json_is_integer(v) && json_integer_value(v) == -1) {
        r->request.sampling.top_k = 0;
        return BITNET_OK;
    }
    return read_u32(r, f, v, err);
}

static bitnet_status read_seed(struct openai_request *r, const struct field *f, const json_t *v,
                               bitnet_error *err)
{
    if (!json_is_integer(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a whole number", f->key);
    r->request.sampling.seed = (uint64_t)json_integer_value(v);
    return BITNET_OK;
}

/* In a chat true or false, with top_logprobs beside it; in a completion that number itself. */
static bitnet_status read_logprobs(struct openai_request *r, const struct field *f, const json_t *v,
                                   bitnet_error *err)
{
    if (r->kind == OPENAI_CHAT) return read_flag(r, f, v, err);
    const struct field top = {f->key, NULL, offsetof(bitnet_request, n_top_logprobs)};
    r->request.logprobs = 1;
    return read_up_to(r, &top, 0, OPENAI_MAX_TOP_LOGPROBS, err);
}

static bitnet_status read_top_logprobs(struct openai_request *r, const struct field *f,
                                       const json_t *v, bitnet_error *err)
{
    (void)v;
    return read_up_to(r, f, 0, OPENAI_MAX_TOP_LOGPROBS, err);
}

static bitnet_status read_logit_bias(struct openai_request *r, const struct field *f,
                                     const json_t *v, bitnet_error *err)
{
    size_t n = json_object_size(v);
    if (!json_is_object(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not an object of token ids", f->key);
    if (n > OPENAI_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' names %zu tokens; at most %d are possible",
                       f->key, n, OPENAI_MAX_BIASES);
    bitnet_logit_bias *list = alloc(r, n, sizeof *list), *at = list;
    if (!list) return bn_fail_nomem(err, n * sizeof *list, f->key);
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)v, key, bias)
    {
        char *end;
        long token = strtol(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || token > INT32_MAX)
            return bn_fail(err, BITNET_E_ARG, "'%s': '%.40s' is not a token id", f->key, key);
        if (!json_is_number(bias))
            return bn_fail(err, BITNET_E_ARG, "'%s' of token %ld is not a number", f->key, token);
        if (!(fabs(json_number_value(bias)) <= OPENAI_MAX_BIAS))
            return bn_fail(err, BITNET_E_ARG, "'%s' of token %ld is %g; -%d to %d is possible",
                           f->key, token, json_number_value(bias), OPENAI_MAX_BIAS,
                           OPENAI_MAX_BIAS);
        *at++ = (bitnet_logit_bias){(int32_t)token, (float)json_number_value(bias)};
    }
    r->request.sampling.logit_bias = list;
    r->request.sampling.n_logit_bias = n;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ strings */

/* A string that C can hold. */
static bitnet_status c_string(const char **out, const json_t *v, const char *key, bitnet_error *err)
{
    if (!json_is_string(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a string", key);
    *out = json_string_value(v);
    if (strlen(*out) != json_string_length(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' holds the character U+0000", key);
    return BITNET_OK;
}

static bitnet_status read_grammar(struct openai_request *r, const struct field *f, const json_t *v,
                                  bitnet_error *err)
{
    return c_string(&r->request.grammar, v, f->key, err);
}

static bitnet_status read_model(struct openai_request *r, const struct field *f, const json_t *v,
                                bitnet_error *err)
{
    return c_string(&r->model, v, f->key, err);
}

/* One string or a list of them. */
static bitnet_status strings(struct openai_request *r, const char *const **out, size_t *n,
                             const json_t *v, const char *key, bitnet_error *err)
{
    *n = json_is_array(v) ? json_array_size(v) : 1;
    if (*n > OPENAI_MAX_STRINGS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu strings; at most %d are possible", key,
                       *n, OPENAI_MAX_STRINGS);
    const char **list = alloc(r, *n, sizeof *list);
    if (!list) return bn_fail_nomem(err, *n * sizeof *list, key);
    for (size_t i = 0; i < *n; i++)
        BN_TRY(c_string(&list[i], json_is_array(v) ? json_array_get(v, i) : v, key, err));
    *out = list;
    return BITNET_OK;
}

static bitnet_status read_stop(struct openai_request *r, const struct field *f, const json_t *v,
                               bitnet_error *err)
{
    return strings(r, &r->request.stop, &r->request.n_stop, v, f->key, err);
}

static bitnet_status read_breakers(struct openai_request *r, const struct field *f, const json_t *v,
                                   bitnet_error *err)
{
    bitnet_sampling *s = &r->request.sampling;
    return strings(r, &s->dry_breakers, &s->n_dry_breakers, v, f->key, err);
}

static bitnet_status read_response_format(struct openai_request *r, const struct field *f,
                                          const json_t *v, bitnet_error *err)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!type) return bn_fail(err, BITNET_E_ARG, "'%s' has no 'type'", f->key);
    if (strcmp(type, "text") == 0) return BITNET_OK;
    if (strcmp(type, "json_object") == 0) {
        r->request.json_object = 1;
        return BITNET_OK;
    }
    if (strcmp(type, "json_schema") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' is of type '%.40s'; text, json_object and json_schema exist", f->key,
                       type);
    const json_t *schema = json_object_get(json_object_get(v, "json_schema"), "schema");
    if (!json_is_object(schema))
        return bn_fail(err, BITNET_E_ARG, "'%s' has no object 'json_schema.schema'", f->key);
    char *text = json_dumps(schema, JSON_COMPACT);
    r->request.json_schema = text ? bn_arena_strn(&r->arena, text, strlen(text)) : NULL;
    free(text);
    return r->request.json_schema ? BITNET_OK : bn_fail_nomem(err, 0, "the JSON Schema");
}

/* ------------------------------------------------------------------ the prompt */

/* Content in parts: texts, put one after the other. */
static bitnet_status join_parts(struct openai_request *r, const char **out, const json_t *parts,
                                size_t at, bitnet_error *err)
{
    size_t n = 0, i;
    const json_t *part;
    json_array_foreach(parts, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type")), *text;
        if (!type || strcmp(type, "text") != 0)
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "message %zu has a part of type '%.40s'; only text is possible", at,
                           type ? type : "");
        BN_TRY(c_string(&text, json_object_get(part, "text"), "text", err));
        n += strlen(text);
    }
    char *joined = bn_arena_alloc(&r->arena, n + 1), *to = joined;
    if (!joined) return bn_fail_nomem(err, n + 1, "a message");
    json_array_foreach(parts, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        memcpy(to, json_string_value(text), json_string_length(text));
        to += json_string_length(text);
    }
    *out = joined;
    return BITNET_OK;
}

static bitnet_status read_messages(struct openai_request *r, const struct field *f, const json_t *v,
                                   bitnet_error *err)
{
    size_t n = json_array_size(v), i;
    if (r->kind != OPENAI_CHAT)
        return bn_fail(err, BITNET_E_ARG, "a completion takes 'prompt', not '%s'", f->key);
    if (n == 0) return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of messages", f->key);
    if (n > OPENAI_MAX_MESSAGES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu messages; at most %d are possible", n,
                       OPENAI_MAX_MESSAGES);
    r->messages = alloc(r, n, sizeof *r->messages);
    if (!r->messages) return bn_fail_nomem(err, n * sizeof *r->messages, f->key);
    r->n_messages = n;
    const json_t *message;
    json_array_foreach(v, i, message)
    {
        bitnet_message *m = &r->messages[i];
        const json_t *content = json_object_get(message, "content");
        BN_TRY(c_string(&m->role, json_object_get(message, "role"), "role", err));
        BN_TRY(json_is_array(content) ? join_parts(r, &m->content, content, i, err)
                                      : c_string(&m->content, content, "content", err));
    }
    return BITNET_OK;
}

static bitnet_status take_ids(struct openai_request *r, const json_t *ids, bitnet_error *err)
{
    r->n_tokens = json_array_size(ids);
    r->tokens = bn_calloc(r->n_tokens, sizeof *r->tokens);
    if (!r->tokens) return bn_fail_nomem(err, r->n_tokens * sizeof *r->tokens, "token ids");
    size_t i;
    const json_t *id;
    json_array_foreach(ids, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return bn_fail(err, BITNET_E_ARG, "item %zu of 'prompt' is not a token id", i);
        r->tokens[i] = (int32_t)value;
    }
    return BITNET_OK;
}

/* A text, a list of token ids, or a list of just one of these. */
static bitnet_status read_prompt(struct openai_request *r, const struct field *f, const json_t *v,
                                 bitnet_error *err)
{
    if (r->kind != OPENAI_COMPLETION)
        return bn_fail(err, BITNET_E_ARG, "a chat takes 'messages', not '%s'", f->key);
    const json_t *first = json_array_get(v, 0);
    if (first && !json_is_integer(first)) {
        if (json_array_size(v) > 1)
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "'%s' holds %zu prompts; a request takes one of them", f->key,
                           json_array_size(v));
        v = first;
    }
    if (json_is_array(v) && json_array_size(v)) return take_ids(r, v, err);
    if (!json_is_string(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is neither a text nor a list of token ids", f->key);
    r->prompt = json_string_value(v);
    r->prompt_bytes = json_string_length(v);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the rest */

static bitnet_status read_stream(struct openai_request *r, const struct field *f, const json_t *v,
                                 bitnet_error *err)
{
    (void)v;
    return bn_json_bool(&r->stream, r->body, f->key, "body", err);
}

/* cannot change the answer */
static bitnet_status pass_over(struct openai_request *r, const struct field *f, const json_t *v,
                               bitnet_error *err)
{
    (void)r, (void)f, (void)v, (void)err;
    return BITNET_OK;
}

/* Known, not done here: may stand there as long as it asks for nothing. */
static bitnet_status must_be_off(struct openai_request *r, const struct field *f, const json_t *v,
                                 bitnet_error *err)
{
    (void)r;
    bool off =
        json_is_false(v) || (json_is_integer(v) && json_integer_value(v) <= 1) ||
        (json_is_string(v) && json_string_length(v) == 0) ||
        ((json_is_array(v) || json_is_object(v)) && !json_array_size(v) && !json_object_size(v));
    return off ? BITNET_OK
               : bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is not possible here", f->key);
}

#define AT(member)       offsetof(bitnet_request, member)
#define SAMPLING(member) offsetof(bitnet_request, sampling.member)
static const struct field fields[] = {
    {"messages", read_messages, 0},
    {"prompt", read_prompt, 0},
    {"model", read_model, 0},
    {"stream", read_stream, 0},
    {"max_tokens", read_max_tokens, AT(max_new_tokens)},
    {"max_completion_tokens", read_max_tokens, AT(max_new_tokens)},
    {"n", read_choices, AT(n_choices)},
    {"stop", read_stop, 0},
    {"ignore_eos", read_flag, AT(ignore_end)},
    {"logprobs", read_logprobs, AT(logprobs)},
    {"top_logprobs", read_top_logprobs, AT(n_top_logprobs)},
    {"response_format", read_response_format, 0},
    {"grammar", read_grammar, 0},
    {"seed", read_seed, 0},
    {"temperature", read_f32, SAMPLING(temperature)},
    {"top_p", read_f32, SAMPLING(top_p)},
    {"min_p", read_f32, SAMPLING(min_p)},
    {"top_k", read_top_k, SAMPLING(top_k)},
    {"typical_p", read_f32, SAMPLING(typical_p)},
    {"top_n_sigma", read_f32, SAMPLING(top_n_sigma)},
    {"adaptive", read_flag, SAMPLING(adaptive)},
    {"repetition_penalty", read_f32, SAMPLING(repetition_penalty)},
    {"presence_penalty", read_f32, SAMPLING(presence_penalty)},
    {"frequency_penalty", read_f32, SAMPLING(frequency_penalty)},
    {"penalty_last_n", read_u32, SAMPLING(penalty_last_n)},
    {"dry_multiplier", read_f32, SAMPLING(dry_multiplier)},
    {"dry_base", read_f32, SAMPLING(dry_base)},
    {"dry_allowed_length", read_u32, SAMPLING(dry_allowed_length)},
    {"dry_last_n", read_u32, SAMPLING(dry_last_n)},
    {"dry_breakers", read_breakers, 0},
    {"logit_bias", read_logit_bias, 0},
    {"metadata", pass_over, 0},
    {"parallel_tool_calls", pass_over, 0},
    {"prompt_cache_key", pass_over, 0},
    {"safety_identifier", pass_over, 0},
    {"service_tier", pass_over, 0},
    {"store", pass_over, 0},
    {"stream_options", pass_over, 0},
    {"tool_choice", pass_over, 0},
    {"user", pass_over, 0},
    {"best_of", must_be_off, 0},
    {"echo", must_be_off, 0},
    {"functions", must_be_off, 0},
    {"suffix", must_be_off, 0},
    {"tools", must_be_off, 0},
};
#undef AT
#undef SAMPLING

static const struct field *find_field(const char *key)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].key, key) == 0) return &fields[i];
    return NULL;
}

static bitnet_status read_body(struct openai_request *r, bitnet_error *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(r->body, key, v)
    {
        const struct field *f = find_field(key);
        if (!f)
            return bn_fail(err, BITNET_E_UNSUPPORTED, "'%.60s' is not an option of a request", key);
        if (!json_is_null(v)) BN_TRY(f->read(r, f, v, err));
    }
    if (!r->messages && !r->prompt && !r->tokens)
        return bn_fail(err, BITNET_E_ARG, "the request has no '%s'",
                       r->kind == OPENAI_CHAT ? "messages" : "prompt");
    if (r->request.n_top_logprobs && !r->request.logprobs)
        return bn_fail(err, BITNET_E_ARG, "'top_logprobs' needs 'logprobs'");
    return BITNET_OK;
}

bitnet_status openai_kind_of(enum openai_kind *out, const char *url, bitnet_error *err)
{
    if (strcmp(url, "/v1/chat/completions") == 0) *out = OPENAI_CHAT;
    else if (strcmp(url, "/v1/completions") == 0) *out = OPENAI_COMPLETION;
    else
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%.80s' is not served; /v1/chat/completions and /v1/completions are", url);
    return BITNET_OK;
}

bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind, json_t *body,
                                  const struct openai_defaults *d, bitnet_error *err)
{
    *r = (struct openai_request){.kind = kind, .model = ""};
    if (!json_is_object(body)) return bn_fail(err, BITNET_E_ARG, "the body is not an object");
    bitnet_request_init(&r->request);
    bitnet_sampling *s = &r->request.sampling;
    s->temperature = s->top_p = 1; /* what OpenAI takes, not what we would */
    s->min_p = 0;
    s->top_k = 0;
    s->seed = d->seed;
    r->request.n_choices = 1;
    r->request.max_new_tokens = d->max_tokens;
    r->body = json_incref(body);
    bitnet_status status = read_body(r, err);
    if (status != BITNET_OK) openai_request_free(r);
    return status;
}

bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err)
{
    if (r->messages)
        BN_TRY(tokens_chat(&r->tokens, &r->n_tokens, m, r->messages, r->n_messages, chat_template,
                           err));
    else if (r->prompt)
        BN_TRY(tokens_encode(&r->tokens, &r->n_tokens, m, r->prompt, r->prompt_bytes,
                             BITNET_TOK_BOS_AUTO, err));
    r->request.tokens = r->tokens;
    r->request.n_tokens = r->n_tokens;
    return BITNET_OK;
}

void openai_request_free(struct openai_request *r)
{
    free(r->tokens);
    json_decref(r->body);
    bn_arena_free(&r->arena);
    *r = (struct openai_request){0};
}
