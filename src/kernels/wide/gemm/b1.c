/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations, and those in planes, times matrices in layout "b1" (ref/gemm_b1.c), without
 * multiplying. Float activations are in b1_f32.c.
 *
 * Four columns have 16 combinations of weights: their 16 sums are a table that a byte shuffle looks
 * up for 32 rows at once. To keep the numbers small an entry is not the sum s of weights times
 * activations but e = (s + m) / 2, m the sum of |activation|: what the weights that agree with
 * their activation contribute. So 0 <= e <= 4 * 127 = 508, nine bits, and s = 2 e - m, where m is
 * known for every block of columns.
 *
 * An entry is kept as its low 6 and its high 3 bits, a byte each. Why the sums are exact:
 *   low parts    four of them are at most 4 * 63 = 252 < 2^8; then bytes go to 16 bits, the odd ones
 *                by a shift; the even ones are what is left of the 16 bits, modulo 2^16
 *   high parts   32 of them, a step of 128 columns, are at most 32 * 7 = 224 < 2^8
 *   16 bits      four steps are at most 4 * 32 * 508 = 65024 < 2^16; a block of 256 has two
 *   between      |partial sum| <= 127 * 32768 < 2^22 waits in y as a float, exactly; so does the
 *                fold over blocks
 *
 * A plane is looked up as a token is; the sums of two are put together before they are floats.
 *
 * What comes next is asked for into the second cache: the stream jumps from group to group, so that the
 * hardware does not help, and the first cache waits for too few lines at once to be fast alone.
 *
 * The tables of 1792 columns, or of fewer for two tokens or planes, lie on the stack; all rows pass, a
 * group at a time, before the next columns come. */
#include "kernels/b1.h"
#include "kernels/wide/lanes.h"
#include "kernels/wide/gemm/t2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    ROWS = BN_B1_ROWS,
    SPAN = 1792,    /* columns whose tables exist, all vectors together */
    VECTORS = 2,    /* tokens, or planes of them, that share a pass over the rows */
    PLAIN = 512,    /* columns that 16 bits hold */
    BLOCK_MIN = 32, /* the smallest block */
    BLOCK_MAX = 256
};

/* For 8 columns: low parts of columns 0-3 and 4-7, then high parts */
typedef uint8_t octet_tables[4][16];

struct span {
    _Alignas(64) octet_tables table[SPAN / BN_B1_OCTET]; /* [token][plane][cols / 8] */
    int32_t size[SPAN / BLOCK_MIN]; /* [token][piece]: sums of |activation|, planes as one number */
    size_t first, cols;             /* columns, a multiple of a step */
    size_t piece, n_pieces;         /* those that are folded at once */
    const struct bn_planes *x;      /* of the first token */
};

typedef uint16_t scales[ROWS]; /* of one block, the rows of a group */

/* ---- tables ---- */

static inline void build_octet(octet_tables out, const int8_t *q)
{
    /* words of entries 0-7 of one table in the low half, of the other in the high half */
    const w_int spread = w_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4,
                                     5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
    const w_int fourth = w_setr_epi8(-1, 3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 3, -1, 7,
                                     -1, 7, -1, 7, -1, 7, -1, 7, -1, 7, -1, 7, -1, 7);
    const w_int bits03 = w_setr_epi32(0, 1, 0x100, 0x101, 0, 1, 0x100, 0x101);
    const w_int bits47 = w_or_si256(bits03, w_set1_epi32(0x10000));
    const w_int m63 = w_set1_epi16(63);
    w_int v = w_set1_epi64x((int64_t)bn_load_u64(q)), x = w_shuffle_epi8(v, spread);
    w_int minus = w_max_epi8(w_sub_epi8(w_setzero_si256(), x), w_setzero_si256());
    w_int base = w_maddubs_epi16(minus, w_set1_epi8(1));
    w_int a = w_hadd_epi16(w_add_epi16(base, w_maddubs_epi16(bits03, x)),
                           w_add_epi16(base, w_maddubs_epi16(bits47, x)));
    w_int b = w_add_epi16(a, w_srai_epi16(w_shuffle_epi8(v, fourth), 8));
    w_store_si256((void *)out[0], w_packus_epi16(w_and_si256(a, m63), w_and_si256(b, m63)));
    w_store_si256((void *)out[2], w_packus_epi16(w_srli_epi16(a, 6), w_srli_epi16(b, 6)));
}

