/* SPDX-License-Identifier: Apache-2.0
 *
 * Links go first, then the blobs that no link leads to any more, then folders that have become empty.
 */
#include "hub/cache.h"

#include "base/os/file.h"
#include "hub/tree.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct removal {
    const char *folder;
    struct hub_files gone; /* links that go: their full paths */
    struct hub_files used; /* blobs that those which stay lead to */
    struct hub_removal *out;
    bool try;
    int failed; /* errno */
    char failed_path[HUB_PATH_BYTES];
};

static bool is_in(const struct hub_files *f, const char *path)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].path, path) == 0) return true;
    return false;
}

static void remove_path(struct removal *r, const char *path)
{
    if (r->try || unlink(path) == 0 || r->failed) return;
    r->failed = errno;
    snprintf(r->failed_path, sizeof r->failed_path, "%s", path);
}

/* ------------------------------------------------------------------ what goes */

static bitnet_status take_picked(struct removal *r, const struct hub_snapshot *s, bitnet_error *err)
{
    char full[HUB_PATH_BYTES];
    for (size_t i = 0; i < s->files.n; i++)
        if (s->files.items[i].picked && hub_path(full, "%s/%s", s->folder, s->files.items[i].path))
            BN_TRY(hub_files_add(&r->gone, full, s->files.items[i].bytes, "", err));
    return BITNET_OK;
}

struct search {
    const struct hub_name *name;
    struct removal *r;
    char commit[HUB_COMMIT_BYTES]; /* "": all */
    bitnet_status status;
    bitnet_error *err;
};

/* Of this repository: the files that the name asks for, in the commits that it means. */
static bool see_snapshot(void *user, const struct hub_snapshot *found)
{
    struct search *q = user;
    struct hub_choice c;
    struct hub_snapshot s;
    if (strcmp(found->repo, q->name->repo) != 0) return true;
    if (q->commit[0] && strcmp(found->commit, q->commit) != 0) return true;
    s = *found; /* the marks are made in the list, which is shared */
    bool some = q->name->file[0] || q->name->tag[0];
    if (some && hub_files_choose(&c, &s.files, q->name, NULL) != BITNET_OK) return true;
    for (size_t i = 0; i < s.files.n && !some; i++) s.files.items[i].picked = true;
    q->status = take_picked(q->r, &s, q->err);
    return q->status == BITNET_OK;
}

/* ------------------------------------------------------------------ what stays */

static bool see_link(void *user, const char *path, const char *full)
{
    struct removal *r = user;
    char target[HUB_PATH_BYTES];
    (void)path;
    if (is_in(&r->gone, full)) return true;
    ssize_t n = readlink(full, target, sizeof target - 1);
    if (n <= 0) return true;
    target[n] = 0;
    const char *slash = strrchr(target, '/');
    return hub_files_add(&r->used, slash ? slash + 1 : target, 0, "", NULL) == BITNET_OK;
}

static bool see_blob(void *user, const char *name)
{
    struct removal *r = user;
    char path[HUB_PATH_BYTES];
    struct stat st;
    bool begun =
        strchr(name, '.') != NULL; /* a download that is not finished, perhaps somebody's */
    if (begun || is_in(&r->used, name) || !hub_path(path, "%s/blobs/%s", r->folder, name) ||
        stat(path, &st) != 0)
        return true;
    r->out->bytes += (uint64_t)st.st_size;
    remove_path(r, path);
    return true;
}

/* ------------------------------------------------------------------ empty folders */

static bool remove_if_empty(const char *folder);

static bool see_inside(void *user, const char *name)
{
    const char *folder = user;
    char path[HUB_PATH_BYTES];
    struct stat st;
    if (!hub_path(path, "%s/%s", folder, name) || lstat(path, &st) != 0) return true;
    if (S_ISDIR(st.st_mode)) remove_if_empty(path);
    return true;
}

/* Also of what is inside. */
static bool remove_if_empty(const char *folder)
{
    hub_each_name(folder, see_inside, (void *)folder);
    return rmdir(folder) == 0;
}

