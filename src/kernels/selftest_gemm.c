/* SPDX-License-Identifier: Apache-2.0
 * The check at start: matrix kernels. */
#include "base/half.h"
#include "kernels/selftest.h"
#include "kernels/t2.h"

/* One group after the other of w[rows][cols]; false if `bytes` do not suffice. */
static bool pack(uint8_t *dst, size_t bytes, const struct bn_gemm *g, const int8_t *w, size_t rows,
                 size_t cols)
{
    size_t group = g->group_rows, step = g->group_bytes(cols);
    if (bn_div_up(rows, group) * step > bytes) return false;
    for (size_t r = 0; r < rows; r += group)
        g->pack(dst + r / group * step, w + r * cols, bn_min_size(group, rows - r), cols);
    return true;
}

/* All rows of a matrix. */
static struct bn_gemm_args product(float *y, const struct bn_packed *w, size_t n_tok)
{
    return (struct bn_gemm_args){
        .y = y, .y_stride = w->rows, .w = w, .r1 = w->rows, .n_tok = n_tok};
}

/* Seven rows, so that the last group is not full; seven tokens, for the paths of one and of many.
 * mode 0: random weights; 1: each weight the largest where the first token is +127, -1 where it is
 * -127, the largest sum there is. All layouts are compared with the reference of one of them: the
 * results are the same. */
TEST bool test_gemm(const struct bn_gemm *f, enum bn_scale_kind kind, size_t cols, size_t block,
                    int mode)
{
    enum { ROWS = 7, TOK = 7, COLS = 384, BLOCKS = 6 };
    int8_t w[8 * COLS], q[TOK * COLS];
    uint8_t packed[2][8 * COLS];
    float x[COLS], row_scale[ROWS], inv[TOK], a[TOK * ROWS], b[TOK * ROWS];
    uint16_t block_scale[ROWS * BLOCKS], ordered[64 * BLOCKS] = {0};
    int32_t sum[TOK];
    const struct bn_gemm *gemm[2] = {&bn_gemm_t2_c, f};
    struct bn_rng r = {24 + cols};
    struct bn_packed m = {.rows = ROWS,
                          .cols = cols,
                          .scale_kind = kind,
                          .scale = 0.037f,
                          .row_scale = row_scale,
                          .block_scale = block_scale,
                          .block = block};

    fill(row_scale, ROWS, 25);
    fill(x, COLS, 26);
    for (size_t i = 0; i < BN_ARRAY_LEN(block_scale); i++)
        block_scale[i] = bn_f32_to_f16((float)bn_rng_unit(&r));
    for (size_t t = 0; t < TOK; t++) {
        for (size_t i = 0; mode && i < cols; i++) x[i] = bn_rng_u64(&r) & 1 ? 9.0f : -9.0f;
        inv[t] = bn_quant_i8_c(q + t * COLS, &sum[t], x, cols);
        x[t] += 3.0f;
    }
    for (size_t i = 0; i < ROWS * cols; i++)
        w[i] = (int8_t)(!mode && f->binary ? 1 - 2 * (int)bn_rng_below(&r, 2)
                        : !mode            ? (int)bn_rng_below(&r, (uint32_t)f->w_max + 2) - 1
                        : q[i % cols] > 0  ? f->w_max
                                           : -1);

    for (size_t i = 0, n = block ? cols / block : 0; i < ROWS * n; i++)
        ordered[bn_scale_at(f, n, i / n, i % n)] = block_scale[i];
    for (int i = 0; i < 2; i++)
        if (!pack(packed[i], sizeof packed[i], gemm[i], w, ROWS, cols)) return false;
    struct bn_packed mine = m;
    m.data = packed[0];
    mine.data = packed[1];
    mine.block_scale = ordered;
    struct bn_gemm_args want = product(a, &m, TOK), got = product(b, &mine, TOK);
    const struct bn_q8 bytes = {q, COLS, sum, inv};
    bn_gemm_t2_c.mul_i8(&want, &bytes);
    f->mul_i8(&got, &bytes);
    if (!same(a, b, sizeof a)) return false;
    for (got.n_tok = 1; got.n_tok <= 2; got.n_tok++) {
        f->mul_i8(&got, &bytes);
        if (!same(a, b, got.n_tok * ROWS * sizeof a[0])) return false;
    }
    want.n_tok = got.n_tok = 2;
    bn_gemm_t2_c.mul_f32(&want, x, 0);
    f->mul_f32(&got, x, 0);
    return same(a, b, 2 * ROWS * sizeof a[0]);
}

