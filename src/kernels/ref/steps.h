/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference of all layouts: a group of rows is a sequence of steps of 128 columns, and each of them is
 * encoded and decoded by itself. What is left, packing and multiplying, is the same for all. */
#ifndef BN_KERNELS_REF_STEPS_H
#define BN_KERNELS_REF_STEPS_H

#include "kernels/kernels.h"

enum {
    BN_STEP_COLS = BN_K_ALIGN,
    BN_STEP_ROWS = 80 /* of a group, the most */
};

/* the weights of a step */
struct bn_step {
    int8_t w[BN_STEP_ROWS][BN_STEP_COLS];
};

struct bn_steps {
    size_t rows;       /* of a group */
    size_t bytes;      /* of a step */
    size_t scale_rows; /* as in struct bn_gemm */
    /* Rows from n_rows on do not exist: they are zeros, or what the layout has in their place. */
    void (*encode)(uint8_t *to, const struct bn_step *s);
    void (*decode)(struct bn_step *s, const uint8_t *from);
};

/* As the members of struct bn_gemm. */
void bn_steps_pack(const struct bn_steps *l, uint8_t *dst, const int8_t *w, size_t n_rows,
                   size_t cols);
void bn_steps_unpack(const struct bn_steps *l, int8_t *w, const uint8_t *src, size_t n_rows,
                     size_t cols);
void bn_steps_mul_i8(const struct bn_steps *l, const struct bn_gemm_args *a, const struct bn_q8 *x);
void bn_steps_mul_f32(const struct bn_steps *l, const struct bn_gemm_args *a, const float *x,
                      size_t x_stride);
void bn_steps_mul_planes(const struct bn_steps *l, const struct bn_gemm_args *a,
                         const struct bn_planes *x);

static inline size_t bn_steps_group_bytes(const struct bn_steps *l, size_t cols)
{
    return l->bytes * bn_div_up(cols, BN_STEP_COLS);
}

/* The members of struct bn_gemm that are the same for all layouts, as functions bn_LAYOUT_NAME. Weights
 * are added up, not codes: the sums of activations are for other variants. */
#define BN_STEPS_LAYOUT(name, steps)                                                             \
    size_t bn_##name##_group_bytes(size_t cols) { return bn_steps_group_bytes(&(steps), cols); } \
    void bn_##name##_pack(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols)             \
    {                                                                                            \
        bn_steps_pack(&(steps), dst, w, n_rows, cols);                                           \
    }                                                                                            \
    void bn_##name##_unpack(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols)           \
    {                                                                                            \
        bn_steps_unpack(&(steps), w, src, n_rows, cols);                                         \
    }                                                                                            \
    void bn_##name##_mul_i8_c(const struct bn_gemm_args *a, const struct bn_q8 *x)               \
    {                                                                                            \
        bn_steps_mul_i8(&(steps), a, x);                                                         \
    }                                                                                            \
    void bn_##name##_mul_f32_c(const struct bn_gemm_args *a, const float *x, size_t x_stride)    \
    {                                                                                            \
        bn_steps_mul_f32(&(steps), a, x, x_stride);                                              \
    }                                                                                            \
    void bn_##name##_mul_planes_c(const struct bn_gemm_args *a, const struct bn_planes *x)       \
    {                                                                                            \
        bn_steps_mul_planes(&(steps), a, x);                                                     \
    }

#endif
