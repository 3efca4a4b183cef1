/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h: where models lie on this machine and where they come from. The program fills it from its
 * options and the environment; this room reads neither.
 */
#ifndef BN_HUB_PLACES_H
#define BN_HUB_PLACES_H

#include "hub/name.h"

enum { HUB_PATH_BYTES = 2048, HUB_TOKEN_BYTES = 512, HUB_PROXY_BYTES = 512 };

struct hub_places {
    char cache[HUB_PATH_BYTES];   /* the hub's cache: models--org--name/... */
    char ollama[HUB_PATH_BYTES];  /* an Ollama store: manifests/, blobs/ */
    char files[HUB_PATH_BYTES];   /* files by URL: host/path */
    char endpoint[HUB_URL_BYTES]; /* of the hub, without a slash at its end */
    char token[HUB_TOKEN_BYTES];  /* for that endpoint only; "": none */
    char ca_file[HUB_PATH_BYTES]; /* certificates to trust instead of the system's; "" */
    /* proxies for http and https, and the hosts that need none, as in the environment; "": none */
    char http_proxy[HUB_PROXY_BYTES], https_proxy[HUB_PROXY_BYTES], no_proxy[HUB_PROXY_BYTES];
    double etag_timeout_s, download_timeout_s; /* without a byte */
    uint32_t connections;                      /* at a time */
    bool offline;
};

/* Does whoever waits for it not want to wait any longer? */
struct hub_cancel {
    bool (*asked)(void *user);
    void *user;
};
static inline bool hub_cancelled(const struct hub_cancel *c) { return c->asked(c->user); }

#endif
