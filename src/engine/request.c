/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include "base/choice.h"
#include "base/os/mem.h"
#include <stdlib.h>

/* ------------------------------------------------------------------ the form of an answer */

static bitnet_status check_form(const bitnet_request *r, const struct bn_tokenizer *t,
                                bitnet_error *err)
{
    int forms = (r->grammar != NULL) + (r->json_schema != NULL) + (r->json_object != 0);
    if (forms == 0) return BITNET_OK;
    if (forms > 1)
        return bn_fail(err, BITNET_E_ARG,
                       "%d of grammar, json_schema and json_object are given; one is possible",
                       forms);
    if (r->ignore_end)
        return bn_fail(
            err, BITNET_E_ARG,
            "ignore_end does not go with a grammar: the answer ends where its form does");
    if (!t)
        return bn_fail(err, BITNET_E_STATE,
                       "a grammar needs the bytes of tokens, and the model has no tokenizer");
    return BITNET_OK;
}

#if BN_HAVE_TEXT
static bitnet_status open_grammar(struct bn_grammar **out, const bitnet_request *r,
                                  const struct bn_request_place *p, bitnet_error *err)
{
    if (!r->grammar && !r->json_schema && !r->json_object) return BITNET_OK;
    if (!*p->tree) BN_TRY(bn_token_tree_open(p->tree, p->tokenizer, p->n_vocab, err));
    if (r->grammar) return bn_grammar_from_gbnf(out, *p->tree, r->grammar, strlen(r->grammar), err);
    return bn_grammar_from_schema(out, *p->tree, r->json_schema,
                                  r->json_schema ? strlen(r->json_schema) : 0, err);
}

static bitnet_status open_matcher(struct bn_answer *a, bitnet_error *err)
{
    const struct bn_request *q = a->request;
    BN_TRY(bn_matcher_open(&a->matcher, q->grammar, err));
    uint32_t cost = bn_matcher_cost(a->matcher), room = q->limit - q->n_prompt;
    if (cost <= room || cost == BN_NO_COST) return BITNET_OK;
    return bn_fail(err, BITNET_E_LIMIT,
                   "the shortest answer in this form takes up to %u tokens; there is room for %u",
                   cost, room);
}

static bitnet_status open_text(struct bn_answer *a, const bitnet_request *r,
                               const struct bn_request_place *p, bitnet_error *err)
{
    const struct bn_request *q = a->request;
    if (q->grammar) BN_TRY(open_matcher(a, err));
    if (!p->tokenizer) return BITNET_OK;
    BN_TRY(bn_detok_open(&a->detok, p->tokenizer, r->show_special != 0, r->stop, r->n_stop, err));
    /* what a step's tokens show, and what comes out at the end */
    size_t room = (p->draft + 2) * bn_detok_room(a->detok);
    a->text = bn_calloc_now(room, 1);
    return a->text ? BITNET_OK : bn_fail_nomem(err, room, "the text of a step");
}
#endif

/* ------------------------------------------------------------------ life */

