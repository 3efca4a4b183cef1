/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/file.h"

#include "base/os/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OUT_BUFFER_BYTES = 1 << 20, DRAIN_BYTES = 64 << 20 };

struct bn_reading {
    int fd; /* -1: let go */
    char *path;
    struct stat stat; /* when it was opened */
};

static bitnet_status fail_errno(bitnet_error *err, const char *what, const char *path)
{
    int e = errno;
    char text[128];
    /* the GNU form returns the text and may leave the buffer alone */
    return bn_fail(err, e == ENOMEM ? BITNET_E_NOMEM : BITNET_E_IO, "cannot %s '%s': %s", what,
                   path, strerror_r(e, text, sizeof text));
}

/* Opens a regular file. O_NONBLOCK keeps a FIFO without a writer from hanging the open. */
static bitnet_status open_regular(int *fd, struct bn_file_id *id, const char *path,
                                  bitnet_error *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) return fail_errno(err, "open", path);
    struct stat st;
    bitnet_status s = BITNET_OK;
    if (fstat(*fd, &st) != 0) s = fail_errno(err, "read", path);
    else if (S_ISDIR(st.st_mode))
        s = bn_fail(err, BITNET_E_IO, "'%s' is a folder, not a file", path);
    else if (!S_ISREG(st.st_mode))
        s = bn_fail(err, BITNET_E_IO, "'%s' is not a regular file", path);
    else if (st.st_size < 0 || (uint64_t)st.st_size > SIZE_MAX / 2)
        s = bn_fail(err, BITNET_E_LIMIT, "'%s' is too large for this machine", path);
    if (s != BITNET_OK) {
        close(*fd);
        return s;
    }
    *id = (struct bn_file_id){.device = (uint64_t)st.st_dev,
                              .inode = (uint64_t)st.st_ino,
                              .bytes = (uint64_t)st.st_size,
                              .links = (uint64_t)st.st_nlink,
                              .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 +
                                             (int64_t)st.st_mtim.tv_nsec};
    return BITNET_OK;
}

/* An address whose offset in a huge page is that of the file. More is reserved than needed, and the
 * rest given back. */
static void *map_aligned(int fd, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = bn_align_up(bytes, page);
    uint8_t *p = mmap(NULL, whole + BN_HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return MAP_FAILED;
    size_t before = bn_align_up((uintptr_t)p, BN_HUGE_PAGE) - (uintptr_t)p;
    if (before) munmap(p, before);
    munmap(p + before + whole, BN_HUGE_PAGE - before);
    void *at = mmap(p + before, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) munmap(p + before, whole);
    return at;
}

static bitnet_status map_descriptor(struct bn_mapping *out, int fd, const struct bn_file_id *id,
                                    const char *path, bitnet_error *err)
{
    size_t bytes = (size_t)id->bytes;
    out->id = *id;
    if (!bytes) return BITNET_OK;
    void *p = bytes < BN_HUGE_PAGE ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0)
                                   : map_aligned(fd, bytes);
    if (p == MAP_FAILED) return fail_errno(err, "map", path);
    out->data = p;
    out->bytes = bytes;
    return BITNET_OK;
}

bitnet_status bn_map_file(struct bn_mapping *out, const char *path, bitnet_error *err)
{
    *out = (struct bn_mapping){0};
    int fd = -1;
    struct bn_file_id id = {0};
    BN_TRY(open_regular(&fd, &id, path, err));
    bitnet_status s = map_descriptor(out, fd, &id, path, err);
    if (s == BITNET_OK && out->data && fd > 0) out->fd = fd;
    else close(fd);
    return s;
}

void bn_unmap_file(struct bn_mapping *m)
{
    if (m->data) munmap((void *)m->data, m->bytes);
    if (m->fd > 0) close(m->fd);
    if (m->reading) {
        if (m->reading->fd >= 0) close(m->reading->fd);
        free(m->reading->path);
        free(m->reading);
    }
    *m = (struct bn_mapping){0};
}

bitnet_status bn_map_file_to_read(struct bn_mapping *out, const char *path, bitnet_error *err)
{
    *out = (struct bn_mapping){0};
    struct bn_reading *r = out->reading = bn_calloc(1, sizeof *r);
    if (!r) return bn_fail_nomem(err, sizeof *r, path);
    r->fd = -1;
    r->path = strdup(path);
    struct bn_file_id id = {0};
    bitnet_status s =
        r->path ? open_regular(&r->fd, &id, path, err) : bn_fail_nomem(err, strlen(path), path);
    if (s == BITNET_OK && fstat(r->fd, &r->stat) != 0) s = fail_errno(err, "read", path);
    if (s == BITNET_OK) s = map_descriptor(out, r->fd, &id, path, err);
    if (s != BITNET_OK) bn_unmap_file(out);
    return s;
}

