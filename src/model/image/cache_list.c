/* SPDX-License-Identifier: Apache-2.0 */
#include "model/image/cache.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_DIGITS = 16, MAX_ENTRIES = 4096 };
static const char ending[] = ".bnp";

/* The hexadecimal digits that a name begins with. */
static bool name_key(const char *name, uint64_t *key)
{
    char digits[KEY_DIGITS + 1] = {0}, *end;
    if (strlen(name) < KEY_DIGITS) return false;
    memcpy(digits, name, KEY_DIGITS);
    *key = strtoull(digits, &end, 16);
    return end == digits + KEY_DIGITS;
}

static bool is_entry(const char *name)
{
    uint64_t key;
    return name_key(name, &key) && strcmp(name + KEY_DIGITS, ending) == 0;
}

static bool is_part(const char *name)
{
    uint64_t key;
    return name_key(name, &key) && strncmp(name + KEY_DIGITS, ending, sizeof ending - 1) == 0 &&
           bn_ends_with(name, ".part");
}

/* ------------------------------------------------------------------ entries */

/* Its first line names the file, or the first of several. */
static bool is_current(const char *source, const char *key)
{
    unsigned long long device, inode, bytes;
    long long modified_ns;
    struct stat st;
    return sscanf(key, "file %llx %llu %llu %lld", &device, &inode, &bytes, &modified_ns) == 4 &&
           stat(source, &st) == 0 &&
           (S_ISDIR(st.st_mode) ||
            (st.st_dev == device && st.st_ino == inode && (unsigned long long)st.st_size == bytes &&
             st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec == modified_ns));
}

static bool look(struct bn_cache_entry *e, const char *folder, const char *name)
{
    struct stat st;
    *e = (struct bn_cache_entry){0};
    int n = snprintf(e->path, sizeof e->path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof e->path || stat(e->path, &st) != 0) return false;
    e->bytes = (uint64_t)st.st_size;
    e->used_s = (uint64_t)st.st_mtim.tv_sec;
    struct bn_mapping map;
    struct bn_image_view *v = malloc(sizeof *v);
    if (v && bn_image_map(&map, e->path, NULL) == BITNET_OK) {
        e->good = bn_image_look(v, map.data, map.bytes, e->path, NULL) == BITNET_OK;
        if (e->good) {
            memcpy(e->source, v->path, sizeof e->source);
            e->current = is_current(v->path, v->key);
        }
        bn_unmap_file(&map);
    }
    free(v);
    return true;
}

void bn_cache_walk(const char *folder, bn_cache_entry_fn *fn, void *user)
{
    DIR *dir = opendir(folder);
    struct bn_cache_entry *e = dir ? malloc(sizeof *e) : NULL;
    for (struct dirent *d; e && (d = readdir(dir));)
        if (is_entry(d->d_name) && look(e, folder, d->d_name) && !fn(user, e)) break;
    free(e);
    if (dir) closedir(dir);
}

/* ------------------------------------------------------------------ removing */

static void remove_in(const char *folder, const char *name)
{
    char path[BN_IMAGE_MAX_TEXT];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof path) unlink(path);
}

/* Who writes has the lock of the key. */
static bool is_written(const char *folder, const char *name)
{
    char path[BN_IMAGE_MAX_TEXT];
    struct bn_lock lock;
    uint64_t key;
    snprintf(path, sizeof path, "%s/lock", folder);
    if (!name_key(name, &key) || !bn_lock_open(&lock, path, key)) return true;
    bool taken = bn_lock_take(&lock);
    bn_lock_close(&lock);
    return !taken;
}

void bn_cache_sweep(const char *folder, const char *own)
{
    DIR *dir = opendir(folder);
    const char *name = own ? strrchr(own, '/') : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (!is_part(d->d_name)) continue;
        bool mine = name && strncmp(d->d_name, name + 1, KEY_DIGITS) == 0;
        if (mine || !is_written(folder, d->d_name)) remove_in(folder, d->d_name);
    }
    if (dir) closedir(dir);
}

struct clearing {
    uint64_t n, bytes;
};

