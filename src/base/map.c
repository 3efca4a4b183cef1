/* SPDX-License-Identifier: Apache-2.0
 * Open addressing, linear probing, at most half full. */
#include "base/map.h"

#include "base/os/mem.h"
#include <stdlib.h>

struct bn_map_slot {
    const char *key; /* NULL: free */
    uint32_t len, value;
};

uint64_t bn_hash(const void *p, size_t n)
{
    /* 8 bytes a step through a multiply-xorshift mix; the tail is padded with its length */
    const unsigned char *s = p;
    uint64_t h = 0x9e3779b97f4a7c15u ^ n;
    for (; n >= 8; n -= 8, s += 8) {
        h = (h ^ bn_load_u64(s)) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t tail = n;
    for (size_t i = 0; i < n; i++) tail = tail << 8 | s[i];
    h = (h ^ tail) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

bool bn_map_init(struct bn_map *m, size_t expected)
{
    size_t n_slots = 16;
    while (n_slots / 2 < expected && n_slots < SIZE_MAX / 4) n_slots *= 2;
    *m = (struct bn_map){.slots = bn_calloc(n_slots, sizeof(struct bn_map_slot)),
                         .n_slots = n_slots};
    return m->slots != NULL;
}

void bn_map_free(struct bn_map *m)
{
    free(m->slots);
    *m = (struct bn_map){0};
}

/* the key's slot, or the free slot where it belongs */
static struct bn_map_slot *find(const struct bn_map *m, const char *key, size_t len)
{
    for (size_t i = (size_t)bn_hash(key, len);; i++) {
        struct bn_map_slot *s = &m->slots[i & (m->n_slots - 1)];
        if (!s->key || (s->len == len && memcmp(s->key, key, len) == 0)) return s;
    }
}

static bool grow(struct bn_map *m)
{
    struct bn_map bigger;
    if (!bn_map_init(&bigger, m->n_slots)) return false;
    for (size_t i = 0; i < m->n_slots; i++)
        if (m->slots[i].key) *find(&bigger, m->slots[i].key, m->slots[i].len) = m->slots[i];
    bigger.n = m->n;
    free(m->slots);
    *m = bigger;
    return true;
}

bool bn_map_add(struct bn_map *m, const char *key, size_t len, uint32_t *value, bool *existing)
{
    if (len > UINT32_MAX || ((m->n + 1) * 2 > m->n_slots && !grow(m))) return false;
    struct bn_map_slot *s = find(m, key, len);
    if (existing) *existing = s->key != NULL;
    if (s->key) {
        *value = s->value;
        return true;
    }
    *s = (struct bn_map_slot){key, (uint32_t)len, *value};
    m->n++;
    return true;
}

bool bn_map_get(const struct bn_map *m, const char *key, size_t len, uint32_t *value)
{
    if (!m->slots) return false;
    const struct bn_map_slot *s = find(m, key, len);
    if (!s->key) return false;
    *value = s->value;
    return true;
}
