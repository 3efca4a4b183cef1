/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI and VBMI: activations in planes times matrices in layout "g5" (ref/gemm_groups.c).
 *
 * A quad is a register: a look-up gives the codes w + 1 of its five rows in each of 16 lanes, and
 * dpbusd multiplies these with the same four activations in all lanes. So sums are never added up across
 * a register, and a piece of columns ends with 16 rows in each of five sums.
 *
 * A tile is some vectors, planes of tokens, that share the decoding: four have 20 sums, which leaves
 * registers for tables and codes. Decoding takes nine instructions, multiplying five for every
 * vector, and these are what a CPU can do fewer of in a cycle: for four vectors decoding costs next to
 * nothing. So it is done again for every tile; to keep codes would take as long.
 *
 * Why the sums are exact: codes are at up to 64 times their value, and those of row 3 have the three
 * rows below with them, so a byte is at most 2 * 85. A sum of a plane is then no larger than
 * 128 * 170 * 127 < 2^22, of two planes 256 times that, < 2^30. The weights' own sum is as small as in
 * the reference, exact as a float. */
#include "kernels/wide/gemm/planes.h"
#include "kernels/x86/avx512/t5.h"

enum {
    ROWS = BN_G5_ROWS,
    LANES = BN_G5_LANES,
    FIVE = ROWS / LANES,
    STEP = BN_K_ALIGN,
    VECTORS = 4, /* of a tile */
    PIECES = 8,  /* that stay in the first cache for all tiles */
    TOKENS = 32, /* that share a pass over the rows */
    SUMS = 2048  /* of activations that are kept; one token has at most 1024 */
};

/* A few tokens and some of the pieces that columns are folded in. */
struct span {
    const struct bn_packed *w;
    const struct bn_planes *x; /* of the first of them */
    size_t n_tok;
    struct bn_pieces in;
    size_t first, n; /* pieces */
    size_t
        scales_ahead; /* from a scale to the one that codes will need that are asked for meanwhile */
    int32_t sum[SUMS]; /* [n][n_tok] of activations k */
};

typedef float results[ROWS]; /* of a group and a token; aligned to a register */

/* What a group and a piece of columns have for the tiles. */
struct piece {
    const uint8_t *p;
    size_t ahead, quads;
    const uint16_t *d; /* scales */
    const struct bn_planes *x;
    const int8_t *q; /* of the first token, as the two below */
    const float *unit;
    const int32_t *sum;
};

/* ---- sums ---- */

static int32_t plane_sum(const int8_t *q, size_t n)
{
    __m256i s = _mm256_setzero_si256();
    for (size_t k = 0; k < n; k += 32)
        s = bn_dot_add32(s, _mm256_set1_epi8(1), _mm256_loadu_si256((const void *)(q + k)));
    return _mm_cvtsi128_si32(bn_hsum4_i32(s, s, s, s));
}

static __attribute__((noinline)) void sum_activations(struct span *s)
{
    const struct bn_planes *x = s->x;
    size_t cols = s->in.cols;
    for (size_t i = 0; i < s->n; i++)
        for (size_t t = 0; t < s->n_tok; t++) {
            const int8_t *q = x->q + t * x->stride + (s->first + i) * cols;
            int32_t sum = plane_sum(q, cols);
            if (x->n_planes == 2) sum = 255 * sum + plane_sum(q + x->plane_stride, cols);
            s->sum[i * s->n_tok + t] = sum;
        }
}

/* ---- a piece ---- */

/* in the place of block scales, where there are none */
static const uint16_t ones[ROWS] = {[0 ... ROWS - 1] = 0x3c00};

