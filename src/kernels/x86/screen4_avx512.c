/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512 with VNNI: upper bounds from the 4-bit screening copy (kernels.h, ref/screen4.c).
 *
 * The 32 bytes of a row's 64 columns are read into both halves of a register and masked in place:
 * the lower half keeps codes c = w + 8 of columns 0-31, the upper 16 times those of columns 32-63. dpbusd
 * multiplies them with the planes of the vectors and adds to 32 bits: at most
 * 8192 * 16 * 15 * 127 < 2^28. From the sum of codes times a plane, eight times the sum of the plane
 * is taken away. Four rows meet up to six planes at a time, or two rows eight. */
#include "kernels/x86/codes_avx512.h"
#include "kernels/x86/screen4_avx2.h"

enum {
    STEP = 64,  /* columns of a step */
    PIECE = 32, /* bytes of a row in a step */
    PLANES = 8, /* that rows meet at a time */
    SUMS = 24   /* registers for sums */
};

/* of some vectors: their high planes, then their low ones if they have any */
struct planes {
    const int8_t *q[PLANES];
    __m256i eights[PLANES]; /* eight times the sum of a plane, in eight parts */
    size_t steps;
};

static void make_planes(struct planes *x, const struct bn_screen_vector *v, size_t n, size_t cols)
{
    x->steps = bn_align_up(cols, BN_K_ALIGN) / STEP;
    for (size_t i = 0; i < (v->low ? 2 * n : n); i++) {
        __m512i s = _mm512_setzero_si512();
        x->q[i] = i < n ? v[i].high : v[i - n].low;
        for (size_t k = 0; k < x->steps; k++)
            s = bn_dot_add(s, _mm512_set1_epi8(8), _mm512_loadu_si512(x->q[i] + k * STEP));
        x->eights[i] = bn_fold_halves(s, 0);
    }
}

/* One plane: registers of 32 bytes, because reading these twice into one of 64 takes as long as
 * multiplying. */
static void group_1(__m256i sum[][PLANES], const uint8_t *p, const struct planes *x, size_t ahead)
{
    const __m256i low = _mm256_set1_epi8(15), high = _mm256_set1_epi8((char)0xf0);
    const int8_t *q = x->q[0];
    __m256i s[BN_SCREEN_ROWS], t[BN_SCREEN_ROWS];
    for (size_t r = 0; r < BN_SCREEN_ROWS; r++) s[r] = t[r] = _mm256_setzero_si256();
    for (size_t n = x->steps; n > 0; n--, p += BN_SCREEN_ROWS * PIECE, q += STEP) {
        __m256i a = _mm256_loadu_si256((const void *)q);
        __m256i b = _mm256_loadu_si256((const void *)(q + 32));
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
        _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
        for (size_t r = 0; r < BN_SCREEN_ROWS; r++) {
            __m256i v = _mm256_loadu_si256((const void *)(p + r * PIECE));
            s[r] = bn_dot_add32(s[r], _mm256_and_si256(v, low), a);
            t[r] = bn_dot_add32(t[r], _mm256_and_si256(v, high), b);
        }
    }
    for (size_t r = 0; r < BN_SCREEN_ROWS; r++)
        sum[r][0] = _mm256_add_epi32(s[r], _mm256_srai_epi32(t[r], 4));
}

/* Some rows of a group and n planes: sums of codes in eight parts. */
ALWAYS void add_rows(__m256i sum[][PLANES], const uint8_t *p, const struct planes *x, size_t ahead,
                     const size_t rows, const size_t n)
{
    const __m512i nibbles = bn_two_masks(15, (char)0xf0);
    __m512i s[SUMS], c[BN_SCREEN_ROWS];
    UNROLL
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (size_t i = 0; i < n; i++) s[r * n + i] = _mm512_setzero_si512();
    }
    for (size_t k = 0; k < x->steps; k++, p += BN_SCREEN_ROWS * PIECE) {
        for (size_t i = 0; i < rows * PIECE; i += 64)
            _mm_prefetch((const char *)p + ahead + i, _MM_HINT_T1);
        for (size_t r = 0; r < rows; r++)
            c[r] = _mm512_and_si512(bn_load_twice(p + r * PIECE), nibbles);
        for (size_t i = 0; i < n; i++) {
            __m512i v = _mm512_loadu_si512(x->q[i] + k * STEP);
            for (size_t r = 0; r < rows; r++) s[r * n + i] = bn_dot_add(s[r * n + i], c[r], v);
        }
    }
    UNROLL
    for (size_t r = 0; r < rows; r++) {
        UNROLL
        for (size_t i = 0; i < n; i++) sum[r][i] = bn_fold_halves(s[r * n + i], 4);
    }
}

