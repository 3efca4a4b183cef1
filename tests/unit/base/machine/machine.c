/* SPDX-License-Identifier: Apache-2.0
 * Machines read from recordings (tests/data/machines), and what follows for threads and CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine/machine.h"
#include "base/threads/pool.h"
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The reading of one, with its files open as long as the test runs. */
struct recorded {
    struct bn_sysfiles sys;
    struct bn_machine machine;
};

static void open_machine(struct recorded *r, const char *name)
{
    static struct bn_machine_source source;
    char path[512];
    bitnet_error err = {0};
    snprintf(path, sizeof path, "%s/machines/%s.txt", TEST_DATA, name);
    assert_int_equal(bn_sysfiles_open(&r->sys, path, &err), BITNET_OK);
    bn_machine_source_recorded(&source, &r->sys);
    bn_machine_read(&r->machine, &source);
}

static uint32_t count(const cpu_set_t *set) { return (uint32_t)CPU_COUNT(set); }

/* ------------------------------------------------------------------ what is read */

static const struct expected {
    const char *name;
    uint32_t online, usable, fast, packages, cores, nodes, last_caches, threads;
    double quota;
    enum bn_tristate smt, virtual_machine, boost;
    const char *governor, *thp;
} expected[] = {
    {"two-sockets", 32, 32, 32, 2, 16, 2, 2, 16, 0, 1, 0, 1, "performance", "always"},
    {"smt-desktop", 16, 16, 16, 1, 8, 1, 1, 8, 0, 1, 0, 1, "powersave", "madvise"},
    {"hybrid", 16, 16, 8, 1, 12, 1, 1, 4, 0, 1, 0, 1, "powersave", "madvise"},
    {"quota-v2", 8, 8, 8, 1, 8, 1, 1, 2, 1.5, 0, 0, -1, "", "always"},
    {"quota-v1", 4, 4, 4, 1, 4, 0, 1, 2, 2.25, 0, 0, -1, "", "madvise"},
    {"cpuset-3", 8, 3, 3, 1, 4, 1, 1, 3, 0, 1, 0, 1, "schedutil", "madvise"},
    {"big-little", 8, 8, 4, 1, 8, 0, 1, 4, 0, 0, 0, -1, "schedutil", "never"},
    {"riscv-board", 4, 4, 4, 1, 4, 0, 1, 4, 0, 0, 0, -1, "", ""},
    {"small-vm", 2, 2, 2, 1, 1, 1, 1, 2, 0, 1, 1, -1, "", "never"},
    {"hot-laptop", 8, 8, 8, 1, 4, 1, 1, 4, 0, 1, 0, 0, "powersave", "madvise"},
    {"recorded-epyc-vm", 2, 2, 2, 1, 2, 1, 1, 2, 0, 0, 1, -1, "", "madvise"},
};

static void machines_are_read_as_they_are(void **state)
{
    (void)state;
    static struct recorded r;
    for (size_t i = 0; i < BN_ARRAY_LEN(expected); i++) {
        const struct expected *e = &expected[i];
        const struct bn_machine *m = &r.machine;
        open_machine(&r, e->name);
        cpu_set_t fast = bn_topology_fast(&m->cpus);
        print_message("%s\n", e->name);
        assert_int_equal(count(&m->cpus.online), e->online);
        assert_int_equal(count(&m->cpus.usable), e->usable);
        assert_int_equal(count(&fast), e->fast);
        assert_int_equal(bn_topology_groups(m->cpus.package, &m->cpus.online), e->packages);
        assert_int_equal(bn_topology_groups(m->cpus.core, &m->cpus.online), e->cores);
        assert_int_equal(bn_topology_groups(m->cpus.cache, &m->cpus.online), e->last_caches);
        assert_int_equal(m->n_nodes, e->nodes);
        assert_int_equal(m->default_threads, e->threads);
        assert_true(m->group.quota_cpus == e->quota);
        assert_int_equal(m->smt, e->smt);
        assert_int_equal(m->virtual_machine, e->virtual_machine);
        assert_int_equal(m->boost, e->boost);
        assert_string_equal(m->governor, e->governor);
        assert_string_equal(m->thp, e->thp);
        bn_sysfiles_close(&r.sys);
    }
}

