/* SPDX-License-Identifier: Apache-2.0
 * The JSON room: what is JSON and what is not, values and objects of all sizes, writing, and every
 * allocation failing in turn. */
#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_refuse.h"
#include "json_text.h"

/* ---- reading ---- */

/* What a text is written as afterwards, compact; NULL: it is no JSON. */
static const struct {
    const char *text, *written;
} texts[] = {
    {"null", "null"},
    {" true ", "true"},
    {"false", "false"},
    {"\t\n\r [ ] ", "[]"},
    {"{ }", "{}"},
    {"[1 , 2]", "[1,2]"},
    {"{\"a\" : {\"b\":[null]}}", "{\"a\":{\"b\":[null]}}"},
    {"{\"\":0}", "{\"\":0}"},
    {"{\"b\":1,\"a\":2,\"b\":3}", "{\"b\":3,\"a\":2}"},
    {"0", "0"},
    {"-0", "0"},
    {"-0.0", "-0.0"},
    {"1.0", "1.0"},
    {"0.1", "0.1"},
    {"1e0", "1.0"},
    {"1E+2", "100.0"},
    {"1e-7", "1e-07"},
    {"123456789012345678", "123456789012345678"},
    {"9223372036854775807", "9223372036854775807"},
    {"-9223372036854775808", "-9223372036854775808"},
    {"9223372036854775808", "9.223372036854776e+18"},
    {"1000000000000000019884624838656", "1e+30"},
    {"1e-400", "0.0"},
    {"4.9e-324", "4.94065645841247e-324"},
    {"1.7976931348623157e308", "1.7976931348623157e+308"},
    {"0.30000000000000004", "0.30000000000000004"},
    {"\"\"", "\"\""},
    {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
    {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
    {"\"\\u0000\\u001f\\u007f\"", "\"\\u0000\\u001f\x7f\""},
    {"\"\\uABcd\"", "\"\xea\xaf\x8d\""},
    {"\"\xf4\x8f\xbf\xbf\"", "\"\xf4\x8f\xbf\xbf\""},
    {"[\"a\",\"b\\u0000c\"]", "[\"a\",\"b\\u0000c\"]"},
    /* none of these */
    {"", NULL},
    {" ", NULL},
    {"nul", NULL},
    {"nulll", NULL},
    {"True", NULL},
    {"[1,]", NULL},
    {"[,1]", NULL},
    {"[1 2]", NULL},
    {"[1", NULL},
    {"[", NULL},
    {"]", NULL},
    {"[1]]", NULL},
    {"{", NULL},
    {"{\"a\"}", NULL},
    {"{\"a\":}", NULL},
    {"{\"a\":1,}", NULL},
    {"{\"a\" 1}", NULL},
    {"{a:1}", NULL},
    {"{'a':1}", NULL},
    {"{1:1}", NULL},
    {"{\"a\":1 \"b\":2}", NULL},
    {"{\"a\\u0000b\":1}", NULL},
    {"01", NULL},
    {"-", NULL},
    {"-01", NULL},
    {"+1", NULL},
    {".5", NULL},
    {"1.", NULL},
    {"1.e1", NULL},
    {"1e", NULL},
    {"1e+", NULL},
    {"0x1", NULL},
    {"1e400", NULL},
    {"-1e400", NULL},
    {"NaN", NULL},
    {"Infinity", NULL},
    {"1 2", NULL},
    {"\"", NULL},
    {"\"a", NULL},
    {"\"\\\"", NULL},
    {"\"\\x41\"", NULL},
    {"\"\\u12\"", NULL},
    {"\"\\u12g4\"", NULL},
    {"\"\\ud800\"", NULL},
    {"\"\\ud800\\u0041\"", NULL},
    {"\"\\udc00\"", NULL},
    {"\"\\ud83d\\ud83d\"", NULL},
    {"\"a\nb\"", NULL},
    {"\"a\tb\"", NULL},
    {"\"\xff\"", NULL},
    {"\"\xc3\"", NULL},
    {"\"\xc0\x80\"", NULL},
    {"\"\xed\xa0\x80\"", NULL},
    {"\"\xf4\x90\x80\x80\"", NULL},
    {"\xef\xbb\xbf{}", NULL},
    {"// a\n1", NULL},
    {"/**/1", NULL},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(texts); i++) {
        /* in memory of its own length: reading past the end is noticed */
        size_t n = strlen(texts[i].text);
        char *text = malloc(n ? n : 1);
        memcpy(text, texts[i].text, n);
        struct bn_json *j;
        bitnet_error e = {0};
        bitnet_status s = bn_json_parse(&j, text, n, BN_JSON_ANY, "text", &e);
        free(text);
        if ((s == BITNET_OK) != (texts[i].written != NULL))
            fail_msg("%s: %s", texts[i].text, s ? e.text : "accepted");
        if (s != BITNET_OK) {
            assert_null(j);
            assert_int_equal(s, BITNET_E_FORMAT);
            assert_non_null(strstr(e.text, "text: bad JSON in line "));
            continue;
        }
        char *written = bn_json_dump(j, BN_JSON_COMPACT);
        assert_string_equal(written, texts[i].written);
        free(written);
        bn_json_free(j);
    }
}

static void test_flags(void **state)
{
    (void)state;
    struct bn_json *j;
    bitnet_error e;
    size_t used;
    assert_int_equal(bn_json_parse(&j, "1", 1, 0, "x", &e), BITNET_E_FORMAT);
    assert_int_equal(bn_json_parse(&j, "{\"a\":1,\"a\":1}", 13, BN_JSON_UNIQUE, "x", &e),
                     BITNET_E_FORMAT);
    assert_non_null(strstr(e.text, "column 11: a key appears twice"));
    j = json_of_bytes("[1]", 3, BN_JSON_REALS);
    assert_true(bn_json_is_real(bn_json_at(j, 0)));
    bn_json_free(j);
    assert_int_equal(bn_json_parse_prefix(&j, " [1] x", 6, 0, &used, "x", &e), 0);
    assert_int_equal(used, 4);
    bn_json_free(j);
    assert_true(bn_json_try(&j, "[", 1, 0));
    assert_null(j);
    assert_int_equal(bn_json_parse(&j, "[\n1,\n  x]", 9, 0, "x", &e), BITNET_E_FORMAT);
    assert_string_equal(e.text, "x: bad JSON in line 3, column 3: a value expected");
}

static void test_depth(void **state)
{
    (void)state;
    struct bn_json *j;
    char text[2 * (BN_JSON_DEPTH_MAX + 1)];
    for (size_t depth = BN_JSON_DEPTH_MAX; depth <= BN_JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        bitnet_status s = bn_json_parse(&j, text, 2 * depth, 0, "x", NULL);
        assert_int_equal(s, depth > BN_JSON_DEPTH_MAX ? BITNET_E_LIMIT : BITNET_OK);
        bn_json_free(j);
    }
}

/* ---- values ---- */

static void test_nothing(void **state)
{
    (void)state;
    const char *k;
    struct bn_json *v;
    size_t i;
    assert_int_equal(bn_json_typeof(NULL), BN_JSON_NONE);
    assert_int_equal(bn_json_integer(NULL), 0);
    assert_null(bn_json_text(NULL));
    assert_null(bn_json_get(NULL, "a"));
    assert_null(bn_json_at(NULL, 0));
    assert_false(bn_json_whole(NULL));
    assert_false(bn_json_set(NULL, "a", bn_json_null()));
    assert_false(bn_json_append(NULL, bn_json_null()));
    assert_null(bn_json_string(NULL));
    assert_null(bn_json_string("\xff"));
    assert_null(bn_json_dump(NULL, 0));
    bn_json_each(NULL, i, v) fail();
    bn_json_each_member(NULL, k, v) fail();
    bn_json_del(NULL, "a");
    bn_json_free(NULL);
}

/* Against an array of what must be in it: put in, replaced, taken out, in objects of all sizes. */
static void test_objects(void **state)
{
    (void)state;
    enum { KEYS = 700, STEPS = 20000 };
    struct bn_json *o = bn_json_object();
    int64_t held[KEYS];
    size_t n = 0;
    uint32_t r = 1;
    for (size_t i = 0; i < KEYS; i++) held[i] = -1;
    for (int step = 0; step < STEPS; step++) {
        char key[16];
        r = r * 1664525 + 1013904223;
        size_t i = (r >> 8) % (size_t)(step % 5000 < 2500 ? KEYS : 12);
        snprintf(key, sizeof key, "%zu", i);
        if ((r >> 4) % 3 == 0) {
            n -= held[i] >= 0;
            held[i] = -1;
            bn_json_del(o, key);
        } else {
            n += held[i] < 0;
            held[i] = step;
            assert_true(bn_json_set(o, key, bn_json_int(step)));
        }
        assert_int_equal(bn_json_size(o), n);
        size_t other = (r >> 16) % KEYS;
        snprintf(key, sizeof key, "%zu", other);
        struct bn_json *v = bn_json_get(o, key);
        assert_int_equal(v ? bn_json_integer(v) : -1, held[other]);
    }
    const char *k;
    struct bn_json *v;
    size_t seen = 0;
    bn_json_each_member(o, k, v)
    {
        assert_int_equal(bn_json_integer(v), held[atoi(k)]);
        seen++;
    }
    assert_int_equal(seen, n);
    bn_json_free(o);
}

static void test_order(void **state)
{
    (void)state;
    struct bn_json *o = json_of("{\"c\":1,\"a\":{\"z\":1,\"y\":2},\"b\":[]}");
    char *text = bn_json_dump(o, 0);
    assert_string_equal(text, "{\"c\": 1, \"a\": {\"z\": 1, \"y\": 2}, \"b\": []}");
    free(text);
    text = bn_json_dump(o, BN_JSON_SORT | BN_JSON_INDENT(1));
    assert_string_equal(text,
                        "{\n \"a\": {\n  \"y\": 2,\n  \"z\": 1\n },\n \"b\": [],\n \"c\": 1\n}");
    free(text);
    bn_json_free(o);
}

static void test_arrays(void **state)
{
    (void)state;
    struct bn_json *a = json_of("[0,1,2]"), *b = json_of("[3,4]");
    assert_true(bn_json_insert(a, 1, bn_json_string("x")));
    bn_json_remove(a, 0);
    bn_json_remove(a, 99);
    assert_true(bn_json_extend(a, b) && bn_json_extend(b, b));
    char *text = bn_json_dump(a, BN_JSON_COMPACT), *twice = bn_json_dump(b, BN_JSON_COMPACT);
    assert_string_equal(text, "[\"x\",1,2,3,4]");
    assert_string_equal(twice, "[3,4,3,4]");
    free(text);
    free(twice);
    bn_json_free(a);
    bn_json_free(b);
}

static void test_copies(void **state)
{
    (void)state;
    struct bn_json *o = json_of("{\"a\":[1,{\"b\":2.5}],\"c\":\"d\"}");
    struct bn_json *flat = bn_json_copy(o), *deep = bn_json_deep_copy(o);
    assert_true(bn_json_equal(o, flat) && bn_json_equal(o, deep));
    bn_json_append(bn_json_get(o, "a"), bn_json_null());
    assert_true(bn_json_equal(o, flat));
    assert_false(bn_json_equal(o, deep));
    bn_json_set(flat, "e", bn_json_int(1));
    assert_null(bn_json_get(o, "e"));
    assert_true(bn_json_update(deep, flat, false));
    assert_int_equal(bn_json_size(bn_json_get(deep, "a")), 2);
    assert_true(bn_json_update(deep, flat, true));
    assert_int_equal(bn_json_size(bn_json_get(deep, "a")), 3);
    bn_json_free(o);
    bn_json_free(flat);
    bn_json_free(deep);
    struct bn_json *one = bn_json_int(1), *real = bn_json_real(1);
    assert_false(bn_json_equal(one, real));
    bn_json_free(one);
    bn_json_free(real);
}

static void test_pack(void **state)
{
    (void)state;
    struct bn_json *kept = bn_json_string("k");
    struct bn_json *j = bn_json_pack(
        "{s:s, s:s%, s:i, s:I, s:f, s:b, s:n, s:o, s:O, s:s?, s:O?, s:[i,{}], s{sb}}", "s", "t",
        "n", "abc", (size_t)2, "i", -1, "I", INT64_MIN, "f", 0.5, "b", 2, "null", "o",
        bn_json_array(), "O", kept, "none", NULL, "None", NULL, "list", 7, "in", "b", 0);
    char *text = bn_json_dump(j, BN_JSON_COMPACT);
    assert_string_equal(text,
                        "{\"s\":\"t\",\"n\":\"ab\",\"i\":-1,\"I\":-9223372036854775808,\"f\":0.5,"
                        "\"b\":true,\"null\":null,\"o\":[],\"O\":\"k\",\"none\":null,"
                        "\"None\":null,\"list\":[7,{}],\"in\":{\"b\":false}}");
    free(text);
    bn_json_free(j);
    assert_null(bn_json_pack("{s:s}", "a", NULL));
    assert_null(bn_json_pack("{s:o, s:o}", "a", NULL, "b", bn_json_array())); /* taken: no leak */
    assert_null(bn_json_pack("[s]", "\xff"));
    bn_json_free(kept);
}

static void test_reals(void **state)
{
    (void)state;
    static const double v[] = {0.1, 1.0 / 3, DBL_MAX, DBL_MIN, 5e-324, 123456789.125, 1e21, -2.5};
    for (size_t i = 0; i < BN_ARRAY_LEN(v); i++) {
        struct bn_json *j = bn_json_real(v[i]);
        char *text = bn_json_dump(j, 0);
        struct bn_json *back = json_of(text);
        assert_true(bn_json_is_real(back) && bn_json_number(back) == v[i]);
        free(text);
        bn_json_free(j);
        bn_json_free(back);
    }
    struct bn_json *j = bn_json_real(1.0 / 3), *nan = bn_json_real(0.0 / 0.0);
    char *text = bn_json_dump(j, BN_JSON_DIGITS(6));
    assert_string_equal(text, "0.333333");
    assert_true(bn_json_is_null(nan));
    free(text);
    bn_json_free(j);
    bn_json_free(nan);
}

/* ---- what is missing is known ---- */

static void test_broken(void **state)
{
    (void)state;
    struct bn_json *o = json_of("{\"a\":[1]}");
    assert_true(bn_json_whole(o));
    assert_false(bn_json_append(bn_json_get(o, "a"), NULL));
    assert_false(bn_json_whole(o));
    assert_null(bn_json_dump(o, 0));
    struct bn_json *copy = bn_json_deep_copy(o);
    assert_null(bn_json_dump(copy, 0));
    assert_null(bn_json_pack("{s:O}", "a", o));
    bn_json_free(copy);
    bn_json_free(o);
}

static const char sample[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\\u00e9\\n\"},"
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}],\"n\":2,\"t\":0.5,"
    "\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1,\"g\":1,\"h\":1,\"i\":1,\"j\":1,\"k\":1,"
    "\"l\":1,\"o\":1,\"p\":1,\"q\":1,\"r\":1,\"s\":1,\"u\":null,\"v\":true}";

