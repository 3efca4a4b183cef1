/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan has four parts. Running jobs get room for what they have become; where there is none, the
 * youngest goes back to the queue. Waiting jobs begin, the oldest first. Then the step's tokens are
 * dealt out: to every job that decodes its one, to prompts equal shares and what is left over to the oldest;
 * drafts get what prompts have not been promised.
 *
 * Asked of the owner: a job alone in the pool finds room for its prompt and as many tokens as it may generate, or
 * it is refused before it comes here; drafts stay within that; n_done < n_tokens whenever it plans;
 * a job that has generated its last token is removed before the next plan.
 *
 * Nobody waits for ever. A job i of p tokens of prompt and a >= 1 generated tokens needs
 *     S(i) = ceil(p / q) + a - 1 steps
 * once it runs undisturbed, for every plan gives to every running job its one token or, of a prompt,
 * at least q, where
 *     q = max(1, b / max_seqs), b = (max_batch_tokens - max_seqs + 2) / 2;
 *     where the time of steps is limited b = min(BN_SCHED_MIN_PROMPT, max_batch_tokens - max_seqs + 1)
 * (divisions rounded down). That is so since with n prompts at most max_seqs - n tokens are decoded,
 * prompts are promised half of the rest or BN_SCHED_MIN_PROMPT, and a share is an n-th of that. Of a
 * prompt that is scored, q is the smaller of this and max_scored / max_seqs, which is at least 1. What a
 * preempted job has generated already costs no more as part of its prompt than it did.
 *
 * 1. Whatever the memory, a job is done within the sum of S over the jobs not younger than itself
 *    that are there while it is (itself included), in steps from its arrival. Proof: jobs begin in
 *    order of age and the youngest goes first when memory is short. So the oldest of all runs, unless
 *    none does, and then it begins at once, since the pool is empty; and it is never preempted. It
 *    needs S steps, then the next is the oldest. Every step belongs to one of them.
 *    A choice added behind its elder (bn_sched_add_after) may find younger ones running: they are
 *    not thrown out for it. When it becomes the oldest, they are done or preempted within the largest
 *    S of them, and nobody begins before it. Each such choice among them adds that much to the sum.
 * 2. While memory suffices, nobody is preempted, and a job begins after at most the sum of S over the
 *    older ones (for choices added later: and those that ran when it came) divided by max_seqs, and
 *    is done S steps later. Proof: while it waits, max_seqs such jobs run in every step.
 *
 * Why the youngest, and not the one that is cheapest to read again. Any other choice leaves a younger
 * one running while an older one waits: 1. then no longer holds, since the older one may become the
 * oldest of all and find no room until the younger are done, or they must be thrown out for it, too, and
 * what was saved is spent. What the rule costs is small: full pages of a job that gives way stay known,
 * and so does the newest of its states where a model has some (saves.c), so that it goes on from there
 * unless the room was really needed; pages that are taken from it are its last ones.
 *
 * No thrashing: what a preempted job held goes, in part, to the one that needed it; the rest is as a
 * rule less than it asks for to begin again, and no younger one begins before it. So memory that was
 * too small is not filled again before a job has ended.
 */
#include "engine/sched.h"

#include "base/os/mem.h"
#include "engine/step_cost.h"
#include <stdlib.h>

enum {
    BN_SCHED_MIN_PROMPT = 16,  /* tokens that prompts get in a step, whatever its target */
    BN_SCHED_TICKETS = 1 << 20 /* from one arrival to the next: room for its further choices */
};

struct list {
    struct bn_sched_job *first, *last; /* by ticket */
};

struct bn_sched {
    struct bn_sched_limits limits;
    struct bn_sched_host host;
    struct list running, waiting;
    struct bn_users users;
    uint64_t n_arrived;
    uint32_t n_decodes, n_prompts;       /* of the plan: jobs with one token to do, with more */
    uint32_t n_scored;                   /* of these prompts */
    uint32_t prompts_want;               /* tokens that prompts have to do, as far as a step can */
    uint32_t last_cut;                   /* tokens that prompts got when a target cut them last */
    uint32_t done_decodes, done_prompts; /* tokens of the planned step, drafts being decodes */
    struct bn_step_cost cost;
    struct bn_sched_stats stats;
};

/* ----------------------------------------------------------------- lists */

static struct list *list_of(struct bn_sched *s, const struct bn_sched_job *j)
{
    return j->running ? &s->running : &s->waiting;
}

static uint32_t *count_of(struct bn_sched *s, const struct bn_sched_job *j)
{
    return j->running ? &s->stats.n_running : &s->stats.n_waiting;
}

