/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h: models that are on this machine, by name: in the hub's cache, in an Ollama store, and files
 * that were downloaded by URL.
 */
#ifndef BN_HUB_LOCAL_H
#define BN_HUB_LOCAL_H

#include "hub/cache.h"

enum hub_here {
    HUB_NOT_HERE,
    HUB_PARTLY_HERE, /* some of its files */
    HUB_HERE
};

struct hub_local {
    char name[HUB_TYPED_BYTES];                                  /* by which it is found */
    char path[HUB_PATH_BYTES];                                   /* what to open */
    const char *kind;                                            /* "GGUF", "safetensors" */
    const char *where;                                           /* "hub", "ollama", "url" */
    char revision[HUB_REVISION_BYTES], commit[HUB_COMMIT_BYTES]; /* of the hub; or "" */
    size_t n_files;
    uint64_t bytes;
    int64_t modified_s;
};

/* why: may be NULL; filled where the repository is here and the name fits none or several files of it
 * (then HUB_NOT_HERE). */
enum hub_here hub_local_find(struct hub_local *out, const struct hub_places *p,
                             const struct hub_name *name, bitnet_error *why);

/* Every model that is here whole. visit ends it by returning false. */
typedef bool hub_local_fn(void *user, const struct hub_local *l);
void hub_local_each(const struct hub_places *p, hub_local_fn *visit, void *user);

/* Where a file by URL is kept. false: the URL gives no path. */
bool hub_url_path(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *url);

#endif
