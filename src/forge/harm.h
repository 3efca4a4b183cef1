/* SPDX-License-Identifier: Apache-2.0
 * The one measure of harm: how far the distributions of the next token are from those of the untouched
 * model, position by position (harm.c). */
#ifndef BN_FORGE_HARM_H
#define BN_FORGE_HARM_H

#include "base/status.h"

/* log of the sum of exp, so that a logit less it is a log-probability. */
double bn_log_sum_exp(const float *logits, size_t n);
void bn_log_softmax(const float *logits, size_t n, double *out);

/* Gathered on the way. Zero-initialise it, but for `least`. */
struct bn_harm {
    double least; /* a log-probability of the base: what is not above it is left out */
    double *kl;   /* one a position */
    size_t n, room;
    uint64_t n_same_top;
    double nll_base, nll, diff_squares;
};
/* So small that exp is 0: nothing is left out. */
#define BN_HARM_ALL (-745.0)

/* One position: log-probabilities of the base, of the other, and the token that stands there. */
struct bn_harm_row {
    double kl, nll_base, nll;
    bool same_top;
};
struct bn_harm_row bn_harm_compare(const double *base, const double *other, size_t n, int32_t token,
                                   double least);
bool bn_harm_add(struct bn_harm *h, const struct bn_harm_row *row); /* false: out of memory */
/* The figures of all positions, of which there is one at least; h->kl is sorted. */
void bn_harm_figures(struct bn_harm *h, bitnet_divergence *out);
void bn_harm_free(struct bn_harm *h);

#endif
