/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: int8 activations of one token times matrices in layout "t2" (ref/gemm_t2.c), one scale a row
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
#include "kernels/x86/avx2/avx2.h"
#include "kernels/x86/avx2/gemm/t2.h"
#include "kernels/x86/avx2/gemm/tables.h"

enum {
    STEPS_MASKED = 8 /* steps between widenings */
};

/* y of up to 4 rows: (float)sum * (scale * inv) */
static inline void store_rows(float *y, const struct bn_packed *w, size_t r, size_t n, __m128i sum,
                              float inv)
{
    float v[4];
    _mm_storeu_ps(v, _mm_cvtepi32_ps(sum));
    for (size_t i = 0; i < n; i++) y[r + i] = v[i] * (bn_row_scale(w, r + i) * inv);
}

/* The rows' bytes are used once, so the decoding counts (bn_t2_row_step). */

/* what the sums of a few steps begin with */
struct start {
    __m256i s, t;
};

static inline __m256i pairs(const int8_t *y)
{
    return _mm256_maddubs_epi16(_mm256_set1_epi8(1), _mm256_loadu_si256((const void *)y));
}

static void make_starts(struct start *start, const int8_t *q, size_t steps)
{
    for (; steps > 0; start++) {
        size_t n = bn_min_size(steps, STEPS_MASKED);
        __m256i s = _mm256_setzero_si256(), t = s;
        steps -= n;
        for (; n > 0; n--, q += BN_T2_STEP) {
            s = _mm256_sub_epi16(s, _mm256_add_epi16(pairs(q), pairs(q + 64)));
            t = _mm256_sub_epi16(t, _mm256_add_epi16(pairs(q + 32), pairs(q + 96)));
        }
        *start = (struct start){s, _mm256_slli_epi16(t, 2)};
    }
}

static __m128i group_one(const uint8_t *p, const int8_t *q, size_t steps, const struct start *b,
                         size_t ahead)
{
    struct wide {
        __m256i r[4];
    } a = {{_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
            _mm256_setzero_si256()}};
    for (; steps > 0; b++) {
        __asm__("" : "+m"(a)); /* in memory, so that the eight sums are in registers */
        size_t n = bn_min_size(steps, STEPS_MASKED);
        __m256i s0 = b->s, s1 = s0, s2 = s0, s3 = s0;
        __m256i t0 = b->t, t1 = t0, t2 = t0, t3 = t0;
        steps -= n;
        for (; n > 0; n--, p += 4 * BN_T2_PIECE, q += BN_T2_STEP) {
            _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
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

static void mul_i8_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->w->scale_kind == BN_SCALE_BLOCK) bn_t2_mul_i8_block_avx2(a, x);
    else if (a->n_tok == 1) mul_one(a->y, a->w, a->r0, a->r1, x->q, x->inv[0]);
    else bn_t2_mul_i8_tokens_avx2(a, x);
}

const struct bn_gemm bn_gemm_t2_avx2 = {
    BN_T2_LAYOUT,
    .mul_i8 = mul_i8_avx2,
    .mul_f32 = bn_t2_mul_f32_avx2,
    .many_from = BN_TABLE_FROM,
    .many_bytes = bn_tables_bytes_avx2,
    .mul_i8_many = bn_t2_mul_i8_many_avx2,
};
