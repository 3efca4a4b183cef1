/* SPDX-License-Identifier: Apache-2.0
 * A request's sampler: its own copy of the options, and the steps before the cuts (sampler_cut.c),
 * which change logits. They do so in a copy: log-probabilities are those of the model. */
#include "engine/sampler/sampler.h"

#include "base/det_math.h"
#include "base/os/mem.h"
#include "engine/sampler/sampler_history.h"
#include "engine/sampler/sampler_row.h"
#include <math.h>
#include <stdlib.h>

static const float max_bias = 1e6f; /* either way: beyond any logit, and no sum overflows */

struct bn_sampler {
    bitnet_sampling options;    /* of its pointers only logit_bias is set, to what follows */
    struct bn_history *history; /* NULL: no penalties */
    bool raises;                /* a bias above 0 */
    bitnet_logit_bias bias[];
};

/* ------------------------------------------------------------------ options */

static bitnet_status check_bias(const bitnet_sampling *s, uint32_t n_vocab, bitnet_error *err)
{
    if (!s->logit_bias && s->n_logit_bias)
        return bn_fail(err, BITNET_E_ARG, "%zu biases, but logit_bias is NULL", s->n_logit_bias);
    if (s->n_logit_bias > BN_MAX_BIASES)
        return bn_fail(err, BITNET_E_LIMIT, "%zu biases; at most %d are possible", s->n_logit_bias,
                       BN_MAX_BIASES);
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        const bitnet_logit_bias *b = &s->logit_bias[i];
        if (b->token < 0 || (uint32_t)b->token >= n_vocab)
            return bn_fail(err, BITNET_E_ARG, "bias %zu is for token %d; the vocabulary has %u", i,
                           b->token, n_vocab);
        if (!(b->bias == -INFINITY || fabsf(b->bias) <= max_bias))
            return bn_fail(err, BITNET_E_ARG,
                           "the bias of token %d is %g; -infinity and %g to %g are possible",
                           b->token, (double)b->bias, -(double)max_bias, (double)max_bias);
    }
    return BITNET_OK;
}

