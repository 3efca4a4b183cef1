/* SPDX-License-Identifier: Apache-2.0
 * What a request says about tools, and the conversation as a template can show it. */
#include "server/openai/tools_impl.h"

#include "base/os/mem.h"
#include <stdlib.h>

enum { MAX_TEXT = 32 << 20 }; /* bytes of a message */

/* ------------------------------------------------------------------ formats */

#define IN_TAGS                                         \
    .marker = "<tool_call>", .open = "\n{\"name\": \"", \
    .middle = "\", \"arguments\": ", .close = "}\n</tool_call>", .between = "\n"
static const struct tools_format in_tags = {IN_TAGS, .template_writes = true};
static const struct tools_format in_words = {IN_TAGS};
/* as the templates of Llama 3 ask for it */
static const struct tools_format bare = {.marker = "{\"name\": \"",
                                         .open = "",
                                         .middle = "\", \"parameters\": ",
                                         .close = "}",
                                         .at_start = true,
                                         .template_writes = true};
#undef IN_TAGS
/* Qwen3-Coder, Qwen3.5 */
static const struct tools_format one_by_one = {.marker = "<tool_call>",
                                               .open = "\n<function=",
                                               .middle = ">\n",
                                               .parameter = "<parameter=",
                                               .parameter_open = ">\n",
                                               .parameter_close = "\n</parameter>",
                                               .close = "</function>\n</tool_call>",
                                               .between = "\n",
                                               .template_writes = true};

void tools_choose_format(struct tools *t, const char *template_text)
{
    bool tags = strstr(template_text, in_tags.marker) != NULL;
    if (tags && strstr(template_text, "<function=") && strstr(template_text, one_by_one.parameter))
        t->format = &one_by_one;
    else if (tags) t->format = &in_tags;
    else if (strstr(template_text, "\"name\":") && strstr(template_text, "\"parameters\":"))
        t->format = &bare;
    else t->format = &in_words;
}

/* ------------------------------------------------------------------ reading */

static bool is_name(const struct bn_json *v)
{
    size_t n = bn_json_bytes(v), i = 0;
    while (i < n && tools_name_char(bn_json_text(v)[i])) i++;
    return n > 0 && i == n && n <= TOOLS_MAX_NAME;
}

static bool is_string(const struct bn_json *v, const char *s)
{
    return bn_json_is_string(v) && strcmp(bn_json_text(v), s) == 0;
}

static bitnet_status check_tool(const struct tools *t, size_t i, bitnet_error *err)
{
    const struct bn_json *type = bn_json_get(bn_json_at(t->list, i), "type"),
                         *f = tools_function(t, i), *parameters = bn_json_get(f, "parameters");
    if (!is_string(type, "function"))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "tool %zu is of type '%.40s'; only 'function' is possible", i,
                       bn_json_is_string(type) ? bn_json_text(type) : "");
    if (!is_name(bn_json_get(f, "name")))
        return bn_fail(err, BITNET_E_ARG,
                       "tool %zu has no 'function.name' of 1 to %d letters, digits, '_' and '-'", i,
                       TOOLS_MAX_NAME);
    for (size_t k = 0; k < i; k++)
        if (strcmp(tools_name(t, k), tools_name(t, i)) == 0)
            return bn_fail(err, BITNET_E_ARG, "two functions are called '%s'", tools_name(t, i));
    const struct bn_json *kind = bn_json_get(parameters, "type");
    if (parameters && !bn_json_is_null(parameters) &&
        (!bn_json_is_object(parameters) || (kind && !is_string(kind, "object"))))
        return bn_fail(err, BITNET_E_ARG, "function '%s': 'parameters' is no schema of an object",
                       tools_name(t, i));
    return BITNET_OK;
}

