/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: packing and multiplying in layouts that are decoded step by step. A step of a group is
 * decoded once, then meets a few tokens. */
#include "kernels/ref/steps.h"

#include "base/half.h"
#include "kernels/ref/lanes.h"

enum { ROWS = BN_STEP_ROWS, STEP = BN_STEP_COLS, TOKENS = 8 };

void bn_steps_pack(const struct bn_steps *l, uint8_t *dst, const int8_t *w, size_t n_rows,
                   size_t cols)
{
    struct bn_step s;
    for (size_t r = n_rows; r < l->rows; r++) memset(s.w[r], 0, STEP);
    for (size_t k = 0; k < cols; k += STEP, dst += l->bytes) {
        size_t n = bn_min_size(STEP, cols - k);
        for (size_t r = 0; r < n_rows; r++) {
            memcpy(s.w[r], w + r * cols + k, n);
            if (n < STEP) memset(s.w[r] + n, 0, STEP - n);
        }
        l->encode(dst, &s);
    }
}

void bn_steps_unpack(const struct bn_steps *l, int8_t *w, const uint8_t *src, size_t n_rows,
                     size_t cols)
{
    for (size_t k = 0; k < cols; k += STEP, src += l->bytes) {
        struct bn_step s;
        l->decode(&s, src);
        for (size_t r = 0; r < n_rows; r++)
            memcpy(w + r * cols + k, s.w[r], bn_min_size(STEP, cols - k));
    }
}

/* A walk over the columns of a group, in pieces that no block is cut by. */
struct walk {
    const struct bn_steps *l;
    const struct bn_packed *w;
    const uint8_t *p;
    size_t r0, n_rows, k, n; /* columns [k, k + n) of rows [r0, r0 + n_rows) */
    struct bn_step s;        /* those of the step they are in */
};

static bool has_blocks(const struct walk *a) { return a->w->scale_kind == BN_SCALE_BLOCK; }

static void begin(struct walk *a, const struct bn_steps *l, const struct bn_packed *w, size_t r,
                  size_t r1)
{
    a->l = l;
    a->w = w;
    a->p = w->data + r / l->rows * bn_steps_group_bytes(l, w->cols);
    a->r0 = r;
    a->n_rows = bn_min_size(l->rows, r1 - r);
    a->k = a->n = 0;
}

static bool next(struct walk *a)
{
    a->k += a->n;
    if (a->k >= a->w->cols) return false;
    a->n = bn_min_size(has_blocks(a) ? bn_min_size(a->w->block, STEP) : STEP, a->w->cols - a->k);
    if (a->k % STEP == 0) a->l->decode(&a->s, a->p + a->k / STEP * a->l->bytes);
    return true;
}

static const int8_t *weights(const struct walk *a, size_t r) { return a->s.w[r] + a->k % STEP; }

/* Is the piece a block's last? */
static bool ends_block(const struct walk *a)
{
    return has_blocks(a) && (a->k + a->n) % a->w->block == 0;
}

/* of the piece's block and row r */
static float block_scale(const struct walk *a, size_t r)
{
    size_t n_blocks = a->w->cols / a->w->block, together = a->l->scale_rows, at = a->r0 + r;
    return bn_f16_to_f32(
        a->w->block_scale[(at / together * n_blocks + a->k / a->w->block) * together +
                          at % together]);
}

/* |S| <= 127 * 2 * BN_COLS_MAX < 2^23: exact in int32, and exact as a float. */
static void mul_i8_group(struct walk *a, float *y, size_t y_stride, const struct bn_q8 *x,
                         size_t n_tok)
{
    int32_t part[TOKENS][ROWS] = {{0}};
    float acc[TOKENS][ROWS] = {{0}};
    while (next(a)) {
        for (size_t t = 0; t < n_tok; t++)
            for (size_t r = 0; r < a->n_rows; r++)
                part[t][r] += bn_dot_i8(weights(a, r), x->q + t * x->stride + a->k, a->n);
        for (size_t r = 0; ends_block(a) && r < a->n_rows; r++) {
            float d = block_scale(a, r);
            for (size_t t = 0; t < n_tok; t++) {
                acc[t][r] += (float)part[t][r] * d;
                part[t][r] = 0;
            }
        }
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < a->n_rows; r++)
            y[t * y_stride + a->r0 + r] =
                has_blocks(a) ? acc[t][r] * x->inv[t]
                              : (float)part[t][r] * (bn_row_scale(a->w, a->r0 + r) * x->inv[t]);
}

