/* SPDX-License-Identifier: Apache-2.0
 *
 * The linker gives these names to the calls of malloc and its kin: __wrap_X is called in place of
 * X, and __real_X is X.
 */
#include "cli/profile/heap_count.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

static _Atomic uint64_t n_calls;

static void count(void) { atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed); }

uint64_t heap_count(void) { return atomic_load_explicit(&n_calls, memory_order_relaxed); }

void *__wrap_malloc(size_t n)
{
    count();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    count();
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    count();
    return __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    count();
    return __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    count();
    return __real_posix_memalign(out, align, n);
}
