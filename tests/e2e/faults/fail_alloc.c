/* SPDX-License-Identifier: Apache-2.0
 * For LD_PRELOAD: allocations of the process fail, as the file FAIL_ALLOC says (fail_alloc.py). It is mapped, so that
 * it can be changed while the process runs, and read when it has died. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

#define SEEN __attribute__((visibility("default")))

struct orders {
    atomic_long n_seen;  /* allocations so far                       */
    atomic_long fail_at; /* the first that fails, from 0; -1: none   */
    atomic_long n_fail;  /* how many fail from there on              */
};

static struct orders none = {.fail_at = -1};
static struct orders *orders = &none;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAIL_ALLOC");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *p = mmap(NULL, sizeof *orders, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED) _exit(99);
    orders = p;
}

static _Thread_local int spared;

static int refused(void)
{
    if (spared) return 0;
    long at = atomic_load(&orders->fail_at), i = atomic_fetch_add(&orders->n_seen, 1);
    if (at < 0 || i < at || i - at >= atomic_load(&orders->n_fail)) return 0;
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

/* libevent 2.1.12 dies of a failed allocation here: it hands a bufferevent that it has only half made to
 * bufferevent_free. Nothing that the caller does could help. */
SEEN void *bufferevent_openssl_socket_new(void *base, int fd, void *ssl, int state, int options);
SEEN void *bufferevent_openssl_socket_new(void *base, int fd, void *ssl, int state, int options)
{
    void *(*real)(void *, int, void *, int, int);
    *(void **)&real = dlsym(RTLD_NEXT, __func__);
    spared = 1;
    void *made = real(base, fd, ssl, state, options);
    spared = 0;
    return made;
}
