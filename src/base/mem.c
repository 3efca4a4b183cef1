/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdlib.h>
#include <sys/mman.h>

void *bn_calloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1); /* calloc itself checks the product */
}

void *bn_block_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    if (bytes == 0) bytes = 1;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, bytes, MADV_HUGEPAGE); /* a wish; refusal is fine */
    return p;
}

void bn_block_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

bool bn_grow(void **items, size_t *room, size_t need, size_t size)
{
    if (need <= *room) return true;
    size_t want = *room < 16 ? 16 : *room + *room / 2;
    if (want < need) want = need;
    uint64_t bytes;
    if (!bn_mul_u64(&bytes, want, size) || bytes > SIZE_MAX / 2) return false;
    void *p = realloc(*items, (size_t)bytes);
    if (!p) return false;
    *items = p;
    *room = want;
    return true;
}

struct bn_arena_chunk {
    struct bn_arena_chunk *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};

enum { ARENA_CHUNK_BYTES = 64 * 1024 };

void *bn_arena_alloc(struct bn_arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = bn_align_up(bytes ? bytes : 1, 8);
    struct bn_arena_chunk *c = a->chunk;
    if (!c || c->room - c->used < bytes) {
        size_t room = bn_max_size(bytes, ARENA_CHUNK_BYTES);
        c = calloc(1, sizeof *c + room);
        if (!c) return NULL;
        c->room = room;
        c->next = a->chunk;
        a->chunk = c;
    }
    void *p = c->bytes + c->used;
    c->used += bytes;
    a->used_bytes += bytes;
    return p;
}

char *bn_arena_strn(struct bn_arena *a, const char *s, size_t n)
{
    char *p = bn_arena_alloc(a, n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = 0;
    }
    return p;
}

void bn_arena_free(struct bn_arena *a)
{
    while (a->chunk) {
        struct bn_arena_chunk *next = a->chunk->next;
        free(a->chunk);
        a->chunk = next;
    }
    a->used_bytes = 0;
}
