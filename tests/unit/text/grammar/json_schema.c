/* SPDX-License-Identifier: Apache-2.0
 * JSON Schemas as grammars: texts that fit and that do not, and what is refused by name. */
#include "grammar_common.h"

static void expect_integers(const struct bytes *b, long lo, long hi, long from, long to)
{
    char schema[120], text[24];
    snprintf(schema, sizeof schema, "{\"type\":\"integer\",\"minimum\":%ld,\"maximum\":%ld}", lo,
             hi);
    struct bn_grammar *g = open_grammar(b->tree, SCHEMA, schema);
    for (long i = from; i <= to; i++) {
        snprintf(text, sizeof text, "%ld", i);
        if (fits(g, text) != (i >= lo && i <= hi)) fail_msg("%s and %s", schema, text);
    }
    assert_false(fits(g, "-0") || fits(g, "01") || fits(g, "1.0") || fits(g, ""));
    bn_grammar_close(g);
}

static void test_integers(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    expect_integers(&b, 0, 0, -3, 12);
    expect_integers(&b, -17, 203, -230, 1300);
    expect_integers(&b, 95, 1042, 0, 1200);
    expect_integers(&b, -1234, -99, -1300, 20);
    expect_integers(&b, 7, 7, -8, 78);
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"integer\"}", "0", "-12", "999999999999999999", NOT, "-0",
                 "00", "1000000000000000000", "1e3", "1.5", "+1");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"type\":\"integer\",\"exclusiveMinimum\":1.5,\"exclusiveMaximum\":4}", "2", "3",
                 NOT, "1", "4");
    close_bytes(&b);
}

/* Decimals against bounds given as text, compared as doubles. */
static void expect_numbers(const struct bytes *b, const char *lo, bool above, const char *hi,
                           bool below)
{
    char schema[160], text[40];
    double least = strtod(lo, NULL), most = strtod(hi, NULL);
    snprintf(schema, sizeof schema, "{\"type\":\"number\",\"%s\":%s,\"%s\":%s}",
             above ? "exclusiveMinimum" : "minimum", lo, below ? "exclusiveMaximum" : "maximum",
             hi);
    struct bn_grammar *g = open_grammar(b->tree, SCHEMA, schema);
    for (int digits = 0; digits <= 3; digits++)
        for (int i = -3200; i <= 3200; i++) {
            if (abs(i) > 320 && abs(i) % 50 > 1) continue; /* all small ones, some of the others */
            int unit = digits == 0 ? 1 : digits == 1 ? 10 : digits == 2 ? 100 : 1000;
            snprintf(text, sizeof text, "%s%d", i < 0 ? "-" : "", abs(i) / unit);
            if (digits) snprintf(text + strlen(text), 8, ".%0*d", digits, abs(i) % unit);
            double x = strtod(text, NULL);
            bool in = (above ? x > least : x >= least) && (below ? x < most : x <= most);
            if (fits(g, text) != in && strcmp(text, "0") != 0) fail_msg("%s and %s", schema, text);
        }
    assert_false(fits(g, "1.") || fits(g, ".5") || fits(g, "00.5"));
    bn_grammar_close(g);
}

static void test_numbers(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    expect_numbers(&b, "0", false, "1", false);
    expect_numbers(&b, "0", true, "1", true);
    expect_numbers(&b, "-1.25", false, "2.5", true);
    expect_numbers(&b, "-2.75", true, "-0.125", false);
    expect_numbers(&b, "0.1", false, "0.1", false);
    expect_numbers(&b, "1.99", true, "12.5", false);
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"number\"}", "0", "-0", "1.50", "-12e3", "3E-07", "9.9e+9",
                 NOT, "01", "1.", "1e", "1e123", ".5", "1234567890123456");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"number\",\"minimum\":12.5}", "12.5", "13", "99999.25",
                 NOT, "12.4999", "-13", "1e3");
    EXPECT_TEXTS(&b, SCHEMA, "{\"maximum\":-3}", "-3", "-3.0", "-1000", NOT, "-2.99", "3", "0");
    close_bytes(&b);
}

