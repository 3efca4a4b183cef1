/* SPDX-License-Identifier: Apache-2.0
 *
 * logprobs.h: the log-probabilities of a choice's tokens as JSON text, for whole replies and
 * for streams.
 */
#ifndef BN_SERVER_OPENAI_LOGPROBS_H
#define BN_SERVER_OPENAI_LOGPROBS_H

#include "base/buf.h"
#include "server/openai/request.h"

enum { OPENAI_LOGPROBS_LISTS = 4 };

/* A token of a prompt or a choice. */
struct openai_token {
    int32_t id;
    bool first; /* of a text: nothing says how likely it is; of an echoed prompt only */
    float logprob;
    const bitnet_logprob *top; /* [n_top] the likeliest in its place, best first */
    size_t n_top;
};

/* Zero-initialise it, then openai_logprobs_open. */
struct openai_logprobs {
    enum openai_kind kind;
    const bitnet_model *m;
    /* what is between the brackets; a completion has tokens, token_logprobs, top_logprobs and
     * text_offset; everything else has one list */
    struct bn_buf lists[OPENAI_LOGPROBS_LISTS];
    size_t n_chars; /* of all tokens as the text shows them, also those that were taken out */
};

void openai_logprobs_open(struct openai_logprobs *l, enum openai_kind kind, const bitnet_model *m);
void openai_logprobs_close(struct openai_logprobs *l);
bitnet_status openai_logprobs_add(struct openai_logprobs *l, const struct openai_token *t,
                                  bitnet_error *err);
size_t openai_logprobs_bytes(const struct openai_logprobs *l);
bool openai_logprobs_any(const struct openai_logprobs *l);
/* The value of "logprobs"; false: out of memory. */
bool openai_logprobs_write(const struct openai_logprobs *l, struct bn_buf *out);
void openai_logprobs_clear(struct openai_logprobs *l); /* forgets the tokens that were written */

/* One number as JSON, so that the float comes back. */
void openai_put_logprob(struct bn_buf *b, float logprob);

#endif
