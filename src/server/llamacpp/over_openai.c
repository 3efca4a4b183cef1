/* SPDX-License-Identifier: Apache-2.0
 *
 * over_openai.c: OpenAI's chats and completions as llama-server serves them. With "verbose" a whole reply says under
 * "__verbose" what llama-server's own path would have said of its first choice: the prompt as the model saw it, all
 * settings, tokens, times. Where the two contradict each other, OpenAI is right, unless the server is told otherwise.
 */
#include "server/llamacpp/llamacpp_impl.h"

#include "server/openai/dialects.h"

static const struct dialect as_llamacpp[];

static bitnet_status read_kind(struct openai_request *q, enum openai_kind kind,
                               struct bn_json *body, const struct openai_defaults *d,
                               bitnet_error *err)
{
    BN_TRY(openai_request_read(q, kind, body, d, err));
    q->dialect = &(d->as_llamacpp ? as_llamacpp : llamacpp_over_openai)[kind];
    return BITNET_OK;
}

static bitnet_status read_chat(struct openai_request *q, struct bn_json *body,
                               const struct openai_defaults *d, bitnet_error *err)
{
    return read_kind(q, OPENAI_CHAT, body, d, err);
}

static bitnet_status read_completion(struct openai_request *q, struct bn_json *body,
                                     const struct openai_defaults *d, bitnet_error *err)
{
    return read_kind(q, OPENAI_COMPLETION, body, d, err);
}

static struct bn_json *echo(const struct openai_request *q)
{
    return q->verbose ? llamacpp_echo(q) : bn_json_null();
}

static bool is_verbose(const struct openai_reply *r) { return bn_json_is_object(r->echoed); }

static bitnet_status take(struct openai_reply *r, struct openai_choice *c, const bitnet_event *e,
                          bitnet_error *err)
{
    return is_verbose(r) && e->token >= 0 ? llamacpp_gather(c, e, err) : BITNET_OK;
}

static struct bn_json *reply(const struct openai_reply *r, bool with_cached)
{
    struct bn_json *j = openai_chunks_reply(r, with_cached);
    if (is_verbose(r)) bn_json_set(j, "__verbose", llamacpp_choice_json(r, 0));
    return j;
}

#define PARTS(kind_prefix, read_body)                                                              \
    .id_prefix = kind_prefix, .stream_type = "text/event-stream", .read = read_body, .echo = echo, \
    .take = take, .reply = reply, .stream_head = openai_chunks_head, .flush = openai_chunks_flush, \
    .fail = openai_chunks_fail

const struct dialect llamacpp_over_openai[] = {
    [OPENAI_CHAT] = {PARTS("chatcmpl-", read_chat), .opening = OPENAI_OPENING,
                     .error = openai_error_json},
    [OPENAI_COMPLETION] = {PARTS("cmpl-", read_completion), .error = openai_error_json}};

static const struct dialect as_llamacpp[] = {
    [OPENAI_CHAT] = {PARTS("chatcmpl-", read_chat),
                     .opening = "\"role\":\"assistant\",\"content\":null",
                     .error = llamacpp_error_json},
    [OPENAI_COMPLETION] = {PARTS("cmpl-", read_completion), .error = llamacpp_error_json}};
#undef PARTS
