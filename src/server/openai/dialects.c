/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/dialects.h"

#include "server/openai/responses.h"
#include "server/openai/stream_impl.h"

static bitnet_status read_chat(struct openai_request *q, struct bn_json *body,
                               const struct openai_defaults *d, bitnet_error *err)
{
    return openai_request_read(q, OPENAI_CHAT, body, d, err);
}

static bitnet_status read_completion(struct openai_request *q, struct bn_json *body,
                                     const struct openai_defaults *d, bitnet_error *err)
{
    return openai_request_read(q, OPENAI_COMPLETION, body, d, err);
}

static bitnet_status read_response(struct openai_request *q, struct bn_json *body,
                                   const struct openai_defaults *d, bitnet_error *err)
{
    return openai_request_read(q, OPENAI_RESPONSE, body, d, err);
}

static struct bn_json *reply_response(const struct openai_reply *r, bool with_cached)
{
    return responses_json(r, true, with_cached);
}

const struct dialect openai_dialects[] = {
    [OPENAI_CHAT] = {.id_prefix = "chatcmpl-",
                     .stream_type = "text/event-stream",
                     .read = read_chat,
                     .opening = OPENAI_OPENING,
                     .reply = openai_chunks_reply,
                     .stream_head = openai_chunks_head,
                     .flush = openai_chunks_flush,
                     .fail = openai_chunks_fail,
                     .error = openai_error_json},
    [OPENAI_COMPLETION] = {.id_prefix = "cmpl-",
                           .stream_type = "text/event-stream",
                           .read = read_completion,
                           .reply = openai_chunks_reply,
                           .stream_head = openai_chunks_head,
                           .flush = openai_chunks_flush,
                           .fail = openai_chunks_fail,
                           .error = openai_error_json},
    [OPENAI_RESPONSE] = {.id_prefix = "resp_",
                         .stream_type = "text/event-stream",
                         .read = read_response,
                         .echo = responses_echo,
                         .reply = reply_response,
                         .stream_head = responses_stream_head,
                         .flush = responses_stream_flush,
                         .fail = responses_stream_fail,
                         .error = openai_error_json},
};
