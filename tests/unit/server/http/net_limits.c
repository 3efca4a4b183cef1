/* SPDX-License-Identifier: Apache-2.0
 * Connections that cost more than they give: clients that do not read, do not write, come in
 * masses. The time limits are short here; no test depends on something being faster than one. */
#include "net_common.h"

#include <sys/resource.h>

enum { SHORT_MS = 60 };

/* A client whose kernel takes little for it. */
static void open_small(struct client *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)net_port(net)),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    client_fd(c, fd);
}

/* Writes into the stream until there is no room, and the kernel's buffers are full, too. Returns
 * how many bytes it was. */
static size_t fill_stream(void)
{
    static char piece[8192];
    size_t n = 0;
    memset(piece, 'x', sizeof piece);
    for (int full = 0; seen.held && full < 50; full++, turn())
        while (seen.held && net_stream_room(seen.held)) {
            net_stream_write(seen.held, piece, sizeof piece);
            n += sizeof piece;
            full = 0;
            assert_true(n < 64 << 20);
        }
    return n;
}

static void test_back_pressure(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    open_small(&c);
    client_send(&c, "GET /stream HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    size_t n = fill_stream();
    assert_false(net_stream_room(seen.held));
    /* what waits here is bounded, whatever the kernel holds */
    assert_true(n + 100000 > f.stream_high_bytes);
    assert_true(n - stats().n_bytes_out <= f.stream_high_bytes + 2 * 8192);
    int n_room = seen.n_room;
    UNTIL((client_read(&c), seen.n_room > n_room));
    assert_true(net_stream_room(seen.held));
    net_stream_end(seen.held);
    UNTIL(bn_ends_with(client_read(&c), "0\r\n\r\n"));
    assert_true(c.got.len > n);
    client_send(&c, "GET /after HTTP/1.1\r\n" H "\r\n");
    expect(&c, "X-Path: /after");
    assert_int_equal(seen.n_disconnected, 0);
    client_close(&c);
    close_server();
}

static void test_slow_reader(void **state)
{
    (void)state;
    static char large[8 << 20];
    struct net_config f = defaults();
    struct client c;
    f.write_ms = SHORT_MS;
    open_server(&f);
    open_small(&c);
    client_send(&c, "GET /stream HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    fill_stream();
    UNTIL(seen.n_disconnected == 1);
    assert_null(seen.held);
    client_close(&c);
    /* a whole reply that is not taken */
    open_small(&c);
    client_send(&c, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    net_reply(seen.held, 200, "text/plain", large, sizeof large);
    UNTIL(stats().n_connections == 0);
    assert_int_equal(seen.n_disconnected, 1); /* it was answered */
    client_close(&c);
    close_server();
}

/* Reads all the time, but too little. */
static void test_trickling_reader(void **state)
{
    (void)state;
    static char large[16 << 20];
    struct net_config f = defaults();
    struct client c;
    f.linger_ms = SHORT_MS;
    open_server(&f);
    open_small(&c);
    client_send(&c, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    net_reply(seen.held, 200, "text/plain", large, sizeof large);
    char byte;
    UNTIL((recv(c.fd, &byte, 1, MSG_DONTWAIT), stats().n_connections == 0));
    client_close(&c);
    close_server();
}

/* Bodies of all connections together have a limit; who comes too late is told so. Small ones
 * always find room. */
static void test_bodies(void **state)
{
    (void)state;
    static const char head[] = "POST /later HTTP/1.1\r\n" H "Content-Length: 90000\r\n\r\n";
    static char half[45000];
    struct net_config f = defaults();
    struct client a, b;
    f.bodies_bytes = (128 << 10) + 100;
    open_server(&f);
    client_open(&a);
    client_send(&a, head);
    client_send_bytes(&a, half, sizeof half);
    client_send_bytes(&a, half, sizeof half);
    UNTIL(seen.held);
    client_open(&b);
    client_send(&b, head);
    client_send_bytes(&b, half, sizeof half);
    client_send_bytes(&b, half, sizeof half);
    expect(&b, "more than 131172 bytes");
    expect_end(&b);
    assert_int_equal(seen.broken_code, 503);
    client_open(&b);
    client_send(&b, "POST / HTTP/1.1\r\n" H "Content-Length: 1000\r\n\r\n");
    client_send_bytes(&b, half, 1000);
    expect(&b, "200 OK");
    client_close(&b);
    net_release_body(seen.held); /* now there is room */
    client_open(&b);
    client_send(&b, "POST / HTTP/1.1\r\n" H "Content-Length: 90000\r\n\r\n");
    client_send_bytes(&b, half, sizeof half);
    client_send_bytes(&b, half, sizeof half);
    expect(&b, "200 OK");
    net_reply(seen.held, 200, NULL, "done", 4);
    expect(&a, "done");
    client_close(&a);
    client_close(&b);
    close_server();
}

static void test_slow_writer(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    f.request_ms = SHORT_MS;
    open_server(&f);
    client_open(&c);
    client_send(&c, "POST / HTTP/1.1\r\n" H "Content-Length: 90000\r\n\r\n");
    UNTIL((client_send_bytes(&c, "x", 1), strstr(client_read(&c), "408 Request Timeout")));
    assert_non_null(strstr(client_read(&c), "not complete after 60 ms"));
    expect_end(&c);
    assert_int_equal(seen.n_broken, 1);
    assert_int_equal(seen.broken_code, 408);
    assert_int_equal(seen.n_requests, 0);
    /* an answer may take longer than a request */
    client_open(&c);
    client_send(&c, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    for (uint64_t end = bn_now_ns() + 2 * SHORT_MS * 1000000u; bn_now_ns() < end;) turn();
    assert_int_equal(seen.n_disconnected, 0);
    net_reply(seen.held, 200, NULL, "slow", 4);
    expect(&c, "slow");
    client_close(&c);
    close_server();
}

/* The time that a handler takes is not the client's. */
static void test_slow_handler(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    f.write_ms = f.linger_ms = f.idle_ms = SHORT_MS;
    open_server(&f);
    client_open(&c);
    client_send(&c, "GET /slow HTTP/1.1\r\n" H "\r\n");
    expect(&c, "X-Path: /slow");
    client_close(&c);
    close_server();
}

static void test_idle(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client fresh, used;
    f.idle_ms = SHORT_MS;
    open_server(&f);
    client_open(&fresh);
    client_open(&used);
    client_send(&used, "GET /1 HTTP/1.1\r\n" H "\r\n");
    expect(&used, "X-Path: /1");
    expect_end(&fresh);
    expect_end(&used);
    assert_int_equal(seen.n_broken, 0);
    close_server();
}

static void test_too_many(void **state)
{
    (void)state;
    enum { N = 80 };
    struct net_config f = defaults();
    struct client c[N];
    int n_told = 0;
    f.max_connections = 2;
    open_server(&f);
    for (int i = 0; i < 2; i++) {
        client_open(&c[i]);
        client_send(&c[i], "GET /first HTTP/1.1\r\n");
    }
    UNTIL(stats().n_bytes_in == 2 * strlen("GET /first HTTP/1.1\r\n"));
    for (int i = 2; i < N; i++) client_open(&c[i]);
    UNTIL(stats().n_accepted == N);
    assert_int_equal(stats().n_connections, 2);
    assert_int_equal(stats().n_refused, N - 2);
    for (int i = 2; i < N; i++) {
        const char *got = NULL;
        UNTIL((got = client_read(&c[i]), c[i].ended));
        if (!*got) continue; /* so many that it was just closed */
        assert_non_null(strstr(got, "503 Service Unavailable"));
        assert_non_null(strstr(got, "Retry-After: 1\r\n"));
        assert_non_null(strstr(got, "there are 2 connections already"));
        n_told++;
    }
    assert_true(n_told > 0);
    assert_int_equal(seen.n_broken, n_told);
    assert_int_equal(seen.n_crowded, 1); /* not for each of them */
    assert_string_equal(seen.crowded, "all 2 connections are in use: further ones are refused");
    assert_int_equal(stats().n_broken, 0);
    client_send(&c[0], H "\r\n");
    expect(&c[0], "X-Path: /first");
    for (int i = 0; i < N; i++) client_close(&c[i]);
    UNTIL(stats().n_connections == 0);
    client_open(&c[0]);
    client_send(&c[0], "GET /again HTTP/1.1\r\n" H "\r\n");
    expect(&c[0], "X-Path: /again");
    client_close(&c[0]);
    close_server();
}

/* Those that ask for nothing cannot shut out one that does; and what was asked is not dropped for them. */
static void test_idle_make_room(void **state)
{
    (void)state;
    enum { N = 40 };
    struct net_config f = defaults();
    struct client asks, used, idle[N];
    f.max_connections = 3;
    open_server(&f);
    client_open(&used);
    client_send(&used, "GET /1 HTTP/1.1\r\n" H "\r\n");
    expect(&used, "X-Path: /1");
    client_open(&asks);
    client_send(&asks, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    for (int i = 0; i < N; i++) client_open(&idle[i]);
    UNTIL(stats().n_accepted == N + 2);
    expect_end(&used);
    assert_int_equal(stats().n_connections, 3);
    assert_int_equal(stats().n_refused, 0);
    for (int i = 0; i < N - 2; i++) expect_end(&idle[i]);
    net_reply(seen.held, 200, NULL, "answer", 6);
    expect(&asks, "answer");
    client_send(&idle[N - 1], "GET /last HTTP/1.1\r\n" H "\r\n");
    expect(&idle[N - 1], "X-Path: /last");
    client_close(&asks);
    client_close(&idle[N - 2]);
    client_close(&idle[N - 1]);
    close_server();
}

/* Bytes that are sent ahead of an answer wait in the kernel, but for a bounded number. */
static void test_sent_ahead(void **state)
{
    (void)state;
    static char flood[1 << 20];
    struct net_config f = defaults();
    struct client c;
    memset(flood, 'G', sizeof flood);
    open_server(&f);
    client_open(&c);
    client_send(&c, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    assert_true(send(c.fd, flood, sizeof flood, MSG_DONTWAIT) > 0);
    for (int i = 0; i < 50; i++) turn();
    assert_true(stats().n_bytes_in <= f.limits.head_bytes + (32 << 10));
    net_reply(seen.held, 200, NULL, "answer", 6);
    expect(&c, "answer");
    UNTIL(seen.n_broken == 1); /* a first line that does not end */
    assert_int_equal(seen.broken_code, 414);
    client_close(&c);
    close_server();
}

static void test_no_descriptors(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    struct rlimit old, none;
    open_server(&f);
    client_open(&c);
    client_send(&c, "GET /at-last HTTP/1.1\r\n" H "\r\n");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 20; i++) turn();
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(stats().n_accepted, 0);
    expect(&c, "X-Path: /at-last");
    client_close(&c);
    close_server();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_trickling_reader),
        cmocka_unit_test(test_slow_writer),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_slow_handler),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_idle_make_room),
        cmocka_unit_test(test_sent_ahead),
        cmocka_unit_test(test_no_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
