/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line is handed to the system whole when it is written, so that a process that is killed loses
 * none, and several processes can append to one file.
 */
#include "server/metrics/access_log.h"

#include "base/buf.h"
#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { STRING_MAX_BYTES = 1024, LINE_MAX_BYTES = 64 * 1024 };

static bitnet_status open_file(FILE **out, const char *path, bitnet_error *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    *out = fd < 0 ? NULL : fdopen(fd, "a");
    if (*out) {
        setvbuf(*out, NULL, _IOFBF, LINE_MAX_BYTES); /* a line is one write */
        return BITNET_OK;
    }
    int e = errno;
    if (fd >= 0) close(fd);
    return bn_fail(err, BITNET_E_IO, "cannot open the access log '%.250s': %s", path, strerror(e));
}

bitnet_status access_log_open(struct access_log *l, const char *path, bitnet_error *err)
{
    *l = (struct access_log){.path = path};
    if (!path) return BITNET_OK;
    if (strcmp(path, "-") != 0) return open_file(&l->to, path, err);
    l->to = stderr;
    return BITNET_OK;
}

void access_log_close(struct access_log *l)
{
    if (l->to && l->to != stderr) fclose(l->to);
    *l = (struct access_log){0};
}

bitnet_status access_log_reopen(struct access_log *l, bitnet_error *err)
{
    if (!l->to || l->to == stderr) return BITNET_OK;
    FILE *fresh;
    BN_TRY(open_file(&fresh, l->path, err)); /* on error the old one stays */
    fclose(l->to);
    l->to = fresh;
    return BITNET_OK;
}

/* Clients choose some of these strings: whatever bytes they are, a line stays one line of JSON, and a
 * terminal that shows it takes no orders from it. */
static void put_string(struct bn_buf *b, const char *name, const char *s)
{
    bn_buf_printf(b, ",\"%s\":", name);
    if (!s) {
        bn_buf_puts(b, "null");
        return;
    }
    size_t left = strnlen(s, STRING_MAX_BYTES);
    bn_buf_putc(b, '"');
    while (left) {
        uint32_t cp = 0xfffd; /* for bytes that are no character */
        size_t n = bn_utf8_decode(s, left, &cp);
        if (n == 0 || cp < ' ' || (cp >= 0x7f && cp < 0xa0)) {
            bn_buf_printf(b, "\\u%04x", n ? cp : 0xfffd);
        } else {
            if (cp == '"' || cp == '\\') bn_buf_putc(b, '\\');
            bn_buf_append(b, s, n);
        }
        s += n ? n : 1;
        left -= n ? n : 1;
    }
    bn_buf_putc(b, '"');
}

/* 0 ns: it did not come to that */
static void put_ms(struct bn_buf *b, const char *name, uint64_t ns)
{
    if (ns) bn_buf_printf(b, ",\"%s\":%.3f", name, (double)ns / 1e6);
    else bn_buf_printf(b, ",\"%s\":null", name);
}

static void put_time(struct bn_buf *b)
{
    struct timespec t;
    struct tm tm;
    char text[32];
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    bn_buf_printf(b, "{\"time\":\"%s.%03ldZ\"", text, t.tv_nsec / 1000000);
}

void access_log_write(struct access_log *l, const struct access_line *line)
{
    if (!l->to) return;
    struct bn_buf b;
    bn_buf_init(&b, LINE_MAX_BYTES);
    put_time(&b);
    put_string(&b, "request_id", line->request_id);
    put_string(&b, "peer", line->peer);
    put_string(&b, "method", line->method);
    put_string(&b, "path", line->path);
    bn_buf_printf(&b, ",\"status\":%d,\"stream\":%s", line->status,
                  line->stream ? "true" : "false");
    put_ms(&b, "total_ms", line->total_ns);
    put_ms(&b, "first_ms", line->first_ns);
    put_ms(&b, "queue_ms", line->queue_ns);
    bn_buf_printf(&b, ",\"prompt_tokens\":%u,\"cached_tokens\":%u,\"generated_tokens\":%u",
                  line->n_prompt, line->n_cached, line->n_generated);
    put_string(&b, "model", line->model);
    put_string(&b, "finish", line->finish);
    put_string(&b, "error", line->error);
    bn_buf_puts(&b, "}\n");
    if (!b.failed) {
        /* A full disk must not stop the server; what was lost shows in the times of the lines. */
        fwrite(b.data, 1, b.len, l->to);
        fflush(l->to);
        clearerr(l->to);
    }
    bn_buf_free(&b);
}
