/* SPDX-License-Identifier: Apache-2.0
 * Counts allocations of a test and of the library's archive, and refuses them from a chosen one on.
 * The program is linked with --wrap (meson.build, unit_link). */
#ifndef TEST_ALLOC_REFUSE_H
#define TEST_ALLOC_REFUSE_H

#include <stddef.h>

static long n_allocations, fail_at = -1; /* the fail_at-th allocation and all behind it fail, */
static int fail_once;                    /* or only that one */

static int refused(void)
{
    long n = n_allocations++;
    return fail_at >= 0 && (fail_once ? n == fail_at : n >= fail_at);
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n) { return refused() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return refused() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return refused() ? NULL : __real_realloc(p, n); }

#endif
