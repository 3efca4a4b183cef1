/* SPDX-License-Identifier: Apache-2.0
 *
 * anthropic_impl.h: what the files of this dialect share: read.c makes a request of a body, reply.c the whole
 * reply and errors, stream.c the events of a stream.
 */
#ifndef BN_SERVER_ANTHROPIC_ANTHROPIC_IMPL_H
#define BN_SERVER_ANTHROPIC_ANTHROPIC_IMPL_H

#include "server/anthropic/anthropic.h"

bitnet_status anthropic_read(struct openai_request *q, struct bn_json *body,
                             const struct openai_defaults *d, bitnet_error *err);

struct bn_json *anthropic_error(const struct openai_fault *f);
struct bn_json *anthropic_reply(const struct openai_reply *r, bool with_cached);
/* The message as it begins: without content, and no reason to stop yet. */
struct bn_json *anthropic_message(const struct openai_reply *r, struct bn_json *content,
                                  const char *stop_reason);
struct bn_json *anthropic_usage(const struct openai_choice *c);
const char *anthropic_stop_reason(const struct openai_choice *c);

void anthropic_flush(struct openai_stream *s, struct bn_buf *out);
void anthropic_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
