/* SPDX-License-Identifier: Apache-2.0
 * Bodies of /v1/messages as requests: the chat that they become, and what is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../openai/openai_common.h"
#include "server/anthropic/anthropic.h"

static bool strict;

static bitnet_status read_message(const char *body)
{
    const struct openai_defaults d = {.max_tokens = 77, .seed = 99, .strict = strict};
    struct bn_json *j = json_of(body);
    err = (bitnet_error){0};
    bitnet_status s = anthropic_dialect.read(&r, j, &d, &err);
    bn_json_free(j);
    return s;
}

static void becomes(const char *body, const char *messages)
{
    if (read_message(body) != BITNET_OK) fail_msg("%s: %s", body, err.text);
    char *text = bn_json_dump(r.messages, BN_JSON_COMPACT);
    assert_string_equal(text, messages);
    free(text);
    openai_request_free(&r);
}

static void says(const char *body, const char *what)
{
    assert_int_not_equal(read_message(body), BITNET_OK);
    assert_int_equal(openai_error_code(err.status), 400);
    if (!strstr(err.text, what)) fail_msg("%s: '%s' does not say '%s'", body, err.text, what);
    assert_null(r.body);
}

#define USER(content) "{\"messages\": [{\"role\": \"user\", \"content\": " content "}]}"

static void test_texts(void **state)
{
    (void)state;
    becomes(USER("\"hi\""), "[{\"role\":\"user\",\"content\":\"hi\"}]");
    becomes(USER("[{\"type\": \"text\", \"text\": \"a\", \"cache_control\": {\"type\": "
                 "\"ephemeral\"}}, {\"type\": \"text\", \"text\": \"b\"}]"),
            "[{\"role\":\"user\",\"content\":\"ab\"}]");
    becomes("{\"system\": \"be\", \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}",
            "[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":\"hi\"}]");
    becomes("{\"system\": [{\"type\": \"text\", \"text\": \"x\"}, {\"type\": \"text\", \"text\": "
            "\"y\"}], \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}",
            "[{\"role\":\"system\",\"content\":\"xy\"},{\"role\":\"user\",\"content\":\"hi\"}]");
}

/* What a client hands back of an answer, with the results of the tools that it called. */
static void test_tools_in_history(void **state)
{
    (void)state;
    becomes(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"w?\"},"
        "{\"role\": \"assistant\", \"content\": ["
        "{\"type\": \"thinking\", \"thinking\": \"hm\", \"signature\": \"\"},"
        "{\"type\": \"text\", \"text\": \"I look\"},"
        "{\"type\": \"tool_use\", \"id\": \"t1\", \"name\": \"f\", \"input\": {\"a\": 1}},"
        "{\"type\": \"tool_use\", \"id\": \"t2\", \"name\": \"g\", \"input\": {}}]},"
        "{\"role\": \"user\", \"content\": ["
        "{\"type\": \"tool_result\", \"tool_use_id\": \"t1\", \"content\": \"sun\"},"
        "{\"type\": \"tool_result\", \"tool_use_id\": \"t2\", \"is_error\": true, \"content\": "
        "[{\"type\": \"text\", \"text\": \"no\"}]},"
        "{\"type\": \"text\", \"text\": \"so?\"}]}]}",
        "[{\"role\":\"user\",\"content\":\"w?\"},"
        "{\"role\":\"assistant\",\"content\":\"I look\",\"tool_calls\":["
        "{\"id\":\"t1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{"
        "\\\"a\\\": 1}\"}},"
        "{\"id\":\"t2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}"
        "],\"reasoning_content\":\"hm\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t1\",\"content\":\"sun\"},"
        "{\"role\":\"tool\",\"tool_call_id\":\"t2\",\"content\":\"no\"},"
        "{\"role\":\"user\",\"content\":\"so?\"}]");
}

static void test_options(void **state)
{
    (void)state;
    const char *body =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"model\": \"m\", "
        "\"max_tokens\": 5, \"temperature\": 0.5, \"top_p\": 0.25, \"top_k\": 7, \"stream\": true, "
        "\"stop_sequences\": [\"x\", \"y\"], \"metadata\": {\"user_id\": \"u\"}, \"seed\": 3, "
        "\"tools\": [{\"name\": \"f\", \"description\": \"d\", \"input_schema\": {\"type\": "
        "\"object\"}}], \"tool_choice\": {\"type\": \"any\", \"disable_parallel_tool_use\": true}}";
    if (read_message(body) != BITNET_OK) fail_msg("%s", err.text);
    const bitnet_request *q = &r.request;
    assert_int_equal(q->max_new_tokens, 5);
    assert_true(q->sampling.temperature == 0.5f && q->sampling.top_p == 0.25f);
    assert_int_equal(q->sampling.top_k, 7);
    assert_int_equal(q->sampling.seed, 3);
    assert_int_equal(q->n_stop, 2);
    assert_string_equal(q->stop[1], "y");
    assert_true(r.stream && r.tools && !r.parallel);
    assert_ptr_equal(r.dialect, &anthropic_dialect);
    openai_request_free(&r);
}

/* Unknown members are told, wherever they stand; a strict server refuses them. */
static void test_ignored(void **state)
{
    (void)state;
    strict = false;
    assert_int_equal(
        read_message("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                     "\"text\": \"a\", \"color\": 1}]}], \"n\": 4, \"wich\": 2}"),
        BITNET_OK);
    assert_string_equal(r.ignored.names, "wich, messages.content.color, n");
    assert_int_equal(r.ignored.n, 3);
    assert_int_equal(r.request.n_choices, 1);
    openai_request_free(&r);
    strict = true;
    says("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"wich\": 2}", "'wich'");
}

static void test_refused(void **state)
{
    (void)state;
    says("{}", "'messages' is not a list");
    says("{\"messages\": []}", "'messages' is not a list");
    says("{\"messages\": [5]}", "message 0 is not an object");
    says("{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "role 'tool'");
    says(USER("5"), "neither a text nor a list of blocks");
    says(USER("[{\"type\": \"image\", \"source\": {}}]"), "image input is not supported");
    says(USER("[{\"type\": \"document\"}]"), "a block of type 'document'");
    says(USER("[{\"type\": \"tool_use\"}]"), "a block of type 'tool_use'"); /* of a user */
    says(USER("[{\"type\": \"tool_result\"}]"), "no 'tool_use_id'");
    says("{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": "
         "\"a\", \"name\": \"b\", \"input\": \"c\"}]}]}",
         "an object 'input'");
    says("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": "
         "\"web_search_20250305\", \"name\": \"web_search\"}]}",
         "'web_search_20250305', which this server cannot run or offer");
    says("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tool_choice\": {\"type\": "
         "\"tool\"}}",
         "'tool_choice' is not");
    says("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"thinking\": true}",
         "'thinking' is not");
    says("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"temperature\": 9}",
         "'temperature' is 9; 0 to 5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_tools_in_history),
        cmocka_unit_test(test_options), cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
