/* SPDX-License-Identifier: Apache-2.0
 * The rotation of blocks. */
#include "check.h"

#include <math.h>

enum { BLOCK = BN_ROTATE_BLOCK };

struct rotation {
    bn_rotate_fn *fn;
    float *y;
    const float *m, *x;
    size_t stride, n;
};

static void run_rotate(void *p)
{
    struct rotation *a = p;
    a->fn(a->y, a->m, a->x, a->stride, a->n);
}

static void naive_rotate(struct ck *c, const struct rotation *a)
{
    for (size_t t = 0; t < a->n; t++)
        for (size_t i = 0; i < BLOCK; i++) {
            double s = 0, size = 0;
            for (size_t j = 0; j < BLOCK; j++) {
                double p = (double)a->m[bn_rotate_at(i, j)] * a->x[t * a->stride + j];
                s += p;
                size += fabs(p);
            }
            double bound = size * (BN_ROTATE_PIECE + BLOCK / BN_ROTATE_PIECE) * 0x1p-24;
            size_t at = t * a->stride + i;
            if (!ck_near(c, "y", s, a->y[at], bound + BLOCK * 0x1p-149, at)) return;
        }
}

static void check_rotate_case(struct ck *c, size_t n, size_t pad, enum ck_fill f)
{
    struct rotation a = {(bn_rotate_fn *)c->ref->fn, NULL, NULL, NULL, BLOCK + pad, n};
    ck_case(c, "vectors=%zu pad=%zu fill=%s", n, pad, ck_fill_name(f));
    size_t len = (n - 1) * a.stride + BLOCK;
    float *m = ck_buffer(c, BLOCK * BLOCK * sizeof *m), *x = ck_buffer(c, len * sizeof *x);
    ck_fill_f32(c, m, BLOCK * BLOCK, f);
    ck_fill_f32(c, x, len, f);
    float *want = a.y = ck_buffer(c, len * sizeof *a.y);
    a.m = m;
    a.x = x;
    if (!ck_run(c, run_rotate, &a)) return;
    if (c->naive && f <= CK_WIDE) naive_rotate(c, &a);
    if (c->naive) return;
    a.fn = (bn_rotate_fn *)c->v->fn;
    a.y = ck_buffer(c, len * sizeof *a.y);
    if (ck_run(c, run_rotate, &a)) ck_same_f32(c, "y", want, a.y, len, a.stride);
}

void check_rotate(struct ck *c)
{
    for (size_t n = 1; n <= 17; n++) check_rotate_case(c, n, n % 3 * 5, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n = 1; n <= 9; n += 4) check_rotate_case(c, n, 0, f);
}
