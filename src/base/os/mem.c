/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/mem.h"

#include "base/os/sysfiles.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE /* glibc before 2.35 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

void *bn_calloc(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1); /* calloc itself checks the product */
}

void *bn_calloc_now(size_t n, size_t size)
{
    void *p = bn_calloc(n, size);
    if (p) bn_touch(p, n * size);
    return p;
}

/* ------------------------------------------------------------------ pages */

static size_t small_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

void bn_touch(void *p, size_t bytes)
{
    uintptr_t page = small_page(), end = (uintptr_t)p + bytes;
    for (uintptr_t at = (uintptr_t)p; at < end; at = bn_align_up(at + 1, page)) {
        volatile uint8_t *byte = (uint8_t *)at;
        *byte = *byte;
    }
}

void bn_touch_read(const void *p, size_t bytes)
{
    uintptr_t page = small_page(), end = (uintptr_t)p + bytes;
    for (uintptr_t at = (uintptr_t)p; at < end; at = bn_align_up(at + 1, page))
        (void)*(const volatile uint8_t *)at;
}

void bn_touch_file(const void *p, size_t bytes)
{
    uintptr_t page = small_page(), from = (uintptr_t)p & ~(page - 1);
    if (madvise((void *)from, (uintptr_t)p + bytes - from, MADV_POPULATE_READ) != 0)
        bn_touch_read(p, bytes);
}

void bn_wish_huge(const void *p, size_t bytes)
{
    uintptr_t page = small_page(), from = (uintptr_t)p & ~(page - 1);
    madvise((void *)from, (uintptr_t)p + bytes - from, MADV_HUGEPAGE); /* refusal is fine */
}

/* The lines of /proc/self/smaps behind the one of the mapping. */
static uint64_t huge_in(FILE *f, uintptr_t p)
{
    static const char *const kinds_of[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"};
    char line[256];
    uint64_t bytes = 0;
    bool here = false;
    while (fgets(line, sizeof line, f)) {
        unsigned long from, to, kb;
        char after;
        if (sscanf(line, "%lx-%lx%c", &from, &to, &after) == 3) {
            if (here) break;
            here = p >= from && p < to;
        }
        for (size_t i = 0; here && i < BN_ARRAY_LEN(kinds_of); i++)
            if (strncmp(line, kinds_of[i], strlen(kinds_of[i])) == 0 &&
                sscanf(line + strlen(kinds_of[i]), "%lu", &kb) == 1)
                bytes += (uint64_t)kb << 10;
    }
    return bytes;
}

uint64_t bn_huge_bytes(const void *p)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    if (!f) return 0;
    uint64_t bytes = huge_in(f, (uintptr_t)p);
    fclose(f);
    return bytes;
}

static const struct {
    const char *name;
    unsigned bits; /* of the address inside a reserved page; 0: they are not reserved */
} kinds[] = {[BN_PAGES_THP] = {"thp", 0},
             [BN_PAGES_SMALL] = {"off", 0},
             [BN_PAGES_2M] = {"2m", 21},
             [BN_PAGES_1G] = {"1g", 30}};

bitnet_status bn_pages_parse(enum bn_pages *out, const char *name, bitnet_error *err)
{
    *out = BN_PAGES_THP;
    if (!name || strcmp(name, "auto") == 0) return BITNET_OK;
    for (size_t i = 0; i < BN_ARRAY_LEN(kinds); i++)
        if (strcmp(name, kinds[i].name) == 0) {
            *out = (enum bn_pages)i;
            return BITNET_OK;
        }
    return bn_fail(err, BITNET_E_ARG,
                   "huge pages '%s' are unknown; auto, off, thp, 2m and 1g exist", name);
}

const char *bn_pages_name(enum bn_pages pages) { return kinds[pages].name; }

uint64_t bn_pages_free(enum bn_pages pages)
{
    uint64_t n;
    size_t page_kb = ((size_t)1 << kinds[pages].bits) >> 10;
    bool known = bn_sysfiles_u64(
        &bn_sysfiles_here, &n, "/sys/kernel/mm/hugepages/hugepages-%zukB/free_hugepages", page_kb);
    return known ? n : 0;
}

const char *bn_backing_pages(const struct bn_backing *b)
{
    bool missed = kinds[b->pages].bits && (b->missed_bytes || !b->reserved_bytes);
    return kinds[missed ? BN_PAGES_THP : b->pages].name;
}

/* ------------------------------------------------------------------ blocks */

static void *map(size_t bytes, int flags)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* More is mapped than asked for, and what lies before and behind the aligned part is given back. */
static void *map_aligned(size_t bytes)
{
    bytes = bn_align_up(bytes, small_page());
    uint8_t *p = map(bytes + BN_HUGE_PAGE, 0);
    if (!p) return NULL;
    size_t before = bn_align_up((uintptr_t)p, BN_HUGE_PAGE) - (uintptr_t)p;
    if (before) munmap(p, before);
    munmap(p + before + bytes, BN_HUGE_PAGE - before);
    return p + before;
}

/* In pages of the usual size, with a wish for transparent ones; refusal is fine. */
static void *map_wished(size_t bytes, int advice)
{
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = bytes ? bytes : 1;
    void *p = bytes < BN_HUGE_PAGE ? map(bytes, 0) : map_aligned(bytes);
    if (p && (bytes >= BN_HUGE_PAGE || advice == MADV_NOHUGEPAGE)) madvise(p, bytes, advice);
    return p;
}

