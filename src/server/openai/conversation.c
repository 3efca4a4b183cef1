/* SPDX-License-Identifier: Apache-2.0
 *
 * conversation.c: messages as the template is to show them, with the variables that the body and the server
 * have for it, and as tokens.
 */
#include "server/openai/request_impl.h"

#include "app/tokens.h"
#include "server/openai/tools.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

/* Roles that templates know without naming them. */
static bool is_role(const char *role, const char *template_text)
{
    static const char *const known[] = {"system", "developer", "user",  "assistant",
                                        "tool",   "function",  "model", NULL};
    char quoted[40];
    if (openai_is_one_of(role, known)) return true;
    snprintf(quoted, sizeof quoted, "'%s'", role);
    if (strlen(role) + 3 > sizeof quoted) return false;
    if (strstr(template_text, quoted)) return true;
    quoted[0] = quoted[strlen(role) + 1] = '"';
    return strstr(template_text, quoted) != NULL;
}

static bitnet_status check_roles(const struct bn_json *messages, const char *template_text,
                                 bitnet_error *err)
{
    size_t i;
    const struct bn_json *m;
    bn_json_each(messages, i, m)
    {
        const char *role = bn_json_text(bn_json_get(m, "role"));
        if (!is_role(role, template_text))
            return bn_fail(err, BITNET_E_ARG,
                           "message %zu has the role '%.40s'; system, developer, user, assistant "
                           "and tool exist",
                           i, role);
    }
    return BITNET_OK;
}

const struct bn_json *openai_prefill(const struct openai_request *r)
{
    size_t n = bn_json_size(r->messages);
    const struct bn_json *last = bn_json_at(r->messages, n ? n - 1 : 0);
    const char *role = bn_json_text(bn_json_get(last, "role"));
    const struct bn_json *content = bn_json_get(last, "content");
    bool may = n > 1 && role && strcmp(role, "assistant") == 0 &&
               !bn_json_get(last, "tool_calls") && bn_json_is_string(content);
    return may && r->kind == OPENAI_CHAT && r->go_on != OPENAI_CONTINUE_NO ? content : NULL;
}

/* The date in the words of templates that want it as a variable: those of Llama 3 and firefunction. */
static void add_date(struct bn_json *talk, int64_t now_s, const char *template_text)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = (time_t)now_s;
    struct tm t;
    bn_json_set(talk, "now_s", bn_json_int(now_s));
    if (strstr(template_text, "strftime_now") || !gmtime_r(&now, &t)) return;
    const char *month = months + 3 * t.tm_mon;
    int year = t.tm_year + 1900;
    if (strstr(template_text, "date_string") && !bn_json_get(talk, "date_string"))
        bn_json_set(talk, "date_string", bn_json_printf("%02d %.3s %d", t.tm_mday, month, year));
    if (strstr(template_text, "datetime") && !bn_json_get(talk, "datetime"))
        bn_json_set(talk, "datetime", bn_json_printf("%.3s %02d %d", month, t.tm_mday, year));
}

/* Members of the body that templates know as variables, and what the server says where it says nothing. */
static void add_variables(struct bn_json *talk, const struct openai_request *r)
{
    static const char *const names[] = {"reasoning_effort", "enable_thinking", "documents"};
    const struct bn_json *variables = bn_json_get(r->body, "chat_template_kwargs");
    if (openai_is_given(variables)) bn_json_update(talk, variables, false);
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++) {
        const struct bn_json *v = bn_json_get(r->body, names[i]);
        if (openai_is_given(v) && !bn_json_get(talk, names[i]))
            bn_json_set(talk, names[i], bn_json_ref(v));
    }
    if (r->thinking != OPENAI_THINKING_ASIS && !bn_json_get(talk, "enable_thinking"))
        bn_json_set(talk, "enable_thinking", bn_json_bool(r->thinking == OPENAI_THINKING_ON));
}

/* The word, not the end of a longer one. */
static bool mentions(const char *text, const char *word)
{
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        if (at == text || !strchr("abcdefghijklmnopqrstuvwxyz_", at[-1])) return true;
    return false;
}

/* Templates of FireFunction have functions as a text, under this name. */
static void add_functions(struct bn_json *talk, const struct openai_request *r,
                          const char *template_text)
{
    if (!mentions(template_text, "functions") || mentions(template_text, "tools")) return;
    if (bn_json_get(talk, "functions")) return;
    const struct bn_json *tools =
        openai_is_given(bn_json_get(r->body, "tools")) ? bn_json_get(r->body, "tools") : NULL;
    char *text = bn_json_size(tools) ? bn_json_dump(tools, 0) : strdup("");
    bn_json_set(talk, "functions", text ? bn_json_string(text) : NULL);
    free(text);
}

