/* SPDX-License-Identifier: Apache-2.0 */
#include "app/tokens.h"

#include "base/os/mem.h"
#include <stdlib.h>

/* Text, a conversation, or one as JSON: whichever is there. */
struct source {
    const char *text, *json;
    size_t len; /* of either */
    uint32_t flags;
    const bitnet_message *msgs;
    size_t n_msgs;
    const char *chat_template;
};

static bitnet_status encode_into(int32_t *ids, size_t *n, const bitnet_model *m,
                                 const struct source *s, bitnet_error *err)
{
    if (s->text) return bitnet_encode(m, s->text, s->len, s->flags, ids, n, err);
    if (s->json)
        return bitnet_chat_encode_json(m, s->json, s->len, s->chat_template, 1, ids, n, err);
    return bitnet_chat_encode(m, s->msgs, s->n_msgs, s->chat_template, 1, ids, n, err);
}

/* A token mostly covers several bytes, so this nearly always saves a second encoding. */
static size_t estimate_room(const struct source *s)
{
    size_t room = s->len + 256;
    for (size_t i = 0; i < s->n_msgs; i++)
        room += strlen(s->msgs[i].role) + strlen(s->msgs[i].content) + 16;
    return room;
}

static bitnet_status encode(int32_t **ids, size_t *n, const bitnet_model *m,
                            const struct source *from, bitnet_error *err)
{
    size_t room = estimate_room(from);
    *ids = NULL;
    for (;;) {
        int32_t *p = bn_calloc(room, sizeof *p);
        if (!p) return bn_fail_nomem(err, room * sizeof *p, "token ids");
        size_t need = room;
        bitnet_status s = encode_into(p, &need, m, from, err);
        if (s == BITNET_OK) {
            *ids = p;
            *n = need;
            return s;
        }
        free(p);
        if (s != BITNET_E_LIMIT || need <= room) return s;
        room = need;
    }
}

bitnet_status tokens_encode(int32_t **ids, size_t *n, const bitnet_model *m, const char *text,
                            size_t len, uint32_t flags, bitnet_error *err)
{
    return encode(ids, n, m, &(struct source){.text = text, .len = len, .flags = flags}, err);
}

bitnet_status tokens_chat(int32_t **ids, size_t *n, const bitnet_model *m,
                          const bitnet_message *msgs, size_t n_msgs, const char *chat_template,
                          bitnet_error *err)
{
    const struct source s = {.msgs = msgs, .n_msgs = n_msgs, .chat_template = chat_template};
    return encode(ids, n, m, &s, err);
}

bitnet_status tokens_chat_json(int32_t **ids, size_t *n, const bitnet_model *m, const char *json,
                               size_t len, const char *chat_template, bitnet_error *err)
{
    const struct source s = {.json = json, .len = len, .chat_template = chat_template};
    return encode(ids, n, m, &s, err);
}

bitnet_status tokens_decode(char **text, size_t *n, const bitnet_model *m, const int32_t *ids,
                            size_t n_ids, uint32_t flags, bitnet_error *err)
{
    size_t need = 0;
    *text = NULL;
    bitnet_status s = bitnet_decode(m, ids, n_ids, flags, NULL, &need, err);
    if (s != BITNET_OK && (s != BITNET_E_LIMIT || need == 0)) return s;
    char *p = malloc(need + 1);
    if (!p) return bn_fail_nomem(err, need + 1, "decoded text");
    s = need ? bitnet_decode(m, ids, n_ids, flags, p, &need, err) : BITNET_OK;
    if (s != BITNET_OK) {
        free(p);
        return s;
    }
    p[need] = 0;
    *text = p;
    *n = need;
    return BITNET_OK;
}

bitnet_status tokens_from_json(int32_t **ids, size_t *n, const struct bn_json *list,
                               const char *key, bitnet_error *err)
{
    *ids = NULL;
    *n = bn_json_size(list);
    if (!bn_json_is_array(list))
        return bn_fail(err, BITNET_E_ARG, "'%s' is not a list of token ids", key);
    int32_t *p = bn_calloc(*n + 1, sizeof *p);
    if (!p) return bn_fail_nomem(err, *n * sizeof *p, "token ids");
    for (size_t i = 0; i < *n; i++) {
        const struct bn_json *id = bn_json_at(list, i);
        int64_t value = bn_json_integer(id);
        if (!bn_json_is_int(id) || value < 0 || value > INT32_MAX) {
            free(p);
            return bn_fail(err, BITNET_E_ARG, "item %zu of '%s' is not a token id", i, key);
        }
        p[i] = (int32_t)value;
    }
    *ids = p;
    return BITNET_OK;
}

