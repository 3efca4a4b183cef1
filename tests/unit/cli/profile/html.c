/* SPDX-License-Identifier: Apache-2.0
 * The page of a profile: everything that the report has is on it, nothing of a report can become
 * markup, and what is missing is said. tests/data/profile/sample.json is made up: 4 layers on 4
 * threads; its prefill has neither counters nor energy. */
#include "json/json.h"
#include "cli/profile/html.h"
#include "app/units.h"
#include "app/svg.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SAMPLE_MAX_BYTES = 1 << 20 };

static struct bn_json *sample(void)
{
    struct bn_json *r = NULL;
    assert_int_equal(
        bn_json_read_file(&r, TEST_DATA "/profile/sample.json", SAMPLE_MAX_BYTES, NULL), BITNET_OK);
    return r;
}

static char *page_of(const struct bn_json *report)
{
    char *page = profile_html(report);
    assert_non_null(page);
    assert_non_null(strstr(page, "</body>\n</html>\n"));
    return page;
}

static size_t times(const char *page, const char *what)
{
    size_t n = 0;
    for (const char *at = page; (at = strstr(at, what)); at += strlen(what)) n++;
    return n;
}

static void everything_is_on_it(void **state)
{
    (void)state;
    struct bn_json *r = sample(), *phase, *op;
    char *page = page_of(r), row[128];
    const char *name;
    size_t i;
    assert_non_null(strstr(page, bn_json_text(bn_json_get(r, "verdict"))));
    bn_json_each_member(bn_json_get(r, "phases"), name, phase)
    {
        snprintf(row, sizeof row, "<section id=\"%s\">", name);
        const char *section = strstr(page, row);
        assert_non_null(section);
        bn_json_each(bn_json_get(phase, "ops"), i, op)
        {
            snprintf(row, sizeof row, "<tr data-op=\"%s\">", bn_json_text(bn_json_get(op, "op")));
            assert_non_null(strstr(section, row));
        }
    }
    assert_int_equal(times(page, "<th>worker "), 8);
    assert_non_null(strstr(page, "layer 2, attention: "));
    assert_non_null(strstr(page, "decode, layer 1, matrix, gate: "));
    assert_non_null(strstr(page, "decode, outside of layers, head, head screen: "));
    assert_non_null(strstr(page, "1.57 per cycle"));
    assert_non_null(strstr(page, "<polyline")); /* the CPU's clock */
    assert_null(strstr(page, "<script"));
    assert_int_equal(times(page, "http"), times(page, "http://www.w3.org/")); /* names, not links */
    free(page);
    bn_json_free(r);
}

static void what_is_missing_is_said(void **state)
{
    (void)state;
    struct bn_json *r = sample();
    char *page = page_of(r);
    assert_int_equal(times(page, "Not counted: branch-misses (ENOENT"), 1);
    assert_int_equal(
        times(page, "Counters of the CPU: not available, kernel.perf_event_paranoid is 4."), 1);
    assert_int_equal(times(page, "Energy: not available, no powercap here."), 1);
    free(page);
    /* a phase that did not happen, and a report with nothing in it */
    bn_json_del(bn_json_get(r, "phases"), "prefill");
    page = page_of(r);
    assert_non_null(strstr(page, "id=\"decode\""));
    assert_null(strstr(page, "id=\"prefill\""));
    free(page);
    while (bn_json_size(r)) bn_json_del(r, bn_json_key_at(r, 0));
    free(page_of(r));
    bn_json_free(r);
}

static void text_stays_text(void **state)
{
    (void)state;
    static const char hostile[] =
        "</h1><script>alert('1')</script>\" onload=\"x&amp;\n\xef\xbf\xbf";
    static const char shown[] = "&lt;/h1&gt;&lt;script&gt;alert('1')&lt;/script&gt;&quot; "
                                "onload=&quot;x&amp;amp;??";
    struct bn_json *r = sample();
    struct bn_json *decode = bn_json_get(bn_json_get(r, "phases"), "decode");
    struct bn_json *op = bn_json_at(bn_json_get(decode, "ops"), 0);
    bn_json_set(bn_json_get(r, "model"), "name", bn_json_string(hostile));
    bn_json_set(bn_json_get(r, "machine"), "cpu", bn_json_string(hostile));
    bn_json_set(bn_json_get(r, "machine"), "<i>", bn_json_int(1));
    bn_json_set(r, "verdict", bn_json_string(hostile));
    bn_json_set(op, "op", bn_json_string(hostile));
    bn_json_set(op, "kind", bn_json_string(hostile));
    bn_json_set(decode, "energy", bn_json_pack("{s:s}", "unavailable", hostile));
    bn_json_append(bn_json_get(r, "notes"), bn_json_string(hostile));
    char *page = page_of(r);
    assert_null(strstr(page, "<script"));
    assert_null(strstr(page, "onload=\""));
    assert_non_null(strstr(page, "<dt>&lt;i&gt;</dt>"));
    assert_true(times(page, shown) >= 8);
    free(page);
    bn_json_free(r);
}

static void figures_have_three_digits(void **state)
{
    (void)state;
    char t[UNITS_BYTES];
    assert_string_equal(units_time(t, 0), "0 ns");
    assert_string_equal(units_time(t, 0.71234), "0.71 ns");
    assert_string_equal(units_time(t, 9.994), "9.99 ns");
    assert_string_equal(units_time(t, 9.996), "10.0 ns");
    assert_string_equal(units_time(t, 999.4), "999 ns");
    assert_string_equal(units_time(t, 999.6), "1.00 µs");
    assert_string_equal(units_time(t, 46.71e6), "46.7 ms");
    assert_string_equal(units_time(t, 7200e9), "7200 s");
    assert_string_equal(units_size(t, 598e6), "598 MB");
    assert_string_equal(units_rate(t, 35.26e9), "35.3 GB/s");
    assert_string_equal(units_count(t, 20), "20");
    assert_string_equal(units_count(t, 0.015625), "0.016");
    assert_string_equal(units_share(t, 0.9638), "96.4 %");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_on_it),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(text_stays_text),
        cmocka_unit_test(figures_have_three_digits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