static void fill_many(struct many *m)
{
    struct bn_rng r = {30};
    for (size_t t = 0; t < MANY_TOK; t++) {
        float x[MANY_COLS];
        fill(x, MANY_COLS, 31 + t);
        for (size_t i = 0; t == 0 && i < MANY_COLS; i++) x[i] = bn_rng_u64(&r) & 1 ? 9.0f : -9.0f;
        m->inv[t] = bn_quant_i8_c(m->q + t * MANY_PADDED, &m->sum[t], x, MANY_COLS);
    }
    for (size_t i = 0; i < MANY_ROWS * MANY_COLS; i++)
        m->w[i] = (int8_t)(i / MANY_COLS % 2         ? (int)bn_rng_below(&r, 3) - 1
                           : m->q[i % MANY_COLS] > 0 ? 1
                                                     : -1);
}

/* As few tokens as it takes, some that do not fill anything, and some more than a power of two. */
TEST bool test_many(const struct bn_gemm *f, struct many *m, void *scratch)
{
    struct bn_packed w = {
        .data = m->packed[0], .rows = MANY_ROWS, .cols = MANY_COLS, .scale = 0.037f};
    const size_t tok[] = {f->many_from, 24, MANY_TOK};
    fill_many(m);
    if (!pack(m->packed[0], sizeof m->packed[0], &bn_gemm_t2_c, m->w, MANY_ROWS, MANY_COLS) ||
        !pack(m->packed[1], sizeof m->packed[1], f, m->w, MANY_ROWS, MANY_COLS))
        return false;
    const struct bn_q8 bytes = {m->q, MANY_PADDED, m->sum, m->inv};
    const struct bn_gemm_args want = product(m->a, &w, MANY_TOK);
    bn_gemm_t2_c.mul_i8(&want, &bytes);
    w.data = m->packed[1];
    for (size_t i = 0; i < BN_ARRAY_LEN(tok); i++) {
        if (tok[i] < f->many_from || tok[i] > MANY_TOK) continue;
        memset(m->b, 0, sizeof m->b);
        struct bn_gemm_args got = product(m->b, &w, tok[i]);
        got.scratch = scratch;
        f->mul_i8_many(&got, &bytes);
        if (!same(m->a, m->b, tok[i] * MANY_ROWS * sizeof m->a[0])) return false;
    }
    return true;
}

/* Activations in planes: more rows than any group has, so that the last one is not full; weights of the
 * extremes for the first token. block 0: a scale a row. */
TEST bool test_planes(const struct bn_gemm *f, struct many *m, size_t cols, size_t block)
{
    enum { ROWS = 90, ROOM = 160, BLOCKS = 2, TOK = 3, STRIDE = 2 * MANY_PADDED };
    float unit[TOK * 3], row_scale[ROWS];
    uint16_t scale[ROWS * BLOCKS], ordered[2][ROOM * BLOCKS];
    const struct bn_gemm *gemm[2] = {&bn_gemm_t2_c, f};
    struct bn_rng r = {40 + cols};
    struct bn_packed w = {.rows = ROWS,
                          .cols = cols,
                          .scale_kind = block ? BN_SCALE_BLOCK : BN_SCALE_ROW,
                          .row_scale = row_scale,
                          .block = block};
    fill(row_scale, ROWS, 41);
    for (size_t i = 0; i < BN_ARRAY_LEN(scale); i++)
        scale[i] = bn_f32_to_f16((float)bn_rng_unit(&r));
    for (size_t t = 0; t < TOK; t++) {
        float x[MANY_COLS];
        fill(x, MANY_COLS, 42 + t);
        for (size_t i = 0; t == 0 && i < cols; i++) x[i] = bn_rng_u64(&r) & 1 ? 9.0f : -9.0f;
        bn_quant_planes_c(m->q + t * STRIDE, MANY_PADDED, 2, unit + 3 * t, x, cols);
    }
    for (size_t i = 0; i < ROWS * cols; i++)
        m->w[i] = (int8_t)(i / cols % 2         ? 1 - 2 * (int)bn_rng_below(&r, 2)
                           : m->q[i % cols] > 0 ? 1
                                                : -1);
    for (size_t i = 0; i < 2; i++) {
        memset(ordered[i], 0, sizeof ordered[i]);
        for (size_t k = 0; block && k < ROWS * BLOCKS; k++)
            ordered[i][bn_scale_at(gemm[i], BLOCKS, k / BLOCKS, k % BLOCKS)] = scale[k];
        if (!pack(m->packed[i], sizeof m->packed[i], gemm[i], m->w, ROWS, cols)) return false;
    }
    for (size_t n = 1; n <= 2; n++) /* the first plane alone, and both */
        for (size_t tok = TOK; tok > 0; tok = tok > 1) {
            struct bn_planes x = {m->q, n, MANY_PADDED, STRIDE, unit, 3};
            for (size_t i = 0; i < 2; i++) {
                w.data = m->packed[i];
                w.block_scale = ordered[i];
                const struct bn_gemm_args a = product(i ? m->b : m->a, &w, tok);
                gemm[i]->mul_planes(&a, &x);
            }
            if (!same(m->a, m->b, tok * ROWS * sizeof m->a[0])) return false;
        }
    return true;
}

