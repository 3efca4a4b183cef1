/* SPDX-License-Identifier: Apache-2.0 */
#include "model/image/cache.h"

#include "base/checksum.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SAMPLES = 16,
    SAMPLE_BYTES = 4096,
    MAX_HASHED_HEADER = 64 << 20,
    KEY_MAX_BYTES = BN_IMAGE_MAX_TEXT - 1,
    POLL_MS = 20
};

/* ------------------------------------------------------------------ the key */

/* What stands before the first tensor, and blocks all over the file. */
static uint64_t sample(const struct bn_source *s, const struct bn_mapping *map)
{
    uint64_t first = map->bytes, sums[SAMPLES + 1];
    for (size_t i = 0; i < s->n_tensors; i++) {
        const uint8_t *data = s->tensors[i].data;
        if (data >= map->data && data < map->data + map->bytes &&
            (uint64_t)(data - map->data) < first)
            first = (uint64_t)(data - map->data);
    }
    sums[SAMPLES] = bn_checksum(map->data, bn_min_size((size_t)first, MAX_HASHED_HEADER));
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t n = bn_min_size(SAMPLE_BYTES, map->bytes), room = map->bytes - n;
        sums[i] = bn_checksum(map->data + room / (SAMPLES - 1) * i, n);
    }
    return bn_checksum(sums, sizeof sums);
}

static void put_file(struct bn_buf *key, const struct bn_file_id *id, uint64_t sum)
{
    bn_buf_printf(key, "file %llx %llu %llu %lld %016llx\n", (unsigned long long)id->device,
                  (unsigned long long)id->inode, (unsigned long long)id->bytes,
                  (long long)id->modified_ns, (unsigned long long)sum);
}

/* The configuration decides what weights mean; that of a GGUF is in its header. */
static void put_config(struct bn_buf *key, const char *folder)
{
    struct bn_mapping map;
    struct bn_buf path;
    if (!folder) return;
    bn_buf_init(&path, BN_IMAGE_MAX_TEXT);
    bn_buf_printf(&path, "%s/config.json", folder);
    if (path.data && bn_map_file(&map, path.data, NULL) == BITNET_OK) {
        put_file(key, &map.id, bn_checksum(map.data, map.bytes));
        bn_unmap_file(&map);
    }
    bn_buf_free(&path);
}

static bool make_key(struct bn_buf *key, const struct bn_model *m, const char *i2s)
{
    const struct bn_source *s = &m->source;
    bn_buf_init(key, KEY_MAX_BYTES);
    for (size_t i = 0; i < s->n_maps; i++) {
        if (!s->maps[i].id.links || !s->maps[i].bytes) return false; /* it has no name any more */
        put_file(key, &s->maps[i].id, sample(s, &s->maps[i]));
    }
    put_config(key, s->folder);
    bn_buf_printf(key, "layouts %s %s\ni2s %s\nversion %d\n", m->gemm->layout,
                  m->gemm_binary->layout, i2s ? i2s : "auto", BN_IMAGE_VERSION);
    return !key->failed;
}

/* ------------------------------------------------------------------ finding */

/* One that does not fit its name is passed over, and written anew. */
static bool find(struct bn_model *m)
{
    struct bn_cache *c = m->cache;
    struct bn_image *i = &m->image;
    if (bn_image_map(&i->map, c->path, NULL) != BITNET_OK) return false;
    i->view = bn_calloc(1, sizeof *i->view);
    i->path = strdup(c->path);
    if (i->view && i->path &&
        bn_image_look(i->view, i->map.data, i->map.bytes, c->path, NULL) == BITNET_OK &&
        strcmp(i->view->key, c->key.data) == 0) {
        i->entry = true;
        utimensat(AT_FDCWD, c->path, NULL, 0); /* used now; refusal is fine */
        return true;
    }
    bn_image_close(m);
    return false;
}

/* Another process packs the same model: what it has made is taken, if it comes in time. Returns with
 * the lock, or without it. */
static bitnet_status wait_for(struct bn_cache *c, const bitnet_model_options *o, bitnet_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
    uint64_t start = bn_now_ns(), limit = BN_CACHE_WAIT_S * UINT64_C(1000000000), waited = 0;
    bn_lock_ask(&c->lock);
    while (!(c->locked = bn_lock_take(&c->lock)) && waited < limit) {
        if (o->progress &&
            o->progress(o->progress_user, "another process packs this model", waited, limit))
            return bn_fail(err, BITNET_E_CANCELLED, "loading was stopped");
        nanosleep(&pause, NULL);
        waited = bn_now_ns() - start;
    }
    return BITNET_OK;
}

bool bn_cache_open_lock(struct bn_cache *c)
{
    struct bn_buf path;
    bn_buf_init(&path, BN_IMAGE_MAX_TEXT);
    bn_buf_printf(&path, "%s/lock", c->folder);
    bool ok = path.data && bn_folder_make(c->folder) &&
              bn_lock_open(&c->lock, path.data, bn_checksum(c->key.data, c->key.len));
    bn_buf_free(&path);
    return ok;
}

static void note_unusable(struct bn_model *m)
{
    char text[128];
    bn_buf_printf(&m->note,
                  "%sNo packed copy of the model is kept: '%s' cannot be written (%s); --no-cache "
                  "does not try.",
                  m->note.len ? " " : "", m->cache->folder, strerror_r(errno, text, sizeof text));
}

static struct bn_cache *open_cache(const struct bn_model *m, const bitnet_model_options *o)
{
    struct bn_cache *c = bn_calloc(1, sizeof *c);
    struct bn_buf path;
    if (!c) return NULL;
    c->lock.fd = -1;
    c->read_only = o->cache_read_only != 0;
    c->min_bytes = o->cache_min_bytes ? o->cache_min_bytes : BN_CACHE_MIN_BYTES;
    c->max_bytes = o->cache_max_bytes ? o->cache_max_bytes : BN_CACHE_MAX_BYTES;
    c->folder = strdup(o->cache);
    bn_buf_init(&path, BN_IMAGE_MAX_TEXT);
    if (c->folder && make_key(&c->key, m, o->i2s_layout))
        bn_buf_printf(&path, "%s/%016llx.bnp", o->cache,
                      (unsigned long long)bn_checksum(c->key.data, c->key.len));
    c->path = path.len ? bn_buf_take(&path) : NULL;
    if (c->path) return c;
    bn_buf_free(&c->key);
    free(c->folder);
    free(c);
    return NULL;
}

bitnet_status bn_cache_look(struct bn_model *m, const bitnet_model_options *o, bitnet_error *err)
{
    uint64_t least = o->cache_min_bytes ? o->cache_min_bytes : BN_CACHE_MIN_BYTES;
    if (!o->cache || !*o->cache || !m->source.n_maps || m->source.to_read ||
        m->source.file_bytes < least)
        return BITNET_OK;
    m->cache = open_cache(m, o);
    if (!m->cache || find(m)) return BITNET_OK;
    if (o->cache_read_only) return BITNET_OK;
    if (!bn_cache_open_lock(m->cache)) {
        note_unusable(m);
        return BITNET_OK;
    }
    m->cache->locked = bn_lock_take(&m->cache->lock);
    if (!m->cache->locked) BN_TRY(wait_for(m->cache, o, err));
    /* it may have come meanwhile */
    if (find(m)) {
        bn_lock_close(&m->cache->lock);
        m->cache->locked = false;
    }
    return BITNET_OK;
}
