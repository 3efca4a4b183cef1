/* SPDX-License-Identifier: Apache-2.0
 * The scheduler in a world without a model (sched_sim.h): ten thousand random workloads keep every
 * law and the bounds on waiting that sched.c states; small cases show the policy; a target for steps
 * is learned and kept. */
#include "sched_sim.h"

#include "engine/step_cost.h"
#include <math.h>
#include <string.h>

/* ------------------------------------------------------ random workloads */

enum { N_WORKLOADS = 10000, MAX_JOBS = 24, NEVER = UINT32_MAX };

struct life {
    struct sim_job sim;
    int elder;               /* a further answer of this one's prompt; -1: a request */
    uint32_t arrival;        /* plan before which it comes, if it is a request */
    uint32_t cancel;         /* plan before which it is cancelled */
    uint32_t accept_percent; /* of the drafts */
    /* observed: numbers of plans */
    uint32_t added, began, ended;
    bool was_added, was_cancelled;
    bool saw_running[MAX_JOBS]; /* ran when this one was added */
};

struct world {
    struct bn_rng rng;
    struct sim sim;
    struct life jobs[MAX_JOBS];
    uint32_t n_jobs, n_left, plan;
    bool ample; /* all jobs at once would fit into memory */
    uint64_t hash;
};

static uint32_t between(struct bn_rng *r, uint32_t low, uint32_t high)
{
    return low + bn_rng_below(r, high - low + 1);
}

static bool chance(struct bn_rng *r, uint32_t percent) { return bn_rng_below(r, 100) < percent; }

static void make_job(struct world *w, uint32_t i)
{
    struct bn_rng *r = &w->rng;
    struct life *l = &w->jobs[i];
    bool further = i > 0 && chance(r, 15);
    l->elder = further ? (int)bn_rng_below(r, i) : -1;
    l->sim.prompt =
        further ? w->jobs[l->elder].sim.prompt : between(r, 1, chance(r, 20) ? 600 : 90);
    l->sim.answer = between(r, 1, chance(r, 40) ? 250 : 25);
    l->sim.cached = further         ? l->sim.prompt - 1
                    : chance(r, 30) ? bn_rng_below(r, l->sim.prompt)
                                    : 0;
    l->sim.max_draft = chance(r, 40) ? bn_rng_below(r, 7) : 0;
    l->sim.scored = chance(r, 20);
    l->arrival = bn_rng_below(r, 60);
    l->cancel = chance(r, 10) ? bn_rng_below(r, 200) : NEVER;
    l->accept_percent = bn_rng_below(r, 101);
    sim_job_init(&l->sim);
}

static void make_world(struct world *w, uint64_t seed)
{
    *w = (struct world){.rng = {seed}};
    struct bn_rng *r = &w->rng;
    w->n_left = w->n_jobs = between(r, 1, MAX_JOBS);
    uint32_t largest = 0, all = 0;
    for (uint32_t i = 0; i < w->n_jobs; i++) {
        make_job(w, i);
        uint32_t pages = sim_pages(w->jobs[i].sim.prompt + w->jobs[i].sim.answer);
        largest = pages > largest ? pages : largest;
        all += pages;
    }
    uint32_t n_pages = chance(r, 30) ? all : between(r, largest, chance(r, 50) ? largest + 8 : all);
    w->ample = n_pages >= all;
    struct bn_sched_limits limits = {.max_seqs = between(r, 1, chance(r, 50) ? 4 : 16)};
    limits.max_batch_tokens = limits.max_seqs + bn_rng_below(r, chance(r, 50) ? 16 : 300);
    limits.max_scored = limits.max_seqs + bn_rng_below(r, 64);
    limits.step_target_ns = chance(r, 50) ? between(r, 10, 1000) * 1000000ull : 0;
    limits.step_most_ns = chance(r, 30) ? between(r, 100, 5000) * 1000000ull : 0;
    limits.prompt_assumed_ns = chance(r, 50) ? between(r, 1, 100000) * 1000ull : 0;
    sim_open(&w->sim, &limits, n_pages);
}

static void end(struct world *w, struct life *l, uint32_t plan)
{
    if (l->was_added) sim_remove(&w->sim, &l->sim);
    l->ended = plan;
    w->n_left--;
}

