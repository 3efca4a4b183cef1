/* SPDX-License-Identifier: Apache-2.0
 *
 * arm64 with dot products: int8 activations times matrices in layout "t2" (ref/gemm_t2.c) and rows of
 * "r2" (kernels.h), one scale a row or matrix. Codes w + 1 are multiplied, and the sum of the activations
 * is taken off at the end.
 *
 * A token alone stays in registers, 128 columns of it, for four rows. Several tokens go in fours: a field
 * of four rows meets 16 columns of each, 16 sums in registers. Block scales and float activations have
 * the kernels of NEON (wide/gemm). */
#include "kernels/arm/dot.h"
#include "kernels/t2.h"
#include "kernels/wide/gemm/t2.h"

enum { ROWS = BN_T2_ROWS, PIECE = BN_T2_PIECE, STEP = BN_T2_STEP, TOKENS = 4 };

/* Keeps v in its register, and what follows behind it: compilers otherwise load much ahead and run out of
 * registers. */
#define KEEP(v) __asm__("" : "+w"(v)::"memory")

/* Where four rows lie: piece after piece, `next` bytes apart. */
struct rows {
    const uint8_t *p[ROWS];
    size_t next, ahead;
};

/* ---- one token ---- */

/* 64 columns of a row: 16 bytes of a piece */
ALWAYS void add_row(struct bn_dot_sums *s, const uint8_t *p, const int8x16_t y[4])
{
    int8x16_t f[4];
    bn_dot_fields(f, p);
    s->one = vdotq_s32(s->one, f[0], y[0]);
    s->four = vdotq_s32(s->four, f[1], y[1]);
    s->sixteen = vdotq_s32(s->sixteen, f[2], y[2]);
    s->one = vdotq_s32(s->one, f[3], y[3]);
}

/* The code sums of four rows. */
static int32x4_t four_rows(const struct rows *a, const int8_t *q, size_t steps)
{
    const uint8_t *p0 = a->p[0], *p1 = a->p[1], *p2 = a->p[2], *p3 = a->p[3];
    const size_t next = a->next, ahead = a->ahead;
    struct bn_dot_sums s0 = bn_dot_zero(), s1 = s0, s2 = s0, s3 = s0;
    for (; steps > 0; steps--, q += STEP) {
        __builtin_prefetch(p0 + ahead);
        for (size_t h = 0; h < 32; h += 16) {
            int8x16_t y[4];
            for (size_t i = 0; i < 4; i++) y[i] = vld1q_s8(q + 32 * i + h);
            add_row(&s0, p0 + h, y);
            add_row(&s1, p1 + h, y);
            add_row(&s2, p2 + h, y);
            add_row(&s3, p3 + h, y);
            KEEP(s3.one);
        }
        p0 += next, p1 += next, p2 += next, p3 += next;
    }
    return vpaddq_s32(vpaddq_s32(bn_dot_all(s0), bn_dot_all(s1)),
                      vpaddq_s32(bn_dot_all(s2), bn_dot_all(s3)));
}

ALWAYS struct rows group_rows(const struct bn_packed *w, size_t r)
{
    const uint8_t *p = bn_t2_group(w, r);
    return (struct rows){{p, p + PIECE, p + 2 * PIECE, p + 3 * PIECE}, ROWS * PIECE, w->ahead};
}

static void mul_one(const struct bn_gemm_args *a, const int8_t *q, int32_t sum, float inv)
{
    const struct bn_packed *w = a->w;
    size_t steps = bn_div_up(w->cols, STEP);
    for (size_t r = a->r0; r < a->r1; r += ROWS) {
        struct rows rows = group_rows(w, r);
        float v[ROWS];
        int32x4_t s = vsubq_s32(four_rows(&rows, q, steps), vdupq_n_s32(sum));
        vst1q_f32(v, vcvtq_f32_s32(s));
        for (size_t i = 0; i < ROWS && r + i < a->r1; i++)
            a->y[r + i] = v[i] * (bn_row_scale(w, r + i) * inv);
    }
}

/* ---- four tokens ---- */

