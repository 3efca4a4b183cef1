/* SPDX-License-Identifier: Apache-2.0
 *
 * remote.h: what the hub, or a registry, says about a model.
 */
#ifndef BN_HUB_REMOTE_H
#define BN_HUB_REMOTE_H

#include "hub/cache.h"
#include "hub/net/conn.h"
#include "json/json.h"

/* Zero-initialise it. */
struct hub_remote {
    char commit[HUB_COMMIT_BYTES];
    char licence[64]; /* "": the hub does not say */
    bool gated;       /* its conditions are to be accepted first */
    int64_t downloads;
    struct hub_files files;
};

/* A repository of the hub at the revision of `name`. Asks again where the network fails. */
bitnet_status hub_remote_look(struct hub_remote *out, const struct hub_net *net,
                              const struct hub_name *name, bitnet_error *err);
void hub_remote_free(struct hub_remote *r);
/* Where a file of it is. */
bitnet_status hub_remote_url(struct hub_url *out, const struct hub_net *net, const char *repo,
                             const char *commit, const char *path, bitnet_error *err);

/* The manifest of a registry's model, as text (a 0 behind it) and as JSON; both are the caller's. */
bitnet_status hub_registry_look(struct bn_buf *text, struct bn_json **manifest,
                                const struct hub_net *net, const struct hub_name *name,
                                bitnet_error *err);
bitnet_status hub_registry_url(struct hub_url *out, const struct hub_name *name, const char *what,
                               bitnet_error *err);

/* The sentence about a reply that is not 200 or 206, by what the hub says in its headers. BITNET_E_IO for
 * what may pass: 429 and errors of the server. repo: "" for what is in none; what: the repository or the
 * file. */
bitnet_status hub_remote_refused(const struct hub_conn *c, const char *repo, const char *what,
                                 bitnet_error *err);

#endif
