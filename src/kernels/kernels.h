/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations, their contracts, and the table of chosen variants.
 *
 * A kernel is pure arithmetic on the memory it is given: no threads, no allocation, no I/O. The C
 * version in kernels/ref is the definition of the result; every other variant gives the same bits
 * (docs/inside/numerics.md):
 *  - integer sums are exact, in any order;
 *  - float sums run in BN_LANES lanes: element i goes to lane i % 16, each step is one rounded
 *    multiplication and one rounded addition (never fused), lanes start at +0 and are then added by
 *    the tree l[j] += l[j+8], l[j+4], l[j+2], l[j+1]; those of rotate in pieces, as stated there;
 *  - division and square root are IEEE, subnormals are kept; exp is bn_exp() of kernels/exp.h;
 *  - where a result is a NaN, that it is a NaN is stated, its bits are not.
 * Pointers need only the alignment of their type, and no variant reads or writes beyond the stated
 * extents.
 *
 * Adding a variant: write the function, add its line to kernels.def and its file to meson.build.
 * The prototype, the selection, the listing, the tests and the timings follow from the line.
 */
#ifndef BN_KERNELS_KERNELS_H
#define BN_KERNELS_KERNELS_H

#include "base/base.h"
#include "base/machine/cpu.h"
#include "base/status.h"

enum {
    BN_LANES = 16,
    BN_K_ALIGN = 128,              /* rows of int8 activations are padded with zeros to this */
    BN_COLS_MAX = 32768,           /* columns of a packed matrix */
    BN_SCREEN2_ROWS = 16,          /* rows of a group of a coarse copy */
    BN_SCREEN2_BLOCK = BN_K_ALIGN, /* columns that share a weight there */
    BN_SCREEN2_BASE = 192,         /* the least weight; a byte is added to it */
    BN_SCREEN2_COLS_MAX = 12288,
    BN_ROTATE_BLOCK = BN_SCREEN2_BLOCK, /* columns that are rotated together */
    BN_ROTATE_STRIP = 16,               /* of them are neighbours in a rotation's matrix */
    BN_ROTATE_PIECE = 32,               /* products of one sum there */
    BN_DENSE8_ROWS = 4                  /* rows of a group of a matrix with one byte a weight */
};

/* From token to token of int8 activations: an odd multiple, since tokens a power of two apart would
 * share the same few lines of the caches. */
static inline size_t bn_q8_stride(size_t cols)
{
    return bn_align_up(cols, BN_K_ALIGN) | BN_K_ALIGN;
}

/* ---- vectors of floats ---- */

/* y[i] = g[i] * (x[i] * r), r = 1 / sqrt(sum(x*x) / n + eps); sum in lanes. y may be x. */
typedef void bn_rmsnorm_fn(float *y, const float *x, const float *g, size_t n, float eps);

/* Activations to int8: m = max(max|x|, 1e-5), q[i] = round_half_even(x[i] * (127 / m)) within
 * +-127; the rest of q up to n rounded up to BN_K_ALIGN is set to 0. Returns m / 127 and in *sum
 * the sum of q. A NaN in x counts as nothing in the maximum and becomes -127. */
typedef float bn_quant_i8_fn(int8_t *q, int32_t *sum, const float *x, size_t n);

/* Activations of models that were trained with floats, to integers, each group of BN_K_ALIGN columns
 * by itself (the last may be smaller): with m = max|x| and most = 127, or BN_PLANES_MOST with two
 * planes, unit = m / most and k[i] = round_half_even(x[i] * (most / m)). One plane holds k. Two hold
 * h and l, k = 255 h + l, both within +-127; they lie plane_stride bytes apart. The rest of a plane
 * up to n rounded up to BN_K_ALIGN is set to 0. A group with m < 2^-100 is zeros with unit 0; one
 * with a value that is not finite is zeros, and its unit a NaN: so are then the results. */
enum { BN_PLANES_MOST = 255 * 127 + 127 };
typedef void bn_quant_planes_fn(int8_t *q, size_t plane_stride, size_t n_planes, float *unit,
                                const float *x, size_t n);

typedef void bn_add_fn(float *y, const float *x, size_t n); /* y += x */

/* y[i] = act(g[i]) * u[i]; relu2: r = max(+0, g), r * r; silu: g / (1 + exp(-g)). y may be g or u.
 * A NaN in g stays one. */
