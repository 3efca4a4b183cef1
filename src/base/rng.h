/* SPDX-License-Identifier: Apache-2.0
 * Random numbers that are the same everywhere: a counter run through a mixing function
 * (splitmix64), so that a value can also be had directly from (seed, position). */
#ifndef BN_BASE_RNG_H
#define BN_BASE_RNG_H

#include "base/base.h"

static inline uint64_t bn_mix64(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

struct bn_rng {
    uint64_t state;
};

static inline uint64_t bn_rng_u64(struct bn_rng *r)
{
    return bn_mix64(r->state += 0x9e3779b97f4a7c15u);
}
static inline uint32_t bn_rng_below(struct bn_rng *r, uint32_t n)
{
    return (uint32_t)((bn_rng_u64(r) >> 32) * n >> 32);
}
/* uniform in [0, 1) with 53 bits */
static inline double bn_rng_unit(struct bn_rng *r)
{
    return (double)(bn_rng_u64(r) >> 11) * 0x1p-53;
}

#endif
