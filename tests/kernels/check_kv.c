/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of keys and values in fewer bits: 8-bit floats code by code and between codes, blocks of
 * codes by their formulas in double precision. */
#include "check.h"
#include "kernels/fp8.h"

#include <math.h>

/* ---- elements ---- */

struct narrow {
    bn_narrow_fn *fn;
    uint8_t *y;
    const float *x;
    size_t n;
};

static void run_narrow(void *p)
{
    struct narrow *a = p;
    a->fn(a->y, a->x, a->n);
}

struct row {
    bn_row_fn *fn;
    float *y;
    const uint8_t *row;
    size_t n;
};

static void run_row(void *p)
{
    struct row *a = p;
    a->fn(a->y, a->row, a->n);
}

/* A format of elements: bits of its mantissa, exponent of the least normal number, the largest
 * number, and its bytes. */
struct format {
    int mantissa, least;
    double max;
    size_t bytes;
    bool infinity, saturates;
};
static const struct format bf16 = {7, -126, 0x1.fep127, 2, true, false};
static const struct format e4m3 = {3, -6, 448, 1, false, true};
static const struct format e5m2 = {2, -14, 57344, 1, true, true};

/* The value of a code. */
static double value_of(const struct format *f, unsigned code)
{
    int bits = 8 * (int)f->bytes - 1 - f->mantissa; /* of the exponent */
    unsigned e = code >> f->mantissa & ((1u << bits) - 1), m = code & ((1u << f->mantissa) - 1);
    bool top = e == (1u << bits) - 1, negative = code >> (8 * f->bytes - 1);
    double v = ldexp(m + (e ? 1 << f->mantissa : 0), (int)(e ? e : 1) - 1 + f->least - f->mantissa);
    if (f->infinity && top) v = m ? NAN : INFINITY;
    if (!f->infinity && top && m == (1u << f->mantissa) - 1) v = NAN;
    return negative ? -v : v;
}

static double nearest(const struct format *f, double x)
{
    int e;
    if (isnan(x)) return x;
    if (isinf(x)) return f->infinity ? x : NAN;
    frexp(x, &e);
    double unit = ldexp(1, (e - 1 < f->least ? f->least : e - 1) - f->mantissa);
    double v = rint(x / unit) * unit;
    if (fabs(v) > f->max) v = copysign(f->saturates ? f->max : INFINITY, x);
    return v;
}

static void check_narrow_case(struct ck *c, const struct format *f, const float *x, size_t n)
{
    struct narrow a = {(bn_narrow_fn *)c->ref->fn, ck_buffer(c, f->bytes * n), x, n};
    if (!ck_run(c, run_narrow, &a)) return;
    for (size_t i = 0; c->naive && i < n; i++) {
        unsigned code = f->bytes == 2 ? bn_load_u16(a.y + 2 * i) : a.y[i];
        double want = nearest(f, x[i]), got = value_of(f, code);
        if (isnan(want) ? isnan(got) : want == got && signbit(want) == signbit(got)) continue;
        ck_fail(c, "y[%zu] of %a is %a, naive %a", i, (double)x[i], got, want);
        return;
    }
    if (c->naive) return;
    struct narrow b = {(bn_narrow_fn *)c->v->fn, ck_buffer(c, f->bytes * n), x, n};
    if (ck_run(c, run_narrow, &b)) ck_same_bytes(c, "y", a.y, b.y, f->bytes * n);
}

static void check_narrow(struct ck *c, const struct format *f)
{
    for (size_t n = 1; n < 70; n += n < 34 ? 1 : 7)
        for (enum ck_fill fill = 0; fill < CK_FILLS; fill++) {
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(fill));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, fill);
            check_narrow_case(c, f, x, n);
        }
    /* codes, the middles between them, and the floats around both */
    enum { PER = 6 };
    size_t codes = f->bytes == 2 ? 65536 : 256, step = c->quick && f->bytes == 2 ? 64 : 1;
    ck_case(c, "around all codes");
    size_t n = codes / step * PER;
    float *x = ck_buffer(c, n * sizeof *x);
    for (size_t i = 0; i < n; i++) {
        double v = value_of(f, (unsigned)(i / PER * step)), w = v;
        if (isfinite(v)) w = value_of(f, (unsigned)(i / PER * step) + 1);
        float at = (float)(i % PER < 3 || !isfinite(w) ? v : (v + w) / 2);
        uint32_t u = bn_f32_as_u32(at) + (uint32_t)(i % PER % 3) - 1;
        bn_store_u32(x + i, (u & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : u);
    }
    check_narrow_case(c, f, x, n);
}

void check_f32_to_bf16(struct ck *c) { check_narrow(c, &bf16); }
void check_f32_to_e4m3(struct ck *c) { check_narrow(c, &e4m3); }
void check_f32_to_e5m2(struct ck *c) { check_narrow(c, &e5m2); }

