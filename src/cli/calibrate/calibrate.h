/* SPDX-License-Identifier: Apache-2.0
 *
 * calibrate.h: the report of bitnet_calibrate for people: a table and a page, from its JSON and nothing
 * else.
 */
#ifndef BN_CLI_CALIBRATE_CALIBRATE_H
#define BN_CLI_CALIBRATE_CALIBRATE_H

#include "json/json.h"

void calibrate_print(const struct bn_json *report);
char *calibrate_page(const struct bn_json *report); /* HTML; free(); NULL: out of memory */
/* "codes 3, values int4": what the plan saves in a layer; "nothing". */
void calibrate_savings(struct bn_buf *b, const struct bn_json *layer);

#endif
