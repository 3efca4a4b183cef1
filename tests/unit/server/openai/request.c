/* SPDX-License-Identifier: Apache-2.0
 * OpenAI bodies as requests: what every member turns into, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "openai_common.h"
#include <stdio.h>

static void test_defaults(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\"}");
    const bitnet_request *q = &r.request;
    bitnet_sampling usual; /* the same as everywhere */
    bitnet_sampling_init(&usual, sizeof usual);
    assert_true(q->sampling.temperature == usual.temperature && q->sampling.top_p == usual.top_p);
    assert_true(q->sampling.min_p == usual.min_p && q->sampling.top_k == usual.top_k);
    assert_int_equal(q->sampling.seed, 99);
    assert_int_equal(q->max_new_tokens, 77);
    assert_int_equal(q->n_choices, 1);
    assert_int_equal(q->n_stop + q->logprobs + q->n_top_logprobs + q->json_object, 0);
    assert_null(q->grammar);
    assert_null(q->json_schema);
    assert_string_equal(r.model, "");
    assert_false(r.stream);
    openai_request_free(&r);
    /* null is as if it were not there */
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"temperature\": null, \"stop\": null, "
                               "\"n\": null, \"max_tokens\": null, \"logprobs\": null}");
    assert_true(r.request.sampling.temperature == 0.8f);
    assert_int_equal(r.request.max_new_tokens, 77);
    openai_request_free(&r);
}

static void test_numbers(void **state)
{
    (void)state;
    accepts(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"model\": \"m\","
            "\"temperature\": 0.5, \"top_p\": 0.25, \"min_p\": 0.125, \"top_k\": 7, \"seed\": -3,"
            "\"typical_p\": 0.75, \"top_n_sigma\": 1.5, \"adaptive\": true, \"n\": 3,"
            "\"repetition_penalty\": 1.25, \"presence_penalty\": -1, \"frequency_penalty\": 2,"
            "\"penalty_last_n\": 64, \"dry_multiplier\": 0.5, \"dry_base\": 1.75,"
            "\"dry_allowed_length\": 2, \"dry_last_n\": 9, \"dry_breakers\": [\"\\n\", \":\"],"
            "\"max_completion_tokens\": 5, \"logprobs\": true, \"top_logprobs\": 4,"
            "\"ignore_eos\": true, \"stream\": true, \"user\": \"u\", \"tools\": [],"
            "\"logit_bias\": {\"12\": -100, \"5\": 1.5}}");
    const bitnet_sampling *s = &r.request.sampling;
    assert_true(s->temperature == 0.5f && s->top_p == 0.25f && s->min_p == 0.125f);
    assert_true(s->top_k == 7 && s->seed == (uint64_t)-3 && s->typical_p == 0.75f);
    assert_true(s->top_n_sigma == 1.5f && s->adaptive == 1 && s->repetition_penalty == 1.25f);
    assert_true(s->presence_penalty == -1 && s->frequency_penalty == 2 && s->penalty_last_n == 64);
    assert_true(s->dry_multiplier == 0.5f && s->dry_base == 1.75f && s->dry_allowed_length == 2);
    assert_int_equal(s->dry_last_n, 9);
    assert_int_equal(s->n_dry_breakers, 2);
    assert_string_equal(s->dry_breakers[1], ":");
    assert_int_equal(s->n_logit_bias, 2);
    assert_true(s->logit_bias[0].token == 12 && s->logit_bias[0].bias == -100);
    assert_true(s->logit_bias[1].token == 5 && s->logit_bias[1].bias == 1.5f);
    assert_int_equal(r.request.n_choices, 3);
    assert_int_equal(r.request.max_new_tokens, 5);
    assert_int_equal(r.request.logprobs, 1);
    assert_int_equal(r.request.n_top_logprobs, 4);
    assert_int_equal(r.request.ignore_end, 1);
    assert_true(r.stream);
    assert_string_equal(r.model, "m");
    openai_request_free(&r);
    /* names that other servers have for the same, and what can only be off */
    accepts(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"n_predict\": 9,"
            "\"repeat_penalty\": 1.5, \"repeat_last_n\": 32, \"cache_prompt\": false,"
            "\"modalities\": [\"text\"], \"prediction\": {}, \"audio\": null}");
    assert_true(s->repetition_penalty == 1.5f && s->penalty_last_n == 32);
    assert_true(r.request.max_new_tokens == 9);
    assert_string_equal(r.request.prefix_cache, "off");
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"cache_prompt\": true}");
    assert_string_equal(r.request.prefix_cache, "auto");
    openai_request_free(&r);
    refuses(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}],"
            "\"modalities\": [\"text\", \"audio\"]}",
            "[\"text\"]");
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": 3, \"top_k\": -1}");
    assert_true(r.request.logprobs == 1 && r.request.n_top_logprobs == 3);
    assert_int_equal(r.request.sampling.top_k, 0);
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": 0}");
    assert_true(r.request.logprobs == 1 && r.request.n_top_logprobs == 0);
    openai_request_free(&r);
}

