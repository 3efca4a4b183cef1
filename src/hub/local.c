/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/local.h"

#include "base/os/file.h"
#include "hub/catalogue.h"
#include "hub/ollama.h"
#include "hub/tree.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MANIFEST_MAX_BYTES = 1 << 20 };

/* ------------------------------------------------------------------ one snapshot */

static void of_snapshot(struct hub_local *out, const struct hub_snapshot *s,
                        const struct hub_choice *c)
{
    out->kind = *c->main ? "GGUF" : "safetensors";
    out->where = "hub";
    out->n_files = c->n;
    out->bytes = c->bytes;
    out->modified_s = s->modified_s;
    snprintf(out->revision, sizeof out->revision, "%s", s->revision);
    snprintf(out->commit, sizeof out->commit, "%s", s->commit);
    if (!hub_path(out->path, "%s%s%s", s->folder, *c->main ? "/" : "", c->main)) *out->path = 0;
    if (bn_ends_with(out->path, ".safetensors")) out->kind = "safetensors";
}

static enum hub_here find_in_cache(struct hub_local *out, const struct hub_places *p,
                                   const struct hub_name *name, bitnet_error *why)
{
    struct hub_snapshot s;
    struct hub_choice c;
    enum hub_here here = HUB_NOT_HERE;
    if (hub_cache_open(&s, p, name->repo, name->revision) && s.files.n &&
        hub_files_choose(&c, &s.files, name, why) == BITNET_OK) {
        of_snapshot(out, &s, &c);
        here = hub_files_whole(&s.files, &c) ? HUB_HERE : HUB_PARTLY_HERE;
    }
    hub_snapshot_free(&s);
    return here;
}

/* ------------------------------------------------------------------ Ollama, URLs */

static bool stat_file(const char *path, struct hub_local *out)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    out->bytes = (uint64_t)st.st_size;
    out->modified_s = st.st_mtime;
    out->n_files = 1;
    out->kind = bn_ends_with(path, ".safetensors") ? "safetensors" : "GGUF";
    snprintf(out->path, sizeof out->path, "%s", path);
    return true;
}

static bool of_layer(struct hub_local *out, const struct hub_places *p,
                     const struct hub_layer *layer)
{
    char blob[HUB_PATH_BYTES];
    out->where = "ollama";
    return hub_ollama_blob_path(blob, p, layer->digest) && stat_file(blob, out) &&
           out->bytes == layer->bytes;
}

static enum hub_here find_in_store(struct hub_local *out, const struct hub_places *p,
                                   const struct hub_name *name)
{
    char path[HUB_PATH_BYTES];
    struct bn_json *manifest = NULL;
    struct hub_layer layer;
    bool here = hub_ollama_manifest_path(path, p, name) &&
                bn_json_read_file(&manifest, path, MANIFEST_MAX_BYTES, NULL) == BITNET_OK &&
                hub_manifest_model(&layer, manifest, path, NULL) == BITNET_OK;
    bn_json_free(manifest);
    if (!here) return HUB_NOT_HERE;
    return of_layer(out, p, &layer) ? HUB_HERE : HUB_PARTLY_HERE;
}

bool hub_url_path(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *url)
{
    const char *at = strstr(url, "://");
    if (!at || !p->files[0]) return false;
    size_t n = strcspn(at + 3, "?");
    return hub_path(out, "%s/%.*s", p->files, (int)n, at + 3) && n < HUB_FILE_BYTES &&
           hub_path_is_safe(out + strlen(p->files) + 1);
}

enum hub_here hub_local_find(struct hub_local *out, const struct hub_places *p,
                             const struct hub_name *name, bitnet_error *why)
{
    char path[HUB_PATH_BYTES];
    *out = (struct hub_local){.kind = "", .where = "url"};
    if (why) *why = (bitnet_error){.status = BITNET_OK};
    hub_name_text(out->name, name);
    if (name->kind == HUB_REPO) return find_in_cache(out, p, name, why);
    if (name->kind == HUB_OLLAMA) return find_in_store(out, p, name);
    return hub_url_path(path, p, name->url) && stat_file(path, out) ? HUB_HERE : HUB_NOT_HERE;
}

