/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of activations in planes: making them, and multiplying with them. The results are exact
 * integers and stated float steps, so naive arithmetic gives the same bits. */
#include "check_gemm.h"

#include <math.h>

/* ---- quant_planes ---- */

struct quant {
    bn_quant_planes_fn *fn;
    int8_t *q;
    size_t stride, n_planes;
    float *unit;
    const float *x;
    size_t n;
};

static void run_quant(void *p)
{
    struct quant *a = p;
    a->fn(a->q, a->stride, a->n_planes, a->unit, a->x, a->n);
}

static bool quantise(struct ck *c, struct quant *a, const struct bn_kernel_info *v)
{
    size_t room = bn_align_up(a->n, BN_K_ALIGN);
    a->fn = (bn_quant_planes_fn *)v->fn;
    a->q = ck_buffer(c, (a->n_planes - 1) * a->stride + room);
    a->unit = ck_buffer(c, bn_div_up(a->n, BN_K_ALIGN) * sizeof *a->unit);
    return ck_run(c, run_quant, a);
}

/* By the definition, in double. */
static void naive_quant(struct ck *c, const struct quant *a, size_t g)
{
    size_t from = g * BN_K_ALIGN, to = bn_min_size(a->n, from + BN_K_ALIGN);
    float m = 0, most = a->n_planes == 2 ? 32512.0f : 127.0f;
    bool finite = true;
    for (size_t i = from; i < to; i++) {
        finite = finite && isfinite(a->x[i]);
        m = fmaxf(m, fabsf(a->x[i]));
    }
    bool zero = !finite || m < 0x1p-100f;
    if (finite && a->unit[g] != (zero ? 0 : m / most)) ck_fail(c, "unit of group %zu", g);
    if (!finite && !isnan(a->unit[g])) ck_fail(c, "unit of group %zu is a number", g);
    for (size_t i = from; i < from + BN_K_ALIGN; i++) {
        double k = zero || i >= to ? 0 : nearbyint((double)(a->x[i] * (most / m)));
        int high = a->q[i], low = a->n_planes == 2 ? a->q[a->stride + i] : 0;
        double got = a->n_planes == 2 ? 255.0 * high + low : high;
        if (high >= -127 && low >= -127 && got == k) continue;
        ck_fail(c, "column %zu: %d and %d, not %g", i, high, low, k);
        return;
    }
}

void check_quant_planes(struct ck *c)
{
    static const size_t sizes[] = {1, 7, 8, 31, 32, 33, 127, 128, 129, 255, 256, 300, 640, 6912};
    for (size_t i = 0; i < BN_ARRAY_LEN(sizes); i++)
        for (size_t planes = 1; planes <= 2; planes++)
            for (enum ck_fill f = 0; f < CK_FILLS; f++) {
                size_t n = sizes[i];
                ck_case(c, "n=%zu planes=%zu x=%s", n, planes, ck_fill_name(f));
                float *x = ck_buffer(c, n * sizeof *x);
                ck_fill_f32(c, x, n, f);
                if (f == CK_RANDOM && n > 200) x[n / 2] = 2e4f, x[n - 1] = 0x1p-101f;
                struct quant a = {.stride = bn_align_up(n, BN_K_ALIGN) + 3 * (i % 2),
                                  .n_planes = planes,
                                  .x = x,
                                  .n = n};
                struct quant b = a;
                if (!quantise(c, &a, c->ref)) continue;
                for (size_t g = 0; c->naive && g < bn_div_up(n, BN_K_ALIGN); g++)
                    naive_quant(c, &a, g);
                if (c->naive || !quantise(c, &b, c->v)) continue;
                ck_same_f32(c, "unit", a.unit, b.unit, bn_div_up(n, BN_K_ALIGN), 1);
                for (size_t p = 0; p < planes; p++)
                    ck_same_bytes(c, p ? "low" : "high", a.q + p * a.stride, b.q + p * a.stride,
                                  bn_align_up(n, BN_K_ALIGN));
            }
}

/* ---- mul_planes ---- */

