/* SPDX-License-Identifier: Apache-2.0
 * A rotated row of the head in two steps of two bits a weight, and how far products with each can be
 * off. (inside the room; docs/inside/numerics.md) */
#ifndef BN_MODEL_HEAD_HEAD_CODES_H
#define BN_MODEL_HEAD_HEAD_CODES_H

#include "model/head/head_rotate.h"

/* With k the integers of a hidden state and g their unit, `sum` of the kernel screen2, w the weights
 * of the fine code:
 *   coarse estimate = scale * g * sum
 *   fine estimate   = coarse estimate + fine_scale * g * (sum of w * k - half the sum of k)
 * The logit lies above them by more than noise * margin or fine_noise * margin with a probability
 * that the margin says (head_vector.h). */
struct bn_code_row {
    float scale, noise, fine_scale, fine_noise;
};

/* What the noise of a row takes for granted of a hidden state; its margin makes up for more. */
static const double bn_code_spread =
    0.25; /* standard deviation of its blocks' squares, of the mean */
static const double bn_code_unit = 1.0 / 28; /* unit, in terms of its root mean square */
static const double bn_code_z_min = 8;       /* standard deviations in the margin, at least */

/* Rows with a norm beyond this get no codes. */
static const double bn_code_norm_max = 0x1p60;

/* y: a row after bn_rotate. coarse: [blocks * BN_TURN_BLOCK] codes in 0 .. 3, fine: as many w;
 * u: [blocks]. Returns false if its norm is too large or no number. */
bool bn_head_codes(struct bn_code_row *out, uint8_t *coarse, uint8_t *u, int8_t *fine,
                   const float *y, size_t cols);

#endif
