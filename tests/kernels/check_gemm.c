/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the ternary matrices: packing, and both multiplications with every kind of scale. The
 * integer results are compared exactly, also those of the reference (with int64 arithmetic). */
#include "check_gemm.h"

#include <math.h>

const char *const ck_wname[] = {"random", "-1", "+1", "most", "sign", "0", "ternary", "sign +-1"};
const char *const ck_qname[] = {"random", "127", "-127", "+-127", "127, -127", "0"};

static void run_mul(void *p)
{
    const struct mul *a = p;
    const struct bn_gemm *g = a->g;
    const struct bn_gemm_args args = {a->y, a->y_stride, &a->w, a->r0, a->r1, a->tok, a->scratch};
    const struct bn_q8 bytes = {a->q, a->x_stride, a->sum, a->inv};
    if (a->how == PLANES) (a->scratch ? g->mul_planes_many : g->mul_planes)(&args, &a->planes);
    else if (a->how == I8) (a->scratch ? g->mul_i8_many : g->mul_i8)(&args, &bytes);
    else g->mul_f32(&args, a->x, a->x_stride);
}

struct packing {
    const struct bn_gemm *g;
    uint8_t *data;
    int8_t *w, *back;
    size_t rows, cols;
};

static void run_packing(void *p)
{
    struct packing *a = p;
    size_t group = a->g->group_rows, bytes = a->g->group_bytes(a->cols);
    for (size_t r = 0; r < a->rows; r += group) {
        size_t n = bn_min_size(group, a->rows - r);
        a->g->pack(a->data + r / group * bytes, a->w + r * a->cols, n, a->cols);
        a->g->unpack(a->back + r * a->cols, a->data + r / group * bytes, n, a->cols);
    }
}

/* The packed bytes by the layout's description: byte i / 4, field i % 4. */
static bool is_t2(struct ck *c, const uint8_t *data, size_t bytes, const int8_t *w, size_t rows,
                  size_t cols)
{
    for (size_t i = 0; i < 4 * bytes; i++) {
        size_t step = i / 4 / 128, per = bn_div_up(cols, 128), r = step / per * 4 + i / 4 / 32 % 4;
        size_t k = step % per * 128 + i % 4 * 32 + i / 4 % 32;
        int want = r < rows && k < cols ? w[r * cols + k] + 1 : 1;
        if ((data[i / 4] >> 2 * (i % 4) & 3) == want) continue;
        ck_fail(c, "layout: byte %zu field %zu is not %d", i / 4, i % 4, want);
        return false;
    }
    return true;
}

/* Every column of every triple: nibble and sign are those of t0 + 3 t1 + 9 t2. */
static bool is_t3(struct ck *c, const uint8_t *data, size_t bytes, const int8_t *w, size_t rows,
                  size_t cols)
{
    size_t per = bn_div_up(cols, 128), groups = bn_div_up(rows, 6);
    if (bytes != groups * per * 160) {
        ck_fail(c, "layout: %zu bytes for %zu groups of %zu steps", bytes, groups, per);
        return false;
    }
    for (size_t i = 0; i < groups * 2 * per * 128; i++) {
        size_t k = i % (per * 128), triple = i / (per * 128), want = 0;
        const uint8_t *step = data + (triple / 2 * per + k / 128) * 160;
        int m = 0, bit = 7 - 2 * (int)(k % 128 / 32) - (int)(triple % 2);
        for (size_t j = 3; j-- > 0;)
            m = 3 * m + (triple * 3 + j < rows && k < cols ? w[(triple * 3 + j) * cols + k] : 0);
        want = (size_t)(m < 0 ? -m : m) | (size_t)(m < 0) << 4;
        size_t got = (size_t)(step[k % 128] >> 4 * (triple % 2) & 15) |
                     (size_t)(step[128 + k % 32] >> bit & 1) << 4;
        if (got == want) continue;
        ck_fail(c, "layout: column %zu of triple %zu is %zx, not %zx", k, triple, got, want);
        return false;
    }
    return true;
}

