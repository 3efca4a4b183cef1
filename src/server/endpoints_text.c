/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoints_text.c: text to tokens, back, and conversations to the text that the model sees.
 */
#include "base/utf8.h"
#include "server/anthropic/anthropic.h"
#include "server/dialect.h"
#include "server/openai/request.h"
#include "server/server_impl.h"
#include "app/tokens.h"
#include "server/openai/tools.h"
#include <stdlib.h>

/* A body, and what is made of it; on any thread, but for the beginning and the end. */
struct made {
    struct exchange x; /* first */
    struct errand errand;
    bitnet_status (*make)(struct made *d, bitnet_error *err);
    struct bn_json *body, *out;
    struct openai_defaults defaults;
    struct openai_ignored ignored;
    const char *param, *code; /* as openai_request has them */
    char *text;               /* out as JSON */
    bitnet_status status;
    bitnet_error err;
};

static void make(struct made *d)
{
    d->status = d->make(d, &d->err);
    if (d->status == BITNET_OK && d->out) d->text = bn_json_dump(d->out, BN_JSON_COMPACT);
    if (d->status == BITNET_OK && !d->text) d->status = bn_fail_nomem(&d->err, 0, "the reply");
    bn_json_free(d->out);
    bn_json_free(d->body);
    d->body = d->out = NULL;
}

static void reply_made(struct made *d)
{
    if (d->status == BITNET_OK) {
        exchange_tell_ignored(&d->x, &d->ignored);
        exchange_reply(&d->x, 200, "application/json", d->text, strlen(d->text));
    } else {
        exchange_fail(&d->x, &d->err, d->param, d->code);
    }
}

static void free_made(struct made *d)
{
    exchange_close(&d->x);
    bn_json_free(d->body);
    free(d->text);
    free(d);
}

static struct made *of_errand(struct errand *e)
{
    return (struct made *)((char *)e - offsetof(struct made, errand));
}

static void run_errand(struct errand *e) { make(of_errand(e)); }

static void on_made(struct errand *e)
{
    struct made *d = of_errand(e);
    if (d->x.request) reply_made(d);
    free_made(d);
}

/* Replies with what `how` makes of the body. */
static void serve_made(struct exchange *x, bitnet_status (*how)(struct made *d, bitnet_error *err))
{
    struct bn_json *body;
    if (!exchange_body(x, &body)) return;
    struct made *d = exchange_copy(x, sizeof *d, body);
    if (!d) return;
    d->make = how;
    d->body = body;
    d->defaults = server_defaults(x->model);
    if (!x->large) {
        make(d);
        reply_made(d);
        free_made(d);
        return;
    }
    d->errand = (struct errand){.run = run_errand, .done = on_made};
    exchange_elsewhere(&d->x, &d->errand, "the text was not read");
}

/* ------------------------------------------------------------------ tokenize */

/* A token's bytes: text, or, where they are part of a character only, a list of numbers. */
static bitnet_status piece_json(struct bn_json **out, const bitnet_model *m, int32_t id,
                                bitnet_error *err)
{
    char *text;
    size_t n;
    BN_TRY(tokens_decode(&text, &n, m, &id, 1, BITNET_TOK_SPECIAL, err));
    if (bn_utf8_valid(text, n, NULL)) {
        *out = bn_json_stringn(text, n);
    } else {
        *out = bn_json_array();
        for (size_t i = 0; i < n; i++) bn_json_append(*out, bn_json_int((unsigned char)text[i]));
    }
    free(text);
    return *out ? BITNET_OK : bn_fail_nomem(err, n, "a piece");
}

static bitnet_status list_tokens(struct bn_json *list, const bitnet_model *m, const int32_t *ids,
                                 size_t n, bool with_pieces, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct bn_json *item = bn_json_int(ids[i]), *piece;
        if (with_pieces) {
            bitnet_status s = piece_json(&piece, m, ids[i], err);
            if (s != BITNET_OK) {
                bn_json_free(item);
                return s;
            }
            item = bn_json_pack("{s:o, s:o}", "id", item, "piece", piece);
        }
        if (!bn_json_append(list, item)) return bn_fail_nomem(err, n, "tokens");
    }
    return BITNET_OK;
}

static bitnet_status encode_member(int32_t **ids, size_t *n, const struct served_model *s,
                                   const struct bn_json *text, const char *key, uint32_t flags,
                                   bitnet_error *err)
{
    if (!bn_json_is_string(text))
        return bn_fail(err, BITNET_E_ARG, "the request has no '%s', a string", key);
    if (bn_json_bytes(text) > TEXT_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu bytes; at most %d are possible", key,
                       bn_json_bytes(text), TEXT_MAX_BYTES);
    return tokens_encode(ids, n, s->m, bn_json_text(text), bn_json_bytes(text), flags, err);
}