static void assert_cache(const struct bn_machine *m, uint32_t level, char type, uint64_t kb,
                         uint32_t n, uint32_t cpus)
{
    for (uint32_t i = 0; i < m->n_caches; i++) {
        const struct bn_machine_cache *c = &m->caches[i];
        if (c->level == level && c->type == type && c->bytes == kb << 10) {
            assert_int_equal(c->n, n);
            assert_int_equal(c->cpus, cpus);
            return;
        }
    }
    fail_msg("no cache of level %u, type %c and %lu kB", level, type, (unsigned long)kb);
}

static void the_rest_is_read_too(void **state)
{
    (void)state;
    static struct recorded r;
    const struct bn_machine *m = &r.machine;
    open_machine(&r, "hybrid");
    assert_string_equal(m->cpu_name, "12th Gen Intel(R) Core(TM) i7-1260P");
    assert_int_equal(m->n_caches, 7);
    assert_cache(m, 1, 'd', 48, 4, 2);
    assert_cache(m, 1, 'd', 32, 8, 1);
    assert_cache(m, 2, 'u', 1280, 4, 2);
    assert_cache(m, 2, 'u', 2048, 2, 4);
    assert_cache(m, 3, 'u', 18432, 1, 16);
    assert_int_equal(m->max_khz, 4700000); /* of a fast core */
    assert_string_equal(m->preference, "balance_performance");
    assert_int_equal(m->throttle_known, BN_UNKNOWN);
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "two-sockets");
    assert_int_equal(m->nodes[1].id, 1);
    assert_int_equal(m->nodes[1].n_cpus, 16);
    assert_int_equal(m->nodes[1].farthest, 21);
    assert_true(m->nodes[1].total_bytes == (uint64_t)128 << 30);
    assert_true(m->nodes[1].free_bytes == (uint64_t)64 << 30);
    assert_int_equal(m->cpus.node[24], 1);
    assert_int_equal(m->throttle_known, BN_YES);
    assert_int_equal(m->n_throttles, 0);
    assert_int_equal(m->n_huge, 2);
    assert_true(m->huge[1].page_bytes == 1 << 30);
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "hot-laptop");
    assert_int_equal(m->n_throttles, 4 * 120 + 300);
    assert_true(m->memlock_bytes == 65536);
    assert_true(m->memory_bytes == (uint64_t)8 << 30 && m->available_bytes == (uint64_t)5 << 30);
    assert_true(m->swap_bytes == (uint64_t)8 << 30 && m->swap_used_bytes == 0);
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "quota-v2");
    assert_true(m->group.memory_bytes == (uint64_t)2 << 30);
    assert_int_equal(m->group.n_periods, 10000);
    assert_int_equal(m->group.n_throttled, 4200);
    assert_string_equal(m->group.cpuset, "0-7");
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "quota-v1");
    assert_true(m->group.memory_bytes == 0); /* the largest number is no limit */
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "riscv-board");
    assert_string_equal(m->cpu_name, "sifive,u74-mc");
    assert_true(m->max_khz == 0 && m->perf_known == BN_UNKNOWN && m->n_huge == 0);
    bn_sysfiles_close(&r.sys);
}

/* Nothing at all, as in an empty root: CPUs of the mask, each by itself, the rest unknown. */
static void an_empty_tree_says_nothing(void **state)
{
    (void)state;
    static struct bn_machine m;
    static struct bn_machine_source from;
    char root[] = "/tmp/bitnet-machine-XXXXXX";
    struct bn_sysfiles sys;
    assert_non_null(mkdtemp(root));
    assert_int_equal(bn_sysfiles_open(&sys, root, NULL), BITNET_OK);
    bn_machine_source_here(&from);
    from.sys = &sys;
    from.groups[0] = 0;
    assert_true(bn_cpus_parse(&from.allowed, "1-3"));
    bn_machine_read(&m, &from);
    assert_int_equal(m.default_threads, 3);
    assert_int_equal(bn_topology_groups(m.cpus.core, &m.cpus.online), 3);
    assert_int_equal(m.cpus.node[1], BN_NO_NODE);
    assert_true(m.n_caches == 0 && m.n_nodes == 0 && m.memory_bytes == 0 && m.boost == BN_UNKNOWN);
    assert_true(m.load_average < 0 && !*m.cpu_name && !*m.thp && m.virtual_machine == BN_NO);
    bn_sysfiles_close(&sys);
    assert_int_equal(rmdir(root), 0);
}

