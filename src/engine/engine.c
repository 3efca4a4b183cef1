/* SPDX-License-Identifier: Apache-2.0
 *
 * A step: waiting requests take free places; every running request puts tokens into the batch (one
 * if it decodes, a chunk of its prompt if it does not, decoding first); one forward pass; a token
 * is drawn where a prompt or an answer reached its end; events. A request's pages are reserved when
 * it gets its place, so it cannot run out of memory later.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "model/forward.h"
#include <math.h>
#include <stdlib.h>

/* A place for one sequence: used by a request, or by the plain door (eval). */
struct place {
    struct bn_kv_seq kv;
    struct bn_request *request; /* NULL: free, or in use by eval if kv has pages */
    uint32_t batch_row;         /* its logits in this step, UINT32_MAX: none     */
    uint32_t batch_tokens;      /* tokens it put into this step's batch          */
};

struct bitnet_engine {
    const struct bn_model *m;
    struct bn_pool *pool;
    struct bn_kv kv;
    struct bn_forward *forward;
    uint32_t ctx, max_seqs, max_batch;
    uint32_t n_pinned;               /* workers bound to a CPU */
    enum bn_head_mode head;          /* screened: where sampling allows it; never auto */
    struct place *places;            /* [max_seqs] */
    struct bn_batch_token *batch;    /* [max_batch] */
    float *logits;                   /* [max_seqs][n_vocab] */
    struct bn_candidate *candidates; /* [n_vocab] */
    struct bn_request *queue, **queue_end;
    uint32_t n_queued;
    /* [max_seqs] kept until the next step: events borrow their text */
    struct bn_request **finished;
    uint32_t n_finished;
    uint64_t next_id;
};

/* ------------------------------------------------------------------ life */

/* auto is off: see docs/performance.md for what it brings */
static bitnet_status open_pool(struct bitnet_engine *e, const bitnet_engine_options *o,
                               bitnet_error *err)
{
    bool on = o->pin && strcmp(o->pin, "on") == 0;
    if (o->pin && !on && strcmp(o->pin, "off") != 0 && strcmp(o->pin, "auto") != 0)
        return bn_fail(err, BITNET_E_ARG, "pin '%s' is unknown; auto, on and off exist", o->pin);
    BN_TRY(bn_pool_open(&e->pool, o->threads, err));
    if (on) e->n_pinned = bn_pool_pin(e->pool);
    return BITNET_OK;
}

static bitnet_status open_parts(struct bitnet_engine *e, const bitnet_engine_options *o,
                                enum bn_ffn_mode ffn, bitnet_error *err)
{
    const struct bn_config *c = &e->m->config;
    bitnet_kv_type keys = o->kv_type ? o->kv_type : BITNET_KV_F16;
    bitnet_kv_type values = o->kv_type_v ? o->kv_type_v : keys;
    BN_TRY(open_pool(e, o, err));
    BN_TRY(bn_kv_open(&e->kv, c, keys, values, e->max_seqs * bn_kv_pages_for(e->ctx), err));
    struct bn_head_options head = {.screened = e->head == BN_HEAD_SCREENED,
                                   .int8 = e->head == BN_HEAD_INT8,
                                   .max_screened = e->max_seqs};
    BN_TRY(
        bn_forward_open(&e->forward, e->m, e->pool, &e->kv, e->ctx, e->max_batch, &head, ffn, err));
    e->places = bn_calloc(e->max_seqs, sizeof *e->places);
    e->batch = bn_calloc(e->max_batch, sizeof *e->batch);
    e->logits = bn_calloc((size_t)e->max_seqs * c->n_vocab, sizeof *e->logits);
    e->candidates = bn_calloc(c->n_vocab, sizeof *e->candidates);
    e->finished = bn_calloc((size_t)e->max_seqs, sizeof(struct bn_request *));
    bool ok = e->places && e->batch && e->logits && e->candidates && e->finished;
    for (uint32_t i = 0; ok && i < e->max_seqs; i++)
        ok = bn_kv_seq_open(&e->places[i].kv, &e->kv, e->ctx);
    if (!ok)
        return bn_fail_nomem(err, (size_t)e->max_seqs * c->n_vocab * sizeof *e->logits,
                             "the engine");
    return BITNET_OK;
}

