/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/ollama.h"

#include "hub/tree.h"
#include <stdio.h>

enum { MANIFEST_MAX_BYTES = 1 << 20 };

static bool read_layer(struct hub_layer *out, const struct bn_json *j)
{
    static const char start[] = "sha256:";
    const char *digest = bn_json_text(bn_json_get(j, "digest"));
    int64_t bytes = bn_json_integer(bn_json_get(j, "size"));
    if (!digest || strncmp(digest, start, sizeof start - 1) != 0 || bytes < 0 ||
        !hub_is_hex(digest + sizeof start - 1, 64))
        return false;
    snprintf(out->digest, sizeof out->digest, "%s", digest + sizeof start - 1);
    out->bytes = (uint64_t)bytes;
    return true;
}

bool hub_manifest_layer(struct hub_layer *out, const struct bn_json *manifest, size_t i)
{
    const struct bn_json *config = bn_json_get(manifest, "config");
    if (config && i == 0) return read_layer(out, config);
    return read_layer(out, bn_json_at(bn_json_get(manifest, "layers"), i - (config != NULL)));
}

bitnet_status hub_manifest_model(struct hub_layer *out, const struct bn_json *manifest,
                                 const char *what, bitnet_error *err)
{
    size_t i;
    const struct bn_json *layer;
    bn_json_each(bn_json_get(manifest, "layers"), i, layer)
    {
        const char *type = bn_json_text(bn_json_get(layer, "mediaType"));
        if (!type || strcmp(type, "application/vnd.ollama.image.model") != 0) continue;
        if (read_layer(out, layer)) return BITNET_OK;
    }
    return bn_fail(err, BITNET_E_FORMAT, "%.300s lists no model", what);
}

bool hub_ollama_manifest_path(char out[HUB_PATH_BYTES], const struct hub_places *p,
                              const struct hub_name *name)
{
    return p->ollama[0] &&
           hub_path(out, "%s/manifests/%s/%s/%s", p->ollama, name->host, name->repo, name->tag);
}

bool hub_ollama_blob_path(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *digest)
{
    return p->ollama[0] && hub_path(out, "%s/blobs/sha256-%s", p->ollama, digest);
}

struct walk {
    hub_ollama_fn *visit;
    void *user;
};

/* path: HOST/NAMESPACE/MODEL/TAG */
static bool see_manifest(void *user, const char *path, const char *full)
{
    const struct walk *w = user;
    struct hub_name name = {.kind = HUB_OLLAMA};
    struct hub_layer model;
    struct bn_json *manifest = NULL;
    const char *repo = strchr(path, '/'), *tag = strrchr(path, '/');
    bool more = true;
    if (!repo || repo == tag || (size_t)(repo - path) >= sizeof name.host ||
        (size_t)(tag - repo) >= sizeof name.repo || strlen(tag) >= sizeof name.tag)
        return true;
    snprintf(name.host, sizeof name.host, "%.*s", (int)(repo - path), path);
    snprintf(name.repo, sizeof name.repo, "%.*s", (int)(tag - repo - 1), repo + 1);
    snprintf(name.tag, sizeof name.tag, "%s", tag + 1);
    if (bn_json_read_file(&manifest, full, MANIFEST_MAX_BYTES, NULL) == BITNET_OK &&
        hub_manifest_model(&model, manifest, full, NULL) == BITNET_OK)
        more = w->visit(w->user, &name, &model);
    bn_json_free(manifest);
    return more;
}

void hub_ollama_each(const struct hub_places *p, hub_ollama_fn *visit, void *user)
{
    char folder[HUB_PATH_BYTES];
    struct walk w = {visit, user};
    if (p->ollama[0] && hub_path(folder, "%s/manifests", p->ollama))
        hub_each_file(folder, see_manifest, &w);
}
