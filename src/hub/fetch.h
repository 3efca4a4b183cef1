/* SPDX-License-Identifier: Apache-2.0
 *
 * fetch.h: one file over the network, by several connections that each bring blocks of it. Connections that
 * break and links that expire are replaced; at the end the checksum is compared.
 */
#ifndef BN_HUB_FETCH_H
#define BN_HUB_FETCH_H

#include "hub/net/conn.h"

struct hub_fetch {
    const struct hub_net *net;
    struct hub_url url;
    const char *repo; /* it belongs to; "" */
    const char *what; /* in sentences */
    const char *path; /* of the file when it is there */
    uint64_t bytes;
    const char *digest; /* 64 digits: SHA-256; 40: of git; "": nobody says */
    const char *id;     /* what it is, where there is no digest: an ETag */
    void *user;
    /* from the calling thread: bytes of the file that are here, or that have been checked */
    void (*progress)(void *user, uint64_t done, bool checking);
    void (*waiting)(void *user); /* another process downloads it */
};

/* Nothing happens if the file is there. */
bitnet_status hub_fetch_file(const struct hub_fetch *f, bitnet_error *err);

/* What a server says about a file by its URL: length and ETag ("" if it has none). */
bitnet_status hub_fetch_look(const struct hub_net *net, const struct hub_url *url, const char *what,
                             uint64_t *bytes, char etag[128], bitnet_error *err);

#endif
