/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/profile/counters.h"

#include "cli/profile/sensors.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    uint32_t type;
    uint64_t config;
} events[COUNTERS] = {
    [COUNTER_CYCLES] = {"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
    [COUNTER_INSTRUCTIONS] = {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
    [COUNTER_CACHE_REFERENCES] = {"cache-references", PERF_TYPE_HARDWARE,
                                  PERF_COUNT_HW_CACHE_REFERENCES},
    [COUNTER_CACHE_MISSES] = {"cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
    [COUNTER_BRANCHES] = {"branches", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS},
    [COUNTER_BRANCH_MISSES] = {"branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES},
    [COUNTER_TASK_CLOCK] = {"task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
};

const char *counter_name(enum counter c) { return events[c].name; }

void counters_open(struct counters *c)
{
    for (int i = 0; i < COUNTERS; i++) {
        struct perf_event_attr a = {
            .size = sizeof a,
            .type = events[i].type,
            .config = events[i].config,
            .read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
            .inherit = 1,
            .exclude_kernel = 1, /* what needs the least permission */
            .exclude_hv = 1,
        };
        c->fd[i] = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
        c->refused[i] = c->fd[i] < 0 ? errno : 0;
    }
}

void counters_close(struct counters *c)
{
    for (int i = 0; i < COUNTERS; i++)
        if (c->fd[i] >= 0) close(c->fd[i]);
}

void counters_read(const struct counters *c, struct counter_reading out[COUNTERS])
{
    for (int i = 0; i < COUNTERS; i++) {
        out[i] = (struct counter_reading){0};
        if (c->fd[i] >= 0 && read(c->fd[i], &out[i], sizeof out[i]) != (ssize_t)sizeof out[i])
            out[i] = (struct counter_reading){0};
    }
}

double counter_between(const struct counter_reading *from, const struct counter_reading *to)
{
    uint64_t running_ns = to->running_ns - from->running_ns;
    if (!running_ns) return 0;
    return (double)(to->value - from->value) * (double)(to->enabled_ns - from->enabled_ns) /
           (double)running_ns;
}

int counters_paranoid(const char *root)
{
    double level;
    return sensors_number(&level, "%s/proc/sys/kernel/perf_event_paranoid", root) ? (int)level : -2;
}

void counters_explain(char *out, size_t n, int error, int paranoid)
{
    if (error == EACCES || error == EPERM) {
        if (paranoid > 2)
            snprintf(out, n,
                     "not allowed: kernel.perf_event_paranoid is %d, and 2 or less is needed "
                     "(sysctl kernel.perf_event_paranoid=2)",
                     paranoid);
        else
            snprintf(
                out, n,
                "not allowed, though kernel.perf_event_paranoid is %d: the rules of a container "
                "(seccomp) may forbid perf_event_open",
                paranoid);
    } else if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP) {
        snprintf(out, n, "this machine offers no such counter, as most virtual machines");
    } else if (error == ENOSYS) {
        snprintf(out, n, "the kernel has no perf_event_open, or a container hides it");
    } else {
        snprintf(out, n, "%s", strerror(error));
    }
}
