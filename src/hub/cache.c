/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/cache.h"

#include "base/os/file.h"
#include "hub/tree.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "models--";

void hub_snapshot_free(struct hub_snapshot *s)
{
    hub_files_free(&s->files);
    *s = (struct hub_snapshot){.bytes = 0};
}

bool hub_cache_folder(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *repo)
{
    const char *slash = strchr(repo, '/');
    int n = slash ? snprintf(out, HUB_PATH_BYTES, "%s/%s%.*s--%s", p->cache, prefix,
                             (int)(slash - repo), repo, slash + 1)
                  : snprintf(out, HUB_PATH_BYTES, "%s/%s%s", p->cache, prefix, repo);
    return p->cache[0] && n > 0 && n < HUB_PATH_BYTES;
}

/* "models--org--name" to "org/name"; false: it is something else */
static bool read_folder_name(char out[HUB_REPO_BYTES], const char *name)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
    name += sizeof prefix - 1;
    const char *between = strstr(name, "--");
    int n = between
                ? snprintf(out, HUB_REPO_BYTES, "%.*s/%s", (int)(between - name), name, between + 2)
                : snprintf(out, HUB_REPO_BYTES, "%s", name);
    return *name && n < HUB_REPO_BYTES;
}

static bool is_commit(const char *s) { return hub_is_hex(s, HUB_COMMIT_BYTES - 1); }

static bool read_ref(char out[HUB_COMMIT_BYTES], const char *folder, const char *revision)
{
    char path[HUB_PATH_BYTES], *text = NULL;
    size_t n;
    if (!hub_path(path, "%s/refs/%s", folder, revision) ||
        bn_read_file(&text, &n, path, 256, NULL) != BITNET_OK)
        return false;
    while (n && (text[n - 1] == '\n' || text[n - 1] == ' ')) text[--n] = 0;
    bool good = is_commit(text);
    if (good) memcpy(out, text, HUB_COMMIT_BYTES);
    free(text);
    return good;
}

struct only {
    char name[HUB_COMMIT_BYTES];
    size_t n;
};

static bool see_snapshot(void *user, const char *name)
{
    struct only *o = user;
    if (is_commit(name) && ++o->n == 1) memcpy(o->name, name, HUB_COMMIT_BYTES);
    return true;
}

bool hub_cache_commit(char out[HUB_COMMIT_BYTES], const char *folder, const char *revision)
{
    char path[HUB_PATH_BYTES];
    struct only only = {.n = 0};
    if (read_ref(out, folder, *revision ? revision : "main")) return true;
    if (is_commit(revision)) {
        memcpy(out, revision, HUB_COMMIT_BYTES);
        return true;
    }
    if (*revision || !hub_path(path, "%s/snapshots", folder)) return false;
    hub_each_name(path, see_snapshot, &only);
    if (only.n == 1) memcpy(out, only.name, HUB_COMMIT_BYTES);
    return only.n == 1;
}

/* ------------------------------------------------------------------ snapshots */

static bool see_file(void *user, const char *path, const char *full)
{
    struct hub_snapshot *s = user;
    struct stat st;
    if (stat(full, &st) != 0 || !S_ISREG(st.st_mode)) return true; /* its blob is gone */
    if (hub_files_add(&s->files, path, (uint64_t)st.st_size, "", NULL) != BITNET_OK) return false;
    s->bytes += (uint64_t)st.st_size;
    if (st.st_mtime > s->modified_s) s->modified_s = st.st_mtime;
    return true;
}

struct refs {
    struct hub_snapshot *s;
    const char *folder;
};

static bool see_ref(void *user, const char *path, const char *full)
{
    const struct refs *r = user;
    char commit[HUB_COMMIT_BYTES];
    (void)full;
    bool of_it = read_ref(commit, r->folder, path) && strcmp(commit, r->s->commit) == 0;
    bool better = !r->s->revision[0] || strcmp(path, "main") == 0;
    if (of_it && better && strlen(path) < HUB_REVISION_BYTES)
        snprintf(r->s->revision, HUB_REVISION_BYTES, "%s", path);
    return true;
}

static bool open_commit(struct hub_snapshot *out, const char *folder, const char *repo,
                        const char *commit)
{
    char refs[HUB_PATH_BYTES];
    *out = (struct hub_snapshot){.bytes = 0};
    snprintf(out->repo, sizeof out->repo, "%s", repo);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    if (!hub_path(out->folder, "%s/snapshots/%s", folder, commit) || !bn_is_folder(out->folder))
        return false;
    struct refs r = {out, folder};
    hub_each_file(out->folder, see_file, out);
    if (hub_path(refs, "%s/refs", folder)) hub_each_file(refs, see_ref, &r);
    return true;
}

bool hub_cache_open(struct hub_snapshot *out, const struct hub_places *p, const char *repo,
                    const char *revision)
{
    char folder[HUB_PATH_BYTES], commit[HUB_COMMIT_BYTES];
    *out = (struct hub_snapshot){.bytes = 0};
    return hub_cache_folder(folder, p, repo) && hub_cache_commit(commit, folder, revision) &&
           open_commit(out, folder, repo, commit);
}

struct walk {
    const struct hub_places *p;
    hub_snapshot_fn *visit;
    void *user;
    char folder[HUB_PATH_BYTES], repo[HUB_REPO_BYTES];
};

static bool visit_commit(void *user, const char *name)
{
    struct walk *w = user;
    struct hub_snapshot s;
    bool more = true;
    if (is_commit(name) && open_commit(&s, w->folder, w->repo, name)) more = w->visit(w->user, &s);
    else s = (struct hub_snapshot){.bytes = 0};
    hub_snapshot_free(&s);
    return more;
}

static bool visit_repo(void *user, const char *name)
{
    struct walk *w = user;
    char snapshots[HUB_PATH_BYTES];
    if (!read_folder_name(w->repo, name) || !hub_path(w->folder, "%s/%s", w->p->cache, name) ||
        !hub_path(snapshots, "%s/snapshots", w->folder))
        return true;
    return hub_each_name(snapshots, visit_commit, w);
}

void hub_cache_each(const struct hub_places *p, hub_snapshot_fn *visit, void *user)
{
    struct walk w = {.p = p, .visit = visit, .user = user};
    if (p->cache[0]) hub_each_name(p->cache, visit_repo, &w);
}