static void check_widen(struct ck *c, const struct format *f)
{
    for (size_t n = 1; n <= 256; n += n < 40 ? 1 : 43) {
        ck_case(c, "codes up to %zu", n);
        uint8_t *row = ck_buffer(c, n);
        for (size_t i = 0; i < n; i++) row[i] = (uint8_t)(n < 40 ? 7 * i + n : i);
        struct row a = {(bn_row_fn *)c->ref->fn, ck_buffer(c, n * sizeof(float)), row, n};
        if (!ck_run(c, run_row, &a)) continue;
        for (size_t i = 0; c->naive && i < n; i++) {
            double want = value_of(f, row[i]);
            if (isnan(want) ? isnan(a.y[i]) : want == (double)a.y[i]) continue;
            ck_fail(c, "code %u is %a, naive %a", row[i], (double)a.y[i], want);
            break;
        }
        if (c->naive) continue;
        struct row b = {(bn_row_fn *)c->v->fn, ck_buffer(c, n * sizeof(float)), row, n};
        if (ck_run(c, run_row, &b)) ck_same_f32(c, "y", a.y, b.y, n, n);
    }
}

void check_row_e4m3(struct ck *c) { check_widen(c, &e4m3); }
void check_row_e5m2(struct ck *c) { check_widen(c, &e5m2); }

/* ---- q8_0 ---- */

static double half(const uint8_t *p)
{
    static const struct format f16 = {10, -14, 65504, 2, true, false};
    return value_of(&f16, bn_load_u16(p));
}

static bool all_finite(const float *x, size_t n, size_t stride)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i * stride])) return false;
    return true;
}

/* What is read back lies within half a step, a step being known to 11 bits. */
static void naive_q8_0(struct ck *c, const uint8_t *row, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t *b = row + i / 32 * 34;
        const float *group = x + i / 32 * 32;
        double max = 0, d = half(b), got = d * (int8_t)b[2 + i % 32];
        for (size_t j = 0; j < 32; j++) { /* fmax() is too much for gcc 12 on arm64 */
            double v = fabs((double)group[j]);
            if (v > max) max = v;
        }
        bool finite = all_finite(group, 32, 1) && max / 127 < 65520;
        if (finite != isfinite(d)) {
            ck_fail(c, "step %zu is %a", i / 32, d);
            return;
        }
        double bound = d / 2 * (1 + 0x1p-10) + fmax(0, max - 127 * d);
        if (finite && !ck_near(c, "x", x[i], got, bound, i)) return;
    }
}

void check_f32_to_q8_0(struct ck *c)
{
    for (size_t n = 32; n <= 256; n += 32)
        for (enum ck_fill fill = 0; fill < CK_FILLS; fill++) {
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(fill));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, fill);
            struct narrow a = {(bn_narrow_fn *)c->ref->fn, ck_buffer(c, n / 32 * 34), x, n};
            if (!ck_run(c, run_narrow, &a)) continue;
            if (c->naive) naive_q8_0(c, a.y, x, n);
            if (c->naive) continue;
            struct narrow b = {(bn_narrow_fn *)c->v->fn, ck_buffer(c, n / 32 * 34), x, n};
            if (ck_run(c, run_narrow, &b)) ck_same_bytes(c, "row", a.y, b.y, n / 32 * 34);
        }
}

/* ---- blocks ---- */

struct block {
    bn_kv_put_fn *put;
    bn_kv_get_fn *get;
    uint8_t *block;
    float *x;
    size_t t0, n, dim;
    unsigned bits;
};

static void run_put(void *p)
{
    struct block *a = p;
    a->put(a->block, a->x, a->dim, a->bits);
}

static void run_get(void *p)
{
    struct block *a = p;
    a->get(a->x, a->block, a->t0, a->n, a->dim, a->bits);
}

/* The code of token t and channel ch, by its place: row after row of 64 codes, in which token or
 * channel number `lane` has two. */
static unsigned code_of(const struct block *a, size_t t, size_t ch, bool values)
{
    size_t row = 4 * a->dim + ch / 32 * 128 * a->bits + (values ? t : ch % 32) / 2 * 8 * a->bits;
    size_t i = 2 * (values ? ch % 32 : t) + (values ? t : ch) % 2;
    uint8_t byte = a->block[row + (a->bits == 4 ? i / 32 * 16 : 0) + i % 16];
    unsigned shift = (unsigned)(a->bits == 4 ? i / 16 % 2 * 4 : i / 16 * 2);
    return byte >> shift & ((1u << a->bits) - 1);
}

static size_t group_of(size_t t, size_t ch, bool values) { return values ? ch / 32 * 32 + t : ch; }

