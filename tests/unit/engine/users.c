/* SPDX-License-Identifier: Apache-2.0
 * Several users of the scheduler, in a world without a model: tokens by weight, a small user beside a
 * greedy one, priorities, what is not saved up, and that everybody's requests end however short memory is. */
#include "sched_sim.h"

#include "effort.h"
#include <string.h>

enum { SEQS = 8, MAX_USERS = 24, AMPLE = 1 << 20 };

/* Users that always have requests waiting, each as long as the last. */
struct demand {
    uint64_t who;
    uint32_t weight, prompt, answer, depth; /* depth: requests at a time */
    struct sim_job *jobs;                   /* [depth] */
    uint64_t n_tokens;                      /* computed for it */
};

static void open_world(struct sim *sim, uint32_t seqs, uint32_t batch, uint32_t pages)
{
    sim_open(sim, &(struct bn_sched_limits){.max_seqs = seqs, .max_batch_tokens = batch}, pages);
    sim->several = true;
}

static void add_job(struct sim *sim, struct sim_job *j, const struct demand *d)
{
    *j = (struct sim_job){.prompt = d->prompt, .answer = d->answer};
    sim_job_init(j);
    j->job.who = d->who;
    j->job.weight = d->weight;
    bn_sched_add(sim->s, &j->job);
}

static void begin(struct sim *sim, struct demand *d)
{
    d->jobs = calloc(d->depth, sizeof *d->jobs);
    assert_non_null(d->jobs);
    for (uint32_t i = 0; i < d->depth; i++) add_job(sim, &d->jobs[i], d);
}

/* What the planned step computes; who is done asks again. */
static void advance(struct sim *sim, struct demand *d)
{
    for (uint32_t i = 0; i < d->depth; i++) {
        struct sim_job *j = &d->jobs[i];
        if (!j->job.running) continue;
        uint32_t before = j->job.n_done;
        bool over = sim_advance(j, 0);
        if (j->job.n_done > j->job.n_lost) /* not those that are read again */
            d->n_tokens += j->job.n_done - (before > j->job.n_lost ? before : j->job.n_lost);
        if (!over) continue;
        sim_remove(sim, j);
        add_job(sim, j, d);
    }
}

static void end(struct sim *sim, struct demand *d, size_t n)
{
    bn_sched_close(sim->s);
    for (size_t i = 0; i < n; i++) free(d[i].jobs);
}

static void run(struct sim *sim, struct demand *d, size_t n, uint32_t n_plans)
{
    for (uint32_t plan = 0; plan < n_plans; plan++) {
        assert_true(sim_plan(sim) > 0);
        for (size_t i = 0; i < n; i++) advance(sim, &d[i]);
    }
}

/* Each user's part of all tokens is that of its weight. */
static void check_parts(const struct demand *d, size_t n, double within)
{
    double tokens = 0, weights = 0;
    for (size_t i = 0; i < n; i++) {
        tokens += (double)d[i].n_tokens;
        weights += d[i].weight;
    }
    for (size_t i = 0; i < n; i++) {
        double part = (double)d[i].n_tokens / tokens, fair = d[i].weight / weights;
        if (part < fair * (1 - within) || part > fair * (1 + within))
            fail_msg("user %zu of weight %u has %.4f of the tokens, not %.4f", i, d[i].weight, part,
                     fair);
    }
}

static void weights(void **state)
{
    (void)state;
    static const uint32_t seqs[] = {1, 2, 8, 15, 16};
    for (size_t k = 0; k < BN_ARRAY_LEN(seqs); k++) {
        struct sim sim;
        struct demand d[] = {{1, 1, 20, 300, 20, NULL, 0},
                             {2, 2, 90, 120, 20, NULL, 0},
                             {3, 4, 5, 400, 20, NULL, 0},
                             {4, 8, 40, 200, 20, NULL, 0}};
        open_world(&sim, seqs[k], 128, AMPLE);
        for (size_t i = 0; i < 4; i++) begin(&sim, &d[i]);
        run(&sim, d, 4, 40000 / seqs[k]);
        check_parts(d, 4, 0.05);
        end(&sim, d, 4);
    }
}

/* More users than slots: they take turns. */
static void many_users(void **state)
{
    (void)state;
    struct sim sim;
    struct demand d[MAX_USERS];
    open_world(&sim, SEQS, 256, AMPLE);
    for (uint32_t i = 0; i < MAX_USERS; i++) {
        d[i] = (struct demand){i + 1, 1, 10 + i, 500, 3, NULL, 0};
        begin(&sim, &d[i]);
    }
    run(&sim, d, MAX_USERS, 12000);
    check_parts(d, MAX_USERS, 0.05);
    assert_true(bn_sched_stats(sim.s)->yields > 0);
    end(&sim, d, MAX_USERS);
}

/* 200 requests of 400 tokens; now and then another user's of 20, which waits for no more than the step
 * that is being computed. */
static void greedy(void **state)
{
    (void)state;
    struct sim sim;
    struct demand d = {1, 1, 30, 400, 200, NULL, 0}, small = {2, 1, 12, 8, 1, NULL, 0};
    struct sim_job j;
    open_world(&sim, SEQS, 64, AMPLE);
    begin(&sim, &d);
    for (int i = 0; i < 100; i++) {
        run(&sim, &d, 1, 50);
        add_job(&sim, &j, &small);
        uint32_t steps = 0;
        for (bool over = false; !over; steps++) {
            sim_plan(&sim);
            over = j.job.running && sim_advance(&j, 0);
            advance(&sim, &d);
        }
        sim_remove(&sim, &j);
        assert_true(steps <= sim_steps_alone(&sim, &j) + 1);
    }
    assert_true(bn_sched_stats(sim.s)->yields >= 50);
    end(&sim, &d, 1);
}

