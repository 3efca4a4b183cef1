/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h: the listening socket and its connections, over libevent: accept, TLS, HTTP, limits, time
 * limits, keep-alive, pipelined requests one after the other, and replies, whole or in pieces. It
 * knows nothing of what is served. All of it runs on the thread of the event loop.
 *
 * Nobody holds a connection for nothing: a request must be complete within request_ms of its first
 * byte, however it trickles; between requests there is idle_ms; a client must take what it is sent,
 * at least some of it every write_ms, and all of it within linger_ms after the reply's end. The one
 * connection too many takes the place of the one that has been idle longest; if none is, it is told
 * 503 and closed. All these times are above 0.
 *
 * The end of what a client sends, while its request is open, counts as a disconnect: it cannot be told
 * from a client that was killed. (docs/serve/server.md)
 */
#ifndef BN_SERVER_HTTP_NET_H
#define BN_SERVER_HTTP_NET_H

#include "server/http/http.h"

struct event_base;
struct net;
struct net_place;
struct net_request; /* a request with its reply; belongs to a connection */

enum {
    NET_CROWDED_S = 10,
    NET_MAX_REFUSED =
        32, /* connections too many that are told so at a time; more are just closed */
    NET_MAX_OWN_FDS = NET_MAX_REFUSED + 8 /* descriptors that it needs beside max_connections */
};

struct net_config {
    const char *host;        /* an address or a name; "unix:PATH" for a local socket */
    uint32_t port;           /* 0: any that is free */
    struct net_place *place; /* taken for these two; NULL: net_open takes one */
    uint32_t max_connections;
    struct http_limits limits;
    size_t bodies_bytes; /* bodies of all connections together, until they are released */
    uint32_t request_ms, idle_ms, write_ms, linger_ms;
    size_t stream_high_bytes;       /* above it a stream has no room */
    const char *tls_cert, *tls_key; /* PEM files; NULL: no TLS */
};

struct net_stats {
    uint32_t n_connections;
    uint64_t n_accepted, n_refused;   /* refused: there were max_connections already */
    uint64_t n_broken;                /* requests that were no HTTP, or came too slowly */
    uint64_t n_bytes_in, n_bytes_out; /* without what TLS adds */
};

/* A request came to life and is answered by exactly one of: net_reply; net_stream_begin ...
 * net_stream_end or net_stream_drop; or the client's going. After the first two the request must not
 * be used again. */
struct net_handler {
    void *user;
    /* complete; may be answered at once or later */
    void (*request)(void *user, struct net_request *r);
    void (*disconnected)(void *user, struct net_request *r); /* it is no more, or too slow */
    /* a stream that had no room has room again */
    void (*room)(void *user, struct net_request *r);
    /* a request that never became one was answered or dropped; code 0: no answer. For the log. */
    void (*broken)(void *user, const char *peer, int code, const char *why);
    /* Connections are refused, or cannot be taken, for this reason: for the operator. Told at most
     * once in NET_CROWDED_S seconds; NULL: nobody listens. */
    void (*crowded)(void *user, const char *why);
};

/* The sockets to listen on, taken before there is anything to serve: so it is told at once where another
 * program has them. Until net_open TCP connections are refused, those to a local socket wait. */
bitnet_status net_place_take(struct net_place **out, const char *host, uint32_t port,
                             bitnet_error *err);
void net_place_leave(struct net_place *p); /* NULL: nothing; what net_open has taken over stays */

/* An event loop for it, whose clock goes on while a handler works: else a reply that took long to make
 * would be late as soon as it is written. NULL: out of memory. */
struct event_base *net_loop_new(void);

/* Makes the process ignore SIGPIPE. */
bitnet_status net_open(struct net **out, struct event_base *base, const struct net_config *c,
                       const struct net_handler *h, bitnet_error *err);
/* All connections, at once; `disconnected` is called for open requests. Not from a handler. */
void net_close(struct net *n);
uint32_t net_port(const struct net *n);
void net_stats(const struct net *n, struct net_stats *s);
/* From now on: replies say "Connection: close", idle connections are closed; new ones are still
 * taken, so that they can be told. */
void net_drain(struct net *n);
/* No open request, none half read, and everything written. */
bool net_quiet(const struct net *n);
bitnet_status net_reload_tls(struct net *n, bitnet_error *err); /* on error the old one stays */

/* As it was read: method, path, headers, body. */
const struct http_reader *net_http(const struct net_request *r);
/* The body is not needed any more: its memory is free for others. */
void net_release_body(struct net_request *r);
/* The same, but it goes on as the taker's, and counts until it is freed. */
struct net_body {
    struct bn_buf bytes;
    size_t counted;
};
void net_take_body(struct net_request *r, struct net_body *b);
void net_body_free(struct net *n, struct net_body *b); /* n: NULL if it is no more */
const char *net_peer(const struct net_request *r);     /* "address:port" of the client, or "unix" */
uint64_t net_began_ns(const struct net_request *r);    /* when the request was complete */
void net_set_user(struct net_request *r, void *user);  /* of this request */
void *net_user(const struct net_request *r);
/* Headers of the reply beside those that every reply has. Before net_reply or net_stream_begin. A
 * value with a line end in it is left out. */
void net_add_header(struct net_request *r, const char *name, const char *value);
void net_reply(struct net_request *r, int status, const char *content_type, const void *body,
               size_t n);
/* Chunked, or until the connection's end for HTTP/1.0. */
void net_stream_begin(struct net_request *r, int status, const char *content_type);
void net_stream_write(struct net_request *r, const void *p, size_t n);
bool net_stream_room(
    const struct net_request *r); /* else wait for `room`: what is written piles up */
void net_stream_end(struct net_request *r);
void net_stream_drop(struct net_request *r); /* in place of its end: the connection is cut */

#endif
