/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/serve_models.h"

#include "base/parts.h"
#include "base/suggest.h"
#include "hub/catalogue.h"
#include "hub/local.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define GGUF ".gguf"
enum { PATH_BYTES = 4096 };

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n > k && strcmp(s + n - k, end) == 0;
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static struct serve_entry *find(struct serve_models *l, const char *name, size_t n)
{
    for (size_t i = 0; i < l->n; i++)
        if (strlen(l->items[i].name) == n && strncmp(l->items[i].name, name, n) == 0)
            return &l->items[i];
    return NULL;
}

static bitnet_status add(struct serve_models *l, const char *name, size_t n, const char *path,
                         bitnet_error *err)
{
    if (n == 0) return bn_fail(err, BITNET_E_ARG, "the model '%.200s' has no name", path);
    if (find(l, name, n))
        return bn_fail(err, BITNET_E_ARG, "two models have the name '%.*s'; NAME=FILE gives one",
                       (int)bn_min_size(n, 80), name);
    if (l->n == SERVER_MAX_MODELS)
        return bn_fail(err, BITNET_E_LIMIT, "more than %d models", SERVER_MAX_MODELS);
    struct serve_entry *e = &l->items[l->n];
    e->name = bn_arena_strn(&l->texts, name, n);
    e->path = bn_arena_strn(&l->texts, path, strlen(path));
    if (!e->name || !e->path) return bn_fail_nomem(err, n, "a model's name");
    l->n++;
    return BITNET_OK;
}

/* How much of a file's name, n bytes, is the model's: not the ending of its kind, nor which part it is. */
static size_t name_bytes(const char *name, size_t n)
{
    char text[PATH_BYTES];
    unsigned part, of;
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    if (bn_part_read(&part, &of, text, GGUF)) return n - BN_PART_BYTES - strlen(GGUF);
    return ends_with(text, GGUF) ? n - strlen(GGUF) : n;
}

/* The last part of a path, without what does not belong to the model's name. */
static const char *file_name(const char *path, size_t *n)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') len--;
    size_t from = len;
    while (from && path[from - 1] != '/') from--;
    *n = name_bytes(path + from, len - from);
    return path + from;
}

bitnet_status serve_models_add(struct serve_models *l, const char *typed, bitnet_error *err)
{
    const char *equals = strchr(typed, '='), *slash = strchr(typed, '/');
    size_t n;
    bool named = equals && (!slash || equals < slash) && !is_there(typed);
    if (named) return add(l, typed, (size_t)(equals - typed), equals + 1, err);
    const char *name = file_name(typed, &n);
    return add(l, name, n, typed, err);
}

/* ------------------------------------------------------------------ a folder */

/* What a GGUF is that is no model: the eyes of one, and all pieces of one but the first. */
static bool is_part(const char *name)
{
    unsigned part, of;
    return strncmp(name, "mmproj", 6) == 0 || (bn_part_read(&part, &of, name, GGUF) && part > 1);
}

static bool is_model(const char *folder, const char *name)
{
    char path[PATH_BYTES + 32];
    if (*name == '.') return false;
    if (ends_with(name, GGUF)) return !is_part(name);
    snprintf(path, sizeof path, "%s/%s/config.json", folder, name);
    return is_there(path);
}

static int model_filter(const struct dirent *d) { return *d->d_name != '.'; }

bitnet_status serve_models_scan(struct serve_models *l, const char *folder, bitnet_error *err)
{
    struct dirent **found;
    size_t before = l->n;
    int n = scandir(folder, &found, model_filter, alphasort);
    bitnet_status s = BITNET_OK;
    if (n < 0)
        return bn_fail(err, BITNET_E_IO, "cannot read the folder '%.200s': %s", folder,
                       strerror(errno));
    for (int i = 0; i < n; i++) {
        char path[PATH_BYTES];
        const char *name = found[i]->d_name;
        bool long_name = snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path;
        if (s == BITNET_OK && !long_name && is_model(folder, name)) {
            s = add(l, name, name_bytes(name, strlen(name)), path, err);
        }
        free(found[i]);
    }
    free(found);
    if (s == BITNET_OK && l->n == before)
        s = bn_fail(err, BITNET_E_ARG,
                    "there is no model in '%.200s': neither a GGUF nor a folder with a config.json",
                    folder);
    return s;
}

/* Of a file, or of all parts where it is the first one. */
static uint64_t file_bytes(const char *first)
{
    char path[PATH_BYTES];
    unsigned part, of = 1;
    uint64_t sum = 0;
    struct stat st;
    bool split = bn_part_read(&part, &of, first, GGUF) && part == 1;
    if (!split) return stat(first, &st) == 0 ? (uint64_t)st.st_size : 0;
    for (part = 1; part <= of; part++)
        if (bn_part_write(path, sizeof path, first, part, GGUF) && stat(path, &st) == 0)
            sum += (uint64_t)st.st_size;
    return sum;
}

/* ------------------------------------------------------------------ what was downloaded */

