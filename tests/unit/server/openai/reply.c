/* SPDX-License-Identifier: Apache-2.0
 * Events as replies, and errors, without an engine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "openai_common.h"

static void give(struct openai_reply *reply, bitnet_event e)
{
    if (!e.text) e.text = "";
    e.text_bytes = strlen(e.text);
    e.n_prompt = 3;
    assert_int_equal(openai_reply_take(reply, 0, &e, &err), BITNET_OK);
}

static char *dump(struct openai_reply *reply)
{
    struct bn_json *j = openai_reply_json(reply, false);
    assert_non_null(j);
    char *text = bn_json_dump(bn_json_get(j, "choices"), BN_JSON_COMPACT | BN_JSON_DIGITS(9));
    assert_int_equal(bn_json_integer(bn_json_get(j, "created")), 0);
    bn_json_free(j);
    return text;
}

static void test_reply_choices(void **state)
{
    (void)state;
    struct openai_reply reply;
    accepts(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"n\": 2}");
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    give(&reply, (bitnet_event){.token = -1});
    give(&reply, (bitnet_event){.token = 4, .choice = 1, .text = "b", .n_generated = 1});
    give(&reply, (bitnet_event){.token = 5, .choice = 0, .text = "a\n", .n_generated = 1});
    give(&reply,
         (bitnet_event){.token = -1, .choice = 1, .finish = BITNET_FINISH_END, .n_generated = 1});
    assert_false(openai_reply_done(&reply));
    give(&reply, (bitnet_event){.token = 6, .choice = 0, .text = "\xff", .n_generated = 2});
    give(&reply, (bitnet_event){
                     .token = -1, .choice = 0, .finish = BITNET_FINISH_LENGTH, .n_generated = 2});
    assert_true(openai_reply_done(&reply));
    bitnet_event stray = {.choice = 2, .text = ""};
    assert_int_equal(openai_reply_take(&reply, 0, &stray, &err), BITNET_E_INTERNAL);
    char *text = dump(&reply);
    assert_string_equal(
        text,
        "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a\\n\xef\xbf\xbd\","
        "\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"length\"},"
        "{\"index\":1,\"message\":{\"role\":\"assistant\",\"content\":\"b\",\"refusal\":null},"
        "\"logprobs\":null,\"finish_reason\":\"stop\"}]");
    free(text);
    struct bn_json *j = openai_reply_json(&reply, false);
    assert_string_equal(bn_json_text(bn_json_get(j, "id")), "chatcmpl-7");
    assert_string_equal(bn_json_text(bn_json_get(j, "object")), "chat.completion");
    assert_string_equal(bn_json_text(bn_json_get(j, "model")), "stories-31m");
    const struct bn_json *usage = bn_json_get(j, "usage");
    assert_int_equal(bn_json_integer(bn_json_get(usage, "prompt_tokens")), 3);
    assert_int_equal(bn_json_integer(bn_json_get(usage, "completion_tokens")), 3);
    assert_int_equal(bn_json_integer(bn_json_get(usage, "total_tokens")), 6);
    bn_json_free(j);
    openai_reply_close(&reply);
}

/* the tokens of " time" and "Once" in the small model's vocabulary */
static void two_tokens(int32_t out[2])
{
    size_t n = 1;
    assert_int_equal(bitnet_encode(model, " time", 5, 0, out, &n, &err), BITNET_OK);
    n = 1;
    assert_int_equal(bitnet_encode(model, "Once", 4, 0, out + 1, &n, &err), BITNET_OK);
}