static void add(struct world *w, struct life *l)
{
    const struct life *elder = l->elder < 0 ? NULL : &w->jobs[l->elder];
    if (elder) {
        bn_sched_add_after(w->sim.s, &l->sim.job, &elder->sim.job);
        assert_true(l->sim.job.ticket > elder->sim.job.ticket);
    } else {
        bn_sched_add(w->sim.s, &l->sim.job);
    }
    l->was_added = true;
    l->added = w->plan;
    for (uint32_t i = 0; i < w->n_jobs; i++) l->saw_running[i] = w->jobs[i].sim.job.running;
}

/* Cancellations and arrivals before a plan. Further answers come when the prompt has been read;
 * where it never will be, they go with their elder. */
static void before_plan(struct world *w)
{
    for (uint32_t i = 0; i < w->n_jobs; i++) {
        struct life *l = &w->jobs[i];
        const struct life *elder = l->elder < 0 ? NULL : &w->jobs[l->elder];
        bool read = elder && elder->sim.answered > 0;
        if (l->ended) continue;
        if (l->cancel <= w->plan || (elder && !read && elder->was_cancelled)) {
            l->was_cancelled = true;
            end(w, l, w->plan);
        } else if (!l->was_added && (elder ? read : l->arrival <= w->plan)) {
            add(w, l);
        }
    }
}

static void after_step(struct world *w)
{
    for (uint32_t i = 0; i < w->n_jobs; i++) {
        struct life *l = &w->jobs[i];
        struct bn_sched_job *job = &l->sim.job;
        if (!job->running) continue;
        w->hash = bn_mix64(w->hash ^ job->ticket ^ (uint64_t)job->take << 32 ^ job->take_draft);
        if (!l->began) l->began = w->plan;
        uint32_t accepted = 0;
        while (accepted < job->take_draft && chance(&w->rng, l->accept_percent)) accepted++;
        if (sim_advance(&l->sim, accepted)) end(w, l, w->plan + 1);
    }
}

static bool were_together(const struct life *a, const struct life *b)
{
    return a->was_added && a->added < b->ended && b->added < a->ended;
}

/* What the workloads have met, all together. */
struct tally {
    uint64_t plans, preemptions, recomputed, drafts, ample;
    double nearest_1, nearest_2; /* how much of a bound was needed, at most */
};

static void check_bounds(const struct world *w, const struct life *l, struct tally *t)
{
    uint32_t largest = 0, n_further = l->elder >= 0, older = 0, ran = 0,
             own = sim_steps_alone(&w->sim, &l->sim);
    for (uint32_t i = 0; i < w->n_jobs; i++) {
        const struct life *o = &w->jobs[i];
        if (o == l || !were_together(o, l)) continue;
        uint32_t n = sim_steps_alone(&w->sim, &o->sim);
        largest = n > largest ? n : largest;
        if (o->sim.job.ticket < l->sim.job.ticket) {
            older += n;
            n_further += o->elder >= 0;
        } else if (l->elder >= 0 && l->saw_running[i]) {
            ran += n;
        }
    }
    uint32_t stay = l->ended - l->added, wait = l->began - l->added;
    uint32_t bound_1 = older + own + n_further * largest;
    uint32_t bound_2 = (older + ran) / w->sim.limits.max_seqs;
    assert_true(stay <= bound_1);
    if (older) t->nearest_1 = fmax(t->nearest_1, (double)stay / bound_1);
    if (!w->ample) return;
    assert_true(wait <= bound_2);
    assert_true(l->ended - l->began <= own);
    if (bound_2) t->nearest_2 = fmax(t->nearest_2, (double)wait / bound_2);
}

