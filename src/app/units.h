/* SPDX-License-Identifier: Apache-2.0
 *
 * units.h: figures for people, three digits with a unit that fits: "46.7 ms", "598 MB", "1.25 k".
 */
#ifndef BN_APP_UNITS_H
#define BN_APP_UNITS_H

#include "base/base.h"

enum { UNITS_BYTES = 32 };

const char *units_time(char out[UNITS_BYTES], double ns);
const char *units_size(char out[UNITS_BYTES], double bytes);
const char *units_rate(char out[UNITS_BYTES], double bytes_per_s);
const char *units_count(char out[UNITS_BYTES], double n);
const char *units_share(char out[UNITS_BYTES], double share); /* "12.3 %" */

/* "300", "90s", "5m", "1h30m", "1.5h": a time in seconds; one below 0 is any time, and becomes -1. false: it
 * is none. */
bool units_seconds(int64_t *out, const char *text);

#endif
