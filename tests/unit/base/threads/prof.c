/* SPDX-License-Identifier: Apache-2.0
 * base/prof without a model: the parts of every worker's time are the whole, whatever a period is
 * made of; rows, calls, work and spans are where the marks say; what finds no room is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/threads/pool.h"
#include "base/threads/prof.h"

enum { WORK = BN_PROF_OPS, MORE, N_OPS, N_PHASES = 2, N_ROWS = 3, BARRIERS = 4 };

static struct bn_prof *open_prof(uint32_t workers, size_t spans)
{
    struct bn_prof *p = NULL;
    struct bn_prof_sizes n = {workers, N_PHASES, N_ROWS, N_OPS, spans};
    assert_int_equal(bn_prof_open(&p, &n, NULL), BITNET_OK);
    assert_true(bn_prof_mark_ns(p) > 0);
    return p;
}

/* All of a worker's sums in a phase, or those of one operation. */
static struct bn_prof_sum sum_of(const struct bn_prof *p, uint32_t worker, uint32_t phase, int op)
{
    struct bn_prof_sum all = {0};
    for (uint32_t row = 0; row < N_ROWS; row++)
        for (uint32_t i = 0; i < N_OPS; i++) {
            const struct bn_prof_sum *s = bn_prof_sum(p, worker, phase, row, i);
            if (op >= 0 && (uint32_t)op != i) continue;
            all.ns += s->ns;
            all.calls += s->calls;
            all.bytes += s->bytes;
            all.macs += s->macs;
        }
    return all;
}

static uint64_t ns_at(const struct bn_prof *p, uint32_t row, uint32_t op)
{
    return bn_prof_sum(p, 0, 0, row, op)->ns;
}

static void parts_are_the_whole(const struct bn_prof *p, uint32_t workers)
{
    for (uint32_t phase = 0; phase < N_PHASES; phase++)
        for (uint32_t w = 0; w < workers; w++)
            assert_int_equal(sum_of(p, w, phase, -1).ns, bn_prof_phase(p, phase)->ns);
}

/* At least so long by the clock that marks are made with. */
static void pass(uint64_t ns)
{
    uint64_t begin_ns = bn_now_ns();
    while (bn_now_ns() - begin_ns < ns) {
    }
}

static void a_period_without_jobs(void **state)
{
    (void)state;
    struct bn_prof *p = open_prof(3, 0);
    uint64_t since_ns = bn_now_ns();
    pass(20000);
    bn_prof_begin(p, 1, WORK, since_ns);
    bn_prof_end(p, 7);
    const struct bn_prof_phase *phase = bn_prof_phase(p, 1);
    assert_int_equal(phase->periods, 1);
    assert_int_equal(phase->units, 7);
    assert_true(phase->ns >= 20000); /* what was before the call is in it */
    assert_int_equal(sum_of(p, 0, 1, WORK).ns, phase->ns);
    assert_int_equal(sum_of(p, 0, 1, WORK).calls, 1);
    for (uint32_t w = 1; w < 3; w++) assert_int_equal(sum_of(p, w, 1, BN_PROF_IDLE).ns, phase->ns);
    assert_int_equal(bn_prof_phase(p, 0)->ns, 0);
    parts_are_the_whole(p, 3);
    bn_prof_close(p);
}

static void marks_and_rows(void **state)
{
    (void)state;
    struct bn_prof *p = open_prof(1, 0);
    bn_prof_begin(p, 0, WORK, 0);
    pass(1000);
    bn_prof_row(p, 0, 2); /* still at WORK of row 0 */
    pass(2000);
    bn_prof_work(p, 0, 5, 6);
    bn_prof_mark(p, 0, MORE);
    pass(4000);
    bn_prof_work(p, 0, 10, 20);
    bn_prof_work(p, 0, 1, 2);
    bn_prof_mark(p, 0, WORK);
    bn_prof_row(p, 0, 1);
    bn_prof_mark(p, 0, WORK);
    bn_prof_end(p, 1);
    assert_true(ns_at(p, 0, WORK) >= 3000);
    assert_true(ns_at(p, 2, MORE) >= 4000);
    assert_int_equal(bn_prof_sum(p, 0, 0, 0, WORK)->bytes, 5);
    assert_int_equal(bn_prof_sum(p, 0, 0, 0, WORK)->macs, 6);
    assert_int_equal(bn_prof_sum(p, 0, 0, 2, MORE)->bytes, 11);
    assert_int_equal(bn_prof_sum(p, 0, 0, 2, MORE)->macs, 22);
    assert_int_equal(bn_prof_sum(p, 0, 0, 2, WORK)->calls, 1);
    assert_int_equal(bn_prof_sum(p, 0, 0, 1, WORK)->calls, 1);
    assert_int_equal(bn_prof_marks(p, 0), 4); /* the end is one, too */
    parts_are_the_whole(p, 1);
    bn_prof_begin(p, 0, MORE, 0); /* in row 0 again */
    bn_prof_end(p, 1);
    assert_int_equal(bn_prof_sum(p, 0, 0, 0, MORE)->calls, 1);
    assert_int_equal(bn_prof_phase(p, 0)->periods, 2);
    parts_are_the_whole(p, 1);
    bn_prof_close(p);
}

static void job(void *arg, uint32_t worker)
{
    struct bn_pool *pool = arg;
    for (uint32_t i = 0; i < BARRIERS; i++) {
        bn_prof_row(bn_pool_prof(pool), worker, i % N_ROWS);
        bn_prof_mark(bn_pool_prof(pool), worker, WORK);
        bn_prof_work(bn_pool_prof(pool), worker, 3, 4);
        pass(worker * 1000);
        bn_pool_barrier(pool, worker);
    }
}

