/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include "base/os/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void bn_buf_init(struct bn_buf *b, size_t max_bytes) { *b = (struct bn_buf){.max = max_bytes}; }

void bn_buf_free(struct bn_buf *b)
{
    free(b->data);
    bn_buf_init(b, b->max);
}

void bn_buf_clear(struct bn_buf *b)
{
    b->len = 0;
    b->failed = b->full = false;
    if (b->data) b->data[0] = 0;
}

/* room for n more bytes and the closing 0 */
static bool reserve(struct bn_buf *b, size_t n)
{
    bool full = n > b->max || b->len > b->max - n;
    if (!full && bn_grow((void **)&b->data, &b->room, b->len + n + 1, 1)) return true;
    b->failed = true;
    if (full) b->full = true;
    return false;
}

bool bn_buf_append(struct bn_buf *b, const void *p, size_t n)
{
    if (!reserve(b, n)) return false;
    if (n) memcpy(b->data + b->len, p, n);
    b->len += n;
    b->data[b->len] = 0;
    return true;
}

bool bn_buf_puts(struct bn_buf *b, const char *s) { return bn_buf_append(b, s, strlen(s)); }
bool bn_buf_putc(struct bn_buf *b, char c) { return bn_buf_append(b, &c, 1); }

bool bn_buf_printf(struct bn_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n)) {
        b->failed = true;
        return false;
    }
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

char *bn_buf_take(struct bn_buf *b)
{
    if (b->failed || !bn_buf_append(b, "", 0)) {
        bn_buf_free(b);
        return NULL;
    }
    char *p = b->data;
    bn_buf_init(b, b->max);
    return p;
}

void bn_reader_take(struct bn_reader *r, void *to, size_t n)
{
    r->bad |= (size_t)(r->end - r->at) < n;
    if (r->bad) {
        memset(to, 0, n);
        return;
    }
    memcpy(to, r->at, n);
    r->at += n;
}
