/* SPDX-License-Identifier: Apache-2.0
 * Which layers a model can do without: layers are left out of the stack, one after the other, and the
 * harm is measured on a text.
 *
 *   windows of the text --bn_engine_walk--> states between layers, states at the end --head--> sums
 *
 * Candidates share what lies before them. With layers 0 to L-1 left, the states x before layer i are
 * carried along; the candidate without i goes on from x through i+1 to L-1, then x passes i. A step
 * walks L (L + 1) / 2 layers, where whole passes for every candidate would walk L (L - 1). States are
 * kept of one window at a time, so memory does not grow with the text.
 *
 * Sums run in the order of perplexity.c over the same windows: a file without these layers has the
 * perplexity that was found here, to the last bit. */
#include "forge/prune/search_impl.h"

#include "base/clock.h"
#include "base/os/mem.h"
#include "model/forward.h"
#include <math.h>
#include <stdlib.h>

enum { DEFAULT_WINDOW = 256, PIECE_TOKENS = 64, MAX_LOGIT_BYTES = 64 << 20 };
enum { DENSE_COST = 4 }; /* a weight of the head beside one of a layer, for the progress bar */

/* ------------------------------------------------------------------ walking */

static bitnet_status report(struct bn_search *s, uint64_t cost, bitnet_error *err)
{
    s->done += cost;
    uint64_t shown = s->done < s->total ? s->done : s->total;
    if (!s->o->progress || !s->o->progress(s->o->progress_user, "prune", shown, s->total))
        return BITNET_OK;
    return bn_fail(err, BITNET_E_CANCELLED, "stopped on request after %.0f %% of the search",
                   100.0 * (double)shown / (double)s->total);
}

/* The next window of the text, as perplexity.c has it. */
bool bn_search_next(const struct bn_search *s, struct bn_search_window *w)
{
    size_t at = w->tokens ? (size_t)(w->tokens - s->tokens) + s->window : 0;
    if (at + 2 > s->n) return false;
    *w = (struct bn_search_window){s->tokens + at, bn_min_size(s->window, s->n - at) - 1};
    return true;
}

/* Through layers[0..n): from NULL: the embeddings. What is measured against, `all`, has all channels. */
static bitnet_status walk(struct bn_search *s, const struct bn_search_window *w,
                          const uint32_t *layers, uint32_t n, const float *from, float *to,
                          bitnet_error *err)
{
    struct bn_walk part = {.layers = layers, .n_layers = n, .from = from, .to = to};
    if (s->narrow && layers != s->all) part.ffn_off = s->off;
    BN_TRY(bn_engine_walk(s->e, w->tokens, w->n, &part, NULL, err));
    s->r->layer_tokens += (uint64_t)n * w->n;
    return report(s, (uint64_t)n * w->n, err);
}

bitnet_status bn_search_pass(struct bn_search *s, const struct bn_search_window *w,
                             const struct bn_channel_sums *sums, bitnet_error *err)
{
    struct bn_walk part = {.layers = s->kept, .n_layers = s->n_kept, .ffn_sums = sums};
    BN_TRY(bn_engine_walk(s->e, w->tokens, w->n, &part, NULL, err));
    s->r->layer_tokens += (uint64_t)s->n_kept * w->n;
    return report(s, (uint64_t)s->n_kept * w->n, err);
}

/* ------------------------------------------------------------------ judging */

/* The logits that states at the end of the stack give, from token `at` on. */
static bitnet_status head(struct bn_search *s, const struct bn_search_window *w, size_t at,
                          size_t n, const float *x, float *logits, bitnet_error *err)
{
    struct bn_walk part = {.from = x + at * s->n_embd};
    BN_TRY(bn_engine_walk(s->e, w->tokens + at, n, &part, logits, err));
    s->r->head_tokens += n;
    return report(s, s->head_cost * n, err);
}

static double divergence(struct bn_search *s, const float *whole, const float *cut, int32_t token)
{
    bn_log_softmax(whole, s->n_vocab, s->log_p);
    bn_log_softmax(cut, s->n_vocab, s->log_q);
    return bn_harm_compare(s->log_p, s->log_q, s->n_vocab, token, BN_HARM_ALL).kl;
}

