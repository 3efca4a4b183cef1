/* SPDX-License-Identifier: Apache-2.0
 * The scheduler: which requests are computed in the next step, each with how many tokens. Policy
 * only: it knows no model, no clock and no pages; memory is asked of a host, times are told to it.
 * Nothing that it decides changes a result, only when it comes. */
#ifndef BN_ENGINE_SCHED_H
#define BN_ENGINE_SCHED_H

#include "base/status.h"
#include "engine/users.h"

/* What it sees of a request; a member of the owner's own struct. The owner sets n_tokens, n_draft,
 * n_done, scored, priority and, before it is added, who and weight; it reads the rest. */
struct bn_sched_job {
    struct bn_sched_job *next, *prev; /* in one of the lists, in order of arrival */
    uint32_t n_tokens;                /* known: prompt and generated tokens so far */
    uint32_t n_done;                  /* of them in the cache */
    uint32_t n_draft;                 /* drafts behind n_tokens that would like to be checked */
    bool scored;                      /* every token of the prompt wants a row of logits */
    int32_t priority;                 /* the smaller comes first, whoever it belongs to */
    uint32_t weight;                  /* of its user; 0: 1 */
    uint64_t who;                     /* whose it is; 0: nobody's in particular */
    struct bn_user *user;
    uint32_t n_charged;  /* tokens that its user was charged for, or found in the cache */
    uint32_t take;       /* of the plan: tokens of this step, from n_done on */
    uint32_t take_draft; /* drafts behind them */
    uint32_t n_lost;     /* in the cache when it was preempted last */
    uint64_t ticket;     /* the older has the smaller; kept through preemption */
    bool running;
};

/* Memory. Calls come from bn_sched_plan only. */
struct bn_sched_host {
    void *user;
    /* A waiting job begins: finds what of it is in the cache already, sets n_done (< n_tokens) and
     * gets room for n_tokens. False: there are not enough pages; then nothing has changed. */
    bool (*start)(void *user, struct bn_sched_job *j, uint32_t n_tokens);
    /* Room for n_tokens in all. */
    bool (*grow)(void *user, struct bn_sched_job *j, uint32_t n_tokens);
    /* Gives all room back and sets n_done to 0. */
    void (*drop)(void *user, struct bn_sched_job *j);
    /* The same of one that gives way to another user while memory is not short: what it has is worth
     * keeping until the room is needed. NULL: drop. */
    void (*park)(void *user, struct bn_sched_job *j);
};

struct bn_sched_limits {
    uint32_t max_seqs;         /* running at a time */
    uint32_t max_batch_tokens; /* of a step; at least max_seqs */
    uint32_t max_scored;       /* of them in scored prompts; at least max_seqs, or 0: none is */
    uint64_t step_target_ns;   /* prompts are cut so that a step with decodes in it takes about so
                                * long; 0: as much as fits */
    /* And so that no step takes much longer than this, since nothing can be stopped within one; 0: as
     * much as fits. Until steps have been seen, a prompt's token is taken to cost prompt_assumed_ns. */
    uint64_t step_most_ns, prompt_assumed_ns;
};

struct bn_sched;
bitnet_status bn_sched_open(struct bn_sched **out, const struct bn_sched_limits *limits,
                            const struct bn_sched_host *host, bitnet_error *err);
void bn_sched_close(struct bn_sched *s);

void bn_sched_add(struct bn_sched *s, struct bn_sched_job *j); /* to the end of the queue */
/* Behind this one in age, at the front of the queue: another choice of the same prompt. */
void bn_sched_add_after(struct bn_sched *s, struct bn_sched_job *j, const struct bn_sched_job *old);
/* Waiting or running. Its pages are the owner's business. */
void bn_sched_remove(struct bn_sched *s, struct bn_sched_job *j);

/* Decides the next step: moves jobs between the lists and sets take and take_draft of those that
 * run; returns the tokens in all, 0 if there is nothing to do (or, with jobs waiting, if the host has
 * no room for the oldest alone, which its owner should have refused). Allocates nothing. */
uint32_t bn_sched_plan(struct bn_sched *s);
/* How long the planned step took, in time that a target is measured in. May be left out. */
void bn_sched_took(struct bn_sched *s, uint64_t ns);

struct bn_sched_job *bn_sched_running(const struct bn_sched *s); /* the oldest; follow next */
struct bn_sched_job *bn_sched_waiting(const struct bn_sched *s);

struct bn_sched_stats {
    uint32_t n_running, n_waiting;
    uint64_t steps, preemptions, tokens_decode, tokens_prompt, tokens_draft;
    uint64_t yields;     /* jobs that gave way to another user, or to a better priority */
    uint64_t recomputed; /* tokens read once more after a preemption */
};
const struct bn_sched_stats *bn_sched_stats(const struct bn_sched *s);

#endif
