/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/request_impl.h"

#include <math.h>
#include <stdlib.h>

static void *place(struct openai_request *r, const struct openai_field *f)
{
    return (char *)&r->request + f->offset;
}

/* ------------------------------------------------------------------ numbers */

static bitnet_status read_f32(struct openai_request *r, const struct openai_field *f,
                              const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_f32(place(r, f), r->body, f->key, "body", err);
}

static bitnet_status read_u32(struct openai_request *r, const struct openai_field *f,
                              const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_u32(place(r, f), r->body, f->key, "body", err);
}

static bitnet_status read_flag(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    bool on = false;
    BN_TRY(bn_json_read_bool(&on, r->body, f->key, "body", err));
    *(uint32_t *)place(r, f) = on;
    return BITNET_OK;
}

static bitnet_status read_cache(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    bool on = true;
    BN_TRY(bn_json_read_bool(&on, r->body, f->key, "body", err));
    r->request.prefix_cache = on ? "auto" : "off";
    return BITNET_OK;
}

static bitnet_status read_up_to(struct openai_request *r, const struct openai_field *f,
                                uint32_t min, uint32_t max, bitnet_error *err)
{
    uint32_t *to = place(r, f);
    BN_TRY(bn_json_read_u32(to, r->body, f->key, "body", err));
    if (*to < min || *to > max)
        return bn_fail(err, BITNET_E_ARG, "'%s' is %u; %u to %u is possible", f->key, *to, min,
                       max);
    return BITNET_OK;
}

static bitnet_status read_max_tokens(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    BN_TRY(read_up_to(r, f, r->kind == OPENAI_COMPLETION ? 0 : 1, UINT32_MAX, err));
    r->request.prompt_only = r->request.max_new_tokens == 0;
    return BITNET_OK;
}

static bitnet_status read_choices(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return read_up_to(r, f, 1, OPENAI_MAX_CHOICES, err);
}

/* -1 is how others write "off" */
static bitnet_status read_top_k(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    if (bn_json_is_int(v) && bn_json_integer(v) == -1) {
        r->request.sampling.top_k = 0;
        return BITNET_OK;
    }
    return read_u32(r, f, v, err);
}

