/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/run.c: the measurements. They are taken in rounds: every measurement once, then a reading
 * of the memory's bandwidth, then the next round. So whatever the machine does meanwhile falls on
 * all of them alike and shows in the spread of the repeats instead of in one of the lines.
 */
#include "base/threads/bandwidth.h"
#include "app/machine_report.h"
#include "base/clock.h"
#include "base/os/mem.h"
#include "cli/bench/bench.h"
#include "app/interrupt.h"
#include "app/term.h"
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    PROMPT_TOKENS = 8, /* of a request whose decoding is measured */
    DEPTH_TOKENS = 32, /* generated at each depth */
    BANDWIDTH_PASSES = 3
};
static const double busy_average = 0.5; /* load average a core above which a note is made */
static const double busy_others = 0.05, wide_spread = 0.10;

const char *bench_mode_name(enum bench_mode m)
{
    static const char *const names[] = {"stream", "prefill", "batch", "depth", "kernels", "kv"};
    return (unsigned)m < BN_ARRAY_LEN(names) ? names[m] : "unknown";
}

void bench_note(struct bench *b, const char *fmt, ...)
{
    if (b->n_notes == BENCH_NOTES_MAX) return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b->notes[b->n_notes++], sizeof b->notes[0], fmt, ap);
    va_end(ap);
}

/* ------------------------------------------------------------------ the plan */

static void plan(struct bench *b, enum bench_mode mode, uint32_t at, uint32_t n_new)
{
    struct bench_measurement *m = &b->items[b->n_items];
    *m = (struct bench_measurement){.mode = mode, .at = at, .n_new = n_new};
    snprintf(m->name, sizeof m->name, mode == BENCH_STREAM ? "%s" : "%s %u", bench_mode_name(mode),
             at);
    for (size_t i = 0; i < b->n_items; i++)
        if (strcmp(b->items[i].name, m->name) == 0) return; /* asked for twice */
    b->n_items++;
}

static int smaller_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* What does not fit the context is replaced by the deepest point that does. */
static void plan_depths(struct bench *b, uint32_t ctx)
{
    struct opt_u32s at = b->settings->depths;
    uint32_t n_new = (uint32_t)bn_min_size(b->settings->max_new_tokens, DEPTH_TOKENS);
    n_new = (uint32_t)bn_min_size(n_new, ctx - 1);
    qsort(at.items, at.n, sizeof *at.items, smaller_first);
    for (size_t i = 0; i < at.n; i++)
        plan(b, BENCH_DEPTH, (uint32_t)bn_min_size(at.items[i], ctx - n_new), n_new);
}

/* The context that one sequence needs: what was asked for, as far as the model goes. */
static uint32_t choose_ctx(const struct bench *b)
{
    const struct bench_settings *s = b->settings;
    if (s->engine.ctx_tokens) return s->engine.ctx_tokens;
    size_t need = PROMPT_TOKENS + s->max_new_tokens;
    for (size_t i = 0; s->modes[BENCH_PREFILL] && i < s->prompt_tokens.n; i++)
        need = bn_max_size(need, s->prompt_tokens.items[i]);
    for (size_t i = 0; s->modes[BENCH_DEPTH] && i < s->depths.n; i++)
        need = bn_max_size(need, (size_t)s->depths.items[i] + DEPTH_TOKENS);
    return (uint32_t)bn_min_size(need, b->info.shape.n_ctx_train);
}

static bitnet_status make_plan(struct bench *b, uint32_t ctx, bitnet_error *err)
{
    const struct bench_settings *s = b->settings;
    uint32_t n_new = s->max_new_tokens;
    b->items = bn_calloc(BENCH_MEASUREMENTS_MAX, sizeof *b->items);
    if (!b->items) return bn_fail_nomem(err, sizeof *b->items, "the results");
    if (ctx < PROMPT_TOKENS + 2)
        return bn_fail(err, BITNET_E_ARG, "a context of %u tokens is too small: at least %d", ctx,
                       PROMPT_TOKENS + 2);
    if (n_new > ctx - PROMPT_TOKENS) {
        n_new = ctx - PROMPT_TOKENS;
        bench_note(b, "%u new tokens in place of %u: the context ends at %u", n_new,
                   s->max_new_tokens, ctx);
    }
    if (s->modes[BENCH_STREAM]) plan(b, BENCH_STREAM, 0, n_new);
    for (size_t i = 0; s->modes[BENCH_PREFILL] && i < s->prompt_tokens.n; i++) {
        uint32_t n = s->prompt_tokens.items[i];
        if (n <= ctx) plan(b, BENCH_PREFILL, n, 0);
        else bench_note(b, "no prefill of %u tokens: the context ends at %u", n, ctx);
    }
    for (size_t i = 0; s->modes[BENCH_BATCH] && i < s->batch_sizes.n; i++)
        plan(b, BENCH_BATCH, s->batch_sizes.items[i], n_new);
    if (s->modes[BENCH_DEPTH]) plan_depths(b, ctx);
    if (b->n_items == 0)
        return bn_fail(err, BITNET_E_ARG, "nothing is left to measure in a context of %u tokens",
                       ctx);
    return BITNET_OK;
}

