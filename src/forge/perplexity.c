/* SPDX-License-Identifier: Apache-2.0
 * Perplexity: how well a model foretells a text. Token ids go through the engine window by window,
 * in pieces that keep the logits small; of every scored position -log p(token) and its square are
 * summed.
 *
 * Two protocols, because published figures come from both:
 *  WINDOWS    consecutive windows as they are; every position but the first is scored; the rest
 *             of the text is a last, shorter window.
 *  LLAMA_CPP  as llama-perplexity does: the first token of each window is replaced by BOS if the
 *             model adds one, positions after the first half are scored, a last partial window is
 *             dropped.
 * The sums are a statistic in double precision and no part of the bit contract. */
#include "forge/forge.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "engine/engine.h"
#include "forge/harm.h"
#include "model/model.h"
#include "text/tokenizer/tokenizer.h"
#include <math.h>
#include <stdlib.h>

enum { PIECE_TOKENS = 64, DEFAULT_CTX = 512, MAX_LOGIT_BYTES = 64 << 20 };

/* A text on its way through the engine, and what was summed up. */
struct reading {
    struct bitnet_engine *engine;
    const bitnet_ppl_options *o;
    const int32_t *tokens;
    size_t n_tokens, n_vocab;
    float *logits; /* of a piece */
    double sum, sum_squares;
    uint64_t n;
};

bool bn_window_next(struct bn_window *w)
{
    w->at += w->n_ids;
    if (w->at + 1 >= w->n) return false;
    w->counts = w->at >= w->first;
    w->ids = w->tokens + w->at;
    w->n_ids = bn_min_size((w->counts ? w->n - 1 : w->first) - w->at, w->most);
    if (w->at == 0 && w->bos >= 0) w->ids = &w->bos, w->n_ids = 1;
    return true;
}

/* Evaluates one window; logits: room for a piece of it. */
static bitnet_status score_window(struct reading *r, struct bn_window *w, bitnet_error *err)
{
    BN_TRY(bn_engine_eval_reset(r->engine, 0, err));
    while (bn_window_next(w)) {
        BN_TRY(bn_engine_eval(r->engine, 0, w->ids, w->n_ids, false, w->counts ? r->logits : NULL,
                              err));
        for (size_t i = 0; w->counts && i < w->n_ids; i++) {
            const float *row = r->logits + i * r->n_vocab;
            double v = bn_log_sum_exp(row, r->n_vocab) - (double)row[w->tokens[w->at + i + 1]];
            r->sum += v;
            r->sum_squares += v * v;
            r->n++;
        }
        size_t done = (size_t)(w->tokens - r->tokens) + w->at + w->n_ids + 1;
        if (r->o->progress && r->o->progress(r->o->progress_user, "perplexity", done, r->n_tokens))
            return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %zu of %zu tokens",
                           done, r->n_tokens);
    }
    return BITNET_OK;
}

int32_t bn_forge_opening(const struct bn_model *m)
{
#if BN_HAVE_TEXT /* else there is no tokenizer to ask */
    const struct bn_vocab *v = m->tokenizer ? bn_tokenizer_vocab(m->tokenizer) : NULL;
    if (v && v->add_bos) return v->bos;
#else
    (void)m;
#endif
    return -1;
}

bitnet_status bn_forge_check_tokens(const int32_t *tokens, size_t n, uint32_t n_vocab,
                                    bitnet_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= n_vocab)
            return bn_fail(err, BITNET_E_ARG, "token %zu is %d, and the model has tokens 0 to %u",
                           i, tokens[i], n_vocab - 1);
    return BITNET_OK;
}

static bitnet_status check(const int32_t *tokens, size_t n, size_t ctx, bool second_half,
                           uint32_t ctx_max, uint32_t n_vocab, bitnet_error *err)
{
    if (ctx < (second_half ? 4 : 2) || ctx > ctx_max)
        return bn_fail(err, BITNET_E_ARG,
                       "a window of %zu tokens is not between %d and the engine's %u", ctx,
                       second_half ? 4 : 2, ctx_max);
    if (n < (second_half ? ctx : 2))
        return bn_fail(err, BITNET_E_ARG, "the text has %zu tokens, and at least %zu are needed", n,
                       second_half ? ctx : (size_t)2);
    return bn_forge_check_tokens(tokens, n, n_vocab, err);
}

bitnet_status bn_perplexity(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                            const bitnet_ppl_options *o, bitnet_ppl_result *r, bitnet_error *err)
{
    const struct bn_model *m = bn_engine_model(e);
    const uint32_t n_vocab = m->config.n_vocab, ctx_max = bn_engine_ctx(e);
    const bool second_half = o->protocol == BITNET_PPL_LLAMA_CPP;
    const size_t ctx = o->ctx_tokens ? o->ctx_tokens : bn_min_size(DEFAULT_CTX, ctx_max);
    const uint64_t start = bn_now_ns();
    BN_TRY(check(tokens, n, ctx, second_half, ctx_max, n_vocab, err));

    size_t most = bn_min_size(PIECE_TOKENS, MAX_LOGIT_BYTES / sizeof(float) / n_vocab);
    most = bn_max_size(most, 1);
    float *logits = bn_calloc(most * n_vocab, sizeof *logits);
    if (logits == NULL) return bn_fail_nomem(err, most * n_vocab * sizeof *logits, "logits");

    bitnet_status s = BITNET_OK;
    struct reading sc = {e, o, tokens, n, n_vocab, .logits = logits};
    uint64_t n_windows = 0;
    for (size_t at = 0; at + (second_half ? ctx : 2) <= n; at += ctx) {
        struct bn_window w = {.tokens = tokens + at,
                              .n = bn_min_size(ctx, n - at),
                              .first = second_half ? ctx / 2 : 0,
                              .most = most,
                              .bos = second_half ? bn_forge_opening(m) : -1};
        s = score_window(&sc, &w, err);
        if (s != BITNET_OK) goto fail;
        n_windows++;
    }
    double mean = sc.sum / (double)sc.n, variance = sc.sum_squares / (double)sc.n - mean * mean;
    if (!isfinite(mean)) {
        s = bn_fail(err, BITNET_E_FORMAT, "the model's logits are not finite numbers");
        goto fail;
    }
    r->n_tokens = sc.n;
    r->n_windows = n_windows;
    r->nll_per_token = mean;
    r->perplexity = exp(mean);
    /* of the mean, carried through exp */
    r->std_error = sc.n > 1 && variance > 0 ? sqrt(variance / (double)(sc.n - 1)) * exp(mean) : 0;
    r->ns = bn_now_ns() - start;
fail:
    free(logits);
    return s;
}
