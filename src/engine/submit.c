/* SPDX-License-Identifier: Apache-2.0
 * Requests come and go. Of several choices of a prompt the first is queued at once; the others are
 * held back until it has read the prompt, and then stand behind it and share its pages. */
#include "engine/engine_impl.h"

#include "base/clock.h"
#include "base/os/mem.h"

bitnet_status bn_engine_check_tokens(const struct bitnet_engine *e, const int32_t *tokens, size_t n,
                                     bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= e->m->config.n_vocab)
            return bn_fail(err, BITNET_E_ARG, "token %zu is %d; this vocabulary has 0 to %u", i,
                           tokens[i], e->m->config.n_vocab - 1);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ they come */

static bitnet_status check_request(const struct bitnet_engine *e, const bitnet_request *r,
                                   bitnet_error *err)
{
    if (r->n_tokens == 0 || !r->tokens) return bn_fail(err, BITNET_E_ARG, "the prompt is empty");
    if (r->n_tokens >= e->ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a prompt of %zu tokens leaves no room in a context of %u", r->n_tokens,
                       e->ctx);
    BN_TRY(bn_engine_check_tokens(e, r->tokens, r->n_tokens, err));
    BN_TRY(bn_sampling_check(&r->sampling, e->m->config.n_vocab, err));
    if (r->user_weight > BN_USERS_MAX_WEIGHT)
        return bn_fail(err, BITNET_E_ARG, "a user's weight is at most %d, not %u",
                       BN_USERS_MAX_WEIGHT, r->user_weight);
    uint32_t waiting = e->n_choices - bn_sched_stats(e->sched)->n_running;
    if (waiting >= BN_MAX_QUEUE)
        return bn_fail(err, BITNET_E_LIMIT, "%u requests are waiting already", waiting);
    return BITNET_OK;
}

/* Prompt and generated tokens together; what the cache could never hold is refused here, since a request that
 * runs must be able to end. */
static bitnet_status find_limit(const struct bitnet_engine *e, const bitnet_request *r,
                                uint32_t *limit, bitnet_error *err)
{
    size_t cache = (size_t)e->kv.n_pages * BN_ATTN_BLOCK, n_new = e->ctx - r->n_tokens;
    if (r->prompt_only) n_new = 1; /* that is not drawn */
    else if (r->max_new_tokens) n_new = bn_min_size(n_new, r->max_new_tokens);
    else if (cache > r->n_tokens) n_new = bn_min_size(n_new, cache - r->n_tokens);
    if (r->n_tokens + n_new > cache)
        return bn_fail(err, BITNET_E_LIMIT,
                       "a prompt of %zu tokens and up to %zu new ones; the KV cache holds %zu",
                       r->n_tokens, n_new, cache);
    *limit = (uint32_t)(r->n_tokens + n_new);
    return BITNET_OK;
}

/* Room for the logits of prompts, which most engines never need. */
static bitnet_status take_score_rows(struct bitnet_engine *e, bitnet_error *err)
{
    if (e->scores) return BITNET_OK;
    size_t rows = bn_min_size(e->max_batch, (size_t)e->max_rows + e->score_rows);
    size_t bytes = rows * e->m->config.n_vocab * sizeof *e->logits;
    void *logits;
    BN_TRY(bn_block_take(&logits, &bytes, &e->backing, "logits of prompts", err));
    bn_touch(logits, bytes);
    if (e->backing.lock) e->backing.locked_bytes -= e->logits_bytes;
    bn_block_free(e->logits, e->logits_bytes);
    e->logits = logits;
    e->logits_bytes = bytes;
    e->scores = true;
    return BITNET_OK;
}

bitnet_status bn_engine_prepare(struct bitnet_engine *e, const bitnet_request *r, bitnet_error *err)
{
    return bn_request_prepare(r, &e->grammars, e->m->tokenizer, err);
}

bitnet_status bn_engine_submit(struct bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                               bitnet_error *err)
{
    struct bn_request_place place = {.tokenizer = e->m->tokenizer,
                                     .grammars = &e->grammars,
                                     .n_vocab = e->m->config.n_vocab,
                                     .draft = e->draft,
                                     .score_rows = e->score_rows};
    struct bn_request *q;
    struct bn_mix mix;
    BN_TRY(check_request(e, r, err));
    BN_TRY(find_limit(e, r, &place.limit, err));
    BN_TRY(bn_engine_choose_mix(e, &mix, r, err));
    place.mix = &mix;
    if (r->prompt_logprobs) BN_TRY(take_score_rows(e, err));
    BN_TRY(bn_request_make(&q, r, &place, err));
    /* the most a step can tell: that all have ended, and of those that ran what was read and every token */
    size_t need = e->n_choices + q->n_choices + (size_t)e->max_seqs * (2 + e->draft);
    if (!bn_grow((void **)&e->events, &e->events_room, need, sizeof *e->events)) {
        bn_request_free(q);
        return bn_fail_nomem(err, need * sizeof *e->events, "events");
    }
    bn_touch(e->events, e->events_room * sizeof *e->events);
    q->submitted_ns = bn_now_ns();
    if (r->timeout_ms) {
        q->deadline_ns = q->submitted_ns + r->timeout_ms * UINT64_C(1000000);
        if (q->deadline_ns < e->next_deadline_ns) e->next_deadline_ns = q->deadline_ns;
    }
    q->id = *id = e->next_id++;
    struct bn_request **end = &e->requests;
    while (*end) end = &(*end)->next;
    *end = q;
    e->n_choices += q->n_choices;
    q->choices[0].state = BN_SEQUENCE_QUEUED;
    bn_sched_add(e->sched, &q->choices[0].job);
    return BITNET_OK;
}

