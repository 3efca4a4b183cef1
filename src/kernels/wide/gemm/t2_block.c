/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations times matrices in layout "t2" with a scale for every 64, 128 or 256
 * columns. The exact sum of a block, codes times activations minus the block's activations, becomes
 * a float and is folded in. Four such sums are made at once, one in each place of a register: of
 * the four rows of a group for one token, of four tokens for one row. So the order of additions
 * within each result is the contract's.
 *
 * 16 bits suffice until four lanes have been added up: a lane of a block of 256 columns has 8 pairs
 * of size 762 (t2.c), and 4 * 8 * 762 = 24384 < 2^15. Blocks of 32, which no known model
 * needs fast, are left to the reference. */
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum { BLOCKS_MAX = BN_COLS_MAX / 64, BLOCK_ROWS = 256 };

/* The sum of the activations of every block; `stride` places from one to the next. */
static void block_sums(int32_t *sum, size_t stride, const int8_t *q, size_t cols, size_t block)
{
    for (size_t b = 0; b < cols / block; b++) {
        w_int s = w_setzero_si256();
        for (size_t k = 0; k < block; k += 32) { /* bytes, made unsigned by adding 128, sum up */
            w_int v = w_loadu_si256((const void *)(q + b * block + k));
            v = w_xor_si256(v, w_set1_epi8((char)0x80));
            s = w_add_epi64(s, w_sad_epu8(v, w_setzero_si256()));
        }
        h_int h = h_add_epi64(w_castsi256_si128(s), w_extracti128_si256(s, 1));
        h = h_add_epi64(h, h_unpackhi_epi64(h, h));
        sum[b * stride] = h_cvtsi128_si32(h) - 128 * (int)block;
    }
}

/* Four sums of 16 lanes: two levels in 16 bits, the third to 32. */
ALWAYS h_int sum4(w_int a, w_int b, w_int c, w_int d)
{
    w_int h = w_hadd_epi16(w_hadd_epi16(a, b), w_hadd_epi16(c, d));
    h = w_madd_epi16(h, w_set1_epi16(1));
    return h_add_epi32(w_castsi256_si128(h), w_extracti128_si256(h, 1));
}

ALWAYS h_f32 fold(h_f32 acc, h_int codes, h_int sum, h_f32 d)
{
    return h_add_ps(acc, h_mul_ps(h_cvtepi32_ps(h_sub_epi32(codes, sum)), d));
}

/* ---- one token: four rows together ---- */

/* p: where it will be */
ALWAYS void prefetch_step(const uint8_t *p)
{
    h_prefetch((const char *)p, H_T0);
    h_prefetch((const char *)p + 64, H_T0);
}

/* The 64 columns of fields 0 and 1 of each byte; field 1 is masked in place and divided after. */
ALWAYS w_int row_half(w_int q, w_int y0, w_int y1)
{
    w_int a = w_maddubs_epi16(w_and_si256(q, w_set1_epi8(3)), y0);
    w_int b = w_maddubs_epi16(w_and_si256(q, w_set1_epi8(12)), y1);
    return w_add_epi16(a, w_srai_epi16(b, 2));
}

/* v[i]: the lanes of row i for columns 64 * half .. 64 * half + 63 of a step, added to v */
ALWAYS void rows_half(w_int v[4], const uint8_t *p, const int8_t *x, const size_t half)
{
    const w_int *y = (const void *)(x + 64 * half);
    w_int y0 = w_loadu_si256(y), y1 = w_loadu_si256(y + 1);
    for (size_t i = 0; i < 4; i++) {
        w_int q = w_loadu_si256((const void *)(p + 32 * i));
        if (half) q = w_srli_epi16(q, 4);
        v[i] = w_add_epi16(v[i], row_half(q, y0, y1));
    }
}

ALWAYS void one_token(float *y, const struct bn_packed *w, size_t r, size_t n_rows, const int8_t *x,
                      const int32_t *sum, float inv, const size_t block)
{
    const uint8_t *p = bn_t2_group(w, r);
    size_t n_blocks = w->cols / block;
    h_f32 acc = h_setzero_ps(), d[8];
    for (size_t b0 = 0; b0 < n_blocks; b0 += 8) {
        /* the last 8 blocks, if fewer are left: their scales can then be read like the others */
        size_t from = bn_min_size(b0, n_blocks - bn_min_size(8, n_blocks));
        bn_t2_block_scales(d, w, r, n_rows, from, n_blocks);
        for (size_t b = b0; b < n_blocks && b < b0 + 8; b++) {
            w_int v[4];
            size_t step = b * block / BN_T2_STEP;
            const uint8_t *at = p + step * 4 * BN_T2_PIECE;
            const int8_t *xs = x + step * BN_T2_STEP;
            for (size_t i = 0; i < 4; i++) v[i] = w_setzero_si256();
            if (block == 64 && b % 2) {
                rows_half(v, at, xs, 1);
            } else if (block == 64) {
                prefetch_step(at + w->ahead);
                rows_half(v, at, xs, 0);
            } else {
                for (size_t o = 0; o < block / BN_T2_STEP; o++) {
                    prefetch_step(at + w->ahead + o * 128);
                    rows_half(v, at + o * 128, xs + o * 128, 0);
                    rows_half(v, at + o * 128, xs + o * 128, 1);
                }
            }
            acc = fold(acc, sum4(v[0], v[1], v[2], v[3]), h_set1_epi32(sum[b]), d[b - from]);
        }
    }
    float out[4];
    h_storeu_ps(out, h_mul_ps(acc, h_set1_ps(inv)));
    for (size_t i = 0; i < n_rows; i++) y[r + i] = out[i];
}

