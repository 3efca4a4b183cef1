/* SPDX-License-Identifier: Apache-2.0
 *
 * Float activations times matrices in layout "t2". For several tokens a step of the group's
 * four rows is decoded to floats once and meets up to eight of them; the lanes of each (token, row)
 * wait in memory between steps. Four rows at a time are eight chains of additions. */
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

enum { TOKENS = 8, STEP = BN_T2_STEP };

/* 8 codes sit in the low bits of 32-bit places: a shift is all it takes to select a field. */
static inline w_int load_codes(const uint8_t *p)
{
    return w_cvtepu8_epi32(h_loadl_epi64((const void *)p));
}

/* ---- one token: weights go from the byte to the multiplication without a stop in memory ---- */

/* lanes of one row += columns of the fields f .. f + nf - 1 of a piece times x */
static inline __attribute__((always_inline)) struct bn_l16
mul_row(struct bn_l16 s, const uint8_t *p, const float *x, size_t f, const size_t nf)
{
    w_int v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = w_srl_epi32(load_codes(p + 8 * i), h_cvtsi32_si128(2 * (int)f));
    for (size_t k = 0; k < nf; k++, x += 32) {
        s = bn_l16_mul_add(s, (struct bn_l16){w_weights(v[0]), w_weights(v[1])}, bn_l16_load(x));
        s = bn_l16_mul_add(s, (struct bn_l16){w_weights(v[2]), w_weights(v[3])},
                           bn_l16_load(x + 16));
        for (size_t i = 0; i < 4; i++) v[i] = w_srli_epi32(v[i], 2);
    }
    return s;
}

/* nf: fields that go together, 4 unless blocks are smaller than a step */
static inline __attribute__((always_inline)) void one_token(float *y, const struct bn_packed *w,
                                                            size_t r, size_t n_rows, const float *x,
                                                            const size_t nf)
{
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t block = blocks ? w->block : BN_COLS_MAX, piece = 32 * nf;
    const uint8_t *p = bn_t2_group(w, r);
    struct bn_l16 s0 = bn_l16_zero(), s1 = s0, s2 = s0, s3 = s0;
    h_f32 acc = h_setzero_ps(), d[8];
    for (size_t k = 0; k < w->cols; k += piece) {
        size_t n = bn_min_size(piece, w->cols - k), f = k % STEP / 32;
        const uint8_t *at = p + k / STEP * 4 * BN_T2_PIECE;
        const float *v = x + k;
        float tail[STEP];
        h_prefetch((const char *)at + w->ahead, H_T0);
        h_prefetch((const char *)at + w->ahead + 64, H_T0);
        if (blocks && k % (8 * block) == 0)
            bn_t2_block_scales(d, w, r, n_rows, k / block, w->cols / block);
        if (n < piece) { /* zeros change no lane */
            memset(tail, 0, sizeof tail);
            memcpy(tail, v, n * sizeof *v);
            v = tail;
        }
        s0 = mul_row(s0, at, v, f, nf);
        s1 = mul_row(s1, at + 32, v, f, nf);
        s2 = mul_row(s2, at + 64, v, f, nf);
        s3 = mul_row(s3, at + 96, v, f, nf);
        if (!blocks || (k + piece) % block != 0) continue;
        acc = h_add_ps(acc, h_mul_ps(d[k / block % 8], bn_l16_sum4(s0, s1, s2, s3)));
        s0 = s1 = s2 = s3 = bn_l16_zero();
    }
    float out[4];
    h_storeu_ps(out, blocks ? acc : bn_l16_sum4(s0, s1, s2, s3));
    for (size_t i = 0; i < n_rows; i++)
        y[r + i] = blocks ? out[i] : bn_row_scale(w, r + i) * out[i];
}

/* ---- several tokens ---- */

static void decode_step(float (*wide)[STEP], const uint8_t *p)
{
    for (size_t r = 0; r < 4; r++)
        for (size_t i = 0; i < 32; i += 8) {
            w_int v = load_codes(p + 32 * r + i);
            for (size_t f = 0; f < 4; f++, v = w_srli_epi32(v, 2))
                w_store_ps(wide[r] + 32 * f + i, w_weights(v));
        }
}

/* The rows from r on of one group, at most TOKENS tokens. */
static void group(const struct bn_gemm_args *a, size_t r, size_t n_rows, const float *x,
                  size_t x_stride)
{
    const struct bn_packed *w = a->w;
    const size_t n_tok = a->n_tok;
    _Alignas(32) float wide[4][STEP];
    struct bn_l16 lanes[TOKENS][4];
    h_f32 acc[TOKENS], d[8];
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t block = blocks ? w->block : w->cols, piece = blocks ? bn_min_size(block, STEP) : STEP;
    const uint8_t *p = bn_t2_group(w, r);
    for (size_t t = 0; t < n_tok; t++) {
        acc[t] = h_setzero_ps();
        for (size_t i = 0; i < 4; i++) lanes[t][i] = bn_l16_zero();
    }
    for (size_t k = 0; k < w->cols; k += piece) {
        size_t n = bn_min_size(piece, w->cols - k), b = k / block;
        if (k % STEP == 0) {
            h_prefetch((const char *)p + w->ahead, H_T0);
            h_prefetch((const char *)p + w->ahead + 64, H_T0);
            decode_step(wide, p);
            p += 4 * BN_T2_PIECE;
        }
        if (blocks && k % (8 * block) == 0) bn_t2_block_scales(d, w, r, n_rows, b, w->cols / block);
        for (size_t t = 0; t < n_tok; t++) {
            float tail[STEP];
            const float *v = bn_f32_piece(tail, x + t * x_stride + k, n);
            bn_f32_rows(lanes[t], 4, wide[0] + k % STEP, STEP, v, bn_align_up(n, 16));
            if (!blocks || (k + piece) % block != 0) continue;
            h_f32 s = bn_l16_sum4(lanes[t][0], lanes[t][1], lanes[t][2], lanes[t][3]);
            acc[t] = h_add_ps(acc[t], h_mul_ps(d[b % 8], s));
            for (size_t i = 0; i < 4; i++) lanes[t][i] = bn_l16_zero();
        }
    }
    for (size_t t = 0; t < n_tok; t++) {
        float v[4];
        if (!blocks) acc[t] = bn_l16_sum4(lanes[t][0], lanes[t][1], lanes[t][2], lanes[t][3]);
        h_storeu_ps(v, acc[t]);
        for (size_t i = 0; i < n_rows; i++)
            a->y[t * a->y_stride + r + i] = blocks ? v[i] : bn_row_scale(w, r + i) * v[i];
    }
}

void W_NAME(t2_mul_f32)(const struct bn_gemm_args *a, const float *x, size_t x_stride)
{
    const struct bn_packed *w = a->w;
    size_t block = w->scale_kind == BN_SCALE_BLOCK ? w->block : STEP;
    for (size_t t = 0; t < a->n_tok; t += TOKENS) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(TOKENS, a->n_tok - t));
        const float *v = x + t * x_stride;
        for (size_t r = a->r0; r < a->r1; r += 4) {
            size_t n = bn_min_size(4, a->r1 - r);
            if (some.n_tok > 1) group(&some, r, n, v, x_stride);
            else if (block >= STEP) one_token(some.y, w, r, n, v, 4);
            else if (block == 64) one_token(some.y, w, r, n, v, 2);
            else one_token(some.y, w, r, n, v, 1);
        }
    }
}