/* What was not used is gone; what was used while nobody wanted it is not held against anybody. */
static void nothing_is_saved_up(void **state)
{
    (void)state;
    struct sim sim;
    struct demand d[2] = {{1, 1, 10, 50, 20, NULL, 0}, {2, 1, 10, 50, 20, NULL, 0}};
    open_world(&sim, SEQS, 64, AMPLE);
    begin(&sim, &d[0]);
    run(&sim, d, 1, 5000);
    begin(&sim, &d[1]);
    d[0].n_tokens = 0;
    run(&sim, d, 2, 3000);
    check_parts(d, 2, 0.05);
    end(&sim, d, 2);
}

static void priorities(void **state)
{
    (void)state;
    struct sim sim;
    struct demand d = {1, 8, 10, 50, 1, NULL, 0};
    struct sim_job a, b, first, last;
    open_world(&sim, 2, 64, AMPLE);
    add_job(&sim, &a, &d);
    add_job(&sim, &b, &d);
    sim_plan(&sim);
    last = first = (struct sim_job){.prompt = 5, .answer = 5};
    sim_job_init(&last);
    sim_job_init(&first);
    last.job.priority = 1;
    first.job.priority = -1;
    last.job.who = first.job.who = 2;
    bn_sched_add(sim.s, &last.job);
    bn_sched_add(sim.s, &first.job);
    sim_plan(&sim);
    assert_true(first.job.running && a.job.running); /* the younger has given way, at once */
    assert_false(b.job.running || last.job.running);
    sim_remove(&sim, &first);
    sim_plan(&sim);
    assert_true(a.job.running && b.job.running); /* though the other user has had less */
    sim_remove(&sim, &a);
    sim_plan(&sim);
    assert_true(last.job.running); /* a slot that nobody else wants */
    bn_sched_close(sim.s);
}

/* Room for one of them alone: they take turns, and waste at most as much as they compute. */
static void memory_for_one(void **state)
{
    (void)state;
    struct sim sim;
    struct demand d[2] = {{1, 1, 600, 300, 2, NULL, 0}, {2, 1, 600, 300, 2, NULL, 0}};
    open_world(&sim, 4, 128, sim_pages(900));
    begin(&sim, &d[0]);
    begin(&sim, &d[1]);
    run(&sim, d, 2, 20000);
    const struct bn_sched_stats *st = bn_sched_stats(sim.s);
    assert_true(st->recomputed <= st->tokens_decode + st->tokens_prompt - st->recomputed);
    check_parts(d, 2, 0.1);
    end(&sim, d, 2);
}

/* Whatever comes: all requests end, and every plan keeps the laws (sched_sim.h). */
static void everybody_ends(void **state)
{
    (void)state;
    enum { JOBS = 40 };
    static struct sim_job jobs[JOBS];
    uint32_t n_worlds = full_effort() ? 3000 : 300;
    for (uint32_t w = 0; w < n_worlds; w++) {
        struct bn_rng r = {w};
        struct sim sim;
        uint32_t largest = 0, n_left = JOBS, plans = 0, steps = 0;
        uint32_t seqs = 1 + bn_rng_below(&r, 12);
        for (int i = 0; i < JOBS; i++) {
            jobs[i] = (struct sim_job){.prompt = 1 + bn_rng_below(&r, 300),
                                       .answer = 1 + bn_rng_below(&r, 100)};
            sim_job_init(&jobs[i]);
            jobs[i].job.who = bn_rng_below(&r, 6);
            jobs[i].job.weight = bn_rng_below(&r, 4);
            jobs[i].job.priority = bn_rng_below(&r, 4) ? 0 : (int32_t)bn_rng_below(&r, 3) - 1;
            uint32_t pages = sim_pages(jobs[i].prompt + jobs[i].answer);
            largest = pages > largest ? pages : largest;
        }
        open_world(&sim, seqs, seqs + bn_rng_below(&r, 100), largest + bn_rng_below(&r, 60));
        for (int i = 0; i < JOBS; i++) {
            bn_sched_add(sim.s, &jobs[i].job);
            steps += sim_steps_alone(&sim, &jobs[i]);
        }
        for (; n_left; plans++) {
            assert_true(sim_plan(&sim) > 0);
            for (int i = 0; i < JOBS; i++)
                if (jobs[i].job.running && sim_advance(&jobs[i], 0)) {
                    sim_remove(&sim, &jobs[i]);
                    n_left--;
                }
            assert_true(plans <=
                        4 * steps); /* one after the other, and as much again for each change */
        }
        bn_sched_close(sim.s);
    }
}

/* As many users as there may be, and more: those that are idle are forgotten, those at work are not. */
static void many_come_and_go(void **state)
{
    (void)state;
    struct bn_users u = {.common = {.weight = 1}};
    struct bn_user *busy = bn_users_find(&u, 1, 3);
    bn_users_count(&u, busy, 1, 0);
    for (uint64_t id = 2; id < 3 * BN_USERS_KEPT; id++) bn_users_find(&u, id, 0);
    assert_int_equal(u.n, BN_USERS_KEPT);
    assert_ptr_equal(bn_users_find(&u, 1, 5), busy);
    assert_true(busy->weight == 5);
    assert_ptr_equal(bn_users_find(&u, 0, 0), &u.common);
    assert_int_equal(u.n_active, 1);
    bn_users_close(&u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights),        cmocka_unit_test(many_users),
        cmocka_unit_test(greedy),         cmocka_unit_test(nothing_is_saved_up),
        cmocka_unit_test(priorities),     cmocka_unit_test(memory_for_one),
        cmocka_unit_test(everybody_ends), cmocka_unit_test(many_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