/* In whole reserved pages, all of them at once: a page that a cgroup does not allow would end the
 * process later. An older kernel cannot be asked for that (EINVAL). */
static void *map_reserved(size_t *bytes, unsigned bits)
{
    size_t page = (size_t)1 << bits;
    if (*bytes > SIZE_MAX / 2 || *bytes < page / 2) return NULL;
    size_t whole = bn_align_up(*bytes, page);
    void *p = map(whole, (int)(MAP_HUGETLB | bits << MAP_HUGE_SHIFT));
    if (p && madvise(p, whole, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        munmap(p, whole);
        p = NULL;
    }
    if (p) *bytes = whole;
    return p;
}

/* As `how` says, but not locked. *reserved: in reserved pages, which are never swapped out. */
static void *map_block(size_t *bytes, struct bn_backing *how, bool *reserved)
{
    enum bn_pages pages = how ? how->pages : BN_PAGES_THP;
    unsigned bits = kinds[pages].bits;
    void *p = bits ? map_reserved(bytes, bits) : NULL;
    *reserved = p != NULL;
    if (!p) p = map_wished(*bytes, pages == BN_PAGES_SMALL ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    if (!p || !bits) return p;
    if (*reserved) how->reserved_bytes += *bytes;
    else if (*bytes >= (size_t)1 << bits >> 1) how->missed_bytes += *bytes;
    return p;
}

void *bn_block_alloc(size_t bytes) { return map_wished(bytes, MADV_HUGEPAGE); }

void bn_block_free(void *p, size_t bytes)
{
    if (p) munmap(p, bytes ? bytes : 1);
}

/* reserved: as in map_block; there is nothing to do. */
static bitnet_status lock(struct bn_backing *how, const void *p, size_t bytes, bool reserved,
                          const char *what, bitnet_error *err)
{
    if (!how || !how->lock || !bytes) return BITNET_OK;
    if (reserved || mlock(p, bytes) == 0) {
        how->locked_bytes += bytes;
        return BITNET_OK;
    }
    char reason[128];
    const char *text = strerror_r(errno, reason, sizeof reason);
    struct rlimit limit = {0};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur == RLIM_INFINITY)
        return bn_fail(err, BITNET_E_LIMIT, "%zu bytes for %s cannot be locked in memory: %s",
                       bytes, what, text);
    return bn_fail(err, BITNET_E_LIMIT,
                   "%zu bytes for %s cannot be locked in memory, with %zu locked before: "
                   "RLIMIT_MEMLOCK is %llu bytes; 'ulimit -l', LimitMEMLOCK=infinity in a systemd "
                   "unit or CAP_IPC_LOCK allow more",
                   bytes, what, how->locked_bytes, (unsigned long long)limit.rlim_cur);
}

bitnet_status bn_backing_lock(struct bn_backing *how, const void *p, size_t bytes, const char *what,
                              bitnet_error *err)
{
    return lock(how, p, bytes, false, what, err);
}

bitnet_status bn_block_take(void **out, size_t *bytes, struct bn_backing *how, const char *what,
                            bitnet_error *err)
{
    bool reserved;
    *out = map_block(bytes, how, &reserved);
    if (!*out) return bn_fail_nomem(err, *bytes, what);
    bitnet_status s = lock(how, *out, *bytes, reserved, what, err);
    if (s != BITNET_OK) {
        bn_block_free(*out, *bytes);
        *out = NULL;
    }
    return s;
}

void *bn_plan_piece(struct bn_plan *p, size_t n, size_t size)
{
    void *at = p->base ? p->base + p->used : NULL;
    p->used += bn_align_up(n * size, 64);
    return at;
}

/* ------------------------------------------------------------------ slabs and arenas */

struct bn_slab_chunk {
    struct bn_slab_chunk *next;
    size_t used, bytes;
    bool reserved; /* as in map_block */
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
        if (s->how) room = bn_max_size(room, (size_t)1 << kinds[s->how->pages].bits);
        bool reserved;
        c = map_block(&room, s->how, &reserved);
        if (!c) return NULL;
        *c = (struct bn_slab_chunk){
            .next = s->chunk, .used = head, .bytes = room, .reserved = reserved};
        s->chunk = c;
    }
    void *p = (uint8_t *)c + c->used;
    c->used += bytes;
    return p;
}

bitnet_status bn_slab_lock(struct bn_slab *s, const char *what, bitnet_error *err)
{
    for (struct bn_slab_chunk *c = s->chunk; c; c = c->next)
        BN_TRY(lock(s->how, c, c->used, c->reserved, what, err));
    return BITNET_OK;
}

void bn_slab_touch(const struct bn_slab *s)
{
    for (const struct bn_slab_chunk *c = s->chunk; c; c = c->next) bn_touch_read(c, c->used);
}

bool bn_slab_span(const struct bn_slab *s, size_t i, const uint8_t **p, size_t *bytes)
{
    const struct bn_slab_chunk *c = s->chunk;
    size_t head = bn_align_up(sizeof *c, 64);
    while (c && i--) c = c->next;
    if (!c) return false;
    *p = (const uint8_t *)c + head;
    *bytes = c->used - head;
    return true;
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
