/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations of many tokens times matrices of any layout, one scale a row or matrix,
 * without multiplying. Four weights of one row in {-1, 0, +1} are one of 81 things: for 16 tokens and
 * four columns all 81 sums of weights times activations are written to a table, and each row then
 * adds one entry (16 sums, a register). The four columns are i, 32 + i, 64 + i and 96 + i of a step
 * of 128, as they lie together in "t2" and "t3" alike. An entry is one addition for 64 products,
 * where a multiplier needs four instructions; the limit is the first cache, which the eight tables in
 * use (20 KB) must not leave, and through which the rows' sums pass once for 32 columns. Codes are
 * used for 32 tokens, in two halves, before the next ones are read.
 *
 *   codes    [columns / 32][rows]         eight numbers of entries, a byte each: made once a call,
 *                                         by the layout (gemm/tables.h)
 *   tables   [8][81][16 tokens]           int16: 32 columns
 *   part     [2 halves][rows][16 tokens]  int16: sums of up to 256 columns
 *   total    [2 halves][rows][16 tokens]  int32
 *
 * Why the sums are exact: an entry is at most 4 * 127 = 508 in size, and 64 of them (256 columns)
 * are at most 32512 < 2^15.
 *
 * Matrices with a weight +2, few rows (the tables would not pay) and a few tokens beyond the last 16
 * are left to gemm/tokens.c.
 */
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tables.h"

enum {
    STEP = BN_K_ALIGN, /* columns */
    TOKENS = 32,
    HALF = 16,                     /* tokens of a table */
    AT_ONCE = BN_TABLES,           /* in use */
    STEP_PASSES = BN_TABLE_PASSES, /* a word of codes each */
    SUM_PASSES = 2 * STEP_PASSES,  /* passes until a 16-bit sum is full */
    MIN_ROWS = 256,                /* below, building tables costs too much */
    MIN_TOKENS = BN_TABLE_FROM,    /* multiplying is faster for fewer, */
    MIN_REST = 9,                  /* and for fewer beside those for which codes are made anyway:
                                      24 tokens 51.0 MAC/cycle so, 49.5 as two halves, 25 51.9 */
    CODE_BYTES = 6 << 20           /* of codes; else rows are taken in parts */
};

static size_t code_bytes(size_t cols)
{
    return bn_div_up(cols, STEP) * BN_TABLE_PASSES * sizeof(uint64_t);
}

static size_t align_rows(size_t rows)
{
    return bn_div_up(rows, BN_TABLE_ROW_BLOCK) * BN_TABLE_ROW_BLOCK;
}

/* the most rows taken at a time */
static size_t rows_max(size_t cols)
{
    return align_rows(bn_max_size(CODE_BYTES / code_bytes(cols), MIN_ROWS));
}

/* rows taken at a time: all, or equal parts whose codes have the size of a cache */
static size_t part_rows(size_t rows, size_t cols)
{
    size_t parts = bn_div_up(rows, rows_max(cols));
    return bn_max_size(align_rows(bn_div_up(rows, parts)), align_rows(MIN_ROWS));
}

struct memory {
    bn_table *tables;
    int32_t (*total)[HALF];
    int16_t (*part)[HALF];
    uint64_t *code;
    size_t rows; /* room in code, total and part: a multiple of BN_TABLE_ROW_BLOCK */
};

static void *at_or_null(uint8_t *base, size_t at) { return base ? base + at : NULL; }

/* The pieces of the caller's memory for so many rows at a time; with base NULL they are only
 * measured. */
static size_t lay_out(struct memory *m, uint8_t *base, size_t rows, size_t cols)
{
    size_t at = 0;
    m->rows = rows;
    m->tables = (void *)base;
    at += bn_align_up(AT_ONCE * sizeof(bn_table), 64);
    m->total = at_or_null(base, at);
    at += 2 * rows * sizeof m->total[0];
    m->part = at_or_null(base, at);
    at += 2 * rows * sizeof m->part[0];
    m->code = at_or_null(base, at);
    return at + rows * code_bytes(cols);
}

