/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os/sysfiles.h"

#include "base/os/file.h"
#include "base/os/mem.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const struct bn_sysfiles bn_sysfiles_here = {.root = ""};

/* ------------------------------------------------------------------ recordings */

/* As strcmp, for paths that end at a tab or a 0. */
static int compare_paths(const char *a, const char *b)
{
    while (*a == *b && *a && *a != '\t') a++, b++;
    unsigned char x = *a == '\t' ? 0 : (unsigned char)*a, y = *b == '\t' ? 0 : (unsigned char)*b;
    return (x > y) - (x < y);
}

static int compare_lines(const void *a, const void *b)
{
    return compare_paths(*(const char *const *)a, *(const char *const *)b);
}

/* Cuts the text into lines in place. */
static bitnet_status index_lines(struct bn_sysfiles *sys, const char *path, bitnet_error *err)
{
    size_t room = 0;
    char *next;
    for (char *line = sys->text; *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = 0;
        if (*line == '#' || !*line) continue;
        if (*line != '/' || !strchr(line, '\t'))
            return bn_fail(err, BITNET_E_FORMAT,
                           "%s is no recording of a machine: line '%.40s' is not a path, a tab and "
                           "a text",
                           path, line);
        if (sys->n_files == BN_SYSFILES_MAX_FILES)
            return bn_fail(err, BITNET_E_LIMIT, "%s has more than %d files", path,
                           BN_SYSFILES_MAX_FILES);
        if (!bn_grow((void **)&sys->files, &room, sys->n_files + 1, sizeof *sys->files))
            return bn_fail_nomem(err, room * sizeof *sys->files, path);
        sys->files[sys->n_files++] = line;
    }
    if (sys->n_files) qsort(sys->files, sys->n_files, sizeof *sys->files, compare_lines);
    return BITNET_OK;
}

bitnet_status bn_sysfiles_open(struct bn_sysfiles *out, const char *path, bitnet_error *err)
{
    size_t n;
    *out = (struct bn_sysfiles){.root = path};
    if (bn_is_folder(path)) return BITNET_OK;
    bitnet_status s = bn_read_file(&out->text, &n, path, BN_SYSFILES_MAX_BYTES, err);
    if (s == BITNET_OK) s = index_lines(out, path, err);
    if (s != BITNET_OK) bn_sysfiles_close(out);
    return s;
}

void bn_sysfiles_close(struct bn_sysfiles *sys)
{
    free(sys->files);
    free(sys->text);
    *sys = (struct bn_sysfiles){.root = ""};
}

static bool recorded_text(const struct bn_sysfiles *sys, char *out, size_t room, const char *path)
{
    const char *const *line =
        sys->n_files ? bsearch(&path, sys->files, sys->n_files, sizeof path, compare_lines) : NULL;
    if (!line) return false;
    size_t n = 0;
    for (const char *p = strchr(*line, '\t') + 1; *p && n + 1 < room; p++) {
        if (*p == '\\' && p[1]) p++, out[n++] = (char)(*p == 'n' ? '\n' : *p == 't' ? '\t' : *p);
        else out[n++] = *p;
    }
    out[n] = 0;
    return true;
}

/* ------------------------------------------------------------------ files */

static bool file_text(const struct bn_sysfiles *sys, char *out, size_t room, const char *path)
{
    char full[2 * BN_SYSFILES_MAX_PATH];
    int length = snprintf(full, sizeof full, "%s%s", sys->root, path);
    if (length < 0 || (size_t)length >= sizeof full) return false;
    int fd = open(full, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t n = 0;
    ssize_t got = 1;
    while (got > 0 && n + 1 < room) { /* /proc hands out long texts in pieces */
        got = read(fd, out + n, room - 1 - n);
        if (got > 0) n += (size_t)got;
    }
    close(fd);
    out[n] = 0;
    return got >= 0;
}

static bool text_at(const struct bn_sysfiles *sys, char *out, size_t room, const char *fmt,
                    va_list args)
{
    char path[BN_SYSFILES_MAX_PATH];
    int length = vsnprintf(path, sizeof path, fmt, args);
    out[0] = 0;
    if (length < 0 || (size_t)length >= sizeof path) return false;
    if (!(sys->text ? recorded_text(sys, out, room, path) : file_text(sys, out, room, path))) {
        out[0] = 0;
        return false;
    }
    size_t n = strlen(out);
    while (n && out[n - 1] == '\n') out[--n] = 0;
    return true;
}

bool bn_sysfiles_text(const struct bn_sysfiles *sys, char *out, size_t room, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool found = text_at(sys, out, room, fmt, args);
    va_end(args);
    return found;
}

bool bn_sysfiles_u64(const struct bn_sysfiles *sys, uint64_t *out, const char *fmt, ...)
{
    char text[32], *unit;
    va_list args;
    va_start(args, fmt);
    bool found = text_at(sys, text, sizeof text, fmt, args);
    va_end(args);
    if (!found || text[0] < '0' || text[0] > '9') return false;
    *out = strtoull(text, &unit, 10);
    *out <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
    return true;
}
