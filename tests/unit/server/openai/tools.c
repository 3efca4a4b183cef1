/* SPDX-License-Identifier: Apache-2.0
 * Tools: what requests may say, conversations for templates that know tools and for those that do not,
 * the grammar of answers, calls found in them, and answers of the small model. */
#include "engine_common.h"
#include "grammar_common.h"
#include "json_text.h"
#include "server/openai/tools.h"
#include "server/openai/tools_impl.h"

static bitnet_error err;

static bitnet_status try_read(struct tools **t, const char *list, const char *choice, bool parallel)
{
    struct bn_json *tools = json_of(list), *c = json_of(choice);
    err = (bitnet_error){0};
    bitnet_status st = tools_read(t, tools, c, parallel, &err);
    bn_json_free(tools);
    bn_json_free(c);
    return st;
}

static struct tools *read_tools(const char *list, const char *choice, bool parallel)
{
    struct tools *t;
    if (try_read(&t, list, choice, parallel) != BITNET_OK) fail_msg("%s", err.text);
    assert_non_null(t);
    return t;
}

#define FUNCTION(name, parameters) \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"
#define WEATHER                                                                                    \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"}},\"required\":[\"city\"]" \
    "}"
#define TWO                                                                                    \
    "[" FUNCTION("weather", WEATHER) ",{\"type\":\"function\",\"function\":{\"name\":\"now\"," \
                                     "\"description\":\"The time.\"}}]"

static const char *const no_tools[] = {"null", "[]"};

static void test_read(void **state)
{
    (void)state;
    struct tools *t;
    static const struct {
        const char *tools, *choice, *says;
    } bad[] = {
        {"{}", "null", "'tools' is not a list"},
        {"[{\"type\":\"web_search\"}]", "null", "tool 0 is of type 'web_search'"},
        {"[1]", "null", "tool 0 is of type ''"},
        {"[" FUNCTION("a b", "{}") "]", "null", "tool 0 has no 'function.name' of 1 to 64"},
        {"[" FUNCTION("", "{}") "]", "null", "tool 0 has no 'function.name'"},
        {"[" FUNCTION("a", "{}") "," FUNCTION("a", "{}") "]", "null",
         "two functions are called 'a'"},
        {"[" FUNCTION("a", "[]") "]", "null",
         "function 'a': 'parameters' is no schema of an object"},
        {"[" FUNCTION("a", "{\"type\":\"array\"}") "]", "null", "no schema of an object"},
        {TWO, "\"some\"", "'tool_choice' is not 'none', 'auto', 'required' or {"},
        {TWO, "{\"type\":\"function\",\"function\":{\"name\":\"no\"}}", "names 'no', which is not"},
        {"[]", "\"required\"", "'tool_choice' asks for a call, and 'tools' is empty"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        assert_int_not_equal(try_read(&t, bad[i].tools, bad[i].choice, true), BITNET_OK);
        if (!strstr(err.text, bad[i].says)) fail_msg("'%s' lacks '%s'", err.text, bad[i].says);
        assert_null(t);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(no_tools); i++) {
        assert_int_equal(try_read(&t, no_tools[i], "\"auto\"", true), BITNET_OK);
        assert_null(t);
    }
    struct bn_buf many;
    bn_buf_init(&many, 1 << 16);
    for (int i = 0; i <= TOOLS_MAX; i++)
        bn_buf_printf(&many, "%c" FUNCTION("f%d", "{}"), i ? ',' : '[', i);
    bn_buf_putc(&many, ']');
    assert_int_equal(try_read(&t, many.data, "null", true), BITNET_E_LIMIT);
    assert_string_equal(err.text, "129 tools; at most 128 are possible");
    bn_buf_free(&many);
    tools_free(NULL);
}

/* ------------------------------------------------------------------ conversations */

static char *templates[3]; /* in the manner of Qwen 3, of Llama 3 and of Qwen 3.5 */

static int open_templates(void **state)
{
    struct bn_json *goldens, *c;
    size_t i;
    assert_int_equal(
        bn_json_read_file(&goldens, TEST_DATA "/templates/goldens.json", 64 << 20, &err), 0);
    bn_json_each(bn_json_get(goldens, "cases"), i, c)
    {
        const char *text = bn_json_text(bn_json_get(c, "template"));
        int k = strstr(text, "<parameter=")       ? 2
                : strstr(text, "<tool_call>")     ? 0
                : strstr(text, "\"parameters\":") ? 1
                                                  : 3;
        if (k < 3 && !templates[k]) templates[k] = strdup(text);
    }
    bn_json_free(goldens);
    return !templates[0] || !templates[1] || !templates[2] || open_model(state);
}

static int close_templates(void **state)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(templates); i++) free(templates[i]);
    return close_model(state);
}

