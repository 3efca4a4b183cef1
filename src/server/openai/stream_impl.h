/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_impl.h: what chunks of chats and completions (openai/stream.c) and the events of
 * responses (responses_stream.c) share.
 */
#ifndef BN_SERVER_OPENAI_STREAM_IMPL_H
#define BN_SERVER_OPENAI_STREAM_IMPL_H

#include "server/openai/stream.h"

/* How much of a choice the client has seen. */
struct openai_sent {
    bool begun, ended;
    /* of a response, which is told once more as a whole at its end; everything else is taken out of
     * the reply when it is sent */
    size_t text_bytes, logprob_bytes;
    /* calls that were sent to their ends; of the next one: whether it has begun, and its arguments */
    size_t n_calls;
    bool call_begun;
    size_t argument_bytes;
};

struct openai_stream {
    struct openai_reply reply; /* what has come and was not sent */
    struct openai_sent *sent;  /* [n_choices] */
    struct bn_buf head;        /* fixed text of every chunk or piece of text */
    bool include_usage, begun, ended;
    uint64_t sequence; /* number of the next event of a response */
};

/* The next call of which there is something to send; NULL: none. */
static inline const struct tools_call *openai_next_call(const struct openai_choice *c,
                                                        const struct openai_sent *sent)
{
    if (sent->n_calls == c->parser.n_calls) return NULL;
    const struct tools_call *call = &c->parser.calls[sent->n_calls];
    return !sent->call_begun || call->arguments.len > sent->argument_bytes ? call : NULL;
}

/* It was sent as far as it is there. */
static inline void openai_call_sent(const struct tools_call *call, struct openai_sent *sent)
{
    sent->call_begun = true;
    sent->argument_bytes = call->arguments.len;
    if (!call->complete) return;
    sent->n_calls++;
    sent->call_begun = false;
    sent->argument_bytes = 0;
}

/* Members of every piece of its text. */
void responses_stream_head(struct bn_buf *head, const struct openai_reply *r);
/* What was gathered of a response; at its end the last events. */
void responses_stream_flush(struct openai_stream *s, struct bn_buf *out);
void responses_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
