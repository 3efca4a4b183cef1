/* SPDX-License-Identifier: Apache-2.0
 * Two thousand requests of the Azure trace through the scheduler in simulated time, as if one 2B-4T
 * model on two cores answered them, at several settings: prints how long first tokens and next
 * tokens took to come (the table of docs/inside/engine.md), and checks that nobody starved and that
 * targets for steps were kept. */
#include "sched_sim.h"

#include <math.h>

/* The trace came from many machines; on one, arrivals are this much further apart. */
static const double STRETCH[] = {100, 60};

enum { MAX_ROWS = 2000, SEQS = 16, CTX = 4096 };

/* What a step costs (docs/log/peers.md, 2B-4T shape, 2 threads): 49 tok/s decoding alone, 95 for
 * eight together, 198 and 193 reading prompts of 128 and 512 tokens, 3.7 ms more a token of an
 * answer behind 1,000 tokens. */
static const double STEP_MS = 11.2, ANSWER_MS = 9.2, PROMPT_MS = 4.9;
static const double ANSWER_DEPTH_MS = 3.7e-3, PROMPT_DEPTH_MS = 1.2e-3;

struct request {
    struct sim_job sim;
    double arrival_ms, last_ms;
    uint32_t added, ended; /* steps */
};

struct setting {
    uint32_t batch, target_ms, pages;
};

struct replay {
    struct sim sim;
    struct request req[MAX_ROWS];
    uint32_t n, n_added, n_ended, n_steps;
    double now_ms, busy_ms;
    double first_ms[MAX_ROWS];
    double *next_ms; /* [all tokens of answers] */
    uint32_t n_first, n_next;
    uint32_t n_cut, n_kept; /* steps whose prompts were cut for a target; within 15 % of it */
    struct bn_rng rng;
};

static double seconds_of_day(const char *stamp)
{
    unsigned h = 0, m = 0;
    double s = 0;
    assert_int_equal(sscanf(stamp, "%*10s %u:%u:%lf", &h, &m, &s), 3);
    return h * 3600 + m * 60 + s;
}

static void read_trace(struct replay *r, double stretch)
{
    FILE *f = fopen(TEST_DATA "/prompts/azure_conv_2000.csv", "r");
    assert_non_null(f);
    char line[128];
    assert_non_null(fgets(line, sizeof line, f)); /* names */
    double begin = 0;
    for (r->n = 0; r->n < MAX_ROWS && fgets(line, sizeof line, f); r->n++) {
        struct request *q = &r->req[r->n];
        unsigned prompt, answer;
        assert_int_equal(sscanf(line, "%*[^,],%u,%u", &prompt, &answer), 2);
        if (answer > CTX / 2) answer = CTX / 2;
        if (prompt > CTX - answer) prompt = CTX - answer;
        q->sim = (struct sim_job){.prompt = prompt, .answer = answer};
        sim_job_init(&q->sim);
        double s = seconds_of_day(line);
        if (r->n == 0) begin = s;
        q->arrival_ms = (s - begin) * 1e3 * stretch;
    }
    fclose(f);
    assert_int_equal(r->n, MAX_ROWS);
}

/* The planned step's time: up to 5 % off, one in 500 steps three times as long. */
static double step_ms(struct replay *r)
{
    double ms = STEP_MS;
    for (const struct bn_sched_job *j = bn_sched_running(r->sim.s); j; j = j->next) {
        bool answer = j->n_tokens - j->n_done == 1;
        double depth = j->n_done + 0.5 * j->take;
        ms += j->take *
              (answer ? ANSWER_MS + ANSWER_DEPTH_MS * depth : PROMPT_MS + PROMPT_DEPTH_MS * depth);
    }
    ms *= 0.95 + 0.1 * bn_rng_unit(&r->rng);
    return bn_rng_below(&r->rng, 500) ? ms : 3 * ms;
}

/* Was this a step with answers whose prompts were cut, and not to the least? */
static bool is_cut(const struct replay *r)
{
    uint32_t answers = 0, prompts = 0, taken = 0, want = 0;
    for (const struct bn_sched_job *j = bn_sched_running(r->sim.s); j; j = j->next) {
        bool answer = j->n_tokens - j->n_done == 1;
        answers += answer;
        prompts += !answer;
        taken += answer ? 0 : j->take;
        want += answer ? 0 : j->n_tokens - j->n_done;
    }
    return answers && taken < want && taken > 16 && taken > prompts;
}

static void add_arrived(struct replay *r)
{
    while (r->n_added < r->n && r->req[r->n_added].arrival_ms <= r->now_ms) {
        r->req[r->n_added].added = r->n_steps;
        bn_sched_add(r->sim.s, &r->req[r->n_added++].sim.job);
    }
}

