/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the operations on vectors of floats, and of bn_exp. */
#include "check.h"
#include "kernels/exp.h"

#include <math.h>

/* around every width a vector loop can have, and the widths of real models */
static const size_t sizes[] = {1,   2,   7,   8,   9,   15,   16,   17,   31,   32,
                               33,  63,  64,  65,  79,  80,   96,   97,   100,  127,
                               128, 129, 255, 256, 257, 1000, 2560, 3200, 6912, 8640};

static size_t n_sizes(const struct ck *c) { return BN_ARRAY_LEN(sizes) - (c->quick ? 4 : 0); }

/* ---- elementwise: y = f(a, b), y perhaps one of the inputs ---- */

struct binary {
    bn_any_fn *fn;
    void (*call)(bn_any_fn *, float *, const float *, const float *, size_t);
    float *y, *a, *b;
    size_t n;
};

static void run_binary(void *p)
{
    struct binary *x = p;
    x->call(x->fn, x->y, x->a, x->b, x->n);
}

static void call_rmsnorm(bn_any_fn *f, float *y, const float *a, const float *b, size_t n)
{
    ((bn_rmsnorm_fn *)f)(y, a, b, n, 1e-5f);
}
static void call_l2norm(bn_any_fn *f, float *y, const float *a, const float *b, size_t n)
{
    (void)b;
    ((bn_l2norm_fn *)f)(y, a, n, 1e-6f, 0.0884f);
}
static void call_mul(bn_any_fn *f, float *y, const float *a, const float *b, size_t n)
{
    ((bn_relu2_mul_fn *)f)(y, a, b, n);
}

/* place 0: y stands alone; 1: y is a; 2: y is b */
static bool run_placed(struct ck *c, struct binary x, bn_any_fn *fn, int place, float **out)
{
    float *a = ck_buffer(c, x.n * sizeof *a), *b = ck_buffer(c, x.n * sizeof *b);
    memcpy(a, x.a, x.n * sizeof *a);
    memcpy(b, x.b, x.n * sizeof *b);
    x.fn = fn;
    x.a = a;
    x.b = b;
    *out = x.y = place == 0 ? ck_buffer(c, x.n * sizeof *a) : place == 1 ? a : b;
    return ck_run(c, run_binary, &x);
}

static void check_binary(struct ck *c, struct binary x, int places,
                         void (*naive)(struct ck *, const struct binary *, const float *))
{
    for (size_t s = 0; s < n_sizes(c); s++)
        for (enum ck_fill f = 0; f < CK_FILLS; f++)
            for (int place = 0; place < places; place++) {
                float *want, *got;
                x.n = sizes[s];
                ck_case(c, "n=%zu fill=%s place=%d", x.n, ck_fill_name(f), place);
                x.a = ck_buffer(c, x.n * sizeof(float));
                x.b = ck_buffer(c, x.n * sizeof(float));
                ck_fill_f32(c, x.a, x.n, f);
                ck_fill_f32(c, x.b, x.n, f);
                if (!run_placed(c, x, c->ref->fn, place, &want)) continue;
                if (c->naive && f <= CK_WIDE) naive(c, &x, want);
                if (c->naive) continue;
                if (!run_placed(c, x, c->v->fn, place, &got)) continue;
                ck_same_f32(c, "y", want, got, x.n, x.n);
            }
}

/* Relative error: the sum of squares has n / 16 + 4 rounded steps, and r takes half of it. */
static void naive_rmsnorm(struct ck *c, const struct binary *x, const float *y)
{
    double s = 0;
    for (size_t i = 0; i < x->n; i++) s += (double)x->a[i] * x->a[i];
    double r = 1 / sqrt(s / (double)x->n + 1e-5f);
    for (size_t i = 0; i < x->n; i++) {
        double want = x->b[i] * (x->a[i] * r);
        double bound = fabs(want) * ((double)x->n / 16 + 16) * 0x1p-24 + 0x1p-126;
        if (!ck_near(c, "y", want, y[i], bound, i)) return;
    }
}
void check_rmsnorm(struct ck *c)
{
    check_binary(c, (struct binary){.call = call_rmsnorm}, 2, naive_rmsnorm);
}

