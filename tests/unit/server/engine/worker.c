/* SPDX-License-Identifier: Apache-2.0
 * The thread that drives the engine: answers are those of a plain loop over bitnet_step, embeddings
 * those of bitnet_embed, whatever runs beside them; a task ends once, however it is cancelled, closed
 * upon or refused; a side that does not take what is delivered stops the engine, not the memory. */
#include "engine_common.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "effort.h"
#include "server/engine/worker_impl.h"
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

enum { MAX_PROMPT = 90, MAX_CHOICES = 3, MAX_STEPS = 4096 };

struct job {
    struct worker_task task; /* first */
    bitnet_request r;
    int32_t prompt[MAX_PROMPT];
    struct choice answers[MAX_CHOICES];
    uint32_t n_over, n_ends, n_failed;
    uint64_t queue_ns;
    bitnet_error error;
    struct worker *cancel_at_first; /* from within take */
};

/* ------------------------------------------------------------------ the caller's side */

static void take(struct worker_task *t, const bitnet_event *e)
{
    struct job *j = (struct job *)t;
    assert_int_equal(j->n_ends, 0);
    assert_true(e->choice < MAX_CHOICES);
    take_event(&j->answers[e->choice], e);
    if (e->queue_ns) j->queue_ns = e->queue_ns;
    if (j->cancel_at_first) worker_cancel(j->cancel_at_first, t);
    j->n_over += e->finish != BITNET_FINISH_NONE;
    j->n_ends += j->n_over == (j->r.n_choices ? j->r.n_choices : 1);
}

static void failed(struct worker_task *t, const bitnet_error *err)
{
    struct job *j = (struct job *)t;
    assert_int_equal(j->n_ends, 0);
    assert_int_not_equal(err->status, BITNET_OK);
    j->n_ends++;
    j->n_failed++;
    j->error = *err;
}

static void embedded(struct worker_task *t)
{
    struct job *j = (struct job *)t;
    assert_int_equal(j->n_ends, 0);
    j->n_ends++;
}

static struct job *new_jobs(size_t n)
{
    struct job *jobs = calloc(n, sizeof *jobs);
    assert_non_null(jobs);
    for (size_t i = 0; i < n; i++) {
        jobs[i].task.take = take;
        jobs[i].task.failed = failed;
        jobs[i].task.done = embedded;
    }
    return jobs;
}

/* Prompts, samplers, several answers, log-probabilities, stop strings: by turns. */
static void make_request(struct job *j, uint32_t which, uint32_t n_new)
{
    static const char *const stop[] = {"the", " and"};
    static const bitnet_logit_bias same = {7, 100};
    bitnet_request_init(&j->r, sizeof j->r);
    j->r.tokens = j->prompt;
    j->r.n_tokens = 1 + which * 37 % MAX_PROMPT;
    for (uint32_t i = 0; i < j->r.n_tokens; i++)
        j->prompt[i] = (int32_t)((i * 131 + which * 17 + 5) % info.shape.n_vocab);
    j->r.max_new_tokens = n_new;
    j->r.ignore_end = which % 5 != 0;
    j->r.n_choices = which % 4 == 1 ? MAX_CHOICES : 0;
    j->r.logprobs = which % 3 == 1;
    j->r.n_top_logprobs = which % 3 == 1 ? ANSWER_TOP : 0;
    j->r.prompt_logprobs = which % 5 == 3;
    j->r.n_top_prompt_logprobs = which % 10 == 3 ? ANSWER_TOP : 0;
    j->r.stop = stop;
    j->r.n_stop = which % 7 == 2 ? 2 : 0;
    j->r.sampling.seed = which;
    j->r.sampling.logit_bias = &same;
    j->r.sampling.n_logit_bias = which % 6 == 3; /* drafts are made, and are accepted */
}

static bitnet_engine *small_engine(uint32_t seqs, uint32_t kv_tokens)
{
    bitnet_engine_options o = {.size = sizeof o};
    o.threads = 2;
    o.ctx_tokens = 256;
    o.max_seqs = seqs;
    o.max_batch_tokens = 64;
    o.kv_tokens = kv_tokens;
    o.draft = "on";
    return open_engine(&o);
}

static struct worker_step steps[MAX_STEPS];
static size_t n_steps;

