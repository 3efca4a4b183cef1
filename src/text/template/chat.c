/* SPDX-License-Identifier: Apache-2.0
 * The choice of a chat template, and conversations to text and tokens with it.
 *
 * A template is Jinja text, also the built-in ones: there is one mechanism. What a family needs
 * beyond its text is a flag: "bitnet" is encoded piece by piece, as it was trained: [BOS], then
 * for every message the tokens of "User: ", those of the trimmed content and the token <|eot_id|>,
 * then those of "Assistant: ". The space after the colon is a token of its own there, which
 * encoding the whole text would not give. */
#include "text/template/chat_json.h"
#include "text/template/jinja.h"

#include <stdlib.h>

enum { MAX_CHAT_BYTES = BN_JINJA_MAX_OUTPUT };

struct builtin {
    const char *name;
    const char *marker; /* a token that tells the family, NULL: never chosen by tokens */
    bool segments;      /* encoded piece by piece; contents cannot hold special tokens */
    bool no_special;    /* no markup: special tokens are not recognised in the text    */
    const char *text;
};

static const struct builtin builtins[] = {
    {"llama3", "<|start_header_id|>", false, false,
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"chatml", "<|im_start|>", false, false,
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"bitnet", "<|eot_id|>", true, false,
     "{% for m in messages %}{{ m.role | capitalize }}: {{ m.content | trim }}<|eot_id|>{% endfor "
     "%}"
     "{% if add_generation_prompt %}Assistant: {% endif %}"},
    {"falcon3", NULL, false, false,
     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
     "{{ eos_token if m.role == 'assistant' }}{{ '\\n' if not loop.last or m.role != 'assistant' "
     "}}{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"llama2", NULL, false, false,
     "{% set ns = namespace(system='', user=true) %}{% for m in messages %}"
     "{% if m.role == 'system' and loop.first %}"
     "{% set ns.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}"
     "{% elif (m.role == 'user') != ns.user or m.role not in ['user', 'assistant'] %}"
     "{{ raise_exception('llama2: after an optional system message, user and assistant must "
     "alternate') }}"
     "{% elif ns.user %}{{ bos_token }}[INST] {{ (ns.system + m.content) | trim }} [/INST]"
     "{% set ns.system = '' %}{% set ns.user = false %}"
     "{% else %} {{ m.content | trim }} {{ eos_token }}{% set ns.user = true %}{% endif %}{% "
     "endfor %}"},
    {"command-r", NULL, false, false,
     "{% for m in messages %}<|START_OF_TURN_TOKEN|>"
     "<|{{ 'CHATBOT' if m.role == 'assistant' else m.role | upper }}_TOKEN|>{{ m.content | trim }}"
     "<|END_OF_TURN_TOKEN|>{% endfor %}"
     "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"},
    {"plain", NULL, false, true,
     "{% for m in messages %}{{ m.content }}{{ '\\n' if not loop.last }}{% endfor %}"},
};

struct bn_chat {
    struct bn_arena arena; /* the texts below */
    struct bn_jinja *jinja;
    const struct builtin *builtin; /* NULL: text that came with the model or from the caller */
    bool add_bos;
    int32_t bos, eot;
    const char *bos_text, *eos_text; /* "" if none */
};

const char *bn_chat_builtin_name(size_t i)
{
    return i < BN_ARRAY_LEN(builtins) ? builtins[i].name : NULL;
}

static const struct builtin *find_builtin(const char *name)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(builtins); i++)
        if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
    return NULL;
}

/* Id of the token with this text, -1 if there is none. */
static int32_t find_token(const struct bn_vocab *v, const char *text)
{
    size_t n = strlen(text);
    for (uint32_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].n == n && memcmp(v->tokens[i].s, text, n) == 0) return (int32_t)i;
    return -1;
}

/* "llama3, chatml, ..." */
static void list_builtins(char *out, size_t room)
{
    out[0] = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(builtins); i++) {
        if (i) strncat(out, ", ", room - strlen(out) - 1);
        strncat(out, builtins[i].name, room - strlen(out) - 1);
    }
}

static bitnet_status render_text(const struct bn_chat *c, const struct bn_jinja *j,
                                 const bitnet_message *msgs, size_t n, bool add_generation_prompt,
                                 struct bn_buf *out, bitnet_error *err)
{
    const struct bn_chat_vars vars = {.msgs = msgs,
                                      .n_msgs = n,
                                      .add_generation_prompt = add_generation_prompt,
                                      .bos_token = c->bos_text,
                                      .eos_token = c->eos_text};
    return bn_jinja_render(j, &vars, out, err);
}

