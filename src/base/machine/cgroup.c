/* SPDX-License-Identifier: Apache-2.0
 * A line of /proc/PID/cgroup is "0::/a/b" in version 2 and "4:cpu,cpuacct:/a/b" in version 1, where
 * every controller has a tree of its own. Both may be there at once. */
#include "base/machine/cgroup.h"

#include <stdio.h>
#include <stdlib.h>

#define MOUNT "/sys/fs/cgroup"

/* v1 writes the largest multiple of a page for "no limit". */
static const uint64_t no_memory_limit = (uint64_t)1 << 60;

static void lower_quota(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *folder,
                        double quota, double period)
{
    char text[512];
    if (quota <= 0 || period <= 0) return;
    double cpus = quota / period;
    if (g->quota_cpus > 0 && cpus >= g->quota_cpus) return;
    g->quota_cpus = cpus;
    g->n_periods = g->n_throttled = 0;
    if (!bn_sysfiles_text(sys, text, sizeof text, "%s/cpu.stat", folder)) return;
    const char *periods = strstr(text, "nr_periods "), *throttled = strstr(text, "nr_throttled ");
    if (periods) g->n_periods = strtoull(periods + 11, NULL, 10);
    if (throttled) g->n_throttled = strtoull(throttled + 13, NULL, 10);
}

static void read_quota(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *folder,
                       bool v2)
{
    char text[64];
    long long quota = -1, period = 100000;
    uint64_t v1_period;
    if (!bn_sysfiles_text(sys, text, sizeof text, "%s/%s", folder,
                          v2 ? "cpu.max" : "cpu.cfs_quota_us"))
        return;
    if (sscanf(text, "%lld %lld", &quota, &period) < 1) return; /* "max 100000" */
    if (!v2) {
        if (!bn_sysfiles_u64(sys, &v1_period, "%s/cpu.cfs_period_us", folder)) return;
        period = (long long)v1_period;
    }
    lower_quota(g, sys, folder, (double)quota, (double)period);
}

static void read_memory(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *folder,
                        bool v2)
{
    uint64_t bytes;
    if (!bn_sysfiles_u64(sys, &bytes, "%s/%s", folder, v2 ? "memory.max" : "memory.limit_in_bytes"))
        return;
    if (bytes < no_memory_limit && (!g->memory_bytes || bytes < g->memory_bytes))
        g->memory_bytes = bytes;
}

/* The lowest group that says something: those above it have at least its CPUs. */
static void read_cpuset(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *folder,
                        bool v2)
{
    if (!g->cpuset[0])
        bn_sysfiles_text(sys, g->cpuset, sizeof g->cpuset, "%s/%s", folder,
                         v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus");
}

typedef void read_fn(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *folder,
                     bool v2);

/* The group and those above it. In a container the path may be one that only the host knows; its
 * own group is then the root that is mounted there. */
static void walk_up(struct bn_cgroup *g, const struct bn_sysfiles *sys, const char *mount,
                    const char *group, read_fn *read, bool v2)
{
    char folder[BN_SYSFILES_MAX_PATH];
    const char *below = strcmp(group, "/") == 0 ? "" : group;
    int n = snprintf(folder, sizeof folder, "%s%s", mount, below);
    if (n < 0 || (size_t)n >= sizeof folder) snprintf(folder, sizeof folder, "%s", mount);
    for (;;) {
        read(g, sys, folder, v2);
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(mount) || !slash) return;
        *slash = 0;
    }
}

static const struct {
    const char *controller;
    read_fn *read;
} readers[] = {{"cpu", read_quota}, {"memory", read_memory}, {"cpuset", read_cpuset}};

static void read_v1(struct bn_cgroup *g, const struct bn_sysfiles *sys, char *controllers,
                    const char *group)
{
    char mount[64], *rest;
    for (char *name = strtok_r(controllers, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        for (size_t i = 0; i < BN_ARRAY_LEN(readers); i++)
            if (strcmp(name, readers[i].controller) == 0) {
                snprintf(mount, sizeof mount, "%s/%s", MOUNT, name);
                walk_up(g, sys, mount, group, readers[i].read, false);
            }
}

void bn_cgroup_read(struct bn_cgroup *out, const struct bn_sysfiles *sys, const char *groups)
{
    char line[BN_SYSFILES_MAX_PATH];
    *out = (struct bn_cgroup){0};
    for (const char *at = groups; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *names++ = *group++ = 0;
        if (*names) read_v1(out, sys, names, group);
        for (size_t i = 0; !*names && i < BN_ARRAY_LEN(readers); i++)
            walk_up(out, sys, MOUNT, group, readers[i].read, true);
    }
}

uint64_t bn_memory_available(const struct bn_sysfiles *sys)
{
    static const char name[] = "MemAvailable:";
    char text[1024], groups[BN_CGROUP_TEXT];
    struct bn_cgroup group;
    bn_sysfiles_text(sys, text, sizeof text, "/proc/meminfo");
    bn_sysfiles_text(sys, groups, sizeof groups, "/proc/self/cgroup");
    bn_cgroup_read(&group, sys, groups);
    const char *at = strstr(text, name);
    uint64_t bytes = at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
    return group.memory_bytes && group.memory_bytes < bytes ? group.memory_bytes : bytes;
}