/* Adds up what the states x of a window foretell; whole: those of the untouched model, or NULL. */
static bitnet_status judge(struct bn_search *s, struct bn_search_sums *sums,
                           const struct bn_search_window *w, const float *x, const float *whole,
                           bitnet_error *err)
{
    for (size_t at = 0; at < w->n; at += s->piece) {
        size_t n = bn_min_size(s->piece, w->n - at);
        BN_TRY(head(s, w, at, n, x, s->logits, err));
        if (whole) BN_TRY(head(s, w, at, n, whole, s->logits0, err));
        for (size_t i = 0; i < n; i++) {
            const float *row = s->logits + i * s->n_vocab;
            int32_t token = w->tokens[at + i + 1];
            double v = bn_log_sum_exp(row, s->n_vocab) - (double)row[token];
            sums->nll += v;
            sums->nll_squares += v * v;
            if (whole) sums->kl += divergence(s, s->logits0 + i * s->n_vocab, row, token);
        }
        sums->n += n;
    }
    return BITNET_OK;
}

bitnet_status bn_search_measure(struct bn_search *s, bitnet_prune_step *step, bitnet_error *err)
{
    struct bn_search_sums sums = {0};
    bool cut = s->n_kept < s->n_layer || s->narrow;
    for (struct bn_search_window w = {0}; bn_search_next(s, &w);) {
        if (cut) BN_TRY(walk(s, &w, s->all, s->n_layer, NULL, s->whole, err));
        BN_TRY(walk(s, &w, s->kept, s->n_kept, NULL, s->x, err));
        BN_TRY(judge(s, &sums, &w, s->x, cut ? s->whole : NULL, err));
    }
    double n = (double)sums.n, mean = sums.nll / n, variance = sums.nll_squares / n - mean * mean;
    if (!isfinite(mean))
        return bn_fail(err, BITNET_E_FORMAT, "the model's logits are not finite numbers");
    step->layers_left = s->n_kept;
    if (!step->ffn_width) step->ffn_width = s->n_ff;
    step->nll_per_token = mean;
    step->perplexity = exp(mean);
    step->std_error = n > 1 && variance > 0 ? sqrt(variance / (n - 1)) * exp(mean) : 0;
    step->kl = sums.kl / n;
    s->r->n_tokens = sums.n;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ scores */

/* Every candidate by what the text costs without it. */
static bitnet_status try_all(struct bn_search *s, bitnet_error *err)
{
    bool by_kl = s->o->criterion == BITNET_PRUNE_KL;
    memset(s->tried, 0, s->n_layer * sizeof *s->tried);
    for (struct bn_search_window w = {0}; bn_search_next(s, &w);) {
        if (by_kl) BN_TRY(walk(s, &w, s->all, s->n_layer, NULL, s->whole, err));
        BN_TRY(walk(s, &w, NULL, 0, NULL, s->x, err));
        for (uint32_t i = 0; i < s->n_kept; i += s->unit) {
            const uint32_t *rest = s->kept + i + s->unit;
            if (!s->is_protected[s->kept[i]]) {
                BN_TRY(walk(s, &w, rest, s->n_kept - i - s->unit, s->x, s->y, err));
                BN_TRY(judge(s, &s->tried[s->kept[i]], &w, s->y, by_kl ? s->whole : NULL, err));
            }
            if (i + s->unit < s->n_kept) BN_TRY(walk(s, &w, s->kept + i, s->unit, s->x, s->x, err));
        }
    }
    for (uint32_t i = 0; i < s->n_kept; i += s->unit) {
        const struct bn_search_sums *t = &s->tried[s->kept[i]];
        s->score[s->kept[i]] = t->n ? (by_kl ? t->kl : t->nll) / (double)t->n : NAN;
    }
    return BITNET_OK;
}

/* 1 - cosine of a token's states before and behind a block */
static double turn(const float *x, const float *y, size_t n)
{
    double xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < n; i++) {
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
        xy += (double)x[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? 1 - xy / sqrt(xx * yy) : 0;
}

/* Of every channel: sum and squares of what a block adds to it. */
static void add_moments(double *moments, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - (double)x[i];
        moments[i] += d;
        moments[n + i] += d * d;
    }
}

static double mean_variance(const double *moments, size_t n, double tokens)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double mean = moments[i] / tokens;
        sum += moments[n + i] / tokens - mean * mean;
    }
    return sum / (double)n;
}

