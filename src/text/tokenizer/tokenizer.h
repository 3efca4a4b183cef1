/* SPDX-License-Identifier: Apache-2.0
 * Text to tokens and back. Immutable after open; encode may be called from any thread. */
#ifndef BN_TEXT_TOKENIZER_TOKENIZER_H
#define BN_TEXT_TOKENIZER_TOKENIZER_H

#include "text/tokenizer/vocab.h"

struct bn_tokenizer;

/* Takes the vocabulary over (also on failure): *v is emptied. */
bitnet_status bn_tokenizer_open(struct bn_tokenizer **out, struct bn_vocab *v, bitnet_error *err);
void bn_tokenizer_close(struct bn_tokenizer *t);
const struct bn_vocab *bn_tokenizer_vocab(const struct bn_tokenizer *t);

enum { BN_ENCODE_MAX_BYTES = 1 << 30 }; /* of one text */

/* flags: BITNET_TOK_*. The text must be valid UTF-8 for SPM; byte-level BPE takes any bytes
 * (invalid ones are split off and encoded byte by byte). Grows *tokens; linear in len up to a log
 * factor. */
struct bn_tokens {
    int32_t *ids;
    size_t n, room;
};
bitnet_status bn_encode(const struct bn_tokenizer *t, const char *text, size_t len, uint32_t flags,
                        struct bn_tokens *out, bitnet_error *err);
void bn_tokens_free(struct bn_tokens *t);

/* The bytes a token stands for. special: show control tokens by name, else they give nothing.
 * first: the token opens a text (SPM drops the space it added in front). NULL with *n = 0 for no
 * bytes. The pointer lives as long as the tokenizer. */
const char *bn_token_bytes(const struct bn_tokenizer *t, int32_t id, bool special, bool first,
                           size_t *n);
bool bn_token_is_end(const struct bn_tokenizer *t, int32_t id);
/* The control token that begins a text: a model that writes it has begun another one. */
bool bn_token_is_start(const struct bn_tokenizer *t, int32_t id);

/* Incremental detokenizer with stop strings. The tokens continue a text, so no space is dropped in
 * front. Only complete characters come out, and nothing that might be the beginning of a stop
 * string. Invalid bytes come out as U+FFFD. Of several stop strings the one that is complete first
 * counts, wherever the token borders lie. */
enum { BN_MAX_STOPS = 32, BN_MAX_STOP_BYTES = 256 };
struct bn_detok;
/* stops: copied */
bitnet_status bn_detok_open(struct bn_detok **out, const struct bn_tokenizer *t, bool special,
                            const char *const *stops, size_t n_stops, bitnet_error *err);
void bn_detok_close(struct bn_detok *d);
/* The most that one push or flush can show. */
size_t bn_detok_room(const struct bn_detok *d);
/* Adds a token; *text (borrowed until the next call) is what may be shown now. Returns true when a
 * stop string is complete: it and what follows is not shown. No allocation. */
bool bn_detok_push(struct bn_detok *d, int32_t token, const char **text, size_t *n);
/* Shows the stop string, too. */
void bn_detok_show_stop(struct bn_detok *d);
/* The stop string that is complete; NULL: none is. Lives as long as d. */
const char *bn_detok_stop(const struct bn_detok *d);
/* The end: everything still held back. What the last push showed stays readable. */
void bn_detok_flush(struct bn_detok *d, const char **text, size_t *n);
void bn_detok_reset(struct bn_detok *d);

#endif
