/* SPDX-License-Identifier: Apache-2.0
 * HTTP messages, good and bad. Every one is read whole, byte by byte, and cut in two at every
 * place: what comes out is always the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/http/http.h"

static const struct http_limits limits = {.head_bytes = 400, .body_bytes = 1000};

/* without padding that could differ */
struct outcome {
    uint64_t used, n_headers, body_total;
    enum http_state state;
    int status;
    int keep_alive, expects_continue, http_1_0, chunked;
    char text[2048]; /* method, path, query, body, why */
};

/* Feeds up to the cut, then pieces of `piece` bytes. */
static struct outcome read_cut(bool is_reply, const char *p, size_t n, size_t cut, size_t piece,
                               bool closes)
{
    struct http_reader r = {0};
    struct outcome o = {0};
    http_reader_init(&r, is_reply, &limits);
    for (size_t at = 0, used; at < n; at += used) {
        size_t k = at < cut ? cut - at : bn_min_size(piece, n - at);
        char *exact = malloc(k); /* so that a read past the end is seen */
        assert_non_null(exact);
        memcpy(exact, p + at, k);
        o.state = http_reader_feed(&r, exact, k, &used);
        free(exact);
        assert_true(used <= k);
        o.used += used;
        if (used < k) break;
    }
    if (closes) o.state = http_reader_close(&r);
    assert_int_equal(o.state, r.state);
    o.status = r.status;
    o.n_headers = r.n_headers;
    o.body_total = r.body_total;
    o.keep_alive = r.keep_alive;
    o.expects_continue = r.expects_continue;
    o.http_1_0 = r.http_1_0;
    o.chunked = r.chunked;
    snprintf(o.text, sizeof o.text, "%s %s ?%s [%s] %s", r.method, r.path, r.query,
             r.body.len ? r.body.data : "", r.why ? r.why : "");
    http_reader_free(&r);
    return o;
}

static struct outcome read_all_ways(bool is_reply, const char *p, size_t n, bool closes)
{
    struct outcome whole = read_cut(is_reply, p, n, 0, n, closes), o;
    o = read_cut(is_reply, p, n, 0, 1, closes);
    assert_memory_equal(&o, &whole, sizeof o);
    for (size_t cut = 1; cut < n; cut++) {
        o = read_cut(is_reply, p, n, cut, n, closes);
        assert_memory_equal(&o, &whole, sizeof o);
    }
    return whole;
}

#define H    "Host: a\r\n"
#define POST "POST /p HTTP/1.1\r\n" H

static void test_good_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        bool closes_after;
    } good[] = {
        {"GET / HTTP/1.1\r\n" H "\r\n", "GET / ? [] ", false},
        {"\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", "GET / ? [] ", false},
        {"GET /a%20b/%C3%A9%2f?q=%20&r HTTP/1.1\r\n" H "\r\n", "GET /a b/\303\251/ ?q=%20&r [] ",
         false},
        {"OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * ? [] ", false},
        {"GET http://a:80/v1/models?x HTTP/1.1\r\n" H "\r\n", "GET /v1/models ?x [] ", false},
        {"GET HTTPS://a HTTP/1.1\r\n" H "\r\n", "GET / ? [] ", false},
        {"GET http://a?x=/ HTTP/1.1\r\n" H "\r\n", "GET / ?x=/ [] ", false},
        {"GET / HTTP/1.1\r\nhOsT:a\r\nX:\t b \t\r\nConnection: x, Close\r\n\r\n", "GET / ? [] ",
         true},
        {"GET / HTTP/1.0\r\n\r\n", "GET / ? [] ", true},
        {"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET / ? [] ", false},
        {"GET / HTTP/1.2\r\n" H "\r\n", "GET / ? [] ", false},
        {POST "Content-Length: 5\r\n\r\nhello", "POST /p ? [hello] ", false},
        {POST "Content-Length: 000\r\n\r\n", "POST /p ? [] ", false},
        {POST "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "POST /p ? [hello] ",
         false},
        {POST "Transfer-Encoding: chunked\r\n\r\n1\r\nh\r\n00a;x=\"y\"\r\nello world\r\n0;z\r\nA: "
              "b\r\nC: d\r\n\r\n",
         "POST /p ? [hello world] ", false},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(good); i++) {
        size_t n = strlen(good[i].text);
        struct outcome o = read_all_ways(false, good[i].text, n, false);
        if (o.state != HTTP_DONE || o.used != n || strcmp(o.text, good[i].says) != 0)
            fail_msg("%s: %s", good[i].text, o.text);
        assert_int_equal(o.keep_alive, !good[i].closes_after);
        /* one byte fewer is not a message */
        assert_int_not_equal(read_cut(false, good[i].text, n - 1, 0, n, false).state, HTTP_DONE);
        o = read_cut(false, good[i].text, n - 1, 0, n, true);
        assert_int_equal(o.state, HTTP_FAILED);
        assert_int_equal(o.status, 400);
        assert_non_null(strstr(o.text, "closed after"));
    }
}

