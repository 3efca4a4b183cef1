/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations of one token times matrices in layout "t2" (ref/gemm_t2.c), one scale a row
 * or matrix. More tokens are in gemm/tokens.c and gemm/tables.c, block scales in
 * t2_block.c, float activations in t2_f32.c.
 *
 * maddubs multiplies unsigned codes c = w + 1 in {0..3} with signed activations a, |a| <= 127, and
 * adds pairs in 16 bits, saturating. The sum of weights times activations is the sum of codes times
 * activations minus the sum of activations.
 *
 * Codes of fields 1 and 3 are left at four times their value, masked in place, so a pair is at most
 * 4 * 3 * 2 * 127 = 3048 in size, far from saturation. Sums begin at minus the activations (minus four
 * times, for these fields) that the lane will meet. What happens on the way is exact modulo 2^16, and
 * at the end a lane is a sum of weights times activations: 16 pairs, the 8 steps until it is widened,
 * are at most 16 * 4 * 2 * 2 * 127 = 32512 < 2^15, so the residue is the number. In 32 bits,
 * |sum| <= 32768 * 2 * 127 < 2^24.
 */
#include "kernels/t2.h"
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tables.h"

/* Steps between widenings, and a sum: with halves both are added to the same sum, so that these and a
 * token's columns have registers enough. */
#if defined(W_HALVES)
enum { STEPS_MASKED = 4 };
typedef h_int part;
#else
enum { STEPS_MASKED = 8 };
typedef w_int part;
#endif

/* y of up to 4 rows: (float)sum * (scale * inv) */
static inline void store_rows(float *y, const struct bn_packed *w, size_t r, size_t n, h_int sum,
                              float inv)
{
    float v[4];
    h_storeu_ps(v, h_cvtepi32_ps(sum));
    for (size_t i = 0; i < n; i++) y[r + i] = v[i] * (bn_row_scale(w, r + i) * inv);
}

/* The rows' bytes are used once, so the decoding counts (bn_t2_row_step). */

/* what the sums of a few steps begin with */
struct start {
    part s, t;
};

static inline struct start start_of(w_int s, w_int t)
{
#if defined(W_HALVES)
    return (struct start){h_add_epi16(s.lo, s.hi), h_add_epi16(t.lo, t.hi)};
#else
    return (struct start){s, t};
#endif
}

static inline w_int pairs(const int8_t *y)
{
    return w_add_products(w_setzero_si256(), w_set1_epi8(1), y);
}

static void make_starts(struct start *start, const int8_t *q, size_t steps)
{
    for (; steps > 0; start++) {
        size_t n = bn_min_size(steps, STEPS_MASKED);
        w_int s = w_setzero_si256(), t = s;
        steps -= n;
        for (; n > 0; n--, q += BN_T2_STEP) {
            s = w_sum_sub(s, w_sum_add(pairs(q), pairs(q + 64)));
            t = w_sum_sub(t, w_sum_add(pairs(q + 32), pairs(q + 96)));
        }
        *start = start_of(s, w_sum_fourfold(t));
    }
}

#if defined(W_HALVES)
/* 64 columns of a row, 16 bytes of its piece, times a token's: bn_t2_row_step() of a half */
static inline __attribute__((always_inline)) void half_step(h_int *s, h_int *t, const uint8_t *p,
                                                            const h_int y[4])
{
    const h_int m3 = h_set1_epi8(3), m12 = h_set1_epi8(12);
    h_int q = h_loadu_si128((const void *)p), high = h_srli_epi16(q, 4);
    *s = h_add_products(*s, h_and_si128(q, m3), y[0]);
    *t = h_add_products(*t, h_and_si128(q, m12), y[1]);
    *s = h_add_products(*s, h_and_si128(high, m3), y[2]);
    *t = h_add_products(*t, h_and_si128(high, m12), y[3]);
    h_keep(*s);
    h_keep(*t);
}

static inline h_int half_widen(h_int acc, h_int s, h_int t)
{
    h_int v = h_add_epi16(s, h_srai_epi16(t, 2));
    return h_add_epi32(acc, h_madd_epi16(v, h_set1_epi16(1)));
}