/* The youngest that is older than this ticket. */
static struct bn_sched_job *last_before(const struct list *l, uint64_t ticket)
{
    struct bn_sched_job *j = l->last;
    while (j && j->ticket >= ticket) j = j->prev;
    return j;
}

static void enter(struct bn_sched *s, struct bn_sched_job *j, bool running)
{
    j->running = running;
    j->take = j->take_draft = 0;
    struct list *l = list_of(s, j);
    j->prev = last_before(l, j->ticket);
    j->next = j->prev ? j->prev->next : l->first;
    *(j->prev ? &j->prev->next : &l->first) = j;
    *(j->next ? &j->next->prev : &l->last) = j;
    ++*count_of(s, j);
    bn_users_count(&s->users, j->user, !running, running);
}

static void leave(struct bn_sched *s, struct bn_sched_job *j)
{
    struct list *l = list_of(s, j);
    *(j->prev ? &j->prev->next : &l->first) = j->next;
    *(j->next ? &j->next->prev : &l->last) = j->prev;
    --*count_of(s, j);
    bn_users_count(&s->users, j->user, -!j->running, -j->running);
}

/* ------------------------------------------------------------------ life */

bitnet_status bn_sched_open(struct bn_sched **out, const struct bn_sched_limits *limits,
                            const struct bn_sched_host *host, bitnet_error *err)
{
    *out = NULL;
    if (limits->max_seqs == 0)
        return bn_fail(err, BITNET_E_ARG, "a scheduler for 0 sequences; at least 1 is needed");
    if (limits->max_batch_tokens < limits->max_seqs)
        return bn_fail(err, BITNET_E_ARG,
                       "batches of %u tokens for %u sequences; each needs room for one",
                       limits->max_batch_tokens, limits->max_seqs);
    struct bn_sched *s = bn_calloc(1, sizeof *s);
    if (!s) return bn_fail_nomem(err, sizeof *s, "the scheduler");
    s->users.common.weight = 1;
    s->limits = *limits;
    s->cost.prompt_ns = (double)limits->prompt_assumed_ns;
    s->host = *host;
    *out = s;
    return BITNET_OK;
}

void bn_sched_close(struct bn_sched *s)
{
    if (s) bn_users_close(&s->users);
    free(s);
}

static void come(struct bn_sched *s, struct bn_sched_job *j)
{
    j->user = bn_users_find(&s->users, j->who, j->weight);
    j->n_lost = j->n_charged = 0;
    enter(s, j, false);
}

void bn_sched_add(struct bn_sched *s, struct bn_sched_job *j)
{
    j->ticket = ++s->n_arrived * BN_SCHED_TICKETS;
    come(s, j);
}

/* The ticket of the youngest in this list that came with the same arrival, or the one given. */
static uint64_t last_of_arrival(const struct list *l, uint64_t ticket)
{
    const struct bn_sched_job *j =
        last_before(l, (ticket / BN_SCHED_TICKETS + 1) * BN_SCHED_TICKETS);
    return j && j->ticket > ticket ? j->ticket : ticket;
}

void bn_sched_add_after(struct bn_sched *s, struct bn_sched_job *j, const struct bn_sched_job *old)
{
    j->ticket = last_of_arrival(&s->waiting, last_of_arrival(&s->running, old->ticket)) + 1;
    come(s, j);
}

void bn_sched_remove(struct bn_sched *s, struct bn_sched_job *j)
{
    leave(s, j);
    j->running = false;
    j->take = j->take_draft = 0;
}

/* ---------------------------------------------------------------- memory */

static void stop(struct bn_sched *s, struct bn_sched_job *j,
                 void (*let_go)(void *user, struct bn_sched_job *j))
{
    j->n_lost = j->n_done;
    let_go(s->host.user, j);
    leave(s, j);
    enter(s, j, false);
}

static void preempt(struct bn_sched *s, struct bn_sched_job *j)
{
    stop(s, j, s->host.drop);
    s->stats.preemptions++;
}

/* Who of the two should go first: the one that is worth less, of the user that had more, the younger. */
static struct bn_sched_job *lesser(struct bn_sched_job *a, struct bn_sched_job *b)
{
    if (!a || !b) return a ? a : b;
    if (a->priority != b->priority) return a->priority > b->priority ? a : b;
    if (a->user->clock != b->user->clock) return a->user->clock > b->user->clock ? a : b;
    return a->ticket > b->ticket ? a : b;
}

