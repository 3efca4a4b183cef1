/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks of the ternary matrices share. */
#ifndef BN_TESTS_KERNELS_CHECK_GEMM_H
#define BN_TESTS_KERNELS_CHECK_GEMM_H

#include "check.h"

struct shape {
    size_t rows, cols, tok;
    size_t r0, r1;
    enum bn_scale_kind kind;
    size_t block;
};

/* weights times activations: the pairs that reach the largest sums */
enum wfill { W_RANDOM, W_MINUS, W_PLUS, W_MOST, W_SIGN, W_ZERO, W_TERNARY, W_SIGN1, W_FILLS };
enum qfill { Q_RANDOM, Q_MAX, Q_MIN, Q_EXTREME, Q_TURNS, Q_ZERO, Q_FILLS };
extern const char *const ck_wname[], *const ck_qname[];

/* which of the three multiplications */
enum how { I8, F32, PLANES };

struct mul {
    const struct bn_gemm *g;
    enum how how;
    float *y;
    struct bn_packed w;
    const uint16_t *scales; /* [rows][blocks] */
    size_t y_stride, r0, r1, x_stride, tok;
    const int8_t *q;
    const int32_t *sum;
    const float *inv, *x;
    struct bn_planes planes;
    void *scratch; /* of mul_i8_many, which is then meant */
};

/* Scales of every kind, strides and ranges for a shape. */
void ck_fill_scales(struct ck *c, struct mul *a, const struct shape *s);
/* q: of the first token, for weights that go with it */
void ck_fill_weights(struct ck *c, int8_t *w, const struct shape *s, enum wfill f, const int8_t *q);
void ck_describe(struct ck *c, const struct shape *s, const char *what, const char *w,
                 const char *x);
/* Reference and variant on the same call, and the reference with naive arithmetic; each has its own
 * packing. */
void ck_compare(struct ck *c, struct mul a, int8_t *w,
                void (*naive)(struct ck *, const struct mul *, const int8_t *));
/* What is enough for many rows is enough for fewer. */
void ck_check_many_bytes(struct ck *c);
/* Every kind of scale and number of planes, for all layouts. */
void ck_check_planes(struct ck *c);

#endif