/* ------------------------------------------------------------------ all of them */

struct walk {
    const struct hub_places *p;
    hub_local_fn *visit;
    void *user;
    bool ended;
};

/* Short, if the short name finds it again. */
static void name_it(struct hub_local *l, const struct walk *w, const struct hub_snapshot *s,
                    const char *file)
{
    struct hub_name n = {.kind = HUB_REPO};
    struct hub_local again;
    const struct hub_model *known = hub_catalogue_of(s->repo);
    bool main = strcmp(s->revision, "main") == 0;
    if (known && main && hub_name_parse(&n, known->name, NULL) == BITNET_OK &&
        hub_local_find(&again, w->p, &n, NULL) == HUB_HERE && strcmp(again.path, l->path) == 0) {
        snprintf(l->name, sizeof l->name, "%s", known->name);
        return;
    }
    n = (struct hub_name){.kind = HUB_REPO};
    snprintf(n.repo, sizeof n.repo, "%s", s->repo);
    if (!main)
        snprintf(n.revision, sizeof n.revision, "%s", *s->revision ? s->revision : s->commit);
    if (hub_local_find(&again, w->p, &n, NULL) != HUB_HERE || strcmp(again.path, l->path) != 0)
        snprintf(n.file, sizeof n.file, "%s", file);
    hub_name_text(l->name, &n);
}

static bool see_snapshot(void *user, const struct hub_snapshot *found)
{
    struct walk *w = user;
    struct hub_snapshot s = *found; /* marks are made in its list */
    struct hub_name n = {.kind = HUB_REPO};
    struct hub_choice c;
    bool gguf = false;
    snprintf(n.repo, sizeof n.repo, "%s", s.repo);
    for (size_t i = 0; i < s.files.n && !w->ended; i++) {
        struct hub_local l = {.kind = ""};
        const char *path = s.files.items[i].path;
        if (!bn_ends_with(path, ".gguf")) continue;
        gguf = true;
        snprintf(n.file, sizeof n.file, "%s", path);
        if (hub_files_choose(&c, &s.files, &n, NULL) != BITNET_OK || c.main != path ||
            !hub_files_whole(&s.files, &c))
            continue;
        of_snapshot(&l, &s, &c);
        name_it(&l, w, &s, path);
        w->ended = !w->visit(w->user, &l);
    }
    n.file[0] = 0;
    if (!gguf && hub_files_choose(&c, &s.files, &n, NULL) == BITNET_OK &&
        hub_files_whole(&s.files, &c)) {
        struct hub_local l = {.kind = ""};
        of_snapshot(&l, &s, &c);
        name_it(&l, w, &s, "");
        w->ended = !w->visit(w->user, &l);
    }
    return !w->ended;
}

static bool see_ollama(void *user, const struct hub_name *name, const struct hub_layer *layer)
{
    struct walk *w = user;
    struct hub_local l = {.kind = ""};
    hub_name_text(l.name, name);
    if (of_layer(&l, w->p, layer)) w->ended = !w->visit(w->user, &l);
    return !w->ended;
}

static bool see_file(void *user, const char *path, const char *full)
{
    struct walk *w = user;
    struct hub_local l = {.where = "url"};
    bool model = bn_ends_with(path, ".gguf") || bn_ends_with(path, ".safetensors");
    snprintf(l.name, sizeof l.name, "https://%s", path);
    if (model && stat_file(full, &l)) w->ended = !w->visit(w->user, &l);
    return !w->ended;
}

void hub_local_each(const struct hub_places *p, hub_local_fn *visit, void *user)
{
    struct walk w = {.p = p, .visit = visit, .user = user};
    hub_cache_each(p, see_snapshot, &w);
    if (!w.ended) hub_ollama_each(p, see_ollama, &w);
    if (!w.ended && p->files[0]) hub_each_file(p->files, see_file, &w);
}