/* Reads, changes, copies and writes; no single result is looked at but the last. */
static char *use_it(void)
{
    struct bn_json *j, *more, *deep;
    if (bn_json_parse(&j, sample, sizeof sample - 1, 0, "x", NULL) != BITNET_OK) return NULL;
    more = bn_json_pack("{s:s, s:[i, i], s:{s:f}}", "w", "text", "list", 1, 2, "in", "f", 1.5);
    bn_json_set(more, "said", bn_json_printf("%d of %s", 3, "four"));
    bn_json_update(j, more, true);
    bn_json_del(j, "c");
    deep = bn_json_deep_copy(j);
    bn_json_insert(bn_json_get(deep, "messages"), 0, bn_json_ref(more));
    bn_json_extend(bn_json_get(deep, "messages"), bn_json_get(j, "messages"));
    /* what is not there because it could not be made must not be missed in silence */
    struct bn_json *both = bn_json_pack("[o, o]", deep, bn_json_ref(j));
    char *text = bn_json_dump(both, BN_JSON_SORT | BN_JSON_COMPACT);
    bn_json_free(both);
    bn_json_free(more);
    bn_json_free(j);
    return text;
}

static void test_allocations_fail(void **state)
{
    (void)state;
    n_allocations = 0;
    char *right = use_it();
    long all = n_allocations;
    assert_non_null(right);
    assert_true(all > 100);
    for (fail_once = 0; fail_once < 2; fail_once++)
        for (long n = 0; n < all; n++) {
            n_allocations = 0;
            fail_at = n;
            char *text = use_it();
            fail_at = -1;
            if (text) fail_msg("allocation %ld of %ld failed: %s", n, all, text);
        }
    free(right);
}

