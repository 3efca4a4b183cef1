/* SPDX-License-Identifier: Apache-2.0
 * Opening a model: finds out what a path is, hands it to the right reader, and owns what the
 * readers filled: mappings, arena, directory. Metadata getters live in meta.c. */
#include "model/files/source.h"

#include "base/buf.h"
#include "base/parts.h"
#include "model/files/embedded.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

enum { MAX_PATH_BYTES = 4096 };

/* folder/name, owned by the caller; NULL: out of memory */
static char *join(const char *folder, const char *name)
{
    struct bn_buf b;
    bn_buf_init(&b, 2 * MAX_PATH_BYTES);
    bn_buf_printf(&b, "%s/%s", folder, name);
    return bn_buf_take(&b);
}

/* The file inside a folder that is the model: what Hugging Face writes, or the only GGUF there. */
static bitnet_status find_in_folder(char **out, const char *folder, bitnet_error *err)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++) {
        *out = join(folder, names[i]);
        if (!*out) return bn_fail_nomem(err, MAX_PATH_BYTES, folder);
        if (bn_exists(*out)) return BITNET_OK;
        free(*out);
        *out = NULL;
    }
    DIR *dir = opendir(folder);
    if (!dir) return bn_fail(err, BITNET_E_IO, "cannot open folder '%s'", folder);
    size_t n_gguf = 0;
    bitnet_status s = BITNET_OK;
    for (struct dirent *e; s == BITNET_OK && (e = readdir(dir));) {
        unsigned part, of;
        if (e->d_name[0] == '.' || !bn_ends_with(e->d_name, ".gguf")) continue;
        if (bn_part_read(&part, &of, e->d_name, ".gguf") && part > 1)
            continue; /* beside the first */
        if (n_gguf++) continue;
        *out = join(folder, e->d_name);
        if (!*out) s = bn_fail_nomem(err, MAX_PATH_BYTES, folder);
    }
    closedir(dir);
    if (s == BITNET_OK && n_gguf == 0)
        s = bn_fail(err, BITNET_E_FORMAT,
                    "folder '%s' holds no model: no model.safetensors, no "
                    "model.safetensors.index.json and no .gguf file",
                    folder);
    if (s == BITNET_OK && n_gguf > 1)
        s = bn_fail(err, BITNET_E_ARG, "folder '%s' holds %zu .gguf files; name one of them",
                    folder, n_gguf);
    if (s != BITNET_OK) {
        free(*out);
        *out = NULL;
    }
    return s;
}

/* A safetensors file begins with the length of a JSON object. */
static bool looks_like_safetensors(const uint8_t *p, size_t n)
{
    return n >= 10 && p[8] == '{' && bn_load_u64(p) <= BN_MAX_HEADER_BYTES;
}

static bool looks_like_gguf(const uint8_t *p, size_t n)
{
    return n >= 4 && memcmp(p, "GGUF", 4) == 0;
}

static bitnet_status fail_unknown(bitnet_error *err, const char *path, const uint8_t *p, size_t n)
{
    if (n < 4)
        return bn_fail(err, BITNET_E_FORMAT, "'%s' has %zu bytes and is no model file", path, n);
    if (memcmp(p, "FUGG", 4) == 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "'%s' is a big-endian GGUF, which is not read",
                       path);
    if (n >= 8 && memcmp(p, "version ", 8) == 0)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s' is a Git LFS pointer, not the model: fetch it with 'git lfs pull'",
                       path);
    return bn_fail(err, BITNET_E_FORMAT,
                   "'%s' is neither GGUF nor safetensors: it begins with %02x %02x %02x %02x", path,
                   p[0], p[1], p[2], p[3]);
}

#if !BN_HAVE_TEXT /* in the place of safetensors.c, which needs JSON */
bitnet_status bn_safetensors_read(struct bn_source *s, const char *path, bitnet_error *err)
{
    return bn_safetensors_parse(s, NULL, 0, path, err);
}

bitnet_status bn_safetensors_parse(struct bn_source *s, const uint8_t *data, size_t bytes,
                                   const char *name, bitnet_error *err)
{
    (void)s, (void)data, (void)bytes;
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s' is safetensors, and this build was made without JSON: use a GGUF file",
                   name);
}
#endif

static bitnet_status begin(struct bn_source *s, const char *path, bitnet_error *err)
{
    *s = (struct bn_source){0};
    if (strlen(path) >= MAX_PATH_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "the path has %zu bytes; at most %d are accepted",
                       strlen(path), MAX_PATH_BYTES - 1);
    s->path = strdup(path);
    if (!s->path || !bn_map_init(&s->tensor_by_name, 512) || !bn_map_init(&s->meta_by_key, 64))
        return bn_fail_nomem(err, strlen(path) + 16384, path);
    return BITNET_OK;
}

