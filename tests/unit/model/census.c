/* SPDX-License-Identifier: Apache-2.0
 * Counting codes and gates: shares, energy and entropy against what they are by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/census.h"
#include <math.h>

static struct bn_census *census;

static int open_census(void **state)
{
    (void)state;
    return bn_census_open(&census, 2, 2, NULL) == BITNET_OK ? 0 : 1;
}

static int close_census(void **state)
{
    (void)state;
    bn_census_close(census);
    return 0;
}

static void test_codes(void **state)
{
    (void)state;
    const float x[] = {0, 0, 0, 0, 0.5f, -0.5f, 1, -1};
    const int8_t q[] = {0, 0, 0, 0, 64, -64, 127, -127};
    struct bn_census_counts c;
    bn_census_row(census, 0, 1, BN_IN_DOWN, x, q, 8);
    bn_census_row(census, 1, 1, BN_IN_DOWN, x, NULL, 8); /* rounded here: the same codes */
    bn_census_get(&c, census, 1, BN_IN_DOWN);
    assert_int_equal(c.rows, 2);
    assert_int_equal(c.codes[128], 8);
    assert_int_equal(c.codes[128 + 64], 2);
    assert_int_equal(c.codes[128 - 127], 2);
    assert_true(c.largest == 1 && c.largest_sum == 2);
    assert_true(fabs(bn_census_entropy(&c) - 2) < 1e-12); /* a half, and four eighths */
    assert_true(bn_census_share(&c, 0) == 0.5 && bn_census_share(&c, 64) == 0.75);
    double few = 2 * 64 * 64, all = few + 2 * 127 * 127;
    assert_true(fabs(bn_census_energy(&c, 64) - few / all) < 1e-12);
    assert_true(bn_census_energy(&c, 63) == 0 && bn_census_share(&c, 127) == 1);
    bn_census_get(&c, census, 0, BN_IN_DOWN); /* the other layer has none */
    assert_true(c.rows == 0 && bn_census_entropy(&c) == 0 && bn_census_energy(&c, 5) == 0);
}

static void test_gates(void **state)
{
    (void)state;
    const float gates[] = {-1, 0, 1e-9f, 0.5f, 1, 1.1f, 3, 1e9f};
    struct bn_census_gates g;
    bn_census_gate_row(census, 1, 0, gates, 8);
    bn_census_get_gates(&g, census, 0);
    assert_int_equal(g.n, 8);
    uint32_t bin = 0; /* the one that ends at 2: above it are 3 and 1e9 */
    while (bn_census_gate_edge(bin) < 2) bin++;
    assert_true(bn_census_gate_edge(bin) == 2);
    assert_true(bn_census_open_share(&g, bin) == 2.0 / 8);
    for (uint32_t i = 1; i < BN_CENSUS_BINS; i++) {
        assert_true(bn_census_gate_edge(i) > bn_census_gate_edge(i - 1));
        assert_true(bn_census_open_share(&g, i) <= bn_census_open_share(&g, i - 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_codes, open_census, close_census),
        cmocka_unit_test_setup_teardown(test_gates, open_census, close_census),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