static struct bn_sched_job *least_running(const struct bn_sched *s)
{
    struct bn_sched_job *least = s->running.first;
    for (struct bn_sched_job *j = least; j; j = j->next) least = lesser(least, j);
    return least;
}

/* Room for all that run, at the cost of the least; true: it cost nobody. */
static bool grow_running(struct bn_sched *s)
{
    uint64_t before = s->stats.preemptions;
    for (struct bn_sched_job *j = s->running.first; j;) {
        struct bn_sched_job *next = j->next, *least = NULL;
        if (!s->host.grow(s->host.user, j, j->n_tokens)) preempt(s, least = least_running(s));
        if (!least) j = j->next;
        else if (least == j) j = next;
    }
    return s->stats.preemptions == before;
}

/* -------------------------------------------------------------- who is next */

/* The oldest of the user that had least, of the best priority. Of one user alone: the oldest. */
static struct bn_sched_job *next_waiting(const struct bn_sched *s)
{
    struct bn_sched_job *best = s->waiting.first;
    for (struct bn_sched_job *j = best ? best->next : NULL; j; j = j->next)
        if (lesser(best, j) == best) best = j;
    return best;
}

/* Who gives way so that this one can begin; NULL: nobody has to. cost: tokens that the other might have
 * to read again, which it does not if only its place is taken. */
static struct bn_sched_job *who_yields(const struct bn_sched *s, const struct bn_sched_job *j,
                                       bool memory_is_short)
{
    struct bn_sched_job *least = NULL;
    for (struct bn_sched_job *r = s->running.first; r; r = r->next) {
        uint32_t cost = memory_is_short ? r->n_done : 0;
        bool worth_less = r->priority > j->priority;
        bool had_more = r->priority == j->priority && bn_user_may_take(j->user, r->user, cost);
        if (worth_less || had_more) least = lesser(least, r);
    }
    return least;
}

static void yield(struct bn_sched *s, struct bn_sched_job *j, bool memory_is_short)
{
    stop(s, j, s->host.park && !memory_is_short ? s->host.park : s->host.drop);
    s->stats.yields++;
}

static bool begin(struct bn_sched *s, struct bn_sched_job *j)
{
    if (!s->host.start(s->host.user, j, j->n_tokens + 1)) return false;
    if (j->n_lost > j->n_done) s->stats.recomputed += j->n_lost - j->n_done;
    if (j->n_charged < j->n_done) j->n_charged = j->n_done;
    leave(s, j);
    enter(s, j, true);
    return true;
}

/* The one that cannot begin holds up those behind it: else small ones could keep it out for ever. */
static void admit(struct bn_sched *s)
{
    struct bn_sched_job *j;
    while ((j = next_waiting(s))) {
        bool full = s->stats.n_running == s->limits.max_seqs;
        if (!full && begin(s, j)) continue;
        if (s->users.n_active > 1) bn_users_share(&s->users, s->limits.max_seqs);
        struct bn_sched_job *other = who_yields(s, j, !full);
        if (!other) return;
        yield(s, other, !full);
    }
}

/* What a user had is what was computed for it, once; what it lost by giving way is not its own. */
static void charge(struct bn_sched *s)
{
    for (struct bn_sched_job *j = s->running.first; j; j = j->next) {
        uint32_t now = j->n_done + j->take;
        if (now <= j->n_charged) continue;
        bn_user_charge(j->user, now - j->n_charged);
        j->n_charged = now;
    }
}

/* ---------------------------------------------------------------- tokens */

static bool is_decoding(const struct bn_sched_job *j) { return j->n_tokens - j->n_done == 1; }

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* Has this step a target? Where nobody waits for a next token, it has none. */
static bool is_timed(const struct bn_sched *s) { return s->limits.step_target_ns && s->n_decodes; }

/* What it may take; 0: as long as it wants. */
static double most_ns(const struct bn_sched *s)
{
    uint64_t target = is_timed(s) ? s->limits.step_target_ns : 0, most = s->limits.step_most_ns;
    return (double)(target && (!most || target < most) ? target : most);
}

/* How many tokens of that price fit into the step beside these decodes and prompt tokens. */
static uint32_t room(const struct bn_sched *s, uint32_t decodes, uint32_t prompts, double token_ns)
{
    uint32_t left = s->limits.max_batch_tokens - decodes - prompts;
    double most = most_ns(s), ns = most - bn_step_cost_ns(&s->cost, decodes, prompts);
    if (most == 0) return left;
    if (token_ns == 0) return is_timed(s) ? 0 : left; /* not learned yet */
    if (ns <= 0) return 0;
    return token_ns * left <= ns ? left : (uint32_t)(ns / token_ns);
}

