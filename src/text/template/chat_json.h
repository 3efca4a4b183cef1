/* SPDX-License-Identifier: Apache-2.0
 * Conversations in JSON, read for a template; only chat*.c include it. */
#ifndef BN_TEXT_TEMPLATE_CHAT_JSON_H
#define BN_TEXT_TEMPLATE_CHAT_JSON_H

#include "json/json.h"
#include "text/template/chat.h"

struct bn_talk {
    struct bn_json *vars; /* the object; contents in parts are joined to one text */
    bitnet_message *msgs; /* for built-ins; they point into vars */
    size_t n_msgs;
};
/* builtin: the name of a built-in, which shows roles and texts only: anything else is refused. NULL:
 * a template that looks at the variables itself. */
bitnet_status bn_talk_read(struct bn_talk *t, const char *json, size_t len, const char *builtin,
                           bitnet_error *err);
void bn_talk_free(struct bn_talk *t);

#endif
