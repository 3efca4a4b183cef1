/* SPDX-License-Identifier: Apache-2.0
 * Divergence: at every position of a text the distributions of the next token are compared. The text goes
 * through both engines in windows, in pieces that keep the logits small; of each window the positions from
 * the middle on count, as in llama-perplexity, so that the base may also be a file that it wrote.
 * All of it is a statistic in double precision and no part of the bit contract. */
#include "forge/harm.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "engine/engine.h"
#include "forge/forge.h"
#include <math.h>
#include <stdlib.h>

enum { PIECE_TOKENS = 64, PIECE_MAX_BYTES = 64 << 20, CTX_DEFAULT = 512, CTX_MIN = 4 };

/* ------------------------------------------------------------------ rows */

double bn_log_sum_exp(const float *logits, size_t n)
{
    float top = logits[0];
    for (size_t i = 1; i < n; i++) top = logits[i] > top ? logits[i] : top;
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += exp((double)logits[i] - (double)top);
    return log(sum) + (double)top;
}

void bn_log_softmax(const float *logits, size_t n, double *out)
{
    double all = bn_log_sum_exp(logits, n);
    for (size_t i = 0; i < n; i++) out[i] = (double)logits[i] - all;
}

static size_t best_of(const double *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) best = x[i] > x[best] ? i : best;
    return best;
}

struct bn_harm_row bn_harm_compare(const double *base, const double *other, size_t n, int32_t token,
                                   double least)
{
    double kl = 0;
    for (size_t i = 0; i < n; i++)
        if (base[i] > least) kl += exp(base[i]) * (base[i] - other[i]);
    return (struct bn_harm_row){.kl = kl < 0 ? 0 : kl, /* rounding */
                                .nll_base = -base[token],
                                .nll = -other[token],
                                .same_top = best_of(base, n) == best_of(other, n)};
}

bool bn_harm_add(struct bn_harm *h, const struct bn_harm_row *row)
{
    if (!bn_grow((void **)&h->kl, &h->room, h->n + 1, sizeof *h->kl)) return false;
    double diff = row->nll - row->nll_base;
    h->kl[h->n++] = row->kl;
    h->n_same_top += row->same_top;
    h->nll_base += row->nll_base;
    h->nll += row->nll;
    h->diff_squares += diff * diff;
    return true;
}

void bn_harm_free(struct bn_harm *h)
{
    free(h->kl);
    *h = (struct bn_harm){.least = h->least};
}

/* ------------------------------------------------------------------ figures */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values, with linear interpolation between neighbours. */
static double quantile(const double *sorted, size_t n, double p)
{
    double at = p * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n) return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

void bn_harm_figures(struct bn_harm *h, bitnet_divergence *out)
{
    double n = (double)h->n, sum = 0, squares = 0, diff = (h->nll - h->nll_base) / n;
    for (size_t i = 0; i < h->n; i++) sum += h->kl[i];
    out->kl_mean = sum / n;
    for (size_t i = 0; i < h->n; i++)
        squares += (h->kl[i] - out->kl_mean) * (h->kl[i] - out->kl_mean);
    out->kl_mean_error = h->n > 1 ? sqrt(squares / (n - 1) / n) : 0;
    qsort(h->kl, h->n, sizeof *h->kl, ascending);
    out->kl_median = quantile(h->kl, h->n, 0.5);
    out->kl_p99 = quantile(h->kl, h->n, 0.99);
    out->kl_max = h->kl[h->n - 1];
    out->same_top = (double)h->n_same_top / n;
    out->same_top_error = sqrt(out->same_top * (1 - out->same_top) / n);
    out->ppl_base = exp(h->nll_base / n);
    out->ppl = exp(h->nll / n);
    out->ppl_ratio = exp(diff);
    double variance = h->diff_squares / n - diff * diff;
    out->ppl_ratio_error = h->n > 1 && variance > 0 ? exp(diff) * sqrt(variance / (n - 1)) : 0;
    out->n_positions = h->n;
}

/* ------------------------------------------------------------------ two engines, window by window */

struct walk {
    struct bitnet_engine *engines[2]; /* the first may be NULL: the rows are asked for */
    const bitnet_compare_options *o;
    struct bn_harm harm;
    size_t n_vocab, ctx, piece;
    size_t n_tokens;  /* of all windows: a shorter one at the end is left out */
    float *logits[2]; /* [piece][n_vocab] */
    double *rows[2];  /* [n_vocab] */
    size_t base_at;   /* next row that is asked for */
    int32_t bos;      /* >= 0: stands in for the first token of a window, as in llama-perplexity */
};

static bitnet_status take_piece(struct walk *w, const int32_t *next, size_t n, bitnet_error *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = i * w->n_vocab;
        if (w->engines[0]) bn_log_softmax(w->logits[0] + at, w->n_vocab, w->rows[0]);
        else w->o->base(w->o->base_user, w->base_at++, w->rows[0]);
        bn_log_softmax(w->logits[1] + at, w->n_vocab, w->rows[1]);
        struct bn_harm_row row =
            bn_harm_compare(w->rows[0], w->rows[1], w->n_vocab, next[i], w->harm.least);
        if (!bn_harm_add(&w->harm, &row))
            return bn_fail_nomem(err, w->harm.n * sizeof(double), "divergences");
    }
    return BITNET_OK;
}

