/* SPDX-License-Identifier: Apache-2.0
 * A model file, opened: a directory of tensors that point into read-only mappings, and metadata.
 * Both readers (gguf.c, safetensors.c) fill this; nobody above knows which one it was, except
 * through `format`. */
#ifndef BN_MODEL_FILES_SOURCE_H
#define BN_MODEL_FILES_SOURCE_H

#include "base/os/file.h"
#include "base/map.h"
#include "base/os/mem.h"
#include "model/files/types.h"

/* limits on what a file may claim */
enum {
    BN_MAX_TENSORS = 65536,
    BN_MAX_META = 65536,
    BN_MAX_META_ARRAY = 1 << 24,
    BN_MAX_NAME_BYTES = 512,
    BN_MAX_SHARDS = 256,
    BN_MAX_HEADER_BYTES = 100 << 20 /* safetensors header */
};

/* numbers as in GGUF */
enum bn_meta_type {
    BN_META_U8,
    BN_META_I8,
    BN_META_U16,
    BN_META_I16,
    BN_META_U32,
    BN_META_I32,
    BN_META_F32,
    BN_META_BOOL,
    BN_META_STR,
    BN_META_ARRAY,
    BN_META_U64,
    BN_META_I64,
    BN_META_F64
};

struct bn_meta {
    const char *key;              /* 0-terminated, in the arena */
    enum bn_meta_type type, elem; /* elem: of an ARRAY */
    uint64_t count;               /* elements of an ARRAY, bytes of a STR, else 1 */
    /* the value as it lies in the file (STR: its bytes; ARRAY: first element) */
    const uint8_t *raw;
    uint64_t raw_bytes; /* extent of the value, checked to lie inside the file */
};

struct bn_tensor {
    const char *name; /* as in the file; 0-terminated, in the arena */
    enum bn_type type;
    uint32_t n_dims;
    uint64_t dims[4]; /* innermost first; unused ones are 1 */
    const uint8_t *data;
    uint64_t bytes, offset; /* offset: in its file */
    bool packed;            /* the file has it in packed form only: data is NULL (image.h) */
};

struct bn_source {
    const char *format; /* "GGUF v3", "safetensors" */
    char *path;
    struct bn_arena arena;
    struct bn_mapping *maps; /* [n_maps] */
    size_t n_maps;
    uint64_t file_bytes; /* of all files */
    struct bn_tensor *tensors;
    size_t n_tensors;
    struct bn_map tensor_by_name;
    struct bn_meta *meta; /* GGUF only */
    size_t n_meta;
    struct bn_map meta_by_key;
    bool is_gguf;
    bool to_read; /* files are read, not mapped */
    char *folder; /* safetensors: where config.json and tokenizer.json are looked for */
};

enum bn_i2s_layout { BN_I2S_AUTO, BN_I2S_128, BN_I2S_64, BN_I2S_ROWS4 };

/* path: NULL or "" for the embedded model, else a .gguf, a .safetensors, or a folder with
 * model.safetensors, model.safetensors.index.json or exactly one .gguf. Told apart by content, not
 * by name. Everything is checked here: after success every tensor's extent lies inside its mapping
 * and fits its type and shape. */
bitnet_status bn_source_open(struct bn_source *out, const char *path, enum bn_i2s_layout i2s,
                             bitnet_error *err);
/* The same from memory that outlives the source (the embedded model): GGUF or one safetensors
 * file. */
bitnet_status bn_source_open_memory(struct bn_source *out, const void *data, size_t bytes,
                                    const char *name, bitnet_error *err);
/* The same, but files are not mapped any more when it returns: metadata are in memory, and tensors
 * have to be fetched before they are looked at. */
bitnet_status bn_source_open_to_read(struct bn_source *out, const char *path,
                                     enum bn_i2s_layout i2s, bitnet_error *err);
void bn_source_close(struct bn_source *s);

/* Its bytes to t->data, and to bn_source_release from there, or elsewhere. Of a source that is mapped
 * they are at t->data already. t may be NULL. */
