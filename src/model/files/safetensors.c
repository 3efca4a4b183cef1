/* SPDX-License-Identifier: Apache-2.0
 * Reading safetensors: one file, or shards listed in an index. A file is the length of its
 * header (u64), the header as JSON {"name": {"dtype", "shape", "data_offsets"}, ...}, then the
 * data, which stays where it is in the mapping. Shapes come outermost first and are turned round
 * here. config.json and the tokenizer beside the file are other readers' business (s->folder). */
#include "model/files/source.h"

#include "base/buf.h"
#include "json/json.h"
#include <stdlib.h>

enum { MAX_INDEX_BYTES = 64 << 20, MAX_SHARD_NAME_BYTES = 255 };

static const struct {
    const char *name;
    enum bn_type type;
} dtypes[] = {{"F32", BN_F32}, {"F16", BN_F16}, {"BF16", BN_BF16}, {"U8", BN_U8},
              {"I8", BN_I8},   {"BOOL", BN_U8}, {"I16", BN_I16},   {"I32", BN_I32},
              {"I64", BN_I64}, {"F64", BN_F64}};

static bitnet_status read_dtype(struct bn_tensor *t, const struct bn_json *v, const char *file,
                                bitnet_error *err)
{
    const char *name = bn_json_text(v);
    if (!name)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%s' has no dtype", file, t->name);
    for (size_t i = 0; i < BN_ARRAY_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            t->type = dtypes[i].type;
            return BITNET_OK;
        }
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s': tensor '%s' has dtype %.16s, which is not read", file, t->name, name);
}

static bitnet_status read_shape(struct bn_tensor *t, uint64_t *rows, const struct bn_json *v,
                                const char *file, bitnet_error *err)
{
    size_t n = bn_json_size(v);
    uint64_t product = 1;
    if (!bn_json_is_array(v))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%s' has no shape", file, t->name);
    if (n > 4)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "'%s': tensor '%s' has %zu dimensions; at most 4 are read", file, t->name,
                       n);
    t->n_dims = n ? (uint32_t)n : 1; /* a scalar is a vector of one */
    *rows = 1;
    for (size_t d = 0; d < 4; d++) {
        t->dims[d] = 1;
        if (d >= n) continue;
        const struct bn_json *item = bn_json_at(v, n - 1 - d);
        int64_t size = bn_json_integer(item);
        if (!bn_json_is_int(item) || size < 0)
            return bn_fail(err, BITNET_E_FORMAT,
                           "'%s': dimension %zu of tensor '%s' is not a whole number", file,
                           n - 1 - d, t->name);
        t->dims[d] = (uint64_t)size;
        if (!bn_mul_u64(&product, product, t->dims[d]) || product > INT64_MAX ||
            (d && !bn_mul_u64(rows, *rows, t->dims[d])))
            return bn_fail(err, BITNET_E_FORMAT,
                           "'%s': the dimensions of tensor '%s' multiply to more than 2^63", file,
                           t->name);
    }
    return BITNET_OK;
}

/* the file's data section */
struct section {
    const uint8_t *data;
    uint64_t at, bytes;
    const char *file;
};

static bitnet_status read_tensor(struct bn_source *s, const struct section *in, const char *name,
                                 const struct bn_json *v, bitnet_error *err)
{
    struct bn_tensor t = {.name = name};
    if (strlen(name) >= BN_MAX_NAME_BYTES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "'%s': a tensor name has %zu bytes; at most %d are read", in->file,
                       strlen(name), BN_MAX_NAME_BYTES - 1);
    if (!bn_json_is_object(v))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': the header's entry '%s' is no object", in->file,
                       name);
    t.name = bn_arena_strn(&s->arena, name, strlen(name));
    if (!t.name) return bn_fail_nomem(err, strlen(name), "a tensor name");
    uint64_t rows = 0, need;
    BN_TRY(read_dtype(&t, bn_json_get(v, "dtype"), in->file, err));
    BN_TRY(read_shape(&t, &rows, bn_json_get(v, "shape"), in->file, err));
    const struct bn_json *range = bn_json_get(v, "data_offsets");
    const struct bn_json *first = bn_json_at(range, 0), *last = bn_json_at(range, 1);
    if (bn_json_size(range) != 2 || !bn_json_is_int(first) || !bn_json_is_int(last))
        return bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%s' has no data_offsets of two numbers",
                       in->file, name);
    int64_t begin = bn_json_integer(first), end = bn_json_integer(last);
    if (begin < 0 || begin > end || (uint64_t)end > in->bytes)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' lies at %lld to %lld of %llu bytes of data", in->file,
                       name, (long long)begin, (long long)end, (unsigned long long)in->bytes);
    t.bytes = (uint64_t)(end - begin);
    if (!bn_type_bytes(&need, t.type, rows, t.dims[0]) || need != t.bytes)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' has %llu bytes, which does not fit its shape and dtype",
                       in->file, name, (unsigned long long)t.bytes);
    t.offset = in->at + (uint64_t)begin;
    t.data = in->data + t.offset;
    return bn_source_add_tensor(s, &t, err);
}

