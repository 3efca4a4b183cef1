/* SPDX-License-Identifier: Apache-2.0
 *
 * load/run.c: one thread, one event loop, many slots. A slot is one request at a time: a client of
 * a closed loop, or whoever is free in an open one. Two events drive it: `due` when a request
 * should leave, and `tick` for everything that may be a little late: time limits, Ctrl-C, progress.
 *
 * In an open loop the schedule goes on whatever the server does. A request that finds all slots
 * taken leaves later, but its times count from the moment it was due: so a stall of the server is
 * felt by all requests that fell into it, as by users.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "app/interrupt.h"
#include "cli/load/load.h"
#include "cli/load/reply.h"
#include "app/term.h"
#include "app/process.h"
#include <event2/event.h>
#include <math.h>
#include <stdlib.h>

enum {
    TICK_MS = 50,
    PAUSE_MS = 100,          /* of a client of a closed loop after a failure */
    MAX_PAUSE_S = 60,        /* of what a server may ask for with Retry-After */
    MAX_ERROR_BYTES = 65536, /* kept of a reply that is an error */
    SOAK_LINE_S = 60
};

struct slot {
    struct runner *runner;
    uint32_t number; /* its place among the slots */
    struct load_conn conn;
    struct load_reply reply;
    struct load_record record;
    bool open;          /* a request is on its way */
    uint64_t resume_ns; /* closed loop: when it asks again */
};

struct runner {
    const struct load_settings *s;
    const struct load_target *target;
    struct load_run *run;
    struct event_base *base;
    struct event *due, *tick;
    struct slot **slots; /* [max_slots], made when needed */
    uint32_t n_slots, max_slots;
    uint32_t *idle; /* stack of slots of an open loop: the connection used last is used next */
    uint32_t n_idle, n_open;
    struct bn_buf body;
    struct load_arrivals arrivals;
    uint64_t next_due_ns; /* open loop; UINT64_MAX: none */
    uint64_t start_ns;    /* by the clock; all other times count from it */
    uint64_t count_from_ns, stop_ns;
    uint64_t n_started, n_counted;
    bool ended; /* nothing new is sent */
    /* for the eyes */
    struct term_progress bar;
    char note[80];
    uint64_t n_outcomes[LOAD_OUTCOMES], n_tokens;
    uint64_t soak_tokens, soak_line_ns;
};

static uint64_t now_of(const struct runner *r) { return bn_now_ns() - r->start_ns; }
static uint64_t ns_of(double seconds) { return (uint64_t)(seconds * 1e9); }

/* ------------------------------------------------------------------ a request begins */

static bool is_counted(const struct runner *r, uint64_t index, uint64_t due_ns)
{
    return index >= r->s->warmup_requests && due_ns >= r->count_from_ns;
}

static bool fill_request(struct runner *r, struct slot *slot, uint64_t index)
{
    struct load_ask ask = load_prompts_ask(&r->s->prompts, index);
    ask.index += r->run->first_prompt; /* lengths as in every run, but no prompt twice */
    if (r->s->loop == LOAD_TRACE) {
        const struct load_trace_row *row = &r->arrivals.trace->rows[index];
        if (ask.n_in) ask.n_in = row->n_in;
        ask.n_out = row->n_out;
    }
    slot->record.asked_in = ask.n_in;
    slot->record.asked_out = ask.n_out;
    bn_buf_clear(&r->body);
    bn_buf_clear(&slot->conn.request);
    if (!load_prompts_body(&r->s->prompts, &ask, &r->body)) return false;
    load_target_head(r->target, &slot->conn.request, "POST",
                     r->s->prompts.chat ? "/v1/chat/completions" : "/v1/completions", r->body.len);
    return bn_buf_append(&slot->conn.request, r->body.data, r->body.len);
}

static void finish(struct slot *slot, enum load_outcome outcome, const char *why, uint64_t now_ns);

