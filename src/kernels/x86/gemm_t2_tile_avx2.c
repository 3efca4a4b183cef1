/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: int8 activations of many tokens times matrices in layout "t2", one scale a row or matrix.
 * 16 rows by 6 tokens at a time, all sums in registers.
 *
 * For a block of up to 512 columns, 16 rows are decoded once into a panel of codes in the order of
 * use, four columns of eight rows to a register; then all tokens pass, six at a time. A step takes
 * two registers of the panel and, for each token, four activations broadcast to all rows: a load,
 * two multiplications, two additions. Twelve sums, two registers of codes, one of activations and
 * one of products are the sixteen registers there are, so the step is written as one piece of
 * assembly: left to themselves, compilers load the six broadcasts first and spill.
 *
 * Inside a block of columns, rows are the outer loop and tokens the inner one: the panel (8 KB) is
 * in the first cache, the block's activations (512 bytes a token) in the second. Between blocks the
 * 32-bit sums wait in y.
 *
 * Why the sums are exact: maddubs adds two products of a code c = w + 1 in {0..3} and an activation
 * a, |a| <= 127: at most 762 in size, so it never saturates. The 16-bit additions wrap around, that
 * is, they are exact modulo 2^16. A sum starts at minus the sum of the activations it will see, and
 * so ends, modulo 2^16, at the sum of w * a over two columns of every four. In 512 columns that is
 * at most 256 * 127 = 32512 < 2^15 in size if no weight is +2, so the 16 bits are its value. A panel
 * in which there is a +2 is taken in two halves, where it is at most 128 * 2 * 127, the same. From
 * there on sums have 32 bits, and |sum| < 2^23.
 */
#include "kernels/x86/t2_avx2.h"

enum {
    ROWS = BN_T2_TILE_ROWS,
    TOKENS = 6,
    HALF_STEPS = 2,                           /* steps of 128 columns in half a block */
    HALF_QUADS = HALF_STEPS * BN_T2_STEP / 4, /* fours of columns there */
    BLOCK_TOKENS = 192                        /* tokens whose activations stay in the cache */
};

struct panel {
    _Alignas(32) uint8_t code[2 * HALF_QUADS][ROWS][4];
};

/* Codes of rows r .. r+15, `steps` steps from step s0 on; true if there is a code 3. Moving the
 * packed bytes instead of the codes costs a quarter of the shuffles. */
static bool decode(struct panel *p, const struct bn_packed *w, size_t r, size_t s0, size_t steps)
{
    __m256i twos = _mm256_setzero_si256();
    for (size_t s = 0; s < steps; s++)
        for (size_t half = 0; half < ROWS; half += 8) {
            __m256i v[8];
            for (size_t i = 0; i < 8; i++) {
                const uint8_t *group = bn_t2_group(w, r + half + i);
                v[i] = _mm256_loadu_si256(
                    (const void *)(group + ((s0 + s) * BN_T2_ROWS + i % BN_T2_ROWS) * BN_T2_PIECE));
            }
            bn_transpose8_i32(v);
            for (size_t j = 0; j < 8; j++) {
                __m256i f[4];
                bn_t2_fields(f, v[j]);
                twos = _mm256_or_si256(twos, _mm256_and_si256(v[j], _mm256_srli_epi16(v[j], 1)));
                for (size_t k = 0; k < 4; k++)
                    _mm256_store_si256((void *)p->code[s * 32 + k * 8 + j][half], f[k]);
            }
        }
    return !_mm256_testz_si256(twos, _mm256_set1_epi8(0x55));
}

/* Minus the sums of a token's activations in `steps` steps: columns 0 and 1 of every four in the
 * low half, 2 and 3 in the high half. */
static inline int32_t start_value(const int8_t *q, size_t steps)
{
    __m256i s = _mm256_setzero_si256();
    for (size_t i = 0; i < 4 * steps; i++)
        s = _mm256_sub_epi16(s,
                             _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                                                  _mm256_loadu_si256((const void *)(q + 32 * i))));
    __m128i h = _mm_add_epi16(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    h = _mm_add_epi16(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi16(h, _mm_shuffle_epi32(h, 0xb1)));
}

/* Part of a panel, and what becomes of the sums. */
struct job {
    const uint8_t *code, *end;
    bool first, last; /* of the parts of a row: y does not yet hold sums; y shall be the result */
    __m256 scale[2];  /* last: of the 16 rows */
};