static bool unlink_file(void *user, const char *path, const char *full)
{
    (void)user;
    (void)path;
    unlink(full);
    return true;
}

/* Refs of a commit whose snapshot is gone would lead nowhere. */
static bool see_ref(void *user, const char *path, const char *full)
{
    const char *folder = user;
    char commit[HUB_COMMIT_BYTES], snapshot[HUB_PATH_BYTES];
    if (hub_cache_commit(commit, folder, path) &&
        hub_path(snapshot, "%s/snapshots/%s", folder, commit) && !bn_is_folder(snapshot))
        unlink(full);
    return true;
}

static bool any_name(void *user, const char *name)
{
    (void)name;
    *(bool *)user = true;
    return false;
}

/* What was kept about files that are gone, unless something is left or being downloaded. */
static void tidy(const char *folder, const struct hub_places *p)
{
    static const char *const inside[] = {"refs", ".no_exist", "trees"};
    char path[HUB_PATH_BYTES];
    bool left = false;
    if (hub_path(path, "%s/snapshots", folder)) remove_if_empty(path);
    if (hub_path(path, "%s/refs", folder)) hub_each_file(path, see_ref, (void *)folder);
    if (hub_path(path, "%s/snapshots", folder)) hub_each_name(path, any_name, &left);
    if (hub_path(path, "%s/blobs", folder)) hub_each_name(path, any_name, &left);
    if (left) return;
    for (size_t i = 0; i < BN_ARRAY_LEN(inside); i++)
        if (hub_path(path, "%s/%s", folder, inside[i])) hub_each_file(path, unlink_file, NULL);
    remove_if_empty(folder);
    if (hub_path(path, "%s/.locks/%s", p->cache, strrchr(folder, '/') + 1)) {
        hub_each_file(path, unlink_file, NULL);
        remove_if_empty(path);
    }
}

/* ------------------------------------------------------------------ all of it */

static bitnet_status not_here(const struct hub_name *name, bitnet_error *err)
{
    char text[HUB_TYPED_BYTES];
    hub_name_text(text, name);
    return bn_fail(err, BITNET_E_ARG,
                   "'%.300s' is not in the cache of this machine; 'bitnet list' "
                   "shows what is",
                   text);
}

bitnet_status hub_cache_remove(struct hub_removal *out, const struct hub_places *p,
                               const struct hub_name *name, bool try, bitnet_error *err)
{
    char folder[HUB_PATH_BYTES], path[HUB_PATH_BYTES];
    struct removal r = {.folder = folder, .out = out, .try = try};
    struct search q = {.name = name, .r = &r, .status = BITNET_OK, .err = err};
    *out = (struct hub_removal){.n_files = 0};
    if (!hub_cache_folder(folder, p, name->repo) ||
        (name->revision[0] && !hub_cache_commit(q.commit, folder, name->revision)))
        return not_here(name, err);
    hub_cache_each(p, see_snapshot, &q);
    bitnet_status s = q.status;
    if (s == BITNET_OK && r.gone.n == 0) s = not_here(name, err);
    if (s == BITNET_OK) {
        out->n_files = r.gone.n;
        if (hub_path(path, "%s/snapshots", folder)) hub_each_file(path, see_link, &r);
        for (size_t i = 0; i < r.gone.n; i++) {
            struct stat st;
            const char *link = r.gone.items[i].path;
            if (lstat(link, &st) == 0 && S_ISREG(st.st_mode)) out->bytes += (uint64_t)st.st_size;
            remove_path(&r, link);
        }
        if (hub_path(path, "%s/blobs", folder) && !r.failed) hub_each_name(path, see_blob, &r);
        if (!try) tidy(folder, p);
    }
    if (s == BITNET_OK && r.failed)
        s = bn_fail(err, BITNET_E_IO, "cannot remove '%.300s': %s", r.failed_path,
                    strerror(r.failed));
    hub_files_free(&r.gone);
    hub_files_free(&r.used);
    return s;
}
