/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: upper bounds from the 4-bit screening copy (kernels.h, ref/screen4.c).
 *
 * maddubs multiplies unsigned codes c = w + 8 in {0..15} with the signed planes of the vector and
 * adds pairs in 16 bits; a pair is at most 2 * 15 * 127 = 3810 in size, so it never saturates.
 * Sixteen of them may leave 16 bits, but sums of w times the plane do not: 32 * 8 * 127 = 32512.
 * So an accumulator starts at minus eight times the sum of the plane over the block, a number per
 * block of 8 steps that all rows share, and additions modulo 2^16 end at the right value.
 */
#include "kernels/x86/avx2.h"
#include "kernels/x86/t2_avx2.h"

enum {
    STEP = 64,    /* columns of a step */
    BLOCK = 8,    /* steps between widenings */
    AHEAD = 4096, /* bytes to prefetch ahead */
    MAX_BLOCKS = BN_SCREEN_COLS_MAX / (STEP * BLOCK)
};

struct start {
    __m256i high[MAX_BLOCKS], low[MAX_BLOCKS];
};

static __m256i start_of(const int8_t *plane, size_t n)
{
    __m256i s = _mm256_setzero_si256(), eight = _mm256_set1_epi8(8);
    for (size_t i = 0; i < 2 * n; i++) {
        __m256i y = _mm256_loadu_si256((const void *)(plane + 32 * i));
        s = _mm256_sub_epi16(s, _mm256_maddubs_epi16(eight, y));
    }
    return s;
}

static inline __attribute__((always_inline)) void row_step(__m256i *s, __m256i *t, const uint8_t *p,
                                                           const __m256i y[2], const __m256i z[2])
{
    const __m256i m15 = _mm256_set1_epi8(15);
    __m256i q = _mm256_loadu_si256((const void *)p);
    __m256i a = _mm256_and_si256(q, m15), b = _mm256_and_si256(_mm256_srli_epi16(q, 4), m15);
    *s = _mm256_add_epi16(
        *s, _mm256_add_epi16(_mm256_maddubs_epi16(a, y[0]), _mm256_maddubs_epi16(b, y[1])));
    *t = _mm256_add_epi16(
        *t, _mm256_add_epi16(_mm256_maddubs_epi16(a, z[0]), _mm256_maddubs_epi16(b, z[1])));
}

static inline __m256i widen(__m256i acc, __m256i s)
{
    return _mm256_add_epi32(acc, _mm256_madd_epi16(s, _mm256_set1_epi16(1)));
}

/* the sums of the four rows of a group */
static __m128i group(const uint8_t *p, const struct bn_screen_vector *v, const struct start *start,
                     size_t steps)
{
    __m256i h0 = _mm256_setzero_si256(), h1 = h0, h2 = h0, h3 = h0;
    __m256i l0 = h0, l1 = h0, l2 = h0, l3 = h0;
    const int8_t *high = v->high, *low = v->low;
    for (size_t block = 0; steps > 0; block++) {
        size_t n = bn_min_size(steps, BLOCK);
        __m256i s0 = start->high[block], s1 = s0, s2 = s0, s3 = s0;
        __m256i t0 = start->low[block], t1 = t0, t2 = t0, t3 = t0;
        steps -= n;
        for (; n > 0; n--, p += 128, high += STEP, low += STEP) {
            const __m256i y[2] = {_mm256_loadu_si256((const void *)high),
                                  _mm256_loadu_si256((const void *)(high + 32))};
            const __m256i z[2] = {_mm256_loadu_si256((const void *)low),
                                  _mm256_loadu_si256((const void *)(low + 32))};
            _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
            _mm_prefetch((const char *)p + AHEAD + 64, _MM_HINT_T0);
            row_step(&s0, &t0, p, y, z);
            row_step(&s1, &t1, p + 32, y, z);
            row_step(&s2, &t2, p + 64, y, z);
            row_step(&s3, &t3, p + 96, y, z);
        }
        h0 = widen(h0, s0), h1 = widen(h1, s1), h2 = widen(h2, s2), h3 = widen(h3, s3);
        l0 = widen(l0, t0), l1 = widen(l1, t1), l2 = widen(l2, t2), l3 = widen(l3, t3);
    }
    return _mm_add_epi32(_mm_slli_epi32(bn_hsum4_i32(h0, h1, h2, h3), 7),
                         bn_hsum4_i32(l0, l1, l2, l3));
}

static inline void bounds(float score[4], float upper[4], __m128i sums, __m256d step, __m256d mass,
                          const struct bn_screen_vector *v)
{
    const __m256d sign = _mm256_set1_pd(-0.0);
    __m256d y = _mm256_mul_pd(_mm256_cvtepi32_pd(sums), _mm256_set1_pd(v->unit));
    y = _mm256_mul_pd(step, _mm256_add_pd(y, _mm256_set1_pd(v->offset)));
    __m256d m = _mm256_mul_pd(mass, _mm256_set1_pd(v->per_mass));
    m = _mm256_mul_pd(step, _mm256_add_pd(_mm256_set1_pd(v->margin), m));
    __m256d b = _mm256_add_pd(y, m);
    b = _mm256_add_pd(b, _mm256_mul_pd(_mm256_andnot_pd(sign, b), _mm256_set1_pd(0x1p-23)));
    b = _mm256_add_pd(b, _mm256_set1_pd(v->tiny));
    _mm_storeu_ps(score, _mm256_cvtpd_ps(y));
    _mm_storeu_ps(upper, _mm256_cvtpd_ps(b));
}

static inline __m256d load4(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }

void bn_screen4_avx2(float *score, float *upper, const struct bn_screen *w, size_t r0, size_t r1,
                     const struct bn_screen_vector *v)
{
    size_t steps = bn_align_up(w->cols, BN_K_ALIGN) / STEP, bytes = bn_screen4_group_bytes(w->cols);
    struct start start;
    for (size_t s = 0; s < steps; s += BLOCK) {
        start.high[s / BLOCK] = start_of(v->high + s * STEP, bn_min_size(BLOCK, steps - s));
        start.low[s / BLOCK] = start_of(v->low + s * STEP, bn_min_size(BLOCK, steps - s));
    }
    for (size_t r = r0; r < r1; r += 4) {
        __m128i sums = group(w->data + r / 4 * bytes, v, &start, steps);
        if (r + 4 <= r1) {
            bounds(score + r - r0, upper + r - r0, sums, load4(w->step + r), load4(w->mass + r), v);
            continue;
        }
        float step[4] = {0}, mass[4] = {0}, some[2][4];
        for (size_t i = r; i < r1; i++) step[i - r] = w->step[i], mass[i - r] = w->mass[i];
        bounds(some[0], some[1], sums, load4(step), load4(mass), v);
        for (size_t i = r; i < r1; i++)
            score[i - r0] = some[0][i - r], upper[i - r0] = some[1][i - r];
    }
}
