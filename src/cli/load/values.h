/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h: values of options of `bitnet loadtest` that are more than a number.
 */
#ifndef BN_CLI_LOAD_VALUES_H
#define BN_CLI_LOAD_VALUES_H

#include "cli/load/load.h"

/* "90", "90s", "1.5m", "2h", "500ms". false: none of these, or more than a year. */
bool load_parse_seconds(double *out, const char *text);
/* "20" is a number of requests, "10s" a time. */
bool load_parse_warmup(double *seconds, uint64_t *requests, const char *text);
/* "ttft:200,itl:50": milliseconds. */
bool load_parse_goals(double goals_ms[LOAD_GOALS], const char *text);
/* "50,90,99.9" */
bool load_parse_percentiles(double *out, size_t *n, const char *text);

#endif
