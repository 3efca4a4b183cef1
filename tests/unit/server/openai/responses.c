/* SPDX-License-Identifier: Apache-2.0
 * Bodies of /v1/responses as requests, and the object it answers with, whole and in events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "openai_script.h"
#include <stdio.h>

static void has_messages(const char *body, const char *messages)
{
    accepts(OPENAI_RESPONSE, body);
    char *text = bn_json_dump(r.messages, BN_JSON_COMPACT);
    assert_string_equal(text, messages);
    free(text);
    openai_request_free(&r);
}

static void test_input(void **state)
{
    (void)state;
    has_messages("{\"input\": \"hi\"}", "[{\"role\":\"user\",\"content\":\"hi\"}]");
    has_messages(
        "{\"input\": [{\"role\": \"user\", \"content\": \"hi\"}], \"instructions\": \"be\"}",
        "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    /* what a client has of an earlier response, given back with a call and its result */
    has_messages(
        "{\"input\": [{\"type\": \"message\", \"role\": \"user\", \"content\": [{\"type\": "
        "\"input_text\", \"text\": \"a\"}, {\"type\": \"input_text\", \"text\": \"b\"}]}, "
        "{\"id\": \"rs_1\", \"type\": \"reasoning\", \"summary\": []}, "
        "{\"id\": \"msg_1\", \"type\": \"message\", \"status\": \"completed\", \"role\": "
        "\"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"c\", "
        "\"annotations\": [], \"logprobs\": []}]}, "
        "{\"type\": \"function_call\", \"id\": \"fc_1\", \"call_id\": \"c1\", \"name\": \"f\", "
        "\"arguments\": \"{}\", \"status\": \"completed\"}, "
        "{\"type\": \"function_call\", \"call_id\": \"c2\", \"name\": \"g\", \"arguments\": "
        "\"{}\"}, "
        "{\"type\": \"function_call_output\", \"call_id\": \"c1\", \"output\": \"1\"}]}",
        "[{\"role\":\"user\",\"content\":\"ab\"},"
        "{\"role\":\"assistant\",\"content\":\"c\",\"tool_calls\":["
        "{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},"
        "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}"
        ",{\"role\":\"tool\",\"content\":\"1\",\"tool_call_id\":\"c1\"}]");
    has_messages("{\"input\": [{\"type\": \"function_call\", \"call_id\": \"c\", \"name\": \"f\", "
                 "\"arguments\": \"\"}]}",
                 "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":"
                 "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}]");
}

static void test_options(void **state)
{
    (void)state;
    accepts(OPENAI_RESPONSE,
            "{\"input\": \"a\", \"max_output_tokens\": 5, \"temperature\": 0.5, \"top_p\": 0.25, "
            "\"stream\": true, \"store\": true, \"metadata\": {\"a\": \"b\"}, \"reasoning\": "
            "{\"effort\": \"low\"}, \"truncation\": \"disabled\", \"previous_response_id\": null, "
            "\"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"schema\": "
            "{\"type\": \"object\"}}, \"verbosity\": \"low\"}, \"background\": false}");
    assert_int_equal(r.request.max_new_tokens, 5);
    assert_true(r.request.sampling.temperature == 0.5f && r.request.sampling.top_p == 0.25f);
    assert_string_equal(r.request.json_schema, "{\"type\":\"object\"}");
    assert_true(r.stream);
    openai_request_free(&r);
    accepts(OPENAI_RESPONSE,
            "{\"input\": \"a\", \"tools\": [{\"type\": \"function\", \"name\": \"f\", "
            "\"parameters\": {\"type\": \"object\"}, \"strict\": true}], \"tool_choice\": "
            "{\"type\": \"function\", \"name\": \"f\"}}");
    assert_non_null(r.tools);
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_non_null(r.request.grammar);
    openai_request_free(&r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *member, *says, *param;
    } bad[] = {
        {"\"max_tokens\": 5", "'max_tokens' is not an option of a response", NULL},
        {"\"n\": 2", "'n' is not an option of a response", NULL},
        {"\"messages\": []", "a response takes 'input', not 'messages'", NULL},
        {"\"previous_response_id\": \"resp_1\"", "nothing is stored", "previous_response_id"},
        {"\"conversation\": \"c\"", "nothing is stored", "conversation"},
        {"\"truncation\": \"off\"", "auto and disabled exist", "truncation"},
        {"\"background\": true", "background", "background"},
        {"\"include\": [\"file_search_call.results\"]", "file_search_call", "include"},
        {"\"include\": \"x\"", "not a list", "include"},
        {"\"top_logprobs\": 2", "in 'include'", "top_logprobs"},
        {"\"text\": {\"fromat\": {}}", "'fromat'", "text"},
        {"\"text\": {\"format\": {\"type\": \"xml\"}}", "'xml'", "text"},
        {"\"text\": {\"format\": {\"type\": \"json_schema\"}}", "no object 'schema'", "text"},
        {"\"tools\": [{\"type\": \"web_search\"}]", "web_search", "tools"},
        {"\"tools\": [{\"type\": \"function\"}]", "name", "tools"},
        {"\"instructions\": 5", "'instructions' is not a string", "input"},
    };
    char body[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(body, sizeof body, "{\"input\": \"a\", %s}", bad[i].member);
        refuses(OPENAI_RESPONSE, body, bad[i].says);
        if (bad[i].param) assert_string_equal(r.param, bad[i].param);
    }
    static const struct {
        const char *input, *says;
    } inputs[] = {
        {"5", "not a list of messages"},
        {"[]", "not a list of messages"},
        {"[5]", "not an object"},
        {"[{\"type\": \"reasoning\"}]", "no message"},
        {"[{\"type\": \"item_reference\", \"id\": \"x\"}]", "'item_reference'"},
        {"[{\"role\": \"user\"}]", "content"},
        {"[{\"role\": \"user\", \"content\": \"\", \"x\": 1}]", "'x'"},
        {"[{\"role\": \"user\", \"content\": [{\"type\": \"input_image\"}]}]", "input_image"},
        {"[{\"type\": \"function_call\", \"name\": \"f\", \"arguments\": \"\"}]", "call_id"},
        {"[{\"type\": \"function_call_output\", \"call_id\": \"f\"}]", "output"},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        snprintf(body, sizeof body, "{\"input\": %s}", inputs[i].input);
        refuses(OPENAI_RESPONSE, body, inputs[i].says);
        assert_string_equal(r.param, "input");
    }
    refuses(OPENAI_RESPONSE, "{\"instructions\": \"a\"}", "no 'input'");
}

