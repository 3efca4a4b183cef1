/* SPDX-License-Identifier: Apache-2.0
 * Memory: zeroed arrays with checked sizes, large aligned blocks, a slab for large and an arena for
 * small things that die together. */
#ifndef BN_BASE_OS_MEM_H
#define BN_BASE_OS_MEM_H

#include "base/status.h"

/* Zeroed; NULL if n * size overflows or memory is out. Freed with free(). */
void *bn_calloc(size_t n, size_t size);
/* The same, and its pages are there: for what grows while no page fault is wanted any more. */
void *bn_calloc_now(size_t n, size_t size);

/* Pages are brought into memory, with what is in them; those of bn_touch can then be written. */
void bn_touch(void *p, size_t bytes);
void bn_touch_read(const void *p, size_t bytes);
/* The same for much of a file that is mapped, all at once. Huge pages are asked for apart, and for all
 * of it together: what is asked for becomes a mapping of its own. */
void bn_touch_file(const void *p, size_t bytes);
void bn_wish_huge(const void *p, size_t bytes);
/* Of the mapping that p lies in: bytes that lie in huge pages now. */
uint64_t bn_huge_bytes(const void *p);

/* A large block: page aligned, zeroed. From BN_HUGE_PAGE on it is aligned to that, and transparent
 * huge pages are asked for. Freed with its size. */
enum { BN_HUGE_PAGE = 2 * 1024 * 1024 };
void *bn_block_alloc(size_t bytes);
void bn_block_free(void *p, size_t bytes);

/* What large blocks lie in: transparent huge pages, small ones, or huge ones of a fixed size, which
 * the administrator has to reserve. */
enum bn_pages { BN_PAGES_THP, BN_PAGES_SMALL, BN_PAGES_2M, BN_PAGES_1G };
/* NULL, "auto" and "thp"; "off"; "2m"; "1g" */
bitnet_status bn_pages_parse(enum bn_pages *out, const char *name, bitnet_error *err);
const char *bn_pages_name(enum bn_pages pages);
/* Reserved pages of this size that are free; 0 also if it cannot be told. */
uint64_t bn_pages_free(enum bn_pages pages);

/* How blocks are to be had, handed down to all who take some, and what has come of it. */
struct bn_backing {
    enum bn_pages pages;                 /* asked for */
    bool lock;                           /* kept in memory: never swapped out */
    size_t reserved_bytes, missed_bytes; /* in reserved pages; in transparent ones instead */
    size_t locked_bytes;
};
/* "off", "thp", "2m", "1g": what its blocks lie in. If some do not lie in what was asked for, "thp". */
const char *bn_backing_pages(const struct bn_backing *b);

/* A block as `how` says (NULL: as bn_block_alloc has it). *bytes becomes what it takes, with which it
 * is freed: reserved pages are whole. Blocks below half such a page do not ask for one.
 * BITNET_E_LIMIT: it cannot be locked. */
bitnet_status bn_block_take(void **out, size_t *bytes, struct bn_backing *how, const char *what,
                            bitnet_error *err);
/* Locks memory that was had elsewhere, if `how` says so; unmapping it unlocks it. */
bitnet_status bn_backing_lock(struct bn_backing *how, const void *p, size_t bytes, const char *what,
                              bitnet_error *err);

/* Pieces of one such block, laid out twice: first with base NULL, which only measures. 64-byte
 * aligned. */
struct bn_plan {
    uint8_t *base;
    size_t used;
};
void *bn_plan_piece(struct bn_plan *p, size_t n, size_t size);

/* Pieces of such blocks, one after the other, so that matrices smaller than a huge page share one.
 * One free for all. Zero-initialise it. */
struct bn_slab {
    struct bn_slab_chunk *chunk; /* newest first */
    struct bn_backing *how;      /* NULL: as bn_block_alloc has it */
};
void *bn_slab_alloc(struct bn_slab *s,
                    size_t bytes); /* 64-byte aligned, zeroed; NULL: out of memory */
/* What has been handed out is locked, if s->how says so. */
bitnet_status bn_slab_lock(struct bn_slab *s, const char *what, bitnet_error *err);
void bn_slab_touch(const struct bn_slab *s); /* reads */
/* What was handed out lies in pieces: piece i, 64-byte aligned; false: there are no more. */
bool bn_slab_span(const struct bn_slab *s, size_t i, const uint8_t **p, size_t *bytes);
void bn_slab_free(struct bn_slab *s);

/* Grows *items (elements of `size` bytes) so that it holds at least `need`. false: out of memory,
 * *items is still valid. */
bool bn_grow(void **items, size_t *room, size_t need, size_t size);

/* Bump allocation, one free for all. Zero-initialise it; bn_arena_free() leaves it reusable. */
struct bn_arena {
    struct bn_arena_chunk *chunk; /* newest first */
    size_t used_bytes;            /* handed out in all */
};
void *bn_arena_alloc(struct bn_arena *a,
                     size_t bytes); /* 8-byte aligned, zeroed; NULL: out of memory */
char *bn_arena_strn(struct bn_arena *a, const char *s, size_t n); /* 0-terminated copy */
void bn_arena_free(struct bn_arena *a);

#endif
