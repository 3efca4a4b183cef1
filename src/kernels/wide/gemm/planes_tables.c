/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations in planes of many tokens times matrices whose rows stand in lanes, without
 * multiplying: by tables, as in gemm/tables.c. A table is for a quad of columns and 16 vectors:
 * those of 16 tokens or, with two planes, of 8 tokens: first all of their high planes, then the low
 * ones. Eight tables, 32 columns, are in use at a time; 16-bit sums of rows are kept between them and
 * folded into floats at the end of a piece.
 *
 *   codes   [columns / 32][rows]           eight numbers of entries, a byte each: made once a call
 *   part    [2 halves][rows][16 vectors]   int16: of a piece
 *   total   [2 halves][rows][tokens]       floats
 *   scale   [rows]                         of the piece
 *
 * Why the sums are exact: an entry is at most 4 * 127 in size, and a piece has 32 of them, at most
 * 16256 < 2^15. */
#include "kernels/wide/gemm/planes.h"
#include "kernels/wide/gemm/t2.h"
#include "kernels/wide/gemm/tables.h"

enum {
    VECTORS = BN_TABLE_VECTORS,
    PASS = BN_TABLES * BN_QUAD, /* columns */
    MIN_ROWS = 256,             /* below, building tables costs too much */
    MIN_VECTORS = 12,           /* multiplying is faster for fewer, */
    MIN_REST = 9,               /* and for fewer beside those for which codes are made anyway */
    CODE_BYTES = 6 << 20        /* of codes; else rows are taken in parts */
};

struct memory {
    bn_table *tables;
    float *total, *scale;
    int16_t (*part)[VECTORS];
    uint64_t *code;
    size_t rows; /* room for so many: whole groups */
};

/* Vectors in two halves; a half without tokens has none. */
struct round {
    const struct bn_planes *x;
    size_t t0, n_tok, half_tokens;
};

/* ---- memory ---- */

static size_t passes(size_t cols) { return bn_align_up(cols, BN_K_ALIGN) / PASS; }

static size_t whole_groups(size_t rows, size_t group) { return bn_div_up(rows, group) * group; }

/* The most rows taken at a time. */
static size_t rows_max(size_t cols, size_t group)
{
    return whole_groups(bn_max_size(CODE_BYTES / (passes(cols) * sizeof(uint64_t)), MIN_ROWS),
                        group);
}

static size_t part_rows(size_t rows, size_t cols, size_t group)
{
    size_t parts = bn_div_up(rows, rows_max(cols, group));
    return whole_groups(bn_max_size(bn_div_up(rows, parts), MIN_ROWS), group);
}

static size_t lay_out(struct memory *m, uint8_t *base, size_t rows, size_t cols)
{
    size_t used = 0;
#define PIECE(to, bytes) (to) = base ? (void *)(base + used) : NULL, used += bn_align_up(bytes, 64)
    m->rows = rows;
    PIECE(m->tables, BN_TABLES * sizeof(bn_table));
    PIECE(m->total, 2 * rows * VECTORS * sizeof *m->total);
    PIECE(m->scale, rows * sizeof *m->scale);
    PIECE(m->part, 2 * rows * sizeof *m->part);
    PIECE(m->code, passes(cols) * rows * sizeof *m->code);
#undef PIECE
    return used;
}

size_t W_NAME(planes_tables_bytes)(size_t rows, size_t cols, size_t group)
{
    struct memory m;
    size_t most = whole_groups(bn_max_size(rows, MIN_ROWS), group);
    return lay_out(&m, NULL, bn_min_size(most, rows_max(cols, group)), cols);
}

/* ---- codes ---- */

/* Of one field and four quads from p on: their numbers in the bytes of a lane. */
ALWAYS w_int four_numbers(const uint8_t *p, const int shift)
{
    const w_int digits = w_set1_epi32(1 | 3 << 8 | 9 << 16 | 27 << 24);
    const w_int one = w_set1_epi16(1), second = w_set1_epi16(256);
    w_int pair[4];
    for (size_t i = 0; i < 4; i++) {
        w_int v = w_loadu_si256((const void *)(p + i * BN_QUAD * BN_LANE_ROWS));
        v = w_and_si256(w_srli_epi16(v, shift), w_set1_epi8(3));
        pair[i] = w_madd_epi16(w_maddubs_epi16(v, digits), i % 2 ? second : one);
    }
    return w_or_si256(w_add_epi32(pair[0], pair[1]),
                      w_slli_epi32(w_add_epi32(pair[2], pair[3]), 16));
}

ALWAYS void field_codes(uint64_t *code, const uint8_t *p, const int shift)
{
    w_int a = four_numbers(p, shift), b = four_numbers(p + 4 * BN_QUAD * BN_LANE_ROWS, shift);
    w_int low = w_unpacklo_epi32(a, b), high = w_unpackhi_epi32(a, b);
    w_storeu_si256((void *)code, w_permute2x128_si256(low, high, 0x20));
    w_storeu_si256((void *)(code + 4), w_permute2x128_si256(low, high, 0x31));
}

