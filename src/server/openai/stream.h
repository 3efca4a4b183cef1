/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: the events of one request as server-sent events in the words of OpenAI's interface:
 * chunks of a chat or a completion, the typed events of a response. Events are gathered until they are
 * written out: a client that takes its time gets fewer, larger pieces, and never more than the text
 * itself waits for it. Put together, the pieces are what openai_reply would have said.
 */
#ifndef BN_SERVER_OPENAI_STREAM_H
#define BN_SERVER_OPENAI_STREAM_H

#include "server/openai/reply.h"

struct openai_stream;

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