/* In the words of llama.cpp. */
static bitnet_status tokenize_content(struct bn_json **out, const struct served_model *s,
                                      struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {"content",     "text",  "add_special", "parse_special",
                                        "with_pieces", "model", NULL};
    bool add_special = false, parse_special = true, with_pieces = false;
    const struct bn_json *text = bn_json_get(body, "content");
    if (!text) text = bn_json_get(body, "text");
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(bn_json_read_bool(&add_special, body, "add_special", "body", err));
    BN_TRY(bn_json_read_bool(&parse_special, body, "parse_special", "body", err));
    BN_TRY(bn_json_read_bool(&with_pieces, body, "with_pieces", "body", err));
    uint32_t flags =
        (add_special ? BITNET_TOK_BOS_AUTO : 0u) | (parse_special ? BITNET_TOK_SPECIAL : 0u);
    int32_t *ids;
    size_t n;
    BN_TRY(encode_member(&ids, &n, s, text, "content", flags, err));
    struct bn_json *list = bn_json_array();
    bitnet_status status = list_tokens(list, s->m, ids, n, with_pieces, err);
    free(ids);
    if (status == BITNET_OK) *out = bn_json_pack("{s:o}", "tokens", list);
    else bn_json_free(list);
    return status;
}

/* As the vocabulary writes it. */
static struct bn_json *token_json(const bitnet_model *m, int32_t id)
{
    const char *text = bitnet_token_text(m, id);
    return text ? openai_text(text, strlen(text)) : bn_json_null();
}

static struct bn_json *token_texts(const bitnet_model *m, const int32_t *ids, size_t n)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(list, token_json(m, ids[i]));
    return list;
}

/* In the words of vLLM. */
static bitnet_status tokenize_prompt(struct bn_json **out, const struct served_model *s,
                                     struct bn_json *body, bitnet_error *err)
{
    static const char *const known[] = {"prompt", "model", "add_special_tokens",
                                        "return_token_strs", NULL};
    bool add_special = true, texts = false;
    BN_TRY(openai_check_members(body, known, "the body", err));
    BN_TRY(bn_json_read_bool(&add_special, body, "add_special_tokens", "body", err));
    BN_TRY(bn_json_read_bool(&texts, body, "return_token_strs", "body", err));
    uint32_t flags = BITNET_TOK_SPECIAL | (add_special ? BITNET_TOK_BOS_AUTO : 0u);
    int32_t *ids;
    size_t n;
    BN_TRY(encode_member(&ids, &n, s, bn_json_get(body, "prompt"), "prompt", flags, err));
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < n; i++) bn_json_append(list, bn_json_int(ids[i]));
    *out = bn_json_pack("{s:I, s:I, s:o, s:o}", "count", (int64_t)n, "max_model_len",
                        (int64_t)s->engine.ctx_tokens, "tokens", list, "token_strs",
                        texts ? token_texts(s->m, ids, n) : bn_json_null());
    free(ids);
    return BITNET_OK;
}

static bitnet_status tokenize(struct made *d, bitnet_error *err)
{
    bool prompt = bn_json_get(d->body, "prompt") != NULL;
    return (prompt ? tokenize_prompt : tokenize_content)(&d->out, d->x.model, d->body, err);
}

void serve_tokenize(struct exchange *x) { serve_made(x, tokenize); }

/* ------------------------------------------------------------------ detokenize */

static bitnet_status detokenize(struct made *d, bitnet_error *err)
{
    static const char *const known[] = {"tokens", "model", NULL};
    const struct served_model *s = d->x.model;
    const struct bn_json *list = bn_json_get(d->body, "tokens");
    BN_TRY(openai_check_members(d->body, known, "the body", err));
    int32_t *ids;
    size_t n, n_text;
    BN_TRY(tokens_from_json(&ids, &n, list, "tokens", err));
    char *text;
    bitnet_status status = tokens_decode(&text, &n_text, s->m, ids, n, BITNET_TOK_SPECIAL, err);
    free(ids);
    if (status != BITNET_OK) return status;
    struct bn_json *shown = openai_text(text, n_text);
    d->out = bn_json_pack("{s:O, s:O}", "content", shown, "prompt", shown);
    bn_json_free(shown);
    free(text);
    return BITNET_OK;
}

void serve_detokenize(struct exchange *x) { serve_made(x, detokenize); }

/* ------------------------------------------------------------------ tokenizer_info */

/* Does a text begin with a token that it does not contain? */
static bitnet_status adds_bos(bool *out, const bitnet_model *m, bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    BN_TRY(tokens_encode(&ids, &n, m, "", 0, BITNET_TOK_BOS_AUTO, err));
    *out = n > 0 && ids[0] == bitnet_token_bos(m);
    free(ids);
    return BITNET_OK;
}

