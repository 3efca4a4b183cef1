/* SPDX-License-Identifier: Apache-2.0
 *
 * search.h: the fastest of several candidates, by measurements that have noise. Knows nothing
 * of models: a callback measures.
 *
 * Every round measures each candidate that is left once, so that what the machine does meanwhile
 * falls on all of them. After a round those go that are slower than the leader by more than a
 * threshold and by more than the noise. It ends with one left, after enough rounds, or when time is
 * up. A tie goes to the preferred candidate: nothing moves away from a default without evidence.
 */
#ifndef BN_CLI_AUTOTUNE_SEARCH_H
#define BN_CLI_AUTOTUNE_SEARCH_H

#include "base/status.h"

enum {
    AUTOTUNE_CANDIDATES_MAX = 512,
    AUTOTUNE_ROUNDS_MAX = 24,
    AUTOTUNE_ROUNDS_HOPELESS = 3, /* enough to give up what is far behind */
    AUTOTUNE_ROUNDS_TELLING = 7   /* four candidates cannot be told apart by fewer */
};
#define AUTOTUNE_THRESHOLD 0.01 /* smaller differences are none */
#define AUTOTUNE_HOPELESS \
    0.8 /* the best value of such a candidate, in parts of the leader's worst */

struct autotune_candidate {
    double values[AUTOTUNE_ROUNDS_MAX]; /* rates: more is better */
    size_t n;
    bool dropped; /* set by the caller: not taken part from the start */
};

struct autotune_search {
    size_t n, preferred;
    size_t rounds_min; /* whatever the time */
    size_t rounds_max; /* at most AUTOTUNE_ROUNDS_MAX */
    bool keep_all;     /* a sweep: nobody is dropped */
    bitnet_status (*measure)(void *user, size_t candidate, double *rate, bitnet_error *err);
    bool (*time_left)(void *user);
    void *user;
    struct autotune_candidate candidates[AUTOTUNE_CANDIDATES_MAX];
    /* what came of it */
    size_t best;   /* the highest median of those left */
    size_t choice; /* preferred, if it is left; else best */
    size_t rounds; /* whole ones */
};

/* The error is that of measure, if any. */
bitnet_status autotune_search_run(struct autotune_search *s, bitnet_error *err);

size_t autotune_search_left(const struct autotune_search *s); /* candidates not dropped */
double autotune_search_median(const struct autotune_candidate *c);

#endif
