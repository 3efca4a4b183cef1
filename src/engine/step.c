/* SPDX-License-Identifier: Apache-2.0
 *
 * A step. Those that were cancelled or came to their time leave. Sequences draft what comes next; the
 * scheduler says who takes how many tokens; these make one ragged batch and one forward pass. Where
 * a sequence's text reached its end a token is drawn, and as long as it equals the draft that was
 * computed behind it, another one. Every token is drawn from its own true logits with the random
 * number of its own position: drafts, batch neighbours and cuts decide when it comes, never what it is.
 *
 * What happened is kept as events and given out, in as many calls as the caller's room makes it,
 * before the next step is computed.
 */
#include "engine/engine_impl.h"

#include "base/clock.h"

/* ------------------------------------------------------------------ before the forward pass */

/* Drafts for sequences that have one token to compute. Their rows of logits are shared by all: the
 * older ask first. */
static void make_drafts(struct bitnet_engine *e)
{
    uint32_t left = e->draft_rows;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        j->n_draft = 0;
        if (!seq->draft || j->n_tokens - j->n_done != 1) continue;
        /* the last token of a sequence is not computed any more */
        uint32_t most = (uint32_t)bn_min_size(e->draft, seq->request->limit - j->n_tokens - 1);
        most = (uint32_t)bn_min_size(most, left);
        if (!most) continue;
        bn_draft_update(seq->draft, seq->tokens, j->n_tokens);
        j->n_draft = bn_draft_make(seq->draft, seq->tokens + j->n_tokens, most, e->always_draft);
        left -= j->n_draft;
    }
}

/* The logits from which the token at `position` will be drawn. */
static struct bn_want want(const struct bn_sequence *seq, uint32_t position)
{
    const struct bn_request *q = seq->request;
    if (q->prompt_only) return (struct bn_want){.kind = BN_WANT_NONE};
    bool masked = seq->matcher || position < q->n_prompt + q->min_new;
    return bn_sampler_want(seq->sampler, position, q->logprobs || masked);
}

/* Tokens of the plan, oldest sequence first. */
static void make_batch(struct bitnet_engine *e)
{
    size_t n = 0;
    uint32_t n_rows = 0;
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next) {
        struct bn_sequence *seq = bn_sequence_of(j);
        seq->row = n_rows;
        seq->first = (uint32_t)n;
        seq->first_pos = j->n_done;
        bn_sequence_begin_step(seq);
        for (uint32_t i = 0; i < j->take + j->take_draft; i++) {
            uint32_t pos = j->n_done + i;
            struct bn_batch_token *b = &e->batch[n++];
            *b = (struct bn_batch_token){.token = seq->tokens[pos],
                                         .pos = pos,
                                         .seq = seq->kv,
                                         .draft = i >= j->take,
                                         .mix = seq->request->mix.n ? &seq->request->mix : NULL};
            if (pos + 1 >= j->n_tokens) b->want = want(seq, pos + 1);
            else if (bn_sequence_scores(seq, pos)) b->want.kind = BN_WANT_ALL;
            n_rows += b->want.kind != BN_WANT_NONE;
        }
    }
    bn_engine_plan_saves(e);
}

/* Steps that read prompts, if only of one sequence, count as such. */
static enum bn_phase phase_of(const struct bitnet_engine *e)
{
    for (struct bn_sched_job *j = bn_sched_running(e->sched); j; j = j->next)
        if (j->take > 1) return BN_PHASE_PREFILL;
    return BN_PHASE_DECODE;
}

/* ------------------------------------------------------------------ what drafting costs */

/* Remembers how long a step of n tokens took that only decoded. */
static void time_step(struct bitnet_engine *e, uint32_t n, uint64_t ns)
{
    if (n > BN_STEP_SIZES || phase_of(e) != BN_PHASE_DECODE) return;
    double *mean = &e->step_ns[n];
    *mean = *mean > 0 ? *mean + ((double)ns - *mean) / 8 : (double)ns;
}

/* A step of n tokens in units of one without n_draft of them; 0: not known. Those that the model
 * offered had to be made first. */
static double draft_cost(const struct bitnet_engine *e, uint32_t n, uint32_t n_draft, bool offered)
{
    if (n > BN_STEP_SIZES || !(e->step_ns[n - n_draft] > 0)) return 0;
    double made_ns = offered ? n_draft * e->draft_ns : 0;
    return (e->step_ns[n] + made_ns) / e->step_ns[n - n_draft];
}

/* ------------------------------------------------------------------ after it */

static const char damaged[] = "the logits are not finite: the weights are damaged";