/* ------------------------------------------------------------------ which CPUs, in which order */

static void assert_order(const struct bn_topology *t, unsigned self, const uint16_t *want, size_t n)
{
    uint16_t out[BN_MAX_CPUS];
    assert_true(bn_cpus_order(out, t, self) >= n);
    for (size_t i = 0; i < n; i++) assert_int_equal(out[i], want[i]);
}

static void workers_take_free_fast_and_near_cores_first(void **state)
{
    (void)state;
    static struct recorded r;
    uint16_t out[BN_MAX_CPUS];

    /* CPU i + 16 is the sibling of i; 0 to 7 are the first socket: its cores, the other's, siblings */
    open_machine(&r, "two-sockets");
    static const uint16_t near[] = {8, 9, 10, 12, 13, 14, 15, 0,  1,  2,  3,  4, 5,
                                    6, 7, 11, 24, 25, 26, 28, 29, 30, 31, 16, 17};
    assert_order(&r.machine.cpus, 27, near, BN_ARRAY_LEN(near));
    assert_int_equal(bn_cpus_order(out, &r.machine.cpus, 27), 31);
    bn_sysfiles_close(&r.sys);

    /* P-cores, E-cores, and only then the P-cores' siblings */
    open_machine(&r, "hybrid");
    static const uint16_t fast[] = {0, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15, 1, 3, 5, 7};
    assert_order(&r.machine.cpus, 2, fast, BN_ARRAY_LEN(fast));
    bn_sysfiles_close(&r.sys);

    open_machine(&r, "big-little");
    static const uint16_t big[] = {4, 5, 7, 0, 1, 2, 3};
    assert_order(&r.machine.cpus, 6, big, BN_ARRAY_LEN(big));
    bn_sysfiles_close(&r.sys);
}

static void workers_stay_on_fast_cores_if_these_suffice(void **state)
{
    (void)state;
    static struct recorded r;
    cpu_set_t cpus, want;
    open_machine(&r, "hybrid");
    assert_true(bn_cpus_parse(&want, "0-7"));
    assert_true(bn_cpus_confine(&cpus, &r.machine.cpus, 4));
    assert_true(CPU_EQUAL(&cpus, &want));
    assert_false(bn_cpus_confine(&cpus, &r.machine.cpus, 5));
    /* a mask of E-cores only: they are what there is */
    struct bn_topology *t = &r.machine.cpus;
    assert_true(bn_cpus_parse(&t->usable, "8-11"));
    assert_false(bn_cpus_confine(&cpus, t, 2));
    assert_int_equal(bn_default_threads(t, 0, &r.sys), 4);
    /* E-cores and one P-core: that one */
    assert_true(bn_cpus_parse(&t->usable, "7-11"));
    assert_int_equal(bn_default_threads(t, 0, &r.sys), 1);
    bn_sysfiles_close(&r.sys);
    open_machine(&r, "two-sockets");
    assert_false(bn_cpus_confine(&cpus, &r.machine.cpus, 4));
    bn_sysfiles_close(&r.sys);
}

static void quotas_are_rounded_to_the_nearest(void **state)
{
    (void)state;
    static const struct {
        double quota;
        uint32_t threads;
    } cases[] = {{0.1, 1},  {0.5, 1}, {1, 1},   {1.4, 1}, {1.5, 2},
                 {2.25, 2}, {3, 3},   {7.6, 8}, {40, 8},  {1e9, 8}};
    static struct recorded r;
    open_machine(&r, "smt-desktop");
    for (size_t i = 0; i < BN_ARRAY_LEN(cases); i++)
        assert_int_equal(bn_default_threads(&r.machine.cpus, cases[i].quota, &r.sys),
                         cases[i].threads);
    bn_sysfiles_close(&r.sys);
}

