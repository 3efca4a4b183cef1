/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations of two tokens times matrices in layout "t3", one scale a row or matrix. What
 * more tokens do, decoding to a byte a column first (gemm/tokens.c), would take longer than the
 * products of two; so it is done as for a token alone (t3.c, also why it is exact): |m|, its
 * third and its ninth are multiplied with activations that have got the sign of m, and rows are
 * separated on the sums. Negatives are made once a call; the triples of a group come one after the
 * other, since six sums, what they need and what is decoded fill the registers.
 */
#include "kernels/t3.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tokens.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    TWO = 2,
    UNIT_ROWS = BN_UNIT_ROWS, /* that meet a block of columns before the next one */
    BLOCK_STEPS = 32,         /* steps until a 16-bit sum is full */
    STEP = BN_T3_STEP,
    NEGATIVES = 14336 /* bytes */
};

/* of |m|, its third and its ninth */
struct sums {
    w_int s0, s1, s2;
};

struct block {
    const uint8_t *p; /* of the first group */
    size_t group_bytes, steps, ahead;
    bool first; /* of a row's blocks */
    const int8_t *q, *minus;
    size_t stride; /* from one token to the other, of both */
};

/* 32 columns of a triple */
ALWAYS void add_columns(struct sums s[TWO], w_int v, w_int sign, const struct block *b, size_t at)
{
    const w_int third =
        w_broadcastsi128_si256(h_setr_epi8(0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 0, 0));
    const w_int ninth =
        w_broadcastsi128_si256(h_setr_epi8(0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0));
    w_int v1 = w_shuffle_epi8(third, v), v2 = w_shuffle_epi8(ninth, v);
    for (size_t t = 0; t < TWO; t++, at += b->stride) {
        w_int x = w_load_by_sign(b->q + at, b->minus + at, sign);
        s[t].s0 = w_add_pairs(s[t].s0, v, x);
        s[t].s1 = w_add_pairs(s[t].s1, v1, x);
        s[t].s2 = w_add_pairs(s[t].s2, v2, x);
    }
}

/* sixteen parts of a sum to the eight of one in 32 bits */
ALWAYS void widen(w_int *sum, w_int s, bool first)
{
    w_int w = w_sum_32(s);
    *sum = first ? w : w_add_epi32(*sum, w);
}

/* Triple h of a group: sum[row][token]. Its signs are every second bit, from the top down. */
ALWAYS void triple(w_int (*sum)[TWO], const uint8_t *p, const struct block *b, const int h)
{
    const w_int m15 = w_set1_epi8(15);
    const w_int zero = w_setzero_si256();
    struct sums s[TWO] = {{zero, zero, zero}, {zero, zero, zero}};
    for (size_t n = 0; n < b->steps; n++, p += BN_T3_STEP_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + STEP));
        for (size_t i = 0; h == 0 && i < BN_T3_STEP_BYTES; i += 64)
            h_prefetch((const char *)p + b->ahead + i, H_T1);
        for (int f = 0; f < 4; f++) {
            w_int v = w_loadu_si256((const void *)(p + 32 * f));
            v = w_and_si256(h ? w_srli_epi16(v, 4) : v, m15);
            add_columns(s, v, w_slli_epi16(sign, 2 * f + h), b, n * STEP + 32 * (size_t)f);
        }
    }
    for (size_t t = 0; t < TWO; t++) {
        widen(&sum[0][t], w_sum_sub(s[t].s0, w_sum_thrice(s[t].s1)), b->first);
        widen(&sum[1][t], w_sum_sub(s[t].s1, w_sum_thrice(s[t].s2)), b->first);
        widen(&sum[2][t], s[t].s2, b->first);
    }
}

/* y of up to UNIT_ROWS rows from r on; b: what stays the same from unit to unit. Not inlined: its sums
 * and the negatives would be too much for one frame. */
static __attribute__((noinline)) void mul_unit(const struct bn_gemm_args *a, size_t r,
                                               size_t n_rows, struct block b, const float *inv)
{
    const struct bn_packed *w = a->w;
    const size_t y_stride = a->y_stride;
    float *y = a->y;
    w_int sum[UNIT_ROWS][TWO];
    size_t steps = bn_div_up(w->cols, STEP), most = bn_div_up(steps, bn_div_up(steps, BLOCK_STEPS));
    b.p = bn_t3_group(w, r);
    for (size_t at = 0; at < steps; at += b.steps) {
        b.first = at == 0;
        b.steps = bn_min_size(most, steps - at);
        for (size_t i = 0; i < n_rows; i += BN_T3_ROWS) {
            const uint8_t *p = b.p + i / BN_T3_ROWS * b.group_bytes;
            triple(sum + i, p, &b, 0);
            triple(sum + i + 3, p, &b, 1);
        }
        b.p += b.steps * BN_T3_STEP_BYTES;
        b.q += b.steps * STEP;
        b.minus += b.steps * STEP;
    }
    for (size_t t = 0; t < TWO; t++)
        for (size_t i = 0; i < n_rows; i += 4)
            bn_store_rows(y + t * y_stride, w, r + i, bn_min_size(4, n_rows - i),
                          bn_hsum4_i32(sum[i][t], sum[i + 1][t], sum[i + 2][t], sum[i + 3][t]), 0,
                          inv[t]);
}

bool W_NAME(t3_mul_i8_two)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    int8_t minus[NEGATIVES];
    const int8_t *q = x->q;
    size_t stride = x->stride, cols = bn_align_up(a->w->cols, STEP);
    size_t bytes = BN_T3_STEP_BYTES * bn_div_up(a->w->cols, STEP);
    if (stride > NEGATIVES || stride + cols > NEGATIVES) return false;
    for (size_t t = 0; t < TWO; t++)
        for (size_t i = 0; i < cols; i++) minus[t * stride + i] = (int8_t)-q[t * stride + i];
    struct block b = {.group_bytes = bytes,
                      .ahead = UNIT_ROWS / BN_T3_ROWS * bytes,
                      .q = q,
                      .minus = minus,
                      .stride = stride};
    for (size_t r = a->r0; r < a->r1; r += UNIT_ROWS)
        mul_unit(a, r, bn_min_size(UNIT_ROWS, a->r1 - r), b, x->inv);
    return true;
}
