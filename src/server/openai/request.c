/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/request_impl.h"

#include "app/tokens.h"
#include "server/openai/tools.h"
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

bool openai_is_one_of(const char *s, const char *const *list)
{
    while (*list && strcmp(*list, s) != 0) list++;
    return *list != NULL;
}

bitnet_status openai_check_members(const struct bn_json *v, const char *const *known,
                                   const char *what, bitnet_error *err)
{
    if (!bn_json_is_object(v)) return bn_fail(err, BITNET_E_ARG, "'%s' is not an object", what);
    const char *key;
    struct bn_json *member;
    bn_json_each_member(v, key, member)
    {
        if (!openai_is_one_of(key, known))
            return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' has an unknown member '%.60s'", what,
                           key);
    }
    return BITNET_OK;
}

/* ------------------------------------------------------------------ the body */

static bitnet_status find_field(const struct openai_field **f, struct openai_request *r,
                                const char *key, bitnet_error *err)
{
    *f = openai_find_field(key);
    r->param = *f ? (*f)->key : NULL;
    if (!*f)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'%.60s' is not an option of a request", key);
    if ((*f)->kinds & 1u << r->kind) return BITNET_OK;
    for (size_t i = 0; i < BN_ARRAY_LEN(kinds); i++)
        if (strcmp(key, kinds[i].prompt) == 0)
            return bn_fail(err, BITNET_E_ARG, "%s takes '%s', not '%s'", kinds[r->kind].name,
                           kinds[r->kind].prompt, key);
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
    if (q->n_top_logprobs && !q->logprobs)
        return bn_fail(err, BITNET_E_ARG, "'top_logprobs' needs %s",
                       r->kind == OPENAI_RESPONSE ? "'message.output_text.logprobs' in 'include'"
                                                  : "'logprobs'");
    r->param = "max_tokens";
    if (q->prompt_only && !r->echo)
        return bn_fail(err, BITNET_E_ARG, "'max_tokens' is 0, which needs 'echo'");
    r->param = NULL;
    return BITNET_OK;
}

/* The log-probabilities of an echoed prompt are asked for by the same member. */
static void score_echo(struct openai_request *r)
{
    r->request.prompt_logprobs = r->echo && r->request.logprobs;
    r->request.n_top_prompt_logprobs = r->request.n_top_logprobs;
}

static bitnet_status read_tools(struct openai_request *r, bitnet_error *err)
{
    struct bn_json *tools = bn_json_ref(bn_json_get(r->body, "tools")),
                   *choice = bn_json_ref(bn_json_get(r->body, "tool_choice"));
    bitnet_status s = BITNET_OK;
    r->param = "tools";
    if (r->kind == OPENAI_RESPONSE && !openai_wrap_tools(&tools, &choice))
        s = bn_fail_nomem(err, 0, "tools");
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
        if (!bn_json_is_null(v)) BN_TRY(f->read(r, f, v, err));
    }
    if (r->kind != OPENAI_COMPLETION) BN_TRY(read_tools(r, err));
    score_echo(r);
    return check_together(r, err);
}

bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind,
                                  struct bn_json *body, const struct openai_defaults *d,
                                  bitnet_error *err)
{
    *r = (struct openai_request){.kind = kind, .model = "", .parallel = true};
    if (!bn_json_is_object(body)) return bn_fail(err, BITNET_E_ARG, "the body is not an object");
    bitnet_request_init(&r->request, sizeof r->request);
    bitnet_sampling *s = &r->request.sampling;
    s->temperature = s->top_p = 1; /* what OpenAI takes, not what we would */
    s->min_p = 0;
    s->top_k = 0;
    if (d->model) bitnet_model_sampling(d->model, s);
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

/* OpenAI's newer name for the system's role, for templates that do not know it. */
static void rename_developer(struct bn_json *messages, const char *template_text)
{
    if (strstr(template_text, "developer")) return;
    size_t i;
    struct bn_json *m;
    bn_json_each(messages, i, m)
    {
        struct bn_json *role = bn_json_get(m, "role");
        if (strcmp(bn_json_text(role), "developer") == 0)
            bn_json_set(m, "role", bn_json_string("system"));
    }
}

/* Reasoning of earlier replies, for templates that do not show them. */
static void drop_reasoning(struct bn_json *messages, const char *template_text)
{
    size_t i;
    struct bn_json *m;
    if (strstr(template_text, "reasoning_content")) return;
    bn_json_each(messages, i, m) bn_json_del(m, "reasoning_content");
}

static bitnet_status set_tools_constraint(struct openai_request *r, bitnet_error *err)
{
    bitnet_request *q = &r->request;
    char *grammar;
    BN_TRY(tools_grammar(r->tools, &grammar, err));
    if (!grammar) return BITNET_OK;
    bool twice = q->grammar || q->json_schema || q->json_object;
    q->grammar = bn_arena_strn(&r->arena, grammar, strlen(grammar));
    free(grammar);
    if (twice)
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "tools constrain the reply: a grammar, schema or format cannot be given beside them");
    return q->grammar ? BITNET_OK : bn_fail_nomem(err, 0, "the grammar of tools");
}

