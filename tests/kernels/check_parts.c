/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of rows and columns by a list: the packing against its definition, the sums against int64
 * arithmetic, and the result against the dense multiplication where the list leaves nothing out. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>

enum weights { W_RANDOM, W_TERNARY, W_SIGN, W_SIGN1, W_FILLS };
enum listed { L_NONE, L_ONE, L_FEW, L_HALF, L_ALL, L_KINDS };
static const char *const wname[] = {"random", "ternary", "sign", "sign +-1"};
static const char *const lname[] = {"none", "one", "few", "half", "all"};

struct parts {
    bool by_rows;
    bn_any_fn *fn;
    float *y;
    struct bn_packed w;
    uint32_t *list;
    size_t n, r0, r1;
    int8_t *q, *trits;
    int32_t sum;
    float inv;
    uint8_t *data;
};

static void run_parts(void *p)
{
    struct parts *a = p;
    if (a->by_rows) ((bn_rows_r2_fn *)a->fn)(a->y, &a->w, a->list, a->n, a->q, a->sum, a->inv);
    else ((bn_cols_c2_fn *)a->fn)(a->y, &a->w, a->r0, a->r1, a->list, a->n, a->q, a->inv);
}

static void run_pack(void *p)
{
    struct parts *a = p;
    size_t cols = a->w.cols, rows = a->w.rows;
    for (size_t r = 0; a->by_rows && r < rows; r++)
        bn_r2_pack(a->data + r * bn_r2_row_bytes(cols), a->trits + r * cols, cols);
    for (size_t r = 0; !a->by_rows && r < rows; r += BN_PART_ROWS)
        bn_c2_pack(a->data, rows, r, a->trits + r * cols, bn_min_size(BN_PART_ROWS, rows - r),
                   cols);
}

/* Every code of every piece by the layouts' description. */
static bool is_packed(struct ck *c, const struct parts *a)
{
    size_t rows = a->w.rows, cols = a->w.cols;
    size_t across = a->by_rows ? cols : rows, lines = a->by_rows ? rows : cols;
    size_t bytes = a->by_rows ? bn_r2_row_bytes(cols) : bn_c2_column_bytes(rows);
    for (size_t i = 0; i < lines; i++)
        for (size_t j = 0; j < bn_align_up(across, 128); j++) {
            size_t r = a->by_rows ? i : j, k = a->by_rows ? j : i;
            int want = j < across ? a->trits[r * cols + k] + 1 : 1;
            int got = a->data[i * bytes + j / 128 * 32 + j % 32] >> 2 * (j % 128 / 32) & 3;
            if (got == want) continue;
            ck_fail(c, "layout: line %zu place %zu is %d, not %d", i, j, got, want);
            return false;
        }
    return true;
}

static void naive_parts(struct ck *c, const struct parts *a)
{
    size_t cols = a->w.cols, n = a->by_rows ? a->n : a->r1 - a->r0;
    for (size_t i = 0; i < n; i++) {
        size_t r = a->by_rows ? a->list[i] : a->r0 + i, terms = a->by_rows ? cols : a->n;
        int64_t s = 0;
        for (size_t j = 0; j < terms; j++) {
            size_t k = a->by_rows ? j : a->list[j];
            s += (int64_t)a->trits[r * cols + k] * a->q[k];
        }
        float want = (float)s * (bn_row_scale(&a->w, r) * a->inv);
        float got = a->by_rows ? a->y[i] : a->y[r];
        if (!ck_near(c, "y", (double)want, (double)got, 0, r)) return;
    }
}

static size_t fill_list(struct ck *c, uint32_t *list, size_t from, enum listed kind)
{
    size_t n = 0;
    for (size_t i = 0; i < from; i++) {
        bool in = kind == L_ALL || (kind == L_HALF && bn_rng_below(&c->rng, 2)) ||
                  (kind == L_FEW && bn_rng_below(&c->rng, 10) == 0) ||
                  (kind == L_ONE && i == from / 2);
        if (in) list[n++] = (uint32_t)i;
    }
    return n;
}

