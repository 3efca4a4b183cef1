/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include "base/switch.h"
#include "base/os/mem.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ the constraint of the text */

static bitnet_status check_constraint(const bitnet_request *r, const struct bn_tokenizer *t,
                                      bitnet_error *err)
{
    int constraints = (r->grammar != NULL) + (r->json_schema != NULL) + (r->json_object != 0);
    if (constraints == 0) return BITNET_OK;
    if (constraints > 1)
        return bn_fail(err, BITNET_E_ARG,
                       "%d of grammar, json_schema and json_object are given; one is possible",
                       constraints);
    if (r->ignore_end)
        return bn_fail(
            err, BITNET_E_ARG,
            "ignore_end does not go with a grammar: the text ends where the grammar does");
    if (!t)
        return bn_fail(err, BITNET_E_STATE,
                       "a grammar needs the bytes of tokens, and the model has no tokenizer");
    return BITNET_OK;
}

#if BN_HAVE_TEXT
static bitnet_status open_matcher(struct bn_sequence *seq, bitnet_error *err)
{
    const struct bn_request *q = seq->request;
    BN_TRY(bn_matcher_open(&seq->matcher, bn_kept_grammar(q->grammar), err));
    uint32_t cost = bn_matcher_cost(seq->matcher), room = q->limit - q->n_prompt;
    if (cost <= room || cost == BN_NO_COST) return BITNET_OK;
    return bn_fail(err, BITNET_E_LIMIT,
                   "the shortest text that matches takes up to %u tokens; there is room for %u",
                   cost, room);
}

static bitnet_status open_text(struct bn_sequence *seq, const bitnet_request *r,
                               const struct bn_request_place *p, bitnet_error *err)
{
    const struct bn_request *q = seq->request;
    if (q->grammar) BN_TRY(open_matcher(seq, err));
    if (!p->tokenizer) return BITNET_OK;
    BN_TRY(bn_detok_open(&seq->detok, p->tokenizer, r->show_special != 0, r->stop, r->n_stop, err));
    if (q->show_stop) bn_detok_show_stop(seq->detok);
    /* what a step's tokens show, and what comes out at the end */
    size_t room = (p->draft + 2) * bn_detok_room(seq->detok);
    seq->text = bn_calloc_now(room, 1);
    return seq->text ? BITNET_OK : bn_fail_nomem(err, room, "the text of a step");
}
#endif

/* ------------------------------------------------------------------ the end of the text */

static bitnet_status copy_stop_tokens(struct bn_request *q, const bitnet_request *r,
                                      const struct bn_request_place *p, bitnet_error *err)
{
    if (r->n_stop_tokens > BN_MAX_STOP_TOKENS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu stop tokens; at most %d are possible",
                       r->n_stop_tokens, BN_MAX_STOP_TOKENS);
    for (size_t i = 0; i < r->n_stop_tokens; i++) {
        if (r->stop_tokens[i] < 0 || (uint32_t)r->stop_tokens[i] >= p->n_vocab)
            return bn_fail(err, BITNET_E_ARG, "stop token %d is none of the %u of the vocabulary",
                           r->stop_tokens[i], p->n_vocab);
        q->stop_tokens[q->n_stop_tokens++] = r->stop_tokens[i];
    }
    q->show_stop = r->show_stop != 0;
    q->min_new = r->min_new_tokens;
    if (!q->min_new) return BITNET_OK;
    memcpy(q->ends, q->stop_tokens, sizeof q->stop_tokens);
    q->n_ends = q->n_stop_tokens;
#if BN_HAVE_TEXT
    for (uint32_t id = 0; p->tokenizer && !r->ignore_end && id < p->n_vocab; id++) {
        if (!bn_token_is_end(p->tokenizer, (int32_t)id)) continue;
        if (q->n_ends == BN_MAX_END_TOKENS)
            return bn_fail(err, BITNET_E_LIMIT, "more than %d tokens end a text",
                           BN_MAX_END_TOKENS);
        q->ends[q->n_ends++] = (int32_t)id;
    }
#endif
    return BITNET_OK;
}

static bool is_stop_token(const struct bn_request *q, int32_t token)
{
    for (uint32_t i = 0; i < q->n_stop_tokens; i++)
        if (q->stop_tokens[i] == token) return true;
    return false;
}

/* All but those that would end the text too early. */
static bool mask_ends(const struct bn_sequence *seq, uint64_t *mask)
{
    const struct bn_request *q = seq->request;
    size_t n = bn_div_up(seq->n_vocab, 64);
    memset(mask, 0xff, n * sizeof *mask);
    for (uint32_t i = 0; i < q->n_ends; i++)
        mask[q->ends[i] / 64] &= ~(UINT64_C(1) << (q->ends[i] % 64));
    for (size_t i = 0; i < n; i++)
        if (mask[i]) return true;
    return false;
}

/* ------------------------------------------------------------------ life */

