/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread that drives the engine, turn by turn: take the mail, mark what was cancelled, compute a
 * few embeddings and one step, post what happened, and see to what is only looked at now and then.
 * With nothing to do it sleeps; after a while it checks weights, in pieces that nobody notices.
 */
#include "server/engine/worker_gate.h"
#include "server/engine/worker_impl.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include <stdlib.h>
#include <unistd.h>

enum {
    SCRUB_BYTES = 1 << 20, /* at a time: less than a millisecond */
    BN_MIN_SLICE = 16      /* tokens of embeddings between two steps, whatever they cost */
};
static const uint64_t second_ns = UINT64_C(1000000000);
static const uint64_t state_every_ns = UINT64_C(100000000);
static const uint64_t scrub_after_ns = UINT64_C(1000000000); /* of rest */
static const uint64_t layers_every_ns = UINT64_C(5000000000);

static bool is_busy(const struct worker *w) { return w->n_requests || w->embeds.first; }

/* ------------------------------------------------------------------ ends */

static void end_done(struct worker *w, struct worker_task *t)
{
    worker_list_add(&w->block->ended, t);
}

static void end_failed(struct worker *w, struct worker_task *t, const bitnet_error *err)
{
    t->error = *err;
    worker_list_add(&w->block->ended, t);
}

static void end_cancelled(struct worker *w, struct worker_task *t)
{
    bitnet_error err;
    bn_error_set(&err, BITNET_E_CANCELLED, "the request was cancelled");
    end_failed(w, t, &err);
}

/* ------------------------------------------------------------------ requests in the engine */

static struct worker_task **bucket(struct worker *w, uint64_t id)
{
    return &w->requests[id % WORKER_BUCKETS];
}

static struct worker_task *find(struct worker *w, uint64_t id)
{
    struct worker_task *t = *bucket(w, id);
    while (t && t->id != id) t = t->next;
    return t;
}

static void enter(struct worker *w, struct worker_task *t)
{
    struct worker_task **at = bucket(w, t->id);
    t->next = *at;
    *at = t;
    w->n_requests++;
    w->n_choices += t->n_left;
}

static void leave(struct worker *w, struct worker_task *t)
{
    struct worker_task **at = bucket(w, t->id);
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    w->n_requests--;
    w->n_choices -= t->n_left;
}

/* The engine lets go of them with the next step. */
static void fail_requests(struct worker *w, const bitnet_error *err)
{
    struct worker_task *t;
    for (size_t i = 0; i < WORKER_BUCKETS; i++)
        while ((t = w->requests[i])) {
            leave(w, t);
            bitnet_cancel(w->c.engine, t->id);
            end_failed(w, t, err);
        }
}

/* Nothing can be computed any more: all tasks fail, those to come too. */
static void break_down(struct worker *w, const bitnet_error *err)
{
    struct worker_task *t;
    pthread_mutex_lock(&w->lock);
    w->state.broken = *err;
    pthread_mutex_unlock(&w->lock);
    fail_requests(w, err);
    while ((t = worker_list_take(&w->embeds))) end_failed(w, t, err);
}

/* ------------------------------------------------------------------ the mail */

static void call(struct worker *w, struct worker_task *t)
{
    bitnet_error err;
    if (t->call(t, w->c.engine, &err) != BITNET_OK) end_failed(w, t, &err);
    else end_done(w, t);
}

static void accept_task(struct worker *w, struct worker_task *t)
{
    bitnet_error err;
    t->mail_ns = bn_now_ns() - t->given_ns;
    if (w->state.broken.status) end_failed(w, t, &w->state.broken);
    else if (t->cancelled) end_cancelled(w, t);
    else if (t->call) call(w, t);
    else if (!t->request) worker_list_add(&w->embeds, t);
    else if (bitnet_submit(w->c.engine, t->request, &t->id, &err)) end_failed(w, t, &err);
    else enter(w, t);
}

