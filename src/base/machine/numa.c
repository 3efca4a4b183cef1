/* SPDX-License-Identifier: Apache-2.0
 * Plans, and threads: what needs nothing but the tables. */
#include "base/machine/cores.h"
#include "base/machine/numa_impl.h"

static const char *const names[] =
    /* of enum bn_numa_mode */ {"off", "distribute", "isolate", "replicate"};

bitnet_status bn_numa_mode_parse(enum bn_numa_mode *out, const char *name, bitnet_error *err)
{
    *out = BN_NUMA_OFF;
    for (size_t i = 0; name && i < BN_ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bn_numa_mode)i;
            return BITNET_OK;
        }
    if (!name) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG,
                   "numa '%s' is unknown; off, distribute, isolate and replicate exist", name);
}

const char *bn_numa_mode_name(enum bn_numa_mode mode) { return names[mode]; }
enum bn_numa_mode bn_numa_mode(const struct bn_numa *n) { return n ? n->mode : BN_NUMA_OFF; }
uint32_t bn_numa_nodes(const struct bn_numa *n) { return n ? n->n_nodes : 1; }
uint32_t bn_numa_machine_nodes(const struct bn_numa *n) { return n->n_machine; }

uint32_t bn_numa_threads(const struct bn_numa *n)
{
    if (bn_numa_mode(n) != BN_NUMA_ISOLATE) return 0;
    return (uint32_t)bn_min_size(n->nodes[0].n_cores, bn_usable_cores());
}

int bn_numa_cpu(const struct bn_numa *n, uint32_t node, uint32_t i)
{
    const struct bn_numa_node *k = &n->nodes[node];
    return i < k->n_cpus ? n->cpus[k->first + i] : -1;
}

void bn_numa_plan(const struct bn_numa *n, uint16_t *node, uint32_t n_workers)
{
    uint32_t counts[BN_MAX_NODES] = {0}, placed = 0;
    for (int level = 0; placed < n_workers; level++)
        for (bool any = true; any;) {
            any = false;
            for (uint32_t k = 0; k < n->n_nodes && placed < n_workers; k++) {
                uint32_t room = level == 0   ? n->nodes[k].n_cores
                                : level == 1 ? n->nodes[k].n_cpus
                                             : UINT32_MAX;
                if (counts[k] >= room) continue;
                counts[k]++;
                placed++;
                any = true;
            }
        }
    for (uint32_t k = 0, w = 0; k < n->n_nodes; k++)
        for (uint32_t i = 0; i < counts[k]; i++) node[w++] = (uint16_t)k;
}

/* ------------------------------------------------------------------ threads */

bool bn_numa_bind_thread(const struct bn_numa *n, pthread_t thread, uint32_t node)
{
    if (n->pretended) return false;
    return pthread_setaffinity_np(thread, sizeof(cpu_set_t), &n->nodes[node].set) == 0;
}

bool bn_numa_pin_thread(const struct bn_numa *n, pthread_t thread, uint32_t node, uint32_t i)
{
    int cpu = bn_numa_cpu(n, node, i);
    if (n->pretended || cpu < 0) return false;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(thread, sizeof one, &one) == 0;
}

bool bn_numa_enter(const struct bn_numa *n, uint32_t node, cpu_set_t *before)
{
    if (n->pretended || sched_getaffinity(0, sizeof *before, before) != 0) return false;
    cpu_set_t inside;
    CPU_AND(&inside, before, &n->nodes[node].set);
    if (CPU_COUNT(&inside) == 0 || CPU_EQUAL(&inside, before)) return false;
    return sched_setaffinity(0, sizeof inside, &inside) == 0;
}

void bn_numa_leave(const cpu_set_t *before) { sched_setaffinity(0, sizeof *before, before); }
