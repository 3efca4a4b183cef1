/* SPDX-License-Identifier: Apache-2.0
 * The TOML reader: every kind of value, what may be added to a table and what not, messages with their
 * line, bounds. With a file as argument, what is in it as JSON, in the form of toml-test: for
 * tests/e2e/toml.py, which compares it with other readers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app/config/toml.h"
#include "json/json.h"
#include <math.h>

static struct bn_arena arena;
static bitnet_error err;

static const struct toml *read_n(const char *text, size_t n)
{
    struct toml *root = NULL;
    bn_arena_free(&arena);
    if (toml_read(&root, &arena, text, n, "t.toml", &err) != BITNET_OK) return NULL;
    return root;
}

static const struct toml *read_text(const char *text) { return read_n(text, strlen(text)); }

/* Follows names separated by dots. */
static const struct toml *at(const char *text, const char *path)
{
    char name[64];
    const struct toml *t = read_text(text);
    if (!t) fail_msg("%s: %s", text, err.text);
    while (t && *path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        t = toml_get(t, name);
        path += n + (path[n] == '.');
    }
    if (!t) fail_msg("%s: nothing at the path", text);
    return t;
}

static void wrong(const char *text, const char *says)
{
    if (read_text(text)) fail_msg("'%s' was taken", text);
    if (!strstr(err.text, says)) fail_msg("'%s': '%s' does not say '%s'", text, err.text, says);
}

static void test_values(void **state)
{
    (void)state;
    assert_int_equal(at("a = 1_000", "a")->integer, 1000);
    assert_true(at("a=-9223372036854775808", "a")->integer == INT64_MIN);
    assert_int_equal(at("a = 0xDead_beef", "a")->integer, 0xdeadbeef);
    assert_int_equal(at("a = 0o755", "a")->integer, 0755);
    assert_int_equal(at("a = 0b1101", "a")->integer, 13);
    assert_true(at("a = 6.5e-1", "a")->real == 0.65);
    assert_true(isinf(at("a = -inf", "a")->real) && isnan(at("a = +nan", "a")->real));
    assert_true(at("a = true", "a")->truth);
    assert_string_equal(at("a = \"b\\tc\\u00e9\\U0001F600\"", "a")->text,
                        "b\tc\xc3\xa9\xf0\x9f\x98\x80");
    assert_string_equal(at("a = 'C:\\x'", "a")->text, "C:\\x");
    assert_string_equal(at("a = \"\"\"\nx\\\n   y\"\"\"\"", "a")->text, "xy\"");
    assert_string_equal(at("a = '''\n'x''''", "a")->text, "'x'");
    assert_int_equal(at("a = 1979-05-27 07:32:00.5-07:00", "a")->kind, TOML_OFFSET_DATETIME);
    assert_int_equal(at("a = 2000-02-29", "a")->kind, TOML_LOCAL_DATE);
    const struct toml *list = at("a = [ 1, # one\n [2], {b.c = 3} ,\n]", "a");
    assert_int_equal(list->first->integer, 1);
    assert_int_equal(list->first->next->first->integer, 2);
    assert_int_equal(toml_get(toml_get(list->last, "b"), "c")->integer, 3);
    assert_null(list->last->next);
}

static void test_tables(void **state)
{
    (void)state;
    assert_int_equal(at("[a.b]\nc.d=1\nc.e=2\n[a]\nf=3", "a.b.c.e")->integer, 2);
    assert_int_equal(at("[ run ] # x\r\n'a b' = 4\r\n", "run.a b")->line, 2);
    assert_int_equal(at("[[a]]\nx=1\n[[a]]\n[a.y]\nz=2", "a")->last->first->first->integer, 2);
    assert_int_equal(at("[f]\na.c=1\n[f.a.t]\ns=1", "f.a.t.s")->line, 4);
    wrong("a=1\na=2", "t.toml:2: 'a' stands in line 1 already");
    wrong("[a]\n[b]\n[a]", "t.toml:3: 'a' stands in line 1");
    wrong("[f]\na.c=1\n[f.a]", "'a'");
    wrong("[a.b.c]\nz=9\n[a]\nb.c.t=1", "t.toml:4: 'c'");
    wrong("a={}\n[a.b]", "'a'");
    wrong("a={}\na.b=1", "'a'");
    wrong("a=[]\n[[a]]", "'a'");
    wrong("[[a]]\n[a]", "'a'");
}