/* Does the template write conversations as the built-in "bitnet" does, a leading BOS aside? Tried
 * out rather than read: it has been published in several spellings. An error: memory is out. */
static bitnet_status writes_like(const struct bn_chat *c, const struct bn_jinja *other, bool *same,
                                 bitnet_error *err)
{
    static const bitnet_message probe[] = {{"system", " Be brief.\n"},
                                           {"user", "\tHello <there>"},
                                           {"assistant", "Yes: "},
                                           {"user", "a\n\nb"}};
    struct bn_buf mine, its;
    bn_buf_init(&mine, MAX_CHAT_BYTES);
    bn_buf_init(&its, MAX_CHAT_BYTES);
    bitnet_status s = render_text(c, c->jinja, probe, BN_ARRAY_LEN(probe), true, &mine, err);
    if (s == BITNET_OK) s = render_text(c, other, probe, BN_ARRAY_LEN(probe), true, &its, err);
    *same = s == BITNET_OK;
    if (*same) {
        size_t bos = strlen(c->bos_text);
        size_t skip = its.len >= bos && memcmp(its.data, c->bos_text, bos) == 0 ? bos : 0;
        *same = its.len - skip == mine.len && memcmp(its.data + skip, mine.data, mine.len) == 0;
    }
    bn_buf_free(&mine);
    bn_buf_free(&its);
    return s == BITNET_E_NOMEM ? s : BITNET_OK;
}

static bitnet_status use_builtin(struct bn_chat *c, const struct builtin *b, bitnet_error *err)
{
    if (b->segments && c->eot < 0)
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "chat template '%s' needs the token '<|eot_id|>', which the vocabulary does not have",
            b->name);
    c->builtin = b;
    return bn_jinja_parse(&c->jinja, b->text, strlen(b->text), err);
}

/* The vocabulary's own template, or the built-in that should stand in its place. */
static bitnet_status use_own(struct bn_chat *c, const char *text, const char **note,
                             bitnet_error *err)
{
    const struct builtin *bitnet = find_builtin("bitnet");
    if (strstr(text, "BITNETAssistant")) {
        *note = "the chat template in the file is known to be wrong (it ends the prompt with an "
                "end-of-text token): "
                "the built-in 'bitnet' is used instead";
        return use_builtin(c, bitnet, err);
    }
    struct bn_jinja *own;
    BN_TRY(bn_jinja_parse(&own, text, strlen(text), err));
    if (c->eot >= 0) {
        bool same = false;
        bitnet_status st = use_builtin(c, bitnet, err);
        if (st == BITNET_OK) st = writes_like(c, own, &same, err);
        if (st != BITNET_OK || same) {
            bn_jinja_free(own);
            return st;
        }
        bn_jinja_free(c->jinja);
        c->builtin = NULL;
    }
    c->jinja = own;
    return BITNET_OK;
}

/* No template at all: the family whose tokens the vocabulary has. */
static bitnet_status use_family(struct bn_chat *c, const struct bn_vocab *v, bitnet_error *err)
{
    char names[128];
    for (size_t i = 0; i < BN_ARRAY_LEN(builtins); i++) {
        const struct builtin *b = &builtins[i];
        if (!b->marker || find_token(v, b->marker) < 0) continue;
        if (b->segments && find_token(v, "<|begin_of_text|>") < 0) continue;
        return use_builtin(c, b, err);
    }
    list_builtins(names, sizeof names);
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "the model has no chat template and no tokens that tell one; choose one of: %s",
                   names);
}

static bitnet_status choose(struct bn_chat *c, const struct bn_vocab *v, const char *wanted,
                            const char **note, bitnet_error *err)
{
    char names[128];
    if (!wanted && v->chat_template && v->chat_template[0])
        return use_own(c, v->chat_template, note, err);
    if (!wanted) return use_family(c, v, err);
    const struct builtin *b = find_builtin(wanted);
    if (b) return use_builtin(c, b, err);
    if (strstr(wanted, "{%") || strstr(wanted, "{{"))
        return bn_jinja_parse(&c->jinja, wanted, strlen(wanted), err);
    list_builtins(names, sizeof names);
    return bn_fail(err, BITNET_E_ARG, "no chat template is called '%.60s'; there are: %s", wanted,
                   names);
}

