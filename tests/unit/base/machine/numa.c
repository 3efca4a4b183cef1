/* SPDX-License-Identifier: Apache-2.0
 * Memory nodes: which worker sits where on machines that are not this one; that workers help inside their
 * node only; and what can be bound on this machine, where each node of it is a real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/machine/cores.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include "base/threads/pool.h"

static struct bn_numa *open_pretended(enum bn_numa_mode mode, const char *topology,
                                      const char *usable, unsigned cpu)
{
    struct bn_numa_pretend p = {.topology = topology, .cpu = cpu};
    bitnet_error err = {0};
    struct bn_numa *n;
    assert_true(bn_cpus_parse(&p.usable, usable));
    if (bn_numa_open(&n, mode, &p, &err)) fail_msg("%s: %s", topology, err.text);
    assert_false(bn_numa_bind_thread(n, pthread_self(), 0)); /* nothing is bound there */
    return n;
}

static void modes_have_names(void **state)
{
    (void)state;
    enum bn_numa_mode mode;
    bitnet_error err = {0};
    for (int i = BN_NUMA_OFF; i <= BN_NUMA_REPLICATE; i++) {
        assert_int_equal(bn_numa_mode_parse(&mode, bn_numa_mode_name((enum bn_numa_mode)i), &err),
                         BITNET_OK);
        assert_int_equal(mode, i);
    }
    assert_int_equal(bn_numa_mode_parse(&mode, NULL, &err), BITNET_OK);
    assert_int_equal(mode, BN_NUMA_OFF);
    assert_int_equal(bn_numa_mode_parse(&mode, "spread", &err), BITNET_E_ARG);
    assert_string_equal(err.text,
                        "numa 'spread' is unknown; off, distribute, isolate and replicate exist");
}

static void off_is_one_node(void **state)
{
    (void)state;
    struct bn_numa *n;
    assert_int_equal(bn_numa_open(&n, BN_NUMA_OFF, NULL, NULL), BITNET_OK);
    assert_null(n);
    assert_int_equal(bn_numa_mode(n), BN_NUMA_OFF);
    assert_int_equal(bn_numa_nodes(n), 1);
    assert_int_equal(bn_numa_threads(n), 0);
    bn_numa_close(n);
}

/* ------------------------------------------------------------------ plans */

static const struct {
    const char *topology, *usable;
    uint32_t nodes;
    const char *plans[4]; /* the node of each worker */
} machines[] = {
    {"numa:1 core:4 pu:1", "0-3", 1, {"0", "0000", "000000"}},
    {"numa:2 core:4 pu:1", "0-7", 2, {"0", "01", "001", "00001111"}},
    {"numa:2 core:2 pu:2", "0-7", 2, {"0011", "00011", "00001111", "0000011111"}},
    {"numa:4 core:2 pu:1", "0-7", 4, {"012", "0123", "001123", "00112233"}},
    /* a cpuset with four cores of one node and one of the other; without the other */
    {"numa:2 core:4 pu:1", "0-4", 2, {"01", "001", "0001", "00001"}},
    {"numa:2 core:4 pu:1", "5-7", 1, {"0", "000"}},
    /* cores first, also where nodes are uneven; then their siblings */
    {"numa:2 core:2 pu:2", "0-4", 2, {"01", "001", "0001", "00001"}},
    /* special memory beside the ordinary one of a package is no place for workers */
    {"pack:2 [numa(memory=16GB)] [numa(memory=1GB)] core:2 pu:1", "0-3", 2, {"01", "0011"}},
};

static void workers_are_dealt_to_nodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < BN_ARRAY_LEN(machines); i++)
        for (int mode = BN_NUMA_DISTRIBUTE; mode <= BN_NUMA_REPLICATE; mode += 2) {
            struct bn_numa *n = open_pretended((enum bn_numa_mode)mode, machines[i].topology,
                                               machines[i].usable, 0);
            assert_int_equal(bn_numa_nodes(n), machines[i].nodes);
            assert_int_equal(bn_numa_machine_nodes(n), machines[i].nodes);
            assert_int_equal(bn_numa_threads(n), 0);
            for (size_t k = 0; k < BN_ARRAY_LEN(machines[i].plans) && machines[i].plans[k]; k++) {
                const char *want = machines[i].plans[k];
                uint16_t node[16];
                char got[17] = "";
                bn_numa_plan(n, node, (uint32_t)strlen(want));
                for (size_t w = 0; want[w]; w++) got[w] = (char)('0' + node[w]);
                assert_string_equal(got, want);
            }
            bn_numa_close(n);
        }
}

static void cores_come_before_siblings(void **state)
{
    (void)state;
    static const int want[2][5] = {{0, 2, 1, 3, -1}, {4, 6, 5, 7, -1}};
    struct bn_numa *n = open_pretended(BN_NUMA_DISTRIBUTE, "numa:2 core:2 pu:2", "0-7", 0);
    for (uint32_t node = 0; node < 2; node++)
        for (uint32_t i = 0; i < 5; i++) assert_int_equal(bn_numa_cpu(n, node, i), want[node][i]);
    bn_numa_close(n);
}

