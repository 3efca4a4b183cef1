/* SPDX-License-Identifier: Apache-2.0
 *
 * report_set.h: members of reports as JSON objects. What does not fit into memory is left out; a
 * number that JSON cannot hold is null.
 */
#ifndef BN_CLI_REPORT_SET_H
#define BN_CLI_REPORT_SET_H

#include "base/json.h"
#include "cli/term.h"

static inline void set(json_t *o, const char *key, json_t *v) { json_object_set_new(o, key, v); }
static inline void set_real(json_t *o, const char *key, double v) { set(o, key, bn_json_real(v)); }
static inline void set_int(json_t *o, const char *key, uint64_t v)
{
    set(o, key, json_integer((json_int_t)v));
}
static inline void set_text(json_t *o, const char *key, const char *s)
{
    set(o, key, term_json_string(s, strlen(s)));
}

#endif