static uint64_t run_world(struct world *w, uint64_t seed, struct tally *t)
{
    make_world(w, seed);
    const struct bn_sched_stats *st = bn_sched_stats(w->sim.s);
    for (w->plan = 1; w->n_left; w->plan++) {
        before_plan(w);
        uint32_t n = sim_plan(&w->sim);
        if (n) bn_sched_took(w->sim.s, (10 + 5ull * n + bn_rng_below(&w->rng, 20)) * 1000000);
        after_step(w);
        assert_true(w->plan < 100000);
    }
    for (uint32_t i = 0; i < w->n_jobs; i++)
        if (!w->jobs[i].was_cancelled) check_bounds(w, &w->jobs[i], t);
    assert_int_equal(w->sim.n_free, w->sim.n_pages);
    assert_int_equal(st->n_running + st->n_waiting, 0);
    assert_true(!w->ample || st->preemptions == 0);
    t->plans += st->steps;
    t->preemptions += st->preemptions;
    t->recomputed += st->recomputed;
    t->drafts += st->tokens_draft;
    t->ample += w->ample;
    bn_sched_close(w->sim.s);
    return w->hash;
}

static void random_workloads(void **state)
{
    (void)state;
    static struct world w;
    struct tally t = {0}, again = {0};
    for (uint64_t seed = 0; seed < N_WORKLOADS; seed++) {
        uint64_t hash = run_world(&w, seed, &t);
        assert_int_equal(run_world(&w, seed, &again), hash);
    }
    printf("%d workloads, %llu with ample memory: %llu steps, %llu preemptions, %llu tokens "
           "recomputed, %llu drafts; of the bounds %.2f and %.2f were needed\n",
           N_WORKLOADS, (unsigned long long)t.ample, (unsigned long long)t.plans,
           (unsigned long long)t.preemptions, (unsigned long long)t.recomputed,
           (unsigned long long)t.drafts, t.nearest_1, t.nearest_2);
    /* they do go where it hurts */
    assert_true(t.preemptions > N_WORKLOADS / 2 && t.recomputed > N_WORKLOADS);
    assert_true(t.drafts > N_WORKLOADS && t.ample > N_WORKLOADS / 4);
    assert_true(t.nearest_1 > 0.9 && t.nearest_2 > 0.9);
}

/* ------------------------------------------------------------ small cases */

enum { AMPLE = 100000 };

static void add_job(struct sim *sim, struct sim_job *j, uint32_t prompt, uint32_t answer)
{
    *j = (struct sim_job){.prompt = prompt, .answer = answer};
    sim_job_init(j);
    bn_sched_add(sim->s, &j->job);
}

static void open_small(struct sim *sim, uint32_t seqs, uint32_t batch, uint32_t pages)
{
    sim_open(sim, &(struct bn_sched_limits){.max_seqs = seqs, .max_batch_tokens = batch}, pages);
}

static void shares(void **state)
{
    (void)state;
    struct sim sim;
    struct sim_job answer, longest, brief, late;
    open_small(&sim, 3, 64, AMPLE);
    add_job(&sim, &answer, 1, 9);
    sim_plan(&sim);
    sim_advance(&answer, 0);
    add_job(&sim, &longest, 1000, 9);
    add_job(&sim, &brief, 10, 9);
    add_job(&sim, &late, 10, 9);
    assert_int_equal(sim_plan(&sim), 64);
    assert_int_equal(answer.job.take, 1);
    assert_int_equal(brief.job.take, 10);
    assert_int_equal(longest.job.take, 53); /* its half of 63, and what the brief one left */
    assert_false(late.job.running);         /* the fourth of three */

    /* a prompt that gives up its place lets the next begin */
    sim_remove(&sim, &brief);
    assert_int_equal(sim_plan(&sim), 64);
    assert_int_equal(late.job.take, 10);
    bn_sched_close(sim.s);
}

static void drafts(void **state)
{
    (void)state;
    struct sim sim;
    struct sim_job old, young, prompt;
    open_small(&sim, 3, 64, 2 + 1 + 4);
    add_job(&sim, &old, 1, 60);
    add_job(&sim, &young, 1, 30);
    sim_plan(&sim);
    sim_advance(&old, 0);
    sim_advance(&young, 0);
    old.job.n_draft = 20;
    young.job.n_draft = 20;
    assert_int_equal(sim_plan(&sim), 42); /* nobody else there */
    assert_int_equal(old.job.take_draft, 20);

    add_job(&sim, &prompt, 100, 9);
    old.job.n_draft = 25;
    assert_int_equal(sim_plan(&sim), 64);
    assert_int_equal(old.job.take_draft, 25); /* prompts keep 31 of 62: drafts have 31 */
    assert_int_equal(young.job.take_draft, 6);
    assert_int_equal(prompt.job.take, 31);

    old.job.n_draft = 58; /* a second page would do, a third is not there */
    prompt.job.n_done = 95;
    old.job.n_tokens = 3, old.job.n_done = 2;
    sim.n_pages -= sim.n_free;
    sim.n_free = 0;
    assert_int_equal(sim_plan(&sim), 1 + 1 + 20 + 5);
    assert_int_equal(old.job.take_draft, 0);
    assert_int_equal(young.job.take_draft, 20);
    assert_int_equal(bn_sched_stats(sim.s)->preemptions, 0);
    bn_sched_close(sim.s);
}