static void test_bad_requests(void **state)
{
    (void)state;
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
#define TEXT(s) s, sizeof(s) - 1
    static const struct {
        const char *text;
        size_t n;
        int status;
        const char *says;
    } bad[] = {
        /* the first line */
        {TEXT("GET /\r\n" H "\r\n"), 400, "version"},
        {TEXT("GET  / HTTP/1.1\r\n" H "\r\n"), 400, "METHOD PATH"},
        {TEXT("GET / HTTP/1.1 \r\n" H "\r\n"), 400, "version"},
        {TEXT(" GET / HTTP/1.1\r\n" H "\r\n"), 400, "METHOD PATH"},
        {TEXT("G(T / HTTP/1.1\r\n" H "\r\n"), 400, "METHOD PATH"},
        {TEXT("GET\t/ HTTP/1.1\r\n" H "\r\n"), 400, "METHOD PATH"},
        {TEXT("GET / a HTTP/1.1\r\n" H "\r\n"), 400, "version"},
        {TEXT("GET a HTTP/1.1\r\n" H "\r\n"), 400, "begin with '/'"},
        {TEXT("CONNECT a:80 HTTP/1.1\r\n" H "\r\n"), 400, "begin with '/'"},
        {TEXT("GET /%4 HTTP/1.1\r\n" H "\r\n"), 400, "hexadecimal"},
        {TEXT("GET /%4g HTTP/1.1\r\n" H "\r\n"), 400, "hexadecimal"},
        {TEXT("GET /% HTTP/1.1\r\n" H "\r\n"), 400, "hexadecimal"},
        {TEXT("GET /%00 HTTP/1.1\r\n" H "\r\n"), 400, "0x00"},
        {TEXT("GET /%0d%0a HTTP/1.1\r\n" H "\r\n"), 400, "0x0d"},
        {TEXT("GET /%ff HTTP/1.1\r\n" H "\r\n"), 400, "UTF-8"},
        {TEXT("GET /\303\251 HTTP/1.1\r\n" H "\r\n"), 400, "0xc3"},
        {TEXT("GET /#a HTTP/1.1\r\n" H "\r\n"), 400, "0x23"},
        {TEXT("GET / HTTP/2.0\r\n" H "\r\n"), 505, "HTTP/2.0"},
        {TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505, "HTTP/2.0"},
        {TEXT("GET / http/1.1\r\n" H "\r\n"), 400, "version"},
        {TEXT("GET / HTTP/1.10\r\n" H "\r\n"), 400, "version"},
        {TEXT("GET / HTTP/11\r\n" H "\r\n"), 400, "version"},
        {TEXT("\x16\x03\x01\x02"), 400, "0x16"},
        /* lines */
        {TEXT("GET / HTTP/1.1\n" H "\r\n"), 400, "carriage return"},
        {TEXT("GET / HTTP/1.1\r\n" H "\n"), 400, "carriage return"},
        {TEXT("GET / HTTP/1.1\r\r\n" H "\r\n"), 400, "line feed"},
        {TEXT("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"), 400, "line feed"},
        {TEXT("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"), 400, "0x00"},
        {TEXT("GET / HTTP/1.1\r\nHost: a\x7f\r\n\r\n"), 400, "0x7f"},
        /* headers */
        {TEXT("GET / HTTP/1.1\r\n\r\n"), 400, "Host"},
        {TEXT("GET / HTTP/1.1\r\n" H H "\r\n"), 400, "more than one header 'host'"},
        {TEXT("GET / HTTP/1.1\r\n" H "Authorization: a\r\nauthorization: b\r\n\r\n"), 400,
         "more than one header 'authorization'"},
        {TEXT("GET / HTTP/1.1\r\n" H "X : a\r\n\r\n"), 400, "header line 2"},
        {TEXT("GET / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n"), 400, "header line 3"},
        {TEXT("GET / HTTP/1.1\r\n X: a\r\n" H "\r\n"), 400, "header line 1"},
        {TEXT("GET / HTTP/1.1\r\n" H ": a\r\n\r\n"), 400, "header line 2"},
        {TEXT("GET / HTTP/1.1\r\n" H "X\r\n\r\n"), 400, "header line 2"},
        {TEXT(POST "Expect: a miracle\r\n\r\n"), 417, "100-continue"},
        /* two opinions about the length */
        {TEXT(POST "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400,
         "at once"},
        {TEXT(POST "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"), 400, "more than one"},
        {TEXT(POST "Content-Length: 1\r\nContent-Length: 1\r\n\r\na"), 400, "more than one"},
        {TEXT(POST "Content-Length: 1, 1\r\n\r\na"), 400, "not a number"},
        {TEXT(POST "Content-Length: +1\r\n\r\na"), 400, "not a number"},
        {TEXT(POST "Content-Length: -1\r\n\r\na"), 400, "not a number"},
        {TEXT(POST "Content-Length: 0x1\r\n\r\na"), 400, "not a number"},
        {TEXT(POST "Content-Length: 1 1\r\n\r\na"), 400, "not a number"},
        {TEXT(POST "Content-Length:\r\n\r\n"), 400, "not a number"},
        {TEXT(POST "Content-Length: 18446744073709551617\r\n\r\na"), 413, "64 bits"},
        {TEXT(POST "Content-Length: 1001\r\n\r\n"), 413, "1001"},
        {TEXT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501, "chunked"},
        {TEXT(POST "Transfer-Encoding: chunked, chunked\r\n\r\n"), 501, "chunked"},
        {TEXT(POST "Transfer-Encoding: xchunked\r\n\r\n"), 501, "chunked"},
        {TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 400,
         "more than one"},
        {TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400, "HTTP/1.0"},
        /* chunks */
        {TEXT(CHUNKED "\r\n"), 400, "0x0d"},
        {TEXT(CHUNKED ";x\r\n"), 400, "0x3b"},
        {TEXT(CHUNKED "-1\r\n"), 400, "0x2d"},
        {TEXT(CHUNKED "+1\r\n"), 400, "0x2b"},
        {TEXT(CHUNKED "0x1\r\n"), 400, "0x78"},
        {TEXT(CHUNKED " 1\r\n"), 400, "0x20"},
        {TEXT(CHUNKED "1 \r\n"), 400, "0x20"},
        {TEXT(CHUNKED "1g\r\n"), 400, "0x67"},
        {TEXT(CHUNKED "1\n"), 400, "0x0a"},
        {TEXT(CHUNKED "1;a\n"), 400, "carriage return"},
        {TEXT(CHUNKED "1\ra"), 400, "line feed"},
        {TEXT(CHUNKED "1\r\nab\r\n"), 400, "longer than its size"},
        {TEXT(CHUNKED "1\r\na\rb"), 400, "line feed"},
        {TEXT(CHUNKED "3e9\r\n"), 413, "1001"},
        {TEXT(CHUNKED "3e8\r\n"), 0, ""},
        {TEXT(CHUNKED "fffffffffffffffff\r\n"), 413, "limit"},
        {TEXT(CHUNKED "2\r\nab\r\n3e7\r\n"), 413, "1001"},
        {TEXT(CHUNKED "0\r\nX: a\n"), 400, "carriage return"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++) {
        struct outcome o = read_all_ways(false, bad[i].text, bad[i].n, false);
        if (o.status != bad[i].status || !strstr(o.text, bad[i].says))
            fail_msg("%s: %d %s", bad[i].text, o.status, o.text);
        assert_int_equal(o.state, bad[i].status ? HTTP_FAILED : HTTP_BODY);
    }
}

/* Appends text over and over, until there are n bytes of it. */
static void fill(struct bn_buf *b, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) bn_buf_putc(b, text[i % strlen(text)]);
}

static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *before, *repeated;
        size_t n;
        const char *after;
        int status; /* 0: it is within them */
        const char *says;
    } cases[] = {
        {"GET /", "a", 400, "", 414, "400 bytes"},
        {"GET / HTTP/1.1\r\n" H "X: ", "a", 400, "", 431, "400 bytes"},
        {"GET / HTTP/1.1\r\n" H "X: ", "a", 400 - 32, "\r\n\r\n", 0, ""},
        {"GET / HTTP/1.1\r\n" H "X: ", "a", 400 - 31, "\r\n\r\n", 431, "400 bytes"},
        {"GET / HTTP/1.0\r\n", "a:\r\n", 400, "", 431, "400 bytes"},
        {CHUNKED "1;", "a", 252, "\r\n", 0, ""},
        {CHUNKED "1;", "a", 253, "\r\n", 400, "256 bytes"},
        {CHUNKED, "0", 254, "\r\n", 0, ""},
        {CHUNKED, "0", 255, "\r\n", 400, "256 bytes"},
        {CHUNKED "0\r\n", "X: y\r\n", 6 * 66, "\r\n", 0, ""},
        {CHUNKED "0\r\n", "X: y\r\n", 6 * 67, "\r\n", 431, "400 bytes"},
        {POST "Content-Length: 1000\r\n\r\n", "a", 1000, "", 0, ""},
        {CHUNKED, "1\r\na\r\n", 1000 * 6, "0\r\n\r\n", 0, ""},
        {CHUNKED, "1\r\na\r\n", 1001 * 6, "0\r\n\r\n", 413, "1001 bytes"},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++) {
        struct bn_buf b;
        bn_buf_init(&b, 1 << 16);
        bn_buf_puts(&b, cases[i].before);
        fill(&b, cases[i].repeated, cases[i].n);
        bn_buf_puts(&b, cases[i].after);
        struct outcome o = read_all_ways(false, b.data, b.len, false);
        if (o.status != cases[i].status || !strstr(o.text, cases[i].says))
            fail_msg("%zu %s: %d %s", i, cases[i].before, o.status, o.text);
        if (!o.status) assert_int_equal(o.used, b.len);
        bn_buf_free(&b);
    }
}