static void stepped(void *user, const struct worker_step *s)
{
    (void)user;
    assert_true(n_steps < MAX_STEPS && s->ns > 0);
    assert_true(s->n_prompt_tokens + s->n_generated > 0);
    steps[n_steps++] = *s;
}

static struct worker *open_worker(bitnet_engine *e, bool warm_up, uint32_t scrub_mib_s)
{
    struct worker_config c = {.model = model,
                              .engine = e,
                              .warm_up = warm_up,
                              .scrub_mib_s = scrub_mib_s,
                              .stepped = stepped};
    struct worker *w = NULL;
    bitnet_error err = {0};
    n_steps = 0;
    if (worker_open(&w, &c, &err)) fail_msg("%s", err.text);
    return w;
}

static void wait_for_news(struct worker *w)
{
    struct pollfd p = {.fd = worker_fd(w), .events = POLLIN};
    if (poll(&p, 1, 60000) != 1) fail_msg("nothing came for a minute");
}

static void finish_jobs(struct worker *w, const struct job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        while (!jobs[i].n_ends) {
            wait_for_news(w);
            worker_deliver(w);
        }
}

static struct worker_state state_of(struct worker *w)
{
    struct worker_state s;
    worker_get_state(w, &s, NULL);
    return s;
}

static void sleep_us(long us) { nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL); }

/* Waits for a condition that the worker's thread brings about; the limit is for a thread that hangs,
 * not for one that is slow. */
