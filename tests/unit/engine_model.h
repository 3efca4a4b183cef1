/* SPDX-License-Identifier: Apache-2.0
 * The small model, opened once for a group of tests of the engine. */
#ifndef TEST_ENGINE_MODEL_H
#define TEST_ENGINE_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <bitnet/bitnet.h>
#include <cmocka.h>

static bitnet_model *model; /* of the group of tests */
static bitnet_model_info info;

static inline int open_model(void **state)
{
    (void)state;
    bitnet_error err;
    if (bitnet_model_open(&model, TEST_MODEL, NULL, &err)) {
        printf("%s\n", err.text);
        return -1;
    }
    info.size = sizeof info;
    bitnet_model_get_info(model, &info);
    return 0;
}

static inline int close_model(void **state)
{
    (void)state;
    bitnet_model_close(model);
    return 0;
}

#endif
