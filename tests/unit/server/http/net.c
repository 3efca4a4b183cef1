/* SPDX-License-Identifier: Apache-2.0
 * Connections over loopback: requests and replies, one after the other, streams, and the end. */
#include "net_common.h"

#include <sys/stat.h>
#include <sys/un.h>

static void test_keep_alive(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    client_open(&c);
    for (int i = 0; i < 3; i++) {
        client_send(&c, "POST /a%20b HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\nhello");
        UNTIL(strstr(client_read(&c), "hello"));
        assert_non_null(strstr(c.got.data, "HTTP/1.1 200 OK\r\nDate: "));
        assert_non_null(
            strstr(c.got.data, " GMT\r\nConnection: keep-alive\r\nContent-Type: text/plain\r\n"));
        assert_non_null(strstr(c.got.data, "X-Path: /a b\r\nContent-Length: 5\r\n\r\nhello"));
        assert_null(strstr(c.got.data, "X-Bad"));
        bn_buf_clear(&c.got);
    }
    client_send(&c, "HEAD / HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\nab");
    UNTIL(strstr(client_read(&c), "Content-Length: 2\r\n\r\n"));
    assert_true(bn_ends_with(c.got.data, "Content-Length: 2\r\n\r\n"));
    client_send(&c, "GET /nothing HTTP/1.1\r\n" H "\r\n");
    expect(&c, "204 No Content");
    assert_int_equal(stats().n_accepted, 1);
    assert_int_equal(stats().n_connections, 1);
    client_send(&c, "GET / HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    expect(&c, "Connection: close");
    expect_end(&c);
    UNTIL(stats().n_connections == 0);

    client_open(&c);
    client_send(&c, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect(&c, "Connection: keep-alive");
    client_send(&c, "GET / HTTP/1.0\r\n\r\n");
    expect(&c, "Connection: close");
    expect_end(&c);
    assert_int_equal(seen.n_requests, 8);
    assert_int_equal(seen.n_broken, 0);
    assert_true(stats().n_bytes_in > 300 && stats().n_bytes_out > stats().n_bytes_in);
    close_server();
}

static void test_pipelined(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    client_open(&c);
    client_send(&c,
                "GET /1 HTTP/1.1\r\n" H "\r\nGET /later HTTP/1.1\r\n" H "\r\n"
                "POST /3 HTTP/1.1\r\n" H "Content-Length: 1\r\n\r\nxGET /4 HTTP/1.1\r\n" H "\r\n");
    expect(&c, "X-Path: /1");
    UNTIL(seen.held);
    for (int i = 0; i < 10; i++) turn();
    assert_int_equal(seen.n_requests, 2);
    net_reply(seen.held, 200, "text/plain", "two", 3);
    UNTIL(strstr(client_read(&c), "X-Path: /4"));
    const char *two = strstr(c.got.data, "two"), *three = strstr(c.got.data, "X-Path: /3");
    assert_true(two && three && two < three && three < strstr(c.got.data, "X-Path: /4"));
    client_close(&c);
    close_server();
}

static void test_uploads(void **state)
{
    (void)state;
    static char large[150000];
    struct net_config f = defaults();
    struct client c;
    memset(large, 'x', sizeof large);
    open_server(&f);
    client_open(&c);
    client_send(&c, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    turn();
    client_send(&c, "2;x\r\nde\r\n0\r\nTrailer: y\r\n\r\n");
    expect(&c, "\r\n\r\nabcde");
    client_send(&c, "POST / HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    expect(&c, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(&c, "xyz");
    expect(&c, "\r\n\r\nxyz");
    client_send(&c, "POST / HTTP/1.1\r\n" H "Content-Length: 100000\r\n\r\n");
    assert_true(client_send_bytes(&c, large, 100000));
    UNTIL((client_read(&c), c.got.len > 100000));
    bn_buf_clear(&c.got);
    /* too large: told at once, and to a client that sends all of it before it looks */
    client_send(&c, "POST / HTTP/1.1\r\n" H "Content-Length: 150000\r\n\r\n");
    assert_true(client_send_bytes(&c, large, sizeof large));
    expect(&c, "413 Content Too Large");
    shutdown(c.fd, SHUT_WR);
    expect_end(&c);
    assert_int_equal(seen.broken_code, 413);
    assert_int_equal(seen.n_requests, 3);
    close_server();
}

static void test_broken_requests(void **state)
{
    (void)state;
    static const char whole[] =
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    client_open(&c);
    client_send(&c, "NONSENSE\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n");
    UNTIL(strstr(client_read(&c), "}}"));
    assert_non_null(strstr(c.got.data, "HTTP/1.1 400 Bad Request\r\n"));
    assert_non_null(strstr(c.got.data, "Connection: close\r\n"));
    assert_non_null(strstr(c.got.data, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(
        c.got.data, "{\"error\":{\"message\":\"the first line is not 'METHOD PATH HTTP/1.1'\","
                    "\"type\":\"invalid_request_error\",\"param\":null,\"code\":null}}"));
    expect_end(&c);
    assert_int_equal(seen.n_broken, 1);
    assert_int_equal(seen.broken_code, 400);
    assert_int_equal(stats().n_broken, 1);
    /* cut at every byte */
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        client_open(&c);
        assert_true(client_send_bytes(&c, whole, n));
        client_close(&c);
    }
    UNTIL(stats().n_accepted == sizeof whole && stats().n_connections == 0);
    assert_int_equal(seen.n_requests, 0);
    assert_int_equal(seen.n_broken, sizeof whole - 1);
    assert_int_equal(seen.broken_code, 0);
    client_open(&c);
    client_send(&c, whole);
    expect(&c, "200 OK");
    client_close(&c);
    close_server();
}

static void test_streams(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    client_open(&c);
    client_send(&c, "GET /stream HTTP/1.1\r\n" H "\r\n");
    expect(&c, "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    net_stream_write(seen.held, "", 0);
    net_stream_write(seen.held, "one", 3);
    expect(&c, "3\r\none\r\n");
    net_stream_write(seen.held, "0123456789abcdef", 16);
    expect(&c, "10\r\n0123456789abcdef\r\n");
    assert_true(net_stream_room(seen.held));
    net_stream_end(seen.held);
    expect(&c, "0\r\n\r\n");
    seen.held = NULL;
    client_send(&c, "HEAD /stream HTTP/1.1\r\n" H "\r\n");
    expect(&c, "chunked\r\n\r\n");
    net_stream_write(seen.held, "unseen", 6);
    net_stream_end(seen.held);
    seen.held = NULL;
    client_send(&c, "GET /after HTTP/1.1\r\n" H "\r\n");
    UNTIL(strstr(client_read(&c), "/after"));
    assert_memory_equal(c.got.data, "HTTP/1.1 200", 12);
    client_close(&c);

    client_open(&c);
    client_send(&c, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    expect(&c, "Connection: close");
    net_stream_write(seen.held, "plain", 5);
    UNTIL(strstr(client_read(&c), "plain"));
    net_stream_end(seen.held);
    expect_end(&c);
    close_server();
}

static void test_vanished(void **state)
{
    (void)state;
    static const char *const requests[] = {"GET /later HTTP/1.1\r\n" H "\r\n",
                                           "GET /stream HTTP/1.1\r\n" H "\r\n"};
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    for (int i = 0; i < 4; i++) {
        client_open(&c);
        client_send(&c, requests[i % 2]);
        UNTIL(seen.held);
        struct linger reset = {.l_onoff = i < 2};
        setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        client_close(&c);
        UNTIL(seen.n_disconnected == i + 1);
    }
    UNTIL(stats().n_connections == 0);
    /* one that only stops sending is answered, if the answer is there at once */
    client_open(&c);
    client_send(&c, "GET /x HTTP/1.1\r\n" H "\r\n");
    shutdown(c.fd, SHUT_WR);
    expect(&c, "X-Path: /x");
    expect_end(&c);
    assert_int_equal(seen.n_disconnected, 4);
    assert_int_equal(seen.n_broken, 0);
    close_server();
}

static void test_drain(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client idle, busy, sent, half, late;
    open_server(&f);
    assert_true(net_quiet(net));
    client_open(&idle);
    client_open(&busy);
    client_open(&sent);
    client_open(&half);
    client_send(&busy, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    UNTIL(stats().n_connections == 4);
    assert_false(net_quiet(net));
    client_send(&half, "GET /half HT");
    UNTIL(stats().n_bytes_in > 40);
    client_send(&sent, "GET /sent HTTP/1.1\r\n" H "\r\n"); /* not read yet */
    net_drain(net);
    expect_end(&idle);
    UNTIL(strstr(client_read(&sent), "X-Path: /sent"));
    assert_non_null(strstr(sent.got.data, "Connection: close\r\n"));
    expect_end(&sent);
    client_send(&half, "TP/1.1\r\n" H "\r\n");
    expect(&half, "Connection: close\r\n");
    expect_end(&half);
    client_open(&late);
    client_send(&late, "GET / HTTP/1.1\r\n" H "\r\n");
    expect(&late, "Connection: close\r\n");
    expect_end(&late);
    assert_false(net_quiet(net));
    net_reply(seen.held, 200, NULL, "done", 4);
    expect(&busy, "Connection: close\r\n");
    expect_end(&busy);
    UNTIL(net_quiet(net));
    close_server();
}

/* What is open when all ends is told. */
static void test_close(void **state)
{
    (void)state;
    struct net_config f = defaults();
    struct client c;
    open_server(&f);
    client_open(&c);
    client_send(&c, "GET /later HTTP/1.1\r\n" H "\r\n");
    UNTIL(seen.held);
    close_server();
    assert_int_equal(seen.n_disconnected, 1);
    client_read(&c);
    assert_true(c.ended);
    client_close(&c);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void refuses_to_open(const struct net_config *f, const char *says)
{
    struct net *other = NULL;
    assert_int_not_equal(net_open(&other, base, f, &handler, &err), BITNET_OK);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say '%s'", err.text, says);
    assert_null(other);
}

static void test_local_socket(void **state)
{
    (void)state;
    char folder[] = "/tmp/bitnet-net-XXXXXX", path[64], host[80];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/s", folder);
    snprintf(host, sizeof host, "unix:%s", path);
    struct net_config f = defaults();
    struct client c;
    f.host = host;
    /* left by a process that was killed */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&a, sizeof a), 0);
    close(stale);
    open_server(&f);
    assert_int_equal(net_port(net), 0);
    client_fd(&c, connect_unix(path));
    client_send(&c, "GET /u HTTP/1.1\r\n" H "\r\n");
    expect(&c, "X-Path: /u");
    refuses_to_open(&f, "another process listens on");
    client_send(&c, "GET /still HTTP/1.1\r\n" H "\r\n");
    expect(&c, "X-Path: /still");
    client_close(&c);
    close_server();
    struct stat st;
    assert_int_not_equal(lstat(path, &st), 0);
    fclose(fopen(path, "w"));
    base = net_loop_new();
    refuses_to_open(&f, "is not a socket");
    event_base_free(base);
    assert_int_equal(lstat(path, &st), 0);
    unlink(path), rmdir(folder);
}

static void test_addresses(void **state)
{
    (void)state;
    struct net_config f = defaults(), g = defaults();
    struct client c;
    const char *const hosts[] = {"localhost", "0.0.0.0", "::"}; /* all are reached by IPv4, too */
    for (size_t i = 0; i < BN_ARRAY_LEN(hosts); i++) {
        int v6 = socket(AF_INET6, SOCK_STREAM, 0);
        if (v6 < 0 && strcmp(hosts[i], "::") == 0) continue; /* a machine without IPv6 */
        if (v6 >= 0) close(v6);
        f.host = hosts[i];
        open_server(&f);
        client_open(&c);
        client_send(&c, "GET /name HTTP/1.1\r\n" H "\r\n");
        expect(&c, "X-Peer: 127.0.0.1:");
        client_close(&c);
        close_server();
    }
    f.host = "127.0.0.1";
    open_server(&f);
    g.port = net_port(net);
    refuses_to_open(&g, "cannot listen on '127.0.0.1', port");
    char long_label[70]; /* too long to be looked up anywhere */
    memset(long_label, 'x', sizeof long_label);
    long_label[sizeof long_label - 1] = 0;
    g.host = long_label;
    refuses_to_open(&g, "is no address");
    g.port = 65536;
    refuses_to_open(&g, "port 65536 is above 65535");
    g.host = "unix:";
    refuses_to_open(&g, "has 0 bytes");
    close_server();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_alive),   cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_uploads),      cmocka_unit_test(test_broken_requests),
        cmocka_unit_test(test_streams),      cmocka_unit_test(test_vanished),
        cmocka_unit_test(test_drain),        cmocka_unit_test(test_close),
        cmocka_unit_test(test_local_socket), cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