static void test_too_many_headers(void **state)
{
    (void)state;
    static const struct http_limits wide = {.head_bytes = 4096};
    for (int n = HTTP_MAX_HEADERS; n <= HTTP_MAX_HEADERS + 1; n++) {
        struct http_reader r = {0};
        struct bn_buf b;
        size_t used;
        http_reader_init(&r, false, &wide);
        bn_buf_init(&b, 1 << 16);
        bn_buf_puts(&b, "GET / HTTP/1.0\r\n");
        for (int i = 0; i < n; i++) bn_buf_printf(&b, "A%d: %d\r\n", i, i);
        bn_buf_puts(&b, "\r\n");
        http_reader_feed(&r, b.data, b.len, &used);
        assert_int_equal(r.status, n == HTTP_MAX_HEADERS ? 0 : 431);
        if (n == HTTP_MAX_HEADERS) assert_string_equal(http_header(&r, "a99"), "99");
        assert_null(http_header(&r, "a100"));
        http_reader_free(&r);
        bn_buf_free(&b);
    }
}

static void test_replies(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        bool closes, keep_alive;
        int status; /* 0: it is none */
    } replies[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "[ok]", false, true, 200},
        {"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", "[ok]", false, true, 200},
        {"HTTP/1.1 100 Continue\r\n\r\n", "[]", false, true, 100},
        {"HTTP/1.1 204 \r\n\r\n", "[]", false, true, 204},
        {"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "[]", false, true, 304},
        {"HTTP/1.1 429 Too Many\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", "[ab]",
         false, true, 429},
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "[]", false, false,
         200},
        {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "[until the end]", true, false, 200},
        {"HTTP/1.0 200 OK\r\n\r\n", "[]", true, false, 200},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "closed after 2 bytes", true, true, 0},
        {"HTTP/1.1 2000 OK\r\n\r\n", "three digits", false, false, 0},
        {"HTTP/1.1 abc OK\r\n\r\n", "three digits", false, false, 0},
        {"HTTP/1.1\r\n\r\n", "three digits", false, false, 0},
        {"HTTP/3.0 200 OK\r\n\r\n", "HTTP/3.0", false, false, 0},
        {"ICY 200 OK\r\n\r\n", "version", false, false, 0},
    };
    for (size_t i = 0; i < BN_ARRAY_LEN(replies); i++) {
        struct outcome o =
            read_all_ways(true, replies[i].text, strlen(replies[i].text), replies[i].closes);
        if (o.status != replies[i].status || !strstr(o.text, replies[i].says))
            fail_msg("%s: %d %s", replies[i].text, o.status, o.text);
        assert_int_equal(o.state, o.status ? HTTP_DONE : HTTP_FAILED);
        assert_int_equal(o.keep_alive, replies[i].keep_alive);
    }
    struct bn_buf b;
    bn_buf_init(&b, 1 << 16);
    bn_buf_puts(&b, "HTTP/1.1 200 OK\r\n\r\n");
    fill(&b, "a", 1001);
    struct outcome o = read_all_ways(true, b.data, b.len, true);
    assert_int_equal(o.state, HTTP_FAILED);
    assert_int_equal(o.body_total, 1000);
    bn_buf_free(&b);
}