bool tokens_are_several(const struct bn_json *v)
{
    size_t i;
    const struct bn_json *item;
    bn_json_each(v, i, item) if (bn_json_is_number(item)) return false;
    return bn_json_is_array(v);
}

struct mixed {
    int32_t *ids;
    size_t n, room, bytes;
};

static bitnet_status append_ids(struct mixed *to, const int32_t *ids, size_t n, bitnet_error *err)
{
    if (!bn_grow((void **)&to->ids, &to->room, to->n + n + 1, sizeof *to->ids))
        return bn_fail_nomem(err, (to->n + n + 1) * sizeof *to->ids, "token ids");
    if (n) memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
    return BITNET_OK;
}

static bitnet_status append_text(struct mixed *to, const bitnet_model *m,
                                 const struct bn_json *text, uint32_t flags, bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    BN_TRY(tokens_encode(&ids, &n, m, bn_json_text(text), bn_json_bytes(text), flags, err));
    bitnet_status s = append_ids(to, ids, n, err);
    free(ids);
    return s;
}

static bitnet_status append_id(struct mixed *to, const struct bn_json *id, size_t at,
                               const char *key, bitnet_error *err)
{
    int64_t value = bn_json_integer(id);
    if (!bn_json_is_int(id) || value < 0 || value > INT32_MAX)
        return bn_fail(err, BITNET_E_ARG, "item %zu of '%s' is neither a token id nor a text", at,
                       key);
    return append_ids(to, &(int32_t){(int32_t)value}, 1, err);
}

/* Only what comes first begins a text. */
static bitnet_status append_item(struct mixed *to, const bitnet_model *m, const struct bn_json *v,
                                 size_t at, const struct tokens_how *how, bitnet_error *err)
{
    if (!bn_json_is_string(v)) return append_id(to, v, at, how->key, err);
    to->bytes += bn_json_bytes(v);
    if (to->bytes > how->max_bytes)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' has more than %zu bytes of text", how->key,
                       how->max_bytes);
    uint32_t begins = BITNET_TOK_BOS | BITNET_TOK_BOS_AUTO;
    return append_text(to, m, v, at ? how->flags & ~begins : how->flags, err);
}

bitnet_status tokens_from_mixed(int32_t **ids, size_t *n, const bitnet_model *m,
                                const struct bn_json *v, const struct tokens_how *how,
                                bitnet_error *err)
{
    struct mixed all = {0};
    bitnet_status s = append_ids(&all, NULL, 0, err);
    *ids = NULL;
    *n = 0;
    if (s == BITNET_OK && bn_json_is_string(v)) s = append_item(&all, m, v, 0, how, err);
    else if (s == BITNET_OK && !bn_json_is_array(v))
        s = bn_fail(err, BITNET_E_ARG, "'%s' is neither a text nor a list of token ids", how->key);
    for (size_t i = 0; s == BITNET_OK && i < bn_json_size(v); i++)
        s = append_item(&all, m, bn_json_at(v, i), i, how, err);
    if (s != BITNET_OK) {
        free(all.ids);
        return s;
    }
    *ids = all.ids;
    *n = all.n;
    return BITNET_OK;
}

bitnet_status tokens_open_thinking(bool *open, const bitnet_model *m, const int32_t *ids, size_t n,
                                   bitnet_error *err)
{
    enum { TAIL = 8 }; /* tokens; the tag and a line end are fewer, whatever the vocabulary */
    size_t k = bn_min_size(n, TAIL), len;
    char *text;
    BN_TRY(tokens_decode(&text, &len, m, ids + n - k, k, BITNET_TOK_SPECIAL, err));
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == ' ')) len--;
    *open = len >= 7 && memcmp(text + len - 7, "<think>", 7) == 0;
    free(text);
    return BITNET_OK;
}
