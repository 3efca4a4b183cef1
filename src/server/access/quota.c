/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/quota.h"

#include "base/os/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const uint64_t second_ns = UINT64_C(1000000000);
const struct quota_limits quota_none = {.weight = 1, .best_priority = QUOTA_AS_USUAL};

/* ------------------------------------------------------------------ windows */

enum { N_SECONDS = QUOTA_WINDOW_S + 1 };

static uint64_t *slot(struct quota_window *w, int64_t second)
{
    return &w->used[second % N_SECONDS];
}

/* Forgets what is too old. The clock never goes back. */
static void advance(struct quota_window *w, uint64_t now_ns)
{
    int64_t now_s = (int64_t)(now_ns / second_ns);
    if (now_s - w->now_s >= N_SECONDS) {
        memset(w->used, 0, sizeof w->used);
        w->sum = 0;
        w->now_s = now_s;
    }
    while (w->now_s < now_s) {
        uint64_t *old = slot(w, ++w->now_s);
        w->sum -= *old;
        *old = 0;
    }
}

static void use(struct quota_window *w, uint64_t n)
{
    *slot(w, w->now_s) += n;
    w->sum += n;
}

/* Until no more than `most` counts. What was used in a second counts until QUOTA_WINDOW_S seconds after that
 * second's end. */
static uint64_t wait_ns(struct quota_window *w, uint64_t most, uint64_t now_ns)
{
    uint64_t sum = w->sum;
    int64_t second = w->now_s - QUOTA_WINDOW_S;
    if (sum <= most) return 0;
    for (; sum > most && second <= w->now_s; second++) {
        if (second < 0) continue;
        sum -= *slot(w, second);
    }
    return (uint64_t)(second + QUOTA_WINDOW_S) * second_ns - now_ns;
}

static uint64_t take(struct quota_window *w, uint64_t limit, uint64_t n, uint64_t now_ns)
{
    advance(w, now_ns);
    uint64_t wait = limit ? wait_ns(w, n < limit ? limit - n : 0, now_ns) : 0;
    if (!wait) use(w, n);
    return wait;
}

static struct quota_state state_of(struct quota_window *w, uint64_t limit, uint64_t now_ns)
{
    advance(w, now_ns);
    return (struct quota_state){.limit = limit,
                                .left = w->sum < limit ? limit - w->sum : 0,
                                .reset_ns = wait_ns(w, 0, now_ns)};
}

uint64_t quota_take_request(struct quota_account *a, uint64_t now_ns)
{
    return take(&a->requests, a->limits.requests, 1, now_ns);
}

uint64_t quota_take_tokens(struct quota_account *a, uint64_t n, uint64_t now_ns)
{
    return take(&a->tokens, a->limits.tokens, n, now_ns);
}

uint64_t quota_tokens_wait_ns(struct quota_account *a, uint64_t n, uint64_t now_ns)
{
    uint64_t limit = a->limits.tokens;
    advance(&a->tokens, now_ns);
    return limit ? wait_ns(&a->tokens, n < limit ? limit - n : 0, now_ns) : 0;
}

void quota_return_tokens(struct quota_account *a, uint64_t n, uint64_t taken_ns, uint64_t now_ns)
{
    int64_t taken_s = (int64_t)(taken_ns / second_ns);
    advance(&a->tokens, now_ns);
    if (a->tokens.now_s - taken_s >= N_SECONDS) return; /* it counts no more */
    uint64_t *at = slot(&a->tokens, taken_s);
    n = n < *at ? n : *at;
    *at -= n;
    a->tokens.sum -= n;
}

struct quota_state quota_requests_state(struct quota_account *a, uint64_t now_ns)
{
    return state_of(&a->requests, a->limits.requests, now_ns);
}

struct quota_state quota_tokens_state(struct quota_account *a, uint64_t now_ns)
{
    return state_of(&a->tokens, a->limits.tokens, now_ns);
}

