/* SPDX-License-Identifier: Apache-2.0 */
#include "base/machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define CPU_FOLDER "/sys/devices/system/cpu"
#define THP_FOLDER "/sys/kernel/mm/transparent_hugepage"

enum { INFO_BYTES = 8192 }; /* of /proc/cpuinfo, /proc/meminfo, ...: all that is looked for */

/* ------------------------------------------------------------------ texts of the kernel */

static enum bn_tristate read_tristate(const struct bn_sysfiles *sys, const char *path)
{
    uint64_t v;
    return !bn_sysfiles_u64(sys, &v, "%s", path) ? BN_UNKNOWN : v ? BN_YES : BN_NO;
}

/* "always [madvise] never": what stands in brackets. */
static void read_choice(char *out, size_t room, const struct bn_sysfiles *sys, const char *path)
{
    char text[256];
    bn_sysfiles_text(sys, text, sizeof text, "%s", path);
    const char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    snprintf(out, room, "%.*s", to ? (int)(to - from - 1) : 0, to ? from + 1 : "");
}

/* The number behind a name, in a text of "Name:   123 kB"; 0 if there is none. */
static uint64_t number_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

void bn_machine_cpu_name(char *out, size_t room, const struct bn_sysfiles *sys)
{
    /* "model name" on x86, "Model" on some arm boards, "uarch" or at least the ISA on riscv */
    static const char *const keys[] = {"\nmodel name", "\nModel", "\nuarch", "\nisa"};
    char text[INFO_BYTES] = "\n";
    out[0] = 0;
    bn_sysfiles_text(sys, text + 1, sizeof text - 1, "/proc/cpuinfo");
    for (size_t k = 0; k < BN_ARRAY_LEN(keys); k++) {
        const char *at = strstr(text, keys[k]);
        size_t blank = at ? strspn(at + strlen(keys[k]), "\t ") : 0;
        const char *value = at ? at + strlen(keys[k]) + blank : "";
        if (*value != ':') continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, room, "%.*s", (int)strcspn(value, "\n"), value);
        return;
    }
}

/* ------------------------------------------------------------------ caches and nodes */

static void count_cache(struct bn_machine *m, uint32_t level, char type, uint64_t bytes,
                        uint32_t cpus)
{
    for (uint32_t i = 0; i < m->n_caches; i++) {
        struct bn_machine_cache *c = &m->caches[i];
        if (c->level == level && c->type == type && c->bytes == bytes && c->cpus == cpus) {
            c->n++;
            return;
        }
    }
    if (m->n_caches < BN_MACHINE_MAX_CACHES)
        m->caches[m->n_caches++] = (struct bn_machine_cache){level, type, bytes, 1, cpus};
}

/* A cache is counted at the first of the CPUs that share it. */
static void read_cache(struct bn_machine *m, const struct bn_sysfiles *sys, unsigned cpu,
                       unsigned i)
{
#define FILE_OF(name) CPU_FOLDER "/cpu%u/cache/index%u/" name, cpu, i
    char type[32];
    uint64_t level, bytes;
    cpu_set_t shared;
    if (!bn_cpus_read(&shared, sys, FILE_OF("shared_cpu_list"))) return;
    CPU_AND(&shared, &shared, &m->cpus.online);
    if (bn_cpus_first(&shared) != cpu) return;
    if (!bn_sysfiles_u64(sys, &level, FILE_OF("level")) ||
        !bn_sysfiles_text(sys, type, sizeof type, FILE_OF("type")) ||
        !bn_sysfiles_u64(sys, &bytes, FILE_OF("size")))
        return;
#undef FILE_OF
    count_cache(m, (uint32_t)level,
                *type == 'D'   ? 'd'
                : *type == 'I' ? 'i'
                               : 'u',
                bytes, (uint32_t)CPU_COUNT(&shared));
}

static void read_caches(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    uint64_t level;
    for (unsigned c = 0; c < BN_MAX_CPUS; c++) {
        if (!CPU_ISSET(c, &m->cpus.online) || m->cpus.core[c] != c) continue;
        for (unsigned i = 0; i < BN_MAX_CACHE_INDEX; i++) {
            if (!bn_sysfiles_u64(sys, &level, CPU_FOLDER "/cpu%u/cache/index%u/level", c, i)) break;
            read_cache(m, sys, c, i);
        }
    }
}

/* "10 21": the distances to all nodes. */
static uint32_t largest_number(const char *text)
{
    unsigned long most = 0;
    char *end;
    for (unsigned long v; v = strtoul(text, &end, 10), end != text; text = end)
        if (v > most) most = v;
    return most < 1000 ? (uint32_t)most : 0;
}

