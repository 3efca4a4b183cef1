/* SPDX-License-Identifier: Apache-2.0
 *
 * profile/run.c: the run: some prompts are read together, then each of their answers grows by so
 * many tokens. Once to warm up, once to be looked at. Around every step of the latter stands our
 * own clock, which the engine's account is compared with.
 */
#include "base/threads/bandwidth.h"
#include "app/machine_report.h"
#include "base/clock.h"
#include "base/machine/cores.h"
#include "base/os/mem.h"
#include "cli/profile/heap_count.h"
#include "app/interrupt.h"
#include "cli/profile/profile.h"
#include "app/term.h"
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
    BANDWIDTH_PASSES = 3,
    KERNEL_RUNS = 12,
    CLOCK_EVERY_NS = 100000000,
    BATCH_TOKENS = 512 /* of an engine that was told nothing else */
};

void profile_note(struct profile *p, const char *fmt, ...)
{
    if (p->n_notes == PROFILE_NOTES_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->notes[p->n_notes++], sizeof p->notes[0], fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ requests */

struct requests {
    struct profile *p;
    bool keep; /* not to warm up */
    uint64_t ids[PROFILE_BATCH_MAX];
    uint32_t n, n_started, n_ended, n_decode_steps;
    bitnet_event *events; /* [room] */
    size_t room;
    bitnet_profile_info before; /* the step in progress */
};

/* Steps that read prompts also bring tokens to those whose prompt has been read: with this many
 * more an answer does not end before the others have their share. */
static uint32_t spare_tokens(const struct profile_settings *s, uint32_t batch_tokens)
{
    return s->batch + (uint32_t)bn_div_up((size_t)s->batch * s->prompt_tokens, batch_tokens);
}

static bitnet_status submit_all(struct requests *q, bitnet_error *err)
{
    const struct profile_settings *s = q->p->settings;
    const bitnet_engine_info *e = &q->p->engine_info;
    size_t n_new = (size_t)s->new_tokens + spare_tokens(s, e->max_batch_tokens);
    int32_t *tokens = bn_calloc(s->prompt_tokens, sizeof *tokens);
    if (!tokens) return bn_fail_nomem(err, s->prompt_tokens * sizeof *tokens, "a prompt");
    bitnet_status status = BITNET_OK;
    for (q->n = 0; status == BITNET_OK && q->n < s->batch; q->n++) {
        bitnet_request r;
        prompts_make(&q->p->prompts, tokens, s->prompt_tokens);
        bitnet_request_init(&r, sizeof r);
        r.tokens = tokens;
        r.n_tokens = s->prompt_tokens;
        r.max_new_tokens = (uint32_t)bn_min_size(n_new, e->ctx_tokens - s->prompt_tokens);
        r.sampling.temperature = 0;
        r.ignore_end = 1;
        status = bitnet_submit(q->p->engine, &r, &q->ids[q->n], err);
    }
    free(tokens);
    return status;
}

static bitnet_status take_events(struct requests *q, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const bitnet_event *e = &q->events[i];
        if (e->finish == BITNET_FINISH_ERROR)
            return bn_fail(err, BITNET_E_INTERNAL, "%s", e->error ? e->error : "a request failed");
        q->n_ended += e->finish != BITNET_FINISH_NONE;
        q->n_started += e->token >= 0 && e->n_generated == 1;
    }
    return BITNET_OK;
}

/* A look at the clock from outside of a step; the clock comes next to the step. */
struct moment {
    struct rusage usage;
    uint64_t heap_calls, ns;
};

static void look_before(struct moment *m)
{
    getrusage(RUSAGE_SELF, &m->usage);
    m->heap_calls = heap_count();
    m->ns = bn_now_ns();
}

static void look_after(struct moment *m)
{
    m->ns = bn_now_ns();
    m->heap_calls = heap_count();
    getrusage(RUSAGE_SELF, &m->usage);
}

/* The step that has just been computed: which phase it was in is the engine's word. */
static bitnet_status keep_step(struct requests *q, const struct moment *from,
                               const struct moment *to, bitnet_error *err)
{
    struct profile *p = q->p;
    bitnet_profile_info now = {.size = sizeof now};
    bitnet_profile_get_info(p->engine, &now, NULL);
    bitnet_phase phase =
        now.phases[BITNET_PHASE_DECODE].steps > q->before.phases[BITNET_PHASE_DECODE].steps
            ? BITNET_PHASE_DECODE
            : BITNET_PHASE_PREFILL;
    struct profile_phase *x = &p->phases[phase];
    uint64_t tokens = now.phases[phase].tokens - q->before.phases[phase].tokens;
    x->n_steps++;
    x->n_tokens += tokens;
    x->wall_ns += to->ns - from->ns;
    x->minor_faults += (uint64_t)(to->usage.ru_minflt - from->usage.ru_minflt);
    x->major_faults += (uint64_t)(to->usage.ru_majflt - from->usage.ru_majflt);
    x->switches += (uint64_t)(to->usage.ru_nvcsw - from->usage.ru_nvcsw);
    x->switches_forced += (uint64_t)(to->usage.ru_nivcsw - from->usage.ru_nivcsw);
    x->heap_calls += to->heap_calls - from->heap_calls;
    q->before = now;
    if (!bn_grow((void **)&p->steps, &p->steps_room, p->n_steps + 1, sizeof *p->steps))
        return bn_fail_nomem(err, (p->n_steps + 1) * sizeof *p->steps, "the times of steps");
    p->steps[p->n_steps++] =
        (struct profile_step){from->ns, to->ns - from->ns, (uint32_t)tokens, phase};
    return BITNET_OK;
}

static bitnet_status step(struct requests *q, bitnet_error *err)
{
    struct moment from, to;
    size_t n = q->room;
    look_before(&from);
    BN_TRY(bitnet_step(q->p->engine, q->events, &n, err));
    look_after(&to);
    if (n == 0) return bn_fail(err, BITNET_E_INTERNAL, "the engine lost a request");
    if (q->keep) BN_TRY(keep_step(q, &from, &to, err));
    return take_events(q, n, err);
}

/* ------------------------------------------------------------------ beside the steps */

static void read_gauges(struct profile *p, struct profile_gauges *g)
{
    bitnet_profile_info now = {.size = sizeof now};
    bitnet_profile_get_info(p->engine, &now, NULL);
    *g = (struct profile_gauges){.marks = now.marks, .joules = sensors_energy_read(&p->energy)};
    counters_read(&p->counters, g->counters);
    if (!sensors_throttled(&g->throttled, "", &p->cpus)) g->throttled = -1;
    g->at_ns = bn_now_ns();
}

/* Between steps and by the same thread: a thread of its own would take a CPU from the workers. */
static void sample_clock(struct profile *p)
{
    uint64_t now_ns = bn_now_ns();
    if (p->n_clocks == PROFILE_CLOCKS_MAX ||
        (p->n_clocks && now_ns - p->clocks[p->n_clocks - 1].at_ns < CLOCK_EVERY_NS))
        return;
    struct profile_clock *c = &p->clocks[p->n_clocks];
    p->clock_source = sensors_clock(&c->clock, "", &p->cpus);
    c->at_ns = now_ns;
    p->n_clocks += p->clock_source != SENSOR_NONE;
}

/* ------------------------------------------------------------------ the run */

static bitnet_status grow(struct requests *q, struct term_progress *bar, bitnet_error *err)
{
    struct profile *p = q->p;
    uint32_t n_new = p->settings->new_tokens;
    struct profile_phase *prefill = &p->phases[BITNET_PHASE_PREFILL],
                         *decode = &p->phases[BITNET_PHASE_DECODE];
    if (q->keep) read_gauges(p, &prefill->from);
    while (q->n_decode_steps < n_new && q->n_ended < q->n) {
        if (term_progress_show(bar, q->keep ? "profile" : "warm-up", q->n_decode_steps, n_new))
            return bn_fail(err, BITNET_E_CANCELLED, "interrupted");
        if (q->keep) sample_clock(p);
        bool reading = q->n_started < q->n;
        BN_TRY(step(q, err));
        q->n_decode_steps += !reading;
        if (q->keep && reading && q->n_started == q->n) {
            read_gauges(p, &prefill->to);
            decode->from = prefill->to;
        }
    }
    if (q->keep) read_gauges(p, &decode->to);
    return BITNET_OK;
}

/* What is left of the answers ends. */
static bitnet_status end_all(struct requests *q, bitnet_error *err)
{
    for (uint32_t i = 0; i < q->n; i++)
        bitnet_cancel(q->p->engine, q->ids[i]); /* or it has ended */
    size_t n;
    do {
        n = q->room;
        BN_TRY(bitnet_step(q->p->engine, q->events, &n, err));
    } while (n);
    return BITNET_OK;
}

static bitnet_status run_requests(struct profile *p, bool keep, bitnet_error *err)
{
    struct term_progress bar = {0};
    struct requests q = {.p = p, .keep = keep, .before.size = sizeof q.before};
    q.room = 2 * (size_t)p->engine_info.max_seqs; /* of one step: a token, and the end */
    q.events = bn_calloc(q.room, sizeof *q.events);
    if (!q.events) return bn_fail_nomem(err, q.room * sizeof *q.events, "events");
    q.events->size = sizeof *q.events;
    bitnet_profile_reset(p->engine);
    bitnet_status s = submit_all(&q, err);
    if (s == BITNET_OK) s = grow(&q, &bar, err);
    if (s == BITNET_OK && keep) s = profile_sum_up(p, err); /* before the answers end */
    if (s == BITNET_OK) s = end_all(&q, err);
    term_progress_end(&bar);
    free(q.events);
    return s;
}

static bitnet_status open_engine(struct profile *p, bitnet_error *err)
{
    const struct profile_settings *s = p->settings;
    bitnet_engine_options o = s->engine;
    uint32_t spare = spare_tokens(s, o.max_batch_tokens ? o.max_batch_tokens : BATCH_TOKENS);
    size_t need = (size_t)s->prompt_tokens + s->new_tokens + spare;
    if (!o.ctx_tokens) o.ctx_tokens = (uint32_t)bn_min_size(need, p->info.shape.n_ctx_train);
    if ((size_t)s->prompt_tokens + s->new_tokens >= o.ctx_tokens)
        return bn_fail(err, BITNET_E_ARG,
                       "a prompt of %u tokens and %u new ones do not fit a context of %u",
                       s->prompt_tokens, s->new_tokens, o.ctx_tokens);
    o.max_seqs = s->batch;
    o.prefix_cache = o.draft = "off"; /* every token is computed, one a step */
    o.profile = s->trace ? "trace" : "on";
    counters_open(&p->counters); /* before there are threads to be counted */
    p->counting = true;
    BN_TRY(model_adapted_open(&p->engine, &p->adapters, p->model, &o, &s->adapters, false, err));
    p->engine_info.size = sizeof p->engine_info;
    bitnet_engine_get_info(p->engine, &p->engine_info);
    return BITNET_OK;
}

static bitnet_status open_rest(struct profile *p, bitnet_error *err)
{
    p->clocks = bn_calloc(PROFILE_CLOCKS_MAX, sizeof *p->clocks);
    if (!p->clocks)
        return bn_fail_nomem(err, PROFILE_CLOCKS_MAX * sizeof *p->clocks, "samples of the clock");
    bn_cpus_allowed(&p->cpus);
    prompts_open(&p->prompts, p->model, p->settings->seed);
    sensors_energy_open(&p->energy, "");
    return BITNET_OK;
}

static bitnet_status measure_bandwidth(struct profile *p, bitnet_error *err)
{
    struct bn_bandwidth *memory = NULL;
    p->peak_rss_bytes = term_peak_rss_bytes(); /* before the buffer comes */
    BN_TRY(bn_bandwidth_open(&memory, p->engine_info.threads, 0, err));
    for (int i = 0; i < BANDWIDTH_PASSES; i++) {
        double v = bn_bandwidth_read(memory);
        if (v > p->bandwidth) p->bandwidth = v;
    }
    bn_bandwidth_close(memory);
    return BITNET_OK;
}

/* Is it what prompts take? With activations in groups, as int8 or int16, all cases are from memory,
 * which is no limit for many tokens. */
static bool is_case_of_prefill(const struct profile *p, const bitnet_kernel_case *c)
{
    char planes[16];
    snprintf(planes, sizeof planes, " %s,", p->info.act_quant);
    if (p->info.layout[0] == 'g') return c->chosen && strstr(c->work, planes);
    return c->chosen && bn_ends_with(c->work, "cache");
}

/* The limit of prefill, where matrices are read once for many tokens: the kernel of the largest one
 * on the most tokens, its weights in the cache, as often as there are threads. */
static void measure_kernel(struct profile *p)
{
    bitnet_error err = {0};
    bitnet_kernel_timer *t = NULL;
    bitnet_kernel_case c = {.size = sizeof c};
    char op[32];
    size_t best = 0;
    double macs = 0;
    snprintf(op, sizeof op, "gemm_%s", p->info.layout);
    if (strcmp(p->info.act_quant, "f32") == 0 ||
        bitnet_kernel_timer_open(&t, p->model, op, &err) != BITNET_OK) {
        profile_note(p,
                     "prefill is not compared with its kernel: matrices are of layout '%s' with %s "
                     "activations",
                     p->info.layout, p->info.act_quant);
        return;
    }
    for (size_t i = 0; bitnet_kernel_timer_case(t, i, &c); i++) {
        if (!is_case_of_prefill(p, &c) || c.macs <= macs) continue;
        best = i;
        macs = c.macs;
    }
    double ns = 0;
    for (int i = 0; macs > 0 && i < KERNEL_RUNS; i++) { /* the first one also fetches its memory */
        double took = bitnet_kernel_timer_run(t, best);
        if (i == 0 || took < ns) ns = took;
    }
    if (ns > 0) p->kernel_macs_per_s = macs / ns * 1e9 * p->engine_info.threads;
    bitnet_kernel_timer_close(t);
}

static void note_what_is_missing(struct profile *p)
{
    if (p->prof.spans_lost)
        profile_note(
            p,
            "the trace ends early: %llu spans found no room, and %llu of a worker have it; "
            "take fewer tokens (-n)",
            (unsigned long long)p->prof.spans_lost, (unsigned long long)p->prof.spans_room);
    if (p->clock_source == SENSOR_CPUINFO)
        profile_note(p,
                     "the CPU's clock is what /proc/cpuinfo says: without cpufreq, as in virtual "
                     "machines, that may never change");
}

bitnet_status profile_run(struct profile *p, bitnet_error *err)
{
    p->info.size = sizeof p->info;
    bitnet_model_get_info(p->model, &p->info);
    BN_TRY(open_engine(p, err));
    BN_TRY(open_rest(p, err));
    BN_TRY(bitnet_engine_warmup(p->engine, err));
    BN_TRY(run_requests(p, false, err));
    struct machine_clock from = machine_clock_now();
    BN_TRY(run_requests(p, true, err));
    struct machine_clock to = machine_clock_now();
    p->others = machine_others(&from, &to);
    BN_TRY(measure_bandwidth(p, err));
    measure_kernel(p);
    note_what_is_missing(p);
    return BITNET_OK;
}

void profile_free(struct profile *p)
{
    bitnet_engine_close(p->engine);
    adapters_close(&p->adapters);
    if (p->counting) counters_close(&p->counters);
    prompts_close(&p->prompts);
    for (int i = 0; i < PROFILE_PHASES; i++) {
        free(p->phases[i].by_row);
        free(p->phases[i].by_worker);
    }
    free(p->steps);
    free(p->clocks);
    *p = (struct profile){0};
}