static void test_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"\n\na = hello", "t.toml:3: 'hello' is no value; a text stands between quotes"},
        {"a", "'=' was expected"},
        {"a =", "a value was expected"},
        {"= 1", "a name was expected"},
        {"a = \"x", "no closing quote"},
        {"a = \"\"\"x\ny", "t.toml:1: the text has no closing quote"},
        {"a = \"\\q\"", "between single quotes"},
        {"a = \"\\ud800\"", "no character"},
        {"a = \"\\u12\"", "4 hexadecimal"},
        {"a = 1 b = 2", "the line goes on"},
        {"[a", "']' was expected"},
        {"[[a]", "']]' was expected"},
        {"[a]]", "goes on"},
        {"a = [1 2]", "',' or ']'"},
        {"a = {b=1,}", "behind the comma"},
        {"a = {b=1\n}", "'}'"},
        {"a = 01", "'01'"},
        {"a = 1__0", "1__0"},
        {"a = 1_e3", "1_e3"},
        {"a = 9223372036854775808", "9223372036854775808"},
        {"a = 2001-02-29", "2001-02-29"},
        {"a = 24:00:00", "24:00:00"},
        {"a = 1.", "'1.'"},
        {"a = tru", "'tru'"},
        {"# \x01", "control character"},
        {"a = 'x\x7f'", "control character"},
        {"a = \"\xff\"", "UTF-8"},
        {"\n\"\"\"a\"\"\" = 1", "t.toml:2: a name cannot have several lines"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) wrong(cases[i].text, cases[i].says);
    assert_null(read_n("a = 1\0", 6));
}

static void test_bounds(void **state)
{
    (void)state;
    struct bn_buf b;
    bn_buf_init(&b, 1 << 22);
    bn_buf_puts(&b, "a = ");
    for (int i = 0; i < 100000; i++) bn_buf_putc(&b, '[');
    assert_null(read_n(b.data, b.len));
    assert_int_equal(err.status, BITNET_E_LIMIT);
    bn_buf_clear(&b);
    bn_buf_puts(&b, "a = [");
    for (int i = 0; i < TOML_MAX_NODES; i++) bn_buf_puts(&b, "1,");
    assert_null(read_n(b.data, b.len));
    assert_non_null(strstr(err.text, "more than"));
    bn_buf_clear(&b);
    for (int i = 0; i < 100; i++) bn_buf_puts(&b, "a.");
    bn_buf_puts(&b, "a = 1");
    assert_null(read_n(b.data, b.len));
    bn_buf_clear(&b);
    while (b.len <= TOML_MAX_BYTES) bn_buf_puts(&b, "# 0123456789\n");
    assert_null(read_n(b.data, b.len));
    assert_int_equal(err.status, BITNET_E_LIMIT);
    bn_buf_free(&b);
}

/* ------------------------------------------------------------------ as JSON */

static struct bn_json *tagged(const char *type, struct bn_json *value)
{
    return bn_json_pack("{s:s, s:o}", "type", type, "value", value);
}

static struct bn_json *as_json(const struct toml *t)
{
    static const char *const dates[] = {"datetime", "datetime-local", "date-local", "time-local"};
    switch (t->kind) {
    case TOML_TABLE: {
        struct bn_json *o = bn_json_object();
        for (const struct toml *m = t->first; m; m = m->next) bn_json_set(o, m->key, as_json(m));
        return o;
    }
    case TOML_ARRAY: {
        struct bn_json *a = bn_json_array();
        for (const struct toml *m = t->first; m; m = m->next) bn_json_append(a, as_json(m));
        return a;
    }
    case TOML_STRING: return tagged("string", bn_json_stringn(t->text, t->bytes));
    case TOML_INTEGER: return tagged("integer", bn_json_printf("%lld", (long long)t->integer));
    case TOML_FLOAT: return tagged("float", bn_json_printf("%.17g", t->real));
    case TOML_BOOL: return tagged("bool", bn_json_string(t->truth ? "true" : "false"));
    default: break;
    }
    return tagged(dates[t->kind - TOML_OFFSET_DATETIME], bn_json_string(t->text));
}

static int print_file(const char *path)
{
    static char text[TOML_MAX_BYTES + 1];
    FILE *f = fopen(path, "rb");
    if (!f) return 2;
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    const struct toml *t = read_n(text, n);
    char *shown = NULL;
    if (t) {
        struct bn_json *j = as_json(t);
        shown = bn_json_dump(j, BN_JSON_COMPACT);
        bn_json_free(j);
    }
    if (shown) puts(shown);
    else fprintf(stderr, "%s\n", err.text);
    free(shown);
    bn_arena_free(&arena);
    return t ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) return print_file(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_bounds),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bn_arena_free(&arena);
    return failed;
}