static void isolate_is_the_callers_node(void **state)
{
    (void)state;
    for (unsigned cpu = 0; cpu < 16; cpu++) {
        struct bn_numa *n = open_pretended(BN_NUMA_ISOLATE, "numa:4 core:2 pu:2", "0-15", cpu);
        uint16_t node[6];
        assert_int_equal(bn_numa_nodes(n), 1);
        assert_int_equal(bn_numa_machine_nodes(n), 4);
        assert_int_equal(bn_numa_threads(n), bn_min_size(2, bn_usable_cores()));
        assert_int_equal(bn_numa_cpu(n, 0, 0), cpu / 4 * 4);
        assert_int_equal(bn_numa_cpu(n, 0, 4), -1);
        bn_numa_plan(n, node, 6);
        for (size_t w = 0; w < 6; w++) assert_int_equal(node[w], 0);
        bn_numa_close(n);
    }
}

/* Three nodes of two CPUs, the second without memory: its CPUs belong to the first. */
static void a_node_without_memory(void **state)
{
    (void)state;
    char *xml;
    size_t bytes;
    assert_int_equal(bn_read_file(&xml, &bytes, TEST_DATA "/numa/no_memory.xml", 1 << 16, NULL),
                     BITNET_OK);
    struct bn_numa *n = open_pretended(BN_NUMA_DISTRIBUTE, xml, "0-5", 0);
    assert_int_equal(bn_numa_nodes(n), 2);
    assert_int_equal(bn_numa_cpu(n, 0, 3), 3);
    assert_int_equal(bn_numa_cpu(n, 0, 4), -1);
    assert_int_equal(bn_numa_cpu(n, 1, 0), 4);
    bn_numa_close(n);
    free(xml);
}

static void what_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    struct bn_numa_pretend p = {.topology = "no such thing"};
    bitnet_error err = {0};
    struct bn_numa *n;
    assert_int_equal(bn_numa_open(&n, BN_NUMA_ISOLATE, &p, &err), BITNET_E_UNSUPPORTED);
    assert_null(n);
    p.topology = "numa:2 core:2 pu:1";
    CPU_ZERO(&p.usable);
    assert_int_equal(bn_numa_open(&n, BN_NUMA_ISOLATE, &p, &err), BITNET_E_UNSUPPORTED);
    assert_string_equal(err.text, "no memory node has CPUs that this process may use");
    p.topology = "numa:65 core:1 pu:1";
    assert_true(bn_cpus_parse(&p.usable, "0-64"));
    assert_int_equal(bn_numa_open(&n, BN_NUMA_REPLICATE, &p, &err), BITNET_E_LIMIT);
    assert_string_equal(err.text, "more than 64 memory nodes are not supported");
}

/* ------------------------------------------------------------------ pools */

enum { ITEMS = 640, GRAIN = 4, ROUNDS = 40 };
struct deals {
    struct bn_pool *pool;
    _Atomic uint32_t taken[ITEMS];
    _Atomic uint32_t foreign; /* items of another node's share */
};

static uint32_t owner_of(const struct bn_pool *p, size_t item)
{
    uint32_t w = 0;
    while (item >= bn_pool_share(p, w, ITEMS, GRAIN).end) w++;
    return w;
}

/* The last worker begins late: the others have time to take from it what they may. */
static void take_all(void *arg, uint32_t worker)
{
    struct deals *d = arg;
    struct bn_range r;
    for (int i = 0; i < ROUNDS; i++) {
        bn_pool_deal(d->pool, worker, ITEMS, GRAIN, false);
        bn_pool_barrier(d->pool, worker);
        if (worker + 1 == bn_pool_threads(d->pool)) usleep(300);
        while (bn_pool_take(d->pool, worker, &r))
            for (size_t k = r.begin; k < r.end; k++) {
                atomic_fetch_add(&d->taken[k], 1);
                if (bn_pool_node(d->pool, owner_of(d->pool, k)) != bn_pool_node(d->pool, worker))
                    atomic_fetch_add(&d->foreign, 1);
            }
        bn_pool_barrier(d->pool, worker);
    }
}

static void workers_help_inside_their_node(void **state)
{
    (void)state;
    static struct deals d;
    for (int mode = BN_NUMA_DISTRIBUTE; mode <= BN_NUMA_REPLICATE; mode++)
        for (uint32_t threads = 1; threads <= 7; threads++) {
            struct bn_numa *n =
                open_pretended((enum bn_numa_mode)mode, "numa:3 core:2 pu:1", "0-5", 0);
            memset(&d, 0, sizeof d);
            assert_int_equal(bn_pool_open(&d.pool, threads, NULL), BITNET_OK);
            assert_int_equal(bn_pool_node(d.pool, threads - 1), 0);
            bn_pool_place(d.pool, n);
            bn_pool_run(d.pool, take_all, &d);
            for (size_t k = 0; k < ITEMS; k++) assert_int_equal(d.taken[k], ROUNDS);
            if (mode == BN_NUMA_DISTRIBUTE) assert_int_equal(d.foreign, 0);
            uint32_t last = bn_pool_node(d.pool, threads - 1);
            assert_int_equal(last, mode == BN_NUMA_ISOLATE ? 0 : threads < 3 ? threads - 1 : 2);
            bn_pool_close(d.pool);
            bn_numa_close(n);
        }
}

