/* SPDX-License-Identifier: Apache-2.0
 * Machines whose memory lies in several nodes, each near some of the CPUs: what this process may use of
 * them, which worker belongs where, and binding threads and memory there. Topologies and memory
 * policies come from hwloc; a build without it knows "off" only. Binding is a wish: what the system
 * refuses changes the speed, never a result. */
#ifndef BN_BASE_MACHINE_NUMA_H
#define BN_BASE_MACHINE_NUMA_H

#include "base/machine/cores.h"
#include <pthread.h>

enum bn_numa_mode { BN_NUMA_OFF, BN_NUMA_DISTRIBUTE, BN_NUMA_ISOLATE, BN_NUMA_REPLICATE };
const char *bn_numa_mode_name(enum bn_numa_mode mode);
bitnet_status bn_numa_mode_parse(enum bn_numa_mode *out, const char *name, bitnet_error *err);

/* Tests only: a machine that is not this one. Threads and memory are not bound then. */
struct bn_numa_pretend {
    const char *topology; /* as hwloc writes it: "numa:2 core:4 pu:2", or XML */
    cpu_set_t usable;
    unsigned cpu; /* on which the caller runs */
};

/* Where NULL is allowed it means "off": one node, nothing is bound. Nodes are counted from 0; only
 * those with memory and CPUs that the process may use. CPUs without memory of their own belong to the
 * node before them. With "isolate" the caller's node is the only one. */
struct bn_numa;
bitnet_status bn_numa_open(struct bn_numa **out, enum bn_numa_mode mode,
                           const struct bn_numa_pretend *pretend, bitnet_error *err);
void bn_numa_close(struct bn_numa *n);
enum bn_numa_mode bn_numa_mode(const struct bn_numa *n); /* NULL is allowed */
uint32_t bn_numa_nodes(const struct bn_numa *n);         /* NULL is allowed */
uint32_t bn_numa_machine_nodes(const struct bn_numa *n); /* also those that "isolate" leaves out */
/* Threads by default: the cores of an isolated node; 0: as without nodes. NULL is allowed. */
uint32_t bn_numa_threads(const struct bn_numa *n);
/* The i-th CPU of a node, one of each core first; -1: it has not so many. */
int bn_numa_cpu(const struct bn_numa *n, uint32_t node, uint32_t i);

/* node[w]: of worker w. Nodes get the same number of workers as long as they have cores for them, then
 * as long as they have CPUs. The workers of a node stand together, so that their rows do, too. */
void bn_numa_plan(const struct bn_numa *n, uint16_t *node, uint32_t n_workers);

/* ---- threads ---- */

/* To all CPUs of the node; to the i-th one. */
bool bn_numa_bind_thread(const struct bn_numa *n, pthread_t thread, uint32_t node);
bool bn_numa_pin_thread(const struct bn_numa *n, pthread_t thread, uint32_t node, uint32_t i);
/* The calling thread works on the node until it leaves. false: it stays where it is, and does not
 * leave. */
bool bn_numa_enter(const struct bn_numa *n, uint32_t node, cpu_set_t *before);
void bn_numa_leave(const cpu_set_t *before);

/* ---- memory, whole pages ---- */

/* What is there already moves. */
bool bn_numa_bind(const struct bn_numa *n, void *p, size_t bytes, uint32_t node);
/* Pages in turn over all nodes: for what everybody reads. */
bool bn_numa_interleave(const struct bn_numa *n, void *p, size_t bytes);
/* The node that holds this byte; -1: none does yet, or it cannot be known. */
int bn_numa_where(const struct bn_numa *n, const void *p);

#endif