/* Gives every job that decodes its token, counts the prompts. */
static void deal_decodes(struct bn_sched *s)
{
    uint32_t scored_want = 0;
    s->n_decodes = s->n_prompts = s->n_scored = s->prompts_want = 0;
    for (struct bn_sched_job *j = s->running.first; j; j = j->next) {
        j->take = is_decoding(j);
        j->take_draft = 0;
        s->n_decodes += j->take;
        if (j->take) continue;
        s->n_prompts++;
        s->n_scored += j->scored;
        *(j->scored ? &scored_want : &s->prompts_want) += j->n_tokens - j->n_done;
    }
    s->prompts_want += min_u32(scored_want, s->limits.max_scored);
}

/* Drafts, the oldest first. Nobody is preempted for them. */
static uint32_t deal_drafts(struct bn_sched *s, uint32_t budget)
{
    uint32_t left = budget;
    for (struct bn_sched_job *j = s->running.first; j && left; j = j->next) {
        uint32_t n = is_decoding(j) ? min_u32(j->n_draft, left) : 0;
        if (n == 0 || !s->host.grow(s->host.user, j, j->n_tokens + n)) continue;
        j->take_draft = n;
        left -= n;
    }
    return budget - left;
}

/* Equal shares, so that a long prompt does not hold up short ones; the rest to the oldest. Prompts that
 * are scored share the rows of logits alike. budget: at most prompts_want; all of it is dealt out. */
static void deal_prompts(struct bn_sched *s, uint32_t budget)
{
    uint32_t share = s->n_prompts ? budget / s->n_prompts : 0, left = budget;
    uint32_t rows_left = s->limits.max_scored,
             rows_share = s->n_scored ? rows_left / s->n_scored : 0;
    for (int rest = 0; rest < 2; rest++)
        for (struct bn_sched_job *j = s->running.first; j; j = j->next) {
            if (is_decoding(j)) continue;
            uint32_t n = min_u32(j->n_tokens - j->n_done - j->take, rest ? left : share);
            if (j->scored) n = min_u32(n, rest ? rows_left : rows_share);
            j->take += n;
            left -= n;
            if (j->scored) rows_left -= n;
        }
}

/* Where prompts are cut for a target, they get at most twice as much as the last time, so that costs
 * learned wrong cannot make a step very long. */
static uint32_t prompt_room(const struct bn_sched *s, uint32_t decodes)
{
    uint32_t n = room(s, decodes, 0, s->cost.prompt_ns);
    return is_timed(s) ? min_u32(n, 2 * s->last_cut) : n;
}

uint32_t bn_sched_plan(struct bn_sched *s)
{
    if (grow_running(s)) admit(s);
    deal_decodes(s);
    /* one token each is always there: max_seqs <= max_batch_tokens */
    uint32_t least = min_u32(max_u32(BN_SCHED_MIN_PROMPT, s->n_prompts),
                             s->limits.max_batch_tokens - s->n_decodes);
    uint32_t half = (prompt_room(s, s->n_decodes) + 1) / 2;
    uint32_t promised = min_u32(s->prompts_want, max_u32(least, half));
    uint32_t drafts = deal_drafts(s, room(s, s->n_decodes, promised, s->cost.decode_ns));
    uint32_t decodes = s->n_decodes + drafts;
    uint32_t prompts = min_u32(s->prompts_want, max_u32(least, prompt_room(s, decodes)));
    deal_prompts(s, prompts);
    charge(s);
    if (is_timed(s) && prompts < s->prompts_want) s->last_cut = prompts;
    s->done_decodes = decodes;
    s->done_prompts = prompts;
    s->stats.steps += decodes + prompts > 0;
    s->stats.tokens_decode += s->n_decodes;
    s->stats.tokens_draft += drafts;
    s->stats.tokens_prompt += prompts;
    return decodes + prompts;
}

void bn_sched_took(struct bn_sched *s, uint64_t ns)
{
    bn_step_cost_learn(&s->cost, s->done_decodes, s->done_prompts, ns);
}

/* --------------------------------------------------------------- looking */

struct bn_sched_job *bn_sched_running(const struct bn_sched *s) { return s->running.first; }
struct bn_sched_job *bn_sched_waiting(const struct bn_sched *s) { return s->waiting.first; }
const struct bn_sched_stats *bn_sched_stats(const struct bn_sched *s) { return &s->stats; }
