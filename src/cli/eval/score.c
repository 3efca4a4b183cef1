/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/score.c: items as tokens, and what the model makes of them. Context and continuation are encoded
 * as lm-evaluation-harness does it: spaces at the end of the context go over to the continuation; the
 * whole text is encoded, and what stands behind as many tokens as the context has is the continuation.
 */
#include "app/tokens.h"
#include "base/clock.h"
#include "cli/eval/eval.h"

#include <stdlib.h>
#include <string.h>

void eval_run_free(struct eval_run *r)
{
    eval_set_free(&r->set);
    free(r->scores);
    free(r->right);
    free(r->right_norm);
    *r = (struct eval_run){0};
}

/* ------------------------------------------------------------------ tokens */

/* Texts of a whole task, and where each lies. */
struct pairs {
    const bitnet_model *m;
    uint32_t ctx; /* tokens that fit */
    bool add_bos;
    int32_t *ids; /* owned */
    size_t n_ids, room;
    bitnet_score_input *inputs; /* owned; tokens are places in ids until all is there */
    size_t n, n_cut;
};

static bitnet_status put_text(struct pairs *p, const char *text, size_t len, bool begins,
                              bitnet_error *err)
{
    int32_t *ids;
    size_t n;
    uint32_t flags = BITNET_TOK_SPECIAL | (begins && p->add_bos ? BITNET_TOK_BOS : 0);
    BN_TRY(tokens_encode(&ids, &n, p->m, text, len, flags, err));
    bool ok = bn_grow((void **)&p->ids, &p->room, p->n_ids + n, sizeof *p->ids);
    if (ok) memcpy(p->ids + p->n_ids, ids, n * sizeof *ids);
    free(ids);
    if (!ok) return bn_fail_nomem(err, n * sizeof *ids, "tokens");
    p->n_ids += n;
    return BITNET_OK;
}

/* The token before a text that has no context. */
static bitnet_status put_beginning(struct pairs *p, bitnet_error *err)
{
    int32_t bos = bitnet_token_bos(p->m);
    if (bos < 0)
        return bn_fail(err, BITNET_E_STATE,
                       "an item has no context, and the model no token that begins a text");
    if (!bn_grow((void **)&p->ids, &p->room, p->n_ids + 1, sizeof *p->ids))
        return bn_fail_nomem(err, sizeof *p->ids, "tokens");
    p->ids[p->n_ids++] = bos;
    return BITNET_OK;
}

static size_t without_spaces(const char *text)
{
    size_t n = strlen(text);
    while (n && strchr(" \t\n\r", text[n - 1])) n--;
    return n;
}

/* Appends the tokens of one option; *n_context of them stand before what is scored. */
static bitnet_status put_pair(struct pairs *p, const struct eval_option *o, size_t *n_context,
                              bitnet_error *err)
{
    size_t n_kept = without_spaces(o->context), begin = p->n_ids;
    if (n_kept == 0) {
        BN_TRY(put_beginning(p, err));
        *n_context = 1;
        return put_text(p, o->continuation, strlen(o->continuation), false, err);
    }
    BN_TRY(put_text(p, o->context, n_kept, true, err));
    *n_context = p->n_ids - begin;
    /* the whole text, of which only what stands behind the context stays */
    size_t n_all = strlen(o->context) + strlen(o->continuation);
    char *all = malloc(n_all + 1);
    if (!all) return bn_fail_nomem(err, n_all, "the text of an item");
    memcpy(all, o->context, strlen(o->context));
    memcpy(all + strlen(o->context), o->continuation, strlen(o->continuation) + 1);
    size_t at = p->n_ids;
    bitnet_status status = put_text(p, all, n_all, true, err);
    free(all);
    if (status != BITNET_OK) return status;
    size_t n_whole = p->n_ids - at, n_rest = n_whole > *n_context ? n_whole - *n_context : 0;
    memmove(p->ids + at, p->ids + at + *n_context, n_rest * sizeof *p->ids);
    p->n_ids = at + n_rest;
    return BITNET_OK;
}