typedef void group_fn(__m256i sum[][PLANES], const uint8_t *p, const struct planes *x,
                      size_t ahead);

#define GROUP_FN(n)                                                                        \
    static void group_##n(__m256i sum[][PLANES], const uint8_t *p, const struct planes *x, \
                          size_t ahead)                                                    \
    {                                                                                      \
        const size_t rows = BN_SCREEN_ROWS * (n) <= SUMS ? BN_SCREEN_ROWS : 2;             \
        for (size_t r = 0; r < BN_SCREEN_ROWS; r += rows)                                  \
            add_rows(sum + r, p + r * PIECE, x, ahead, rows, n);                           \
    }
GROUP_FN(2)
GROUP_FN(3)
GROUP_FN(4)
GROUP_FN(5)
GROUP_FN(6)
GROUP_FN(7)
GROUP_FN(8)
static group_fn *const group[PLANES + 1] = {NULL,    group_1, group_2, group_3, group_4,
                                            group_5, group_6, group_7, group_8};

/* From sums of codes and planes to those of weights and vectors: sums[row * n + vector]. */
static void to_vectors(__m256i *sums, __m256i codes[][PLANES], const struct planes *x, size_t n,
                       bool low)
{
    for (size_t r = 0; r < BN_SCREEN_ROWS; r++)
        for (size_t i = 0; i < n; i++) {
            __m256i s = _mm256_sub_epi32(codes[r][i], x->eights[i]);
            if (low)
                s = _mm256_add_epi32(_mm256_slli_epi32(s, 7),
                                     _mm256_sub_epi32(codes[r][n + i], x->eights[n + i]));
            sums[r * n + i] = s;
        }
}

static void some_vectors(float *score, float *upper, size_t stride, const struct bn_screen *w,
                         size_t r0, size_t r1, const struct bn_screen_vector *v, size_t n)
{
    size_t bytes = bn_screen4_group_bytes(w->cols), planes = v->low ? 2 * n : n;
    size_t ahead = planes == 1 ? w->ahead : 2 * bytes; /* many are busy: they take two groups */
    struct planes x;
    make_planes(&x, v, n, w->cols);
    for (size_t r = r0; r < r1; r += BN_SCREEN_ROWS) {
        __m256i codes[BN_SCREEN_ROWS][PLANES], sums[BN_SCREEN_ROWS * PLANES];
        group[planes](codes, w->data + r / BN_SCREEN_ROWS * bytes, &x, ahead);
        to_vectors(sums, codes, &x, n, v->low);
        bn_screen_bounds(score + r - r0, upper + r - r0, stride, w, r,
                         bn_min_size(BN_SCREEN_ROWS, r1 - r), sums, v, n);
    }
}

/* Vectors from the first on that have as many planes as it: as many as can be taken at a time. */
static size_t next_vectors(const struct bn_screen_vector *v, size_t n)
{
    size_t same = 1, most = v->low ? PLANES / 2 : PLANES;
    while (same < n && same < most && !v[same].low == !v[0].low) same++;
    return same;
}

void bn_screen4_avx512(float *score, float *upper, size_t stride, const struct bn_screen *w,
                       size_t r0, size_t r1, const struct bn_screen_vector *v, size_t n_vec)
{
    for (size_t n; n_vec; n_vec -= n, v += n, score += n * stride, upper += n * stride) {
        n = next_vectors(v, n_vec);
        some_vectors(score, upper, stride, w, r0, r1, v, n);
    }
}
