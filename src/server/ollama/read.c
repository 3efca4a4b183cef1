/* SPDX-License-Identifier: Apache-2.0
 *
 * read.c: bodies of Ollama's interface, rewritten as OpenAI's: "options" come up to the top under our names,
 * arguments of calls become text, "format" and "think" what they mean here.
 */
#include "server/ollama/ollama_impl.h"

#include "server/fim.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ options */

/* What concerns how a model is loaded and where it runs is settled when this server starts. */
static const char *const loading[] = {
    "num_ctx",          "num_batch", "num_gpu", "main_gpu",
    "num_thread",       "num_keep",  "numa",    "low_vram",
    "use_mmap",         "use_mlock", "f16_kv",  "draft_num_predict",
    "penalize_newline", NULL};

static bool is_negative(const struct bn_json *v)
{
    return bn_json_is_int(v) && bn_json_integer(v) < 0;
}

/* Those whose values mean something else here; true: it is done with. */
static bool take_special(struct bn_json *to, const char *key, const struct bn_json *v)
{
    if (strcmp(key, "num_predict") == 0) { /* 0 and less: no limit */
        if (!bn_json_is_int(v) || bn_json_integer(v) > 0)
            bn_json_set(to, "max_tokens", bn_json_ref(v));
        return true;
    }
    if (strcmp(key, "seed") == 0) return is_negative(v); /* any */
    if (strcmp(key, "repeat_last_n") == 0 && is_negative(v)) {
        bn_json_set(to, "repeat_last_n", bn_json_int(0)); /* all */
        return true;
    }
    return false;
}

/* None is looked back on: no penalties. */
static void drop_penalties(struct bn_json *to)
{
    bn_json_del(to, "repeat_last_n");
    bn_json_del(to, "repeat_penalty");
    bn_json_del(to, "presence_penalty");
    bn_json_del(to, "frequency_penalty");
}

static bitnet_status take_options(struct bn_json *to, const struct bn_json *options,
                                  bitnet_error *err)
{
    const char *key;
    struct bn_json *v;
    if (!options || bn_json_is_null(options)) return BITNET_OK;
    if (!bn_json_is_object(options))
        return bn_fail(err, BITNET_E_ARG, "'options' is not an object");
    bn_json_each_member(options, key, v)
    {
        size_t i = 0;
        while (loading[i] && strcmp(loading[i], key) != 0) i++;
        if (loading[i] || bn_json_is_null(v) || take_special(to, key, v)) continue;
        bn_json_set(to, key, bn_json_ref(v));
    }
    const struct bn_json *n = bn_json_get(options, "repeat_last_n");
    if (bn_json_is_int(n) && bn_json_integer(n) == 0) drop_penalties(to);
    return BITNET_OK;
}

/* "json", or a JSON Schema. */
static bitnet_status take_format(struct bn_json *to, const struct bn_json *format,
                                 bitnet_error *err)
{
    const char *word = bn_json_text(format);
    if (!format || bn_json_is_null(format) || (word && !*word)) return BITNET_OK;
    if (bn_json_is_object(format)) {
        bn_json_set(to, "response_format",
                    bn_json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema",
                                 "name", "format", "schema", format));
        return BITNET_OK;
    }
    if (!word || strcmp(word, "json") != 0)
        return bn_fail(err, BITNET_E_ARG, "'format' is neither \"json\" nor a JSON Schema");
    bn_json_set(to, "response_format", bn_json_pack("{s:s}", "type", "json_object"));
    return BITNET_OK;
}

static bitnet_status take_think(struct bn_json *to, const struct bn_json *think, bitnet_error *err)
{
    if (!think || bn_json_is_null(think)) return BITNET_OK;
    if (bn_json_is_bool(think))
        bn_json_set(to, "chat_template_kwargs", bn_json_pack("{s:O}", "enable_thinking", think));
    else if (bn_json_is_string(think))
        bn_json_set(to, "chat_template_kwargs",
                    bn_json_pack("{s:b, s:O}", "enable_thinking", 1, "reasoning_effort", think));
    else return bn_fail(err, BITNET_E_ARG, "'think' is neither true, false nor a word");
    return BITNET_OK;
}

/* ------------------------------------------------------------------ messages */

static bitnet_status refuse_images(const struct bn_json *from, bitnet_error *err)
{
    if (bn_json_size(bn_json_get(from, "images")) == 0) return BITNET_OK;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'images' are not possible: the model reads text only");
}

