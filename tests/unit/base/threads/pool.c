/* SPDX-License-Identifier: Apache-2.0
 * How a pool deals out work when its workers are not equally fast. Dealing and taking wait for nobody,
 * so that one thread can play all workers, in a time of its own: who is through first takes next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/machine/machine.h"
#include "base/threads/pool.h"

enum { MOST = 64, GRAIN = 4, WARM_UP = 40, MEASURED = 20, ROWS = 6912 };

struct play {
    struct bn_pool *pool;
    uint32_t workers;
    double speed[MOST]; /* items in a unit of time */
    uint32_t pieces;    /* taken in the last deal */
    uint8_t seen[16 * ROWS];
};

static struct play *start(uint32_t workers)
{
    struct play *p = test_calloc(1, sizeof *p);
    p->workers = workers;
    for (uint32_t w = 0; w < workers; w++) p->speed[w] = 1;
    assert_int_equal(bn_pool_open(&p->pool, workers, NULL), BITNET_OK);
    return p;
}

static void end(struct play *p)
{
    bn_pool_close(p->pool);
    test_free(p);
}

static double ideal(const struct play *p, size_t n)
{
    double sum = 0;
    for (uint32_t w = 0; w < p->workers; w++) sum += p->speed[w];
    return (double)n / sum;
}

/* One deal of n items, each of which must be taken once; returns when the last worker is through. */
static double deal(struct play *p, size_t n, bool whole)
{
    double now[MOST] = {0}, last = 0;
    bool through[MOST] = {false};
    memset(p->seen, 0, n);
    p->pieces = 0;
    for (uint32_t w = 0; w < p->workers; w++) bn_pool_deal(p->pool, w, n, GRAIN, whole);
    for (uint32_t left = p->workers; left;) {
        uint32_t next = MOST;
        for (uint32_t w = 0; w < p->workers; w++)
            if (!through[w] && (next == MOST || now[w] < now[next])) next = w;
        struct bn_range r;
        if (!bn_pool_take(p->pool, next, &r)) {
            through[next] = true;
            left--;
            if (now[next] > last) last = now[next];
            continue;
        }
        assert_true(r.begin < r.end && r.end <= n && r.begin % GRAIN == 0);
        for (size_t i = r.begin; i < r.end; i++) p->seen[i]++;
        now[next] += (double)(r.end - r.begin) / p->speed[next];
        p->pieces++;
    }
    for (size_t i = 0; i < n; i++) assert_int_equal(p->seen[i], 1);
    return last;
}

/* The time of some deals over that of the ideal split, after as many as a layer or two have. */
static double over_ideal(struct play *p, size_t n, bool whole)
{
    double sum = 0;
    for (int i = 0; i < WARM_UP; i++) deal(p, n, false);
    for (int i = 0; i < MEASURED; i++) sum += deal(p, n, whole);
    return sum / MEASURED / ideal(p, n);
}

static void one_at_half_speed(void **state)
{
    (void)state;
    static const uint32_t workers[] = {2, 3, 4, 8, 12, 16};
    for (size_t i = 0; i < BN_ARRAY_LEN(workers); i++)
        for (uint32_t slow = 0; slow < workers[i]; slow += workers[i] - 1)
            for (int whole = 0; whole < 2; whole++) {
                struct play *p = start(workers[i]);
                p->speed[slow] = 0.5;
                double much = over_ideal(p, ROWS, whole);
                print_message("%2u workers, %2u slow, %s: %.3f\n", workers[i], slow,
                              whole ? "whole" : "parts", much);
                assert_true(much <= 1.12);
                end(p);
            }
}

/* What is taken, and by whom, does not change: shares that are whole stay whole. */
static void even_ones_go_on_as_they_began(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers <= 32; workers *= 2) {
        struct play *p = start(workers);
        deal(p, ROWS, false);
        uint32_t pieces = p->pieces;
        for (int i = 0; i < WARM_UP; i++) deal(p, ROWS, false);
        assert_int_equal(p->pieces, pieces);
        deal(p, ROWS, true);
        assert_int_equal(p->pieces, workers);
        end(p);
    }
}

/* Another program was on the CPU, and has ended. */
static void who_was_slow_recovers(void **state)
{
    (void)state;
    struct play *p = start(4);
    p->speed[2] = 0.4;
    over_ideal(p, ROWS, false);
    deal(p, ROWS, true);
    assert_true(p->pieces > 4);
    p->speed[2] = 1;
    over_ideal(p, ROWS, false);
    deal(p, ROWS, true);
    assert_int_equal(p->pieces, 4);
    end(p);
}

/* Machines with two kinds of cores, and how fast the slow ones are; a worker on each core. */
static void machines_with_two_kinds_of_cores(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t cores;
        double slow;
    } machines[] = {{"hybrid", 12, 0.55}, {"big-little", 8, 0.35}};
    for (size_t i = 0; i < BN_ARRAY_LEN(machines); i++) {
        static struct bn_machine m;
        static struct bn_machine_source source;
        struct bn_sysfiles sys;
        uint16_t order[BN_MAX_CPUS];
        char path[512];
        snprintf(path, sizeof path, "%s/machines/%s.txt", TEST_DATA, machines[i].name);
        assert_int_equal(bn_sysfiles_open(&sys, path, NULL), BITNET_OK);
        bn_machine_source_recorded(&source, &sys);
        bn_machine_read(&m, &source);
        unsigned self = bn_cpus_first(&m.cpus.usable);
        assert_true(bn_cpus_order(order, &m.cpus, self) >= machines[i].cores - 1);
        assert_false(bn_cpus_uneven(&m.cpus, m.default_threads));
        assert_true(bn_cpus_uneven(&m.cpus, machines[i].cores));
        struct play *p = start(machines[i].cores);
        for (uint32_t w = 0; w < p->workers; w++)
            if (CPU_ISSET(w ? order[w - 1] : self, &m.cpus.slow)) p->speed[w] = machines[i].slow;
        double equal = ROWS / (p->workers * machines[i].slow);
        double much = over_ideal(p, ROWS, false), whole = over_ideal(p, ROWS, true);
        print_message("%s: parts %.3f, whole %.3f, equal shares %.3f\n", machines[i].name, much,
                      whole, equal / ideal(p, ROWS));
        assert_true(much <= 1.12 && whole <= 1.12);
        end(p);
        bn_sysfiles_close(&sys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_half_speed),
        cmocka_unit_test(even_ones_go_on_as_they_began),
        cmocka_unit_test(who_was_slow_recovers),
        cmocka_unit_test(machines_with_two_kinds_of_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
