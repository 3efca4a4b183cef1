/* SPDX-License-Identifier: Apache-2.0
 * The search of `bitnet bench --autotune` on made-up machines: it must find what is fast, stay with
 * the default where nothing is, and never measure more often than it says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/rng.h"
#include "cli/autotune/search.h"

enum { SEEDS = 100, CANDIDATES = 12 };

/* Speeds of the candidates, and what disturbs measuring them. */
struct machine {
    double speed[CANDIDATES];
    double noise;         /* relative, of each measurement */
    double drift;         /* relative, over the measurements: the machine grows warm */
    double interruptions; /* how often another program takes 10 to 40 % */
    struct bn_rng rng;
    size_t n_measured, limit;
};

static double uniform(struct machine *m) { return (double)(bn_rng_u64(&m->rng) >> 11) * 0x1p-53; }

/* nearly normal, deviation 1 */
static double bell(struct machine *m)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform(m);
    return sum;
}

static bitnet_status measure(void *user, size_t i, double *rate, bitnet_error *err)
{
    struct machine *m = user;
    (void)err;
    double away = m->noise * bell(m) - m->drift * (double)m->n_measured / 100;
    if (uniform(m) < m->interruptions) away -= 0.1 + 0.3 * uniform(m);
    *rate = m->speed[i] * (1 + away);
    m->n_measured++;
    return BITNET_OK;
}

static bool time_left(void *user)
{
    const struct machine *m = user;
    return m->n_measured < m->limit;
}

static struct autotune_search search; /* large; every test fills it anew */

static void run(struct machine *m, size_t n, size_t preferred)
{
    bitnet_error err;
    search = (struct autotune_search){.n = n,
                                      .preferred = preferred,
                                      .rounds_max = AUTOTUNE_ROUNDS_MAX,
                                      .measure = measure,
                                      .time_left = time_left,
                                      .user = m};
    assert_int_equal(autotune_search_run(&search, &err), BITNET_OK);
    assert_true(m->n_measured <= n * AUTOTUNE_ROUNDS_MAX);
}

static double best_of(const struct machine *m, size_t n)
{
    double best = 0;
    for (size_t i = 0; i < n; i++) best = fmax(best, m->speed[i]);
    return best;
}

static size_t finds_the_best(double noise, double drift, double interruptions)
{
    size_t n_good = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct machine m = {.noise = noise,
                            .drift = drift,
                            .interruptions = interruptions,
                            .rng = {seed * 7919 + 1},
                            .limit = SIZE_MAX};
        for (size_t i = 0; i < CANDIDATES; i++) m.speed[i] = 50 + 50 * uniform(&m);
        run(&m, CANDIDATES, seed % CANDIDATES);
        n_good += m.speed[search.choice] >= 0.97 * best_of(&m, CANDIDATES);
    }
    return n_good;
}

static void finds_what_is_fast(void **state)
{
    (void)state;
    assert_true(finds_the_best(0.01, 0, 0) >= 99);
    assert_true(finds_the_best(0.02, 0, 0) >= 99);
    assert_true(finds_the_best(0.02, 0.05, 0) >= 99);
    assert_true(finds_the_best(0.01, 0.05, 0.1) >= 99);
}

static void stays_with_the_default_under_noise(void **state)
{
    (void)state;
    size_t n_stayed = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct machine m = {.noise = 0.03, .rng = {seed * 104729 + 5}, .limit = SIZE_MAX};
        for (size_t i = 0; i < 6; i++) m.speed[i] = 80;
        run(&m, 6, 3);
        n_stayed += search.choice == 3;
    }
    assert_true(n_stayed >= 95);
}

static void small_differences_are_none(void **state)
{
    (void)state;
    /* half a percent is below the threshold, however sure one can be of it */
    struct machine m = {.noise = 0.0001, .rng = {3}, .limit = SIZE_MAX, .speed = {100, 100.5}};
    run(&m, 2, 0);
    assert_int_equal(search.choice, 0);
    assert_int_equal(search.best, 1);
    assert_int_equal(autotune_search_left(&search), 2);
    m = (struct machine){.noise = 0.0001, .rng = {3}, .limit = SIZE_MAX, .speed = {100, 101.5}};
    run(&m, 2, 0);
    assert_int_equal(search.choice, 1);
}