static void test_strings(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"stop\": \"x\"}");
    assert_int_equal(r.request.n_stop, 1);
    assert_string_equal(r.request.stop[0], "x");
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"stop\": [\"x\", \"yz\"]}");
    assert_int_equal(r.request.n_stop, 2);
    assert_string_equal(r.request.stop[1], "yz");
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"grammar\": \"root ::= [a-z]+\"}");
    assert_string_equal(r.request.grammar, "root ::= [a-z]+");
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION,
            "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_object\"}}");
    assert_int_equal(r.request.json_object, 1);
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION,
            "{\"prompt\": \"a\", \"response_format\": {\"type\": \"json_schema\", "
            "\"json_schema\": {\"name\": \"n\", \"schema\": {\"type\": \"object\", "
            "\"properties\": {\"b\": true, \"a\": false}}}}}");
    assert_string_equal(r.request.json_schema,
                        "{\"type\":\"object\",\"properties\":{\"b\":true,\"a\":false}}");
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"response_format\": {\"type\": \"text\"}}");
    assert_true(!r.request.json_object && !r.request.json_schema);
    openai_request_free(&r);
}

/* Other servers' words for a constraint come to the same members. */
static void test_constraints(void **state)
{
    (void)state;
    static const struct {
        const char *member, *grammar, *schema;
    } cases[] = {
        {"\"guided_json\": {\"type\": \"null\"}", NULL, "{\"type\":\"null\"}"},
        {"\"guided_json\": \"{\\\"type\\\": \\\"null\\\"}\"", NULL, "{\"type\":\"null\"}"},
        {"\"json_schema\": {}", NULL, "{}"},
        {"\"response_format\": {\"type\": \"json_object\", \"schema\": {\"const\": 1}}", NULL,
         "{\"const\":1}"},
        {"\"response_format\": {\"type\": \"json_schema\", \"schema\": {\"const\": 1}}", NULL,
         "{\"const\":1}"},
        {"\"structured_outputs\": {\"json\": {\"const\": 1}, \"backend\": \"auto\"}", NULL,
         "{\"const\":1}"},
        {"\"guided_regex\": \"a\\\\d\\\"\"", "root ::= %regex \"a\\\\d\\\"\"", NULL},
        {"\"structured_outputs\": {\"regex\": \"a\"}", "root ::= %regex \"a\"", NULL},
        {"\"guided_choice\": [\"a\\n\", \"\\\"\\\\\"]", "root ::= \"a\\n\" | \"\\\"\\\\\"", NULL},
        {"\"structured_outputs\": {\"grammar\": \"root ::= [a]\"}", "root ::= [a]", NULL},
        {"\"guided_grammar\": \"root ::= [a]\", \"guided_json\": null", "root ::= [a]", NULL},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        char body[300];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", %s}", cases[i].member);
        accepts(OPENAI_COMPLETION, body);
        if (cases[i].grammar) assert_string_equal(r.request.grammar, cases[i].grammar);
        else assert_null(r.request.grammar);
        if (cases[i].schema) assert_string_equal(r.request.json_schema, cases[i].schema);
        else assert_null(r.request.json_schema);
        assert_false(r.request.json_object);
        openai_request_free(&r);
    }
    accepts(OPENAI_COMPLETION,
            "{\"prompt\": \"a\", \"structured_outputs\": {\"json_object\": true}}");
    assert_true(r.request.json_object);
    openai_request_free(&r);
}