struct bn_json *openai_conversation(const struct openai_request *r, const char *template_text)
{
    struct bn_json *messages = bn_json_copy(r->messages);
    if (!bn_json_whole(messages)) {
        bn_json_free(messages);
        return NULL;
    }
    if (openai_prefill(r)) bn_json_remove(messages, bn_json_size(messages) - 1);
    bool plain = !r->tools && !strstr(template_text, "tool_call");
    struct bn_json *talk =
        plain ? tools_conversation_as_text(messages) : tools_conversation(r->tools, messages);
    bn_json_free(messages);
    if (talk && *template_text) add_variables(talk, r);
    if (talk && *template_text) add_functions(talk, r, template_text);
    if (talk && *template_text && r->now_s) add_date(talk, r->now_s, template_text);
    if (talk && r->no_reply_turn && !openai_prefill(r))
        bn_json_set(talk, "add_generation_prompt", bn_json_bool(false));
    return talk;
}

/* Whether choices have reasoning. A constrained one has none, except where that is any text with
 * calls. */
static bitnet_status find_reasoning(struct openai_request *r, const bitnet_model *m,
                                    const char *template_text, bitnet_error *err)
{
    const bitnet_request *q = &r->request;
    const struct openai_prompt *p = &r->prompts[0];
    bool constrained = q->grammar || q->json_schema || q->json_object;
    if (r->kind != OPENAI_CHAT || r->plain_reasoning || !strstr(template_text, "<think>") ||
        (constrained && !tools_any_text(r->tools)))
        return BITNET_OK;
    bool open;
    BN_TRY(tokens_open_thinking(&open, m, p->tokens, p->n_tokens, err));
    r->reasoning = open ? REASONING_OPEN : REASONING_MAYBE;
    return BITNET_OK;
}

/* The reply goes on where the last message ends. Its text is no more than text: what looks like a special
 * token in it is none. */
static bitnet_status append_prefill(struct openai_request *r, const bitnet_model *m,
                                    bitnet_error *err)
{
    const struct bn_json *content = openai_prefill(r);
    struct openai_prompt *p = &r->prompts[0];
    int32_t *more;
    size_t n;
    if (r->go_on == OPENAI_CONTINUE && !content)
        return bn_fail(err, BITNET_E_ARG,
                       "'continue_final_message' needs a last message of the assistant, with text, "
                       "after others");
    if (!content || bn_json_bytes(content) == 0) return BITNET_OK;
    BN_TRY(tokens_encode(&more, &n, m, bn_json_text(content), bn_json_bytes(content), 0, err));
    int32_t *all = realloc(p->tokens, (p->n_tokens + n) * sizeof *all);
    if (all) {
        memcpy(all + p->n_tokens, more, n * sizeof *all);
        p->tokens = all;
        p->n_tokens += n;
    }
    free(more);
    /* a reply that has begun has no reasoning any more, unless it began with it */
    bool open = r->reasoning == REASONING_OPEN && !strstr(bn_json_text(content), "</think>");
    if (!open) r->reasoning = REASONING_OFF;
    return all ? BITNET_OK : bn_fail_nomem(err, n * sizeof *all, "a prompt");
}

/* The messages as they are. */
static bitnet_status encode(struct openai_request *r, const bitnet_model *m,
                            const char *chat_template, const char *template_text, bitnet_error *err)
{
    struct openai_prompt *p = &r->prompts[0];
    r->reasoning = REASONING_OFF;
    struct bn_json *talk = openai_conversation(r, template_text);
    char *text = talk ? bn_json_dump(talk, BN_JSON_COMPACT) : NULL;
    bitnet_status s =
        text ? tokens_chat_json(&p->tokens, &p->n_tokens, m, text, strlen(text), chat_template, err)
             : bn_fail_nomem(err, 0, "a conversation");
    free(text);
    bn_json_free(talk);
    if (s == BITNET_OK) s = find_reasoning(r, m, template_text, err);
    return s == BITNET_OK ? append_prefill(r, m, err) : s;
}

bitnet_status openai_encode_messages(struct openai_request *r, const bitnet_model *m,
                                     const char *chat_template, bitnet_error *err)
{
    const char *template_text = "";
    /* one that cannot be used is refused when it is to be used */
    if (bitnet_chat_template_text(m, chat_template, &template_text, err) == BITNET_E_NOMEM)
        return BITNET_E_NOMEM;
    BN_TRY(check_roles(r->messages, template_text, err));
    rename_developer(r->messages, template_text);
    drop_reasoning(r->messages, template_text);
    if (r->tools) {
        tools_choose_format(r->tools, template_text);
        BN_TRY(set_tools_constraint(r, err));
    }
    do BN_TRY(encode(r, m, chat_template, template_text, err));
    while (openai_truncate(r));
    return BITNET_OK;
}