/* Twelve sums need registers 0 to 11, codes 12 and 13, activations 14, products 15. m: four
 * activations; the sums are registers x and y. */
#define TOKEN(m, x, y)                           \
    "vpbroadcastd " m ", %%ymm14\n\t"            \
    "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\t"   \
    "vpaddw %%ymm15, %%ymm" x ", %%ymm" x "\n\t" \
    "vpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t"   \
    "vpaddw %%ymm14, %%ymm" y ", %%ymm" y "\n\t"

#define START(at, x, y)                             \
    "vpbroadcastd " at "(%[start]), %%ymm" x "\n\t" \
    "vmovdqa %%ymm" x ", %%ymm" y "\n\t"

#define STORE(at0, at1, x, y)                 \
    "vmovdqa %%ymm" x ", " at0 "(%[out])\n\t" \
    "vmovdqa %%ymm" y ", " at1 "(%[out])\n\t"

/* Four columns of all tokens; `at` is the offset of their activations, `p0` and `p1` of the codes.
 * more: the tokens beyond the fourth */
#define QUAD(at, p0, p1, more)                                                             \
    "vmovdqa " p0 "(%[p]), %%ymm12\n\t"                                                    \
    "vmovdqa " p1 "(%[p]), %%ymm13\n\t" TOKEN(at "(%[q])", "0", "1")                       \
        TOKEN(at "(%[q], %[stride])", "2", "3") TOKEN(at "(%[q], %[stride], 2)", "4", "5") \
            TOKEN(at "(%[q3])", "6", "7") more

/* The whole loop over the columns of a panel. */
#define TILE(start_more, more0, more4, store_more)                                                \
    __asm__ volatile(                                                                             \
        START("0", "0", "1") START("4", "2", "3") START("8", "4", "5") START("12", "6", "7")      \
            start_more "1:\n\t" QUAD("0", "0", "32", more0)                                       \
                QUAD("4", "64", "96", more4) "add $8, %[q]\n\t"                                   \
                                             "add $8, %[q3]\n\t"                                  \
                                             "sub $-128, %[p]\n\t"                                \
                                             "cmp %[end], %[p]\n\t"                               \
                                             "jb 1b\n\t" STORE("0", "32", "0", "1")               \
                                                 STORE("64", "96", "2", "3")                      \
                                                     STORE("128", "160", "4", "5")                \
                                                         STORE("192", "224", "6", "7") store_more \
        : [p] "+r"(p), [q] "+r"(q), [q3] "+r"(q3)                                                 \
        : [end] "r"(j->end), [stride] "r"(q_stride), [start] "r"(start), [out] "r"(s)             \
        : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", \
          "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")

#define FIFTH(at)   TOKEN(at "(%[q3], %[stride])", "8", "9")
#define SIXTH(at)   TOKEN(at "(%[q3], %[stride], 2)", "10", "11")
#define STORE_FIFTH STORE("256", "288", "8", "9")
#define STORE_SIXTH STORE("320", "352", "10", "11")

/* The sums of one token. */
static inline void finish(float *y, const struct job *j, __m256i lo, __m256i hi, float inv)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i s0 = _mm256_madd_epi16(lo, one), s1 = _mm256_madd_epi16(hi, one);
    if (!j->first) {
        s0 = _mm256_add_epi32(s0, _mm256_loadu_si256((const void *)y));
        s1 = _mm256_add_epi32(s1, _mm256_loadu_si256((const void *)(y + 8)));
    }
    if (j->last) {
        __m256 k = _mm256_set1_ps(inv);
        __m256 f0 = _mm256_mul_ps(_mm256_cvtepi32_ps(s0), _mm256_mul_ps(j->scale[0], k));
        __m256 f1 = _mm256_mul_ps(_mm256_cvtepi32_ps(s1), _mm256_mul_ps(j->scale[1], k));
        s0 = _mm256_castps_si256(f0), s1 = _mm256_castps_si256(f1);
    }
    _mm256_storeu_si256((void *)y, s0);
    _mm256_storeu_si256((void *)(y + 8), s1);
}