/* ---- four tokens together, row by row ---- */

ALWAYS w_int token_half(w_int f0, w_int f1, const int8_t *x)
{
    const w_int *y = (const void *)x;
    return w_add_epi16(w_maddubs_epi16(f0, w_loadu_si256(y)),
                       w_maddubs_epi16(f1, w_loadu_si256(y + 1)));
}

/* v[t] += 64 columns of a row times token t */
ALWAYS void tokens_half(w_int v[4], w_int f0, w_int f1, const int8_t *x, size_t x_stride)
{
    for (size_t t = 0; t < 4; t++) v[t] = w_add_epi16(v[t], token_half(f0, f1, x + t * x_stride));
}

/* p: the row's first piece; d: its scales; sum: [n_blocks][4]. Returns the four results. */
ALWAYS h_f32 four_tokens(const uint8_t *p, const uint16_t *d, const int8_t *x, size_t x_stride,
                         const int32_t (*sum)[4], size_t n_blocks, const size_t block)
{
    const w_int m3 = w_set1_epi8(3);
    h_f32 acc = h_setzero_ps();
    for (size_t b = 0; b < n_blocks; b++) {
        w_int v[4];
        for (size_t t = 0; t < 4; t++) v[t] = w_setzero_si256();
        const uint8_t *at = p + b * block / BN_T2_STEP * 4 * BN_T2_PIECE;
        const int8_t *xs = x + b * block;
        if (block == 64) {
            w_int q = w_loadu_si256((const void *)at);
            q = w_srl_epi16(q, h_cvtsi32_si128((int)(b % 2) * 4));
            tokens_half(v, w_and_si256(q, m3), w_and_si256(w_srli_epi16(q, 2), m3), xs, x_stride);
        } else {
            for (size_t o = 0; o < block; o += BN_T2_STEP) {
                w_int f[4];
                bn_t2_fields(f, w_loadu_si256((const void *)(at + o)));
                tokens_half(v, f[0], f[1], xs + o, x_stride);
                tokens_half(v, f[2], f[3], xs + o + 64, x_stride);
            }
        }
        acc = fold(acc, sum4(v[0], v[1], v[2], v[3]), h_loadu_si128((const void *)sum[b]),
                   h_set1_ps(h_cvtsh_ss(d[b])));
    }
    return acc;
}

/* ---- the loops ---- */

static void mul_one(float *y, const struct bn_packed *w, size_t r0, size_t r1, const int8_t *x,
                    float inv)
{
    int32_t sum[BLOCKS_MAX];
    block_sums(sum, 1, x, w->cols, w->block);
    for (size_t r = r0; r < r1; r += 4) {
        size_t n = bn_min_size(4, r1 - r);
        if (w->block == 64) one_token(y, w, r, n, x, sum, inv, 64);
        else if (w->block == 128) one_token(y, w, r, n, x, sum, inv, 128);
        else one_token(y, w, r, n, x, sum, inv, 256);
    }
}

static void mul_four(float *y, size_t y_stride, const struct bn_packed *w, size_t r0, size_t r1,
                     const int8_t *x, size_t x_stride, const float *inv)
{
    int32_t sum[BLOCKS_MAX][4];
    const int32_t(*s)[4] = (const int32_t(*)[4])sum;
    size_t n = w->cols / w->block;
    for (size_t t = 0; t < 4; t++) block_sums(sum[0] + t, 4, x + t * x_stride, w->cols, w->block);
    for (size_t r = r0; r < r1; r++) {
        const uint8_t *p = bn_t2_group(w, r) + r % 4 * BN_T2_PIECE;
        const uint16_t *d = w->block_scale + r * n;
        h_f32 v = w->block == 64    ? four_tokens(p, d, x, x_stride, s, n, 64)
                  : w->block == 128 ? four_tokens(p, d, x, x_stride, s, n, 128)
                                    : four_tokens(p, d, x, x_stride, s, n, 256);
        float out[4];
        h_storeu_ps(out, h_mul_ps(v, h_loadu_ps(inv)));
        for (size_t t = 0; t < 4; t++) y[t * y_stride + r] = out[t];
    }
}

void W_NAME(t2_mul_i8_block)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->w->block < 64) {
        bn_t2_mul_i8_c(a, x);
        return;
    }
    /* a block of rows stays in the second cache while the tokens pass */
    for (size_t r = a->r0; r < a->r1; r += BLOCK_ROWS) {
        size_t end = bn_min_size(a->r1, r + BLOCK_ROWS), t = 0;
        for (; t + 4 <= a->n_tok; t += 4)
            mul_four(a->y + t * a->y_stride, a->y_stride, a->w, r, end, x->q + t * x->stride,
                     x->stride, x->inv + t);
        for (; t < a->n_tok; t++)
            mul_one(a->y + t * a->y_stride, a->w, r, end, x->q + t * x->stride, x->inv[t]);
    }
}