static bitnet_status choose_one(struct tools *t, const struct bn_json *choice, bitnet_error *err)
{
    const struct bn_json *name = bn_json_get(bn_json_get(choice, "function"), "name");
    if (!is_string(bn_json_get(choice, "type"), "function") || !bn_json_is_string(name))
        return bn_fail(
            err, BITNET_E_ARG,
            "'tool_choice' is not 'none', 'auto', 'required' or {\"type\": \"function\", "
            "\"function\": {\"name\": ...}}");
    for (size_t i = 0; i < bn_json_size(t->list); i++)
        if (is_string(name, tools_name(t, i))) t->only = tools_name(t, i);
    if (!t->only)
        return bn_fail(err, BITNET_E_ARG, "'tool_choice' names '%.64s', which is not in 'tools'",
                       bn_json_text(name));
    t->choice = TOOLS_REQUIRED;
    t->parallel = false;
    return BITNET_OK;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}, or those members beside the type: the
 * others are not shown either. */
static bitnet_status allow_some(struct tools *t, const struct bn_json *choice, bitnet_error *err)
{
    const struct bn_json *inner = bn_json_get(choice, "allowed_tools"), *one;
    const struct bn_json *from = inner ? inner : choice, *names = bn_json_get(from, "tools"),
                         *mode = bn_json_get(from, "mode");
    struct bn_json *allowed = bn_json_array();
    size_t k;
    bitnet_status s = BITNET_OK;
    bn_json_each(names, k, one)
    {
        const struct bn_json *function = bn_json_get(one, "function");
        const char *name = bn_json_text(bn_json_get(function ? function : one, "name"));
        size_t i = 0, n = bn_json_size(t->list);
        while (name && i < n && strcmp(tools_name(t, i), name) != 0) i++;
        if (!name || i == n)
            s = bn_fail(err, BITNET_E_ARG, "'tool_choice' allows '%.64s', which is not in 'tools'",
                        name ? name : "");
        else bn_json_append(allowed, bn_json_ref(bn_json_at(t->list, i)));
        if (s != BITNET_OK) break;
    }
    if (s == BITNET_OK && (bn_json_size(allowed) == 0 || !bn_json_whole(allowed)))
        s = bn_fail(err, BITNET_E_ARG, "'tool_choice' allows no tool");
    if (s != BITNET_OK) {
        bn_json_free(allowed);
        return s;
    }
    bn_json_free(t->list);
    t->list = allowed;
    t->choice = is_string(mode, "required") ? TOOLS_REQUIRED : TOOLS_AUTO;
    return BITNET_OK;
}

static bitnet_status read_choice(struct tools *t, const struct bn_json *choice, bitnet_error *err)
{
    /* some clients put the word into an object */
    const struct bn_json *type = bn_json_get(choice, "type"), *word = type ? type : choice;
    t->choice = TOOLS_AUTO;
    if (!choice || bn_json_is_null(choice) || is_string(word, "auto")) return BITNET_OK;
    if (is_string(word, "none")) t->choice = TOOLS_NONE;
    else if (is_string(word, "required")) t->choice = TOOLS_REQUIRED;
    else if (is_string(bn_json_get(choice, "type"), "allowed_tools"))
        return allow_some(t, choice, err);
    else return choose_one(t, choice, err);
    return BITNET_OK;
}

static bitnet_status read_tools(struct tools *t, const struct bn_json *choice, bitnet_error *err)
{
    size_t n = bn_json_size(t->list);
    if (n > TOOLS_MAX)
        return bn_fail(err, BITNET_E_LIMIT, "%zu tools; at most %d are possible", n, TOOLS_MAX);
    for (size_t i = 0; i < n; i++) BN_TRY(check_tool(t, i, err));
    return read_choice(t, choice, err);
}

bitnet_status tools_read(struct tools **out, const struct bn_json *tools,
                         const struct bn_json *choice, bool parallel, bitnet_error *err)
{
    *out = NULL;
    if (tools && !bn_json_is_null(tools) && !bn_json_is_array(tools))
        return bn_fail(err, BITNET_E_ARG, "'tools' is not a list");
    if (bn_json_size(tools) == 0) {
        if (bn_json_is_object(choice) || is_string(choice, "required"))
            return bn_fail(err, BITNET_E_ARG,
                           "'tool_choice' asks for a call, and 'tools' is empty");
        return BITNET_OK;
    }
    struct tools *t = bn_calloc(1, sizeof *t);
    if (!t) return bn_fail_nomem(err, sizeof *t, "tools");
    t->list = bn_json_ref((struct bn_json *)tools);
    t->parallel = parallel;
    t->format = &in_words;
    bitnet_status st = read_tools(t, choice, err);
    if (st != BITNET_OK) tools_free(t);
    else *out = t;
    return st;
}