bitnet_status bn_source_map(struct bn_source *s, const char *path, bitnet_error *err)
{
    struct bn_mapping *map = &s->maps[s->n_maps];
    BN_TRY(s->to_read ? bn_map_file_to_read(map, path, err) : bn_map_file(map, path, err));
    s->n_maps++;
    return BITNET_OK;
}

static bitnet_status read_file(struct bn_source *s, const char *path, enum bn_i2s_layout i2s,
                               bitnet_error *err)
{
    s->maps = bn_calloc(BN_MAX_SHARDS, sizeof *s->maps);
    if (!s->maps) return bn_fail_nomem(err, BN_MAX_SHARDS * sizeof *s->maps, path);
    BN_TRY(bn_source_map(s, path, err));
    const struct bn_mapping file = s->maps[0];
    if (looks_like_gguf(file.data, file.bytes)) return bn_gguf_read(s, &file, path, i2s, err);
    bool st = looks_like_safetensors(file.data, file.bytes) || bn_ends_with(path, ".safetensors") ||
              bn_ends_with(path, ".json"); /* an index of shards */
    if (!st) return fail_unknown(err, path, file.data, file.bytes);
    bn_unmap_file(&s->maps[0]);
    s->n_maps = 0;
    return bn_safetensors_read(s, path, err);
}

bitnet_status bn_source_open_memory(struct bn_source *out, const void *data, size_t bytes,
                                    const char *name, bitnet_error *err)
{
    const struct bn_mapping file = {.data = data, .bytes = bytes};
    bitnet_status s = begin(out, name, err);
    if (s == BITNET_OK) {
        if (looks_like_gguf(data, bytes)) {
            s = bn_gguf_read(out, &file, name, BN_I2S_AUTO, err);
        } else if (looks_like_safetensors(data, bytes)) {
            out->format = "safetensors";
            out->file_bytes = bytes;
            s = bn_safetensors_parse(out, data, bytes, name, err);
        } else {
            s = fail_unknown(err, name, data, bytes);
        }
    }
    if (s != BITNET_OK) bn_source_close(out);
    return s;
}

static bitnet_status open_embedded(struct bn_source *out, bitnet_error *err)
{
    size_t bytes;
    const void *data = bn_embedded_model(&bytes);
    *out = (struct bn_source){0};
    if (!data)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "this library was built without an embedded model; name a model file");
    return bn_source_open_memory(out, data, bytes, "embedded model", err);
}

static bool lies_in(const struct bn_tensor *t, const struct bn_mapping *m)
{
    return t->data >= m->data && t->data + t->bytes <= m->data + m->bytes;
}

/* What stands before the first tensor of a file, the metadata, is needed on. */
static bitnet_status detach(struct bn_source *s, bitnet_error *err)
{
    for (size_t i = 0; i < s->n_maps; i++) {
        struct bn_mapping *m = &s->maps[i];
        uint64_t first = m->bytes;
        for (size_t k = 0; k < s->n_tensors; k++)
            if (lies_in(&s->tensors[k], m) && s->tensors[k].offset < first)
                first = s->tensors[k].offset;
        BN_TRY(bn_map_detach(m, err));
        BN_TRY(bn_map_read(m, (void *)m->data, 0, (size_t)first, err));
    }
    return BITNET_OK;
}

static bitnet_status open_path(struct bn_source *out, const char *path, enum bn_i2s_layout i2s,
                               bool to_read, bitnet_error *err)
{
    char *inside = NULL;
    bitnet_status s = begin(out, path, err);
    out->to_read = to_read;
    if (s == BITNET_OK && bn_is_folder(path)) s = find_in_folder(&inside, path, err);
    if (s == BITNET_OK) s = read_file(out, inside ? inside : path, i2s, err);
    if (s == BITNET_OK && inside && out->is_gguf) { /* errors later on should name the file */
        free(out->path);
        out->path = inside;
        inside = NULL;
    }
    free(inside);
    if (s == BITNET_OK && to_read) s = detach(out, err);
    if (s != BITNET_OK) bn_source_close(out);
    return s;
}

bitnet_status bn_source_open(struct bn_source *out, const char *path, enum bn_i2s_layout i2s,
                             bitnet_error *err)
{
    if (!path || !*path) return open_embedded(out, err);
    return open_path(out, path, i2s, false, err);
}

