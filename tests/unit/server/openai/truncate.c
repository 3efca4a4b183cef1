/* SPDX-License-Identifier: Apache-2.0
 * Conversations that have grown beyond the context lose whole exchanges, the oldest first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "openai_common.h"
#include <stdio.h>

enum { N_EXCHANGES = 12 };
static const char plain[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";

/* A system message, then exchanges with a call of a tool in each. */
static void read_talk(uint32_t ctx_tokens, const char *truncation)
{
    static char body[16384];
    const struct openai_defaults d = {
        .max_tokens = 0, .strict = true, .ctx_tokens = ctx_tokens, .truncate = false};
    size_t n = (size_t)snprintf(body, sizeof body,
                                "{\"truncation\": \"%s\", \"messages\": [{\"role\": \"system\", "
                                "\"content\": \"Be good.\"}",
                                truncation);
    for (int i = 0; i < N_EXCHANGES; i++)
        n += (size_t)snprintf(
            body + n, sizeof body - n,
            ", {\"role\": \"user\", \"content\": \"Question %d about cats and dogs\"}, {\"role\": "
            "\"assistant\", \"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": "
            "{\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": "
            "\"c\", \"content\": \"Result %d\"}, {\"role\": \"assistant\", \"content\": \"Answer "
            "%d\"}",
            i, i, i);
    snprintf(body + n, sizeof body - n, ", {\"role\": \"user\", \"content\": \"The last one\"}]}");
    struct bn_json *j = json_of(body);
    if (openai_request_read(&r, OPENAI_CHAT, j, &d, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_json_free(j);
}

static const char *content(size_t i)
{
    return bn_json_text(bn_json_get(bn_json_at(r.messages, i), "content"));
}

static void test_tokens(void **state)
{
    (void)state;
    read_talk(100000, "auto"); /* all of it fits */
    assert_int_equal(openai_request_encode(&r, model, plain, &err), BITNET_OK);
    size_t whole = r.prompts[0].n_tokens;
    assert_int_equal(r.n_dropped, 0);
    openai_request_free(&r);
    for (uint32_t share = 2; share <= 5; share++) {
        uint32_t ctx = (uint32_t)whole / share;
        read_talk(ctx, "auto");
        assert_int_equal(openai_request_encode(&r, model, plain, &err), BITNET_OK);
        assert_true(r.prompts[0].n_tokens <= ctx - ctx / 8);
        assert_true(r.n_dropped > 0 && r.n_dropped % 4 == 0); /* whole exchanges */
        size_t n = bn_json_size(r.messages);
        assert_int_equal(n, 2 + 4 * N_EXCHANGES - r.n_dropped);
        assert_string_equal(content(0), "Be good.");
        assert_string_equal(content(n - 1), "The last one");
        if (n > 2) assert_memory_equal(content(1), "Question", 8);
        openai_request_free(&r);
    }
    read_talk((uint32_t)whole / 2, "disabled");
    assert_int_equal(openai_request_encode(&r, model, plain, &err), BITNET_OK);
    assert_int_equal(r.prompts[0].n_tokens, whole);
    assert_int_equal(openai_request_fits(&r, (uint32_t)whole / 2, &err), BITNET_E_LIMIT);
    openai_request_free(&r);
}

/* What the last exchange alone does not fit into is still too little. */
static void test_too_little(void **state)
{
    (void)state;
    read_talk(8, "auto");
    assert_int_equal(openai_request_encode(&r, model, plain, &err), BITNET_OK);
    assert_int_equal(bn_json_size(r.messages), 2);
    assert_int_equal(openai_request_fits(&r, 8, &err), BITNET_E_LIMIT);
    openai_request_free(&r);
}

/* Before anything is encoded, by bytes. */
static void test_bytes(void **state)
{
    (void)state;
    read_talk(100000, "auto");
    assert_int_equal(openai_check_bytes(&r, 200, &err), BITNET_OK);
    assert_true(r.n_dropped > 0);
    assert_string_equal(content(bn_json_size(r.messages) - 1), "The last one");
    openai_request_free(&r);
    read_talk(100000, "disabled");
    assert_int_equal(openai_check_bytes(&r, 200, &err), BITNET_E_LIMIT);
    openai_request_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_too_little),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
