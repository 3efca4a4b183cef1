/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: upper bounds from the 4-bit screening copy (kernels.h, ref/screen4.c).
 *
 * maddubs multiplies unsigned codes c = w + 8 in {0..15} with the signed planes of the vector and
 * adds pairs in 16 bits; a pair is at most 2 * 15 * 127 = 3810 in size, so it never saturates.
 * Sixteen of them may leave 16 bits, but sums of w times the plane do not: 32 * 8 * 127 = 32512.
 * So an accumulator starts at minus eight times the sum of the plane over the block, a number per
 * block of 8 steps that all rows share, and additions modulo 2^16 end at the right value.
 */
#include "kernels/x86/screen4_avx2.h"

enum {
    STEP = 64, /* columns of a step */
    BLOCK = 8, /* steps between widenings */
    TILE = 4,  /* rows times vectors at a time */
    WIDE = 8,  /* planes that a row meets at a time where vectors are many */
    MAX_BLOCKS = BN_SCREEN_COLS_MAX / (STEP * BLOCK)
};

struct start {
    __m256i high[MAX_BLOCKS], low[MAX_BLOCKS];
};

static __m256i start_of(const int8_t *plane, size_t n)
{
    __m256i s = _mm256_setzero_si256(), eight = _mm256_set1_epi8(8);
    for (size_t i = 0; i < 2 * n; i++) {
        __m256i y = _mm256_loadu_si256((const void *)(plane + 32 * i));
        s = _mm256_sub_epi16(s, _mm256_maddubs_epi16(eight, y));
    }
    return s;
}

static void make_start(struct start *start, const struct bn_screen_vector *v, size_t steps)
{
    for (size_t s = 0; s < steps; s += BLOCK) {
        start->high[s / BLOCK] = start_of(v->high + s * STEP, bn_min_size(BLOCK, steps - s));
        if (v->low)
            start->low[s / BLOCK] = start_of(v->low + s * STEP, bn_min_size(BLOCK, steps - s));
    }
}

static inline __m256i plus_step(__m256i s, __m256i a, __m256i b, const int8_t *plane)
{
    __m256i y = _mm256_loadu_si256((const void *)plane);
    __m256i z = _mm256_loadu_si256((const void *)(plane + 32));
    return _mm256_add_epi16(
        s, _mm256_add_epi16(_mm256_maddubs_epi16(a, y), _mm256_maddubs_epi16(b, z)));
}

/* Sums of TILE / n rows and n vectors: sums[row * n + vector]. Eight 16-bit accumulators are what
 * the registers hold beside codes and products, so a tile is one row and four vectors, two and two,
 * or four and one: the more vectors, the less often a row is unpacked. */
static inline __attribute__((always_inline)) void tile(__m256i sums[TILE], const uint8_t *p,
                                                       const struct bn_screen_vector *v,
                                                       const struct start *start, size_t steps,
                                                       size_t ahead, const size_t n, const bool low,
                                                       const bool prefetch)
{
    const __m256i m15 = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    const __m256i high_unit = low ? _mm256_set1_epi16(128) : one;
    for (size_t i = 0; i < TILE; i++) sums[i] = _mm256_setzero_si256();
    for (size_t block = 0, at = 0; at < steps * STEP; block++) {
        size_t end = bn_min_size(at + BLOCK * STEP, steps * STEP);
        __m256i s[TILE], t[TILE];
        for (size_t i = 0; i < TILE; i++) {
            s[i] = start[i % n].high[block];
            t[i] = low ? start[i % n].low[block] : _mm256_setzero_si256();
        }
        for (; at < end; at += STEP, p += BN_SCREEN_ROWS * 32) {
            if (prefetch) {
                _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);
                _mm_prefetch((const char *)p + ahead + 64, _MM_HINT_T0);
            }
            for (size_t r = 0; r < TILE / n; r++) {
                __m256i q = _mm256_loadu_si256((const void *)(p + 32 * r));
                __m256i a = _mm256_and_si256(q, m15);
                __m256i b = _mm256_and_si256(_mm256_srli_epi16(q, 4), m15);
                for (size_t i = 0; i < n; i++) {
                    s[r * n + i] = plus_step(s[r * n + i], a, b, v[i].high + at);
                    if (low) t[r * n + i] = plus_step(t[r * n + i], a, b, v[i].low + at);
                }
            }
        }
        for (size_t i = 0; i < TILE; i++) {
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(s[i], high_unit));
            if (low) sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(t[i], one));
        }
    }
}