bitnet_status bn_engine_open(struct bitnet_engine **out, const struct bn_model *m,
                             const bitnet_engine_options *o, bitnet_error *err)
{
    *out = NULL;
    const struct bn_config *c = &m->config;
    if (!m->layers)
        return bn_fail(err, BITNET_E_STATE, "the model was opened for its vocabulary only");
    uint32_t ctx = o->ctx_tokens ? o->ctx_tokens : (uint32_t)bn_min_size(c->n_ctx, BN_DEFAULT_CTX);
    uint32_t seqs = o->max_seqs ? o->max_seqs : 1;
    uint32_t batch = o->max_batch_tokens ? o->max_batch_tokens : BN_DEFAULT_BATCH_TOKENS;
    if (ctx > BN_MAX_CTX)
        return bn_fail(err, BITNET_E_LIMIT, "a context of %u tokens; at most %d is possible", ctx,
                       BN_MAX_CTX);
    if (ctx > c->n_ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a context of %u tokens was asked for; this model knows %u", ctx, c->n_ctx);
    if (seqs > BN_MAX_SEQS)
        return bn_fail(err, BITNET_E_LIMIT, "%u sequences; at most %d are possible", seqs,
                       BN_MAX_SEQS);
    if (batch > BN_MAX_BATCH_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "batches of %u tokens; at most %d is possible", batch,
                       BN_MAX_BATCH_TOKENS);
    enum bn_head_mode head;
    enum bn_ffn_mode ffn;
    BN_TRY(bn_head_mode_parse(&head, o->head, err));
    BN_TRY(bn_ffn_mode_parse(&ffn, o->ffn, err));
    if (head == BN_HEAD_SCREENED && !m->screen.data)
        return bn_fail(err, BITNET_E_STATE,
                       "a screened head needs a model opened with head 'screened'");
    if (head == BN_HEAD_INT8 && !m->head_int8.data)
        return bn_fail(err, BITNET_E_STATE, "an int8 head needs a model opened with head 'int8'");
    struct bitnet_engine *e = bn_calloc(1, sizeof *e);
    if (!e) return bn_fail_nomem(err, sizeof *e, "the engine");
    e->m = m;
    e->ctx = ctx;
    e->max_seqs = seqs;
    e->head = head;
    if (head == BN_HEAD_AUTO)
        e->head =
            m->screen.data && c->n_vocab >= BN_HEAD_AUTO_ROWS ? BN_HEAD_SCREENED : BN_HEAD_EXACT;
    /* every running sequence must find room for its next token */
    e->max_batch = (uint32_t)bn_max_size(bn_min_size(batch, (size_t)seqs * ctx), seqs);
    e->queue_end = &e->queue;
    e->next_id = 1;
    bitnet_status s = open_parts(e, o, ffn, err);
    if (s != BITNET_OK) {
        bn_engine_close(e);
        return s;
    }
    *out = e;
    return BITNET_OK;
}

static void free_finished(struct bitnet_engine *e)
{
    while (e->n_finished) bn_request_free(e->finished[--e->n_finished]);
}

void bn_engine_close(struct bitnet_engine *e)
{
    if (!e) return;
    free_finished(e);
    while (e->queue) {
        struct bn_request *next = e->queue->next;
        bn_request_free(e->queue);
        e->queue = next;
    }
    for (uint32_t i = 0; e->places && i < e->max_seqs; i++) {
        bn_request_free(e->places[i].request);
        bn_kv_seq_close(&e->places[i].kv);
    }
    free(e->places);
    free(e->batch);
    free(e->logits);
    free(e->candidates);
    free(e->finished);
    bn_forward_close(e->forward);
    bn_kv_close(&e->kv);
    bn_pool_close(e->pool);
    free(e);
}

void bn_engine_info(const struct bitnet_engine *e, bitnet_engine_info *info)
{
    info->threads = bn_pool_threads(e->pool);
    info->pinned = e->n_pinned;
    info->ctx_tokens = e->ctx;
    info->max_seqs = e->max_seqs;
    info->max_batch_tokens = e->max_batch;
    info->kv_type = bn_kv_type_name(e->kv.keys.type);
    info->kv_type_v = bn_kv_type_name(e->kv.values.type);
    info->kv_bytes = e->kv.bytes + e->max_seqs * e->kv.tail_bytes;
    info->kv_page_tokens = BN_ATTN_BLOCK;
    info->kv_pages = e->kv.n_pages;
    info->kv_pages_free = e->kv.n_free;
    info->kv_seqs_full = e->kv.n_pages / bn_kv_pages_for(e->ctx);
    info->kv_token_bytes = bn_kv_token_bytes(&e->kv);
    info->scratch_bytes =
        bn_forward_bytes(e->forward) + (uint64_t)e->max_seqs * e->m->config.n_vocab * sizeof(float);
    const struct bn_head_stats *s = bn_head_stats(bn_forward_head(e->forward));
    _Static_assert(BN_ARRAY_LEN(info->head_histogram) == BN_HEAD_HISTOGRAM, "one histogram");
    info->head = bn_head_mode_name(e->head);
    info->head_full = s->full;
    info->head_screened = s->screened;
    info->head_fallbacks = s->fallbacks;
    info->head_survivors = s->survivors;
    info->head_survivors_max = s->survivors_max;
    memcpy(info->head_histogram, s->histogram, sizeof s->histogram);
    bn_ffn_info(bn_forward_ffn(e->forward), info);
}

bool bn_engine_ffn_layer(const struct bitnet_engine *e, uint32_t layer, bitnet_ffn_layer *info)
{
    return bn_ffn_layer_info(bn_forward_ffn(e->forward), layer, info);
}

uint32_t bn_engine_ctx(const struct bitnet_engine *e) { return e->ctx; }
const struct bn_model *bn_engine_model(const struct bitnet_engine *e) { return e->m; }

static bitnet_status check_tokens(const struct bitnet_engine *e, const int32_t *tokens, size_t n,
                                  bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->m->config.n_vocab)
            return bn_fail(err, BITNET_E_ARG, "token %zu is %d; this vocabulary has 0 to %u", i,
                           tokens[i], e->m->config.n_vocab - 1);
    return BITNET_OK;
}