/* due_ns: when the schedule wanted it; in a closed loop, now. */
static void start(struct slot *slot, uint64_t due_ns)
{
    struct runner *r = slot->runner;
    uint64_t index = r->n_started++;
    bool counted = is_counted(r, index, due_ns);
    slot->record = (struct load_record){.due_ns = due_ns, .counted = counted};
    load_reply_start(&slot->reply, counted ? r->run->gaps : NULL);
    if (counted) {
        if (r->n_counted++ == 0 && r->s->duration_s > 0)
            r->stop_ns = due_ns + ns_of(r->s->duration_s);
        r->run->n_due++;
        if (r->n_counted == r->s->n_requests) r->ended = true;
    }
    slot->open = true;
    r->n_open++;
    bool filled = fill_request(r, slot, index);
    slot->record.sent_ns = now_of(r);
    if (!filled || !load_conn_send(&slot->conn))
        finish(slot, LOAD_NO_CONNECTION, filled ? "no socket" : "out of memory for the request",
               slot->record.sent_ns);
}

/* ------------------------------------------------------------------ and ends */

static void keep_record(struct runner *r, const struct load_record *record)
{
    struct load_run *run = r->run;
    if (!bn_grow((void **)&run->records, &run->room, run->n_records + 1, sizeof *run->records)) {
        run->full = r->ended = true;
        return;
    }
    run->records[run->n_records++] = *record;
    if (run->n_records + r->n_open >= LOAD_MAX_RECORDS) run->full = r->ended = true;
    if (!record->counted) return;
    r->n_outcomes[record->outcome]++;
    r->n_tokens += record->n_output;
}

static void copy_reply(const struct runner *r, struct slot *slot)
{
    const struct load_reply *reply = &slot->reply;
    struct load_record *record = &slot->record;
    if (reply->first_ns) {
        record->first_ns = reply->first_ns - r->start_ns;
        record->last_ns = reply->last_ns - r->start_ns;
    }
    record->worst_gap_ns = reply->worst_gap_ns;
    record->n_chunks = reply->n_chunks;
    record->has_usage = reply->has_usage;
    record->n_prompt = reply->n_prompt;
    record->n_cached = reply->n_cached;
    record->n_output = reply->has_usage ? reply->n_output : reply->n_chunks;
}

/* What is to be done next: by the due event, so that no request begins inside of another's end. */
static void release(struct slot *slot, uint64_t now_ns)
{
    struct runner *r = slot->runner;
    const struct load_record *record = &slot->record;
    uint64_t pause_ns = 0;
    if (record->outcome != LOAD_OK) pause_ns = PAUSE_MS * 1000000ull;
    if (record->retry_after_s) pause_ns = record->retry_after_s * 1000000000ull;
    slot->resume_ns = now_ns + pause_ns;
    if (r->s->loop != LOAD_CLOSED) r->idle[r->n_idle++] = slot->number;
    event_active(r->due, EV_TIMEOUT, 0);
}

static void finish(struct slot *slot, enum load_outcome outcome, const char *why, uint64_t now_ns)
{
    struct runner *r = slot->runner;
    slot->open = false;
    r->n_open--;
    copy_reply(r, slot);
    slot->record.end_ns = now_ns;
    slot->record.outcome = (uint8_t)outcome;
    if (why && !*r->run->why[outcome])
        snprintf(r->run->why[outcome], LOAD_MAX_WHY_BYTES, "%s", why);
    keep_record(r, &slot->record);
    release(slot, now_ns);
}

static void on_arrived(void *user, struct http_reader *reader, uint64_t now_ns)
{
    struct slot *slot = user;
    slot->record.status = (uint16_t)reader->status;
    if (reader->status == 200 && reader->body.len)
        load_reply_feed(&slot->reply, reader->body.data, reader->body.len, now_ns);
    if (reader->status == 200 || reader->body.len > MAX_ERROR_BYTES) bn_buf_clear(&reader->body);
}

static uint32_t retry_after(const struct http_reader *reader)
{
    const char *text = http_header(reader, "retry-after");
    uint64_t s;
    if (!text || !args_u64(&s, text, UINT32_MAX)) return 0; /* a date: not for us */
    return (uint32_t)bn_min_size(s, MAX_PAUSE_S);
}

