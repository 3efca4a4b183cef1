/* SPDX-License-Identifier: Apache-2.0
 *
 * report_set.h: members of reports as JSON objects. A report that misses a member for lack of memory is
 * never written; a number that JSON cannot hold is null.
 */
#ifndef BN_CLI_REPORT_SET_H
#define BN_CLI_REPORT_SET_H

#include "cli/term.h"
#include "json/json.h"

static inline void set(struct bn_json *o, const char *key, struct bn_json *v)
{
    bn_json_set(o, key, v);
}
static inline void set_real(struct bn_json *o, const char *key, double v)
{
    set(o, key, bn_json_real(v));
}
static inline void set_int(struct bn_json *o, const char *key, uint64_t v)
{
    set(o, key, bn_json_int((int64_t)v));
}
static inline void set_text(struct bn_json *o, const char *key, const char *s)
{
    set(o, key, term_json_string(s, strlen(s)));
}

#endif