/* ---- any bytes ---- */

static void test_mutated(void **state)
{
    (void)state;
    uint32_t r = 7;
    size_t good = 0;
    for (int round = 0; round < 30000; round++) {
        char text[sizeof sample - 1];
        memcpy(text, sample, sizeof text);
        for (int k = 0; k < 1 + round % 4; k++) {
            r = r * 1664525 + 1013904223;
            static const char *const marks = "[]{},:\"\\0e.-u ";
            text[(r >> 8) % sizeof text] =
                r % 3 ? marks[(r >> 20) % strlen(marks)] : (char)(r >> 24);
        }
        struct bn_json *j, *back;
        if (bn_json_parse(&j, text, sizeof text, BN_JSON_ANY, "x", NULL) != BITNET_OK) continue;
        char *written = bn_json_dump(j, 0);
        back = json_of(written);
        assert_true(bn_json_equal(j, back));
        good++;
        free(written);
        bn_json_free(j);
        bn_json_free(back);
    }
    assert_true(good > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),   cmocka_unit_test(test_flags),
        cmocka_unit_test(test_depth),   cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_objects), cmocka_unit_test(test_order),
        cmocka_unit_test(test_arrays),  cmocka_unit_test(test_copies),
        cmocka_unit_test(test_pack),    cmocka_unit_test(test_reals),
        cmocka_unit_test(test_broken),  cmocka_unit_test(test_allocations_fail),
        cmocka_unit_test(test_mutated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
