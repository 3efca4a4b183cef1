/* SPDX-License-Identifier: Apache-2.0
 *
 * request_impl.h: what the files that read bodies share. Numbers, strings and constraints are read
 * in request_fields.c, prompts and conversations in openai/prompt.c, those of a response in
 * responses_input.c.
 */
#ifndef BN_SERVER_OPENAI_REQUEST_IMPL_H
#define BN_SERVER_OPENAI_REQUEST_IMPL_H

#include "server/openai/request.h"

struct openai_field;
typedef bitnet_status openai_reader(struct openai_request *r, const struct openai_field *f,
                                    const struct bn_json *v, bitnet_error *err);

/* A member of the body: the kinds of request that have it, how it is read, and the number's place
 * in bitnet_request. */
struct openai_field {
    const char *key;
    unsigned kinds; /* bits 1 << kind */
    openai_reader *read;
    size_t offset;
};
const struct openai_field *openai_find_field(const char *key); /* NULL: unknown */

openai_reader openai_read_messages, openai_read_prompt, openai_read_input;
openai_reader openai_read_constraint, openai_read_structured;

/* ------------------------------------------------------------------ values */

void *openai_alloc(struct openai_request *r, size_t n, size_t size); /* n and size are bounded */
/* JSON text that lives as long as the request; NULL: out of memory. */
const char *openai_dump(struct openai_request *r, const struct bn_json *v);
/* A string that C can hold. */
bitnet_status openai_c_string(const char **out, const struct bn_json *v, const char *key,
                              bitnet_error *err);
bool openai_is_given(const struct bn_json *v); /* neither absent nor null */
bool openai_is_off(const struct bn_json *v);   /* null, false, empty, or not more than 1 */

/* A JSON Schema that the reply must fit: an object, a boolean, or the text of one. */
bitnet_status openai_take_schema(struct openai_request *r, const struct bn_json *v, const char *key,
                                 bitnet_error *err);

/* ------------------------------------------------------------------ conversations */

/* Content: a text, or parts of these types (ended by NULL), put one after the other. A new
 * reference. key and at are for errors. */
bitnet_status openai_read_content(struct openai_request *r, struct bn_json **out,
                                  const struct bn_json *content, const char *const *types,
                                  const char *key, size_t at, bitnet_error *err);
/* "tools" and "tool_choice" of a response, where a function's name stands beside the type, as a chat
 * has them: inside "function". Both may be NULL; false: out of memory. */
bool openai_wrap_tools(struct bn_json **tools, struct bn_json **choice);
/* The messages as tokens, with tools as a constraint on choices; also finds out whether they reason. */
bitnet_status openai_encode_messages(struct openai_request *r, const bitnet_model *m,
                                     const char *chat_template, bitnet_error *err);
/* Of requests that want it: leaves out exchanges until the messages have at most so many bytes; or some,
 * when their tokens leave no room for a reply. false: all is well, or there is nothing more to leave out.
 * Otherwise they are to be encoded again. */
void openai_truncate_bytes(struct openai_request *r, uint64_t most);
bool openai_truncate(struct openai_request *r);
/* Room for a prompt that is a conversation, in r->messages. */
bitnet_status openai_begin_messages(struct openai_request *r, size_t n, const char *key,
                                    bitnet_error *err);

#endif