static void further_choices(void **state)
{
    (void)state;
    struct sim sim;
    struct sim_job a, b, c, a2, a3;
    open_small(&sim, 1, 64, AMPLE);
    add_job(&sim, &a, 5, 1);
    add_job(&sim, &b, 5, 1);
    add_job(&sim, &c, 5, 1);
    sim_plan(&sim);
    a2 = a3 = (struct sim_job){.prompt = 5, .answer = 1, .cached = 4};
    sim_job_init(&a2);
    sim_job_init(&a3);
    bn_sched_add_after(sim.s, &a2.job, &a.job);
    bn_sched_add_after(sim.s, &a3.job, &a.job);
    struct sim_job *order[] = {&a, &a2, &a3, &b, &c};
    for (size_t i = 0; i < BN_ARRAY_LEN(order); i++) {
        sim_plan(&sim);
        assert_ptr_equal(bn_sched_running(sim.s), &order[i]->job);
        assert_ptr_equal(bn_sched_waiting(sim.s), i + 1 < 5 ? &order[i + 1]->job : NULL);
        assert_true(sim_advance(order[i], 0));
        sim_remove(&sim, order[i]);
    }
    bn_sched_close(sim.s);
}

static void preemption(void **state)
{
    (void)state;
    struct sim sim;
    struct sim_job old, young, next;
    open_small(&sim, 3, 256, 4);
    add_job(&sim, &old, 60, 40);
    add_job(&sim, &young, 40, 40);
    add_job(&sim, &next, 1, 1);
    sim_plan(&sim);
    assert_true(old.job.running && young.job.running && !next.job.running);
    for (int i = 0; i < 5; i++) { /* after these, the old one wants a third page */
        assert_int_equal(young.job.running, true);
        sim_advance(&old, 0);
        sim_advance(&young, 0);
        sim_plan(&sim);
    }
    assert_false(young.job.running || next.job.running);
    assert_ptr_equal(bn_sched_waiting(sim.s), &young.job); /* its old place */
    assert_int_equal(young.job.n_tokens, 45);              /* prompt and answer so far */
    while (!sim_advance(&old, 0)) {
        sim_plan(&sim);
        assert_false(young.job.running || next.job.running); /* one page is not enough for it */
    }
    sim_remove(&sim, &old);
    assert_int_equal(sim_plan(&sim), 45 + 1);
    assert_int_equal(next.job.take, 1);
    assert_int_equal(bn_sched_stats(sim.s)->preemptions, 1);
    assert_int_equal(bn_sched_stats(sim.s)->recomputed, 44);
    bn_sched_close(sim.s);
}

static void bad_limits(void **state)
{
    (void)state;
    struct bn_sched *s;
    struct bn_sched_host host = {0};
    struct bn_sched_limits none = {.max_batch_tokens = 8},
                           narrow = {.max_seqs = 8, .max_batch_tokens = 7};
    bitnet_error err;
    assert_int_equal(bn_sched_open(&s, &none, &host, &err), BITNET_E_ARG);
    assert_int_equal(bn_sched_open(&s, &narrow, &host, &err), BITNET_E_ARG);
    assert_string_equal(err.text, "batches of 7 tokens for 8 sequences; each needs room for one");
    assert_null(s);
}

/* ----------------------------------------------------------------- target */

static const double STEP_NS = 11e6, ANSWER_NS = 9e6, PROMPT_NS = 5e6;

static double true_ns(uint32_t answers, uint32_t prompts)
{
    return STEP_NS + ANSWER_NS * answers + PROMPT_NS * prompts;
}

