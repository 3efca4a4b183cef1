/* SPDX-License-Identifier: Apache-2.0
 * Growable bytes with a hard maximum given at birth, so that no input can grow memory without
 * bound. A failed append leaves the buffer as it was and is remembered in `failed`: write a run of
 * appends, then look once. */
#ifndef BN_BASE_BUF_H
#define BN_BASE_BUF_H

#include "base/base.h"

struct bn_buf {
    char *data; /* always followed by a 0 that is not counted, once anything was appended */
    size_t len, room, max;
    bool failed; /* an append hit the maximum or the end of memory */
    bool full;   /* it was the maximum */
};

void bn_buf_init(struct bn_buf *b, size_t max_bytes);
void bn_buf_free(struct bn_buf *b);  /* leaves it empty and reusable */
void bn_buf_clear(struct bn_buf *b); /* keeps the memory */
bool bn_buf_append(struct bn_buf *b, const void *p, size_t n);
bool bn_buf_puts(struct bn_buf *b, const char *s);
bool bn_buf_putc(struct bn_buf *b, char c);
bool bn_buf_printf(struct bn_buf *b, const char *fmt, ...) BN_PRINTF(2, 3);
char *bn_buf_take(
    struct bn_buf *b); /* the 0-terminated bytes, owned by the caller (free); NULL if failed */

/* Bytes that are read from front to back. What goes beyond their end is zeros, and remembered in `bad`:
 * take a run of values, then look once. */
struct bn_reader {
    const char *at, *end;
    bool bad;
};
void bn_reader_take(struct bn_reader *r, void *to, size_t n);

#endif
