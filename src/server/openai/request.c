/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/request_impl.h"

#include "app/tokens.h"
#include "server/openai/dialects.h"
#include "server/openai/tools.h"
#include "server/fim.h"
#include <stdlib.h>

/* What it is called, and which member holds what the model is asked. */
static const struct {
    const char *url, *name, *prompt;
} kinds[] = {
    [OPENAI_CHAT] = {"/v1/chat/completions", "a chat", "messages"},
    [OPENAI_COMPLETION] = {"/v1/completions", "a completion", "prompt"},
    [OPENAI_RESPONSE] = {"/v1/responses", "a response", "input"},
};

bitnet_status openai_kind_of(enum openai_kind *out, const char *url, bitnet_error *err)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(kinds); i++) {
        if (strcmp(url, kinds[i].url) != 0) continue;
        *out = (enum openai_kind)i;
        return BITNET_OK;
    }
    return bn_fail(err, BITNET_E_UNSUPPORTED, "'%.80s' is not served; %s, %s and %s are", url,
                   kinds[0].url, kinds[1].url, kinds[2].url);
}

/* ------------------------------------------------------------------ values */

void *openai_alloc(struct openai_request *r, size_t n, size_t size)
{
    return bn_arena_alloc(&r->arena, n * size);
}

const char *openai_dump(struct openai_request *r, const struct bn_json *v)
{
    char *text = bn_json_dump(v, BN_JSON_COMPACT);
    const char *kept = text ? bn_arena_strn(&r->arena, text, strlen(text)) : NULL;
    free(text);
    return kept;
}