/* Draws the token of a row of logits. NULL, or why that is not possible. */
static const char *draw(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t row,
                        int32_t *token)
{
    uint32_t n_vocab = e->m->config.n_vocab;
    const float *logits = e->logits + (size_t)row * n_vocab;
    bool screened = bn_head_was_screened(bn_forward_head(e->forward), row);
    bn_prof_mark(e->prof, 0, BN_OP_CHECK);
    if (!bn_health_logits(&e->health, logits, 1, n_vocab, screened)) return damaged;
    bn_prof_mark(e->prof, 0, BN_OP_SAMPLE);
    const uint64_t *mask = bn_sequence_is_masked(seq) ? e->mask : NULL;
    if (mask && !bn_sequence_mask(seq, e->mask)) return "nothing is allowed as the next token";
    uint32_t position = seq->job.n_tokens;
    *token = bn_sampler_draw(seq->sampler, logits, n_vocab, position, mask, &e->sampler_room);
    if (*token < 0) return "the logit bias leaves no token to draw";
    if (!seq->matcher || !bn_sequence_must_close(seq, *token, e->mask)) return NULL;
    int32_t closing =
        bn_sampler_draw(seq->sampler, logits, n_vocab, position, mask, &e->sampler_room);
    if (closing >= 0) *token = closing; /* else the bias is against it */
    return NULL;
}

/* Of the token that draw() has just drawn; what it was drawn from is gone when the sequence goes on. */
static void note_drawn(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t row,
                       int32_t token)
{
    const struct bn_request *q = seq->request;
    uint32_t n_vocab = e->m->config.n_vocab;
    struct bn_drawn_probs p = {.token = token,
                               .top = q->n_top ? seq->top + (size_t)seq->n_drawn * q->n_top : NULL,
                               .n_top = q->n_top};
    bn_prof_mark(e->prof, 0, BN_OP_LOGPROBS);
    bn_sampler_probs(seq->sampler, e->logits + (size_t)row * n_vocab, n_vocab,
                     bn_sequence_is_masked(seq) ? e->mask : NULL, &e->sampler_room, &p);
    seq->drawn_logprob = p.logprob;
    seq->n_drawn_top = p.n_top;
}

static void put_logprobs(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t row,
                         bitnet_event *ev)
{
    const struct bn_request *q = seq->request;
    uint32_t n_vocab = e->m->config.n_vocab;
    bn_prof_mark(e->prof, 0, BN_OP_LOGPROBS);
    bitnet_logprob *top = q->n_top ? seq->top + (size_t)(seq->n_drawn - 1) * q->n_top : NULL;
    ev->top = top;
    ev->n_top = q->drawn_logprobs ? seq->n_drawn_top : q->n_top;
    ev->logprob = q->drawn_logprobs ? seq->drawn_logprob
                                    : bn_logprob(e->logits + (size_t)row * n_vocab, n_vocab,
                                                 ev->token, top, q->n_top);
}

/* Tokens from the sequence's rows of logits, as far as its drafts were accepted. Returns why it is over;
 * *error as in bn_engine_end_sequence. */
static bitnet_finish take_tokens(struct bitnet_engine *e, struct bn_sequence *seq,
                                 const char **error)
{
    struct bn_sched_job *j = &seq->job;
    bitnet_finish why = BITNET_FINISH_NONE;
    bool right = true;
    for (uint32_t i = 0; right && why == BITNET_FINISH_NONE && i <= j->take_draft; i++) {
        int32_t token;
        *error = draw(e, seq, seq->row + i, &token);
        if (*error) return BITNET_FINISH_ERROR;
        if (seq->request->drawn_logprobs) note_drawn(e, seq, seq->row + i, token);
        right = i < j->take_draft && seq->tokens[j->n_tokens] == token;
        bn_prof_mark(e->prof, 0, BN_OP_TEXT);
        const char *text = "";
        size_t n_text = 0;
        why = bn_sequence_push(seq, token, &text, &n_text);
        j->n_done = j->n_tokens - 1; /* what stands before it was computed, and was right */
        bitnet_event *ev = bn_engine_event(e, seq);
        ev->token = token;
        ev->text = text;
        ev->text_bytes = n_text;
        if (seq->request->logprobs) put_logprobs(e, seq, seq->row + i, ev);
    }
    return why;
}

/* A piece of a prompt that is scored: the tokens whose logits this step has brought, as an event. Those
 * rows are behind it then. n_before: tokens that were there before. NULL, or why it is not possible. */
static const char *score_prompt(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t n_before)
{
    struct bn_request *q = seq->request;
    const uint32_t n_vocab = e->m->config.n_vocab, width = 1 + q->n_top_scored;
    bitnet_event *ev = bn_engine_event(e, seq);
    ev->scored = seq->scored;
    ev->scored_from = q->n_scored + 1;
    ev->n_top_scored = q->n_top_scored;
    bn_prof_mark(e->prof, 0, BN_OP_LOGPROBS);
    for (uint32_t pos = n_before; pos < seq->job.n_done; pos++) {
        if (!bn_sequence_scores(seq, pos)) continue;
        const float *logits = e->logits + (size_t)seq->row++ * n_vocab;
        if (!bn_health_logits(&e->health, logits, 1, n_vocab, false)) return damaged;
        bitnet_logprob *to = seq->scored + ev->n_scored++ * width;
        to->token = seq->tokens[pos + 1];
        to->logprob = bn_logprob(logits, n_vocab, to->token, to + 1, q->n_top_scored);
        q->n_scored = pos + 1;
    }
    seq->job.scored = q->n_scored + 1 < q->n_prompt;
    return NULL;
}