/* Requests end with the next step. */
static void cancel_marked(struct worker *w)
{
    struct worker_list before = w->embeds;
    w->embeds = (struct worker_list){0};
    for (struct worker_task *t; (t = worker_list_take(&before));) {
        if (t->cancelled) end_cancelled(w, t);
        else worker_list_add(&w->embeds, t);
    }
    for (size_t i = 0; i < WORKER_BUCKETS; i++)
        for (struct worker_task *t = w->requests[i]; t; t = t->next)
            if (t->cancelled) bitnet_cancel(w->c.engine, t->id);
}

/* ------------------------------------------------------------------ embeddings */

/* Tokens that a slice may have: what fits a batch and, as far as prices are learned, the time that
 * choices may wait for it. At most twice as much as the last time, so that a price learned wrong cannot
 * make a slice very long. */
static size_t slice_tokens(const struct worker *w)
{
    double most = w->info.max_batch_tokens, fit = (double)w->c.slice_ns / w->embed_token_ns;
    if (!(w->embed_token_ns > 0)) return BN_MIN_SLICE;
    if (fit > 2.0 * (double)w->last_slice) fit = 2.0 * (double)w->last_slice;
    return bn_max_size(BN_MIN_SLICE, (size_t)(fit < most ? fit : most));
}

/* A running mean; one slice that took long says little. */
static void learn_slice(struct worker *w, size_t n_tokens, uint64_t ns)
{
    double price = (double)ns / (double)n_tokens;
    w->last_slice = n_tokens;
    w->embed_token_ns += (price - w->embed_token_ns) * (w->embed_token_ns > 0 ? 0.25 : 1);
}

/* The next inputs that make one slice, at least one. */
static size_t some_inputs(const struct worker *w, const struct worker_task *t, size_t *n_tokens)
{
    size_t n = 0, room = slice_tokens(w);
    *n_tokens = 0;
    while (t->n_done + n < t->n_inputs) {
        size_t tokens = t->inputs[t->n_done + n].n_tokens;
        if (n && tokens > room) break;
        room -= bn_min_size(room, tokens);
        *n_tokens += tokens;
        n++;
    }
    return n;
}

/* The numbers in a sentence are those of the call. */
static void end_refused(struct worker *w, struct worker_task *t, const bitnet_error *why)
{
    bitnet_error err = *why;
    if (t->n_done)
        bn_error_set(&err, why->status, "counted from input %zu: %s", t->n_done, why->text);
    end_failed(w, t, &err);
}

/* Vectors that these inputs make. */
static size_t n_vectors(const struct worker_task *t, size_t n)
{
    size_t rows = 0;
    if (!t->embed || t->embed->pooling != BITNET_POOL_NONE) return n;
    for (size_t i = 0; i < n; i++) rows += t->inputs[t->n_done + i].n_tokens;
    return rows;
}

/* Tasks take turns. Where pages are short, choices that end will give some back. */
static void embed_some(struct worker *w)
{
    struct worker_task *t = worker_list_take(&w->embeds);
    if (!t) return;
    bitnet_error err;
    size_t n_tokens, n = some_inputs(w, t, &n_tokens);
    uint64_t began_ns = bn_now_ns();
    float *to = n ? t->vectors + t->n_rows * w->n_embd : NULL;
    bitnet_status s = BITNET_OK;
    if (n) s = bitnet_embed(w->c.engine, t->inputs + t->n_done, n, t->embed, to, &err);
    if (s == BITNET_OK && n_tokens) learn_slice(w, n_tokens, bn_now_ns() - began_ns);
    if (s == BITNET_OK) {
        t->n_rows += n_vectors(t, n);
        t->n_done += n;
    }
    if (s == BITNET_E_STATE && w->n_requests) worker_list_add(&w->embeds, t);
    else if (s != BITNET_OK) end_refused(w, t, &err);
    else if (t->n_done < t->n_inputs) worker_list_add(&w->embeds, t);
    else end_done(w, t);
}

/* ------------------------------------------------------------------ a step */

static size_t n_scored_entries(const bitnet_event *e)
{
    return e->n_scored * (1 + e->n_top_scored);
}

