/* SPDX-License-Identifier: Apache-2.0
 *
 * completions.c: everything that generates text, in any dialect: from the body to the engine, and what
 * comes back to the client, whole or as a stream. A completion lives until both sides have let go of it: the client
 * has its reply or disconnected, and every task of the worker has ended.
 *
 * Events only gather while the worker delivers; completions_attend then passes on, once for each,
 * what a delivery has brought. A stream whose client is slow gathers until there is room.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/dialect.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { OUT_KEPT_BYTES = 1 << 20 }; /* of the buffer that streams are written through */

/* One prompt: a task of the worker. */
struct prompt_task {
    struct worker_task task; /* first */
    struct completion *c;
    bitnet_request request;
    uint32_t n_left; /* choices that have not ended */
    uint64_t slot;   /* the ticket of its text, that of the first choice; 0: none */
};

struct choice {
    bool began, fresh, ended;     /* fresh: it has tokens that the client was not given */
    uint64_t first_ns, last_ns;   /* when it was given tokens: the first time, the last time */
    struct metrics_choice result; /* once it has ended */
};

struct completion {
    struct exchange x; /* first */
    /* while it is read, perhaps on another thread */
    struct errand errand;
    struct bn_json *body;
    body_prepare_fn *prepare;
    struct openai_defaults defaults;
    bitnet_status status;
    struct openai_request q;
    struct adapter_choice adapters;
    struct openai_reply reply;    /* of one that is given whole */
    struct openai_stream *stream; /* NULL: it is given whole */
    struct prompt_task *tasks;    /* [n_tasks], one a prompt */
    struct choice *choices;       /* [n_tasks * n_each] */
    size_t n_tasks, n_open;       /* n_open: tasks that have not ended */
    uint32_t n_each;
    uint64_t began_ns;
    bool listed;  /* among the fresh */
    bool writing; /* its reply is being written, by an errand */
    char *text;   /* as it was; NULL: out of memory */
    struct completion *next;
    /* why it failed; 0: it has not */
    int failed_with;
    const char *code;
    bitnet_error error;
};

static size_t n_choices(const struct completion *c) { return c->n_tasks * c->n_each; }

static void settle(struct completion *c)
{
    uint64_t n_prompt = 0, n_generated = 0;
    for (size_t i = 0; c->choices && i < n_choices(c); i++) {
        const struct choice *choice = &c->choices[i];
        n_generated += choice->result.n_generated;
        if (i % c->n_each == 0 && choice->began)
            n_prompt += c->tasks[i / c->n_each].request.n_tokens;
    }
    exchange_settle(&c->x, n_prompt, n_generated);
}

static void completion_free(struct completion *c)
{
    settle(c);
    exchange_close(&c->x);
    openai_stream_close(c->stream);
    openai_reply_close(&c->reply);
    openai_request_free(&c->q);
    adapter_release(&c->adapters);
    bn_json_free(c->body);
    free(c->text);
    free(c->tasks);
    free(c->choices);
    free(c);
}

/* ------------------------------------------------------------------ news from the worker */

static void list_fresh(struct completion *c)
{
    if (c->listed) return;
    c->listed = true;
    c->next = c->x.s->fresh;
    c->x.s->fresh = c;
}

static void cancel(struct completion *c)
{
    for (size_t i = 0; i < c->n_tasks; i++)
        if (c->tasks[i].n_left) worker_cancel(c->x.model->worker, &c->tasks[i].task);
}

/* The first reason counts; what is still computed is in vain. */
static void fail(struct completion *c, int status, const char *code, const bitnet_error *why)
{
    if (c->failed_with) return;
    c->failed_with = status;
    c->code = code;
    c->error = *why;
    cancel(c);
}

static struct choice *choice_of(const struct prompt_task *p, uint32_t i)
{
    return &p->c->choices[(size_t)(p - p->c->tasks) * p->c->n_each + i];
}

static void end_choice(struct prompt_task *p, struct choice *choice)
{
    if (choice->ended) return;
    choice->ended = true;
    places_leave(p->c->x.model, p->c->x.user);
    p->c->x.model->n_running -= choice->began;
    exchange_end_answer(&p->c->x);
    if (choice == choice_of(p, 0)) slots_end(&p->c->x.model->slots, p->slot);
    if (--p->n_left == 0) p->c->n_open--;
}

