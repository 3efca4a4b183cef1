/* SPDX-License-Identifier: Apache-2.0
 *
 * socket.h: connections to hosts, through proxies and TLS; reading and writing with limits of time, and
 * with an ear for Ctrl-C.
 */
#ifndef BN_HUB_NET_SOCKET_H
#define BN_HUB_NET_SOCKET_H

#include "hub/net/conn.h"

/* c->at is set, c->fd is -1. */
bitnet_status hub_socket_open(struct hub_conn *c, bitnet_error *err);
void hub_socket_close(struct hub_conn *c);
bitnet_status hub_socket_write(struct hub_conn *c, const char *p, size_t n, bitnet_error *err);
/* *n 0: the other side has closed it. */
bitnet_status hub_socket_read(struct hub_conn *c, char *p, size_t room, size_t *n,
                              bitnet_error *err);

/* The header for a proxy that asks who one is; nothing for "". */
void hub_proxy_credentials(struct bn_buf *b, const char *user);

bitnet_status hub_tls_open(void **tls, const char *ca_file, bitnet_error *err);
void hub_tls_close(void *tls);

#endif