static size_t bytes_of(const bitnet_event *e)
{
    return (e->n_top + n_scored_entries(e)) * sizeof *e->top + e->text_bytes +
           (e->error ? strlen(e->error) + 1 : 0) + (e->stop ? strlen(e->stop) + 1 : 0);
}

static bool make_room(struct worker_block *b, const bitnet_event *e, size_t n)
{
    size_t need = n * sizeof *b->events;
    for (size_t i = 0; i < n; i++) need += bytes_of(&e[i]);
    if (need <= b->bytes) return true;
    free(b->events);
    b->bytes = 2 * need;
    b->events = malloc(b->bytes);
    if (!b->events) b->bytes = 0;
    return b->events;
}

static char *copy(char **at, const void *from, size_t n)
{
    char *to = *at;
    if (n) memcpy(to, from, n);
    *at += n;
    return to;
}

/* What the events point to lies behind them: first all lists of tokens, which are aligned, then text. */
static void fill_block(struct worker *w, const bitnet_event *e, size_t n)
{
    struct worker_block *b = w->block;
    for (size_t i = 0; i < n; i++) {
        struct worker_task *t = find(w, e[i].id);
        struct worker_event *to = &b->events[b->n_events++];
        *to = (struct worker_event){t, e[i]};
        if (e[i].queue_ns) to->event.queue_ns += t->mail_ns;
        if (e[i].finish == BITNET_FINISH_NONE) continue;
        if (t->n_left == 1) leave(w, t);
        else w->n_choices--;
        t->n_left--;
    }
    char *at = (char *)(b->events + b->n_events);
    for (size_t i = 0; i < n; i++) {
        b->events[i].event.top = (void *)copy(&at, e[i].top, e[i].n_top * sizeof *e[i].top);
        b->events[i].event.scored =
            (void *)copy(&at, e[i].scored, n_scored_entries(&e[i]) * sizeof *e[i].scored);
    }
    for (size_t i = 0; i < n; i++) {
        b->events[i].event.text = copy(&at, e[i].text, e[i].text_bytes);
        if (e[i].error) b->events[i].event.error = copy(&at, e[i].error, strlen(e[i].error) + 1);
        if (e[i].stop) b->events[i].event.stop = copy(&at, e[i].stop, strlen(e[i].stop) + 1);
    }
}

/* Events of a choice stand together; the first is no end, unless its logits were no good, or it did
 * not take part. */
static struct worker_step count_step(struct worker *w, const bitnet_event *e, size_t n)
{
    bitnet_engine_info now = {.size = sizeof now};
    bitnet_engine_get_info(w->c.engine, &now);
    struct worker_step s = {.ns = now.work.step_ns - w->info.work.step_ns,
                            .n_prompt_tokens =
                                (uint32_t)(now.work.prompt_tokens - w->info.work.prompt_tokens)};
    for (size_t i = 0; i < n; i++) {
        bool next = i == 0 || e[i].id != e[i - 1].id || e[i].choice != e[i - 1].choice;
        bool ran = e[i].finish == BITNET_FINISH_NONE || e[i].finish == BITNET_FINISH_ERROR;
        s.n_seqs += next && ran;
        s.n_generated += e[i].token >= 0;
    }
    w->info = now;
    return s;
}

/* With room for all that a step can tell: the end of every choice, what was read, and every token. With less, the engine
 * tells the rest in the next one. */
static bitnet_status step(struct worker *w, size_t *n, bitnet_error *err)
{
    size_t need = w->n_choices + (size_t)w->info.max_seqs * (2 + BITNET_MAX_DRAFT_TOKENS) + 1;
    if (!bn_grow((void **)&w->events, &w->events_room, need, sizeof *w->events) && !w->events)
        return bn_fail_nomem(err, need * sizeof *w->events, "events");
    *n = w->events_room;
    w->events->size = sizeof *w->events;
    return bitnet_step(w->c.engine, w->events, n, err);
}

/* There is no memory for what a step has told: all that it may have told of fail, and it goes on without
 * them. */
static void lose_step(struct worker *w, size_t n)
{
    bitnet_error err;
    bn_error_set(&err, BITNET_E_NOMEM, "out of memory for %zu events", n);
    fail_requests(w, &err);
    for (bitnet_status s = BITNET_OK; s == BITNET_OK && n;) s = step(w, &n, NULL);
}