/* int64 sums, and the contract's float steps, which leave nothing open */
static float naive_sum(const struct mul *a, const int8_t *w, size_t r, size_t t)
{
    const struct bn_planes *x = &a->planes;
    bool blocks = a->w.scale_kind == BN_SCALE_BLOCK;
    size_t cols = a->w.cols, piece = blocks ? bn_min_size(a->w.block, 128) : 128;
    float acc = 0;
    for (size_t k = 0; k < cols; k += piece) {
        int64_t s = 0;
        for (size_t i = k; i < bn_min_size(cols, k + piece); i++) {
            const int8_t *q = x->q + t * x->stride + i;
            s += w[r * cols + i] * (x->n_planes == 2 ? 255 * q[0] + q[x->plane_stride] : q[0]);
        }
        float unit = x->unit[t * x->unit_stride + k / 128];
        if (blocks)
            unit = bn_f16_to_f32(a->scales[r * (cols / a->w.block) + k / a->w.block]) * unit;
        acc += (float)s * unit;
    }
    return blocks ? acc : bn_row_scale(&a->w, r) * acc;
}

static void naive_planes(struct ck *c, const struct mul *a, const int8_t *w)
{
    for (size_t t = 0; t < a->tok; t++)
        for (size_t r = a->r0; r < a->r1; r++) {
            size_t at = t * a->y_stride + r;
            if (!ck_near(c, "y", naive_sum(a, w, r, t), a->y[at], 0, at)) return;
        }
}

static int draw(struct ck *c, enum qfill f, size_t k)
{
    switch (f) {
    case Q_RANDOM: return (int)bn_rng_below(&c->rng, 255) - 127;
    case Q_MAX: return 127;
    case Q_MIN: return -127;
    case Q_TURNS: return k % 2 ? -127 : 127;
    case Q_ZERO: return 0;
    default: return bn_rng_u64(&c->rng) & 1 ? 127 : -127;
    }
}

static void check_mul(struct ck *c, struct shape s, size_t n_planes, enum wfill wf, enum qfill qf)
{
    struct mul a = {.how = PLANES};
    if (s.r1 == 0) s.r1 = s.rows;
    if (s.kind == BN_SCALE_BLOCK && !c->v->gemm->block_scales) return;
    ck_describe(c, &s, n_planes == 2 ? "two planes" : "one plane", ck_wname[wf], ck_qname[qf]);
    ck_fill_scales(c, &a, &s);
    size_t padded = bn_align_up(s.cols, BN_K_ALIGN), units = padded / BN_K_ALIGN;
    struct bn_planes *x = &a.planes;
    x->n_planes = n_planes;
    x->plane_stride = padded + s.tok % 2 * 3;
    x->stride = n_planes * x->plane_stride + s.tok % 3 * 5;
    x->unit_stride = units + s.tok % 2;
    size_t bytes = (s.tok - 1) * x->stride + (n_planes - 1) * x->plane_stride + padded;
    size_t n_unit = (s.tok - 1) * x->unit_stride + units;
    int8_t *q = ck_buffer(c, bytes), *w = ck_buffer(c, s.rows * s.cols);
    float *unit = ck_buffer(c, n_unit * sizeof *unit);
    for (size_t i = 0; i < n_unit; i++) unit[i] = (float)(bn_rng_unit(&c->rng) + 0.01) * 0x1p-7f;
    for (size_t t = 0; t < s.tok; t++)
        for (size_t p = 0; p < n_planes; p++)
            for (size_t k = 0; k < padded; k++)
                q[t * x->stride + p * x->plane_stride + k] =
                    (int8_t)(k < s.cols ? draw(c, qf, k) : 0);
    ck_fill_weights(c, w, &s, wf, q);
    x->q = q;
    x->unit = unit;
    ck_compare(c, a, w, naive_planes);
}

static void check_both(struct ck *c, struct shape s)
{
    for (size_t planes = 1; planes <= 2; planes++) {
        check_mul(c, s, planes, W_RANDOM, Q_RANDOM);
        check_mul(c, s, planes, W_SIGN, Q_EXTREME);
    }
}

