/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine/cores.h"

#include "base/machine/cgroup.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CPU_FOLDER "/sys/devices/system/cpu"

/* ------------------------------------------------------------------ lists */

/* One number of a list; *at moves behind it. */
static bool take_cpu(unsigned *out, const char **at)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    unsigned long v = strtoul(*at, &end, 10);
    if (v >= BN_MAX_CPUS) return false;
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

void bn_cpus_format(char *out, size_t room, const cpu_set_t *set)
{
    size_t n = 0;
    out[0] = 0;
    for (unsigned c = 0, end; c < BN_MAX_CPUS; c = end + 1) {
        char range[16];
        for (end = c; end < BN_MAX_CPUS && CPU_ISSET(end, set); end++) continue;
        if (end == c) continue;
        snprintf(range, sizeof range, end - c > 1 ? "%s%u-%u" : "%s%u", n ? "," : "", c, end - 1);
        if (n + strlen(range) + sizeof "..." > room) {
            memcpy(out + n, "...", sizeof "...");
            return;
        }
        memcpy(out + n, range, strlen(range) + 1);
        n += strlen(range);
    }
}

bool bn_cpus_read(cpu_set_t *set, const struct bn_sysfiles *sys, const char *fmt, ...)
{
    char path[BN_SYSFILES_MAX_PATH], text[BN_MAX_CPUS * 4];
    va_list args;
    va_start(args, fmt);
    vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    return bn_sysfiles_text(sys, text, sizeof text, "%s", path) && bn_cpus_parse(set, text);
}

unsigned bn_cpus_first(const cpu_set_t *set)
{
    unsigned c = 0;
    while (c < BN_MAX_CPUS && !CPU_ISSET(c, set)) c++;
    return c;
}

/* ------------------------------------------------------------------ topology */

/* Fills `members` with the CPUs of a group that this one is in; false: the kernel does not say. */
typedef bool members_fn(cpu_set_t *members, const struct bn_sysfiles *sys, unsigned cpu);

/* Kernels before 5.2 have the older of the two names only. */
static bool core_members(cpu_set_t *members, const struct bn_sysfiles *sys, unsigned cpu)
{
    return bn_cpus_read(members, sys, CPU_FOLDER "/cpu%u/topology/core_cpus_list", cpu) ||
           bn_cpus_read(members, sys, CPU_FOLDER "/cpu%u/topology/thread_siblings_list", cpu);
}

static bool package_members(cpu_set_t *members, const struct bn_sysfiles *sys, unsigned cpu)
{
    return bn_cpus_read(members, sys, CPU_FOLDER "/cpu%u/topology/package_cpus_list", cpu) ||
           bn_cpus_read(members, sys, CPU_FOLDER "/cpu%u/topology/core_siblings_list", cpu);
}

/* Those that share the last cache. */
static bool cache_members(cpu_set_t *members, const struct bn_sysfiles *sys, unsigned cpu)
{
    uint64_t level, last = 0;
    cpu_set_t found;
    for (unsigned i = 0; i < BN_MAX_CACHE_INDEX; i++) {
        if (!bn_sysfiles_u64(sys, &level, CPU_FOLDER "/cpu%u/cache/index%u/level", cpu, i)) break;
        if (level > last &&
            bn_cpus_read(&found, sys, CPU_FOLDER "/cpu%u/cache/index%u/shared_cpu_list", cpu, i)) {
            last = level;
            *members = found;
        }
    }
    return last > 0;
}

/* One reading is enough for all CPUs of a group. */
static void read_groups(uint16_t *group, const cpu_set_t *online, const struct bn_sysfiles *sys,
                        members_fn *read_members)
{
    cpu_set_t left = *online, members;
    for (unsigned first; (first = bn_cpus_first(&left)) < BN_MAX_CPUS;) {
        if (!read_members(&members, sys, first)) CPU_ZERO(&members);
        CPU_SET(first, &members);
        CPU_AND(&members, &members, &left);
        for (unsigned c = first; c < BN_MAX_CPUS; c++)
            if (CPU_ISSET(c, &members)) group[c] = (uint16_t)first;
        CPU_XOR(&left, &left, &members);
    }
}

static void read_nodes(struct bn_topology *top, const struct bn_sysfiles *sys)
{
    cpu_set_t nodes, members;
    memset(top->node, BN_NO_NODE, sizeof top->node);
    if (!bn_cpus_read(&nodes, sys, "/sys/devices/system/node/online")) return;
    for (unsigned n = 0; n < BN_MAX_NODES; n++)
        if (CPU_ISSET(n, &nodes) &&
            bn_cpus_read(&members, sys, "/sys/devices/system/node/node%u/cpulist", n))
            for (unsigned c = 0; c < BN_MAX_CPUS; c++)
                if (CPU_ISSET(c, &members)) top->node[c] = (uint8_t)n;
}

