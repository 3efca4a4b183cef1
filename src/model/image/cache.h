/* SPDX-License-Identifier: Apache-2.0
 * Packed weights, kept in a folder for the next time the same file is opened (docs/tune/packed.md). An
 * entry is an image (image.h) under a name made of its key: which files it was made of, in which
 * state, and which layouts. It appears whole or not at all. A lock a key lets one process do the work
 * while others wait for it. Nothing here can fail a model: without the cache it is packed as ever.
 *
 * cache.c        keys, finding, waiting
 * cache_keep.c   writing, by a thread of its own; room for it
 * cache_list.c   what is there */
#ifndef BN_MODEL_IMAGE_CACHE_H
#define BN_MODEL_IMAGE_CACHE_H

#include "base/os/lock.h"
#include "model/image/image.h"

#define BN_CACHE_MIN_BYTES (UINT64_C(256) << 20) /* of weights: below, packing is quick */
#define BN_CACHE_MAX_BYTES (UINT64_C(20) << 30)  /* of all entries */

enum {
    BN_CACHE_WAIT_S = 60,      /* for another process that packs the same */
    BN_CACHE_GRACE_MS = 1000,  /* at least, for an entry that is written when the model is closed */
    BN_CACHE_FREE_PERCENT = 10 /* of the disk stay free */
};

/* Finds the entry of the model's source and puts it into m->image; else m->cache is there to keep it
 * afterwards. progress: asked while another process is waited for; BITNET_E_CANCELLED. */
bitnet_status bn_cache_look(struct bn_model *m, const bitnet_model_options *o, bitnet_error *err);
/* When all is packed: the entry is written in the background, if there is none or the model has more
 * than it. A note says so. (cache_keep.c) */
void bn_cache_keep(struct bn_model *m);
/* Ends the writing: what is nearly done, is finished; what is not, leaves nothing. */
void bn_cache_close(struct bn_model *m);
void bn_cache_wait(const struct bn_model *m); /* until nothing is being written */

/* An entry as it is found in the folder. (cache_list.c) */
struct bn_cache_entry {
    char path[BN_IMAGE_MAX_TEXT], source[BN_IMAGE_MAX_TEXT];
    uint64_t bytes, used_s; /* used_s: when it was last opened, seconds since 1970 */
    bool good;              /* head, record and version are */
    bool current;           /* what it was made of is there, unchanged */
};
/* false from fn: enough. A folder that is not there has no entries. */
typedef bool bn_cache_entry_fn(void *user, const struct bn_cache_entry *e);
void bn_cache_walk(const char *folder, bn_cache_entry_fn *fn, void *user);
/* All entries, and what was left of writing. */
void bn_cache_clear(const char *folder, uint64_t *n, uint64_t *bytes);
/* An entry, or a GGUF with packed weights: every checksum. */
bitnet_status bn_cache_verify(const char *path, bitnet_progress_fn progress, void *user,
                              bitnet_error *err);

/* ---- inside: what the files share ---- */

struct bn_cache {
    char *folder, *path; /* path: of the entry */
    struct bn_buf key;
    struct bn_lock lock;
    bool locked, read_only;
    uint64_t min_bytes, max_bytes;
    struct bn_cache_writer *writer;
};

bool bn_cache_open_lock(struct bn_cache *c); /* false: errno says why not */
/* Removes what dead processes have left of entries. own: the path of one whose lock the caller has,
 * or NULL. */
void bn_cache_sweep(const char *folder, const char *own);
/* Entries go, those used longest ago first, until `bytes` more fit. keep: not this one. */
void bn_cache_make_room(const char *folder, uint64_t bytes, uint64_t max_bytes, const char *keep);

#endif
