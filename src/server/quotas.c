/* SPDX-License-Identifier: Apache-2.0
 *
 * quotas.c: what an exchange takes of the quota of its key, and how the client is told.
 */
#include "base/clock.h"
#include "server/openai/request.h"
#include "server/server_impl.h"
#include <inttypes.h>
#include <stdio.h>

/* ------------------------------------------------------------------ telling */

static void add_number(struct exchange *x, const char *name, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    net_add_header(x->request, name, text);
}

static void add_time(struct exchange *x, const char *name, uint64_t ns)
{
    char text[QUOTA_TIME_BYTES];
    quota_time_text(text, ns);
    net_add_header(x->request, name, text);
}

/* The words of OpenAI. */
static void tell(struct exchange *x, uint64_t now_ns)
{
    struct quota_account *a = x->account;
    if (a->limits.requests) {
        struct quota_state q = quota_requests_state(a, now_ns);
        add_number(x, "x-ratelimit-limit-requests", q.limit);
        add_number(x, "x-ratelimit-remaining-requests", q.left);
        add_time(x, "x-ratelimit-reset-requests", q.reset_ns);
    }
    if (a->limits.tokens) {
        struct quota_state q = quota_tokens_state(a, now_ns);
        add_number(x, "x-ratelimit-limit-tokens", q.limit);
        add_number(x, "x-ratelimit-remaining-tokens", q.left);
        add_time(x, "x-ratelimit-reset-tokens", q.reset_ns);
    }
}

static void refuse(struct exchange *x, const char *which, uint64_t wait_ns, const char *why)
{
    tell(x, bn_now_ns());
    metrics_key_rejected(x->s->metrics, x->account->name, which);
    exchange_refuse_for_now(x, 429, "rate_limit_exceeded", (wait_ns + 999999999u) / 1000000000u,
                            why);
}

/* ------------------------------------------------------------------ taking */

bool exchange_take_request(struct exchange *x)
{
    struct quota_account *a = x->account;
    char why[160];
    if (!a) return true;
    uint64_t wait_ns = quota_take_request(a, bn_now_ns());
    if (!wait_ns) {
        metrics_key_request(x->s->metrics, a->name);
        return true;
    }
    snprintf(why, sizeof why, "this key may ask %" PRIu64 " times a minute, and has",
             a->limits.requests);
    refuse(x, "requests", wait_ns, why);
    return false;
}

/* false: the client was told why */
static bool check_concurrent(struct exchange *x, size_t n)
{
    const struct quota_account *a = x->account;
    char why[160];
    if (!a->limits.concurrent || a->n_running + n <= a->limits.concurrent) return true;
    if (n > a->limits.concurrent) {
        exchange_refuse(x, 400, NULL,
                        "the request asks for %zu answers; this key may have %u at a time", n,
                        a->limits.concurrent);
        return false;
    }
    snprintf(why, sizeof why, "this key may have %u answers at a time; %u are being computed",
             a->limits.concurrent, a->n_running);
    refuse(x, "concurrent", x->model->choice_ns, why);
    return false;
}

static bool take_tokens(struct exchange *x, uint64_t n, uint64_t now_ns)
{
    struct quota_account *a = x->account;
    uint64_t limit = a->limits.tokens;
    char why[200];
    if (limit && n > limit) {
        exchange_refuse(x, 400, "tokens_exceed_quota",
                        "prompt and answers may take %" PRIu64 " tokens; this key may have %" PRIu64
                        " a minute: a smaller \"max_tokens\" may help",
                        n, limit);
        return false;
    }
    uint64_t wait_ns = quota_take_tokens(a, n, now_ns);
    if (!wait_ns) return true;
    snprintf(why, sizeof why,
             "this key may have %" PRIu64 " tokens a minute; %" PRIu64
             " are left, and this request may take %" PRIu64,
             limit, quota_tokens_state(a, now_ns).left, n);
    refuse(x, "tokens", wait_ns, why);
    return false;
}

bool exchange_take_answers(struct exchange *x, size_t n, uint64_t n_tokens)
{
    struct quota_account *a = x->account;
    uint64_t now_ns = bn_now_ns();
    if (!a) return true;
    if (!check_concurrent(x, n) || !take_tokens(x, n_tokens, now_ns)) return false;
    a->n_running += (uint32_t)n;
    metrics_key_running(x->s->metrics, a->name, (int)n);
    quota_hold(a);
    x->lease = (struct exchange_lease){
        .tokens = n_tokens, .taken_ns = now_ns, .answers = (uint32_t)n, .held = true};
    tell(x, now_ns);
    return true;
}

/* ------------------------------------------------------------------ giving back */

void exchange_end_answer(struct exchange *x)
{
    if (!x->lease.answers) return;
    x->lease.answers--;
    x->account->n_running--;
    metrics_key_running(x->s->metrics, x->account->name, -1);
}

void exchange_settle(struct exchange *x, uint64_t n_prompt, uint64_t n_generated)
{
    struct exchange_lease *l = &x->lease;
    uint64_t used = n_prompt + n_generated;
    if (!l->held) return;
    while (l->answers) exchange_end_answer(x);
    if (l->tokens > used)
        quota_return_tokens(x->account, l->tokens - used, l->taken_ns, bn_now_ns());
    metrics_key_tokens(x->s->metrics, x->account->name, n_prompt, n_generated);
    quota_let_go(x->account);
    l->held = false;
    x->account = NULL;
}

/* ------------------------------------------------------------------ what is usual */

uint32_t exchange_usual_tokens(const struct exchange *x, size_t n, uint64_t n_prompt)
{
    uint64_t limit = x->account ? x->account->limits.tokens : 0;
    if (!limit) return 0;
    uint64_t left = limit > n_prompt ? limit - n_prompt : 0;
    uint64_t all = limit / QUOTA_SHARE < left ? limit / QUOTA_SHARE : left;
    uint64_t each = n ? all / n : all;
    return each < 1 ? 1 : each > UINT32_MAX ? UINT32_MAX : (uint32_t)each;
}

bitnet_status exchange_rank(const struct exchange *x, struct openai_request *q, bitnet_error *err)
{
    const struct quota_limits *l = x->account ? &x->account->limits : &quota_none;
    int32_t best = quota_best_priority(l);
    q->request.user_weight = l->weight;
    if (!q->ranked) {
        q->request.priority = l->priority;
    } else if (q->request.priority < best) {
        q->param = "priority";
        q->code = "priority_not_allowed";
        return bn_fail(err, BITNET_E_ARG, "'priority' is %d; %d and more are allowed here",
                       q->request.priority, best);
    }
    return BITNET_OK;
}
