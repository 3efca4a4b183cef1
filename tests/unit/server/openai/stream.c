/* SPDX-License-Identifier: Apache-2.0
 * Streams, without an engine: whatever is written out when, the pieces put together are the reply to
 * the same events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "openai_script.h"
#include <stdio.h>

#define TOOLS                                                                            \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}, {\"type\": " \
    "\"function\", \"function\": {\"name\": \"g\"}}]"
#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]"

/* ------------------------------------------------------------------ putting together */

/* Lists grow, everything else is replaced. */
static void extend_lists(struct bn_json *to, const struct bn_json *from)
{
    const char *key;
    struct bn_json *v;
    bn_json_each_member(from, key, v)
    {
        struct bn_json *old = bn_json_get(to, key);
        if (bn_json_is_array(old)) bn_json_extend(old, v);
        else bn_json_set(to, key, bn_json_deep_copy(v));
    }
}

static void add_calls(struct bn_json *message, const struct bn_json *pieces)
{
    size_t i;
    const struct bn_json *piece;
    if (!pieces) return;
    if (!bn_json_get(message, "tool_calls")) bn_json_set(message, "tool_calls", bn_json_array());
    struct bn_json *calls = bn_json_get(message, "tool_calls");
    bn_json_each(pieces, i, piece)
    {
        size_t at = (size_t)bn_json_integer(bn_json_get(piece, "index"));
        const struct bn_json *function = bn_json_get(piece, "function");
        if (at == bn_json_size(calls)) {
            struct bn_json *call = bn_json_deep_copy(piece);
            bn_json_del(call, "index");
            bn_json_append(calls, call);
            continue;
        }
        assert_true(at + 1 == bn_json_size(calls)); /* one after the other */
        assert_null(bn_json_get(piece, "id"));
        append_text(bn_json_get(bn_json_at(calls, at), "function"), "arguments",
                    bn_json_get(function, "arguments"));
    }
}

static void add_choice(struct bn_json *choices, const struct bn_json *piece)
{
    size_t at = (size_t)bn_json_integer(bn_json_get(piece, "index"));
    struct bn_json *c = bn_json_at(choices, at), *delta = bn_json_get(piece, "delta");
    assert_non_null(c);
    assert_true(bn_json_is_null(bn_json_get(c, "finish_reason"))); /* nothing comes after it */
    if (delta) {
        struct bn_json *m = bn_json_get(c, "message");
        if (!m) { /* the first one says who is speaking, and nothing else */
            assert_string_equal(bn_json_text(bn_json_get(delta, "role")), "assistant");
            assert_string_equal(bn_json_text(bn_json_get(delta, "content")), "");
            bn_json_set(c, "message", bn_json_deep_copy(delta));
        } else {
            assert_null(bn_json_get(delta, "role"));
            append_text(m, "content", bn_json_get(delta, "content"));
            add_calls(m, bn_json_get(delta, "tool_calls"));
        }
    } else {
        append_text(c, "text", bn_json_get(piece, "text"));
    }
    const struct bn_json *logprobs = bn_json_get(piece, "logprobs");
    if (bn_json_is_object(logprobs)) {
        if (!bn_json_is_object(bn_json_get(c, "logprobs")))
            bn_json_set(c, "logprobs", bn_json_object());
        extend_lists(bn_json_get(c, "logprobs"), logprobs);
    }
    bn_json_set(c, "finish_reason", bn_json_ref(bn_json_get(piece, "finish_reason")));
}

/* A stream of chunks as {"choices", "usage"}. */
static struct bn_json *join_chunks(const char *at, uint32_t n_choices, bool usage)
{
    struct bn_json *choices = bn_json_array(), *whole = bn_json_pack("{s:o}", "choices", choices);
    for (uint32_t i = 0; i < n_choices; i++)
        bn_json_append(
            choices, bn_json_pack("{s:i, s:n, s:n}", "index", (int)i, "logprobs", "finish_reason"));
    char name[64];
    while (strncmp(at, "data: [DONE]\n\n", 14) != 0) {
        struct bn_json *chunk = next_event(&at, name);
        assert_string_equal(name, "");
        const struct bn_json *list = bn_json_get(chunk, "choices");
        const struct bn_json *told = bn_json_get(chunk, "usage");
        assert_true(usage ? told != NULL : told == NULL);
        if (bn_json_size(list)) {
            assert_int_equal(bn_json_size(list), 1);
            add_choice(choices, bn_json_at(list, 0));
            assert_true(!told || bn_json_is_null(told));
        } else {
            assert_null(bn_json_get(whole, "usage"));
            bn_json_set(whole, "usage", bn_json_deep_copy(told));
        }
        bn_json_free(chunk);
    }
    assert_string_equal(at, "data: [DONE]\n\n"); /* and that is the end */
    return whole;
}

