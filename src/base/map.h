/* SPDX-License-Identifier: Apache-2.0
 * Byte string -> u32 hash map: vocabularies, tensor names, metadata keys. Keys are borrowed: they
 * must outlive the map. Seeded by nothing, bounded by the caller's `max` given at init. */
#ifndef BN_BASE_MAP_H
#define BN_BASE_MAP_H

#include "base/base.h"

struct bn_map {
    struct bn_map_slot *slots;
    size_t n, n_slots; /* n_slots: a power of two */
};

bool bn_map_init(struct bn_map *m, size_t expected); /* false: out of memory */
void bn_map_free(struct bn_map *m);
/* Adds or finds. *existing (may be NULL) tells whether the key was there already; then nothing
 * changes and the old value is returned in *value. false: out of memory. */
bool bn_map_add(struct bn_map *m, const char *key, size_t len, uint32_t *value, bool *existing);
bool bn_map_get(const struct bn_map *m, const char *key, size_t len, uint32_t *value);

/* The hash used by the map; good enough to be reused for other tables. */
uint64_t bn_hash(const void *p, size_t n);

#endif
