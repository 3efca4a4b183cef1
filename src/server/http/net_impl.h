/* SPDX-License-Identifier: Apache-2.0
 *
 * net_impl.h: what the files of the connections share. net.c owns the list of connections and takes
 * new ones; net_conn.c drives a connection from phase to phase; net_reply.c writes;
 * net_listen.c and net_tls.c make sockets and TLS.
 */
#ifndef BN_SERVER_HTTP_NET_IMPL_H
#define BN_SERVER_HTTP_NET_IMPL_H

#include "server/http/net.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>

enum {
    NET_MAX_LISTENERS = 8,         /* addresses of one name */
    NET_PEER_BYTES = 80,           /* "[address]:port" */
    NET_MAX_HEADERS_BYTES = 16384, /* of a reply, beside those that every reply has */
    NET_LAST_READ_MS = 1000        /* after the last reply, for the client to close first */
};

/* A connection goes round: reading, open, writing, reading ...; after its last reply: closing. */
enum net_phase {
    NET_READING, /* between requests, or inside one          */
    NET_OPEN,    /* the handler has the request               */
    NET_WRITING, /* the reply is complete, and on its way     */
    NET_CLOSING  /* written and shut; reads what still comes, so that the reply is not lost */
};

struct net_list {
    struct net_request *first, *last;
};

/* A connection, and the request that may be open on it. */
struct net_request {
    struct net *net;
    struct net_list *in;
    struct net_request *prev, *next; /* in it */
    struct bufferevent *bev;
    struct event *timer; /* the end of this phase's time */
    struct http_reader reader;
    struct bn_buf headers; /* of the reply, from net_add_header */
    void *user;
    uint64_t began_ns;
    size_t body_bytes; /* memory of the body, as counted in net */
    enum net_phase phase;
    bool refused;       /* one of those too many */
    bool began;         /* the first byte of a request has come */
    bool continued;     /* was told "100 Continue" */
    bool last;          /* no request after this one */
    bool body, chunked; /* the reply has a body; it goes in chunks */
    bool no_room;       /* of the stream, until `room` is called */
    bool ended;         /* the client sends no more */
    bool lost;          /* what has been written has a hole */
    char peer[NET_PEER_BYTES];
};

struct net {
    struct event_base *base;
    struct net_config config; /* without the strings */
    struct net_handler handler;
    struct evconnlistener *listeners[NET_MAX_LISTENERS];
    size_t n_listeners;
    struct event *accept_again;
    struct net_list idle; /* no byte of a request has come; the longest so is the first */
    struct net_list busy; /* all others */
    struct net_stats stats;
    uint32_t n_refused; /* of them that are still being told */
    size_t bodies_bytes;
    uint32_t n_burst; /* connections taken without a pause */
    uint32_t port;
    uint64_t crowded_ns; /* when the operator was told last; 0: never */
    bool draining;
    char *unix_path, *tls_cert, *tls_key; /* NULL: none */
    struct ssl_ctx_st *tls;
};

/* net_conn.c. Takes the descriptor over; without memory for the connection it is closed. */
void net_conn_open(struct net *n, int fd, const char *peer, bool refused);
void net_conn_close(
    struct net_request *c); /* at once; `disconnected` is called for an open request */
void net_conn_drain(struct net_request *c); /* of an idle one: closes it, unless bytes wait */
/* Closes the connection that has been idle longest. false: none is. */
bool net_conn_make_room(struct net *n);
void net_conn_finish(struct net_request *c); /* the reply is complete */
void net_conn_lost(struct net_request *c);   /* memory was out: drops it, soon */

/* net_reply.c: a reply to what is not a request; the last of its connection. */
void net_reply_error(struct net_request *c, int status, const char *why);

/* net_listen.c: bound sockets, as many as the name has addresses; a local one listens. */
struct net_sockets {
    int fd[NET_MAX_LISTENERS];
    size_t n;
    uint32_t port;
};
struct net_place {
    struct net_sockets sockets; /* none: net_open has them */
    char *unix_path;            /* removed with them */
};
bitnet_status net_fail_listen(const char *host, uint32_t port, int errno_then, bitnet_error *err);
/* "address:port"; "unix" */
struct sockaddr;
void net_peer_name(char out[NET_PEER_BYTES], const struct sockaddr *sa, int len);
/* no delay of small pieces; a peer that is no more is noticed */
void net_tune_socket(int fd, uint32_t write_ms);

/* net_tls.c */
bitnet_status net_tls_open(struct ssl_ctx_st **out, const char *cert, const char *key,
                           bitnet_error *err);
void net_tls_close(struct ssl_ctx_st *tls); /* may be NULL; connections keep theirs */
/* NULL: out of memory. */
struct bufferevent *net_tls_bufferevent(struct event_base *base, int fd, struct ssl_ctx_st *tls);
void net_tls_say_end(struct bufferevent *bev);

#endif
