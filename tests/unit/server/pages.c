/* SPDX-License-Identifier: Apache-2.0
 * The pages in the program: all there, whole, and everything that they name is there, too. */
#include "server/pages.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct page *must_find(const char *path)
{
    const struct page *p = page_find(path);
    if (!p) fail_msg("no page at %s", path);
    return p;
}

static char *text_of(const struct page *p)
{
    char *text = malloc(p->bytes + 1);
    assert_non_null(text);
    memcpy(text, p->data, p->bytes);
    text[p->bytes] = 0;
    return text;
}

static void test_pages_are_there(void **state)
{
    (void)state;
    static const char begin[] = "<!doctype html>", end[] = "</html>\n";
    static const char *const paths[] = {"/", "/dashboard"};
    for (size_t i = 0; i < BN_ARRAY_LEN(paths); i++) {
        const struct page *p = must_find(paths[i]);
        char *text = text_of(p);
        assert_string_equal(p->content_type, "text/html; charset=utf-8");
        assert_memory_equal(text, begin, sizeof begin - 1);
        assert_true(bn_ends_with(text, end));
        free(text);
    }
    assert_ptr_not_equal(must_find("/")->data, must_find("/dashboard")->data);
}

static void test_unknown_paths(void **state)
{
    (void)state;
    static const char *const paths[] = {"",           "chat.html",    "/chat.html",    "/js",
                                        "/js/",       "/js/chat.js/", "/../README.md", "//",
                                        "/dashboard/"};
    for (size_t i = 0; i < BN_ARRAY_LEN(paths); i++) assert_null(page_find(paths[i]));
}

static void test_types_and_etags(void **state)
{
    (void)state;
    static const char *const wanted[][2] = {
        {"/css/base.css", "text/css; charset=utf-8"},
        {"/js/chat.js", "text/javascript; charset=utf-8"},
        {"/icons.svg", "image/svg+xml"},
    };
    const char *last = must_find("/")->etag;
    for (size_t i = 0; i < BN_ARRAY_LEN(wanted); i++) {
        const struct page *p = must_find(wanted[i][0]);
        assert_string_equal(p->content_type, wanted[i][1]);
        assert_true(p->bytes > 0);
        assert_int_equal(strlen(p->etag), 18);
        assert_int_equal(p->etag[0], '"');
        assert_int_equal(p->etag[17], '"');
        assert_string_not_equal(p->etag, last);
        last = p->etag;
    }
}

/* What follows a mark, up to the quote that ends it, is a path from the page's folder. */
static size_t check_names(const char *folder, const char *text, const char *mark, char quote)
{
    size_t n = 0;
    for (const char *at = strstr(text, mark); at; at = strstr(at, mark), n++) {
        at += strlen(mark);
        if (strncmp(at, "./", 2) == 0) at += 2;
        char path[256];
        const char *end = strchr(at, quote);
        assert_non_null(end);
        const char *hash = memchr(at, '#', (size_t)(end - at));
        snprintf(path, sizeof path, "%s%.*s", folder, (int)((hash ? hash : end) - at), at);
        bool inside = hash == at; /* of the page itself */
        if (!inside && strcmp(path, "/chart.min.js") != 0) must_find(path);
    }
    return n;
}

static void test_what_is_named_is_there(void **state)
{
    (void)state;
    static const char *const html[] = {"/", "/dashboard"}, *const js[] = {"/js/chat.js",
                                                                          "/js/dashboard.js"};
    for (size_t i = 0; i < BN_ARRAY_LEN(html); i++) {
        char *text = text_of(must_find(html[i]));
        assert_true(check_names("/", text, "src=\"", '"') >= 2);
        assert_true(check_names("/", text, "href=\"", '"') >= 3);
        assert_null(strstr(text, "://"));
        free(text);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(js); i++) {
        char *text = text_of(must_find(js[i]));
        assert_true(check_names("/js/", text, "from '", '\'') >= 3);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_are_there),
        cmocka_unit_test(test_unknown_paths),
        cmocka_unit_test(test_types_and_etags),
        cmocka_unit_test(test_what_is_named_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