bitnet_status bn_map_detach(struct bn_mapping *m, bitnet_error *err)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (m->data &&
        mmap((void *)m->data, m->bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return fail_errno(err, "read", m->reading->path);
    return BITNET_OK;
}

bitnet_status bn_map_read(const struct bn_mapping *m, void *to, uint64_t offset, size_t n,
                          bitnet_error *err)
{
    const struct bn_reading *from = m->reading;
    for (size_t done = 0; done < n;) {
        ssize_t r = pread(from->fd, (uint8_t *)to + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return fail_errno(err, "read", from->path);
        if (r == 0)
            return bn_fail(err, BITNET_E_IO,
                           "'%s' has become shorter while it was read: it ends at byte %llu of %zu",
                           from->path, (unsigned long long)(offset + done), m->bytes);
        done += (size_t)r;
    }
    return BITNET_OK;
}

bitnet_status bn_map_read_end(struct bn_mapping *m, bitnet_error *err)
{
    struct bn_reading *r = m->reading;
    struct stat now;
    if (fstat(r->fd, &now) != 0) return fail_errno(err, "read", r->path);
    close(r->fd);
    r->fd = -1;
    if (now.st_size == r->stat.st_size && now.st_mtim.tv_sec == r->stat.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == r->stat.st_mtim.tv_nsec)
        return BITNET_OK;
    return bn_fail(err, BITNET_E_IO, "'%s' has changed while it was read: %lld bytes, now %lld",
                   r->path, (long long)r->stat.st_size, (long long)now.st_size);
}

void bn_map_release(const struct bn_mapping *m, const uint8_t *p, size_t n)
{
    /* whole pages inside the range only: its neighbours may still be wanted */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)p + page - 1) & ~(page - 1), to = ((uintptr_t)p + n) & ~(page - 1);
    if (m->data && p >= m->data && p + n <= m->data + m->bytes && to > from)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

bool bn_map_copy(const struct bn_mapping *m, void *to, const uint8_t *p, size_t n)
{
    if (m->fd <= 0) return false;
    off_t offset = (off_t)(p - m->data);
    for (size_t done = 0; done < n;) {
        ssize_t r = pread(m->fd, (uint8_t *)to + done, n - done, offset + (off_t)done);
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0) return false; /* the mapping tells of it in the way that mappings do */
        done += (size_t)r;
    }
    return true;
}

bitnet_status bn_read_file(char **out, size_t *n, const char *path, size_t max_bytes,
                           bitnet_error *err)
{
    *out = NULL;
    int fd = -1;
    struct bn_file_id id = {0};
    BN_TRY(open_regular(&fd, &id, path, err));
    bitnet_status s = BITNET_OK;
    size_t bytes = (size_t)id.bytes;
    char *p = NULL;
    if (bytes > max_bytes)
        s = bn_fail(err, BITNET_E_LIMIT, "'%s' has %zu bytes; at most %zu are read", path, bytes,
                    max_bytes);
    else if (!(p = malloc(bytes + 1))) s = bn_fail_nomem(err, bytes + 1, path);
    size_t done = 0;
    while (s == BITNET_OK && done < bytes) {
        ssize_t r = read(fd, p + done, bytes - done);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) s = fail_errno(err, "read", path);
        if (r == 0) break; /* the file shrank meanwhile: what is there is what we take */
        if (r > 0) done += (size_t)r;
    }
    close(fd);
    if (s != BITNET_OK) {
        free(p);
        return s;
    }
    p[done] = 0;
    *out = p;
    *n = done;
    return BITNET_OK;
}

bool bn_is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool bn_folder_make(const char *path)
{
    char *p = strdup(path);
    int why = 0; /* that of the first that is not there and cannot be made */
    for (char *at = p ? p + 1 : NULL; at;) {
        at = strchr(at, '/');
        if (at) *at = 0;
        if (mkdir(p, 0777) != 0 && errno != EEXIST && !why) why = errno;
        if (at) *at++ = '/';
    }
    free(p);
    bool there = bn_is_folder(path);
    if (!there && why) errno = why;
    return there;
}

bool bn_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The n of /dev/fd/n and its other names, -1 for all other paths. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/proc/self/fd/", "/dev/fd/"};
    if (strcmp(path, "/dev/stdout") == 0) return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0) return STDERR_FILENO;
    for (size_t i = 0; i < BN_ARRAY_LEN(folders); i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) != 0) continue;
        size_t digits = strspn(path + n, "0123456789");
        if (digits && digits < 7 && !path[n + digits]) return atoi(path + n);
    }
    return -1;
}

/* Something that a new file must not take the place of: a device, a pipe. */
static bool is_special(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode);
}