static struct bn_json *answer_with(const char *text, bitnet_finish finish, bool with_cached)
{
    struct openai_reply reply;
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 9, &err), BITNET_OK);
    bitnet_event e = {.token = 4,
                      .text = text,
                      .text_bytes = strlen(text),
                      .finish = finish,
                      .n_prompt = 10,
                      .n_cached = 8,
                      .n_generated = 3};
    assert_int_equal(openai_reply_take(&reply, 0, &e, &err), BITNET_OK);
    struct bn_json *j = openai_reply_json(&reply, with_cached);
    assert_non_null(j);
    openai_reply_close(&reply);
    return j;
}

static void member_is(const struct bn_json *j, const char *key, const char *text)
{
    char *dumped = bn_json_dump(bn_json_get(j, key), OPENAI_DUMP_FLAGS);
    if (!dumped || strcmp(dumped, text) != 0) fail_msg("%s is %s, not %s", key, dumped, text);
    free(dumped);
}

static void test_object(void **state)
{
    (void)state;
    accepts(OPENAI_RESPONSE, "{\"input\": \"a\", \"temperature\": 0.7, \"metadata\": {\"k\": "
                             "\"v\"}, \"instructions\": \"i\"}");
    struct bn_json *j = answer_with("b", BITNET_FINISH_END, true);
    member_is(j, "id", "\"resp_7\"");
    member_is(j, "object", "\"response\"");
    member_is(j, "created_at", "9");
    member_is(j, "status", "\"completed\"");
    member_is(j, "error", "null");
    member_is(j, "incomplete_details", "null");
    member_is(j, "model", "\"stories-31m\"");
    member_is(j, "output",
              "[{\"id\":\"msg_7\",\"type\":\"message\",\"status\":\"completed\",\"role\":"
              "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":"
              "[],\"logprobs\":[]}]}]");
    member_is(j, "usage",
              "{\"input_tokens\":10,\"output_tokens\":3,\"output_tokens_details\":{"
              "\"reasoning_tokens\":0},\"total_tokens\":13,\"input_tokens_details\":{"
              "\"cached_tokens\":8}}");
    member_is(j, "temperature", "0.7");
    member_is(j, "top_p", "1.0");
    member_is(j, "metadata", "{\"k\":\"v\"}");
    member_is(j, "instructions", "\"i\"");
    member_is(j, "tools", "[]");
    member_is(j, "tool_choice", "\"auto\"");
    member_is(j, "parallel_tool_calls", "true");
    member_is(j, "text", "{\"format\":{\"type\":\"text\"}}");
    bn_json_free(j);
    j = answer_with("b", BITNET_FINISH_LENGTH, false);
    member_is(j, "status", "\"incomplete\"");
    member_is(j, "incomplete_details", "{\"reason\":\"max_output_tokens\"}");
    assert_null(bn_json_get(bn_json_get(j, "usage"), "input_tokens_details"));
    bn_json_free(j);
    j = answer_with("b", BITNET_FINISH_CANCELLED, true);
    member_is(j, "status", "\"cancelled\"");
    bn_json_free(j);
    j = answer_with("b", BITNET_FINISH_ERROR, true);
    member_is(j, "status", "\"failed\"");
    member_is(j, "error", "{\"code\":\"server_error\",\"message\":\"the request failed\"}");
    bn_json_free(j);
    openai_request_free(&r);
}

