/* SPDX-License-Identifier: Apache-2.0
 * A world for the scheduler without a model: requests with known lengths, a pool of pages, and
 * steps that take no time but what a test says. Every plan is checked against the laws that hold
 * for all of them. */
#ifndef TEST_SCHED_SIM_H
#define TEST_SCHED_SIM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "alloc_count.h"
#include "base/rng.h"
#include "engine/sched.h"

enum { SIM_PAGE_TOKENS = 32 };

struct sim_job {
    struct bn_sched_job job; /* first: the host gets a pointer to it */
    uint32_t prompt, answer; /* tokens, each at least 1 */
    uint32_t cached;         /* tokens of the prompt that are found in the cache */
    uint32_t max_draft;      /* drafts at a time */
    bool scored;             /* its prompt */
    uint32_t answered;
    uint32_t pages;
};

struct sim {
    struct bn_sched *s;
    struct bn_sched_limits limits;
    uint32_t n_pages, n_free;
    bool refused, dropped; /* in this plan */
    bool several;          /* users: age alone does not decide */
};

static inline uint32_t sim_pages(uint32_t n_tokens)
{
    return (uint32_t)bn_div_up(n_tokens, SIM_PAGE_TOKENS);
}

static inline bool sim_grow(void *user, struct bn_sched_job *job, uint32_t n_tokens)
{
    struct sim *sim = user;
    struct sim_job *j = (struct sim_job *)job;
    uint32_t need = sim_pages(n_tokens);
    assert_true(n_tokens <= j->prompt + j->answer);
    if (need <= j->pages) return true;
    if (need - j->pages > sim->n_free) return false;
    sim->n_free -= need - j->pages;
    j->pages = need;
    return true;
}

static inline bool sim_start(void *user, struct bn_sched_job *job, uint32_t n_tokens)
{
    struct sim *sim = user;
    struct sim_job *j = (struct sim_job *)job;
    assert_true(sim->several || job == bn_sched_waiting(sim->s)); /* nobody is overtaken */
    assert_false(job->running || (!sim->several && (sim->refused || sim->dropped)));
    assert_int_equal(j->pages, 0);
    assert_int_equal(n_tokens, job->n_tokens + 1);
    sim->refused = !sim_grow(sim, job, n_tokens);
    if (sim->refused) return false;
    job->n_done = j->cached;
    return true;
}

static inline void sim_free(struct sim *sim, struct sim_job *j)
{
    sim->n_free += j->pages;
    j->pages = 0;
}

static inline void sim_drop(void *user, struct bn_sched_job *job)
{
    struct sim *sim = user;
    assert_true(job->running);
    assert_true(sim->several || (!job->next && job->prev)); /* the youngest, and not the oldest */
    sim->dropped = true;
    sim_free(sim, (struct sim_job *)job);
    job->n_done = 0;
}

static inline void sim_open(struct sim *sim, const struct bn_sched_limits *limits, uint32_t n_pages)
{
    *sim = (struct sim){.limits = *limits, .n_pages = n_pages, .n_free = n_pages};
    struct bn_sched_host host = {sim, sim_start, sim_grow, sim_drop, NULL};
    bitnet_error err;
    if (bn_sched_open(&sim->s, limits, &host, &err)) fail_msg("%s", err.text);
}

/* Before it is added; `job` itself is set by this. */
static inline void sim_job_init(struct sim_job *j)
{
    j->job = (struct bn_sched_job){.n_tokens = j->prompt, .scored = j->scored};
    j->answered = j->pages = 0;
}

static inline void sim_remove(struct sim *sim, struct sim_job *j)
{
    bn_sched_remove(sim->s, &j->job);
    sim_free(sim, j);
}

/* What holds after every plan. */
static inline void sim_check(const struct sim *sim, uint32_t planned)
{
    const struct bn_sched_stats *st = bn_sched_stats(sim->s);
    uint32_t tokens = 0, scored = 0, pages = 0, n_running = 0, n_waiting = 0;
    for (const struct bn_sched_job *j = bn_sched_running(sim->s); j; j = j->next) {
        assert_true(j->running && j->take >= 1 && j->take <= j->n_tokens - j->n_done);
        assert_true(j->take_draft <= j->n_draft);
        assert_true(j->take_draft == 0 || j->n_tokens - j->n_done == 1);
        assert_true(!j->next || j->next->ticket > j->ticket);
        const struct sim_job *sj = (const struct sim_job *)j;
        assert_true(sj->pages * SIM_PAGE_TOKENS >= j->n_done + j->take + j->take_draft);
        tokens += j->take + j->take_draft;
        scored += j->scored && j->n_tokens - j->n_done > 1 ? j->take : 0;
        pages += sj->pages;
        n_running++;
    }
    for (const struct bn_sched_job *j = bn_sched_waiting(sim->s); j; j = j->next) {
        assert_true(!j->running && j->take == 0 && j->take_draft == 0);
        assert_true(!j->next || j->next->ticket > j->ticket);
        assert_int_equal(((const struct sim_job *)j)->pages, 0);
        n_waiting++;
    }
    assert_int_equal(tokens, planned);
    assert_true(tokens <= sim->limits.max_batch_tokens);
    assert_true(scored <= sim->limits.max_scored);
    assert_int_equal(pages + sim->n_free, sim->n_pages);
    assert_int_equal(n_running, st->n_running);
    assert_int_equal(n_waiting, st->n_waiting);
    assert_true(n_running <= sim->limits.max_seqs);
    assert_true(n_running > 0 || n_waiting == 0);
}

static inline uint32_t sim_plan(struct sim *sim)
{
    sim->refused = sim->dropped = false;
    long before = n_allocs;
    uint32_t n = bn_sched_plan(sim->s);
    assert_int_equal(n_allocs, before);
    sim_check(sim, n);
    return n;
}

/* The step has been computed and `accepted` of the drafts were right: true if the request has its
 * whole answer. */
static inline bool sim_advance(struct sim_job *j, uint32_t accepted)
{
    j->job.n_done += j->job.take;
    if (j->job.n_done < j->job.n_tokens) return false;
    j->job.n_done += accepted;
    j->job.n_tokens += accepted + 1;
    j->answered += accepted + 1;
    uint32_t left = j->answer - j->answered;
    j->job.n_draft = left < j->max_draft + 1 ? left - (left > 0) : j->max_draft;
    return left == 0;
}

/* The most steps that it needs once it runs undisturbed: S in the head of sched.c. */
static inline uint32_t sim_steps_alone(const struct sim *sim, const struct sim_job *j)
{
    const struct bn_sched_limits *l = &sim->limits;
    size_t b = (l->max_batch_tokens - l->max_seqs + 2) / 2;
    if (l->step_target_ns || l->step_most_ns)
        b = bn_min_size(16, l->max_batch_tokens - l->max_seqs + 1);
    size_t q = bn_max_size(1, b / l->max_seqs);
    if (j->scored) q = bn_min_size(q, l->max_scored / l->max_seqs);
    return (uint32_t)bn_div_up(j->prompt, q) + j->answer - 1;
}

#endif