static void test_strings(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\"}", "\"\"", "\"a\\n\\u00e9\\\"\"",
                 "\"\xe4\xbd\xa0\\ud83d\\uDE00\"", NOT, "a", "\"\n\"", "\"\\x\"", "\"\\ud83d\"",
                 "\"\\ude00\"", "\"\xff\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"ab\"",
                 "\"\xf0\x9f\x98\x80\\ud83d\\ude00\\t\"", NOT, "\"a\"", "\"abcd\"", "\"\\\\\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"minLength\":1}", "\"a\"", "\"abc\"", NOT, "\"\"", "1");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^[a-c]{2,3}(x|yz)?$\"}", "\"ab\"", "\"abcyz\"", NOT,
                 "\"a\"", "\"abcd\"", "\"abxx\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"cat|^d.g|\\\\d$\"}", "\"cat\"", "\"a cats\"",
                 "\"dog!\"", "\"x7\"", "\"\\n\\\"cat\"", NOT, "\"ca t\"", "\"a dog\"", "\"7x\"",
                 "\"d\\ng\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^[\\\"\\\\\\\\\\n]+\\\\u00e9\\\\.$\"}",
                 "\"\\\"\\\\\\n\xc3\xa9.\"", NOT, "\"\\u0022\xc3\xa9.\"", "\"\xc3\xa9.\"",
                 "\"\\n\xc3\xa9x\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"format\":\"date\"}", "\"2024-02-28\"", "\"1999-12-31\"", NOT,
                 "\"2024-02-30\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"2024-1-1\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"format\":\"ipv4\"}", "\"0.10.255.249\"", NOT, "\"256.0.0.1\"",
                 "\"1.2.3\"", "\"01.2.3.4\"");
    close_bytes(&b);
}

static void test_objects(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":"
                 "\"null\"},\"c\":{\"type\":\"null\"}},\"required\":[\"b\"]}",
                 "{\"b\":null}", "{\"a\": null, \"b\":null}", "{\"a\":null,\"b\":null,\"c\":null}",
                 "{\"b\":null,\"c\":null}", NOT, "{}", "{\"a\":null}", "{\"b\":null,\"a\":null}",
                 "{\"b\":null,}", "{\"b\":  null}", "{ \"b\":null}", "{\"b\":null,\"d\":null}");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"properties\":{\"ab\":{\"const\":1},\"abc\":{\"const\":2}},"
                 "\"additionalProperties\":{\"type\":\"boolean\"}}",
                 "{}", "{\"ab\":1}", "{\"abc\":2,\"x\":true}", "{\"a\":true,\"abcd\":false}",
                 "{\"\":true}", "{\"abd\":true}", NOT, "{\"ab\":true}", "{\"abc\":true}",
                 "{\"x\":1}", "{\"\\u0061b\":true}");
    EXPECT_TEXTS(&b, SCHEMA, "{\"required\":[\"x\"]}", "{\"x\":[1,{}]}", NOT, "{}", "{\"y\":1}");
    EXPECT_TEXTS(&b, SCHEMA, NULL, "{}", "{\"a\":{\"b\":[1, \"x\",null]}}", NOT, "[]", "1",
                 "{\"a\"}");
    EXPECT_TEXTS(&b, SCHEMA, "{\"const\":{\"k\":[1,2.5,\"\\u00e9\\n\"]}}",
                 "{\"k\":[1,2.5,\"\xc3\xa9\\n\"]}", NOT, "{\"k\":[1,2.5]}");
    close_bytes(&b);
}

static void test_arrays(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA, "{\"items\":{\"type\":\"boolean\"},\"minItems\":2,\"maxItems\":3}",
                 "[true,false]", "[true, true, true]", NOT, "[]", "[true]", "[true,true,true,true]",
                 "[1,2]");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"array\",\"maxItems\":1}", "[]", "[{}]", NOT, "[1,2]");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"array\",\"maxItems\":0}", "[]", NOT, "[1]");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3},"
                 "\"minItems\":1,\"maxItems\":4}",
                 "[1]", "[1,2]", "[1,2,3]", "[1,2,3,3]", NOT, "[]", "[2]", "[1,3]", "[1,2,3,3,3]");
    EXPECT_TEXTS(&b, SCHEMA, "{\"prefixItems\":[{\"const\":1}],\"items\":false}", "[]", "[1]", NOT,
                 "[1,1]");
    close_bytes(&b);
}