typedef void bn_relu2_mul_fn(float *y, const float *g, const float *u, size_t n);
typedef void bn_silu_mul_fn(float *y, const float *g, const float *u, size_t n);

/* y[i] = x[i] * (1 / (1 + exp(-g[i]))). y may be x or g. A NaN in g gives one. */
typedef void bn_sigmoid_mul_fn(float *y, const float *x, const float *g, size_t n);

/* y[i] = (x[i] * r) * scale, r = 1 / sqrt(sum(x*x) + eps); sum in lanes. y may be x. */
typedef void bn_l2norm_fn(float *y, const float *x, size_t n, float eps, float scale);

/* Rotates the first 2*half elements of each of n_heads vectors of `dim` floats, in pairs
 * (i, i+half): a' = a*cos - b*sin, b' = b*cos + a*sin. cs: [half] cosines, then [half] sines. */
typedef void bn_rope_fn(float *x, size_t n_heads, size_t dim, size_t half, const float *cs);

/* ---- rows of dense matrices to f32: exactly (f16, bf16) or as the format defines ----
 * q8_0, q4_0: n is a multiple of 32; q4_k, q6_k: of 256. */
typedef void bn_row_fn(float *y, const void *row, size_t n);
typedef bn_row_fn bn_row_f16_fn, bn_row_bf16_fn, bn_row_q8_0_fn, bn_row_q4_0_fn, bn_row_q4_k_fn,
    bn_row_q6_k_fn;
typedef void bn_f32_to_f16_fn(uint16_t *y, const float *x, size_t n); /* round half even */

/* ---- keys, values and attention: kernels/attention.h ---- */
#include "kernels/attention.h"

/* y[t * y_stride + r] = lane sum of rows[r * n + i] * x[t * x_stride + i] */
typedef void bn_dots_fn(float *y, size_t y_stride, const float *rows, size_t n_rows, const float *x,
                        size_t x_stride, size_t n_tok, size_t n);

/* One token with rows of halves, widened as by row_f16: y[r] = lane sum of rows[r * n + i] * x[i]. */
typedef void bn_dots_f16_fn(float *y, const void *rows, size_t n_rows, const float *x, size_t n);

/* A product of low rank, added: y[i] += scale * (sum over j < rank of b[j * b_stride + i] * u[j]), the
 * sum from +0 on and in order. rank >= 1. */
typedef void bn_low_rank_fn(float *y, const float *b, size_t b_stride, const float *u, size_t rank,
                            size_t n, float scale);

/* Vectors of BN_ROTATE_BLOCK numbers times a square matrix, whose element of row i and column j is
 * m[bn_rotate_at(i, j)]: y[t * stride + i] is the sum of its products with x[t * stride + j], in pieces
 * of BN_ROTATE_PIECE, each from +0 on and in order; pieces are then added in order. */
typedef void bn_rotate_fn(float *y, const float *m, const float *x, size_t stride, size_t n);

static inline size_t bn_rotate_at(size_t i, size_t j)
{
    return (i / BN_ROTATE_STRIP * BN_ROTATE_BLOCK + j) * BN_ROTATE_STRIP + i % BN_ROTATE_STRIP;
}

/* ---- coarse screening: rows of two bits a weight, blocks of columns with a weight of their own ----
 * The copy holds codes c in 0 .. 3, which stand for 2 c - 3, and a byte u for every row and block
 * of 128 columns. With k the vector, block by block
 *   sum = sum over blocks of (192 + u) * (2 C - 3 K),  C = sum of c[j] * k[j], K = sum of k[j],
 * an exact int32: |sum| <= 96 * 447 * 3 * 127 * 128 < 2^31. Group after group of 16 rows; a group is
 *   u      [blocks][16 rows], filled up to a multiple of 64 bytes
 *   codes  [blocks][8 pieces][16 rows][4 bytes]: of piece p, byte i of a row holds the codes of
 *          columns 16 p + i, 16 p + 4 + i, 16 p + 8 + i, 16 p + 12 + i, from its lowest bits on.
 * Rows are filled up to whole groups and columns to whole blocks: k is zero there, so that nothing
 * depends on their codes. */