/* The prompt of a request whose decoding is measured. Depth 0 has a token to begin with as well. */
static uint32_t prompt_length(const struct bench_measurement *m)
{
    if (m->mode != BENCH_DEPTH && m->mode != BENCH_KV) return PROMPT_TOKENS;
    return m->at ? m->at : 1;
}

/* Decoded in one step. */
static double sequences(const struct bench_measurement *m)
{
    return m->mode == BENCH_BATCH ? m->at : 1;
}

/* A decoding step reads all matrices once, the head or the copy that screens or replaces it once, and
 * every sequence's keys and values and its state. The few rows of the head that a screened step reads are not
 * counted. What feed-forward layers leave out is subtracted after the measurement, and what screening
 * read for refined rows is added. */
static double step_bytes(const struct bench *b, const struct bench_measurement *m)
{
    double kv_token = (double)(m->kv ? &m->kv->info : &b->single_info)->kv.token_bytes;
    double depth = prompt_length(m) + (m->n_new + 1) / 2.0; /* on average */
    bool copy = strcmp(b->single_info.head.type, "exact") != 0;
    uint64_t read = b->info.memory.head_screen_bytes ? b->info.memory.head_screen_bytes
                                                     : b->info.memory.head_copy_bytes;
    double head = (double)(copy ? read : b->info.memory.head_bytes);
    double state = 2.0 * (double)b->info.shape.state_bytes; /* read and written */
    return (double)b->info.memory.layer_bytes + head + sequences(m) * (depth * kv_token + state);
}

static double refined_bytes(const struct bench *b, const struct bench_measurement *m)
{
    double row = (double)(b->info.memory.head_copy_bytes - b->info.memory.head_screen_bytes) /
                 b->info.shape.n_vocab;
    return m->head_tokens > 0 ? sequences(m) * row * m->head_refined / m->head_tokens : 0;
}

static bitnet_status make_room(struct bench *b, bitnet_error *err)
{
    size_t repeats = b->settings->repeat;
    b->bandwidth = bn_calloc(repeats, sizeof *b->bandwidth);
    b->logits = bn_calloc(b->info.shape.n_vocab, sizeof *b->logits);
    bool ok = b->bandwidth && b->logits;
    for (size_t i = 0; ok && i < b->n_items; i++) {
        struct bench_measurement *m = &b->items[i];
        m->steps_room = repeats * m->n_new;
        m->rates = bn_calloc(repeats, sizeof *m->rates);
        m->first_ms = bn_calloc(repeats, sizeof *m->first_ms);
        m->step_ms = bn_calloc(m->steps_room + 1, sizeof *m->step_ms);
        m->bytes_per_step = m->n_new ? step_bytes(b, m) : 0;
        ok = m->rates && m->first_ms && m->step_ms;
    }
    return ok ? BITNET_OK
              : bn_fail_nomem(err, b->info.shape.n_vocab * sizeof *b->logits, "the results");
}

/* ------------------------------------------------------------------ prompts */

void bench_make_prompt(struct bench *b, int32_t *tokens, size_t n)
{
    prompts_make(&b->prompts, tokens, n);
}

static bitnet_status stop_if_interrupted(bitnet_error *err)
{
    return interrupt_pending() ? bn_fail(err, BITNET_E_CANCELLED, "interrupted") : BITNET_OK;
}

static double ms_since(uint64_t start_ns) { return (double)(bn_now_ns() - start_ns) / 1e6; }

/* ------------------------------------------------------------------ requests */

struct requests {
    bitnet_engine *engine;
    uint32_t n, n_started, n_finished;
    bitnet_event *events; /* [room] */
    size_t room;
    uint64_t start_ns;
    double first_ms, decode_ms;
    uint32_t n_decode_steps;
};

