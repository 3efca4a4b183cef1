/* SPDX-License-Identifier: Apache-2.0 */
#include "app/line_reader.h"

#include "base/os/mem.h"
#include "app/interrupt.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10 };

bitnet_status lines_open(struct lines *l, const char *path, bitnet_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    lines_from(l, fd, is_stdin ? "standard input" : path);
    l->owns_fd = !is_stdin;
    if (fd < 0) return bn_fail(err, BITNET_E_IO, "cannot open '%.200s': %s", path, strerror(errno));
    return BITNET_OK;
}

void lines_from(struct lines *l, int fd, const char *name)
{
    *l = (struct lines){.fd = fd, .name = name};
}

void lines_close(struct lines *l)
{
    if (l->owns_fd && l->fd >= 0) close(l->fd);
    free(l->data);
    *l = (struct lines){.fd = -1};
}

bool lines_ready(const struct lines *l)
{
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    return l->at_end || l->end > l->start || poll(&p, 1, 0) != 0;
}

/* Reads more behind data[end), from which there is room for READ_BYTES. */
static bitnet_status read_more(struct lines *l, bitnet_error *err)
{
    for (;;) {
        if (!interrupt_wait_readable(l->fd)) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        ssize_t r = read(l->fd, l->data + l->end, READ_BYTES);
        if (r < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (r < 0)
            return bn_fail(err, BITNET_E_IO, "cannot read '%.200s': %s", l->name, strerror(errno));
        l->at_end = r == 0;
        l->end += (size_t)r;
        return BITNET_OK;
    }
}

static bitnet_status make_room(struct lines *l, bitnet_error *err)
{
    if (l->start) memmove(l->data, l->data + l->start, l->end - l->start);
    l->end -= l->start;
    l->start = 0;
    if (!bn_grow((void **)&l->data, &l->room, l->end + READ_BYTES, 1))
        return bn_fail_nomem(err, l->end + READ_BYTES, "a line");
    return BITNET_OK;
}

/* The line is data[start..start+n), `skip` bytes in all with what ended it or was cut off. */
static void hand_out(struct lines *l, struct line *out, size_t n, size_t skip)
{
    out->text = l->data + l->start;
    out->n = n;
    out->number = ++l->n;
    out->offset = l->offset;
    l->start += skip;
    l->offset += skip;
    if (out->number == 1 && out->n >= 3 && memcmp(out->text, "\xef\xbb\xbf", 3) == 0) {
        out->text += 3;
        out->n -= 3;
    }
    if (out->ended && out->n && out->text[out->n - 1] == '\r') out->n--;
}

/* The line, at the start of the buffer, is too long: the rest of it is read and forgotten. */
static bitnet_status skip_rest(struct lines *l, struct line *out, bitnet_error *err)
{
    const size_t kept = LINES_MAX_BYTES;
    uint64_t offset = l->offset;
    const char *end;
    while (!(end = memchr(l->data + kept, '\n', l->end - kept)) && !l->at_end) {
        l->offset += l->end - kept;
        l->end = kept;
        BN_TRY(read_more(l, err));
    }
    out->whole = false;
    out->ended = end != NULL;
    hand_out(l, out, kept, end ? (size_t)(end + 1 - l->data) : l->end);
    out->offset = offset;
    return BITNET_OK;
}

bitnet_status lines_next(struct lines *l, struct line *out, bool *got, bitnet_error *err)
{
    *got = true;
    *out = (struct line){.whole = true, .ended = true};
    for (size_t seen = 0;;) {
        size_t n = l->end - l->start;
        const char *text = n ? l->data + l->start : NULL;
        const char *end = n > seen ? memchr(text + seen, '\n', n - seen) : NULL;
        if (end && (size_t)(end - text) <= LINES_MAX_BYTES) {
            hand_out(l, out, (size_t)(end - text), (size_t)(end + 1 - text));
            return BITNET_OK;
        }
        if (l->at_end && n <= LINES_MAX_BYTES) {
            *got = n > 0;
            out->ended = false;
            if (n) hand_out(l, out, n, n);
            return BITNET_OK;
        }
        if (n > LINES_MAX_BYTES) return skip_rest(l, out, err);
        seen = n;
        BN_TRY(make_room(l, err));
        BN_TRY(read_more(l, err));
    }
}