/* ------------------------------------------------------------------ accounts */

int32_t quota_best_priority(const struct quota_limits *l)
{
    return l->best_priority < l->priority ? l->best_priority : l->priority;
}

struct quota_account *quota_account_new(void)
{
    struct quota_account *a = bn_calloc(1, sizeof *a);
    if (!a) return NULL;
    a->limits = quota_none;
    a->n_holders = 1;
    return a;
}

struct quota_account *quota_hold(struct quota_account *a)
{
    if (a) a->n_holders++;
    return a;
}

void quota_let_go(struct quota_account *a)
{
    if (a && --a->n_holders == 0) free(a);
}

/* ------------------------------------------------------------------ words */

static bitnet_status read_name(struct quota_account *a, const char *text, const char *where,
                               bitnet_error *err)
{
    size_t n = strlen(text);
    if (n == 0 || n >= QUOTA_NAME_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "%s: a name has %zu characters; 1 to %d are possible",
                       where, n, QUOTA_NAME_BYTES - 1);
    memcpy(a->name, text, n + 1);
    return BITNET_OK;
}

static bitnet_status read_number(int64_t *out, const char *key, const char *text, int64_t least,
                                 int64_t most, const char *where, bitnet_error *err)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < least || v > most)
        return bn_fail(err, BITNET_E_ARG,
                       "%s: '%s' is not a whole number from %" PRId64 " to %" PRId64, where, key,
                       least, most);
    *out = v;
    return BITNET_OK;
}

bitnet_status quota_read_word(struct quota_account *a, const char *word, size_t n,
                              const char *where, bitnet_error *err)
{
    static const char *const known[] = {"name",       "weight",   "requests",      "tokens",
                                        "concurrent", "priority", "best-priority", "admin"};
    struct quota_limits *l = &a->limits;
    char text[128], *value = NULL;
    int64_t v = 0;
    size_t k = 0;
    if (n < sizeof text) {
        memcpy(text, word, n);
        text[n] = 0;
        value = strchr(text, '=');
    }
    if (value) *value++ = 0;
    while (value && k < BN_ARRAY_LEN(known) && strcmp(text, known[k]) != 0) k++;
    if (!value || k == BN_ARRAY_LEN(known))
        return bn_fail(err, BITNET_E_ARG,
                       "%s: after a key, name=, weight=, requests=, tokens=, concurrent=, "
                       "priority=, best-priority= and admin= are possible",
                       where);
    if (k == 0) return read_name(a, value, where, err);
    bool is_priority = k == 5 || k == 6;
    int64_t most = k == 1 ? QUOTA_MAX_WEIGHT : k == 3 ? INT64_C(1) << 40 : k == 7 ? 1 : 1000000;
    int64_t least = is_priority ? -1000000 : k == 7 ? 0 : 1;
    BN_TRY(read_number(&v, known[k], value, least, most, where, err));
    if (k == 1) l->weight = (uint32_t)v;
    if (k == 2) l->requests = (uint64_t)v;
    if (k == 3) l->tokens = (uint64_t)v;
    if (k == 4) l->concurrent = (uint32_t)v;
    if (k == 5) l->priority = (int32_t)v;
    if (k == 6) l->best_priority = (int32_t)v;
    if (k == 7) l->admin = v != 0;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ times */

void quota_time_text(char out[QUOTA_TIME_BYTES], uint64_t ns)
{
    uint64_t ms = (ns + 999999) / 1000000, s = ms / 1000;
    if (ms < 1000) snprintf(out, QUOTA_TIME_BYTES, "%" PRIu64 "ms", ms);
    else if (s < 60) snprintf(out, QUOTA_TIME_BYTES, "%.6gs", (double)ms / 1000);
    else snprintf(out, QUOTA_TIME_BYTES, "%" PRIu64 "m%" PRIu64 "s", s / 60, s % 60);
}
