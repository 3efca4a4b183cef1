/* SPDX-License-Identifier: Apache-2.0
 *
 * dialect.h: how an endpoint that generates text reads bodies and writes replies. A dialect is a value:
 * completions.c calls its functions and knows none by name. All of them read into the same request
 * (openai/request.h) and write from the same reply (openai/reply.h), which has gathered text, calls,
 * reasoning and counts. A new one is a room of its own (src/server/<name>) and a line in routes.c.
 */
#ifndef BN_SERVER_DIALECT_H
#define BN_SERVER_DIALECT_H

#include "server/openai/stream.h"

struct dialect {
    const char *id_prefix;   /* of the ids of its replies */
    const char *stream_type; /* the content type of its streams */
    const char *
        id_header; /* beside X-Request-Id: where its clients look for the request's id; NULL: nowhere */
    /* The body as a request, with q->dialect set. A body that is close to OpenAI's is best rewritten as
     * one and given to openai_request_read. */
    bitnet_status (*read)(struct openai_request *q, struct bn_json *body,
                          const struct openai_defaults *d, bitnet_error *err);
    /* What its replies repeat of the request, for r->echoed; NULL: nothing */
    struct bn_json *(*echo)(const struct openai_request *q);
    /* Gathers what openai_reply does not, into `own` of the choice; after openai_reply has taken the
     * event. NULL: nothing */
    bitnet_status (*take)(struct openai_reply *r, struct openai_choice *c, const bitnet_event *e,
                          bitnet_error *err);
    const char *
        opening; /* of one whose streams are chunks as OpenAI has them: members of a chat's first delta */
    /* The whole reply; NULL: out of memory. with_cached: see openai_reply_json */
    struct bn_json *(*reply)(const struct openai_reply *r, bool with_cached);
    /* Fixed text for s->head; NULL: none */
    void (*stream_head)(struct bn_buf *head, const struct openai_reply *r);
    /* Appends what was gathered to out; when openai_reply_done also the end, and sets s->ended. Out of
     * memory: out->failed. */
    void (*flush)(struct openai_stream *s, struct bn_buf *out);
    /* It cannot go on: what was gathered, the error, the end */
    void (*fail)(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);
    /* The body of an error; NULL: out of memory */
    struct bn_json *(*error)(const struct openai_fault *f);
};

/* For dialects whose penalties look back 64 tokens, and not on all, where neither `given` (a body in OpenAI's words)
 * nor the model's file says how far. */
void dialect_look_back(struct openai_request *q, const struct bn_json *given,
                       const struct openai_defaults *d);

#endif
