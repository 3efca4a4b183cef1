/* SPDX-License-Identifier: Apache-2.0
 * A server on a free port and its clients, all on one thread: turn() runs the server's loop once.
 * Waiting is always for something to happen, with a limit far above what a loaded machine needs. */
#ifndef SERVER_NET_COMMON_H
#define SERVER_NET_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "server/http/net.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define H "Host: a\r\n"

static struct event_base *base;
static struct net *net;
static bitnet_error err;

/* What the server was told; `held` is the request that is not answered yet. */
static struct {
    int n_requests, n_disconnected, n_room, n_broken, broken_code, n_crowded;
    char why[256], crowded[256];
    struct net_request *held;
} seen;

/* "/later" and "/stream" are answered by the test, all others at once with their body; "/slow" takes
 * SLOW_MS. */
enum { SLOW_MS = 150 };
static inline void on_request(void *user, struct net_request *c)
{
    assert_ptr_equal(user, &seen);
    const struct http_reader *r = net_http(c);
    seen.n_requests++;
    assert_null(net_user(c));
    assert_true(net_began_ns(c) > 0);
    net_set_user(c, &seen);
    if (strcmp(r->path, "/later") == 0 || strcmp(r->path, "/stream") == 0) {
        assert_null(seen.held);
        seen.held = c;
        if (strcmp(r->path, "/stream") == 0) net_stream_begin(c, 200, "text/event-stream");
        return;
    }
    if (strcmp(r->path, "/slow") == 0)
        nanosleep(&(struct timespec){.tv_nsec = SLOW_MS * 1000000L}, NULL);
    net_add_header(c, "X-Peer", net_peer(c));
    net_add_header(c, "X-Path", r->path);
    net_add_header(c, "X-Bad", "a\r\nb: c");
    if (strcmp(r->path, "/nothing") == 0) net_reply(c, 204, NULL, NULL, 0);
    else net_reply(c, 200, "text/plain", r->body.data, r->body.len);
}

static inline void on_disconnect(void *user, struct net_request *c)
{
    assert_ptr_equal(user, &seen);
    assert_ptr_equal(c, seen.held);
    assert_ptr_equal(net_user(c), &seen);
    seen.held = NULL;
    seen.n_disconnected++;
}

static inline void on_room(void *user, struct net_request *c)
{
    assert_ptr_equal(user, &seen);
    assert_ptr_equal(c, seen.held);
    assert_true(net_stream_room(c));
    seen.n_room++;
}

static inline void on_broken(void *user, const char *peer, int code, const char *why)
{
    assert_ptr_equal(user, &seen);
    assert_true(strlen(peer) > 0);
    seen.n_broken++;
    seen.broken_code = code;
    snprintf(seen.why, sizeof seen.why, "%s", why);
}

static inline void on_crowded(void *user, const char *why)
{
    assert_ptr_equal(user, &seen);
    seen.n_crowded++;
    snprintf(seen.crowded, sizeof seen.crowded, "%s", why);
}

static const struct net_handler handler = {&seen,   on_request, on_disconnect,
                                           on_room, on_broken,  on_crowded};

static inline struct net_config defaults(void)
{
    return (struct net_config){.host = "127.0.0.1",
                               .max_connections = 100,
                               .limits = {.head_bytes = 4096, .body_bytes = 100000},
                               .bodies_bytes = 1 << 20,
                               .request_ms = 60000,
                               .idle_ms = 60000,
                               .write_ms = 60000,
                               .linger_ms = 60000,
                               .stream_high_bytes = 65536};
}

static inline void open_server(const struct net_config *c)
{
    memset(&seen, 0, sizeof seen);
    base = net_loop_new();
    assert_non_null(base);
    if (net_open(&net, base, c, &handler, &err) != BITNET_OK) fail_msg("%s", err.text);
}

static inline void close_server(void)
{
    net_close(net);
    event_base_free(base);
}

static inline void turn(void)
{
    event_base_loop(base, EVLOOP_NONBLOCK);
    poll(NULL, 0, 1);
}

#define UNTIL(condition)                                                \
    for (uint64_t until_ = bn_now_ns() + 30000000000u; !(condition);) { \
        turn();                                                         \
        if (bn_now_ns() > until_) fail_msg("waited for " #condition);   \
    }

static inline struct net_stats stats(void)
{
    struct net_stats s;
    net_stats(net, &s);
    return s;
}

struct client {
    int fd;
    bool ended; /* the server has closed */
    struct bn_buf got;
};

static inline void client_fd(struct client *c, int fd)
{
    assert_true(fd >= 0);
    *c = (struct client){.fd = fd};
    bn_buf_init(&c->got, 64 << 20);
}

static inline int connect_to(uint32_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static inline void client_open(struct client *c) { client_fd(c, connect_to(net_port(net))); }

static inline void client_close(struct client *c)
{
    close(c->fd);
    bn_buf_free(&c->got);
}

/* false: the server has closed */
static inline bool client_send_bytes(struct client *c, const char *p, size_t n)
{
    while (n) {
        ssize_t k = send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN) return false;
        if (k > 0) p += k, n -= (size_t)k;
        else turn();
    }
    return true;
}

static inline void client_send(struct client *c, const char *text)
{
    assert_true(client_send_bytes(c, text, strlen(text)));
}

/* Takes what has come; is what has come so far. */
static inline const char *client_read(struct client *c)
{
    char piece[4096];
    for (;;) {
        ssize_t k = recv(c->fd, piece, sizeof piece, MSG_DONTWAIT);
        if (k > 0) bn_buf_append(&c->got, piece, (size_t)k);
        else if (k == 0 || errno != EAGAIN) c->ended = true;
        if (k <= 0) return c->got.len ? c->got.data : "";
    }
}

/* Waits for it, then forgets what has come. */
static inline void expect(struct client *c, const char *text)
{
    UNTIL(strstr(client_read(c), text) || c->ended);
    if (!strstr(client_read(c), text)) fail_msg("'%s' is not in '%s'", text, client_read(c));
    bn_buf_clear(&c->got);
}

static inline void expect_end(struct client *c)
{
    UNTIL((client_read(c), c->ended));
    client_close(c);
}

#endif