/* Of all rows of the groups from r on, for all passes. */
static void make_codes(const struct memory *m, const struct bn_packed *w, size_t r0, size_t r1,
                       const struct bn_planes_plan *l)
{
    _Alignas(32) uint8_t room[BN_STEP_QUADS * BN_QUAD * BN_LANE_ROWS];
    size_t padded = bn_align_up(w->cols, BN_K_ALIGN), part_of = l->fields * BN_LANE_ROWS;
    for (size_t r = r0; r < r1; r += l->group_rows)
        for (size_t k = 0; k < padded; k += BN_K_ALIGN)
            for (size_t part = 0; part < l->parts; part++) {
                const uint8_t *p = l->codes(room, w, r, k, BN_K_ALIGN, part);
                for (size_t i = 0; i < BN_K_ALIGN / PASS; i++, p += PASS * BN_LANE_ROWS) {
                    uint64_t *code = m->code + (k / PASS + i) * m->rows + (r - r0) + part * part_of;
                    field_codes(code, p, 0);
                    field_codes(code + BN_LANE_ROWS, p, 2);
                    field_codes(code + 2 * BN_LANE_ROWS, p, 4);
                    if (l->fields == 4) field_codes(code + 3 * BN_LANE_ROWS, p, 6);
                }
            }
}

/* ---- tables ---- */

/* Columns [PASS][16 vectors] of a half, turned over. */
static void turn(int8_t (*out)[VECTORS], const struct round *a, size_t half, size_t col)
{
    static const int8_t zeros[PASS];
    const struct bn_planes *x = a->x;
    for (size_t k = 0; k < PASS; k += 16) {
        h_int u[16];
        for (size_t i = 0; i < VECTORS; i++) {
            size_t t = half * a->half_tokens + i % a->half_tokens, plane = i / a->half_tokens;
            const int8_t *q =
                t < a->n_tok ? x->q + (a->t0 + t) * x->stride + plane * x->plane_stride + col + k
                             : zeros;
            u[i] = h_loadu_si128((const void *)q);
        }
        bn_turn16(u);
        for (size_t i = 0; i < 16; i++) h_storeu_si128((void *)out[k + i], u[i]);
    }
}

static void build(const struct memory *m, const struct round *a, size_t half, size_t col)
{
    int8_t column[PASS][VECTORS];
    turn(column, a, half, col);
    for (size_t i = 0; i < BN_TABLES; i++)
        bn_table_build(m->tables[i], column[BN_QUAD * i], column[BN_QUAD * i + 1],
                       column[BN_QUAD * i + 2], column[BN_QUAD * i + 3]);
}

/* ---- rows ---- */

/* total[8 tokens] += sums * (scale * units) */
ALWAYS void fold8(float *total, w_int s, w_f32 scale, w_f32 units)
{
    w_f32 p = w_mul_ps(w_cvtepi32_ps(s), w_mul_ps(scale, units));
    w_store_ps(total, w_add_ps(w_load_ps(total), p));
}

/* Every row adds its entries of the eight tables. A sum begins in the first pass of a piece and is folded
 * in the last one. */
ALWAYS void sweep(const struct memory *m, size_t half, const uint64_t *code, size_t rows,
                  const float *units, const bool first, const bool last, const size_t n_planes)
{
    const bn_table(*t)[BN_TABLES] = (const void *)m->tables;
    size_t tokens = VECTORS / n_planes;
    w_int *part = (void *)m->part[half * m->rows];
    float *total = m->total + half * m->rows * tokens;
    w_f32 units0 = w_loadu_ps(units), units1 = w_loadu_ps(units + 8);
    for (size_t r = 0; r < rows; r++) {
        w_int u = first ? w_setzero_si256() : w_load_si256(part + r);
        BN_ADD_EIGHT(u, t, code[r]);
        if (!last) {
            w_store_si256(part + r, u);
            continue;
        }
        w_int a = w_cvtepi16_epi32(w_castsi256_si128(u));
        w_int b = w_cvtepi16_epi32(w_extracti128_si256(u, 1));
        w_f32 scale = w_broadcast_ss(m->scale + r);
        if (n_planes == 2) {
            fold8(total + 8 * r, bn_lane_both(a, b), scale, units0);
        } else {
            fold8(total + 16 * r, a, scale, units0);
            fold8(total + 16 * r + 8, b, scale, units1);
        }
    }
}

typedef void sweep_fn(const struct memory *m, size_t half, const uint64_t *code, size_t rows,
                      const float *units);
#define SWEEP(name, first, last, planes)                                            \
    static __attribute__((noinline)) void name(const struct memory *m, size_t half, \
                                               const uint64_t *code, size_t rows,   \
                                               const float *units)                  \
    {                                                                               \
        sweep(m, half, code, rows, units, first, last, planes);                     \
    }
SWEEP(sweep_first, true, false, 1)
SWEEP(sweep_next, false, false, 1)
SWEEP(sweep_last_1, false, true, 1)
SWEEP(sweep_last_2, false, true, 2)
SWEEP(sweep_only_1, true, true, 1)
SWEEP(sweep_only_2, true, true, 2)
#undef SWEEP

