/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: the events of one request as a stream in the words of its dialect. Events are gathered until
 * they are written out: a client that takes its time gets fewer, larger pieces, and never more than the
 * text itself waits for it. Put together, the pieces are what openai_reply would have said.
 */
#ifndef BN_SERVER_OPENAI_STREAM_H
#define BN_SERVER_OPENAI_STREAM_H

#include "server/openai/reply.h"

/* The first delta of a chat's choice. */
#define OPENAI_OPENING "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null"

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
    /* of dialects whose text comes in blocks: how many are closed; what kind is open, 0: none */
    uint32_t n_blocks;
    uint32_t n_read; /* how far the prompt was read, as it was told */
    bool progress;   /* something of that was */
    uint8_t block;
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

/* The request may be freed afterwards, the model must outlive the stream. id: without the part that says
 * its kind. */
bitnet_status openai_stream_open(struct openai_stream **out, const struct openai_request *q,
                                 const bitnet_model *m, const char *id, uint64_t created,
                                 bitnet_error *err);
void openai_stream_close(struct openai_stream *s); /* NULL is fine */
/* An event of prompt i. */
bitnet_status openai_stream_take(struct openai_stream *s, size_t i, const bitnet_event *e,
                                 bitnet_error *err);
/* Appends what was gathered to out; after the last event also the usage, if asked for, and the end mark.
 * false: out of memory. */
bool openai_stream_flush(struct openai_stream *s, struct bn_buf *out);
bool openai_stream_done(const struct openai_stream *s);
/* It cannot go on: what was gathered, the error, the end mark. */
bool openai_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
