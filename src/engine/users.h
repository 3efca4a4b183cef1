/* SPDX-License-Identifier: Apache-2.0
 * Users of the scheduler: whose requests come first when there are more than fit, and who gives way.
 * Deficit round robin, counted in tokens: every user has a clock that its tokens, divided by its
 * weight, drive forward; the one whose clock is behind is next. Policy only, like the scheduler.
 *
 * A user without waiting requests saves nothing up: when it comes back its clock is moved to within
 * BN_USERS_QUANTUM tokens of those who wait. Slots are shared by weight, as far as a user has requests
 * for them; a user may take a slot from another one only up to its share, and never below the other's. */
#ifndef BN_ENGINE_USERS_H
#define BN_ENGINE_USERS_H

#include "base/base.h"

enum {
    BN_USERS_QUANTUM =
        64, /* tokens, at weight 1, that clocks may differ before a slot changes hands */
    BN_USERS_KEPT = 4096, /* that have no requests, and are still known */
    BN_USERS_MAX_WEIGHT = 1000000
};

struct bn_user {
    struct bn_user *next;
    uint64_t id;
    double weight;                 /* above 0 */
    double clock;                  /* tokens computed for it, by weight */
    double share;                  /* of the slots; bn_users_share */
    uint32_t n_waiting, n_running; /* its jobs */
};

struct bn_users {
    struct bn_user *all;
    struct bn_user
        common;        /* of those that say nothing, and of those for whom there was no memory */
    uint32_t n;        /* in the list */
    uint32_t n_active; /* with jobs, the common one included */
};

void bn_users_close(struct bn_users *u);
/* The user of this id; a new one is made. weight 0: 1. */
struct bn_user *bn_users_find(struct bn_users *u, uint64_t id, uint32_t weight);

/* Its jobs come, are moved and go: waiting +1 or -1, running +1 or -1. */
void bn_users_count(struct bn_users *u, struct bn_user *who, int waiting, int running);
/* Shares of n slots: by weight, but no more than it has jobs for. */
void bn_users_share(struct bn_users *u, uint32_t n_slots);
static inline void bn_user_charge(struct bn_user *who, uint32_t n_tokens)
{
    who->clock += n_tokens / who->weight;
}
/* May `who` take a slot of the other, if that costs so many tokens to compute once more? */
bool bn_user_may_take(const struct bn_user *who, const struct bn_user *other, uint32_t cost);

#endif