static enum load_outcome outcome_of_status(struct slot *slot, const struct http_reader *reader,
                                           char why[LOAD_MAX_WHY_BYTES])
{
    if (reader->status == 200) {
        snprintf(why, LOAD_MAX_WHY_BYTES, "%s",
                 *slot->reply.error     ? slot->reply.error
                 : slot->reply.finished ? ""
                                        : "the stream ended without [DONE] and without a reason");
        return *why ? LOAD_BAD_STREAM : LOAD_OK;
    }
    int n = snprintf(why, LOAD_MAX_WHY_BYTES, "%d: ", reader->status);
    load_reply_error(why + n, LOAD_MAX_WHY_BYTES - (size_t)n, reader->body.data, reader->body.len);
    if (reader->status == 429) {
        slot->record.retry_after_s = retry_after(reader);
        return LOAD_BUSY;
    }
    return reader->status >= 500 ? LOAD_SERVER_ERROR : LOAD_CLIENT_ERROR;
}

static void on_ended(void *user, const struct http_reader *reader, enum load_end end,
                     const char *why, uint64_t now_ns)
{
    struct slot *slot = user;
    enum load_outcome outcome = LOAD_NO_CONNECTION;
    char text[LOAD_MAX_WHY_BYTES];
    if (end == LOAD_END_BROKEN) outcome = LOAD_BAD_STREAM;
    if (end == LOAD_END_WHOLE) {
        outcome = outcome_of_status(slot, reader, text);
        why = text;
    }
    finish(slot, outcome, why, now_ns - slot->runner->start_ns);
}

/* ------------------------------------------------------------------ slots */

static struct slot *add_slot(struct runner *r)
{
    struct slot *slot = bn_calloc(1, sizeof *slot);
    if (!slot) return NULL;
    const struct load_conn_handler handler = {slot, on_arrived, on_ended};
    load_conn_init(&slot->conn, r->target, r->base, &handler);
    load_reply_init(&slot->reply);
    slot->runner = r;
    slot->number = r->n_slots;
    r->slots[r->n_slots++] = slot;
    return slot;
}

static struct slot *take_slot(struct runner *r)
{
    if (r->n_idle) return r->slots[r->idle[--r->n_idle]];
    return r->n_slots < r->max_slots ? add_slot(r) : NULL;
}

/* ------------------------------------------------------------------ events */

static void arm(struct runner *r, uint64_t at_ns, uint64_t now_ns)
{
    uint64_t wait_us = at_ns > now_ns ? (at_ns - now_ns + 999) / 1000 : 0;
    struct timeval t = {(time_t)(wait_us / 1000000), (suseconds_t)(wait_us % 1000000)};
    event_add(r->due, &t);
}

static void advance(struct runner *r)
{
    if (!load_arrivals_next(&r->arrivals, &r->next_due_ns)) r->next_due_ns = UINT64_MAX;
    if (r->next_due_ns >= r->stop_ns) r->ended = true;
}

static void send_due(struct runner *r)
{
    uint64_t now = now_of(r);
    struct slot *slot;
    while (!r->ended && r->next_due_ns <= now && (slot = take_slot(r))) {
        start(slot, r->next_due_ns);
        if (!r->ended) advance(r);
        now = now_of(r);
    }
    if (!r->ended && r->next_due_ns > now) arm(r, r->next_due_ns, now);
}

static void send_clients(struct runner *r)
{
    uint64_t now = now_of(r), next = UINT64_MAX;
    if (now >= r->stop_ns) r->ended = true;
    for (uint32_t i = 0; i < r->n_slots && !r->ended; i++) {
        struct slot *slot = r->slots[i];
        if (!slot->open && slot->resume_ns <= now) start(slot, now_of(r));
        if (!slot->open && slot->resume_ns < next) next = slot->resume_ns;
    }
    if (!r->ended && next != UINT64_MAX) arm(r, next, now);
}

