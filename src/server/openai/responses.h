/* SPDX-License-Identifier: Apache-2.0
 *
 * responses.h: the object that /v1/responses answers with, whole and in parts. Nothing is stored, so
 * a response cannot be asked for again. Functions return NULL when they are out of memory.
 */
#ifndef BN_SERVER_OPENAI_RESPONSES_H
#define BN_SERVER_OPENAI_RESPONSES_H

#include "server/openai/reply.h"

/* Options of the request that a response repeats. */
struct bn_json *responses_echo(const struct openai_request *q);

/* The response at its end, or, if not `ended`, as it begins. */
struct bn_json *responses_json(const struct openai_reply *r, bool ended, bool with_cached);

/* Items of the output, and where they stand in it: the text, and the calls. */
struct bn_json *responses_message(const struct openai_reply *r, bool ended);
struct bn_json *responses_call(const struct openai_reply *r, size_t i, bool ended);
size_t responses_message_index(const struct openai_reply *r);
size_t responses_call_index(const struct openai_reply *r, size_t i);
struct bn_json *responses_message_id(const struct openai_reply *r);
struct bn_json *responses_call_id(const struct openai_reply *r, size_t i);
/* What a message holds. */
struct bn_json *responses_part(const struct openai_reply *r, bool ended);

#endif