static bitnet_status add_option(struct pairs *p, const struct eval_option *o, size_t item,
                                bitnet_error *err)
{
    size_t begin = p->n_ids, n_context;
    BN_TRY(put_pair(p, o, &n_context, err));
    size_t n = p->n_ids - begin;
    if (n == n_context)
        return bn_fail(err, BITNET_E_FORMAT, "item %zu: a continuation that makes no token", item);
    if (n > p->ctx) { /* the beginning goes, as far as there is context */
        size_t over = n - p->ctx;
        if (over >= n_context)
            return bn_fail(err, BITNET_E_LIMIT,
                           "item %zu: a continuation of %zu tokens does not fit a context of %u",
                           item, n - n_context, p->ctx);
        memmove(p->ids + begin, p->ids + begin + over, (n - over) * sizeof *p->ids);
        p->n_ids -= over;
        n -= over;
        n_context -= over;
        p->n_cut++;
    }
    p->inputs[p->n++] = (bitnet_score_input){.n_tokens = n, .n_context = n_context};
    return BITNET_OK;
}

static bitnet_status encode(struct pairs *p, const struct eval_set *s, bitnet_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->items[i].n_options;
    p->inputs = bn_calloc(n + 1, sizeof *p->inputs);
    if (!p->inputs) return bn_fail_nomem(err, n * sizeof *p->inputs, "texts");
    for (size_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < s->items[i].n_options; k++)
            BN_TRY(add_option(p, &s->items[i].options[k], i, err));
    const int32_t *at = p->ids;
    for (size_t i = 0; i < p->n; at += p->inputs[i++].n_tokens) p->inputs[i].tokens = at;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ verdicts */

uint32_t eval_best(const struct eval_score *scores, const struct eval_item *item, bool normed)
{
    uint32_t best = 0;
    double top = 0;
    for (uint32_t i = 0; i < item->n_options; i++) {
        uint32_t chars = item->options[i].chars;
        double v = normed ? scores[i].logprob / (chars ? chars : 1) : scores[i].logprob;
        if (i == 0 || v > top) {
            top = v;
            best = i;
        }
    }
    return best;
}

static void judge_items(struct eval_run *r)
{
    const struct eval_score *scores = r->scores;
    for (size_t i = 0; i < r->set.n; i++) {
        const struct eval_item *item = &r->set.items[i];
        bool cloze = r->kind == EVAL_CLOZE;
        r->right[i] = cloze ? scores->greedy : eval_best(scores, item, false) == item->gold;
        r->right_norm[i] = cloze ? scores->greedy : eval_best(scores, item, true) == item->gold;
        scores += item->n_options;
    }
}

static bitnet_status take_scores(struct eval_run *r, const struct pairs *p, bitnet_engine *e,
                                 const struct eval_settings *o, bitnet_error *err)
{
    bitnet_score_options so = {.size = sizeof so};
    so.progress = o->progress;
    so.user = o->progress_user;
    so.n_computed = &r->n_computed;
    bitnet_score_result *results = bn_calloc(p->n + 1, sizeof *results);
    if (!results) return bn_fail_nomem(err, p->n * sizeof *results, "scores");
    bitnet_status status = bitnet_score(e, p->inputs, p->n, &so, results, err);
    for (size_t i = 0; i < p->n; i++) {
        const bitnet_score_input *in = &p->inputs[i];
        r->scores[i] = (struct eval_score){.logprob = results[i].logprob,
                                           .n_tokens = (uint32_t)(in->n_tokens - in->n_context),
                                           .greedy = results[i].greedy != 0};
        r->n_tokens += in->n_tokens;
    }
    free(results);
    return status;
}

bitnet_status eval_judge(struct eval_run *r, bitnet_engine *e, const bitnet_model *m,
                         const struct eval_settings *o, bitnet_error *err)
{
    uint64_t start = bn_now_ns();
    bitnet_engine_info info = {.size = sizeof info};
    bitnet_engine_get_info(e, &info);
    struct pairs p = {.m = m, .ctx = info.ctx_tokens, .add_bos = o->add_bos};
    bitnet_status status = encode(&p, &r->set, err);
    r->scores = bn_calloc(p.n + 1, sizeof *r->scores);
    r->right = bn_calloc(r->set.n + 1, sizeof *r->right);
    r->right_norm = bn_calloc(r->set.n + 1, sizeof *r->right_norm);
    if (status == BITNET_OK && (!r->scores || !r->right || !r->right_norm))
        status = bn_fail_nomem(err, p.n * sizeof *r->scores, "scores");
    if (status == BITNET_OK) status = take_scores(r, &p, e, o, err);
    if (status == BITNET_OK) judge_items(r);
    r->n_cut = p.n_cut;
    r->ns = bn_now_ns() - start;
    free(p.inputs);
    free(p.ids);
    return status;
}
