/* SPDX-License-Identifier: Apache-2.0
 * Text calls: growable results of the text room are copied into the caller's buffer by one rule. */
#include "api/api.h"

#include "text/template/chat.h"

/* The rule of bitnet.h for buffers: room in, need out, nothing written when it does not fit. */
static bitnet_status give(void *out, size_t *n, const void *data, size_t count, size_t size,
                          bitnet_error *err)
{
    size_t room = *n;
    *n = count;
    if (count > room || (!out && count))
        return bn_fail(err, BITNET_E_LIMIT, "the buffer has room for %zu; %zu are needed", room,
                       count);
    if (count) memcpy(out, data, count * size);
    return BITNET_OK;
}

static bitnet_status need_tokenizer(const bitnet_model *m, bitnet_error *err)
{
    if (m->m->tokenizer) return BITNET_OK;
    return bn_fail(err, BITNET_E_STATE, "'%s' has no tokenizer", m->m->source.path);
}

bitnet_status bitnet_encode(const bitnet_model *m, const char *utf8, size_t len, uint32_t flags,
                            int32_t *tokens, size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && (utf8 || len == 0), err, "an argument is NULL");
    BN_TRY(need_tokenizer(m, err));
    struct bn_tokens t = {0};
    bitnet_status s = bn_encode(m->m->tokenizer, utf8, len, flags, &t, err);
    if (s == BITNET_OK) s = give(tokens, n, t.ids, t.n, sizeof *tokens, err);
    bn_tokens_free(&t);
    return s;
}

bitnet_status bitnet_decode(const bitnet_model *m, const int32_t *tokens, size_t n_tokens,
                            uint32_t flags, char *out, size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && (tokens || n_tokens == 0), err, "an argument is NULL");
    BN_TRY(need_tokenizer(m, err));
    const struct bn_tokenizer *t = m->m->tokenizer;
    size_t room = *n, used = 0;
    for (size_t i = 0; i < n_tokens; i++) {
        size_t bytes;
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= bn_tokenizer_vocab(t)->n_tokens)
            return bn_fail(err, BITNET_E_ARG, "token %zu is %d; this vocabulary has 0 to %u", i,
                           tokens[i], bn_tokenizer_vocab(t)->n_tokens - 1);
        const char *p =
            bn_token_bytes(t, tokens[i], (flags & BITNET_TOK_SPECIAL) != 0, i == 0, &bytes);
        if (bytes && out && bytes <= room && used <= room - bytes) memcpy(out + used, p, bytes);
        used += bytes;
    }
    *n = used;
    if (used > room || (!out && used))
        return bn_fail(err, BITNET_E_LIMIT, "the buffer has room for %zu bytes; %zu are needed",
                       room, used);
    return BITNET_OK;
}

const char *bitnet_token_text(const bitnet_model *m, int32_t token)
{
    if (!m || !m->m->tokenizer) return NULL;
    const struct bn_vocab *v = bn_tokenizer_vocab(m->m->tokenizer);
    return token >= 0 && (uint32_t)token < v->n_tokens ? v->tokens[token].s : NULL;
}

int bitnet_token_is_end(const bitnet_model *m, int32_t token)
{
    return m && m->m->tokenizer && bn_token_is_end(m->m->tokenizer, token);
}

/* NULL: the model has none. */
static const struct bn_vocab *vocab_of(const bitnet_model *m)
{
    return m && m->m->tokenizer ? bn_tokenizer_vocab(m->m->tokenizer) : NULL;
}

int32_t bitnet_token_bos(const bitnet_model *m)
{
    const struct bn_vocab *v = vocab_of(m);
    return v ? v->bos : -1;
}

int32_t bitnet_token_eos(const bitnet_model *m)
{
    const struct bn_vocab *v = vocab_of(m);
    return !v ? -1 : v->eos >= 0 ? v->eos : v->eot;
}

int32_t bitnet_token_pad(const bitnet_model *m)
{
    const struct bn_vocab *v = vocab_of(m);
    return v ? v->pad : -1;
}

static bitnet_status open_chat(struct bn_chat **chat, const bitnet_model *m,
                               const char *chat_template, bitnet_error *err)
{
    BN_TRY(need_tokenizer(m, err));
    return bn_chat_open(chat, bn_tokenizer_vocab(m->m->tokenizer), chat_template, NULL, err);
}

