/* SPDX-License-Identifier: Apache-2.0
 * The random rotation under which the screened head compares rows and hidden states: products stay
 * as they are, and what rounding does to them becomes random. (inside the room)
 *
 * Columns get signs and are mixed by a Walsh-Hadamard transform, four neighbours apart from each
 * other, then dealt out in fours to blocks of at most 128: so every block has a fair part of every
 * column. Each block is then turned by an orthogonal matrix of its own, drawn evenly from all of
 * them (Haar), the same for everybody. Bounds rest on these matrices alone (docs/inside/numerics.md). */
#ifndef BN_MODEL_HEAD_HEAD_ROTATE_H
#define BN_MODEL_HEAD_HEAD_ROTATE_H

#include "kernels/kernels.h"

struct bn_rotation {
    size_t cols, blocks;
    const float *sign; /* [cols], the transform's scale included */
    const float *turn; /* [blocks] matrices of the kernel turn, with zeros beyond a block's size */
};

static inline size_t bn_rotation_blocks(size_t cols) { return bn_div_up(cols, BN_TURN_BLOCK); }
/* Columns of block b; block 0 is the largest. */
size_t bn_rotation_size(size_t cols, size_t b);
static inline size_t bn_rotation_turn_floats(size_t cols) /* of all matrices */
{
    return bn_rotation_blocks(cols) * BN_TURN_BLOCK * BN_TURN_BLOCK;
}
void bn_rotation_draw_signs(float *sign, size_t cols);
/* The matrix of block b into its place; scratch: BN_TURN_BLOCK * BN_TURN_BLOCK numbers. */
void bn_rotation_draw_turn(float *turn, size_t cols, size_t b, double *scratch);

/* x: [n][blocks * BN_TURN_BLOCK], in each row cols numbers and then zeros; afterwards block by block,
 * with zeros behind a block's size. scratch: as large as x. */
void bn_rotate(const struct bn_rotation *t, const struct bn_kernels *k, float *x, float *scratch,
               size_t n);

#endif
