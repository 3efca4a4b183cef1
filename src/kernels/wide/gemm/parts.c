/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows and columns of ternary matrices by a list (kernels.h; layouts "r2" and "c2").
 *
 * What is read lies scattered in memory, where the hardware's prefetchers are of no use and even in
 * the way: they run on past the end of a row. So the rows or columns a few places ahead are asked
 * for by the program, a line of each in turn, and into the second cache, which can wait for more
 * lines at a time than the first (a third faster than into the first on a Zen 4). */
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

enum {
    STEP = BN_T2_STEP,
    PIECE = BN_T2_PIECE,
    ROWS = 4,         /* rows taken together */
    ROWS_AHEAD = 16,  /* places in the list between use and prefetch */
    ROWS_STEPS = 5,   /* steps between widenings: 10 pairs of size 3048 (t2.c) */
    COLS = 8,         /* columns taken together */
    COLS_AHEAD = 32,  /* places in the list between use and prefetch */
    COLS_FLUSH = 128, /* columns between widenings */
    COLS_ROWS = 2560  /* rows whose sums are kept at hand, in 15 KB */
};

/* ---- rows ---- */

/* The code sums of four rows; `next` are four rows that will be wanted soon. */
static h_int four_rows(const uint8_t *const p[ROWS], const uint8_t *const next[ROWS],
                       const int8_t *q, size_t steps)
{
    w_int a0 = w_setzero_si256(), a1 = a0, a2 = a0, a3 = a0;
    for (size_t i = 0; i < steps;) {
        size_t end = bn_min_size(steps, i + ROWS_STEPS);
        w_int s0 = w_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
        w_int t0 = s0, t1 = s0, t2 = s0, t3 = s0;
        for (; i < end; i++, q += STEP) {
            size_t at = i * PIECE;
            if (i % 2 == 0)
                for (size_t r = 0; r < ROWS; r++) h_prefetch((const char *)next[r] + at, H_T1);
            bn_t2_row_step(&s0, &t0, p[0] + at, q);
            bn_t2_row_step(&s1, &t1, p[1] + at, q);
            bn_t2_row_step(&s2, &t2, p[2] + at, q);
            bn_t2_row_step(&s3, &t3, p[3] + at, q);
        }
        a0 = bn_t2_widen(a0, s0, t0);
        a1 = bn_t2_widen(a1, s1, t1);
        a2 = bn_t2_widen(a2, s2, t2);
        a3 = bn_t2_widen(a3, s3, t3);
    }
    return bn_hsum4_i32(a0, a1, a2, a3);
}

void W_NAME(rows_r2)(float *y, const struct bn_packed *w, const uint32_t *list, size_t n,
                     const int8_t *q, int32_t sum, float inv)
{
    size_t bytes = bn_r2_row_bytes(w->cols);
    for (size_t i = 0; i < n; i += ROWS) {
        const uint8_t *p[ROWS], *next[ROWS];
        for (size_t r = 0; r < ROWS; r++) {
            p[r] = w->data + list[bn_min_size(i + r, n - 1)] * bytes;
            next[r] = w->data + list[bn_min_size(i + r + ROWS_AHEAD, n - 1)] * bytes;
        }
        h_int codes = four_rows(p, next, q, bytes / PIECE);
        float v[ROWS];
        h_storeu_ps(v, h_cvtepi32_ps(h_sub_epi32(codes, h_set1_epi32(sum))));
        for (size_t r = 0; r < ROWS && i + r < n; r++)
            y[i + r] = v[r] * (bn_row_scale(w, list[i + r]) * inv);
    }
}

/* ---- columns ----
 * Two columns, interleaved byte by byte, meet the pair of their activations in one maddubs: every
 * 16-bit element then is one output. All outputs have a 16-bit sum in the first cache, which goes up
 * by codes times activations and wraps around; what is wanted, weights times activations, is less by
 * the sum of the activations. Wrapping sums are exact modulo 2^16, and 128 columns with weights up
 * to 2 are at most 128 * 2 * 127 = 32512 < 2^15 in size: so the difference, taken modulo 2^16, is
 * the true one. It is then added to a sum of 32 bits. A maddubs is at most 2 * 3 * 127 and does not
 * saturate. */

struct sums {
    int16_t low[COLS_ROWS]; /* in the order that the unpacking leaves */
    int32_t all[COLS_ROWS];
};

/* two bits of every byte */
static inline __attribute__((always_inline)) w_int field(w_int v, const int shift)
{
    return w_and_si256(w_srli_epi16(v, shift), w_set1_epi8(3));
}

