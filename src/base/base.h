/* SPDX-License-Identifier: Apache-2.0
 * The few macros and checked sums that every room needs. */
#ifndef BN_BASE_BASE_H
#define BN_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BN_ARRAY_LEN(a)      (sizeof(a) / sizeof((a)[0]))
#define BN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bitnet reads its files in place and needs a little-endian machine"
#endif

static inline size_t bn_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t bn_max_size(size_t a, size_t b) { return a > b ? a : b; }

/* a must be a power of two */
static inline size_t bn_align_up(size_t n, size_t a) { return (n + a - 1) & ~(a - 1); }
static inline size_t bn_div_up(size_t n, size_t d) { return n / d + (n % d != 0); }

static inline bool bn_ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && memcmp(s + n - k, end, k) == 0;
}

/* Checked arithmetic for sizes that come from files: false on overflow. */
static inline bool bn_mul_u64(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool bn_add_u64(uint64_t *out, uint64_t a, uint64_t b)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Unaligned little-endian loads; files promise no alignment. */
static inline uint16_t bn_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t bn_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t bn_load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline float bn_load_f32(const void *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void bn_store_u16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void bn_store_u32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void bn_store_f32(void *p, float v) { memcpy(p, &v, sizeof v); }

#endif