static void test_pipelined(void **state)
{
    (void)state;
    static const char text[] = POST "Content-Length: 3\r\n\r\none" CHUNKED "3\r\ntwo\r\n0\r\n\r\n"
                                    "GET /three HTTP/1.1\r\n" H "\r\n";
    static const char *const bodies[] = {"one", "two", ""};
    size_t n = sizeof text - 1;
    for (size_t cut = 0; cut < n; cut++) {
        struct http_reader r = {0};
        size_t at = 0, used, n_messages = 0;
        http_reader_init(&r, false, &limits);
        while (at < n) {
            size_t k = at < cut ? cut - at : n - at;
            enum http_state s = http_reader_feed(&r, text + at, k, &used);
            at += used;
            assert_int_not_equal(s, HTTP_FAILED);
            if (s != HTTP_DONE) continue;
            assert_true(n_messages < 3);
            assert_string_equal(r.body.len ? r.body.data : "", bodies[n_messages++]);
            assert_int_equal(http_reader_feed(&r, "x", 1, &used), HTTP_DONE);
            assert_int_equal(used, 0);
            http_reader_next(&r);
            assert_int_equal(r.state, HTTP_HEAD);
            assert_null(http_header(&r, "host"));
        }
        assert_int_equal(n_messages, 3);
        http_reader_free(&r);
    }
}

