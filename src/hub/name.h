/* SPDX-License-Identifier: Apache-2.0
 *
 * name.h: names of models that are published somewhere, as people type them.
 *
 *   bitnet-2b                                a short name of the catalogue
 *   org/name  hf:org/name  hf.co/org/name    a repository on the hub, with
 *             ...@revision                     a branch, a tag or a commit
 *             ...:TYPE                         the GGUF file of that type: org/name:TQ2_0
 *             .../file.gguf                    one file (only behind hf: and hf.co/)
 *   https://huggingface.co/org/name/...      the same, as a browser shows it
 *   ollama:[host/][namespace/]model[:tag]    a model of an Ollama registry
 *   https://host/path/file.gguf              a file anywhere
 */
#ifndef BN_HUB_NAME_H
#define BN_HUB_NAME_H

#include "base/status.h"

enum {
    HUB_REPO_BYTES = 208, /* org/name, 96 each */
    HUB_REVISION_BYTES = 128,
    HUB_TAG_BYTES = 132,
    HUB_FILE_BYTES = 512,
    HUB_HOST_BYTES = 264, /* with a port */
    HUB_URL_BYTES = 1024,
    HUB_TYPED_BYTES = HUB_URL_BYTES + 16
};

enum hub_kind { HUB_REPO, HUB_OLLAMA, HUB_URL };

struct hub_model; /* catalogue.h */

struct hub_name {
    enum hub_kind kind;
    char repo[HUB_REPO_BYTES];         /* org/name; of a registry: namespace/model */
    char revision[HUB_REVISION_BYTES]; /* "": the main branch */
    char tag[HUB_TAG_BYTES];           /* type of file; of a registry: its tag; "": none */
    char file[HUB_FILE_BYTES];         /* path in the repository; "": to be chosen */
    char host[HUB_HOST_BYTES];         /* of a registry */
    char url[HUB_URL_BYTES];           /* of HUB_URL, without what stands behind # */
    char sha256[65];                   /* of HUB_URL, where it ends with #sha256=...; else "" */
    const struct hub_model *known;     /* the entry of a short name */
};

/* What a word may be. */
enum hub_likeness {
    HUB_NO_NAME,    /* a file, or text */
    HUB_MAYBE_NAME, /* org/name: also the path of a file */
    HUB_SURE_NAME   /* a short name, or it begins with hf:, ollama:, https:// ... */
};
enum hub_likeness hub_name_likeness(const char *typed);

/* BITNET_E_ARG with a sentence that says what is wrong. */
bitnet_status hub_name_parse(struct hub_name *out, const char *typed, bitnet_error *err);

/* As it would be typed: "org/name:TQ2_0", "ollama:qwen3:8b". */
void hub_name_text(char out[HUB_TYPED_BYTES], const struct hub_name *name);

/* A path inside a repository that may be made on a disk: relative, no empty, "." or ".." parts, no
 * control characters or backslashes. */
bool hub_path_is_safe(const char *path);
bool hub_is_hex(const char *s, size_t n); /* exactly n digits, lower case */

#endif