/* before: tokens of the windows before this one. */
static bitnet_status walk_window(struct walk *w, struct bn_window *window, size_t before,
                                 bitnet_error *err)
{
    for (int i = 0; i < 2; i++)
        if (w->engines[i]) BN_TRY(bn_engine_eval_reset(w->engines[i], 0, err));
    while (bn_window_next(window)) {
        for (int i = 0; i < 2; i++)
            if (w->engines[i])
                BN_TRY(bn_engine_eval(w->engines[i], 0, window->ids, window->n_ids, false,
                                      window->counts ? w->logits[i] : NULL, err));
        if (window->counts)
            BN_TRY(take_piece(w, window->tokens + window->at + 1, window->n_ids, err));
        size_t done = before + window->at + window->n_ids + 1;
        if (w->o->progress && w->o->progress(w->o->progress_user, "compare", done, w->n_tokens))
            return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %zu of %zu tokens",
                           done, w->n_tokens);
    }
    return BITNET_OK;
}

static bitnet_status walk_all(struct walk *w, const int32_t *tokens, bitnet_error *err)
{
    for (size_t at = 0; at < w->n_tokens; at += w->ctx) {
        struct bn_window window = {.tokens = tokens + at,
                                   .n = w->ctx,
                                   .first = w->ctx / 2,
                                   .most = w->piece,
                                   .bos = w->bos};
        BN_TRY(walk_window(w, &window, at, err));
    }
    return BITNET_OK;
}

static bitnet_status check(const struct walk *w, size_t n, bitnet_error *err)
{
    const struct bitnet_engine *a = w->engines[0], *b = w->engines[1];
    uint32_t ctx_max = bn_engine_ctx(b);
    if (a == b) return bn_fail(err, BITNET_E_ARG, "an engine cannot be compared with itself");
    if (!a && !w->o->base) return bn_fail(err, BITNET_E_ARG, "there is nothing to compare with");
    if (a && bn_engine_model(a)->config.n_vocab != w->n_vocab)
        return bn_fail(err, BITNET_E_ARG, "vocabularies of %u and %zu tokens cannot be compared",
                       bn_engine_model(a)->config.n_vocab, w->n_vocab);
    if (a && bn_engine_ctx(a) < ctx_max) ctx_max = bn_engine_ctx(a);
    if (w->ctx < CTX_MIN || w->ctx > ctx_max)
        return bn_fail(err, BITNET_E_ARG,
                       "a window of %zu tokens is not between %d and the engine's %u", w->ctx,
                       CTX_MIN, ctx_max);
    if (n < w->ctx)
        return bn_fail(err, BITNET_E_ARG, "the text has %zu tokens, and a window of %zu is needed",
                       n, w->ctx);
    return BITNET_OK;
}

bitnet_status bn_compare(struct bitnet_engine *base, struct bitnet_engine *other,
                         const int32_t *tokens, size_t n, const bitnet_compare_options *o,
                         bitnet_divergence *out, bitnet_error *err)
{
    uint64_t start = bn_now_ns();
    struct walk w = {.engines = {base, other}, .o = o, .harm = {.least = BN_HARM_ALL}};
    if (!base && o->base_least < 0) w.harm.least = o->base_least;
    w.n_vocab = bn_engine_model(other)->config.n_vocab;
    w.ctx = o->ctx_tokens ? o->ctx_tokens : bn_min_size(CTX_DEFAULT, bn_engine_ctx(other));
    w.bos = bn_forge_opening(bn_engine_model(other));
    BN_TRY(check(&w, n, err));
    BN_TRY(bn_forge_check_tokens(tokens, n, (uint32_t)w.n_vocab, err));
    w.n_tokens = n / w.ctx * w.ctx;
    w.piece = bn_min_size(PIECE_TOKENS, PIECE_MAX_BYTES / sizeof(float) / w.n_vocab);
    w.piece = bn_max_size(w.piece, 1);
    bool ok = true;
    for (int i = 0; i < 2; i++) {
        w.logits[i] = bn_calloc(w.piece * w.n_vocab, sizeof(float));
        w.rows[i] = bn_calloc(w.n_vocab, sizeof(double));
        ok = ok && w.logits[i] && w.rows[i];
    }
    bitnet_status status = ok ? walk_all(&w, tokens, err)
                              : bn_fail_nomem(err, w.piece * w.n_vocab * sizeof(float), "logits");
    if (status == BITNET_OK) {
        bn_harm_figures(&w.harm, out);
        out->ns = bn_now_ns() - start;
    }
    for (int i = 0; i < 2; i++) {
        free(w.logits[i]);
        free(w.rows[i]);
    }
    bn_harm_free(&w.harm);
    return status;
}
