/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of what a gated delta net needs, the convolution and the recurrence, and of the Hadamard
 * transform. */
#include "check.h"

#include <math.h>

static const size_t widths[] = {1,  2,  3,   7,   8,   9,   15,  16,  17,  24,  31, 32,
                                33, 40, 47,  48,  49,  63,  64,  65,  71,  72,  95, 96,
                                97, 99, 127, 128, 129, 135, 144, 191, 193, 255, 256};

static float *copy(struct ck *c, const float *x, size_t n)
{
    float *y = ck_buffer(c, n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static float *filled(struct ck *c, size_t n, enum ck_fill f)
{
    float *y = ck_buffer(c, n * sizeof *y);
    ck_fill_f32(c, y, n, f);
    return y;
}

/* Floats of n rows, the last of which is not filled up to the stride. */
static size_t rows_len(size_t n, size_t stride, size_t width)
{
    return n ? (n - 1) * stride + width : 0;
}

/* ---- conv_silu ---- */

struct conv {
    bn_conv_silu_fn *fn;
    struct bn_conv_args a;
};

static void run_conv(void *p)
{
    struct conv *x = p;
    x->fn(&x->a);
}

/* The sum has as many rounded steps as there are taps, and SiLU is nowhere steeper than 1.1; the rest
 * errs like silu_mul. */
static void naive_conv(struct ck *c, const struct bn_conv_args *a, const float *x)
{
    for (size_t t = 0; t < a->n; t++)
        for (size_t i = 0; i < a->n_channels; i++) {
            double s = 0, size = 0;
            for (size_t j = 0; j < a->taps; j++) {
                size_t at = t + j; /* the first taps - 1 stand before the text */
                double in = at < a->taps - 1 ? a->before[at * a->before_stride + i]
                                             : x[(at - (a->taps - 1)) * a->x_stride + i];
                s += a->w[j * a->w_stride + i] * in;
                size += fabs(a->w[j * a->w_stride + i] * in);
            }
            double want = s / (1 + exp(-s));
            double bound = fabs(want) * 0x1p-21 + (double)a->taps * size * 0x1p-23 + 0x1p-118;
            size_t at = t * a->x_stride + i;
            if (!ck_near(c, "x", want, a->x[at], bound, at)) return;
        }
}

static void check_conv_case(struct ck *c, size_t n, size_t channels, size_t taps, size_t pad,
                            enum ck_fill f)
{
    ck_case(c, "tokens=%zu channels=%zu taps=%zu pad=%zu fill=%s", n, channels, taps, pad,
            ck_fill_name(f));
    struct conv v = {(bn_conv_silu_fn *)c->ref->fn,
                     {.x_stride = channels + pad,
                      .n = n,
                      .before_stride = channels + 2 * pad,
                      .w_stride = channels + pad / 2,
                      .n_channels = channels,
                      .taps = taps}};
    size_t len = rows_len(n, v.a.x_stride, channels);
    float *x = filled(c, len, f);
    v.a.before = filled(c, rows_len(taps - 1, v.a.before_stride, channels), f);
    v.a.w = filled(c, rows_len(taps, v.a.w_stride, channels), f == CK_WIDE ? CK_RANDOM : f);
    float *want = v.a.x = copy(c, x, len);
    if (!ck_run(c, run_conv, &v)) return;
    if (c->naive && f <= CK_WIDE) naive_conv(c, &v.a, x);
    if (c->naive) return;
    v.fn = (bn_conv_silu_fn *)c->v->fn;
    v.a.x = copy(c, x, len);
    if (ck_run(c, run_conv, &v)) ck_same_f32(c, "x", want, v.a.x, len, v.a.x_stride);
}

void check_conv_silu(struct ck *c)
{
    for (size_t taps = 1; taps <= BN_CONV_TAPS_MAX; taps++)
        for (size_t n = 1; n <= 11; n++)
            check_conv_case(c, n, 1 + (13 * n + 29 * taps) % 100, taps, n % 3, CK_RANDOM);
    for (size_t i = 0; i < BN_ARRAY_LEN(widths); i++)
        for (size_t n = 1; n <= 6; n++) check_conv_case(c, n, widths[i], 4, i % 2 * 5, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n = 1; n <= 7; n += 3) {
            check_conv_case(c, n, 75, 4, 3, f);
            check_conv_case(c, n, 43, 2, 0, f);
        }
    check_conv_case(c, c->quick ? 3 : 19, 10240, 4, 0, CK_RANDOM);
}

/* ---- delta ---- */

struct delta {
    bn_delta_fn *fn;
    struct bn_delta_args a;
};

static void run_delta(void *p)
{
    struct delta *x = p;
    x->fn(&x->a);
}

static const double tiny = 0x1p-140; /* for what underflows */

/* One token in double. before: the state before it; a: the state and the answer after it. */
static bool naive_token(struct ck *c, const struct bn_delta_args *a, const float *before)
{
    const double u1 = 0x1p-24, decay = a->decay[0], beta = a->beta[0];
    for (size_t j = 0; j < a->v_dim; j++) {
        double u = 0, size = 0, o = 0, o_bound = 0;
        for (size_t i = 0; i < a->k_dim; i++) {
            double p = before[i * a->v_dim + j] * decay * a->k[i];
            u += p;
            size += fabs(p);
        }
        double d = (a->v[j] - u) * beta, u_bound = (double)(a->k_dim + 2) * u1 * size + tiny;
        double d_bound = (u_bound + 3 * u1 * (fabs(a->v[j] - u) + u_bound)) * fabs(beta) + tiny;
        for (size_t i = 0; i < a->k_dim; i++) {
            double p = before[i * a->v_dim + j] * decay, s = p + a->k[i] * d;
            double bound = fabs((double)a->k[i]) * d_bound +
                           4 * u1 * (fabs(p) + fabs((double)a->k[i]) * (fabs(d) + d_bound)) + tiny;
            if (!ck_near(c, "s", s, a->s[i * a->v_dim + j], bound, i * a->v_dim + j)) return false;
            if (!a->o) continue;
            o += s * a->q[i];
            o_bound +=
                fabs((double)a->q[i]) * (bound + (double)(a->k_dim + 1) * u1 * (fabs(s) + bound)) +
                tiny;
        }
        if (a->o && !ck_near(c, "o", o, a->o[j], o_bound, j)) return false;
    }
    return true;
}

/* Token after token, each compared with naive arithmetic: and the whole must give the same bits. */
static void naive_delta(struct ck *c, const struct delta *all, const float *start)
{
    size_t len = all->a.k_dim * all->a.v_dim;
    float *s = copy(c, start, len), *before = ck_buffer(c, len * sizeof *s);
    float *o = ck_buffer(c, all->a.v_dim * sizeof *o);
    for (size_t t = 0; t < all->a.n; t++) {
        struct delta one = *all;
        memcpy(before, s, len * sizeof *s);
        one.a.n = 1;
        one.a.s = s;
        one.a.k += t * all->a.qk_stride;
        one.a.v += t * all->a.v_stride;
        one.a.decay += t * all->a.gate_stride;
        one.a.beta += t * all->a.gate_stride;
        if (all->a.o) {
            one.a.q += t * all->a.qk_stride;
            one.a.o = o;
        }
        if (!ck_run(c, run_delta, &one) || !naive_token(c, &one.a, before)) return;
        if (all->a.o) ck_same_f32(c, "o", o, all->a.o + t * all->a.o_stride, all->a.v_dim, 1);
    }
    ck_same_f32(c, "s", s, all->a.s, len, all->a.v_dim);
}

/* Keys like those of a model, of a length of about 1 and gates below 1, leave the state in range. */
static float *fill_keys(struct ck *c, size_t len, size_t k_dim, enum ck_fill f)
{
    bool plain = f == CK_RANDOM || f == CK_WIDE;
    float *x = filled(c, len, plain ? CK_RANDOM : f), r = 0.4f / sqrtf((float)k_dim);
    for (size_t i = 0; plain && i < len; i++) x[i] *= r;
    return x;
}

static float *fill_gates(struct ck *c, size_t len, enum ck_fill f)
{
    bool plain = f == CK_RANDOM || f == CK_WIDE;
    float *x = filled(c, len, f);
    for (size_t i = 0; plain && i < len; i++) x[i] = (float)bn_rng_unit(&c->rng);
    return x;
}

static void check_delta_case(struct ck *c, size_t n, size_t k_dim, size_t v_dim, size_t pad,
                             bool answer, enum ck_fill f)
{
    ck_case(c, "tokens=%zu k=%zu v=%zu pad=%zu answer=%d fill=%s", n, k_dim, v_dim, pad, answer,
            ck_fill_name(f));
    struct delta x = {(bn_delta_fn *)c->ref->fn,
                      {.k_dim = k_dim,
                       .v_dim = v_dim,
                       .qk_stride = k_dim + pad,
                       .v_stride = v_dim + 2 * pad,
                       .gate_stride = 1 + pad % 4,
                       .o_stride = v_dim + pad / 2,
                       .n = n}};
    size_t len = k_dim * v_dim, o_len = rows_len(n, x.a.o_stride, v_dim);
    float *s = filled(c, len, f), *want_o = NULL;
    x.a.k = fill_keys(c, rows_len(n, x.a.qk_stride, k_dim), k_dim, f);
    if (answer) x.a.q = fill_keys(c, rows_len(n, x.a.qk_stride, k_dim), k_dim, f);
    x.a.v = filled(c, rows_len(n, x.a.v_stride, v_dim), f);
    x.a.decay = fill_gates(c, rows_len(n, x.a.gate_stride, 1), f);
    x.a.beta = fill_gates(c, rows_len(n, x.a.gate_stride, 1), f);
    if (answer) want_o = x.a.o = ck_buffer(c, o_len * sizeof *x.a.o);
    if (pad % 2) x.a.next = s + len; /* nothing may be read there */
    float *want = x.a.s = copy(c, s, len);
    if (!ck_run(c, run_delta, &x)) return;
    if (c->naive && f <= CK_WIDE) naive_delta(c, &x, s);
    if (c->naive) return;
    x.fn = (bn_delta_fn *)c->v->fn;
    x.a.s = copy(c, s, len);
    if (answer) x.a.o = ck_buffer(c, o_len * sizeof *x.a.o);
    if (!ck_run(c, run_delta, &x)) return;
    ck_same_f32(c, "s", want, x.a.s, len, v_dim);
    if (answer) ck_same_f32(c, "o", want_o, x.a.o, o_len, x.a.o_stride);
}

void check_delta(struct ck *c)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(widths); i++) {
        for (size_t n = 1; n <= 3; n++) {
            check_delta_case(c, n, 1 + (5 * i + n) % 23, widths[i], i % 3, true, CK_RANDOM);
            check_delta_case(c, n, widths[i], 1 + 11 * i % 70, i % 2 * 7, true, CK_RANDOM);
        }
        check_delta_case(c, 1 + i % 4, 16, widths[i], 1, false, CK_RANDOM);
    }
    for (size_t n = 1; n <= 19; n++) check_delta_case(c, n, 128, 128, 0, n % 5 != 0, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t n = 1; n <= 5; n += 2) {
            check_delta_case(c, n, 33, 141, 3, true, f);
            check_delta_case(c, n, 128, 128, 4, true, f);
            check_delta_case(c, n, 20, 128, 0, false, f);
        }
    for (size_t n = 1; n <= 2; n++) check_delta_case(c, n, 256, 256, 5, true, CK_RANDOM);
    if (!c->quick) check_delta_case(c, 200, 128, 128, 40, true, CK_RANDOM);
}