static bitnet_status submit_all(struct requests *q, struct bench *b,
                                const struct bench_measurement *m, bitnet_error *err)
{
    uint32_t n = prompt_length(m);
    int32_t *tokens = bn_calloc(n, sizeof *tokens);
    if (!tokens) return bn_fail_nomem(err, n * sizeof *tokens, "a prompt");
    bitnet_status s = BITNET_OK;
    q->start_ns = bn_now_ns();
    for (uint32_t i = 0; s == BITNET_OK && i < q->n; i++) {
        uint64_t id;
        bitnet_request r;
        bench_make_prompt(b, tokens, n);
        bitnet_request_init(&r, sizeof r);
        r.tokens = tokens;
        r.n_tokens = n;
        r.max_new_tokens = m->n_new;
        r.sampling.temperature = 0;
        r.ignore_end = 1;
        s = bitnet_submit(q->engine, &r, &id, err);
    }
    free(tokens);
    return s;
}

/* One step. It counts as decoding when every request took part with one token, and none with its
 * prompt. */
static bitnet_status step_all(struct requests *q, double *step_ms, bitnet_error *err)
{
    size_t n = q->room;
    uint32_t n_tokens = 0;
    bool all_started = q->n_started == q->n;
    uint64_t start_ns = bn_now_ns();
    BN_TRY(bitnet_step(q->engine, q->events, &n, err));
    double ms = ms_since(start_ns);
    if (n == 0) return bn_fail(err, BITNET_E_INTERNAL, "the engine lost a request");
    for (size_t i = 0; i < n; i++) {
        const bitnet_event *e = &q->events[i];
        if (e->finish == BITNET_FINISH_ERROR)
            return bn_fail(err, BITNET_E_INTERNAL, "%s", e->error ? e->error : "a request failed");
        q->n_finished += e->finish != BITNET_FINISH_NONE;
        if (e->token < 0) continue;
        n_tokens++;
        if (e->n_generated == 1 && q->n_started++ == 0) q->first_ms = ms_since(q->start_ns);
    }
    *step_ms = -1;
    if (!all_started || n_tokens != q->n) return BITNET_OK;
    *step_ms = ms;
    q->decode_ms += ms;
    q->n_decode_steps++;
    return BITNET_OK;
}