static char *render(const struct tools *t, const char *messages, const char *chat_template)
{
    struct bn_json *list = json_of(messages), *talk = tools_conversation(t, list);
    char *json = bn_json_dump(talk, 0), *out = bn_calloc(1, 1 << 14);
    size_t n = (1 << 14) - 1;
    assert_non_null(json);
    if (bitnet_chat_render_json(model, json, strlen(json), chat_template, 1, out, &n, &err))
        snprintf(out, sizeof err.text, "%s", err.text);
    free(json);
    bn_json_free(talk);
    bn_json_free(list);
    return out;
}

#define CALLS                                                                               \
    "[{\"role\":\"user\",\"content\":\"Hi\",\"tool_calls\":null},"                          \
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"call_1\",\"type\":" \
    "\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{\\\"city\\\": "       \
    "\\\"Ulm\\\"}\"}}]},"                                                                   \
    "{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":\"rain\"}]"

static void expect_part(const struct tools *t, const char *messages, const char *chat_template,
                        const char *part, bool there)
{
    char *text = render(t, messages, chat_template);
    if (!strstr(text, part) == there) fail_msg("'%s' %s '%s'", text, there ? "lacks" : "has", part);
    free(text);
}

/* A template that knows tools shows them, and earlier calls as the model wrote them. */
static void test_templates(void **state)
{
    (void)state;
    static const char *const written[] = {
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>",
        "{\"name\": \"weather\", \"parameters\": {\"city\": \"Ulm\"}}",
        ("<tool_call>\n<function=weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n"
         "</tool_call>")};
    for (size_t i = 0; i < 3; i++) {
        struct tools *t = read_tools(TWO, "null", true), *none = read_tools(TWO, "\"none\"", true);
        const char *text;
        assert_int_equal(bitnet_chat_template_text(model, templates[i], &text, NULL), BITNET_OK);
        tools_choose_format(t, text);
        tools_choose_format(none, templates[i]);
        expect_part(t, CALLS, templates[i], "The time.", true);
        expect_part(t, CALLS, templates[i], written[i], true);
        expect_part(none, CALLS, templates[i], "The time.", false);
        expect_part(none, CALLS, templates[i], written[i], true);
        expect_part(NULL, CALLS, templates[i], written[i], true);
        tools_free(t);
        tools_free(none);
    }
}

