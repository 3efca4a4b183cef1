/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.h: the nearest known name to a mistyped one. Start with the typed name, offer every known
 * name, then look at `best`: NULL when nothing is near enough to be what was meant.
 */
#ifndef BN_CLI_SUGGEST_H
#define BN_CLI_SUGGEST_H

#include "base/base.h"

struct suggest {
    const char *typed, *best;
    size_t distance; /* of best; at the start the largest distance that still counts */
};

void suggest_start(struct suggest *s, const char *typed);
void suggest_offer(struct suggest *s, const char *name);

#endif