bitnet_status openai_c_string(const char **out, const struct bn_json *v, const char *key,
                              bitnet_error *err)
{
    if (!bn_json_is_string(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not a string", key);
    *out = bn_json_text(v);
    if (strlen(*out) != bn_json_bytes(v))
        return bn_fail(err, BITNET_E_ARG, "'%s' holds the character U+0000", key);
    return BITNET_OK;
}

bool openai_is_given(const struct bn_json *v) { return v && !bn_json_is_null(v); }

bool openai_is_off(const struct bn_json *v)
{
    return !openai_is_given(v) || bn_json_is_false(v) ||
           (bn_json_is_int(v) && bn_json_integer(v) <= 1) ||
           (bn_json_is_string(v) && bn_json_bytes(v) == 0) ||
           (bn_json_is_array(v) && bn_json_size(v) == 0) ||
           (bn_json_is_object(v) && bn_json_size(v) == 0);
}

bitnet_status openai_check_members(const struct bn_json *v, const char *const *known,
                                   const char *what, bitnet_error *err)
{
    struct openai_ignored none = {.strict = true};
    return openai_known_members(&none, v, known, what, err);
}

/* ------------------------------------------------------------------ the body */

/* *f is NULL where a member is ignored. */
static bitnet_status find_field(const struct openai_field **f, struct openai_request *r,
                                const char *key, bitnet_error *err)
{
    *f = openai_find_field(key);
    r->param = *f ? (*f)->key : NULL;
    if (!*f) return openai_ignore(&r->ignored, "", key, err);
    if ((*f)->kinds & 1u << r->kind) return BITNET_OK;
    *f = NULL;
    for (size_t i = 0; i < BN_ARRAY_LEN(kinds); i++)
        if (strcmp(key, kinds[i].prompt) == 0)
            return bn_fail(err, BITNET_E_ARG, "%s takes '%s', not '%s'", kinds[r->kind].name,
                           kinds[r->kind].prompt, key);
    if (!r->ignored.strict) return openai_ignore(&r->ignored, "", key, err);
    return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is not an option of %s", key,
                   kinds[r->kind].name);
}

static bitnet_status check_together(struct openai_request *r, bitnet_error *err)
{
    const bitnet_request *q = &r->request;
    r->param = kinds[r->kind].prompt;
    if (!r->n_prompts) return bn_fail(err, BITNET_E_ARG, "the request has no '%s'", r->param);
    if (r->n_prompts * q->n_choices > OPENAI_MAX_CHOICES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "%zu prompts with %u choices each are %zu; at most %d are possible",
                       r->n_prompts, q->n_choices, r->n_prompts * q->n_choices, OPENAI_MAX_CHOICES);
    r->param = "top_logprobs";
    if (q->n_top_logprobs && !r->logprobs)
        return bn_fail(err, BITNET_E_ARG, "'top_logprobs' needs %s",
                       r->kind == OPENAI_RESPONSE ? "'message.output_text.logprobs' in 'include'"
                                                  : "'logprobs'");
    r->param = "prompt_logprobs";
    if (r->prompt_scores && r->stream)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'prompt_logprobs' is not possible in a stream");
    r->param = "min_tokens";
    if (q->max_new_tokens && q->min_new_tokens > q->max_new_tokens)
        return bn_fail(err, BITNET_E_ARG, "'min_tokens' is %u, more than 'max_tokens', %u",
                       q->min_new_tokens, q->max_new_tokens);
    r->param = "max_tokens";
    if (q->prompt_only && !r->echo)
        return bn_fail(err, BITNET_E_ARG, "'max_tokens' is 0, which needs 'echo'");
    r->param = NULL;
    return BITNET_OK;
}

/* The log-probabilities of an echoed prompt are asked for by the same member. */
static void score_echo(struct openai_request *r)
{
    if (!r->echo || !r->request.logprobs) return;
    r->request.prompt_logprobs = 1;
    if (r->request.n_top_prompt_logprobs < r->request.n_top_logprobs || !r->prompt_scores)
        r->request.n_top_prompt_logprobs = r->request.n_top_logprobs;
}

/* A choice is judged by its tokens' log-probabilities, which nobody else may have asked for. */
static bitnet_status take_best_of(struct openai_request *r, bitnet_error *err)
{
    bitnet_request *q = &r->request;
    r->n_told = q->n_choices;
    r->logprobs = q->logprobs != 0;
    if (!r->best_of) return BITNET_OK;
    r->param = "best_of";
    if (r->best_of < q->n_choices)
        return bn_fail(err, BITNET_E_ARG, "'best_of' is %u, fewer than 'n', %u", r->best_of,
                       q->n_choices);
    if (r->stream && r->best_of > q->n_choices)
        return bn_fail(err, BITNET_E_ARG,
                       "'best_of' and 'stream': which choice is best is known at the end only");
    if (r->best_of > q->n_choices) q->logprobs = 1;
    q->n_choices = r->best_of;
    r->param = NULL;
    return BITNET_OK;
}

/* What stands behind the gap, for models that were trained to fill it. */
static bitnet_status put_suffix(struct openai_request *r, bitnet_error *err)
{
    const struct bn_json *suffix = bn_json_get(r->body, "suffix");
    if (r->kind != OPENAI_COMPLETION || !bn_json_bytes(suffix)) return BITNET_OK;
    r->param = "suffix";
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct openai_prompt *p = &r->prompts[i];
        struct bn_json *prefix = p->text ? bn_json_stringn(p->text, p->bytes) : NULL, *ids = NULL;
        const struct fim_text text = {.prefix = prefix, .suffix = suffix};
        bitnet_status s = BITNET_OK;
        if (!p->text)
            s = bn_fail(err, BITNET_E_ARG, "'suffix' needs a prompt that is a text, not token ids");
        else if (r->echo) s = bn_fail(err, BITNET_E_ARG, "'suffix' and 'echo' exclude each other");
        else if (!prefix) s = bn_fail_nomem(err, p->bytes, "a prompt");
        else s = fim_prompt(&ids, r->model_of_words, &text, err);
        if (s == BITNET_OK) s = tokens_from_json(&p->tokens, &p->n_tokens, ids, "prompt", err);
        if (s == BITNET_OK) p->text = NULL;
        bn_json_free(prefix);
        bn_json_free(ids);
        BN_TRY(s);
    }
    r->param = NULL;
    return BITNET_OK;
}