static h_int group_one(const uint8_t *p, const int8_t *q, size_t steps, const struct start *b,
                       size_t ahead)
{
    h_int a0 = h_setzero_si128(), a1 = a0, a2 = a0, a3 = a0;
    for (; steps > 0; b++) {
        size_t n = bn_min_size(steps, STEPS_MASKED);
        h_int s0 = b->s, s1 = s0, s2 = s0, s3 = s0, t0 = b->t, t1 = t0, t2 = t0, t3 = t0;
        steps -= n;
        for (; n > 0; n--, p += 4 * BN_T2_PIECE, q += BN_T2_STEP) {
            h_prefetch((const char *)p + ahead, H_T0);
            h_prefetch((const char *)p + ahead + 64, H_T0);
            for (size_t h = 0; h < 32; h += 16) {
                h_int y[4];
                for (size_t i = 0; i < 4; i++) y[i] = h_loadu_si128((const void *)(q + 32 * i + h));
                half_step(&s0, &t0, p + h, y);
                half_step(&s1, &t1, p + 32 + h, y);
                half_step(&s2, &t2, p + 64 + h, y);
                half_step(&s3, &t3, p + 96 + h, y);
            }
        }
        a0 = half_widen(a0, s0, t0);
        a1 = half_widen(a1, s1, t1);
        a2 = half_widen(a2, s2, t2);
        a3 = half_widen(a3, s3, t3);
    }
    return h_hadd_epi32(h_hadd_epi32(a0, a1), h_hadd_epi32(a2, a3));
}
#else
static h_int group_one(const uint8_t *p, const int8_t *q, size_t steps, const struct start *b,
                       size_t ahead)
{
    struct wide {
        w_int r[4];
    } a = {{w_setzero_si256(), w_setzero_si256(), w_setzero_si256(), w_setzero_si256()}};
    for (; steps > 0; b++) {
        __asm__("" : "+m"(a)); /* in memory, so that the eight sums are in registers */
        size_t n = bn_min_size(steps, STEPS_MASKED);
        w_int s0 = b->s, s1 = s0, s2 = s0, s3 = s0;
        w_int t0 = b->t, t1 = t0, t2 = t0, t3 = t0;
        steps -= n;
        for (; n > 0; n--, p += 4 * BN_T2_PIECE, q += BN_T2_STEP) {
            h_prefetch((const char *)p + ahead, H_T0);
            h_prefetch((const char *)p + ahead + 64, H_T0);
            bn_t2_row_step(&s0, &t0, p, q);
            bn_t2_row_step(&s1, &t1, p + 32, q);
            bn_t2_row_step(&s2, &t2, p + 64, q);
            bn_t2_row_step(&s3, &t3, p + 96, q);
        }
        a.r[0] = bn_t2_widen(a.r[0], s0, t0);
        a.r[1] = bn_t2_widen(a.r[1], s1, t1);
        a.r[2] = bn_t2_widen(a.r[2], s2, t2);
        a.r[3] = bn_t2_widen(a.r[3], s3, t3);
    }
    return bn_hsum4_i32(a.r[0], a.r[1], a.r[2], a.r[3]);
}
#endif

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *q,
                    float inv)
{
    struct start start[BN_COLS_MAX / BN_T2_STEP / STEPS_MASKED];
    size_t steps = bn_div_up(w->cols, BN_T2_STEP);
    make_starts(start, q, steps);
    for (size_t r = r0; r < r1; r += 4)
        store_rows(y, w, r, bn_min_size(4, r1 - r),
                   group_one(bn_t2_group(w, r), q, steps, start, w->ahead), inv);
}

static void mul_i8_wide(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->w->scale_kind == BN_SCALE_BLOCK) W_BASE(t2_mul_i8_block)(a, x);
    else if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x->q, x->inv[0]);
    else W_NAME(t2_mul_i8_tokens)(a, x);
}

const struct bn_gemm W_NAME(gemm_t2) = {
    BN_T2_LAYOUT,
    .mul_i8 = mul_i8_wide,
    .mul_f32 = W_BASE(t2_mul_f32),
    .many_from = BN_TABLE_FROM,
    .many_bytes = W_BASE(tables_bytes),
    .mul_i8_many = W_BASE(t2_mul_i8_many),
};
