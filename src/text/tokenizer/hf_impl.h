/* SPDX-License-Identifier: Apache-2.0
 * Shared by the readers of Hugging Face folders; only files of text/ include it. */
#ifndef BN_TEXT_TOKENIZER_HF_IMPL_H
#define BN_TEXT_TOKENIZER_HF_IMPL_H

#include "json/json.h"
#include "text/tokenizer/vocab.h"

/* Makes v->tokens, types and strip for n tokens: all empty and UNUSED. */
bitnet_status bn_hf_alloc_tokens(struct bn_vocab *v, size_t n, const char *what, bitnet_error *err);
/* Writes one token; its text is copied. */
bitnet_status bn_hf_set_token(struct bn_vocab *v, size_t id, const char *s, size_t n, uint8_t type,
                              const char *what, bitnet_error *err);
/* lstrip, rstrip, single_word and special of an added token's JSON object. */
bitnet_status bn_hf_added_flags(const struct bn_json *token, uint8_t *type, uint8_t *strip,
                                const char *what, bitnet_error *err);
bool bn_hf_find_token(const struct bn_vocab *v, const char *s, int32_t *id);

/* dir_of's folder + "/" + name; free(). NULL: out of memory. */
char *bn_hf_beside(const char *dir_of, const char *name);
/* Reads a JSON object beside dir_of, all numbers as floats; *out = NULL if there is no such
 * file. */
bitnet_status bn_hf_read_beside(struct bn_json **out, const char *dir_of, const char *name,
                                bitnet_error *err);
/* A number that is a token id below n_tokens; *id stays as it was otherwise. */
bool bn_hf_number_id(const struct bn_json *number, size_t n_tokens, int32_t *id);
/* tokenizer_config.json (may be NULL), generation_config.json and chat_template.jinja into v. */
bitnet_status bn_hf_read_config(struct bn_vocab *v, const char *path, const struct bn_json *config,
                                bitnet_error *err);

#endif
