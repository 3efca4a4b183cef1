/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/part.h"

#include "base/os/file.h"
#include "hub/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char magic[16] = "bitnet-blocks-1";

struct head {
    char magic[16], id[HUB_ID_BYTES];
    uint64_t bytes, block_bytes;
};

/* BITNET_E_LIMIT: another try will not help. */
static bitnet_status fail_errno(bitnet_error *err, const char *what, const char *path)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return bn_fail(err, BITNET_E_LIMIT,
                       "the disk is full: cannot %s '%.300s'; what is there is kept, the same "
                       "command goes on when there is room",
                       what, path);
    return bn_fail(err, BITNET_E_LIMIT, "cannot %s '%.300s': %s", what, path, strerror(errno));
}

uint64_t hub_part_left(const char *path)
{
    char part[HUB_PATH_BYTES];
    struct stat st;
    if (!hub_path(part, "%s.bitnet.incomplete", path) || stat(part, &st) != 0) return 0;
    return (uint64_t)st.st_blocks * 512;
}

uint64_t hub_part_block_bytes(const struct hub_part *p, uint32_t i)
{
    uint64_t from = (uint64_t)i * HUB_BLOCK_BYTES;
    return p->bytes - from < HUB_BLOCK_BYTES ? p->bytes - from : HUB_BLOCK_BYTES;
}

uint64_t hub_part_here(const struct hub_part *p)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n; i++) sum += __atomic_load_n(&p->done[i], __ATOMIC_RELAXED);
    return sum;
}

void hub_part_forget(struct hub_part *p)
{
    for (uint32_t i = 0; i < p->n; i++) __atomic_store_n(&p->done[i], 0, __ATOMIC_RELAXED);
}

bool hub_lock_file(int fd, const struct hub_waiter *w)
{
    const struct timespec tick = {.tv_nsec = 100000000};
    for (bool told = false; flock(fd, LOCK_EX | LOCK_NB) != 0; told = true) {
        if (errno != EWOULDBLOCK && errno != EINTR) return true;
        if (hub_cancelled(w->cancel)) return false;
        if (!told) w->waiting(w->user);
        nanosleep(&tick, NULL);
    }
    return true;
}

/* Only one process writes it. */
static bitnet_status lock(struct hub_part *p, const struct hub_waiter *w, bitnet_error *err)
{
    return hub_lock_file(p->fd, w) ? BITNET_OK : bn_fail(err, BITNET_E_CANCELLED, "interrupted");
}

/* Was the file finished, or begun anew, while this process waited? */
static bool is_gone(const struct hub_part *p)
{
    struct stat mine, named;
    return fstat(p->fd, &mine) != 0 || stat(p->path, &named) != 0 || mine.st_ino != named.st_ino;
}

static bool is_good(const struct head *h, const struct hub_part *p, const char *id)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->bytes != p->bytes ||
        h->block_bytes != HUB_BLOCK_BYTES || strncmp(h->id, id, sizeof h->id) != 0)
        return false;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->done[i] > hub_part_block_bytes(p, i)) return false;
    return true;
}

/* The state is mapped: what a thread stores in it survives the process. */
static bitnet_status map_state(struct hub_part *p, const char *id, bitnet_error *err)
{
    struct stat st;
    int fd = open(p->state_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return fail_errno(err, "create", p->state_path);
    p->map_bytes = sizeof(struct head) + (size_t)p->n * sizeof *p->done;
    bool same = fstat(fd, &st) == 0 && (uint64_t)st.st_size == p->map_bytes;
    bool sized = ftruncate(fd, (off_t)p->map_bytes) == 0;
    /* room is taken now: a page that the disk has no room for would end the process */
    if (sized && posix_fallocate(fd, 0, (off_t)p->map_bytes) == ENOSPC) {
        errno = ENOSPC;
        sized = false;
    }
    void *m =
        sized ? mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    bitnet_status s = m == MAP_FAILED ? fail_errno(err, "write", p->state_path) : BITNET_OK;
    close(fd);
    if (s != BITNET_OK) return s;
    p->map = m;
    struct head *h = m;
    p->done = (uint32_t *)((char *)m + sizeof *h);
    if (same && is_good(h, p, id)) return BITNET_OK;
    memset(m, 0, p->map_bytes);
    h->bytes = p->bytes;
    h->block_bytes = HUB_BLOCK_BYTES;
    snprintf(h->id, sizeof h->id, "%s", id);
    memcpy(h->magic, magic, sizeof magic);
    if (ftruncate(p->fd, 0) != 0) return fail_errno(err, "write", p->path);
    return BITNET_OK;
}

bitnet_status hub_part_open(struct hub_part *p, bool *there, const char *path, uint64_t bytes,
                            const char *id, const struct hub_waiter *w, bitnet_error *err)
{
    bitnet_status s = BITNET_OK;
    *p = (struct hub_part){.fd = -1, .bytes = bytes};
    *there = false;
    p->n = (uint32_t)((bytes + HUB_BLOCK_BYTES - 1) / HUB_BLOCK_BYTES);
    if (bytes >> 50 || !hub_path(p->path, "%s.bitnet.incomplete", path) ||
        !hub_path(p->state_path, "%s.bitnet.blocks", path))
        return bn_fail(err, BITNET_E_LIMIT, "the path '%.300s' is too long", path);
    do {
        if (p->fd >= 0) close(p->fd);
        p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        s = p->fd < 0 ? fail_errno(err, "create", p->path) : lock(p, w, err);
    } while (s == BITNET_OK && is_gone(p));
    struct stat st;
    if (s == BITNET_OK && stat(path, &st) == 0 && (uint64_t)st.st_size == bytes) {
        *there = true;
        hub_part_discard(p);
        return BITNET_OK;
    }
    if (s == BITNET_OK) s = map_state(p, id, err);
    if (s != BITNET_OK) hub_part_close(p);
    return s;
}

bitnet_status hub_part_write(struct hub_part *p, uint32_t i, const char *data, size_t n,
                             bitnet_error *err)
{
    uint32_t done = p->done[i];
    while (n) {
        off_t at = (off_t)((uint64_t)i * HUB_BLOCK_BYTES + done);
        ssize_t w = pwrite(p->fd, data, n, at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return fail_errno(err, "write", p->path);
        data += w;
        n -= (size_t)w;
        done += (uint32_t)w;
        __atomic_store_n(&p->done[i], done, __ATOMIC_RELEASE);
    }
    return BITNET_OK;
}

bitnet_status hub_part_finish(struct hub_part *p, const char *path, bitnet_error *err)
{
    if (fsync(p->fd) != 0 && errno != EINVAL && errno != EROFS)
        return fail_errno(err, "write", p->path);
    if (rename(p->path, path) != 0) return fail_errno(err, "create", path);
    unlink(p->state_path);
    hub_part_close(p);
    return BITNET_OK;
}

void hub_part_discard(struct hub_part *p)
{
    unlink(p->state_path);
    unlink(p->path);
    hub_part_close(p);
}

void hub_part_close(struct hub_part *p)
{
    if (p->map) munmap(p->map, p->map_bytes);
    if (p->fd >= 0) close(p->fd); /* and the lock is gone */
    p->map = NULL;
    p->done = NULL;
    p->fd = -1;
}