static void periods_of_several_jobs(void **state)
{
    (void)state;
    enum { PERIODS = 50, JOBS = 3 };
    for (uint32_t threads = 1; threads <= 5; threads++) {
        struct bn_pool *pool = NULL;
        assert_int_equal(bn_pool_open(&pool, threads, NULL), BITNET_OK);
        struct bn_prof *p = open_prof(threads, 0);
        bn_pool_set_prof(pool, p);
        for (uint32_t i = 0; i < PERIODS; i++) {
            bn_prof_begin(p, i % 2, MORE, 0);
            for (uint32_t k = 0; k < JOBS; k++) {
                bn_pool_run(pool, job, pool);
                bn_prof_mark(p, 0, MORE);
            }
            bn_prof_end(p, i);
        }
        parts_are_the_whole(p, threads);
        for (uint32_t phase = 0; phase < N_PHASES; phase++)
            for (uint32_t w = 0; w < threads; w++) {
                uint64_t jobs = PERIODS / 2 * JOBS;
                /* the driver also wakes the others and waits for their end */
                uint64_t waits = threads == 1 ? 0 : jobs * (BARRIERS + (w == 0 ? 2 : 0));
                struct bn_prof_sum work = sum_of(p, w, phase, WORK);
                assert_int_equal(work.calls, jobs * BARRIERS);
                assert_int_equal(work.bytes, 3 * work.calls);
                assert_int_equal(work.macs, 4 * work.calls);
                assert_true(work.ns >= work.calls * w * 1000);
                assert_int_equal(bn_prof_sum(p, w, phase, 0, WORK)->calls, jobs * 2);
                assert_int_equal(sum_of(p, w, phase, BN_PROF_WAIT).calls, waits);
                assert_int_equal(sum_of(p, w, phase, BN_PROF_IDLE).calls, w ? PERIODS / 2 : 0);
                assert_int_equal(bn_prof_phase(p, phase)->periods, PERIODS / 2);
            }
        bn_pool_close(pool);
        bn_prof_close(p);
    }
}

static void spans_have_room_or_are_counted(void **state)
{
    (void)state;
    enum { ROOM = 10 };
    struct bn_prof *p = open_prof(2, ROOM);
    for (int round = 0; round < 2; round++) { /* as if new after a reset */
        uint64_t since_ns = bn_now_ns();
        assert_int_equal(bn_prof_spans_room(p), ROOM);
        assert_null(bn_prof_span(p, 0, 0));
        for (uint32_t i = 0; i < 3; i++) {
            bn_prof_begin(p, 0, WORK, i == 0 ? since_ns : 0);
            bn_prof_row(p, 0, 2);
            bn_prof_mark(p, 0, MORE);
            bn_prof_end(p, 1);
        }
        assert_int_equal(bn_prof_spans_lost(p), 0);
        const uint32_t ops[] = {WORK, MORE, BN_PROF_IDLE}, rows[] = {0, 2, 0};
        uint64_t ns = 0;
        for (size_t i = 0; i < 9; i++) {
            const struct bn_prof_span *s = bn_prof_span(p, 0, i);
            assert_int_equal(s->op, ops[i % 3]);
            assert_int_equal(s->row, rows[i % 3]);
            assert_int_equal(s->period, i / 3);
            if (i == 0) assert_int_equal(s->begin_ns, since_ns);
            else assert_true(s->begin_ns >= s[-1].begin_ns);
            if (i % 3) ns += s->begin_ns - s[-1].begin_ns;
        }
        assert_int_equal(ns, bn_prof_phase(p, 0)->ns);
        assert_null(bn_prof_span(p, 0, 9));
        assert_null(bn_prof_span(p, 1, 0)); /* nobody has woken it */
        bn_prof_begin(p, 1, WORK, 0);
        bn_prof_mark(p, 0, MORE);
        bn_prof_end(p, 1);
        assert_int_equal(bn_prof_spans_lost(p), 2);
        assert_null(bn_prof_span(p, 0, ROOM));
        parts_are_the_whole(p, 2); /* sums lose nothing */
        bn_prof_reset(p);
        assert_int_equal(bn_prof_spans_lost(p), 0);
        assert_int_equal(bn_prof_marks(p, 0), 0);
        for (uint32_t phase = 0; phase < N_PHASES; phase++) {
            assert_int_equal(bn_prof_phase(p, phase)->ns, 0);
            assert_int_equal(bn_prof_phase(p, phase)->periods, 0);
            assert_int_equal(sum_of(p, 0, phase, -1).ns, 0);
            assert_int_equal(sum_of(p, 0, phase, -1).calls, 0);
            assert_int_equal(sum_of(p, 1, phase, -1).ns, 0);
        }
    }
    bn_prof_close(p);
}

static void without_a_profile_nothing_happens(void **state)
{
    (void)state;
    struct bn_pool *pool = NULL;
    assert_int_equal(bn_pool_open(&pool, 2, NULL), BITNET_OK);
    assert_null(bn_pool_prof(pool));
    assert_false(bn_prof_on(NULL));
    bn_prof_begin(NULL, 0, WORK, 0);
    bn_pool_run(pool, job, pool);
    bn_prof_end(NULL, 1);
    bn_pool_close(pool);
    bn_prof_close(NULL);
}

int main(void)
{
    const struct CMUnitTest off[] = {cmocka_unit_test(without_a_profile_nothing_happens)};
    const struct CMUnitTest on[] = {
        cmocka_unit_test(a_period_without_jobs),
        cmocka_unit_test(marks_and_rows),
        cmocka_unit_test(periods_of_several_jobs),
        cmocka_unit_test(spans_have_room_or_are_counted),
    };
    int failed = cmocka_run_group_tests(off, NULL, NULL);
    return BN_PROF ? failed + cmocka_run_group_tests(on, NULL, NULL) : failed;
}
