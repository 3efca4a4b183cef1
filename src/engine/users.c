/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/users.h"

#include "base/os/mem.h"
#include <math.h>
#include <stdlib.h>

void bn_users_close(struct bn_users *u)
{
    while (u->all) {
        struct bn_user *next = u->all->next;
        free(u->all);
        u->all = next;
    }
}

static bool is_active(const struct bn_user *who) { return who->n_waiting || who->n_running; }

/* Makes room for one: whoever is idle and comes first. */
static void forget_one(struct bn_users *u)
{
    for (struct bn_user **at = &u->all; *at; at = &(*at)->next) {
        struct bn_user *who = *at;
        if (is_active(who)) continue;
        *at = who->next;
        free(who);
        u->n--;
        return;
    }
}

struct bn_user *bn_users_find(struct bn_users *u, uint64_t id, uint32_t weight)
{
    struct bn_user *who = &u->common, **end = &u->all;
    if (id) {
        while (*end && (*end)->id != id) end = &(*end)->next;
        if (!*end && u->n >= BN_USERS_KEPT) {
            forget_one(u);
            for (end = &u->all; *end;) end = &(*end)->next;
        }
        if (!*end && (*end = bn_calloc(1, sizeof **end))) {
            (*end)->id = id;
            u->n++;
        }
        if (*end) who = *end;
    }
    who->weight = weight ? (double)bn_min_size(weight, BN_USERS_MAX_WEIGHT) : 1;
    return who;
}

static struct bn_user *first(struct bn_users *u)
{
    u->common.next = u->all;
    return &u->common;
}

/* The clock of those who wait, the least of them; of those who run, if nobody waits. False: there is
 * nobody else. */
static bool others_clock(struct bn_users *u, const struct bn_user *who, double *clock)
{
    double waiting = INFINITY, running = INFINITY;
    for (const struct bn_user *o = first(u); o; o = o->next) {
        if (o == who) continue;
        if (o->n_waiting) waiting = fmin(waiting, o->clock);
        if (o->n_running) running = fmin(running, o->clock);
    }
    *clock = waiting < INFINITY ? waiting : running;
    return *clock < INFINITY;
}

/* What it did not use, or used while others did not want it, is past. A token more than the quantum, so
 * that rounding does not keep it from its turn. */
static void join_waiting(struct bn_users *u, struct bn_user *who)
{
    double clock, reach = (BN_USERS_QUANTUM + 1) / who->weight;
    if (!others_clock(u, who, &clock)) return;
    who->clock = fmin(fmax(who->clock, clock - reach), clock + reach);
}

void bn_users_count(struct bn_users *u, struct bn_user *who, int waiting, int running)
{
    bool before = is_active(who);
    if (waiting > 0 && running == 0 && !who->n_waiting) join_waiting(u, who);
    who->n_waiting += (uint32_t)waiting;
    who->n_running += (uint32_t)running;
    u->n_active += (uint32_t)is_active(who) - (uint32_t)before;
}

void bn_users_share(struct bn_users *u, uint32_t n_slots)
{
    double slots = n_slots, weights = 0;
    bool again = true;
    for (struct bn_user *o = first(u); o; o = o->next) {
        o->share = -1;
        if (is_active(o)) weights += o->weight;
    }
    /* those that want less than their share leave the rest to the others, whose share grows by it */
    while (again) {
        double level = slots / weights;
        again = false;
        for (struct bn_user *o = first(u); o; o = o->next) {
            double wants = (double)o->n_waiting + o->n_running;
            if (o->share >= 0 || wants > level * o->weight) continue;
            o->share = wants;
            slots -= wants;
            weights -= wants > 0 ? o->weight : 0;
            again = wants > 0;
        }
    }
    for (struct bn_user *o = first(u); o; o = o->next)
        if (o->share < 0) o->share = slots * o->weight / weights;
}

bool bn_user_may_take(const struct bn_user *who, const struct bn_user *other, uint32_t cost)
{
    static const double rounding = 1e-9;
    double gap = (double)bn_max_size(BN_USERS_QUANTUM, cost) / who->weight;
    return who != other && who->n_running < ceil(who->share - rounding) &&
           other->n_running > floor(other->share + rounding) && who->clock + gap <= other->clock;
}