static bitnet_status open_scores(struct bn_sequence *seq, uint32_t rows, bitnet_error *err)
{
    const struct bn_request *q = seq->request;
    size_t n = bn_min_size(rows, q->n_prompt) * (1 + q->n_top_scored);
    seq->job.scored = q->n_prompt > 1;
    seq->scored = bn_calloc_now(n, sizeof *seq->scored);
    return seq->scored ? BITNET_OK : bn_fail_nomem(err, n * sizeof *seq->scored, "a request");
}

static bitnet_status open_sequence(struct bn_sequence *seq, const bitnet_request *r,
                                   const struct bn_request_place *p, bitnet_error *err)
{
    const struct bn_request *q = seq->request;
    bitnet_sampling sampling = r->sampling;
    sampling.seed += seq->choice;
    seq->job.who = r->user;
    seq->job.weight = r->user_weight;
    seq->job.priority = r->priority;
    seq->tokens = bn_calloc_now(q->limit, sizeof *seq->tokens);
    if (q->n_top) seq->top = bn_calloc_now((size_t)(p->draft + 1) * q->n_top, sizeof *seq->top);
    if (!seq->tokens || (q->n_top && !seq->top))
        return bn_fail_nomem(err, q->limit * sizeof *seq->tokens, "a request");
    if (r->prompt_logprobs && seq->choice == 0) BN_TRY(open_scores(seq, p->score_rows, err));
    memcpy(seq->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    seq->job.n_tokens = q->n_prompt;
    BN_TRY(bn_sampler_open(&seq->sampler, &sampling, p->n_vocab, p->tokenizer, r->tokens,
                           q->n_prompt, q->limit, err));
    BN_TRY(bn_repetition_open(&seq->repetition, q->limit - q->n_prompt, err));
    if (p->draft) BN_TRY(bn_draft_open(&seq->draft, q->limit, err));
#if BN_HAVE_TEXT
    BN_TRY(open_text(seq, r, p, err));
#endif
    return BITNET_OK;
}

bitnet_status bn_request_make(struct bn_request **out, const bitnet_request *r,
                              const struct bn_request_place *p, bitnet_error *err)
{
    *out = NULL;
    uint32_t n_choices = r->n_choices ? r->n_choices : 1;
    if (n_choices > BN_MAX_CHOICES)
        return bn_fail(err, BITNET_E_LIMIT, "%u choices of a prompt; at most %d are possible",
                       n_choices, BN_MAX_CHOICES);
    uint32_t n_top = r->n_top_logprobs;
    if (r->n_top_prompt_logprobs > n_top) n_top = r->n_top_prompt_logprobs;
    if (n_top > BN_MAX_TOP_LOGPROBS)
        return bn_fail(err, BITNET_E_LIMIT, "%u likeliest tokens; at most %d are possible", n_top,
                       BN_MAX_TOP_LOGPROBS);
    enum bn_switch prefix;
    BN_TRY(bn_switch_parse(&prefix, "prefix_cache", r->prefix_cache, err));
    BN_TRY(check_constraint(r, p->tokenizer, err));
    size_t bytes = sizeof(struct bn_request) + n_choices * sizeof(struct bn_sequence);
    struct bn_request *q = bn_calloc(1, bytes);
    if (!q) return bn_fail_nomem(err, bytes, "a request");
    q->n_choices = q->n_left = n_choices;
    q->n_prompt = (uint32_t)r->n_tokens;
    q->limit = p->limit;
    q->logprobs = r->logprobs != 0;
    q->drawn_logprobs = r->logprobs && r->drawn_logprobs;
    q->n_top = r->logprobs ? (uint32_t)bn_min_size(r->n_top_logprobs, p->n_vocab) : 0;
    q->n_top_scored = (uint32_t)bn_min_size(r->n_top_prompt_logprobs, p->n_vocab);
    q->ignore_end = r->ignore_end != 0;
    q->prompt_only = r->prompt_only != 0;
    q->no_cache = prefix == BN_OFF;
    q->tokenizer = p->tokenizer;
    q->grammars = p->grammars;
    q->mix = *p->mix;
    bn_mix_hold(&q->mix);
    q->deadline_ns = UINT64_MAX;
    bitnet_status s = copy_stop_tokens(q, r, p, err);
#if BN_HAVE_TEXT
    if (s == BITNET_OK) s = bn_grammars_take(p->grammars, r, &q->grammar, err);
#endif
    for (uint32_t i = 0; s == BITNET_OK && i < n_choices; i++) {
        q->choices[i].request = q;
        q->choices[i].choice = i;
        q->choices[i].n_vocab = p->n_vocab;
        s = open_sequence(&q->choices[i], r, p, err);
    }
    if (s != BITNET_OK) {
        bn_request_free(q);
        return s;
    }
    *out = q;
    return BITNET_OK;
}

void bn_request_free(struct bn_request *r)
{
    if (!r) return;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct bn_sequence *seq = &r->choices[i];
        bn_sampler_close(seq->sampler);
        bn_draft_close(seq->draft);
        bn_repetition_close(&seq->repetition);
#if BN_HAVE_TEXT
        bn_matcher_close(seq->matcher);
        bn_detok_close(seq->detok);
#endif
        free(seq->text);
        free(seq->top);
        free(seq->scored);
        free(seq->tokens);
    }
#if BN_HAVE_TEXT
    bn_grammars_give(r->grammars, r->grammar);
#endif
    bn_mix_let_go(&r->mix);
    free(r);
}