/* Their arguments are an object, OpenAI's are its text. */
static bitnet_status take_calls(struct bn_json *to, const struct bn_json *calls, size_t at,
                                bitnet_error *err)
{
    struct bn_json *list = bn_json_array();
    size_t i;
    const struct bn_json *call;
    bn_json_each(calls, i, call)
    {
        const struct bn_json *function = bn_json_get(call, "function");
        const char *name = bn_json_text(bn_json_get(function, "name"));
        const struct bn_json *arguments = bn_json_get(function, "arguments");
        if (!name || (arguments && !bn_json_is_object(arguments))) {
            bn_json_free(list);
            return bn_fail(err, BITNET_E_ARG,
                           "call %zu of message %zu has no 'function' with a name and arguments", i,
                           at);
        }
        char *text = arguments ? bn_json_dump(arguments, BN_JSON_COMPACT) : strdup("{}");
        bn_json_append(list, bn_json_pack("{s:o, s:s, s:{s:s, s:s}}", "id",
                                          bn_json_printf("call_%zu_%zu", at, i), "type", "function",
                                          "function", "name", name, "arguments", text));
        free(text);
    }
    bn_json_set(to, "tool_calls", list);
    return BITNET_OK;
}

static bitnet_status take_message(struct bn_json *list, const struct bn_json *from, size_t at,
                                  bitnet_error *err)
{
    static const char *const same[] = {"role", "content", "tool_call_id"};
    struct bn_json *to = bn_json_object();
    if (!bn_json_append(list, to)) return bn_fail_nomem(err, 0, "a message");
    if (!bn_json_is_object(from))
        return bn_fail(err, BITNET_E_ARG, "message %zu is not an object", at);
    BN_TRY(refuse_images(from, err));
    for (size_t i = 0; i < BN_ARRAY_LEN(same); i++)
        if (bn_json_get(from, same[i]))
            bn_json_set(to, same[i], bn_json_ref(bn_json_get(from, same[i])));
    const struct bn_json *calls = bn_json_get(from, "tool_calls"),
                         *thinking = bn_json_get(from, "thinking");
    if (bn_json_bytes(thinking)) bn_json_set(to, "reasoning_content", bn_json_ref(thinking));
    if (bn_json_size(calls)) BN_TRY(take_calls(to, calls, at, err));
    if (!bn_json_get(to, "content") && !bn_json_size(calls))
        bn_json_set(to, "content", bn_json_string(""));
    return BITNET_OK;
}

