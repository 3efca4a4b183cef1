/* SPDX-License-Identifier: Apache-2.0
 * The small model, opened once for a group of tests of src/server. Include after cmocka.h. */
#ifndef TESTS_SERVER_MODEL_H
#define TESTS_SERVER_MODEL_H

#include <bitnet/bitnet.h>

static bitnet_model *model;
static bitnet_error err;

static int open_model(void **state)
{
    (void)state;
    return bitnet_model_open(&model, NULL, NULL, &err) != BITNET_OK;
}

static int close_model(void **state)
{
    (void)state;
    bitnet_model_close(model);
    return 0;
}

#endif
