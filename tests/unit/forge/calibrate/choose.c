/* SPDX-License-Identifier: Apache-2.0
 * Spending a budget: never more than there is, more for more, the same as trying all choices where the
 * levels are fine enough; floors are paid once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "forge/calibrate/knobs.h"
#include <math.h>
#include <string.h>

enum { KNOBS = 6, LEVELS = 3, LAYERS = 3, ROUNDS = 200 };

static struct bn_knob items[KNOBS];
static double floors[LAYERS];
static struct bn_knobs knobs = {.items = items, .n = KNOBS, .floors = floors};

static double draw(struct bn_rng *rng, double most) { return most * bn_rng_unit(rng); }

/* Two knobs a layer, with harms above the floor and gains that rise from level to level. */
static void make(struct bn_rng *rng, double floor)
{
    for (int i = 0; i < LAYERS; i++) floors[i] = draw(rng, floor);
    for (int i = 0; i < KNOBS; i++) {
        struct bn_knob *k = &items[i];
        memset(k, 0, sizeof *k);
        k->kind = i % 2 ? BN_KNOB_GATES : BN_KNOB_CODES;
        k->layer = (uint32_t)(i / 2);
        k->n_levels = LEVELS;
        double kl = floors[k->layer], gain = 0;
        for (int l = 0; l < LEVELS; l++) {
            k->levels[l].kl = kl += draw(rng, 0.01);
            k->levels[l].gain = gain += draw(rng, 1);
            k->levels[l].measured = true;
        }
    }
}

/* The largest gain of all choices within the budget. */
static double best_of_all(double budget)
{
    double best = 0;
    int n = 1;
    for (int i = 0; i < KNOBS; i++) n *= LEVELS + 1;
    for (int c = 0; c < n; c++) {
        int rest = c;
        for (int i = 0; i < KNOBS; i++, rest /= LEVELS + 1)
            items[i].chosen = (uint32_t)(rest % (LEVELS + 1));
        if (bn_knobs_kl(&knobs) <= budget) best = fmax(best, bn_knobs_gain(&knobs));
    }
    return best;
}

static void test_within_budget(void **state)
{
    (void)state;
    struct bn_rng rng = {7};
    double share = 0;
    for (int r = 0; r < ROUNDS; r++) {
        make(&rng, r % 2 ? 0.005 : 0);
        double budget = draw(&rng, 0.05), before = 0;
        bn_knobs_choose(&knobs, budget / 2);
        before = bn_knobs_gain(&knobs);
        bn_knobs_choose(&knobs, budget);
        double kl = bn_knobs_kl(&knobs), gain = bn_knobs_gain(&knobs);
        assert_true(kl <= budget * (1 + 1e-12));
        double best = best_of_all(budget);
        assert_true(gain <= best + 1e-12 && before <= best + 1e-12);
        share += best > 0 ? gain / best : 1;
    }
    assert_true(share / ROUNDS > 0.93); /* a greedy choice is not the best one, but near it */
}

static void test_nothing(void **state)
{
    (void)state;
    struct bn_rng rng = {1};
    make(&rng, 0);
    items[0].levels[0].kl = 0; /* even what harms nothing is left alone without a budget */
    bn_knobs_choose(&knobs, 0);
    assert_true(bn_knobs_gain(&knobs) == 0 && bn_knobs_kl(&knobs) == 0);
    bn_knobs_choose(&knobs, 1);
    for (int i = 0; i < KNOBS; i++) assert_int_equal(items[i].chosen, LEVELS);
    items[2].levels[1].measured = false; /* it, and what is above, is no choice */
    bn_knobs_choose(&knobs, 1);
    assert_int_equal(items[2].chosen, 1);
}

static void test_floor(void **state)
{
    (void)state;
    struct bn_rng rng = {3};
    make(&rng, 0);
    for (int i = 0; i < LAYERS; i++) floors[i] = 0.001 * (i + 1);
    for (int i = 0; i < KNOBS; i++)
        for (int l = 0; l < LEVELS; l++) items[i].levels[l].kl = floors[items[i].layer];
    bn_knobs_choose(&knobs, 0.0015); /* the first layer's is within it, and all of it free then */
    for (int i = 0; i < KNOBS; i++) assert_int_equal(items[i].chosen, i < 2 ? LEVELS : 0);
    bn_knobs_choose(&knobs, 0.0031);
    for (int i = 0; i < KNOBS; i++) assert_int_equal(items[i].chosen, LEVELS);
    assert_true(fabs(bn_knobs_kl(&knobs) - 0.003) < 1e-12);
}

static void test_uniform(void **state)
{
    (void)state;
    struct bn_rng rng = {5};
    make(&rng, 0);
    items[1].n_levels = 1;
    assert_true(bn_knobs_choose_uniform(&knobs, 2));
    for (int i = 0; i < KNOBS; i++) assert_int_equal(items[i].chosen, i == 1 ? 1 : 2);
    assert_false(bn_knobs_choose_uniform(&knobs, LEVELS + 1));
}

static void test_list(void **state)
{
    (void)state;
    bitnet_error err = {0};
    assert_true(bn_knob_wanted(BN_KNOB_DOWN, NULL));
    assert_true(bn_knob_wanted(BN_KNOB_DOWN, "codes,activations"));
    assert_false(bn_knob_wanted(BN_KNOB_GATES, "codes,activations"));
    assert_int_equal(bn_knobs_check_list("head,codes", &err), BITNET_OK);
    assert_int_equal(bn_knobs_check_list("heads", &err), BITNET_E_ARG);
    assert_int_equal(bn_knobs_check_list("codes,", &err), BITNET_E_ARG);
    assert_non_null(strstr(err.text, "gates"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_within_budget), cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_floor),         cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