struct gathering {
    struct serve_models *l;
    bitnet_error *err;
    bitnet_status status;
};

static bool gather_stored(void *user, const struct hub_local *found)
{
    struct gathering *g = user;
    const char *name = found->name, *prefix = "ollama:";
    if (strncmp(name, prefix, strlen(prefix)) == 0) name += strlen(prefix);
    if (find(g->l, name, strlen(name))) return true; /* the line says otherwise */
    if (g->l->n == SERVER_MAX_MODELS) return false;
    g->status = add(g->l, name, strlen(name), found->path, g->err);
    const struct hub_model *known = hub_catalogue_of(name);
    if (g->status == BITNET_OK && known) g->l->items[g->l->n - 1].alias = known->name;
    return g->status == BITNET_OK;
}

bitnet_status serve_models_stored(struct serve_models *l, const struct hub_places *p,
                                  bitnet_error *err)
{
    struct gathering g = {l, err, BITNET_OK};
    hub_local_each(p, gather_stored, &g);
    return g.status;
}

bitnet_status serve_models_meant(struct hub_name *out, const char *name, bitnet_error *err)
{
    char typed[HUB_TYPED_BYTES];
    bool bare = !strchr(name, '/') && hub_name_likeness(name) != HUB_SURE_NAME;
    if (snprintf(typed, sizeof typed, "%s%s", bare ? "ollama:" : "", name) >= (int)sizeof typed)
        return bn_fail(err, BITNET_E_LIMIT, "the name of the model is too long");
    return hub_name_parse(out, typed, err);
}

uint64_t serve_models_bytes(const char *path)
{
    struct stat st;
    struct dirent **found;
    uint64_t sum = 0;
    if (!path || stat(path, &st) != 0) return 0;
    if (!S_ISDIR(st.st_mode)) return file_bytes(path);
    int n = scandir(path, &found, model_filter, NULL);
    for (int i = 0; i < n; i++) {
        char file[PATH_BYTES];
        bool ok = snprintf(file, sizeof file, "%s/%s", path, found[i]->d_name) < (int)sizeof file;
        bool weights = ends_with(file, ".safetensors") || ends_with(file, GGUF);
        if (ok && weights && stat(file, &st) == 0) sum += (uint64_t)st.st_size;
        free(found[i]);
    }
    if (n >= 0) free(found);
    return sum;
}

/* ------------------------------------------------------------------ options */

static bitnet_status no_such_model(struct serve_models *l, const char *typed, size_t n,
                                   bitnet_error *err)
{
    char name[80];
    struct bn_suggest s;
    snprintf(name, sizeof name, "%.*s", (int)bn_min_size(n, sizeof name - 1), typed);
    bn_suggest_start(&s, name);
    for (size_t i = 0; i < l->n; i++) bn_suggest_offer(&s, l->items[i].name);
    return bn_fail(err, BITNET_E_ARG, "--model-option: there is no model '%s'%s%s%s", name,
                   s.best ? "; did you mean '" : "", s.best ? s.best : "", s.best ? "'?" : "");
}

/* NAME:OPTION=VALUE */
static bitnet_status set_one(struct serve_models *l, const struct opt_part *parts,
                             const char *typed, bitnet_error *err)
{
    const char *equals = strchr(typed, '='), *colon = equals;
    char option[64], source[96];
    while (colon && colon > typed && *colon != ':')
        colon--; /* names may hold one, options do not */
    if (!equals || colon == typed || *colon != ':')
        return bn_fail(err, BITNET_E_ARG, "--model-option expects NAME:OPTION=VALUE, not '%.80s'",
                       typed);
    struct serve_entry *e = find(l, typed, (size_t)(colon - typed));
    if (!e) return no_such_model(l, typed, (size_t)(colon - typed), err);
    snprintf(option, sizeof option, "%.*s", (int)bn_min_size((size_t)(equals - colon - 1), 63),
             colon + 1);
    snprintf(source, sizeof source, "--model-option %.60s", option);
    bitnet_status status = BITNET_OK;
    if (!args_set(e->config, parts, option, source, equals + 1, &status, err))
        return bn_fail(
            err, BITNET_E_ARG,
            "--model-option: '%.60s' is not an option that one model may have for itself", option);
    return status;
}

bitnet_status serve_models_configure(struct serve_models *l, const void *config, size_t bytes,
                                     const struct opt_part *parts, const struct opt_list *typed,
                                     bitnet_error *err)
{
    for (size_t i = 0; i < l->n; i++) {
        l->items[i].config = bn_calloc(1, bytes);
        if (!l->items[i].config) return bn_fail_nomem(err, bytes, "a model's options");
        memcpy(l->items[i].config, config, bytes);
    }
    for (size_t i = 0; i < typed->n; i++) BN_TRY(set_one(l, parts, typed->items[i], err));
    return BITNET_OK;
}

void serve_models_free(struct serve_models *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->items[i].config);
    bn_arena_free(&l->texts);
    *l = (struct serve_models){.n = 0};
}
