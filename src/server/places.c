/* SPDX-License-Identifier: Apache-2.0
 *
 * places.c: who may still come. The seats of the engine and --max-queue places are for all. Beyond them an
 * eighth more is kept for users who have little of it, so that one who fills the queue does not turn the
 * others away: the engine lets them take turns (engine/users.h), but only those it has.
 */
#include "base/os/mem.h"
#include "server/server_impl.h"
#include <stdio.h>

enum {
    KEPT_PART = 8,  /* of the queue, that is kept beyond it */
    SMALL_PART = 2, /* of what is kept, that one user may have */
    FIRST_ROOM = 16
};

static struct place *find(const struct places *p, uint64_t user)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].user == user) return &p->list[i];
    return NULL;
}

/* Out of memory: this one is counted with nobody, and may have more than its part. */
void places_take(struct served_model *s, uint64_t user, size_t n)
{
    struct places *p = &s->places;
    struct place *who = find(p, user);
    s->n_taken += (uint32_t)n;
    if (!who &&
        bn_grow((void **)&p->list, &p->room, bn_max_size(FIRST_ROOM, p->n + 1), sizeof *who)) {
        who = &p->list[p->n++];
        *who = (struct place){user, 0};
    }
    if (who) who->n += n;
}

void places_leave(struct served_model *s, uint64_t user)
{
    struct places *p = &s->places;
    struct place *who = find(p, user);
    s->n_taken--;
    if (who && who->n && !--who->n) *who = p->list[--p->n];
}

static bool refuse_full(struct exchange *x, size_t n, uint64_t places)
{
    struct served_model *s = x->model;
    char why[160];
    /* by then that many of those ahead have ended, if they take as long as the last ones did */
    uint64_t wait_ns = (s->n_taken + n - places) * s->choice_ns / s->engine.max_seqs;
    snprintf(why, sizeof why, "%u choices are being computed or wait; the queue is full",
             s->n_taken);
    exchange_refuse_for_now(x, 429, "queue_full", wait_ns / 1000000000u + 1, why);
    return false;
}

bool exchange_check_places(struct exchange *x, size_t n)
{
    struct served_model *s = x->model;
    uint64_t places = s->engine.max_seqs + (uint64_t)s->c->max_queue;
    uint64_t kept = (s->c->max_queue + KEPT_PART - 1) / KEPT_PART;
    if (!exchange_check_open(x)) return false;
    if (n > places) {
        exchange_refuse(
            x, 400, NULL,
            "the request asks for %zu choices; this server takes at most %llu at a time", n,
            (unsigned long long)places);
        return false;
    }
    if (s->n_taken + n <= places) return true;
    const struct place *who = find(&s->places, x->user);
    bool small = (who ? who->n : 0) + n <= (kept + SMALL_PART - 1) / SMALL_PART;
    if (small && s->n_taken + n <= places + kept) return true;
    return refuse_full(x, n, small ? places + kept : places);
}
