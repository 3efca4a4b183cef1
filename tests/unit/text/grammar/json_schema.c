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

/* What the usual libraries write, and older drafts. */
static void test_dialects(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
        "9007199254740991", "-9007199254740991", "0", NOT, "9007199254740992", "1.0");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"type\":\"integer\",\"minimum\":-9223372036854775808,\"maximum\":9223372036854775807}",
        "9223372036854775807", "-9223372036854775808", NOT, "9223372036854775808",
        "-9223372036854775809");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"integer\",\"exclusiveMinimum\":1e18}",
                 "1000000000000000001", NOT, "1000000000000000000");
    EXPECT_TEXTS(&b, SCHEMA, "{\"const\":1.0,\"type\":\"integer\"}", "1", NOT, "1.0", "2");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\",\"nullable\":true,\"maxLength\":1,\"x-note\":3}",
                 "null", "\"a\"", NOT, "\"ab\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"$ref\":\"#/$defs/a%20b\",\"$defs\":{\"a b\":{\"const\":1}}}", "1",
                 NOT, "2");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"type\":\"number\",\"minimum\":0,\"exclusiveMinimum\":true,\"maximum\":2}",
                 "0.1", "2", NOT, "0", "2.1");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"items\":[{\"const\":1},{\"const\":2}],\"additionalItems\":false,\"minItems\":2}",
        "[1,2]", NOT, "[1]", "[1,2,3]");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^https\\\\:\\\\/\\\\/\"}", "\"https://\"",
                 "\"https://x\"", NOT, "\"http://\"");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"type\":\"string\",\"pattern\":\"^(?!^[-+.]*$)[+-]?0*(?:\\\\d{0,3}|(?=[\\\\d.]{1,6}0*$)"
        "\\\\d{0,3}\\\\.\\\\d{0,2}0*$)$\"}",
        "\"12.34\"", "\"-1\"", "\"007.50\"", NOT, "\"\"", "\"-\"", "\"1234\"", "\"1.239\"");
    close_bytes(&b);
}

static void test_multiples(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":-20}", "0", "-14",
                 "7", "1001", NOT, "-21", "8", "100");
    EXPECT_TEXTS(&b, SCHEMA, "{\"multipleOf\":0.05,\"minimum\":0,\"maximum\":10}", "0.05", "0.1",
                 "9.95", "10", "0.50", NOT, "0.01", "10.05", "0.005");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"integer\",\"multipleOf\":2.5}", "5", "-10", NOT, "2",
                 "7");
    char text[24];
    struct bn_grammar *g = open_grammar(b.tree, SCHEMA,
                                        "{\"type\":\"integer\",\"multipleOf\":60,"
                                        "\"minimum\":-1000,\"maximum\":5000}");
    for (int i = -1300; i <= 5300; i++) {
        snprintf(text, sizeof text, "%d", i);
        if (fits(g, text) != (i % 60 == 0 && i >= -1000 && i <= 5000))
            fail_msg("multiple: %s", text);
    }
    bn_grammar_close(g);
    close_bytes(&b);
}

static void test_shapes(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^a+$\",\"minLength\":2,\"maxLength\":3}", "\"aa\"",
                 "\"aaa\"", NOT, "\"a\"", "\"aaaa\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"format\":\"date\",\"pattern\":\"^2\"}", "\"2024-02-29\"", NOT,
                 "\"1999-01-01\"", "\"2023-02-29\"", "\"2x\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"format\":\"ipv4\",\"pattern\":\"^[a-z]+$\"}", "\"abc\"", NOT,
                 "\"1.2.3.4\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\",\"format\":\"unheard-of\"}", "\"x\"", NOT, "1");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^(?=.*[A-Z])(?=.*\\\\d)\\\\S{3,4}$\"}", "\"aB1\"",
                 "\"1xYz\"", NOT, "\"ab1\"", "\"aB\"", "\"aB1cd\"", "\"A 1\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^(?:(?!--)[a-z-])+$\"}", "\"a-b\"", "\"-\"", NOT,
                 "\"a--b\"", "\"\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"\\\\bcat\\\\b\"}", "\"cat\"", "\"a cat!\"", NOT,
                 "\"concat\"", "\"cats\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"pattern\":\"^\\\\p{Lu}\\\\p{Ll}*$\"}", "\"\xc3\x89t\xc3\xa9\"",
                 NOT, "\"\xc3\xa9t\"", "\"A1\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"not\":{\"type\":[\"string\",\"object\",\"array\",\"number\"]}}",
                 "null", "true", NOT, "1", "\"a\"");
    EXPECT_TEXTS(&b, SCHEMA, "{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"b.\"]}}", "\"\"",
                 "\"ab\"", "\"bx\"", NOT, "\"a\"", "\"b.\"");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"oneOf\":[{\"type\":\"integer\",\"minimum\":2},{\"type\":\"integer\",\"maximum\":5}]}",
        "1", "6", NOT, "2", "5");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"boolean\"},\"b\":{\"const\":1}},"
        "\"required\":[\"a\"],\"if\":{\"properties\":{\"a\":{\"const\":true}}},"
        "\"then\":{\"required\":[\"b\"]}}",
        "{\"a\":true,\"b\":1}", "{\"a\":false}", NOT, "{\"a\":true}");
    close_bytes(&b);
}