/* Time that the engine had it: what those who wait for a place wait for. */
static void learn_speed(struct served_model *s, uint64_t ns)
{
    s->choice_ns = s->choice_ns ? s->choice_ns - s->choice_ns / 16 + ns / 16 : ns;
}

/* Has any choice a token? One that has is told as far as it goes, and the others with it. */
static bool has_begun(const struct completion *c)
{
    for (size_t i = 0; i < n_choices(c); i++)
        if (c->choices[i].result.n_generated) return true;
    return false;
}

static void take_end(struct prompt_task *p, struct choice *choice, const bitnet_event *e)
{
    struct completion *c = p->c;
    choice->result = (struct metrics_choice){.finish = e->finish,
                                             .n_prompt = e->n_prompt,
                                             .n_cached = e->n_cached,
                                             .n_generated = e->n_generated,
                                             .queue_ns = e->queue_ns,
                                             .prefill_ns = e->prefill_ns,
                                             .decode_ns = e->decode_ns,
                                             .repetition = e->repetition};
    learn_speed(c->x.model, bn_now_ns() - c->began_ns - e->queue_ns);
    end_choice(p, choice);
    bitnet_error why = {0};
    if (e->finish == BITNET_FINISH_ERROR) {
        bn_error_set(&why, BITNET_E_INTERNAL, "%s", e->error);
        fail(c, 500, NULL, &why);
    } else if (e->finish == BITNET_FINISH_TIMEOUT && c->n_open == 0 && !has_begun(c)) {
        bn_error_set(&why, BITNET_E_STATE, "no token was generated within %u s",
                     c->x.s->c->timeout_s);
        fail(c, 504, "timeout", &why);
    }
}

/* What the client will be told. */
static void gather(struct prompt_task *p, const bitnet_event *e)
{
    struct completion *c = p->c;
    size_t i = (size_t)(p - c->tasks);
    bitnet_error err = {0};
    if (!c->x.request || c->failed_with) return;
    bitnet_status s = c->stream ? openai_stream_take(c->stream, i, e, &err)
                                : openai_reply_take(&c->reply, i, e, &err);
    if (s != BITNET_OK) fail(c, 500, NULL, &err);
}

static void take(struct worker_task *t, const bitnet_event *e)
{
    struct prompt_task *p = (struct prompt_task *)t;
    struct completion *c = p->c;
    struct choice *choice = choice_of(p, e->choice);
    if (!choice->began) c->x.model->n_running++;
    adapter_begin(&c->adapters);
    choice->began = true;
    bool reading = e->token < 0 && e->finish == BITNET_FINISH_NONE;
    bool told = c->stream && c->q.progress;
    if (!reading || e->n_scored || told) gather(p, e);
    if (reading && told) list_fresh(c);
    if (reading) return; /* what was read is told with the first token, if nobody waits for it */
    choice->fresh |= e->token >= 0;
    if (e->choice == 0 && e->token >= 0) slots_add(&c->x.model->slots, p->slot, e->token);
    choice->result.n_generated = e->n_generated;
    choice->result.n_cached = e->n_cached;
    if (e->finish != BITNET_FINISH_NONE) take_end(p, choice, e);
    list_fresh(c);
}

static void refused(struct worker_task *t, const bitnet_error *err)
{
    struct prompt_task *p = (struct prompt_task *)t;
    for (uint32_t i = 0; i < p->c->n_each; i++) end_choice(p, choice_of(p, i));
    fail(p->c, openai_error_code(err->status), NULL, err);
    list_fresh(p->c);
}

/* ------------------------------------------------------------------ to the client */

/* What was handed out just now, or will never be, as times. */
static void measure(struct completion *c)
{
    uint64_t now = bn_now_ns();
    struct metrics *m = c->x.model->metrics;
    for (size_t i = 0; i < n_choices(c); i++) {
        struct choice *choice = &c->choices[i];
        if (choice->fresh && choice->last_ns) metrics_token(m, now - choice->last_ns);
        if (choice->fresh) choice->last_ns = now;
        if (choice->fresh && !choice->first_ns) choice->first_ns = now;
        choice->fresh = false;
        if (!choice->ended || choice->result.finish == BITNET_FINISH_NONE ||
            choice->result.total_ns)
            continue;
        choice->result.first_ns = choice->first_ns ? choice->first_ns - c->began_ns : 0;
        choice->result.total_ns = now - c->began_ns;
        metrics_choice(m, &choice->result);
    }
}