/* CPUs whose number in that file is below a share of the largest. false: there are no numbers. */
static bool read_slower(struct bn_topology *top, const struct bn_sysfiles *sys, const char *file,
                        uint64_t percent)
{
    uint32_t value[BN_MAX_CPUS] = {0};
    uint64_t most = 0, v;
    for (unsigned c = 0; c < BN_MAX_CPUS; c++) {
        if (!CPU_ISSET(c, &top->online)) continue;
        if (!bn_sysfiles_u64(sys, &v, CPU_FOLDER "/cpu%u/%s", c, file) || v > UINT32_MAX)
            return false;
        value[c] = (uint32_t)v;
        if (v > most) most = v;
    }
    for (unsigned c = 0; c < BN_MAX_CPUS; c++)
        if (CPU_ISSET(c, &top->online) && (uint64_t)value[c] * 100 < most * percent)
            CPU_SET(c, &top->slow);
    return most > 0;
}

/* Intel names its kinds. The kernel's capacity counts what a core does in a second, 1024 for the
 * best: a "prime" core and its big neighbours are within a fifth of each other, small ones have a
 * third of it. The frequency alone says less, so more has to be missing: AMD's compact cores, of
 * the same design at about 71 %, are worth a thread. */
static void read_slow(struct bn_topology *top, const struct bn_sysfiles *sys)
{
    cpu_set_t fast;
    CPU_ZERO(&top->slow);
    if (bn_cpus_read(&fast, sys, "/sys/devices/cpu_core/cpus")) {
        CPU_AND(&fast, &fast, &top->online);
        CPU_XOR(&top->slow, &top->online, &fast);
    } else if (!read_slower(top, sys, "cpu_capacity", 80))
        read_slower(top, sys, "cpufreq/cpuinfo_max_freq", 70);
}

void bn_topology_read(struct bn_topology *out, const struct bn_sysfiles *sys,
                      const cpu_set_t *allowed)
{
    for (unsigned c = 0; c < BN_MAX_CPUS; c++)
        out->core[c] = out->package[c] = out->cache[c] = (uint16_t)c;
    if (!bn_cpus_read(&out->online, sys, CPU_FOLDER "/online")) out->online = *allowed;
    CPU_AND(&out->usable, &out->online, allowed);
    read_groups(out->core, &out->online, sys, core_members);
    read_groups(out->package, &out->online, sys, package_members);
    read_groups(out->cache, &out->online, sys, cache_members);
    read_nodes(out, sys);
    read_slow(out, sys);
}

uint32_t bn_topology_groups(const uint16_t *group, const cpu_set_t *of)
{
    cpu_set_t seen;
    CPU_ZERO(&seen);
    for (unsigned c = 0; c < BN_MAX_CPUS; c++)
        if (CPU_ISSET(c, of)) CPU_SET(group[c], &seen);
    return (uint32_t)CPU_COUNT(&seen);
}

cpu_set_t bn_topology_fast(const struct bn_topology *t)
{
    cpu_set_t slow, fast;
    CPU_AND(&slow, &t->usable, &t->slow);
    CPU_XOR(&fast, &t->usable, &slow);
    return CPU_COUNT(&fast) ? fast : t->usable;
}

/* ------------------------------------------------------------------ how many */

/* Names of products and vendors that make virtual machines; the last is Hyper-V's. Amazon's and
 * Google's names are on real machines, too. */
static bool find_maker(char *name, size_t room, const struct bn_sysfiles *sys)
{
    static const char *const makers[] = {
        "QEMU",           "KVM", "VMware", "VirtualBox", "Xen", "Bochs", "Google Compute Engine",
        "Virtual Machine"};
    static const char *const files[] = {"product_name", "sys_vendor"};
    char text[256];
    for (size_t f = 0; f < BN_ARRAY_LEN(files); f++) {
        bn_sysfiles_text(sys, text, sizeof text, "/sys/class/dmi/id/%s", files[f]);
        for (size_t i = 0; i < BN_ARRAY_LEN(makers); i++)
            if (strstr(text, makers[i])) {
                snprintf(name, room, "%s", makers[i]);
                return true;
            }
    }
    name[0] = 0;
    return false;
}

/* x86 has a flag for it. */
bool bn_virtual_machine(char *name, size_t room, const struct bn_sysfiles *sys)
{
    char text[4096];
    bool maker = find_maker(name, room, sys);
    bn_sysfiles_text(sys, text, sizeof text, "/proc/cpuinfo");
    if (strstr(text, "\nflags")) return strstr(text, " hypervisor") != NULL;
    return maker || bn_sysfiles_text(sys, text, sizeof text, "/sys/hypervisor/type");
}

/* Threads meet at barriers, so with n of them a quota of q < n lets all run for q/n of the time: n
 * threads pay if they are n/q times as fast as n - 1. Two are 1.3 to 1.9 times as fast as one, less
 * when decoding, more when reading prompts: on 1.5 that is no loss for the one and a gain for the
 * other, on less it is not. */
static uint32_t quota_threads(double quota_cpus)
{
    return quota_cpus >= BN_MAX_THREADS ? BN_MAX_THREADS : (uint32_t)(quota_cpus + 0.5);
}

