/* SPDX-License-Identifier: Apache-2.0
 * What control groups (versions 1 and 2) leave to a process. */
#ifndef BN_BASE_MACHINE_CGROUP_H
#define BN_BASE_MACHINE_CGROUP_H

#include "base/os/sysfiles.h"

enum { BN_CGROUP_TEXT = 4096, BN_CGROUP_CPUSET = 256 };

struct bn_cgroup {
    double quota_cpus;               /* CPU time a second; 0: no limit */
    uint64_t n_periods, n_throttled; /* since the group was made; of these the quota was used up */
    char cpuset[BN_CGROUP_CPUSET];   /* the CPUs of its group, as 0,2-3; "": it does not say */
    uint64_t memory_bytes;           /* 0: no limit */
};

/* groups: the text of the process's /proc/PID/cgroup. The least of a group's limits and of those
 * above it counts. */
void bn_cgroup_read(struct bn_cgroup *out, const struct bn_sysfiles *sys, const char *groups);
/* Memory that the process of these files (/proc/self) can have without swapping: what is available, but
 * not more than its group may have; 0: unknown. */
uint64_t bn_memory_available(const struct bn_sysfiles *sys);

#endif
