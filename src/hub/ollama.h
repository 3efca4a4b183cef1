/* SPDX-License-Identifier: Apache-2.0
 *
 * ollama.h: an Ollama store on this machine: manifests/HOST/NAMESPACE/MODEL/TAG says which
 * blobs/sha256-DIGEST belong to a model; one layer is a GGUF.
 */
#ifndef BN_HUB_OLLAMA_H
#define BN_HUB_OLLAMA_H

#include "hub/places.h"
#include "json/json.h"

struct hub_layer {
    char digest[65]; /* SHA-256 */
    uint64_t bytes;
};

/* The layer that is the model. what: names the manifest in errors. */
bitnet_status hub_manifest_model(struct hub_layer *out, const struct bn_json *manifest,
                                 const char *what, bitnet_error *err);
/* Every blob of it: the configuration, then the layers. false: there is no i-th. */
bool hub_manifest_layer(struct hub_layer *out, const struct bn_json *manifest, size_t i);

bool hub_ollama_manifest_path(char out[HUB_PATH_BYTES], const struct hub_places *p,
                              const struct hub_name *name);
bool hub_ollama_blob_path(char out[HUB_PATH_BYTES], const struct hub_places *p, const char *digest);

/* Every model whose manifest is here, with its layer. */
typedef bool hub_ollama_fn(void *user, const struct hub_name *name, const struct hub_layer *model);
void hub_ollama_each(const struct hub_places *p, hub_ollama_fn *visit, void *user);

#endif
