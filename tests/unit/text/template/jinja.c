/* SPDX-License-Identifier: Apache-2.0
 * The template interpreter: against outputs of the real Jinja2 (tests/data/templates/goldens.json,
 * made by tools/make_template_goldens.py), its sentences, and templates that try to hurt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "json/json.h"
#include "text/template/jinja.h"

#define GOLDENS TEST_DATA "/templates/goldens.json"

static bitnet_status render(const char *source, size_t n, const struct bn_json *vars, int64_t now_s,
                            struct bn_buf *out, bitnet_error *err)
{
    struct bn_jinja *j;
    bn_buf_init(out, 64 << 20);
    memset(err, 0, sizeof *err);
    bitnet_status st = bn_jinja_parse(&j, source, n, err);
    if (st == BITNET_OK) st = bn_jinja_render_json(j, vars, now_s, out, err);
    bn_jinja_free(j);
    return st;
}

static bool golden_holds(const struct bn_json *c, const struct bn_json *all_vars)
{
    const struct bn_json *source = bn_json_get(c, "template"), *output = bn_json_get(c, "output");
    const struct bn_json *vars =
        bn_json_at(all_vars, (size_t)bn_json_integer(bn_json_get(c, "vars")));
    const char *name = bn_json_text(bn_json_get(c, "name"));
    struct bn_buf out;
    bitnet_error err;
    bitnet_status st = render(bn_json_text(source), bn_json_bytes(source), vars,
                              bn_json_integer(bn_json_get(c, "now_s")), &out, &err);
    bool ok;
    if (output) {
        ok = st == BITNET_OK && out.len == bn_json_bytes(output) &&
             (out.len == 0 || memcmp(out.data, bn_json_text(output), out.len) == 0);
    } else { /* Jinja failed: so do we; what raise_exception says is passed on word for word */
        const char *text = bn_json_text(bn_json_get(c, "error"));
        ok = st != BITNET_OK && err.status == st && err.text[0] &&
             (!text[0] || strcmp(text, err.text) == 0);
    }
    if (!ok)
        print_error("%s: %s\n want: %s\n got:  %s\n", name, bn_json_text(source),
                    output ? bn_json_text(output) : "an error",
                    st        ? err.text
                    : out.len ? out.data
                              : "");
    bn_buf_free(&out);
    return ok;
}

static void test_goldens(void **state)
{
    (void)state;
    struct bn_json *g;
    bitnet_error err = {0};
    if (bn_json_read_file(&g, GOLDENS, 16 << 20, &err) != BITNET_OK) fail_msg("%s", err.text);
    const struct bn_json *cases = bn_json_get(g, "cases");
    size_t bad = 0, n = bn_json_size(cases);
    for (size_t i = 0; i < n; i++)
        bad += !golden_holds(bn_json_at(cases, i), bn_json_get(g, "vars"));
    bn_json_free(g);
    assert_true(n > 300);
    assert_int_equal(bad, 0);
}

/* ------------------------------------------------------------------ sentences */

static void expect_error(const char *source, bitnet_status want, const char *text)
{
    struct bn_json *vars = bn_json_pack("{s:i,s:s,s:[i,i]}", "a", 1, "b", "text", "c", 1, 2);
    struct bn_buf out;
    bitnet_error err;
    bitnet_status st = render(source, strlen(source), vars, 0, &out, &err);
    bn_buf_free(&out);
    bn_json_free(vars);
    if (st != want || !strstr(err.text, text))
        fail_msg("'%.80s': status %d: %s", source, (int)st, err.text);
}