/* What the log says about all choices together. */
static void sum_up(struct completion *c)
{
    struct access_line *l = &c->x.line;
    l->n_prompt = l->n_cached = l->n_generated = 0;
    for (size_t i = 0; i < n_choices(c); i++) {
        const struct choice *choice = &c->choices[i];
        if (i % c->n_each == 0) l->n_cached += choice->result.n_cached;
        l->n_generated += choice->result.n_generated;
        uint64_t first = choice->first_ns ? choice->first_ns - c->began_ns : 0;
        if (first && (!l->first_ns || first < l->first_ns)) l->first_ns = first;
        if (choice->result.queue_ns > l->queue_ns) l->queue_ns = choice->result.queue_ns;
        if (choice->ended)
            l->finish =
                openai_finish_name(&(struct openai_choice){.finish = choice->result.finish});
    }
    for (size_t i = 0; i < c->n_tasks; i++) l->n_prompt += (uint32_t)c->tasks[i].request.n_tokens;
}

static void begin_stream(struct exchange *x)
{
    net_add_header(x->request, "Cache-Control", "no-cache");
    net_add_header(x->request, "X-Accel-Buffering", "no"); /* else some proxies gather */
    net_stream_begin(x->request, 200, x->route->dialect->stream_type);
    x->begun = true;
}

/* A stream that lacks something must not end as if it were whole. */
static void lose_stream(struct exchange *x)
{
    static const char why[] = "out of memory for the stream";
    if (x->begun) exchange_drop_stream(x, why);
    else exchange_refuse(x, 500, NULL, "%s", why);
}

/* Writes what was gathered, whether there is room or not. */
static void write_stream(struct completion *c)
{
    struct exchange *x = &c->x;
    struct bn_buf *out = &x->s->out;
    bool failed = c->failed_with != 0;
    bool ok = failed ? openai_stream_fail(c->stream, &c->error, out)
                     : openai_stream_flush(c->stream, out);
    if (ok && out->len) {
        if (!x->begun) begin_stream(x);
        net_stream_write(x->request, out->data, out->len);
    }
    bn_buf_clear(out);
    if (out->room > OUT_KEPT_BYTES) bn_buf_free(out);
    measure(c);
    if (ok && !failed && !openai_stream_done(c->stream)) return;
    cancel(c);
    sum_up(c);
    if (!ok) lose_stream(x);
    else exchange_end_stream(x, failed ? c->error.text : NULL);
}

static void attend(struct completion *c);

static struct completion *of_errand(struct errand *e)
{
    return (struct completion *)((char *)e - offsetof(struct completion, errand));
}

/* On any thread: nothing more comes for a reply that is done. */
static void run_write(struct errand *e)
{
    struct completion *c = of_errand(e);
    struct bn_json *j = openai_reply_json(&c->reply, true);
    c->text = j ? bn_json_dump(j, BN_JSON_COMPACT) : NULL;
    bn_json_free(j);
}

static void on_written(struct errand *e)
{
    struct completion *c = of_errand(e);
    c->writing = false;
    if (c->x.request && c->text)
        exchange_reply(&c->x, 200, "application/json", c->text, strlen(c->text));
    else if (c->x.request) exchange_refuse(&c->x, 500, NULL, "out of memory for the reply");
    attend(c);
}

/* A large one, which would hold others up, by an errand; the client may go meanwhile. */
static void reply_whole(struct completion *c)
{
    measure(c);
    sum_up(c);
    if (openai_reply_bytes(&c->reply) < LARGE_REPLY_BYTES) {
        exchange_reply_json(&c->x, 200, openai_reply_json(&c->reply, true));
        return;
    }
    c->writing = true;
    c->errand = (struct errand){.run = run_write, .done = on_written};
    errands_give(c->x.s->errands, &c->errand, true);
}