struct bn_screen2 {
    const uint8_t *data;
    size_t rows, cols; /* cols <= BN_SCREEN2_COLS_MAX */
    size_t ahead;      /* as in struct bn_packed; for a vector alone */
};

struct bn_screen2_vector {
    const int8_t *k;          /* within +-127, zeros from cols up to BN_K_ALIGN */
    const int32_t *block_sum; /* [blocks] K */
};

/* Rows [r0, r1), r0 a multiple of BN_SCREEN2_ROWS, and vector after vector: sum[i * stride + r - r0]
 * for v[i]. The rows are read once for every few vectors: they should be so few that they stay in
 * the cache. */
typedef void bn_screen2_fn(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0,
                           size_t r1, const struct bn_screen2_vector *v, size_t n_vec);

size_t bn_screen2_group_bytes(size_t cols);
/* One group: code[n_rows][cols] and u[n_rows][blocks]; n_rows <= BN_SCREEN2_ROWS. */
void bn_screen2_pack(uint8_t *dst, const uint8_t *code, const uint8_t *u, size_t n_rows,
                     size_t cols);

/* ---- dense matrices rounded to one byte a weight ----
 * A row is about scale * q[j], a vector about unit * k[j]. With S = sum of q[j] * k[j], exact:
 *   y = (float)((double)S * ((double)scale * unit))
 * Group after group of BN_DENSE8_ROWS rows; for every 64 columns a group has 64 bytes of each row.
 * Columns are padded to BN_K_ALIGN and rows to whole groups with q = 0. */
struct bn_dense8 {
    const int8_t *data; /* within +-127 */
    size_t rows, cols;
    const float *scale; /* [rows] */
    size_t ahead;       /* as in struct bn_packed */
};

struct bn_dense8_vector {
    const int16_t *k; /* within +-32767, zeros from cols up to BN_K_ALIGN */
    double unit;
};

/* Rows [r0, r1), r0 a multiple of BN_DENSE8_ROWS: y[i * y_stride + r - r0] for v[i]. The rows are
 * read once for every few vectors, as in screening. */
typedef void bn_dense8_fn(float *y, size_t y_stride, const struct bn_dense8 *w, size_t r0,
                          size_t r1, const struct bn_dense8_vector *v, size_t n_vec);

size_t bn_dense8_group_bytes(size_t cols);
/* One group from x[n_rows][cols]: scale = max|x| / 127, q = round_half_even(x * (127 / max|x|)), in
 * double. Of a row with a value that is not finite, scale is a NaN. */
void bn_dense8_pack(int8_t *dst, float *scale, const float *x, size_t n_rows, size_t cols);

/* ---- gated delta net (docs/inside/numerics.md, "Delta net") ---- */

enum {
    BN_CONV_TAPS_MAX = 8,
    BN_DELTA_DIM_MAX = 256,      /* of a head's keys and of its values */
    BN_HADAMARD_BLOCK_MAX = 4096 /* a power of two from 2 on */
};

/* A causal convolution of each channel by itself, and SiLU, in place:
 *   s = sum over j = 0 .. taps - 1, in order and from +0, of w[j][c] * x[t - (taps - 1) + j][c]
 *   x[t][c] = s / (1 + exp(-s))
 * with the inputs as they were. Those of tokens before the first one are in `before`. */
struct bn_conv_args {
    float *x;        /* [n][x_stride], n_channels used */
    size_t x_stride; /* at least n_channels */
    size_t n;
    const float *before; /* [taps - 1][before_stride], the oldest first */
    size_t before_stride;
    const float *w; /* [taps][w_stride], that of the oldest input first */
    size_t w_stride;
    size_t n_channels, taps; /* taps: 1 .. BN_CONV_TAPS_MAX */
};
typedef void bn_conv_silu_fn(const struct bn_conv_args *a);

/* The input so many tokens before token t. */
static inline const float *bn_conv_input(const struct bn_conv_args *a, size_t t, size_t back)
{
    if (t >= back) return a->x + (t - back) * a->x_stride;
    return a->before + (a->taps - 1 - (back - t)) * a->before_stride;
}

/* The recurrence of one head over n tokens, in order. Columns of the state do not know each other;
 * sums over i = 0 .. k_dim - 1 run in order from +0, every operation is rounded by itself:
 *   p[i][j] = s[i][j] * decay
 *   u[j] = sum_i p[i][j] * k[i]
 *   d[j] = (v[j] - u[j]) * beta
 *   s[i][j] = p[i][j] + k[i] * d[j]
 *   o[j] = sum_i s[i][j] * q[i]
 * The state is read and written once for all tokens if it is walked through in blocks of columns. */
