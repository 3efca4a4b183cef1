/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h: what the reports of several commands have in common, as JSON. A report that misses a
 * member for lack of memory is never written; a number that JSON cannot hold is null.
 */
#ifndef BN_APP_REPORT_H
#define BN_APP_REPORT_H

#include "app/term.h"
#include "json/json.h"
#include <bitnet/bitnet.h>

static inline void set_real(struct bn_json *o, const char *key, double v)
{
    bn_json_set(o, key, bn_json_real(v));
}
static inline void set_int(struct bn_json *o, const char *key, uint64_t v)
{
    bn_json_set(o, key, bn_json_int((int64_t)v));
}
static inline void set_text(struct bn_json *o, const char *key, const char *s)
{
    bn_json_set(o, key, term_json_string(s, strlen(s)));
}

/* Members of objects: a text or "", a number or 0. */
const char *report_text(const struct bn_json *o, const char *key);
double report_number(const struct bn_json *o, const char *key);

struct bn_json *report_model(const bitnet_model_info *m);
struct bn_json *report_engine(const bitnet_engine_info *e, const char *backend); /* its settings */
/* Three lines about program, machine and model, from a report that has these members. */
void report_print_subject(const struct bn_json *report);

/* What an engine counted in its feed-forward layers: mode, tokens, matrices taken in part, bytes; and
 * layer by layer the shares of open gates and of inputs that are not zero, null where they were not
 * looked at. NULL: out of memory. */
struct bn_json *ffn_report(const bitnet_engine *e);

#endif