/* Passes on what there is. The completion may be gone afterwards. */
static void attend(struct completion *c)
{
    struct exchange *x = &c->x;
    if (c->writing) return;
    if (x->request && c->failed_with && !x->begun) {
        measure(c);
        sum_up(c);
        exchange_refuse(x, c->failed_with, c->code, "%s", c->error.text);
    } else if (x->request && c->stream) {
        if (!x->begun || net_stream_room(x->request)) write_stream(c);
    } else if (x->request && openai_reply_done(&c->reply)) {
        reply_whole(c);
    } else if (!x->request || !c->stream) {
        measure(c);
    }
    if (!x->request && c->n_open == 0 && !c->listed) completion_free(c);
}

void completions_attend(struct server *s)
{
    struct completion *c = s->fresh;
    s->fresh = NULL;
    while (c) {
        struct completion *next = c->next;
        c->listed = false;
        attend(c);
        c = next;
    }
}

static void on_room(struct exchange *x) { attend((struct completion *)x); }

static void on_disconnect(struct exchange *x)
{
    struct completion *c = (struct completion *)x;
    sum_up(c);
    exchange_disconnected(x);
    cancel(c);
    attend(c);
}

static void on_late(struct exchange *x)
{
    struct completion *c = (struct completion *)x;
    bitnet_error why = {0};
    if (c->writing) return; /* it is there */
    bn_error_set(&why, BITNET_E_STATE, "the completion was not finished within %u s",
                 x->s->c->timeout_s);
    fail(c, 504, "timeout", &why);
    if (x->begun) write_stream(c);
    attend(c);
}

/* ------------------------------------------------------------------ from the client */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = bn_now_ns();
    return seed >> 11; /* 53 bits, which every JSON reader keeps */
}

static bitnet_status open_output(struct completion *c, bitnet_error *err)
{
    struct served_model *s = c->x.model;
    c->n_tasks = c->n_open = c->q.n_prompts;
    c->n_each = c->q.request.n_choices;
    c->tasks = bn_calloc(c->n_tasks, sizeof *c->tasks);
    c->choices = bn_calloc(n_choices(c), sizeof *c->choices);
    if (!c->tasks || !c->choices) return bn_fail_nomem(err, sizeof *c->tasks, "a completion");
    c->x.line.stream = c->q.stream;
    uint64_t created = (uint64_t)time(NULL);
    return c->q.stream ? openai_stream_open(&c->stream, &c->q, s->m, c->x.id, created, err)
                       : openai_reply_open(&c->reply, &c->q, s->m, c->x.id, created, err);
}

static bitnet_status encode(struct completion *c, bitnet_error *err)
{
    const struct served_model *s = c->x.model;
    BN_TRY(openai_check_bytes(&c->q, s->max_prompt_bytes, err));
    BN_TRY(openai_request_encode(&c->q, s->m, s->spec->chat_template, err));
    BN_TRY(openai_request_fits(&c->q, s->engine.ctx_tokens, err));
    if (!*c->q.model) c->q.model = s->name;
    return open_output(c, err);
}

/* On any thread: of the model it reads what does not change, and nothing of the server. */
static void read_request(struct completion *c)
{
    bitnet_status status = BITNET_OK;
    if (c->prepare) status = c->prepare(c->body, c->x.model, &c->error);
    if (status == BITNET_OK)
        status = c->x.route->dialect->read(&c->q, c->body, &c->defaults, &c->error);
    bn_json_free(c->body);
    c->body = NULL;
    if (status == BITNET_OK) status = encode(c, &c->error);
    openai_request_release(&c->q);
    c->status = status;
}

/* Adapters and what the client may have; what was passed over is told. */
static bitnet_status choose(struct completion *c, bitnet_error *err)
{
    BN_TRY(adapter_choose(&c->adapters, &c->x.model->adapters, &c->q, err));
    BN_TRY(exchange_rank(&c->x, &c->q, err));
    c->q.request.adapters = c->adapters.uses;
    c->q.request.n_adapters = c->adapters.n;
    exchange_tell_ignored(&c->x, &c->q.ignored);
    if (c->q.n_dropped) {
        char n[24];
        snprintf(n, sizeof n, "%zu", c->q.n_dropped);
        net_add_header(c->x.request, "X-Bitnet-Dropped-Messages", n);
    }
    if (c->q.seeded) return BITNET_OK;
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->defaults.seed);
    net_add_header(c->x.request, "X-Bitnet-Seed", seed);
    return BITNET_OK;
}

