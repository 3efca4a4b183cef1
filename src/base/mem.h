/* SPDX-License-Identifier: Apache-2.0
 * Memory: zeroed arrays with checked sizes, large aligned blocks, a slab for large and an arena for
 * small things that die together. */
#ifndef BN_BASE_MEM_H
#define BN_BASE_MEM_H

#include "base/base.h"

/* Zeroed; NULL if n * size overflows or memory is out. Freed with free(). */
void *bn_calloc(size_t n, size_t size);

/* A large block: page aligned, zeroed. From BN_HUGE_PAGE on it is aligned to that, and transparent
 * huge pages are asked for. Freed with its size. */
enum { BN_HUGE_PAGE = 2 * 1024 * 1024 };
void *bn_block_alloc(size_t bytes);
void bn_block_free(void *p, size_t bytes);

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
};
void *bn_slab_alloc(struct bn_slab *s,
                    size_t bytes); /* 64-byte aligned, zeroed; NULL: out of memory */
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
