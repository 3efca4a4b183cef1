/* SPDX-License-Identifier: Apache-2.0
 *
 * errands.h: a few threads for what would hold the event loop up: large bodies that are read, put into
 * templates and tokenized. An errand runs on one of them, then its end is told on the event loop, which alone
 * touches exchanges, models and everything else without a lock: an errand works on what it was given.
 *
 * What an errand reads takes many times the memory of its body. So only a few are under way at a time, from
 * their beginning to the end of what follows them; the others wait as the bytes that came.
 */
#ifndef BN_SERVER_ERRANDS_ERRANDS_H
#define BN_SERVER_ERRANDS_ERRANDS_H

#include "base/status.h"

struct errands;
struct event_base;

enum { ERRANDS_THREADS = 2 };

/* Part of what it is for; stays where it is until `done`. */
struct errand {
    void (*run)(struct errand *e); /* on a thread of its own */
    void (*done)(
        struct errand *e); /* on the event loop; also if it never ran, because the server closes */
    struct errand *next;   /* the errands' */
};

bitnet_status errands_open(struct errands **out, struct event_base *base, bitnet_error *err);
/* Waits for those that run. May be NULL. */
void errands_close(struct errands *p);
/* follows: it goes on with what another one has begun, whose `done` gives it. Then it goes first. */
void errands_give(struct errands *p, struct errand *e, bool follows);

#endif
