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