static void step_all(struct worker *w)
{
    bitnet_error err;
    size_t n;
    if (step(w, &n, &err) != BITNET_OK) {
        break_down(w, &err);
        return;
    }
    if (!make_room(w->block, w->events, n)) {
        lose_step(w, n);
        return;
    }
    w->block->step = count_step(w, w->events, n);
    fill_block(w, w->events, n);
    w->layers_changed = true;
}

/* ------------------------------------------------------------------ now and then */

static void tell_state(struct worker *w)
{
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_health health = {.size = sizeof health};
    bitnet_engine_get_info(w->c.engine, &info);
    bitnet_engine_health(w->c.engine, &health);
    pthread_mutex_lock(&w->lock);
    w->state.engine = info;
    w->state.health = health;
    pthread_mutex_unlock(&w->lock);
}

/* One layer a turn: a look takes about a millisecond. */
static void look_at_layer(struct worker *w, uint64_t now_ns)
{
    uint32_t i = w->next_layer;
    struct worker_layer y = {.kv.size = sizeof y.kv, .ffn.size = sizeof y.ffn};
    if (bitnet_engine_kv_health(w->c.engine, i, &y.kv, NULL) == BITNET_OK &&
        bitnet_engine_ffn_layer(w->c.engine, i, &y.ffn)) {
        pthread_mutex_lock(&w->lock);
        w->layers[i] = y;
        pthread_mutex_unlock(&w->lock);
    }
    w->next_layer = (i + 1) % w->state.n_layers;
    if (w->next_layer) return;
    w->layers_changed = false;
    w->layers_due_ns = now_ns + layers_every_ns;
}

static void scrub_some(struct worker *w, uint64_t now_ns)
{
    bitnet_scrub scrub = {.size = sizeof scrub};
    w->scrub_due_ns = now_ns + second_ns * SCRUB_BYTES / ((uint64_t)w->c.scrub_mib_s << 20);
    if (bitnet_engine_scrub(w->c.engine, SCRUB_BYTES, &scrub, NULL) != BITNET_OK) return;
    pthread_mutex_lock(&w->lock);
    w->state.scrub = scrub;
    pthread_mutex_unlock(&w->lock);
    w->state_due_ns = now_ns;
}

static uint64_t layers_due(const struct worker *w)
{
    return w->layers_changed || w->next_layer ? w->layers_due_ns : UINT64_MAX;
}

static uint64_t scrub_due(const struct worker *w)
{
    return w->c.scrub_mib_s && !is_busy(w) ? w->scrub_due_ns : UINT64_MAX;
}

static void look_after(struct worker *w)
{
    uint64_t now_ns = bn_now_ns();
    bool rests = !is_busy(w) && !w->idle;
    w->idle = !is_busy(w);
    if (rests) w->scrub_due_ns = now_ns + scrub_after_ns;
    else if (now_ns >= scrub_due(w)) scrub_some(w, now_ns);
    if (now_ns >= layers_due(w)) look_at_layer(w, now_ns);
    if (!rests && now_ns < w->state_due_ns) return;
    tell_state(w);
    w->state_due_ns = now_ns + state_every_ns;
}

/* ------------------------------------------------------------------ turns */

/* Makes what all grammars of an engine share, which takes tens of milliseconds with a large vocabulary:
 * a request of no one. It is refused where there is no tokenizer; then there will be no grammars. */
static bitnet_status warm_up_grammars(struct worker *w, bitnet_error *err)
{
    const int32_t prompt = 0;
    bitnet_request r;
    uint64_t id;
    bitnet_request_init(&r, sizeof r);
    r.tokens = &prompt;
    r.n_tokens = 1;
    r.json_object = 1;
    if (bitnet_submit(w->c.engine, &r, &id, NULL) != BITNET_OK) return BITNET_OK;
    bitnet_cancel(w->c.engine, id);
    bitnet_status s = BITNET_OK;
    for (size_t n = 1; s == BITNET_OK && n;) s = step(w, &n, err); /* until it has left */
    return s;
}