static void test_prompts(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\\u0000b\"}");
    assert_int_equal(r.prompts[0].bytes, 3);
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    bitnet_request q;
    openai_request_at(&r, 0, &q);
    assert_true(q.n_tokens > 1 && q.tokens);
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": [\"one\"]}");
    assert_int_equal(r.prompts[0].bytes, 3);
    openai_request_free(&r);
    for (int i = 0; i < 2; i++) {
        accepts(OPENAI_COMPLETION, i ? "{\"prompt\": [[5, 6, 7]]}" : "{\"prompt\": [5, 6, 7]}");
        assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
        openai_request_at(&r, 0, &q);
        assert_int_equal(q.n_tokens, 3);
        assert_int_equal(q.tokens[2], 7);
        openai_request_free(&r);
    }
}

static void test_several_prompts(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION,
            "{\"prompt\": [\"One\", [5, 6], \"three\"], \"n\": 2, \"seed\": 10}");
    assert_true(r.seeded);
    assert_int_equal(r.n_prompts, 3);
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    bitnet_request q;
    openai_request_at(&r, 1, &q);
    assert_int_equal(q.n_tokens, 2);
    assert_int_equal(q.tokens[1], 6);
    assert_int_equal(q.n_choices, 2);
    assert_int_equal(q.sampling.seed, 12); /* after those of the first prompt's two answers */
    assert_int_equal(openai_request_fits(&r, 100, &err), BITNET_OK);
    assert_int_equal(openai_request_fits(&r, 2, &err), BITNET_E_LIMIT);
    assert_string_equal(r.code, "context_length_exceeded");
    assert_string_equal(r.param, "prompt");
    openai_request_free(&r);
}

static void test_messages(void **state)
{
    (void)state;
    accepts(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": "
            "\"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
            "\"text\", \"text\": \"bc\"}], \"name\": \"Ann\"}, {\"role\": \"assistant\", "
            "\"content\": \"d\", \"refusal\": null, \"annotations\": [], \"tool_calls\": []}]}");
    char *text = bn_json_dump(r.messages, BN_JSON_COMPACT);
    assert_string_equal(text, "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
                              "\"content\":\"abc\"},{\"role\":\"assistant\",\"content\":\"d\"}]");
    free(text);
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_int_equal(r.n_prompts, 1);
    assert_true(r.prompts[0].n_tokens > 3);
    openai_request_free(&r);
}

/* What the conversation looks like to a template that shows everything. */
static char *messages_text(void)
{
    char *text = bn_json_dump(r.messages, BN_JSON_COMPACT);
    assert_non_null(text);
    return text;
}

static void test_tool_messages(void **state)
{
    (void)state;
    accepts(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": "
            "\"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"c1\", \"type\": "
            "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, "
            "{\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"ok\"}]}");
    char *text = messages_text();
    assert_non_null(strstr(text, "\"tool_calls\":[{\"id\":\"c1\""));
    assert_non_null(strstr(text, "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"ok\"}"));
    free(text);
    /* a template that knows of neither: the role is the system's */
    assert_int_equal(openai_request_encode(&r, model,
                                           "{% for m in messages %}{{ m.role }} {{ m.content }};"
                                           "{% endfor %}",
                                           &err),
                     BITNET_OK);
    text = messages_text();
    assert_non_null(strstr(text, "[{\"role\":\"system\",\"content\":\"d\"}"));
    free(text);
    openai_request_free(&r);
    accepts(OPENAI_CHAT, "{\"messages\": [{\"role\": \"developer\", \"content\": \"d\"}]}");
    assert_int_equal(
        openai_request_encode(&r, model, "{# developer #}{{ messages[0].role }}", &err), BITNET_OK);
    text = messages_text();
    assert_non_null(strstr(text, "developer"));
    free(text);
    openai_request_free(&r);
    refuses(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"c\"}]}]}",
            "'name' is not a string");
    refuses(OPENAI_CHAT, "{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": 5}]}",
            "'tool_calls' of message 0");
}

#define TOOLS                                                                           \
    "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": " \
    "\"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\"}}}]"

