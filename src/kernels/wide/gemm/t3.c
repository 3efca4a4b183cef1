/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations of one token times matrices in layout "t3" (ref/gemm_t3.c): fewer bytes a
 * weight than "t2" for a little more work, so it wins where cores have to share the memory's
 * bandwidth. More tokens are in gemm/tokens.c; float activations are left to the reference.
 *
 * The digits of a = |m| are never cut out. Three numbers that are cheap to have, a
 * itself, a1 = t1 + 3 t2 and a2 = t2 (a table of 16 each), are multiplied with the activation x,
 * negated where m < 0; the rows are separated afterwards, on the sums: S0 = A0 - 3 A1,
 * S1 = A1 - 3 A2, S2 = A2.
 *
 * Why the 16-bit sums are exact. maddubs adds a pair of products, at most 13 * 2 * 127 = 3302 in
 * size, far from saturation. The additions after it may overflow: they are exact modulo 2^16, and
 * so are S0, S1 and S2, which are made of them by additions. A lane of S after n pairs is a sum of
 * 2n weights in {-1, 0, +1} times activations within +-127, so |S| <= 254 n, and for n <= 129 that
 * is below 2^15: the residue is the number. Sums are widened to 32 bits every 32 steps, n = 128;
 * 32768 columns are 8 such rounds, and there |sum| <= 32768 * 127 < 2^22. -x is within +-127 too.
 */
#include "kernels/t3.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tables.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    WIDEN_STEPS = 32 /* steps between widenings */
};

struct triple {
    w_int s0, s1, s2;
};

/* 32 columns of one triple: v = |m|, x with the sign of m on it */
ALWAYS void triple_add(struct triple *t, w_int v, w_int x)
{
    const w_int third =
        w_broadcastsi128_si256(h_setr_epi8(0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 0, 0));
    const w_int ninth =
        w_broadcastsi128_si256(h_setr_epi8(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0));
    t->s0 = w_add_pairs(t->s0, v, x);
    t->s1 = w_add_pairs(t->s1, w_shuffle_epi8(third, v), x);
    t->s2 = w_add_pairs(t->s2, w_shuffle_epi8(ninth, v), x);
}

/* 32 columns of a group; the top bits of *sign are the signs, first of A, then of B: the signs of the
 * next columns move up by additions, which every pipe can do. */
ALWAYS void piece_add(struct triple *a, struct triple *b, const uint8_t *p, const int8_t *q,
                      w_int *sign)
{
    const w_int m15 = w_set1_epi8(15);
    w_int n = w_loadu_si256((const void *)p), x = w_loadu_si256((const void *)q);
    w_int minus = w_sub_epi8(w_setzero_si256(), x);
    triple_add(a, w_and_si256(n, m15), w_blendv_epi8(x, minus, *sign));
    *sign = w_add_epi8(*sign, *sign);
    triple_add(b, w_and_si256(w_srli_epi16(n, 4), m15), w_blendv_epi8(x, minus, *sign));
    *sign = w_add_epi8(*sign, *sign);
}

ALWAYS w_int widen(w_int acc, w_int s) { return w_add_epi32(acc, w_sum_32(s)); }

/* the rows of a triple from its sums, to 32 bits */
ALWAYS void triple_widen(w_int acc[3], const struct triple *t)
{
    acc[0] = widen(acc[0], w_sum_sub(t->s0, w_sum_thrice(t->s1)));
    acc[1] = widen(acc[1], w_sum_sub(t->s1, w_sum_thrice(t->s2)));
    acc[2] = widen(acc[2], t->s2);
}

static void group_one(int32_t s[8], const uint8_t *p, const int8_t *q, size_t steps, size_t ahead)
{
    w_int acc[6];
    for (size_t r = 0; r < 6; r++) acc[r] = w_setzero_si256();
    while (steps > 0) {
        size_t n = bn_min_size(steps, WIDEN_STEPS);
        struct triple a = {w_setzero_si256(), w_setzero_si256(), w_setzero_si256()};
        struct triple b = a;
        steps -= n;
        for (; n > 0; n--, p += BN_T3_STEP_BYTES, q += BN_T3_STEP) {
            w_int sign = w_loadu_si256((const void *)(p + BN_T3_STEP));
            h_prefetch((const char *)p + ahead, H_T0);
            h_prefetch((const char *)p + ahead + 64, H_T0);
            h_prefetch((const char *)p + ahead + 128, H_T0);
            for (size_t f = 0; f < 4; f++) piece_add(&a, &b, p + 32 * f, q + 32 * f, &sign);
        }
        triple_widen(acc, &a);
        triple_widen(acc + 3, &b);
    }
    h_storeu_si128((void *)s, bn_hsum4_i32(acc[0], acc[1], acc[2], acc[3]));
    h_storeu_si128((void *)(s + 4), bn_hsum4_i32(acc[4], acc[5], acc[4], acc[5]));
}

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                    float inv)
{
    for (size_t r = r0; r < r1; r += BN_T3_ROWS) {
        int32_t s[8];
        group_one(s, bn_t3_group(w, r), q, bn_div_up(w->cols, BN_T3_STEP), w->ahead);
        for (size_t i = 0; i < BN_T3_ROWS && r + i < r1; i++)
            y[r + i] = (float)s[i] * (bn_row_scale(w, r + i) * inv);
    }
}

static void mul_i8_wide(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x->q, x->inv[0]);
    else W_NAME(t3_mul_i8_tokens)(a, x);
}

const struct bn_gemm W_NAME(gemm_t3) = {
    BN_T3_LAYOUT,
    .frugal = W_FRUGAL,
    .mul_i8 = mul_i8_wide,
    .mul_f32 = W_BASE(t3_mul_f32),
    .many_from = BN_TABLE_FROM,
    .many_bytes = W_BASE(tables_bytes),
    .mul_i8_many = W_BASE(t3_mul_i8_many),
};