/* Every byte: a number of rows 0-3 below 64 has row 4 above it, the others come behind these. */
static bool is_t5(struct ck *c, const uint8_t *data, size_t bytes, const int8_t *w, size_t rows,
                  size_t cols)
{
    size_t padded = bn_align_up(cols, 128);
    if (bytes != bn_div_up(rows, 5) * padded) {
        ck_fail(c, "layout: %zu bytes for %zu rows of %zu columns", bytes, rows, padded);
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        size_t k = i % padded;
        int code[5];
        for (size_t j = 0; j < 5; j++) {
            size_t r = i / padded * 5 + j;
            code[j] = 1 + (r < rows && k < cols ? w[r * cols + k] : 0);
        }
        int n = code[0] + 3 * code[1] + 9 * code[2] + 27 * code[3];
        int want = n < 64 ? 64 * code[4] + n : 192 + 17 * code[4] + n - 64;
        if (data[i] == want) continue;
        ck_fail(c, "layout: byte %zu is %d, not %d", i, data[i], want);
        return false;
    }
    return true;
}

/* Every bit: 64 rows by 8 columns are 64 bytes, the rows of two sixteens alternating. */
static bool is_b1(struct ck *c, const uint8_t *data, size_t bytes, const int8_t *w, size_t rows,
                  size_t cols)
{
    size_t padded = bn_align_up(cols, 128);
    if (bytes != bn_div_up(rows, 64) * 8 * padded) {
        ck_fail(c, "layout: %zu bytes for %zu rows of %zu columns", bytes, rows, padded);
        return false;
    }
    for (size_t i = 0; i < 8 * bytes; i++) {
        size_t at = i / 8 % 64, k = i / 512 % (padded / 8) * 8 + i % 8;
        size_t r = i / (64 * padded) * 64 + at / 32 * 32 + at % 2 * 16 + at % 32 / 2;
        bool want = r < rows && k < cols && w[r * cols + k] > 0;
        if ((data[i / 8] >> i % 8 & 1) == want) continue;
        ck_fail(c, "layout: byte %zu bit %zu is not %d", i / 8, i % 8, want);
        return false;
    }
    return true;
}

/* A buffer with the packed matrix, and the round trip checked. */
static uint8_t *pack(struct ck *c, const struct bn_gemm *g, int8_t *w, size_t rows, size_t cols)
{
    size_t bytes = bn_div_up(rows, g->group_rows) * g->group_bytes(cols);
    struct packing p = {g, ck_buffer(c, bytes), w, ck_buffer(c, rows * cols), rows, cols};
    if (!ck_run(c, run_packing, &p) || !ck_same_bytes(c, "unpacked", w, p.back, rows * cols))
        return NULL;
    if (c->naive && strcmp(g->layout, "t2") == 0 && !is_t2(c, p.data, bytes, w, rows, cols))
        return NULL;
    if (c->naive && strcmp(g->layout, "t3") == 0 && !is_t3(c, p.data, bytes, w, rows, cols))
        return NULL;
    if (c->naive && strcmp(g->layout, "t5") == 0 && !is_t5(c, p.data, bytes, w, rows, cols))
        return NULL;
    if (c->naive && strcmp(g->layout, "b1") == 0 && !is_b1(c, p.data, bytes, w, rows, cols))
        return NULL;
    return p.data;
}

/* y by int64 sums and the contract's float steps, which leave nothing open. */
static void naive_i8(struct ck *c, const struct mul *a, const int8_t *w)
{
    size_t cols = a->w.cols, block = a->w.scale_kind == BN_SCALE_BLOCK ? a->w.block : cols;
    for (size_t t = 0; t < a->tok; t++)
        for (size_t r = a->r0; r < a->r1; r++) {
            float acc = 0;
            for (size_t b = 0; b < cols / block; b++) {
                int64_t s = 0;
                for (size_t k = b * block; k < (b + 1) * block; k++)
                    s += (int64_t)w[r * cols + k] * a->q[t * a->x_stride + k];
                if (a->w.scale_kind == BN_SCALE_TENSOR) acc = (float)s * (a->w.scale * a->inv[t]);
                else if (a->w.scale_kind == BN_SCALE_ROW)
                    acc = (float)s * (a->w.row_scale[r] * a->inv[t]);
                else acc += (float)s * bn_f16_to_f32(a->scales[r * (cols / block) + b]);
            }
            if (a->w.scale_kind == BN_SCALE_BLOCK) acc *= a->inv[t];
            if (!ck_near(c, "y", acc, a->y[t * a->y_stride + r], 0, t * a->y_stride + r)) return;
        }
}