/* Siblings share what ternary kernels are short of, so a core has one thread. But a small virtual
 * machine may call two cores siblings: there both are taken, as a thread too many costs little and
 * a core too few half. */
uint32_t bn_default_threads(const struct bn_topology *t, double quota_cpus,
                            const struct bn_sysfiles *sys)
{
    char name[64];
    cpu_set_t fast = bn_topology_fast(t);
    uint32_t n = bn_topology_groups(t->core, &fast);
    if (n == 1 && CPU_COUNT(&fast) > 1 && bn_virtual_machine(name, sizeof name, sys))
        n = (uint32_t)CPU_COUNT(&fast);
    if (quota_cpus > 0 && quota_threads(quota_cpus) < n) n = quota_threads(quota_cpus);
    return n < 1 ? 1 : n > BN_MAX_THREADS ? BN_MAX_THREADS : n;
}

/* ------------------------------------------------------------------ which */

bool bn_cpus_confine(cpu_set_t *cpus, const struct bn_topology *t, uint32_t n_threads)
{
    *cpus = bn_topology_fast(t);
    return !CPU_EQUAL(cpus, &t->usable) && n_threads <= bn_topology_groups(t->core, cpus);
}

bool bn_cpus_uneven(const struct bn_topology *t, uint32_t n_threads)
{
    cpu_set_t fast = bn_topology_fast(t), all;
    return !CPU_EQUAL(&fast, &t->usable) && !bn_cpus_confine(&all, t, n_threads);
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How many have the core already when this CPU's turn comes; the caller is the first. */
static uint64_t round_of(const struct bn_topology *t, unsigned cpu, unsigned self)
{
    uint64_t n = t->core[cpu] == t->core[self];
    for (unsigned c = t->core[cpu]; c < cpu; c++)
        n += c != self && CPU_ISSET(c, &t->usable) && t->core[c] == t->core[cpu];
    return n;
}

size_t bn_cpus_order(uint16_t *out, const struct bn_topology *t, unsigned self)
{
    uint64_t keys[BN_MAX_CPUS];
    size_t n = 0;
    for (unsigned c = 0; c < BN_MAX_CPUS; c++) {
        if (!CPU_ISSET(c, &t->usable) || c == self) continue;
        uint64_t far = (uint64_t)(t->package[c] != t->package[self]) << 2 |
                       (uint64_t)(t->node[c] != t->node[self]) << 1 |
                       (uint64_t)(t->cache[c] != t->cache[self]);
        keys[n++] = round_of(t, c, self) << 48 | (uint64_t)(CPU_ISSET(c, &t->slow) != 0) << 40 |
                    far << 32 | (uint64_t)t->cache[c] << 16 | c;
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) out[i] = (uint16_t)keys[i];
    return n;
}

/* ------------------------------------------------------------------ this process */

void bn_cpus_allowed(cpu_set_t *set)
{
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof *set, set) == 0 && CPU_COUNT(set)) return;
    int self = sched_getcpu();
    CPU_SET(self >= 0 && self < BN_MAX_CPUS ? self : 0, set);
}

static void read_here(struct bn_topology *top, double *quota_cpus)
{
    struct bn_cgroup group;
    char groups[BN_CGROUP_TEXT];
    cpu_set_t mask;
    bn_cpus_allowed(&mask);
    bn_topology_read(top, &bn_sysfiles_here, &mask);
    bn_sysfiles_text(&bn_sysfiles_here, groups, sizeof groups, "/proc/self/cgroup");
    bn_cgroup_read(&group, &bn_sysfiles_here, groups);
    *quota_cpus = group.quota_cpus;
}

uint32_t bn_usable_cores(void)
{
    struct bn_topology top;
    double quota_cpus;
    read_here(&top, &quota_cpus);
    return bn_default_threads(&top, quota_cpus, &bn_sysfiles_here);
}

void bn_placement_choose(struct bn_placement *out, uint32_t n_threads)
{
    struct bn_topology top;
    double quota_cpus;
    read_here(&top, &quota_cpus);
    uint32_t n = n_threads ? n_threads : bn_default_threads(&top, quota_cpus, &bn_sysfiles_here);
    out->n_threads = n;
    out->crowded = n > (uint32_t)CPU_COUNT(&top.usable) || (quota_cpus > 0 && n > quota_cpus);
    out->confined = bn_cpus_confine(&out->cpus, &top, n);
    out->uneven = bn_cpus_uneven(&top, n);
}

size_t bn_cpus_for_workers(uint16_t *out, size_t n)
{
    struct bn_topology top;
    uint16_t order[BN_MAX_CPUS];
    double quota_cpus;
    int self = sched_getcpu();
    read_here(&top, &quota_cpus);
    size_t n_cpus = (size_t)CPU_COUNT(&top.usable);
    if (n >= n_cpus || (quota_cpus > 0 && quota_cpus < (double)n_cpus)) return 0;
    if (self < 0 || self >= BN_MAX_CPUS || !CPU_ISSET(self, &top.usable)) return 0;
    bn_cpus_order(order, &top, (unsigned)self);
    memcpy(out, order, n * sizeof *out);
    return n;
}