static void leave_when_done(struct runner *r)
{
    if (r->ended && r->n_open == 0) event_base_loopbreak(r->base);
}

static void on_due(evutil_socket_t fd, short what, void *user)
{
    struct runner *r = user;
    (void)fd;
    (void)what;
    if (r->s->loop == LOAD_CLOSED) send_clients(r);
    else send_due(r);
    leave_when_done(r);
}

static void end_slow(struct runner *r, uint64_t now_ns)
{
    uint64_t limit = ns_of(r->s->timeout_s);
    for (uint32_t i = 0; i < r->n_slots; i++) {
        struct slot *slot = r->slots[i];
        if (!slot->open || (!r->run->interrupted && slot->record.sent_ns + limit > now_ns))
            continue;
        load_conn_drop(&slot->conn);
        char why[LOAD_MAX_WHY_BYTES];
        snprintf(why, sizeof why, "no complete reply within %.3g s", r->s->timeout_s);
        if (r->run->interrupted) finish(slot, LOAD_UNFINISHED, NULL, now_ns);
        else finish(slot, LOAD_TIMEOUT, why, now_ns);
    }
}

static uint64_t n_failed(const struct runner *r)
{
    uint64_t n = 0;
    for (int i = LOAD_OK + 1; i < LOAD_OUTCOMES; i++) n += r->n_outcomes[i];
    return n;
}

static void show_progress(struct runner *r, uint64_t now_ns)
{
    uint64_t done = r->n_outcomes[LOAD_OK] + n_failed(r), total = r->s->n_requests;
    if (r->s->duration_s > 0) {
        total = ns_of(r->s->duration_s + r->s->ramp_s + r->s->warmup_s);
        done = now_ns;
    } else if (!total && r->arrivals.trace) {
        total = r->arrivals.trace->n;
        done = r->n_started;
    }
    snprintf(r->note, sizeof r->note, " %u open, %llu ok, %llu failed", r->n_open,
             (unsigned long long)r->n_outcomes[LOAD_OK], (unsigned long long)n_failed(r));
    r->bar.note = r->note;
    if (!r->s->quiet) term_progress_show(&r->bar, r->n_counted ? "load" : "warm-up", done, total);
}

static void soak_line(struct runner *r, uint64_t now_ns)
{
    if (!r->s->soak || now_ns - r->soak_line_ns < SOAK_LINE_S * 1000000000ull) return;
    double seconds = (double)(now_ns - r->soak_line_ns) / 1e9;
    char size[TERM_SIZE_BYTES] = "unknown";
    double memory = r->s->pid ? process_resident_bytes(r->s->pid) : NAN;
    if (!isnan(memory)) term_size(size, (uint64_t)memory);
    term_progress_end(&r->bar);
    fprintf(stderr, "%.0f s: %llu ok, %llu failed, %u open, %.1f tok/s, server memory %s\n",
            (double)now_ns / 1e9, (unsigned long long)r->n_outcomes[LOAD_OK],
            (unsigned long long)n_failed(r), r->n_open,
            (double)(r->n_tokens - r->soak_tokens) / seconds, size);
    r->soak_tokens = r->n_tokens;
    r->soak_line_ns = now_ns;
}

static void on_tick(evutil_socket_t fd, short what, void *user)
{
    struct runner *r = user;
    uint64_t now = now_of(r);
    (void)fd;
    (void)what;
    if (interrupt_pending()) r->ended = r->run->interrupted = true;
    if (now >= r->stop_ns && !r->ended) {
        if (r->s->loop != LOAD_CLOSED) send_due(r); /* what became due since the last look */
        r->ended = true;
    }
    end_slow(r, now);
    if (r->s->pid && r->n_counted) load_memory_watch(&r->run->memory, r->s->pid, (double)now / 1e9);
    show_progress(r, now);
    soak_line(r, now);
    leave_when_done(r);
}

/* ------------------------------------------------------------------ the whole */