/* of a screened row: not a NaN, not +infinity */
static bool all_below_infinity(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] < INFINITY)) return false;
    return true;
}

static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* ------------------------------------------------------------------ the plain door */

static bitnet_status eval_place(struct bitnet_engine *e, uint32_t seq, struct place **out,
                                bitnet_error *err)
{
    if (seq >= e->max_seqs)
        return bn_fail(err, BITNET_E_ARG, "sequence %u; this engine has 0 to %u", seq,
                       e->max_seqs - 1);
    *out = &e->places[seq];
    if ((*out)->request)
        return bn_fail(err, BITNET_E_STATE, "sequence %u is in use by a request", seq);
    return BITNET_OK;
}

bitnet_status bn_engine_eval(struct bitnet_engine *e, uint32_t seq, const int32_t *tokens, size_t n,
                             bool last_only, float *logits, bitnet_error *err)
{
    struct place *p = NULL;
    BN_TRY(eval_place(e, seq, &p, err));
    BN_TRY(check_tokens(e, tokens, n, err));
    if (n > e->ctx - p->kv.n_tokens)
        return bn_fail(err, BITNET_E_LIMIT, "%zu tokens after %u do not fit a context of %u", n,
                       p->kv.n_tokens, e->ctx);
    if (!bn_kv_reserve(&e->kv, &p->kv, p->kv.n_tokens + (uint32_t)n))
        return bn_fail(err, BITNET_E_STATE, "the KV cache is full");
    size_t n_vocab = e->m->config.n_vocab;
    const struct bn_want all = {.kind = BN_WANT_ALL}, none = {.kind = BN_WANT_NONE};
    for (size_t done = 0; done < n;) {
        size_t some = bn_min_size(n - done, e->max_batch);
        for (size_t i = 0; i < some; i++)
            e->batch[i] = (struct bn_batch_token){
                .token = tokens[done + i],
                .pos = p->kv.n_tokens + (uint32_t)i,
                .seq = &p->kv,
                .want = logits && (!last_only || done + i + 1 == n) ? all : none};
        float *to = last_only || !logits ? logits : logits + done * n_vocab;
        bn_forward_run(e->forward, e->batch, some, to);
        size_t rows = !logits ? 0 : !last_only ? some : done + some == n;
        if (!all_finite(to, rows * n_vocab))
            return bn_fail(err, BITNET_E_INTERNAL,
                           "the logits at position %u are not finite: the weights are damaged",
                           p->kv.n_tokens);
        p->kv.n_tokens += (uint32_t)some;
        done += some;
    }
    return BITNET_OK;
}

