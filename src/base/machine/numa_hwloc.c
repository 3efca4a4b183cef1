/* SPDX-License-Identifier: Apache-2.0
 * The machine as hwloc tells it, read once into tables, and memory policies. */
#include "base/machine/cores.h"
#include "base/os/mem.h"
#include "base/machine/numa_impl.h"
#include <hwloc.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ reading the machine */

/* The node that a CPU's thread finds nearest; NULL: no node has memory. Of several at one place the
 * first counts: ordinary memory stands before special one. */
static hwloc_obj_t home_of(hwloc_topology_t t, unsigned cpu)
{
    hwloc_obj_t at = NULL, first = NULL, last = NULL, before = NULL;
    while ((at = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, at))) {
        bool near = at->cpuset && hwloc_bitmap_isset(at->cpuset, cpu);
        if (at->attr->numanode.local_memory) {
            if (near) return at;
            if (!first) first = at;
            last = at;
        } else if (near && !before) before = last;
    }
    return before ? before : first;
}

/* The entry of a node, a new one where there is none; NULL: there are too many. */
static struct bn_numa_node *entry_of(struct bn_numa *n, unsigned number)
{
    for (uint32_t k = 0; k < n->n_nodes; k++)
        if (n->nodes[k].number == number) return &n->nodes[k];
    if (n->n_nodes == BN_MAX_NODES) return NULL;
    n->nodes[n->n_nodes] = (struct bn_numa_node){.number = number};
    return &n->nodes[n->n_nodes++];
}

/* core: [CPU_SETSIZE], as bn_cpus_order wants it. */
static bitnet_status read_nodes(struct bn_numa *n, const cpu_set_t *usable, uint16_t *core,
                                bitnet_error *err)
{
    for (unsigned c = 0; c < CPU_SETSIZE; c++) {
        hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(n->topology, c);
        core[c] = (uint16_t)c;
        if (!pu || !CPU_ISSET(c, usable)) continue;
        hwloc_obj_t home = home_of(n->topology, c);
        hwloc_obj_t of = hwloc_get_ancestor_obj_by_type(n->topology, HWLOC_OBJ_CORE, pu);
        struct bn_numa_node *k = home ? entry_of(n, home->os_index) : NULL;
        if (home && !k)
            return bn_fail(err, BITNET_E_LIMIT, "more than %d memory nodes are not supported",
                           BN_MAX_NODES);
        if (of) core[c] = (uint16_t)hwloc_bitmap_first(of->cpuset);
        if (k) CPU_SET(c, &k->set);
    }
    n->n_machine = n->n_nodes;
    return n->n_nodes ? BITNET_OK
                      : bn_fail(err, BITNET_E_UNSUPPORTED,
                                "no memory node has CPUs that this process may use");
}

/* The caller's node alone. */
static void keep_home(struct bn_numa *n, unsigned cpu)
{
    for (uint32_t k = 1; k < n->n_nodes; k++)
        if (CPU_ISSET(cpu, &n->nodes[k].set)) n->nodes[0] = n->nodes[k];
    n->n_nodes = 1;
}

/* Within a node: a thread a core first, then their siblings. */
static void order_cpus(struct bn_numa *n, const uint16_t *core)
{
    struct bn_topology t = {0};
    uint32_t used = 0;
    memcpy(t.core, core, sizeof t.core);
    for (uint32_t k = 0; k < n->n_nodes; k++) {
        struct bn_numa_node *at = &n->nodes[k];
        unsigned first = 0;
        while (!CPU_ISSET(first, &at->set)) first++;
        t.usable = at->set;
        at->first = used;
        at->n_cores = bn_topology_groups(core, &at->set);
        n->cpus[used] = (uint16_t)first;
        at->n_cpus = 1 + (uint32_t)bn_cpus_order(n->cpus + used + 1, &t, first);
        used += at->n_cpus;
    }
}