static sweep_fn *sweep_of(bool first, bool last, size_t n_planes)
{
    if (first && last) return n_planes == 2 ? sweep_only_2 : sweep_only_1;
    if (last) return n_planes == 2 ? sweep_last_2 : sweep_last_1;
    return first ? sweep_first : sweep_next;
}

/* The scales of a piece for the rows of the groups from r on, as floats. */
static void load_scales(const struct memory *m, const struct bn_packed *w,
                        const struct bn_pieces *in, size_t r0, size_t r1, size_t group,
                        size_t piece)
{
    for (size_t r = r0; r < r1; r += group) {
        const uint16_t *from = bn_piece_scales(w, in, r, group, piece);
        for (size_t i = 0; i < group; i += 8)
            w_storeu_ps(m->scale + (r - r0) + i, from ? bn_load_f16(from + i) : w_set1_ps(1));
    }
}

/* The units of a half's tokens for a piece; of tokens that do not exist, 0. */
static void load_units(float units[VECTORS], const struct round *a, size_t half, size_t group)
{
    for (size_t i = 0; i < VECTORS; i++) {
        size_t t = half * a->half_tokens + i;
        bool is = i < a->half_tokens && t < a->n_tok;
        units[i] = is ? a->x->unit[(a->t0 + t) * a->x->unit_stride + group] : 0;
    }
}

/* y from the totals, eight by eight turned over */
static void finish(const struct bn_gemm_args *out, const struct memory *m, const struct round *a)
{
    const struct bn_packed *w = out->w;
    const size_t tokens = a->half_tokens, r0 = out->r0, r1 = out->r1, y_stride = out->y_stride;
    float *y = out->y;
    for (size_t r = 0; r < r1 - r0; r += 8)
        for (size_t t = 0; t < a->n_tok; t += 8) {
            w_int v[8];
            const float *from = m->total + (t / tokens * m->rows + r) * tokens + t % tokens;
            for (size_t i = 0; i < 8; i++) v[i] = w_load_si256((const void *)(from + i * tokens));
            bn_transpose8_i32(v);
            for (size_t i = 0; i < 8 && t + i < a->n_tok; i++)
                bn_lane_store(y + (a->t0 + t + i) * y_stride, w, r0 + r, r1, w_castsi256_ps(v[i]));
        }
}

/* Rows whose codes are made, and the tokens of a round. */
static void mul_round(const struct bn_gemm_args *out, const struct memory *m, const struct round *a,
                      size_t group)
{
    const struct bn_packed *w = out->w;
    const size_t r0 = out->r0, r1 = out->r1;
    struct bn_pieces in = bn_pieces(w);
    size_t n_planes = a->x->n_planes, halves = bn_div_up(a->n_tok, a->half_tokens);
    memset(m->total, 0, 2 * m->rows * a->half_tokens * sizeof *m->total);
    for (size_t i = 0; i < in.count; i++) {
        load_scales(m, w, &in, r0, r1, group, i);
        for (size_t k = i * in.cols; k < (i + 1) * in.cols; k += PASS)
            for (size_t half = 0; half < halves; half++) {
                float units[VECTORS];
                load_units(units, a, half, k / BN_K_ALIGN);
                build(m, a, half, k);
                sweep_of(k == i * in.cols, k + PASS == (i + 1) * in.cols,
                         n_planes)(m, half, m->code + k / PASS * m->rows, r1 - r0, units);
            }
    }
    finish(out, m, a);
}

void W_NAME(mul_planes_tables)(const struct bn_gemm_args *a, const struct bn_planes *x,
                               const struct bn_planes_plan *l, bn_mul_planes_fn *otherwise)
{
    struct round some = {.x = x, .half_tokens = VECTORS / x->n_planes};
    size_t n_tok = a->n_tok, n_rows = a->r1 - a->r0;
    size_t n = n_tok / some.half_tokens * some.half_tokens, rest = (n_tok - n) * x->n_planes;
    if (rest >= (n > 0 ? MIN_REST : MIN_VECTORS)) n = n_tok;
    if (n_rows < MIN_ROWS) n = 0;
    struct memory m;
    lay_out(&m, a->scratch, part_rows(n_rows, a->w->cols, l->group_rows), a->w->cols);
    for (size_t r = a->r0; r < a->r1; r += m.rows) {
        struct bn_gemm_args rows = bn_gemm_rows(a, r, bn_min_size(a->r1, r + m.rows));
        if (n > 0) make_codes(&m, a->w, r, rows.r1, l);
        for (some.t0 = 0; some.t0 < n; some.t0 += some.n_tok) {
            some.n_tok = bn_min_size(2 * some.half_tokens, n - some.t0);
            mul_round(&rows, &m, &some, l->group_rows);
        }
        if (n == n_tok) continue;
        struct bn_gemm_args others = bn_gemm_tokens(&rows, n, n_tok - n);
        struct bn_planes left = bn_planes_from(x, n);
        otherwise(&others, &left);
    }
}
