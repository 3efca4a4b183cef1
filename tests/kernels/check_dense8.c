/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the matrix with one byte a weight: its packing against its definition, and products. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_VECTORS = 8, STEP = 64 };

struct dense8 {
    bn_dense8_fn *fn;
    float *y;
    size_t stride;
    struct bn_dense8 w;
    struct bn_dense8_vector v[MAX_VECTORS];
    size_t r0, r1, n_vec;
};

static void run_dense8(void *p)
{
    struct dense8 *a = p;
    a->fn(a->y, a->stride, &a->w, a->r0, a->r1, a->v, a->n_vec);
}

static int weight(const struct bn_dense8 *w, size_t r, size_t k)
{
    const int8_t *p = w->data + r / BN_DENSE8_ROWS * bn_dense8_group_bytes(w->cols);
    return p[(k / STEP * BN_DENSE8_ROWS + r % BN_DENSE8_ROWS) * STEP + k % STEP];
}

/* the definition in int64 and double, up to the last rounding */
static void naive_product(struct ck *c, const struct dense8 *a)
{
    for (size_t i = 0; i < a->n_vec; i++)
        for (size_t r = a->r0; r < a->r1; r++) {
            int64_t s = 0;
            for (size_t k = 0; k < a->w.cols; k++) s += (int64_t)weight(&a->w, r, k) * a->v[i].k[k];
            double y = (double)s * (double)a->w.scale[r] * a->v[i].unit;
            size_t at = i * a->stride + r - a->r0;
            if (!ck_near(c, "y", y, (double)a->y[at], fabs(y) * 0x1p-23 + 0x1p-149, at)) return;
        }
}

/* within half a unit, up to the rounding of the scale */
static void naive_pack(struct ck *c, const struct bn_dense8 *w, const float *x)
{
    for (size_t r = 0; r < w->rows; r++) {
        double most = 0;
        int largest = 0, least = 0;
        for (size_t k = 0; k < w->cols; k++) { /* fmax() is too much for gcc 12 on arm64 */
            double v = fabs((double)x[r * w->cols + k]);
            if (v > most) most = v;
        }
        for (size_t k = 0; k < w->cols; k++) {
            double v = (double)x[r * w->cols + k], unit = most / 127;
            int q = weight(w, r, k);
            largest = q > largest ? q : largest;
            least = q < least ? q : least;
            if (fabs(unit * q - v) > unit * (0.5 + 0x1p-40)) {
                ck_fail(c, "row %zu column %zu: %g is stored as %d times %g", r, k, v, q, unit);
                return;
            }
        }
        if (largest < -least) largest = -least;
        if (largest != (most > 0 ? 127 : 0)) ck_fail(c, "row %zu: at most %d", r, largest);
        ck_near(c, "scale", most / 127, (double)w->scale[r], most * 0x1p-30 + 0x1p-150, r);
    }
}

enum vector { RANDOM, EXTREME, ALONG };

static void check_case(struct ck *c, size_t rows, size_t cols, size_t r0, enum ck_fill f,
                       enum vector kind, size_t n_vec)
{
    ck_case(c, "rows=%zu from %zu cols=%zu fill=%s vector=%d n=%zu", rows, r0, cols,
            ck_fill_name(f), (int)kind, n_vec);
    size_t padded = bn_align_up(cols, BN_K_ALIGN), bytes = bn_dense8_group_bytes(cols);
    int8_t *data = ck_buffer(c, bn_div_up(rows, BN_DENSE8_ROWS) * bytes);
    float *x = ck_buffer(c, rows * cols * sizeof *x), *scale = ck_buffer(c, rows * sizeof *scale);
    int16_t *k = ck_buffer(c, n_vec * padded * sizeof *k);
    memset(k, 0, n_vec * padded * sizeof *k);
    ck_fill_f32(c, x, rows * cols, f);
    for (size_t i = 0; kind == ALONG && i < rows * cols; i++) x[i] = x[i] < 0 ? -3.0f : 3.0f;
    for (size_t r = 0; r < rows; r += BN_DENSE8_ROWS)
        bn_dense8_pack(data + r / BN_DENSE8_ROWS * bytes, scale + r, x + r * cols,
                       bn_min_size(BN_DENSE8_ROWS, rows - r), cols);
    struct dense8 a = {.fn = (bn_dense8_fn *)c->ref->fn,
                       .stride = rows - r0 + n_vec % 3,
                       .w = {data, rows, cols, scale, bn_rng_below(&c->rng, 1025) * 64},
                       .r0 = r0,
                       .r1 = rows,
                       .n_vec = n_vec};
    for (size_t i = 0; i < n_vec; i++) {
        for (size_t n = 0; n < cols; n++) {
            bool up = kind == ALONG ? x[n] > 0 : bn_rng_below(&c->rng, 2) == 0;
            k[i * padded + n] = (int16_t)(kind == RANDOM ? (int)bn_rng_below(&c->rng, 65535) - 32767
                                          : up           ? 32767
                                                         : -32767);
        }
        a.v[i] = (struct bn_dense8_vector){k + i * padded, 0x1.23456789p-9 * (double)(i + 1)};
    }
    size_t n = (n_vec - 1) * a.stride + rows - r0;
    float *y = a.y = ck_buffer(c, n * sizeof *y);
    memset(y, 0, n * sizeof *y); /* also what lies between two vectors' rows */
    if (!ck_run(c, run_dense8, &a)) return;
    if (c->naive) {
        if (f <= CK_WIDE) naive_product(c, &a);
        if (f <= CK_WIDE) naive_pack(c, &a.w, x);
        return;
    }
    a.fn = (bn_dense8_fn *)c->v->fn;
    a.y = ck_buffer(c, n * sizeof *y);
    memset(a.y, 0, n * sizeof *y);
    if (!ck_run(c, run_dense8, &a)) return;
    ck_same_f32(c, "y", y, a.y, n, a.stride);
}

void check_dense8(struct ck *c)
{
    static const size_t cols[] = {1, 15, 17, 63, 64, 65, 127, 128, 129, 640, 1100, 2560};
    for (size_t rows = 1; rows <= 9; rows++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            check_case(c, rows, cols[i], rows > 4 ? 4 : 0, CK_RANDOM, (enum vector)(rows % 3),
                       1 + i % 4);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            for (int v = RANDOM; v <= EXTREME; v++)
                check_case(c, 7, cols[i], 0, f, (enum vector)v, 1 + (i + f) % 4);
    for (size_t n = 1; n <= MAX_VECTORS; n++)
        for (int v = RANDOM; v <= ALONG; v++) {
            check_case(c, 13, 640, 4, CK_RANDOM, (enum vector)v, n);
            check_case(c, 5, 4096, 0, CK_RANDOM, (enum vector)v, n); /* lanes as full as can be */
            check_case(c, 5, 4096 * 2 + 100, 0, CK_RANDOM, (enum vector)v, n);
        }
}