static void naive_l2norm(struct ck *c, const struct binary *x, const float *y)
{
    double s = 0;
    for (size_t i = 0; i < x->n; i++) s += (double)x->a[i] * x->a[i];
    double r = 1 / sqrt(s + 1e-6f);
    for (size_t i = 0; i < x->n; i++) {
        double want = x->a[i] * r * 0.0884f;
        double bound = fabs(want) * ((double)x->n / 16 + 16) * 0x1p-24 + 0x1p-126;
        if (!ck_near(c, "y", want, y[i], bound, i)) return;
    }
}
void check_l2norm(struct ck *c)
{
    check_binary(c, (struct binary){.call = call_l2norm}, 2, naive_l2norm);
}

static void naive_relu2(struct ck *c, const struct binary *x, const float *y)
{
    for (size_t i = 0; i < x->n; i++) {
        double r = x->a[i] > 0 ? x->a[i] : 0, want = r * r * x->b[i];
        if (!ck_near(c, "y", want, y[i], fabs(want) * 0x1p-22 + 0x1p-120, i)) return;
    }
}
void check_relu2_mul(struct ck *c)
{
    check_binary(c, (struct binary){.call = call_mul}, 3, naive_relu2);
}

/* exp errs by 1 ulp, three more steps by half of one; below exp's range the result is 0. */
static void naive_silu(struct ck *c, const struct binary *x, const float *y)
{
    for (size_t i = 0; i < x->n; i++) {
        double want = x->a[i] / (1 + exp(-(double)x->a[i])) * x->b[i];
        double bound = fabs(want) * 0x1p-21 + 0x1p-119 * (1 + fabs((double)x->b[i]));
        if (!ck_near(c, "y", want, y[i], bound, i)) return;
    }
}
void check_silu_mul(struct ck *c)
{
    check_binary(c, (struct binary){.call = call_mul}, 3, naive_silu);
}

/* As above; below exp's range the factor is 0. */
static void naive_sigmoid(struct ck *c, const struct binary *x, const float *y)
{
    for (size_t i = 0; i < x->n; i++) {
        double want = x->a[i] / (1 + exp(-(double)x->b[i]));
        double bound = fabs(want) * 0x1p-21 + 0x1p-125 * (1 + fabs((double)x->a[i]));
        if (!ck_near(c, "y", want, y[i], bound, i)) return;
    }
}
void check_sigmoid_mul(struct ck *c)
{
    check_binary(c, (struct binary){.call = call_mul}, 3, naive_sigmoid);
}

/* y += x: place 2 of the scheme above, with y as the second input */
static void call_add(bn_any_fn *f, float *y, const float *a, const float *b, size_t n)
{
    if (y != b) memcpy(y, b, n * sizeof *y);
    ((bn_add_fn *)f)(y, a, n);
}
/* A double holds the sum of two floats so well that rounding it once more gives the float's sum. */
static void naive_add(struct ck *c, const struct binary *x, const float *y)
{
    for (size_t i = 0; i < x->n; i++)
        if (!ck_near(c, "y", (float)((double)x->a[i] + x->b[i]), y[i], 0, i)) return;
}
void check_add(struct ck *c) { check_binary(c, (struct binary){.call = call_add}, 1, naive_add); }

/* ---- quant_i8 ---- */

struct quant {
    bn_quant_i8_fn *fn;
    int8_t *q;
    int32_t sum;
    float m;
    const float *x;
    size_t n;
};

static void run_quant(void *p)
{
    struct quant *a = p;
    a->m = a->fn(a->q, &a->sum, a->x, a->n);
}