static int32_t sum_abs(const int8_t *q, size_t n)
{
    w_int s = w_setzero_si256();
    for (size_t k = 0; k < n; k += 32) {
        w_int v = w_abs_epi8(w_loadu_si256((const void *)(q + k)));
        s = w_add_epi64(s, w_sad_epu8(v, w_setzero_si256()));
    }
    h_int h = h_add_epi64(w_castsi256_si128(s), w_extracti128_si256(s, 1));
    return h_cvtsi128_si32(h_add_epi64(h, h_unpackhi_epi64(h, h)));
}

/* Tables and sizes of token t */
static __attribute__((noinline)) void build(struct span *s, size_t t)
{
    size_t np = s->x->n_planes, octets = s->cols / BN_B1_OCTET;
    int32_t *size = s->size + t * s->n_pieces;
    for (size_t h = 0; h < np; h++) {
        const int8_t *q = s->x->q + t * s->x->stride + h * s->x->plane_stride + s->first;
        octet_tables *table = s->table + (t * np + h) * octets;
        for (size_t k = 0; k < octets; k++) build_octet(table[k], q + k * BN_B1_OCTET);
        for (size_t i = 0; i < s->n_pieces; i++) {
            size_t k = i * s->piece;
            size[i] = (h ? 255 * size[i] : 0) + sum_abs(q + k, bn_min_size(s->piece, s->cols - k));
        }
    }
}

/* ---- sums of 64 rows ---- */

/* Keeps v in its register: compilers otherwise add up in another order and run out of registers. */
#define HERE(v) W_KEEP(v)

/* 32 rows, 8 columns: adds the two tables' entries, low and high parts; start: *low begins here */
ALWAYS void look_up(w_int *low, w_int *high, const uint8_t *p, const w_int t[4], const bool start)
{
    const w_int m15 = w_set1_epi8(15);
    w_int b = w_loadu_si256((const void *)p);
    HERE(b);
    w_int u = w_and_si256(b, m15);
    w_int v = w_and_si256(w_srli_epi16(b, 4), m15);
    w_int l = w_shuffle_epi8(t[0], u);
    *low = start ? l : w_add_epi8(*low, l);
    HERE(*low);
    *low = w_add_epi8(*low, w_shuffle_epi8(t[1], v));
    HERE(*low);
    *high = w_add_epi8(*high, w_shuffle_epi8(t[2], u));
    HERE(*high);
    *high = w_add_epi8(*high, w_shuffle_epi8(t[3], v));
    HERE(*high);
}

ALWAYS void load_tables(w_int t[4], const octet_tables *from)
{
    for (size_t i = 0; i < 4; i++)
        t[i] = w_broadcastsi128_si256(h_load_si128((const void *)(*from)[i]));
}

/* all and odd: 16-bit sums of bytes, of which the odd ones are known apart */
ALWAYS void add_low(w_int *all, w_int *odd, w_int low)
{
    *all = w_add_epi16(*all, low);
    *odd = w_add_epi16(*odd, w_srli_epi16(low, 8));
    HERE(*all);
    HERE(*odd);
}

/* rows 0-15 and 16-31 of 32 += their entries */
ALWAYS void add_sums(w_int s[2], w_int all, w_int odd, w_int high)
{
    w_int even = w_sub_epi16(all, w_slli_epi16(odd, 8));
    w_int high_even = w_srli_epi16(w_slli_epi16(high, 8), 2);
    w_int high_odd = w_slli_epi16(w_srli_epi16(high, 8), 6);
    s[0] = w_add_epi16(s[0], w_add_epi16(even, high_even));
    s[1] = w_add_epi16(s[1], w_add_epi16(odd, high_odd));
}

/* s[i]: rows 16 i .. 16 i + 15 += entries of n octets, 4 <= n <= 16, even */
ALWAYS void add_octets(w_int s[4], const uint8_t *p, const uint8_t *ahead, const octet_tables *t,
                       size_t n)
{
    w_int all0 = w_setzero_si256(), odd0 = all0, all1 = all0, odd1 = all0;
    w_int high0 = all0, high1 = all0;
    for (; n > 0; n -= 2, p += 2 * ROWS, ahead += 2 * ROWS, t += 2) {
        w_int table[4], low0, low1;
        h_prefetch((const char *)ahead, H_T1);
        h_prefetch((const char *)ahead + ROWS, H_T1);
        load_tables(table, t);
        look_up(&low0, &high0, p, table, true);
        look_up(&low1, &high1, p + 32, table, true);
        load_tables(table, t + 1);
        look_up(&low0, &high0, p + ROWS, table, false);
        look_up(&low1, &high1, p + ROWS + 32, table, false);
        add_low(&all0, &odd0, low0);
        add_low(&all1, &odd1, low1);
    }
    add_sums(s, all0, odd0, high0);
    add_sums(s + 2, all1, odd1, high1);
}

