/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/pull.h"

#include "base/buf.h"
#include "base/os/file.h"
#include "hub/fetch.h"
#include "hub/ollama.h"
#include "hub/part.h"
#include "hub/remote.h"
#include "hub/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { SPARE_BYTES = 64 << 20, MAX_LAYERS = 64 };

struct pull {
    const struct hub_net *net;
    const struct hub_name *name;
    const struct hub_pull_view *view;
    bool only_plan;
    const char *what;      /* the file in work */
    const char *digest;    /* and its checksum */
    uint64_t before, file; /* bytes of the files before it, and of it */
    struct hub_pull_plan plan;
};

static void on_progress(void *user, uint64_t done, bool checking)
{
    const struct pull *p = user;
    const struct hub_pull_state s = {.what = p->what,
                                     .done = checking ? done : p->before + done,
                                     .total = checking ? p->file : p->plan.bytes,
                                     .digest = p->digest,
                                     .file_done = done,
                                     .file_bytes = p->file,
                                     .checking = checking};
    if (p->view->progress) p->view->progress(p->view->user, &s);
}

/* ------------------------------------------------------------------ room on the disk */

static bitnet_status check_room(const struct pull *p, const char *folder, const char *how,
                                bitnet_error *err)
{
    struct statvfs v;
    if (!p->plan.missing_bytes || statvfs(folder, &v) != 0) return BITNET_OK;
    uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize,
             need = p->plan.missing_bytes - p->plan.begun_bytes;
    if (need + SPARE_BYTES <= free_bytes) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_LIMIT,
        "%.2f GB are still to be downloaded and %.2f GB are free in '%.200s'; make room, "
        "or let %s name another folder",
        (double)need / 1e9, (double)free_bytes / 1e9, folder, how);
}

static bool has_size(const char *path, uint64_t bytes)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes;
}

static void tell_plan(struct pull *p)
{
    if (p->view->plan) p->view->plan(p->view->user, &p->plan);
}

/* ------------------------------------------------------------------ the hub */

static int smaller_first(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? -1 : 1) : strcmp(x->path, y->path);
}

static void on_waiting(void *user)
{
    const struct pull *p = user;
    if (p->view->waiting) p->view->waiting(p->view->user, p->what);
}

/* As the hub's own clients do while they write a blob: whoever comes second waits. */
static int lock_blob(struct pull *pull, const char *folder, const char *digest)
{
    char path[HUB_PATH_BYTES], locks[HUB_PATH_BYTES];
    const struct hub_waiter waiter = {&pull->net->cancel, on_waiting, pull};
    if (!hub_path(locks, "%s/.locks%s", pull->net->places->cache, strrchr(folder, '/')) ||
        !bn_folder_make(locks) || !hub_path(path, "%s/%s.lock", locks, digest))
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0) hub_lock_file(fd, &waiter);
    return fd;
}

static bitnet_status pull_file(struct pull *p, const char *folder, const struct hub_remote *r,
                               const struct hub_file *f, bitnet_error *err)
{
    char blob[HUB_PATH_BYTES];
    if (!hub_path(blob, "%s/blobs/%s", folder, f->digest))
        return bn_fail(err, BITNET_E_LIMIT, "the path '%.300s' is too long", folder);
    p->what = f->path;
    p->digest = f->digest;
    p->file = f->bytes;
    struct hub_fetch fetch = {.net = p->net,
                              .repo = p->name->repo,
                              .what = f->path,
                              .path = blob,
                              .bytes = f->bytes,
                              .digest = f->digest,
                              .id = "",
                              .user = p,
                              .progress = on_progress,
                              .waiting = on_waiting};
    BN_TRY(hub_remote_url(&fetch.url, p->net, p->name->repo, r->commit, f->path, err));
    int lock = lock_blob(p, folder, f->digest);
    bitnet_status s = has_size(blob, f->bytes) ? BITNET_OK : hub_fetch_file(&fetch, err);
    if (lock >= 0) close(lock);
    p->before += f->bytes;
    return s == BITNET_OK ? hub_cache_link(folder, r->commit, f->path, f->digest, err) : s;
}

/* Others who look for these files need not ask the hub again. */
static void note_missing(const char *folder, const struct hub_remote *r)
{
    static const char *const optional[] = {"generation_config.json", "chat_template.jinja",
                                           "special_tokens_map.json", "added_tokens.json"};
    for (size_t i = 0; i < BN_ARRAY_LEN(optional); i++) {
        bool there = false;
        for (size_t k = 0; k < r->files.n; k++)
            there |= strcmp(r->files.items[k].path, optional[i]) == 0;
        if (!there) hub_cache_note_missing(folder, r->commit, optional[i]);
    }
}

