/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat/history.h"

#include "base/os/mem.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Entries in the file before it is written anew with those that are kept. */
enum { FILE_ENTRIES = 2 * HISTORY_ENTRIES };

static void push(struct history *h, const char *text)
{
    char *copy = strdup(text);
    if (!copy || !bn_grow((void **)&h->entries, &h->room, h->n + 1, sizeof *h->entries)) {
        free(copy);
        return;
    }
    if (h->n == HISTORY_ENTRIES) {
        free(h->entries[0]);
        memmove(h->entries, h->entries + 1, --h->n * sizeof *h->entries);
    }
    h->entries[h->n++] = copy;
}

/* Backslash and line end as \\ and \n. */
static void escape(struct bn_buf *b, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n') bn_buf_puts(b, "\\n");
        else if (*text == '\\') bn_buf_puts(b, "\\\\");
        else bn_buf_putc(b, *text);
    }
    bn_buf_putc(b, '\n');
}

static void unescape(char *line)
{
    char *to = line;
    for (const char *from = line; *from && *from != '\n'; from++) {
        bool escaped = *from == '\\' && from[1];
        if (escaped) from++;
        *to++ = escaped && *from == 'n' ? '\n' : *from;
    }
    *to = 0;
}

/* The folders above the file, as private as the file. */
static void make_folders(const char *path)
{
    char *copy = strdup(path);
    for (char *p = copy ? strchr(copy + 1, '/') : NULL; p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(copy, 0700);
        *p = '/';
    }
    free(copy);
}

static bool write_all(int fd, const struct bn_buf *b)
{
    return !b->failed && (!b->len || write(fd, b->data, b->len) == (ssize_t)b->len);
}

/* Another program may append in the meantime: the file is replaced as a whole, its last lines win. */
static void shorten(const struct history *h)
{
    struct bn_buf text, other;
    bn_buf_init(&text, (size_t)2 * HISTORY_ENTRIES * HISTORY_ENTRY_MAX_BYTES);
    bn_buf_init(&other, 4096);
    bn_buf_printf(&other, "%s.%d.part", h->path, (int)getpid());
    for (size_t i = 0; i < h->n; i++) escape(&text, h->entries[i]);
    int fd = other.failed ? -1 : open(other.data, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        bool good = write_all(fd, &text);
        if (close(fd) != 0 || !good || rename(other.data, h->path) != 0) unlink(other.data);
    }
    bn_buf_free(&other);
    bn_buf_free(&text);
}

void history_open(struct history *h, const char *path)
{
    *h = (struct history){.path = path ? strdup(path) : NULL};
    FILE *f = h->path ? fopen(h->path, "re") : NULL;
    char *line = NULL;
    size_t room = 0, lines = 0;
    while (f && getline(&line, &room, f) > 0) {
        unescape(line);
        if (*line) push(h, line);
        lines++;
    }
    free(line);
    if (f) fclose(f);
    if (lines > FILE_ENTRIES) shorten(h);
}

void history_add(struct history *h, const char *text)
{
    if (!*text || strlen(text) > HISTORY_ENTRY_MAX_BYTES) return;
    if (h->n && strcmp(h->entries[h->n - 1], text) == 0) return;
    push(h, text);
    if (!h->path) return;
    struct bn_buf line;
    bn_buf_init(&line, 2 * HISTORY_ENTRY_MAX_BYTES + 2);
    escape(&line, text);
    make_folders(h->path);
    int fd = open(h->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || !write_all(fd, &line)) { /* a full disk or a read-only home: go on without it */
        free(h->path);
        h->path = NULL;
    }
    if (fd >= 0) close(fd);
    bn_buf_free(&line);
}

size_t history_find(const struct history *h, size_t at, const char *text)
{
    while (at-- > 0)
        if (strstr(h->entries[at], text)) return at;
    return SIZE_MAX;
}

void history_close(struct history *h)
{
    for (size_t i = 0; i < h->n; i++) free(h->entries[i]);
    free(h->entries);
    free(h->path);
    *h = (struct history){.n = 0};
}