/* For one that does not, all is put in words. */
static void test_words(void **state)
{
    (void)state;
    struct tools *t = read_tools(TWO, "null", true), *none = read_tools(TWO, "\"none\"", true);
    const char *text;
    assert_int_equal(bitnet_chat_template_text(model, NULL, &text, NULL), BITNET_OK);
    assert_string_equal(text, "");
    tools_choose_format(t, text);
    tools_choose_format(none, text);
#define WORDS                                                                                    \
    "You can call functions. These exist, with JSON Schemas of their arguments:\n"               \
    "{\"name\": \"weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": " \
    "{\"type\": \"string\"}}, \"required\": [\"city\"]}}\n"                                      \
    "{\"name\": \"now\", \"description\": \"The time.\"}\n"                                      \
    "To call one, answer in exactly this form:\n"                                                \
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {...}}\n</tool_call>"
#define SAID                                                                            \
    "User: Hi<|eot_id|>Assistant: <tool_call>\n{\"name\": \"weather\", \"arguments\": " \
    "{\"city\": \"Ulm\"}}\n</tool_call><|eot_id|>User: "                                \
    "<tool_response>\nrain\n</tool_response><|eot_id|>Assistant: "
    char *with = render(t, CALLS, NULL), *without = render(none, CALLS, NULL);
    assert_string_equal(with, "System: " WORDS "<|eot_id|>" SAID);
    assert_string_equal(without, SAID);
    expect_part(t,
                "[{\"role\":\"system\",\"content\":[{\"type\":\"text\",\"text\":\"Be kind.\"}]}]",
                NULL, "System: Be kind.\n\nYou can call", true);
    expect_part(NULL, CALLS, NULL, "message 1 has 'tool_calls', which chat template 'bitnet'",
                true);
    expect_part(t, "[{\"role\":\"system\",\"content\":[{\"type\":\"image_url\"}]}]", NULL,
                "message 1 has a part of type 'image_url'", true);
    expect_part(t, "[{\"role\":\"assistant\",\"content\":\"Hm\",\"tool_calls\":[{}]}]", NULL,
                "message 1 has 'tool_calls'", true);
    expect_part(
        t,
        "[{\"role\":\"tool\",\"content\":\"1\"},{\"role\":\"tool\",\"content\":\"2\"},"
        "{\"role\":\"assistant\",\"content\":\"So:\",\"tool_calls\":[{\"function\":{\"name\":"
        "\"now\",\"arguments\":\"{}\"}},{\"function\":{\"name\":\"now\",\"arguments\":\"{}\"}}]}]",
        NULL,
        "User: <tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
        "<|eot_id|>Assistant: So:\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n"
        "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call><|eot_id|>",
        true);
    free(with);
    free(without);
    tools_free(t);
    tools_free(none);
}

/* ------------------------------------------------------------------ grammars */

static char *grammar_of(struct tools *t, const char *template_text)
{
    char *text;
    tools_choose_format(t, template_text);
    if (tools_grammar(t, &text, &err) != BITNET_OK) fail_msg("%s", err.text);
    tools_free(t);
    return text;
}

#define CALL(name, arguments) \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"
#define BARE(name, arguments) "{\"name\": \"" name "\", \"parameters\": " arguments "}"
#define ULM                   "{\"city\":\"Ulm\"}"

static void test_grammar(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    char *g = grammar_of(read_tools(TWO, "\"required\"", true), "");
    EXPECT_TEXTS(&b, GBNF, g, CALL("weather", ULM), CALL("now", "{}"),
                 CALL("now", "{}") "\n" CALL("weather", ULM), NOT, "", "Hello",
                 CALL("weather", "{}"), CALL("now", "{\"x\":1}"), CALL("never", "{}"),
                 CALL("now", "{}") "\n", " " CALL("now", "{}"));
    free(g);
    g = grammar_of(read_tools(TWO, "null", true), "");
    EXPECT_TEXTS(&b, GBNF, g, "", "Hello", "a < b", "<", "<tool_call", "<<tool_cal <tool_call\n",
                 "\xc3\xa4<t", CALL("now", "{}"), "So:\n" CALL("now", "{}"),
                 "<tool_call" CALL("now", "{}"), "<" CALL("now", "{}") "\n" CALL("now", "{}"), NOT,
                 "<tool_call>", "x<tool_call>y", CALL("never", "{}"), CALL("now", "{}") "x",
                 "<tool_<tool_call> ");
    free(g);
    g = grammar_of(read_tools(TWO, "null", false), "");
    EXPECT_TEXTS(&b, GBNF, g, "x", CALL("now", "{}"), NOT,
                 CALL("now", "{}") "\n" CALL("now", "{}"));
    free(g);
    g = grammar_of(read_tools(TWO, "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}", true),
                   "");
    EXPECT_TEXTS(&b, GBNF, g, CALL("now", "{}"), NOT, CALL("weather", ULM), "",
                 CALL("now", "{}") "\n" CALL("now", "{}"));
    free(g);
    g = grammar_of(read_tools(TWO, "null", true), templates[1]);
    EXPECT_TEXTS(&b, GBNF, g, "", "Hello {\"name\": \"", "{", "{\"name\":", "{\"names\": 1}",
                 BARE("now", "{}"), BARE("weather", ULM), NOT, "{\"name\": \"x",
                 BARE("never", "{}"), BARE("now", "{}") "\n");
    free(g);
    g = grammar_of(read_tools(TWO, "\"required\"", true), templates[1]);
    EXPECT_TEXTS(&b, GBNF, g, BARE("now", "{}"), NOT, "", "Hello");
    free(g);
    assert_null(grammar_of(read_tools(TWO, "\"none\"", true), ""));
    g = grammar_of(
        read_tools(
            "[" FUNCTION(
                "root",
                "{\"type\":\"object\",\"properties\":{\"x\":{\"not\":{\"multipleOf\":3}}}}") "]",
            "null", true),
        "");
    expect_refused(&b, GBNF, g, BITNET_E_UNSUPPORTED,
                   "schema, at 'root-arguments#/properties/x': 'not' of 'multipleOf'");
    free(g);
    close_bytes(&b);
}

