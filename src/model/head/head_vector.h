/* SPDX-License-Identifier: Apache-2.0
 * What screening needs of a hidden state. (inside the room, for head.c) */
#ifndef BN_MODEL_HEAD_HEAD_VECTOR_H
#define BN_MODEL_HEAD_HEAD_VECTOR_H

#include "model/model.h"

struct bn_head_vector {
    struct bn_screen2_vector coarse; /* its k are those of the fine code, too */
    int32_t sum;                     /* of all k */
    float unit;                      /* of k */
    float margin;                    /* in units of a row's noise */
};

/* Standard deviations in a margin, so that a token loses one of n wanted rows with a probability of
 * at most 2^-48: 2 n exp(-z^2 / 2), as each of two steps can lose it. */
double bn_head_z(uint64_t n_wanted);

/* The dither of a hidden state's rounding: n numbers in (0, 1). */
void bn_head_draw_dither(float *dither, size_t n);

/* x: a hidden state after bn_rotate. k: [blocks * BN_ROTATE_BLOCK], block_sum: [blocks]. z: 0 in tests
 * only, bounds are then wrong. Returns false if the state is too large, too small or no number; the
 * vector is then one that kernels can take, and of no use. */
bool bn_head_vector(struct bn_head_vector *v, const struct bn_screen *s, int8_t *k,
                    int32_t *block_sum, const float *x, double z);

#endif
