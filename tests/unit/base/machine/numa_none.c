/* SPDX-License-Identifier: Apache-2.0
 * A build without hwloc says so, and only where it is asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

static void only_off_is_possible(void **state)
{
    (void)state;
    bitnet_model_options o = {.size = sizeof o};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    bitnet_model_info info = {.size = sizeof info};
    o.numa = "off";
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_OK);
    bitnet_model_get_info(m, &info);
    assert_int_equal(info.memory.numa_nodes, 1);
    bitnet_model_close(m);
    o.numa = "isolate";
    assert_int_equal(bitnet_model_open(&m, TEST_MODEL, &o, &err), BITNET_E_UNSUPPORTED);
    assert_string_equal(err.text, "numa 'isolate' is not possible: this build has no hwloc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_off_is_possible)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