/* Piece i of the span, rows from r on. */
static struct piece piece_at(const struct span *s, size_t r, size_t i)
{
    const struct bn_packed *w = s->w;
    size_t k = (s->first + i) * s->in.cols;
    const uint16_t *d = bn_piece_scales(w, &s->in, r, ROWS, s->first + i);
    for (size_t b = 0; d && b < ROWS; b += 64 / sizeof *d)
        _mm_prefetch((const char *)(d + s->scales_ahead + b), _MM_HINT_T1);
    return (struct piece){.p = w->data + r / ROWS * bn_g5_group_bytes(w->cols) +
                               k / BN_QUAD * BN_G5_QUAD_BYTES,
                          .ahead = w->ahead,
                          .quads = s->in.cols / BN_QUAD,
                          .d = d ? d : ones,
                          .x = s->x,
                          .q = s->x->q + k,
                          .unit = s->x->unit + k / STEP,
                          .sum = s->sum + i * s->n_tok};
}

/* ---- a tile ---- */

ALWAYS __m512i same_quad(const int8_t *q)
{
    int32_t v;
    memcpy(&v, q, sizeof v);
    return _mm512_set1_epi32(v);
}

/* Codes of a quad, those of row 3 together with the rows below it: what belongs to these is subtracted at
 * the end, which takes less than a mask here. */
ALWAYS void decode(__m512i c[FIVE], const uint8_t *p, const struct bn_t5_tables *tables)
{
    struct bn_t5_fields f = bn_t5_xor_fields(_mm512_loadu_si512(p), tables);
    UNROLL
    for (size_t r = 0; r < 3; r++) c[r] = _mm512_and_si512(f.four, bn_t5_mask(r));
    c[3] = f.four;
    c[4] = f.fifth;
}

/* The sums of nt tokens with np planes, of codes times activations, times their field's factor. */
ALWAYS void sum_tile(__m512i s[][FIVE], const struct piece *a, size_t t, const size_t nt,
                     const size_t np)
{
    const struct bn_planes *x = a->x;
    const struct bn_t5_tables tables = bn_t5_load_differences();
    const int8_t *q = a->q + t * x->stride;
    UNROLL
    for (size_t v = 0; v < nt * np; v++) {
        UNROLL
        for (size_t r = 0; r < FIVE; r++) s[v][r] = _mm512_setzero_si512();
    }
    const uint8_t *p = a->p, *end = p + a->quads * BN_G5_QUAD_BYTES;
    do { /* at least once: compilers then need no copies of the sums */
        __m512i c[FIVE];
        _mm_prefetch((const char *)p + a->ahead, _MM_HINT_T1);
        decode(c, p, &tables);
        UNROLL
        for (size_t v = 0; v < nt * np; v++) {
            __m512i y = same_quad(q + v / np * x->stride + v % np * x->plane_stride);
            UNROLL
            for (size_t r = 0; r < FIVE; r++) s[v][r] = bn_dot_add(s[v][r], c[r], y);
        }
        q += BN_QUAD;
        p += BN_G5_QUAD_BYTES;
    } while (p < end);
}

/* The sums of weights times k, from those of codes times planes and that of k. */
ALWAYS void whole(__m512i to[FIVE], const __m512i s[][FIVE], int32_t sum, const size_t np)
{
    UNROLL
    for (size_t r = 0; r < FIVE; r++) {
        to[r] = s[0][r];
        if (np == 2)
            to[r] = _mm512_add_epi32(_mm512_slli_epi32(to[r], 8), _mm512_sub_epi32(s[1][r], to[r]));
    }
    UNROLL
    for (size_t r = 0; r < 3; r++) to[3] = _mm512_sub_epi32(to[3], to[r]);
    UNROLL
    for (size_t r = 0; r < FIVE; r++) {
        if (r > 0) to[r] = _mm512_srai_epi32(to[r], (unsigned)bn_t5_shift(r));
        to[r] = _mm512_sub_epi32(to[r], _mm512_set1_epi32(sum));
    }
}

