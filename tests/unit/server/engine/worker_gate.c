/* SPDX-License-Identifier: Apache-2.0
 * Cores that several engines share: never more are in than there are, and everybody has their turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/engine/worker_gate.h"
#include <pthread.h>
#include <stdatomic.h>

enum { CORES = 4, THREADS = 6, ROUNDS = 2000 };

static struct worker_gate *gate;
static _Atomic int inside, most;
static _Atomic int turns[THREADS];

/* Some need one core, some two, one all of them, and one more than there are. */
static const uint32_t needs[THREADS] = {1, 1, 2, 2, CORES, CORES + 3};

static void *go(void *arg)
{
    size_t i = (size_t)(uintptr_t)arg;
    int n = (int)(needs[i] < CORES ? needs[i] : CORES);
    for (int k = 0; k < ROUNDS; k++) {
        worker_gate_enter(gate, needs[i]);
        int now = atomic_fetch_add(&inside, n) + n;
        if (now > most) most = now;
        turns[i]++;
        atomic_fetch_sub(&inside, n);
        worker_gate_leave(gate, needs[i]);
    }
    return NULL;
}

static void test_share(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    gate = worker_gate_open(CORES);
    assert_non_null(gate);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, go, (void *)(uintptr_t)i), 0);
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(inside, 0);
    assert_in_range(most, CORES, CORES);
    for (size_t i = 0; i < THREADS; i++) assert_int_equal(turns[i], ROUNDS);
    worker_gate_close(gate);
}

static void test_none(void **state)
{
    (void)state;
    worker_gate_enter(NULL, 3); /* an engine that has all cores for itself waits for nobody */
    worker_gate_leave(NULL, 3);
    worker_gate_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_share), cmocka_unit_test(test_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