static void naive_f32(struct ck *c, const struct mul *a, const int8_t *w)
{
    size_t cols = a->w.cols, block = a->w.scale_kind == BN_SCALE_BLOCK ? a->w.block : cols;
    for (size_t t = 0; t < a->tok; t++)
        for (size_t r = a->r0; r < a->r1; r++) {
            double want = 0, size = 0;
            for (size_t k = 0; k < cols; k++) {
                double d = a->w.scale_kind == BN_SCALE_TENSOR ? a->w.scale
                           : a->w.scale_kind == BN_SCALE_ROW
                               ? a->w.row_scale[r]
                               : bn_f16_to_f32(a->scales[r * (cols / block) + k / block]);
                double p = d * w[r * cols + k] * a->x[t * a->x_stride + k];
                want += p;
                size += fabs(p);
            }
            double steps = (double)block / 16 + (double)(cols / block) + 10;
            double bound = size * steps * 0x1p-24 + (double)cols * 0x1p-140;
            size_t at = t * a->y_stride + r;
            if (!ck_near(c, "y", want, a->y[at], bound, at)) return;
        }
}

/* The block scales in the order of a layout; NULL: it holds none. */
static const uint16_t *order_scales(struct ck *c, const struct bn_gemm *g, const struct mul *a)
{
    if (a->w.scale_kind != BN_SCALE_BLOCK) return NULL;
    size_t blocks = a->w.cols / a->w.block, n = bn_scale_count(g, blocks, a->w.rows);
    uint16_t *to = ck_buffer(c, n * sizeof *to);
    memset(to, 0, n * sizeof *to);
    for (size_t r = 0; r < a->w.rows; r++)
        for (size_t b = 0; b < blocks; b++)
            to[bn_scale_at(g, blocks, r, b)] = a->scales[r * blocks + b];
    return to;
}

void ck_compare(struct ck *c, struct mul a, int8_t *w,
                void (*naive)(struct ck *, const struct mul *, const int8_t *))
{
    size_t n_y = (a.tok - 1) * a.y_stride + a.w.rows;
    float *want = a.y = ck_buffer(c, n_y * sizeof *want);
    a.g = c->ref->gemm;
    a.w.block_scale = order_scales(c, a.g, &a);
    a.w.data = pack(c, a.g, w, a.w.rows, a.w.cols);
    if (!a.w.data || !ck_run(c, run_mul, &a)) return;
    if (c->naive && naive) naive(c, &a, w);
    if (c->naive && a.g == &bn_gemm_t2_c) return;
    /* a variant is compared with its reference, and that with layout t2: the results are the same */
    size_t r0 = a.r0, r1 = a.r1;
    if (c->naive) a.r0 = 0, a.r1 = a.w.rows; /* groups are cut elsewhere there */
    a.g = c->naive ? &bn_gemm_t2_c : c->v->gemm;
    a.w.block_scale = order_scales(c, a.g, &a);
    a.y = ck_buffer(c, n_y * sizeof *want);
    a.w.data = pack(c, a.g, w, a.w.rows, a.w.cols);
    if (!a.w.data || !ck_run(c, run_mul, &a)) return;
    for (size_t i = 0; c->naive && i < n_y; i++)
        if (i % a.y_stride < r0 || i % a.y_stride >= r1) a.y[i] = want[i];
    ck_same_f32(c, "y", want, a.y, n_y, a.y_stride);
    if (a.how == F32 || (a.how == I8 ? !a.g->mul_i8_many : !a.g->mul_planes_many)) return;
    a.y = ck_buffer(c, n_y * sizeof *want);
    a.scratch = ck_buffer(c, bn_align_up(a.g->many_bytes(a.r1 - a.r0, a.w.cols), 64));
    if (ck_run(c, run_mul, &a)) ck_same_f32(c, "y (many)", want, a.y, n_y, a.y_stride);
}

