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

struct scores {
    double sum, sum_squares;
    uint64_t n;
};

struct window {
    const int32_t *tokens;
    size_t n;
    size_t first; /* the first position whose prediction of its successor is scored */
    int32_t bos;  /* >= 0: stands in for the first token */
};

/* Evaluates one window; logits: room for `piece` rows. */
static bitnet_status score_window(struct scores *sc, struct bitnet_engine *e,
                                  const struct window *w, float *logits, size_t piece,
                                  uint32_t n_vocab, bitnet_error *err)
{
    BN_TRY(bn_engine_eval_reset(e, 0, err));
    for (size_t at = 0; at + 1 < w->n;) { /* nothing follows the last token: it is not needed */
        /* a piece lies on one side of `first`, so that nothing is computed that nobody looks at */
        size_t end = at < w->first ? w->first : w->n - 1;
        size_t n = bn_min_size(end - at, piece);
        bool wanted = at >= w->first;
        const int32_t *ids = w->tokens + at;
        if (at == 0 && w->bos >= 0) ids = &w->bos, n = 1;
        BN_TRY(bn_engine_eval(e, 0, ids, n, false, wanted ? logits : NULL, err));
        for (size_t i = 0; wanted && i < n; i++) {
            const float *row = logits + i * n_vocab;
            double v = bn_log_sum_exp(row, n_vocab) - (double)row[w->tokens[at + i + 1]];
            sc->sum += v;
            sc->sum_squares += v * v;
            sc->n++;
        }
        at += n;
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

    struct window w = {.bos = -1, .first = second_half ? ctx / 2 : 0};
    if (second_half) w.bos = bn_forge_opening(m);
    size_t piece = bn_min_size(PIECE_TOKENS, MAX_LOGIT_BYTES / sizeof(float) / n_vocab);
    piece = bn_max_size(piece, 1);
    float *logits = bn_calloc(piece * n_vocab, sizeof *logits);
    if (logits == NULL) return bn_fail_nomem(err, piece * n_vocab * sizeof *logits, "logits");

    bitnet_status s = BITNET_OK;
    struct scores sc = {0};
    uint64_t n_windows = 0;
    for (size_t at = 0; at + (second_half ? ctx : 2) <= n; at += ctx) {
        w.tokens = tokens + at;
        w.n = bn_min_size(ctx, n - at);
        s = score_window(&sc, e, &w, logits, piece, n_vocab, err);
        if (s != BITNET_OK) goto fail;
        n_windows++;
        if (o->progress && o->progress(o->progress_user, "perplexity", at + w.n, n)) {
            s = bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %zu of %zu tokens",
                        at + w.n, n);
            goto fail;
        }
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
