/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/cache.h"

#include "base/os/file.h"
#include "hub/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Marks the folder as one that backups may leave out. */
static const char tag_text[] =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag created by bitnet.\n"
    "# For information about cache directory tags see https://bford.info/cachedir/\n";

static bitnet_status fail_errno(bitnet_error *err, const char *what, const char *path)
{
    return bn_fail(err, BITNET_E_IO, "cannot %s '%.300s': %s", what, path, strerror(errno));
}

static bitnet_status too_long(bitnet_error *err, const char *path)
{
    return bn_fail(err, BITNET_E_LIMIT, "the path '%.300s' is too long", path);
}

static bitnet_status make_folder_of(const char *path, bitnet_error *err)
{
    char folder[HUB_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    if (!bn_folder_make(folder)) return fail_errno(err, "make the folder", folder);
    return BITNET_OK;
}

static void write_tag(const char *cache)
{
    char path[HUB_PATH_BYTES];
    struct bn_out o;
    if (!hub_path(path, "%s/CACHEDIR.TAG", cache) || bn_exists(path) ||
        bn_out_open(&o, path, false, NULL) != BITNET_OK)
        return;
    bn_out_end(&o, tag_text, sizeof tag_text - 1, NULL); /* nothing depends on it */
    bn_out_close(&o);
}

bitnet_status hub_cache_prepare(const char *folder, const struct hub_places *p, bitnet_error *err)
{
    static const char *const inside[] = {"blobs", "snapshots", "refs"};
    for (size_t i = 0; i < BN_ARRAY_LEN(inside); i++) {
        char path[HUB_PATH_BYTES];
        if (!hub_path(path, "%s/%s", folder, inside[i])) return too_long(err, folder);
        if (!bn_folder_make(path)) return fail_errno(err, "make the folder", path);
    }
    write_tag(p->cache);
    return BITNET_OK;
}

bitnet_status hub_cache_write_ref(const char *folder, const char *revision, const char *commit,
                                  bitnet_error *err)
{
    char path[HUB_PATH_BYTES];
    struct bn_out o;
    if (!hub_path(path, "%s/refs/%s", folder, revision)) return too_long(err, folder);
    BN_TRY(make_folder_of(path, err));
    BN_TRY(bn_out_open(&o, path, true, err));
    bitnet_status s = bn_out_end(&o, commit, strlen(commit), err);
    bn_out_close(&o);
    return s;
}

bitnet_status hub_cache_link(const char *folder, const char *commit, const char *path,
                             const char *digest, bitnet_error *err)
{
    char link[HUB_PATH_BYTES], target[HUB_PATH_BYTES], temp[HUB_PATH_BYTES], blob[HUB_PATH_BYTES];
    if (!hub_path(link, "%s/snapshots/%s/%s", folder, commit, path) ||
        !hub_path(temp, "%s.%ld", link, (long)getpid()) ||
        !hub_path(blob, "%s/blobs/%s", folder, digest))
        return too_long(err, folder);
    size_t n = 0;
    for (const char *p = path; p; p = strchr(p + 1, '/')) /* one step up for every folder */
        n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "../blobs/%s", digest);
    BN_TRY(make_folder_of(link, err));
    if (symlink(target, temp) == 0) {
        if (rename(temp, link) == 0) return BITNET_OK;
        unlink(temp);
        return fail_errno(err, "create", link);
    }
    /* a file system without links: the file itself takes the place, as with the hub's own clients */
    if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP)
        return fail_errno(err, "create", link);
    if (rename(blob, link) != 0) return fail_errno(err, "create", link);
    return BITNET_OK;
}

void hub_cache_note_missing(const char *folder, const char *commit, const char *path)
{
    char mark[HUB_PATH_BYTES];
    if (!hub_path(mark, "%s/.no_exist/%s/%s", folder, commit, path) ||
        make_folder_of(mark, NULL) != BITNET_OK)
        return;
    int fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
}
