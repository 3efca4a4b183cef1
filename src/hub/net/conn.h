/* SPDX-License-Identifier: Apache-2.0
 *
 * conn.h: HTTP/1.1 requests over sockets that this thread waits for: one connection, kept as long as the
 * server lets it and the next request goes to the same place. Certificates are checked. The hub's token
 * goes to the hub's endpoint and nowhere else, wherever redirects lead.
 *
 * BITNET_E_IO is what may be better at the next try: a name that was not found, a connection that broke,
 * silence. BITNET_E_CANCELLED: the user does not want to wait.
 */
#ifndef BN_HUB_NET_CONN_H
#define BN_HUB_NET_CONN_H

#include "hub/net/url.h"
#include "server/http/http.h"

/* What all connections share; not changed once it is open. */
struct hub_net {
    const struct hub_places *places;
    struct hub_url endpoint;
    void *tls; /* SSL_CTX */
    struct hub_cancel cancel;
};
bitnet_status hub_net_open(struct hub_net *n, const struct hub_places *p,
                           const struct hub_cancel *cancel, bitnet_error *err);
void hub_net_close(struct hub_net *n);

enum { HUB_READ_BYTES = 1 << 16 };

struct hub_conn {
    const struct hub_net *net;
    struct hub_url at; /* whom it is connected to */
    int fd;            /* -1: nobody */
    void *ssl;
    bool by_proxy;                   /* requests carry the whole URL */
    char proxy_user[HUB_NAME_BYTES]; /* "name:password" for it; "" */
    bool no_body;                    /* the reply is to HEAD */
    bool given;                      /* what the reader has of the body was handed out */
    double timeout_s;
    struct http_reader reader; /* of the reply */
    char in[HUB_READ_BYTES];
    size_t n_in, at_in;
};

void hub_conn_init(struct hub_conn *c, const struct hub_net *n, double timeout_s);
void hub_conn_close(struct hub_conn *c); /* reusable */
void hub_conn_free(struct hub_conn *c);

struct hub_ask {
    const char *method; /* NULL: GET */
    const char *accept; /* NULL: anything */
    bool ranged;        /* bytes from..to, both of them */
    uint64_t from, to;
    bool follow; /* redirects, which change the URL */
};
/* Sends a request and reads the head of the reply, which c->reader has then. */
bitnet_status hub_conn_ask(struct hub_conn *c, struct hub_url *url, const struct hub_ask *q,
                           bitnet_error *err);
/* More of the body; *n 0: it is complete. Valid until the next call. */
bitnet_status hub_conn_read(struct hub_conn *c, const char **data, size_t *n, bitnet_error *err);
/* The rest of the body. BITNET_E_LIMIT above max_bytes. */
bitnet_status hub_conn_read_all(struct hub_conn *c, struct bn_buf *out, bitnet_error *err);

#endif