static void fill(struct ck *c, struct parts *a, enum weights wf, bool extreme)
{
    size_t padded = bn_align_up(a->w.cols, BN_K_ALIGN);
    a->q = ck_buffer(c, padded);
    for (size_t k = 0; k < padded; k++) {
        int v = extreme ? (bn_rng_below(&c->rng, 2) ? 127 : -127)
                        : (int)bn_rng_below(&c->rng, 255) - 127;
        a->q[k] = (int8_t)(k < a->w.cols ? v : 0);
        a->sum += a->q[k];
    }
    a->trits = ck_buffer(c, a->w.rows * a->w.cols);
    for (size_t i = 0; i < a->w.rows * a->w.cols; i++) {
        bool up = a->q[i % a->w.cols] > 0;
        a->trits[i] = (int8_t)(wf == W_RANDOM    ? (int)bn_rng_below(&c->rng, 4) - 1
                               : wf == W_TERNARY ? (int)bn_rng_below(&c->rng, 3) - 1
                               : up              ? (wf == W_SIGN ? 2 : 1)
                                                 : -1);
    }
}

static void check_case(struct ck *c, bool by_rows, size_t rows, size_t cols, size_t r0,
                       enum weights wf, bool extreme, enum listed kind)
{
    ck_case(c, "rows=%zu from %zu cols=%zu weights=%s q=%s listed=%s", rows, r0, cols, wname[wf],
            extreme ? "+-127" : "random", lname[kind]);
    float *scale = ck_buffer(c, rows * sizeof *scale);
    for (size_t r = 0; r < rows; r++) scale[r] = (float)(bn_rng_unit(&c->rng) + 0.01);
    struct parts a = {.by_rows = by_rows,
                      .fn = c->ref->fn,
                      .w = {.rows = rows,
                            .cols = cols,
                            .scale_kind = rows % 2 ? BN_SCALE_ROW : BN_SCALE_TENSOR,
                            .scale = 0.0173f,
                            .row_scale = scale},
                      .r0 = r0,
                      .r1 = rows,
                      .inv = 0.031f};
    fill(c, &a, wf, extreme);
    uint32_t *all = malloc((by_rows ? rows : cols) * sizeof *all);
    if (!all) abort();
    a.n = fill_list(c, all, by_rows ? rows : cols, kind);
    a.list = memcpy(ck_buffer(c, a.n * sizeof *all), all, a.n * sizeof *all);
    free(all);
    a.data = ck_buffer(c, by_rows ? rows * bn_r2_row_bytes(cols) : cols * bn_c2_column_bytes(rows));
    a.w.data = a.data;
    if (!ck_run(c, run_pack, &a) || (c->naive && !is_packed(c, &a))) return;
    size_t n_y = by_rows ? a.n : rows;
    float *want = a.y = ck_buffer(c, n_y * sizeof *want);
    if (!ck_run(c, run_parts, &a)) return;
    if (c->naive) {
        naive_parts(c, &a);
        return;
    }
    a.fn = c->v->fn;
    a.y = ck_buffer(c, n_y * sizeof *want);
    if (ck_run(c, run_parts, &a)) ck_same_f32(c, "y", want, a.y, n_y, n_y ? n_y : 1);
}

static void check_parts(struct ck *c, bool by_rows)
{
    static const size_t some[] = {1, 5, 31, 127, 128, 129, 200, 256, 257, 384, 640, 1000};
    for (size_t i = 0; i < BN_ARRAY_LEN(some); i++)
        for (size_t j = 0; j < BN_ARRAY_LEN(some); j++)
            check_case(c, by_rows, some[i], some[j], !by_rows && some[i] > 256 ? 128 : 0,
                       (enum weights)((i + j) % W_FILLS), j % 3 == 0,
                       (enum listed)((2 * i + j) % L_KINDS));
    for (int wf = 0; wf < W_FILLS; wf++)
        for (int l = 0; l < L_KINDS; l++)
            for (int extreme = 0; extreme < 2; extreme++) {
                check_case(c, by_rows, 130, 1100, 0, (enum weights)wf, extreme, (enum listed)l);
                check_case(c, by_rows, 7, 16384, 0, (enum weights)wf, extreme, (enum listed)l);
            }
    /* more rows than a variant keeps sums of, and the widest matrix with the largest sums */
    check_case(c, by_rows, 4500, 300, 0, W_RANDOM, true, L_HALF);
    check_case(c, by_rows, 2560, 40, 0, W_SIGN, true, L_ALL);
    check_case(c, by_rows, 9, BN_COLS_MAX, 0, W_SIGN, true, L_ALL);
    check_case(c, by_rows, 9, BN_COLS_MAX, 0, W_SIGN1, true, L_HALF);
}

void check_rows_r2(struct ck *c) { check_parts(c, true); }
void check_cols_c2(struct ck *c) { check_parts(c, false); }
