/* SPDX-License-Identifier: Apache-2.0
 * The definition of every sampling option, slowly: everything is sorted, every place of the text is
 * compared with every other, in double precision with the C library's functions; only the changed
 * logits are floats. The tests compare the sampler with it. */
#ifndef BN_TEST_SAMPLER_SLOW_H
#define BN_TEST_SAMPLER_SLOW_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <bitnet/bitnet.h>

enum { SLOW_MAX_VOCAB = 256, SLOW_MAX_TEXT = 256 };

/* A request in the middle of its answer. */
struct slow {
    bitnet_sampling s;
    uint32_t n_vocab, n_prompt, n_tokens;
    int32_t tokens[SLOW_MAX_TEXT];
    uint32_t unbroken; /* tokens behind the last breaker */
    bool masked;
    uint64_t mask[SLOW_MAX_VOCAB / 64];
    float logits[SLOW_MAX_VOCAB]; /* the model's */
    /* results: what is left, the likeliest first, with its probability */
    double x[SLOW_MAX_VOCAB]; /* logits after bias, penalties and mask */
    int32_t order[SLOW_MAX_VOCAB];
    double p[SLOW_MAX_VOCAB];
    int kept;
};

static inline void slow_penalties(struct slow *c)
{
    const bitnet_sampling *s = &c->s;
    uint32_t from =
        s->penalty_last_n && s->penalty_last_n < c->n_tokens ? c->n_tokens - s->penalty_last_n : 0;
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        int all = 0, answer = 0;
        for (uint32_t i = from; i < c->n_tokens; i++)
            if (c->tokens[i] == (int32_t)v) {
                all++;
                answer += i >= c->n_prompt;
            }
        double r = s->repetition_penalty == 0 ? 1 : (double)s->repetition_penalty;
        if (all) c->x[v] = c->x[v] > 0 ? c->x[v] / r : c->x[v] * r;
        if (answer) c->x[v] -= (double)s->presence_penalty + answer * (double)s->frequency_penalty;
        c->x[v] = (double)(float)c->x[v];
    }
}

/* How much of the text's end stands before a token, at the place where that is most. */
static inline uint32_t slow_repeats(const struct slow *c, uint32_t from, int32_t token)
{
    uint32_t n = c->n_tokens, longest = 0;
    for (uint32_t at = from + 1; at < n; at++) {
        uint32_t k = 0;
        if (c->tokens[at] != token) continue;
        while (k < c->unbroken && at >= from + 1 + k &&
               c->tokens[at - 1 - k] == c->tokens[n - 1 - k])
            k++;
        longest = k > longest ? k : longest;
    }
    return longest;
}

static inline void slow_dry(struct slow *c)
{
    const bitnet_sampling *s = &c->s;
    uint32_t from = s->dry_last_n && s->dry_last_n < c->n_tokens ? c->n_tokens - s->dry_last_n : 0;
    uint32_t allowed = s->dry_allowed_length ? s->dry_allowed_length : 2;
    double base = s->dry_base == 0 ? 1.75 : (double)s->dry_base;
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        uint32_t longest = slow_repeats(c, from, (int32_t)v);
        if (longest < allowed) continue;
        double penalty = (double)s->dry_multiplier * pow(base, longest - allowed);
        c->x[v] = (double)(float)(c->x[v] - penalty);
    }
}

static inline const struct slow *slow_sorting(const struct slow *c)
{
    static const struct slow *now;
    if (c) now = c;
    return now;
}

static inline int slow_by_logit(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const double *x = slow_sorting(NULL)->x;
    return x[i] > x[k] ? -1 : x[i] < x[k] ? 1 : i < k ? -1 : 1;
}

/* p of what is left, without temperature; their entropy */
static inline double slow_softmax(struct slow *c, double inv_t)
{
    double sum = 0, entropy = 0;
    for (int i = 0; i < c->kept; i++)
        sum += c->p[i] = exp((c->x[c->order[i]] - c->x[c->order[0]]) * inv_t);
    for (int i = 0; i < c->kept; i++) {
        c->p[i] /= sum;
        if (c->p[i] > 0) entropy -= c->p[i] * log(c->p[i]);
    }
    return entropy;
}

static inline int slow_top_p(struct slow *c)
{
    double have = 0;
    int i = 0;
    slow_softmax(c, 1);
    while (i < c->kept && have < (double)c->s.top_p) have += c->p[i++];
    return i;
}

static inline void slow_typical(struct slow *c)
{
    double entropy = slow_softmax(c, 1), have = 0;
    bool stays[SLOW_MAX_VOCAB] = {false};
    while (have < (double)c->s.typical_p) {
        int next = -1;
        double near = 0;
        for (int i = 0; i < c->kept; i++) { /* of equals the smaller id stands first */
            double d = fabs(-log(c->p[i]) - entropy);
            if (!stays[i] && (next < 0 || d < near - 1e-12)) {
                next = i;
                near = d;
            }
        }
        if (next < 0) break;
        stays[next] = true;
        have += c->p[next];
    }
    int kept = 0;
    for (int i = 0; i < c->kept; i++)
        if (stays[i]) c->order[kept++] = c->order[i];
    c->kept = kept;
}

static inline void slow_sigma(struct slow *c)
{
    double mean = 0, squares = 0;
    for (int i = 0; i < c->kept; i++) mean += c->x[c->order[i]] / c->kept;
    for (int i = 0; i < c->kept; i++) squares += pow(c->x[c->order[i]] - mean, 2) / c->kept;
    double least = c->x[c->order[0]] - (double)c->s.top_n_sigma * sqrt(squares);
    while (c->kept > 1 && c->x[c->order[c->kept - 1]] < least) c->kept--;
}

/* Fills order, p and kept: the distribution a token is drawn from. */
static inline void slow_distribution(struct slow *c)
{
    const bitnet_sampling *s = &c->s;
    for (uint32_t v = 0; v < c->n_vocab; v++) c->x[v] = (double)c->logits[v];
    for (size_t i = 0; i < s->n_logit_bias; i++)
        c->x[s->logit_bias[i].token] =
            (double)(float)(c->x[s->logit_bias[i].token] + (double)s->logit_bias[i].bias);
    slow_penalties(c);
    if (s->dry_multiplier > 0) slow_dry(c);
    c->kept = 0;
    for (uint32_t v = 0; v < c->n_vocab; v++) {
        if (c->masked && !(c->mask[v / 64] >> v % 64 & 1)) c->x[v] = -(double)INFINITY;
        if (c->x[v] > -(double)INFINITY) c->order[c->kept++] = (int32_t)v;
    }
    slow_sorting(c);
    if (c->kept) qsort(c->order, (size_t)c->kept, sizeof *c->order, slow_by_logit);
    if (s->temperature == 0 && c->kept) c->kept = 1;
    if (s->top_n_sigma > 0 && c->kept) slow_sigma(c);
    int k = s->top_k && (int)s->top_k < c->kept ? (int)s->top_k : c->kept;
    if (s->adaptive && s->top_p < 1) {
        int by_mass = slow_top_p(c);
        if (by_mass < k) k = by_mass;
    }
    c->kept = k;
    if (s->typical_p > 0 && s->typical_p < 1) slow_typical(c);
    if (!s->adaptive && s->top_p < 1) c->kept = slow_top_p(c);
    slow_softmax(c, 1);
    while (c->kept > 1 && c->p[c->kept - 1] < (double)s->min_p * c->p[0]) c->kept--;
    slow_softmax(c, s->temperature > 0 ? 1 / (double)s->temperature : 1);
}

#endif