/* A conversation: messages, or JSON if there is any. */
struct talk {
    const bitnet_message *msgs;
    size_t n_msgs;
    const char *json;
    size_t len;
    bool prompt;
};

static bitnet_status render(const bitnet_model *m, const struct talk *t, const char *chat_template,
                            char *out, size_t *n, bitnet_error *err)
{
    struct bn_chat *chat;
    BN_TRY(open_chat(&chat, m, chat_template, err));
    struct bn_buf text;
    bn_buf_init(&text, BN_JINJA_MAX_OUTPUT);
    bitnet_status s = t->json ? bn_chat_render_json(chat, t->json, t->len, t->prompt, &text, err)
                              : bn_chat_render(chat, t->msgs, t->n_msgs, t->prompt, &text, err);
    if (s == BITNET_OK) s = give(out, n, text.data, text.len, 1, err);
    bn_buf_free(&text);
    bn_chat_close(chat);
    return s;
}

static bitnet_status encode(const bitnet_model *m, const struct talk *t, const char *chat_template,
                            int32_t *tokens, size_t *n, bitnet_error *err)
{
    struct bn_chat *chat;
    BN_TRY(open_chat(&chat, m, chat_template, err));
    const struct bn_tokenizer *by = m->m->tokenizer;
    struct bn_tokens ids = {0};
    bitnet_status s = t->json ? bn_chat_encode_json(chat, by, t->json, t->len, t->prompt, &ids, err)
                              : bn_chat_encode(chat, by, t->msgs, t->n_msgs, t->prompt, &ids, err);
    if (s == BITNET_OK) s = give(tokens, n, ids.ids, ids.n, sizeof *tokens, err);
    bn_tokens_free(&ids);
    bn_chat_close(chat);
    return s;
}

bitnet_status bitnet_chat_render(const bitnet_model *m, const bitnet_message *msgs, size_t n_msgs,
                                 const char *chat_template, int add_generation_prompt, char *out,
                                 size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && (msgs || n_msgs == 0), err, "an argument is NULL");
    const struct talk t = {.msgs = msgs, .n_msgs = n_msgs, .prompt = add_generation_prompt != 0};
    return render(m, &t, chat_template, out, n, err);
}

bitnet_status bitnet_chat_encode(const bitnet_model *m, const bitnet_message *msgs, size_t n_msgs,
                                 const char *chat_template, int add_generation_prompt,
                                 int32_t *tokens, size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && (msgs || n_msgs == 0), err, "an argument is NULL");
    const struct talk t = {.msgs = msgs, .n_msgs = n_msgs, .prompt = add_generation_prompt != 0};
    return encode(m, &t, chat_template, tokens, n, err);
}

bitnet_status bitnet_chat_render_json(const bitnet_model *m, const char *json, size_t len,
                                      const char *chat_template, int add_generation_prompt,
                                      char *out, size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && json, err, "an argument is NULL");
    const struct talk t = {.json = json, .len = len, .prompt = add_generation_prompt != 0};
    return render(m, &t, chat_template, out, n, err);
}

bitnet_status bitnet_chat_encode_json(const bitnet_model *m, const char *json, size_t len,
                                      const char *chat_template, int add_generation_prompt,
                                      int32_t *tokens, size_t *n, bitnet_error *err)
{
    BN_NEED(m && n && json, err, "an argument is NULL");
    const struct talk t = {.json = json, .len = len, .prompt = add_generation_prompt != 0};
    return encode(m, &t, chat_template, tokens, n, err);
}

bitnet_status bitnet_chat_template_text(const bitnet_model *m, const char *chat_template,
                                        const char **text, bitnet_error *err)
{
    BN_NEED(m && text, err, "an argument is NULL");
    struct bn_chat *chat;
    BN_TRY(open_chat(&chat, m, chat_template, err));
    if (bn_chat_is_builtin(chat)) *text = "";
    else *text = chat_template ? chat_template : bn_tokenizer_vocab(m->m->tokenizer)->chat_template;
    bn_chat_close(chat);
    return BITNET_OK;
}

const char *bitnet_chat_template_name(size_t i) { return bn_chat_builtin_name(i); }
