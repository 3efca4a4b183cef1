/* SPDX-License-Identifier: Apache-2.0
 *
 * openai_request.h: the body of an OpenAI request as a bitnet_request. Every member of a body is
 * known by name: it is taken over, or it cannot change the answer and is passed over, or it is an
 * error. A misspelt option never changes an answer in silence.
 */
#ifndef BN_SERVER_OPENAI_REQUEST_H
#define BN_SERVER_OPENAI_REQUEST_H

#include "base/json.h"
#include "base/mem.h"

enum {
    OPENAI_MAX_MESSAGES = 4096,
    OPENAI_MAX_CHOICES = 128,
    OPENAI_MAX_STRINGS = 32, /* in a list: stop strings, breakers */
    OPENAI_MAX_BIASES = 1024,
    OPENAI_MAX_BIAS = 100, /* either way */
    OPENAI_MAX_TOP_LOGPROBS = 20
};

enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION };

/* What is asked for at a path: "/v1/chat/completions" or "/v1/completions". */
bitnet_status openai_kind_of(enum openai_kind *out, const char *url, bitnet_error *err);

/* For bodies that do not say it themselves. */
struct openai_defaults {
    uint32_t max_tokens; /* 0: as many as fit the context */
    uint64_t seed;
};

struct openai_request {
    enum openai_kind kind;
    bitnet_request request; /* its tokens are there after openai_request_encode */
    const char *model;      /* as the body names it, "" if it does not; nothing is chosen by it */
    bool stream;
    /* the prompt is one of these */
    bitnet_message *messages;
    size_t n_messages;
    const char *prompt;
    size_t prompt_bytes;
    int32_t *tokens; /* also what the others are encoded to */
    size_t n_tokens;
    /* what the pointers point into */
    json_t *body;
    struct bn_arena arena;
};

/* Holds on to the body; nothing of a failed request need be freed. */
bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind, json_t *body,
                                  const struct openai_defaults *d, bitnet_error *err);
/* Turns the prompt into tokens. chat_template: as in bitnet_chat_encode. */
bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err);
void openai_request_free(struct openai_request *r);

#endif