/* A call without text has no content; in pieces that cannot be told from an empty one. */
static void empty_contents(struct bn_json *choices)
{
    size_t i;
    struct bn_json *c;
    bn_json_each(choices, i, c)
    {
        struct bn_json *m = bn_json_get(c, "message");
        if (m && bn_json_is_null(bn_json_get(m, "content")))
            bn_json_set(m, "content", bn_json_string(""));
    }
}

/* The request in r, with the events of the script. */
static void check_chunks(void)
{
    uint32_t n = (uint32_t)r.n_prompts * r.request.n_choices;
    struct bn_json *reply = reply_of_script();
    empty_contents(bn_json_get(reply, "choices"));
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        char *text = stream_of_script(patterns[i]);
        assert_non_null(text);
        struct bn_json *joined = join_chunks(text, n, r.include_usage);
        same_json(bn_json_get(joined, "choices"), bn_json_get(reply, "choices"));
        if (r.include_usage) same_json(bn_json_get(joined, "usage"), bn_json_get(reply, "usage"));
        bn_json_free(joined);
        free(text);
    }
    bn_json_free(reply);
}

/* ------------------------------------------------------------------ tests */

static void test_chat(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        begin(OPENAI_CHAT, "{" MESSAGES ", \"n\": 3, \"stop\": \"dog\", \"stream\": true, "
                           "\"stream_options\": {\"include_usage\": true}}");
        script_answer(0, 0, STORY, BITNET_FINISH_END);
        script_answer(0, 1, "", BITNET_FINISH_LENGTH);
        script_answer(0, 2, "x" STORY STORY, BITNET_FINISH_STOP);
        shuffle();
        check_chunks();
        openai_request_free(&r);
    }
}

static void test_logprobs(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        bool chat = round % 2;
        begin(chat ? OPENAI_CHAT : OPENAI_COMPLETION,
              chat ? "{" MESSAGES ", \"n\": 2, \"logprobs\": true, \"top_logprobs\": 2}"
                   : "{\"prompt\": \"a\", \"n\": 2, \"logprobs\": 2}");
        script_answer(0, 0, STORY, BITNET_FINISH_END);
        script_answer(0, 1, "b", BITNET_FINISH_TIMEOUT);
        shuffle();
        check_chunks();
        openai_request_free(&r);
    }
}

/* An echoed prompt with its log-probabilities, which come in pieces before any token. */
static void test_scored(void **state)
{
    (void)state;
    static bitnet_logprob scored[10][2];
    for (int round = 0; round < 20; round++) {
        begin(OPENAI_COMPLETION, "{\"prompt\": [[5, 6, 7], [8]], \"n\": 2, \"echo\": true, "
                                 "\"logprobs\": 1}");
        for (int i = 0; i < 10; i++)
            scored[i][0] = scored[i][1] = (bitnet_logprob){i + 40, -(float)below(1000) / 7};
        for (size_t at = 0, n; at < 10; at += n) {
            n = bn_min_size(1 + below(4), 10 - at);
            script.at[script.n].prompt = 0;
            script.at[script.n++].e = (bitnet_event){
                .token = -1, .text = "", .scored = scored[at], .n_scored = n, .n_top_scored = 1};
        }
        for (size_t p = 0; p < 2; p++)
            for (uint32_t c = 0; c < 2; c++) script_answer(p, c, STORY, BITNET_FINISH_LENGTH);
        check_chunks();
        struct bn_json *reply = reply_of_script();
        for (size_t i = 0; i < 4; i++) {
            const struct bn_json *l =
                bn_json_get(bn_json_at(bn_json_get(reply, "choices"), i), "logprobs");
            const struct bn_json *tokens = bn_json_get(l, "token_logprobs");
            assert_true(bn_json_is_null(bn_json_at(tokens, 0)));
            assert_true(bn_json_is_null(bn_json_at(bn_json_get(l, "top_logprobs"), 0)));
            if (i < 2)
                assert_true((float)bn_json_number(bn_json_at(tokens, 10)) == scored[9][0].logprob);
        }
        bn_json_free(reply);
        openai_request_free(&r);
    }
}

static void test_several_prompts(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        begin(OPENAI_COMPLETION, "{\"prompt\": [\"Once\", [5, 6], \"\xe2\x82\xac\"], \"n\": 2, "
                                 "\"echo\": true, \"stream_options\": {\"include_usage\": true}}");
        for (size_t p = 0; p < 3; p++)
            for (uint32_t c = 0; c < 2; c++)
                script_answer(p, c, p == c ? "" : STORY, BITNET_FINISH_LENGTH);
        shuffle();
        check_chunks();
        struct bn_json *reply = reply_of_script();
        const struct bn_json *choices = bn_json_get(reply, "choices"),
                             *last = bn_json_at(choices, 5);
        assert_string_equal(bn_json_text(bn_json_get(last, "text")), "\xe2\x82\xac" STORY);
        assert_int_equal(bn_json_integer(bn_json_get(bn_json_get(reply, "usage"), "prompt_tokens")),
                         3 + 4 + 5);
        bn_json_free(reply);
        openai_request_free(&r);
    }
}

