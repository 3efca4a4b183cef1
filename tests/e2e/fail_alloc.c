/* SPDX-License-Identifier: Apache-2.0
 * For LD_PRELOAD: the allocation with number FAIL_ALLOC of the process fails, the first one is 0; how many there were
 * is written to the file FAIL_ALLOC_COUNT at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

#define SEEN __attribute__((visibility("default")))

static atomic_long n_allocations;
static long fail_at = -1;

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAIL_ALLOC");
    if (at) fail_at = atol(at);
    atomic_store(&n_allocations, 0);
}

__attribute__((destructor)) static void end(void)
{
    const char *path = getenv("FAIL_ALLOC_COUNT");
    char text[32];
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (fd < 0) return;
    int n = snprintf(text, sizeof text, "%ld\n", atomic_load(&n_allocations));
    if (write(fd, text, (size_t)n) != n) _exit(99);
    close(fd);
}

static int refused(void)
{
    if (atomic_fetch_add(&n_allocations, 1) != fail_at) return 0;
    errno = ENOMEM;
    return 1;
}

SEEN void *malloc(size_t n) { return refused() ? NULL : __libc_malloc(n); }
SEEN void *calloc(size_t n, size_t size) { return refused() ? NULL : __libc_calloc(n, size); }
SEEN void *realloc(void *p, size_t n) { return refused() ? NULL : __libc_realloc(p, n); }
SEEN void *aligned_alloc(size_t align, size_t n)
{
    return refused() ? NULL : __libc_memalign(align, n);
}

SEEN int posix_memalign(void **p, size_t align, size_t n)
{
    if (refused()) return ENOMEM;
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}