struct bn_delta_args {
    float *s;                  /* [k_dim][v_dim] */
    size_t k_dim, v_dim;       /* 1 .. BN_DELTA_DIM_MAX */
    const float *q, *k;        /* token t: at t * qk_stride; q may be NULL if o is */
    const float *v;            /* at t * v_stride */
    const float *decay, *beta; /* at t * gate_stride */
    float *o;                  /* at t * o_stride; NULL: the state is all that is wanted */
    size_t qk_stride, v_stride, gate_stride, o_stride;
    size_t n;
    const float
        *next; /* the state that the caller asks for next, NULL if none or unknown: a hint */
};
typedef void bn_delta_fn(const struct bn_delta_args *a);

/* Walsh-Hadamard transforms of blocks, in natural (Sylvester) order, with factors before or behind:
 *   z[i] = x[i] * before[i]; in every block, for h = block / 2, block / 4, ..., 1, for all pairs of
 *   places (i, i + h) with i / h even: (a, b) becomes (a + b, a - b);
 *   y[i] = (z[i] * scale) * after[i]
 * A product with a factor that is not there is left out. y may be x. */
struct bn_hadamard_args {
    float *y;
    const float *x;
    const float *before, *after; /* [n] or NULL */
    size_t n, block;             /* block: a power of two, 2 .. BN_HADAMARD_BLOCK_MAX; divides n */
    float scale;
};
typedef void bn_hadamard_fn(const struct bn_hadamard_args *a);

/* ---- ternary matrices ----
 * A packed matrix: rows of weights w in {-1, 0, +1, +2}, in one of the layouts. Groups of
 * `group_rows` rows follow each other; the last group is filled up with rows, and rows with columns
 * up to a multiple of BN_K_ALIGN, on whose weights nothing depends. Nor do results on the layout. */
enum bn_scale_kind { BN_SCALE_TENSOR, BN_SCALE_ROW, BN_SCALE_BLOCK };

struct bn_packed {
    const uint8_t *data;
    size_t rows, cols; /* cols <= BN_COLS_MAX */
    enum bn_scale_kind scale_kind;
    float scale;                 /* TENSOR */
    const float *row_scale;      /* ROW: [rows] */
    const uint16_t *block_scale; /* BLOCK: f16, exactly as in the file, ordered as the layout
                                  * says: bn_scale_at() */
    size_t block;                /* BLOCK: 32, 64, 128 or 256; divides cols */
    /* Bytes from what is read to what is asked for meanwhile, which may lie behind the end: that asks
     * for memory in vain and does no harm. 0: for nothing that is not read anyway. Results do not
     * depend on it. Where tokens are many, and for parts, kernels have distances of their own. */
    size_t ahead;
};

/* TENSOR and ROW */
static inline float bn_row_scale(const struct bn_packed *w, size_t r)
{
    return w->scale_kind == BN_SCALE_ROW ? w->row_scale[r] : w->scale;
}

/* A product of a packed matrix and some tokens, apart from their activations: three kinds of these
 * follow, each with the result y it gives. Everything here is the caller's. */
struct bn_gemm_args {
    float *y;        /* result of token t and row r: y[t * y_stride + r]; no other is written */
    size_t y_stride; /* floats from one token to the next */
    const struct bn_packed *w;
    size_t r0, r1; /* rows [r0, r1) only. r0 is a multiple of group_rows, and so is r1 unless it is
                    * the last row */
    size_t n_tok;  /* at least 1 */
    void *scratch; /* mul_*_many: many_bytes(rows, cols) bytes, aligned to 64. Others: not used */
};

/* The same product for n tokens from token t on; for the rows [r0, r1). */
static inline struct bn_gemm_args bn_gemm_tokens(const struct bn_gemm_args *a, size_t t, size_t n)
{
    struct bn_gemm_args some = *a;
    some.y += t * a->y_stride;
    some.n_tok = n;
    return some;
}
static inline struct bn_gemm_args bn_gemm_rows(const struct bn_gemm_args *a, size_t r0, size_t r1)
{
    struct bn_gemm_args some = *a;
    some.r0 = r0;
    some.r1 = r1;
    return some;
}