bitnet_status bn_engine_eval_reset(struct bitnet_engine *e, uint32_t seq, bitnet_error *err)
{
    struct place *p = NULL;
    BN_TRY(eval_place(e, seq, &p, err));
    bn_kv_release(&e->kv, &p->kv);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ requests */

bitnet_status bn_engine_submit(struct bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                               bitnet_error *err)
{
    if (r->n_tokens == 0 || !r->tokens) return bn_fail(err, BITNET_E_ARG, "the prompt is empty");
    if (r->n_tokens >= e->ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a prompt of %zu tokens leaves no room in a context of %u", r->n_tokens,
                       e->ctx);
    BN_TRY(check_tokens(e, r->tokens, r->n_tokens, err));
    BN_TRY(bn_sampling_check(&r->sampling, err));
    if (e->n_queued >= BN_MAX_QUEUE)
        return bn_fail(err, BITNET_E_LIMIT, "%u requests are waiting already", e->n_queued);
    size_t room = e->ctx - r->n_tokens;
    uint32_t limit =
        (uint32_t)(r->n_tokens + (r->max_new_tokens ? bn_min_size(r->max_new_tokens, room) : room));
    struct bn_request *q;
    BN_TRY(bn_request_make(&q, r, e->m->tokenizer, limit, err));
    q->id = *id = e->next_id++;
    *e->queue_end = q;
    e->queue_end = &q->next;
    e->n_queued++;
    return BITNET_OK;
}

bitnet_status bn_engine_cancel(struct bitnet_engine *e, uint64_t id)
{
    for (struct bn_request *q = e->queue; q; q = q->next)
        if (q->id == id) {
            q->cancelled = true;
            return BITNET_OK;
        }
    for (uint32_t i = 0; i < e->max_seqs; i++)
        if (e->places[i].request && e->places[i].request->id == id) {
            e->places[i].request->cancelled = true;
            return BITNET_OK;
        }
    return BITNET_E_ARG;
}

/* Free places go to the queue's head, in order of arrival. */
static void admit(struct bitnet_engine *e)
{
    for (uint32_t i = 0; i < e->max_seqs && e->queue; i++) {
        struct place *p = &e->places[i];
        if (p->request || p->kv.n_pages) continue;
        struct bn_request *q = e->queue;
        if (!bn_kv_reserve(&e->kv, &p->kv, q->limit)) return;
        e->queue = q->next;
        if (!e->queue) e->queue_end = &e->queue;
        e->n_queued--;
        q->next = NULL;
        q->started_ns = bn_now_ns();
        p->request = q;
    }
}

/* Puts up to `room` of a request's next tokens into the batch. */
static size_t add_tokens(struct bitnet_engine *e, struct place *p, size_t n, size_t room,
                         uint32_t *n_rows)
{
    struct bn_request *q = p->request;
    size_t some = bn_min_size(q->n_tokens - q->n_done, room);
    for (size_t i = 0; i < some; i++) {
        uint32_t pos = q->n_done + (uint32_t)i;
        bool last = pos + 1 == q->n_tokens;
        e->batch[n + i] =
            (struct bn_batch_token){.token = q->tokens[pos], .pos = pos, .seq = &p->kv};
        if (!last) continue;
        e->batch[n + i].want = bn_sampling_want(&q->sampling, q->n_tokens);
        p->batch_row = (*n_rows)++;
    }
    p->batch_tokens = (uint32_t)some;
    return some;
}

static size_t make_batch(struct bitnet_engine *e)
{
    size_t n = 0;
    uint32_t n_rows = 0;
    for (int decoding = 1; decoding >= 0;
         decoding--) /* answers first, then prompts with what is left */
        for (uint32_t i = 0; i < e->max_seqs; i++) {
            struct place *p = &e->places[i];
            if (!p->request) continue;
            if (decoding) {
                p->batch_row = UINT32_MAX;
                p->batch_tokens = 0;
            }
            if ((p->request->n_tokens - p->request->n_done == 1) == decoding)
                n += add_tokens(e, p, n, e->max_batch - n, &n_rows);
        }
    return n;
}

static void finish(struct bitnet_engine *e, struct place *p)
{
    bn_kv_release(&e->kv, &p->kv);
    e->finished[e->n_finished++] = p->request;
    p->request = NULL;
}

/* What a new token means for its request; fills the event. */
static void take_token(struct bitnet_engine *e, struct place *p, int32_t token, bitnet_event *ev)
{
    struct bn_request *q = p->request;
    bool stopped = false, end = false;
    q->tokens[q->n_tokens++] = token;
    ev->token = token;
#if BN_HAVE_TEXT
    if (e->m->tokenizer) end = !q->ignore_end && bn_token_is_end(e->m->tokenizer, token);
    if (q->detok && !end) stopped = bn_detok_push(q->detok, token, &ev->text, &ev->text_bytes);
#else
    (void)e;
#endif
    if (end) ev->finish = BITNET_FINISH_END;
    else if (stopped) ev->finish = BITNET_FINISH_STOP;
    else if (q->n_tokens >= q->limit) ev->finish = BITNET_FINISH_LENGTH;
}

static void fill_counts(bitnet_event *ev, const struct bn_request *q)
{
    ev->id = q->id;
    ev->n_prompt = q->n_prompt;
    ev->n_read = q->n_done < q->n_prompt ? q->n_done : q->n_prompt;
    ev->n_generated = q->n_tokens - q->n_prompt;
    ev->prefill_ns = q->prefill_ns;
    ev->decode_ns = q->decode_ns;
}

/* The closing event: text still held back, and why it ended. */
static void close_request(struct bitnet_engine *e, struct place *p, bitnet_finish why,
                          const char *error, bitnet_event *ev)
{
    struct bn_request *q = p->request;
    *ev = (bitnet_event){.token = -1, .text = "", .finish = why, .error = error};
    fill_counts(ev, q);
#if BN_HAVE_TEXT
    if (q->detok && why != BITNET_FINISH_STOP) bn_detok_flush(q->detok, &ev->text, &ev->text_bytes);
#endif
    finish(e, p);
}

/* Cancelled requests leave: those that wait, and those that run. */
static size_t drop_cancelled(struct bitnet_engine *e, bitnet_event *events, size_t room)
{
    size_t n = 0;
    for (struct bn_request **at = &e->queue; *at && n < room;) {
        struct bn_request *q = *at;
        if (!q->cancelled || e->n_finished == e->max_seqs) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        e->n_queued--;
        events[n] = (bitnet_event){.token = -1, .text = "", .finish = BITNET_FINISH_CANCELLED};
        fill_counts(&events[n++], q);
        e->finished[e->n_finished++] = q;
    }
    for (e->queue_end = &e->queue; *e->queue_end;) e->queue_end = &(*e->queue_end)->next;
    for (uint32_t i = 0; i < e->max_seqs && n < room && e->n_finished < e->max_seqs; i++)
        if (e->places[i].request && e->places[i].request->cancelled)
            close_request(e, &e->places[i], BITNET_FINISH_CANCELLED, NULL, &events[n++]);
    return n;
}

bitnet_status bn_engine_step(struct bitnet_engine *e, bitnet_event *events, size_t *n,
                             bitnet_error *err)
{
    size_t room = *n;
    *n = 0;
    if (room < 2 * (size_t)e->max_seqs)
        return bn_fail(err, BITNET_E_LIMIT, "room for %zu events; %u sequences need %zu", room,
                       e->max_seqs, 2 * (size_t)e->max_seqs);
    free_finished(e);
    *n = drop_cancelled(e, events, e->max_seqs);
    if (*n) return BITNET_OK; /* their places are free once their text is no longer borrowed */
    admit(e);
    size_t n_batch = make_batch(e);
    if (!n_batch) return BITNET_OK;
    bn_forward_run(e->forward, e->batch, n_batch, e->logits);
    uint64_t now = bn_now_ns();
    size_t n_vocab = e->m->config.n_vocab;
    for (uint32_t i = 0; i < e->max_seqs; i++) {
        struct place *p = &e->places[i];
        struct bn_request *q = p->request;
        if (!q || !p->batch_tokens) continue;
        q->n_done += p->batch_tokens;
        p->kv.n_tokens = q->n_done;
        if (p->batch_row == UINT32_MAX) { /* more of the prompt to come */
            events[*n] = (bitnet_event){.token = -1, .text = ""};
            fill_counts(&events[(*n)++], q);
            continue;
        }
        if (q->n_tokens == q->n_prompt) q->prefill_ns = now - q->started_ns;
        else q->decode_ns = now - q->started_ns - q->prefill_ns;
        const float *logits = e->logits + p->batch_row * n_vocab;
        bool screened = bn_head_was_screened(bn_forward_head(e->forward), p->batch_row);
        if (!(screened ? all_below_infinity : all_finite)(logits, n_vocab)) {
            close_request(e, p, BITNET_FINISH_ERROR,
                          "the logits are not finite: the weights are damaged", &events[(*n)++]);
            continue;
        }
        int32_t token =
            bn_sample(&q->sampling, logits, (uint32_t)n_vocab, q->n_tokens, e->candidates);
        bitnet_event *ev = &events[(*n)++];
        *ev = (bitnet_event){.text = ""};
        take_token(e, p, token, ev);
        fill_counts(ev, q);
        if (ev->finish == BITNET_FINISH_NONE) continue;
        bitnet_finish why = ev->finish;
        ev->finish = BITNET_FINISH_NONE;
        close_request(e, p, why, NULL, &events[(*n)++]);
    }
    return BITNET_OK;
}