void ck_fill_scales(struct ck *c, struct mul *a, const struct shape *s)
{
    float *row = ck_buffer(c, s->rows * sizeof *row);
    size_t n = s->kind == BN_SCALE_BLOCK ? s->rows * (s->cols / s->block) : 0;
    uint16_t *block = ck_buffer(c, n * sizeof *block);
    for (size_t r = 0; r < s->rows; r++) row[r] = (float)(bn_rng_unit(&c->rng) + 0.01);
    ck_fill_f16(c, block, n, bn_rng_below(&c->rng, 4) ? CK_RANDOM : CK_TINY);
    a->w = (struct bn_packed){.rows = s->rows,
                              .cols = s->cols,
                              .scale_kind = s->kind,
                              .scale = 0.0173f,
                              .row_scale = row,
                              .block = s->block,
                              .ahead = bn_rng_below(&c->rng, 1025) * 64};
    a->scales = block;
    a->r0 = s->r0;
    a->r1 = s->r1;
    a->tok = s->tok;
    a->y_stride = s->rows + s->tok % 3;
}

void ck_fill_weights(struct ck *c, int8_t *w, const struct shape *s, enum wfill f, const int8_t *q)
{
    int most = c->v->gemm->w_max;
    bool binary = c->v->gemm->binary; /* then everything random is a sign */
    const int same[] = {[W_MINUS] = -1, [W_PLUS] = 1, [W_MOST] = most, [W_ZERO] = binary ? 1 : 0};
    for (size_t i = 0; i < s->rows * s->cols; i++)
        w[i] = (int8_t)(binary && (f == W_RANDOM || f == W_TERNARY)
                            ? 1 - 2 * (int)bn_rng_below(&c->rng, 2)
                        : f == W_RANDOM  ? (int)bn_rng_below(&c->rng, (uint32_t)most + 2) - 1
                        : f == W_TERNARY ? (int)bn_rng_below(&c->rng, 3) - 1
                        : f == W_SIGN    ? (q[i % s->cols] > 0 ? most : -1)
                        : f == W_SIGN1   ? (q[i % s->cols] > 0 ? 1 : -1)
                                         : same[f]);
}

void ck_describe(struct ck *c, const struct shape *s, const char *what, const char *w,
                 const char *x)
{
    static const char *const kind[] = {"tensor", "row", "block"};
    ck_case(c, "%s rows=%zu [%zu,%zu) cols=%zu tokens=%zu scale=%s%zu weights=%s x=%s", what,
            s->rows, s->r0, s->r1, s->cols, s->tok, kind[s->kind], s->block, w, x);
}

static void check_i8(struct ck *c, struct shape s, enum wfill wf, enum qfill qf)
{
    struct mul a = {0};
    ck_describe(c, &s, "i8", ck_wname[wf], ck_qname[qf]);
    ck_fill_scales(c, &a, &s);
    size_t padded = bn_align_up(s.cols, BN_K_ALIGN), stride = padded + s.tok % 2 * 3;
    int8_t *q = ck_buffer(c, (s.tok - 1) * stride + padded), *w = ck_buffer(c, s.rows * s.cols);
    int32_t *sum = ck_buffer(c, s.tok * sizeof *sum);
    float *inv = ck_buffer(c, s.tok * sizeof *inv);
    for (size_t t = 0; t < s.tok; t++) {
        inv[t] = (float)(bn_rng_unit(&c->rng) + 0.01);
        sum[t] = 0;
        for (size_t k = 0; k < padded; k++) {
            int v = qf == Q_RANDOM            ? (int)bn_rng_below(&c->rng, 255) - 127
                    : qf == Q_MAX             ? 127
                    : qf == Q_MIN             ? -127
                    : qf == Q_ZERO            ? 0
                    : qf == Q_TURNS           ? (k % 2 ? -127 : 127)
                    : bn_rng_u64(&c->rng) & 1 ? 127
                                              : -127;
            q[t * stride + k] = (int8_t)(k < s.cols ? v : 0);
            sum[t] += q[t * stride + k];
        }
    }
    ck_fill_weights(c, w, &s, wf, q);
    a.q = q;
    a.x_stride = stride;
    a.sum = sum;
    a.inv = inv;
    ck_compare(c, a, w, naive_i8);
}

