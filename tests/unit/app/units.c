/* SPDX-License-Identifier: Apache-2.0
 * Times as people type them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/units.h"

static void test_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = {{"0", 0},       {"90", 90},    {"5m", 300},  {"1h30m", 5400}, {"1.5h", 5400},
                {"-1", -1},     {"-5m", -1},   {"500ms", 0}, {"1500ms", 1},   {"24h", 86400},
                {"2d", 172800}, {"1m30s", 90}, {"0.5", 0}};
    static const char *const bad[] = {"",    "m",   "5 m", "5x",   "1h30", "soon", "+5",
                                      "--5", "inf", "nan", "0x10", "5m-",  "-",    "1e99"};
    int64_t s;
    for (size_t i = 0; i < BN_ARRAY_LEN(good); i++) {
        assert_true(units_seconds(&s, good[i].text));
        assert_int_equal(s, good[i].seconds);
    }
    for (size_t i = 0; i < BN_ARRAY_LEN(bad); i++)
        if (units_seconds(&s, bad[i])) fail_msg("'%s' is no time", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_seconds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
