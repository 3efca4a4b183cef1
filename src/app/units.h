/* SPDX-License-Identifier: Apache-2.0
 *
 * units.h: figures for people, three digits with a unit that fits: "46.7 ms", "598 MB", "1.25 k".
 */
#ifndef BN_APP_UNITS_H
#define BN_APP_UNITS_H

#include "base/base.h"

enum { SHOW_BYTES = 32 };

const char *show_time(char out[SHOW_BYTES], double ns);
const char *show_size(char out[SHOW_BYTES], double bytes);
const char *show_rate(char out[SHOW_BYTES], double bytes_per_s);
const char *show_count(char out[SHOW_BYTES], double n);
const char *show_share(char out[SHOW_BYTES], double share); /* "12.3 %" */

#endif