static void test_calls(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        begin(OPENAI_CHAT, "{" MESSAGES ", \"n\": 3, " TOOLS "}");
        script_answer(0, 0, CALL("f", "{\"a\": \"\xe2\x82\xac }\"}") "\n" CALL("g", "{}"),
                      BITNET_FINISH_END);
        script_answer(0, 1, "I see. " CALL("g", "{\"b\": [1, {\"c\": 2}]}"), BITNET_FINISH_END);
        script_answer(0, 2, "a <tool_" STORY "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a",
                      BITNET_FINISH_LENGTH);
        shuffle();
        check_chunks();
        struct bn_json *reply = reply_of_script();
        char *text = bn_json_dump(bn_json_at(bn_json_get(reply, "choices"), 0), BN_JSON_COMPACT);
        assert_non_null(strstr(text, "\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":"));
        assert_non_null(strstr(text, "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"\xe2\x82\xac "
                                     "}\\\"}\""));
        assert_non_null(strstr(text, "\"finish_reason\":\"tool_calls\""));
        free(text);
        text = bn_json_dump(bn_json_at(bn_json_get(reply, "choices"), 2), BN_JSON_COMPACT);
        assert_non_null(strstr(text, "\"finish_reason\":\"length\""));
        free(text);
        bn_json_free(reply);
        openai_request_free(&r);
    }
}

/* To the engine a text before calls is complete at any time; to the client it was cut off. */
static void test_cut_text(void **state)
{
    (void)state;
    static const struct {
        uint32_t max_tokens;
        const char *answer, *reason;
    } cases[] = {{1, "a", "length"}, {50, "a", "stop"}, {1, CALL("f", "{}"), "tool_calls"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[256];
        snprintf(body, sizeof body, "{" MESSAGES ", " TOOLS ", \"max_tokens\": %u}",
                 cases[i].max_tokens);
        begin(OPENAI_CHAT, body);
        script_answer(0, 0, cases[i].answer, BITNET_FINISH_END);
        struct bn_json *reply = reply_of_script();
        const struct bn_json *choice = bn_json_at(bn_json_get(reply, "choices"), 0);
        assert_string_equal(bn_json_text(bn_json_get(choice, "finish_reason")), cases[i].reason);
        bn_json_free(reply);
        openai_request_free(&r);
    }
}

static void test_fails(void **state)
{
    (void)state;
    static const char *const bodies[] = {"{" MESSAGES ", \"n\": 2}", "{\"prompt\": \"a\"}",
                                         "{\"input\": \"a\"}"};
    static const enum openai_kind kinds[] = {OPENAI_CHAT, OPENAI_COMPLETION, OPENAI_RESPONSE};
    for (size_t i = 0; i < 3; i++) {
        begin(kinds[i], bodies[i]);
        struct openai_stream *s;
        struct bn_buf out;
        bn_buf_init(&out, 1 << 20);
        assert_int_equal(openai_stream_open(&s, &r, model, "7", 5, &err), BITNET_OK);
        bitnet_event e = {.token = 4, .text = "held back", .text_bytes = 9, .n_generated = 1};
        assert_int_equal(openai_stream_take(s, 0, &e, &err), BITNET_OK);
        e = (bitnet_event){
            .token = -1, .text = "", .finish = BITNET_FINISH_ERROR, .error = "it \"broke\""};
        assert_int_equal(openai_stream_take(s, 0, &e, &err), BITNET_OK);
        assert_true(openai_stream_done(s));
        assert_true(openai_stream_flush(s, &out));
        assert_non_null(strstr(out.data, "held back"));
        assert_non_null(strstr(out.data, "it \\\"broke\\\""));
        const char *end = kinds[i] == OPENAI_RESPONSE ? "}\n\n" : "data: [DONE]\n\n";
        assert_string_equal(out.data + out.len - strlen(end), end);
        assert_true((strstr(out.data, "event: response.failed\n") != NULL) ==
                    (kinds[i] == OPENAI_RESPONSE));
        assert_true((strstr(out.data, "data: {\"error\":{") != NULL) ==
                    (kinds[i] != OPENAI_RESPONSE));
        openai_stream_close(s);
        bn_buf_free(&out);
        openai_request_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),   cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_scored), cmocka_unit_test(test_several_prompts),
        cmocka_unit_test(test_calls),  cmocka_unit_test(test_cut_text),
        cmocka_unit_test(test_fails),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