/* Arguments one by one: strings as they are, all else as JSON. */
#define VALUE(key, value) "<parameter=" key ">\n" value "\n</parameter>\n"
#define ONE(name, values) "<tool_call>\n<function=" name ">\n" values "</function>\n</tool_call>"
#define TRIP                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"to\":{\"type\":\"string\"},\"days\":{\"type\":"       \
    "\"integer\"},\"by\":{\"enum\":[\"car\",\"a \\\"bus\\\"\"]},\"with\":{\"anyOf\":[{\"$ref\":"  \
    "\"#/$defs/who\"},{\"type\":\"null\"}]},\"ok\":{\"type\":\"boolean\"},\"note\":{\"anyOf\":[{" \
    "\"type\":\"string\"},{\"type\":\"null\"}]},\"any\":{}},\"required\":[\"to\",\"days\"],\"$"   \
    "defs\":"                                                                                     \
    "{\"who\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}}}"

static void test_one_by_one(void **state)
{
    (void)state;
    static const char list[] = "[" FUNCTION("trip", TRIP) ",{\"type\":\"function\",\"function\":{"
                                                          "\"name\":\"now\"}}]";
#define NEEDED VALUE("to", "Ulm") VALUE("days", "3")
    struct bytes b = open_bytes();
    char *g = grammar_of(read_tools(list, "\"required\"", true), templates[2]);
    EXPECT_TEXTS(
        &b, GBNF, g, ONE("now", ""), ONE("trip", NEEDED), ONE("now", "") "\n" ONE("trip", NEEDED),
        ONE("trip", VALUE("to", "") VALUE("days", "-3")),
        ONE("trip", VALUE("to", "a\n\n</param\n\n<b>\n </parameter>") VALUE("days", "0")),
        ONE("trip", NEEDED VALUE("by", "a \"bus\"") VALUE("with", "[\"a\",\"b\"]")
                        VALUE("ok", "true") VALUE("note", "null") VALUE("any", "{")),
        ONE("trip", NEEDED VALUE("with", "null")), NOT, "", "Hello", ONE("trip", ""),
        ONE("trip", VALUE("to", "Ulm")), ONE("trip", VALUE("days", "3") VALUE("to", "Ulm")),
        ONE("trip", VALUE("to", "Ulm") VALUE("days", "three")), ONE("now", VALUE("x", "1")),
        ONE("trip", NEEDED VALUE("by", "train")), ONE("trip", NEEDED VALUE("ok", "True")),
        ONE("trip", NEEDED VALUE("with", "a")));
    free(g);
    g = grammar_of(read_tools(list, "null", true), templates[2]);
    EXPECT_TEXTS(&b, GBNF, g, "", "a <b", "hm\n</think>\n\n" ONE("now", ""), "<tool_call", NOT,
                 "<tool_call>\n{", ONE("now", "") " ");
    free(g);
    close_bytes(&b);
    struct tools *t = read_tools("[" FUNCTION("f", "{\"anyOf\":[]}") "]", "null", true);
    tools_choose_format(t, templates[2]);
    assert_int_equal(tools_grammar(t, &g, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'f-arguments#': 'anyOf'"));
    tools_free(t);
    t = read_tools("[" FUNCTION("f", "{\"properties\":{\"a>b\":{}}}") "]", "null", true);
    tools_choose_format(t, templates[2]);
    assert_int_equal(tools_grammar(t, &g, &err), BITNET_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "'a>b' cannot be written"));
    tools_free(t);
}

/* Schemas that do not fit are refused, not cut. */
static void test_large(void **state)
{
    (void)state;
    struct bn_buf list;
    bn_buf_init(&list, 4 << 20);
    bn_buf_puts(
        &list,
        "["
        "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"description\":\"");
    for (int i = 0; i < 1 << 20; i++) bn_buf_putc(&list, 'x');
    bn_buf_puts(&list, "\"}}}]");
    struct tools *t = read_tools(list.data, "null", true);
    char *g;
    assert_int_equal(tools_grammar(t, &g, &err), BITNET_E_LIMIT);
    assert_string_equal(err.text, "the schemas of all tools take more than 1048576 bytes");
    assert_null(g);
    tools_free(t);
    bn_buf_free(&list);
}

/* ------------------------------------------------------------------ answers */

/* Text and calls as one string: "text|name arguments|name arguments...", "?" after a call that is cut. */
static char *summary(struct tools_parser *p)
{
    struct bn_buf b;
    assert_true(tools_parser_end(p));
    bn_buf_init(&b, 1 << 16);
    bn_buf_append(&b, p->text.data ? p->text.data : "", p->text.len);
    for (size_t i = 0; i < p->n_calls; i++)
        bn_buf_printf(&b, "|%s %s%s", p->calls[i].name, p->calls[i].arguments.data,
                      p->calls[i].complete ? "" : "?");
    bn_buf_putc(&b, '\0');
    tools_parser_close(p);
    return bn_buf_take(&b);
}

static void feed_in(struct tools_parser *p, const struct tools *t, const char *text, size_t cut,
                    size_t again)
{
    size_t n = strlen(text);
    tools_parser_open(p, t, 0xabc);
    assert_true(tools_parser_feed(p, text, cut));
    assert_true(tools_parser_feed(p, text + cut, again - cut));
    assert_true(tools_parser_feed(p, text + again, n - again));
}

/* Any two cuts give what the whole gives; so does a byte at a time. */
static void expect_calls(const struct tools *t, const char *text, const char *want)
{
    struct tools_parser p;
    size_t n = strlen(text);
    for (size_t i = 0; i <= n; i++)
        for (size_t k = i; k <= n; k++) {
            feed_in(&p, t, text, i, k);
            char *got = summary(&p);
            if (strcmp(got, want) != 0) fail_msg("'%s' cut at %zu and %zu: '%s'", text, i, k, got);
            free(got);
        }
    tools_parser_open(&p, t, 0xabc);
    for (size_t i = 0; i < n; i++) assert_true(tools_parser_feed(&p, text + i, 1));
    char *got = summary(&p);
    assert_string_equal(got, want);
    free(got);
}

static void test_parser(void **state)
{
    (void)state;
    static const char *const tags[][2] = {
        {"", ""},
        {"Hello <world>", "Hello <world>"},
        {CALL("a", "{}"), "|a {}"},
        {"So:\n" CALL("a", "{}") "\n" CALL("b-2", "{\"x\":[\"}\\\"]\",{}]}"),
         "So:\n|a {}|b-2 {\"x\":[\"}\\\"]\",{}]}"},
        {"<tool_call" CALL("a", "{}"), "<tool_call|a {}"},
        {"<<" CALL("a", "{\"\\\\\":\"\"}"), "<<|a {\"\\\\\":\"\"}"},
        {"<tool_call>", "<tool_call>"},
        {"<tool_call>\n{\"name\": \"a\", \"args\": {}}",
         "<tool_call>\n{\"name\": \"a\", \"args\": {}}"},
        {"<tool_call>\n{\"name\": \"a<b" CALL("a", "{}"), "<tool_call>\n{\"name\": \"a<b|a {}"},
        {"<tool_call>\n{\"name\": \"\", \"arguments\": {}}",
         "<tool_call>\n{\"name\": \"\", \"arguments\": {}}"},
        {"<tool_call>\n{\"name\": \"a\", \"arguments\": 1}",
         "<tool_call>\n{\"name\": \"a\", \"arguments\": 1}"},
        {"<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"}", "|a {\"x\": \"}?"},
        {"<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool", "|a {}"},
        {"<tool_call>\n{\"name\": \"a\", \"arguments\": {}} " CALL("b", "{}"), "} |a {}|b {}"},
        {CALL("a", "{}") "\n\n" CALL("b", "{}") " end", "\n\n end|a {}|b {}"},
        {CALL("a", "{}") "\n<tool_", "\n<tool_|a {}"},
        {CALL("a", "{}") CALL("b", "{}"), "|a {}|b {}"},
        {"<tool_call>\n{\"name\": "
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", ",
         "<tool_call>\n{\"name\": "
         "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\", "},
    };
    static const char *const bare[][2] = {
        {BARE("a", "{\"x\": 1}"), "|a {\"x\": 1}"},
        {" " BARE("a", "{}"), " " BARE("a", "{}")},
        {"{\"name\": 1}", "{\"name\": 1}"},
        {BARE("a", "{}") " and " BARE("b", "{}"), " and " BARE("b", "{}") "|a {}"},
        {"{\"na", "{\"na"},
    };
    struct tools *t = read_tools(TWO, "null", true), *none = read_tools(TWO, "\"none\"", true);
    for (size_t i = 0; i < BN_ARRAY_LEN(tags); i++) {
        expect_calls(t, tags[i][0], tags[i][1]);
        expect_calls(NULL, tags[i][0], tags[i][0]);
        expect_calls(none, tags[i][0], tags[i][0]);
    }
    tools_choose_format(t, templates[1]);
    for (size_t i = 0; i < BN_ARRAY_LEN(bare); i++) expect_calls(t, bare[i][0], bare[i][1]);
    tools_free(t);
    tools_free(none);
}

static void test_parser_one_by_one(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {ONE("now", ""), "|now {}"},
        {"So:\n\n" ONE("trip", VALUE("to", "Ulm") VALUE("days", "3")),
         "So:\n\n|trip {\"to\": \"Ulm\", \"days\": 3}"},
        {ONE("now", "") "\n" ONE("trip", VALUE("to", "")), "|now {}|trip {\"to\": \"\"}"},
        {ONE("trip", VALUE("to", "a\n\n</param\n\"\\\t\n</\xc3\xbc")),
         "|trip {\"to\": \"a\\n\\n</param\\n\\\"\\\\\\u0009\\n</\xc3\xbc\"}"},
        {ONE("trip", VALUE("with", "[\"a\"]") VALUE("ok", "true") VALUE("note", "7")),
         "|trip {\"with\": [\"a\"], \"ok\": true, \"note\": \"7\"}"},
        {ONE("trip", VALUE("days", "many")), "|trip {\"days\": \"many\"}"},
        {ONE("trip", VALUE("unknown", "1")), "|trip {\"unknown\": \"1\"}"},
        {"<tool_call>\n<function=trip>\n<parameter=to>\nUl", "|trip {\"to\": \"Ul?"},
        {"<tool_call>\n<function=trip>\n<parameter=days>\n12", "|trip {\"days\": ?"},
        {"<tool_call>\n<function=trip>\n<param", "|trip {?"},
        {"<tool_call>\n<function=now>\n</func", "|now {}"},
        {"<tool_call>\n<function=now>", "<tool_call>\n<function=now>"},
        {"<tool_call>\n{\"name\": \"now\"", "<tool_call>\n{\"name\": \"now\""},
        {"<tool_call>\n<function=now>\nhm" ONE("now", ""), "hm|now {}|now {}"},
    };
    struct tools *t =
        read_tools("[" FUNCTION("trip", TRIP) "," FUNCTION("now", "{}") "]", "null", true);
    tools_choose_format(t, templates[2]);
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) expect_calls(t, cases[i][0], cases[i][1]);
    tools_free(t);
}

