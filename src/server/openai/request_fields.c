/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/request_impl.h"

#include "app/tokens.h"
#include <float.h>
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

/* Also of the temperature, above which no text is one. */
static bitnet_status read_temperature(struct openai_request *r, const struct openai_field *f,
                                      const struct bn_json *v, bitnet_error *err)
{
    BN_TRY(read_f32(r, f, v, err));
    float t = r->request.sampling.temperature;
    if (t >= 0 && t <= OPENAI_MAX_TEMPERATURE) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "'%s' is %g; 0 to %d is possible", f->key, (double)t,
                   OPENAI_MAX_TEMPERATURE);
}

static bool is_minus_one(const struct bn_json *v)
{
    return bn_json_is_int(v) && bn_json_integer(v) == -1;
}

/* -1 is how others write "no limit" */
static bitnet_status read_max_tokens(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    if (is_minus_one(v)) {
        r->request.max_new_tokens = 0;
        return BITNET_OK;
    }
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

/* 0 leaves the likeliest token alone, as OpenAI has it. */
static bitnet_status read_top_p(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    BN_TRY(read_f32(r, f, v, err));
    if (r->request.sampling.top_p == 0) r->request.sampling.top_p = FLT_MIN;
    return BITNET_OK;
}

/* -1 is how others write "off" */
static bitnet_status read_top_k(struct openai_request *r, const struct openai_field *f,
                                const struct bn_json *v, bitnet_error *err)
{
    if (is_minus_one(v)) {
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

/* As vLLM has it: the smaller comes first. Whether the client may say it is the server's affair. */
static bitnet_status read_priority(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    int64_t n = bn_json_is_int(v) ? bn_json_integer(v) : INT64_MAX;
    if (n < -OPENAI_MAX_PRIORITY || n > OPENAI_MAX_PRIORITY)
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a whole number from -%d to %d", f->key,
                       OPENAI_MAX_PRIORITY, OPENAI_MAX_PRIORITY);
    r->request.priority = (int32_t)n;
    r->ranked = true;
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

/* llama-server's "n_probs", vLLM's "prompt_logprobs" and the like: a number asks for them. */
static bitnet_status read_n_probs(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    BN_TRY(read_up_to(r, f, 0, OPENAI_MAX_TOP_LOGPROBS, err));
    if (r->request.n_top_logprobs) r->request.logprobs = 1;
    return BITNET_OK;
}

static bitnet_status read_stop_tokens(struct openai_request *r, const struct openai_field *f,
                                      const struct bn_json *v, bitnet_error *err)
{
    size_t n = bn_json_size(v), i;
    const struct bn_json *one;
    if (!bn_json_is_array(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of token ids", f->key);
    if (n > OPENAI_MAX_STOP_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu tokens; at most %d are possible", f->key,
                       n, OPENAI_MAX_STOP_TOKENS);
    int32_t *list = openai_alloc(r, n ? n : 1, sizeof *list);
    if (!list) return bn_fail_nomem(err, n * sizeof *list, f->key);
    bn_json_each(v, i, one)
    {
        int64_t id = bn_json_integer(one);
        if (!bn_json_is_int(one) || id < 0 || id > INT32_MAX)
            return bn_fail(err, BITNET_E_ARG, "'%s': item %zu is not a token id", f->key, i);
        list[i] = (int32_t)id;
    }
    r->request.stop_tokens = list;
    r->request.n_stop_tokens = n;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ biases */

struct biases {
    struct openai_request *r;
    const char *key;
    size_t n;
};

static bitnet_status add_bias(struct biases *b, int64_t token, const struct bn_json *bias,
                              bitnet_error *err)
{
    bool never = bn_json_is_false(bias); /* llama-server's word for it */
    double value = never ? -OPENAI_MAX_BIAS : bn_json_number(bias);
    if (token < 0 || token > INT32_MAX)
        return bn_fail(err, BITNET_E_ARG, "'%s': %lld is not a token id", b->key, (long long)token);
    if (!bn_json_is_number(bias) && !never)
        return bn_fail(err, BITNET_E_ARG, "'%s' of token %lld is not a number", b->key,
                       (long long)token);
    if (!(fabs(value) <= OPENAI_MAX_BIAS))
        return bn_fail(err, BITNET_E_ARG, "'%s' of token %lld is %g; -%d to %d is possible", b->key,
                       (long long)token, value, OPENAI_MAX_BIAS, OPENAI_MAX_BIAS);
    if (b->n == OPENAI_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' names more than %d tokens", b->key,
                       OPENAI_MAX_BIASES);
    bitnet_logit_bias *list = (bitnet_logit_bias *)b->r->request.sampling.logit_bias;
    list[b->n++] = (bitnet_logit_bias){(int32_t)token, (float)value};
    return BITNET_OK;
}

/* Every token of a text. */
static bitnet_status add_text_bias(struct biases *b, const struct bn_json *text,
                                   const struct bn_json *bias, bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    if (!b->r->model_of_words)
        return bn_fail(err, BITNET_E_ARG, "'%s': '%.40s' is not a token id", b->key,
                       bn_json_text(text));
    BN_TRY(tokens_encode(&ids, &n, b->r->model_of_words, bn_json_text(text), bn_json_bytes(text),
                         BITNET_TOK_SPECIAL, err));
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; s == BITNET_OK && i < n; i++) s = add_bias(b, ids[i], bias, err);
    free(ids);
    return s;
}

/* {"token": bias} of OpenAI; [[token or text, bias], ...] of llama-server */
static bitnet_status read_logit_bias(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    struct biases b = {r, f->key, 0};
    size_t n = bn_json_size(v), i;
    if (!bn_json_is_object(v) && !bn_json_is_array(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not an object of token ids", f->key);
    if (n > OPENAI_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' names %zu tokens; at most %d are possible",
                       f->key, n, OPENAI_MAX_BIASES);
    r->request.sampling.logit_bias =
        openai_alloc(r, OPENAI_MAX_BIASES, sizeof *r->request.sampling.logit_bias);
    if (!r->request.sampling.logit_bias) return bn_fail_nomem(err, 0, f->key);
    const char *key;
    const struct bn_json *one;
    struct bn_json *bias;
    bn_json_each_member(v, key, bias)
    {
        char *end;
        long long token = strtoll(key, &end, 10);
        if (*key < '0' || *key > '9' || *end || token > INT32_MAX)
            return bn_fail(err, BITNET_E_ARG, "'%s': '%.40s' is not a token id", f->key, key);
        BN_TRY(add_bias(&b, token, bias, err));
    }
    bn_json_each(v, i, one)
    {
        const struct bn_json *what = bn_json_at(one, 0), *value = bn_json_at(one, 1);
        if (bn_json_size(one) != 2 || !(bn_json_is_int(what) || bn_json_is_string(what)))
            return bn_fail(err, BITNET_E_ARG, "'%s' %zu is not a pair of a token and a number",
                           f->key, i);
        if (bn_json_is_int(what)) BN_TRY(add_bias(&b, bn_json_integer(what), value, err));
        else BN_TRY(add_text_bias(&b, what, value, err));
    }
    r->request.sampling.n_logit_bias = b.n;
    return BITNET_OK;
}

bitnet_status openai_lora_read(struct openai_lora *out, const struct bn_json *v, const char *what,
                               bitnet_error *err)
{
    static const char *const known[] = {"id", "scale", NULL};
    const struct bn_json *id = bn_json_get(v, "id");
    *out = (struct openai_lora){.scale = 1};
    if (!bn_json_is_object(v) || !id)
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of {\"id\", \"scale\"}", what);
    BN_TRY(openai_check_members(v, known, what, err));
    BN_TRY(bn_json_read_u32(&out->id, v, "id", what, err));
    BN_TRY(bn_json_read_f32(&out->scale, v, "scale", what, err));
    return isfinite(out->scale)
               ? BITNET_OK
               : bn_fail(err, BITNET_E_ARG, "'%s': the scale of adapter %u is too large", what,
                         out->id);
}

static bitnet_status read_lora(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    size_t n = bn_json_size(v);
    if (!bn_json_is_array(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a list", f->key);
    if (n > OPENAI_MAX_STRINGS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' names %zu adapters; at most %d are possible",
                       f->key, n, OPENAI_MAX_STRINGS);
    struct openai_lora *list = openai_alloc(r, n + 1, sizeof *list);
    if (!list) return bn_fail_nomem(err, n * sizeof *list, f->key);
    for (size_t i = 0; i < n; i++)
        BN_TRY(openai_lora_read(&list[i], bn_json_at(v, i), f->key, err));
    r->lora = list;
    r->n_lora = n;
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
        const struct bn_json *own = bn_json_get(v, "schema");
        if (openai_is_given(own)) return openai_take_schema(r, own, "schema", err);
        r->request.json_object = 1;
        return BITNET_OK;
    }
    if (strcmp(type, "json_schema") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s' is of type '%.40s'; text, json_object and json_schema exist", key,
                       type);
    const struct bn_json *schema = bn_json_get(wrapper, "schema");
    if (!schema) schema = bn_json_get(v, "schema"); /* as llama-server has it */
    if (!bn_json_is_object(schema))
        return bn_fail(err, BITNET_E_ARG, "'%s' has no object '%sschema'", key,
                       wrapper == v ? "" : "json_schema.");
    return openai_take_schema(r, schema, key, err);
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
    BN_TRY(openai_known_members(&r->ignored, v, known, f->key, err));
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
    BN_TRY(openai_known_members(&r->ignored, v, known, f->key, err));
    return bn_json_read_bool(&r->include_usage, v, "include_usage", f->key, err);
}

static bitnet_status read_echo(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->echo, r->body, f->key, "body", err);
}

static bitnet_status read_timings(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->timings, r->body, f->key, "body", err);
}

static bitnet_status read_progress(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->progress, r->body, f->key, "body", err);
}

static bitnet_status read_verbose(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    return bn_json_read_bool(&r->verbose, r->body, f->key, "body", err);
}

static bitnet_status read_best_of(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    BN_TRY(bn_json_read_u32(&r->best_of, r->body, f->key, "body", err));
    if (r->best_of >= 1 && r->best_of <= OPENAI_MAX_CHOICES) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "'%s' is %u; 1 to %d is possible", f->key, r->best_of,
                   OPENAI_MAX_CHOICES);
}

/* vLLM's: so many of the likeliest beside each of the prompt's tokens */
static bitnet_status read_prompt_logprobs(struct openai_request *r, const struct openai_field *f,
                                          const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    BN_TRY(read_up_to(r, f, 0, OPENAI_MAX_TOP_LOGPROBS, err));
    r->prompt_scores = true;
    r->request.prompt_logprobs = 1;
    return BITNET_OK;
}

static bitnet_status read_special(struct openai_request *r, const struct openai_field *f,
                                  const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    bool skip = true;
    BN_TRY(bn_json_read_bool(&skip, r->body, f->key, "body", err));
    r->request.show_special = !skip;
    return BITNET_OK;
}

/* "none": it stays in the text; other words: where this server puts it in any case. */
static bitnet_status read_reasoning_format(struct openai_request *r, const struct openai_field *f,
                                           const struct bn_json *v, bitnet_error *err)
{
    static const char *const known[] = {"none", "auto", "deepseek", NULL};
    const char *how;
    BN_TRY(openai_c_string(&how, v, f->key, err));
    if (!openai_is_one_of(how, known))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is '%.40s'; none, auto and deepseek exist",
                       f->key, how);
    r->plain_reasoning = strcmp(how, "none") == 0;
    return BITNET_OK;
}

static bitnet_status read_continue(struct openai_request *r, const struct openai_field *f,
                                   const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    bool on = false;
    BN_TRY(bn_json_read_bool(&on, r->body, f->key, "body", err));
    r->go_on = on ? OPENAI_CONTINUE : OPENAI_CONTINUE_NO;
    return BITNET_OK;
}

/* true: the conversation ends with the beginning of a new reply, whoever spoke last */
static bitnet_status read_reply_turn(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    (void)v;
    bool on = true, go_on = false;
    BN_TRY(bn_json_read_bool(&on, r->body, f->key, "body", err));
    BN_TRY(bn_json_read_bool(&go_on, r->body, "continue_final_message", "body", err));
    if (on && go_on)
        return bn_fail(err, BITNET_E_ARG,
                       "'%s' and 'continue_final_message' are both true; a reply either begins or "
                       "goes on",
                       f->key);
    r->no_reply_turn = !on;
    if (on) r->go_on = OPENAI_CONTINUE_NO;
    return BITNET_OK;
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
    static const char *const known[] = {"auto", "disabled", NULL};
    const char *how;
    BN_TRY(openai_c_string(&how, v, f->key, err));
    if (!openai_is_one_of(how, known))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is '%.40s'; auto and disabled exist",
                       f->key, how);
    r->truncate = strcmp(how, "auto") == 0;
    return BITNET_OK;
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

/* Below 0: any. A slot that is not there is any, too. */
static bitnet_status read_slot(struct openai_request *r, const struct openai_field *f,
                               const struct bn_json *v, bitnet_error *err)
{
    if (!bn_json_is_int(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a whole number", f->key);
    int64_t slot = bn_json_integer(v);
    r->slot = slot >= 0 && slot < UINT32_MAX ? (uint32_t)slot + 1 : 0;
    return BITNET_OK;
}

/* Known, not done here: may stand there as long as it asks for nothing. */
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
    {"lora", ALL, read_lora, 0},
    {"stream", ALL, read_stream, 0},
    {"stream_options", ALL, read_stream_options, 0},
    {"max_tokens", OLD, read_max_tokens, AT(max_new_tokens)},
    {"max_completion_tokens", OLD, read_max_tokens, AT(max_new_tokens)},
    {"max_output_tokens", RESPONSE, read_max_tokens, AT(max_new_tokens)},
    {"n_predict", OLD, read_max_tokens, AT(max_new_tokens)},
    {"n", OLD, read_choices, AT(n_choices)},
    {"stop", ALL, read_stop, 0},
    {"ignore_eos", ALL, read_flag, AT(ignore_end)},
    {"stop_token_ids", ALL, read_stop_tokens, 0},
    {"priority", ALL, read_priority, 0},
    {"min_tokens", ALL, read_u32, AT(min_new_tokens)},
    {"include_stop_str_in_output", ALL, read_flag, AT(show_stop)},
    {"logprobs", OLD, read_logprobs, AT(logprobs)},
    {"top_logprobs", ALL, read_top_logprobs, AT(n_top_logprobs)},
    {"n_probs", OLD, read_n_probs, AT(n_top_logprobs)},
    {"timings_per_token", OLD, read_timings, 0},
    {"return_progress", OLD, read_progress, 0},
    {"verbose", OLD, read_verbose, 0},
    {"prompt_logprobs", OLD, read_prompt_logprobs, AT(n_top_prompt_logprobs)},
    {"best_of", COMPLETION, read_best_of, 0},
    {"suffix", COMPLETION, pass_over, 0}, /* see put_suffix */
    {"skip_special_tokens", ALL, read_special, 0},
    {"reasoning_format", CHAT, read_reasoning_format, 0},
    {"continue_final_message", CHAT, read_continue, 0},
    {"add_generation_prompt", CHAT, read_reply_turn, 0},
    {"include", RESPONSE, read_include, 0},
    {"echo", COMPLETION, read_echo, 0},
    {"response_format", OLD, read_response_format, 0},
    {"text", RESPONSE, read_text, 0},
    {"grammar", ALL, read_grammar, 0},
    {"json_schema", ALL, openai_read_constraint, 0},
    {"guided_json", ALL, openai_read_constraint, 0},
    {"guided_regex", ALL, openai_read_constraint, 0},
    {"guided_choice", ALL, openai_read_constraint, 0},
    {"guided_grammar", ALL, openai_read_constraint, 0},
    {"structured_outputs", ALL, openai_read_structured, 0},
    {"seed", ALL, read_seed, 0},
    {"temperature", ALL, read_temperature, SAMPLING(temperature)},
    {"top_p", ALL, read_top_p, SAMPLING(top_p)},
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
    {"truncation", TALK, read_truncation, 0},
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
    {"id_slot", ALL, read_slot, 0},
    {"keep_alive", ALL, pass_over, 0},
    {"cache_control", ALL, pass_over, 0},
    {"verbosity", CHAT, pass_over, 0},
    {"parallel_tool_calls", TALK, read_parallel, 0},
    {"tool_choice", TALK, pass_over, 0}, /* these two are read together, after all others */
    {"tools", TALK, pass_over, 0},
    {"chat_template_kwargs", TALK, check_variables, 0}, /* with these: see openai_conversation */
    {"enable_thinking", TALK, pass_over, 0},
    {"documents", TALK, pass_over, 0},
    {"audio", CHAT, must_be_off, 0},
    {"background", RESPONSE, must_be_off, 0},
    {"functions", CHAT, must_be_off, 0},
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

/* ------------------------------------------------------------------ constraints in other servers' words */

enum { MAX_GRAMMAR_BYTES = 1 << 20 };

static bitnet_status keep_text(struct openai_request *r, const char **out, struct bn_buf *b,
                               const char *key, bitnet_error *err)
{
    *out = b->failed || !b->data ? NULL : bn_arena_strn(&r->arena, b->data, b->len);
    bool full = b->full;
    bn_buf_free(b);
    if (*out) return BITNET_OK;
    if (full)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' takes more than %d bytes", key,
                       MAX_GRAMMAR_BYTES);
    return bn_fail_nomem(err, 0, key);
}

/* An object, true, or either as text. */
bitnet_status openai_take_schema(struct openai_request *r, const struct bn_json *v, const char *key,
                                 bitnet_error *err)
{
    struct bn_json *parsed = NULL;
    if (bn_json_is_string(v)) {
        BN_TRY(bn_json_parse(&parsed, bn_json_text(v), bn_json_bytes(v), BN_JSON_ANY, key, err));
        v = parsed;
    }
    bool good = bn_json_is_object(v) || bn_json_is_bool(v);
    if (good) r->request.json_schema = openai_dump(r, v);
    bn_json_free(parsed);
    if (!good) return bn_fail(err, BITNET_E_ARG, "'%s' is not a JSON Schema", key);
    return r->request.json_schema ? BITNET_OK : bn_fail_nomem(err, 0, "the JSON Schema");
}

/* root ::= %regex "..." */
static bitnet_status take_regex(struct openai_request *r, const struct bn_json *v, const char *key,
                                bitnet_error *err)
{
    const char *text;
    struct bn_buf b;
    BN_TRY(openai_c_string(&text, v, key, err));
    bn_buf_init(&b, MAX_GRAMMAR_BYTES);
    bn_buf_puts(&b, "root ::= %regex ");
    bn_json_quote(&b, text, strlen(text));
    return keep_text(r, &r->request.grammar, &b, key, err);
}

/* root ::= %regex "..." | ...: each text with its marks escaped */
static bitnet_status take_choice(struct openai_request *r, const struct bn_json *v, const char *key,
                                 bitnet_error *err)
{
    struct bn_buf b;
    if (bn_json_size(v) == 0 || !bn_json_is_array(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of texts", key);
    bn_buf_init(&b, MAX_GRAMMAR_BYTES);
    bn_buf_puts(&b, "root ::= ");
    for (size_t i = 0; i < bn_json_size(v); i++) {
        const char *text;
        bitnet_status s = openai_c_string(&text, bn_json_at(v, i), key, err);
        if (s != BITNET_OK) {
            bn_buf_free(&b);
            return s;
        }
        bn_buf_puts(&b, i > 0 ? " | \"" : "\"");
        for (; *text; text++) {
            if (*text == '\n') bn_buf_puts(&b, "\\n");
            else if (*text == '\r') bn_buf_puts(&b, "\\r");
            else bn_buf_printf(&b, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
        }
        bn_buf_putc(&b, '"');
    }
    return keep_text(r, &r->request.grammar, &b, key, err);
}

static bitnet_status take_grammar(struct openai_request *r, const struct bn_json *v,
                                  const char *key, bitnet_error *err)
{
    const char *text;
    BN_TRY(openai_c_string(&text, v, key, err));
    r->request.grammar = bn_arena_strn(&r->arena, text, strlen(text));
    return r->request.grammar ? BITNET_OK : bn_fail_nomem(err, strlen(text) + 1, key);
}

static bitnet_status take_object(struct openai_request *r, const struct bn_json *v, const char *key,
                                 bitnet_error *err)
{
    if (!bn_json_is_bool(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not true or false", key);
    if (bn_json_is_true(v)) r->request.json_object = 1;
    return BITNET_OK;
}

typedef bitnet_status taker(struct openai_request *r, const struct bn_json *v, const char *key,
                            bitnet_error *err);
static const struct {
    const char *key, *inside; /* in the body; in 'structured_outputs' */
    taker *take;
} forms[] = {{"json_schema", "json", openai_take_schema}, {"guided_json", NULL, openai_take_schema},
             {"guided_regex", "regex", take_regex},       {"guided_choice", "choice", take_choice},
             {"guided_grammar", "grammar", take_grammar}, {"", "json_object", take_object}};

bitnet_status openai_read_constraint(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(forms); i++)
        if (strcmp(forms[i].key, f->key) == 0) return forms[i].take(r, v, f->key, err);
    return bn_fail(err, BITNET_E_INTERNAL, "'%s' is no constraint", f->key);
}

bitnet_status openai_read_structured(struct openai_request *r, const struct openai_field *f,
                                     const struct bn_json *v, bitnet_error *err)
{
    static const char *const known[] = {"json",
                                        "regex",
                                        "choice",
                                        "grammar",
                                        "json_object",
                                        "backend",
                                        "_backend",
                                        "whitespace_pattern",
                                        "disable_fallback",
                                        "disable_any_whitespace",
                                        "disable_additional_properties",
                                        NULL};
    BN_TRY(openai_check_members(v, known, f->key, err));
    for (size_t i = 0; i < BN_ARRAY_LEN(forms); i++) {
        const struct bn_json *one = forms[i].inside ? bn_json_get(v, forms[i].inside) : NULL;
        if (openai_is_given(one)) BN_TRY(forms[i].take(r, one, forms[i].inside, err));
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ as a schema */

/* NULL: it takes values of several types */
static const char *type_of(const struct openai_field *f)
{
    static const struct {
        openai_reader *read;
        const char *type;
    } types[] = {
        {read_f32, "number"},
        {read_temperature, "number"},
        {read_u32, "integer"},
        {read_choices, "integer"},
        {read_max_tokens, "integer"},
        {read_seed, "integer"},
        {read_top_k, "integer"},
        {read_top_logprobs, "integer"},
        {read_n_probs, "integer"},
        {read_best_of, "integer"},
        {read_slot, "integer"},
        {read_priority, "integer"},
        {read_flag, "boolean"},
        {read_stream, "boolean"},
        {read_echo, "boolean"},
        {read_timings, "boolean"},
        {read_progress, "boolean"},
        {read_special, "boolean"},
        {read_continue, "boolean"},
        {read_reply_turn, "boolean"},
        {read_parallel, "boolean"},
        {read_cache, "boolean"},
        {read_model, "string"},
        {read_grammar, "string"},
        {openai_read_messages, "array"},
        {read_lora, "array"},
        {read_stop_tokens, "array"},
        {read_breakers, "array"},
        {read_stream_options, "object"},
        {check_variables, "object"},
        {openai_read_structured, "object"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++)
        if (types[i].read == f->read) return types[i].type;
    return NULL;
}

struct bn_json *openai_body_schema(enum openai_kind kind)
{
    static const char *const needed[] = {
        [OPENAI_CHAT] = "messages", [OPENAI_COMPLETION] = "prompt", [OPENAI_RESPONSE] = "input"};
    struct bn_json *members = bn_json_object();
    for (size_t i = 0; i < BN_ARRAY_LEN(fields); i++) {
        const struct openai_field *f = &fields[i];
        if (!(f->kinds & 1u << kind) || f->read == must_be_off || f->read == refuse_stored)
            continue;
        struct bn_json *one = bn_json_object();
        if (type_of(f)) bn_json_set(one, "type", bn_json_string(type_of(f)));
        bn_json_set(members, f->key, one);
    }
    return bn_json_pack("{s:s, s:o, s:[s]}", "type", "object", "properties", members, "required",
                        needed[kind]);
}
