/* SPDX-License-Identifier: Apache-2.0
 * The CPUs this process may use: how many, which, and in what order workers should take them. */
#ifndef BN_BASE_CORES_H
#define BN_BASE_CORES_H

#include "base/base.h"
#include <sched.h>

/* Cores this process may really use: affinity mask, then the cgroup's CPU quota (rounded up). At
 * least 1. */
uint32_t bn_usable_cores(void);

/* Cores that the CPU quotas of a process's control groups allow; 0: no limit. root: where they are
 * mounted; groups: the text of its /proc/PID/cgroup. */
uint32_t bn_cgroup_cores(const char *root, const char *groups);

/* "0,2-3", a line feed may follow. false: it is no such list. */
bool bn_cpus_parse(cpu_set_t *set, const char *text);

/* The order in which workers take the CPUs of `usable`, without `self`, where their caller runs.
 * First those on cores that nobody has yet, then their siblings. core: [CPU_SETSIZE], the same
 * number for CPUs that share a core. out: room for CPU_SETSIZE; returns how many. */
size_t bn_cpus_order(uint16_t *out, const cpu_set_t *usable, unsigned self, const uint16_t *core);

/* CPUs for n workers beside the calling thread: n of them, or none (0 is returned) where binding
 * would do harm: fewer CPUs than threads, or a quota that does not suffice for all CPUs, so that
 * the kernel will want to move threads about. */
size_t bn_cpus_for_workers(uint16_t *out, size_t n);

#endif