static void test_continue(void **state)
{
    (void)state;
    static const char head[] = POST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
    struct outcome o = read_all_ways(false, head, sizeof head - 1, false);
    assert_int_equal(o.state, HTTP_BODY);
    assert_true(o.expects_continue);
    static const char no_body[] = POST "Expect: 100-continue\r\n\r\n";
    assert_false(read_all_ways(false, no_body, sizeof no_body - 1, false).expects_continue);
    static const char large[] = POST "Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n";
    assert_int_equal(read_all_ways(false, large, sizeof large - 1, false).status, 413);
}

/* A body may be taken out on its way; memory is not kept beyond a small amount. */
static void test_memory(void **state)
{
    (void)state;
    static const struct http_limits wide = {.head_bytes = 4096, .body_bytes = UINT64_MAX};
    static char piece[100000];
    struct http_reader r = {0};
    size_t used;
    memset(piece, 'x', sizeof piece);
    http_reader_init(&r, true, &wide);
    static const char announced[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
    http_reader_feed(&r, announced, sizeof announced - 1, &used);
    assert_int_equal(r.body.room, 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(http_reader_feed(&r, piece, sizeof piece, &used), HTTP_BODY);
        assert_int_equal(r.body.len, sizeof piece);
        bn_buf_clear(&r.body);
    }
    assert_int_equal(r.body_total, 50 * sizeof piece);
    assert_true(r.body.room < 2 * sizeof piece);
    http_reader_next(&r);
    assert_true(r.body.room <= HTTP_KEEP_BYTES);
    http_reader_free(&r);
}

static void test_reasons(void **state)
{
    (void)state;
    assert_string_equal(http_reason(404), "Not Found");
    assert_string_equal(http_reason(999), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_requests), cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_too_many_headers),
        cmocka_unit_test(test_replies),       cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_continue),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
