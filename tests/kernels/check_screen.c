/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the screening copy: its packing against its definition, and the bounds made from it. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ROWS = 37, MAX_VECTORS = 8, STEP = 64, PIECE = 32 };

struct screen {
    bn_screen4_fn *fn;
    float *score, *upper;
    size_t stride;
    struct bn_screen w;
    struct bn_screen_vector v[MAX_VECTORS];
    size_t r0, r1, n_vec;
};

static void run_screen(void *p)
{
    struct screen *a = p;
    a->fn(a->score, a->upper, a->stride, &a->w, a->r0, a->r1, a->v, a->n_vec);
}

static int weight(const struct bn_screen *w, size_t r, size_t k)
{
    const uint8_t *p = w->data + r / 4 * bn_screen4_group_bytes(w->cols);
    p += (k / STEP * 4 + r % 4) * PIECE + k % PIECE;
    return (k % STEP < PIECE ? *p & 15 : *p >> 4) - 8;
}

/* the definition, in int64 and double; the arithmetic of the bound is part of the contract, so no
 * tolerance but that of the last rounding */
static bool naive_row(struct ck *c, const struct screen *a, size_t i, size_t r)
{
    const struct bn_screen_vector *v = &a->v[i];
    size_t at = i * a->stride + r - a->r0;
    int64_t s = 0;
    for (size_t k = 0; k < a->w.cols; k++)
        s += (int64_t)weight(&a->w, r, k) *
             (v->low ? 128 * v->high[k] + v->low[k] : (int)v->high[k]);
    double step = (double)a->w.step[r], shift = (double)a->w.shift[r];
    double y = step * (((double)s - shift) * v->unit + v->offset);
    double bound = y + step * (v->margin + (double)a->w.norm[r] * v->per_norm);
    double upper = bound + fabs(bound) * 0x1p-23 + v->tiny;
    return ck_near(c, "score", y, (double)a->score[at], fabs(y) * 0x1p-23 + 0x1p-149, at) &&
           ck_near(c, "upper", upper, (double)a->upper[at], fabs(upper) * 0x1p-23 + 0x1p-149, at);
}

static void naive_screen(struct ck *c, const struct screen *a)
{
    for (size_t i = 0; i < a->n_vec; i++)
        for (size_t r = a->r0; r < a->r1; r++)
            if (!naive_row(c, a, i, r)) return;
}

static void naive_pack(struct ck *c, const struct bn_screen *w, const float *x, const float *u,
                       const float *d)
{
    for (size_t r = 0; r < w->rows; r++) {
        double most = 0, squares = 0, shift = 0, step = (double)w->step[r];
        for (size_t k = 0; k < w->cols; k++) {
            double v = (double)x[r * w->cols + k];
            int q = weight(w, r, k);
            most = fmax(most, fabs(v));
            squares += q * q;
            shift += q * (double)d[k];
            /* within half a step, up to the float arithmetic of the packing */
            if (fabs(step * (q + 0.5 - (double)u[k]) - v) > step * (0.5 + 0x1p-18)) {
                ck_fail(c, "row %zu column %zu: %g is stored as %d steps of %g", r, k, v, q, step);
                return;
            }
        }
        if (step * 7.5 < most || (step > 0x1p-100 && step * 7.5 > most * (1 + 0x1p-22)))
            ck_fail(c, "row %zu: step %g for a largest value of %g", r, step, most);
        double norm = (double)w->norm[r];
        if (norm * norm < squares || norm > sqrt(squares) * (1 + 0x1p-22))
            ck_fail(c, "row %zu: norm %.9g for the root of %g", r, norm, squares);
        ck_near(c, "shift", shift, (double)w->shift[r], fabs(shift) * 0x1p-24, r);
    }
}

enum vector { RANDOM, EXTREME, AGAINST };

static void make_planes(struct ck *c, int8_t *high, int8_t *low, const float *x, size_t cols,
                        enum vector kind)
{
    for (size_t i = 0; i < cols; i++) {
        bool up = kind == AGAINST ? x[i] < 0 : bn_rng_below(&c->rng, 2) == 0;
        high[i] = (int8_t)(kind == RANDOM ? (int)bn_rng_below(&c->rng, 255) - 127
                           : up           ? 127
                                          : -127);
        low[i] = (int8_t)(kind == RANDOM ? (int)bn_rng_below(&c->rng, 129) - 64 : up ? 64 : -64);
    }
}

static void fill_dither(struct ck *c, float *u, size_t n)
{
    for (size_t i = 0; i < n; i++)
        u[i] = (float)(2 * (int)bn_rng_below(&c->rng, 1 << 16) + 1 - (1 << 16)) * 0x1p-17f;
}

