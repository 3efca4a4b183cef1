/* SPDX-License-Identifier: Apache-2.0
 *
 * A dense matrix with one byte a weight times vectors of 16-bit integers (kernels.h,
 * ref/dense8.c).
 *
 * Weights are widened to 16 bits, once for two vectors; madd multiplies and adds pairs in 32
 * bits. A pair is at most 2 * 127 * 32767 < 2^23 in size, so a lane holds the 256 of them that
 * 4,096 columns bring. Lanes then go on as doubles, in which these integers are exact.
 */
#include "kernels/wide/lanes.h"

enum {
    ROWS = BN_DENSE8_ROWS,
    VECTORS = 2, /* at a time */
    STEP = 64,   /* columns of a step */
    BLOCK = 4096 /* columns summed in 32 bits */
};

static inline w_f64 widen(w_f64 sum, w_int s)
{
    w_f64 lo = w_cvtepi32_pd(w_castsi256_si128(s));
    return w_add_pd(sum, w_add_pd(lo, w_cvtepi32_pd(w_extracti128_si256(s, 1))));
}

/* Sums of the four rows of a group and n vectors: sums[row * n + vector]. Eight sums, the vectors
 * and a row fit into the registers. */
static inline __attribute__((always_inline)) void tile(w_f64 *sums, const int8_t *p,
                                                       const struct bn_dense8_vector *v,
                                                       size_t cols, size_t ahead, const size_t n)
{
    for (size_t i = 0; i < ROWS * n; i++) sums[i] = w_setzero_pd();
    for (size_t at = 0; at < cols;) {
        size_t end = bn_min_size(at + BLOCK, cols);
        w_int s[ROWS * VECTORS];
        for (size_t i = 0; i < ROWS * n; i++) s[i] = w_setzero_si256();
        for (; at < end; at += STEP, p += ROWS * STEP) {
            for (size_t r = 0; r < ROWS; r++) h_prefetch((const char *)p + ahead + STEP * r, H_T0);
            for (size_t c = 0; c < STEP; c += 16) {
                w_int k[VECTORS];
                for (size_t i = 0; i < n; i++)
                    k[i] = w_loadu_si256((const void *)(v[i].k + at + c));
                for (size_t r = 0; r < ROWS; r++) {
                    w_int q = w_cvtepi8_epi16(h_loadu_si128((const void *)(p + r * STEP + c)));
                    for (size_t i = 0; i < n; i++)
                        s[r * n + i] = w_add_epi32(s[r * n + i], w_madd_epi16(q, k[i]));
                }
            }
        }
        for (size_t i = 0; i < ROWS * n; i++) sums[i] = widen(sums[i], s[i]);
    }
}

static inline w_f64 hsum4_pd(w_f64 a, w_f64 b, w_f64 c, w_f64 d)
{
    w_f64 ab = w_hadd_pd(a, b), cd = w_hadd_pd(c, d);
    return w_add_pd(w_permute2f128_pd(ab, cd, 0x20), w_permute2f128_pd(ab, cd, 0x31));
}

/* Rows [r0, r1) and n vectors, at most VECTORS. */
static inline __attribute__((always_inline)) void
some_vectors(float *y, size_t y_stride, const struct bn_dense8 *w, size_t r0, size_t r1,
             const struct bn_dense8_vector *v, const size_t n)
{
    size_t cols = bn_align_up(w->cols, BN_K_ALIGN), bytes = bn_dense8_group_bytes(w->cols);
    for (size_t r = r0; r < r1; r += ROWS) {
        w_f64 s[ROWS * VECTORS];
        tile(s, w->data + r / ROWS * bytes, v, cols, w->ahead, n);
        size_t some = bn_min_size(ROWS, r1 - r);
        float scale[ROWS] = {0}, out[ROWS];
        memcpy(scale, w->scale + r, some * sizeof *scale);
        w_f64 scales = w_cvtps_pd(h_loadu_ps(scale));
        for (size_t i = 0; i < n; i++) {
            w_f64 sum = hsum4_pd(s[i], s[n + i], s[2 * n + i], s[3 * n + i]);
            w_f64 unit = w_mul_pd(scales, w_set1_pd(v[i].unit));
            h_storeu_ps(out, w_cvtpd_ps(w_mul_pd(sum, unit)));
            memcpy(y + i * y_stride + r - r0, out, some * sizeof *out);
        }
    }
}

void W_NAME(dense8)(float *y, size_t y_stride, const struct bn_dense8 *w, size_t r0, size_t r1,
                    const struct bn_dense8_vector *v, size_t n_vec)
{
    size_t i = 0;
    for (; i + VECTORS <= n_vec; i += VECTORS)
        some_vectors(y + i * y_stride, y_stride, w, r0, r1, v + i, VECTORS);
    if (i < n_vec) some_vectors(y + i * y_stride, y_stride, w, r0, r1, v + i, 1);
}
