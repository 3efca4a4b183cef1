/* SPDX-License-Identifier: Apache-2.0
 * Counts allocations of the whole program. The linker's --wrap would miss the library, so malloc
 * itself is counted. */
#ifndef TEST_ALLOC_COUNT_H
#define TEST_ALLOC_COUNT_H

#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static _Atomic long n_allocs;

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#endif
#if !defined(SANITIZED) /* these bring a malloc of their own */
void *malloc(size_t n)
{
    n_allocs++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size)
{
    n_allocs++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n)
{
    n_allocs++;
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n)
{
    n_allocs++;
    return __libc_memalign(align, n);
}
#endif

#endif
