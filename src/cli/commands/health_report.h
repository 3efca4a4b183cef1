/* SPDX-License-Identifier: Apache-2.0
 *
 * health_report.h: an engine's signs of health, as a table for people and as JSON. */
#ifndef BN_CLI_COMMANDS_HEALTH_REPORT_H
#define BN_CLI_COMMANDS_HEALTH_REPORT_H

#include "json/json.h"
#include <bitnet/bitnet.h>
#include <stdio.h>

/* Walks over all weights: the first time their checksums are taken, then compared. */
bitnet_status health_scrub(bitnet_engine *e, bitnet_scrub *state, bitnet_error *err);

struct health_report {
    const bitnet_engine *engine;
    bitnet_scrub scrub;
    double repetition; /* of the answer */
};

void health_report_print(FILE *to, const struct health_report *r);
/* NULL: out of memory. */
struct bn_json *health_report_json(const struct health_report *r);

#endif