#define wait_until(condition)                                           \
    for (uint64_t began_ns = bn_now_ns(); !(condition); sleep_us(1000)) \
        if (bn_now_ns() - began_ns > UINT64_C(120000000000)) fail_msg("never: %s", #condition)

/* No request is left, and no page is lost. */
static void check_engine(bitnet_engine *e)
{
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(in.n_running + in.n_waiting, 0);
    assert_int_equal(in.kv.pages_free + in.kv.pages_cached, in.kv.pages);
}

/* ------------------------------------------------------------------ answers */

static void plain_answers(struct job *jobs, size_t n)
{
    bitnet_engine *e = small_engine(5, 0);
    struct ask *asks = calloc(n, sizeof *asks);
    assert_non_null(asks);
    for (size_t i = 0; i < n; i++)
        asks[i] = (struct ask){submit(e, &jobs[i].r), MAX_CHOICES, jobs[i].answers};
    finish_all(e, asks, n, 64);
    bitnet_engine_close(e);
    free(asks);
}

static void compare_with_plain(size_t n, size_t most_prompt, uint32_t n_new, uint32_t seqs,
                               uint32_t kv_tokens)
{
    struct job *want = new_jobs(n), *got = new_jobs(n);
    for (size_t i = 0; i < n; i++) {
        make_request(&want[i], (uint32_t)i, n_new);
        make_request(&got[i], (uint32_t)i, n_new);
        want[i].r.n_tokens = got[i].r.n_tokens = bn_min_size(want[i].r.n_tokens, most_prompt);
    }
    plain_answers(want, n);
    bitnet_engine *e = small_engine(seqs, kv_tokens);
    struct worker *w = open_worker(e, false, 0);
    for (size_t i = 0; i < n; i++) worker_submit(w, &got[i].task, &got[i].r);
    finish_jobs(w, got, n);
    worker_close(w);
    uint64_t drawn = 0, told = 0, read = 0, ns = 0;
    for (size_t i = 0; i < n; i++) {
        assert_memory_equal(want[i].answers, got[i].answers, sizeof want[i].answers);
        assert_int_equal(got[i].n_failed, 0);
        assert_true(got[i].queue_ns > 0);
        for (int k = 0; k < MAX_CHOICES; k++) drawn += got[i].answers[k].n;
    }
    for (size_t i = 0; i < n_steps; i++) {
        assert_in_range(steps[i].n_seqs, 1, seqs);
        told += steps[i].n_generated;
        read += steps[i].n_prompt_tokens;
        ns += steps[i].ns;
    }
    bitnet_engine_info in = engine_info(e);
    assert_int_equal(n_steps, in.work.steps);
    assert_int_equal(told, drawn);
    assert_int_equal(told, in.work.generated_tokens);
    assert_int_equal(read, in.work.prompt_tokens);
    assert_int_equal(ns, in.work.step_ns);
    check_engine(e);
    bitnet_engine_close(e);
    free(want);
    free(got);
}

static void answers_are_those_of_a_plain_loop(void **state)
{
    (void)state;
    size_t n = repeats(24, 12);
    compare_with_plain(n, MAX_PROMPT, 30, 5, 0);
    compare_with_plain(n, MAX_PROMPT, 30, 6, 256); /* answers give way to each other */
}

static void two_hundred_at_once(void **state)
{
    (void)state;
    compare_with_plain(200, 12, full_effort() ? 3 : 2, 16, 0);
}

/* ------------------------------------------------------------------ cancelling */

static void expect_cancelled(const struct job *j)
{
    assert_int_equal(j->n_ends, 1);
    if (j->n_failed) assert_int_equal(j->error.status, BITNET_E_CANCELLED);
    else assert_int_equal(j->answers[0].finish, BITNET_FINISH_CANCELLED);
}

static uint32_t ends_on_their_way(struct worker *w)
{
    uint32_t n = 0;
    pthread_mutex_lock(&w->lock);
    for (struct worker_block *b = w->out; b; b = b->next)
        for (size_t i = 0; i < b->n_events; i++)
            n += b->events[i].event.finish != BITNET_FINISH_NONE;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void cancelled_in_every_phase(void **state)
{
    (void)state;
    enum { MAIL, WAITING, RUNNING, IN_TAKE, ON_ITS_WAY, ENDED, N };
    bitnet_engine *e = small_engine(1, 0);
    struct worker *w = open_worker(e, true, 0);
    struct job *jobs = new_jobs(N);
    for (uint32_t i = 0; i < N; i++) {
        make_request(&jobs[i], 1 + i, 60); /* the first has several choices */
        jobs[i].r.n_stop = 0;
        jobs[i].r.ignore_end = 1;
    }
    /* still in the mailbox: the thread is busy with its warm-up, or takes both together */
    worker_submit(w, &jobs[MAIL].task, &jobs[MAIL].r);
    worker_cancel(w, &jobs[MAIL].task);
    finish_jobs(w, &jobs[MAIL], 1);
    expect_cancelled(&jobs[MAIL]);

    /* one runs, one waits behind it */
    worker_submit(w, &jobs[RUNNING].task, &jobs[RUNNING].r);
    worker_submit(w, &jobs[WAITING].task, &jobs[WAITING].r);
    while (jobs[RUNNING].answers[0].n < 3) {
        wait_for_news(w);
        worker_deliver(w);
    }
    worker_cancel(w, &jobs[WAITING].task);
    finish_jobs(w, &jobs[WAITING], 1);
    expect_cancelled(&jobs[WAITING]);
    assert_int_equal(jobs[WAITING].queue_ns, 0);
    worker_cancel(w, &jobs[RUNNING].task);
    worker_cancel(w, &jobs[RUNNING].task);
    finish_jobs(w, &jobs[RUNNING], 1);
    expect_cancelled(&jobs[RUNNING]);
    assert_int_equal(jobs[RUNNING].n_failed, 0);

    jobs[IN_TAKE].cancel_at_first = w;
    worker_submit(w, &jobs[IN_TAKE].task, &jobs[IN_TAKE].r);
    finish_jobs(w, &jobs[IN_TAKE], 1);
    expect_cancelled(&jobs[IN_TAKE]);

    /* its end is there and has not been delivered */
    jobs[ON_ITS_WAY].r.max_new_tokens = 5;
    jobs[ON_ITS_WAY].r.n_choices = MAX_CHOICES;
    worker_submit(w, &jobs[ON_ITS_WAY].task, &jobs[ON_ITS_WAY].r);
    wait_until(ends_on_their_way(w) >= MAX_CHOICES);
    worker_cancel(w, &jobs[ON_ITS_WAY].task);
    finish_jobs(w, &jobs[ON_ITS_WAY], 1);
    assert_int_equal(jobs[ON_ITS_WAY].answers[0].finish, BITNET_FINISH_LENGTH);
    worker_cancel(w, &jobs[ON_ITS_WAY].task); /* no more than a word */

    worker_submit(w, &jobs[ENDED].task, &jobs[ENDED].r);
    finish_jobs(w, &jobs[ENDED], 1);
    assert_int_equal(jobs[ENDED].answers[0].finish, BITNET_FINISH_LENGTH);
    worker_close(w);
    check_engine(e);
    bitnet_engine_close(e);
    free(jobs);
}

/* At any time, from the mailbox to the end. */
static void cancelled_at_any_time(void **state)
{
    (void)state;
    uint32_t n = (uint32_t)repeats(60, 30);
    bitnet_engine *e = small_engine(3, 0);
    struct worker *w = open_worker(e, false, 0);
    struct job *jobs = new_jobs(n);
    uint32_t n_cancelled = 0;
    for (uint32_t i = 0; i < n; i++) {
        make_request(&jobs[i], i, 20);
        worker_submit(w, &jobs[i].task, &jobs[i].r);
        sleep_us(500);
        for (uint32_t k = 0; k < 3; k++) worker_cancel(w, &jobs[(i * 7 + k * 13) % (i + 1)].task);
        worker_deliver(w);
    }
    finish_jobs(w, jobs, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(jobs[i].n_ends, 1);
        n_cancelled += jobs[i].n_failed || jobs[i].answers[0].finish == BITNET_FINISH_CANCELLED;
    }
    assert_true(n_cancelled > 0);
    worker_close(w);
    check_engine(e);
    bitnet_engine_close(e);
    free(jobs);
}

/* ------------------------------------------------------------------ embeddings */

enum { N_INPUTS = 9 };

static void make_inputs(int32_t (*tokens)[MAX_PROMPT], bitnet_embed_input *in)
{
    for (uint32_t i = 0; i < N_INPUTS; i++) {
        size_t n = i == 1 ? MAX_PROMPT : 1 + 8 * i;
        for (uint32_t k = 0; k < n; k++)
            tokens[i][k] = (int32_t)((i * 7919 + k * 131 + 3) % info.shape.n_vocab);
        in[i] = (bitnet_embed_input){tokens[i], n};
    }
}

static void embed_beside_answers(uint32_t seqs, uint32_t kv_tokens)
{
    enum { N_ANSWERS = 8, N_EMBEDS = 3 };
    static int32_t tokens[N_INPUTS][MAX_PROMPT];
    bitnet_embed_input in[N_INPUTS];
    bitnet_embed_options o = {.size = sizeof o};
    size_t floats = N_INPUTS * info.shape.n_embd;
    float *want = calloc(floats, sizeof *want), *got = calloc(N_EMBEDS * floats, sizeof *got);
    struct job *jobs = new_jobs(N_ANSWERS), *embeds = new_jobs(N_EMBEDS),
               *plain = new_jobs(N_ANSWERS);
    assert_true(want && got);
    make_inputs(tokens, in);
    bitnet_engine *e = small_engine(seqs, kv_tokens);
    assert_int_equal(bitnet_embed(e, in, N_INPUTS, &o, want, NULL), BITNET_OK);
    for (uint32_t i = 0; i < N_ANSWERS; i++) {
        make_request(&jobs[i], i, 40);
        make_request(&plain[i], i, 40);
    }
    plain_answers(plain, N_ANSWERS);
    struct worker *w = open_worker(e, false, 0);
    for (uint32_t i = 0; i < N_ANSWERS; i++) {
        worker_submit(w, &jobs[i].task, &jobs[i].r);
        if (i < N_EMBEDS)
            worker_embed(w, &embeds[i].task, in, N_INPUTS, i ? &o : NULL, got + i * floats);
    }
    finish_jobs(w, embeds, N_EMBEDS);
    finish_jobs(w, jobs, N_ANSWERS);
    worker_close(w);
    for (uint32_t i = 0; i < N_EMBEDS; i++) {
        assert_int_equal(embeds[i].n_failed, 0);
        assert_memory_equal(want, got + i * floats, floats * sizeof *want);
    }
    for (uint32_t i = 0; i < N_ANSWERS; i++)
        assert_memory_equal(plain[i].answers, jobs[i].answers, sizeof plain[i].answers);
    check_engine(e);
    bitnet_engine_close(e);
    free(want);
    free(got);
    free(jobs);
    free(embeds);
    free(plain);
}

static void embeddings_are_those_of_a_plain_call(void **state)
{
    (void)state;
    if (full_effort()) embed_beside_answers(4, 0);
    embed_beside_answers(1, 0);   /* its one sequence is taken */
    embed_beside_answers(4, 160); /* pages are short */
}

static void embeddings_that_cannot_be(void **state)
{
    (void)state;
    enum { NONE, BAD, CANCELLED, GOOD, N };
    static int32_t tokens[N_INPUTS][MAX_PROMPT];
    bitnet_embed_input in[N_INPUTS];
    float *got = calloc(N_INPUTS * info.shape.n_embd, sizeof *got);
    struct job *jobs = new_jobs(N);
    assert_non_null(got);
    make_inputs(tokens, in);
    bitnet_engine *e = small_engine(1, 0);
    struct worker *w = open_worker(e, true, 0);
    worker_embed(w, &jobs[NONE].task, in, 0, NULL, NULL);
    worker_embed(w, &jobs[CANCELLED].task, in, N_INPUTS, NULL, got);
    worker_cancel(w, &jobs[CANCELLED].task);
    finish_jobs(w, jobs, 1);
    finish_jobs(w, &jobs[CANCELLED], 1);
    assert_int_equal(jobs[NONE].n_failed, 0);
    if (jobs[CANCELLED].n_failed) expect_cancelled(&jobs[CANCELLED]);
    in[N_INPUTS - 1].n_tokens = 0;
    worker_embed(w, &jobs[BAD].task, in, N_INPUTS, NULL, got);
    finish_jobs(w, &jobs[BAD], 1);
    assert_int_equal(jobs[BAD].error.status, BITNET_E_ARG);
    assert_non_null(strstr(jobs[BAD].error.text, "has no tokens"));
    assert_non_null(strstr(jobs[BAD].error.text, "counted from input "));
    worker_embed(w, &jobs[GOOD].task, in, N_INPUTS - 1, NULL, got);
    finish_jobs(w, &jobs[GOOD], 1);
    assert_int_equal(jobs[GOOD].n_failed, 0);
    worker_close(w);
    bitnet_engine_close(e);
    free(got);
    free(jobs);
}

/* ------------------------------------------------------------------ closing */

static void closing_ends_every_task_once(void **state)
{
    (void)state;
    enum { N = 12, N_EMBEDS = 3 };
    static int32_t tokens[N_INPUTS][MAX_PROMPT];
    bitnet_embed_input in[N_INPUTS];
    float *got = calloc(N_EMBEDS * N_INPUTS * info.shape.n_embd, sizeof *got);
    assert_non_null(got);
    make_inputs(tokens, in);
    bitnet_engine *e = small_engine(3, 0);
    uint32_t n_failed = 0;
    for (long us = 0; us < 40000; us += 5000) {
        struct job *jobs = new_jobs(N), *embeds = new_jobs(N_EMBEDS);
        struct worker *w = open_worker(e, us == 0, 0);
        for (uint32_t i = 0; i < N; i++) {
            make_request(&jobs[i], i, 40);
            worker_submit(w, &jobs[i].task, &jobs[i].r);
        }
        for (uint32_t i = 0; i < N_EMBEDS; i++)
            worker_embed(w, &embeds[i].task, in, N_INPUTS, NULL,
                         got + (size_t)i * N_INPUTS * info.shape.n_embd);
        sleep_us(us);
        if (us % 10000) worker_deliver(w);
        worker_close(w);
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(jobs[i].n_ends, 1);
            if (jobs[i].n_failed) assert_int_equal(jobs[i].error.status, BITNET_E_CANCELLED);
            n_failed += jobs[i].n_failed;
        }
        for (uint32_t i = 0; i < N_EMBEDS; i++) assert_int_equal(embeds[i].n_ends, 1);
        check_engine(e);
        free(jobs);
        free(embeds);
    }
    assert_true(n_failed > 0);
    bitnet_engine_close(e);
    free(got);
}

/* ------------------------------------------------------------------ slow and broken */

static uint32_t blocks_on_their_way(struct worker *w)
{
    uint32_t n = 0;
    pthread_mutex_lock(&w->lock);
    for (struct worker_block *b = w->out; b; b = b->next) n++;
    pthread_mutex_unlock(&w->lock);
    return n;
}

static void wait_until_stuck(struct worker *w)
{
    wait_until(blocks_on_their_way(w) >= WORKER_BLOCKS);
    sleep_us(
        20000); /* time for what must not happen: too little of it hides a fault, but makes none */
}

static void nobody_delivers_for_a_while(void **state)
{
    (void)state;
    bitnet_engine *e = small_engine(1, 0);
    struct worker *w = open_worker(e, false, 0);
    struct job *jobs = new_jobs(2);
    for (uint32_t i = 0; i < 2; i++) {
        make_request(&jobs[i], 0, 75);
        jobs[i].r.ignore_end = 1;
        jobs[i].r.sampling.temperature = 0;
        jobs[i].r.n_stop = 0;
        worker_submit(w, &jobs[i].task, &jobs[i].r);
    }
    wait_until_stuck(w);
    worker_deliver(w);
    assert_int_equal(n_steps, WORKER_BLOCKS);
    finish_jobs(w, jobs, 2);
    assert_memory_equal(jobs[0].answers, jobs[1].answers, sizeof jobs[0].answers);

    /* closing does not wait for it */
    struct job *more = new_jobs(2);
    for (uint32_t i = 0; i < 2; i++) {
        make_request(&more[i], 0, 75);
        more[i].r.ignore_end = 1;
        worker_submit(w, &more[i].task, &more[i].r);
    }
    wait_until_stuck(w);
    worker_close(w);
    assert_int_equal(more[0].n_ends + more[1].n_ends, 2);
    assert_int_equal(more[1].error.status, BITNET_E_CANCELLED);
    check_engine(e);
    bitnet_engine_close(e);
    free(jobs);
    free(more);
}

static void a_step_that_fails_ends_all(void **state)
{
    (void)state;
    enum { N = 4 };
    static int32_t tokens[N_INPUTS][MAX_PROMPT];
    bitnet_embed_input in[N_INPUTS];
    float *got = calloc(N_INPUTS * info.shape.n_embd, sizeof *got);
    assert_non_null(got);
    make_inputs(tokens, in);
    bitnet_engine *e = small_engine(2, 96);
    /* pages that no answer can get */
    assert_int_equal(bitnet_eval(e, 0, tokens[1], 60, 1, NULL, NULL), BITNET_OK);
    struct worker *w = open_worker(e, false, 0);
    struct job *jobs = new_jobs(N);
    for (uint32_t i = 0; i < 2; i++) {
        make_request(&jobs[i], 1 + i, 4);
        worker_submit(w, &jobs[i].task, &jobs[i].r);
    }
    worker_embed(w, &jobs[2].task, in + 1, 1, NULL, got);
    finish_jobs(w, jobs, 3);
    assert_int_equal(state_of(w).broken.status, BITNET_E_STATE);
    worker_submit(w, &jobs[3].task, &jobs[3].r);
    finish_jobs(w, jobs, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(jobs[i].n_failed, 1);
        assert_string_equal(jobs[i].error.text, state_of(w).broken.text);
        assert_non_null(strstr(jobs[i].error.text, "hold 2 of 3 pages"));
    }
    worker_close(w);
    assert_int_equal(bitnet_eval_reset(e, 0, NULL), BITNET_OK);
    check_engine(e);

    /* the warm-up finds out, too */
    assert_int_equal(bitnet_eval(e, 0, tokens[1], 90, 1, NULL, NULL), BITNET_OK);
    w = open_worker(e, true, 0);
    wait_until(state_of(w).broken.status);
    assert_false(state_of(w).ready);
    worker_close(w);
    assert_int_equal(bitnet_eval_reset(e, 0, NULL), BITNET_OK);
    check_engine(e);
    bitnet_engine_close(e);
    free(jobs);
    free(got);
}

static void what_the_engine_refuses_fails(void **state)
{
    (void)state;
    bitnet_engine *e = small_engine(1, 0);
    struct worker *w = open_worker(e, false, 0);
    struct job *job = new_jobs(1);
    make_request(job, 1, 4);
    job->prompt[0] = -1;
    worker_submit(w, &job->task, &job->r);
    finish_jobs(w, job, 1);
    assert_int_equal(job->error.status, BITNET_E_ARG);
    assert_non_null(strstr(job->error.text, "token 0 is -1"));
    worker_close(w);
    check_engine(e);
    bitnet_engine_close(e);
    free(job);
}

/* ------------------------------------------------------------------ looking */

static void states_and_rest(void **state)
{
    (void)state;
    bitnet_engine *e = small_engine(2, 0);
    struct worker *w = open_worker(e, true, 1000);
    struct job *jobs = new_jobs(4);
    struct worker_layer *layers = calloc(info.shape.n_layer, sizeof *layers);
    struct worker_state s;
    assert_non_null(layers);
    wait_until(state_of(w).ready);
    s = state_of(w);
    assert_true(s.engine.work.steps == 0 && s.engine.prefix.queries == 0);
    assert_int_equal(s.health.choices, 0); /* the warm-up is nobody's */
    assert_int_equal(n_steps, 0);
    uint64_t asked_ns = bn_now_ns();
    for (uint32_t i = 0; i < 4; i++) {
        make_request(&jobs[i], i, 40);
        worker_submit(w, &jobs[i].task, &jobs[i].r);
    }
    finish_jobs(w, jobs, 4);
    /* what is left to look at, and one pass over the weights after a second of rest */
    wait_until((worker_get_state(w, &s, layers),
                s.scrub.passes && layers[info.shape.n_layer - 1].kv.rows));
    assert_true(bn_now_ns() - asked_ns - s.engine.work.step_ns > UINT64_C(1000000000));
    assert_int_equal(s.n_layers, info.shape.n_layer);
    assert_ptr_equal(s.layers, layers);
    assert_int_equal(s.engine.n_running + s.engine.n_waiting, 0);
    assert_int_equal(s.health.scrub_passes, s.scrub.passes);
    assert_int_equal(s.scrub.mismatches, 0);
    assert_true(s.engine.work.generated_tokens > 4 * 30 && s.health.choices > 0);
    for (uint32_t i = 0; i < info.shape.n_layer; i++) {
        assert_true(layers[i].kv.rows > 0 && layers[i].kv.keys.entropy_bits > 1);
        assert_true(layers[i].ffn.sampled > 0);
    }
    uint64_t ns = bn_now_ns(); /* a task is taken up at once */
    memset(jobs[0].answers, 0, sizeof jobs[0].answers);
    jobs[0].n_ends = jobs[0].n_over = 0;
    worker_submit(w, &jobs[0].task, &jobs[0].r);
    finish_jobs(w, jobs, 1);
    assert_true(jobs[0].queue_ns < bn_now_ns() - ns);
    worker_close(w);
    bitnet_engine_close(e);
    free(jobs);
    free(layers);
}

/* The thread is called "engine" and takes no signals. */
static void the_thread_keeps_to_itself(void **state)
{
    (void)state;
    bitnet_engine *e = small_engine(1, 0);
    struct worker *w = open_worker(e, true, 0);
    wait_until(state_of(w).ready);
    DIR *d = opendir("/proc/self/task");
    int found = 0;
    assert_non_null(d);
    for (struct dirent *t; (t = readdir(d));) {
        char path[300], line[256] = "";
        bool named = false;
        unsigned long long blocked = 0;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", t->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            named |= strcmp(line, "Name:\tengine\n") == 0;
            sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (f) fclose(f);
        if (!named) continue;
        found++;
        assert_true(blocked >> (SIGTERM - 1) & blocked >> (SIGHUP - 1) & blocked >> (SIGINT - 1) &
                    1);
    }
    closedir(d);
    assert_int_equal(found, 1);
    worker_close(w);
    bitnet_engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_a_plain_loop),
        cmocka_unit_test(two_hundred_at_once),
        cmocka_unit_test(cancelled_in_every_phase),
        cmocka_unit_test(cancelled_at_any_time),
        cmocka_unit_test(embeddings_are_those_of_a_plain_call),
        cmocka_unit_test(embeddings_that_cannot_be),
        cmocka_unit_test(closing_ends_every_task_once),
        cmocka_unit_test(nobody_delivers_for_a_while),
        cmocka_unit_test(a_step_that_fails_ends_all),
        cmocka_unit_test(what_the_engine_refuses_fails),
        cmocka_unit_test(states_and_rest),
        cmocka_unit_test(the_thread_keeps_to_itself),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
