/* SPDX-License-Identifier: Apache-2.0
 * Fuzz target: any bytes as the body of each kind of request, and as the answer to those that are
 * understood. tests/fuzz/meson.build says how to build and run it. */
#include "base/utf8.h"
#include "server/openai/stream.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool holds)
{
    if (!holds) abort();
}

static const bitnet_model *vocabulary(void)
{
    static bitnet_model *m;
    bitnet_model_options o = {.size = sizeof o};
    if (m) return m;
    o.vocab_only = 1;
    must(bitnet_model_open(&m, NULL, &o, NULL) == BITNET_OK);
    return m;
}

/* The same answer whole, and written out after every few bytes. */
static void answer(const struct openai_request *q, const char *text, size_t n)
{
    struct openai_reply reply;
    struct openai_stream *stream;
    struct bn_buf out;
    bn_buf_init(&out, 1 << 26);
    must(openai_reply_open(&reply, q, vocabulary(), "1", 2, NULL) == BITNET_OK);
    must(openai_stream_open(&stream, q, vocabulary(), "1", 2, NULL) == BITNET_OK);
    uint32_t n_each = q->request.n_choices;
    for (size_t i = 0; i < q->n_prompts * n_each; i++)
        for (size_t at = 0, size; at < n; at += size) {
            size = bn_min_size(n - at, 1 + at % 7);
            const bitnet_event e = {.token = (int32_t)(at % 4096),
                                    .text = text + at,
                                    .text_bytes = size,
                                    .choice = (uint32_t)(i % n_each),
                                    .n_generated = 1,
                                    .finish =
                                        at + size == n ? BITNET_FINISH_END : BITNET_FINISH_NONE};
            must(openai_reply_take(&reply, i / n_each, &e, NULL) == BITNET_OK);
            must(openai_stream_take(stream, i / n_each, &e, NULL) == BITNET_OK);
            if (at % 3 == 0) must(openai_stream_flush(stream, &out));
        }
    must(openai_reply_done(&reply) && openai_stream_done(stream));
    must(openai_stream_flush(stream, &out));
    must(bn_utf8_valid(out.data, out.len, NULL));
    struct bn_json *j = openai_reply_json(&reply, true);
    must(j != NULL);
    bn_json_free(j);
    openai_reply_close(&reply);
    openai_stream_close(stream);
    bn_buf_free(&out);
}

static void request(enum openai_kind kind, struct bn_json *body, const char *text, size_t n)
{
    static const struct openai_defaults d = {.max_tokens = 16};
    struct openai_request r;
    bitnet_error err = {0};
    if (openai_request_read(&r, kind, body, &d, &err) != BITNET_OK) {
        must(err.text[0] && err.status != BITNET_OK && !r.body);
        return;
    }
    must(r.n_prompts >= 1 && r.n_prompts * r.request.n_choices <= OPENAI_MAX_CHOICES);
    if (openai_request_encode(&r, vocabulary(), NULL, &err) != BITNET_OK) must(err.text[0]);
    else if (n) answer(&r, text, n);
    openai_request_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bn_json *body;
    if (bn_json_parse(&body, (const char *)data, n, 0, "body", NULL) != BITNET_OK) return 0;
    request(OPENAI_CHAT, body, (const char *)data, n);
    request(OPENAI_COMPLETION, body, (const char *)data, n);
    request(OPENAI_RESPONSE, body, (const char *)data, n);
    bn_json_free(body);
    return 0;
}