static void naive_quant(struct ck *c, const struct quant *a)
{
    float m = 1e-5f;
    int64_t sum = 0;
    for (size_t i = 0; i < a->n; i++) m = fmaxf(m, fabsf(a->x[i])); /* fmax ignores NaNs */
    for (size_t i = 0; i < bn_align_up(a->n, BN_K_ALIGN); i++) {
        float v = i < a->n ? a->x[i] * (127.0f / m) : 0;
        int want = isnan(v) ? -127 : (int)rint((double)v);
        sum += want;
        if (a->q[i] == want) continue;
        ck_fail(c, "q[%zu] is %d, naive %d", i, a->q[i], want);
        return;
    }
    if (a->sum != sum) ck_fail(c, "sum is %d, naive %d", (int)a->sum, (int)sum);
    if (a->m != m / 127.0f) ck_fail(c, "scale is %a, naive %a", (double)a->m, (double)m / 127);
}

void check_quant_i8(struct ck *c)
{
    for (size_t s = 0; s < n_sizes(c); s++)
        for (int f = 0; f <= CK_FILLS; f++) {
            size_t n = sizes[s], room = bn_align_up(n, BN_K_ALIGN);
            ck_case(c, "n=%zu fill=%s", n, f == CK_FILLS ? "halves" : ck_fill_name(f));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, f == CK_FILLS ? CK_RANDOM : (enum ck_fill)f);
            for (size_t i = 0; f == CK_FILLS && i < n; i++) /* ties: k + 1/2 with maximum 127 */
                x[i] = i == n / 2 ? 127 : (float)bn_rng_below(&c->rng, 254) - 126.5f;
            struct quant a = {(bn_quant_i8_fn *)c->ref->fn, ck_buffer(c, room), 7, 7, x, n};
            if (!ck_run(c, run_quant, &a)) continue;
            if (c->naive) {
                naive_quant(c, &a);
                continue;
            }
            struct quant b = {(bn_quant_i8_fn *)c->v->fn, ck_buffer(c, room), 8, 8, x, n};
            if (!ck_run(c, run_quant, &b)) continue;
            ck_same_bytes(c, "q", a.q, b.q, room);
            ck_same_bytes(c, "sum", &a.sum, &b.sum, sizeof a.sum);
            ck_same_f32(c, "scale", &a.m, &b.m, 1, 1);
        }
}

/* ---- rope ---- */

struct rope {
    bn_rope_fn *fn;
    float *x;
    size_t heads, dim, half;
    const float *cs;
};

static void run_rope(void *p)
{
    struct rope *a = p;
    a->fn(a->x, a->heads, a->dim, a->half, a->cs);
}

static void naive_rope(struct ck *c, const struct rope *a, const float *x)
{
    for (size_t h = 0; h < a->heads; h++)
        for (size_t i = 0; i < a->dim; i++) {
            size_t pair = i % a->half, ia = h * a->dim + pair, ib = ia + a->half;
            double want = x[h * a->dim + i], bound = 0;
            if (i < 2 * a->half) {
                double cs = a->cs[pair], sn = a->cs[a->half + pair], va = x[ia], vb = x[ib];
                want = h * a->dim + i == ia ? va * cs - vb * sn : vb * cs + va * sn;
                bound = (fabs(va) + fabs(vb)) * (fabs(cs) + fabs(sn)) * 0x1p-23 + 0x1p-148;
            }
            if (!ck_near(c, "x", want, a->x[h * a->dim + i], bound, h * a->dim + i)) return;
        }
}