/* Where a group's part of the stream is, and where it goes on after it; what to prefetch. */
struct stream {
    const uint8_t *p, *next;
    const scales *d; /* of the span's first block, NULL if there are none */
    bool halves;     /* a block has two pieces, not one */
    size_t ahead;
};

/* Sums of n columns from column k of the span on, at most PLAIN. */
static __attribute__((noinline)) void sum_columns(w_int s[4], const struct span *x,
                                                  const octet_tables *t, size_t k, size_t cols,
                                                  const struct stream *in)
{
    for (size_t i = 0; i < 4; i++) s[i] = w_setzero_si256();
    size_t end = k + cols;
    for (size_t n; k < end; k += n) {
        n = bn_min_size(end - k, BN_B1_STEP);
        size_t at = k / BN_B1_OCTET * ROWS, all = x->cols / BN_B1_OCTET * ROWS;
        size_t then = at + bn_min_size(in->ahead, all);
        const uint8_t *ahead = then < all ? in->p + then : in->next + (then - all);
        add_octets(s, in->p + at, ahead, t + k / BN_B1_OCTET, n / BN_B1_OCTET);
    }
}

/* Rows 16 i .. 16 i + 15: those of two planes, of 128 columns, are at most 16256 < 2^15. */
ALWAYS void widen(w_int e[2], const w_int s[][4], size_t i, const bool two)
{
    if (!two) {
        e[0] = w_cvtepu16_epi32(w_castsi256_si128(s[0][i]));
        e[1] = w_cvtepu16_epi32(w_extracti128_si256(s[0][i], 1));
        return;
    }
    const w_int factors = w_set1_epi32(1 << 16 | 255);
    w_int a = w_madd_epi16(w_unpacklo_epi16(s[0][i], s[1][i]), factors);
    w_int b = w_madd_epi16(w_unpackhi_epi16(s[0][i], s[1][i]), factors);
    e[0] = w_permute2x128_si256(a, b, 0x20);
    e[1] = w_permute2x128_si256(a, b, 0x31);
}

/* acc += (2 s - size) * (d * unit); a factor that is not there is NULL */
ALWAYS void fold(w_f32 acc[8], const w_int s[][4], int32_t size, const scales *d, const float *unit,
                 const bool two)
{
    for (size_t i = 0; i < 4; i++) {
        w_int e[2];
        widen(e, s, i, two);
        for (size_t j = 2 * i; j < 2 * i + 2; j++) {
            w_int v = w_slli_epi32(e[j % 2], 1);
            w_f32 p = w_cvtepi32_ps(w_sub_epi32(v, w_set1_epi32(size)));
            w_f32 u = unit ? w_set1_ps(*unit) : w_setzero_ps();
            w_f32 k = d ? bn_load_f16(*d + 8 * j) : u;
            if (d && unit) k = w_mul_ps(k, u);
            if (d || unit) p = w_mul_ps(p, k);
            acc[j] = w_add_ps(acc[j], p);
        }
    }
}

/* ---- the loops ---- */

/* acc folded with the span's pieces */
ALWAYS void group_pieces(w_f32 acc[8], const struct span *x, size_t t, const struct stream *in,
                         const bool two)
{
    const size_t np = two ? 2 : 1, octets = x->cols / BN_B1_OCTET;
    const octet_tables *table = x->table + t * np * octets;
    const float *unit = x->x->unit ? x->x->unit + t * x->x->unit_stride : NULL;
    for (size_t i = 0; i < x->n_pieces; i++) {
        size_t k = i * x->piece, n = bn_min_size(x->piece, x->cols - k);
        w_int s[2][4];
        for (size_t h = 0; h < np; h++) sum_columns(s[h], x, table + h * octets, k, n, in);
        const scales *d = in->d ? in->d + (i >> in->halves) : NULL;
        const float *u = unit ? unit + (x->first + k) / BN_B1_STEP : NULL;
        fold(acc, (const w_int(*)[4])s, x->size[t * x->n_pieces + i], d, u, two);
    }
}

