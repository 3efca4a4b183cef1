/* SPDX-License-Identifier: Apache-2.0
 * What a request says about tools, and the conversation as a template can show it. */
#include "server/tools_impl.h"

#include "base/mem.h"
#include <stdlib.h>

enum { MAX_TEXT = 32 << 20 }; /* bytes of a message */

/* ------------------------------------------------------------------ forms */

#define IN_TAGS                                         \
    .marker = "<tool_call>", .open = "\n{\"name\": \"", \
    .middle = "\", \"arguments\": ", .close = "}\n</tool_call>", .between = "\n"
static const struct tools_form in_tags = {IN_TAGS, .template_writes = true};
static const struct tools_form in_words = {IN_TAGS};
/* as the templates of Llama 3 ask for it */
static const struct tools_form bare = {.marker = "{\"name\": \"",
                                       .open = "",
                                       .middle = "\", \"parameters\": ",
                                       .close = "}",
                                       .at_start = true,
                                       .template_writes = true};
#undef IN_TAGS
/* Qwen3-Coder, Qwen3.5 */
static const struct tools_form one_by_one = {.marker = "<tool_call>",
                                             .open = "\n<function=",
                                             .middle = ">\n",
                                             .parameter = "<parameter=",
                                             .parameter_open = ">\n",
                                             .parameter_close = "\n</parameter>",
                                             .close = "</function>\n</tool_call>",
                                             .between = "\n",
                                             .template_writes = true};

void tools_choose_form(struct tools *t, const char *template_text)
{
    bool tags = strstr(template_text, in_tags.marker) != NULL;
    if (tags && strstr(template_text, "<function=") && strstr(template_text, one_by_one.parameter))
        t->form = &one_by_one;
    else if (tags) t->form = &in_tags;
    else if (strstr(template_text, "\"name\":") && strstr(template_text, "\"parameters\":"))
        t->form = &bare;
    else t->form = &in_words;
}

/* ------------------------------------------------------------------ reading */

static bool is_name(const json_t *v)
{
    size_t n = json_string_length(v), i = 0;
    while (i < n && tools_name_char(json_string_value(v)[i])) i++;
    return n > 0 && i == n && n <= TOOLS_MAX_NAME;
}

static bool is_string(const json_t *v, const char *s)
{
    return json_is_string(v) && strcmp(json_string_value(v), s) == 0;
}

static bitnet_status check_tool(const struct tools *t, size_t i, bitnet_error *err)
{
    const json_t *type = json_object_get(json_array_get(t->list, i), "type"),
                 *f = tools_function(t, i), *parameters = json_object_get(f, "parameters");
    if (!is_string(type, "function"))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "tool %zu is of type '%.40s'; only 'function' is possible", i,
                       json_is_string(type) ? json_string_value(type) : "");
    if (!is_name(json_object_get(f, "name")))
        return bn_fail(err, BITNET_E_ARG,
                       "tool %zu has no 'function.name' of 1 to %d letters, digits, '_' and '-'", i,
                       TOOLS_MAX_NAME);
    for (size_t k = 0; k < i; k++)
        if (strcmp(tools_name(t, k), tools_name(t, i)) == 0)
            return bn_fail(err, BITNET_E_ARG, "two functions are called '%s'", tools_name(t, i));
    const json_t *kind = json_object_get(parameters, "type");
    if (parameters && !json_is_null(parameters) &&
        (!json_is_object(parameters) || (kind && !is_string(kind, "object"))))
        return bn_fail(err, BITNET_E_ARG, "function '%s': 'parameters' is no schema of an object",
                       tools_name(t, i));
    return BITNET_OK;
}

static bitnet_status choose_one(struct tools *t, const json_t *choice, bitnet_error *err)
{
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    if (!is_string(json_object_get(choice, "type"), "function") || !json_is_string(name))
        return bn_fail(
            err, BITNET_E_ARG,
            "'tool_choice' is not 'none', 'auto', 'required' or {\"type\": \"function\", "
            "\"function\": {\"name\": ...}}");
    for (size_t i = 0; i < json_array_size(t->list); i++)
        if (is_string(name, tools_name(t, i))) t->only = tools_name(t, i);
    if (!t->only)
        return bn_fail(err, BITNET_E_ARG, "'tool_choice' names '%.64s', which is not in 'tools'",
                       json_string_value(name));
    t->choice = TOOLS_REQUIRED;
    t->parallel = false;
    return BITNET_OK;
}

