/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: activations in planes of several tokens times matrices whose rows stand in lanes
 * (planes.h). A tile is one or two rows of every lane (fields of the code bytes) times up to
 * five vectors: codes are cut out once and used for all of them, and the sums stay in
 * registers for a whole piece of columns. The codes of a piece (1 KB) and the vectors' activations
 * there stay in the first cache while all tiles of a block of tokens pass.
 *
 * Why the 16-bit sums are exact: codes are at most 2, so 64 of them times 127 are at most
 * 16256 < 2^15. The sum of the weights' products is that of the codes' minus the activations'. */
#include "kernels/x86/avx2/gemm/planes.h"

enum {
    VECTORS = 5, /* of a tile of two fields: ten sums */
    FIELDS_MAX = 4,
    TOKENS = 32,    /* that pass before the next rows */
    SUMS_MAX = 4608 /* of pieces of all these tokens; with more pieces, fewer tokens */
};

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* sums of the rows of up to four fields, for every vector of a tile */
typedef __m256i tile_sums[VECTORS][FIELDS_MAX];

/* The vectors of a tile: the first one's activations of a piece, and where the others lie */
struct vectors {
    const int8_t *q[VECTORS];
    const int16_t *sum[VECTORS]; /* of their activations there */
};

ALWAYS __m256i field(__m256i v, const size_t f)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, 2 * (int)f), _mm256_set1_epi8(3));
}

/* Fields f and, with two, f + 1 times nv vectors over n quads. */
ALWAYS void tile(tile_sums out, const uint8_t *p, const struct vectors *x, size_t n, const size_t f,
                 const bool two, const size_t nv)
{
    __m256i s[VECTORS], t[VECTORS];
    const int8_t *q[VECTORS];
    UNROLL
    for (size_t v = 0; v < nv; v++) {
        s[v] = t[v] = _mm256_setzero_si256();
        q[v] = x->q[v];
    }
    for (size_t i = 0; i < BN_QUAD * n; i += BN_QUAD, p += BN_QUAD * BN_LANE_ROWS) {
        __m256i c = _mm256_loadu_si256((const void *)p), a = field(c, f);
        __m256i b = two ? field(c, f + 1) : a;
        UNROLL
        for (size_t v = 0; v < nv; v++) {
            __m256i y = bn_lane_quad(q[v] + i);
            s[v] = bn_lane_mul_add(s[v], a, y);
            if (two) t[v] = bn_lane_mul_add(t[v], b, y);
        }
    }
    UNROLL
    for (size_t v = 0; v < nv; v++) {
        __m256i sum = _mm256_set1_epi32(*x->sum[v]);
        out[v][f] = _mm256_sub_epi32(bn_lane_sum(s[v]), sum);
        if (two) out[v][f + 1] = _mm256_sub_epi32(bn_lane_sum(t[v]), sum);
    }
}

typedef void tile_fn(tile_sums out, const uint8_t *p, const struct vectors *x, size_t n,
                     size_t fields);
#define TILE(nv)                                                                              \
    static void tile_##nv(tile_sums out, const uint8_t *p, const struct vectors *x, size_t n, \
                          size_t fields)                                                      \
    {                                                                                         \
        tile(out, p, x, n, 0, true, nv);                                                      \
        if (fields == 4) tile(out, p, x, n, 2, true, nv);                                     \
        else tile(out, p, x, n, 2, false, nv);                                                \
    }
TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
static tile_fn *const tiles[VECTORS + 1] = {NULL, tile_1, tile_2, tile_3, tile_4, tile_5};

/* ---- blocks of tokens ---- */

struct block {
    const struct bn_packed *w;
    const struct bn_planes *x;
    const struct bn_planes_plan *l;
    struct bn_pieces in;
    size_t t0, n_tok;
    int16_t sum[SUMS_MAX]; /* [tokens][planes][pieces] */
};

static int16_t sum_of(const int8_t *q, size_t cols)
{
    __m256i s = _mm256_setzero_si256();
    for (size_t k = 0; k < cols; k += 32)
        s = _mm256_add_epi16(s, _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                                                     _mm256_loadu_si256((const void *)(q + k))));
    __m256i v = bn_lane_sum(s);
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    h = _mm_add_epi32(h, _mm_unpackhi_epi64(h, h));
    return (int16_t)_mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 1)));
}

static const int8_t *vector(const struct block *b, size_t i)
{
    size_t np = b->x->n_planes;
    return b->x->q + (b->t0 + i / np) * b->x->stride + i % np * b->x->plane_stride;
}

