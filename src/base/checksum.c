/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checksum.h"

#include "base/rng.h"

enum { LANES = 8, STRIPE = LANES * 8 };

/* Eight lanes of 64 bits that do not wait for each other. For given other words a lane is a one-to-one
 * function of each of its words, and so is the sum of the lanes of each lane. */
static void put_stripe(uint64_t lanes[LANES], const uint8_t *stripe)
{
    for (size_t i = 0; i < LANES; i++)
        lanes[i] =
            ((lanes[i] << 29 | lanes[i] >> 35) ^ bn_load_u64(stripe + i * 8)) * 0x9e3779b97f4a7c15u;
}

uint64_t bn_checksum(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t lanes[LANES] = {1, 2, 3, 4, 5, 6, 7, 8}, sum = n;
    uint8_t last[STRIPE] = {0};
    for (; n >= STRIPE; n -= STRIPE, p += STRIPE) put_stripe(lanes, p);
    if (n) memcpy(last, p, n);
    put_stripe(lanes, last);
    for (size_t i = 0; i < LANES; i++) sum += bn_mix64(lanes[i]);
    return sum;
}
