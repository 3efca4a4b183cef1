/* SPDX-License-Identifier: Apache-2.0
 * sized.h: structs that start with their size, passed between programs and libraries of different
 * versions. bitnet.h ("Sizes") has the rules; they are carried out here and nowhere else. */
#ifndef BN_API_SIZED_H
#define BN_API_SIZED_H

#include "base/status.h"
#include <bitnet/ranks.h>
#include <string.h>

/* Every struct that a program gives by its size, with the last member of its first version. Lines are
 * added and never changed: a struct must not become smaller than programs have it. */
#define BN_SIZED_STRUCTS(X)                    \
    X(bitnet_sampling, reserved)               \
    X(bitnet_request, prefix_cache)            \
    X(bitnet_adapter_info, bytes)              \
    X(bitnet_event, repetition)                \
    X(bitnet_model_options, verify)            \
    X(bitnet_model_info, memory)               \
    X(bitnet_engine_options, random_kv)        \
    X(bitnet_engine_info, ffn)                 \
    X(bitnet_embed_options, reserved_word)     \
    X(bitnet_score_options, n_computed)        \
    X(bitnet_prefix_options, reserved)         \
    X(bitnet_prefix_file, ns)                  \
    X(bitnet_file_model, kv_token_bytes)       \
    X(bitnet_tensor_info, is_packed)           \
    X(bitnet_tensor_stats, n_nonfinite)        \
    X(bitnet_convert_options, backend)         \
    X(bitnet_synth_options, mtp)               \
    X(bitnet_ppl_options, progress_user)       \
    X(bitnet_ppl_result, ns)                   \
    X(bitnet_compare_options, progress_user)   \
    X(bitnet_divergence, ns)                   \
    X(bitnet_calibrate_options, progress_user) \
    X(bitnet_prune_output, reserved_word)      \
    X(bitnet_prune_options, progress_user)     \
    X(bitnet_prune_result, ns)                 \
    X(bitnet_health, scrub_mismatches)         \
    X(bitnet_kv_health, values)                \
    X(bitnet_ffn_layer, sampled_zeros)         \
    X(bitnet_scrub, offset)                    \
    X(bitnet_profile_entry, macs)              \
    X(bitnet_profile_info, spans_lost)         \
    X(bitnet_profile_span, kind)               \
    X(bitnet_kernel_info, supported)           \
    X(bitnet_kernel_case, bytes)               \
    X(bitnet_ranks, exchange_ns)

#define BN_FIRST_SIZE(type, last) \
    BN_FIRST_##type = offsetof(type, last) + sizeof(((type *)0)->last),
enum bn_first_sizes { BN_SIZED_STRUCTS(BN_FIRST_SIZE) };

/* What this library knows of a struct. */
struct bn_sized {
    const char *name;
    size_t first, known; /* bytes of the first version; of this one */
};
#define BN_SIZED(type) (&(const struct bn_sized){#type, BN_FIRST_##type, sizeof(type)})

/* Bytes that caller and library both know. */
static inline size_t bn_sized_common(const struct bn_sized *t, size_t size)
{
    return size < t->known ? size : t->known;
}

/* No struct of any version is as large: such a size was never set, and is not to be written to. */
enum { BN_SIZE_ABSURD = 1 << 16 };

static inline bitnet_status bn_sized_check(const struct bn_sized *t, size_t size, bitnet_error *err)
{
    if (size >= BN_SIZE_ABSURD)
        return bn_fail(err, BITNET_E_ARG, "%s.size is %zu: it was not set to sizeof", t->name,
                       size);
    if (size >= t->first) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "%s.size is %zu; at least %zu is possible: set it to sizeof",
                   t->name, size, t->first);
}

/* Input: from `src`, the caller's, over the defaults in `dst`; NULL leaves them. dst->size is the
 * library's own. */
static inline bitnet_status bn_sized_read(const struct bn_sized *t, void *dst, const void *src,
                                          bitnet_error *err)
{
    size_t size;
    if (!src) return BITNET_OK;
    memcpy(&size, src, sizeof size);
    BN_TRY(bn_sized_check(t, size, err));
    for (size_t i = t->known; i < size; i++)
        if (((const unsigned char *)src)[i])
            return bn_fail(
                err, BITNET_E_UNSUPPORTED,
                "%s.size is %zu, of which this library (%s) knows %zu; byte %zu is not 0", t->name,
                size, bitnet_version(), t->known, i);
    memcpy((char *)dst + sizeof size, (const char *)src + sizeof size,
           bn_sized_common(t, size) - sizeof size);
    return BITNET_OK;
}

/* Output: from `src`, whole, to `dst`, the caller's of `size` bytes; that is also what dst->size is
 * afterwards. */
static inline void bn_sized_put(const struct bn_sized *t, void *dst, size_t size, const void *src)
{
    size_t both = bn_sized_common(t, size);
    if (both < sizeof size) return; /* not even that much */
    memcpy(dst, src, both);
    if (size > both) memset((char *)dst + both, 0, size - both);
    memcpy(dst, &size, sizeof size);
}

/* The same, by the size that the caller's says. */
static inline bitnet_status bn_sized_write(const struct bn_sized *t, void *dst, const void *src,
                                           bitnet_error *err)
{
    size_t size;
    memcpy(&size, dst, sizeof size);
    BN_TRY(bn_sized_check(t, size, err));
    bn_sized_put(t, dst, size, src);
    return BITNET_OK;
}

/* Defaults, as bitnet_request_init() writes them. */
#define BN_INIT(type, dst, size, defaults) \
    bn_sized_put(BN_SIZED(type), (type *){dst}, size, (const type *){defaults})
/* Before long work whose result is written by BN_WRITE. */
#define BN_CHECK_SIZE(type, dst, err) \
    bn_sized_check(BN_SIZED(type), ((const type *){dst})->size, err)
#define BN_READ(type, dst, src, err) \
    bn_sized_read(BN_SIZED(type), (type *){dst}, (const type *){src}, err)
#define BN_WRITE(type, dst, src, err) \
    bn_sized_write(BN_SIZED(type), (type *){dst}, (const type *){src}, err)

#endif