static void begin(struct block *b)
{
    for (size_t i = 0; i < b->n_tok * b->x->n_planes; i++)
        for (size_t k = 0; k < b->in.count; k++)
            b->sum[i * b->in.count + k] = sum_of(vector(b, i) + k * b->in.cols, b->in.cols);
}

/* The rows of a part that nv vectors from number i on have: folded into the tokens' sums. */
static void fold(float (*acc)[FIELDS_MAX * BN_LANE_ROWS], const tile_sums s, const struct block *b,
                 size_t i, size_t nv, const uint16_t *scale, size_t piece)
{
    size_t np = b->x->n_planes, t0 = i / np;
    const float *unit =
        b->x->unit + (b->t0 + t0) * b->x->unit_stride + piece * b->in.cols / BN_K_ALIGN;
    for (size_t f = 0; f < b->l->fields; f++) {
        __m256 d = scale ? bn_load_f16(scale + f * BN_LANE_ROWS) : _mm256_set1_ps(1);
        for (size_t v = 0, t = 0; v < nv; v += np, t++) {
            float *to = acc[t0 + t] + f * BN_LANE_ROWS;
            __m256i sum = np == 2 ? bn_lane_both(s[v][f], s[v + 1][f]) : s[v][f];
            __m256 k = _mm256_mul_ps(d, _mm256_set1_ps(unit[t * b->x->unit_stride]));
            __m256 p = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), k);
            _mm256_store_ps(to, _mm256_add_ps(_mm256_load_ps(to), p));
        }
    }
}

/* One piece of a part's rows times all vectors of a block. */
static void add_piece(float (*acc)[FIELDS_MAX * BN_LANE_ROWS], const struct block *b,
                      const uint8_t *codes, const uint16_t *scale, size_t piece)
{
    size_t np = b->x->n_planes, most = VECTORS / np;
    for (size_t k = 0; k < b->in.cols * BN_LANE_ROWS; k += 64)
        _mm_prefetch((const char *)codes + b->w->ahead + k, _MM_HINT_T1);
    for (size_t t = 0, nt; t < b->n_tok; t += nt) {
        struct vectors x;
        tile_sums s;
        nt = bn_div_up(b->n_tok - t, bn_div_up(b->n_tok - t, most)); /* as equal as possible */
        size_t i = t * np, nv = nt * np;
        for (size_t v = 0; v < nv; v++) {
            x.q[v] = vector(b, i + v) + piece * b->in.cols;
            x.sum[v] = b->sum + (i + v) * b->in.count + piece;
        }
        tiles[nv](s, codes, &x, b->in.cols / BN_QUAD, b->l->fields);
        fold(acc, (const __m256i(*)[FIELDS_MAX])s, b, i, nv, scale, piece);
    }
}

/* The rows of one part of a group, r the first. */
static void mul_part(float *y, size_t y_stride, const struct block *b, size_t group, size_t part,
                     size_t r1)
{
    _Alignas(32) float acc[TOKENS][FIELDS_MAX * BN_LANE_ROWS];
    _Alignas(32) uint8_t room[BN_STEP_QUADS * BN_QUAD * BN_LANE_ROWS];
    const struct bn_planes_plan *l = b->l;
    size_t rows = l->fields * BN_LANE_ROWS, r = group + part * rows;
    memset(acc, 0, b->n_tok * sizeof acc[0]);
    for (size_t i = 0; i < b->in.count; i++) {
        const uint16_t *scale = bn_piece_scales(b->w, &b->in, group, l->group_rows, i);
        add_piece(acc, b, l->codes(room, b->w, group, i * b->in.cols, b->in.cols, part),
                  scale ? scale + part * rows : NULL, i);
    }
    for (size_t t = 0; t < b->n_tok; t++)
        for (size_t f = 0; f < l->fields; f++)
            bn_lane_store(y + (b->t0 + t) * y_stride, b->w, r + f * BN_LANE_ROWS, r1,
                          _mm256_load_ps(acc[t] + f * BN_LANE_ROWS));
}

void bn_mul_planes_avx2(const struct bn_gemm_args *a, const struct bn_planes *x,
                        const struct bn_planes_plan *l)
{
    struct block b = {.w = a->w, .x = x, .l = l, .in = bn_pieces(a->w)};
    size_t most = bn_min_size(TOKENS, SUMS_MAX / (b.in.count * x->n_planes));
    for (b.t0 = 0; b.t0 < a->n_tok; b.t0 += b.n_tok) {
        b.n_tok = bn_div_up(a->n_tok - b.t0, bn_div_up(a->n_tok - b.t0, most));
        begin(&b);
        for (size_t r = a->r0; r < a->r1; r += l->group_rows)
            for (size_t part = 0; part < l->parts; part++)
                mul_part(a->y, a->y_stride, &b, r, part, a->r1);
    }
}
