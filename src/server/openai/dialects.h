/* SPDX-License-Identifier: Apache-2.0
 *
 * dialects.h: OpenAI's three ways to ask for text, as dialects: chats, completions and responses.
 */
#ifndef BN_SERVER_OPENAI_DIALECTS_H
#define BN_SERVER_OPENAI_DIALECTS_H

#include "server/dialect.h"

extern const struct dialect openai_dialects[]; /* by enum openai_kind */

/* Of chats and completions, also in other dialects that are close to them: the whole reply, and its chunks
 * (reply.c, stream.c). */
struct bn_json *openai_chunks_reply(const struct openai_reply *r, bool with_cached);
void openai_chunks_head(struct bn_buf *head, const struct openai_reply *r);
void openai_chunks_flush(struct openai_stream *s, struct bn_buf *out);
void openai_chunks_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