bitnet_status bn_source_fetch(const struct bn_source *s, const struct bn_tensor *t,
                              bitnet_error *err);
bitnet_status bn_source_fetch_to(const struct bn_source *s, const struct bn_tensor *t, void *to,
                                 bitnet_error *err);
/* All is fetched. BITNET_E_IO: a file has changed meanwhile. */
bitnet_status bn_source_fetch_end(struct bn_source *s, bitnet_error *err);

const struct bn_tensor *bn_source_tensor(const struct bn_source *s,
                                         const char *name); /* NULL: absent */
/* Of a checkpoint: part of what is no language model, and left aside. */
bool bn_source_is_aside(const struct bn_source *s, const char *name);
/* Says that a file has it in packed form only. */
bitnet_status bn_tensor_fail_packed(const struct bn_source *s, const struct bn_tensor *t,
                                    bitnet_error *err);
/* The tensor as a matrix: rows = product of the outer dimensions. hf_scale is left 1. */
struct bn_stored bn_tensor_stored(const struct bn_tensor *t);
/* Its pages may leave memory. */
void bn_source_release(const struct bn_source *s, const struct bn_tensor *t);

/* bn_map_copy() of n bytes at p, which belong to the tensor */
bool bn_source_copy(const struct bn_source *s, void *to, const uint8_t *p, size_t n);

/* Metadata getters: false if the key is absent or of another kind. Integers of any width are
 * accepted when the value fits; f32 accepts f64. Strings are not 0-terminated. */
const struct bn_meta *bn_meta_find(const struct bn_source *s, const char *key);
bool bn_meta_u32(const struct bn_source *s, const char *key, uint32_t *out);
bool bn_meta_i64(const struct bn_source *s, const char *key, int64_t *out);
bool bn_meta_f32(const struct bn_source *s, const char *key, float *out);
bool bn_meta_bool(const struct bn_source *s, const char *key, bool *out);
bool bn_meta_str(const struct bn_source *s, const char *key, const char **out, size_t *n);
/* An array of at most `room` whole numbers; *n: how many. */
bool bn_meta_u32s(const struct bn_source *s, const char *key, uint32_t *out, size_t room,
                  size_t *n);
/* Walks the strings of a STR array: call with *cursor = 0 `count` times. */
bool bn_meta_next_str(const struct bn_meta *m, uint64_t *cursor, const char **out, size_t *n);

/* Element i of an array of whole numbers or truth values; false: there is none, or it is larger than
 * 2^63 - 1. */
bool bn_meta_int_at(const struct bn_meta *m, uint64_t i, int64_t *out);

/* The text of an entry's value for people, long arrays cut. Type as "u32", "str[128256]". */
struct bn_buf;
void bn_meta_print(const struct bn_meta *m, struct bn_buf *type, struct bn_buf *value);

/* ---- inside the room: the readers ---- */
bitnet_status bn_gguf_read(struct bn_source *s, const struct bn_mapping *file, const char *path,
                           enum bn_i2s_layout i2s, bitnet_error *err);
/* Tensors that a GGUF has in packed form only, as its metadata list them. (gguf_packed.c) */
bitnet_status bn_gguf_read_packed(struct bn_source *s, bitnet_error *err);
bitnet_status bn_safetensors_read(struct bn_source *s, const char *path, bitnet_error *err);
/* One safetensors file in memory: its header checked and its tensors added. name: for errors. */
bitnet_status bn_safetensors_parse(struct bn_source *s, const uint8_t *data, size_t bytes,
                                   const char *name, bitnet_error *err);
/* The next of s->maps, which has room for it. */
bitnet_status bn_source_map(struct bn_source *s, const char *path, bitnet_error *err);
/* Adds to the directory; refuses duplicates and names that are too long. Used by both readers. The
 * name must lie in s->arena (or outlive the source). */
bitnet_status bn_source_add_tensor(struct bn_source *s, const struct bn_tensor *t,
                                   bitnet_error *err);

#endif