/* Two CPUs of one core are one thread, but two in a virtual machine, which may have made it up. */
static void siblings_alone_count_in_a_virtual_machine(void **state)
{
    (void)state;
    static struct recorded r, real;
    open_machine(&r, "small-vm");
    open_machine(&real, "smt-desktop");
    assert_int_equal(bn_default_threads(&r.machine.cpus, 0, &r.sys), 2);
    assert_int_equal(bn_default_threads(&r.machine.cpus, 0, &real.sys), 1);
    bn_sysfiles_close(&r.sys);
    bn_sysfiles_close(&real.sys);
}

/* ------------------------------------------------------------------ this machine */

static void this_machine_is_read(void **state)
{
    (void)state;
    static struct bn_machine m;
    static struct bn_machine_source from;
    bn_machine_source_here(&from);
    bn_machine_read(&m, &from);
    assert_true(count(&m.cpus.usable) >= 1);
    assert_int_equal(m.default_threads, bn_usable_cores());
    assert_true(m.default_threads <= count(&m.cpus.usable));
    for (unsigned c = 0; c < BN_MAX_CPUS; c++) { /* the least of a group stands for itself */
        assert_int_equal(m.cpus.core[m.cpus.core[c]], m.cpus.core[c]);
        assert_int_equal(m.cpus.package[m.cpus.package[c]], m.cpus.package[c]);
        assert_true(m.cpus.core[c] <= c && m.cpus.cache[c] <= c);
    }
    struct bn_placement place;
    bn_placement_choose(&place, 0);
    assert_int_equal(place.n_threads, m.default_threads);
    bn_placement_choose(&place, BN_MAX_THREADS);
    assert_int_equal(place.n_threads, BN_MAX_THREADS);
    assert_true(place.crowded || count(&m.cpus.usable) >= BN_MAX_THREADS);
}

static void kernels_are_tested_by_name(void **state)
{
    (void)state;
    bitnet_error err = {0};
    const char *name;
    int supported;
    assert_int_equal(bitnet_kernel_selftest(NULL, &err), BITNET_OK);
    assert_int_equal(bitnet_kernel_selftest("nonsense", &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "'nonsense'"));
    for (size_t i = 0; (name = bitnet_backend_name(i, &supported)); i++)
        assert_int_equal(bitnet_kernel_selftest(name, &err),
                         supported ? BITNET_OK : BITNET_E_UNSUPPORTED);
}

/* ------------------------------------------------------------------ lists and groups */

static void lists_of_cpus_are_understood(void **state)
{
    (void)state;
    cpu_set_t set;
    char text[32];
    assert_true(bn_cpus_parse(&set, "0,2-3\n"));
    assert_int_equal(CPU_COUNT(&set), 3);
    assert_true(CPU_ISSET(0, &set) && CPU_ISSET(2, &set) && CPU_ISSET(3, &set));
    bn_cpus_format(text, sizeof text, &set);
    assert_string_equal(text, "0,2-3");
    assert_true(bn_cpus_parse(&set, "0,2,4,6,8,10,12,14,16,18,20,1000-1023"));
    bn_cpus_format(text, sizeof text, &set);
    assert_string_equal(text, "0,2,4,6,8,10,12,14,16,18,20...");
    static const char *const bad[] = {"",   "\n",  "0,",  ",0",    "a",
                                      "1-", "3-2", "0 1", "99999", "0\n1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(bn_cpus_parse(&set, bad[i]));
}

/* A recording from a text; returns the quota of a process in these groups. */
static double quota_of(const char *recording, const char *groups)
{
    char path[] = "/tmp/bitnet-recording-XXXXXX";
    struct bn_sysfiles sys;
    struct bn_cgroup g;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, recording, strlen(recording)) == (ssize_t)strlen(recording));
    close(fd);
    assert_int_equal(bn_sysfiles_open(&sys, path, NULL), BITNET_OK);
    bn_cgroup_read(&g, &sys, groups);
    bn_sysfiles_close(&sys);
    unlink(path);
    return g.quota_cpus;
}

