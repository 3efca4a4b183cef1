/* SPDX-License-Identifier: Apache-2.0
 *
 * Float activations times matrices in layout "b1" (ref/gemm_b1.c). A byte, eight columns of a
 * row, becomes eight floats -1 or +1 in one of two ways: half of the rows look them up in a table of
 * 8 KB, which keeps the load units busy, the others shift bits to the sign and choose, which keeps
 * the vector units busy. Together that is faster than either alone.
 *
 * Here a fused multiplication and addition gives the bits of the contract: a product with -1 or +1
 * is not rounded.
 *
 * A tile is eight sums of eight lanes: 8 rows for one token, 4 rows for two. Octets with an even
 * number make lanes 0-7 of a row, the others lanes 8-15. */
#include "kernels/b1.h"
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    ROWS = BN_B1_ROWS,
    TOKENS = 2,
    PLAIN = 512 /* columns of a piece without block scales */
};

#define W(i, j) ((i) >> (j)&1 ? 1.0f : -1.0f)
#define W1(i)                                                                  \
    {                                                                          \
        W(i, 0), W(i, 1), W(i, 2), W(i, 3), W(i, 4), W(i, 5), W(i, 6), W(i, 7) \
    }
#define W4(i)  W1(i), W1((i) + 1), W1((i) + 2), W1((i) + 3)
#define W16(i) W4(i), W4((i) + 4), W4((i) + 8), W4((i) + 12)
#define W64(i) W16(i), W16((i) + 16), W16((i) + 32), W16((i) + 48)
static const _Alignas(64) float weights[256][8] = {W64(0), W64(64), W64(128), W64(192)};

/* The lanes of one token for the rows of a group, in the order of their bytes, between pieces */
typedef float lanes[ROWS][BN_LANES];

/* The weights of the octet in byte i of p; four bytes can be read from i rounded down to four on. */
ALWAYS w_f32 octet(const uint8_t *p, size_t i)
{
    if (i % 4 < 2) return w_load_ps(weights[p[i]]);
    uint32_t four;
    memcpy(&four, p + i / 4 * 4, sizeof four);
    return w_bit_signs(four, i % 4);
}

/* The rows of the bytes r .. r + 8 / nt - 1 and nt tokens, n columns (a multiple of 16) from p and x
 * on: adds to the lanes, which begin at 0 if `first`. */
ALWAYS void tile(lanes *to, const uint8_t *p, size_t r, const float *x, size_t x_stride, size_t n,
                 bool first, const size_t nt)
{
    for (size_t half = 0; half < 16; half += 8) {
        const uint8_t *b = p + half / 8 * ROWS + r;
        w_f32 s[8];
        for (size_t i = 0; i < 8; i++)
            s[i] = first ? w_setzero_ps() : w_loadu_ps(to[i % nt][r + i / nt] + half);
        for (const float *v = x + half; v < x + n; v += 16, b += 2 * ROWS)
            for (size_t i = 0; i < 8; i++) {
                w_f32 xt = w_loadu_ps(v + i % nt * x_stride);
                s[i] = w_fmadd_ps(octet(b, i / nt), xt, s[i]);
                W_KEEP(s[i]); /* stays in its register, and in this order */
            }
        for (size_t i = 0; i < 8; i++) w_storeu_ps(to[i % nt][r + i / nt] + half, s[i]);
    }
}

/* The same for all rows */
static void piece_rows(lanes *to, const uint8_t *p, const float *x, size_t x_stride, size_t n,
                       bool first, size_t nt)
{
    for (size_t r = 0; r < ROWS; r += 8 / nt)
        if (nt == 1) tile(to, p, r, x, x_stride, n, first, 1);
        else tile(to, p, r, x, x_stride, n, first, 2);
}

