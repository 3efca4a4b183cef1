/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *bn_calloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1); /* calloc itself checks the product */
}

static void *map_block(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* More is mapped than asked for, and what lies before and behind the aligned part is given back. */
static void *map_aligned(size_t bytes)
{
    bytes = bn_align_up(bytes, (size_t)sysconf(_SC_PAGESIZE));
    uint8_t *p = map_block(bytes + BN_HUGE_PAGE);
    if (!p) return NULL;
    size_t before = bn_align_up((uintptr_t)p, BN_HUGE_PAGE) - (uintptr_t)p;
    if (before) munmap(p, before);
    munmap(p + before + bytes, BN_HUGE_PAGE - before);
    madvise(p + before, bytes, MADV_HUGEPAGE); /* a wish; refusal is fine */
    return p + before;
}

void *bn_block_alloc(size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    return bytes < BN_HUGE_PAGE ? map_block(bytes ? bytes : 1) : map_aligned(bytes);
}

void bn_block_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

void *bn_plan_piece(struct bn_plan *p, size_t n, size_t size)
{
    void *at = p->base ? p->base + p->used : NULL;
    p->used += bn_align_up(n * size, 64);
    return at;
}

struct bn_slab_chunk {
    struct bn_slab_chunk *next;
    size_t used, bytes;
};

enum { SLAB_CHUNK_BYTES = 32 * BN_HUGE_PAGE };

void *bn_slab_alloc(struct bn_slab *s, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = bn_align_up(bytes, 64);
    struct bn_slab_chunk *c = s->chunk;
    if (!c || c->bytes - c->used < bytes) {
        size_t head = bn_align_up(sizeof *c, 64);
        size_t room = bn_max_size(head + bytes, SLAB_CHUNK_BYTES);
        c = bn_block_alloc(room);
        if (!c) return NULL;
        *c = (struct bn_slab_chunk){.next = s->chunk, .used = head, .bytes = room};
        s->chunk = c;
    }
    void *p = (uint8_t *)c + c->used;
    c->used += bytes;
    return p;
}

void bn_slab_free(struct bn_slab *s)
{
    while (s->chunk) {
        struct bn_slab_chunk *next = s->chunk->next;
        bn_block_free(s->chunk, s->chunk->bytes);
        s->chunk = next;
    }
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