static bitnet_status read_choice(struct tools *t, const json_t *choice, bitnet_error *err)
{
    t->choice = TOOLS_AUTO;
    if (!choice || json_is_null(choice) || is_string(choice, "auto")) return BITNET_OK;
    if (is_string(choice, "none")) t->choice = TOOLS_NONE;
    else if (is_string(choice, "required")) t->choice = TOOLS_REQUIRED;
    else return choose_one(t, choice, err);
    return BITNET_OK;
}

static bitnet_status read_tools(struct tools *t, const json_t *choice, bitnet_error *err)
{
    size_t n = json_array_size(t->list);
    if (n > TOOLS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu tools; at most %d are possible", n, TOOLS_MAX);
    for (size_t i = 0; i < n; i++) BN_TRY(check_tool(t, i, err));
    return read_choice(t, choice, err);
}

bitnet_status tools_read(struct tools **out, const json_t *tools, const json_t *choice,
                         bool parallel, bitnet_error *err)
{
    *out = NULL;
    if (tools && !json_is_null(tools) && !json_is_array(tools))
        return bn_fail(err, BITNET_E_ARG, "'tools' is not a list");
    if (json_array_size(tools) == 0) {
        if (json_is_object(choice) || is_string(choice, "required"))
            return bn_fail(err, BITNET_E_ARG,
                           "'tool_choice' asks for a call, and 'tools' is empty");
        return BITNET_OK;
    }
    struct tools *t = bn_calloc(1, sizeof *t);
    if (!t) return bn_fail_nomem(err, sizeof *t, "tools");
    t->list = json_incref((json_t *)tools);
    t->parallel = parallel;
    t->form = &in_words;
    bitnet_status st = read_tools(t, choice, err);
    if (st != BITNET_OK) tools_free(t);
    else *out = t;
    return st;
}

void tools_free(struct tools *t)
{
    if (!t) return;
    json_decref(t->list);
    free(t);
}

bool tools_any_text(const struct tools *t) { return t && t->choice == TOOLS_AUTO; }

/* ------------------------------------------------------------------ conversations */

static json_t *make_message(const char *role, const struct bn_buf *content)
{
    if (content->failed) return NULL;
    return json_pack("{ssss%}", "role", role, "content", content->data ? content->data : "",
                     content->len);
}

/* A content: nothing, a text or texts in parts; false: something else. */
static bool put_content(struct bn_buf *b, const json_t *content)
{
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        bn_buf_append(b, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part)
    {
        const json_t *text = json_object_get(part, "text");
        if (!json_is_string(text)) return false;
        bn_buf_append(b, json_string_value(text), json_string_length(text));
    }
    return !content || json_is_null(content) || json_is_string(content) || json_is_array(content);
}

static void put_json(struct bn_buf *b, const json_t *v)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    if (text) bn_buf_puts(b, text);
    else b->failed = true;
    free(text);
}

/* The functions and how to call them, for models whose template does not say it. */
static void put_words(const struct tools *t, struct bn_buf *b)
{
    const struct tools_form *f = t->form;
    bn_buf_puts(b, "You can call functions. These exist, with JSON Schemas of their arguments:\n");
    for (size_t i = 0; i < json_array_size(t->list); i++) {
        put_json(b, tools_function(t, i));
        bn_buf_putc(b, '\n');
    }
    bn_buf_printf(b, "To call one, answer in exactly this form:\n%s%sNAME%s{...}%s", f->marker,
                  f->open, f->middle, f->close);
}

/* The system message, if any, with the functions. */
static json_t *system_message(const struct tools *t, const json_t *old)
{
    struct bn_buf b;
    bn_buf_init(&b, MAX_TEXT);
    json_t *made = NULL;
    if (put_content(&b, json_object_get(old, "content"))) {
        if (b.len) bn_buf_puts(&b, "\n\n");
        put_words(t, &b);
        made = make_message("system", &b);
    }
    bn_buf_free(&b);
    return made;
}

/* One call that an earlier answer held; false: it is none. */
static bool put_call(const struct tools_form *f, struct bn_buf *b, const json_t *call)
{
    const json_t *function = json_object_get(call, "function"),
                 *name = json_object_get(function, "name"),
                 *arguments = json_object_get(function, "arguments");
    if (!json_is_string(name) || !json_is_string(arguments)) return false;
    if (b->len) bn_buf_puts(b, f->between);
    return bn_buf_printf(b, "%s%s%s%s%s%s", f->marker, f->open, json_string_value(name), f->middle,
                         json_string_value(arguments), f->close);
}

