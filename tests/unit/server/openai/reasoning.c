/* SPDX-License-Identifier: Apache-2.0
 * Thoughts before answers: parted as they come in, told in replies and streams, shown to templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/openai/stream.h"
#include "openai_common.h"

/* "reasoning|text", fed in two pieces */
static void expect(enum reasoning_mode mode, const char *answer, const char *want)
{
    size_t n = strlen(answer);
    for (size_t cut = 0; cut <= n; cut++) {
        struct reasoning t;
        struct tools_parser p;
        struct bn_buf b;
        reasoning_open(&t, mode);
        tools_parser_open(&p, NULL, 0);
        assert_true(reasoning_feed(&t, answer, cut, &p));
        assert_true(reasoning_feed(&t, answer + cut, n - cut, &p));
        assert_true(reasoning_end(&t, &p));
        bn_buf_init(&b, 1 << 12);
        bn_buf_append(&b, t.text.data ? t.text.data : "", t.text.len);
        bn_buf_putc(&b, '|');
        bn_buf_append(&b, p.text.data ? p.text.data : "", p.text.len);
        bn_buf_putc(&b, '\0');
        if (strcmp(b.data, want) != 0) fail_msg("'%s' cut at %zu: '%s'", answer, cut, b.data);
        bn_buf_free(&b);
        reasoning_close(&t);
        tools_parser_close(&p);
    }
}

static void test_parting(void **state)
{
    (void)state;
    expect(REASONING_OFF, "<think>a</think>b", "|<think>a</think>b");
    expect(REASONING_MAYBE, "<think>\na\n\nb\n</think>\n\nc\n", "a\n\nb|c\n");
    expect(REASONING_MAYBE, "plain <think>x</think>", "|plain <think>x</think>");
    expect(REASONING_MAYBE, "<thin", "|<thin");
    expect(REASONING_MAYBE, "<thinking>", "|<thinking>");
    expect(REASONING_OPEN, "a < b </ \n</thin\n\n</think>\n\nc</think>",
           "a < b </ \n</thin|c</think>");
    expect(REASONING_OPEN, "</think>b", "|b");
    expect(REASONING_OPEN, "\n\n</think>\nb", "|b");
    expect(REASONING_OPEN, "cut off\n", "cut off|");
    expect(REASONING_OPEN, "cut off</thi", "cut off</thi|");
    expect(REASONING_OPEN, "<<</think></think>x", "<<|</think>x");
    expect(REASONING_OPEN, "", "|");
}

#define TEMPLATE                                                                              \
    "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<think>{{ "             \
    "m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}{% if "              \
    "enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>\n" \
    "{% endif %}"
#define BODY(more) "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]" more "}"

static enum reasoning_mode mode_of(const char *body, const char *chat_template)
{
    accepts(OPENAI_CHAT, body);
    if (openai_request_encode(&r, model, chat_template, &err) != BITNET_OK)
        fail_msg("%s", err.text);
    enum reasoning_mode mode = r.reasoning;
    openai_request_free(&r);
    return mode;
}

static void test_modes(void **state)
{
    (void)state;
    static const char closes[] = "{% for m in messages %}{{ m.content }}{% endfor %}\n<think>x";
    assert_int_equal(mode_of(BODY(""), TEMPLATE), REASONING_OPEN);
    assert_int_equal(
        mode_of(BODY(",\"chat_template_kwargs\":{\"enable_thinking\":false}"), TEMPLATE),
        REASONING_MAYBE);
    assert_int_equal(mode_of(BODY(""), closes), REASONING_MAYBE);
    assert_int_equal(mode_of(BODY(""), NULL), REASONING_OFF);
    assert_int_equal(mode_of(BODY(",\"response_format\":{\"type\":\"json_object\"}"), TEMPLATE),
                     REASONING_OFF);
#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"
    assert_int_equal(mode_of(BODY(TOOLS), TEMPLATE), REASONING_OPEN);
    assert_int_equal(mode_of(BODY(TOOLS ",\"tool_choice\":\"required\""), TEMPLATE), REASONING_OFF);
    refuses(OPENAI_CHAT, BODY(",\"chat_template_kwargs\":[]"), "is not an object");
    refuses(OPENAI_CHAT, BODY(",\"chat_template_kwargs\":{\"tools\":1}"), "is the server's");
    refuses(OPENAI_CHAT,
            "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":1}]}",
            "'reasoning_content' of message 0 is not a string");
}

/* Earlier reasoning reaches templates that show them, and no others. */
static void test_earlier(void **state)
{
    (void)state;
    static const char body[] = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"b\","
                               "\"reasoning_content\":\"hm\"}]}";
    for (int i = 0; i < 2; i++) {
        accepts(OPENAI_CHAT, body);
        if (openai_request_encode(&r, model, i ? NULL : TEMPLATE, &err) != BITNET_OK)
            fail_msg("%s", err.text);
        assert_int_equal(bn_json_get(bn_json_at(r.messages, 0), "reasoning_content") == NULL, i);
        openai_request_free(&r);
    }
}

static const bitnet_event events[] = {
    {.token = 1, .text = "hm", .text_bytes = 2, .n_generated = 1},
    {.token = 2, .text = "\n</think>\n", .text_bytes = 10, .n_generated = 2},
    {.token = 3, .text = "\nYes", .text_bytes = 4, .n_generated = 3},
    {.token = -1, .text = "", .finish = BITNET_FINISH_END, .n_generated = 3},
};

static void test_reply(void **state)
{
    (void)state;
    struct openai_reply reply;
    struct openai_stream *stream;
    struct bn_buf out;
    accepts(OPENAI_CHAT, BODY(",\"stream\":true"));
    assert_int_equal(openai_request_encode(&r, model, TEMPLATE, &err), BITNET_OK);
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    assert_int_equal(openai_stream_open(&stream, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    bn_buf_init(&out, 1 << 16);
    for (size_t i = 0; i < BN_ARRAY_LEN(events); i++) {
        assert_int_equal(openai_reply_take(&reply, 0, &events[i], &err), BITNET_OK);
        assert_int_equal(openai_stream_take(stream, 0, &events[i], &err), BITNET_OK);
        assert_true(openai_stream_flush(stream, &out));
    }
    struct bn_json *j = openai_reply_json(&reply, false);
    const struct bn_json *m = bn_json_get(bn_json_at(bn_json_get(j, "choices"), 0), "message");
    assert_string_equal(bn_json_text(bn_json_get(m, "content")), "Yes");
    assert_string_equal(bn_json_text(bn_json_get(m, "reasoning_content")), "hm");
    bn_json_free(j);
    bn_buf_putc(&out, '\0');
    assert_non_null(strstr(out.data, "\"delta\":{\"reasoning_content\":\"hm\"},"));
    assert_non_null(strstr(out.data, "\"delta\":{\"content\":\"Yes\"},"));
    assert_null(strstr(out.data, "think>"));
    bn_buf_free(&out);
    openai_reply_close(&reply);
    openai_stream_close(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parting),
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_earlier),
        cmocka_unit_test(test_reply),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
