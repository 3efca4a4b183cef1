/* SPDX-License-Identifier: Apache-2.0
 *
 * completions.c: chats, completions and responses: from the body to the engine, and what comes back to
 * the client, whole or as a stream. An answer lives until both sides have let go of it: the client
 * has its reply or has gone, and every task of the worker has ended.
 *
 * Events only gather while the worker delivers; answers_attend then passes on, once for each answer,
 * what a delivery has brought. A stream whose client is slow gathers until there is room.
 */
#include "base/clock.h"
#include "base/os/mem.h"
#include "server/openai/stream.h"
#include "server/server_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum {
    OUT_KEPT_BYTES = 1 << 20, /* of the buffer that streams are written through */
};

/* One prompt: a task of the worker. */
struct part {
    struct worker_task task; /* first */
    struct answer *a;
    bitnet_request request;
    uint32_t n_left; /* choices that have not ended */
};

struct choice {
    bool began, fresh, ended;     /* fresh: it has tokens that the client was not given */
    uint64_t first_ns, last_ns;   /* when it was given tokens: the first time, the last time */
    struct metrics_answer result; /* once it has ended */
};

struct answer {
    struct visit v; /* first */
    struct openai_request q;
    struct openai_reply reply;    /* of one that is given whole */
    struct openai_stream *stream; /* NULL: it is given whole */
    struct part *parts;           /* [n_parts], one a prompt */
    struct choice *choices;       /* [n_parts * n_each] */
    size_t n_parts, n_open;       /* n_open: tasks that have not ended */
    uint32_t n_each;
    uint64_t began_ns;
    bool listed; /* among the fresh */
    struct answer *next;
    /* why it failed; 0: it has not */
    int failed_with;
    const char *code;
    bitnet_error error;
};

static size_t n_choices(const struct answer *a) { return a->n_parts * a->n_each; }

static void answer_free(struct answer *a)
{
    visit_close(&a->v);
    openai_stream_close(a->stream);
    openai_reply_close(&a->reply);
    openai_request_free(&a->q);
    free(a->parts);
    free(a->choices);
    free(a);
}

/* ------------------------------------------------------------------ news from the worker */

static void list_fresh(struct answer *a)
{
    if (a->listed) return;
    a->listed = true;
    a->next = a->v.s->fresh;
    a->v.s->fresh = a;
}

static void cancel(struct answer *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].n_left) worker_cancel(a->v.s->worker, &a->parts[i].task);
}

/* The first reason counts; what is still computed is in vain. */
static void fail(struct answer *a, int status, const char *code, const bitnet_error *why)
{
    if (a->failed_with) return;
    a->failed_with = status;
    a->code = code;
    a->error = *why;
    cancel(a);
}

static void end_choice(struct part *p, struct choice *c)
{
    if (c->ended) return;
    c->ended = true;
    p->a->v.s->n_taken--;
    p->a->v.s->n_running -= c->began;
    if (--p->n_left == 0) p->a->n_open--;
}

static struct choice *choice_of(const struct part *p, uint32_t i)
{
    return &p->a->choices[(size_t)(p - p->a->parts) * p->a->n_each + i];
}

/* Time that the engine had it: what those who wait for a place wait for. */
static void learn_speed(struct server *s, uint64_t ns)
{
    s->answer_ns = s->answer_ns ? s->answer_ns - s->answer_ns / 16 + ns / 16 : ns;
}

static void take_end(struct part *p, struct choice *c, const bitnet_event *e)
{
    struct answer *a = p->a;
    c->result = (struct metrics_answer){.finish = e->finish,
                                        .n_prompt = e->n_prompt,
                                        .n_cached = e->n_cached,
                                        .n_generated = e->n_generated,
                                        .queue_ns = e->queue_ns,
                                        .prefill_ns = e->prefill_ns,
                                        .decode_ns = e->decode_ns,
                                        .repetition = e->repetition};
    learn_speed(a->v.s, bn_now_ns() - a->began_ns - e->queue_ns);
    end_choice(p, c);
    bitnet_error why = {0};
    if (e->finish == BITNET_FINISH_ERROR) {
        bn_error_set(&why, BITNET_E_INTERNAL, "%s", e->error);
        fail(a, 500, NULL, &why);
    } else if (e->finish == BITNET_FINISH_TIMEOUT && e->n_generated == 0) {
        bn_error_set(&why, BITNET_E_STATE, "no answer was begun within %u s", a->v.s->c->timeout_s);
        fail(a, 504, "timeout", &why);
    }
}

static void take(struct worker_task *t, const bitnet_event *e)
{
    struct part *p = (struct part *)t;
    struct answer *a = p->a;
    struct choice *c = choice_of(p, e->choice);
    size_t i = (size_t)(p - a->parts);
    if (!c->began) a->v.s->n_running++;
    c->began = true;
    if (e->token < 0 && e->finish == BITNET_FINISH_NONE) return;
    c->fresh |= e->token >= 0;
    c->result.n_generated = e->n_generated;
    c->result.n_cached = e->n_cached;
    if (a->v.call && !a->failed_with) {
        bitnet_error err = {0};
        bitnet_status s = a->stream ? openai_stream_take(a->stream, i, e, &err)
                                    : openai_reply_take(&a->reply, i, e, &err);
        if (s != BITNET_OK) fail(a, 500, NULL, &err);
    }
    if (e->finish != BITNET_FINISH_NONE) take_end(p, c, e);
    list_fresh(a);
}

