/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of the layouts "t3" and "t5": a group of rows is a sequence of steps of 128 columns, and
 * each of them is encoded and decoded by itself. What is left is the same for both. */
#ifndef BN_KERNELS_REF_STEPS_H
#define BN_KERNELS_REF_STEPS_H

#include "kernels/kernels.h"

enum {
    BN_STEP_COLS = BN_K_ALIGN,
    BN_STEP_ROWS = 6 /* of a group, the most */
};

/* the weights of a step */
struct bn_step {
    int8_t w[BN_STEP_ROWS][BN_STEP_COLS];
};

struct bn_steps {
    size_t rows;  /* of a group */
    size_t bytes; /* of a step */
    void (*encode)(uint8_t *to, const struct bn_step *s);
    void (*decode)(struct bn_step *s, const uint8_t *from);
};

/* As the members of struct bn_gemm. */
void bn_steps_pack(const struct bn_steps *l, uint8_t *dst, const int8_t *w, size_t n_rows,
                   size_t cols);
void bn_steps_unpack(const struct bn_steps *l, int8_t *w, const uint8_t *src, size_t n_rows,
                     size_t cols);
void bn_steps_mul_i8(const struct bn_steps *l, float *y, size_t y_stride, const struct bn_packed *w,
                     size_t r0, size_t r1, const int8_t *q, size_t q_stride, const float *inv,
                     size_t n_tok);
void bn_steps_mul_f32(const struct bn_steps *l, float *y, size_t y_stride,
                      const struct bn_packed *w, size_t r0, size_t r1, const float *x,
                      size_t x_stride, size_t n_tok);

static inline size_t bn_steps_group_bytes(const struct bn_steps *l, size_t cols)
{
    return l->bytes * bn_div_up(cols, BN_STEP_COLS);
}

#endif