/* Members of Hugging Face's tokenizer_config.json. */
void serve_tokenizer_info(struct exchange *x)
{
    const struct served_model *s = x->model;
    const char *chat = s->template_text && *s->template_text ? s->template_text : NULL;
    bitnet_error err = {0};
    bool bos;
    if (adds_bos(&bos, s->m, &err) != BITNET_OK) {
        exchange_fail(x, &err, NULL, NULL);
        return;
    }
    exchange_reply_json(
        x, 200,
        bn_json_pack("{s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:s?}", "tokenizer_class", "bitnet",
                     "bos_token", token_json(s->m, bitnet_token_bos(s->m)), "eos_token",
                     token_json(s->m, bitnet_token_eos(s->m)), "pad_token",
                     token_json(s->m, bitnet_token_pad(s->m)), "add_bos_token", bn_json_bool(bos),
                     "vocab_size", (int64_t)s->info.shape.n_vocab, "model_max_length",
                     (int64_t)s->engine.ctx_tokens, "chat_template", chat));
}

/* ------------------------------------------------------------------ apply-template */

static bitnet_status render(struct bn_json **out, const struct served_model *s, const char *talk,
                            const struct bn_json *prefill, bitnet_error *err)
{
    size_t n = 0, len = strlen(talk);
    const char *name = s->spec->chat_template;
    bitnet_status status = bitnet_chat_render_json(s->m, talk, len, name, 1, NULL, &n, err);
    if (status != BITNET_OK && (status != BITNET_E_LIMIT || n == 0)) return status;
    char *text = malloc(n + 1);
    if (!text) return bn_fail_nomem(err, n + 1, "the prompt");
    status = n ? bitnet_chat_render_json(s->m, talk, len, name, 1, text, &n, err) : BITNET_OK;
    struct bn_buf shown;
    bn_buf_init(&shown, SIZE_MAX / 2);
    if (status == BITNET_OK) bn_buf_append(&shown, text, n);
    if (prefill) bn_buf_append(&shown, bn_json_text(prefill), bn_json_bytes(prefill));
    if (status == BITNET_OK && !shown.failed)
        *out =
            bn_json_pack("{s:o}", "prompt", openai_text(shown.data ? shown.data : "", shown.len));
    bn_buf_free(&shown);
    free(text);
    return status;
}

/* Read and encoded as a chat request is, which also chooses how tools are told; then shown. */
static bitnet_status apply_template(struct made *d, bitnet_error *err)
{
    const struct served_model *s = d->x.model;
    struct openai_request q;
    BN_TRY(openai_request_read(&q, OPENAI_CHAT, d->body, &d->defaults, err));
    bitnet_status status = openai_request_encode(&q, s->m, s->spec->chat_template, err);
    if (status == BITNET_OK) {
        struct bn_json *talk = openai_conversation(&q, s->template_text ? s->template_text : "");
        char *text = talk ? bn_json_dump(talk, BN_JSON_COMPACT) : NULL;
        status = text ? render(&d->out, s, text, openai_prefill(&q), err)
                      : bn_fail_nomem(err, 0, "a conversation");
        free(text);
        bn_json_free(talk);
    }
    openai_request_free(&q);
    return status;
}

void serve_apply_template(struct exchange *x) { serve_made(x, apply_template); }

/* ------------------------------------------------------------------ input_tokens */

static bitnet_status count_tokens(struct made *d, bitnet_error *err)
{
    const struct served_model *s = d->x.model;
    struct openai_request q = {.n_prompts = 0};
    bitnet_status status = d->x.route->dialect->read(&q, d->body, &d->defaults, err);
    d->param = q.param;
    d->code = q.code;
    if (status != BITNET_OK) return status;
    d->ignored = q.ignored;
    status = openai_check_bytes(&q, s->max_prompt_bytes, err);
    if (status == BITNET_OK) status = openai_request_encode(&q, s->m, s->spec->chat_template, err);
    int64_t n = status == BITNET_OK ? (int64_t)q.prompts[0].n_tokens : 0;
    bool theirs = d->x.route->dialect == &anthropic_dialect;
    if (status == BITNET_OK)
        d->out = theirs ? bn_json_pack("{s:I}", "input_tokens", n)
                        : bn_json_pack("{s:s, s:I}", "object", "response.input_tokens",
                                       "input_tokens", n);
    d->param = q.param;
    d->code = q.code;
    openai_request_free(&q);
    return status;
}

void serve_count_tokens(struct exchange *x) { serve_made(x, count_tokens); }
