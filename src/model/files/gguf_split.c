/* SPDX-License-Identifier: Apache-2.0 */
#include "model/files/gguf_split.h"

#include "base/parts.h"
#include <stdio.h>

#define ENDING ".gguf"
static const char no_key[] = "split.no", count_key[] = "split.count",
                  tensors_key[] = "split.tensors.count";
enum { LIST_BYTES = 256, SPARE_BYTES = 24 };

bool bn_gguf_split_is_key(const char *key) { return strncmp(key, "split.", 6) == 0; }

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Its name says the number and the count that its metadata say. */
static bool is_named(const char *path, uint32_t no, uint32_t count)
{
    unsigned part, of;
    return bn_part_read(&part, &of, path, ENDING) && part == no + 1 && of == count;
}

static bitnet_status fail_not_first(const char *path, uint32_t no, uint32_t count,
                                    bitnet_error *err)
{
    char first[LIST_BYTES];
    bool known =
        is_named(path, no, count) && bn_part_write(first, sizeof first, last_part(path), 1, ENDING);
    return bn_fail(err, BITNET_E_ARG,
                   "'%s' is part %u of %u of a split model; name the first one%s%s", path, no + 1,
                   count, known ? ": " : "", known ? first : "");
}

static bitnet_status make_paths(struct bn_gguf_split *out, struct bn_source *s, const char *path,
                                bitnet_error *err)
{
    size_t bytes = out->count * sizeof *out->paths, room = strlen(path) + 1;
    out->paths = bn_arena_alloc(&s->arena, bytes);
    if (!out->paths) return bn_fail_nomem(err, bytes, path);
    for (uint32_t k = 0; k < out->count; k++) {
        char *other = bn_arena_alloc(&s->arena, room);
        if (!other) return bn_fail_nomem(err, room, path);
        bn_part_write(other, room, path, k + 1, ENDING);
        out->paths[k] = other;
    }
    return BITNET_OK;
}

bitnet_status bn_gguf_split_read(struct bn_gguf_split *out, struct bn_source *s, const char *path,
                                 bitnet_error *err)
{
    uint32_t no = 0, count;
    *out = (struct bn_gguf_split){.count = 1};
    if (!bn_meta_u32(s, count_key, &count) || count <= 1) return BITNET_OK;
    out->count = count;
    bn_meta_u32(s, no_key, &no);
    bn_meta_u32(s, tensors_key, &out->n_tensors);
    if (count > BN_MAX_SHARDS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' is one of %u parts; at most %d are read", path,
                       count, BN_MAX_SHARDS);
    if (no >= count)
        return bn_fail(err, BITNET_E_FORMAT, "'%s': %s (%u) is not below %s (%u)", path, no_key, no,
                       count_key, count);
    if (no) return fail_not_first(path, no, count, err);
    if (!s->maps)
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "'%s' is one of %u parts of a split model, and the others are not looked for "
            "in memory",
            path, count);
    if (!is_named(path, 0, count))
        return bn_fail(err, BITNET_E_ARG,
                       "'%s' is part 1 of %u of a split model, and by this name the others are not "
                       "found: it must end in -00001-of-%05u" ENDING,
                       path, count, count);
    return make_paths(out, s, path, err);
}

/* Names those that are not there, as many as have room. */
static bitnet_status fail_missing(const struct bn_gguf_split *split, uint32_t n, bitnet_error *err)
{
    char list[LIST_BYTES];
    size_t at = 0;
    for (uint32_t k = 1, left = n; k < split->count; k++) {
        const char *name = last_part(split->paths[k]);
        if (bn_exists(split->paths[k])) continue;
        if (at + strlen(name) + SPARE_BYTES > sizeof list) {
            snprintf(list + at, sizeof list - at, "%s%u more", at ? " and " : "", left);
            break;
        }
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", name);
        left--;
    }
    return bn_fail(err, BITNET_E_IO, "'%s' is part 1 of %u, and %u of the others %s missing: %s",
                   split->paths[0], split->count, n, n == 1 ? "is" : "are", list);
}

bitnet_status bn_gguf_split_map(struct bn_source *s, const struct bn_gguf_split *split,
                                bitnet_error *err)
{
    uint32_t missing = 0;
    for (uint32_t k = 1; k < split->count; k++) missing += !bn_exists(split->paths[k]);
    if (missing) return fail_missing(split, missing, err);
    for (uint32_t k = 1; k < split->count; k++) BN_TRY(bn_source_map(s, split->paths[k], err));
    return BITNET_OK;
}

bitnet_status bn_gguf_split_check(const struct bn_gguf_split *split, uint32_t k,
                                  const struct bn_source *meta, bitnet_error *err)
{
    uint32_t no = 0, count = 0;
    if (bn_meta_u32(meta, no_key, &no) && bn_meta_u32(meta, count_key, &count) && no == k &&
        count == split->count)
        return BITNET_OK;
    if (count <= 1)
        return bn_fail(err, BITNET_E_FORMAT, "'%s' is no part of a split model, but for its name",
                       split->paths[k]);
    return bn_fail(err, BITNET_E_FORMAT,
                   "'%s' says of itself that it is part %llu of %u, not what its name says",
                   split->paths[k], (unsigned long long)no + 1, count);
}