/* ---- many vectors: one row and eight planes ---- */

/* The planes of eight vectors without low planes, or the high ones of four and then their low ones;
 * unused places repeat others. */
struct wide {
    const int8_t *plane[WIDE];
    __m256i start[MAX_BLOCKS][WIDE];
};

static void make_wide(struct wide *w, const struct bn_screen_vector *v, size_t n, size_t steps)
{
    for (size_t i = 0; i < WIDE; i++) {
        const int8_t *plane = v->low && i >= WIDE / 2 ? v[i % (WIDE / 2)].low : v[i % n].high;
        w->plane[i] = plane;
        for (size_t s = 0; s < steps; s += BLOCK)
            w->start[s / BLOCK][i] = start_of(plane + s * STEP, bn_min_size(BLOCK, steps - s));
    }
}

/* Written as instructions, because compilers would rather move sums between registers. */
static inline __m256i mul_add(__m256i s, __m256i codes, const int8_t *plane)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(s), "=&x"(p)
            : "x"(codes), "m"(*(const __m256i_u *)plane));
    return s;
}

/* A sum of 16 bits with 32 columns of a plane more, and the eight parts of one in 32 bits. */
#define EACH(f)      f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)
#define BEGIN(i)     __m256i s##i = start[i];
#define PLUS_LOW(i)  s##i = mul_add(s##i, a, plane[i] + at);
#define PLUS_HIGH(i) s##i = mul_add(s##i, b, plane[i] + at + 32);
#define WIDEN(i)     sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(s##i, one));

/* Adds the columns [at, end), at most BLOCK steps, of a row. Half of the lines `ahead` bytes from
 * here are prefetched meanwhile; the next row of the group does the other half. Sums are no array:
 * compilers do not always find out that its elements could stay in registers. */
static inline void wide_block(__m256i sums[WIDE], const __m256i start[WIDE], const uint8_t *p,
                              const int8_t *const plane[WIDE], size_t at, size_t end, size_t ahead)
{
    const __m256i m15 = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    EACH(BEGIN)
    for (; at < end; at += STEP, p += BN_SCREEN_ROWS * 32) {
        __m256i q = _mm256_loadu_si256((const void *)p);
        __m256i a = _mm256_and_si256(q, m15), b = _mm256_and_si256(_mm256_srli_epi16(q, 4), m15);
        _mm_prefetch((const char *)p + ahead, _MM_HINT_T1);
        EACH(PLUS_LOW)
        EACH(PLUS_HIGH)
    }
    EACH(WIDEN)
}

/* The sums of a group of rows with all planes, block after block, which stay in the first cache. */
static void wide_group(__m256i sums[BN_SCREEN_ROWS][WIDE], const uint8_t *p, const struct wide *w,
                       size_t steps)
{
    size_t row_bytes = 32, ahead = 2 * steps * BN_SCREEN_ROWS * row_bytes;
    memset(sums, 0, BN_SCREEN_ROWS * sizeof *sums);
    for (size_t s = 0; s < steps; s += BLOCK)
        for (size_t r = 0; r < BN_SCREEN_ROWS; r++)
            wide_block(sums[r], w->start[s / BLOCK], p + (s * BN_SCREEN_ROWS + r) * row_bytes,
                       w->plane, s * STEP, bn_min_size(s + BLOCK, steps) * STEP,
                       ahead + r * row_bytes);
}

/* Of two planes to those of a vector, and without the places that repeat others: as
 * sums[row * n + vector]. */