static bitnet_status read_seed(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    if (!bn_json_is_int(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a whole number", f->key);
    r->request.sampling.seed = (uint64_t)bn_json_integer(v);
    r->seeded = true;
    return BITNET_OK;
}

/* In a chat true or false, with top_logprobs beside it; in a completion that number itself. */
static bitnet_status read_logprobs(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    if (r->kind == OPENAI_CHAT) return read_flag(r, f, v, err);
    const struct openai_field top = {f->key, 0, NULL, offsetof(bitnet_request, n_top_logprobs)};
    r->request.logprobs = 1;
    return read_up_to(r, &top, 0, OPENAI_MAX_TOP_LOGPROBS, err);
}

static bitnet_status read_top_logprobs(struct openai_request *r, const struct openai_field *f,
                                       const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return read_up_to(r, f, 0, OPENAI_MAX_TOP_LOGPROBS, err);
}

static bitnet_status read_logit_bias(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    size_t n = bn_json_size(v);
    if (!bn_json_is_object(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not an object of token ids", f->key);
    if (n > OPENAI_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' names %zu tokens; at most %d are possible",
                       f->key, n, OPENAI_MAX_BIASES);
    bitnet_logit_bias *list = openai_alloc(r, n, sizeof *list), *at = list;
    if (!list) return bn_fail_nomem(err, n * sizeof *list, f->key);
    const char *key;
    struct bn_json *bias;
    bn_json_each_member(v, key, bias)
    {
        char *end;
        long token = strtol(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || token > INT32_MAX)
            return bn_fail(err, BITNET_E_ARG, "'%s': '%.40s' is not a token id", f->key, key);
        if (!bn_json_is_number(bias))
            return bn_fail(err, BITNET_E_ARG, "'%s' of token %ld is not a number", f->key, token);
        if (!(fabs(bn_json_number(bias)) <= OPENAI_MAX_BIAS))
            return bn_fail(err, BITNET_E_ARG, "'%s' of token %ld is %g; -%d to %d is possible",
                           f->key, token, bn_json_number(bias), OPENAI_MAX_BIAS, OPENAI_MAX_BIAS);
        *at++ = (bitnet_logit_bias){(int32_t)token, (float)bn_json_number(bias)};
    }
    r->request.sampling.logit_bias = list;
    r->request.sampling.n_logit_bias = n;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ strings */

/* A copy, since the engine may take the request when the body is no more. */
static bitnet_status keep_string(struct openai_request *r, const char **out,
                                 const struct bn_json *v, const char *key, bitnet_error *err)
{
    const char *text;
    BN_TRY(openai_c_string(&text, v, key, err));
    *out = bn_arena_strn(&r->arena, text, strlen(text));
    return *out ? BITNET_OK : bn_fail_nomem(err, strlen(text) + 1, key);
}

static bitnet_status read_grammar(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    return keep_string(r, &r->request.grammar, v, f->key, err);
}

static bitnet_status read_model(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    BN_TRY(keep_string(r, &r->model, v, f->key, err));
    size_t n = strlen(r->model);
    return n <= OPENAI_MAX_MODEL_BYTES
               ? BITNET_OK
               : bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu bytes; at most %d are possible", f->key,
                         n, OPENAI_MAX_MODEL_BYTES);
}

/* One string or a list of them. */
static bitnet_status strings(struct openai_request *r, const char *const **out, size_t *n,
                             const struct bn_json *v, const char *key, bitnet_error *err)
{
    *n = bn_json_is_array(v) ? bn_json_size(v) : 1;
    if (*n > OPENAI_MAX_STRINGS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu strings; at most %d are possible", key,
                       *n, OPENAI_MAX_STRINGS);
    const char **list = openai_alloc(r, *n, sizeof *list);
    if (!list) return bn_fail_nomem(err, *n * sizeof *list, key);
    for (size_t i = 0; i < *n; i++)
        BN_TRY(keep_string(r, &list[i], bn_json_is_array(v) ? bn_json_at(v, i) : v, key, err));
    *out = list;
    return BITNET_OK;
}

static bitnet_status read_stop(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    return strings(r, &r->request.stop, &r->request.n_stop, v, f->key, err);
}

static bitnet_status read_breakers(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    bitnet_sampling *s = &r->request.sampling;
    return strings(r, &s->dry_breakers, &s->n_dry_breakers, v, f->key, err);
}

/* {"type": "text" | "json_object" | "json_schema"}; the schema itself stands inside `wrapper`. */
static bitnet_status read_format(struct openai_request *r, const struct bn_json *v,
                                 const struct bn_json *wrapper, const char *key, bitnet_error *err)
{
    const char *type = bn_json_text(bn_json_get(v, "type"));
    if (!type) return bn_fail(err, BITNET_E_ARG, "'%s' has no 'type'", key);
    if (strcmp(type, "text") == 0) return BITNET_OK;
    if (strcmp(type, "json_object") == 0) {
        r->request.json_object = 1;
        return BITNET_OK;
    }
    if (strcmp(type, "json_schema") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' is of type '%.40s'; text, json_object and json_schema exist", key,
                       type);
    const struct bn_json *schema = bn_json_get(wrapper, "schema");
    if (!bn_json_is_object(schema))
        return bn_fail(err, BITNET_E_ARG, "'%s' has no object '%sschema'", key,
                       wrapper == v ? "" : "json_schema.");
    r->request.json_schema = openai_dump(r, schema);
    return r->request.json_schema ? BITNET_OK : bn_fail_nomem(err, 0, "the JSON Schema");
}

static bitnet_status read_response_format(struct openai_request *r, const struct openai_field *f,
                                          const struct bn_json *v, bitnet_error *err)
{
    return read_format(r, v, bn_json_get(v, "json_schema"), f->key, err);
}

/* Of a response: {"format", "verbosity"}, the format with its schema beside the type. */
static bitnet_status read_text(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    static const char *const known[] = {"format", "verbosity", NULL};
    BN_TRY(openai_check_members(v, known, f->key, err));
    const struct bn_json *format = bn_json_get(v, "format");
    return openai_is_given(format) ? read_format(r, format, format, "text.format", err) : BITNET_OK;
}

/* ------------------------------------------------------------------ the rest */

static bitnet_status read_stream(struct openai_request *r, const struct openai_field *f,
                                 const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->stream, r->body, f->key, "body", err);
}

/* OpenAI's obfuscation pads chunks against listeners that count bytes; it is never done here. */
static bitnet_status read_stream_options(struct openai_request *r, const struct openai_field *f,
                                         const struct bn_json *v, bitnet_error *err)
{
    static const char *const known[] = {"include_usage", "include_obfuscation", NULL};
    BN_TRY(openai_check_members(v, known, f->key, err));
    return bn_json_read_bool(&r->include_usage, v, "include_usage", f->key, err);
}

static bitnet_status read_echo(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->echo, r->body, f->key, "body", err);
}

static bitnet_status read_parallel(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->parallel, r->body, f->key, "body", err);
}

/* What a response is to tell beside the text. */
static bitnet_status read_include(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    if (!bn_json_is_array(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a list", f->key);
    size_t i;
    const struct bn_json *one;
    bn_json_each(v, i, one)
    {
        const char *what;
        BN_TRY(openai_c_string(&what, one, f->key, err));
        if (strcmp(what, "message.output_text.logprobs") == 0) r->request.logprobs = 1;
        else if (strcmp(what, "reasoning.encrypted_content") != 0)
            return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s': there is no '%.60s' here", f->key,
                           what);
    }
    return BITNET_OK;
}

static bitnet_status read_truncation(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    (void)r;
    const char *how;
    BN_TRY(openai_c_string(&how, v, f->key, err));
    return strcmp(how, "disabled") == 0
               ? BITNET_OK
               : bn_fail(err, BITNET_E_UNSUPPORTED,
                         "'%s' is '%.40s'; only 'disabled' is possible: nothing is cut off", f->key,
                         how);
}

static bitnet_status refuse_stored(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    (void)r, (void)v;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s' is not possible: nothing is stored here; send the conversation in 'input'",
                   f->key);
}

/* cannot change the result */
static bitnet_status pass_over(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    (void)r, (void)f, (void)v, (void)err;
    return BITNET_OK;
}

static bitnet_status read_modalities(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    (void)r;
    const char *only = bn_json_text(bn_json_at(v, 0));
    if (bn_json_size(v) == 1 && only && strcmp(only, "text") == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is other than [\"text\"]", f->key);
}

/* Known, not done here: may stand there as long as it asks for nothing. */
/* Variables of the template; see openai_conversation. */
static bitnet_status check_variables(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt"};
    (void)r;
    if (!bn_json_is_object(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not an object", f->key);
    for (size_t i = 0; i < BN_ARRAY_LEN(ours); i++)
        if (bn_json_get(v, ours[i]))
            return bn_fail(err, BITNET_E_ARG, "'%s' of '%s' is the server's", ours[i], f->key);
    return BITNET_OK;
}

static bitnet_status must_be_off(struct openai_request *r, const struct openai_field *f,
                                 const struct bn_json *v, bitnet_error *err)
{
    (void)r;
    return openai_is_off(v)
               ? BITNET_OK
               : bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is not possible here", f->key);
}

#define AT(member)       offsetof(bitnet_request, member)
#define SAMPLING(member) offsetof(bitnet_request, sampling.member)
enum {
    CHAT = 1 << OPENAI_CHAT,
    COMPLETION = 1 << OPENAI_COMPLETION,
    RESPONSE = 1 << OPENAI_RESPONSE,
    OLD = CHAT | COMPLETION,
    TALK = CHAT | RESPONSE,
    ALL = OLD | RESPONSE
};
static const struct openai_field fields[] = {
    {"messages", CHAT, openai_read_messages, 0},
    {"prompt", COMPLETION, openai_read_prompt, 0},
    {"input", RESPONSE, openai_read_input, 0},
    {"instructions", RESPONSE, pass_over, 0}, /* see openai_read_input */
    {"model", ALL, read_model, 0},
    {"stream", ALL, read_stream, 0},
    {"stream_options", ALL, read_stream_options, 0},
    {"max_tokens", OLD, read_max_tokens, AT(max_new_tokens)},
    {"max_completion_tokens", OLD, read_max_tokens, AT(max_new_tokens)},
    {"max_output_tokens", RESPONSE, read_max_tokens, AT(max_new_tokens)},
    {"n_predict", OLD, read_max_tokens, AT(max_new_tokens)},
    {"n", OLD, read_choices, AT(n_choices)},
    {"stop", ALL, read_stop, 0},
    {"ignore_eos", ALL, read_flag, AT(ignore_end)},
    {"logprobs", OLD, read_logprobs, AT(logprobs)},
    {"top_logprobs", ALL, read_top_logprobs, AT(n_top_logprobs)},
    {"include", RESPONSE, read_include, 0},
    {"echo", COMPLETION, read_echo, 0},
    {"response_format", OLD, read_response_format, 0},
    {"text", RESPONSE, read_text, 0},
    {"grammar", ALL, read_grammar, 0},
    {"seed", ALL, read_seed, 0},
    {"temperature", ALL, read_f32, SAMPLING(temperature)},
    {"top_p", ALL, read_f32, SAMPLING(top_p)},
    {"min_p", ALL, read_f32, SAMPLING(min_p)},
    {"top_k", ALL, read_top_k, SAMPLING(top_k)},
    {"typical_p", ALL, read_f32, SAMPLING(typical_p)},
    {"top_n_sigma", ALL, read_f32, SAMPLING(top_n_sigma)},
    {"adaptive", ALL, read_flag, SAMPLING(adaptive)},
    {"repetition_penalty", ALL, read_f32, SAMPLING(repetition_penalty)},
    {"repeat_penalty", ALL, read_f32, SAMPLING(repetition_penalty)},
    {"presence_penalty", ALL, read_f32, SAMPLING(presence_penalty)},
    {"frequency_penalty", ALL, read_f32, SAMPLING(frequency_penalty)},
    {"penalty_last_n", ALL, read_u32, SAMPLING(penalty_last_n)},
    {"repeat_last_n", ALL, read_u32, SAMPLING(penalty_last_n)},
    {"dry_multiplier", ALL, read_f32, SAMPLING(dry_multiplier)},
    {"dry_base", ALL, read_f32, SAMPLING(dry_base)},
    {"dry_allowed_length", ALL, read_u32, SAMPLING(dry_allowed_length)},
    {"dry_last_n", ALL, read_u32, SAMPLING(dry_last_n)},
    {"dry_breakers", ALL, read_breakers, 0},
    {"logit_bias", ALL, read_logit_bias, 0},
    {"cache_prompt", ALL, read_cache, AT(prefix_cache)},
    {"modalities", CHAT, read_modalities, 0},
    {"truncation", RESPONSE, read_truncation, 0},
    {"previous_response_id", RESPONSE, refuse_stored, 0},
    {"conversation", RESPONSE, refuse_stored, 0},
    {"max_tool_calls", RESPONSE, pass_over, 0}, /* of tools that a server runs itself */
    {"metadata", ALL, pass_over, 0},
    {"prediction", CHAT, pass_over, 0}, /* a hint */
    {"prompt_cache_key", ALL, pass_over, 0},
    {"prompt_cache_retention", ALL, pass_over, 0},
    {"reasoning", RESPONSE, pass_over, 0},
    {"reasoning_effort", CHAT, pass_over, 0},
    {"safety_identifier", ALL, pass_over, 0},
    {"service_tier", ALL, pass_over, 0},
    {"store", ALL, pass_over, 0},
    {"user", ALL, pass_over, 0},
    {"verbosity", CHAT, pass_over, 0},
    {"parallel_tool_calls", TALK, read_parallel, 0},
    {"tool_choice", TALK, pass_over, 0}, /* these two are read together, after all others */
    {"tools", TALK, pass_over, 0},
    {"chat_template_kwargs", TALK, check_variables, 0},
    {"audio", CHAT, must_be_off, 0},
    {"background", RESPONSE, must_be_off, 0},
    {"best_of", COMPLETION, must_be_off, 0},
    {"functions", CHAT, must_be_off, 0},
    {"suffix", COMPLETION, must_be_off, 0},
    {"web_search_options", CHAT, must_be_off, 0},
};
#undef AT
#undef SAMPLING

const struct openai_field *openai_find_field(const char *key)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(fields); i++)
        if (strcmp(fields[i].key, key) == 0) return &fields[i];
    return NULL;
}
