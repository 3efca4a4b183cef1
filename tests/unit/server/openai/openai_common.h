/* SPDX-License-Identifier: Apache-2.0
 * The small model and bodies read as requests, for tests of src/server/openai_*. Include after
 * cmocka.h. */
#ifndef TESTS_SERVER_OPENAI_COMMON_H
#define TESTS_SERVER_OPENAI_COMMON_H

#include "server/openai/reply.h"
#include "json_text.h"
#include "server_model.h"

static struct openai_request r;

static bitnet_status read_as(enum openai_kind kind, const char *body)
{
    static const struct openai_defaults d = {.max_tokens = 77, .seed = 99, .strict = true};
    struct bn_json *j = json_of(body);
    err = (bitnet_error){0};
    bitnet_status s = openai_request_read(&r, kind, j, &d, &err);
    bn_json_free(j); /* the request holds on to it */
    return s;
}

static inline void accepts(enum openai_kind kind, const char *body)
{
    if (read_as(kind, body) != BITNET_OK) fail_msg("%s: %s", body, err.text);
}

static inline void refuses(enum openai_kind kind, const char *body, const char *says)
{
    assert_int_not_equal(read_as(kind, body), BITNET_OK);
    assert_int_equal(openai_error_code(err.status), 400);
    if (!strstr(err.text, says)) fail_msg("%s: '%s' does not say '%s'", body, err.text, says);
    assert_null(r.body);
}

#endif