static bitnet_status measure_requests(struct bench *b, struct bench_measurement *m, bool keep,
                                      bitnet_error *err)
{
    bool one = m->mode != BENCH_BATCH;
    struct requests q = {.engine = one ? b->single : b->batch, .n = one ? 1 : m->at};
    /* all events of a step in one call: a token, and the end */
    q.room = 2 * (size_t)(one ? b->single_info.max_seqs : b->batch_info.max_seqs);
    q.events = bn_calloc(q.room, sizeof *q.events);
    if (!q.events) return bn_fail_nomem(err, q.room * sizeof *q.events, "events");
    q.events->size = sizeof *q.events;
    bitnet_status s = submit_all(&q, b, m, err);
    while (s == BITNET_OK && q.n_finished < q.n) {
        double step_ms;
        s = stop_if_interrupted(err);
        if (s == BITNET_OK) s = step_all(&q, &step_ms, err);
        if (s == BITNET_OK && keep && step_ms >= 0 && m->n_steps < m->steps_room)
            m->step_ms[m->n_steps++] = step_ms;
    }
    free(q.events);
    if (s == BITNET_OK && (q.n_decode_steps == 0 || q.decode_ms <= 0))
        s = bn_fail(err, BITNET_E_INTERNAL, "%s: no step had all %u requests in it", m->name, q.n);
    if (s != BITNET_OK || !keep) return s;
    m->rates[m->n_repeats] = (double)q.n * q.n_decode_steps * 1e3 / q.decode_ms;
    m->first_ms[m->n_repeats++] = q.first_ms;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ evaluation: prefill */

/* Appends n tokens of text to sequence 0. */
static bitnet_status read_tokens(struct bench *b, size_t n, bitnet_error *err)
{
    int32_t *tokens = bn_calloc(n, sizeof *tokens);
    if (!tokens) return bn_fail_nomem(err, n * sizeof *tokens, "a prompt");
    bench_make_prompt(b, tokens, n);
    bitnet_status s = bitnet_eval(b->single, 0, tokens, n, 1, b->logits, err);
    free(tokens);
    return s;
}

static bitnet_status measure_prefill(struct bench *b, struct bench_measurement *m, bool keep,
                                     bitnet_error *err)
{
    BN_TRY(bitnet_eval_reset(b->single, 0, err));
    uint64_t start_ns = bn_now_ns();
    BN_TRY(read_tokens(b, m->at, err));
    double ms = ms_since(start_ns);
    BN_TRY(bitnet_eval_reset(b->single, 0, err));
    if (!keep) return BITNET_OK;
    m->first_ms[m->n_repeats] = ms;
    m->rates[m->n_repeats++] = ms > 0 ? m->at * 1e3 / ms : 0;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ rounds */

bitnet_status bench_measure(struct bench *b, struct bench_measurement *m, bool keep,
                            bitnet_error *err)
{
    switch (m->mode) {
    case BENCH_STREAM:
    case BENCH_BATCH:
    case BENCH_DEPTH: return measure_requests(b, m, keep, err);
    case BENCH_PREFILL: return measure_prefill(b, m, keep, err);
    case BENCH_KERNELS: return bench_kernels_measure(b, m, keep, err);
    case BENCH_KV: return bench_kv_measure(b, m, keep, err);
    case BENCH_MODES: break;
    }
    return BITNET_OK;
}

/* With a sign, what the measurement's engine has counted so far is added up, so that two calls give
 * the difference: bytes of feed-forward matrices left out, and where the time went. */
static void count_engine(const struct bench *b, struct bench_measurement *m, double sign)
{
    bitnet_engine_info i = {.size = sizeof i};
    bitnet_engine_get_info(m->mode == BENCH_BATCH ? b->batch : b->single, &i);
    m->ffn_tokens += sign * (double)i.ffn.tokens;
    m->ffn_left_out += sign * ((double)i.ffn.dense_bytes - (double)i.ffn.read_bytes);
    m->head_tokens += sign * (double)(i.head.screened + i.head.fallbacks);
    m->head_refined += sign * (double)i.head.refined;
    m->step_ns += sign * (double)i.work.step_ns;
    m->forward_ns += sign * (double)i.work.forward_ns;
    m->steps += sign * (double)i.work.steps;
    m->exchanges += sign * (double)i.ranks.exchanges;
    m->exchange_ns += sign * (double)i.ranks.ns;
}

static bitnet_status run_round(struct bench *b, uint32_t round, struct term_progress *bar,
                               bitnet_error *err)
{
    bool keep = round >= b->settings->warmup;
    uint64_t total = (uint64_t)b->n_items * (b->settings->warmup + b->settings->repeat);
    for (size_t i = 0; i < b->n_items; i++) {
        struct bench_measurement *m = &b->items[i];
        if (term_progress_show(bar, m->name, (uint64_t)round * b->n_items + i, total))
            return stop_if_interrupted(err);
        count_engine(b, m, -1);
        BN_TRY(bench_measure(b, m, keep, err));
        count_engine(b, m, 1);
    }
    return BITNET_OK;
}

static bitnet_status run_rounds(struct bench *b, bitnet_error *err)
{
    struct bn_bandwidth *memory = NULL;
    struct term_progress bar = {0};
    bitnet_status s = BITNET_OK;
    uint32_t rounds = b->settings->warmup + b->settings->repeat;
    for (uint32_t round = 0; s == BITNET_OK && round < rounds; round++) {
        s = run_round(b, round, &bar, err);
        if (s != BITNET_OK) break;
        if (!memory) {
            b->peak_rss_bytes = term_peak_rss_bytes();
            s = bn_bandwidth_open(&memory, b->single_info.threads, 0, err);
            if (s != BITNET_OK) break;
            b->bandwidth_buffer_bytes = bn_bandwidth_bytes(memory);
        }
        double best = 0;
        for (int i = 0; i < BANDWIDTH_PASSES; i++) {
            double v = bn_bandwidth_read(memory);
            if (v > best) best = v;
        }
        if (round >= b->settings->warmup) b->bandwidth[b->n_bandwidth++] = best;
    }
    term_progress_end(&bar);
    bn_bandwidth_close(memory);
    return s;
}

/* With ranks: how much of a step is waiting for each other. */
static void note_ranks(struct bench *b)
{
    for (size_t i = 0; i < b->n_items; i++) {
        const struct bench_measurement *m = &b->items[i];
        if (!m->exchanges || !m->steps) continue;
        bench_note(b, "%s: ranks met %.0f times a step and waited %.2f of %.2f ms", m->name,
                   m->exchanges / m->steps, m->exchange_ns / m->steps / 1e6,
                   m->step_ns / m->steps / 1e6);
    }
}

static void judge(struct bench *b, const struct machine_clock *from)
{
    struct machine_clock to = machine_clock_now();
    b->load.others = machine_others(from, &to);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t cores = b->load.cores = online > 0 ? (uint32_t)online : 1;
    /* on a machine with cores to spare, others may work without being in the way */
    b->load.disturbed =
        b->load.others > busy_others && b->load.others * cores + b->single_info.threads > cores;
    if (b->load.average > busy_average * cores)
        bench_note(b, "the machine was busy at the start: load average %.1f on %u core%s",
                   b->load.average, cores, cores == 1 ? "" : "s");
    if (b->load.disturbed)
        bench_note(b, "other programs used %.0f %% of the machine meanwhile", b->load.others * 100);
    double *scratch = bn_calloc(b->settings->repeat, sizeof *scratch), worst = 0;
    size_t n_wide = 0;
    if (scratch) b->read_bandwidth = stats_summarize(b->bandwidth, b->n_bandwidth, scratch).median;
    for (size_t i = 0; scratch && i < b->n_items; i++) {
        double spread = stats_summarize(b->items[i].rates, b->items[i].n_repeats, scratch).spread;
        n_wide += spread > wide_spread;
        if (spread > worst) worst = spread;
    }
    free(scratch);
    if (n_wide)
        bench_note(b,
                   "the repeats of %zu of %zu measurements differ by more than %.0f %% (up to "
                   "%.0f %%): such figures prove little",
                   n_wide, b->n_items, wide_spread * 100, worst * 100);
}

static bitnet_status open_engines(struct bench *b, bitnet_error *err)
{
    bitnet_engine_options o = b->settings->engine;
    o.ctx_tokens = choose_ctx(b);
    o.max_seqs = 1;
    /* every run computes all of its tokens, one a step */
    o.prefix_cache = o.draft = "off";
    BN_TRY(model_engine_open(&b->single, b->model, &o, b->settings->engine_warmup, err));
    b->single_info.size = sizeof b->single_info;
    bitnet_engine_get_info(b->single, &b->single_info);
    BN_TRY(make_plan(b, b->single_info.ctx_tokens, err));
    o.ctx_tokens = 0;
    for (size_t i = 0; i < b->n_items; i++)
        if (b->items[i].mode == BENCH_BATCH) {
            o.ctx_tokens = PROMPT_TOKENS + b->items[i].n_new;
            o.max_seqs = (uint32_t)bn_max_size(o.max_seqs, b->items[i].at);
        }
    if (!o.ctx_tokens) return BITNET_OK;
    BN_TRY(model_engine_open(&b->batch, b->model, &o, b->settings->engine_warmup, err));
    b->batch_info.size = sizeof b->batch_info;
    bitnet_engine_get_info(b->batch, &b->batch_info);
    return BITNET_OK;
}

bitnet_status bench_open(struct bench *b, bitnet_error *err)
{
    b->info.size = sizeof b->info;
    bitnet_model_get_info(b->model, &b->info);
    const bool *modes = b->settings->modes;
    BN_TRY(modes[BENCH_KERNELS] ? bench_kernels_plan(b, err)
           : modes[BENCH_KV]    ? bench_kv_plan(b, err)
                                : open_engines(b, err));
    BN_TRY(make_room(b, err));
    prompts_open(&b->prompts, b->model, b->settings->seed);
    return BITNET_OK;
}

bitnet_status bench_run(struct bench *b, bitnet_error *err)
{
    const bool *modes = b->settings->modes;
    BN_TRY(bench_open(b, err));
    b->load.average = machine_load_average();
    struct machine_clock from = machine_clock_now();
    BN_TRY(run_rounds(b, err));
    if (modes[BENCH_KV]) BN_TRY(bench_kv_perplexity(b, err));
    for (size_t i = 0; i < b->n_items; i++) {
        struct bench_measurement *m = &b->items[i];
        bool alone = m->mode == BENCH_STREAM || m->mode == BENCH_DEPTH || m->at == 1;
        if (alone && m->ffn_tokens > 0) m->bytes_per_step -= m->ffn_left_out / m->ffn_tokens;
        if (m->bytes_per_step > 0) m->bytes_per_step += refined_bytes(b, m);
    }
    judge(b, &from);
    note_ranks(b);
    return BITNET_OK;
}

void bench_free(struct bench *b)
{
    bitnet_engine_close(b->single);
    bitnet_engine_close(b->batch);
    bitnet_kernel_timer_close(b->timer);
    for (size_t i = 0; i < b->n_items; i++) {
        free(b->items[i].rates);
        free(b->items[i].first_ms);
        free(b->items[i].step_ms);
        bench_kv_free(b->items[i].kv);
    }
    free(b->items);
    free(b->bandwidth);
    prompts_close(&b->prompts);
    free(b->logits);
    *b = (struct bench){0};
}
