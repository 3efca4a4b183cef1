/* SPDX-License-Identifier: Apache-2.0
 * A model in several GGUF files, as llama.cpp's gguf-split makes them: name-00001-of-00003.gguf has all
 * metadata, every file has a directory and data of its own. The first one is named by the user; the
 * others lie beside it. */
#ifndef BN_MODEL_FILES_GGUF_SPLIT_H
#define BN_MODEL_FILES_GGUF_SPLIT_H

#include "model/files/source.h"

struct bn_gguf_split {
    uint32_t count;     /* of files; 1 where the model is whole */
    uint32_t n_tensors; /* in all of them; 0: not said */
    const char **paths; /* [count] in the source's arena; NULL where the model is whole */
};

/* What the metadata of the file at `path` say, which must be the first one. */
bitnet_status bn_gguf_split_read(struct bn_gguf_split *out, struct bn_source *s, const char *path,
                                 bitnet_error *err);
/* Maps the others, behind the first of s->maps. Those that are missing are named, all of them. */
bitnet_status bn_gguf_split_map(struct bn_source *s, const struct bn_gguf_split *split,
                                bitnet_error *err);
/* Is the file with these metadata the one at paths[k]? */
bitnet_status bn_gguf_split_check(const struct bn_gguf_split *split, uint32_t k,
                                  const struct bn_source *meta, bitnet_error *err);
/* Does the entry say how the file was split, and nothing of the model? */
bool bn_gguf_split_is_key(const char *key);

#endif
