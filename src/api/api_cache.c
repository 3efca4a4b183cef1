/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include "model/image/cache.h"

struct listing {
    bitnet_cache_fn fn;
    void *user;
};

static bool show(void *user, const struct bn_cache_entry *e)
{
    const struct listing *l = user;
    const bitnet_cache_entry out = {.size = sizeof out,
                                    .path = e->path,
                                    .source = e->source,
                                    .bytes = e->bytes,
                                    .used_s = e->used_s,
                                    .good = e->good,
                                    .current = e->current};
    return l->fn(l->user, &out) == 0;
}

bitnet_status bitnet_cache_list(const char *folder, bitnet_cache_fn fn, void *user,
                                bitnet_error *err)
{
    BN_NEED(folder && fn, err, "folder or fn is NULL");
    struct listing l = {fn, user};
    bn_cache_walk(folder, show, &l);
    return BITNET_OK;
}

bitnet_status bitnet_cache_clear(const char *folder, uint64_t *n, uint64_t *bytes,
                                 bitnet_error *err)
{
    BN_NEED(folder, err, "folder is NULL");
    uint64_t removed, removed_bytes;
    bn_cache_clear(folder, &removed, &removed_bytes);
    if (n) *n = removed;
    if (bytes) *bytes = removed_bytes;
    return BITNET_OK;
}

bitnet_status bitnet_cache_verify(const char *path, bitnet_progress_fn progress,
                                  void *progress_user, bitnet_error *err)
{
    BN_NEED(path, err, "path is NULL");
    return bn_cache_verify(path, progress, progress_user, err);
}
