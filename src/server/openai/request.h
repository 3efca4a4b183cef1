/* SPDX-License-Identifier: Apache-2.0
 *
 * openai/request.h: the body of an OpenAI request as a bitnet_request. Every member of a body is
 * known by name: it is taken over, or it cannot change the result and is passed over, or it is an
 * error. A misspelt option never changes a result in silence.
 */
#ifndef BN_SERVER_OPENAI_REQUEST_H
#define BN_SERVER_OPENAI_REQUEST_H

#include "json/json.h"
#include "base/os/mem.h"
#include "server/openai/reasoning.h"

enum {
    OPENAI_MAX_MESSAGES = 4096,
    OPENAI_MAX_MODEL_BYTES = 256, /* of its name, which every chunk repeats */
    OPENAI_MAX_PROMPTS = 128,     /* of one completion */
    OPENAI_MAX_CHOICES = 128,     /* of all prompts together */
    OPENAI_MAX_STRINGS = 32,      /* in a list: stop strings, breakers */
    OPENAI_MAX_BIASES = 1024,
    OPENAI_MAX_BIAS = 100, /* either way */
    OPENAI_MAX_TOP_LOGPROBS = 20,
    OPENAI_MAX_SCORED = 1 << 18 /* log-probabilities of prompts in one reply */
};

enum openai_kind { OPENAI_CHAT, OPENAI_COMPLETION, OPENAI_RESPONSE };

/* What is asked for at a path: "/v1/chat/completions", "/v1/completions" or "/v1/responses". */
bitnet_status openai_kind_of(enum openai_kind *out, const char *url, bitnet_error *err);

/* For bodies that do not say it themselves. */
struct openai_defaults {
    uint32_t max_tokens; /* 0: as many as fit the context */
    uint64_t seed;
    const bitnet_model *model; /* for what it recommends; NULL: nothing */
};

/* A completion has one or several prompts, everything else one. */
struct openai_prompt {
    const char *text; /* NULL: tokens came, or a conversation */
    size_t bytes;
    int32_t *tokens; /* also what the text is encoded to */
    size_t n_tokens;
};

struct tools;

struct openai_request {
    enum openai_kind kind;
    bitnet_request request; /* of every prompt; its tokens are filled in by openai_request_at */
    const char *model;      /* as the body names it, "" if it does not; nothing is chosen by it */
    bool stream, include_usage, echo;
    enum reasoning_mode reasoning; /* whether choices have some; known once it is encoded */
    bool parallel;                 /* several tools may be called in one choice */
    bool seeded;                   /* the body says which seed */
    struct openai_prompt *prompts; /* [n_prompts], one of a conversation */
    size_t n_prompts;
    struct bn_json *messages; /* of a conversation, as the template sees them */
    struct tools *tools;      /* that the model may call; NULL: none */
    /* why it was refused, for openai_error_json: the member at fault and OpenAI's word for it; NULL:
     * not known. Still there when the request has failed. */
    const char *param, *code;
    /* what the pointers point into */
    struct bn_json *body; /* NULL: released */
    struct bn_arena arena;
};

/* Holds on to the body; nothing of a failed request need be freed. */
bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind,
                                  struct bn_json *body, const struct openai_defaults *d,
                                  bitnet_error *err);
/* What the template is to render, with the variables that the body has for it. */
struct bn_json *openai_conversation(const struct openai_request *r, const char *template_text);
/* Turns the prompts into tokens, and tools into a constraint on choices. chat_template: as in
 * bitnet_chat_encode. */
bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err);
/* Refuses prompts that leave no room for a completion, or whose echo would be too long. */
bitnet_status openai_request_fits(struct openai_request *r, uint32_t ctx_tokens, bitnet_error *err);
/* What to submit for prompt i; borrows from r. */
void openai_request_at(const struct openai_request *r, size_t i, bitnet_request *out);
/* Once its reply or stream is open: lets go of the body, which as JSON takes many times its bytes. What
 * is to be submitted stays. */
void openai_request_release(struct openai_request *r);
void openai_request_free(struct openai_request *r);

/* An object that has members of this list (ended by NULL) only. */
bitnet_status openai_check_members(const struct bn_json *v, const char *const *known,
                                   const char *what, bitnet_error *err);

#endif
