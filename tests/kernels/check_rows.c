/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the decoders of dense rows, of the conversion to halves, and of dot products. */
#include "check.h"

#include <math.h>

/* ---- rows ---- */

struct row {
    bn_row_fn *fn;
    float *y;
    const void *row;
    size_t n;
};

static void run_row(void *p)
{
    struct row *a = p;
    a->fn(a->y, a->row, a->n);
}

/* A stored type: block size, bytes of a block, where its halves are, and element i by naive
 * arithmetic with the size of its error. */
struct format {
    size_t block, bytes, halves[2], n_halves;
    double (*value)(const uint8_t *block, size_t i, double *bound);
};

static double half(const uint8_t *p)
{
    unsigned h = p[0] | (unsigned)p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(m + 1024, (int)e - 25) : ldexp(m, -24);
    return h >> 15 ? -v : v;
}

static double value_f16(const uint8_t *b, size_t i, double *bound)
{
    (void)i;
    *bound = 0;
    return half(b);
}
static double value_bf16(const uint8_t *b, size_t i, double *bound)
{
    unsigned e = b[0] >> 7 | (b[1] & 127u) << 1, m = b[0] & 127;
    double v = e == 255 ? (m ? NAN : INFINITY) : e ? ldexp(m + 128, (int)e - 134) : ldexp(m, -133);
    (void)i;
    *bound = 0;
    return b[1] & 128 ? -v : v;
}
static double value_q8_0(const uint8_t *b, size_t i, double *bound)
{
    double v = half(b) * (int8_t)b[2 + i];
    *bound = fabs(v) * 0x1p-24;
    return v;
}
static double value_q4_0(const uint8_t *b, size_t i, double *bound)
{
    int q = i < 16 ? b[2 + i] % 16 : b[2 + i - 16] / 16;
    double v = half(b) * (q - 8);
    *bound = fabs(v) * 0x1p-24;
    return v;
}
static double value_q4_k(const uint8_t *b, size_t i, double *bound)
{
    const uint8_t *s = b + 4;
    size_t j = i / 32;
    int byte = b[16 + i / 64 * 32 + i % 32], q = i / 32 % 2 ? byte / 16 : byte % 16;
    int scale = j < 4 ? s[j] % 64 : s[j + 4] % 16 + s[j - 4] / 64 * 16;
    int min = j < 4 ? s[j + 4] % 64 : s[j + 4] / 16 + s[j] / 64 * 16;
    double x = half(b) * scale * q, y = half(b + 2) * min;
    *bound = (fabs(x) + fabs(y)) * 0x1p-22;
    return x - y;
}
static double value_q6_k(const uint8_t *b, size_t i, double *bound)
{
    size_t h = i / 128, k = i % 128 / 32, l = i % 32;
    int low = b[64 * h + (k % 2) * 32 + l], high = b[128 + 32 * h + l];
    int q = (k < 2 ? low % 16 : low / 16) + high / (1 << 2 * k) % 4 * 16;
    double v = half(b + 208) * (int8_t)b[192 + i / 16] * (q - 32);
    *bound = fabs(v) * 0x1p-22;
    return v;
}

static const struct format f16 = {1, 2, {0, 0}, 1, value_f16};
static const struct format bf16 = {1, 2, {0, 0}, 1, value_bf16};
static const struct format q8_0 = {32, 34, {0, 0}, 1, value_q8_0};
static const struct format q4_0 = {32, 18, {0, 0}, 1, value_q4_0};
static const struct format q4_k = {256, 144, {0, 2}, 2, value_q4_k};
static const struct format q6_k = {256, 210, {208, 0}, 1, value_q6_k};

static void check_row_case(struct ck *c, const struct format *f, const uint8_t *row, size_t n)
{
    struct row a = {(bn_row_fn *)c->ref->fn, ck_buffer(c, n * sizeof(float)), row, n};
    if (!ck_run(c, run_row, &a)) return;
    for (size_t i = 0; c->naive && i < n; i++) {
        double bound, want = f->value(row + i / f->block * f->bytes, i % f->block, &bound);
        if (isnan(want) ? isnan(a.y[i]) : isinf(want) ? want == (double)a.y[i] : false) continue;
        if (!ck_near(c, "y", want, a.y[i], bound, i)) return;
    }
    if (c->naive) return;
    struct row b = {(bn_row_fn *)c->v->fn, ck_buffer(c, n * sizeof(float)), row, n};
    if (ck_run(c, run_row, &b)) ck_same_f32(c, "y", a.y, b.y, n, f->block == 1 ? n : f->block);
}