static void refused(struct worker_task *t, const bitnet_error *err)
{
    struct part *p = (struct part *)t;
    for (uint32_t i = 0; i < p->a->n_each; i++) end_choice(p, choice_of(p, i));
    fail(p->a, openai_error_code(err->status), NULL, err);
    list_fresh(p->a);
}

/* ------------------------------------------------------------------ to the client */

/* What was handed out just now, or will never be, as times. */
static void measure(struct answer *a)
{
    uint64_t now = bn_now_ns();
    struct metrics *m = a->v.s->metrics;
    for (size_t i = 0; i < n_choices(a); i++) {
        struct choice *c = &a->choices[i];
        if (c->fresh && c->last_ns) metrics_token(m, now - c->last_ns);
        if (c->fresh) c->last_ns = now;
        if (c->fresh && !c->first_ns) c->first_ns = now;
        c->fresh = false;
        if (!c->ended || c->result.finish == BITNET_FINISH_NONE || c->result.total_ns) continue;
        c->result.first_ns = c->first_ns ? c->first_ns - a->began_ns : 0;
        c->result.total_ns = now - a->began_ns;
        metrics_answer(m, &c->result);
    }
}

/* What the log says about all choices together. */
static void sum_up(struct answer *a)
{
    struct access_line *l = &a->v.line;
    l->n_prompt = l->n_cached = l->n_generated = 0;
    for (size_t i = 0; i < n_choices(a); i++) {
        const struct choice *c = &a->choices[i];
        if (i % a->n_each == 0) l->n_cached += c->result.n_cached;
        l->n_generated += c->result.n_generated;
        uint64_t first = c->first_ns ? c->first_ns - a->began_ns : 0;
        if (first && (!l->first_ns || first < l->first_ns)) l->first_ns = first;
        if (c->result.queue_ns > l->queue_ns) l->queue_ns = c->result.queue_ns;
        if (c->ended)
            l->finish = openai_finish_name(&(struct openai_choice){.finish = c->result.finish});
    }
    for (size_t i = 0; i < a->n_parts; i++) l->n_prompt += (uint32_t)a->parts[i].request.n_tokens;
}

static void begin_stream(struct visit *v)
{
    net_add_header(v->call, "Cache-Control", "no-cache");
    net_add_header(v->call, "X-Accel-Buffering", "no"); /* else some proxies gather */
    net_stream_begin(v->call, 200, "text/event-stream");
    v->begun = true;
}

/* Writes what was gathered, whether there is room or not. */
static void write_stream(struct answer *a)
{
    struct visit *v = &a->v;
    struct bn_buf *out = &v->s->out;
    bool failed = a->failed_with != 0;
    bool ok = failed ? openai_stream_fail(a->stream, &a->error, out)
                     : openai_stream_flush(a->stream, out);
    if (ok && out->len) {
        if (!v->begun) begin_stream(v);
        net_stream_write(v->call, out->data, out->len);
    }
    bn_buf_clear(out);
    if (out->room > OUT_KEPT_BYTES) bn_buf_free(out);
    measure(a);
    if (ok && !failed && !openai_stream_done(a->stream)) return;
    cancel(a);
    sum_up(a);
    visit_end_stream(v, !ok ? "out of memory for the stream" : failed ? a->error.text : NULL);
}

static void reply_whole(struct answer *a)
{
    measure(a);
    sum_up(a);
    visit_reply_json(&a->v, 200, openai_reply_json(&a->reply, true));
}

/* Passes on what there is. The answer may be gone afterwards. */
static void attend(struct answer *a)
{
    struct visit *v = &a->v;
    if (v->call && a->failed_with && !v->begun) {
        measure(a);
        sum_up(a);
        visit_refuse(v, a->failed_with, a->code, "%s", a->error.text);
    } else if (v->call && a->stream) {
        if (!v->begun || net_stream_room(v->call)) write_stream(a);
    } else if (v->call && openai_reply_done(&a->reply)) {
        reply_whole(a);
    } else if (!v->call || !a->stream) {
        measure(a);
    }
    if (!v->call && a->n_open == 0 && !a->listed) answer_free(a);
}

void answers_attend(struct server *s)
{
    struct answer *a = s->fresh;
    s->fresh = NULL;
    while (a) {
        struct answer *next = a->next;
        a->listed = false;
        attend(a);
        a = next;
    }
}

static void on_room(struct visit *v) { attend((struct answer *)v); }

static void on_gone(struct visit *v)
{
    struct answer *a = (struct answer *)v;
    sum_up(a);
    visit_gone(v);
    cancel(a);
    attend(a);
}

