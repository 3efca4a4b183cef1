/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cores.h"

#include "base/pool.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The beginning of a small file; "" if it cannot be read. */
static const char *read_text(char *out, size_t room, const char *path)
{
    out[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return out;
    ssize_t n = read(fd, out, room - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return out;
}

/* ------------------------------------------------------------------ how many */

/* "max 100000", "150000 100000": cores, rounded up; 0 if unlimited or not to be read. v1 keeps the
 * two numbers in two files. */
static uint32_t quota_cores(const char *folder, bool v2)
{
    char path[PATH_MAX + 32], text[64];
    long long quota = -1, period = 100000;
    snprintf(path, sizeof path, "%s/%s", folder, v2 ? "cpu.max" : "cpu.cfs_quota_us");
    if (sscanf(read_text(text, sizeof text, path), "%lld %lld", &quota, &period) < 1) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!v2 && sscanf(read_text(text, sizeof text, path), "%lld", &period) != 1) return 0;
    if (quota <= 0 || period <= 0) return 0;
    return (uint32_t)((quota + period - 1) / period);
}

/* The least quota of the group and of those above it. In a container the path may be one that only
 * the host knows; its own group is then the root that is mounted there. */
static uint32_t group_cores(const char *root, const char *group, bool v2)
{
    char folder[PATH_MAX];
    uint32_t least = 0;
    int n = snprintf(folder, sizeof folder, "%s%s", root, group);
    if (n < 0 || (size_t)n >= sizeof folder) return 0;
    for (;;) {
        uint32_t cores = quota_cores(folder, v2);
        if (cores && (!least || cores < least)) least = cores;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(root) || !slash) return least;
        *slash = 0;
    }
}

uint32_t bn_cgroup_cores(const char *root, const char *groups)
{
    char v1_root[PATH_MAX], line[PATH_MAX];
    uint32_t least = 0;
    snprintf(v1_root, sizeof v1_root, "%s/cpu", root);
    for (const char *at = groups; *at; at += strcspn(at, "\n"), at += *at == '\n') {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue; /* "4:cpu,cpuacct:/a/b" in v1, "0::/a/b" in v2 */
        *names++ = *path++ = 0;
        bool v2 = !*names, v1 = false;
        for (char *rest, *name = strtok_r(names, ",", &rest); name;
             name = strtok_r(NULL, ",", &rest))
            v1 = v1 || strcmp(name, "cpu") == 0;
        uint32_t cores = v1   ? group_cores(v1_root, path, false)
                         : v2 ? group_cores(root, path, true)
                              : 0;
        if (cores && (!least || cores < least)) least = cores;
    }
    return least;
}

/* The affinity mask's CPUs; one if it cannot be had. */
static uint32_t mask_cpus(cpu_set_t *set)
{
    CPU_ZERO(set);
    return sched_getaffinity(0, sizeof *set, set) == 0 ? (uint32_t)CPU_COUNT(set) : 1;
}

uint32_t bn_usable_cores(void)
{
    cpu_set_t set;
    uint32_t n = mask_cpus(&set);
    char groups[4096];
    uint32_t quota =
        bn_cgroup_cores("/sys/fs/cgroup", read_text(groups, sizeof groups, "/proc/self/cgroup"));
    if (quota && quota < n) n = quota;
    return n < 1 ? 1 : n > BN_MAX_THREADS ? BN_MAX_THREADS : n;
}

/* ------------------------------------------------------------------ which */

/* One number of a list; *at moves behind it. */
static bool take_cpu(unsigned *out, const char **at)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    unsigned long v = strtoul(*at, &end, 10);
    if (v >= CPU_SETSIZE) return false;
    *at = end;
    *out = (unsigned)v;
    return true;
}

bool bn_cpus_parse(cpu_set_t *set, const char *text)
{
    CPU_ZERO(set);
    for (const char *p = text;; p++) {
        unsigned from, to;
        if (!take_cpu(&from, &p)) return false;
        to = from;
        if (*p == '-') {
            p++;
            if (!take_cpu(&to, &p) || to < from) return false;
        }
        for (unsigned c = from; c <= to; c++) CPU_SET(c, set);
        if (!*p || (*p == '\n' && !p[1])) return true;
        if (*p != ',') return false;
    }
}

/* The first of the CPUs that share a core with this one; itself where the kernel does not say. */
static uint16_t first_sibling(unsigned cpu)
{
    char path[96], text[256];
    cpu_set_t set;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
    if (bn_cpus_parse(&set, read_text(text, sizeof text, path)))
        for (unsigned c = 0; c < cpu; c++)
            if (CPU_ISSET(c, &set)) return (uint16_t)c;
    return (uint16_t)cpu;
}

size_t bn_cpus_order(uint16_t *out, const cpu_set_t *usable, unsigned self, const uint16_t *core)
{
    cpu_set_t left = *usable, taken; /* CPUs; cores, by number */
    size_t n = 0;
    CPU_ZERO(&taken);
    CPU_CLR(self, &left);
    CPU_SET(core[self], &taken);
    while (CPU_COUNT(&left)) {
        for (unsigned c = 0; c < CPU_SETSIZE; c++)
            if (CPU_ISSET(c, &left) && !CPU_ISSET(core[c], &taken)) {
                CPU_CLR(c, &left);
                CPU_SET(core[c], &taken);
                out[n++] = (uint16_t)c;
            }
        CPU_ZERO(&taken); /* every core has one more now: the next round */
    }
    return n;
}

size_t bn_cpus_for_workers(uint16_t *out, size_t n)
{
    cpu_set_t usable;
    uint16_t core[CPU_SETSIZE], order[CPU_SETSIZE];
    uint32_t n_cpus = mask_cpus(&usable);
    int self = sched_getcpu();
    if (n >= n_cpus || bn_usable_cores() < n_cpus) return 0;
    if (self < 0 || self >= CPU_SETSIZE || !CPU_ISSET(self, &usable)) return 0;
    for (unsigned c = 0; c < CPU_SETSIZE; c++)
        core[c] = CPU_ISSET(c, &usable) ? first_sibling(c) : (uint16_t)c;
    bn_cpus_order(order, &usable, (unsigned)self, core);
    memcpy(out, order, n * sizeof *out);
    return n;
}
