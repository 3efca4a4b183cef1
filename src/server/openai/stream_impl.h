/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_impl.h: functions of OpenAI's dialects: the events of responses (responses_stream.c).
 */
#ifndef BN_SERVER_OPENAI_STREAM_IMPL_H
#define BN_SERVER_OPENAI_STREAM_IMPL_H

#include "server/openai/stream.h"

/* Members of every piece of its text. */
void responses_stream_head(struct bn_buf *head, const struct openai_reply *r);
/* What was gathered of a response; at its end the last events. */
void responses_stream_flush(struct openai_stream *s, struct bn_buf *out);
void responses_stream_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
