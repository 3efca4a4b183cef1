/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "cli/batch/batch.h"
#include "server/openai/reply.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t sync_every_ns = 2000000000u;

static bitnet_status fail_errno(bitnet_error *err, const char *what, const char *name)
{
    return bn_fail(err, BITNET_E_IO, "cannot %s '%.200s': %s", what, name, strerror(errno));
}

/* ------------------------------------------------------------------ what is there already */

void batch_id(char out[BATCH_ID_BYTES], uint64_t key)
{
    snprintf(out, BATCH_ID_BYTES, "%016llx", (unsigned long long)key);
}

static const char before_id[] = "{\"id\":\"batch_req_", after_id[] = "\",";

/* The bytes with which the line of a request begins, whatever its answer. */
static size_t line_start(char out[64], uint64_t key)
{
    char id[BATCH_ID_BYTES];
    batch_id(id, key);
    return (size_t)snprintf(out, 64, "%s%s%s", before_id, id, after_id);
}

bool batch_line_key(const struct line *l, uint64_t *key)
{
    char id[BATCH_ID_BYTES], again[BATCH_ID_BYTES];
    const size_t at = sizeof before_id - 1, n = BATCH_ID_BYTES - 1;
    if (l->n < at + n + sizeof after_id - 1 || memcmp(l->text, before_id, at) != 0 ||
        memcmp(l->text + at + n, after_id, sizeof after_id - 1) != 0)
        return false;
    memcpy(id, l->text + at, n);
    id[n] = 0;
    *key = strtoull(id, NULL, 16);
    batch_id(again, *key);
    return strcmp(id, again) == 0;
}

/* Does the line answer the request? The last one may have been torn, by zeros as well, where a
 * machine went down; even then it must show that it is ours before anything is cut off. */
static bool answers(const struct line *l, uint64_t key, bool first)
{
    char start[64];
    size_t n = line_start(start, key), have = strnlen(l->text, l->n);
    bool enough = l->ended ? have >= n : have > 0 || !first;
    return enough && memcmp(l->text, start, bn_min_size(n, have)) == 0;
}

static bitnet_status match(struct batch_output *o, struct batch_input *in, const struct line *l,
                           uint64_t n_found, bitnet_error *err)
{
    bool got;
    BN_TRY(batch_input_next(in, &got, err));
    if (!got)
        return bn_fail(err, BITNET_E_STATE,
                       "'%.100s' holds more answers than '%.100s' has requests (%llu); --restart "
                       "begins anew",
                       o->name, in->reader.name, (unsigned long long)n_found);
    if (!answers(l, in->key, n_found == 0))
        return bn_fail(
            err, BITNET_E_STATE,
            "line %llu of '%.100s' does not answer line %llu of '%.100s' with this model "
            "and these options; --restart begins anew",
            (unsigned long long)l->number, o->name, (unsigned long long)in->line.number,
            in->reader.name);
    return BITNET_OK;
}

static bitnet_status resume(struct batch_output *o, struct batch_input *in, uint64_t *n_found,
                            bitnet_error *err)
{
    struct line_reader old;
    struct line l;
    bool got = true;
    bitnet_status s = BITNET_OK;
    line_reader_from(&old, o->fd, o->name);
    while (s == BITNET_OK && got) {
        s = line_reader_next(&old, &l, &got, err);
        if (s != BITNET_OK || !got) break;
        s = match(o, in, &l, *n_found, err);
        if (s != BITNET_OK) break;
        if (l.ended) {
            ++*n_found;
            continue;
        }
        in->held = true; /* its request is computed again */
        if (ftruncate(o->fd, (off_t)l.offset) != 0) s = fail_errno(err, "cut", o->name);
    }
    line_reader_close(&old);
    return s;
}

/* ------------------------------------------------------------------ the file */

static bitnet_status check_file(struct batch_output *o, const struct batch_input *in,
                                bitnet_error *err)
{
    struct stat out, input;
    if (fstat(o->fd, &out) != 0) return fail_errno(err, "open", o->name);
    o->is_file = S_ISREG(out.st_mode);
    if (fstat(in->reader.fd, &input) == 0 && S_ISREG(input.st_mode) && input.st_dev == out.st_dev &&
        input.st_ino == out.st_ino)
        return bn_fail(err, BITNET_E_ARG, "'%.200s' is both input and output", o->name);
    if (o->is_file && flock(o->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return bn_fail(err, BITNET_E_STATE, "another run is writing '%.200s'", o->name);
    return BITNET_OK;
}

bitnet_status batch_output_open(struct batch_output *o, struct batch_input *in, uint64_t *n_found,
                                bitnet_error *err)
{
    const char *path = in->config->output;
    *n_found = 0;
    *o = (struct batch_output){.fd = STDOUT_FILENO, .name = "standard output"};
    if (strcmp(path, "-") == 0) return BITNET_OK;
    o->name = path;
    o->synced_ns = bn_now_ns();
    o->fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (o->fd < 0) return fail_errno(err, "open", path);
    bitnet_status s = check_file(o, in, err);
    if (s == BITNET_OK && o->is_file) {
        if (!in->config->restart) s = resume(o, in, n_found, err);
        else if (ftruncate(o->fd, 0) != 0) s = fail_errno(err, "empty", path);
    }
    if (s != BITNET_OK) close(o->fd);
    return s;
}

char *batch_output_line(uint64_t key, const char *custom_id, int status, struct bn_json *body)
{
    char id[BATCH_ID_BYTES], line_id[40], request_id[40];
    batch_id(id, key);
    snprintf(line_id, sizeof line_id, "batch_req_%s", id);
    snprintf(request_id, sizeof request_id, "req_%s", id);
    struct bn_json *j = bn_json_pack("{s:s, s:s?, s:{s:i, s:s, s:o}, s:n}", "id", line_id,
                                     "custom_id", custom_id, "response", "status_code", status,
                                     "request_id", request_id, "body", body, "error");
    char *line = j ? bn_json_dump(j, OPENAI_DUMP_FLAGS) : NULL;
    bn_json_free(j);
    size_t n = line ? strlen(line) : 0;
    char *ended = line ? realloc(line, n + 2) : NULL;
    if (!ended) {
        free(line);
        return NULL;
    }
    memcpy(ended + n, "\n", 2);
    return ended;
}

/* One write a line: a process that dies between two of them leaves whole lines. */
bitnet_status batch_output_write(struct batch_output *o, const char *line, bitnet_error *err)
{
    for (size_t done = 0, n = strlen(line); done < n;) {
        ssize_t r = write(o->fd, line + done, n - done);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return fail_errno(err, "write", o->name);
        done += (size_t)r;
    }
    uint64_t now = bn_now_ns();
    if (!o->is_file || now - o->synced_ns < sync_every_ns) return BITNET_OK;
    o->synced_ns = now;
    return fdatasync(o->fd) == 0 ? BITNET_OK : fail_errno(err, "write", o->name);
}

bitnet_status batch_output_close(struct batch_output *o, bitnet_error *err)
{
    if (o->fd == STDOUT_FILENO) return BITNET_OK;
    bitnet_status s = BITNET_OK;
    if (o->is_file && fsync(o->fd) != 0) s = fail_errno(err, "write", o->name);
    if (close(o->fd) != 0 && s == BITNET_OK) s = fail_errno(err, "write", o->name);
    return s;
}
