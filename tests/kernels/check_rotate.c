/* SPDX-License-Identifier: Apache-2.0
 * The rotation of blocks. */
#include "check.h"

#include <math.h>

enum { BLOCK = BN_TURN_BLOCK };

struct turn {
    bn_turn_fn *fn;
    float *y;
    const float *m, *x;
    size_t stride, n;
};

static void run_turn(void *p)
{
    struct turn *a = p;
    a->fn(a->y, a->m, a->x, a->stride, a->n);
}

static void naive_turn(struct ck *c, const struct turn *a)
{
    for (size_t t = 0; t < a->n; t++)
        for (size_t i = 0; i < BLOCK; i++) {
            double s = 0, size = 0;
            for (size_t j = 0; j < BLOCK; j++) {
                double p = (double)a->m[bn_turn_at(i, j)] * a->x[t * a->stride + j];
                s += p;
                size += fabs(p);
            }
            double bound = size * (BN_TURN_PIECE + BLOCK / BN_TURN_PIECE) * 0x1p-24;
            size_t at = t * a->stride + i;
            if (!ck_near(c, "y", s, a->y[at], bound + BLOCK * 0x1p-149, at)) return;
        }
}

static void check_turn_case(struct ck *c, size_t n, size_t pad, enum ck_fill f)
{
    struct turn a = {(bn_turn_fn *)c->ref->fn, NULL, NULL, NULL, BLOCK + pad, n};
    ck_case(c, "vectors=%zu pad=%zu fill=%s", n, pad, ck_fill_name(f));
    size_t len = (n - 1) * a.stride + BLOCK;
    float *m = ck_buffer(c, BLOCK * BLOCK * sizeof *m), *x = ck_buffer(c, len * sizeof *x);
    ck_fill_f32(c, m, BLOCK * BLOCK, f);
    ck_fill_f32(c, x, len, f);
    float *want = a.y = ck_buffer(c, len * sizeof *a.y);
    a.m = m;
    a.x = x;
    if (!ck_run(c, run_turn, &a)) return;
    if (c->naive && f <= CK_WIDE) naive_turn(c, &a);
    if (c->naive) return;
    a.fn = (bn_turn_fn *)c->v->fn;
    a.y = ck_buffer(c, len * sizeof *a.y);
    if (ck_run(c, run_turn, &a)) ck_same_f32(c, "y", want, a.y, len, a.stride);
}

void check_turn(struct ck *c)
{
    for (size_t n = 1; n <= 17; n++) check_turn_case(c, n, n % 3 * 5, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n = 1; n <= 9; n += 4) check_turn_case(c, n, 0, f);
}