static void read_node(struct bn_machine *m, const struct bn_sysfiles *sys, unsigned id)
{
    char text[INFO_BYTES];
    struct bn_machine_node *n = &m->nodes[m->n_nodes++];
    *n = (struct bn_machine_node){.id = id};
    for (unsigned c = 0; c < BN_MAX_CPUS; c++)
        n->n_cpus += CPU_ISSET(c, &m->cpus.online) && m->cpus.node[c] == id;
    bn_sysfiles_text(sys, text, sizeof text, "/sys/devices/system/node/node%u/meminfo", id);
    n->total_bytes = number_of(text, "MemTotal:") << 10;
    n->free_bytes = number_of(text, "MemFree:") << 10;
    bn_sysfiles_text(sys, text, sizeof text, "/sys/devices/system/node/node%u/distance", id);
    n->farthest = largest_number(text);
}

static void read_nodes(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    cpu_set_t nodes;
    if (!bn_cpus_read(&nodes, sys, "/sys/devices/system/node/online")) return;
    for (unsigned n = 0; n < BN_MAX_NODES; n++)
        if (CPU_ISSET(n, &nodes)) read_node(m, sys, n);
}

/* ------------------------------------------------------------------ frequency and heat */

static enum bn_tristate read_boost(const struct bn_sysfiles *sys)
{
    enum bn_tristate off = read_tristate(sys, CPU_FOLDER "/intel_pstate/no_turbo");
    if (off != BN_UNKNOWN) return off == BN_YES ? BN_NO : BN_YES;
    return read_tristate(sys, CPU_FOLDER "/cpufreq/boost");
}

static void read_frequency(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    cpu_set_t fast = bn_topology_fast(&m->cpus);
    unsigned c = bn_cpus_first(&fast);
#define FILE_OF(name) CPU_FOLDER "/cpu%u/cpufreq/" name, c
    bn_sysfiles_text(sys, m->governor, sizeof m->governor, FILE_OF("scaling_governor"));
    bn_sysfiles_text(sys, m->driver, sizeof m->driver, FILE_OF("scaling_driver"));
    bn_sysfiles_text(sys, m->preference, sizeof m->preference,
                     FILE_OF("energy_performance_preference"));
    bn_sysfiles_u64(sys, &m->min_khz, FILE_OF("cpuinfo_min_freq"));
    bn_sysfiles_u64(sys, &m->max_khz, FILE_OF("cpuinfo_max_freq"));
    bn_sysfiles_u64(sys, &m->now_khz, FILE_OF("scaling_cur_freq"));
#undef FILE_OF
    m->boost = read_boost(sys);
}

/* Cores count their own, and every CPU shows the count of its package. */
static void read_throttles(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    uint64_t n;
    for (unsigned c = 0; c < BN_MAX_CPUS; c++) {
        if (!CPU_ISSET(c, &m->cpus.online) || m->cpus.core[c] != c) continue;
        if (!bn_sysfiles_u64(sys, &n, CPU_FOLDER "/cpu%u/thermal_throttle/core_throttle_count", c))
            return;
        m->throttle_known = BN_YES;
        m->n_throttles += n;
        if (m->cpus.package[c] == c &&
            bn_sysfiles_u64(sys, &n, CPU_FOLDER "/cpu%u/thermal_throttle/package_throttle_count",
                            c))
            m->n_throttles += n;
    }
}

/* ------------------------------------------------------------------ memory */

static void read_memory(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    char text[INFO_BYTES];
    bn_sysfiles_text(sys, text, sizeof text, "/proc/meminfo");
    m->memory_bytes = number_of(text, "MemTotal:") << 10;
    m->available_bytes = number_of(text, "MemAvailable:") << 10;
    m->swap_bytes = number_of(text, "SwapTotal:") << 10;
    m->swap_used_bytes = m->swap_bytes - (number_of(text, "SwapFree:") << 10);
}