static void test_tools(void **state)
{
    (void)state;
    accepts(OPENAI_CHAT, "{" TOOLS "}");
    assert_non_null(r.tools);
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_non_null(r.request.grammar);
    size_t n_tokens = r.prompts[0].n_tokens;
    openai_request_free(&r);
    /* none to call: they are not told, and the answer is free */
    accepts(OPENAI_CHAT, "{" TOOLS ", \"tool_choice\": \"none\"}");
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_null(r.request.grammar);
    assert_true(r.prompts[0].n_tokens < n_tokens);
    openai_request_free(&r);
    accepts(OPENAI_CHAT, "{" TOOLS ", \"response_format\": {\"type\": \"json_object\"}}");
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cannot be given beside them"));
    openai_request_free(&r);
    refuses(OPENAI_CHAT, "{" TOOLS ", \"tool_choice\": \"requird\"}", "tool_choice");
    refuses(OPENAI_CHAT, "{" TOOLS ", \"parallel_tool_calls\": 1}", "parallel_tool_calls");
    assert_string_equal(r.param, "parallel_tool_calls");
}

/* Log-probabilities of an echoed prompt, with and without a completion. */
static void test_echo(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"echo\": true, \"logprobs\": 3}");
    assert_int_equal(r.request.prompt_logprobs, 1);
    assert_int_equal(r.request.n_top_prompt_logprobs, 3);
    assert_int_equal(r.request.prompt_only, 0);
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"logprobs\": 3}");
    assert_int_equal(r.request.prompt_logprobs, 0);
    openai_request_free(&r);
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"echo\": true, \"max_tokens\": 0}");
    assert_int_equal(r.request.prompt_only, 1);
    assert_int_equal(r.request.prompt_logprobs, 0);
    openai_request_free(&r);
    refuses(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"max_tokens\": 0}",
            "'max_tokens' is 0; 1 to");
    /* every choice repeats them: 128 times 1024 tokens, two for each, just fit */
    accepts(OPENAI_COMPLETION, "{\"prompt\": \"a\", \"echo\": true, \"logprobs\": 1, \"n\": 128}");
    r.prompts[0].n_tokens = 1024;
    assert_int_equal(openai_request_fits(&r, 8192, &err), BITNET_OK);
    r.prompts[0].n_tokens = 1025;
    assert_int_equal(openai_request_fits(&r, 8192, &err), BITNET_E_LIMIT);
    assert_non_null(strstr(err.text, "262400 log-probabilities"));
    assert_string_equal(r.param, "echo");
    openai_request_free(&r);
}

/* What other servers have beside OpenAI's options. */
static void test_extensions(void **state)
{
    (void)state;
    accepts(OPENAI_COMPLETION,
            "{\"prompt\": \"a\", \"n_predict\": -1, \"min_tokens\": 3, \"stop_token_ids\": [7, 9], "
            "\"include_stop_str_in_output\": true, \"skip_special_tokens\": false, \"n_probs\": 4, "
            "\"timings_per_token\": true, \"id_slot\": 0, \"keep_alive\": \"5m\", "
            "\"logit_bias\": [[5, -2.5], [6, false]]}");
    const bitnet_request *q = &r.request;
    assert_int_equal(q->max_new_tokens, 0);
    assert_int_equal(q->min_new_tokens, 3);
    assert_int_equal(q->n_stop_tokens, 2);
    assert_int_equal(q->stop_tokens[1], 9);
    assert_true(q->show_stop && q->show_special && q->logprobs && r.timings);
    assert_int_equal(q->n_top_logprobs, 4);
    assert_int_equal(q->sampling.n_logit_bias, 2);
    assert_true(q->sampling.logit_bias[0].bias == -2.5f && q->sampling.logit_bias[1].bias == -100);
    assert_int_equal(r.ignored.n, 0);
    openai_request_free(&r);
}

/* A server that is not strict passes over what it does not know, wherever it stands, and tells it. */
static void test_ignored(void **state)
{
    (void)state;
    static const struct openai_defaults d = {.max_tokens = 77};
    struct bn_json *j =
        json_of("{\"messages\": [{\"role\": \"user\", \"mood\": 1, \"content\": [{\"type\": "
                "\"text\", \"text\": \"a\", \"size\": 1}]}, {\"role\": \"user\", \"mood\": 2, "
                "\"content\": \"b\"}], \"temprature\": 0, \"echo\": true, \"a\\u0001,b\": 1, "
                "\"stream_options\": {\"usage\": 1}, \"tools\": [{\"type\": \"function\", "
                "\"colour\": 1, \"function\": {\"name\": \"f\", \"weight\": 2}}]}");
    if (openai_request_read(&r, OPENAI_CHAT, j, &d, &err) != BITNET_OK) fail_msg("%s", err.text);
    bn_json_free(j);
    assert_string_equal(
        r.ignored.names,
        "messages.mood, content.size, temprature, echo, a??b, stream_options.usage, "
        "tools.colour, tools.function.weight");
    assert_int_equal(r.ignored.n, 9); /* one of them twice */
    assert_false(r.echo);
    openai_request_free(&r);
    char many[8192] = "{\"prompt\": \"a\"";
    for (size_t i = 0, n = strlen(many); i < 99; i++, n = strlen(many))
        snprintf(many + n, sizeof many - n, ", \"member_with_a_long_name_%zu\": 1", i);
    strcat(many, "}");
    j = json_of(many);
    assert_int_equal(openai_request_read(&r, OPENAI_COMPLETION, j, &d, &err), BITNET_OK);
    bn_json_free(j);
    assert_int_equal(r.ignored.n, 99);
    assert_true(strlen(r.ignored.names) < OPENAI_IGNORED_BYTES);
    openai_request_free(&r);
}