static void test_sentences(void **state)
{
    (void)state;
    expect_error("x\n\n{{ b | xyz }}", BITNET_E_UNSUPPORTED,
                 "template line 3: filter 'xyz' is not supported");
    expect_error("{{ b is xyz }}", BITNET_E_UNSUPPORTED,
                 "template line 1: test 'xyz' is not supported");
    expect_error("\n{{ c.append(1) }}", BITNET_E_UNSUPPORTED,
                 "template line 2: method 'append' of list is not supported");
    expect_error("{% include 'x' %}", BITNET_E_UNSUPPORTED, "tag 'include'");
    expect_error("{{ nope.x }}", BITNET_E_FORMAT, "'nope' is undefined");
    expect_error("{{ b + nope }}", BITNET_E_FORMAT, "'nope' is undefined");
    expect_error("{{ b + 1 }}", BITNET_E_FORMAT, "operator '+' does not take str and int");
    expect_error("{% if a %}", BITNET_E_FORMAT, "'if' of line 1 is not ended");
    expect_error("{{ a", BITNET_E_FORMAT, "not closed");
    expect_error("{{ 'abc }}", BITNET_E_FORMAT, "string is not closed");
    expect_error("{# abc", BITNET_E_FORMAT, "comment is not closed");
    expect_error("{{ a b }}", BITNET_E_FORMAT, "'b' found");
    expect_error("{{ raise_exception('No system role') }}", BITNET_E_ARG, "No system role");
    expect_error("{{ strftime_now('%Y') }}", BITNET_E_FORMAT, "'strftime_now' is undefined");
    expect_error("{{ b | trim(x=1) }}", BITNET_E_UNSUPPORTED, "filter 'trim' has no argument 'x'");
    expect_error("{{ b | replace('a') }}", BITNET_E_FORMAT,
                 "filter 'replace' needs the argument 'new'");
    expect_error("{{ 9223372036854775807 + 1 }}", BITNET_E_LIMIT, "64 bits");
    expect_error("{% set ns = namespace() %}{% set ns.me = ns %}{{ [ns] }}", BITNET_E_UNSUPPORTED,
                 "namespace cannot be printed");
}

/* The caller may not want the sentence. */
static void test_no_error_struct(void **state)
{
    (void)state;
    struct bn_jinja *j;
    assert_int_equal(bn_jinja_parse(&j, "{{", 2, NULL), BITNET_E_FORMAT);
    assert_null(j);
    bn_jinja_free(NULL);
}

/* ------------------------------------------------------------------ variables of a chat */

static void test_chat_vars(void **state)
{
    (void)state;
    static const bitnet_message msgs[] = {{"user", "hi"}, {"assistant", NULL}};
    static const char source[] =
        "{{ bos_token }}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
        "{{ eos_token }}{{ tools is none }}{{ add_generation_prompt }}"
        "{{ strftime_now('%d %b %Y') if strftime_now is defined }}";
    struct bn_jinja *j;
    struct bn_buf out;
    bitnet_error err;
    struct bn_chat_vars vars = {.msgs = msgs, .n_msgs = 2, .bos_token = "<s>", .eos_token = "</s>"};
    assert_int_equal(bn_jinja_parse(&j, source, strlen(source), &err), BITNET_OK);
    bn_buf_init(&out, 1000);
    assert_int_equal(bn_jinja_render(j, &vars, &out, &err), BITNET_OK);
    assert_string_equal(out.data, "<s>user=hi;assistant=None;</s>TrueFalse");
    vars.now_s = 86400 * 365;
    assert_int_equal(bn_jinja_render(j, &vars, &out, &err), BITNET_OK); /* appends */
    assert_non_null(strstr(out.data, "TrueFalse<s>user=hi"));
    assert_non_null(strstr(out.data, "01 Jan 1971"));
    bn_buf_free(&out);
    bn_buf_init(&out, 5); /* too small for the result: an error, nothing half written */
    assert_int_equal(bn_jinja_render(j, &vars, &out, &err), BITNET_E_LIMIT);
    assert_int_equal(out.len, 0);
    bn_buf_free(&out);
    bn_jinja_free(j);
}

/* ------------------------------------------------------------------ hostile templates */

static void test_limits(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ range(0 - 10**18, 10**18) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% "
        "endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
        "%}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
        "%}{{ ns.s|tojson }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor "
        "%}{{ ns.s == [[ns.s]] }}",
        "{% set s = 'a' * 4000000 %}{% for i in range(99999) %}{{ s[i] }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% if s[:-1] ~ 'b' in s %}{% endif "
        "%}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{{ s.rfind(('a' * 500000) + 'b') }}",
        "{% set s = 'ab' * 500000 %}{{ s.strip('c' * 500000 ~ 'ab') }}",
        "{% set s = 'a' * 9999999 %}{{ s|replace('a', 'aaaaaaaaaa') }}",
        "{% set s = 'a' * 9999999 %}{% for c in s %}{% endfor %}",
        "{{ range(99999)|map('string')|list|unique|list|length }}",
        "{{ '%s' % ('x' * 99999999) }}",
        "{{ 2 ** 100000000000 }}",
        "{{ 99999999999999999999 }}",
        "{{ {'a': 1}|tojson(indent=1000000000) }}",
        "{{ 'x'|indent(1000000000) }}",
    };
    struct bn_json *vars = bn_json_object();
    for (size_t i = 0; i < BN_ARRAY_LEN(sources); i++) {
        struct bn_buf out;
        bitnet_error err;
        clock_t start = clock();
        bitnet_status st = render(sources[i], strlen(sources[i]), vars, 0, &out, &err);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        bn_buf_free(&out);
        if (st != BITNET_E_LIMIT && st != BITNET_E_FORMAT)
            fail_msg("'%s': status %d %s", sources[i], (int)st, err.text);
        if (seconds > 10)
            fail_msg("'%s' took %.1f seconds", sources[i], seconds); /* sanitizers are slow */
    }
    bn_json_free(vars);
}

