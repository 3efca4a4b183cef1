/* SPDX-License-Identifier: Apache-2.0
 * Looking through a row of logits, of which most do not matter. */
#ifndef BN_ENGINE_SAMPLER_SAMPLER_ROW_H
#define BN_ENGINE_SAMPLER_SAMPLER_ROW_H

#include "model/head/best.h"

float bn_row_max(const float *x, uint32_t n);
/* The first place from i on that is at least this; n: there is none. */
uint32_t bn_row_find(const float *x, uint32_t i, uint32_t n, float least);
/* The k best of those that are at least this, in no order; returns how many. */
uint32_t bn_row_best(struct bn_scored *best, const float *x, uint32_t n, float least, uint32_t k);
/* The sum of e^(x - max) of those that are at least this, in order of their places. */
double bn_row_mass(const float *x, uint32_t n, float least, float max);

#endif