static void test_combinations(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"type\":\"integer\",\"anyOf\":[{\"maximum\":3},{\"minimum\":8}],"
                 "\"minimum\":0,\"maximum\":9}",
                 "0", "3", "8", "9", NOT, "4", "10", "-1");
    EXPECT_TEXTS(&b, SCHEMA, "{\"oneOf\":[{\"type\":\"string\"},{\"enum\":[1,2]},{\"const\":3}]}",
                 "\"x\"", "1", "3", NOT, "4");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"allOf\":[{\"$ref\":\"#/definitions/a~1b\"},{\"maximum\":5}],"
                 "\"minimum\":2,\"definitions\":{\"a/b\":{\"type\":\"integer\",\"minimum\":1}}}",
                 "2", "5", NOT, "1", "6");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":[\"null\",\"array\"],\"items\":{\"$ref\":\"#\"}}", "null",
                 "[null,[[]]]", NOT, "[1]");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\",\"enum\":[\"a\",1,\"b\"]}", "\"a\"", "\"b\"",
                 NOT, "1");
    EXPECT_TEXTS(&b, SCHEMA, "{\"title\":\"anything\",\"default\":3}", "3", "[{}]", "\"\"", NOT,
                 "x");
    close_bytes(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *schema;
        bitnet_status status;
        const char *part;
    } cases[] = {
        {"{\"type\":\"integer\",\"multipleOf\":3}", BITNET_E_UNSUPPORTED, "'multipleOf' cannot"},
        {"{\"properties\":{\"a\":{\"not\":{}}}}", BITNET_E_UNSUPPORTED, "'#/properties/a': 'not'"},
        {"{\"uniqueItems\":true}", BITNET_E_UNSUPPORTED, "'uniqueItems'"},
        {"{\"patternProperties\":{}}", BITNET_E_UNSUPPORTED, "'patternProperties'"},
        {"{\"format\":\"uri\"}", BITNET_E_UNSUPPORTED, "format 'uri'"},
        {"{\"type\":\"text\"}", BITNET_E_FORMAT, "'text', which is no type"},
        {"{\"$ref\":\"#/$defs/x\"}", BITNET_E_UNSUPPORTED, "'#/$defs/x', which is not in"},
        {"{\"$ref\":\"http://x/y\"}", BITNET_E_UNSUPPORTED, "which is not in this document"},
        {"{\"$ref\":\"#\"}", BITNET_E_FORMAT, "'#' refers to itself"},
        {"{\"$ref\":\"#\",\"minimum\":1}", BITNET_E_LIMIT, "256 deep"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", BITNET_E_UNSUPPORTED,
         "both schema 0 and schema 1"},
        {"{\"allOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", BITNET_E_UNSUPPORTED,
         "differ in 'type'"},
        {"{\"allOf\":[{\"properties\":{\"a\":true},\"additionalProperties\":false},"
         "{\"properties\":{\"b\":true}}]}",
         BITNET_E_UNSUPPORTED, "'additionalProperties' beside"},
        {"{\"pattern\":\"a(?=b)\"}", BITNET_E_UNSUPPORTED, "byte 1: this group"},
        {"{\"pattern\":\"a\\\\1\"}", BITNET_E_UNSUPPORTED, "byte 2: this escape"},
        {"{\"pattern\":\"(^a)\"}", BITNET_E_UNSUPPORTED, "byte 1: not supported here"},
        {"{\"pattern\":\"a**\"}", BITNET_E_UNSUPPORTED, "a repetition of a repetition"},
        {"{\"pattern\":\"a)\"}", BITNET_E_UNSUPPORTED, "')' without '('"},
        {"{\"pattern\":\"[a\"}", BITNET_E_UNSUPPORTED, "'[' is not closed"},
        {"{\"pattern\":\"a\",\"maxLength\":3}", BITNET_E_UNSUPPORTED, "together"},
        {"{\"minLength\":4,\"maxLength\":3}", BITNET_E_FORMAT, "above 'maxLength'"},
        {"{\"maxLength\":99999}", BITNET_E_LIMIT, "99999, the most is 16384"},
        {"{\"minItems\":2.5}", BITNET_E_FORMAT, "'minItems' is not a whole number"},
        {"{\"minItems\":3,\"maxItems\":2}", BITNET_E_FORMAT, "at least 3 items and at most 2"},
        {"{\"items\":[{}]}", BITNET_E_UNSUPPORTED, "'items' a schema"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", BITNET_E_FORMAT, "no integer"},
        {"{\"minimum\":3.5,\"maximum\":2}", BITNET_E_FORMAT, "can never be complete"},
        {"{\"minimum\":1e16}", BITNET_E_LIMIT, "1e+16, the most is 1e15"},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", BITNET_E_FORMAT,
         "'a' is required and not allowed"},
        {"{\"enum\":[1],\"minimum\":0}", BITNET_E_UNSUPPORTED, "beside other keywords"},
        {"{\"type\":\"string\",\"enum\":[1]}", BITNET_E_FORMAT, "no value fits"},
        {"{\"properties\":{\"a\":false}}", BITNET_E_FORMAT, "neither an object nor true"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
         BITNET_E_FORMAT, "can never be complete"},
        {"[1", BITNET_E_FORMAT, "bad JSON in line 1"},
        {"[1]", BITNET_E_FORMAT, "'#': neither an object nor true"},
    };
    struct bytes b = open_bytes();
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++)
        expect_refused(&b, SCHEMA, cases[i].schema, cases[i].status, cases[i].part);
    close_bytes(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings),  cmocka_unit_test(test_objects),
        cmocka_unit_test(test_arrays),   cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