bitnet_status bn_request_prepare(const bitnet_request *r, struct bn_grammars *g,
                                 const struct bn_tokenizer *t, bitnet_error *err)
{
    BN_TRY(check_constraint(r, t, err));
#if BN_HAVE_TEXT
    struct bn_kept_grammar *k;
    BN_TRY(bn_grammars_take(g, r, &k, err));
    bn_grammars_give(g, k);
#else
    (void)g;
#endif
    return BITNET_OK;
}

/* ------------------------------------------------------------------ a sequence grows */

void bn_sequence_begin_step(struct bn_sequence *seq)
{
    seq->n_text = 0;
    seq->n_drawn = 0;
}

#if BN_HAVE_TEXT

/* The detokenizer's text is borrowed until its next call only. */
static void keep_text(struct bn_sequence *seq, const char **text, size_t n)
{
    char *kept = seq->text + seq->n_text;
    memcpy(kept, *text, n);
    seq->n_text += n;
    *text = kept;
}

bool bn_sequence_mask(struct bn_sequence *seq, uint64_t *mask)
{
    int32_t only;
    if (!seq->matcher) return mask_ends(seq, mask);
    return bn_matcher_mask(seq->matcher, mask, &only) > 0;
}

bool bn_sequence_must_close(struct bn_sequence *seq, int32_t token, uint64_t *mask)
{
    uint32_t left = seq->request->limit - seq->job.n_tokens - 1;
    return bn_matcher_cost_after(seq->matcher, token) > left &&
           bn_matcher_closing_mask(seq->matcher, left, mask);
}

static bitnet_finish push_text(struct bn_sequence *seq, int32_t token, const char **text, size_t *n)
{
    const struct bn_request *r = seq->request;
    if (!r->tokenizer) return BITNET_FINISH_NONE;
    const struct bn_tokenizer *t = r->tokenizer;
    if (!r->ignore_end && (bn_token_is_end(t, token) || bn_token_is_start(t, token)))
        return BITNET_FINISH_END;
    bool stopped = bn_detok_push(seq->detok, token, text, n);
    keep_text(seq, text, *n);
    if (stopped) return BITNET_FINISH_STOP;
    if (!seq->matcher) return BITNET_FINISH_NONE;
    bn_matcher_accept(seq->matcher, token); /* it was drawn from what is allowed */
    bool last = seq->job.n_tokens >= r->limit;
    bool over = bn_matcher_done(seq->matcher) || (last && bn_matcher_cost(seq->matcher) == 0);
    return over ? BITNET_FINISH_END : BITNET_FINISH_NONE;
}

void bn_sequence_flush(struct bn_sequence *seq, const char **text, size_t *n)
{
    if (!seq->detok) return;
    bn_detok_flush(seq->detok, text, n);
    keep_text(seq, text, *n);
}

const char *bn_sequence_stop(const struct bn_sequence *seq)
{
    return seq->detok ? bn_detok_stop(seq->detok) : NULL;
}

#else

bool bn_sequence_mask(struct bn_sequence *seq, uint64_t *mask)
{
    return mask_ends(seq, mask); /* there are no grammars */
}

bool bn_sequence_must_close(struct bn_sequence *seq, int32_t token, uint64_t *mask)
{
    (void)seq;
    (void)token;
    (void)mask;
    return false;
}

static bitnet_finish push_text(struct bn_sequence *seq, int32_t token, const char **text, size_t *n)
{
    (void)seq;
    (void)token;
    (void)text;
    (void)n;
    return BITNET_FINISH_NONE;
}

void bn_sequence_flush(struct bn_sequence *seq, const char **text, size_t *n)
{
    (void)seq;
    (void)text;
    (void)n;
}

const char *bn_sequence_stop(const struct bn_sequence *seq)
{
    (void)seq;
    return NULL;
}

#endif

bitnet_finish bn_sequence_push(struct bn_sequence *seq, int32_t token, const char **text, size_t *n)
{
    seq->tokens[seq->job.n_tokens++] = token;
    seq->n_drawn++;
    bn_sampler_push(seq->sampler, token);
    bn_repetition_push(&seq->repetition, seq->tokens + seq->request->n_prompt,
                       seq->job.n_tokens - seq->request->n_prompt);
    bool stop = is_stop_token(seq->request, token);
    bool hidden = stop && !seq->request->show_stop;
    bitnet_finish why = hidden ? BITNET_FINISH_STOP : push_text(seq, token, text, n);
    if (why == BITNET_FINISH_NONE && stop) why = BITNET_FINISH_STOP;
    if (why == BITNET_FINISH_NONE && seq->job.n_tokens >= seq->request->limit)
        why = BITNET_FINISH_LENGTH;
    return why;
}
