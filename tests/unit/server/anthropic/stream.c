/* SPDX-License-Identifier: Apache-2.0
 * The events of a message put together are the whole message, whatever the rhythm in which they are written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../openai/openai_script.h"
#include "server/anthropic/anthropic.h"
#include <stdio.h>

static void begin_message(const char *body)
{
    const struct openai_defaults d = {.max_tokens = 77, .seed = 99, .strict = true};
    struct bn_json *j = json_of(body);
    if (anthropic_dialect.read(&r, j, &d, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_json_free(j);
    if (openai_request_encode(&r, model, NULL, &err) != BITNET_OK) fail_msg("%s", err.text);
    script.n = 0;
}

/* What a client does: a block's pieces are put together, and arguments parsed at its end. */
static void take_event(struct bn_json **message, struct bn_json **open, const char *name,
                       const struct bn_json *e)
{
    struct bn_json *content = bn_json_get(*message, "content"), *delta = bn_json_get(e, "delta");
    assert_string_equal(name, bn_json_text(bn_json_get(e, "type")));
    if (strcmp(name, "message_start") == 0) {
        assert_null(*message);
        *message = bn_json_deep_copy(bn_json_get(e, "message"));
    } else if (strcmp(name, "content_block_start") == 0) {
        assert_null(*open);
        assert_int_equal(bn_json_integer(bn_json_get(e, "index")), bn_json_size(content));
        *open = bn_json_deep_copy(bn_json_get(e, "content_block"));
    } else if (strcmp(name, "content_block_delta") == 0) {
        assert_non_null(*open);
        append_text(*open, "text", bn_json_get(delta, "text"));
        append_text(*open, "thinking", bn_json_get(delta, "thinking"));
        append_text(*open, "json", bn_json_get(delta, "partial_json"));
    } else if (strcmp(name, "content_block_stop") == 0) {
        const struct bn_json *json = bn_json_get(*open, "json");
        if (json) bn_json_set(*open, "input", json_of(bn_json_text(json)));
        bn_json_del(*open, "json");
        bn_json_append(content, *open);
        *open = NULL;
    } else if (strcmp(name, "message_delta") == 0) {
        bn_json_update(*message, delta, true);
        bn_json_set(*message, "usage", bn_json_ref(bn_json_get(e, "usage")));
    } else if (strcmp(name, "message_stop") != 0) {
        assert_string_equal(name, "ping");
    }
}

static void streams_as_whole(void)
{
    struct bn_json *whole = reply_of_script();
    for (size_t i = 0; i < BN_ARRAY_LEN(patterns); i++) {
        char *text = stream_of_script(patterns[i]), name[64] = "";
        struct bn_json *message = NULL, *open = NULL;
        for (const char *at = text; *at;) {
            assert_string_not_equal(name, "message_stop");
            struct bn_json *e = next_event(&at, name);
            take_event(&message, &open, name, e);
            bn_json_free(e);
        }
        assert_string_equal(name, "message_stop");
        same_json(message, whole);
        bn_json_free(message);
        free(text);
    }
    bn_json_free(whole);
    openai_request_free(&r);
}

static const char *reason_of_script(void)
{
    static char text[32];
    struct bn_json *whole = reply_of_script();
    snprintf(text, sizeof text, "%s", bn_json_text(bn_json_get(whole, "stop_reason")));
    bn_json_free(whole);
    return text;
}

#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"
#define TOOLS                                                                                     \
    "\"tools\": [{\"name\": \"f\", \"input_schema\": {\"type\": \"object\"}}, {\"name\": \"g\", " \
    "\"input_schema\": {\"type\": \"object\"}}]"

static void test_texts(void **state)
{
    (void)state;
    begin_message("{" MESSAGES ", \"stream\": true}");
    script_answer(0, 0, STORY, BITNET_FINISH_END);
    assert_string_equal(reason_of_script(), "end_turn");
    streams_as_whole();
    begin_message("{" MESSAGES "}");
    script_answer(0, 0, "", BITNET_FINISH_LENGTH);
    assert_string_equal(reason_of_script(), "max_tokens");
    streams_as_whole();
    begin_message("{" MESSAGES "}");
    script_answer(0, 0, "a", BITNET_FINISH_STOP);
    script.at[script.n - 1].e.stop = "END";
    assert_string_equal(reason_of_script(), "stop_sequence");
    struct bn_json *whole = reply_of_script();
    assert_string_equal(bn_json_text(bn_json_get(whole, "stop_sequence")), "END");
    bn_json_free(whole);
    streams_as_whole();
}

static void test_calls(void **state)
{
    (void)state;
    begin_message("{" MESSAGES ", " TOOLS "}");
    script_answer(0, 0, "I look: " CALL("f", "{\"a\": [1, \"\xe2\x82\xac\"]}") "\n" CALL("g", "{}"),
                  BITNET_FINISH_END);
    assert_string_equal(reason_of_script(), "tool_use");
    streams_as_whole();
    begin_message("{" MESSAGES ", " TOOLS "}");
    script_answer(0, 0, CALL("g", "{\"b\": {}}"), BITNET_FINISH_END);
    streams_as_whole();
}

/* The engine gives up in the middle: what has come, then the error, and nothing after it. */
static void test_failure(void **state)
{
    (void)state;
    struct openai_stream *s;
    struct bn_buf out;
    bitnet_error why = {0};
    bn_buf_init(&out, 1 << 20);
    begin_message("{" MESSAGES ", \"stream\": true}");
    script_answer(0, 0, "Once upon", BITNET_FINISH_END);
    assert_int_equal(openai_stream_open(&s, &r, model, "7", 5, &err), BITNET_OK);
    assert_int_equal(openai_stream_take(s, 0, &script.at[0].e, &err), BITNET_OK);
    bn_error_set(&why, BITNET_E_INTERNAL, "broken");
    assert_true(openai_stream_fail(s, &why, &out));
    assert_true(openai_stream_flush(s, &out));
    bn_buf_putc(&out, 0);
    const char *at = strstr(out.data, "event: error\n");
    char name[64];
    assert_non_null(at);
    struct bn_json *e = next_event(&at, name), *error = bn_json_get(e, "error");
    assert_string_equal(bn_json_text(bn_json_get(error, "type")), "api_error");
    assert_string_equal(bn_json_text(bn_json_get(error, "message")), "broken");
    assert_int_equal(*at, 0);
    bn_json_free(e);
    bn_buf_free(&out);
    openai_stream_close(s);
    openai_request_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_failure),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
