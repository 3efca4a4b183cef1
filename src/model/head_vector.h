/* SPDX-License-Identifier: Apache-2.0
 * What screening needs of a hidden state. (inside the room, for head.c) */
#ifndef BN_MODEL_HEAD_VECTOR_H
#define BN_MODEL_HEAD_VECTOR_H

#include "model/model.h"

/* The hidden state x[n_embd] as integers and the numbers of its bound. planes: room for two, zeros
 * behind n_embd up to BN_K_ALIGN. t: margin in units of step * |x|. margins: false in tests only,
 * bounds are then wrong. Returns false if bounds would not be finite numbers; the vector is then
 * one that the kernel can take, and of no use. */
bool bn_head_vector(struct bn_screen_vector *v, const struct bn_model *m, int8_t *planes,
                    const float *x, double t, bool margins);

#endif