static void on_late(struct visit *v)
{
    struct answer *a = (struct answer *)v;
    bitnet_error why = {0};
    bn_error_set(&why, BITNET_E_STATE, "the answer was not complete within %u s",
                 v->s->c->timeout_s);
    fail(a, 504, "timeout", &why);
    if (v->begun) write_stream(a);
    attend(a);
}

/* ------------------------------------------------------------------ from the client */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = bn_now_ns();
    return seed >> 11; /* 53 bits, which every JSON reader keeps */
}

static size_t prompt_bytes(const struct openai_request *q, size_t i)
{
    size_t n = q->prompts[i].text ? q->prompts[i].bytes : 0, at;
    const struct bn_json *message;
    bn_json_each(q->messages, at, message) n += bn_json_bytes(bn_json_get(message, "content"));
    return n;
}

/* Tokenizing holds up the event loop; what is too long in any case is refused before. */
static bitnet_status check_bytes(struct openai_request *q, uint64_t most, bitnet_error *err)
{
    for (size_t i = 0; i < q->n_prompts; i++) {
        size_t n = prompt_bytes(q, i);
        if (n <= most) continue;
        q->code = "context_length_exceeded";
        return bn_fail(err, BITNET_E_LIMIT,
                       "the prompt has %zu bytes; the context holds %llu at the very most", n,
                       (unsigned long long)most);
    }
    return BITNET_OK;
}

static bitnet_status read_request(struct answer *a, enum openai_kind kind, struct bn_json *body,
                                  bitnet_error *err)
{
    struct server *s = a->v.s;
    struct openai_defaults d = {
        .max_tokens = s->c->default_max_tokens, .seed = random_seed(), .model = s->m};
    BN_TRY(openai_request_read(&a->q, kind, body, &d, err));
    BN_TRY(check_bytes(&a->q, s->max_prompt_bytes, err));
    BN_TRY(openai_request_encode(&a->q, s->m, s->c->chat_template, err));
    BN_TRY(openai_request_fits(&a->q, s->engine.ctx_tokens, err));
    if (!*a->q.model) a->q.model = s->c->model_name;
    if (a->q.seeded) return BITNET_OK;
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)d.seed);
    net_add_header(a->v.call, "X-Bitnet-Seed", seed);
    return BITNET_OK;
}

static bitnet_status open_output(struct answer *a, bitnet_error *err)
{
    struct server *s = a->v.s;
    a->n_parts = a->n_open = a->q.n_prompts;
    a->n_each = a->q.request.n_choices;
    a->parts = bn_calloc(a->n_parts, sizeof *a->parts);
    a->choices = bn_calloc(n_choices(a), sizeof *a->choices);
    if (!a->parts || !a->choices) return bn_fail_nomem(err, sizeof *a->parts, "an answer");
    a->v.line.stream = a->q.stream;
    uint64_t created = (uint64_t)time(NULL);
    bitnet_status status = a->q.stream
                               ? openai_stream_open(&a->stream, &a->q, s->m, a->v.id, created, err)
                               : openai_reply_open(&a->reply, &a->q, s->m, a->v.id, created, err);
    openai_request_release(&a->q);
    return status;
}

static void submit(struct answer *a)
{
    a->v.gone = on_gone;
    a->v.room = on_room;
    a->v.late = on_late;
    visit_later(&a->v);
    for (size_t i = 0; i < a->n_parts; i++) {
        struct part *p = &a->parts[i];
        p->a = a;
        p->n_left = a->n_each;
        p->task.take = take;
        p->task.failed = refused;
        openai_request_at(&a->q, i, &p->request);
        p->request.timeout_ms = visit_time_left_ms(&a->v);
        worker_submit(a->v.s->worker, &p->task, &p->request);
    }
}

/* false: the client was told why not */
static bool begin(struct answer *a, enum openai_kind kind, struct bn_json *body)
{
    bitnet_error err = {0};
    if (read_request(a, kind, body, &err) != BITNET_OK) {
        visit_fail(&a->v, &err, a->q.param, a->q.code);
        return false;
    }
    size_t n = a->q.n_prompts * a->q.request.n_choices;
    if (!visit_check_places(&a->v, n)) return false;
    if (open_output(a, &err) != BITNET_OK) {
        visit_fail(&a->v, &err, NULL, NULL);
        return false;
    }
    a->v.s->n_taken += (uint32_t)n;
    submit(a);
    return true;
}

static void serve(struct visit *v, enum openai_kind kind)
{
    struct bn_json *body;
    if (!visit_check_places(v, 1) || !visit_body(v, &body)) return;
    struct answer *a = bn_calloc(1, sizeof *a);
    if (!a) {
        visit_refuse(v, 500, NULL, "out of memory: %zu bytes for an answer", sizeof *a);
    } else {
        a->v = *v;
        a->began_ns = net_began_ns(v->call);
        if (!begin(a, kind, body)) answer_free(a);
    }
    bn_json_free(body);
}

void serve_chat(struct visit *v) { serve(v, OPENAI_CHAT); }
void serve_completion(struct visit *v) { serve(v, OPENAI_COMPLETION); }
void serve_response(struct visit *v) { serve(v, OPENAI_RESPONSE); }