/* Activations of quant_i8. With S the exact integer sum of weights times q:
 *   TENSOR, ROW:  y = (float)S * (scale_r * inv[t])
 *   BLOCK:        y = (fold over blocks in order, from +0: acc += (float)S_b * d_b) * inv[t] */
struct bn_q8 {
    const int8_t *q;    /* [n_tok][stride]: within +-127, zeros from cols up to BN_K_ALIGN */
    size_t stride;      /* bytes from one token to the next: bn_q8_stride() */
    const int32_t *sum; /* [n_tok] of q */
    const float *inv;   /* [n_tok], what quant_i8 returned */
};
typedef void bn_mul_i8_fn(const struct bn_gemm_args *a, const struct bn_q8 *x);

/* Those from token t on. */
static inline struct bn_q8 bn_q8_from(const struct bn_q8 *x, size_t t)
{
    return (struct bn_q8){x->q + t * x->stride, x->stride, x->sum + t, x->inv + t};
}

/* Activations in float, [n_tok][x_stride], cols used: products w * x in lanes (lane = column % 16).
 *   TENSOR, ROW:  y = scale_r * lane sum over the row
 *   BLOCK:        y = fold in order, from +0, of acc += d_b * (lane sum of the block) */
typedef void bn_mul_f32_fn(const struct bn_gemm_args *a, const float *x, size_t x_stride);

/* Activations of quant_planes. With S the exact integer sum of weights times k over a piece of columns,
 * pieces of a block and at most BN_K_ALIGN, folded in order and from +0:
 *   TENSOR, ROW:  y = scale_r * (acc += (float)S * unit)
 *   BLOCK:        y = (acc += (float)S * (d_b * unit)) */
struct bn_planes {
    const int8_t *q;     /* token t, plane p: at t * stride + p * plane_stride */
    size_t n_planes;     /* 1 or 2 */
    size_t plane_stride; /* bytes */
    size_t stride;       /* bytes from one token to the next */
    const float *unit;   /* of token t and group g of BN_K_ALIGN columns: at t * unit_stride + g */
    size_t unit_stride;  /* floats */
};
typedef void bn_mul_planes_fn(const struct bn_gemm_args *a, const struct bn_planes *x);

/* Those from token t on. */
static inline struct bn_planes bn_planes_from(const struct bn_planes *x, size_t t)
{
    struct bn_planes some = *x;
    some.q += t * x->stride;
    some.unit += t * x->unit_stride;
    return some;
}

/* A matrix kernel brings its packing with it. */
struct bn_gemm {
    const char *layout; /* name of the packed form, e.g. "t2" */
    size_t group_rows;
    size_t scale_rows; /* rows whose block scales stand together: 1, or those of a group */
    int w_max;         /* the largest weight it can hold, +1 or +2 */
    bool block_scales; /* it can have BN_SCALE_BLOCK */
    bool binary;       /* it holds -1 and +1 only, no 0 */
    bool frugal;       /* fewer bytes than two bits a weight, and fast enough for that to pay */
    size_t (*group_bytes)(size_t cols);
    /* One group: w[n_rows][cols] with n_rows <= group_rows. */
    void (*pack)(uint8_t *dst, const int8_t *w, size_t n_rows, size_t cols);
    void (*unpack)(int8_t *w, const uint8_t *src, size_t n_rows, size_t cols);
    bn_mul_i8_fn *mul_i8;
    bn_mul_f32_fn *mul_f32;
    bn_mul_planes_fn *mul_planes;
    /* May be NULL: what gives the results of mul_i8 faster from many_from tokens on, if it gets
     * many_bytes(rows, cols) bytes as scratch, rows >= r1 - r0. */
    bn_mul_i8_fn *mul_i8_many;
    bn_mul_planes_fn *mul_planes_many; /* likewise; a layout has one of the two at most */
    size_t (*many_bytes)(size_t rows, size_t cols);
    size_t many_from;
};

/* The place of the scale of row r and block b, and how many places there are. Those of rows that fill up
 * the last group hold 0. */
