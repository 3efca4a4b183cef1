/* SPDX-License-Identifier: Apache-2.0
 * How often a test repeats what it has already done once. The environment's BITNET_TEST_EFFORT is a share in percent;
 * without it, everything is done. Where every instruction is watched (./check sanitize) fewer repetitions say as much:
 * every test still runs and asserts, and every type, kernel and way is still met at least once. */
#ifndef BN_TEST_EFFORT_H
#define BN_TEST_EFFORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline unsigned long test_effort(void)
{
    const char *s = getenv("BITNET_TEST_EFFORT");
    unsigned long percent = s ? strtoul(s, NULL, 10) : 100;
    return percent > 0 && percent < 100 ? percent : 100;
}

static inline bool full_effort(void) { return test_effort() == 100; }

/* Of `full` repetitions those to be done: the share, and at least `least`. */
static inline size_t repeats(size_t full, size_t least)
{
    size_t n = full * test_effort() / 100;
    return n > least ? n : least < full ? least : full;
}

#endif