/* planes: bit i: vector i has a low plane */
static void check_case(struct ck *c, size_t rows, size_t cols, size_t r0, enum ck_fill f,
                       enum vector kind, size_t n_vec, unsigned planes)
{
    ck_case(c, "rows=%zu from %zu cols=%zu fill=%s vector=%d n=%zu planes=%x", rows, r0, cols,
            ck_fill_name(f), (int)kind, n_vec, planes);
    size_t padded = bn_align_up(cols, BN_K_ALIGN), bytes = bn_screen4_group_bytes(cols);
    uint8_t *data = ck_buffer(c, bn_div_up(rows, 4) * bytes);
    float *x = ck_buffer(c, rows * cols * sizeof *x), *u = ck_buffer(c, cols * sizeof *u);
    float *d = ck_buffer(c, cols * sizeof *d), *step = ck_buffer(c, rows * sizeof *step);
    float *norm = ck_buffer(c, rows * sizeof *norm), *shift = ck_buffer(c, rows * sizeof *shift);
    int8_t *high = ck_buffer(c, n_vec * padded), *low = ck_buffer(c, n_vec * padded);
    memset(high, 0, n_vec * padded);
    memset(low, 0, n_vec * padded);
    ck_fill_f32(c, x, rows * cols, f);
    fill_dither(c, u, cols);
    fill_dither(c, d, cols);
    for (size_t r = 0; r < rows; r += 4) {
        struct bn_screen_row row[4] = {{0}};
        size_t n = bn_min_size(4, rows - r);
        bn_screen4_pack(data + r / 4 * bytes, row, x + r * cols, n, cols, u, d);
        for (size_t i = 0; i < n; i++) {
            step[r + i] = row[i].step;
            norm[r + i] = row[i].norm;
            shift[r + i] = row[i].shift;
        }
    }
    struct screen a = {.fn = (bn_screen4_fn *)c->ref->fn,
                       .stride = rows - r0 + n_vec % 3,
                       .w = {data, rows, cols, step, norm, shift, bn_rng_below(&c->rng, 1025) * 64},
                       .r0 = r0,
                       .r1 = rows,
                       .n_vec = n_vec};
    for (size_t i = 0; i < n_vec; i++) {
        make_planes(c, high + i * padded, low + i * padded, x, cols, kind);
        a.v[i] = (struct bn_screen_vector){
            high + i * padded, low + i * padded, 0x1.23456789p-9, -3.25 + (double)i, 7.5,
            0x1p-14,           0x1p-140};
    }
    size_t n = (n_vec - 1) * a.stride + rows - r0;
    float *score = a.score = ck_buffer(c, n * sizeof *score);
    float *upper = a.upper = ck_buffer(c, n * sizeof *upper);
    memset(score, 0, n * sizeof *score); /* also what lies between two vectors' rows */
    memset(upper, 0, n * sizeof *upper);
    if (!ck_run(c, run_screen, &a)) return;
    if (c->naive) {
        if (f <= CK_WIDE) naive_screen(c, &a);
        if (f <= CK_WIDE) naive_pack(c, &a.w, x, u, d);
        return;
    }
    a.fn = (bn_screen4_fn *)c->v->fn;
    a.score = ck_buffer(c, n * sizeof *score);
    a.upper = ck_buffer(c, n * sizeof *upper);
    memset(a.score, 0, n * sizeof *score);
    memset(a.upper, 0, n * sizeof *upper);
    if (!ck_run(c, run_screen, &a)) return;
    ck_same_f32(c, "score", score, a.score, n, a.stride);
    ck_same_f32(c, "upper", upper, a.upper, n, a.stride);
}

void check_screen4(struct ck *c)
{
    static const size_t cols[] = {1, 31, 33, 64, 65, 127, 128, 129, 500, 512, 513, 640, 1100, 2560};
    for (size_t rows = 1; rows <= 9; rows++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            check_case(c, rows, cols[i], rows > 4 ? 4 : 0, CK_RANDOM, (enum vector)(rows % 3),
                       1 + i % 3, rows % 2 ? 0 : 0xff);
    for (enum ck_fill f = 0; f < CK_SPECIAL; f++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            for (int v = RANDOM; v <= AGAINST; v++)
                check_case(c, 7, cols[i], 0, f, (enum vector)v, 1 + (i + f) % 4, i % 2 ? 0 : 0xff);
    for (size_t n = 1; n <= MAX_VECTORS; n++) {
        check_case(c, MAX_ROWS, 640, 0, CK_RANDOM, RANDOM, n, 0x9c);
        for (int v = RANDOM; v <= AGAINST; v++) {
            check_case(c, 5, BN_SCREEN_COLS_MAX, 0, CK_RANDOM, (enum vector)v, n, 0xff);
            check_case(c, 5, BN_SCREEN_COLS_MAX, 0, CK_RANDOM, (enum vector)v, n, 0);
        }
    }
    check_case(c, 5, BN_SCREEN_COLS_MAX - 1, 4, CK_WIDE, EXTREME, 7, 0x31);
}
