/* SPDX-License-Identifier: Apache-2.0
 *
 * tokens.h: the library's "ask for the room, then call again" turned into one call that returns
 * memory (free()).
 */
#ifndef BN_APP_TOKENS_H
#define BN_APP_TOKENS_H

#include "json/json.h"

bitnet_status tokens_encode(int32_t **ids, size_t *n, const bitnet_model *m, const char *text,
                            size_t len, uint32_t flags, bitnet_error *err);
bitnet_status tokens_decode(char **text, size_t *n, const bitnet_model *m, const int32_t *ids,
                            size_t n_ids, uint32_t flags, bitnet_error *err);
bitnet_status tokens_chat(int32_t **ids, size_t *n, const bitnet_model *m,
                          const bitnet_message *msgs, size_t n_msgs, const char *chat_template,
                          bitnet_error *err);
/* The same of a conversation as JSON: see bitnet_chat_encode_json. */
bitnet_status tokens_chat_json(int32_t **ids, size_t *n, const bitnet_model *m, const char *json,
                               size_t len, const char *chat_template, bitnet_error *err);
/* Does a prompt end with <think>, so that the answer begins inside of what is no answer yet? */
bitnet_status tokens_open_thinking(bool *open, const bitnet_model *m, const int32_t *ids, size_t n,
                                   bitnet_error *err);
/* A list of ids. key: what the list is called in errors. */
bitnet_status tokens_from_json(int32_t **ids, size_t *n, const struct bn_json *list,
                               const char *key, bitnet_error *err);
/* A text, or a list of ids and texts, which follow each other. */
struct tokens_how {
    const char *key;  /* what it is called in errors */
    size_t max_bytes; /* of all texts together */
    uint32_t flags;   /* of tokens_encode; what a text begins with, only where it comes first */
};
bitnet_status tokens_from_mixed(int32_t **ids, size_t *n, const bitnet_model *m,
                                const struct bn_json *v, const struct tokens_how *how,
                                bitnet_error *err);
/* Is it a list of several of these, and not one? */
bool tokens_are_several(const struct bn_json *v);

#endif