static void check_f32(struct ck *c, struct shape s, enum wfill wf, enum ck_fill f)
{
    struct mul a = {0};
    ck_describe(c, &s, "f32", ck_wname[wf], ck_fill_name(f));
    ck_fill_scales(c, &a, &s);
    size_t stride = s.cols + s.tok % 3, n_x = (s.tok - 1) * stride + s.cols;
    float *x = ck_buffer(c, n_x * sizeof *x);
    int8_t *w = ck_buffer(c, s.rows * s.cols);
    ck_fill_f32(c, x, n_x, f);
    ck_fill_weights(c, w, &s, wf == W_SIGN ? W_RANDOM : wf, NULL);
    a.x = x;
    a.x_stride = stride;
    a.how = F32;
    ck_compare(c, a, w, f <= CK_WIDE ? naive_f32 : NULL);
}

/* A quick look at the reference: plain C, which has no ways of its own for some tokens or fills. */
static bool few(const struct ck *c) { return c->quick && c->naive; }

static void check_shape(struct ck *c, struct shape s, bool all_fills)
{
    if (s.r1 == 0) s.r1 = s.rows;
    for (int wf = 0; wf < (all_fills ? W_FILLS : 1); wf++)
        for (int qf = few(c) ? wf % 4 : 0; qf < (all_fills ? Q_FILLS : 1); qf += few(c) ? 4 : 1)
            check_i8(c, s, (enum wfill)wf, (enum qfill)qf);
    check_i8(c, s, W_SIGN, Q_EXTREME);
    for (enum ck_fill f = 0; f < (all_fills ? CK_FILLS : 1); f++) check_f32(c, s, W_RANDOM, f);
    if (all_fills) check_f32(c, s, W_MOST, CK_RANDOM);
}

/* What is enough for many rows is enough for fewer. */
void ck_check_many_bytes(struct ck *c)
{
    const struct bn_gemm *g = c->v->gemm;
    if (!g->many_bytes) return;
    ck_case(c, "many_bytes");
    for (size_t cols = 128; cols <= BN_COLS_MAX; cols *= 4)
        for (size_t rows = 1; rows < 5000; rows++)
            if (g->many_bytes(rows, cols) > g->many_bytes(rows + 1, cols))
                ck_fail(c, "%zu rows of %zu columns want more than %zu", rows, cols, rows + 1);
}

/* Kernels for many tokens: edges of tiles of rows, tokens and columns, the sums' blocks filled with
 * extremes, and rows that are taken in parts. */