static bitnet_status take_messages(struct bn_json *to, const struct bn_json *messages,
                                   bitnet_error *err)
{
    struct bn_json *list = bn_json_array();
    size_t i;
    const struct bn_json *message;
    if (!bn_json_set(to, "messages", list)) return bn_fail_nomem(err, 0, "a conversation");
    if (!bn_json_is_array(messages))
        return bn_fail(err, BITNET_E_ARG, "'messages' is not a list of messages");
    bn_json_each(messages, i, message) BN_TRY(take_message(list, message, i, err));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ bodies */

/* What chats and texts have in common. Members that are not known stay, for OpenAI's reader to judge. */
static bitnet_status rewrite(struct bn_json **out, const struct bn_json *body, bitnet_error *err)
{
    static const char *const done[] = {
        "messages", "prompt", "system",   "options", "format",     "think",    "stream", "raw",
        "suffix",   "images", "template", "context", "keep_alive", "truncate", "shift",  NULL};
    const char *key;
    struct bn_json *v, *to = *out = bn_json_object();
    bool stream = true;
    if (!to) return bn_fail_nomem(err, 0, "a request");
    bn_json_each_member(body, key, v)
    {
        size_t i = 0;
        while (done[i] && strcmp(done[i], key) != 0) i++;
        if (!done[i]) bn_json_set(to, key, bn_json_ref(v));
    }
    BN_TRY(bn_json_read_bool(&stream, body, "stream", "body", err));
    bn_json_set(to, "stream", bn_json_bool(stream));
    BN_TRY(take_options(to, bn_json_get(body, "options"), err));
    BN_TRY(take_format(to, bn_json_get(body, "format"), err));
    return BITNET_OK;
}

static bitnet_status read_rewritten(struct openai_request *q, enum openai_kind kind,
                                    struct bn_json *body, const struct openai_defaults *d,
                                    bitnet_error *err)
{
    if (!bn_json_whole(body)) return bn_fail_nomem(err, 0, "a request");
    BN_TRY(openai_request_read(q, kind, body, d, err));
    dialect_look_back(q, body, d);
    return BITNET_OK;
}

static bitnet_status read_chat(struct openai_request *q, struct bn_json *body,
                               const struct openai_defaults *d, bitnet_error *err)
{
    struct bn_json *to;
    bitnet_status s = rewrite(&to, body, err);
    if (s == BITNET_OK) s = take_messages(to, bn_json_get(body, "messages"), err);
    if (s == BITNET_OK) s = take_think(to, bn_json_get(body, "think"), err);
    if (s == BITNET_OK) s = read_rewritten(q, OPENAI_CHAT, to, d, err);
    if (s == BITNET_OK) q->dialect = &ollama_chat_dialect;
    bn_json_free(to);
    return s;
}

/* A text goes through the template as what a user says. */
static bitnet_status take_prompt(struct bn_json *to, const struct bn_json *body, bitnet_error *err)
{
    struct bn_json *list = bn_json_array(), *system = bn_json_get(body, "system");
    if (bn_json_bytes(system))
        bn_json_append(list, bn_json_pack("{s:s, s:O}", "role", "system", "content", system));
    bn_json_append(
        list, bn_json_pack("{s:s, s:O}", "role", "user", "content", bn_json_get(body, "prompt")));
    bn_json_set(to, "messages", list);
    return take_think(to, bn_json_get(body, "think"), err);
}

static bitnet_status check_generate(const struct bn_json *body, bitnet_error *err)
{
    BN_TRY(refuse_images(body, err));
    if (!bn_json_is_string(bn_json_get(body, "prompt")))
        return bn_fail(err, BITNET_E_ARG, "the request has no 'prompt', a string");
    if (bn_json_size(bn_json_get(body, "context")))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'context' is not possible here; send the conversation to '/api/chat'");
    if (bn_json_bytes(bn_json_get(body, "template")))
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'template' is not possible here; give the whole text, with 'raw'");
    return BITNET_OK;
}

static bitnet_status read_generate(struct openai_request *q, struct bn_json *body,
                                   const struct openai_defaults *d, bitnet_error *err)
{
    const struct bn_json *suffix = bn_json_get(body, "suffix"),
                         *prompt = bn_json_get(body, "prompt");
    bool raw = false;
    struct bn_json *to = NULL;
    bitnet_status s = check_generate(body, err);
    if (s == BITNET_OK) s = bn_json_read_bool(&raw, body, "raw", "body", err);
    if (s == BITNET_OK) s = rewrite(&to, body, err);
    bool plain = raw || bn_json_bytes(suffix);
    if (s == BITNET_OK && plain && bn_json_is_true(bn_json_get(body, "logprobs")))
        s = bn_fail(err, BITNET_E_UNSUPPORTED,
                    "'logprobs' are not possible with 'raw' or 'suffix'");
    if (s == BITNET_OK && bn_json_bytes(suffix)) {
        struct bn_json *ids;
        s = fim_prompt(&ids, d->model, &(struct fim_text){.prefix = prompt, .suffix = suffix}, err);
        if (s == BITNET_OK) bn_json_set(to, "prompt", ids);
    } else if (s == BITNET_OK && raw) {
        bn_json_set(to, "prompt", bn_json_ref(prompt));
    } else if (s == BITNET_OK) {
        s = take_prompt(to, body, err);
    }
    if (plain && to) bn_json_del(to, "logprobs");
    if (s == BITNET_OK) s = read_rewritten(q, plain ? OPENAI_COMPLETION : OPENAI_CHAT, to, d, err);
    if (s == BITNET_OK) {
        q->dialect = &ollama_generate_dialect;
        q->special = plain;
    }
    bn_json_free(to);
    return s;
}

const struct dialect ollama_chat_dialect = {.id_prefix = "",
                                            .stream_type = "application/x-ndjson",
                                            .read = read_chat,
                                            .reply = ollama_reply,
                                            .flush = ollama_flush,
                                            .fail = ollama_fail,
                                            .error = ollama_error_json};
const struct dialect ollama_generate_dialect = {.id_prefix = "",
                                                .stream_type = "application/x-ndjson",
                                                .read = read_generate,
                                                .reply = ollama_reply,
                                                .flush = ollama_flush,
                                                .fail = ollama_fail,
                                                .error = ollama_error_json};

/* ------------------------------------------------------------------ endpoints */

/* A request without a question asks for the model to be loaded, or to be let go of: it has been loaded by
 * now, and goes if keep_alive says so. */
static void reply_loaded(struct exchange *x, const struct bn_json *body)
{
    const struct bn_json *keep = bn_json_get(body, "keep_alive");
    bool unload = (bn_json_is_number(keep) && bn_json_number(keep) == 0) ||
                  (bn_json_is_string(keep) && strcmp(bn_json_text(keep), "0") == 0);
    char now[OLLAMA_TIME_BYTES];
    ollama_time(now, (int64_t)time(NULL));
    struct bn_json *j = bn_json_pack("{s:s, s:s, s:b, s:s}", "model", x->model->name, "created_at",
                                     now, "done", 1, "done_reason", unload ? "unload" : "load");
    if (x->route->dialect == &ollama_chat_dialect)
        bn_json_set(j, "message", bn_json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else bn_json_set(j, "response", bn_json_string(""));
    exchange_reply_json(x, 200, j);
}

static void serve(struct exchange *x, const char *question)
{
    struct bn_json *body;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    const struct bn_json *v = bn_json_get(body, question);
    bool empty = !v || bn_json_is_null(v) || (bn_json_is_string(v) && bn_json_bytes(v) == 0) ||
                 (bn_json_is_array(v) && bn_json_size(v) == 0);
    if (!empty || bn_json_bytes(bn_json_get(body, "suffix"))) {
        completions_serve(x, body, NULL);
        return;
    }
    reply_loaded(x, body);
    bn_json_free(body);
}

void serve_ollama_chat(struct exchange *x) { serve(x, "messages"); }
void serve_ollama_generate(struct exchange *x) { serve(x, "prompt"); }