/* Kernels for many tokens: enough rows, edges of groups and of halves of tokens, rows in parts. */
static void check_many(struct ck *c)
{
    static const size_t tok[] = {6, 8, 9, 12, 13, 16, 17, 24, 25, 31, 32, 33, 40};
    static const size_t cols[] = {128, 256, 384, 768};
    size_t group = c->v->gemm->group_rows;
    if (!c->v->gemm->mul_planes_many) return;
    for (size_t i = 0; i < BN_ARRAY_LEN(tok); i++)
        for (size_t block = c->quick ? 128 : 32; block <= 256; block *= 2) {
            size_t n = cols[i % BN_ARRAY_LEN(cols)] + (block == 256 ? 256 : 0);
            struct shape s = {256 + i * 7, n / block * block, tok[i], 0, 0, BN_SCALE_BLOCK, block};
            check_both(c, s);
        }
    for (size_t i = 0; i < BN_ARRAY_LEN(tok); i += 3)
        check_both(c, (struct shape){300, 200 + i, tok[i], 0, 0, BN_SCALE_ROW, 0});
    check_both(c, (struct shape){5 * group + 300, 130, 17, group, 0, BN_SCALE_TENSOR, 0});
    check_both(c, (struct shape){260, c->quick ? 4096 : BN_COLS_MAX, 16, 0, 0, BN_SCALE_ROW, 0});
    for (int wf = W_MINUS; wf <= W_PLUS; wf++)
        for (int qf = Q_MAX; qf <= Q_TURNS; qf++)
            for (size_t planes = 1; planes <= 2; planes++)
                check_mul(c, (struct shape){260, 256, 16, 0, 0, BN_SCALE_BLOCK, 128}, planes,
                          (enum wfill)wf, (enum qfill)qf);
    ck_check_many_bytes(c);
}

/* Tokens at which kernels change their ways, groups that are not full, parts of the rows, every size of
 * a block, and the largest sums. */
void ck_check_planes(struct ck *c)
{
    static const size_t cols[] = {1, 3, 100, 128, 130, 300, 640}, counts[] = {1, 2, 3, 5, 9};
    size_t group = c->v->gemm->group_rows, most = c->quick ? 18 : 40;
    if (!c->naive && c->v->gemm->mul_planes == c->ref->gemm->mul_planes) return;
    for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
        for (size_t rows = 1; rows <= 2 * group + 1; rows += 1 + group / 3)
            check_both(c, (struct shape){rows, cols[i], 1 + (rows + i) % 5, 0, 0,
                                         rows % 2 ? BN_SCALE_TENSOR : BN_SCALE_ROW, 0});
    for (size_t block = 32; block <= 256; block *= 2)
        for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++)
            for (size_t tok = 1; tok <= 5; tok += tok == 1 ? 1 : 3)
                check_both(c, (struct shape){group + 3, block * counts[i], tok, 0, 0,
                                             BN_SCALE_BLOCK, block});
    for (size_t tok = 1; tok <= most; tok++) {
        check_both(c, (struct shape){group + 2, 256, tok, 0, 0, BN_SCALE_BLOCK, 128});
        if (tok % 4 == 1) check_both(c, (struct shape){group, 300, tok, 0, 0, BN_SCALE_ROW, 0});
    }
    for (size_t tok = 1; tok <= 3; tok += 2) {
        size_t rows = 3 * group - 1;
        check_both(c, (struct shape){rows, 256, tok, group, 2 * group, BN_SCALE_BLOCK, 128});
        check_both(c, (struct shape){rows, 256, tok, 2 * group, rows, BN_SCALE_BLOCK, 64});
        check_both(c, (struct shape){rows, 200, tok, group, rows, BN_SCALE_ROW, 0});
    }
    for (int wf = 0; wf < W_FILLS; wf++)
        for (int qf = 0; qf < Q_FILLS; qf++)
            for (size_t tok = 1; tok <= 7; tok += 3)
                for (size_t planes = 1; planes <= 2; planes++)
                    check_mul(c, (struct shape){group, 384, tok, 0, 0, BN_SCALE_BLOCK, 128}, planes,
                              (enum wfill)wf, (enum qfill)qf);
    check_many(c);
    check_both(c, (struct shape){group, BN_COLS_MAX, 1, 0, 0, BN_SCALE_BLOCK, 128});
    check_both(c, (struct shape){group, BN_COLS_MAX, 3, 0, 0, BN_SCALE_ROW, 0});
}