/* ---- hadamard ---- */

struct hadamard {
    bn_hadamard_fn *fn;
    struct bn_hadamard_args a;
};

static void run_hadamard(void *p)
{
    struct hadamard *x = p;
    x->fn(&x->a);
}

/* By the matrix: the sign of row i and column j is the parity of i & j. */
static void naive_hadamard(struct ck *c, const struct bn_hadamard_args *a, const float *x)
{
    double levels = log2((double)a->block);
    for (size_t i = 0; i < a->n; i++) {
        size_t first = i / a->block * a->block;
        double s = 0, size = 0, scale = a->scale * (a->after ? (double)a->after[i] : 1);
        for (size_t j = 0; j < a->block; j++) {
            double z = x[first + j] * (a->before ? (double)a->before[first + j] : 1);
            s += __builtin_parityll((i - first) & j) ? -z : z;
            size += fabs(z);
        }
        double bound = size * fabs(scale) * (levels + 4) * 0x1p-24 + 0x1p-148 * (1 + fabs(scale));
        if (!ck_near(c, "y", s * scale, a->y[i], bound * 1.01, i)) return;
    }
}

static void check_hadamard_case(struct ck *c, size_t block, size_t n, unsigned factors, bool place,
                                enum ck_fill f)
{
    ck_case(c, "block=%zu n=%zu factors=%u in place=%d fill=%s", block, n, factors, place,
            ck_fill_name(f));
    struct hadamard h = {(bn_hadamard_fn *)c->ref->fn, {.n = n, .block = block, .scale = 0.171f}};
    float *x = filled(c, n, f);
    if (factors & 1) h.a.before = filled(c, n, f == CK_WIDE ? CK_RANDOM : f);
    if (factors & 2) h.a.after = filled(c, n, f == CK_WIDE ? CK_RANDOM : f);
    h.a.x = copy(c, x, n);
    float *want = h.a.y = place ? (float *)h.a.x : ck_buffer(c, n * sizeof *x);
    if (!ck_run(c, run_hadamard, &h)) return;
    if (c->naive && f <= CK_WIDE) naive_hadamard(c, &h.a, x);
    if (c->naive) return;
    h.fn = (bn_hadamard_fn *)c->v->fn;
    h.a.x = copy(c, x, n);
    h.a.y = place ? (float *)h.a.x : ck_buffer(c, n * sizeof *x);
    if (ck_run(c, run_hadamard, &h)) ck_same_f32(c, "y", want, h.a.y, n, block);
}

void check_hadamard(struct ck *c)
{
    for (size_t block = 2; block <= BN_HADAMARD_BLOCK_MAX; block *= 2) {
        size_t most = block <= 64 ? 9 : block <= 1024 ? 3 : 1;
        for (size_t blocks = 1; blocks <= most; blocks += blocks > 2 ? 3 : 1)
            for (unsigned factors = 0; factors < 4; factors++)
                for (int place = 0; place < 2; place++)
                    check_hadamard_case(c, block, block * blocks, factors, place, CK_RANDOM);
        if (block > 512 && c->quick) continue;
        for (enum ck_fill f = 0; f < CK_FILLS; f++)
            check_hadamard_case(c, block, block * most, f % 4, f % 2, f);
    }
    if (!c->naive) check_hadamard_case(c, 1024, 17408, 1, false, CK_RANDOM);
}
