/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout "t3" to codes of tables, and the multiplication by them. The four bytes of a triple
 * in the columns i, 32 + i, 64 + i and 96 + i give one code to each of its three rows: the sum of
 * 3^f (w + 1) is 40 plus the sum of 3^f w, and 3^f w comes, but for its sign, from a table of 16 for
 * each row and f. */
#include "kernels/t3.h"
#include "kernels/wide/gemm/tables.h"

enum {
    PAIR = 2 * BN_T3_ROWS
}; /* rows of two groups, three times the four that are stored at once */

/* 3^f times the weight of row j where m = t0 + 3 t1 + 9 t2 = 0 .. 13 */
#define T0(x)                                                \
    {                                                        \
        0, x, -(x), 0, x, -(x), 0, x, -(x), 0, x, -(x), 0, x \
    }
#define T1(x)                                             \
    {                                                     \
        0, 0, x, x, x, -(x), -(x), -(x), 0, 0, 0, x, x, x \
    }
#define T2(x)                                    \
    {                                            \
        0, 0, 0, 0, 0, x, x, x, x, x, x, x, x, x \
    }
#define ALL(T)                  \
    {                           \
        T(1), T(3), T(9), T(27) \
    }
static const int8_t weight[3][4][16] = {ALL(T0), ALL(T1), ALL(T2)};
#undef ALL
#undef T2
#undef T1
#undef T0

/* The sums of a group's six rows for one step. The top bits of `sign` are the signs, first of one
 * triple, then of the other; psign takes them from any number that is not 0. */
static inline void group_codes(w_int *c, const uint8_t *p)
{
    const w_int m15 = w_set1_epi8(15), one = w_set1_epi8(1);
    w_int sign = w_loadu_si256((const void *)(p + BN_T3_STEP));
    for (size_t r = 0; r < BN_T3_ROWS; r++) c[r] = w_set1_epi8(40);
    for (size_t f = 0; f < 4; f++) {
        w_int n = w_loadu_si256((const void *)(p + 32 * f));
        for (size_t h = 0; h < 2; h++) {
            w_int v = w_and_si256(h ? w_srli_epi16(n, 4) : n, m15);
            w_int s = w_or_si256(sign, one);
            for (size_t j = 0; j < 3; j++) {
                w_int table = w_broadcastsi128_si256(h_loadu_si128((const void *)weight[j][f]));
                w_int x = w_sign_epi8(w_shuffle_epi8(table, v), s);
                c[3 * h + j] = w_add_epi8(c[3 * h + j], x);
            }
            sign = w_add_epi8(sign, sign);
        }
    }
}

/* Pair after pair of groups, so that the matrix is read as one stream; what lies a pair ahead is
 * prefetched meanwhile. */
bool W_NAME(t3_codes)(uint64_t *code, size_t stride, const struct bn_packed *w, size_t r0,
                      size_t r1)
{
    size_t steps = bn_div_up(w->cols, BN_T3_STEP), ahead = 2 * steps * BN_T3_STEP_BYTES;
    for (size_t r = r0; r < r1; r += PAIR) {
        const uint8_t *p = bn_t3_group(w, r);
        const uint8_t *q = r + BN_T3_ROWS < r1 ? bn_t3_group(w, r + BN_T3_ROWS) : p;
        uint64_t *out = code + (r - r0);
        for (size_t s = 0; s < steps; s++, out += BN_TABLE_PASSES * stride) {
            w_int c[PAIR];
            for (size_t i = 0; i < BN_T3_STEP_BYTES; i += 64) {
                h_prefetch((const char *)p + ahead + i, H_T1);
                h_prefetch((const char *)q + ahead + i, H_T1);
            }
            group_codes(c, p);
            group_codes(c + BN_T3_ROWS, q);
            for (size_t i = 0; i < PAIR; i += 4) bn_codes_store4(out + i, stride, c + i);
            p += BN_T3_STEP_BYTES, q += BN_T3_STEP_BYTES;
        }
    }
    return true; /* the layout has no weight +2 */
}

void W_NAME(t3_mul_i8_many)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    W_NAME(mul_tables)(a, x, W_NAME(t3_codes), W_NAME(gemm_t3).mul_i8);
}