/* Tokens t .. t + nt - 1 and the pieces [i, end) of rows from r on: acc += sum * (d * unit) */
ALWAYS void mul_tile(results *to, const struct span *s, size_t r0, size_t i, size_t end, size_t t,
                     const size_t nt, const size_t np)
{
    for (; i < end; i++) {
        const struct piece a = piece_at(s, r0, i);
        __m512i sums[VECTORS][FIVE], sum[FIVE];
        __m512 d[FIVE];
        sum_tile(sums, &a, t, nt, np);
        UNROLL
        for (size_t r = 0; r < FIVE; r++)
            d[r] = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(a.d + LANES * r)));
        UNROLL
        for (size_t j = 0; j < nt; j++) {
            __m512 unit = _mm512_set1_ps(a.unit[(t + j) * a.x->unit_stride]);
            whole(sum, (const __m512i(*)[FIVE])sums + j * np, a.sum[t + j], np);
            UNROLL
            for (size_t r = 0; r < FIVE; r++) {
                float *acc = to[t + j] + LANES * r;
                __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(d[r], unit));
                _mm512_store_ps(acc, _mm512_add_ps(_mm512_load_ps(acc), v));
            }
        }
    }
}

typedef void tile_fn(results *to, const struct span *s, size_t r, size_t i, size_t end, size_t t);
#define TILE(planes, n)                                                                    \
    static void tile_##planes##_##n(results *to, const struct span *s, size_t r, size_t i, \
                                    size_t end, size_t t)                                  \
    {                                                                                      \
        mul_tile(to, s, r, i, end, t, n, planes);                                          \
    }
TILE(1, 1)
TILE(1, 2)
TILE(1, 3)
TILE(1, 4)
TILE(2, 1)
TILE(2, 2)
#undef TILE
static tile_fn *const tiles[3][VECTORS + 1] = {
    [1] = {NULL, tile_1_1, tile_1_2, tile_1_3, tile_1_4}, [2] = {NULL, tile_2_1, tile_2_2}};

/* ---- groups ---- */

/* n rows from r on: what is in y counts unless the span is the first. */
static __attribute__((noinline)) void mul_group(float *y, size_t y_stride, const struct span *s,
                                                size_t r, size_t n)
{
    _Alignas(64) results acc[TOKENS];
    bool scaled = !s->in.blocks && s->first + s->n == s->in.count;
    for (size_t t = 0; t < s->n_tok; t++) {
        memset(acc[t], 0, sizeof acc[t]);
        if (s->first > 0) memcpy(acc[t], y + t * y_stride + r, n * sizeof *y);
    }
    size_t np = s->x->n_planes, most = VECTORS / np;
    size_t some = s->n_tok > most ? PIECES : s->n;
    for (size_t i = 0; i < s->n; i += some)
        for (size_t t = 0; t < s->n_tok; t += most)
            tiles[np][bn_min_size(most, s->n_tok - t)](acc, s, r, i, bn_min_size(s->n, i + some),
                                                       t);
    for (size_t t = 0; t < s->n_tok; t++) {
        for (size_t i = 0; scaled && i < n; i++) acc[t][i] *= bn_row_scale(s->w, r + i);
        memcpy(y + t * y_stride + r, acc[t], n * sizeof *y);
    }
}

static void mul_tokens(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    struct span s;
    const struct bn_packed *w = a->w;
    size_t most = SUMS / a->n_tok;
    s.w = w;
    s.x = x;
    s.n_tok = a->n_tok;
    s.in = bn_pieces(w);
    s.scales_ahead = w->ahead / (s.in.block * BN_G5_QUAD_BYTES / BN_QUAD) * ROWS;
    for (s.first = 0; s.first < s.in.count; s.first += s.n) {
        s.n = bn_min_size(most, s.in.count - s.first);
        sum_activations(&s);
        for (size_t r = a->r0; r < a->r1; r += ROWS)
            mul_group(a->y, a->y_stride, &s, r, bn_min_size(ROWS, a->r1 - r));
    }
}

static void mul_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    for (size_t t = 0; t < a->n_tok; t += TOKENS) {
        struct bn_gemm_args some = bn_gemm_tokens(a, t, bn_min_size(TOKENS, a->n_tok - t));
        struct bn_planes planes = bn_planes_from(x, t);
        mul_tokens(&some, &planes);
    }
}

const struct bn_gemm bn_gemm_g5_avx512 = {BN_GROUPS_LAYOUT(g5, BN_G5_ROWS), .frugal = true,
                                          .mul_planes = mul_planes};