/* Copies: the vocabulary may be closed before the chat. */
static bool copy_token(struct bn_chat *c, const struct bn_vocab *v, int32_t id, const char **out)
{
    bool has = id >= 0 && (uint32_t)id < v->n_tokens;
    *out = bn_arena_strn(&c->arena, has ? v->tokens[id].s : "", has ? v->tokens[id].n : 0);
    return *out != NULL;
}

bitnet_status bn_chat_open(struct bn_chat **out, const struct bn_vocab *v, const char *wanted,
                           const char **note, bitnet_error *err)
{
    const char *said = NULL;
    *out = NULL;
    struct bn_chat *c = bn_calloc(1, sizeof *c);
    if (!c) return bn_fail_nomem(err, sizeof *c, "a chat template");
    c->add_bos = v->add_bos;
    c->bos = v->bos;
    c->eot = find_token(v, "<|eot_id|>");
    bitnet_status st = BITNET_OK;
    if (!copy_token(c, v, v->bos, &c->bos_text) || !copy_token(c, v, v->eos, &c->eos_text))
        st = bn_fail_nomem(err, BN_VOCAB_MAX_TOKEN_BYTES, "a chat template");
    if (st == BITNET_OK) st = choose(c, v, wanted, &said, err);
    if (st != BITNET_OK) {
        bn_chat_close(c);
        return st;
    }
    if (note) *note = said;
    *out = c;
    return BITNET_OK;
}

void bn_chat_close(struct bn_chat *c)
{
    if (!c) return;
    bn_jinja_free(c->jinja);
    bn_arena_free(&c->arena);
    free(c);
}

bool bn_chat_is_builtin(const struct bn_chat *c) { return c->builtin != NULL; }

static bitnet_status check_messages(const bitnet_message *msgs, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!msgs[i].role || !msgs[i].content)
            return bn_fail(err, BITNET_E_ARG, "message %zu has no %s", i,
                           msgs[i].role ? "content" : "role");
    return BITNET_OK;
}

bitnet_status bn_chat_render(const struct bn_chat *c, const bitnet_message *msgs, size_t n,
                             bool add_generation_prompt, struct bn_buf *out, bitnet_error *err)
{
    BN_TRY(check_messages(msgs, n, err));
    return render_text(c, c->jinja, msgs, n, add_generation_prompt, out, err);
}

static bitnet_status push_token(struct bn_tokens *out, int32_t id, bitnet_error *err)
{
    if (!bn_grow((void **)&out->ids, &out->room, out->n + 1, sizeof *out->ids))
        return bn_fail_nomem(err, (out->n + 1) * sizeof *out->ids, "tokens");
    out->ids[out->n++] = id;
    return BITNET_OK;
}

/* "User: " for "user" */
static bitnet_status encode_header(const struct bn_tokenizer *t, const char *role,
                                   struct bn_tokens *out, bitnet_error *err)
{
    enum { MAX_ROLE_BYTES = 64 };
    char text[MAX_ROLE_BYTES + 3];
    size_t n = strlen(role);
    if (n > MAX_ROLE_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "a role of %zu bytes, at most %d are allowed", n,
                       MAX_ROLE_BYTES);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)role[i];
        bool letter = (c | 0x20u) - 'a' < 26u;
        text[i] = (char)(!letter ? c : i == 0 ? c & ~0x20u : c | 0x20u);
    }
    memcpy(text + n, ": ", 2);
    return bn_encode(t, text, n + 2, 0, out, err);
}

static bitnet_status encode_segments(const struct bn_chat *c, const struct bn_tokenizer *t,
                                     const bitnet_message *msgs, size_t n,
                                     bool add_generation_prompt, struct bn_tokens *out,
                                     bitnet_error *err)
{
    if (c->bos >= 0) BN_TRY(push_token(out, c->bos, err));
    for (size_t i = 0; i < n; i++) {
        const char *s = msgs[i].content;
        size_t len = strlen(s);
        bn_text_strip(&s, &len, NULL, 0, 3);
        BN_TRY(encode_header(t, msgs[i].role, out, err));
        BN_TRY(bn_encode(t, s, len, 0, out, err));
        BN_TRY(push_token(out, c->eot, err));
    }
    return add_generation_prompt ? encode_header(t, "assistant", out, err) : BITNET_OK;
}

