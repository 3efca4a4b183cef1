/* SPDX-License-Identifier: Apache-2.0
 * JSON texts of tests, which must be right. */
#ifndef TESTS_UNIT_JSON_TEXT_H
#define TESTS_UNIT_JSON_TEXT_H

#include "json/json.h"
#include <string.h>

static inline struct bn_json *json_of_bytes(const char *text, size_t n, unsigned flags)
{
    struct bn_json *j;
    bitnet_error e = {0};
    if (bn_json_parse(&j, text, n, flags, "text", &e) != BITNET_OK)
        fail_msg("%s: %.*s", e.text, (int)n, text);
    return j;
}

static inline struct bn_json *json_of(const char *text)
{
    return json_of_bytes(text, strlen(text), BN_JSON_ANY);
}

#endif