void check_rope(struct ck *c)
{
    static const size_t shape[][3] = {{1, 2, 1},     {2, 8, 3},    {1, 16, 8},   {3, 17, 8},
                                      {2, 32, 16},   {5, 64, 32},  {4, 100, 50}, {2, 80, 20},
                                      {20, 128, 64}, {3, 128, 33}, {2, 256, 128}};
    for (size_t s = 0; s < BN_ARRAY_LEN(shape); s++)
        for (enum ck_fill f = 0; f < CK_FILLS; f++) {
            struct rope a = {(bn_rope_fn *)c->ref->fn, 0, shape[s][0], shape[s][1], shape[s][2], 0};
            size_t n = a.heads * a.dim;
            ck_case(c, "heads=%zu dim=%zu half=%zu fill=%s", a.heads, a.dim, a.half,
                    ck_fill_name(f));
            float *x = ck_buffer(c, n * sizeof *x), *cs = ck_buffer(c, 2 * a.half * sizeof *cs);
            ck_fill_f32(c, x, n, f);
            ck_fill_f32(c, cs, 2 * a.half, f == CK_SPECIAL ? CK_RANDOM : f);
            a.cs = cs;
            float *want = a.x = ck_buffer(c, n * sizeof *x);
            memcpy(a.x, x, n * sizeof *x);
            if (!ck_run(c, run_rope, &a)) continue;
            if (c->naive && f <= CK_WIDE) naive_rope(c, &a, x);
            if (c->naive) continue;
            a.fn = (bn_rope_fn *)c->v->fn;
            a.x = ck_buffer(c, n * sizeof *x);
            memcpy(a.x, x, n * sizeof *x);
            if (ck_run(c, run_rope, &a)) ck_same_f32(c, "x", want, a.x, n, a.dim);
        }
}

/* ---- exp ---- */

/* One call at a time, so that no compiler vectorises it: the loop over arrays must agree. */
static __attribute__((noinline)) float exp_one(float x) { return bn_exp(x); }

void check_exp(struct ck *c)
{
    static const struct {
        float x, y;
    } exact[] = {{0.0f, 1.0f},      {-0.0f, 1.0f},     {-INFINITY, 0.0f}, {INFINITY, INFINITY},
                 {-88.0f, 0.0f},    {89.0f, INFINITY}, {-3e38f, 0.0f},    {3e38f, INFINITY},
                 {0x1p-149f, 1.0f}, {-0x1p-149f, 1.0f}};
    uint32_t step = c->quick ? 150001 : 3001;
    double worst = 0;
    ck_case(c, "exact values");
    for (size_t i = 0; i < BN_ARRAY_LEN(exact); i++)
        if (bn_exp(exact[i].x) != exact[i].y)
            ck_fail(c, "exp(%a) is %a", (double)exact[i].x, (double)bn_exp(exact[i].x));
    if (!isnan(bn_exp(NAN))) ck_fail(c, "exp(NaN) is not NaN");
    if (bn_exp(nextafterf(BN_EXP_MIN, -100)) != 0 || bn_exp(BN_EXP_MIN) < 0x1p-126f ||
        bn_exp(nextafterf(BN_EXP_MAX, 100)) != INFINITY || isinf(bn_exp(BN_EXP_MAX)))
        ck_fail(c, "the limits are not where they are stated");

    ck_case(c, "sweep in steps of %u", step);
    for (uint64_t u = 0; u < 0x100000000u; u += 64ull * step) {
        float x[64], y[64];
        for (uint64_t i = 0; i < 64; i++) x[i] = bn_u32_as_f32((uint32_t)(u + i * step));
        for (size_t i = 0; i < 64; i++) y[i] = bn_exp(x[i]);
        for (size_t i = 0; i < 64; i++) {
            float z = exp_one(x[i]);
            if (!ck_same_f32(c, "exp of an array", &z, &y[i], 1, 1)) return;
            if (!(x[i] >= BN_EXP_MIN && x[i] <= BN_EXP_MAX)) continue;
            long double want = expl((long double)x[i]);
            int e;
            frexpl(want, &e);
            double ulps = (double)(fabsl((long double)y[i] - want) / ldexpl(1, e - 24));
            if (ulps > worst) worst = ulps;
        }
    }
    if (worst > 1.0) ck_fail(c, "off by %.3f ulp", worst);
}
