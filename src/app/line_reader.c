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

bitnet_status line_reader_open(struct line_reader *r, const char *path, bitnet_error *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    line_reader_from(r, fd, is_stdin ? "standard input" : path);
    r->owns_fd = !is_stdin;
    if (fd < 0) return bn_fail(err, BITNET_E_IO, "cannot open '%.200s': %s", path, strerror(errno));
    return BITNET_OK;
}

void line_reader_from(struct line_reader *r, int fd, const char *name)
{
    *r = (struct line_reader){.fd = fd, .name = name};
}

void line_reader_close(struct line_reader *r)
{
    if (r->owns_fd && r->fd >= 0) close(r->fd);
    free(r->data);
    *r = (struct line_reader){.fd = -1};
}

bool line_reader_ready(const struct line_reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return r->at_end || r->end > r->start || poll(&p, 1, 0) != 0;
}

/* Reads more behind data[end), from which there is room for READ_BYTES. */
static bitnet_status read_more(struct line_reader *r, bitnet_error *err)
{
    for (;;) {
        if (!interrupt_wait_readable(r->fd)) return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        ssize_t got = read(r->fd, r->data + r->end, READ_BYTES);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (got < 0)
            return bn_fail(err, BITNET_E_IO, "cannot read '%.200s': %s", r->name, strerror(errno));
        r->at_end = got == 0;
        r->end += (size_t)got;
        return BITNET_OK;
    }
}

static bitnet_status make_room(struct line_reader *r, bitnet_error *err)
{
    if (r->start) memmove(r->data, r->data + r->start, r->end - r->start);
    r->end -= r->start;
    r->start = 0;
    if (!bn_grow((void **)&r->data, &r->room, r->end + READ_BYTES, 1))
        return bn_fail_nomem(err, r->end + READ_BYTES, "a line");
    return BITNET_OK;
}

/* The line is data[start..start+n), `skip` bytes in all with what ended it or was cut off. */
static void hand_out(struct line_reader *r, struct line *out, size_t n, size_t skip)
{
    out->text = r->data + r->start;
    out->n = n;
    out->number = ++r->n;
    out->offset = r->offset;
    r->start += skip;
    r->offset += skip;
    if (out->number == 1 && out->n >= 3 && memcmp(out->text, "\xef\xbb\xbf", 3) == 0) {
        out->text += 3;
        out->n -= 3;
    }
    if (out->ended && out->n && out->text[out->n - 1] == '\r') out->n--;
}

/* The line, at the start of the buffer, is too long: the rest of it is read and forgotten. */
static bitnet_status skip_rest(struct line_reader *r, struct line *out, bitnet_error *err)
{
    const size_t kept = LINE_READER_MAX_BYTES;
    uint64_t offset = r->offset;
    const char *end;
    while (!(end = memchr(r->data + kept, '\n', r->end - kept)) && !r->at_end) {
        r->offset += r->end - kept;
        r->end = kept;
        BN_TRY(read_more(r, err));
    }
    out->whole = false;
    out->ended = end != NULL;
    hand_out(r, out, kept, end ? (size_t)(end + 1 - r->data) : r->end);
    out->offset = offset;
    return BITNET_OK;
}

bitnet_status line_reader_next(struct line_reader *r, struct line *out, bool *got,
                               bitnet_error *err)
{
    *got = true;
    *out = (struct line){.whole = true, .ended = true};
    for (size_t seen = 0;;) {
        size_t n = r->end - r->start;
        const char *text = n ? r->data + r->start : NULL;
        const char *end = n > seen ? memchr(text + seen, '\n', n - seen) : NULL;
        if (end && (size_t)(end - text) <= LINE_READER_MAX_BYTES) {
            hand_out(r, out, (size_t)(end - text), (size_t)(end + 1 - text));
            return BITNET_OK;
        }
        if (r->at_end && n <= LINE_READER_MAX_BYTES) {
            *got = n > 0;
            out->ended = false;
            if (n) hand_out(r, out, n, n);
            return BITNET_OK;
        }
        if (n > LINE_READER_MAX_BYTES) return skip_rest(r, out, err);
        seen = n;
        BN_TRY(make_room(r, err));
        BN_TRY(read_more(r, err));
    }
}