static void check_row(struct ck *c, const struct format *f)
{
    static const size_t counts[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 640};
    for (size_t s = 0; s < BN_ARRAY_LEN(counts); s++)
        for (enum ck_fill fill = 0; fill < CK_FILLS; fill++) {
            size_t n = counts[s] * f->block, bytes = counts[s] * f->bytes;
            if (n > 10000) continue;
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(fill));
            uint8_t *row = ck_buffer(c, bytes);
            for (size_t i = 0; i < bytes; i++) row[i] = (uint8_t)bn_rng_u64(&c->rng);
            for (size_t b = 0; b < counts[s]; b++)
                for (size_t h = 0; h < f->n_halves; h++)
                    ck_fill_f16(c, (void *)(row + b * f->bytes + f->halves[h]), 1, fill);
            check_row_case(c, f, row, n);
        }
    if (f->block != 1) return;
    ck_case(c, "all 65536 codes");
    uint8_t *row = ck_buffer(c, 2 * 65536);
    for (size_t i = 0; i < 65536; i++) bn_store_u16(row + 2 * i, (uint16_t)i);
    check_row_case(c, f, row, 65536);
}

void check_row_f16(struct ck *c) { check_row(c, &f16); }
void check_row_bf16(struct ck *c) { check_row(c, &bf16); }
void check_row_q8_0(struct ck *c) { check_row(c, &q8_0); }
void check_row_q4_0(struct ck *c) { check_row(c, &q4_0); }
void check_row_q4_k(struct ck *c) { check_row(c, &q4_k); }
void check_row_q6_k(struct ck *c) { check_row(c, &q6_k); }

/* ---- f32_to_f16 ---- */

struct narrow {
    bn_f32_to_f16_fn *fn;
    uint16_t *y;
    const float *x;
    size_t n;
};

static void run_narrow(void *p)
{
    struct narrow *a = p;
    a->fn(a->y, a->x, a->n);
}

/* The nearest half by rounding in units of its last place. */
static double nearest_half(double x)
{
    int e;
    if (isnan(x) || isinf(x)) return x;
    frexp(x, &e);
    double unit = ldexp(1, (e - 1 < -14 ? -14 : e - 1) - 10), v = rint(x / unit) * unit;
    return fabs(v) > 65504 ? copysign(INFINITY, x) : v;
}

static void check_narrow_case(struct ck *c, const float *x, size_t n)
{
    struct narrow a = {(bn_f32_to_f16_fn *)c->ref->fn, ck_buffer(c, 2 * n), x, n};
    if (!ck_run(c, run_narrow, &a)) return;
    for (size_t i = 0; c->naive && i < n; i++) {
        uint8_t b[2] = {(uint8_t)a.y[i], (uint8_t)(a.y[i] >> 8)};
        double want = nearest_half(x[i]), got = half(b);
        if (isnan(want) ? isnan(got) : want == got && signbit(want) == signbit(got)) continue;
        ck_fail(c, "y[%zu] is %a, naive %a", i, got, want);
        return;
    }
    if (c->naive) return;
    struct narrow b = {(bn_f32_to_f16_fn *)c->v->fn, ck_buffer(c, 2 * n), x, n};
    if (ck_run(c, run_narrow, &b)) ck_same_bytes(c, "y", a.y, b.y, 2 * n);
}