static bool remove_entry(void *user, const struct bn_cache_entry *e)
{
    struct clearing *c = user;
    if (unlink(e->path) == 0) {
        c->n++;
        c->bytes += e->bytes;
    }
    return true;
}

void bn_cache_clear(const char *folder, uint64_t *n, uint64_t *bytes)
{
    struct clearing c = {0};
    bn_cache_walk(folder, remove_entry, &c);
    bn_cache_sweep(folder, NULL);
    *n = c.n;
    *bytes = c.bytes;
}

struct old {
    char *path;
    uint64_t bytes, used_s;
    bool stale;
};

struct room {
    struct old *entries;
    size_t n, room;
    uint64_t bytes;
    const char *keep;
};

static bool count(void *user, const struct bn_cache_entry *e)
{
    struct room *r = user;
    if (strcmp(e->path, r->keep) == 0) return true;
    if (r->n >= MAX_ENTRIES ||
        !bn_grow((void **)&r->entries, &r->room, r->n + 1, sizeof *r->entries))
        return false;
    struct old *o = &r->entries[r->n];
    *o = (struct old){strdup(e->path), e->bytes, e->used_s, !e->current};
    r->n += o->path != NULL;
    r->bytes += e->bytes;
    return true;
}

/* What belongs to no file any more goes first. */
static int by_age(const void *x, const void *y)
{
    const struct old *a = x, *b = y;
    if (a->stale != b->stale) return a->stale ? -1 : 1;
    return (a->used_s > b->used_s) - (a->used_s < b->used_s);
}

void bn_cache_make_room(const char *folder, uint64_t bytes, uint64_t max_bytes, const char *keep)
{
    struct room r = {.keep = keep};
    bn_cache_walk(folder, count, &r);
    if (r.n) qsort(r.entries, r.n, sizeof *r.entries, by_age);
    for (size_t i = 0; i < r.n; i++) {
        struct old *o = &r.entries[i];
        if ((o->stale || r.bytes + bytes > max_bytes) && unlink(o->path) == 0) r.bytes -= o->bytes;
        free(o->path);
    }
    free(r.entries);
}

/* ------------------------------------------------------------------ verifying */

/* Where the image begins: the whole file, or a tensor of it. */
static bitnet_status find_image(struct bn_image_view *v, const struct bn_mapping *map,
                                const char *path, bitnet_error *err)
{
    struct bn_source s;
    if (map->bytes < 4 || memcmp(map->data, "GGUF", 4) != 0)
        return bn_image_look(v, map->data, map->bytes, path, err);
    BN_TRY(bn_source_open_memory(&s, map->data, map->bytes, path, err));
    const struct bn_tensor *t = bn_source_tensor(&s, BN_IMAGE_TENSOR);
    bitnet_status status = t ? bn_image_look(v, t->data, (size_t)t->bytes, path, err)
                             : bn_fail(err, BITNET_E_FORMAT, "'%s' holds no packed weights", path);
    bn_source_close(&s);
    return status;
}

static bitnet_status check(const struct bn_image_view *v, const char *path,
                           bitnet_progress_fn progress, void *user, bitnet_error *err)
{
    for (size_t i = 0, n = bn_image_pieces(v); i < n; i++) {
        if (progress && progress(user, "verifying", i, n))
            return bn_fail(err, BITNET_E_CANCELLED, "verifying was stopped");
        if (!bn_image_piece_good(v, v->data, i))
            return bn_fail(err, BITNET_E_FORMAT,
                           "the packed weights in '%s' are damaged: another checksum from byte "
                           "%llu of their data on",
                           path, (unsigned long long)i * BN_IMAGE_PIECE);
    }
    return BITNET_OK;
}

bitnet_status bn_cache_verify(const char *path, bitnet_progress_fn progress, void *user,
                              bitnet_error *err)
{
    struct bn_mapping map;
    BN_TRY(bn_image_map(&map, path, err));
    struct bn_image_view *v = bn_calloc(1, sizeof *v);
    bitnet_status s = v ? find_image(v, &map, path, err)
                        : bn_fail_nomem(err, sizeof *v, "verifying a packed file");
    if (s == BITNET_OK) s = check(v, path, progress, user, err);
    free(v);
    bn_unmap_file(&map);
    return s;
}