static int by_offset(const void *a, const void *b)
{
    const struct bn_tensor *x = *(const struct bn_tensor *const *)a;
    const struct bn_tensor *y = *(const struct bn_tensor *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty ones first */
    return x < y ? -1 : x > y;
}

/* Holes between tensors are harmless; two tensors on the same bytes are not. */
static bitnet_status check_overlaps(const struct bn_source *s, size_t from, const char *file,
                                    bitnet_error *err)
{
    size_t n = s->n_tensors - from;
    const struct bn_tensor **sorted = bn_calloc(n, sizeof *sorted);
    if (!sorted) return bn_fail_nomem(err, n * sizeof *sorted, "the tensor directory");
    for (size_t i = 0; i < n; i++) sorted[i] = &s->tensors[from + i];
    qsort(sorted, n, sizeof *sorted, by_offset);
    bitnet_status status = BITNET_OK;
    for (size_t i = 1; i < n && status == BITNET_OK; i++)
        if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset)
            status = bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%s' overlaps tensor '%s'", file,
                             sorted[i - 1]->name, sorted[i]->name);
    free(sorted);
    return status;
}

bitnet_status bn_safetensors_parse(struct bn_source *s, const uint8_t *data, size_t bytes,
                                   const char *name, bitnet_error *err)
{
    if (bytes < 8)
        return bn_fail(err, BITNET_E_FORMAT, "'%s' has %zu bytes and is no safetensors file", name,
                       bytes);
    uint64_t header = bn_load_u64(data);
    if (header > BN_MAX_HEADER_BYTES)
        return bn_fail(err, BITNET_E_LIMIT,
                       "'%s': the safetensors header claims %llu bytes; at most %d are read", name,
                       (unsigned long long)header, BN_MAX_HEADER_BYTES);
    if (header > bytes - 8)
        return bn_fail(err, BITNET_E_FORMAT,
                       "'%s' is cut short: the header needs %llu bytes and the file has %zu", name,
                       (unsigned long long)header, bytes);
    struct bn_json *root;
    bitnet_error e;
    bitnet_status status = bn_json_parse(&root, (const char *)data + 8, (size_t)header,
                                         BN_JSON_UNIQUE, "bad safetensors header", &e);
    if (status != BITNET_OK) return bn_fail(err, status, "'%s': %s", name, e.text);
    const struct section in = {data, 8 + header, bytes - 8 - header, name};
    size_t from = s->n_tensors;
    if (!bn_json_is_object(root))
        status = bn_fail(err, BITNET_E_FORMAT, "'%s': the safetensors header is no object", name);
    const char *key;
    struct bn_json *value;
    bn_json_each_member(root, key, value)
    {
        if (status != BITNET_OK) break;
        if (strcmp(key, "__metadata__") != 0) status = read_tensor(s, &in, key, value, err);
    }
    bn_json_free(root);
    return status == BITNET_OK ? check_overlaps(s, from, name, err) : status;
}

/* ------------------------------------------------------------------ files and shards */