static void test_reply_logprobs(void **state)
{
    (void)state;
    int32_t ids[2];
    two_tokens(ids);
    const bitnet_logprob top[] = {{ids[0], -0.25f}, {ids[1], -1.5f}, {ids[0], -INFINITY}};
    const bitnet_event e = {.token = ids[0],
                            .text = " time",
                            .n_generated = 1,
                            .logprob = -0.25f,
                            .n_top = 2,
                            .top = top};
    struct openai_reply reply;
    accepts(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                         "\"logprobs\": true, \"top_logprobs\": 2}");
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    give(&reply, e);
    give(&reply, (bitnet_event){.token = -1, .finish = BITNET_FINISH_STOP, .n_generated = 1});
    char *text = dump(&reply);
    assert_non_null(strstr(
        text,
        "\"logprobs\":{\"content\":[{\"token\":\" time\",\"logprob\":-0.25,\"bytes\":[32,116,"
        "105,109,101],\"top_logprobs\":[{\"token\":\" time\",\"logprob\":-0.25,\"bytes\":[32,"
        "116,105,109,101]},{\"token\":\"Once\",\"logprob\":-1.5,\"bytes\":[79,110,99,101]}]}],"
        "\"refusal\":null},\"finish_reason\":\"stop\""));
    free(text);
    openai_reply_close(&reply);

    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": 2}");
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    give(&reply, e);
    bitnet_event twins = e; /* two tokens that look the same: the first counts */
    twins.n_top = 3;
    twins.logprob = -INFINITY;
    give(&reply, twins);
    give(&reply, (bitnet_event){.token = -1, .finish = BITNET_FINISH_LENGTH, .n_generated = 2});
    text = dump(&reply);
    assert_string_equal(
        text,
        "[{\"index\":0,\"text\":\" time time\",\"logprobs\":{\"tokens\":[\" time\",\" time\"],"
        "\"token_logprobs\":[-0.25,-9999.0],\"top_logprobs\":[{\" time\":-0.25,\"Once\":-1.5},"
        "{\" time\":-0.25,\"Once\":-1.5}],\"text_offset\":[0,5]},\"finish_reason\":\"length\"}]");
    free(text);
    openai_reply_close(&reply);
}

/* An echoed prompt: its first token has nothing to be judged by; special ones are not in the text. */
static void test_reply_echo(void **state)
{
    (void)state;
    int32_t ids[2];
    two_tokens(ids);
    const bitnet_logprob scored[] = {
        {ids[1], -0.5f}, {ids[1], -0.5f}, {ids[0], -1e-7f}, {ids[0], -1e-7f}};
    struct openai_reply reply;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"Once time\", \"echo\": true, \"logprobs\": 1, "
                               "\"n\": 2, \"max_tokens\": 1}");
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    give(&reply, (bitnet_event){.token = -1, .scored = scored, .n_scored = 1, .n_top_scored = 1});
    give(&reply,
         (bitnet_event){.token = -1, .scored = scored + 2, .n_scored = 1, .n_top_scored = 1});
    for (uint32_t i = 0; i < 2; i++) {
        give(&reply, (bitnet_event){.choice = i,
                                    .token = ids[i],
                                    .text = i ? "Once" : " time",
                                    .n_generated = 1,
                                    .logprob = -2,
                                    .n_top = 1,
                                    .top = scored});
        give(&reply,
             (bitnet_event){
                 .choice = i, .token = -1, .finish = BITNET_FINISH_LENGTH, .n_generated = 1});
    }
    char *text = dump(&reply);
    assert_non_null(strstr(
        text, "[{\"index\":0,\"text\":\"Once time time\",\"logprobs\":{\"tokens\":["
              "\"<|begin_of_text|>\",\"Once\",\" time\",\" time\"],"
              "\"token_logprobs\":[null,-0.5,-1.00000001e-07,-2.0],"
              "\"top_logprobs\":[null,{\"Once\":-0.5},{\" time\":-1.00000001e-07},{\"Once\":-0.5}],"
              "\"text_offset\":[0,0,4,9]},\"finish_reason\":\"length\"}"));
    assert_non_null(strstr(text, "\"text\":\"Once timeOnce\",\"logprobs\":{\"tokens\":["
                                 "\"<|begin_of_text|>\",\"Once\",\" time\",\"Once\"]"));
    free(text);
    openai_reply_close(&reply);
}