/* A group of n rows and token t: what is in y counts unless the span is the first. */
static void mul_group(float *y, const struct span *x, size_t t, size_t n, const struct stream *in)
{
    _Alignas(32) float part[ROWS];
    w_f32 acc[8];
    float *to = n < ROWS ? memcpy(part, y, n * sizeof *y) : y;
    for (size_t i = 0; i < 8; i++) acc[i] = x->first == 0 ? w_setzero_ps() : w_loadu_ps(to + 8 * i);
    if (x->x->n_planes == 2) group_pieces(acc, x, t, in, true);
    else group_pieces(acc, x, t, in, false);
    for (size_t i = 0; i < 8; i++) w_storeu_ps(to + 8 * i, acc[i]);
    if (n < ROWS) memcpy(y, part, n * sizeof *y);
}

static void mul_span(const struct bn_gemm_args *a, const struct span *x)
{
    const struct bn_packed *w = a->w;
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t skip = x->first / BN_B1_OCTET * ROWS, per_row = blocks ? w->cols / w->block : 0;
    struct stream in = {.ahead = w->ahead, .halves = blocks && w->block > x->piece};
    for (size_t r = a->r0; r < a->r1; r += ROWS) {
        in.p = bn_b1_group(w, r) + skip;
        in.next = bn_b1_group(w, r + ROWS) + skip;
        if (blocks)
            in.d = (const scales *)w->block_scale + r / ROWS * per_row + x->first / w->block;
        for (size_t i = 0; blocks && i < x->n_pieces; i++) /* of the next group */
            for (size_t k = 0; k < sizeof *in.d; k += 64)
                h_prefetch((const char *)(in.d + per_row + (i >> in.halves)) + k, H_T1);
        for (size_t t = 0; t < a->n_tok; t++)
            mul_group(a->y + t * a->y_stride + r, x, t, bn_min_size(ROWS, a->r1 - r), &in);
    }
}

/* inv: of mul_i8, or NULL */
static void mul_tokens(const struct bn_gemm_args *a, const struct bn_planes *x, const float *inv)
{
    struct span s;
    const struct bn_packed *w = a->w;
    size_t n_tok = a->n_tok;
    bool blocks = w->scale_kind == BN_SCALE_BLOCK;
    size_t cols = bn_align_up(w->cols, BN_K_ALIGN), step = BLOCK_MAX;
    size_t most = SPAN / (n_tok * x->n_planes) / step * step;
    most = bn_align_up(bn_div_up(cols, bn_div_up(cols, most)), step); /* equal parts */
    s.x = x;
    s.piece = blocks ? w->block : PLAIN;
    if (x->unit) s.piece = bn_min_size(s.piece, BN_K_ALIGN);
    for (s.first = 0; s.first < cols; s.first += s.cols) {
        s.cols = bn_min_size(most, cols - s.first);
        /* the last columns, if they are no block, do not exist */
        s.n_pieces =
            blocks ? bn_min_size(s.cols, w->cols - s.first) / s.piece : bn_div_up(s.cols, s.piece);
        for (size_t t = 0; t < n_tok; t++) build(&s, t);
        mul_span(a, &s);
    }
    for (size_t t = 0; (inv || !blocks) && t < n_tok; t++) {
        const float k = inv ? inv[t] : 1;
        float *y = a->y + t * a->y_stride;
        for (size_t r = a->r0; r < a->r1; r++) y[r] *= blocks ? k : bn_row_scale(w, r) * k;
    }
}

/* The sums of activations are not used: that of the sizes is what counts here. */
static void mul_i8_wide(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    for (size_t t = 0; t < a->n_tok; t += VECTORS) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(VECTORS, a->n_tok - t));
        struct bn_planes plane = {.q = x->q + t * x->stride, .n_planes = 1, .stride = x->stride};
        mul_tokens(&some, &plane, x->inv + t);
    }
}

static void mul_planes_wide(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    size_t most = VECTORS / x->n_planes;
    for (size_t t = 0; t < a->n_tok; t += most) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(most, a->n_tok - t));
        struct bn_planes planes = bn_planes_from(x, t);
        mul_tokens(&some, &planes, NULL);
    }
}

const struct bn_gemm W_NAME(gemm_b1) = {
    BN_B1_LAYOUT,
    .mul_i8 = mul_i8_wide,
    .mul_f32 = W_NAME(b1_mul_f32),
    .mul_planes = mul_planes_wide,
};