void tools_free(struct tools *t)
{
    if (!t) return;
    bn_json_free(t->list);
    free(t);
}

bool tools_any_text(const struct tools *t) { return t && t->choice == TOOLS_AUTO; }

/* ------------------------------------------------------------------ conversations */

static struct bn_json *make_message(const char *role, const struct bn_buf *content)
{
    if (content->failed) return NULL;
    return bn_json_pack("{ssss%}", "role", role, "content", content->data ? content->data : "",
                        content->len);
}

/* A content: nothing, a text or texts in parts; false: something else. */
static bool put_content(struct bn_buf *b, const struct bn_json *content)
{
    size_t i;
    const struct bn_json *part;
    if (bn_json_is_string(content)) bn_buf_append(b, bn_json_text(content), bn_json_bytes(content));
    bn_json_each(content, i, part)
    {
        const struct bn_json *text = bn_json_get(part, "text");
        if (!bn_json_is_string(text)) return false;
        bn_buf_append(b, bn_json_text(text), bn_json_bytes(text));
    }
    return !content || bn_json_is_null(content) || bn_json_is_string(content) ||
           bn_json_is_array(content);
}

static void put_json(struct bn_buf *b, const struct bn_json *v)
{
    char *text = bn_json_dump(v, 0);
    if (text) bn_buf_puts(b, text);
    else b->failed = true;
    free(text);
}

/* The functions and how to call them, for models whose template does not say it. */
static void put_words(const struct tools *t, struct bn_buf *b)
{
    const struct tools_format *f = t->format;
    bn_buf_puts(b, "You can call functions. These exist, with JSON Schemas of their arguments:\n");
    for (size_t i = 0; i < bn_json_size(t->list); i++) {
        put_json(b, tools_function(t, i));
        bn_buf_putc(b, '\n');
    }
    bn_buf_printf(b, "To call one, answer in exactly this form:\n%s%sNAME%s{...}%s", f->marker,
                  f->open, f->middle, f->close);
}

/* The system message, if any, with the functions. */
static struct bn_json *system_message(const struct tools *t, const struct bn_json *old)
{
    struct bn_buf b;
    bn_buf_init(&b, MAX_TEXT);
    struct bn_json *made = NULL;
    if (put_content(&b, bn_json_get(old, "content"))) {
        if (b.len) bn_buf_puts(&b, "\n\n");
        put_words(t, &b);
        made = make_message("system", &b);
    }
    bn_buf_free(&b);
    return made;
}

/* One call that an earlier reply held; false: it is none. */
static bool put_call(const struct tools_format *f, struct bn_buf *b, const struct bn_json *call)
{
    const struct bn_json *function = bn_json_get(call, "function"),
                         *name = bn_json_get(function, "name"),
                         *arguments = bn_json_get(function, "arguments");
    if (!bn_json_is_string(name) || !bn_json_is_string(arguments)) return false;
    if (b->len) bn_buf_puts(b, f->between);
    return bn_buf_printf(b, "%s%s%s%s%s%s", f->marker, f->open, bn_json_text(name), f->middle,
                         bn_json_text(arguments), f->close);
}

/* An earlier reply with calls as the text it was; NULL: it cannot be written. */
static struct bn_json *calls_as_text(const struct tools_format *f, const struct bn_json *message)
{
    const struct bn_json *calls = bn_json_get(message, "tool_calls"), *call;
    size_t i;
    struct bn_buf b;
    bn_buf_init(&b, MAX_TEXT);
    bool ok = put_content(&b, bn_json_get(message, "content"));
    bn_json_each(calls, i, call) ok = ok && put_call(f, &b, call);
    struct bn_json *made = ok ? make_message("assistant", &b) : NULL;
    bn_buf_free(&b);
    return made;
}