static void check_many(struct ck *c)
{
    static const size_t cols[] = {1, 128, 200, 256, 257, 384, 512, 513, 640, 1280};
    static const size_t rows[] = {127, 128, 129, 191, 193, 255, 256, 257, 263, 264, 265, 300};
    static const size_t tok[] = {15, 16, 17, 18, 20, 23, 24, 31, 32, 33, 55, 56, 64, 66, 91};
    size_t group = c->v->gemm->group_rows;
    for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
        for (size_t r = 15; r <= 36; r += 3) {
            struct shape s = {r, cols[i], tok[(i + r) % BN_ARRAY_LEN(tok)], 0, r, BN_SCALE_ROW, 0};
            check_i8(c, s, W_RANDOM, Q_RANDOM);
            check_i8(c, s, W_TERNARY, Q_EXTREME);
        }
    for (int wf = 0; wf < W_FILLS; wf++)
        for (int qf = 0; qf < Q_FILLS; qf++)
            for (size_t n = 512; n <= 1152; n += 128)
                check_i8(c, (struct shape){17, n, 16, 0, 17, BN_SCALE_TENSOR, 0}, (enum wfill)wf,
                         (enum qfill)qf);
    size_t from = bn_div_up(12, group) * group; /* part of the rows */
    check_i8(c, (struct shape){from + 36, 300, 16, from, from + 36, BN_SCALE_ROW, 0}, W_RANDOM,
             Q_RANDOM);
    check_i8(c, (struct shape){32, 130, 400, 0, 32, BN_SCALE_ROW, 0}, W_RANDOM, Q_RANDOM);
    for (size_t i = 0; i < BN_ARRAY_LEN(cols) && !c->quick; i++)
        for (size_t j = 0; j < BN_ARRAY_LEN(rows); j++) {
            struct shape s = {rows[j], cols[i], tok[(i + 3 * j) % BN_ARRAY_LEN(tok)],
                              0,       rows[j], j % 2 ? BN_SCALE_TENSOR : BN_SCALE_ROW,
                              0};
            check_i8(c, s, W_TERNARY, Q_RANDOM);
            check_i8(c, s, W_SIGN1, Q_EXTREME);
        }
    for (int wf = 0; wf < W_FILLS; wf++)
        for (int qf = few(c) ? wf % 4 : 0; qf < Q_FILLS; qf += few(c) ? 4 : 1)
            check_i8(c, (struct shape){260, 640, 32, 0, 260, BN_SCALE_TENSOR, 0}, (enum wfill)wf,
                     (enum qfill)qf);
    check_i8(c, (struct shape){300, 192, 65, from, 300, BN_SCALE_ROW, 0}, W_TERNARY, Q_RANDOM);
    for (size_t t = 1; t <= 33; t += few(c) ? 4 : 1) { /* not enough for a table, and beside it */
        struct shape s = {256 + t % 9, 257 + 31 * (t % 4), t, 0, 256 + t % 9, BN_SCALE_ROW, 0};
        check_i8(c, s, W_TERNARY, Q_RANDOM);
        check_i8(c, s, W_RANDOM, Q_RANDOM);
        check_i8(c, s, W_SIGN1, Q_EXTREME);
        check_i8(c, s, t % 2 ? W_PLUS : W_MINUS, t % 4 < 2 ? Q_MAX : Q_MIN);
    }
    for (size_t r = 1919; r <= 1922; r++) /* one part and two */
        check_i8(c, (struct shape){from + r, 130, 33, from, from + r, BN_SCALE_ROW, 0}, W_TERNARY,
                 Q_RANDOM);
    if (c->v->gemm->block_scales)
        check_i8(c, (struct shape){300, 192, 65, 0, 300, BN_SCALE_BLOCK, 64}, W_TERNARY, Q_RANDOM);
    ck_check_many_bytes(c);
    if (c->quick) return;
    for (enum wfill wf = W_MINUS; wf <= W_PLUS; wf++) { /* the largest sums, and ones that cancel */
        for (enum qfill qf = Q_MAX; qf <= Q_TURNS; qf++)
            check_i8(c, (struct shape){257, 16384, 24, 0, 257, BN_SCALE_TENSOR, 0}, wf, qf);
        check_i8(c, (struct shape){257, BN_COLS_MAX, 24, 0, 257, BN_SCALE_TENSOR, 0}, wf, Q_MAX);
    }
    check_i8(c, (struct shape){257, BN_COLS_MAX, 24, 0, 257, BN_SCALE_ROW, 0}, W_SIGN1, Q_EXTREME);
    check_i8(c, (struct shape){500, BN_COLS_MAX, 24, 0, 500, BN_SCALE_ROW, 0}, W_TERNARY, Q_RANDOM);
    check_i8(c, (struct shape){16, BN_COLS_MAX, 16, 0, 16, BN_SCALE_ROW, 0}, W_SIGN, Q_EXTREME);
    check_i8(c, (struct shape){16, BN_COLS_MAX, 16, 0, 16, BN_SCALE_ROW, 0}, W_SIGN1, Q_EXTREME);
}