/* Any bytes, quoted by hand, are read back as what openai_text makes of them. */
static void test_quote(void **state)
{
    (void)state;
    struct bn_rng rng = {7};
    char bytes[40];
    for (int round = 0; round < 20000; round++) {
        size_t n = bn_rng_below(&rng, sizeof bytes);
        for (size_t i = 0; i < n; i++)
            bytes[i] =
                round % 2
                    ? (char)bn_rng_below(&rng, 256)
                    : "\xf0\x9f\x90\xb6\xe2\x82\xac\xc3\xa9\"\\\n\x7f"[bn_rng_below(&rng, 13)];
        struct bn_buf b;
        bn_buf_init(&b, 1 << 10);
        assert_true(bn_json_quote(&b, bytes, n));
        struct bn_json *read = json_of_bytes(b.data, b.len, BN_JSON_ANY),
                       *meant = openai_text(bytes, n);
        assert_non_null(read);
        assert_true(bn_json_equal(read, meant));
        bn_json_free(read);
        bn_json_free(meant);
        bn_buf_free(&b);
    }
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type, *code;
    } known[] = {
        {400, "invalid_request_error", NULL},
        {401, "authentication_error", "invalid_api_key"},
        {404, "not_found_error", NULL},
        {405, "invalid_request_error", NULL},
        {408, "timeout_error", NULL},
        {413, "invalid_request_error", NULL},
        {429, "rate_limit_error", "rate_limit_exceeded"},
        {500, "server_error", NULL},
        {503, "server_error", NULL},
        {504, "timeout_error", NULL},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const struct openai_fault f = {.status = known[i].status, .sentence = "no \xff"};
        struct bn_json *j = openai_error_json(&f);
        const struct bn_json *e = bn_json_get(j, "error"), *code = bn_json_get(e, "code");
        assert_string_equal(bn_json_text(bn_json_get(e, "message")), "no \xef\xbf\xbd");
        assert_string_equal(bn_json_text(bn_json_get(e, "type")), known[i].type);
        assert_true(bn_json_is_null(bn_json_get(e, "param")));
        if (known[i].code) assert_string_equal(bn_json_text(code), known[i].code);
        else assert_true(bn_json_is_null(code));
        bn_json_free(j);
    }
    const struct openai_fault f = {.status = 400,
                                   .sentence = "too long",
                                   .param = "messages",
                                   .code = "context_length_exceeded",
                                   .n_prompt = 600,
                                   .n_ctx = 512};
    struct bn_json *j = openai_error_json(&f);
    char *text = bn_json_dump(j, BN_JSON_COMPACT);
    assert_string_equal(text,
                        "{\"error\":{\"message\":\"too long\",\"type\":"
                        "\"invalid_request_error\",\"param\":\"messages\",\"code\":"
                        "\"context_length_exceeded\",\"n_prompt_tokens\":600,\"n_ctx\":512}}");
    free(text);
    bn_json_free(j);
}

static void test_reply_error(void **state)
{
    (void)state;
    struct openai_reply reply;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"n\": 3}");
    assert_int_equal(openai_reply_open(&reply, &r, model, "7", 0, &err), BITNET_OK);
    openai_request_free(&r);
    give(&reply, (bitnet_event){.token = -1, .finish = BITNET_FINISH_ERROR, .error = "broken"});
    assert_true(openai_reply_done(&reply)); /* the other choices are not waited for */
    const struct openai_fault f = openai_fault_of(&reply.error);
    struct bn_json *j = openai_error_json(&f);
    char *text = bn_json_dump(j, BN_JSON_COMPACT);
    assert_string_equal(text, "{\"error\":{\"message\":\"broken\",\"type\":\"server_error\","
                              "\"param\":null,\"code\":null}}");
    free(text);
    bn_json_free(j);
    openai_reply_close(&reply);
    openai_reply_close(&reply); /* of zeros: nothing happens */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reply_choices), cmocka_unit_test(test_reply_logprobs),
        cmocka_unit_test(test_reply_error),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_quote),         cmocka_unit_test(test_reply_echo),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
