/* SPDX-License-Identifier: Apache-2.0
 * URLs: taken apart, joined, escaped, and which proxy they take. */
#include "hub/net/url.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static struct hub_url u, base; /* large */

static void parse(struct hub_url *out, const char *text)
{
    bitnet_error err;
    if (hub_url_parse(out, text, &err) != BITNET_OK) fail_msg("%s: %s", text, err.text);
}

static void test_parse(void **state)
{
    static const struct {
        const char *text, *host, *port, *authority, *target, *user;
        bool tls;
    } good[] = {
        {"https://host/a?b=c#d", "host", "443", "host", "/a?b=c", "", true},
        {"http://host", "host", "80", "host", "/", "", false},
        {"HTTP://Host:8080?q", "Host", "8080", "Host:8080", "/?q", "", false},
        {"https://host:443/", "host", "443", "host", "/", "", true},
        {"http://[::1]:81/x", "::1", "81", "[::1]:81", "/x", "", false},
        {"http://u%40x:p%3aq@host/", "host", "80", "host", "/", "u@x:p:q", false},
    };
    static const char *const bad[] = {"host/a",         "ftp://host/a",     "https://",
                                      "https:///a",     "http://a b/",      "http://host:/",
                                      "http://host:0/", "http://host:x/",   "http://host:65536/",
                                      "http://[::1/",   "http://ho\x01st/", "http://[::1]x/"};
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(good); i++) {
        parse(&u, good[i].text);
        assert_string_equal(u.host, good[i].host);
        assert_string_equal(u.port, good[i].port);
        assert_string_equal(u.authority, good[i].authority);
        assert_string_equal(u.target, good[i].target);
        assert_string_equal(u.user, good[i].user);
        assert_int_equal(u.tls, good[i].tls);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        bitnet_error err;
        if (hub_url_parse(&u, bad[i], &err) != BITNET_E_ARG) fail_msg("'%s' was taken", bad[i]);
    }
}

static void test_join(void **state)
{
    static const char *const cases[][2] = {
        {"https://other:8443/x?y=1", "https://other:8443/x?y=1"},
        {"/root", "https://host:444/root"},
        {"//other/x", "https://other/x"},
        {"file?z=http://q/", "https://host:444/a/file?z=http://q/"},
        {"b/c", "https://host:444/a/b/c"},
    };
    (void)state;
    parse(&base, "https://host:444/a/b?c=/d/e");
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        char text[HUB_TARGET_BYTES + 300];
        assert_int_equal(hub_url_join(&u, &base, cases[i][0], NULL), BITNET_OK);
        snprintf(text, sizeof text, "http%s://%s%s", u.tls ? "s" : "", u.authority, u.target);
        assert_string_equal(text, cases[i][1]);
    }
}

/* The token goes by this. */
static void test_origin(void **state)
{
    static const char *const same[] = {"https://HUB.example:443/x", "https://hub.example"},
                             *const others[] = {"http://hub.example/", "https://hub.example:444/",
                                                "https://hub.example.evil/",
                                                "https://sub.hub.example/",
                                                "https://hub.example@evil/"};
    (void)state;
    parse(&base, "https://hub.example/api");
    for (size_t i = 0; i < BN_ARRAY_LEN(same); i++) {
        parse(&u, same[i]);
        assert_true(hub_url_same_origin(&base, &u));
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(others); i++) {
        parse(&u, others[i]);
        assert_false(hub_url_same_origin(&base, &u));
    }
}

static void test_escape(void **state)
{
    struct bn_buf b;
    (void)state;
    bn_buf_init(&b, 100);
    hub_url_escape(&b, "a/b c\xc3\xa4+%~", true);
    assert_string_equal(b.data, "a/b%20c%C3%A4%2B%25~");
    bn_buf_clear(&b);
    hub_url_escape(&b, "refs/pr/1", false);
    assert_string_equal(b.data, "refs%2Fpr%2F1");
    bn_buf_free(&b);
}

static void test_proxy(void **state)
{
    static const struct {
        const char *none, *url, *proxy; /* proxy "": none */
    } cases[] = {
        {"", "http://a.example/", "plain"},
        {"", "https://a.example/", "tunnel"},
        {"a.example", "https://a.example/", ""},
        {"example", "https://a.example/", ""},
        {".example", "https://a.example/", ""},
        {"other, .a.example ", "https://b.a.example/", ""},
        {"ample", "https://a.example/", "tunnel"},
        {"a.example:444", "https://a.example/", "tunnel"},
        {"a.example:443", "https://a.example/", ""},
        {"127.0.0.1", "http://127.0.0.1:8080/", ""},
        {"::1", "http://[::1]:8080/", ""},
        {"*", "http://a.example/", ""},
    };
    static struct hub_places p = {.http_proxy = "plain", .https_proxy = "tunnel"};
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        const char *proxy;
        parse(&u, cases[i].url);
        snprintf(p.no_proxy, sizeof p.no_proxy, "%s", cases[i].none);
        bool some = hub_url_proxy(&proxy, &p, &u);
        if (strcmp(some ? proxy : "", cases[i].proxy) != 0)
            fail_msg("NO_PROXY='%s' %s: '%s'", cases[i].none, cases[i].url, some ? proxy : "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),  cmocka_unit_test(test_join),  cmocka_unit_test(test_origin),
        cmocka_unit_test(test_escape), cmocka_unit_test(test_proxy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
