/* SPDX-License-Identifier: Apache-2.0
 *
 * pull.h: a model by its name, brought onto this machine.
 */
#ifndef BN_HUB_PULL_H
#define BN_HUB_PULL_H

#include "hub/local.h"
#include "hub/net/conn.h"

struct hub_pull_plan {
    const char *licence; /* "": not said */
    size_t n_files;
    uint64_t bytes, missing_bytes; /* of the model; of what is not here whole */
    uint64_t begun_bytes;          /* of that: left by an earlier download */
};
struct hub_pull_state {
    const char *what;     /* the file, for people */
    uint64_t done, total; /* bytes of the model that are here */
    bool checking;        /* the file's checksum; done and total are of that file then */
    const char *digest;   /* of the file: SHA-256, or of git; "" if nobody says */
    uint64_t file_done, file_bytes;
};

/* What the caller shows. All may be NULL. */
struct hub_pull_view {
    void *user;
    void (*plan)(void *user, const struct hub_pull_plan *plan);
    void (*progress)(void *user, const struct hub_pull_state *state);
    void (*waiting)(void *user, const char *what); /* another program downloads this file */
};

/* Downloads what is missing. only_plan: says what there would be to do. */
bitnet_status hub_pull(struct hub_local *out, const struct hub_net *net,
                       const struct hub_name *name, const struct hub_pull_view *view,
                       bool only_plan, bitnet_error *err);

#endif