/* Of the requests that were due before the end, those that never left. */
static void count_unsent(struct runner *r)
{
    uint64_t until = r->run->interrupted ? now_of(r) : r->stop_ns;
    if (r->s->loop == LOAD_CLOSED || r->n_counted == r->s->n_requests || r->run->full) return;
    if (r->next_due_ns == UINT64_MAX || until == UINT64_MAX) return;
    for (; r->next_due_ns < until; advance(r)) {
        if (!is_counted(r, r->n_started++, r->next_due_ns)) continue;
        r->run->n_due++;
        r->run->n_unsent++;
    }
}

static bool prepare(struct runner *r)
{
    struct event_config *c = event_config_new();
    if (c) {
        /* timers by the microsecond, and by the time it is, not by that of the last wake-up */
        event_config_set_flag(c, EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NO_CACHE_TIME);
        r->base = event_base_new_with_config(c);
        event_config_free(c);
    }
    r->slots = bn_calloc(r->max_slots, sizeof *r->slots);
    r->idle = bn_calloc(r->max_slots, sizeof *r->idle);
    r->run->gaps = bn_calloc(1, sizeof *r->run->gaps);
    if (!r->base || !r->slots || !r->idle || !r->run->gaps) return false;
    r->due = evtimer_new(r->base, on_due, r);
    r->tick = event_new(r->base, -1, EV_PERSIST, on_tick, r);
    if (!r->due || !r->tick) return false;
    for (uint32_t i = 0; r->s->loop == LOAD_CLOSED && i < r->max_slots; i++) {
        struct slot *slot = add_slot(r);
        if (!slot) return false;
        slot->resume_ns = ns_of(r->s->ramp_s * i / r->max_slots);
    }
    return true;
}

static bool ended_by_time(const struct runner *r)
{
    return r->stop_ns != UINT64_MAX && !r->run->interrupted && !r->run->full &&
           r->n_counted != r->s->n_requests && r->next_due_ns != UINT64_MAX;
}

static void drive(struct runner *r)
{
    const struct timeval every = {0, TICK_MS * 1000};
    double cpu = process_cpu_seconds();
    r->start_ns = bn_now_ns();
    if (r->s->loop != LOAD_CLOSED) advance(r);
    arm(r, 0, 0);
    event_add(r->tick, &every);
    event_base_dispatch(r->base);
    if (ended_by_time(r)) r->run->until_ns = r->stop_ns;
    count_unsent(r);
    r->run->ns = now_of(r);
    r->run->own_cpu_share = (process_cpu_seconds() - cpu) / ((double)r->run->ns / 1e9);
    term_progress_end(&r->bar);
}

static void clear(struct runner *r)
{
    for (uint32_t i = 0; i < r->n_slots; i++) {
        load_conn_free(&r->slots[i]->conn);
        load_reply_free(&r->slots[i]->reply);
        free(r->slots[i]);
    }
    if (r->due) event_free(r->due);
    if (r->tick) event_free(r->tick);
    if (r->base) event_base_free(r->base);
    free(r->slots);
    free(r->idle);
    bn_buf_free(&r->body);
}

bitnet_status load_run(struct load_run *run, const struct load_settings *s, uint32_t at_a_time,
                       const struct load_target *target, bitnet_error *err)
{
    struct runner r = {.s = s,
                       .target = target,
                       .run = run,
                       .max_slots = at_a_time,
                       .arrivals = s->arrivals,
                       .stop_ns = UINT64_MAX,
                       .count_from_ns = ns_of(s->ramp_s + s->warmup_s)};
    run->settings = s;
    run->at_a_time = at_a_time;
    bn_buf_init(&r.body, LOAD_MAX_BODY_BYTES);
    process_allow_fds();
    bool ok = prepare(&r);
    if (ok) drive(&r);
    clear(&r);
    return ok ? BITNET_OK
              : bn_fail(err, BITNET_E_NOMEM, "out of memory for %u connections", r.max_slots);
}

void load_run_free(struct load_run *run)
{
    free(run->records);
    free(run->gaps);
}
