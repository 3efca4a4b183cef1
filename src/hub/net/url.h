/* SPDX-License-Identifier: Apache-2.0
 *
 * url.h: http and https URLs, taken apart.
 */
#ifndef BN_HUB_NET_URL_H
#define BN_HUB_NET_URL_H

#include "base/buf.h"
#include "hub/places.h"

enum { HUB_TARGET_BYTES = 4096, HUB_NAME_BYTES = 256 };

struct hub_url {
    bool tls;
    char host[HUB_NAME_BYTES]; /* without the brackets of an IPv6 address */
    char port[8];
    char authority[HUB_HOST_BYTES +
                   8];         /* for the Host header: with the port, if it is not the usual one */
    char user[HUB_NAME_BYTES]; /* "name:password", decoded; "" */
    char target[HUB_TARGET_BYTES]; /* path and query; begins with a slash */
};

/* The schemes http and https; what stands behind # is left out. */
bitnet_status hub_url_parse(struct hub_url *out, const char *text, bitnet_error *err);
/* Where a Location header leads from `base`. */
bitnet_status hub_url_join(struct hub_url *out, const struct hub_url *base, const char *location,
                           bitnet_error *err);
bool hub_url_same_origin(const struct hub_url *a, const struct hub_url *b);
bool hub_url_is_loopback(const struct hub_url *u); /* this machine, by name or address */
/* Appends `text` so that it can stand in a path: letters, digits and -._~ stay, and slashes if they are
 * to. */
void hub_url_escape(struct bn_buf *b, const char *text, bool keep_slashes);

/* The proxy that the places name for it; false: none. */
bool hub_url_proxy(const char **proxy, const struct hub_places *p, const struct hub_url *u);

#endif
