/* SPDX-License-Identifier: Apache-2.0
 *
 * ollama.h: the words of Ollama's interface, for clients that know no other: chats and texts as dialects,
 * and what it tells about models.
 */
#ifndef BN_SERVER_OLLAMA_OLLAMA_H
#define BN_SERVER_OLLAMA_OLLAMA_H

#include "server/dialect.h"
#include "server/server_impl.h"

enum { OLLAMA_TIME_BYTES = 24 };

extern const struct dialect ollama_chat_dialect, ollama_generate_dialect;

/* {"error": "sentence"} */
struct bn_json *ollama_error_json(const struct openai_fault *f);
/* 2026-01-02T03:04:05Z */
void ollama_time(char out[OLLAMA_TIME_BYTES], int64_t s);

/* A model as "/api/tags" tells it. */
struct bn_json *ollama_card(const struct served_model *s);

void serve_ollama_chat(struct exchange *x);
void serve_ollama_generate(struct exchange *x);
void serve_ollama_tags(struct exchange *x);
void serve_ollama_ps(struct exchange *x);
void serve_ollama_show(struct exchange *x);
void serve_ollama_version(struct exchange *x);
void serve_ollama_embed(struct exchange *x);
void serve_ollama_embeddings(struct exchange *x);
void serve_ollama_pull(struct exchange *x);
/* What would make, change or remove models. */
void serve_ollama_manage(struct exchange *x);

#endif
