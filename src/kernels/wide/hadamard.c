/* SPDX-License-Identifier: Apache-2.0
 *
 * Walsh-Hadamard transforms. Passes of two levels for distances from 64 on, then one for all
 * levels below, eight registers at a time. The first pass takes the factors before, the last one
 * those behind it, so that a block passes through the first cache three times at a size of 1024. */
#include "kernels/wide/lanes.h"

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS w_f32 load(const float *x, const float *factor, size_t i)
{
    w_f32 v = w_loadu_ps(x + i);
    return factor ? w_mul_ps(v, w_loadu_ps(factor + i)) : v;
}

ALWAYS void butterfly(w_f32 *a, w_f32 *b)
{
    w_f32 sum = w_add_ps(*a, *b);
    *b = w_sub_ps(*a, *b);
    *a = sum;
}

/* The level of distance h */
static void pass2(float *y, const float *x, const float *factor, size_t block, size_t h)
{
    for (size_t i = 0; i < block; i += 2 * h)
        for (size_t j = i; j < i + h; j += 8) {
            w_f32 a = load(x, factor, j), b = load(x, factor, j + h);
            butterfly(&a, &b);
            w_storeu_ps(y + j, a);
            w_storeu_ps(y + j + h, b);
        }
}

/* The levels of distances 2 h and h */
static void pass4(float *y, const float *x, const float *factor, size_t block, size_t h)
{
    for (size_t i = 0; i < block; i += 4 * h)
        for (size_t j = i; j < i + h; j += 8) {
            w_f32 v[4];
            for (size_t r = 0; r < 4; r++) v[r] = load(x, factor, j + r * h);
            butterfly(&v[0], &v[2]);
            butterfly(&v[1], &v[3]);
            butterfly(&v[0], &v[1]);
            butterfly(&v[2], &v[3]);
            for (size_t r = 0; r < 4; r++) w_storeu_ps(y + j + r * h, v[r]);
        }
}

/* Distances 4, 2 and 1, within a register: to every number its partner is added, to the second of a
 * pair after its sign is changed. A product with 1 or -1 is exact, so that it may be fused; a + -b is
 * a - b. */
ALWAYS w_f32 within(w_f32 v)
{
    const w_f32 s4 = w_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
    const w_f32 s2 = w_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
    const w_f32 s1 = w_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
    v = w_fmadd_ps(v, s4, w_permute2f128_ps(v, v, 0x01));
    v = w_fmadd_ps(v, s2, w_permute_ps(v, 0x4e));
    return w_fmadd_ps(v, s1, w_permute_ps(v, 0xb1));
}

/* All levels of blocks of 8 * nr numbers, nr up to 8, and the factors behind. */
ALWAYS void last_pass(float *y, const float *x, const float *factor, const float *after,
                      float scale, size_t n, const size_t nr)
{
    w_f32 by = w_set1_ps(scale);
    for (size_t i = 0; i < n; i += 8 * nr) {
        w_f32 v[8];
        for (size_t r = 0; r < nr; r++) v[r] = load(x, factor, i + 8 * r);
        for (size_t h = nr / 2; h > 0; h /= 2)
            for (size_t r = 0; r < nr; r++)
                if (!(r & h)) butterfly(&v[r], &v[r + h]);
        for (size_t r = 0; r < nr; r++) {
            v[r] = w_mul_ps(within(v[r]), by);
            if (after) v[r] = w_mul_ps(v[r], w_loadu_ps(after + i + 8 * r));
            w_storeu_ps(y + i + 8 * r, v[r]);
        }
    }
}

void W_NAME(hadamard)(const struct bn_hadamard_args *a)
{
    if (a->block < 8) {
        bn_hadamard_c(a);
        return;
    }
    for (size_t b = 0; b < a->n; b += a->block) {
        float *y = a->y + b;
        const float *x = a->x + b, *factor = a->before ? a->before + b : NULL;
        const float *after = a->after ? a->after + b : NULL;
        size_t h = a->block / 2;
        for (; h >= 64; x = y, factor = NULL) {
            bool two = h >= 128;
            (two ? pass4 : pass2)(y, x, factor, a->block, two ? h / 2 : h);
            h /= two ? 4 : 2;
        }
        switch (h) {
        case 32: last_pass(y, x, factor, after, a->scale, a->block, 8); break;
        case 16: last_pass(y, x, factor, after, a->scale, a->block, 4); break;
        case 8: last_pass(y, x, factor, after, a->scale, a->block, 2); break;
        default: last_pass(y, x, factor, after, a->scale, a->block, 1); break;
        }
    }
}