/* The text that the model sees, as its pieces. */
static void sees(const char *body, const char *template_text, const char *want)
{
    char got[512] = "";
    accepts(OPENAI_CHAT, body);
    if (openai_request_encode(&r, model, template_text, &err) != BITNET_OK)
        fail_msg("%s: %s", body, err.text);
    size_t n = sizeof got - 1;
    assert_int_equal(
        bitnet_decode(model, r.prompts[0].tokens, r.prompts[0].n_tokens, 0, got, &n, &err),
        BITNET_OK);
    assert_string_equal(got, want);
    openai_request_free(&r);
}

static void test_prefill(void **state)
{
    (void)state;
    static const char plain[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
                                "{% if add_generation_prompt %}assistant:{% endif %}";
#define TALK                                                                \
    "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": " \
    "\"assistant\", \"content\": \" Once\"}]"
    sees("{" TALK "}", plain, "user: hi\nassistant: Once");
    sees("{" TALK ", \"continue_final_message\": true, \"add_generation_prompt\": false}", plain,
         "user: hi\nassistant: Once");
    sees("{" TALK ", \"add_generation_prompt\": true}", plain,
         "user: hi\nassistant:  Once\nassistant:");
    sees("{" TALK ", \"continue_final_message\": false, \"add_generation_prompt\": false}", plain,
         "user: hi\nassistant:  Once\n");
    refuses(OPENAI_CHAT,
            "{" TALK ", \"continue_final_message\": true, \"add_generation_prompt\": true}",
            "either begins or goes on");
    accepts(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
                         "\"continue_final_message\": true}");
    assert_int_equal(openai_request_encode(&r, model, plain, &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "needs a last message of the assistant"));
    openai_request_free(&r);
#undef TALK
}

/* Variables of templates: those of the body, and the date as the templates of the field want it. */
static void test_variables(void **state)
{
    (void)state;
    static const char user[] = "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]";
    char body[256];
    snprintf(body, sizeof body, "{%s, \"reasoning_effort\": \"low\", \"enable_thinking\": false}",
             user);
    sees(body, "{{ reasoning_effort }} {{ enable_thinking }}", "low False");
    snprintf(body, sizeof body, "{%s, \"chat_template_kwargs\": {\"enable_thinking\": true}}",
             user);
    sees(body, "{{ enable_thinking }}", "True");
    snprintf(body, sizeof body, "{%s}", user);
    sees(body, "{{ strftime_now is defined }}", "False");
    static const struct {
        const char *template_text, *want;
    } dates[] = {
        {"{{ strftime_now('%d %b %Y') }}", "09 Mar 2026"},
        {"{% if not date_string is defined %}never{% endif %}{{ date_string }}", "09 Mar 2026"},
        {"Today is {{ datetime }}.", "Today is Mar 09 2026."},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(dates); i++) {
        accepts(OPENAI_CHAT, body);
        r.now_s = 1773057600;
        struct bn_json *talk = openai_conversation(&r, dates[i].template_text);
        char *text = bn_json_dump(talk, 0), got[64];
        size_t n = sizeof got - 1;
        if (bitnet_chat_render_json(model, text, strlen(text), dates[i].template_text, 1, got, &n,
                                    &err) != BITNET_OK)
            fail_msg("%s", err.text);
        got[n] = 0;
        assert_string_equal(got, dates[i].want);
        free(text);
        bn_json_free(talk);
        openai_request_free(&r);
    }
}

/* The last word on tools: some of them only. */
static void test_allowed_tools(void **state)
{
    (void)state;
#define TWO                                                                                    \
    "\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": [{\"type\": "        \
    "\"function\", \"function\": {\"name\": \"f\"}}, {\"type\": \"function\", \"function\": {" \
    "\"name\": \"g\"}}], \"tool_choice\": {\"type\": \"allowed_tools\", "
    accepts(OPENAI_CHAT,
            "{" TWO "\"allowed_tools\": {\"mode\": \"required\", \"tools\": [{\"type\": "
            "\"function\", \"function\": {\"name\": \"g\"}}]}}}");
    assert_int_equal(openai_request_encode(&r, model, NULL, &err), BITNET_OK);
    assert_null(strstr(r.request.grammar, "\\\"f"));
    assert_non_null(strstr(r.request.grammar, "g"));
    openai_request_free(&r);
    refuses(OPENAI_CHAT, "{" TWO "\"mode\": \"auto\", \"tools\": [{\"name\": \"h\"}]}}",
            "allows 'h', which is not in 'tools'");
    refuses(OPENAI_CHAT, "{" TWO "\"mode\": \"auto\", \"tools\": []}}", "allows no tool");
#undef TWO
}

static void test_roles(void **state)
{
    (void)state;
    accepts(OPENAI_CHAT, "{\"messages\": [{\"role\": \"ipython\", \"content\": \"a\"}]}");
    assert_int_equal(openai_request_encode(&r, model, "{{ messages[0].role }}", &err),
                     BITNET_E_ARG);
    assert_non_null(strstr(err.text, "message 0 has the role 'ipython'"));
    assert_int_equal(openai_request_encode(
                         &r, model, "{% if messages[0].role == 'ipython' %}x{% endif %}", &err),
                     BITNET_OK);
    openai_request_free(&r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *member, *says;
    } bad[] = {
        {"\"temprature\": 0", "temprature"},
        {"\"temperature\": \"hot\"", "temperature"},
        {"\"max_tokens\": 0", "'max_tokens' is 0"},
        {"\"max_tokens\": 1.5", "max_tokens"},
        {"\"max_tokens\": -2", "max_tokens"},
        {"\"temperature\": 9", "'temperature' is 9; 0 to 5"},
        {"\"temperature\": -1", "0 to 5"},
        {"\"min_tokens\": 9, \"max_tokens\": 8", "'min_tokens' is 9, more than"},
        {"\"stop_token_ids\": 5", "not a list of token ids"},
        {"\"stop_token_ids\": [-1]", "item 0 is not a token id"},
        {"\"logit_bias\": [[1]]", "not a pair"},
        {"\"logit_bias\": [[\"a\", 1]]", "'a' is not a token id"},
        {"\"n\": 0", "'n' is 0"},
        {"\"n\": 129", "1 to 128"},
        {"\"top_k\": -2", "top_k"},
        {"\"seed\": 0.5", "seed"},
        {"\"stop\": 1", "stop"},
        {"\"stop\": [\"a\", 1]", "stop"},
        {"\"stop\": \"a\\u0000\"", "U+0000"},
        {"\"logit_bias\": [1]", "logit_bias"},
        {"\"logit_bias\": {\"x\": 1}", "'x' is not a token id"},
        {"\"logit_bias\": {\"99999999999\": 1}", "token id"},
        {"\"logit_bias\": {\"1\": \"a\"}", "token 1"},
        {"\"logit_bias\": {\"1\": 100.5}", "-100 to 100"},
        {"\"logit_bias\": {\"1\": -1e300}", "-100 to 100"},
        {"\"logprobs\": 21", "0 to 20"},
        {"\"logprobs\": true", "logprobs"},
        {"\"top_logprobs\": 2", "needs 'logprobs'"},
        {"\"response_format\": {}", "type"},
        {"\"guided_json\": 5", "'guided_json' is not a JSON Schema"},
        {"\"guided_choice\": []", "'guided_choice' is not a list of texts"},
        {"\"response_format\": {\"type\": \"xml\"}", "'xml'"},
        {"\"response_format\": {\"type\": \"json_schema\"}", "json_schema.schema"},
        {"\"grammar\": 1", "grammar"},
        {"\"lora\": {}", "'lora' is not a list"},
        {"\"lora\": [1]", "'lora' is not a list of"},
        {"\"lora\": [{\"id\": -1}]", "'id'"},
        {"\"lora\": [{\"id\": 0, \"scale\": 1e300}]", "scale"},
        {"\"lora\": [{\"id\": 0, \"path\": \"x\"}]", "'path'"},
        {"\"tools\": []", "'tools' is not an option of a completion"},
        {"\"max_tokens\": 0, \"logprobs\": 1", "needs 'echo'"},
        {"\"max_tokens\": 0, \"echo\": false", "needs 'echo'"},
        {"\"stream_options\": {\"usage\": true}", "'usage'"},
        {"\"stream_options\": true", "stream_options"},
        {"\"best_of\": 2, \"n\": 3", "'best_of' is 2, fewer than 'n', 3"},
        {"\"best_of\": 2, \"stream\": true", "known at the end only"},
        {"\"prompt_logprobs\": 1, \"stream\": true",
         "'prompt_logprobs' is not possible in a stream"},
        {"\"suffix\": \"b\", \"echo\": true", "exclude each other"},
        {"\"messages\": []", "messages"},
        {"\"stream\": 1", "stream"},
    };
    char body[256];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(body, sizeof body, "{\"prompt\": \"a\", %s}", bad[i].member);
        refuses(OPENAI_COMPLETION, body, bad[i].says);
    }
    refuses(OPENAI_COMPLETION, "{\"n\": 1, \"temprature\": 0}", "temprature");
    assert_null(r.param); /* nothing that we know */
    refuses(OPENAI_COMPLETION, "{\"n\": 1, \"messages\": 0}", "messages");
    assert_string_equal(r.param, "messages");
    char long_name[400];
    memset(long_name, 'm', sizeof long_name);
    snprintf(long_name + 257, sizeof long_name - 257, "\", \"prompt\": \"a\"}");
    memcpy(long_name, "{\"model\": \"", 11);
    accepts(OPENAI_COMPLETION, long_name);
    openai_request_free(&r);
    memset(long_name + 257, 'm', 20);
    snprintf(long_name + 277, sizeof long_name - 277, "\", \"prompt\": \"a\"}");
    refuses(OPENAI_COMPLETION, long_name, "'model' has 266 bytes; at most 256");
    refuses(OPENAI_COMPLETION, "{}", "no 'prompt'");
    refuses(OPENAI_COMPLETION, "[]", "not an object");
    refuses(OPENAI_COMPLETION, "{\"prompt\": []}", "prompt");
    refuses(OPENAI_COMPLETION, "{\"prompt\": [\"a\", 1]}", "neither");
    refuses(OPENAI_COMPLETION, "{\"prompt\": [\"a\", \"b\"], \"n\": 65}", "130; at most 128");
    refuses(OPENAI_COMPLETION, "{\"prompt\": [1, \"b\"]}", "item 1");
    refuses(OPENAI_COMPLETION, "{\"prompt\": [1, -1]}", "item 1");
    refuses(OPENAI_CHAT, "{}", "no 'messages'");
    refuses(OPENAI_CHAT, "{\"prompt\": \"a\"}", "a chat takes 'messages', not 'prompt'");
    refuses(OPENAI_CHAT, "{\"messages\": []}", "messages");
    refuses(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\"}]}", "content");
    refuses(OPENAI_CHAT, "{\"messages\": [{\"content\": \"a\"}]}", "role");
    refuses(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
            "image_url");
    refuses(OPENAI_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"nmae\": 1}]}",
            "'nmae'");
    refuses(OPENAI_CHAT,
            "{\"messages\": [{\"role\": \"a\", \"content\": \"\", \"audio\": {\"id\": 1}}]}",
            "'audio' of message 0");
    assert_string_equal(r.param, "messages");
    enum openai_kind kind;
    assert_int_equal(openai_kind_of(&kind, "/v1/embeddings", &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "/v1/embeddings"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings),    cmocka_unit_test(test_constraints),
        cmocka_unit_test(test_prompts),    cmocka_unit_test(test_several_prompts),
        cmocka_unit_test(test_messages),   cmocka_unit_test(test_tool_messages),
        cmocka_unit_test(test_tools),      cmocka_unit_test(test_echo),
        cmocka_unit_test(test_extensions), cmocka_unit_test(test_ignored),
        cmocka_unit_test(test_prefill),    cmocka_unit_test(test_variables),
        cmocka_unit_test(test_roles),      cmocka_unit_test(test_allowed_tools),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