static void read_huge_pages(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    static const uint64_t sizes_kb[] = {64, 1024, 2048, 16384, 32768, 524288, 1048576};
    read_choice(m->thp, sizeof m->thp, sys, THP_FOLDER "/enabled");
    read_choice(m->thp_defrag, sizeof m->thp_defrag, sys, THP_FOLDER "/defrag");
    m->khugepaged = read_tristate(sys, THP_FOLDER "/khugepaged/defrag");
    for (size_t i = 0; i < BN_ARRAY_LEN(sizes_kb); i++) {
        struct bn_machine_huge *h = &m->huge[m->n_huge];
        char folder[96];
        snprintf(folder, sizeof folder, "/sys/kernel/mm/hugepages/hugepages-%llukB",
                 (unsigned long long)sizes_kb[i]);
        if (!bn_sysfiles_u64(sys, &h->n_pages, "%s/nr_hugepages", folder)) continue;
        h->page_bytes = sizes_kb[i] << 10;
        bn_sysfiles_u64(sys, &h->n_free, "%s/free_hugepages", folder);
        m->n_huge++;
    }
}

/* ------------------------------------------------------------------ all of it */

/* The switch, or else whether there are siblings. */
static enum bn_tristate read_smt(const struct bn_machine *m, const struct bn_sysfiles *sys)
{
    enum bn_tristate active = read_tristate(sys, CPU_FOLDER "/smt/active");
    uint32_t n_cpus = (uint32_t)CPU_COUNT(&m->cpus.online);
    if (active != BN_UNKNOWN) return active;
    return bn_topology_groups(m->cpus.core, &m->cpus.online) < n_cpus ? BN_YES : BN_NO;
}

static void read_rest(struct bn_machine *m, const struct bn_sysfiles *sys)
{
    char text[64];
    m->virtual_machine = bn_virtual_machine(m->virtual_name, sizeof m->virtual_name, sys);
    if (bn_sysfiles_text(sys, text, sizeof text, "/proc/sys/kernel/perf_event_paranoid")) {
        m->perf_known = BN_YES;
        m->perf_paranoid = (int32_t)strtol(text, NULL, 10);
    }
    m->load_average =
        bn_sysfiles_text(sys, text, sizeof text, "/proc/loadavg") ? strtod(text, NULL) : -1;
}

void bn_machine_read(struct bn_machine *out, const struct bn_machine_source *from)
{
    const struct bn_sysfiles *sys = from->sys;
    memset(out, 0, sizeof *out);
    out->throttle_known = out->perf_known = BN_UNKNOWN;
    out->memlock_bytes = from->memlock_bytes;
    bn_topology_read(&out->cpus, sys, &from->allowed);
    bn_cgroup_read(&out->group, sys, from->groups);
    out->default_threads = bn_default_threads(&out->cpus, out->group.quota_cpus, sys);
    bn_machine_cpu_name(out->cpu_name, sizeof out->cpu_name, sys);
    out->smt = read_smt(out, sys);
    read_caches(out, sys);
    read_nodes(out, sys);
    read_frequency(out, sys);
    read_throttles(out, sys);
    read_memory(out, sys);
    read_huge_pages(out, sys);
    read_rest(out, sys);
}

/* ------------------------------------------------------------------ whose machine */

void bn_machine_source_here(struct bn_machine_source *out)
{
    struct rlimit limit;
    out->sys = &bn_sysfiles_here;
    bn_cpus_allowed(&out->allowed);
    bn_sysfiles_text(out->sys, out->groups, sizeof out->groups, "/proc/self/cgroup");
    out->memlock_bytes = getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ? 0
                         : limit.rlim_cur == RLIM_INFINITY      ? UINT64_MAX
                                                                : (uint64_t)limit.rlim_cur;
}

/* "Cpus_allowed_list:	0-7" of status; "Max locked memory    8388608    8388608    bytes". */
void bn_machine_source_recorded(struct bn_machine_source *out, const struct bn_sysfiles *sys)
{
    static const char list_name[] = "Cpus_allowed_list:", lock_name[] = "Max locked memory";
    char text[INFO_BYTES];
    out->sys = sys;
    bn_sysfiles_text(sys, text, sizeof text, "/proc/self/status");
    char *at = strstr(text, list_name), *list = at ? at + strlen(list_name) : text;
    list += strspn(list, " \t");
    list[strcspn(list, "\n")] = 0;
    if (!bn_cpus_parse(&out->allowed, list) &&
        !bn_cpus_read(&out->allowed, sys, CPU_FOLDER "/online"))
        CPU_ZERO(&out->allowed);
    bn_sysfiles_text(sys, out->groups, sizeof out->groups, "/proc/self/cgroup");
    bn_sysfiles_text(sys, text, sizeof text, "/proc/self/limits");
    at = strstr(text, lock_name);
    at = at ? at + strlen(lock_name) + strspn(at + strlen(lock_name), " ") : text;
    out->memlock_bytes = strncmp(at, "unlimited", 9) == 0 ? UINT64_MAX : strtoull(at, NULL, 10);
}