/* The same answer has the same ids; calls beyond the last possible one are text. */
static void test_ids(void **state)
{
    (void)state;
    struct tools *t = read_tools(TWO, "null", true);
    struct tools_parser p;
    tools_parser_open(&p, t, 0xabc);
    static const char call[] = CALL("a", "{}");
    for (int i = 0; i <= TOOLS_MAX_CALLS; i++)
        assert_true(tools_parser_feed(&p, call, sizeof call - 1));
    assert_int_equal(p.n_calls, TOOLS_MAX_CALLS);
    assert_string_equal(p.calls[0].id, "call_0000000000000abc00");
    assert_string_equal(p.calls[31].id, "call_0000000000000abc1f");
    assert_true(tools_parser_end(&p));
    assert_string_equal(p.text.data, call);
    tools_parser_close(&p);
    tools_free(t);
}

/* ------------------------------------------------------------------ with the model */

/* Sampled answers that must be calls: every one parses, and fits the form that was asked for. */
static void test_model(void **state)
{
    (void)state;
    enum { CHOICES = 8 };
    static struct choice answers[CHOICES];
    static const char *const choices[] = {
        "\"required\"", "\"auto\"", "{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}"};
    static const char question[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story.\"}]}";
    bitnet_engine *e = open_engine(NULL);
    int32_t prompt[64];
    size_t n_prompt = 64;
    if (bitnet_chat_encode_json(model, question, strlen(question), NULL, 1, prompt, &n_prompt,
                                &err))
        fail_msg("%s", err.text);
    for (size_t form = 0; form < 6; form++) {
        size_t i = form % 3;
        struct tools *t = read_tools(TWO, choices[i], true);
        char *g;
        if (form >= 3) tools_choose_format(t, templates[2]);
        assert_int_equal(tools_grammar(t, &g, &err), BITNET_OK);
        bitnet_request r;
        bitnet_request_init(&r, sizeof r);
        r.tokens = prompt;
        r.n_tokens = n_prompt;
        r.max_new_tokens = ANSWER_TOKENS;
        r.n_choices = CHOICES;
        r.grammar = g;
        r.sampling.temperature = 1;
        r.sampling.seed = i;
        memset(answers, 0, sizeof answers);
        const struct ask ask = {submit(e, &r), CHOICES, answers};
        finish_all(e, &ask, 1, 64);
        for (size_t k = 0; k < CHOICES; k++) {
            struct tools_parser p;
            tools_parser_open(&p, t, k);
            assert_int_equal(answers[k].finish, BITNET_FINISH_END);
            assert_true(tools_parser_feed(&p, answers[k].text, answers[k].text_bytes));
            assert_true(tools_parser_end(&p));
            if (i != 1) assert_true(p.n_calls > 0 && p.text.len == 0);
            if (i == 2) assert_int_equal(p.n_calls, 1);
            for (size_t c = 0; c < p.n_calls; c++) {
                struct bn_json *arguments = json_of(p.calls[c].arguments.data);
                bool weather = strcmp(p.calls[c].name, "weather") == 0;
                assert_true(p.calls[c].complete);
                assert_true(bn_json_size(arguments) == weather);
                assert_true(!weather || bn_json_is_string(bn_json_get(arguments, "city")));
                bn_json_free(arguments);
            }
            tools_parser_close(&p);
        }
        free(g);
        tools_free(t);
    }
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),       cmocka_unit_test(test_templates),
        cmocka_unit_test(test_words),      cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_parser),
        cmocka_unit_test(test_one_by_one), cmocka_unit_test(test_parser_one_by_one),
        cmocka_unit_test(test_ids),        cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests_name("server_tools", tests, open_templates, close_templates);
}