/* prefix, `n` times `unit`, suffix: must not crash; deep ones must be refused. */
static void nest(const char *prefix, const char *unit, size_t n, const char *suffix, bool refused)
{
    struct bn_buf source, out;
    bitnet_error err;
    struct bn_json *vars = bn_json_pack("{s:i}", "a", 1);
    bn_buf_init(&source, 4 << 20);
    bn_buf_puts(&source, prefix);
    for (size_t i = 0; i < n; i++) bn_buf_puts(&source, unit);
    bn_buf_puts(&source, suffix);
    bitnet_status st = render(source.data, source.len, vars, 0, &out, &err);
    if ((st != BITNET_OK) != refused)
        fail_msg("%zu times '%s': status %d %s", n, unit, (int)st, err.text);
    bn_buf_free(&out);
    bn_buf_free(&source);
    bn_json_free(vars);
}

static void test_nesting(void **state)
{
    (void)state;
    static const char *const units[] = {
        "(", "[", "{'a':", "-", "not ", "a[", "a(", "1 if 1 else ", "(a|d(", "a is eq a[", "+"};
    for (size_t i = 0; i < BN_ARRAY_LEN(units); i++)
        nest("{{ ", units[i], 200000 / strlen(units[i]), " }}", true);
    nest("", "{% if 1 %}", 20000, "", true);
    nest("", "{% for x in [1] %}", 10000, "", true);
    nest("", "{% macro m() %}", 10000, "", true);
    nest("", "{{", 100000, "", true);
    nest("", "{%", 100000, "", true);
    nest("", "{#", 100000, "", true);
    nest("", "{% raw %}", 20000, "", true);
    nest("{{ 1", " if 1", 40000, " }}", true);
    nest("", "a", 300 * 1024, "", true); /* longer than a template may be */
    /* long is not deep */
    nest("{{ 1", " + 1", 50000, " }}", false);
    nest("{{ 'a'", " ~ 'b'", 30000, " }}", false);
    nest("{{ a", "|d(1)", 40000, " }}", false);
    nest("{{ 1", " and 1", 40000, " }}", false);
    nest("{{ 1", " < 2", 40000, " }}", false);
    nest("{% if 0 %}", "{% elif 0 %}", 20000, "{% endif %}", false);
    nest("{{ [", "1,", 100000, "] }}", false);
    nest("", "{{ a }}", 30000, "", false);
    nest("{{ ", "(", 20, "1)))))))))))))))))))) }}", false);
}

/* Every byte string is either a template or refused: cut a large one at every place. */
static void test_cut(void **state)
{
    (void)state;
    static const char source[] =
        "{%- set ns = namespace(a=1) -%}\n{# c #}{% macro m(x, y='z') %}{{ x ~ y }}{% endmacro %}"
        "{% for k, v in {'a': [1, 2.5e3], \"b\": (1,)}.items() if v is iterable %}\n  {{- "
        "loop.index }}"
        "{{ m(k, y=v[::-1]|tojson(indent=2)) }}{% if not loop.last and k in 'abc' %},{% elif 1 "
        "%}{% else %}.{% endif %}"
        "{%+ endfor +%}{% raw %}{{{% endraw %}{{ 'a\\u00e9\\n' if ns.a > 0 else -1 }}{% set t "
        "%}x{% endset %}";
    struct bn_json *vars = bn_json_object();
    for (size_t n = 0; n < sizeof source; n++) {
        char *exact = malloc(n ? n : 1); /* so that a read beyond the end is seen */
        assert_non_null(exact);
        memcpy(exact, source, n);
        struct bn_buf out;
        bitnet_error err;
        bitnet_status st = render(exact, n, vars, 0, &out, &err);
        assert_true(st == BITNET_OK || err.text[0]);
        bn_buf_free(&out);
        free(exact);
    }
    bn_json_free(vars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_no_error_struct),
        cmocka_unit_test(test_chat_vars),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_cut),
    };
    return cmocka_run_group_tests_name("text_jinja", tests, NULL, NULL);
}