static void quotas_are_found_in_every_group(void **state)
{
    (void)state;
#define G "/sys/fs/cgroup"
    static const char v2[] = G "/a/cpu.max\t250000 100000\n" G "/a/b/cpu.max\tmax 100000\n" G
                               "/c/cpu.max\t25000 50000\n" G "/c/d/cpu.max\t100000 100000\n";
    assert_true(quota_of("# nothing is said\n", "0::/a/b\n") == 0);
    assert_true(quota_of(v2, "0::/a/b\n") == 2.5); /* of the group above */
    assert_true(quota_of(v2, "0::/a\n") == 2.5);
    assert_true(quota_of(v2, "0::/c/d\n") == 0.5); /* the least */
    assert_true(quota_of(v2, "0::/\n") == 0);
    static const char v1[] =
        G "/cpu/cpu.cfs_quota_us\t-1\n" G "/cpu/cpu.cfs_period_us\t100000\n" G
          "/cpu/c/d/cpu.cfs_quota_us\t400000\n" G "/cpu/c/d/cpu.cfs_period_us\t200000\n";
    assert_true(quota_of(v1, "9:memory:/a/b\n4:cpu,cpuacct:/c/d\n0::/\n") == 2);
    assert_true(quota_of(v1, "4:cpuset:/c/d\n") == 0);
    static const char host[] =
        G "/cpu/cpu.cfs_quota_us\t100000\n" G "/cpu/cpu.cfs_period_us\t100000\n";
    assert_true(quota_of(host, "4:cpu:/docker/123\n") == 1); /* a path that only the host knows */
    assert_true(quota_of(v2, "nonsense\n:\n::\n") == 0);
#undef G
}

/* ------------------------------------------------------------------ trees */

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A folder and a recording of it say the same. */
static void folders_and_recordings_are_read_alike(void **state)
{
    (void)state;
    char root[] = "/tmp/bitnet-sysfiles-XXXXXX", folder[64], path[64], file[64], text[64];
    uint64_t v;
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/proc", root);
    snprintf(path, sizeof path, "%s/proc/x", root);
    snprintf(file, sizeof file, "%s/sysfiles.txt", root);
    assert_int_equal(mkdir(folder, 0700), 0);
    put_file(path, "12\ta\\b\n3\n\n");
    put_file(file, "# a comment\n\n/proc/y\t\n/proc/x\t12\\ta\\\\b\\n3\\n\n/proc/xy\tno number\n");
    for (int recording = 0; recording < 2; recording++) {
        struct bn_sysfiles sys;
        assert_int_equal(bn_sysfiles_open(&sys, recording ? file : root, NULL), BITNET_OK);
        assert_true(bn_sysfiles_text(&sys, text, sizeof text, "/proc/%s", "x"));
        assert_string_equal(text, "12\ta\\b\n3");
        assert_true(bn_sysfiles_text(&sys, text, 4, "/proc/x"));
        assert_string_equal(text, "12\t");
        assert_true(bn_sysfiles_u64(&sys, &v, "/proc/x") && v == 12);
        assert_false(bn_sysfiles_text(&sys, text, sizeof text, "/proc/z"));
        assert_string_equal(text, "");
        assert_false(bn_sysfiles_u64(&sys, &v, "/proc/xy"));
        bn_sysfiles_close(&sys);
    }
    static const char *const broken[] = {"no path\ttext\n", "/path without text\n"};
    for (size_t i = 0; i < BN_ARRAY_LEN(broken); i++) {
        struct bn_sysfiles sys;
        bitnet_error err = {0};
        put_file(file, broken[i]);
        assert_int_equal(bn_sysfiles_open(&sys, file, &err), BITNET_E_FORMAT);
        assert_non_null(strstr(err.text, file));
        unlink(file);
        assert_int_equal(bn_sysfiles_open(&sys, file, &err), BITNET_E_IO);
    }
    unlink(path);
    rmdir(folder);
    assert_int_equal(rmdir(root), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_read_as_they_are),
        cmocka_unit_test(the_rest_is_read_too),
        cmocka_unit_test(an_empty_tree_says_nothing),
        cmocka_unit_test(workers_take_free_fast_and_near_cores_first),
        cmocka_unit_test(workers_stay_on_fast_cores_if_these_suffice),
        cmocka_unit_test(quotas_are_rounded_to_the_nearest),
        cmocka_unit_test(siblings_alone_count_in_a_virtual_machine),
        cmocka_unit_test(this_machine_is_read),
        cmocka_unit_test(kernels_are_tested_by_name),
        cmocka_unit_test(lists_of_cpus_are_understood),
        cmocka_unit_test(quotas_are_found_in_every_group),
        cmocka_unit_test(folders_and_recordings_are_read_alike),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