/* Of two times of which 0 means none. */
static uint32_t sooner(uint32_t a, uint32_t b) { return a && (!b || a < b) ? a : b; }

static void submit(struct completion *c)
{
    c->x.disconnected = on_disconnect;
    c->x.room = on_room;
    c->x.late = on_late;
    exchange_later(&c->x);
    for (size_t i = 0; i < c->n_tasks; i++) {
        struct prompt_task *p = &c->tasks[i];
        p->c = c;
        p->n_left = c->n_each;
        p->task.take = take;
        p->task.failed = refused;
        openai_request_at(&c->q, i, &p->request);
        p->request.user = c->x.user;
        p->request.timeout_ms = sooner(p->request.timeout_ms, exchange_time_left_ms(&c->x));
        p->slot = slots_begin(&c->x.model->slots, c->q.slot, p->request.tokens, p->request.n_tokens,
                              &c->adapters);
        worker_submit(c->x.model->worker, &p->task, &p->request);
    }
}

/* The longest that the answers may become is taken; what they do not need goes back at their end. false: the
 * client was told why not */
static bool take_quota(struct completion *c, size_t n)
{
    bitnet_request *r = &c->q.request;
    uint64_t n_prompt = 0, longest = 0;
    for (size_t i = 0; i < c->q.n_prompts; i++) n_prompt += c->q.prompts[i].n_tokens;
    if (!r->max_new_tokens && !r->prompt_only)
        r->max_new_tokens = exchange_usual_tokens(&c->x, n, n_prompt);
    for (size_t i = 0; i < c->q.n_prompts && !r->prompt_only; i++)
        longest += bn_min_size(r->max_new_tokens,
                               c->x.model->engine.ctx_tokens - c->q.prompts[i].n_tokens);
    return exchange_take_answers(&c->x, n, n_prompt + longest * r->n_choices);
}

/* It has been read. false: the client was told why it is not served */
static bool begin(struct completion *c)
{
    bitnet_error err = {0};
    bitnet_status status = c->status;
    if (status == BITNET_OK) status = choose(c, &err);
    else err = c->error;
    if (status != BITNET_OK) {
        struct openai_fault f = openai_fault_of(&err);
        f.param = c->q.param;
        f.code = c->q.code;
        f.n_prompt = c->q.n_too_long;
        f.n_ctx = c->x.model->engine.ctx_tokens;
        exchange_fault(&c->x, &f);
        return false;
    }
    size_t n = n_choices(c);
    if (!exchange_check_places(&c->x, n) || !take_quota(c, n)) return false;
    places_take(c->x.model, c->x.user, n);
    submit(c);
    return true;
}

static void run_errand(struct errand *e) { read_request(of_errand(e)); }

static void on_read(struct errand *e)
{
    struct completion *c = of_errand(e);
    if (c->x.request) exchange_resume(&c->x);
    if (!c->x.request || !begin(c)) completion_free(c);
}

void completions_serve(struct exchange *x, struct bn_json *body, body_prepare_fn *prepare)
{
    struct completion *c = exchange_copy(x, sizeof *c, body);
    if (!c) return;
    c->began_ns = net_began_ns(x->request);
    c->body = body;
    c->prepare = prepare;
    c->defaults = server_defaults(x->model);
    c->defaults.seed = x->s->c->seeded ? x->s->c->seed : random_seed();
    if (x->large) {
        c->errand = (struct errand){.run = run_errand, .done = on_read};
        exchange_elsewhere(&c->x, &c->errand, "the request was not read");
        return;
    }
    read_request(c);
    if (!begin(c)) completion_free(c);
}

void serve_generate(struct exchange *x)
{
    struct bn_json *body;
    if (!exchange_check_places(x, 1) || !exchange_body(x, &body)) return;
    completions_serve(x, body, NULL);
}