/* Sums of four rows and a token, side by side. */
ALWAYS int32x4_t side_by_side(const int32x4_t s[ROWS])
{
    return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

/* 16 columns of four rows and tokens: s[token][row] */
ALWAYS void add_tile(int32x4_t s[TOKENS][ROWS], const int8x16_t f[ROWS], const int8_t *q,
                     size_t stride)
{
    for (size_t t = 0; t < TOKENS; t++) {
        int8x16_t x = vld1q_s8(q + t * stride);
        for (size_t r = 0; r < ROWS; r++) s[t][r] = vdotq_s32(s[t][r], f[r], x);
        KEEP(s[t][0]);
    }
}

static void four_tokens(int32x4_t sum[TOKENS], const uint8_t *p, const int8_t *q, size_t stride,
                        size_t steps)
{
    const uint8x16_t three = vdupq_n_u8(3);
    int32x4_t s[TOKENS][ROWS];
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t r = 0; r < ROWS; r++) s[t][r] = vdupq_n_s32(0);
    for (; steps > 0; steps--, p += ROWS * PIECE, q += STEP)
        for (size_t h = 0; h < 2; h++)
            for (size_t field = 0; field < 4; field++) {
                int8x16_t f[ROWS];
                for (size_t r = 0; r < ROWS; r++) { /* read again: registers are for the sums */
                    uint8x16_t b = vld1q_u8(p + r * PIECE + 16 * h) >> 2 * field;
                    f[r] = vreinterpretq_s8_u8(field < 3 ? vandq_u8(b, three) : b);
                }
                add_tile(s, f, q + 32 * field + 16 * h, stride);
            }
    for (size_t t = 0; t < TOKENS; t++) sum[t] = side_by_side(s[t]);
}

static void mul_four(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    const struct bn_packed *w = a->w;
    size_t steps = bn_div_up(w->cols, STEP);
    for (size_t r = a->r0; r < a->r1; r += ROWS) {
        int32x4_t sum[TOKENS];
        four_tokens(sum, bn_t2_group(w, r), x->q, x->stride, steps);
        for (size_t t = 0; t < TOKENS; t++) {
            float v[ROWS];
            vst1q_f32(v, vcvtq_f32_s32(vsubq_s32(sum[t], vdupq_n_s32(x->sum[t]))));
            for (size_t i = 0; i < ROWS && r + i < a->r1; i++)
                a->y[t * a->y_stride + r + i] = v[i] * (bn_row_scale(w, r + i) * x->inv[t]);
        }
    }
}

void bn_t2_mul_i8_dotprod(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->w->scale_kind == BN_SCALE_BLOCK) {
        W_NAME(t2_mul_i8_block)(a, x);
        return;
    }
    /* a few rows stay in the second cache while the tokens pass */
    enum { AT_ONCE = 64 };
    for (size_t r = a->r0; r < a->r1; r += AT_ONCE) {
        struct bn_gemm_args rows = bn_gemm_rows(a, r, bn_min_size(a->r1, r + AT_ONCE));
        size_t t = 0;
        for (; t + TOKENS <= a->n_tok; t += TOKENS) {
            struct bn_gemm_args some = bn_gemm_tokens(&rows, t, TOKENS);
            struct bn_q8 q = bn_q8_from(x, t);
            mul_four(&some, &q);
        }
        for (; t < a->n_tok; t++) {
            struct bn_gemm_args one = bn_gemm_tokens(&rows, t, 1);
            mul_one(&one, x->q + t * x->stride, x->sum[t], x->inv[t]);
        }
    }
}

const struct bn_gemm bn_gemm_t2_dotprod = {
    BN_T2_LAYOUT,
    .mul_i8 = bn_t2_mul_i8_dotprod,
    .mul_f32 = W_NAME(t2_mul_f32),
};

/* ---- rows by a list ---- */

void bn_rows_r2_dotprod(float *y, const struct bn_packed *w, const uint32_t *list, size_t n,
                        const int8_t *q, int32_t sum, float inv)
{
    size_t bytes = bn_r2_row_bytes(w->cols);
    for (size_t i = 0; i < n; i += ROWS) {
        struct rows rows = {.next = PIECE};
        float v[ROWS];
        for (size_t r = 0; r < ROWS; r++)
            rows.p[r] = w->data + list[bn_min_size(i + r, n - 1)] * bytes;
        int32x4_t s = vsubq_s32(four_rows(&rows, q, bytes / PIECE), vdupq_n_s32(sum));
        vst1q_f32(v, vcvtq_f32_s32(s));
        for (size_t r = 0; r < ROWS && i + r < n; r++)
            y[i + r] = v[r] * (bn_row_scale(w, list[i + r]) * inv);
    }
}