static bitnet_status pull_picked(struct pull *p, struct hub_remote *r, const struct hub_choice *c,
                                 bitnet_error *err)
{
    char folder[HUB_PATH_BYTES], blob[HUB_PATH_BYTES];
    bool whole_folder = !*c->main;
    if (!hub_cache_folder(folder, p->net->places, p->name->repo))
        return bn_fail(err, BITNET_E_ARG, "there is no cache: set HF_HUB_CACHE to a folder");
    for (size_t i = 0; i < r->files.n; i++) {
        const struct hub_file *f = &r->files.items[i];
        if (!f->picked || !hub_path(blob, "%s/blobs/%s", folder, f->digest)) continue;
        if (has_size(blob, f->bytes)) continue;
        p->plan.missing_bytes += f->bytes;
        p->plan.begun_bytes += bn_min_size(hub_part_left(blob), f->bytes);
    }
    p->plan.licence = r->licence;
    p->plan.n_files = c->n;
    p->plan.bytes = c->bytes;
    tell_plan(p);
    if (p->only_plan) return BITNET_OK;
    BN_TRY(hub_cache_prepare(folder, p->net->places, err));
    BN_TRY(check_room(p, folder, "HF_HUB_CACHE", err));
    /* the weights come last: what is there whole can be used */
    qsort(r->files.items, r->files.n, sizeof *r->files.items, smaller_first);
    for (size_t i = 0; i < r->files.n; i++)
        if (r->files.items[i].picked) BN_TRY(pull_file(p, folder, r, &r->files.items[i], err));
    if (whole_folder) note_missing(folder, r);
    const char *revision = p->name->revision[0] ? p->name->revision : "main";
    return strcmp(revision, r->commit) == 0 ? BITNET_OK
                                            : hub_cache_write_ref(folder, revision, r->commit, err);
}

static bitnet_status pull_repo(struct pull *p, bitnet_error *err)
{
    struct hub_remote r = {.gated = false};
    struct hub_choice c;
    bitnet_status s = hub_remote_look(&r, p->net, p->name, err);
    if (s == BITNET_OK) s = hub_files_choose(&c, &r.files, p->name, err);
    if (s == BITNET_OK) s = pull_picked(p, &r, &c, err);
    hub_remote_free(&r);
    return s;
}

/* ------------------------------------------------------------------ registries */

static bitnet_status write_manifest(const struct pull *p, const struct bn_buf *text,
                                    bitnet_error *err)
{
    char path[HUB_PATH_BYTES], folder[HUB_PATH_BYTES];
    struct bn_out o;
    if (!hub_ollama_manifest_path(path, p->net->places, p->name))
        return bn_fail(err, BITNET_E_LIMIT, "the path of the manifest is too long");
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!bn_folder_make(folder))
        return bn_fail(err, BITNET_E_IO, "cannot make the folder '%.300s': %s", folder,
                       strerror(errno));
    BN_TRY(bn_out_open(&o, path, true, err));
    bitnet_status s = bn_out_end(&o, text->data, text->len, err);
    bn_out_close(&o);
    return s;
}

static bitnet_status pull_layer(struct pull *p, const struct hub_layer *l, bitnet_error *err)
{
    char blob[HUB_PATH_BYTES], what[96], shown[96];
    if (!hub_ollama_blob_path(blob, p->net->places, l->digest))
        return bn_fail(err, BITNET_E_LIMIT, "the path of the store is too long");
    snprintf(what, sizeof what, "blobs/sha256:%s", l->digest);
    snprintf(shown, sizeof shown, "layer %.12s", l->digest);
    p->what = shown;
    p->digest = l->digest;
    p->file = l->bytes;
    struct hub_fetch fetch = {.net = p->net,
                              .repo = "",
                              .what = shown,
                              .path = blob,
                              .bytes = l->bytes,
                              .digest = l->digest,
                              .id = "",
                              .user = p,
                              .progress = on_progress,
                              .waiting = on_waiting};
    BN_TRY(hub_registry_url(&fetch.url, p->name, what, err));
    bitnet_status s = has_size(blob, l->bytes) ? BITNET_OK : hub_fetch_file(&fetch, err);
    p->before += l->bytes;
    return s;
}

