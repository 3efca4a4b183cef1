/* SPDX-License-Identifier: Apache-2.0
 *
 * ollama_impl.h: how replies are written (write.c), for the dialects of read.c.
 */
#ifndef BN_SERVER_OLLAMA_OLLAMA_IMPL_H
#define BN_SERVER_OLLAMA_OLLAMA_IMPL_H

#include "server/ollama/ollama.h"

struct bn_json *ollama_reply(const struct openai_reply *r, bool with_cached);
void ollama_flush(struct openai_stream *s, struct bn_buf *out);
void ollama_fail(struct openai_stream *s, const bitnet_error *why, struct bn_buf *out);

#endif