/* 16 rows and 4 <= nt <= 6 tokens; y: of the first row and token, start: [nt] */
static inline __attribute__((always_inline)) void tile(const struct job *j, float *y,
                                                       size_t y_stride, const int8_t *q,
                                                       size_t q_stride, const int32_t *start,
                                                       const float *inv, const size_t nt)
{
    __m256i s[TOKENS][2];
    const uint8_t *p = j->code;
    const int8_t *q3 = q + 3 * q_stride;
    for (size_t i = 0; i < nt; i++) {
        _mm_prefetch((const char *)(y + i * y_stride), _MM_HINT_T0);
        _mm_prefetch((const char *)(y + i * y_stride + ROWS - 1), _MM_HINT_T0);
    }
    if (nt == 6)
        TILE(START("16", "8", "9") START("20", "10", "11"), FIFTH("0") SIXTH("0"),
             FIFTH("4") SIXTH("4"), STORE_FIFTH STORE_SIXTH);
    else if (nt == 5) TILE(START("16", "8", "9"), FIFTH("0"), FIFTH("4"), STORE_FIFTH);
    else TILE("", "", "", "");
    for (size_t i = 0; i < nt; i++) finish(y + i * y_stride, j, s[i][0], s[i][1], inv[i]);
}

/* All tokens of a block (at least 16) meet one panel, in tiles of 4 to 6 tokens: as few and as
 * equal as possible. */
static void pass(const struct job *j, float *y, size_t y_stride, const int8_t *q, size_t q_stride,
                 const int32_t *start, const float *inv, size_t n_tok)
{
    for (size_t tiles = bn_div_up(n_tok, TOKENS), n; tiles > 0; tiles--, n_tok -= n) {
        n = bn_div_up(n_tok, tiles);
        if (n == 6) tile(j, y, y_stride, q, q_stride, start, inv, 6);
        else if (n == 5) tile(j, y, y_stride, q, q_stride, start, inv, 5);
        else tile(j, y, y_stride, q, q_stride, start, inv, 4);
        y += n * y_stride, q += n * q_stride, start += n, inv += n;
    }
}

static inline __m256 row_scales(const struct bn_packed *w, size_t r)
{
    if (w->scale_kind == BN_SCALE_ROW) return _mm256_loadu_ps(w->row_scale + r);
    return _mm256_set1_ps(w->scale);
}

void bn_t2_mul_i8_tile_avx2(float *y, size_t y_stride, const struct bn_packed *w, size_t r0,
                            size_t r1, const int8_t *q, size_t q_stride, const float *inv,
                            size_t n_tok)
{
    struct panel panel;
    int32_t start[2][BLOCK_TOKENS], both[BLOCK_TOKENS];
    size_t steps = bn_div_up(w->cols, BN_T2_STEP);
    size_t blocks = bn_div_up(n_tok, BLOCK_TOKENS);
    for (size_t t0 = 0, nt; t0 < n_tok; t0 += nt, blocks--) {
        nt = bn_div_up(n_tok - t0, blocks);
        for (size_t s = 0; s < steps; s += 2 * HALF_STEPS) {
            size_t n0 = bn_min_size(HALF_STEPS, steps - s);
            size_t n1 = bn_min_size(HALF_STEPS, steps - s - n0);
            const int8_t *q0 = q + t0 * q_stride + s * BN_T2_STEP, *q1 = q0 + n0 * BN_T2_STEP;
            for (size_t t = 0; t < nt; t++) {
                start[0][t] = start_value(q0 + t * q_stride, n0);
                start[1][t] = start_value(q1 + t * q_stride, n1);
                both[t] = start_value(q0 + t * q_stride, n0 + n1);
            }
            for (size_t r = r0; r < r1; r += ROWS) {
                bool twos = decode(&panel, w, r, s, n0 + n1) && n1 > 0;
                const uint8_t *code = (const void *)panel.code;
                const uint8_t *mid = code + n0 * BN_T2_STEP * ROWS;
                const uint8_t *end = mid + n1 * BN_T2_STEP * ROWS;
                bool first = s == 0, last = s + n0 + n1 == steps;
                float *out = y + t0 * y_stride + r;
                struct job j = {code, end, first, last, {row_scales(w, r), row_scales(w, r + 8)}};
                if (twos) {
                    j.end = mid, j.last = false;
                    pass(&j, out, y_stride, q0, q_stride, start[0], inv + t0, nt);
                    j.code = mid, j.end = end, j.first = false, j.last = last;
                    pass(&j, out, y_stride, q1, q_stride, start[1], inv + t0, nt);
                } else pass(&j, out, y_stride, q0, q_stride, both, inv + t0, nt);
            }
        }
    }
}
