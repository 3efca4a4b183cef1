/* SPDX-License-Identifier: Apache-2.0
 *
 * llamacpp_impl.h: what reading (read.c) and writing (write.c) completions share, and what OpenAI's paths have of it
 * (over_openai.c).
 */
#ifndef BN_SERVER_LLAMACPP_LLAMACPP_IMPL_H
#define BN_SERVER_LLAMACPP_LLAMACPP_IMPL_H

#include "server/llamacpp/llamacpp.h"

/* Members of the request that its replies need. */
struct bn_json *llamacpp_echo(const struct openai_request *q);
bitnet_status llamacpp_take(struct openai_reply *r, struct openai_choice *c, const bitnet_event *e,
                            bitnet_error *err);
/* Its id and text go to what was gathered of the choice. */
bitnet_status llamacpp_gather(struct openai_choice *c, const bitnet_event *e, bitnet_error *err);
/* All that is told of a choice at its end, but for probabilities. NULL: out of memory */
struct bn_json *llamacpp_choice_json(const struct openai_reply *r, uint32_t i);
struct bn_json *llamacpp_reply(const struct openai_reply *r, bool with_cached);
void llamacpp_flush(struct openai_stream *s, struct bn_buf *out);
void llamacpp_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