bitnet_status bn_out_open(struct bn_out *o, const char *path, bool overwrite, bitnet_error *err)
{
    *o = (struct bn_out){.fd = -1};
    if (bn_is_folder(path))
        return bn_fail(err, BITNET_E_IO, "cannot write '%s': it is a folder", path);
    if (!overwrite && bn_exists(path))
        return bn_fail(err, BITNET_E_IO, "'%s' exists already; remove it or ask to overwrite it",
                       path);
    size_t room = strlen(path) + 32;
    int descriptor = descriptor_of(path); /* open already, perhaps without a name (memfd) */
    bool direct = descriptor >= 0 || is_special(path);
    o->path = strdup(path);
    o->temp_path = malloc(room);
    o->pending = malloc(OUT_BUFFER_BYTES);
    if (!o->path || !o->temp_path || !o->pending) {
        bn_out_close(o);
        return bn_fail_nomem(err, OUT_BUFFER_BYTES, path);
    }
    snprintf(o->temp_path, room, "%s.%ld.part", path, (long)getpid());
    if (direct) {
        free(o->temp_path);
        o->temp_path = NULL;
        /* standard output may be a file that others append to */
        bool standard = descriptor >= 0 && descriptor <= STDERR_FILENO;
        o->fd = standard ? fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
                         : open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    } else {
        o->fd = open(o->temp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    if (o->fd < 0) {
        bitnet_status s = fail_errno(err, "create", path);
        bn_out_close(o);
        return s;
    }
    return BITNET_OK;
}

static bitnet_status write_all(const struct bn_out *o, const uint8_t *p, size_t n,
                               bitnet_error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t r = write(o->fd, p + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return fail_errno(err, "write", o->path);
        done += (size_t)r;
    }
    return BITNET_OK;
}

static bitnet_status flush_pending(struct bn_out *o, bitnet_error *err)
{
    BN_TRY(write_all(o, o->pending, o->n_pending, err));
    o->n_pending = 0;
    return BITNET_OK;
}

bitnet_status bn_out_write(struct bn_out *o, const void *p, size_t n, bitnet_error *err)
{
    const uint8_t *s = p;
    /* in one piece: the system may then keep it in one, too */
    if (n >= OUT_BUFFER_BYTES) {
        BN_TRY(flush_pending(o, err));
        o->offset += n;
        return write_all(o, s, n, err);
    }
    while (n) {
        size_t take = bn_min_size(n, OUT_BUFFER_BYTES - o->n_pending);
        memcpy(o->pending + o->n_pending, s, take);
        o->n_pending += take;
        o->offset += take;
        s += take;
        n -= take;
        if (o->n_pending == OUT_BUFFER_BYTES) BN_TRY(flush_pending(o, err));
    }
    return BITNET_OK;
}

bitnet_status bn_out_zeros(struct bn_out *o, size_t n, bitnet_error *err)
{
    static const uint8_t zeros[256];
    for (; n; n -= bn_min_size(n, sizeof zeros))
        BN_TRY(bn_out_write(o, zeros, bn_min_size(n, sizeof zeros), err));
    return BITNET_OK;
}

void bn_out_drain(struct bn_out *o)
{
    uint64_t at = o->offset - o->n_pending, begun = o->drained;
    if (at - begun < DRAIN_BYTES) return;
    if (begun)
        sync_file_range(o->fd, 0, (off_t)begun,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
    sync_file_range(o->fd, (off_t)begun, (off_t)(at - begun), SYNC_FILE_RANGE_WRITE);
    o->drained = at;
}

bitnet_status bn_out_commit(struct bn_out *o, bitnet_error *err)
{
    BN_TRY(flush_pending(o, err));
    if (fsync(o->fd) != 0 && errno != EINVAL && errno != EROFS)
        return fail_errno(err, "write", o->path);
    int fd = o->fd;
    o->fd = -1;
    if (close(fd) != 0) return fail_errno(err, "write", o->path);
    if (o->temp_path && rename(o->temp_path, o->path) != 0)
        return fail_errno(err, "create", o->path);
    free(o->temp_path);
    o->temp_path = NULL; /* nothing left to remove */
    return BITNET_OK;
}

bitnet_status bn_out_end(struct bn_out *o, const void *p, size_t n, bitnet_error *err)
{
    BN_TRY(bn_out_write(o, p, n, err));
    return bn_out_commit(o, err);
}

void bn_out_close(struct bn_out *o)
{
    if (o->fd >= 0) close(o->fd);
    if (o->temp_path && o->pending && o->path) unlink(o->temp_path);
    free(o->temp_path);
    free(o->path);
    free(o->pending);
    *o = (struct bn_out){.fd = -1};
}