/* Within so much of the truth; steps differ by up to 5 % from what they should cost, and one in
 * fifty takes ten times as long. */
static void cost_is_learned(void **state)
{
    (void)state;
    struct bn_step_cost c = {0};
    struct bn_rng r = {1};
    for (int i = 0; i < 1000; i++) {
        uint32_t answers = bn_rng_below(&r, 9),
                 prompts = bn_rng_below(&r, 2) * bn_rng_below(&r, 99);
        double ns = true_ns(answers, prompts) * (0.95 + 0.1 * bn_rng_unit(&r));
        if (bn_rng_below(&r, 50) == 0) ns *= 10;
        bn_step_cost_learn(&c, answers, prompts, (uint64_t)ns);
        if (i < 200) continue;
        double got = bn_step_cost_ns(&c, 4, 50), want = true_ns(4, 50);
        assert_true(got > 0.85 * want && got < 1.2 * want);
    }
    double price = c.prompt_ns;
    for (int i = 0; i < 100000; i++) bn_step_cost_learn(&c, 4, 0, (uint64_t)true_ns(4, 0));
    assert_true(fabs(c.prompt_ns - price) < 0.1 * price); /* nothing was heard of prompts */
    assert_true(fabs(bn_step_cost_ns(&c, 4, 0) - true_ns(4, 0)) < 1e-3 * true_ns(4, 0));
    for (int i = 0; i < 100; i++) bn_step_cost_learn(&c, 4, 20, (uint64_t)(3 * true_ns(4, 20)));
    assert_true(fabs(bn_step_cost_ns(&c, 4, 20) / true_ns(4, 20) - 3) < 0.1); /* a busy machine */
}

/* Eight requests at a time, always some prompt to read. */
static void target_is_kept(void **state)
{
    (void)state;
    enum { JOBS = 8, WARM = 100, STEPS = 3000 };
    const double target = 250e6;
    struct sim sim;
    struct sim_job jobs[JOBS];
    struct bn_rng r = {7};
    sim_open(&sim,
             &(struct bn_sched_limits){
                 .max_seqs = JOBS, .max_batch_tokens = 512, .step_target_ns = (uint64_t)target},
             AMPLE);
    for (int i = 0; i < JOBS; i++)
        add_job(&sim, &jobs[i], between(&r, 100, 3000), between(&r, 1, 90));
    uint32_t mixed = 0, within = 0, full = 0;
    double used = 0;
    for (int step = 0; step < STEPS; step++) {
        uint32_t n = sim_plan(&sim), answers = 0, want = 0;
        for (int i = 0; i < JOBS; i++) {
            uint32_t rest = jobs[i].job.n_tokens - jobs[i].job.n_done;
            answers += rest == 1;
            want += rest == 1 ? 0 : rest;
        }
        double ns = true_ns(answers, n - answers);
        if (!answers) full += n == (want < 512 ? want : 512);
        assert_true(n - answers >= 16 || n - answers == want);
        if (step >= WARM && answers && n - answers < want) {
            assert_true(ns < 1.3 * target);
            mixed++;
            within += ns < 1.05 * target;
            used += ns / target;
        }
        ns *= 0.95 + 0.1 * bn_rng_unit(&r);
        bn_sched_took(sim.s, (uint64_t)(bn_rng_below(&r, 100) ? ns : 5 * ns));
        for (int i = 0; i < JOBS; i++)
            if (sim_advance(&jobs[i], 0)) {
                sim_remove(&sim, &jobs[i]);
                add_job(&sim, &jobs[i], between(&r, 100, 3000), between(&r, 1, 90));
            }
    }
    printf("target: %u of %u mixed steps within 5 %%, mean %.3f of it; %u steps of prompts only\n",
           within, mixed, used / mixed, full);
    assert_true(mixed > STEPS / 2 && within > 0.95 * mixed);
    assert_true(used / mixed > 0.9); /* and what it allows is used */
    assert_true(full > 0);
    bn_sched_close(sim.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_workloads), cmocka_unit_test(shares),
        cmocka_unit_test(drafts),           cmocka_unit_test(further_choices),
        cmocka_unit_test(preemption),       cmocka_unit_test(bad_limits),
        cmocka_unit_test(cost_is_learned),  cmocka_unit_test(target_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
