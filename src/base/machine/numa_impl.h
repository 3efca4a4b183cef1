/* SPDX-License-Identifier: Apache-2.0
 * The nodes as tables: filled by numa_hwloc.c, used by numa.c. */
#ifndef BN_BASE_MACHINE_NUMA_IMPL_H
#define BN_BASE_MACHINE_NUMA_IMPL_H

#include "base/machine/numa.h"

struct bn_numa_node {
    unsigned number; /* as the system counts */
    cpu_set_t set;
    uint32_t first, n_cpus, n_cores; /* in bn_numa.cpus */
};

struct bn_numa {
    enum bn_numa_mode mode;
    bool pretended;
    uint32_t n_nodes, n_machine;
    struct bn_numa_node nodes[BN_MAX_NODES];
    uint16_t cpus[CPU_SETSIZE]; /* node after node, one of each core first */
    struct hwloc_topology *topology;
};

#endif
