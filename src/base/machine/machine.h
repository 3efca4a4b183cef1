/* SPDX-License-Identifier: Apache-2.0
 * A machine as a value: what its kernel says about CPUs, caches, memory, limits and frequency. Read
 * once, from this machine or from a recording; never guessed: what the kernel does not say is
 * unknown. */
#ifndef BN_BASE_MACHINE_MACHINE_H
#define BN_BASE_MACHINE_MACHINE_H

#include "base/machine/cgroup.h"
#include "base/machine/cores.h"

enum { BN_MACHINE_MAX_CACHES = 16, BN_MACHINE_MAX_HUGE = 8, BN_MACHINE_TEXT = 64 };

enum bn_tristate { BN_UNKNOWN = -1, BN_NO = 0, BN_YES = 1 };

/* Caches of one kind: on a hybrid CPU there are several of a level. */
struct bn_machine_cache {
    uint32_t level;
    char type; /* 'd'ata, 'i'nstructions, 'u'nified */
    uint64_t bytes;
    uint32_t n;    /* how many there are */
    uint32_t cpus; /* that share one */
};

struct bn_machine_node {
    uint32_t id, n_cpus;
    uint64_t total_bytes, free_bytes;
    uint32_t farthest; /* distance to another node, 10 is its own memory; 0: unknown */
};

struct bn_machine_huge {
    uint64_t page_bytes, n_pages, n_free;
};

struct bn_machine {
    struct bn_topology cpus;
    struct bn_cgroup group;
    uint32_t default_threads;
    char cpu_name[2 * BN_MACHINE_TEXT]; /* "" : unknown; as all texts here */
    enum bn_tristate smt;               /* switched on */
    enum bn_tristate virtual_machine;
    char virtual_name[BN_MACHINE_TEXT];
    struct bn_machine_cache caches[BN_MACHINE_MAX_CACHES];
    uint32_t n_caches;
    struct bn_machine_node nodes[BN_MAX_NODES];
    uint32_t n_nodes;
    /* frequency: of the first fast CPU that may be used */
    char governor[BN_MACHINE_TEXT], driver[BN_MACHINE_TEXT], preference[BN_MACHINE_TEXT];
    uint64_t min_khz, max_khz, now_khz; /* 0: unknown */
    enum bn_tristate boost;
    enum bn_tristate throttle_known; /* YES: n_throttles was counted */
    uint64_t n_throttles;            /* for heat, of all cores and packages since boot */
    /* memory; 0: unknown */
    uint64_t memory_bytes, available_bytes, swap_bytes, swap_used_bytes;
    uint64_t memlock_bytes; /* UINT64_MAX: no limit */
    char thp[BN_MACHINE_TEXT], thp_defrag[BN_MACHINE_TEXT];
    enum bn_tristate khugepaged;
    struct bn_machine_huge huge[BN_MACHINE_MAX_HUGE]; /* sizes that the kernel knows */
    uint32_t n_huge;
    enum bn_tristate perf_known;
    int32_t perf_paranoid;
    double load_average; /* of the last minute; < 0: unknown */
};

/* What belongs to the process and is not the same for all who look. */
struct bn_machine_source {
    const struct bn_sysfiles *sys;
    cpu_set_t allowed;
    char groups[BN_CGROUP_TEXT]; /* the text of its /proc/PID/cgroup */
    uint64_t memlock_bytes;
};

/* Of the calling thread; of the process that was recorded (/proc/self of these files). */
void bn_machine_source_here(struct bn_machine_source *out);
void bn_machine_source_recorded(struct bn_machine_source *out, const struct bn_sysfiles *sys);

void bn_machine_read(struct bn_machine *out, const struct bn_machine_source *from);

/* The CPU's name as /proc/cpuinfo has it; "" if it has none. */
void bn_machine_cpu_name(char *out, size_t room, const struct bn_sysfiles *sys);

#endif
