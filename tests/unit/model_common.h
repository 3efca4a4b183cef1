/* SPDX-License-Identifier: Apache-2.0
 * Shared by the tests of output heads: the small model, opened with a head of the test's choice. */
#ifndef BN_TEST_MODEL_COMMON_H
#define BN_TEST_MODEL_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

static bitnet_model *model; /* of the group of tests */

static inline bitnet_model *open_file(const char *path, const char *backend, const char *head)
{
    bitnet_model_options o = {.size = sizeof o};
    bitnet_error err = {0};
    bitnet_model *m = NULL;
    o.backend = backend;
    o.head = head;
    if (bitnet_model_open(&m, path, &o, &err)) fail_msg("%s", err.text);
    return m;
}

static inline bitnet_model *open_with(const char *backend, const char *head)
{
    return open_file(TEST_MODEL, backend, head);
}

static inline int close_model(void **state)
{
    (void)state;
    bitnet_model_close(model);
    return 0;
}

#endif