/* All blocks in one pass of the whole model: their influence, or the variance of what they add. */
static bitnet_status observe(struct bn_search *s, bitnet_error *err)
{
    bool variance = s->o->criterion == BITNET_PRUNE_VARIANCE;
    size_t n_embd = s->n_embd;
    double tokens = 0;
    for (struct bn_search_window w = {0}; bn_search_next(s, &w);) {
        BN_TRY(walk(s, &w, NULL, 0, NULL, s->x, err));
        for (uint32_t i = 0; i < s->n_layer; i += s->unit) {
            BN_TRY(walk(s, &w, s->all + i, s->unit, s->x, s->y, err));
            for (size_t t = 0; t < w.n; t++) {
                const float *x = s->x + t * n_embd, *y = s->y + t * n_embd;
                if (variance) add_moments(s->moments + i * 2 * n_embd, x, y, n_embd);
                else s->score[i] += turn(x, y, n_embd);
            }
            float *swap = s->x;
            s->x = s->y;
            s->y = swap;
        }
        tokens += (double)w.n;
    }
    for (uint32_t i = 0; i < s->n_layer; i += s->unit)
        s->score[i] = variance ? mean_variance(s->moments + i * 2 * n_embd, n_embd, tokens)
                               : s->score[i] / tokens;
    return BITNET_OK;
}

/* ------------------------------------------------------------------ steps */

static bool is_greedy(const struct bn_search *s)
{
    return s->o->criterion == BITNET_PRUNE_PERPLEXITY || s->o->criterion == BITNET_PRUNE_KL;
}

/* The layer that begins what goes next; n_layer: there is none. */
static uint32_t choose(const struct bn_search *s, size_t step)
{
    uint32_t best = s->n_layer;
    if (s->o->n_layers) return s->o->layers[step];
    for (uint32_t i = 0; i < s->n_kept; i += s->unit) {
        uint32_t il = s->kept[i];
        if (s->is_protected[il] || isnan(s->score[il])) continue;
        if (best == s->n_layer || s->score[il] < s->score[best]) best = il;
    }
    return best;
}

static void take_out(struct bn_search *s, uint32_t layer)
{
    uint32_t n = 0, end = layer + s->unit;
    memcpy(s->before, s->kept, s->n_kept * sizeof *s->kept);
    for (uint32_t i = 0; i < s->n_kept; i++)
        if (s->kept[i] < layer || s->kept[i] >= end) s->kept[n++] = s->kept[i];
    s->n_kept = n;
}

static bitnet_status score(struct bn_search *s, size_t step, bitnet_error *err)
{
    if (s->o->n_layers || (step && !is_greedy(s))) return BITNET_OK;
    BN_TRY(is_greedy(s) ? try_all(s, err) : observe(s, err));
    if (step || !s->r->scores) return BITNET_OK;
    for (uint32_t i = 0; i < s->n_layer; i++) s->r->scores[i] = i % s->unit ? NAN : s->score[i];
    return BITNET_OK;
}

bool bn_search_is_over(struct bn_search *s, const bitnet_prune_step *step)
{
    double limit = s->r->steps[0].perplexity * (1 + s->o->max_ppl_increase / 100);
    if (!(s->o->max_ppl_increase > 0) || !(step->perplexity > limit)) return false;
    s->r->over_budget = step->perplexity;
    return true;
}

static bitnet_status run(struct bn_search *s, bitnet_error *err)
{
    bitnet_prune_step *steps = s->r->steps;
    size_t n = s->o->drop / s->unit;
    BN_TRY(bn_search_measure(s, &steps[0], err));
    s->r->n_steps = 1;
    for (size_t i = 0; i < n; i++) {
        bitnet_prune_step *now = &steps[i + 1];
        BN_TRY(score(s, i, err));
        uint32_t layer = choose(s, i), n_before = s->n_kept;
        take_out(s, layer);
        *now = (bitnet_prune_step){.first_layer = layer, .n_layers = s->unit};
        BN_TRY(bn_search_measure(s, now, err));
        if (bn_search_is_over(s, now)) { /* one too many */
            memcpy(s->kept, s->before, n_before * sizeof *s->kept);
            s->n_kept = n_before;
            break;
        }
        s->r->n_steps++;
    }
    return bn_search_widths(s, err);
}

/* ------------------------------------------------------------------ the call */