/* What stands beside functions and inside them. */
static bitnet_status check_functions(struct openai_request *r, const struct bn_json *tools,
                                     bitnet_error *err)
{
    static const char *const in_tool[] = {"type", "function", "cache_control", NULL};
    static const char *const in_function[] = {"name", "description", "parameters", "strict", NULL};
    size_t i;
    const struct bn_json *tool;
    bn_json_each(tools, i, tool)
    {
        const struct bn_json *function = bn_json_get(tool, "function");
        if (!bn_json_is_object(function)) continue; /* refused when tools are read */
        BN_TRY(openai_known_members(&r->ignored, tool, in_tool, "tools", err));
        BN_TRY(openai_known_members(&r->ignored, function, in_function, "tools.function", err));
    }
    return BITNET_OK;
}

/* What runs on OpenAI's own machines, or has a form of its own (web_search, mcp, custom, ...), is not shown
 * to the model; the client is told. Takes *tools. */
static bitnet_status drop_foreign(struct openai_request *r, struct bn_json **tools,
                                  bitnet_error *err)
{
    size_t i;
    const struct bn_json *tool;
    struct bn_json *list = bn_json_array();
    bitnet_status s = BITNET_OK;
    bn_json_each(*tools, i, tool)
    {
        const char *type = bn_json_text(bn_json_get(tool, "type"));
        if (!type || strcmp(type, "function") == 0)
            bn_json_append(list, bn_json_ref((struct bn_json *)tool));
        else if (s == BITNET_OK) s = openai_ignore_tool(&r->ignored, i, type, err);
    }
    if (s == BITNET_OK && !bn_json_whole(list)) s = bn_fail_nomem(err, 0, "tools");
    bool shorter = s == BITNET_OK && bn_json_size(list) < bn_json_size(*tools);
    bn_json_free(shorter ? *tools : list);
    if (shorter) *tools = list;
    return s;
}

static bitnet_status read_tools(struct openai_request *r, bitnet_error *err)
{
    struct bn_json *tools = bn_json_ref(bn_json_get(r->body, "tools")),
                   *choice = bn_json_ref(bn_json_get(r->body, "tool_choice"));
    bitnet_status s = BITNET_OK;
    r->param = "tools";
    if (r->kind == OPENAI_RESPONSE && !openai_wrap_tools(&tools, &choice))
        s = bn_fail_nomem(err, 0, "tools");
    if (s == BITNET_OK && bn_json_is_array(tools)) s = drop_foreign(r, &tools, err);
    if (s == BITNET_OK) s = check_functions(r, tools, err);
    if (s == BITNET_OK) s = tools_read(&r->tools, tools, choice, r->parallel, err);
    bn_json_free(tools);
    bn_json_free(choice);
    return s;
}

static bitnet_status read_body(struct openai_request *r, bitnet_error *err)
{
    const char *key;
    struct bn_json *v;
    bn_json_each_member(r->body, key, v)
    {
        const struct openai_field *f;
        BN_TRY(find_field(&f, r, key, err));
        if (f && !bn_json_is_null(v)) BN_TRY(f->read(r, f, v, err));
    }
    if (r->kind != OPENAI_COMPLETION) BN_TRY(read_tools(r, err));
    BN_TRY(put_suffix(r, err));
    BN_TRY(take_best_of(r, err));
    score_echo(r);
    return check_together(r, err);
}

uint32_t openai_default_sampling(bitnet_sampling *s, const struct openai_defaults *d)
{
    uint32_t known = d->model ? bitnet_model_sampling(d->model, s) : 0;
    if (!s) return known | d->given;
    if (d->given & BITNET_SAMPLING_TEMPERATURE) s->temperature = d->sampling.temperature;
    if (d->given & BITNET_SAMPLING_TOP_K) s->top_k = d->sampling.top_k;
    if (d->given & BITNET_SAMPLING_TOP_P) s->top_p = d->sampling.top_p;
    if (d->given & BITNET_SAMPLING_MIN_P) s->min_p = d->sampling.min_p;
    return known | d->given;
}

bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind,
                                  struct bn_json *body, const struct openai_defaults *d,
                                  bitnet_error *err)
{
    *r = (struct openai_request){
        .kind = kind, .dialect = &openai_dialects[kind], .model = "", .parallel = true};
    r->ignored.strict = d->strict;
    r->model_of_words = d->model;
    r->now_s = d->now_s;
    r->ctx_tokens = d->ctx_tokens;
    r->truncate = d->truncate;
    r->thinking = d->thinking;
    if (!bn_json_is_object(body)) return bn_fail(err, BITNET_E_ARG, "the body is not an object");
    bitnet_request_init(&r->request, sizeof r->request);
    bitnet_sampling *s = &r->request.sampling;
    openai_default_sampling(s, d);
    s->seed = d->seed;
    r->request.n_choices = 1;
    r->request.max_new_tokens = d->max_tokens;
    r->body = bn_json_ref(body);
    bitnet_status status = read_body(r, err);
    const char *param = r->param;
    if (status != BITNET_OK) openai_request_free(r);
    r->param = param;
    return status;
}

/* ------------------------------------------------------------------ tokens */

bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err)
{
    r->param = kinds[r->kind].prompt;
    if (r->messages) BN_TRY(openai_encode_messages(r, m, chat_template, err));
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct openai_prompt *p = &r->prompts[i];
        if (p->text)
            BN_TRY(tokens_encode(&p->tokens, &p->n_tokens, m, p->text, p->bytes,
                                 BITNET_TOK_BOS_AUTO | (r->special ? BITNET_TOK_SPECIAL : 0u),
                                 err));
    }
    r->param = NULL;
    return BITNET_OK;
}

/* Every choice repeats them, and putting a reply together holds up the event loop. */
static bitnet_status check_scored(struct openai_request *r, bitnet_error *err)
{
    const bitnet_request *q = &r->request;
    uint64_t n = 0;
    for (size_t i = 0; q->prompt_logprobs && i < r->n_prompts; i++) n += r->prompts[i].n_tokens;
    n *= (uint64_t)q->n_choices * (1 + q->n_top_prompt_logprobs);
    if (n <= OPENAI_MAX_SCORED) return BITNET_OK;
    r->param = "echo";
    return bn_fail(err, BITNET_E_LIMIT,
                   "'echo' with 'logprobs' makes %llu log-probabilities of prompts; at most %d are "
                   "possible",
                   (unsigned long long)n, OPENAI_MAX_SCORED);
}

static size_t prompt_bytes(const struct openai_request *q, size_t i)
{
    size_t n = q->prompts[i].text ? q->prompts[i].bytes : 0, at;
    const struct bn_json *message;
    bn_json_each(q->messages, at, message) n += bn_json_bytes(bn_json_get(message, "content"));
    return n;
}

bitnet_status openai_check_bytes(struct openai_request *q, uint64_t most, bitnet_error *err)
{
    openai_truncate_bytes(q, most);
    for (size_t i = 0; i < q->n_prompts; i++) {
        size_t n = prompt_bytes(q, i);
        if (n <= most) continue;
        q->code = "context_length_exceeded";
        return bn_fail(err, BITNET_E_LIMIT,
                       "the prompt has %zu bytes; the context holds %llu at the very most", n,
                       (unsigned long long)most);
    }
    return BITNET_OK;
}

bitnet_status openai_request_fits(struct openai_request *r, uint32_t ctx_tokens, bitnet_error *err)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        size_t n = r->prompts[i].n_tokens;
        if (n < ctx_tokens) continue;
        r->param = kinds[r->kind].prompt;
        r->code = "context_length_exceeded";
        r->n_too_long = n;
        return bn_fail(err, BITNET_E_LIMIT,
                       "the prompt has %zu tokens and exceeds the available context size of %u "
                       "tokens, of which a completion needs at least one",
                       n, ctx_tokens);
    }
    return check_scored(r, err);
}

void openai_request_at(const struct openai_request *r, size_t i, bitnet_request *out)
{
    *out = r->request;
    out->tokens = r->prompts[i].tokens;
    out->n_tokens = r->prompts[i].n_tokens;
    out->sampling.seed += i * r->request.n_choices; /* no two choices draw alike */
}

void openai_request_release(struct openai_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) r->prompts[i].text = NULL;
    bn_json_free(r->messages);
    bn_json_free(r->body);
    r->messages = r->body = NULL;
}

void openai_request_free(struct openai_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++) free(r->prompts[i].tokens);
    tools_free(r->tools);
    openai_request_release(r);
    bn_arena_free(&r->arena);
    *r = (struct openai_request){0};
}