/* Shapes of all layouts: one scale a row or matrix. */
static void check_plain(struct ck *c)
{
    static const size_t cols[] = {1,    15,   16,   17,   31,   32,   33,   63,  64,
                                  65,   100,  127,  128,  129,  255,  256,  257, 640,
                                  1279, 1280, 1281, 1408, 2560, 3200, 6912, 8640};
    size_t group = c->v->gemm->group_rows, most = c->quick ? 4 : 0;
    /* tile edges, one kind after the other; of large groups some */
    for (size_t rows = 1; rows <= 2 * group + 1; rows += 1 + group / 16)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols) - 4; i++)
            check_shape(c,
                        (struct shape){rows, cols[i], 1 + (rows + i) % 5, 0, 0,
                                       rows % 2 ? BN_SCALE_TENSOR : BN_SCALE_ROW, 0},
                        false);
    for (size_t i = 0; i < BN_ARRAY_LEN(cols) - most; i++) /* extremes */
        for (size_t tok = 1; tok <= 6; tok += 5)
            check_shape(c, (struct shape){group + 1, cols[i], tok, 0, 0, BN_SCALE_ROW, 0}, true);
    for (size_t rows = 63; rows <= 65; rows++)
        check_shape(c, (struct shape){rows, 257, 3, 0, 0, BN_SCALE_TENSOR, 0}, false);
    for (size_t tok = 1; tok <= 70; tok += tok < 40 ? 1 : 15) /* token tiles */
        check_shape(c, (struct shape){group + 2, 384, tok, 0, 0, BN_SCALE_ROW, 0}, false);
    /* part of the rows */
    for (size_t tok = 1; tok <= 3; tok += 2) {
        size_t rows = 3 * group - 1;
        check_shape(c, (struct shape){rows, 200, tok, 0, group, BN_SCALE_TENSOR, 0}, false);
        check_shape(c, (struct shape){rows, 200, tok, group, 2 * group, BN_SCALE_ROW, 0}, false);
        check_shape(c, (struct shape){rows, 200, tok, 2 * group, rows, BN_SCALE_TENSOR, 0}, false);
    }
    /* the longest row: sums are exact there too */
    for (size_t tok = 1; tok <= 4; tok += 3) {
        struct shape s = {group, BN_COLS_MAX, tok, 0, group, BN_SCALE_ROW, 0};
        check_i8(c, s, W_SIGN, Q_EXTREME);
        check_i8(c, s, W_MOST, Q_MAX);
        check_i8(c, s, W_MINUS, Q_MAX);
    }
}

/* Several tokens: every number of them and of rows at which kernels change their ways, blocks of
 * columns that just fit and that do not, the largest sums in every token. */
static void check_tokens(struct ck *c)
{
    static const size_t rows[] = {1, 4, 6, 11, 12, 13, 18, 20, 21, 25};
    static const size_t cols[] = {1, 130, 1280, 1281, 1400, 2560, 2561};
    static const size_t tok[] = {2, 3, 4, 5, 6, 8, 9, 24, 25};
    size_t group = c->v->gemm->group_rows;
    for (size_t t = 2; t <= 40; t++)
        for (size_t i = 0; i < BN_ARRAY_LEN(rows); i++) {
            size_t n = cols[(t + i) % BN_ARRAY_LEN(cols)];
            struct shape s = {rows[i], n, t, 0, rows[i], t % 2 ? BN_SCALE_ROW : BN_SCALE_TENSOR, 0};
            check_i8(c, s, W_RANDOM, Q_RANDOM);
            if (!c->quick) check_i8(c, s, W_SIGN, Q_EXTREME);
        }
    for (size_t i = 0; i < BN_ARRAY_LEN(tok); i++) {
        for (int wf = 0; wf < W_FILLS; wf++)
            for (int qf = 0; qf < Q_FILLS; qf++)
                check_i8(c, (struct shape){7, 1280, tok[i], 0, 7, BN_SCALE_ROW, 0}, (enum wfill)wf,
                         (enum qfill)qf);
        for (size_t n = BN_COLS_MAX / 2; n <= BN_COLS_MAX && !c->quick; n += BN_COLS_MAX / 2) {
            struct shape s = {7, n, tok[i], 0, 7, BN_SCALE_TENSOR, 0};
            check_i8(c, s, W_SIGN, Q_EXTREME);
            check_i8(c, s, W_MOST, Q_MAX);
            check_i8(c, s, W_MOST, Q_MIN);
            check_i8(c, s, W_MINUS, Q_MAX);
        }
    }
    for (int wf = 0; wf < W_FILLS;
         wf++) /* two tokens: full sums, all columns that have room, more */
        for (size_t n = 4096; n <= 7296; n += 1600) {
            struct shape s = {13, n - wf % 2, 2, 0, 13, BN_SCALE_ROW, 0};
            check_i8(c, s, (enum wfill)wf, (enum qfill)(wf % Q_FILLS));
            check_i8(c, s, (enum wfill)wf, Q_MAX);
            check_i8(c, s, (enum wfill)wf, Q_EXTREME);
        }
    /* part of the rows */
    size_t from = bn_div_up(12, group) * group, to = from + 6 * group;
    for (size_t t = 2; t <= 9; t++)
        check_i8(c, (struct shape){to + 4, 300, t, from, to, BN_SCALE_ROW, 0}, W_RANDOM, Q_RANDOM);
}