bitnet_status bn_engine_cancel(struct bitnet_engine *e, uint64_t id)
{
    for (struct bn_request *q = e->requests; q; q = q->next)
        if (q->id == id) {
            q->cancelled = e->any_cancelled = true;
            return BITNET_OK;
        }
    return BITNET_E_ARG;
}

void bn_engine_release_held(struct bitnet_engine *e, struct bn_request *q)
{
    for (uint32_t i = 1; i < q->n_choices; i++) {
        if (q->choices[i].state != BN_SEQUENCE_HELD) continue;
        q->choices[i].state = BN_SEQUENCE_QUEUED;
        bn_sched_add_after(e->sched, &q->choices[i].job, &q->choices[i - 1].job);
    }
}

/* ------------------------------------------------------------------ they go */

bitnet_event *bn_engine_event(struct bitnet_engine *e, const struct bn_sequence *seq)
{
    const struct bn_request *q = seq->request;
    bitnet_event *ev = &e->events[e->n_events++];
    *ev = (bitnet_event){.id = q->id,
                         .token = -1,
                         .text = "",
                         .choice = seq->choice,
                         .n_prompt = q->n_prompt,
                         .n_read = (uint32_t)bn_min_size(seq->job.n_done, q->n_prompt),
                         .n_cached = seq->n_cached,
                         .n_generated = seq->job.n_tokens - q->n_prompt,
                         .prefill_ns = seq->prefill_ns,
                         .decode_ns = seq->decode_ns,
                         .repetition = bn_repetition_score(&seq->repetition),
                         .queue_ns = q->queue_ns};
    return ev;
}

/* Its last choice is over: from the list of those that go on to that of those that have ended. */
static void end_request(struct bitnet_engine *e, struct bn_request *q)
{
    struct bn_request **at = &e->requests;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    bn_engine_unpin_prompt(e, q);
    q->next = e->ended;
    e->ended = q;
}

void bn_engine_end_sequence(struct bitnet_engine *e, struct bn_sequence *seq, bitnet_finish why,
                            const char *error)
{
    bitnet_event *ev = bn_engine_event(e, seq);
    ev->finish = why;
    ev->error = error;
    bn_sequence_flush(seq, &ev->text, &ev->text_bytes); /* nothing, behind a stop string */
    if (why == BITNET_FINISH_STOP) ev->stop = bn_sequence_stop(seq);
    if (seq->state == BN_SEQUENCE_QUEUED) bn_sched_remove(e->sched, &seq->job);
    if (why != BITNET_FINISH_ERROR) bn_engine_remember(e, seq, true);
    bn_engine_give_up(e, seq);
    seq->state = BN_SEQUENCE_OVER;
    bn_health_sequence(&e->health, &seq->repetition);
    e->n_choices--;
    if (--seq->request->n_left == 0) end_request(e, seq->request);
}

static void end_all(struct bitnet_engine *e, struct bn_request *q, bitnet_finish why)
{
    for (uint32_t i = 0; i < q->n_choices; i++) {
        struct bn_sequence *seq = &q->choices[i];
        if (seq->state == BN_SEQUENCE_OVER) continue;
        bn_sequence_begin_step(seq);
        bn_engine_end_sequence(e, seq, why, NULL);
    }
}

void bn_engine_leave(struct bitnet_engine *e)
{
    if (!e->any_cancelled && e->now_ns < e->next_deadline_ns) return;
    e->any_cancelled = false;
    e->next_deadline_ns = UINT64_MAX;
    for (struct bn_request *q = e->requests, *next; q; q = next) {
        next = q->next;
        if (q->cancelled) end_all(e, q, BITNET_FINISH_CANCELLED);
        else if (e->now_ns >= q->deadline_ns) end_all(e, q, BITNET_FINISH_TIMEOUT);
        else if (q->deadline_ns < e->next_deadline_ns) e->next_deadline_ns = q->deadline_ns;
    }
}

static void free_list(struct bn_request **list)
{
    while (*list) {
        struct bn_request *next = (*list)->next;
        bn_request_free(*list);
        *list = next;
    }
}

void bn_engine_free_ended(struct bitnet_engine *e) { free_list(&e->ended); }

void bn_engine_free_requests(struct bitnet_engine *e)
{
    free_list(&e->requests);
    free_list(&e->ended);
}
