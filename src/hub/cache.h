/* SPDX-License-Identifier: Apache-2.0
 *
 * cache.h: the hub's cache on this machine, as the hub's own clients lay it out:
 *
 *   models--org--name/blobs/DIGEST               what was downloaded
 *   models--org--name/snapshots/COMMIT/PATH      a relative link to its blob
 *   models--org--name/refs/REVISION              the commit that a branch or tag was last
 *   models--org--name/.no_exist/COMMIT/PATH      empty: the commit has no such file
 *   .locks/models--org--name/DIGEST.lock         held while that blob is written
 *
 * What one program has downloaded the others find.
 */
#ifndef BN_HUB_CACHE_H
#define BN_HUB_CACHE_H

#include "hub/files.h"
#include "hub/places.h"

enum { HUB_COMMIT_BYTES = 41 };

/* One commit of a repository that is here, with its files. Zero-initialise it. */
struct hub_snapshot {
    char repo[HUB_REPO_BYTES], commit[HUB_COMMIT_BYTES];
    char revision[HUB_REVISION_BYTES]; /* a name of it, "main" if that is one; "": none */
    char folder[HUB_PATH_BYTES];
    struct hub_files files; /* those whose blobs are here */
    uint64_t bytes;         /* of them all */
    int64_t modified_s;     /* the newest blob, since 1970 */
};
void hub_snapshot_free(struct hub_snapshot *s);

/* The folder of a repository in the cache. false: the path is too long. */
bool hub_cache_folder(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *repo);
/* The commit that a revision ("": main) is known to be. Without a ref, a full commit stands for
 * itself, and "" for the only snapshot there is. false: not known here. */
bool hub_cache_commit(char out[HUB_COMMIT_BYTES], const char *folder, const char *revision);
/* Opens a snapshot; false: it is not here. */
bool hub_cache_open(struct hub_snapshot *out, const struct hub_places *p, const char *repo,
                    const char *revision);
/* Every snapshot of models in the cache, sorted by repository. visit ends it by returning false. */
typedef bool hub_snapshot_fn(void *user, const struct hub_snapshot *s);
void hub_cache_each(const struct hub_places *p, hub_snapshot_fn *visit, void *user);

/* ---- writing ---- */

bitnet_status hub_cache_prepare(const char *folder, const struct hub_places *p, bitnet_error *err);
/* refs/REVISION = commit. */
bitnet_status hub_cache_write_ref(const char *folder, const char *revision, const char *commit,
                                  bitnet_error *err);
/* snapshots/COMMIT/PATH -> ../../blobs/DIGEST */
bitnet_status hub_cache_link(const char *folder, const char *commit, const char *path,
                             const char *digest, bitnet_error *err);
/* .no_exist/COMMIT/PATH */
void hub_cache_note_missing(const char *folder, const char *commit, const char *path);

/* ---- removing ---- */

struct hub_removal {
    size_t n_files;
    uint64_t bytes; /* freed: of blobs that nothing else needs */
};
/* What `name` says: its file, its revision, or the whole repository. With `try` nothing is removed,
 * only counted. Blobs that other snapshots need stay. */
bitnet_status hub_cache_remove(struct hub_removal *out, const struct hub_places *p,
                               const struct hub_name *name, bool try, bitnet_error *err);

#endif
