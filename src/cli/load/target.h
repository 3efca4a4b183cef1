/* SPDX-License-Identifier: Apache-2.0
 *
 * target.h: the server that is loaded: its URL, the one address of it that answers, what TLS
 * needs, and the head of every request.
 */
#ifndef BN_CLI_LOAD_TARGET_H
#define BN_CLI_LOAD_TARGET_H

#include "base/buf.h"
#include "cli/core/args.h"
#include <sys/socket.h>

enum { LOAD_MAX_URL_BYTES = 512, LOAD_MAX_HEADER_BYTES = 8192 };

struct bufferevent;
struct event_base;

struct load_target {
    bool tls, insecure;                 /* insecure: any certificate will do */
    char name[LOAD_MAX_URL_BYTES];      /* of the host, for its certificate */
    char authority[LOAD_MAX_URL_BYTES]; /* name and port, for the Host header */
    char port[8];
    char base[LOAD_MAX_URL_BYTES]; /* path in front of /v1/..., without a slash at its end */
    struct sockaddr_storage address;
    socklen_t address_bytes;
    void *tls_context;           /* SSL_CTX */
    struct bn_buf extra_headers; /* lines with their ends */
};

/* http://HOST[:PORT][/PATH], https://...; a path that ends with /v1 may be given with or without
 * it. Does not look the name up. */
bitnet_status load_target_parse(struct load_target *t, const char *url, bitnet_error *err);
/* key: NULL or "" for none; headers: "Name: value" each. */
bitnet_status load_target_headers(struct load_target *t, const char *key,
                                  const struct opt_list *headers, bitnet_error *err);
/* Looks the name up and connects once, to find the address that answers. */
bitnet_status load_target_open(struct load_target *t, bitnet_error *err);
void load_target_close(struct load_target *t);

/* Appends the head of a request with a body of n_body bytes, or none. method: "GET", "POST". */
void load_target_head(const struct load_target *t, struct bn_buf *out, const char *method,
                      const char *path, size_t n_body);
/* A connection on its way; NULL: out of memory or sockets. */
struct bufferevent *load_target_connect(const struct load_target *t, struct event_base *base);

#endif