static bool load_topology(struct bn_numa *n, const char *text)
{
    if (hwloc_topology_init(&n->topology) != 0) return false;
    bool xml = text && text[0] == '<';
    unsigned long flags = HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
    return hwloc_topology_set_flags(n->topology, flags) == 0 &&
           (!xml || hwloc_topology_set_xmlbuffer(n->topology, text, (int)strlen(text) + 1) == 0) &&
           (!text || xml || hwloc_topology_set_synthetic(n->topology, text) == 0) &&
           hwloc_topology_load(n->topology) == 0;
}

static bitnet_status read_machine(struct bn_numa *n, const struct bn_numa_pretend *pretend,
                                  bitnet_error *err)
{
    cpu_set_t usable;
    uint16_t core[CPU_SETSIZE];
    int cpu = pretend ? (int)pretend->cpu : sched_getcpu();
    if (!load_topology(n, pretend ? pretend->topology : NULL))
        return bn_fail(err, BITNET_E_UNSUPPORTED, "hwloc cannot tell this machine's memory nodes");
    n->pretended = pretend || !hwloc_topology_is_thissystem(n->topology);
    if (pretend) usable = pretend->usable;
    else if (sched_getaffinity(0, sizeof usable, &usable) != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "more than %d CPUs are not supported",
                       CPU_SETSIZE);
    BN_TRY(read_nodes(n, &usable, core, err));
    if (n->mode == BN_NUMA_ISOLATE) keep_home(n, cpu < 0 || cpu >= CPU_SETSIZE ? 0 : (unsigned)cpu);
    order_cpus(n, core);
    return BITNET_OK;
}

bitnet_status bn_numa_open(struct bn_numa **out, enum bn_numa_mode mode,
                           const struct bn_numa_pretend *pretend, bitnet_error *err)
{
    *out = NULL;
    if (mode == BN_NUMA_OFF) return BITNET_OK;
    struct bn_numa *n = bn_calloc(1, sizeof *n);
    if (!n) return bn_fail_nomem(err, sizeof *n, "the memory nodes");
    n->mode = mode;
    bitnet_status s = read_machine(n, pretend, err);
    if (s != BITNET_OK) bn_numa_close(n);
    else *out = n;
    return s;
}

void bn_numa_close(struct bn_numa *n)
{
    if (!n) return;
    if (n->topology) hwloc_topology_destroy(n->topology);
    free(n);
}

/* ------------------------------------------------------------------ memory */

/* Nodes [first, first + count). Pages that are there move with it. */
static bool set_policy(const struct bn_numa *n, void *p, size_t bytes, uint32_t first,
                       uint32_t count, hwloc_membind_policy_t policy)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set) return false;
    for (uint32_t k = first; k < first + count; k++) hwloc_bitmap_set(set, n->nodes[k].number);
    int bad = hwloc_set_area_membind(n->topology, p, bytes, set, policy,
                                     HWLOC_MEMBIND_BYNODESET | HWLOC_MEMBIND_MIGRATE);
    hwloc_bitmap_free(set);
    return !bad;
}

bool bn_numa_bind(const struct bn_numa *n, void *p, size_t bytes, uint32_t node)
{
    if (n->pretended || !bytes) return true;
    return set_policy(n, p, bytes, node, 1, HWLOC_MEMBIND_BIND);
}

bool bn_numa_interleave(const struct bn_numa *n, void *p, size_t bytes)
{
    if (n->pretended || !bytes) return true;
    return set_policy(n, p, bytes, 0, n->n_nodes, HWLOC_MEMBIND_INTERLEAVE);
}

int bn_numa_where(const struct bn_numa *n, const void *p)
{
    hwloc_bitmap_t set = n->pretended ? NULL : hwloc_bitmap_alloc();
    int found = -1;
    if (!set) return -1;
    if (hwloc_get_area_memlocation(n->topology, p, 1, set, HWLOC_MEMBIND_BYNODESET) == 0)
        for (uint32_t k = 0; k < n->n_nodes; k++)
            if (hwloc_bitmap_isset(set, n->nodes[k].number)) found = (int)k;
    hwloc_bitmap_free(set);
    return found;
}
