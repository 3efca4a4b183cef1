/* SPDX-License-Identifier: Apache-2.0
 * Errands: every one is told once, also when the server closes; those that follow go first; few are under way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/errands/errands.h"
#include <event2/event.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { N = 200, OPEN_MAX = 2 * ERRANDS_THREADS };

static struct errands *errands;
static struct event_base *base;
static _Atomic int under_way, most, n_run;
static int n_done, n_followed;

struct job {
    struct errand e; /* first */
    bool ran, told, has_follower, follower_told;
    struct errand follower;
};
static struct job jobs[N];

static void run(struct errand *e)
{
    struct job *j = (struct job *)e;
    int now = atomic_fetch_add(&under_way, 1) + 1;
    if (now > most) most = now;
    n_run++;
    j->ran = true;
}

static void run_follower(struct errand *e) { (void)e; }

static void end(void)
{
    under_way--;
    if (n_done == N) event_base_loopbreak(base);
}

static void follower_done(struct errand *e)
{
    struct job *j = (struct job *)((char *)e - offsetof(struct job, follower));
    assert_false(j->follower_told);
    j->follower_told = true;
    n_followed++;
    n_done++;
    end();
}

static void done(struct errand *e)
{
    struct job *j = (struct job *)e;
    assert_true(j->ran);
    assert_false(j->told);
    j->told = true;
    if (j->has_follower) {
        j->follower = (struct errand){.run = run_follower, .done = follower_done};
        errands_give(errands, &j->follower, true);
        return;
    }
    n_done++;
    end();
}

static void begin(void)
{
    bitnet_error err;
    memset(jobs, 0, sizeof jobs);
    under_way = most = n_run = 0;
    n_done = n_followed = 0;
    base = event_base_new();
    assert_non_null(base);
    assert_int_equal(errands_open(&errands, base, &err), BITNET_OK);
}

static void test_all_told(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < N; i++) {
        jobs[i].e = (struct errand){.run = run, .done = done};
        jobs[i].has_follower = i % 3 == 0;
        errands_give(errands, &jobs[i].e, false);
    }
    event_base_dispatch(base);
    assert_int_equal(n_done, N);
    assert_int_equal(n_run, N);
    assert_int_equal(n_followed, (N + 2) / 3);
    assert_in_range(most, 1, OPEN_MAX);
    errands_close(errands);
    event_base_free(base);
}

/* Nobody turns the loop: those that may be begun are, the others stay as they came; closing tells them all. */
static void done_closing(struct errand *e)
{
    struct job *j = (struct job *)e;
    assert_false(j->told);
    j->told = true;
    n_done++;
}

static void test_closing(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < N; i++) {
        jobs[i].e = (struct errand){.run = run, .done = done_closing};
        errands_give(errands, &jobs[i].e, false);
    }
    while (n_run < OPEN_MAX) usleep(1000);
    usleep(20000);
    assert_int_equal(n_run, OPEN_MAX);
    errands_close(errands);
    assert_int_equal(n_done, N);
    assert_in_range(n_run, OPEN_MAX, OPEN_MAX);
    event_base_free(base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_told),
                                       cmocka_unit_test(test_closing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