/* What functions gave back, as the words of the user; results that follow each other are one message. */
static struct bn_json *results_as_text(const struct bn_json *messages, size_t *at)
{
    struct bn_buf b;
    bool ok = true;
    const struct bn_json *m;
    bn_buf_init(&b, MAX_TEXT);
    for (; ok && (m = bn_json_at(messages, *at)) && is_string(bn_json_get(m, "role"), "tool");
         ++*at) {
        bn_buf_puts(&b, b.len ? "\n<tool_response>\n" : "<tool_response>\n");
        ok = put_content(&b, bn_json_get(m, "content"));
        bn_buf_puts(&b, "\n</tool_response>");
    }
    struct bn_json *made = ok ? make_message("user", &b) : NULL;
    bn_buf_free(&b);
    return made;
}

/* For a template that knows no tools: everything about them as plain text. What cannot be written so
 * stays as it is, for the template to refuse. */
static bool in_plain_text(const struct tools *t, struct bn_json *out,
                          const struct bn_json *messages)
{
    const struct bn_json *m = bn_json_at(messages, 0);
    bool ok = true;
    size_t i = 0;
    if (t->choice != TOOLS_NONE) {
        bool system = is_string(bn_json_get(m, "role"), "system");
        struct bn_json *made = system ? system_message(t, m) : NULL;
        if (made) i++;
        else made = system_message(t, NULL);
        ok = bn_json_append(out, made);
    }
    while (ok && (m = bn_json_at(messages, i))) {
        struct bn_json *made = NULL;
        size_t next = i + 1;
        if (is_string(bn_json_get(m, "role"), "tool")) {
            next = i;
            made = results_as_text(messages, &next);
        } else if (bn_json_size(bn_json_get(m, "tool_calls"))) {
            made = calls_as_text(t->format, m);
        }
        if (!made) next = i + 1;
        ok = bn_json_append(out, made ? made : bn_json_ref((struct bn_json *)m));
        i = next;
    }
    return ok;
}

/* Templates take arguments as objects; requests have their text. */
static void parse_arguments(struct bn_json *call)
{
    struct bn_json *function = bn_json_get(call, "function");
    const char *text = bn_json_text(bn_json_get(function, "arguments"));
    struct bn_json *arguments = NULL;
    if (text && (!bn_json_try(&arguments, text, strlen(text), 0) || arguments))
        bn_json_set(function, "arguments", arguments); /* broken, if memory is out */
}

/* A message as templates expect it: members that say nothing are not there, and beside calls there is a
 * text, if an empty one. */
static struct bn_json *for_template(const struct bn_json *message)
{
    struct bn_json *made = bn_json_copy((struct bn_json *)message), *calls, *value, *call;
    const char *key;
    size_t i;
    bn_json_each_member(message, key, value)
    {
        if (bn_json_is_null(value)) bn_json_del(made, key);
    }
    calls = bn_json_deep_copy(bn_json_get(made, "tool_calls"));
    if (bn_json_size(calls) == 0) {
        bn_json_del(made, "tool_calls");
        bn_json_free(calls);
        return made;
    }
    bn_json_each(calls, i, call) parse_arguments(call);
    bn_json_set(made, "tool_calls", calls);
    if (!bn_json_get(made, "content")) bn_json_set(made, "content", bn_json_string(""));
    return made;
}

static bool all_for_template(struct bn_json *out, const struct bn_json *messages)
{
    size_t i;
    const struct bn_json *m;
    bn_json_each(messages, i, m)
    {
        if (!bn_json_append(out, for_template(m))) return false;
    }
    return true;
}

struct bn_json *tools_conversation(const struct tools *t, const struct bn_json *messages)
{
    bool show = t && t->format->template_writes && t->choice != TOOLS_NONE;
    struct bn_json *list = bn_json_array(), *talk = bn_json_pack("{so}", "messages", list);
    bool ok = talk && (t && !t->format->template_writes ? in_plain_text(t, list, messages)
                                                        : all_for_template(list, messages));
    if (ok && show) ok = bn_json_set(talk, "tools", bn_json_ref(t->list));
    if (ok && bn_json_whole(talk)) return talk;
    bn_json_free(talk);
    return NULL;
}

struct bn_json *tools_conversation_as_text(const struct bn_json *messages)
{
    const struct tools none = {.format = &in_words, .choice = TOOLS_NONE};
    return tools_conversation(&none, messages);
}