static bitnet_status check_layer(const struct bn_search *s, uint32_t layer, bitnet_error *err)
{
    if (layer < s->n_layer) return BITNET_OK;
    return bn_fail(err, BITNET_E_ARG, "there is no layer %u: the model has 0 to %u", layer,
                   s->n_layer - 1);
}

static bitnet_status check_lists(struct bn_search *s, bitnet_error *err)
{
    const bitnet_prune_options *o = s->o;
    uint32_t n_free = 0;
    for (size_t i = 0; i < o->n_protect; i++) {
        BN_TRY(check_layer(s, o->protect[i], err));
        s->is_protected[o->protect[i] / s->unit * s->unit] = true;
    }
    for (size_t i = 0; i < o->n_layers; i++) {
        uint32_t layer = o->layers[i];
        BN_TRY(check_layer(s, layer, err));
        if (layer % s->unit)
            return bn_fail(err, BITNET_E_ARG, "layer %u does not begin a period of %u layers",
                           layer, s->unit);
        for (size_t k = 0; k < i; k++)
            if (o->layers[k] == layer)
                return bn_fail(err, BITNET_E_ARG, "layer %u is to be removed twice", layer);
        if (s->is_protected[layer])
            return bn_fail(err, BITNET_E_ARG, "layer %u is to be removed, and protected", layer);
    }
    if (o->n_layers && o->n_layers * s->unit != o->drop)
        return bn_fail(err, BITNET_E_ARG, "%zu layers are listed, and %u are to go",
                       o->n_layers * s->unit, o->drop);
    for (uint32_t i = 0; i < s->n_layer; i += s->unit) n_free += s->is_protected[i] ? 0 : s->unit;
    if (n_free < o->drop)
        return bn_fail(err, BITNET_E_ARG, "%u layers are to go, and all but %u are protected",
                       o->drop, n_free);
    return BITNET_OK;
}

/* Before any memory is taken. */
static bitnet_status check_sizes(const struct bn_search *s, bitnet_error *err)
{
    const bitnet_prune_options *o = s->o;
    uint32_t most = bn_engine_batch_tokens(s->e), ctx = bn_engine_ctx(s->e);
    if (o->criterion > BITNET_PRUNE_VARIANCE)
        return bn_fail(err, BITNET_E_ARG, "criterion %d is unknown", (int)o->criterion);
    if (s->unit == 0 || s->n_layer % s->unit || o->drop % s->unit)
        return bn_fail(err, BITNET_E_ARG,
                       "%u layers, of which %u are to go, are not whole periods of %u", s->n_layer,
                       o->drop, s->unit);
    if ((o->drop == 0 && !o->ffn_width) || o->drop >= s->n_layer)
        return bn_fail(err, BITNET_E_ARG,
                       "%u layers are to go; the model has %u, and at least one must go and one "
                       "stay",
                       o->drop, s->n_layer);
    if (s->window < 2)
        return bn_fail(err, BITNET_E_ARG,
                       "in a window of %zu tokens nothing is predicted; at least 2 are needed",
                       s->window);
    if (s->window > most || s->window > ctx)
        return bn_fail(err, BITNET_E_ARG,
                       "a window of %zu tokens is more than the engine can compute at once, %u",
                       s->window, most < ctx ? most : ctx);
    if (s->n < 2)
        return bn_fail(err, BITNET_E_ARG, "the text has %zu tokens, and at least 2 are needed",
                       s->n);
    if (!(o->max_ppl_increase >= 0))
        return bn_fail(err, BITNET_E_ARG, "a perplexity that may grow by %g %% is no budget",
                       o->max_ppl_increase);
    return BITNET_OK;
}

/* What there is to do, in layers times tokens. */
static uint64_t plan_cost(const struct bn_search *s)
{
    uint64_t left = s->n_layer, cost = left + s->head_cost, unit = s->unit;
    bool by_kl = s->o->criterion == BITNET_PRUNE_KL;
    if (!s->o->n_layers && !is_greedy(s)) cost += left;
    for (uint64_t gone = 0; gone < s->o->drop; gone += unit, left -= unit) {
        uint64_t tries = left / unit;
        if (!s->o->n_layers && is_greedy(s)) {
            cost += left * (tries - 1) / 2 + left - unit + tries * s->head_cost;
            if (by_kl) cost += s->n_layer + tries * s->head_cost;
        }
        cost += s->n_layer + left - unit + 2 * s->head_cost;
    }
    return (cost + bn_search_widths_cost(s, left)) * s->n;
}