/* Parts of fewer rows may be larger than those of more, so it is measured without them. */
size_t W_NAME(tables_bytes)(size_t rows, size_t cols)
{
    struct memory m;
    size_t most = bn_min_size(align_rows(bn_max_size(rows, MIN_ROWS)), rows_max(cols));
    return lay_out(&m, NULL, most, cols);
}

/* ---- tables ---- */

/* 16 tokens of 16 columns, 8 bits each, to 16 columns of 16 tokens. Rows beyond n are zeros. */
static inline void turn16(int8_t (*out)[TOKENS], const int8_t *q, size_t q_stride, size_t n)
{
    static const int8_t zeros[16];
    h_int a[16];
    for (size_t i = 0; i < 16; i++)
        a[i] = h_loadu_si128((const void *)(i < n ? q + i * q_stride : zeros));
    bn_turn16(a);
    for (size_t i = 0; i < 16; i++) h_storeu_si128((void *)out[i], a[i]);
}

/* columns [128][32 tokens] of a step */
static void turn(int8_t (*out)[TOKENS], const int8_t *q, size_t q_stride, size_t n)
{
    for (size_t k = 0; k < STEP; k += 16)
        for (size_t t = 0; t < TOKENS; t += 16)
            turn16((int8_t(*)[TOKENS])(&out[k][t]), q + t * q_stride + k, q_stride,
                   n > t ? n - t : 0);
}

/* The table for byte i of the pieces: columns i, 32 + i, 64 + i and 96 + i of a step. */
static void build(bn_table out, const int8_t (*column)[TOKENS], size_t i)
{
    bn_table_build(out, column[i], column[32 + i], column[64 + i], column[96 + i]);
}

/* ---- rows ---- */

/* Every row adds its entries of the eight tables. A 16-bit sum begins in the first pass of a series
 * and is added to the total in the last one. */
static inline __attribute__((always_inline)) void sweep(const struct memory *m, size_t half,
                                                        const uint64_t *code, size_t rows,
                                                        const bool first, const bool last)
{
    const bn_table(*t)[AT_ONCE] = (const void *)m->tables;
    w_int *part = (void *)m->part[half * m->rows], *total = (void *)m->total[half * m->rows];
    for (size_t r = 0; r < rows; r++) {
        w_int u = first ? w_setzero_si256() : w_load_si256(part + r);
        BN_ADD_EIGHT(u, t, code[r]);
        if (!last) {
            w_store_si256(part + r, u);
            continue;
        }
        w_int *sum = total + 2 * r;
        w_int low = w_cvtepi16_epi32(w_castsi256_si128(u));
        w_int high = w_cvtepi16_epi32(w_extracti128_si256(u, 1));
        w_store_si256(sum, w_add_epi32(w_load_si256(sum), low));
        w_store_si256(sum + 1, w_add_epi32(w_load_si256(sum + 1), high));
    }
}

static __attribute__((noinline)) void sweep_first(const struct memory *m, size_t half,
                                                  const uint64_t *code, size_t rows)
{
    sweep(m, half, code, rows, true, false);
}
static __attribute__((noinline)) void sweep_next(const struct memory *m, size_t half,
                                                 const uint64_t *code, size_t rows)
{
    sweep(m, half, code, rows, false, false);
}
static __attribute__((noinline)) void sweep_last(const struct memory *m, size_t half,
                                                 const uint64_t *code, size_t rows)
{
    sweep(m, half, code, rows, false, true);
}