static void token_came(struct replay *r, struct request *q)
{
    if (q->sim.answered == 1) r->first_ms[r->n_first++] = r->now_ms - q->arrival_ms;
    else r->next_ms[r->n_next++] = r->now_ms - q->last_ms;
    q->last_ms = r->now_ms;
}

static void advance_all(struct replay *r)
{
    struct bn_sched_job *next;
    for (struct bn_sched_job *j = bn_sched_running(r->sim.s); j; j = next) {
        struct request *q = (struct request *)j;
        next = j->next;
        uint32_t before = q->sim.answered;
        bool done = sim_advance(&q->sim, 0);
        if (q->sim.answered > before) token_came(r, q);
        if (!done) continue;
        sim_remove(&r->sim, &q->sim);
        q->ended = r->n_steps + 1;
        r->n_ended++;
    }
}

/* The first bound in the head of sched.c. */
static void check_bound(const struct replay *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t bound = sim_steps_alone(&r->sim, &r->req[i].sim);
        for (uint32_t k = 0; k < i; k++)
            if (r->req[k].ended > r->req[i].added)
                bound += sim_steps_alone(&r->sim, &r->req[k].sim);
        assert_true(r->req[i].ended - r->req[i].added <= bound);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const double *sorted, uint32_t n, double p)
{
    return sorted[(uint32_t)(p * (n - 1) + 0.5)];
}

static void report(struct replay *r, const struct setting *set)
{
    double *f = r->first_ms, *x = r->next_ms;
    qsort(f, r->n_first, sizeof *f, by_value);
    qsort(x, r->n_next, sizeof *x, by_value);
    printf("| %.0f | %u | ", r->n / (r->req[r->n - 1].arrival_ms / 3.6e6), set->batch);
    if (set->target_ms) printf("%u | %.1f %% | ", set->target_ms, 100.0 * r->n_kept / r->n_cut);
    else printf("– | – | ");
    printf("%u | %.2f | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %.0f | %llu |\n", set->pages,
           r->busy_ms / r->now_ms, percentile(f, r->n_first, 0.5) / 1e3,
           percentile(f, r->n_first, 0.95) / 1e3, percentile(f, r->n_first, 0.99) / 1e3,
           percentile(x, r->n_next, 0.5), percentile(x, r->n_next, 0.95),
           percentile(x, r->n_next, 0.99), x[r->n_next - 1],
           (unsigned long long)bn_sched_stats(r->sim.s)->preemptions);
}

/* What is planned happens. */
static void step(struct replay *r, uint32_t target_ms)
{
    double ms = step_ms(r);
    bool cut = target_ms && is_cut(r);
    r->n_cut += cut;
    r->n_kept += cut && ms < 1.15 * target_ms;
    bn_sched_took(r->sim.s, (uint64_t)(ms * 1e6));
    r->now_ms += ms;
    r->busy_ms += ms;
    advance_all(r);
    r->n_steps++;
}

static void run(struct replay *r, double stretch, const struct setting *set)
{
    *r = (struct replay){.rng = {1}};
    read_trace(r, stretch);
    r->next_ms = malloc(MAX_ROWS * CTX / 2 * sizeof *r->next_ms);
    assert_non_null(r->next_ms);
    struct bn_sched_limits limits = {.max_seqs = SEQS,
                                     .max_batch_tokens = set->batch,
                                     .step_target_ns = set->target_ms * 1000000ull};
    sim_open(&r->sim, &limits, set->pages);
    while (r->n_ended < r->n) {
        add_arrived(r);
        if (sim_plan(&r->sim)) step(r, set->target_ms);
        else r->now_ms = r->req[r->n_added].arrival_ms; /* idle until the next comes */
    }
    report(r, set);
    check_bound(r);
    assert_int_equal(r->n_first, r->n);
    assert_true(r->n_kept >= 0.95 * r->n_cut);
    if (set->target_ms) assert_true(percentile(r->next_ms, r->n_next, 0.99) < 1.2 * set->target_ms);
    bn_sched_close(r->sim.s);
    free(r->next_ms);
}

static void azure(void **state)
{
    (void)state;
    enum { ALL = SEQS * CTX / SIM_PAGE_TOKENS };
    static const struct setting settings[] = {
        {CTX, 0, ALL},                                      /* prompts whole */
        {512, 0, ALL},                                      /* in pieces */
        {64, 0, ALL},                                       /* in small pieces */
        {512, 1000, ALL},                                   /* as a target has it */
        {512, 500, ALL},  {512, 250, ALL}, {512, 250, 512}, /* and memory for four long ones */
    };
    static struct replay r;
    printf("| requests/h | batch | target ms | kept | pages | busy | first: p50 s | p95 | p99 | "
           "next: p50 ms | p95 | p99 | max | preempted |\n"
           "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n");
    for (size_t i = 0; i < BN_ARRAY_LEN(STRETCH); i++)
        for (size_t k = 0; k < BN_ARRAY_LEN(settings); k++) run(&r, STRETCH[i], &settings[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(azure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