/* What the step has brought one sequence. */
static void take_step(struct bitnet_engine *e, struct bn_sequence *seq, uint32_t n_batch,
                      uint64_t done_ns)
{
    struct bn_sched_job *j = &seq->job;
    struct bn_request *q = seq->request;
    uint32_t n_before = j->n_done, n_known = j->n_tokens;
    const char *error = NULL;
    bitnet_finish why = BITNET_FINISH_NONE;
    j->n_done += j->take;
    e->n_prompt_tokens += bn_min_size(j->n_done, q->n_prompt) - bn_min_size(n_before, q->n_prompt);
    seq->kv->n_tokens = j->n_done + j->take_draft;
    bool scored = j->scored;
    if (scored) error = score_prompt(e, seq, n_before);
    if (error) {
        why = BITNET_FINISH_ERROR;
    } else if (j->n_done < n_known) { /* more of the prompt to come */
        if (!scored) bn_engine_event(e, seq);
    } else {
        if (n_known == q->n_prompt) {
            seq->prefill_ns = done_ns - seq->started_ns;
            bn_engine_release_held(e, q);
        } else {
            seq->decode_ns = done_ns - seq->started_ns - seq->prefill_ns;
        }
        why = q->prompt_only ? BITNET_FINISH_LENGTH : take_tokens(e, seq, &error);
        bn_prof_mark(e->prof, 0, BN_OP_PLAN);
        e->n_generated += seq->n_drawn;
        bn_kv_truncate(&e->kv, seq->kv, j->n_done);
    }
    if (j->take_draft) {
        uint32_t n_accepted = j->n_done - n_known;
        e->n_drafted += j->take_draft;
        e->n_accepted += n_accepted;
        bn_draft_learn(seq->draft, j->take_draft, n_accepted,
                       draft_cost(e, n_batch, j->take_draft, bn_draft_was_offered(seq->draft)));
    }
    if (why != BITNET_FINISH_NONE) bn_engine_end_sequence(e, seq, why, error);
    else if (j->n_done / BN_ATTN_BLOCK > n_before / BN_ATTN_BLOCK)
        bn_engine_remember(e, seq, false);
}

/* ------------------------------------------------------------------ the step */

static bitnet_status compute_step(struct bitnet_engine *e, bitnet_error *err)
{
    bn_engine_free_ended(e);
    e->n_events = e->next_event = 0;
    e->now_ns = bn_now_ns();
    bn_engine_leave(e);
    make_drafts(e);
    uint32_t n_batch = bn_sched_plan(e->sched);
    if (!n_batch && (!e->n_choices || e->n_events)) return BITNET_OK;
    if (!n_batch)
        return bn_fail(
            err, BITNET_E_STATE,
            "%u choices wait, and sequences of bitnet_eval hold %u of %u pages of the KV "
            "cache; bitnet_eval_reset frees them",
            e->n_choices, bn_engine_eval_pages(e), e->kv.n_pages);
    bn_prof_begin(e->prof, phase_of(e), BN_OP_PLAN, e->now_ns);
    make_batch(e);
    uint64_t begin_ns = bn_now_ns();
    bn_forward_run(e->forward, e->batch, n_batch, e->logits);
    uint64_t done_ns = bn_now_ns();
    BN_TRY(bn_dist_check(e->m->dist, err));
    time_step(e, n_batch, done_ns - e->now_ns);
    for (struct bn_sched_job *j = bn_sched_running(e->sched), *next; j; j = next) {
        next = j->next;
        if (j->take) take_step(e, bn_sequence_of(j), n_batch, done_ns);
    }
    e->weight_bytes += bn_forward_read_bytes(e->forward);
    if (e->behind) bn_engine_draft(e);
    bn_prof_end(e->prof, n_batch);
    uint64_t took_ns = bn_now_ns() - e->now_ns;
    bn_sched_took(e->sched, took_ns);
    e->total_ns += took_ns;
    e->forward_ns += done_ns - begin_ns;
    return BITNET_OK;
}

bitnet_status bn_engine_step(struct bitnet_engine *e, const bitnet_event **events, size_t *n,
                             bitnet_error *err)
{
    size_t room = *n;
    *n = 0;
    if (!room) return bn_fail(err, BITNET_E_ARG, "room for 0 events; at least 1 is needed");
    BN_TRY(bn_model_check(e->m, err));
    if (e->next_event == e->n_events) BN_TRY(compute_step(e, err));
    *n = bn_min_size(room, e->n_events - e->next_event);
    *events = *n ? e->events + e->next_event : NULL;
    e->next_event += *n;
    return BITNET_OK;
}
