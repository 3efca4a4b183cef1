/* SPDX-License-Identifier: Apache-2.0
 *
 * counters.h: the CPU's own counters (perf_event_open), of this program's work outside of the
 * kernel. Each event is asked for by itself: where one is refused the others still count.
 */
#ifndef BN_CLI_PROFILE_COUNTERS_H
#define BN_CLI_PROFILE_COUNTERS_H

#include "base/base.h"

enum counter {
    COUNTER_CYCLES,
    COUNTER_INSTRUCTIONS,
    COUNTER_CACHE_REFERENCES,
    COUNTER_CACHE_MISSES,
    COUNTER_BRANCHES,
    COUNTER_BRANCH_MISSES,
    COUNTER_TASK_CLOCK, /* nanoseconds on a CPU, of all threads */
    COUNTERS
};
const char *counter_name(enum counter c); /* as perf spells it */

struct counters {
    int fd[COUNTERS];
    int refused[COUNTERS]; /* errno; 0: it counts */
};

/* Of the calling thread, and of all that it will make from now on. */
void counters_open(struct counters *c);
void counters_close(struct counters *c);

/* What the kernel says: with more events than the CPU has counters, they take turns. */
struct counter_reading {
    uint64_t value, enabled_ns, running_ns;
};
void counters_read(const struct counters *c, struct counter_reading out[COUNTERS]);
/* Counted from one reading to the next, scaled up to all of the time; 0 if its turn never came. */
double counter_between(const struct counter_reading *from, const struct counter_reading *to);

/* kernel.perf_event_paranoid below a root folder ("" for this system); -2 if it cannot be read. */
int counters_paranoid(const char *root);
/* Why an event is refused and what to do, in one clause. */
void counters_explain(char *out, size_t n, int error, int paranoid);

#endif