struct bn_json *openai_conversation(const struct openai_request *r, const char *template_text)
{
    struct bn_json *talk = tools_conversation(r->tools, r->messages);
    struct bn_json *variables = bn_json_get(r->body, "chat_template_kwargs");
    if (talk && *template_text && variables) bn_json_update(talk, variables, false);
    return talk;
}

/* Whether choices have reasoning. A constrained one has none, except where that is any text with
 * calls. */
static bitnet_status find_reasoning(struct openai_request *r, const bitnet_model *m,
                                    const char *template_text, bitnet_error *err)
{
    enum { TAIL = 8 }; /* tokens; the tag and a line end are fewer, whatever the vocabulary */
    const bitnet_request *q = &r->request;
    const struct openai_prompt *p = &r->prompts[0];
    bool constrained = q->grammar || q->json_schema || q->json_object;
    if (r->kind != OPENAI_CHAT || !strstr(template_text, "<think>") ||
        (constrained && !tools_any_text(r->tools)))
        return BITNET_OK;
    size_t k = bn_min_size(p->n_tokens, TAIL), n;
    char *text;
    BN_TRY(tokens_decode(&text, &n, m, p->tokens + p->n_tokens - k, k, BITNET_TOK_SPECIAL, err));
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' ')) n--;
    bool open = n >= 7 && memcmp(text + n - 7, "<think>", 7) == 0;
    r->reasoning = open ? REASONING_OPEN : REASONING_MAYBE;
    free(text);
    return BITNET_OK;
}

static bitnet_status encode_messages(struct openai_request *r, const bitnet_model *m,
                                     const char *chat_template, bitnet_error *err)
{
    struct openai_prompt *p = &r->prompts[0];
    const char *known = bitnet_chat_template_text(m, chat_template);
    const char *template_text = known ? known : ""; /* refused when it is to be used */
    rename_developer(r->messages, template_text);
    drop_reasoning(r->messages, template_text);
    if (r->tools) {
        tools_choose_format(r->tools, template_text);
        BN_TRY(set_tools_constraint(r, err));
    }
    struct bn_json *talk = openai_conversation(r, template_text);
    char *text = talk ? bn_json_dump(talk, BN_JSON_COMPACT) : NULL;
    bitnet_status s =
        text ? tokens_chat_json(&p->tokens, &p->n_tokens, m, text, strlen(text), chat_template, err)
             : bn_fail_nomem(err, 0, "a conversation");
    if (s == BITNET_OK && !known) s = bn_fail_nomem(err, 0, "a chat template"); /* it was there */
    free(text);
    bn_json_free(talk);
    return s == BITNET_OK ? find_reasoning(r, m, template_text, err) : s;
}

bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err)
{
    r->param = kinds[r->kind].prompt;
    if (r->messages) BN_TRY(encode_messages(r, m, chat_template, err));
    for (size_t i = 0; i < r->n_prompts; i++) {
        struct openai_prompt *p = &r->prompts[i];
        if (p->text)
            BN_TRY(tokens_encode(&p->tokens, &p->n_tokens, m, p->text, p->bytes,
                                 BITNET_TOK_BOS_AUTO, err));
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

bitnet_status openai_request_fits(struct openai_request *r, uint32_t ctx_tokens, bitnet_error *err)
{
    for (size_t i = 0; i < r->n_prompts; i++) {
        size_t n = r->prompts[i].n_tokens;
        if (n < ctx_tokens) continue;
        r->param = kinds[r->kind].prompt;
        r->code = "context_length_exceeded";
        return bn_fail(
            err, BITNET_E_LIMIT,
            "the prompt has %zu tokens; the context length is %u, and a completion needs at "
            "least one of them",
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