/* The same by the kernel for many tokens: both planes, more rows than it wants at least. */
TEST bool test_planes_many(const struct bn_gemm *f, struct many *m, void *scratch)
{
    enum { TOK = 8, COLS = 128, STRIDE = 2 * MANY_PADDED };
    float unit[TOK];
    _Static_assert(TOK * STRIDE <= sizeof m->q, "room for planes");
    struct bn_packed w = {.rows = MANY_ROWS, .cols = COLS, .scale = 0.037f};
    struct bn_planes x = {m->q, 2, MANY_PADDED, STRIDE, unit, 1};
    const struct bn_gemm *gemm[2] = {&bn_gemm_t2_c, f};
    fill_many(m);
    for (size_t t = 0; t < TOK; t++) {
        float v[COLS];
        fill(v, COLS, 50 + t);
        bn_quant_planes_c(m->q + t * STRIDE, MANY_PADDED, 2, unit + t, v, COLS);
    }
    for (size_t i = 0; i < 2; i++) {
        if (!pack(m->packed[i], sizeof m->packed[i], gemm[i], m->w, MANY_ROWS, COLS)) return false;
        w.data = m->packed[i];
        struct bn_gemm_args a = product(i ? m->b : m->a, &w, TOK);
        a.scratch = scratch;
        if (i == 0) bn_t2_mul_planes_c(&a, &x);
        else f->mul_planes_many(&a, &x);
    }
    return same(m->a, m->b, TOK * MANY_ROWS * sizeof m->a[0]);
}

/* Then there is nothing to compare. */
static bool is_reference(bn_mul_planes_fn *f)
{
    const struct bn_gemm *all[] = {&bn_gemm_t2_c, &bn_gemm_t3_c, &bn_gemm_t5_c, &bn_gemm_b1_c,
                                   &bn_gemm_g2_c, &bn_gemm_g3_c, &bn_gemm_g5_c};
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++)
        if (all[i]->mul_planes == f) return true;
    return false;
}

bool bn_self_test_layout(const struct bn_gemm *f, struct many *m, void *scratch)
{
    bool good = is_reference(f->mul_planes) ||
                (test_planes(f, m, 300, 0) && (!f->block_scales || test_planes(f, m, 256, 128)));
    if (good && f->mul_planes_many) good = test_planes_many(f, m, scratch);
    /* rows in lanes: made for planes, the rest is the reference */
    if (!good || (f->scale_rows > 1 && !f->binary)) return good;
    good = test_gemm(f, BN_SCALE_TENSOR, 384, 0, 0) && test_gemm(f, BN_SCALE_TENSOR, 300, 0, 1) &&
           test_gemm(f, BN_SCALE_ROW, 333, 0, 0);
    if (good && f->mul_i8_many) good = test_many(f, m, scratch);
    if (!good || !f->block_scales) return good;
    return test_gemm(f, BN_SCALE_BLOCK, 320, 64, 1) && test_gemm(f, BN_SCALE_BLOCK, 384, 128, 0) &&
           test_gemm(f, BN_SCALE_BLOCK, 256, 256, 0);
}