void bn_steps_mul_i8(const struct bn_steps *l, const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    struct walk g;
    for (size_t t = 0; t < a->n_tok; t += TOKENS) {
        struct bn_q8 some = bn_q8_from(x, t);
        for (size_t r = a->r0; r < a->r1; r += l->rows) {
            begin(&g, l, a->w, r, a->r1);
            mul_i8_group(&g, a->y + t * a->y_stride, a->y_stride, &some,
                         bn_min_size(TOKENS, a->n_tok - t));
        }
    }
}

static struct bn_lanes add_products(struct bn_lanes s, const int8_t *w, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + BN_LANES <= n; i += BN_LANES)
        for (size_t j = 0; j < BN_LANES; j++) s.l[j] += (float)w[i + j] * x[i + j];
    for (size_t j = 0; i + j < n; j++) s.l[j] += (float)w[i + j] * x[i + j];
    return s;
}

/* One token. A block is a multiple of 16 columns, so its lanes are the row's. */
static void mul_f32_group(struct walk *a, float *y, const float *x)
{
    struct bn_lanes lanes[ROWS] = {{{0}}};
    float acc[ROWS] = {0};
    while (next(a))
        for (size_t r = 0; r < a->n_rows; r++) {
            lanes[r] = add_products(lanes[r], weights(a, r), x + a->k, a->n);
            if (!ends_block(a)) continue;
            acc[r] += block_scale(a, r) * bn_lanes_sum(lanes[r]);
            lanes[r] = (struct bn_lanes){{0}};
        }
    for (size_t r = 0; r < a->n_rows; r++)
        y[a->r0 + r] =
            has_blocks(a) ? acc[r] : bn_row_scale(a->w, a->r0 + r) * bn_lanes_sum(lanes[r]);
}

void bn_steps_mul_f32(const struct bn_steps *l, const struct bn_gemm_args *a, const float *x,
                      size_t x_stride)
{
    struct walk g;
    for (size_t r = a->r0; r < a->r1; r += l->rows)
        for (size_t t = 0; t < a->n_tok; t++) {
            begin(&g, l, a->w, r, a->r1);
            mul_f32_group(&g, a->y + t * a->y_stride, x + t * x_stride);
        }
}

/* |S| <= 128 * 2 * BN_PLANES_MOST < 2^23: exact in int32, and exact as a float. */
static int32_t piece_sum(const struct walk *a, size_t r, const struct bn_planes *x, size_t t)
{
    const int8_t *q = x->q + t * x->stride + a->k;
    int32_t s = bn_dot_i8(weights(a, r), q, a->n);
    if (x->n_planes == 2) s = 255 * s + bn_dot_i8(weights(a, r), q + x->plane_stride, a->n);
    return s;
}

static void mul_planes_group(struct walk *a, float *y, size_t y_stride, const struct bn_planes *x,
                             size_t t0, size_t n_tok)
{
    float acc[TOKENS][ROWS] = {{0}};
    while (next(a))
        for (size_t r = 0; r < a->n_rows; r++) {
            float d = has_blocks(a) ? block_scale(a, r) : 1;
            for (size_t t = 0; t < n_tok; t++) {
                float unit = x->unit[(t0 + t) * x->unit_stride + a->k / STEP];
                acc[t][r] += (float)piece_sum(a, r, x, t0 + t) * (d * unit);
            }
        }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t r = 0; r < a->n_rows; r++)
            y[(t0 + t) * y_stride + a->r0 + r] =
                has_blocks(a) ? acc[t][r] : bn_row_scale(a->w, a->r0 + r) * acc[t][r];
}

void bn_steps_mul_planes(const struct bn_steps *l, const struct bn_gemm_args *a,
                         const struct bn_planes *x)
{
    struct walk g;
    for (size_t t = 0; t < a->n_tok; t += TOKENS)
        for (size_t r = a->r0; r < a->r1; r += l->rows) {
            begin(&g, l, a->w, r, a->r1);
            mul_planes_group(&g, a->y, a->y_stride, x, t, bn_min_size(TOKENS, a->n_tok - t));
        }
}
