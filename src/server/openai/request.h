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
#include "server/openai/ignored.h"
#include "server/openai/reasoning.h"

enum {
    OPENAI_MAX_MESSAGES = 4096,
    OPENAI_MAX_MODEL_BYTES = 256, /* of its name, which every chunk repeats */
    OPENAI_MAX_PROMPTS = 128,     /* of one completion */
    OPENAI_MAX_CHOICES = 128,     /* of all prompts together */
    OPENAI_MAX_STRINGS = 32,      /* in a list: stop strings, breakers */
    OPENAI_MAX_STOP_TOKENS = 64,
    OPENAI_MAX_BIASES = 1024,
    OPENAI_MAX_BIAS = 100, /* either way */
    OPENAI_MAX_TEMPERATURE = 5,
    OPENAI_MAX_PRIORITY = 1000000, /* either way */
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
    uint32_t given;            /* bits of what the server's options say about sampling */
    bitnet_sampling sampling;  /* what they say */
    int64_t now_s;             /* for templates that show the date; 0: none */
    uint32_t ctx_tokens;       /* with truncate: what a conversation has to fit into */
    bool truncate;             /* conversations that do not fit lose their oldest exchanges */
    enum openai_thinking {
        OPENAI_THINKING_ASIS,
        OPENAI_THINKING_OFF,
        OPENAI_THINKING_ON
    } thinking;       /* for templates that know "enable_thinking" */
    bool strict;      /* unknown members are refused, not ignored */
    bool as_llamacpp; /* replies at OpenAI's paths are llama-server's where the two differ */
};

/* A completion has one or several prompts, everything else one. */
struct openai_prompt {
    const char *text; /* NULL: tokens came, or a conversation */
    size_t bytes;
    int32_t *tokens; /* also what the text is encoded to */
    size_t n_tokens;
};

/* An adapter that a request names by its number. */
struct openai_lora {
    uint32_t id;
    float scale;
};

struct dialect;
struct tools;

struct openai_request {
    enum openai_kind kind; /* which members its body may have, and what the reply gathers */
    const struct dialect
        *dialect;           /* of body and reply; that of the kind, if none has set its own */
    bitnet_request request; /* of every prompt; its tokens are filled in by openai_request_at */
    const char *model;      /* as the body names it, "" if it does not; nothing is chosen by it */
    bool stream, include_usage, echo;
    enum reasoning_mode reasoning; /* whether choices have some; known once it is encoded */
    bool parallel;                 /* several tools may be called in one choice */
    bool seeded;                   /* the body says which seed */
    bool ranked;                   /* the body says which priority */
    bool timings;                  /* the reply is to say how long things took */
    bool verbose;                  /* and what the model saw */
    bool plain_reasoning;          /* reasoning stays in the text */
    /* The last message is the beginning of the reply, and no turn of its own. AUTO: if it is an
     * assistant's */
    enum openai_continue { OPENAI_CONTINUE_AUTO, OPENAI_CONTINUE_NO, OPENAI_CONTINUE } go_on;
    /* these as the defaults say, or the body */
    int64_t now_s;
    uint32_t ctx_tokens;
    bool truncate;
    enum openai_thinking thinking;
    size_t n_dropped;   /* messages that were left out */
    bool progress;      /* a stream is to say how far the prompt was read */
    bool prompt_scores; /* the reply is to say how likely the prompt's tokens are */
    bool logprobs;      /* the reply is to have log-probabilities of choices */
    uint32_t n_told;    /* choices of each prompt that the reply tells */
    uint32_t
        best_of; /* so many choices are computed of each prompt, the best of them told; 0: all */
    bool no_reply_turn; /* the conversation is not to end with the beginning of a reply */
    const bitnet_model *model_of_words; /* for members that are words to be encoded; may be NULL */
    struct openai_ignored ignored;
    bool special;                  /* special tokens are recognised in prompts */
    struct openai_prompt *prompts; /* [n_prompts], one of a conversation */
    size_t n_prompts;
    struct bn_json *messages; /* of a conversation, as the template sees them */
    const struct openai_lora
        *lora; /* [n_lora] adapters, as the body lists them; NULL: it does not */
    size_t n_lora;
    uint32_t slot;       /* by which its text is to be remembered, + 1; 0: any */
    struct tools *tools; /* that the model may call; NULL: none */
    /* why it was refused, for openai_error_json: the member at fault and OpenAI's word for it; NULL:
     * not known. Still there when the request has failed. */
    const char *param, *code;
    uint64_t n_too_long; /* tokens of a prompt that does not fit; 0: it is something else */
    /* what the pointers point into */
    struct bn_json *body; /* NULL: released */
    struct bn_arena arena;
};

/* How requests sample that do not say it, over what is in *s (or NULL): what the options say, else what the
 * model recommends. Returns the bits of both (bitnet_model_sampling). */
uint32_t openai_default_sampling(bitnet_sampling *s, const struct openai_defaults *d);
/* Holds on to the body; nothing of a failed request need be freed. */
bitnet_status openai_request_read(struct openai_request *r, enum openai_kind kind,
                                  struct bn_json *body, const struct openai_defaults *d,
                                  bitnet_error *err);
/* What the template is to render, with the variables that the body has for it. */
struct bn_json *openai_conversation(const struct openai_request *r, const char *template_text);
/* The text of the last message, if the reply goes on where it ends; it is not in the conversation. NULL:
 * the reply begins anew. */
const struct bn_json *openai_prefill(const struct openai_request *r);
/* Turns the prompts into tokens, and tools into a constraint on choices. chat_template: as in
 * bitnet_chat_encode. */
bitnet_status openai_request_encode(struct openai_request *r, const bitnet_model *m,
                                    const char *chat_template, bitnet_error *err);
/* Tokenizing takes time: prompts with more bytes than this are refused before. */
bitnet_status openai_check_bytes(struct openai_request *q, uint64_t most, bitnet_error *err);
/* Refuses prompts that leave no room for a completion, or whose echo would be too long. */
bitnet_status openai_request_fits(struct openai_request *r, uint32_t ctx_tokens, bitnet_error *err);
/* What to submit for prompt i; borrows from r. */
void openai_request_at(const struct openai_request *r, size_t i, bitnet_request *out);
/* Once its reply or stream is open: lets go of the body, which as JSON takes many times its bytes. What
 * is to be submitted stays. */
void openai_request_release(struct openai_request *r);
void openai_request_free(struct openai_request *r);

/* A JSON Schema of the bodies of this kind, member by member; NULL: out of memory. (request_fields.c) */
struct bn_json *openai_body_schema(enum openai_kind kind);

/* {"id", "scale"}; without a scale 1. */
bitnet_status openai_lora_read(struct openai_lora *out, const struct bn_json *v, const char *what,
                               bitnet_error *err);

/* An object that has members of this list (ended by NULL) only. */
bitnet_status openai_check_members(const struct bn_json *v, const char *const *known,
                                   const char *what, bitnet_error *err);

#endif
