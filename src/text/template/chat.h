/* SPDX-License-Identifier: Apache-2.0
 * Chat templates: the model's own Jinja text, or a built-in of a known family. */
#ifndef BN_TEXT_TEMPLATE_CHAT_H
#define BN_TEXT_TEMPLATE_CHAT_H

#include "base/buf.h"
#include "text/tokenizer/tokenizer.h"

/* ---- jinja: an interpreter of the subset that chat templates use (text/jinja*.c) ---- */
struct bn_jinja; /* a parsed template; immutable */

enum {
    BN_JINJA_MAX_SOURCE = 256 * 1024, /* bytes of a template                */
    BN_JINJA_MAX_OUTPUT = 16 << 20,   /* bytes it may write                 */
    BN_JINJA_MAX_MEMORY = 128 << 20,  /* bytes of values while it is rendered */
    BN_JINJA_MAX_DEPTH = 64,          /* nesting of expressions and blocks in the source */
    BN_JINJA_MAX_STACK = 400,         /* the same while it is rendered, macro calls included */
    BN_JINJA_MAX_RANGE = 100000,      /* items of range(), as in Jinja's sandbox */
    BN_JINJA_MAX_STEPS = 4 << 20      /* evaluated nodes: endless loops end */
};
bitnet_status bn_jinja_parse(struct bn_jinja **out, const char *source, size_t n,
                             bitnet_error *err);
void bn_jinja_free(struct bn_jinja *j);

struct bn_chat_vars {
    const bitnet_message *msgs;
    size_t n_msgs;
    bool add_generation_prompt;
    const char *bos_token, *eos_token; /* text, "" if none */
    /* for strftime_now, UTC. 0: it is not defined, and templates take their fixed date, * so
     * that a prompt does not change with the day */
    int64_t now_s;
};
/* A template that calls raise_exception fails with its sentence. */
bitnet_status bn_jinja_render(const struct bn_jinja *j, const struct bn_chat_vars *vars,
                              struct bn_buf *out, bitnet_error *err);

/* ---- the choice ---- */
struct bn_chat; /* a usable template: jinja or built-in */

/* wanted: NULL for the vocabulary's own (a template known to be wrong is replaced by the right
 * built-in, and *note says so); a built-in's name; or Jinja text (contains "{%" or "{{"). No
 * template at all: the built-in that fits the vocabulary's special tokens, else an error that
 * lists the built-ins. */
bitnet_status bn_chat_open(struct bn_chat **out, const struct bn_vocab *v, const char *wanted,
                           const char **note, bitnet_error *err);
void bn_chat_close(struct bn_chat *c);
bitnet_status bn_chat_render(const struct bn_chat *c, const bitnet_message *msgs, size_t n,
                             bool add_generation_prompt, struct bn_buf *out, bitnet_error *err);
/* Tokens; segment by segment where the family was trained so. BOS exactly once. */
bitnet_status bn_chat_encode(const struct bn_chat *c, const struct bn_tokenizer *t,
                             const bitnet_message *msgs, size_t n, bool add_generation_prompt,
                             struct bn_tokens *out, bitnet_error *err);
/* The same for {"messages": [...], ...}, see bitnet_chat_render_json. */
enum { BN_CHAT_MAX_JSON = 32 << 20 }; /* bytes */
bitnet_status bn_chat_render_json(const struct bn_chat *c, const char *json, size_t len,
                                  bool add_generation_prompt, struct bn_buf *out,
                                  bitnet_error *err);
bitnet_status bn_chat_encode_json(const struct bn_chat *c, const struct bn_tokenizer *t,
                                  const char *json, size_t len, bool add_generation_prompt,
                                  struct bn_tokens *out, bitnet_error *err);
bool bn_chat_is_builtin(const struct bn_chat *c);
const char *bn_chat_builtin_name(size_t i); /* NULL past the end */

#endif