static void hopeless_ones_cost_three_rounds(void **state)
{
    (void)state;
    struct machine m = {.noise = 0.001, .rng = {9}, .limit = SIZE_MAX, .speed = {100, 50, 60, 70}};
    run(&m, 4, 1);
    assert_int_equal(search.choice, 0);
    assert_int_equal(m.n_measured, 4 * AUTOTUNE_ROUNDS_HOPELESS);
    assert_true(search.candidates[1].dropped && search.candidates[3].dropped);
}

static void time_that_is_up_keeps_the_default(void **state)
{
    (void)state;
    struct machine m = {.noise = 0.001, .rng = {9}, .limit = 0, .speed = {100, 50}};
    run(&m, 2, 1);
    assert_int_equal(search.choice, 1);
    assert_int_equal(m.n_measured, 0);
    assert_int_equal(search.rounds, 0);
    m = (struct machine){.noise = 0.001, .rng = {9}, .limit = 5, .speed = {100, 50}};
    run(&m, 2, 1); /* two rounds and a half prove nothing */
    assert_int_equal(search.choice, 1);
    assert_int_equal(search.rounds, 2);
    assert_int_equal(search.candidates[0].n, 2);
    assert_int_equal(m.n_measured, 5);
}

static void some_rounds_are_taken_whatever_the_time(void **state)
{
    (void)state;
    bitnet_error err;
    struct machine m = {.noise = 0.001, .rng = {9}, .limit = 0, .speed = {100, 90}};
    search = (struct autotune_search){.n = 2,
                                      .preferred = 1,
                                      .rounds_min = AUTOTUNE_ROUNDS_TELLING,
                                      .rounds_max = AUTOTUNE_ROUNDS_MAX,
                                      .measure = measure,
                                      .time_left = time_left,
                                      .user = &m};
    assert_int_equal(autotune_search_run(&search, &err), BITNET_OK);
    assert_int_equal(search.choice, 0);
    assert_true(m.n_measured <= 2 * AUTOTUNE_ROUNDS_TELLING);
}

static void a_sweep_measures_all(void **state)
{
    (void)state;
    bitnet_error err;
    struct machine m = {.noise = 0.001, .rng = {9}, .limit = SIZE_MAX, .speed = {100, 50, 60}};
    search = (struct autotune_search){.n = 3,
                                      .preferred = 1,
                                      .rounds_max = 5,
                                      .keep_all = true,
                                      .measure = measure,
                                      .time_left = time_left,
                                      .user = &m};
    assert_int_equal(autotune_search_run(&search, &err), BITNET_OK);
    assert_int_equal(m.n_measured, 15);
    assert_int_equal(search.best, 0);
    assert_int_equal(search.choice, 1);
}

static void those_dropped_before_take_no_part(void **state)
{
    (void)state;
    bitnet_error err;
    struct machine m = {.noise = 0.001, .rng = {9}, .limit = SIZE_MAX, .speed = {100, 50, 60}};
    search = (struct autotune_search){.n = 3,
                                      .preferred = 1,
                                      .rounds_max = AUTOTUNE_ROUNDS_MAX,
                                      .measure = measure,
                                      .time_left = time_left,
                                      .user = &m,
                                      .candidates[0].dropped = true};
    assert_int_equal(autotune_search_run(&search, &err), BITNET_OK);
    assert_int_equal(search.choice, 2);
    assert_int_equal(search.candidates[0].n, 0);
}

static bitnet_status refuse(void *user, size_t i, double *rate, bitnet_error *err)
{
    (void)user;
    (void)rate;
    return bn_fail(err, BITNET_E_CANCELLED, "candidate %zu", i);
}

static void errors_are_passed_on(void **state)
{
    (void)state;
    bitnet_error err;
    struct machine m = {.limit = SIZE_MAX};
    search = (struct autotune_search){.n = 2,
                                      .rounds_max = AUTOTUNE_ROUNDS_MAX,
                                      .measure = refuse,
                                      .time_left = time_left,
                                      .user = &m};
    assert_int_equal(autotune_search_run(&search, &err), BITNET_E_CANCELLED);
    assert_string_equal(err.text, "candidate 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_is_fast),
        cmocka_unit_test(stays_with_the_default_under_noise),
        cmocka_unit_test(small_differences_are_none),
        cmocka_unit_test(hopeless_ones_cost_three_rounds),
        cmocka_unit_test(time_that_is_up_keeps_the_default),
        cmocka_unit_test(some_rounds_are_taken_whatever_the_time),
        cmocka_unit_test(a_sweep_measures_all),
        cmocka_unit_test(those_dropped_before_take_no_part),
        cmocka_unit_test(errors_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