/* The text of a whole conversation; BOS exactly once. */
static bitnet_status encode_text(const struct bn_chat *c, const struct bn_tokenizer *t,
                                 const struct bn_buf *text, struct bn_tokens *out,
                                 bitnet_error *err)
{
    bool special = !(c->builtin && c->builtin->no_special);
    size_t bos = strlen(c->bos_text);
    bool has_bos = bos > 0 && text->len >= bos && memcmp(text->data, c->bos_text, bos) == 0;
    uint32_t flags = special ? BITNET_TOK_SPECIAL : 0;
    if (c->bos >= 0 && c->add_bos && (!has_bos || !special)) flags |= BITNET_TOK_BOS;
    return bn_encode(t, text->data ? text->data : "", text->len, flags, out, err);
}

bitnet_status bn_chat_encode(const struct bn_chat *c, const struct bn_tokenizer *t,
                             const bitnet_message *msgs, size_t n, bool add_generation_prompt,
                             struct bn_tokens *out, bitnet_error *err)
{
    BN_TRY(check_messages(msgs, n, err));
    if (c->builtin && c->builtin->segments)
        return encode_segments(c, t, msgs, n, add_generation_prompt, out, err);
    struct bn_buf text;
    bn_buf_init(&text, MAX_CHAT_BYTES);
    bitnet_status st = render_text(c, c->jinja, msgs, n, add_generation_prompt, &text, err);
    if (st == BITNET_OK) st = encode_text(c, t, &text, out, err);
    bn_buf_free(&text);
    return st;
}

/* ------------------------------------------------------------------ conversations in JSON */

static bool set_text(struct bn_json *vars, const char *name, const char *text)
{
    return bn_json_set(vars, name, bn_json_raw(text, strlen(text)));
}

/* With the variables that bn_jinja_render defines. Beside them the conversation may say "now_s": the time
 * for strftime_now, which otherwise is not defined. */
static bitnet_status render_vars(const struct bn_chat *c, struct bn_json *vars,
                                 bool add_generation_prompt, struct bn_buf *out, bitnet_error *err)
{
    static const char *const none[] = {"tools", "documents"};
    int64_t now_s = bn_json_integer(bn_json_get(vars, "now_s"));
    bn_json_del(vars, "now_s");
    bool ok = set_text(vars, "bos_token", c->bos_text) &&
              set_text(vars, "eos_token", c->eos_text) &&
              bn_json_set(vars, "add_generation_prompt", bn_json_bool(add_generation_prompt));
    for (size_t i = 0; i < BN_ARRAY_LEN(none); i++)
        if (!bn_json_get(vars, none[i])) ok = ok && bn_json_set(vars, none[i], bn_json_null());
    if (!ok) return bn_fail_nomem(err, 0, "the variables of a chat template");
    return bn_jinja_render_json(c->jinja, vars, now_s, out, err);
}

bitnet_status bn_chat_render_json(const struct bn_chat *c, const char *json, size_t len,
                                  bool add_generation_prompt, struct bn_buf *out, bitnet_error *err)
{
    struct bn_talk talk;
    BN_TRY(bn_talk_read(&talk, json, len, c->builtin ? c->builtin->name : NULL, err));
    if (bn_json_is_false(bn_json_get(talk.vars, "add_generation_prompt")))
        add_generation_prompt = false;
    bitnet_status st =
        c->builtin ? bn_chat_render(c, talk.msgs, talk.n_msgs, add_generation_prompt, out, err)
                   : render_vars(c, talk.vars, add_generation_prompt, out, err);
    bn_talk_free(&talk);
    return st;
}

bitnet_status bn_chat_encode_json(const struct bn_chat *c, const struct bn_tokenizer *t,
                                  const char *json, size_t len, bool add_generation_prompt,
                                  struct bn_tokens *out, bitnet_error *err)
{
    struct bn_talk talk;
    BN_TRY(bn_talk_read(&talk, json, len, c->builtin ? c->builtin->name : NULL, err));
    if (bn_json_is_false(bn_json_get(talk.vars, "add_generation_prompt")))
        add_generation_prompt = false;
    bitnet_status st;
    if (c->builtin) {
        st = bn_chat_encode(c, t, talk.msgs, talk.n_msgs, add_generation_prompt, out, err);
    } else {
        struct bn_buf text;
        bn_buf_init(&text, MAX_CHAT_BYTES);
        st = render_vars(c, talk.vars, add_generation_prompt, &text, err);
        if (st == BITNET_OK) st = encode_text(c, t, &text, out, err);
        bn_buf_free(&text);
    }
    bn_talk_free(&talk);
    return st;
}