static void naive_put(struct ck *c, const struct block *a, bool values)
{
    for (size_t i = 0; i < BN_ATTN_BLOCK * a->dim; i++) {
        size_t t = i / a->dim, ch = i % a->dim, g = group_of(t, ch, values);
        const float *group = values ? a->x + t * a->dim + ch / 32 * 32 : a->x + ch;
        size_t stride = values ? 1 : a->dim;
        double step = half(a->block + 2 * g), min = half(a->block + 2 * (a->dim + g));
        double lo = INFINITY, hi = -INFINITY, most = (1 << a->bits) - 1;
        for (size_t j = 0; j < 32; j++) {
            double x = (double)group[j * stride];
            if (x < lo) lo = x;
            if (x > hi) hi = x;
        }
        bool finite = all_finite(group, 32, stride) && (hi - lo) / most < 65520 && fabs(lo) < 65520;
        if (finite != isfinite(step)) {
            ck_fail(c, "step %zu is %a", g, step);
            return;
        }
        /* half a step; what the roundings of step and minimum cut off or push out */
        double bound = step / 2 * (1 + 0x1p-10) + fabs(lo - min) + fmax(0, hi - min - most * step) +
                       fabs(lo) * 0x1p-22;
        if (finite && !ck_near(c, "x", a->x[i], min + code_of(a, t, ch, values) * step, bound, i))
            return;
    }
}

static void check_put_case(struct ck *c, size_t dim, unsigned bits, enum ck_fill f, bool values)
{
    size_t bytes = bn_kv_block_bytes(dim, bits);
    ck_case(c, "dim=%zu bits=%u fill=%s", dim, bits, ck_fill_name(f));
    struct block a = {.put = (bn_kv_put_fn *)c->ref->fn, .dim = dim, .bits = bits};
    a.x = ck_buffer(c, BN_ATTN_BLOCK * dim * sizeof *a.x);
    ck_fill_f32(c, a.x, BN_ATTN_BLOCK * dim, f);
    for (size_t i = 0; i < 32; i++) /* a group whose values are all the same */
        a.x[values ? i : i * dim] = 0.3f;
    if (f == CK_SPECIAL) /* and one that is finite */
        for (size_t i = 0; i < 32; i++) a.x[values ? dim + i : i * dim + 1] = (float)i;
    a.block = ck_buffer(c, bytes);
    if (!ck_run(c, run_put, &a)) return;
    if (c->naive) naive_put(c, &a, values);
    if (c->naive) return;
    struct block b = a;
    b.put = (bn_kv_put_fn *)c->v->fn;
    b.block = ck_buffer(c, bytes);
    if (ck_run(c, run_put, &b)) ck_same_bytes(c, "block", a.block, b.block, bytes);
}

static void check_get_case(struct ck *c, size_t dim, unsigned bits, size_t t0, size_t n,
                           enum ck_fill f, bool values)
{
    size_t bytes = bn_kv_block_bytes(dim, bits);
    ck_case(c, "dim=%zu bits=%u tokens %zu+%zu fill=%s", dim, bits, t0, n, ck_fill_name(f));
    struct block a = {
        .get = (bn_kv_get_fn *)c->ref->fn, .dim = dim, .bits = bits, .t0 = t0, .n = n};
    a.block = ck_buffer(c, bytes);
    for (size_t i = 0; i < bytes; i++) a.block[i] = (uint8_t)bn_rng_u64(&c->rng);
    ck_fill_f16(c, (void *)a.block, 2 * dim, f);
    a.x = ck_buffer(c, n * dim * sizeof *a.x);
    if (!ck_run(c, run_get, &a)) return;
    for (size_t i = 0; c->naive && i < n * dim; i++) {
        size_t t = t0 + i / dim, g = group_of(t, i % dim, values);
        double step = half(a.block + 2 * g), min = half(a.block + 2 * (dim + g));
        double want = min + code_of(&a, t, i % dim, values) * step;
        if (!isfinite(want) && !isfinite(a.x[i])) continue;
        if (!ck_near(c, "y", want, a.x[i], fabs(want) * 0x1p-24, i)) return;
    }
    if (c->naive) return;
    struct block b = a;
    b.get = (bn_kv_get_fn *)c->v->fn;
    b.x = ck_buffer(c, n * dim * sizeof *b.x);
    if (ck_run(c, run_get, &b)) ck_same_f32(c, "y", a.x, b.x, n * dim, dim);
}

static const size_t dims[] = {32, 64, 96, 128, 256, 512};

static void check_put(struct ck *c, bool values)
{
    for (size_t d = 0; d < BN_ARRAY_LEN(dims); d++)
        for (unsigned bits = 2; bits <= 4; bits += 2)
            for (enum ck_fill f = 0; f < CK_FILLS; f++) check_put_case(c, dims[d], bits, f, values);
}

static void check_get(struct ck *c, bool values)
{
    static const size_t from[] = {0, 0, 0, 8, 31, 5}, n[] = {32, 1, 8, 8, 1, 20};
    for (size_t d = 0; d < BN_ARRAY_LEN(dims); d++)
        for (unsigned bits = 2; bits <= 4; bits += 2) {
            for (size_t i = 0; i < BN_ARRAY_LEN(from); i++)
                check_get_case(c, dims[d], bits, from[i], n[i], CK_RANDOM, values);
            for (enum ck_fill f = 0; f < CK_FILLS; f++)
                check_get_case(c, dims[d], bits, 0, 32, f, values);
        }
}

void check_kv_put_keys(struct ck *c) { check_put(c, false); }
void check_kv_put_values(struct ck *c) { check_put(c, true); }
void check_kv_get_keys(struct ck *c) { check_get(c, false); }
void check_kv_get_values(struct ck *c) { check_get(c, true); }