void check_f32_to_f16(struct ck *c)
{
    for (size_t n = 1; n < 70; n += n < 34 ? 1 : 7)
        for (enum ck_fill f = 0; f < CK_FILLS; f++) {
            ck_case(c, "n=%zu fill=%s", n, ck_fill_name(f));
            float *x = ck_buffer(c, n * sizeof *x);
            ck_fill_f32(c, x, n, f);
            check_narrow_case(c, x, n);
        }
    /* every half, its neighbours, and the middle to the next with its neighbours */
    for (uint32_t h = 0; h < 65536; h += c->quick ? 4096 : 1024) {
        enum { PER = 6 };
        ck_case(c, "around halves from %u", h);
        size_t n = 1024 * PER;
        float *x = ck_buffer(c, n * sizeof *x);
        for (size_t i = 0; i < n; i++) {
            uint16_t code = (uint16_t)(h + i / PER);
            uint32_t u = bn_f32_as_u32(bn_f16_to_f32(code));
            uint32_t v = u + (uint32_t)(i % PER) % 3 - 1 + (i % PER >= 3 ? 0x1000 : 0);
            bn_store_u32(x + i, (v & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : v);
        }
        check_narrow_case(c, x, n);
    }
}

/* ---- dots ---- */

struct dots {
    bn_dots_fn *fn;
    float *y;
    const float *rows, *x;
    size_t y_stride, n_rows, x_stride, n_tok, n;
};

static void run_dots(void *p)
{
    struct dots *a = p;
    a->fn(a->y, a->y_stride, a->rows, a->n_rows, a->x, a->x_stride, a->n_tok, a->n);
}

static void naive_dots(struct ck *c, const struct dots *a)
{
    for (size_t t = 0; t < a->n_tok; t++)
        for (size_t r = 0; r < a->n_rows; r++) {
            double s = 0, size = 0;
            for (size_t i = 0; i < a->n; i++) {
                double p = (double)a->rows[r * a->n + i] * a->x[t * a->x_stride + i];
                s += p;
                size += fabs(p);
            }
            double bound = size * ((double)a->n / 16 + 8) * 0x1p-24 + (double)a->n * 0x1p-149;
            size_t at = t * a->y_stride + r;
            if (!ck_near(c, "y", s, a->y[at], bound, at)) return;
        }
}

static void check_dots_case(struct ck *c, size_t rows, size_t tok, size_t n, size_t pad,
                            enum ck_fill f)
{
    struct dots a = {(bn_dots_fn *)c->ref->fn, NULL, NULL, NULL, rows + pad, rows, n + pad, tok, n};
    ck_case(c, "rows=%zu tokens=%zu n=%zu pad=%zu fill=%s", rows, tok, n, pad, ck_fill_name(f));
    size_t n_y = (tok - 1) * a.y_stride + rows, n_x = (tok - 1) * a.x_stride + n;
    float *m = ck_buffer(c, rows * n * sizeof *m), *x = ck_buffer(c, n_x * sizeof *x);
    ck_fill_f32(c, m, rows * n, f);
    ck_fill_f32(c, x, n_x, f);
    float *want = a.y = ck_buffer(c, n_y * sizeof *a.y);
    a.rows = m;
    a.x = x;
    if (!ck_run(c, run_dots, &a)) return;
    if (c->naive && f <= CK_WIDE) naive_dots(c, &a);
    if (c->naive) return;
    a.fn = (bn_dots_fn *)c->v->fn;
    a.y = ck_buffer(c, n_y * sizeof *a.y);
    if (ck_run(c, run_dots, &a)) ck_same_f32(c, "y", want, a.y, n_y, a.y_stride);
}

void check_dots(struct ck *c)
{
    static const size_t len[] = {1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 128, 2560};
    for (size_t rows = 1; rows <= 9; rows++)
        for (size_t tok = 1; tok <= 5; tok++)
            for (size_t i = 0; i < BN_ARRAY_LEN(len); i++)
                check_dots_case(c, rows, tok, len[i], (rows + tok) % 3, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++)
        for (size_t i = 0; i < BN_ARRAY_LEN(len); i++)
            for (size_t tok = 1; tok <= 2; tok++) check_dots_case(c, 7, tok, len[i], 0, f);
    check_dots_case(c, 63, 9, 64, 1, CK_RANDOM);
    check_dots_case(c, 65, 8, 129, 0, CK_RANDOM);
    if (!c->quick) check_dots_case(c, 8, 3, 6912, 5, CK_WIDE);
}

struct low_rank {
    bn_low_rank_fn *fn;
    float *y;
    const float *b, *u;
    size_t stride, rank, n;
    float scale;
};

static void run_low_rank(void *p)
{
    struct low_rank *a = p;
    a->fn(a->y, a->b, a->stride, a->u, a->rank, a->n, a->scale);
}

static void naive_low_rank(struct ck *c, const struct low_rank *a, const float *before)
{
    for (size_t i = 0; i < a->n; i++) {
        double s = 0, size = 0;
        for (size_t j = 0; j < a->rank; j++) {
            double p = (double)a->b[j * a->stride + i] * a->u[j];
            s += p;
            size += fabs(p);
        }
        double bound = (fabs((double)before[i]) + size * fabs((double)a->scale)) *
                           ((double)a->rank + 4) * 0x1p-24 +
                       (double)a->rank * 0x1p-149;
        if (!ck_near(c, "y", before[i] + a->scale * s, a->y[i], bound, i)) return;
    }
}

static void check_low_rank_case(struct ck *c, size_t rank, size_t n, size_t pad, enum ck_fill f)
{
    struct low_rank a = {.fn = (bn_low_rank_fn *)c->ref->fn,
                         .stride = n + pad,
                         .rank = rank,
                         .n = n,
                         .scale = 0.75f};
    ck_case(c, "rank=%zu n=%zu pad=%zu fill=%s", rank, n, pad, ck_fill_name(f));
    size_t n_b = (rank - 1) * a.stride + n;
    float *b = ck_buffer(c, n_b * sizeof *b), *u = ck_buffer(c, rank * sizeof *u);
    float *before = ck_buffer(c, n * sizeof *before);
    ck_fill_f32(c, b, n_b, f);
    ck_fill_f32(c, u, rank, f);
    ck_fill_f32(c, before, n, f);
    a.b = b;
    a.u = u;
    float *want = a.y = ck_buffer(c, n * sizeof *a.y);
    memcpy(a.y, before, n * sizeof *a.y);
    if (!ck_run(c, run_low_rank, &a)) return;
    if (c->naive && f <= CK_WIDE) naive_low_rank(c, &a, before);
    if (c->naive) return;
    a.fn = (bn_low_rank_fn *)c->v->fn;
    a.y = ck_buffer(c, n * sizeof *a.y);
    memcpy(a.y, before, n * sizeof *a.y);
    if (ck_run(c, run_low_rank, &a)) ck_same_f32(c, "y", want, a.y, n, n);
}

void check_low_rank(struct ck *c)
{
    static const size_t len[] = {1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 2560};
    static const size_t ranks[] = {1, 2, 3, 8, 16, 17, 64};
    for (size_t i = 0; i < BN_ARRAY_LEN(len); i++) {
        for (size_t j = 0; j < BN_ARRAY_LEN(ranks); j++)
            check_low_rank_case(c, ranks[j], len[i], (i + j) % 3, CK_RANDOM);
        for (enum ck_fill f = 0; f < CK_FILLS; f++) check_low_rank_case(c, 4, len[i], 1, f);
    }
}

struct dots_f16 {
    bn_dots_f16_fn *fn;
    float *y;
    const void *rows;
    const float *x;
    size_t n_rows, n;
};

static void run_dots_f16(void *p)
{
    struct dots_f16 *a = p;
    a->fn(a->y, a->rows, a->n_rows, a->x, a->n);
}

/* Compared with dots of the widened rows, the reference as well. */
static void check_dots_f16_case(struct ck *c, size_t rows, size_t n, enum ck_fill f)
{
    struct dots_f16 a = {.fn = (bn_dots_f16_fn *)c->v->fn, .n_rows = rows, .n = n};
    ck_case(c, "rows=%zu n=%zu fill=%s", rows, n, ck_fill_name(f));
    uint16_t *m = ck_buffer(c, rows * n * sizeof *m);
    float *x = ck_buffer(c, n * sizeof *x), *wide = ck_buffer(c, rows * n * sizeof *wide);
    float *want = ck_buffer(c, rows * sizeof *want);
    ck_fill_f16(c, m, rows * n, f);
    ck_fill_f32(c, x, n, f);
    a.rows = m;
    a.x = x;
    a.y = ck_buffer(c, rows * sizeof *a.y);
    bn_row_f16_c(wide, m, rows * n);
    bn_dots_c(want, rows, wide, rows, x, n, 1, n);
    if (ck_run(c, run_dots_f16, &a)) ck_same_f32(c, "y", want, a.y, rows, rows);
}

void check_dots_f16(struct ck *c)
{
    for (size_t rows = 1; rows <= 9; rows++)
        for (size_t n = 1; n <= 130; n += n < 50 ? 1 : 13)
            check_dots_f16_case(c, rows, n, CK_RANDOM);
    for (enum ck_fill f = 0; f < CK_FILLS; f++) check_dots_f16_case(c, 7, 100, f);
    check_dots_f16_case(c, 21, 2560, CK_RANDOM);
}
