/* SPDX-License-Identifier: Apache-2.0
 *
 * llamacpp_impl.h: what reading (read.c) and writing (write.c) completions share.
 */
#ifndef BN_SERVER_LLAMACPP_LLAMACPP_IMPL_H
#define BN_SERVER_LLAMACPP_LLAMACPP_IMPL_H

#include "server/llamacpp/llamacpp.h"

/* Members of the request that its replies need. */
struct bn_json *llamacpp_echo(const struct openai_request *q);
bitnet_status llamacpp_take(struct openai_reply *r, struct openai_choice *c, const bitnet_event *e,
                            bitnet_error *err);
struct bn_json *llamacpp_reply(const struct openai_reply *r, bool with_cached);
void llamacpp_flush(struct openai_stream *s, struct bn_buf *out);
void llamacpp_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