static inline __attribute__((always_inline)) void
add_pairs(int16_t *low, const uint8_t *const p[COLS], const uint8_t *const next[COLS],
          const w_int pair[COLS / 2], size_t steps, const size_t n_pairs)
{
    for (size_t i = 0; i < steps; i++, low += STEP) {
        w_int s[8];
        if (n_pairs == COLS / 2 && i % 2 == 0)
            for (size_t c = 0; c < COLS; c++) h_prefetch((const char *)next[c] + i * PIECE, H_T1);
        for (size_t j = 0; j < 8; j++) s[j] = w_loadu_si256((const void *)(low + 16 * j));
        for (size_t c = 0; c < n_pairs; c++) {
            w_int a = w_loadu_si256((const void *)(p[2 * c] + i * PIECE));
            w_int b = w_loadu_si256((const void *)(p[2 * c + 1] + i * PIECE));
            w_int lo = w_unpacklo_epi8(a, b), hi = w_unpackhi_epi8(a, b);
            s[0] = w_add_pairs(s[0], field(lo, 0), pair[c]);
            s[1] = w_add_pairs(s[1], field(hi, 0), pair[c]);
            s[2] = w_add_pairs(s[2], field(lo, 2), pair[c]);
            s[3] = w_add_pairs(s[3], field(hi, 2), pair[c]);
            s[4] = w_add_pairs(s[4], field(lo, 4), pair[c]);
            s[5] = w_add_pairs(s[5], field(hi, 4), pair[c]);
            s[6] = w_add_pairs(s[6], field(lo, 6), pair[c]);
            s[7] = w_add_pairs(s[7], field(hi, 6), pair[c]);
        }
        for (size_t j = 0; j < 8; j++) w_storeu_si256((void *)(low + 16 * j), s[j]);
    }
}

/* Up to eight columns list[0 .. n-1]; `soon` more columns follow in the list. */
static __attribute__((noinline)) void add_columns(int16_t *low, const uint8_t *data, size_t stride,
                                                  const uint32_t *list, size_t n, size_t soon,
                                                  const int8_t *q, size_t steps)
{
    const uint8_t *p[COLS], *next[COLS];
    w_int pair[COLS / 2];
    for (size_t c = 0; c < COLS; c++) {
        p[c] = data + list[bn_min_size(c, n - 1)] * stride;
        next[c] = data + list[bn_min_size(COLS_AHEAD + c, n + soon - 1)] * stride;
    }
    for (size_t c = 0; c < COLS / 2; c++) {
        uint16_t a = 2 * c < n ? (uint8_t)q[list[2 * c]] : 0;
        uint16_t b = 2 * c + 1 < n ? (uint8_t)q[list[2 * c + 1]] : 0;
        pair[c] = w_set1_epi16((int16_t)(uint16_t)(a | b << 8));
    }
    if (n == COLS) add_pairs(low, p, next, pair, steps, COLS / 2);
    else
        for (size_t c = 0; 2 * c < n; c++) add_pairs(low, p + 2 * c, next, pair + c, steps, 1);
}

static inline void add_wide(int32_t *all, h_int v)
{
    w_int s = w_loadu_si256((const void *)all);
    w_storeu_si256((void *)all, w_add_epi32(s, w_cvtepi16_epi32(v)));
}

static void flush(struct sums *s, size_t steps, int32_t activations)
{
    const w_int less = w_set1_epi16((int16_t)(uint16_t)(uint32_t)activations);
    for (size_t i = 0; i < steps * STEP; i += 32) {
        w_int l = w_sub_epi16(w_loadu_si256((const void *)(s->low + i)), less);
        w_int h = w_sub_epi16(w_loadu_si256((const void *)(s->low + i + 16)), less);
        add_wide(s->all + i, w_castsi256_si128(l));
        add_wide(s->all + i + 8, w_castsi256_si128(h));
        add_wide(s->all + i + 16, w_extracti128_si256(l, 1));
        add_wide(s->all + i + 24, w_extracti128_si256(h, 1));
        w_storeu_si256((void *)(s->low + i), w_setzero_si256());
        w_storeu_si256((void *)(s->low + i + 16), w_setzero_si256());
    }
}

void W_NAME(cols_c2)(float *y, const struct bn_packed *w, size_t r0, size_t r1,
                     const uint32_t *list, size_t n, const int8_t *q, float inv)
{
    size_t stride = bn_c2_column_bytes(w->rows);
    for (; r0 < r1; r0 += COLS_ROWS) {
        struct sums s;
        size_t rows = bn_min_size(r1 - r0, COLS_ROWS), steps = bn_div_up(rows, STEP);
        memset(s.low, 0, steps * STEP * sizeof s.low[0]);
        memset(s.all, 0, steps * STEP * sizeof s.all[0]);
        int32_t activations = 0;
        for (size_t i = 0; i < n; i += COLS) {
            size_t some = bn_min_size(COLS, n - i);
            add_columns(s.low, w->data + r0 / 4, stride, list + i, some, n - i - some, q, steps);
            for (size_t c = 0; c < some; c++) activations += q[list[i + c]];
            if ((i + some) % COLS_FLUSH != 0 && i + some < n) continue;
            flush(&s, steps, activations);
            activations = 0;
        }
        for (size_t r = 0; r < rows; r++)
            y[r0 + r] = (float)s.all[r] * (bn_row_scale(w, r0 + r) * inv);
    }
}