static inline size_t bn_scale_at(const struct bn_gemm *g, size_t n_blocks, size_t r, size_t b)
{
    return (r / g->scale_rows * n_blocks + b) * g->scale_rows + r % g->scale_rows;
}
static inline size_t bn_scale_count(const struct bn_gemm *g, size_t n_blocks, size_t rows)
{
    return bn_div_up(rows, g->scale_rows) * g->scale_rows * n_blocks;
}

/* Whether the layout can hold a matrix with this kind of scale and weights up to w_max; binary: none
 * of them is 0. */
static inline bool bn_gemm_accepts(const struct bn_gemm *g, enum bn_scale_kind kind, int w_max,
                                   bool binary)
{
    return w_max <= g->w_max && (kind != BN_SCALE_BLOCK || g->block_scales) &&
           (binary || !g->binary);
}

/* ---- parts of ternary matrices: what an input with many zeros needs ----
 * Copies of a matrix in two-bit codes w + 1, of which rows or columns can be taken by a list. A
 * struct bn_packed with TENSOR or ROW scales says what is in them; 32 bytes ("piece") hold 128 codes
 * as in "t2": byte i those of places i, 32 + i, 64 + i and 96 + i.
 *   "r2": row after row, each bn_r2_row_bytes(cols): pieces of 128 columns.
 *   "c2": column after column, each bn_c2_column_bytes(rows): pieces of 128 rows. Columns begin at
 *         multiples of 64 bytes if the data do, so that neighbours in a column share cache lines.
 * Places of a piece that do not exist hold zero weights. Indices in a list ascend. The results have the bits of
 * mul_i8: (float)S * (scale_r * inv) with the exact integer S. */
enum { BN_PART_ROWS = BN_K_ALIGN /* rows of a piece of "c2" */ };

size_t bn_r2_row_bytes(size_t cols);
size_t bn_c2_column_bytes(size_t rows);
void bn_r2_pack(uint8_t *row, const int8_t *w, size_t cols); /* one row */
/* Rows r0 .. r0 + n - 1, n <= BN_PART_ROWS, r0 a multiple of it: one piece of every column. */
void bn_c2_pack(uint8_t *dst, size_t rows, size_t r0, const int8_t *w, size_t n, size_t cols);

/* y[i] is row list[i] of the matrix in "r2" times q. q, sum, inv: as for mul_i8, one token. */
typedef void bn_rows_r2_fn(float *y, const struct bn_packed *w, const uint32_t *list, size_t n,
                           const int8_t *q, int32_t sum, float inv);

/* y[r] for r0 <= r < r1 of the matrix in "c2", as if q were zero in columns that are not listed. r0
 * is a multiple of BN_PART_ROWS, and so is r1 unless it is the last row. */
typedef void bn_cols_c2_fn(float *y, const struct bn_packed *w, size_t r0, size_t r1,
                           const uint32_t *list, size_t n, const int8_t *q, float inv);

/* ---- what follows from kernels.def ---- */

/* every variant's declaration: one with another signature does not compile */
#define K(op, isa, needs, fn)  bn_##op##_fn fn;
#define G(op, isa, needs, obj) extern const struct bn_gemm obj;
#include "kernels/kernels.def"

/* the table: one member an operation, named by its reference line */
struct bn_kernels {
    const char *backend; /* the best ISA of which a variant was taken */
#define K_REF(op, fn)  bn_##op##_fn *op;
#define G_REF(op, obj) const struct bn_gemm *op;
#define K(op, isa, needs, fn)
#define G(op, isa, needs, obj)
#include "kernels/kernels.def"
};

/* the listing, for tests, timings and reports; fn or gemm is set, the other NULL */
typedef void bn_any_fn(void);
struct bn_kernel_info {
    const char *op, *isa;
    uint32_t needs; /* BN_CPU_ bits */
    bn_any_fn *fn;
    const struct bn_gemm *gemm;
};
extern const struct bn_kernel_info bn_kernel_list[];
extern const size_t bn_kernel_count;

/* The best variants that `features` (bn_cpu_detect(), perhaps narrowed) allow. */
struct bn_kernels bn_kernels_select(uint32_t features);

/* Compares every chosen variant with the reference on small inputs, in milliseconds. memory: so many
 * bytes, aligned to 64. The error names operation and ISA. */
bitnet_status bn_kernels_self_test(const struct bn_kernels *k, void *memory, bitnet_error *err);
size_t bn_kernels_self_test_bytes(const struct bn_kernels *k);

#endif
