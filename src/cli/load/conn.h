/* SPDX-License-Identifier: Apache-2.0
 *
 * conn.h: one connection to the server and the exchange on it. It is kept for the next request
 * as long as the server allows. Every exchange ends with one call of `ended`, unless it is dropped.
 */
#ifndef BN_CLI_LOAD_CONN_H
#define BN_CLI_LOAD_CONN_H

#include "cli/load/target.h"
#include "server/http/http.h"

enum {
    LOAD_MAX_REPLY_HEAD = 64 << 10,
    LOAD_MAX_REQUEST_BYTES = 80 << 20,
    LOAD_MAX_WHY_BYTES = 160 /* of the reason of a failure */
};
#define LOAD_MAX_REPLY_BODY ((uint64_t)1 << 30)

enum load_end {
    LOAD_END_WHOLE,    /* the reply is complete */
    LOAD_END_NO_REPLY, /* not a byte of one came */
    LOAD_END_BROKEN    /* it began, and was cut or made no sense */
};

struct load_conn_handler {
    void *user;
    /* More of the body is there, perhaps all; the handler may take it out of r->body. now_ns: when
     * the bytes were read. */
    void (*arrived)(void *user, struct http_reader *r, uint64_t now_ns);
    /* why: the reason if the reply is not whole. The next request may be sent from here. */
    void (*ended)(void *user, const struct http_reader *r, enum load_end end, const char *why,
                  uint64_t now_ns);
};

struct load_conn {
    const struct load_target *target;
    struct event_base *base;
    struct load_conn_handler handler;
    struct bufferevent *bev; /* NULL: not connected */
    struct http_reader reader;
    struct bn_buf request; /* what was sent, until something comes back */
    bool busy;             /* an exchange is going on */
    bool reused;           /* it is not the first on this connection */
};

void load_conn_init(struct load_conn *c, const struct load_target *t, struct event_base *base,
                    const struct load_conn_handler *h);
/* Sends c->request, which the caller has filled with a whole request. false: no connection could
 * be begun; `ended` is not called then. */
bool load_conn_send(struct load_conn *c);
/* Ends an exchange without calling anyone, and the connection. */
void load_conn_drop(struct load_conn *c);
void load_conn_free(struct load_conn *c);

/* One GET outside of any run. *body: free(); NULL unless *status is 200. */
bitnet_status load_get(const struct load_target *t, const char *path, double timeout_s, int *status,
                       char **body, bitnet_error *err);

#endif