static void check_blocks(struct ck *c)
{
    static const size_t blocks[] = {32, 64, 128, 256};
    static const size_t counts[] = {1, 2, 3, 5, 10, 21, 40};
    for (size_t tok = 1; tok <= 70; tok += tok < 40 ? 1 : 15) /* token tiles */
        check_shape(c, (struct shape){6, 384, tok, 0, 0, BN_SCALE_BLOCK, 128}, false);
    for (size_t b = 0; b < BN_ARRAY_LEN(blocks); b++)
        for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++)
            for (size_t tok = 1; tok <= 9; tok += tok == 1 ? 1 : 3)
                check_shape(
                    c,
                    (struct shape){7, blocks[b] * counts[i], tok, 0, 0, BN_SCALE_BLOCK, blocks[b]},
                    tok != 5 && counts[i] < 10);
    /* part of the rows */
    size_t g = c->v->gemm->group_rows;
    check_shape(c, (struct shape){3 * g - 1, 192, 2, g, 3 * g - 1, BN_SCALE_BLOCK, 64}, false);
    check_shape(c, (struct shape){3 * g - 1, 192, 1, g, 2 * g, BN_SCALE_BLOCK, 64}, false);
    for (size_t tok = 1; tok <= 4; tok += 3)
        check_i8(c, (struct shape){4, BN_COLS_MAX, tok, 0, 4, BN_SCALE_BLOCK, 64}, W_MOST, Q_MIN);
}

void check_gemm_t2(struct ck *c)
{
    check_plain(c);
    check_tokens(c);
    check_blocks(c);
    check_many(c);
    ck_check_planes(c);
}

/* Whole groups with many blocks: scales turned over, columns taken in several parts. */
static void check_groups(struct ck *c)
{
    static const size_t counts[] = {7, 8, 9, 13, 20, 60};
    size_t rows = c->v->gemm->group_rows + 3;
    for (size_t block = 32; block <= 256; block *= 2)
        for (size_t i = 0; i < BN_ARRAY_LEN(counts); i++)
            for (size_t tok = 1; tok <= 5; tok++) {
                struct shape s = {rows, block * counts[i], tok, 0, rows, BN_SCALE_BLOCK, block};
                if (!few(c) || counts[i] < 20 || tok < 3) check_shape(c, s, false);
            }
    check_shape(c, (struct shape){rows, 2560, 2, 0, rows, BN_SCALE_BLOCK, 128}, true);
}

void check_gemm_b1(struct ck *c)
{
    check_plain(c);
    check_blocks(c);
    check_groups(c);
    check_many(c);
    ck_check_planes(c);
}

/* The layouts that hold one scale a row or matrix only. */
static void check_unblocked(struct ck *c)
{
    check_plain(c);
    check_tokens(c);
    check_many(c);
    ck_check_planes(c);
}

void check_gemm_t3(struct ck *c) { check_unblocked(c); }
void check_gemm_t5(struct ck *c) { check_unblocked(c); }

/* Made for planes; what takes other activations is the reference in all of them. */
static void check_grouped(struct ck *c)
{
    if (c->naive) {
        check_plain(c);
        check_blocks(c);
    }
    ck_check_planes(c);
}

void check_gemm_g2(struct ck *c) { check_grouped(c); }
void check_gemm_g3(struct ck *c) { check_grouped(c); }
void check_gemm_g5(struct ck *c) { check_grouped(c); }