static void wide_to_vectors(__m256i *sums, __m256i of_planes[BN_SCREEN_ROWS][WIDE], size_t n,
                            bool low)
{
    for (size_t r = 0; r < BN_SCREEN_ROWS; r++)
        for (size_t i = 0; i < n; i++) {
            __m256i s = of_planes[r][i];
            if (low) s = _mm256_add_epi32(_mm256_slli_epi32(s, 7), of_planes[r][i + WIDE / 2]);
            sums[r * n + i] = s;
        }
}

/* ---- rows ---- */

/* Rows [r0, r1) and n vectors, n one of 1, 2, 4; with or without a low plane. start: of the caller,
 * who has several of these inlined. */
static inline __attribute__((always_inline)) void
some_vectors(float *score, float *upper, size_t stride, const struct bn_screen *w, size_t r0,
             size_t r1, const struct bn_screen_vector *v, struct start *start, const size_t n,
             const bool low)
{
    size_t steps = bn_align_up(w->cols, BN_K_ALIGN) / STEP, bytes = bn_screen4_group_bytes(w->cols);
    for (size_t i = 0; i < n; i++) make_start(&start[i], &v[i], steps);
    for (size_t r = r0; r < r1; r += 4) {
        const uint8_t *p = w->data + r / 4 * bytes;
        __m256i sums[4 * TILE];
        tile(sums, p, v, start, steps, w->ahead, n, low, true);
        for (size_t k = 1; k < n; k++) /* the other rows of the group */
            tile(sums + k * TILE, p + k * (TILE / n) * 32, v, start, steps, w->ahead, n, low,
                 false);
        bn_screen_bounds(score + r - r0, upper + r - r0, stride, w, r, bn_min_size(4, r1 - r), sums,
                         v, n);
    }
}

static __attribute__((noinline)) void many_vectors(float *score, float *upper, size_t stride,
                                                   const struct bn_screen *w, size_t r0, size_t r1,
                                                   const struct bn_screen_vector *v, size_t n)
{
    size_t steps = bn_align_up(w->cols, BN_K_ALIGN) / STEP, bytes = bn_screen4_group_bytes(w->cols);
    struct wide wide;
    make_wide(&wide, v, n, steps);
    for (size_t r = r0; r < r1; r += 4) {
        __m256i sums[4 * WIDE], of_planes[BN_SCREEN_ROWS][WIDE];
        wide_group(of_planes, w->data + r / 4 * bytes, &wide, steps);
        wide_to_vectors(sums, of_planes, n, v->low);
        bn_screen_bounds(score + r - r0, upper + r - r0, stride, w, r, bn_min_size(4, r1 - r), sums,
                         v, n);
    }
}

/* How many vectors from the first on to take next. They are of one kind: 4, 2 or 1, or 6 to 8 of
 * those with one plane. */
static size_t next_vectors(const struct bn_screen_vector *v, size_t n)
{
    size_t same = 1, most = v->low ? WIDE / 2 : WIDE;
    while (same < n && same < most && !v[same].low == !v[0].low) same++;
    if (same > 5) return same;
    return same == 3 ? 2 : bn_min_size(same, 4);
}

void bn_screen4_avx2(float *score, float *upper, size_t stride, const struct bn_screen *w,
                     size_t r0, size_t r1, const struct bn_screen_vector *v, size_t n_vec)
{
    struct start start[TILE];
    for (size_t n; n_vec; n_vec -= n, v += n, score += n * stride, upper += n * stride) {
        n = next_vectors(v, n_vec);
        if (n > 4 || (n == 4 && v->low)) many_vectors(score, upper, stride, w, r0, r1, v, n);
        else if (n == 4) some_vectors(score, upper, stride, w, r0, r1, v, start, 4, false);
        else if (n == 2 && v->low) some_vectors(score, upper, stride, w, r0, r1, v, start, 2, true);
        else if (n == 2) some_vectors(score, upper, stride, w, r0, r1, v, start, 2, false);
        else if (v->low) some_vectors(score, upper, stride, w, r0, r1, v, start, 1, true);
        else some_vectors(score, upper, stride, w, r0, r1, v, start, 1, false);
    }
}