static void test_keys(void **state)
{
    (void)state;
    struct bytes b = open_bytes();
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"patternProperties\":{\"^n\":{\"type\":\"null\"},\"o$\":{\"type\":[\"null\","
                 "\"boolean\"]}},"
                 "\"properties\":{\"nb\":true},\"additionalProperties\":{\"const\":1}}",
                 "{\"nx\":null}", "{\"foo\":true}", "{\"x\":1}", "{\"nb\":null,\"no\":null}", NOT,
                 "{\"nx\":1}", "{\"no\":true}", "{\"x\":null}", "{\"nb\":1}");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"propertyNames\":{\"enum\":[\"a\",\"b\"]},\"additionalProperties\":{\"const\":1},"
        "\"required\":[\"b\"]}",
        "{\"b\":1}", NOT, "{\"a\":1}", "{\"b\":1,\"c\":1}");
    EXPECT_TEXTS(&b, SCHEMA, "{\"propertyNames\":{\"pattern\":\"^[a-z]+$\",\"maxLength\":2}}", "{}",
                 "{\"ab\":1}", NOT, "{\"A\":1}", "{\"abc\":1}");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{\"const\":3}},"
                 "\"minProperties\":1,\"maxProperties\":2}",
                 "{\"a\":1}", "{\"a\":1,\"c\":3}", NOT, "{}", "{\"a\":1,\"b\":2,\"c\":3}");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"allOf\":[{\"properties\":{\"a\":true},\"additionalProperties\":false},"
                 "{\"properties\":{\"b\":true}}]}",
                 "{}", "{\"a\":1}", NOT, "{\"b\":1}");
    EXPECT_TEXTS(&b, SCHEMA, "{\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true}", "[]", "[2,1]",
                 "[3,1,2]", NOT, "[1,1]", "[1,2,1]");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"minContains\":2,"
                 "\"maxItems\":3}",
                 "[5,6]", "[1,5,6]", NOT, "[5]", "[5,1]", "[1,5,6,7]");
    EXPECT_TEXTS(
        &b, SCHEMA,
        "{\"items\":{\"type\":\"integer\"},\"contains\":{\"minimum\":5},\"maxContains\":1}", "[5]",
        "[1,5,2]", NOT, "[]", "[1]", "[5,5]");
    EXPECT_TEXTS(&b, SCHEMA,
                 "{\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2}},\"dependentRequired\":{"
                 "\"a\":[\"b\"]}}",
                 "{}", "{\"b\":2}", "{\"a\":1,\"b\":2}", NOT, "{\"a\":1}");
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
        {"{\"type\":\"number\",\"multipleOf\":0.000123456789}", BITNET_E_UNSUPPORTED,
         "'multipleOf' is too fine"},
        {"{\"multipleOf\":-1}", BITNET_E_FORMAT, "'multipleOf' is not a number above 0"},
        {"{\"properties\":{\"a\":{\"not\":{}}},\"required\":[\"a\"]}", BITNET_E_FORMAT,
         "'#/properties/a': no value fits"},
        {"{\"not\":{\"multipleOf\":3}}", BITNET_E_UNSUPPORTED, "'not' of 'multipleOf' cannot"},
        {"{\"properties\":{\"a/b\":{\"items\":{\"uniqueItems\":true}}}}", BITNET_E_UNSUPPORTED,
         "'#/properties/a~1b/items': 'uniqueItems'"},
        {"{\"type\":\"string\",\"maxlength\":3}", BITNET_E_UNSUPPORTED,
         "no keyword 'maxlength'; is 'maxLength' meant"},
        {"{\"type\":\"text\"}", BITNET_E_FORMAT, "'text', which is no type"},
        {"{\"$ref\":\"#/$defs/x\"}", BITNET_E_UNSUPPORTED, "'#/$defs/x', which is not in"},
        {"{\"$ref\":\"http://x/y\"}", BITNET_E_UNSUPPORTED, "which is not in this document"},
        {"{\"$ref\":\"#\"}", BITNET_E_LIMIT, "256 deep"},
        {"{\"$ref\":\"#\",\"minimum\":1}", BITNET_E_LIMIT, "256 deep"},
        {"{\"allOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", BITNET_E_FORMAT,
         "agree on no 'type'"},
        {"{\"pattern\":\"a(?<=b)\"}", BITNET_E_UNSUPPORTED, "byte 1: looking behind"},
        {"{\"pattern\":\"(a)\\\\1\"}", BITNET_E_UNSUPPORTED, "byte 4: a back reference"},
        {"{\"pattern\":\"\\\\p{Nothing}\"}", BITNET_E_UNSUPPORTED, "no such Unicode property"},
        {"{\"pattern\":\"a**\"}", BITNET_E_UNSUPPORTED, "a repetition of a repetition"},
        {"{\"pattern\":\"a)\"}", BITNET_E_UNSUPPORTED, "')' without '('"},
        {"{\"pattern\":\"[a\"}", BITNET_E_UNSUPPORTED, "'[' is not closed"},
        {"{\"pattern\":\"(a|b)*a(a|b){20}c*$\",\"maxLength\":90}", BITNET_E_LIMIT,
         "too many states"},
        {"{\"pattern\":\"^a$\",\"minLength\":3}", BITNET_E_FORMAT, "no text of this length"},
        {"{\"pattern\":5}", BITNET_E_FORMAT, "'pattern' is not a string"},
        {"{\"minLength\":4,\"maxLength\":3}", BITNET_E_FORMAT, "above 'maxLength'"},
        {"{\"minLength\":99999}", BITNET_E_LIMIT, "99999, the most is 16384"},
        {"{\"minItems\":2.5}", BITNET_E_FORMAT, "'minItems' is not a whole number"},
        {"{\"minItems\":3,\"maxItems\":2}", BITNET_E_FORMAT, "at least 3 items and at most 2"},
        {"{\"items\":\"x\"}", BITNET_E_FORMAT, "'items' is not a schema"},
        {"{\"additionalProperties\":5}", BITNET_E_FORMAT, "'additionalProperties' is not a schema"},
        {"{\"properties\":{\"a\":5}}", BITNET_E_FORMAT, "'properties' is not an object of schemas"},
        {"{\"required\":\"a\"}", BITNET_E_FORMAT, "'required' is not a list of names"},
        {"{\"minimum\":\"3\"}", BITNET_E_FORMAT, "'minimum' is not a number"},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", BITNET_E_FORMAT, "no integer"},
        {"{\"minimum\":3.5,\"maximum\":2}", BITNET_E_FORMAT, "no number lies between"},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", BITNET_E_FORMAT,
         "'a' is required and not allowed"},
        {"{\"enum\":[1],\"minimum\":2}", BITNET_E_FORMAT, "no value of 'enum' fits"},
        {"{\"type\":\"string\",\"enum\":[1]}", BITNET_E_FORMAT, "no value of 'enum' fits"},
        {"{\"minProperties\":2}", BITNET_E_UNSUPPORTED, "'minProperties' 2: more than one key"},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{\"$ref\":\"#\"}}}",
         BITNET_E_FORMAT, "can never be complete"},
        {"[1", BITNET_E_FORMAT, "bad JSON in line 1"},
        {"[1]", BITNET_E_FORMAT, "'#': a schema is neither an object nor true"},
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
        cmocka_unit_test(test_dialects), cmocka_unit_test(test_multiples),
        cmocka_unit_test(test_shapes),   cmocka_unit_test(test_keys),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