/* ------------------------------------------------------------------ this machine */

static struct bn_numa *open_here(enum bn_numa_mode mode)
{
    struct bn_numa *n;
    bitnet_error err = {0};
    if (bn_numa_open(&n, mode, NULL, &err)) fail_msg("%s", err.text);
    assert_true(bn_numa_nodes(n) >= 1);
    return n;
}

struct seats {
    const struct bn_numa *numa;
    struct bn_pool *pool;
    _Atomic uint32_t wrong;
};

/* The CPU of the node that this thread runs on is one of it. */
static void sit(void *arg, uint32_t worker)
{
    struct seats *s = arg;
    int cpu = sched_getcpu(), c;
    bool found = false;
    for (uint32_t i = 0; (c = bn_numa_cpu(s->numa, bn_pool_node(s->pool, worker), i)) >= 0; i++)
        found = found || c == cpu;
    if (!found) atomic_fetch_add(&s->wrong, 1);
}

static void threads_sit_on_their_node(void **state)
{
    (void)state;
    for (int mode = BN_NUMA_DISTRIBUTE; mode <= BN_NUMA_REPLICATE; mode++)
        for (int pin = 0; pin < 2; pin++) {
            struct seats s = {.numa = open_here((enum bn_numa_mode)mode)};
            cpu_set_t before, after;
            assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
            assert_int_equal(bn_pool_open(&s.pool, 4, NULL), BITNET_OK);
            bn_pool_place(s.pool, s.numa);
            if (pin) assert_true(bn_pool_pin(s.pool) <= 3);
            for (int i = 0; i < 20; i++) bn_pool_run(s.pool, sit, &s);
            assert_int_equal(s.wrong, 0);
            assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
            assert_true(CPU_EQUAL(&before, &after)); /* the caller is as free as it was */
            bn_pool_close(s.pool);
            bn_numa_close((struct bn_numa *)s.numa);
        }
}

/* Where the system allows both, memory is where it was bound to, fresh or with something in it. */
static void memory_goes_to_its_node(void **state)
{
    (void)state;
    enum { BYTES = 4 * BN_HUGE_PAGE, STEP = 4096 };
    struct bn_numa *n = open_here(BN_NUMA_DISTRIBUTE);
    for (uint32_t node = 0; node < bn_numa_nodes(n); node++) {
        uint8_t *p = bn_block_alloc(BYTES);
        assert_non_null(p);
        memset(p, 7, BYTES / 2);
        bool bound = bn_numa_bind(n, p, BYTES, node);
        memset(p + BYTES / 2, 7, BYTES / 2);
        for (size_t i = 0; i < BYTES; i += STEP) {
            int at = bn_numa_where(n, p + i);
            assert_int_equal(p[i], 7);
            assert_true(!bound || at == -1 || at == (int)node);
        }
        bn_block_free(p, BYTES);
    }
    bn_numa_close(n);
}

static void shared_memory_is_on_all_nodes(void **state)
{
    (void)state;
    enum { BYTES = 64 * BN_HUGE_PAGE };
    struct bn_numa *n = open_here(BN_NUMA_REPLICATE);
    uint32_t pages[BN_MAX_NODES] = {0}, known = 0;
    uint8_t *p = bn_block_alloc(BYTES);
    assert_non_null(p);
    bool done = bn_numa_interleave(n, p, BYTES);
    for (size_t i = 0; i < BYTES; i += BN_HUGE_PAGE) {
        p[i] = 1;
        int at = bn_numa_where(n, p + i);
        if (at < 0) continue;
        pages[at]++;
        known++;
    }
    for (uint32_t k = 0; done && known == 64 && k < bn_numa_nodes(n); k++)
        assert_true(pages[k] >= 64 / bn_numa_nodes(n) / 2);
    assert_true(known <= 64);
    bn_block_free(p, BYTES);
    bn_numa_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(off_is_one_node),
        cmocka_unit_test(workers_are_dealt_to_nodes),
        cmocka_unit_test(cores_come_before_siblings),
        cmocka_unit_test(isolate_is_the_callers_node),
        cmocka_unit_test(a_node_without_memory),
        cmocka_unit_test(what_cannot_be_read_is_an_error),
        cmocka_unit_test(workers_help_inside_their_node),
        cmocka_unit_test(threads_sit_on_their_node),
        cmocka_unit_test(memory_goes_to_its_node),
        cmocka_unit_test(shared_memory_is_on_all_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
