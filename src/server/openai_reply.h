/* SPDX-License-Identifier: Apache-2.0
 *
 * openai_reply.h: the events of one request, gathered into the object that OpenAI's interface
 * answers with ("chat.completion", "text_completion", "response"), and errors in its form. What is said depends
 * on the request and the model alone: no times, nothing about caches or company.
 */
#ifndef BN_SERVER_OPENAI_REPLY_H
#define BN_SERVER_OPENAI_REPLY_H

#include "base/buf.h"
#include "server/openai_request.h"

struct openai_choice {
    struct bn_buf text;
    json_t *logprobs; /* as it will be in the reply; NULL if not asked for */
    size_t n_chars;   /* of the tokens in it */
    bitnet_finish finish;
    uint32_t n_generated;
};

struct openai_reply {
    enum openai_kind kind;
    const bitnet_model *m;
    char *model;
    struct openai_choice *choices; /* [n_choices]: those of the first prompt, of the second, ... */
    uint32_t n_choices, n_done;
    uint32_t n_each;             /* choices of one prompt */
    uint64_t n_prompt, n_cached; /* tokens of all prompts */
    bitnet_error error;          /* status other than OK: the engine gave the request up */
};

/* The request may be freed afterwards. The model must outlive the reply. */
bitnet_status openai_reply_open(struct openai_reply *r, const struct openai_request *q,
                                const bitnet_model *m, bitnet_error *err);
/* An event of this request's prompt i. */
bitnet_status openai_reply_take(struct openai_reply *r, size_t i, const bitnet_event *e,
                                bitnet_error *err);
bool openai_reply_done(const struct openai_reply *r);
/* id: without the part that says its kind. NULL: out of memory. */
json_t *openai_reply_json(const struct openai_reply *r, const char *id, uint64_t created);
void openai_reply_close(struct openai_reply *r); /* an open one, or one of zeros */

/* 400 where the request is at fault, 500 where we are. */
int openai_error_code(bitnet_status s);
json_t *openai_error_json(const bitnet_error *err);

/* Text for jansson, which takes strict UTF-8 only: other bytes become U+FFFD. */
json_t *openai_text(const char *s, size_t n);

#endif
