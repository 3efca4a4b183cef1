/* SPDX-License-Identifier: Apache-2.0
 *
 * quota.h: what the holder of a key may use, and what it has used: requests and tokens a minute, answers
 * at a time. Times are given by the caller. In no minute, wherever it begins, there is more than the quota:
 * what was used counts for QUOTA_WINDOW_S whole seconds after its own.
 *
 * Used by the thread of the event loop alone.
 */
#ifndef BN_SERVER_ACCESS_QUOTA_H
#define BN_SERVER_ACCESS_QUOTA_H

#include "base/status.h"

enum {
    QUOTA_WINDOW_S = 60,
    QUOTA_NAME_BYTES = 48,
    QUOTA_MAX_WEIGHT = 1000000,
    QUOTA_SHARE = 4 /* an answer whose length nobody limits may have a quarter of the tokens */
};

struct quota_limits {
    uint64_t requests, tokens; /* a minute; 0: no limit */
    uint32_t concurrent;       /* answers at a time; 0: no limit */
    uint32_t weight;           /* share of the engine, beside other keys'; at least 1 */
    int32_t priority;          /* of requests that do not say one */
    bool admin;                /* may change what is served */
    int32_t best_priority; /* the smallest that a request may say; QUOTA_AS_USUAL: no better one */
};
extern const struct quota_limits quota_none;
#define QUOTA_AS_USUAL INT32_MAX

/* The smallest priority that a request may say. */
int32_t quota_best_priority(const struct quota_limits *l);

/* Uses, by second. */
struct quota_window {
    uint64_t used[QUOTA_WINDOW_S + 1], sum;
    int64_t now_s; /* the second of the last entry */
};

struct quota_account {
    char name[QUOTA_NAME_BYTES]; /* for metrics; never the key */
    struct quota_limits limits;
    struct quota_window requests, tokens;
    uint32_t n_running; /* answers */
    uint32_t n_holders; /* the list of keys, and requests that have not ended */
};

/* "name=", "weight=", "requests=", "tokens=", "concurrent=", "priority=", "best-priority=", "admin=", one word of a
 * line of the keys file. where names the line; the word is not repeated in errors, it might be a key. */
bitnet_status quota_read_word(struct quota_account *a, const char *word, size_t n,
                              const char *where, bitnet_error *err);

/* With one holder. NULL: out of memory. */
struct quota_account *quota_account_new(void);
struct quota_account *quota_hold(struct quota_account *a); /* a may be NULL */
void quota_let_go(struct quota_account *a);                /* a may be NULL */

/* 0: granted and noted. Else nothing was noted, and in so many ns there is room again, if no more is used
 * until then. n is at most the quota. */
uint64_t quota_take_request(struct quota_account *a, uint64_t now_ns);
uint64_t quota_take_tokens(struct quota_account *a, uint64_t n, uint64_t now_ns);
/* Of tokens that were taken at that time n were not used. */
void quota_return_tokens(struct quota_account *a, uint64_t n, uint64_t taken_ns, uint64_t now_ns);

/* How a quota stands. */
struct quota_state {
    uint64_t limit, left, reset_ns; /* reset_ns: until all of it is free */
};
struct quota_state quota_requests_state(struct quota_account *a, uint64_t now_ns);
struct quota_state quota_tokens_state(struct quota_account *a, uint64_t now_ns);
/* Until there is room for n; 0: there is. */
uint64_t quota_tokens_wait_ns(struct quota_account *a, uint64_t n, uint64_t now_ns);

/* "1.5s", "6m0s", "20ms": as OpenAI's headers say times. */
enum { QUOTA_TIME_BYTES = 32 };
void quota_time_text(char out[QUOTA_TIME_BYTES], uint64_t ns);

#endif
