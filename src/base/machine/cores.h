/* SPDX-License-Identifier: Apache-2.0
 * CPUs: how they lie in cores, packages, caches and nodes, which of them this process may use, how
 * many threads should run on them by default, and in what order workers should take them. */
#ifndef BN_BASE_MACHINE_CORES_H
#define BN_BASE_MACHINE_CORES_H

#include "base/os/sysfiles.h"
#include <sched.h>

enum {
    BN_MAX_CPUS = CPU_SETSIZE,
    BN_MAX_THREADS = 512, /* of an engine */
    BN_MAX_NODES = 64,    /* of memory; CPUs of others count as of no node */
    BN_NO_NODE = 255,
    BN_MAX_CACHE_INDEX = 8
};

/* Groups are known by the least CPU in them; a CPU that the system says nothing about is a group
 * of its own. */
struct bn_topology {
    cpu_set_t online;
    cpu_set_t usable; /* of these */
    cpu_set_t slow;   /* of these: much slower by design than the fastest (hybrid CPUs) */
    uint16_t core[BN_MAX_CPUS], package[BN_MAX_CPUS], cache[BN_MAX_CPUS]; /* cache: the last one */
    uint8_t node[BN_MAX_CPUS];
};

/* allowed: where the process may run. */
void bn_topology_read(struct bn_topology *out, const struct bn_sysfiles *sys,
                      const cpu_set_t *allowed);
/* Groups that have a CPU in `of`. */
uint32_t bn_topology_groups(const uint16_t *group, const cpu_set_t *of);
/* The usable CPUs without the slow ones, unless there are no others. */
cpu_set_t bn_topology_fast(const struct bn_topology *t);

/* Threads by default: one a usable core that is not slow; at most as many as the quota allows,
 * which is rounded to the nearest. quota_cpus 0: no limit. At least 1. */
uint32_t bn_default_threads(const struct bn_topology *t, double quota_cpus,
                            const struct bn_sysfiles *sys);

/* Where the workers of a pool of n threads should stay: the fast CPUs. false: anywhere, because all
 * are, or because so many threads want the slow ones as well. */
bool bn_cpus_confine(cpu_set_t *cpus, const struct bn_topology *t, uint32_t n_threads);
/* Whether a pool of n threads is on CPUs of several kinds. */
bool bn_cpus_uneven(const struct bn_topology *t, uint32_t n_threads);

/* The order in which workers take the usable CPUs, without `self`, where their caller runs: first
 * those on cores that nobody has yet, fast ones before slow ones, near ones before far ones; then
 * their siblings. out: room for BN_MAX_CPUS; returns how many. */
size_t bn_cpus_order(uint16_t *out, const struct bn_topology *t, unsigned self);

/* Is that a virtual machine? Its maker's name then, "" if unknown. */
bool bn_virtual_machine(char *name, size_t room, const struct bn_sysfiles *sys);

/* ------------------------------------------------------------------ this process */

/* The calling thread's affinity mask; the CPU that it runs on if it cannot be had. */
void bn_cpus_allowed(cpu_set_t *set);

/* Threads that a pool takes by default here. */
uint32_t bn_usable_cores(void);

/* How a pool's threads should stand on this machine. */
struct bn_placement {
    uint32_t n_threads; /* as asked for; by default bn_usable_cores() */
    bool crowded;       /* more than can run at the same time */
    bool confined;      /* workers should run on `cpus` only: there are slow ones beside them */
    bool uneven;        /* they run on slow ones as well */
    cpu_set_t cpus;
};
void bn_placement_choose(struct bn_placement *out, uint32_t n_threads);

/* CPUs for n workers beside the calling thread: n of them, or none (0 is returned) where binding
 * would do harm: fewer CPUs than threads, or a quota that does not suffice for all CPUs, so that
 * the kernel will want to move threads about. */
size_t bn_cpus_for_workers(uint16_t *out, size_t n);

/* ------------------------------------------------------------------ lists */

/* "0,2-3", a line feed may follow. false: it is no such list. */
bool bn_cpus_parse(cpu_set_t *set, const char *text);
/* A file with such a list. */
bool bn_cpus_read(cpu_set_t *set, const struct bn_sysfiles *sys, const char *fmt, ...)
    BN_PRINTF(3, 4);
/* The least of them; BN_MAX_CPUS: there is none. */
unsigned bn_cpus_first(const cpu_set_t *set);
/* The same way back; a list too long for the room ends in "...". room: at least 16. */
void bn_cpus_format(char *out, size_t room, const cpu_set_t *set);

#endif