static bitnet_status open_memory(struct bn_search *s, bitnet_error *err)
{
    size_t states = s->window * s->n_embd, rows = s->piece * s->n_vocab, n = s->n_layer;
    bool variance = s->o->criterion == BITNET_PRUNE_VARIANCE;
    s->all = bn_calloc(n, sizeof *s->all);
    s->kept = bn_calloc(n, sizeof *s->kept);
    s->before = bn_calloc(n, sizeof *s->before);
    s->is_protected = bn_calloc(n, sizeof *s->is_protected);
    s->score = bn_calloc(n, sizeof *s->score);
    s->tried = bn_calloc(n, sizeof *s->tried);
    s->moments = bn_calloc(variance ? n * 2 * s->n_embd : 1, sizeof *s->moments);
    s->x = bn_calloc(states, sizeof *s->x);
    s->y = bn_calloc(states, sizeof *s->y);
    s->whole = bn_calloc(states, sizeof *s->whole);
    s->logits = bn_calloc(rows, sizeof *s->logits);
    s->logits0 = bn_calloc(rows, sizeof *s->logits0);
    s->log_p = bn_calloc(s->n_vocab, sizeof *s->log_p);
    s->log_q = bn_calloc(s->n_vocab, sizeof *s->log_q);
    s->r->scratch_bytes =
        (3 * states + 2 * rows) * sizeof(float) + 2 * s->n_vocab * sizeof *s->log_p;
    if (variance) s->r->scratch_bytes += n * 2 * s->n_embd * sizeof *s->moments;
    if (!s->all || !s->kept || !s->before || !s->is_protected || !s->score || !s->tried ||
        !s->moments || !s->x || !s->y || !s->whole || !s->logits || !s->logits0 || !s->log_p ||
        !s->log_q)
        return bn_fail_nomem(err, (size_t)s->r->scratch_bytes, "the search");
    for (uint32_t i = 0; i < n; i++) s->all[i] = s->kept[i] = i;
    s->n_kept = s->n_layer;
    return bn_search_open_widths(s, err);
}

static void close_memory(struct bn_search *s)
{
    void *const blocks[] = {s->all,     s->kept, s->before, s->is_protected, s->score,  s->tried,
                            s->moments, s->x,    s->y,      s->whole,        s->logits, s->logits0,
                            s->log_p,   s->log_q};
    for (size_t i = 0; i < BN_ARRAY_LEN(blocks); i++) free(blocks[i]);
    bn_search_close_widths(s);
}

bitnet_status bn_prune_search(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                              const bitnet_prune_options *o, bitnet_prune_result *r,
                              bitnet_error *err)
{
    const struct bn_config *c = &bn_engine_model(e)->config;
    const uint64_t start = bn_now_ns();
    struct bn_search s = {.e = e, .o = o, .tokens = tokens, .n = n, .r = r};
    uint64_t layer_weights = 0, rows, cols;
    s.n_layer = c->n_layer;
    s.unit = o->unit ? o->unit : 1;
    s.n_vocab = c->n_vocab;
    s.n_embd = c->n_embd;
    s.window = o->ctx_tokens ? o->ctx_tokens : bn_min_size(DEFAULT_WINDOW, bn_engine_ctx(e));
    s.piece = bn_min_size(PIECE_TOKENS, MAX_LOGIT_BYTES / sizeof(float) / s.n_vocab);
    s.piece = bn_max_size(bn_min_size(s.piece, s.window), 1);
    for (enum bn_part p = BN_P_Q; p <= BN_P_DOWN; p++) {
        bn_part_shape(c, p, &rows, &cols);
        layer_weights += rows * cols;
    }
    s.head_cost = DENSE_COST * (uint64_t)s.n_vocab * s.n_embd / layer_weights + 1;
    BN_TRY(check_sizes(&s, err));
    BN_TRY(bn_search_check_width(&s, err));
    s.total = plan_cost(&s);
    bitnet_status status = open_memory(&s, err);
    if (status == BITNET_OK) status = check_lists(&s, err);
    if (status == BITNET_OK) status = run(&s, err);
    r->ns = bn_now_ns() - start;
    close_memory(&s);
    return status;
}
