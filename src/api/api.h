/* SPDX-License-Identifier: Apache-2.0
 * What the files of the door share: the public handles and the checks they all make. */
#ifndef BN_API_API_H
#define BN_API_API_H

#include "base/status.h"
#include "model/model.h"

struct bitnet_model {
    struct bn_model *m;
    char arch[32];
};

/* An options or info struct says its size first: callers built against an older header have a
 * smaller one. Copies what both sides know, over defaults that are already in dst. */
static inline void bn_copy_sized(void *dst, size_t dst_size, const void *src)
{
    size_t n;
    memcpy(&n, src, sizeof n);
    if (n == 0 || n > dst_size) n = dst_size;
    memcpy(dst, src, n);
}

/* The other direction: fills at most as much as the caller's struct has. `size` itself stays the
 * caller's. */
static inline void bn_fill_sized(void *dst, const void *src, size_t src_size)
{
    size_t n;
    memcpy(&n, dst, sizeof n);
    if (n < sizeof n || n > src_size) n = src_size;
    memcpy((char *)dst + sizeof n, (const char *)src + sizeof n, n - sizeof n);
}

#define BN_NEED(cond, err, what)                                               \
    do {                                                                       \
        if (!(cond)) return bn_fail(err, BITNET_E_ARG, "%s: " what, __func__); \
    } while (0)

#endif
