/* SPDX-License-Identifier: Apache-2.0
 * The nearest known name to a mistyped one. Start with the typed name, offer every known name, then
 * look at `best`: NULL when nothing is near enough to be what was meant. */
#ifndef BN_BASE_SUGGEST_H
#define BN_BASE_SUGGEST_H

#include "base/base.h"

struct bn_suggest {
    const char *typed, *best;
    size_t distance; /* of best; at the start the largest distance that still counts */
};

void bn_suggest_start(struct bn_suggest *s, const char *typed);
void bn_suggest_offer(struct bn_suggest *s, const char *name);

#endif
