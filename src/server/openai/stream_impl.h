/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_impl.h: functions of OpenAI's dialects: chunks of chats and completions (openai/stream.c), the
 * events of responses (responses_stream.c).
 */
#ifndef BN_SERVER_OPENAI_STREAM_IMPL_H
#define BN_SERVER_OPENAI_STREAM_IMPL_H

#include "server/openai/stream.h"

/* Chats and completions: the whole reply, and its chunks. */
struct bn_json *openai_chunks_reply(const struct openai_reply *r, bool with_cached);
void openai_chunks_head(struct bn_buf *head, const struct openai_reply *r);
void openai_chunks_flush(struct openai_stream *s, struct bn_buf *out);
void openai_chunks_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

/* Members of every piece of its text. */
void responses_stream_head(struct bn_buf *head, const struct openai_reply *r);
/* What was gathered of a response; at its end the last events. */
void responses_stream_flush(struct openai_stream *s, struct bn_buf *out);
void responses_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
