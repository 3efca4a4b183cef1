/* SPDX-License-Identifier: Apache-2.0
 *
 * llamacpp.h: the words of llama-server's own interface (its OpenAI paths are OpenAI's): completions with all
 * their settings, filling in the middle, vectors, ranking, slots.
 */
#ifndef BN_SERVER_LLAMACPP_LLAMACPP_H
#define BN_SERVER_LLAMACPP_LLAMACPP_H

#include "server/dialect.h"
#include "server/server_impl.h"

extern const struct dialect llamacpp_dialect;
/* OpenAI's chats and completions, by enum openai_kind, with what llama-server has beside it; if the server is told
 * to, also with what it has in its place. */
extern const struct dialect llamacpp_over_openai[];

/* {"error": {"code", "message", "type"}} */
struct bn_json *llamacpp_error_json(const struct openai_fault *f);
/* Everything that a request can set, as it is. */
struct bn_json *llamacpp_settings(const struct openai_request *q);
/* The settings of a request that says nothing. NULL: out of memory */
struct bn_json *llamacpp_defaults(const struct openai_defaults *d);

/* At "/completions" OpenAI's bodies come as well: it is theirs unless the body has "n_predict" and names no
 * model. */
void serve_completions_bare(struct exchange *x);
void serve_llamacpp_infill(struct exchange *x);
void serve_llamacpp_embedding(struct exchange *x);
/* At "/embeddings", too: theirs unless the body has "content" or pools nothing. */
void serve_embeddings_bare(struct exchange *x);
void serve_llamacpp_slots(struct exchange *x);
void serve_llamacpp_slot(struct exchange *x);
/* Texts in the order of their likeness to a query; the likeness of pairs, in vLLM's words. */
void serve_rerank(struct exchange *x);
void serve_score(struct exchange *x);

#endif