static bitnet_status warm_up(struct worker *w, bitnet_error *err)
{
    BN_TRY(warm_up_grammars(w, err));
    BN_TRY(bitnet_engine_warmup(w->c.engine, err));
    bitnet_engine_get_info(w->c.engine, &w->info);
    return BITNET_OK;
}

static void get_ready(struct worker *w)
{
    bitnet_error err;
    bitnet_status s = BITNET_OK;
    worker_gate_enter(w->c.gate, w->info.threads);
    if (w->c.warm_up) s = warm_up(w, &err);
    worker_gate_leave(w->c.gate, w->info.threads);
    if (s != BITNET_OK) {
        break_down(w, &err);
        return;
    }
    tell_state(w);
    pthread_mutex_lock(&w->lock);
    w->state.ready = true;
    pthread_mutex_unlock(&w->lock);
}

/* Under the lock: sleeps until something comes, or that time. */
static void sleep_until(struct worker *w, uint64_t ns)
{
    struct timespec t = {(time_t)(ns / second_ns), (long)(ns % second_ns)};
    if (ns == UINT64_MAX) pthread_cond_wait(&w->wake, &w->lock);
    else pthread_cond_timedwait(&w->wake, &w->lock, &t);
}

static void take_block(struct worker *w)
{
    if (w->block || !w->free) return;
    w->block = w->free;
    w->free = w->block->next;
}

/* Waits until there is a block, and something to do. False: the end. */
static bool begin_turn(struct worker *w, struct worker_list *mail, bool *cancelled)
{
    pthread_mutex_lock(&w->lock);
    while (!w->closing) {
        uint64_t due_ns = layers_due(w) < scrub_due(w) ? layers_due(w) : scrub_due(w);
        take_block(w);
        if (w->block && (is_busy(w) || w->mail.first || bn_now_ns() >= due_ns)) break;
        sleep_until(w, w->block ? due_ns : UINT64_MAX);
    }
    bool go_on = !w->closing;
    *cancelled = w->any_cancelled;
    w->any_cancelled = false;
    *mail = go_on ? w->mail : (struct worker_list){0};
    if (go_on) w->mail = (struct worker_list){0};
    pthread_mutex_unlock(&w->lock);
    return go_on;
}

static void post_block(struct worker *w)
{
    struct worker_block *b = w->block;
    if (!b->n_events && !b->ended.first) return;
    w->block = NULL;
    b->next = NULL;
    pthread_mutex_lock(&w->lock);
    bool was_empty = !w->out;
    *w->out_end = b;
    w->out_end = &b->next;
    pthread_mutex_unlock(&w->lock);
    if (!was_empty) return;
    ssize_t unused = write(w->fd, &(uint64_t){1}, sizeof(uint64_t)); /* cannot be full */
    (void)unused;
}

/* Leaves no request in the engine: those that were cancelled go with the next step. */
static void clear_engine(struct worker *w)
{
    size_t n;
    for (size_t i = 0; i < WORKER_BUCKETS; i++)
        for (struct worker_task *t = w->requests[i]; t; t = t->next)
            bitnet_cancel(w->c.engine, t->id);
    step(w, &n, NULL);
}

static void compute(struct worker *w)
{
    if (!is_busy(w)) return;
    worker_gate_enter(w->c.gate, w->info.threads);
    embed_some(w);
    if (w->n_requests) step_all(w);
    worker_gate_leave(w->c.gate, w->info.threads);
}

void *worker_run(void *arg)
{
    struct worker *w = arg;
    struct worker_list mail;
    bool cancelled;
    pthread_setname_np(pthread_self(), "engine");
    get_ready(w);
    while (begin_turn(w, &mail, &cancelled)) {
        for (struct worker_task *t; (t = worker_list_take(&mail));) accept_task(w, t);
        if (cancelled) cancel_marked(w);
        compute(w);
        if (!is_busy(w) && !w->idle) tell_state(w); /* before the last answer is there */
        post_block(w);
        look_after(w);
    }
    clear_engine(w);
    return NULL;
}