/* An earlier answer with calls as the text it was; NULL: it cannot be written. */
static json_t *calls_as_text(const struct tools_form *f, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t i;
    struct bn_buf b;
    bn_buf_init(&b, MAX_TEXT);
    bool ok = put_content(&b, json_object_get(message, "content"));
    json_array_foreach(calls, i, call) ok = ok && put_call(f, &b, call);
    json_t *made = ok ? make_message("assistant", &b) : NULL;
    bn_buf_free(&b);
    return made;
}

/* What functions gave back, as the words of the user; results that follow each other are one message. */
static json_t *results_as_text(const json_t *messages, size_t *at)
{
    struct bn_buf b;
    bool ok = true;
    const json_t *m;
    bn_buf_init(&b, MAX_TEXT);
    for (;
         ok && (m = json_array_get(messages, *at)) && is_string(json_object_get(m, "role"), "tool");
         ++*at) {
        bn_buf_puts(&b, b.len ? "\n<tool_response>\n" : "<tool_response>\n");
        ok = put_content(&b, json_object_get(m, "content"));
        bn_buf_puts(&b, "\n</tool_response>");
    }
    json_t *made = ok ? make_message("user", &b) : NULL;
    bn_buf_free(&b);
    return made;
}

/* For a template that knows no tools: everything about them as plain text. What cannot be written so
 * stays as it is, for the template to refuse. */
static bool in_plain_text(const struct tools *t, json_t *out, const json_t *messages)
{
    const json_t *m = json_array_get(messages, 0);
    bool ok = true;
    size_t i = 0;
    if (t->choice != TOOLS_NONE) {
        bool system = is_string(json_object_get(m, "role"), "system");
        json_t *made = system ? system_message(t, m) : NULL;
        if (made) i++;
        else made = system_message(t, NULL);
        ok = json_array_append_new(out, made) == 0;
    }
    while (ok && (m = json_array_get(messages, i))) {
        json_t *made = NULL;
        size_t next = i + 1;
        if (is_string(json_object_get(m, "role"), "tool")) {
            next = i;
            made = results_as_text(messages, &next);
        } else if (json_array_size(json_object_get(m, "tool_calls"))) {
            made = calls_as_text(t->form, m);
        }
        if (!made) next = i + 1;
        ok = json_array_append_new(out, made ? made : json_incref((json_t *)m)) == 0;
        i = next;
    }
    return ok;
}

/* Templates take arguments as objects; requests have their text. */
static void parse_arguments(json_t *call)
{
    json_t *function = json_object_get(call, "function");
    const char *text = json_string_value(json_object_get(function, "arguments"));
    json_t *arguments = text ? json_loads(text, 0, NULL) : NULL;
    if (arguments) json_object_set_new(function, "arguments", arguments);
}

/* A message as templates expect it: members that say nothing are not there, and beside calls there is a
 * text, if an empty one. */
static json_t *for_template(const json_t *message)
{
    json_t *made = json_copy((json_t *)message), *calls, *value, *call;
    const char *key;
    void *next;
    size_t i;
    json_object_foreach_safe(made, next, key, value)
    {
        if (json_is_null(value)) json_object_del(made, key);
    }
    calls = json_deep_copy(json_object_get(made, "tool_calls"));
    if (json_array_size(calls) == 0) {
        json_object_del(made, "tool_calls");
        json_decref(calls);
        return made;
    }
    json_array_foreach(calls, i, call) parse_arguments(call);
    bool ok = json_object_set_new(made, "tool_calls", calls) == 0;
    if (!json_object_get(made, "content"))
        ok = ok && json_object_set_new(made, "content", json_string("")) == 0;
    if (ok) return made;
    json_decref(made);
    return NULL;
}

static bool all_for_template(json_t *out, const json_t *messages)
{
    size_t i;
    const json_t *m;
    json_array_foreach(messages, i, m)
    {
        if (json_array_append_new(out, for_template(m)) != 0) return false;
    }
    return true;
}

json_t *tools_conversation(const struct tools *t, const json_t *messages)
{
    bool show = t && t->form->template_writes && t->choice != TOOLS_NONE;
    json_t *list = json_array(), *talk = json_pack("{so}", "messages", list);
    bool ok = talk && (t && !t->form->template_writes ? in_plain_text(t, list, messages)
                                                      : all_for_template(list, messages));
    if (ok && show) ok = json_object_set(talk, "tools", t->list) == 0;
    if (ok) return talk;
    json_decref(talk);
    return NULL;
}
