/* SPDX-License-Identifier: Apache-2.0
 * Pieces of GGUF bytes for tests that make broken files. The library's own writer refuses to. */
#ifndef BN_TEST_GGUF_BUILD_H
#define BN_TEST_GGUF_BUILD_H

#include "base/buf.h"

static inline void put32(struct bn_buf *b, uint32_t v) { bn_buf_append(b, &v, 4); }
static inline void put64(struct bn_buf *b, uint64_t v) { bn_buf_append(b, &v, 8); }
static inline void put_s(struct bn_buf *b, const char *s)
{
    put64(b, strlen(s));
    bn_buf_puts(b, s);
}
static inline void put_head(struct bn_buf *b, uint64_t n_tensors, uint64_t n_meta)
{
    bn_buf_puts(b, "GGUF");
    put32(b, 3);
    put64(b, n_tensors);
    put64(b, n_meta);
}
static inline void put_kv_str(struct bn_buf *b, const char *key, const char *value)
{
    put_s(b, key);
    put32(b, 8);
    put_s(b, value);
}
static inline void put_kv_u32(struct bn_buf *b, const char *key, uint32_t value)
{
    put_s(b, key);
    put32(b, 4);
    put32(b, value);
}
static inline void put_tensor(struct bn_buf *b, const char *name, uint64_t cols, uint64_t rows,
                              uint32_t id, uint64_t offset)
{
    put_s(b, name);
    put32(b, 2);
    put64(b, cols);
    put64(b, rows);
    put32(b, id);
    put64(b, offset);
}
static inline void put_zeros(struct bn_buf *b, size_t n)
{
    while (n--) bn_buf_putc(b, 0);
}
static inline void put_align(struct bn_buf *b, size_t a)
{
    while (b->len % a) bn_buf_putc(b, 0);
}

#endif