/* y from the totals, eight by eight turned over */
static void finish(const struct memory *m, const struct bn_gemm_args *a, const float *inv)
{
    const struct bn_packed *w = a->w;
    const size_t r0 = a->r0, r1 = a->r1, nt = a->n_tok, y_stride = a->y_stride;
    float *y = a->y;
    for (size_t r = 0; r < r1 - r0; r += 8) {
        size_t n = bn_min_size(8, r1 - r0 - r);
        w_f32 scale = w->scale_kind == BN_SCALE_ROW ? bn_load_head(w->row_scale + r0 + r, n)
                                                    : w_set1_ps(w->scale);
        for (size_t t = 0; t < nt; t += 8) {
            w_int v[8];
            for (size_t i = 0; i < 8; i++)
                v[i] = w_load_si256((void *)&m->total[t / HALF * m->rows + r + i][t % HALF]);
            bn_transpose8_i32(v);
            for (size_t i = 0; i < 8 && t + i < nt; i++) {
                w_f32 k = w_mul_ps(scale, w_set1_ps(inv[t + i]));
                w_f32 x = w_mul_ps(w_cvtepi32_ps(v[i]), k);
                float *out = y + (t + i) * y_stride + r0 + r;
                if (n == 8) w_storeu_ps(out, x); /* with a mask it takes much longer */
                else bn_store_head(out, n, x);
            }
        }
    }
}

/* Rows whose codes are made, and up to 32 tokens. */
static void mul_tables(const struct memory *m, const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    _Alignas(32) int8_t column[STEP][TOKENS];
    size_t passes = bn_div_up(a->w->cols, STEP) * STEP_PASSES;
    const size_t rows = a->r1 - a->r0, nt = a->n_tok, q_stride = x->stride;
    const int8_t *q = x->q;
    memset(m->total, 0, 2 * m->rows * sizeof m->total[0]);
    for (size_t p = 0; p < passes; p++) {
        const uint64_t *code = m->code + p * m->rows;
        size_t byte = p % STEP_PASSES * AT_ONCE;
        if (byte == 0) turn(column, q + p / STEP_PASSES * STEP, q_stride, nt);
        for (size_t half = 0; half * HALF < nt; half++) {
            for (size_t i = 0; i < AT_ONCE; i++)
                build(m->tables[i], (const int8_t(*)[TOKENS])(&column[0][half * HALF]), byte + i);
            if (p % SUM_PASSES == 0) sweep_first(m, half, code, rows);
            else if ((p + 1) % SUM_PASSES == 0 || p + 1 == passes) sweep_last(m, half, code, rows);
            else sweep_next(m, half, code, rows);
        }
    }
    finish(m, a, x->inv);
}

void W_NAME(mul_tables)(const struct bn_gemm_args *a, const struct bn_q8 *x, bn_codes_fn *codes,
                        bn_mul_i8_fn *otherwise)
{
    const struct bn_packed *w = a->w;
    size_t n_tok = a->n_tok, n = n_tok / HALF * HALF, n_rows = a->r1 - a->r0;
    if (n_tok - n >= (n > 0 ? MIN_REST : MIN_TOKENS)) n = n_tok;
    struct memory m;
    lay_out(&m, a->scratch, part_rows(n_rows, w->cols), w->cols);
    if (w->scale_kind == BN_SCALE_BLOCK || n_rows < MIN_ROWS) n = 0;
    for (size_t r = a->r0; r < a->r1; r += m.rows) {
        struct bn_gemm_args rows = bn_gemm_rows(a, r, bn_min_size(a->r1, r + m.rows));
        size_t done = n > 0 && codes(m.code, m.rows, w, r, rows.r1) ? n : 0;
        for (size_t t = 0; t < done; t += TOKENS) {
            struct bn_gemm_args some = bn_gemm_tokens(&rows, t, bn_min_size(TOKENS, done - t));
            struct bn_q8 q = bn_q8_from(x, t);
            mul_tables(&m, &some, &q);
        }
        if (done == n_tok) continue;
        struct bn_gemm_args rest = bn_gemm_tokens(&rows, done, n_tok - done);
        struct bn_q8 q = bn_q8_from(x, done);
        otherwise(&rest, &q);
    }
}