/* the part of a path before its last slash, "." if there is none; owned by the caller */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static bitnet_status read_shard(struct bn_source *s, const char *path, bitnet_error *err)
{
    const struct bn_mapping *map = &s->maps[s->n_maps];
    BN_TRY(bn_source_map(s, path, err));
    s->file_bytes += map->bytes;
    return bn_safetensors_parse(s, map->data, map->bytes, path, err);
}

/* A shard's name becomes part of a path: it must not lead out of the folder. */
static bitnet_status check_shard_name(const char *name, const char *path, bitnet_error *err)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_SHARD_NAME_BYTES || strchr(name, '/') || name[0] == '.')
        return bn_fail(err, BITNET_E_FORMAT, "'%s': '%.64s' is no plain file name for a shard",
                       path, name);
    return BITNET_OK;
}

/* After all shards are read: every tensor of the index must have come, from the shard it names. */
static bitnet_status check_index(const struct bn_source *s, struct bn_json *map,
                                 const struct bn_map *shards, const char *path, bitnet_error *err)
{
    const char *key;
    struct bn_json *value;
    bn_json_each_member(map, key, value)
    {
        const struct bn_tensor *t = bn_source_tensor(s, key);
        const char *shard = bn_json_text(value);
        uint32_t i = 0;
        bool known = bn_map_get(shards, shard, strlen(shard), &i);
        const struct bn_mapping *m = &s->maps[i];
        if (!known || !t || t->data < m->data || t->data > m->data + m->bytes)
            return bn_fail(err, BITNET_E_FORMAT, "'%s': tensor '%.128s' is not in '%.128s'", path,
                           key, shard);
    }
    return BITNET_OK;
}

static bitnet_status read_shards(struct bn_source *s, struct bn_json *map, const char *path,
                                 bitnet_error *err)
{
    struct bn_map shards = {0};
    bitnet_status status = BITNET_OK;
    if (!bn_map_init(&shards, 16)) return bn_fail_nomem(err, 1024, "the list of shards");
    const char *key;
    struct bn_json *value;
    bn_json_each_member(map, key, value)
    {
        const char *name = bn_json_text(value);
        uint32_t index = (uint32_t)s->n_maps;
        bool existing = false;
        if (!name)
            status = bn_fail(err, BITNET_E_FORMAT,
                             "'%s': the shard of tensor '%.128s' is no string", path, key);
        else if (!bn_map_add(&shards, name, strlen(name), &index, &existing))
            status = bn_fail_nomem(err, 1024, "the list of shards");
        if (status != BITNET_OK) break;
        if (existing) continue;
        if (s->n_maps == BN_MAX_SHARDS) {
            status =
                bn_fail(err, BITNET_E_LIMIT, "'%s' names more than %d shards", path, BN_MAX_SHARDS);
            break;
        }
        struct bn_buf file;
        bn_buf_init(&file, 1 << 16);
        status = check_shard_name(name, path, err);
        if (status == BITNET_OK) {
            if (bn_buf_printf(&file, "%s/%s", s->folder, name))
                status = read_shard(s, file.data, err);
            else status = bn_fail_nomem(err, 1 << 16, "a path");
        }
        bn_buf_free(&file);
        if (status != BITNET_OK) break;
    }
    if (status == BITNET_OK) status = check_index(s, map, &shards, path, err);
    bn_map_free(&shards);
    return status;
}

static bitnet_status read_index(struct bn_source *s, const char *path, bitnet_error *err)
{
    struct bn_json *root;
    BN_TRY(bn_json_read_file(&root, path, MAX_INDEX_BYTES, err));
    struct bn_json *map = bn_json_get(root, "weight_map");
    bitnet_status status;
    if (bn_json_is_object(map) && bn_json_size(map) > 0) status = read_shards(s, map, path, err);
    else status = bn_fail(err, BITNET_E_FORMAT, "'%s' has no weight_map with tensors in it", path);
    bn_json_free(root);
    return status;
}

bitnet_status bn_safetensors_read(struct bn_source *s, const char *path, bitnet_error *err)
{
    size_t n = strlen(path);
    s->format = "safetensors";
    s->folder = folder_of(path);
    if (!s->folder) return bn_fail_nomem(err, n, path);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0) return read_index(s, path, err);
    return read_shard(s, path, err);
}