bitnet_status bn_sampling_check(const bitnet_sampling *s, uint32_t n_vocab, bitnet_error *err)
{
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return bn_fail(err, BITNET_E_ARG, "temperature is %g; 0 to 100 is possible",
                       (double)s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return bn_fail(err, BITNET_E_ARG, "top-p is %g; above 0 up to 1 is possible",
                       (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return bn_fail(err, BITNET_E_ARG, "min-p is %g; 0 to 1 is possible", (double)s->min_p);
    if (!(s->typical_p >= 0 && s->typical_p <= 1))
        return bn_fail(err, BITNET_E_ARG, "typical-p is %g; 0 to 1 is possible",
                       (double)s->typical_p);
    if (!(s->top_n_sigma >= 0 && s->top_n_sigma <= 100))
        return bn_fail(err, BITNET_E_ARG, "top-n-sigma is %g; 0 to 100 is possible",
                       (double)s->top_n_sigma);
    BN_TRY(bn_penalties_check(s, err));
    return check_bias(s, n_vocab, err);
}

/* ------------------------------------------------------------------ life */

bitnet_status bn_sampler_open(struct bn_sampler **out, const bitnet_sampling *s, uint32_t n_vocab,
                              const struct bn_tokenizer *t, const int32_t *prompt,
                              uint32_t n_prompt, uint32_t limit, bitnet_error *err)
{
    size_t bytes = sizeof(struct bn_sampler) + s->n_logit_bias * sizeof(bitnet_logit_bias);
    struct bn_sampler *p = *out = bn_calloc(1, bytes);
    if (!p) return bn_fail_nomem(err, bytes, "a sampler");
    p->options = *s;
    p->options.dry_breakers = NULL;
    p->options.logit_bias = p->bias;
    for (size_t i = 0; i < s->n_logit_bias; i++) {
        p->bias[i] = s->logit_bias[i];
        p->raises |= p->bias[i].bias > 0;
    }
    if (!bn_penalties_on(s)) return BITNET_OK;
    bitnet_status status =
        bn_history_open(&p->history, s, n_vocab, t, prompt, n_prompt, limit, err);
    if (status != BITNET_OK) {
        bn_sampler_close(p);
        *out = NULL;
    }
    return status;
}

void bn_sampler_close(struct bn_sampler *s)
{
    if (!s) return;
    bn_history_close(s->history);
    free(s);
}

void bn_sampler_push(struct bn_sampler *s, int32_t token)
{
    if (s->history) bn_history_push(s->history, token);
}

bool bn_sampler_room_open(struct bn_sampler_room *r, uint32_t n_vocab)
{
    r->candidates = bn_calloc_now(n_vocab, sizeof *r->candidates);
    r->logits = bn_calloc_now(n_vocab, sizeof *r->logits);
    return r->candidates && r->logits;
}

void bn_sampler_room_close(struct bn_sampler_room *r)
{
    free(r->candidates);
    free(r->logits);
}

/* ------------------------------------------------------------------ a token */

struct bn_want bn_sampler_want(const struct bn_sampler *s, uint64_t position, bool whole)
{
    const struct bn_want all = {.kind = BN_WANT_ALL};
    if (whole || s->history || s->raises) return all;
    struct bn_want want = bn_sampling_want(&s->options, position);
    if (s->options.n_logit_bias == 0) return want;
    /* of n tokens that are lowered, at most n of the k + n best before are not among the k best
     * after; how far they are below the best is another matter */
    if (want.kind != BN_WANT_BEST || want.k == 0 || want.k > BN_HEAD_MAX_K) return all;
    want.k += (uint32_t)s->options.n_logit_bias;
    want.below = (double)INFINITY;
    return want;
}

static void apply_mask(float *logits, uint32_t n, const uint64_t *mask)
{
    for (uint32_t i = 0; i < n; i += 64) {
        uint32_t some = (uint32_t)bn_min_size(64, n - i);
        uint64_t off = ~mask[i / 64] & UINT64_MAX >> (64 - some);
        if (mask[i / 64] == 0)
            for (uint32_t k = 0; k < some; k++) logits[i + k] = -INFINITY;
        else
            for (; off; off &= off - 1) logits[i + (uint32_t)__builtin_ctzll(off)] = -INFINITY;
    }
}

/* Bias, penalties and mask, in a copy if there are any. */
static const float *change(struct bn_sampler *s, const float *logits, uint32_t n,
                           const uint64_t *mask, struct bn_sampler_room *room)
{
    if (!s->options.n_logit_bias && !s->history && !mask) return logits;
    memcpy(room->logits, logits, n * sizeof *logits);
    for (size_t i = 0; i < s->options.n_logit_bias; i++)
        room->logits[s->bias[i].token] += s->bias[i].bias;
    if (s->history) bn_history_penalise(s->history, room->logits);
    if (mask) apply_mask(room->logits, n, mask);
    return room->logits;
}

int32_t bn_sampler_draw(struct bn_sampler *s, const float *logits, uint32_t n, uint64_t position,
                        const uint64_t *mask, struct bn_sampler_room *room)
{
    logits = change(s, logits, n, mask, room);
    return bn_sample(&s->options, logits, n, position, room->candidates);
}

void bn_sampler_probs(struct bn_sampler *s, const float *logits, uint32_t n, const uint64_t *mask,
                      struct bn_sampler_room *room, struct bn_drawn_probs *out)
{
    bn_sample_probs(&s->options, change(s, logits, n, mask, room), n, room->candidates, out);
}

/* ------------------------------------------------------------------ log-probabilities */

float bn_logprob(const float *logits, uint32_t n, int32_t token, bitnet_logprob *top,
                 uint32_t n_top)
{
    struct bn_scored best[BN_MAX_TOP_LOGPROBS];
    float max = bn_row_max(logits, n);
    double log_sum = (double)max + bn_det_log(bn_row_mass(logits, n, -INFINITY, max));
    uint32_t n_best = bn_row_best(best, logits, n, -INFINITY, n_top);
    for (uint32_t i = 0; i < n_best; i++) {
        uint32_t at = 0; /* as many are better */
        for (uint32_t k = 0; k < n_best; k++) at += bn_worse(best[i], best[k]);
        top[at] = (bitnet_logprob){(int32_t)best[i].id, (float)((double)best[i].score - log_sum)};
    }
    return (float)((double)logits[token] - log_sum);
}