static bitnet_status pull_layers(struct pull *p, const struct bn_json *manifest,
                                 const struct bn_buf *text, bitnet_error *err)
{
    char path[HUB_PATH_BYTES];
    const struct hub_places *places = p->net->places;
    struct hub_layer layer;
    for (size_t i = 0; i < MAX_LAYERS && hub_manifest_layer(&layer, manifest, i); i++) {
        p->plan.n_files++;
        p->plan.bytes += layer.bytes;
        if (!hub_ollama_blob_path(path, places, layer.digest) || has_size(path, layer.bytes))
            continue;
        p->plan.missing_bytes += layer.bytes;
        p->plan.begun_bytes += bn_min_size(hub_part_left(path), layer.bytes);
    }
    tell_plan(p);
    if (p->only_plan) return BITNET_OK;
    if (!hub_path(path, "%s/blobs", places->ollama) || !bn_folder_make(path))
        return bn_fail(
            err, BITNET_E_IO,
            "cannot make the folder '%.200s/blobs': %s; OLLAMA_MODELS names another store",
            places->ollama, strerror(errno));
    BN_TRY(check_room(p, path, "OLLAMA_MODELS", err));
    for (size_t i = 0; i < MAX_LAYERS && hub_manifest_layer(&layer, manifest, i); i++)
        BN_TRY(pull_layer(p, &layer, err));
    return write_manifest(p, text, err);
}

static bitnet_status pull_registry(struct pull *p, bitnet_error *err)
{
    struct bn_json *manifest;
    struct bn_buf text;
    struct hub_layer model;
    char shown[HUB_TYPED_BYTES];
    hub_name_text(shown, p->name);
    p->plan.licence = "";
    bitnet_status s = hub_registry_look(&text, &manifest, p->net, p->name, err);
    if (s == BITNET_OK) s = hub_manifest_model(&model, manifest, shown, err);
    if (s == BITNET_OK) s = pull_layers(p, manifest, &text, err);
    bn_json_free(manifest);
    bn_buf_free(&text);
    return s;
}

/* ------------------------------------------------------------------ URLs */

static bitnet_status pull_url(struct pull *p, bitnet_error *err)
{
    char path[HUB_PATH_BYTES], folder[HUB_PATH_BYTES], etag[128], id[HUB_ID_BYTES];
    const char *file = strrchr(p->name->url, '/') + 1;
    struct hub_fetch fetch = {.net = p->net,
                              .repo = "",
                              .what = file,
                              .path = path,
                              .digest = p->name->sha256,
                              .id = id,
                              .user = p,
                              .progress = on_progress,
                              .waiting = on_waiting};
    BN_TRY(hub_url_parse(&fetch.url, p->name->url, err));
    if (!fetch.url.tls && !hub_url_is_loopback(&fetch.url) && !p->name->sha256[0])
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "http://%s is not encrypted: anybody on the way could change the file; use "
                       "https, or add #sha256= and its checksum",
                       fetch.url.host);
    if (!hub_url_path(path, p->net->places, p->name->url))
        return bn_fail(err, BITNET_E_ARG, "the URL '%.300s' gives no path to keep the file under",
                       p->name->url);
    BN_TRY(hub_fetch_look(p->net, &fetch.url, file, &fetch.bytes, etag, err));
    snprintf(id, sizeof id, "%s", etag);
    p->what = file;
    p->digest = p->name->sha256;
    p->file = fetch.bytes;
    bool here = has_size(path, fetch.bytes);
    p->plan = (struct hub_pull_plan){"", 1, fetch.bytes, here ? 0 : fetch.bytes, 0};
    if (!here) p->plan.begun_bytes = bn_min_size(hub_part_left(path), fetch.bytes);
    tell_plan(p);
    if (p->only_plan || here) return BITNET_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!bn_folder_make(folder))
        return bn_fail(err, BITNET_E_IO, "cannot make the folder '%.300s': %s", folder,
                       strerror(errno));
    BN_TRY(check_room(p, folder, "XDG_DATA_HOME", err));
    return hub_fetch_file(&fetch, err);
}

bitnet_status hub_pull(struct hub_local *out, const struct hub_net *net,
                       const struct hub_name *name, const struct hub_pull_view *view,
                       bool only_plan, bitnet_error *err)
{
    struct pull p = {.net = net, .name = name, .view = view, .only_plan = only_plan};
    bitnet_status s = name->kind == HUB_REPO     ? pull_repo(&p, err)
                      : name->kind == HUB_OLLAMA ? pull_registry(&p, err)
                                                 : pull_url(&p, err);
    if (s != BITNET_OK || only_plan) return s;
    if (hub_local_find(out, net->places, name, err) == HUB_HERE) return BITNET_OK;
    return bn_fail(err, BITNET_E_INTERNAL, "%s was downloaded and is not found", name->repo);
}