static bitnet_status open_answer(struct bn_answer *a, const bitnet_request *r,
                                 const struct bn_request_place *p, bitnet_error *err)
{
    const struct bn_request *q = a->request;
    bitnet_sampling sampling = r->sampling;
    sampling.seed += a->choice;
    a->tokens = bn_calloc_now(q->limit, sizeof *a->tokens);
    if (q->n_top) a->top = bn_calloc_now((size_t)(p->draft + 1) * q->n_top, sizeof *a->top);
    if (!a->tokens || (q->n_top && !a->top))
        return bn_fail_nomem(err, q->limit * sizeof *a->tokens, "a request");
    memcpy(a->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    a->job.n_tokens = q->n_prompt;
    BN_TRY(bn_sampler_open(&a->sampler, &sampling, p->n_vocab, p->tokenizer, r->tokens, q->n_prompt,
                           q->limit, err));
    BN_TRY(bn_repetition_open(&a->repetition, q->limit - q->n_prompt, err));
    if (p->draft) BN_TRY(bn_draft_open(&a->draft, q->limit, err));
#if BN_HAVE_TEXT
    BN_TRY(open_text(a, r, p, err));
#endif
    return BITNET_OK;
}

bitnet_status bn_request_make(struct bn_request **out, const bitnet_request *r,
                              const struct bn_request_place *p, bitnet_error *err)
{
    *out = NULL;
    uint32_t n_choices = r->n_choices ? r->n_choices : 1;
    if (n_choices > BN_MAX_CHOICES)
        return bn_fail(err, BITNET_E_LIMIT, "%u answers to a prompt; at most %d are possible",
                       n_choices, BN_MAX_CHOICES);
    if (r->n_top_logprobs > BN_MAX_TOP_LOGPROBS)
        return bn_fail(err, BITNET_E_LIMIT, "%u likeliest tokens; at most %d are possible",
                       r->n_top_logprobs, BN_MAX_TOP_LOGPROBS);
    enum bn_choice prefix;
    BN_TRY(bn_choice_parse(&prefix, "prefix_cache", r->prefix_cache, err));
    BN_TRY(check_form(r, p->tokenizer, err));
    size_t bytes = sizeof(struct bn_request) + n_choices * sizeof(struct bn_answer);
    struct bn_request *q = bn_calloc(1, bytes);
    if (!q) return bn_fail_nomem(err, bytes, "a request");
    q->n_choices = q->n_left = n_choices;
    q->n_prompt = (uint32_t)r->n_tokens;
    q->limit = p->limit;
    q->logprobs = r->logprobs != 0;
    q->n_top = r->logprobs ? (uint32_t)bn_min_size(r->n_top_logprobs, p->n_vocab) : 0;
    q->ignore_end = r->ignore_end != 0;
    q->no_cache = prefix == BN_OFF;
    q->tokenizer = p->tokenizer;
    q->deadline_ns = UINT64_MAX;
    bitnet_status s = BITNET_OK;
#if BN_HAVE_TEXT
    s = open_grammar(&q->grammar, r, p, err);
#endif
    for (uint32_t i = 0; s == BITNET_OK && i < n_choices; i++) {
        q->answers[i].request = q;
        q->answers[i].choice = i;
        s = open_answer(&q->answers[i], r, p, err);
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
        struct bn_answer *a = &r->answers[i];
        bn_sampler_close(a->sampler);
        bn_draft_close(a->draft);
        bn_repetition_close(&a->repetition);
#if BN_HAVE_TEXT
        bn_matcher_close(a->matcher);
        bn_detok_close(a->detok);
#endif
        free(a->text);
        free(a->top);
        free(a->tokens);
    }
#if BN_HAVE_TEXT
    bn_grammar_close(r->grammar);
#endif
    free(r);
}

/* ------------------------------------------------------------------ an answer grows */

void bn_answer_begin_step(struct bn_answer *a)
{
    a->n_text = 0;
    a->n_drawn = 0;
}

#if BN_HAVE_TEXT

/* The detokenizer's text is borrowed until its next call only. */
static void keep_text(struct bn_answer *a, const char **text, size_t n)
{
    char *kept = a->text + a->n_text;
    memcpy(kept, *text, n);
    a->n_text += n;
    *text = kept;
}

bool bn_answer_mask(struct bn_answer *a, uint64_t *mask)
{
    int32_t only;
    return bn_matcher_mask(a->matcher, mask, &only) > 0;
}

bool bn_answer_must_close(struct bn_answer *a, int32_t token, uint64_t *mask)
{
    uint32_t left = a->request->limit - a->job.n_tokens - 1;
    return bn_matcher_cost_after(a->matcher, token) > left &&
           bn_matcher_closing_mask(a->matcher, left, mask);
}

static bitnet_finish push_text(struct bn_answer *a, int32_t token, const char **text, size_t *n)
{
    const struct bn_request *r = a->request;
    if (!r->tokenizer) return BITNET_FINISH_NONE;
    if (!r->ignore_end && bn_token_is_end(r->tokenizer, token)) return BITNET_FINISH_END;
    bool stopped = bn_detok_push(a->detok, token, text, n);
    keep_text(a, text, *n);
    if (stopped) return BITNET_FINISH_STOP;
    if (!a->matcher) return BITNET_FINISH_NONE;
    bn_matcher_accept(a->matcher, token); /* it was drawn from what is allowed */
    bool last = a->job.n_tokens >= r->limit;
    bool over = bn_matcher_done(a->matcher) || (last && bn_matcher_cost(a->matcher) == 0);
    return over ? BITNET_FINISH_END : BITNET_FINISH_NONE;
}

void bn_answer_flush(struct bn_answer *a, const char **text, size_t *n)
{
    if (!a->detok) return;
    bn_detok_flush(a->detok, text, n);
    keep_text(a, text, *n);
}

#else

bool bn_answer_mask(struct bn_answer *a, uint64_t *mask)
{
    (void)a;
    (void)mask;
    return false; /* there are no grammars */
}

bool bn_answer_must_close(struct bn_answer *a, int32_t token, uint64_t *mask)
{
    (void)a;
    (void)token;
    (void)mask;
    return false;
}

static bitnet_finish push_text(struct bn_answer *a, int32_t token, const char **text, size_t *n)
{
    (void)a;
    (void)token;
    (void)text;
    (void)n;
    return BITNET_FINISH_NONE;
}

void bn_answer_flush(struct bn_answer *a, const char **text, size_t *n)
{
    (void)a;
    (void)text;
    (void)n;
}

#endif

bitnet_finish bn_answer_push(struct bn_answer *a, int32_t token, const char **text, size_t *n)
{
    a->tokens[a->job.n_tokens++] = token;
    a->n_drawn++;
    bn_sampler_push(a->sampler, token);
    bn_repetition_push(&a->repetition, a->tokens + a->request->n_prompt,
                       a->job.n_tokens - a->request->n_prompt);
    bitnet_finish why = push_text(a, token, text, n);
    if (why == BITNET_FINISH_NONE && a->job.n_tokens >= a->request->limit)
        why = BITNET_FINISH_LENGTH;
    return why;
}
