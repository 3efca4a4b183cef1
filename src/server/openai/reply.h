/* SPDX-License-Identifier: Apache-2.0
 *
 * openai/reply.h: the events of one request, gathered into the object that OpenAI's interface
 * answers with ("chat.completion", "text_completion", "response"), and errors in its form. What is
 * said depends on the request and the model alone, if not asked otherwise: no times, nothing about
 * caches or batch neighbours.
 */
#ifndef BN_SERVER_OPENAI_REPLY_H
#define BN_SERVER_OPENAI_REPLY_H

#include "server/openai/logprobs.h"
#include "server/openai/reasoning.h"

struct openai_choice {
    struct reasoning reasoning; /* so far */
    struct tools_parser parser; /* text and calls so far */
    struct openai_logprobs logprobs;
    bool has_text; /* there was text, or there is neither text nor call in the whole choice */
    size_t n_calls_before; /* its text */
    bitnet_finish finish;
    uint32_t n_generated;
    /* as its last event says: tokens of its prompt, of them found in the prefix cache; times */
    uint32_t n_prompt, n_cached, n_read;
    double sum;           /* of its log-probabilities */
    struct bn_buf scores; /* of the prompt, as JSON, without the brackets */
    uint64_t queue_ns, prefill_ns, decode_ns;
    char *stop;        /* the stop string that has ended it; NULL: none has */
    struct bn_buf own; /* what its dialect gathers beside this */
};

struct openai_reply {
    enum openai_kind kind;
    const struct dialect *dialect;
    char *id, *model;
    uint64_t created;
    bool logprobs;
    bool timings;                  /* say how long things took */
    struct openai_choice *choices; /* [n_choices]: those of the first prompt, of the second, ... */
    uint32_t n_choices, n_done;
    uint32_t n_each;  /* choices of one prompt */
    uint32_t n_told;  /* of them: the best, if fewer */
    size_t n_dropped; /* messages of the conversation that were left out */
    bool progress;    /* say how far the prompt was read */
    bool echo, prompt_scores;
    /* with tools: a choice that is this long and calls none was cut off, whatever the engine says: to it
     * a text before calls is complete at any time; 0: no such length */
    uint32_t cut_tokens;
    uint64_t n_prompt, n_cached; /* tokens of all prompts */
    struct bn_json *echoed;      /* members of the request that it repeats; NULL: none */
    bitnet_error error;          /* status other than OK: the engine gave the request up */
};

/* The request, encoded, may be freed afterwards. The model must outlive the reply. id: without the
 * part that says its kind. */
bitnet_status openai_reply_open(struct openai_reply *r, const struct openai_request *q,
                                const bitnet_model *m, const char *id, uint64_t created,
                                bitnet_error *err);
/* An event of this request's prompt i. */
bitnet_status openai_reply_take(struct openai_reply *r, size_t i, const bitnet_event *e,
                                bitnet_error *err);
bool openai_reply_done(const struct openai_reply *r);
/* In the words of its dialect. with_cached: tell how many tokens of the prompts were in the prefix cache, which depends on
 * batch neighbours. NULL: out of memory. */
struct bn_json *openai_reply_json(const struct openai_reply *r, bool with_cached);
/* About how long it will be: whole texts, log-probabilities. */
size_t openai_reply_bytes(const struct openai_reply *r);
void openai_reply_close(struct openai_reply *r); /* an open one, or one of zeros */

/* The parts of an object, for those who make it piece by piece. JSON text is dumped with flags under
 * which a float comes back as it was. */
enum { OPENAI_DUMP_FLAGS = BN_JSON_COMPACT | BN_JSON_DIGITS(9) };
struct bn_json *openai_choice_text(const struct openai_choice *c);
struct bn_json *openai_arguments_text(const struct tools_call *call);
struct bn_json *openai_logprobs_json(const struct openai_reply *r, const struct openai_choice *c);
/* "stop", "length", "tool_calls": why a choice has ended. Beside OpenAI's words there are "timeout",
 * "cancelled" and "error". */
const char *openai_finish_name(const struct openai_choice *c);
/* Tokens and times of a choice in the words of llama-server. */
struct bn_json *openai_timings_json(const struct openai_choice *c);
struct bn_json *openai_usage_json(const struct openai_reply *r, bool with_cached);

/* 400 where the request is at fault, 500 where we are. */
int openai_error_code(bitnet_status s);
/* Why a request was refused, or has failed. */
struct openai_fault {
    int status; /* of HTTP */
    const char *sentence;
    const char *param; /* the member of the body at fault; NULL: none */
    const char *code; /* OpenAI's word for what it is; NULL: none, or the usual one of the status */
    uint64_t n_prompt; /* of a prompt that does not fit: its tokens; 0: it is something else */
    uint32_t n_ctx;    /* and those of the context */
};
/* {"error": {"message", "type", "param", "code"}}, and of a prompt that does not fit "n_prompt_tokens" and
 * "n_ctx", as llama-server has them. */
struct bn_json *openai_error_json(const struct openai_fault *f);
/* Those two, in the object of an error. */
void openai_tell_lengths(struct bn_json *e, const struct openai_fault *f);
/* What went wrong here. */
struct openai_fault openai_fault_of(const bitnet_error *err);

/* A JSON string, which is strict UTF-8: other bytes become U+FFFD. */
struct bn_json *openai_text(const char *s, size_t n);

#endif