bitnet_status bn_source_open_to_read(struct bn_source *out, const char *path,
                                     enum bn_i2s_layout i2s, bitnet_error *err)
{
    if (!path || !*path) return open_embedded(out, err);
    return open_path(out, path, i2s, true, err);
}

void bn_source_close(struct bn_source *s)
{
    for (size_t i = 0; i < s->n_maps; i++) bn_unmap_file(&s->maps[i]);
    free(s->maps);
    free(s->tensors);
    free(s->meta);
    free(s->path);
    free(s->folder);
    bn_map_free(&s->tensor_by_name);
    bn_map_free(&s->meta_by_key);
    bn_arena_free(&s->arena);
    *s = (struct bn_source){0};
}

bitnet_status bn_source_add_tensor(struct bn_source *s, const struct bn_tensor *t,
                                   bitnet_error *err)
{
    size_t len = strlen(t->name), n = s->n_tensors;
    if (len == 0) return bn_fail(err, BITNET_E_FORMAT, "tensor %zu has an empty name", n);
    if (len >= BN_MAX_NAME_BYTES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "the name of tensor %zu has %zu bytes; at most %d are read", n, len,
                       BN_MAX_NAME_BYTES - 1);
    if (n >= BN_MAX_TENSORS)
        return bn_fail(err, BITNET_E_LIMIT, "more than %d tensors", BN_MAX_TENSORS);
    if (n == 0 || (n >= 16 && (n & (n - 1)) == 0)) { /* full: the room is 16, then powers of two */
        size_t bytes = (n ? 2 * n : 16) * sizeof *s->tensors;
        void *p = realloc(s->tensors, bytes);
        if (!p) return bn_fail_nomem(err, bytes, "the tensor directory");
        s->tensors = p;
    }
    uint32_t index = (uint32_t)n;
    bool existing;
    if (!bn_map_add(&s->tensor_by_name, t->name, len, &index, &existing))
        return bn_fail_nomem(err, len, "the tensor directory");
    if (existing) return bn_fail(err, BITNET_E_FORMAT, "tensor '%s' appears twice", t->name);
    s->tensors[s->n_tensors++] = *t;
    return BITNET_OK;
}

bool bn_source_is_aside(const struct bn_source *s, const char *name)
{
    return !s->is_gguf &&
           (strncmp(name, "model.visual.", 13) == 0 || strncmp(name, "visual.", 7) == 0);
}

const struct bn_tensor *bn_source_tensor(const struct bn_source *s, const char *name)
{
    uint32_t i;
    return bn_map_get(&s->tensor_by_name, name, strlen(name), &i) ? &s->tensors[i] : NULL;
}

struct bn_stored bn_tensor_stored(const struct bn_tensor *t)
{
    return (struct bn_stored){.type = t->type,
                              .data = t->data,
                              .bytes = t->bytes,
                              .rows = t->dims[1] * t->dims[2] * t->dims[3],
                              .cols = t->dims[0],
                              .hf_scale = 1};
}

void bn_source_release(const struct bn_source *s, const struct bn_tensor *t)
{
    for (size_t i = 0; i < s->n_maps; i++) bn_map_release(&s->maps[i], t->data, t->bytes);
}

bool bn_source_copy(const struct bn_source *s, void *to, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < s->n_maps; i++) {
        const struct bn_mapping *m = &s->maps[i];
        if (p >= m->data && p + n <= m->data + m->bytes) return bn_map_copy(m, to, p, n);
    }
    return false;
}

bitnet_status bn_source_fetch_to(const struct bn_source *s, const struct bn_tensor *t, void *to,
                                 bitnet_error *err)
{
    for (size_t i = 0; s->to_read && i < s->n_maps; i++)
        if (lies_in(t, &s->maps[i]))
            return bn_map_read(&s->maps[i], to, t->offset, (size_t)t->bytes, err);
    if (to != t->data) memcpy(to, t->data, (size_t)t->bytes);
    return BITNET_OK;
}

bitnet_status bn_source_fetch(const struct bn_source *s, const struct bn_tensor *t,
                              bitnet_error *err)
{
    return t ? bn_source_fetch_to(s, t, (void *)t->data, err) : BITNET_OK;
}

bitnet_status bn_source_fetch_end(struct bn_source *s, bitnet_error *err)
{
    for (size_t i = 0; s->to_read && i < s->n_maps; i++) BN_TRY(bn_map_read_end(&s->maps[i], err));
    return BITNET_OK;
}
