/* SPDX-License-Identifier: Apache-2.0
 *
 * The head with one byte a weight: all logits from the model's int8 copy (head_copy.c), close to
 * those of the file's head and not the same. Owns the rounded hidden states of a call. (inside the
 * room, for head.c) */
#ifndef BN_MODEL_HEAD_HEAD_INT8_H
#define BN_MODEL_HEAD_HEAD_INT8_H

#include "base/threads/pool.h"
#include "model/model.h"

struct bn_head_int8 {
    const struct bn_model *m;
    size_t stride;                    /* of k */
    struct bn_dense8_vector *vectors; /* [max_rows] */
    int16_t *k;                       /* [max_rows][stride] */
};

/* max_rows: rows of logits of one call; the model must have the copy. */
void bn_head_int8_lay_out(struct bn_head_int8 *p, struct bn_plan *plan, const struct bn_model *m,
                          uint32_t max_rows);

/* The hidden state of a row of logits, x[n_embd]. One that is not finite gives NaNs as logits. */
void bn_head_int8_put(struct bn_head_int8 *p, size_t row, const float *x);
/* logits [n_rows][n_vocab] of a share of the vocabulary that begins at a group. copy: the head's, as
 * the worker's node has it. */
void bn_head_int8_pass(const struct bn_head_int8 *p, const struct bn_dense8 *copy, float *logits,
                       size_t n_rows, struct bn_range share);

#endif