/* ------------------------------------------------------------------ events */

#define FLAT_TOOLS                                                                               \
    "\"tools\": [{\"type\": \"function\", \"name\": \"f\"}, {\"type\": \"function\", \"name\": " \
    "\"g\"}]"

/* What a client makes of the events: a list of items, as they grow. */
static void take_response_event(struct bn_json *items, const struct bn_json *e, const char *type)
{
    size_t at = (size_t)bn_json_integer(bn_json_get(e, "output_index"));
    struct bn_json *item = bn_json_at(items, at);
    if (strcmp(type, "response.output_item.added") == 0) {
        assert_int_equal(at, bn_json_size(items)); /* in their order */
        bn_json_append(items, bn_json_deep_copy(bn_json_get(e, "item")));
        return;
    }
    assert_non_null(item);
    if (strcmp(type, "response.output_item.done") == 0) {
        /* what was put together is what is told now, but for its status */
        bn_json_set(item, "status", bn_json_ref(bn_json_get(bn_json_get(e, "item"), "status")));
        same_json(item, bn_json_get(e, "item"));
        return;
    }
    assert_string_equal(bn_json_text(bn_json_get(e, "item_id")),
                        bn_json_text(bn_json_get(item, "id")));
    struct bn_json *part = bn_json_at(bn_json_get(item, "content"), 0);
    if (strcmp(type, "response.content_part.added") == 0)
        bn_json_append(bn_json_get(item, "content"), bn_json_deep_copy(bn_json_get(e, "part")));
    else if (strcmp(type, "response.output_text.delta") == 0) {
        append_text(part, "text", bn_json_get(e, "delta"));
        bn_json_extend(bn_json_get(part, "logprobs"), bn_json_get(e, "logprobs"));
    } else if (strcmp(type, "response.function_call_arguments.delta") == 0)
        append_text(item, "arguments", bn_json_get(e, "delta"));
    else if (strcmp(type, "response.function_call_arguments.done") == 0)
        same_json(bn_json_get(e, "arguments"), bn_json_get(item, "arguments"));
    else if (strcmp(type, "response.output_text.done") == 0)
        same_json(bn_json_get(e, "text"), bn_json_get(part, "text"));
    else if (strcmp(type, "response.content_part.done") == 0)
        same_json(bn_json_get(e, "part"), part);
    else fail_msg("an event '%s'", type);
}

static void check_response(const char *last)
{
    struct bn_json *reply = reply_of_script();
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        char *text = stream_of_script(patterns[i]);
        struct bn_json *items = bn_json_array();
        const char *at = text;
        char name[64];
        for (int64_t n = 0; *at; n++) {
            struct bn_json *e = next_event(&at, name);
            assert_string_equal(bn_json_text(bn_json_get(e, "type")), name);
            assert_int_equal(bn_json_integer(bn_json_get(e, "sequence_number")), n);
            const struct bn_json *whole = bn_json_get(e, "response");
            if (n < 2) {
                assert_string_equal(name, n ? "response.in_progress" : "response.created");
                assert_string_equal(bn_json_text(bn_json_get(whole, "status")), "in_progress");
                assert_int_equal(bn_json_size(bn_json_get(whole, "output")), 0);
            } else if (!*at) {
                assert_string_equal(name, last);
                same_json(whole, reply);
            } else {
                take_response_event(items, e, name);
            }
            bn_json_free(e);
        }
        same_json(items, bn_json_get(reply, "output"));
        bn_json_free(items);
        free(text);
    }
    bn_json_free(reply);
}

static void test_events(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        bitnet_finish finish;
        const char *last;
    } cases[] = {
        {STORY, BITNET_FINISH_END, "response.completed"},
        {"", BITNET_FINISH_STOP, "response.completed"},
        {STORY, BITNET_FINISH_LENGTH, "response.incomplete"},
        {CALL("f", "{\"a\": 1}"), BITNET_FINISH_END, "response.completed"},
        {"So: " CALL("f", "{\"a\": 1}") "\n" CALL("g", "{}"), BITNET_FINISH_END,
         "response.completed"},
        {CALL("f", "{\"a\": 1}") "\n" CALL("g", "{}") " and so", BITNET_FINISH_END,
         "response.completed"},
        {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a", BITNET_FINISH_LENGTH,
         "response.incomplete"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int round = 0; round < 20; round++) {
            begin(OPENAI_RESPONSE,
                  round % 2 ? "{\"input\": \"a\", " FLAT_TOOLS "}"
                            : "{\"input\": \"a\", \"include\": [\"message.output_text.logprobs\"], "
                              "\"top_logprobs\": 2, \"metadata\": {\"k\": \"v\"}, " FLAT_TOOLS "}");
            script_answer(0, 0, cases[i].answer, cases[i].finish);
            check_response(cases[i].last);
            openai_request_free(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input),   cmocka_unit_test(test_options),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_object),
        cmocka_unit_test(test_events),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