/* A piece of any length; columns behind the last 16 are filled up with zeros, which change no lane. */
static void piece_columns(lanes *to, const uint8_t *p, const float *x, size_t x_stride, size_t n,
                          bool first, size_t nt)
{
    size_t whole = n / 16 * 16;
    if (whole > 0) piece_rows(to, p, x, x_stride, whole, first, nt);
    if (whole == n) return;
    float tail[TOKENS][16] = {{0}};
    for (size_t t = 0; t < nt; t++)
        memcpy(tail[t], x + t * x_stride + whole, (n - whole) * sizeof *x);
    piece_rows(to, p + whole / 8 * ROWS, tail[0], 16, 16, first && whole == 0, nt);
}

ALWAYS h_f32 sum_four_rows(const lanes *from, size_t r)
{
    const float(*v)[BN_LANES] = *from + bn_b1_place(r);
    return bn_l16_sum4(bn_l16_load(v[0]), bn_l16_load(v[2]), bn_l16_load(v[4]), bn_l16_load(v[6]));
}

ALWAYS void prefetch(const uint8_t *p, size_t cols)
{
    for (size_t k = 0; k < cols; k += 8) h_prefetch((const char *)p + k / 8 * ROWS, H_T0);
}

static void group_plain(const struct bn_gemm_args *a, size_t r, size_t n_rows, const float *x,
                        size_t x_stride)
{
    const struct bn_packed *w = a->w;
    const size_t nt = a->n_tok;
    _Alignas(32) lanes s[TOKENS];
    const uint8_t *p = bn_b1_group(w, r);
    for (size_t k = 0; k < w->cols; k += PLAIN, p += PLAIN / 8 * ROWS) {
        prefetch(p + w->ahead, PLAIN);
        piece_columns(s, p, x + k, x_stride, bn_min_size(PLAIN, w->cols - k), k == 0, nt);
    }
    for (size_t t = 0; t < nt; t++)
        for (size_t i = 0; i < n_rows; i++)
            a->y[t * a->y_stride + r + i] =
                bn_row_scale(w, r + i) * bn_l16_sum(bn_l16_load(s[t][bn_b1_place(i)]));
}

static void group_blocks(const struct bn_gemm_args *a, size_t r, size_t n_rows, const float *x,
                         size_t x_stride)
{
    const struct bn_packed *w = a->w;
    const size_t nt = a->n_tok;
    _Alignas(32) lanes s[TOKENS];
    h_f32 acc[TOKENS][ROWS / 4];
    const uint8_t *p = bn_b1_group(w, r);
    size_t n_blocks = w->cols / w->block, quads = bn_div_up(n_rows, 4);
    for (size_t b = 0; b < n_blocks; b++, p += w->block / 8 * ROWS, x += w->block) {
        const uint16_t *scale = w->block_scale + (r / ROWS * n_blocks + b) * ROWS;
        prefetch(p + w->ahead, w->block);
        piece_rows(s, p, x, x_stride, w->block, true, nt);
        for (size_t t = 0; t < nt; t++)
            for (size_t i = 0; i < quads; i++) {
                h_f32 old = b == 0 ? h_setzero_ps() : acc[t][i];
                h_f32 d = h_cvtph_ps(h_loadl_epi64((const void *)(scale + 4 * i)));
                acc[t][i] = h_add_ps(old, h_mul_ps(d, sum_four_rows(s + t, 4 * i)));
            }
    }
    for (size_t t = 0; t < nt; t++)
        memcpy(a->y + t * a->y_stride + r, acc[t], n_rows * sizeof *a->y);
}

void W_NAME(b1_mul_f32)(const struct bn_gemm_args *a, const float *x, size_t x_stride)
{
    bool blocks = a->w->scale_kind == BN_SCALE_BLOCK;
    for (size_t t = 0; t < a->n_tok; t += TOKENS) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(TOKENS, a->n_tok - t));
        for (size_t r = a->r0; r < a->r1; r += ROWS)
            (blocks ? group_blocks : group_plain)(&some, r, bn_min_size(ROWS, a->r1 - r),
                                                  x + t * x_stride, x_stride);
    }
}
