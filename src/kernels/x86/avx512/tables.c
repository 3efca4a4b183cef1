/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX-512: int8 activations of very many tokens times matrices of any layout, one scale a row or
 * matrix. A multiplier does 64 products an instruction, and one of them a cycle. Three weights of a
 * row in {-1, 0, +1} are one of 27 things: for a token and three columns all sums of codes times
 * activations fit a register, in which 32 rows look theirs up with one instruction, and add it with
 * another: 96 products. Look-ups and multiplications use different units of a core, so both are
 * done at once: of the 128 columns of a step 60 are looked up and 68 are multiplied.
 *
 * A step of a row is 32 bytes of four codes (fours: avx512/tables.h). Fields 0-2 of the first 20
 * bytes are looked up. The other 12 bytes are multiplied, the four columns of byte 20, of 21, and so
 * on; then field 3 of the bytes 0-3, 4-7, .., 16-19, columns 96-115.
 *
 *   codes    [tiles of 64 rows][2 steps]  made for a block of two steps, used for all tokens
 *   inputs   [2 steps]                    tables and activations of four tokens
 *
 * The sums of a tile and four tokens are in registers for a block: those of products as int32, those
 * of look-ups as int16; from block to block all are int32 and lie in y. Why 16 bits are enough: an
 * entry is at most 2 * 3 * 127 = 762 in size, and 40 of them (two steps) are at most 30480 < 2^15.
 * For the products see codes.h.
 *
 * Matrices with a weight +2 and few rows (the tables would not pay) are left to the layout's kernel
 * for several tokens.
 */
#include "kernels/x86/avx512/codes.h"
#include "kernels/x86/avx512/tables.h"

#if defined(__clang__)
#define NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define NO_UNROLL _Pragma("GCC unroll 1")
#endif

enum {
    STEP = BN_K_ALIGN,  /* columns */
    TILE = 64,          /* rows */
    TOKENS = 4,         /* of a tile */
    SUM_STEPS = 2,      /* until a 16-bit sum is full */
    LOOKED = 20,        /* look-ups a step */
    UPPER = LOOKED / 4, /* fours of field 3 */
    TIMES = UPPER + BN_FOURS - LOOKED,
    MIN_ROWS = 128, /* below, building tables costs too much */
    ROWS_MAX = 1920 /* taken at a time: codes of two steps stay in the second cache */
};

struct codes {
    /* numbers of entries in two tables, a byte each, of the rows 0, 16, 1, 17 .. of 32 */
    uint8_t looked[LOOKED / 2][2][64];
    uint8_t times[TIMES][4][64]; /* four codes of each of 16 rows */
};

struct inputs {
    _Alignas(64) int16_t table[LOOKED][TOKENS][32];
    int32_t four[TOKENS][BN_FOURS + 8]; /* activations: the fours, then columns 96-127 */
};

struct memory {
    struct codes *codes;        /* [tiles][SUM_STEPS] */
    struct inputs *inputs;      /* [SUM_STEPS] */
    uint8_t (*fours)[BN_FOURS]; /* [rows] */
};

static void *take(uint8_t *base, size_t *at, size_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += bn_align_up(bytes, 64);
    return p;
}

/* The pieces of the caller's memory for so many rows at a time; with base NULL they are only
 * measured. */
static size_t lay_out(struct memory *m, uint8_t *base, size_t rows)
{
    size_t at = 0, tiles = bn_div_up(rows, TILE);
    m->codes = take(base, &at, tiles * SUM_STEPS * sizeof *m->codes);
    m->inputs = take(base, &at, SUM_STEPS * sizeof *m->inputs);
    m->fours = take(base, &at, (tiles * TILE + BN_FOURS_ROWS_BEYOND) * sizeof *m->fours);
    return at;
}

size_t bn_tables_bytes_avx512(size_t rows, size_t cols)
{
    struct memory m;
    (void)cols;
    return lay_out(&m, NULL, bn_min_size(rows, ROWS_MAX));
}

/* ---- codes ---- */

/* 16 rows of 8 numbers of 32 bits, to 8 registers of a number of all rows */
ALWAYS void turn(__m512i v[8], const uint8_t (*rows)[BN_FOURS])
{
    __m512i a[8], b[8];
    for (size_t i = 0; i < 8; i++) {
        const uint8_t(*row)[BN_FOURS] = rows + i % 4 + i / 4 * 8;
        __m256i low = _mm256_loadu_si256((const void *)row[0]);
        __m256i high = _mm256_loadu_si256((const void *)row[4]);
        v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    for (size_t i = 0; i < 8; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (size_t i = 0; i < 8; i += 4)
        for (size_t j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (size_t i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
        v[i + 4] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
    }
}

/* c0 + 3 c1 + 9 c2 for the fields of bits 0-5 */
#define ROW(n)   (n), (n) + 1, (n) + 2, (n) + 3
#define PLANE(n) ROW(n), ROW((n) + 3), ROW((n) + 6), ROW((n) + 9)
static const uint8_t entry_of[64] = {PLANE(0), PLANE(9), PLANE(18), PLANE(27)};
#undef PLANE
#undef ROW

/* the codes to be multiplied of 16 rows, `quarter` of a tile */
ALWAYS void store_times(struct codes *c, const __m512i v[8], size_t quarter)
{
    const __m512i m3 = _mm512_set1_epi8(3), fields = _mm512_set1_epi64(0x2624222006040200);
    for (size_t i = LOOKED; i < BN_FOURS; i++) {
        __m512i from = _mm512_add_epi8(fields, _mm512_set1_epi8((char)(8 * (i % 4))));
        _mm512_store_si512(c->times[i - LOOKED][quarter],
                           _mm512_and_si512(_mm512_multishift_epi64_epi8(from, v[i / 4]), m3));
    }
    for (size_t j = 0; j < UPPER; j++)
        _mm512_store_si512(c->times[BN_FOURS - LOOKED + j][quarter],
                           _mm512_and_si512(_mm512_srli_epi16(v[j], 6), m3));
}

/* The codes of a tile and step. */
static void store_codes(struct codes *c, const uint8_t (*rows)[BN_FOURS])
{
    const __m512i table = _mm512_loadu_si512(entry_of);
    const __m512i low = _mm512_set1_epi32(0xffff);
    for (size_t half = 0; half < 2; half++, rows += TILE / 2) {
        __m512i a[8], b[8];
        turn(a, rows);
        turn(b, rows + TILE / 4);
        store_times(c, a, 2 * half);
        store_times(c, b, 2 * half + 1);
        for (size_t j = 0; j < LOOKED / 4; j++) {
            __m512i n = _mm512_permutexvar_epi8(a[j], table);
            __m512i o = _mm512_permutexvar_epi8(b[j], table);
            _mm512_store_si512(c->looked[2 * j][half],
                               _mm512_or_si512(_mm512_and_si512(low, n), _mm512_slli_epi32(o, 16)));
            _mm512_store_si512(
                c->looked[2 * j + 1][half],
                _mm512_or_si512(_mm512_srli_epi32(n, 16), _mm512_andnot_si512(low, o)));
        }
    }
}

/* Some rows, from the first one of a group on, and their packed bytes for a block of steps. */
struct part {
    size_t r0, r1;
    const uint8_t *p;
    size_t group_bytes; /* from one group to the next */
    size_t steps;
};

/* The codes of a part; false if there is a weight +2. */
static bool make_codes(const struct memory *m, const struct part *a, const struct bn_fours_plan *l)
{
    size_t rows = a->r1 - a->r0;
    for (size_t s = 0; s < a->steps; s++) {
        if (!l->fours(m->fours, a->p + s * l->step_bytes, a->group_bytes,
                      bn_div_up(rows, l->group_rows)))
            return false;
        for (size_t r = 0; r < rows; r += TILE)
            store_codes(m->codes + r / TILE * SUM_STEPS + s, (const void *)m->fours[r]);
    }
    return true;
}

/* ---- inputs ---- */

/* the codes of entry e, in the order in which 32-bit sums are packed to 16 bits */
#define CODES(e) (e) % 3, (e) / 3 % 3, (e) / 9 % 3, 0
#define FOUR(e)  CODES(e), CODES((e) + 1), CODES((e) + 2), CODES((e) + 3)
static const uint8_t entry_codes[2][64] = {{FOUR(0), FOUR(8), FOUR(16), FOUR(24)},
                                           {FOUR(4), FOUR(12), FOUR(20), FOUR(28)}};
#undef FOUR
#undef CODES

/* the columns of fours 0-15 */
#define FOUR(i) (i), (i) + 32, (i) + 64, (i) + 96
#define SOME(i) FOUR(i), FOUR((i) + 1), FOUR((i) + 2), FOUR((i) + 3)
static const uint8_t four_columns[64] = {SOME(0), SOME(4), SOME(8), SOME(12)};
#undef SOME
#undef FOUR

/* Tables and activations of a step for token t of a tile. */
static void fill(struct inputs *x, size_t t, const int8_t *q)
{
    const __m512i codes[2] = {_mm512_loadu_si512(entry_codes[0]),
                              _mm512_loadu_si512(entry_codes[1])};
    const __m512i zero = _mm512_setzero_si512(), from = _mm512_loadu_si512(four_columns);
    const __m512i low = _mm512_loadu_si512(q), high = _mm512_loadu_si512(q + 64);
    int32_t *four = x->four[t];
    _mm512_storeu_si512(four + BN_FOURS - 8, high); /* of which the second half is to stay */
    for (size_t i = 0; i < BN_FOURS; i += 16) {
        __m512i at = _mm512_add_epi8(from, _mm512_set1_epi8((char)i));
        _mm512_storeu_si512(four + i, _mm512_permutex2var_epi8(low, at, high));
    }
    for (size_t i = 0; i < LOOKED; i++) {
        __m512i v = _mm512_set1_epi32(four[i]);
        __m512i sum =
            _mm512_packs_epi32(bn_dot_add(zero, codes[0], v), bn_dot_add(zero, codes[1], v));
        _mm512_store_si512(x->table[i][t], sum);
    }
}

/* Of some steps and the n tokens of a tile; missing ones are zeros. */
static void fill_tile(struct inputs *x, const int8_t *q, size_t q_stride, size_t n, size_t steps)
{
    static const int8_t zeros[STEP];
    for (size_t s = 0; s < steps; s++)
        for (size_t t = 0; t < TOKENS; t++)
            fill(x + s, t, t < n ? q + t * q_stride + s * STEP : zeros);
}

/* ---- tiles ---- */

struct sums {
    __m512i looked[TOKENS][2]; /* 32 rows each */
    __m512i times[TOKENS][4];  /* 16 rows each */
};

/* s + the entries with these numbers; written out for the reason that bn_dot_add() is */
ALWAYS __m512i add_entries(__m512i s, __m512i number, __m512i table)
{
#if defined(SIMDE_VERSION)
    return _mm512_add_epi16(s, _mm512_permutexvar_epi16(number, table));
#else
    __m512i entry;
    __asm__("vpermw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+v"(s), "=&v"(entry)
            : "v"(number), "v"(table));
    return s;
#endif
}

/* The rows' entries of table n for every token. Only the lower 5 of 16 bits count: the number of an
 * odd table comes to lie there by reading one byte later. */
ALWAYS void look_up(struct sums *s, const struct codes *c, const struct inputs *x, size_t n)
{
    __m512i number[2];
    UNROLL
    for (size_t i = 0; i < 2; i++) number[i] = _mm512_loadu_si512(c->looked[n / 2][i] + n % 2);
    UNROLL
    for (size_t t = 0; t < TOKENS; t++) {
        __m512i table = _mm512_load_si512(x->table[n][t]);
        UNROLL
        for (size_t i = 0; i < 2; i++)
            s->looked[t][i] = add_entries(s->looked[t][i], number[i], table);
    }
}

/* Four n of those that are multiplied. */
ALWAYS void multiply(struct sums *s, const struct codes *c, const struct inputs *x, size_t n)
{
    __m512i codes[4];
    UNROLL
    for (size_t i = 0; i < 4; i++) codes[i] = _mm512_load_si512(c->times[n][i]);
    UNROLL
    for (size_t t = 0; t < TOKENS; t++) {
        __m512i v = _mm512_set1_epi32(x->four[t][LOOKED + n]);
        UNROLL
        for (size_t i = 0; i < 4; i++) s->times[t][i] = bn_dot_add(s->times[t][i], codes[i], v);
    }
}

/* A step. The two kinds take turns in short pieces, for a core sees a few dozen instructions. */
ALWAYS void add_step(struct sums *s, const struct codes *c, const struct inputs *x)
{
    NO_UNROLL
    for (size_t i = 0; i < LOOKED / 4; i++) {
        UNROLL
        for (size_t j = 0; j < 3; j++) {
            look_up(s, c, x, 4 * i + j);
            multiply(s, c, x, 3 * i + j);
        }
        look_up(s, c, x, 4 * i + 3);
    }
    UNROLL
    for (size_t n = 3 * (LOOKED / 4); n < TIMES; n++) multiply(s, c, x, n);
}

/* total += the sums of a tile for some steps; in a first block, = */
static __attribute__((noinline)) void add_tile(void *total, size_t stride, const struct codes *c,
                                               const struct inputs *x, size_t steps, bool first)
{
    int32_t *to = total;
    struct sums s;
    UNROLL
    for (size_t t = 0; t < TOKENS; t++) {
        UNROLL
        for (size_t i = 0; i < 2; i++) s.looked[t][i] = _mm512_setzero_si512();
        UNROLL
        for (size_t i = 0; i < 4; i++)
            s.times[t][i] =
                first ? _mm512_setzero_si512() : _mm512_loadu_si512(to + t * stride + 16 * i);
    }
    for (size_t n = 0; n < steps; n++) add_step(&s, c + n, x + n);
    UNROLL
    for (size_t t = 0; t < TOKENS; t++) {
        UNROLL
        for (size_t i = 0; i < 4; i++) {
            /* the row's half of 32 bits times one, the other times zero */
            __m512i half = _mm512_set1_epi32(i % 2 ? 1 << 16 : 1);
            __m512i sum = _mm512_dpwssd_epi32(s.times[t][i], s.looked[t][i / 2], half);
            _mm512_storeu_si512(to + t * stride + 16 * i, sum);
        }
    }
}

/* The same where a tile has fewer rows or tokens. */
static void add_edge(float *y, size_t y_stride, size_t rows, size_t tokens, const struct codes *c,
                     const struct inputs *x, size_t steps, bool first)
{
    float total[TOKENS][TILE] = {{0}};
    for (size_t t = 0; t < tokens && !first; t++)
        memcpy(total[t], y + t * y_stride, rows * sizeof *y);
    add_tile(total, TILE, c, x, steps, first);
    for (size_t t = 0; t < tokens; t++) memcpy(y + t * y_stride, total[t], rows * sizeof *y);
}

/* A part, whose codes are made, and all tokens; q from its first column on. */
static void add_part(float *y, size_t y_stride, const struct memory *m, const struct part *a,
                     const int8_t *q, size_t q_stride, size_t n_tok, bool first)
{
    for (size_t t = 0; t < n_tok; t += TOKENS) {
        size_t tokens = bn_min_size(TOKENS, n_tok - t);
        const struct codes *c = m->codes;
        fill_tile(m->inputs, q + t * q_stride, q_stride, tokens, a->steps);
        for (size_t r = a->r0; r < a->r1; r += TILE, c += SUM_STEPS) {
            float *to = y + t * y_stride + r;
            if (tokens == TOKENS && a->r1 - r >= TILE)
                add_tile(to, y_stride, c, m->inputs, a->steps, first);
            else
                add_edge(to, y_stride, bn_min_size(TILE, a->r1 - r), tokens, c, m->inputs, a->steps,
                         first);
        }
    }
}

/* y of rows [r0, r1) and a token from the sums that lie there */
static void finish(float *y, const struct bn_packed *w, size_t r0, size_t r1, int32_t sum,
                   float inv)
{
    for (size_t r = r0; r < r1; r += 8) {
        size_t n = bn_min_size(8, r1 - r);
        __m256 scale = w->scale_kind == BN_SCALE_ROW ? bn_load_head(w->row_scale + r, n)
                                                     : _mm256_set1_ps(w->scale);
        __m256i s = _mm256_castps_si256(n == 8 ? _mm256_loadu_ps(y + r) : bn_load_head(y + r, n));
        __m256 v = _mm256_cvtepi32_ps(_mm256_sub_epi32(s, _mm256_set1_epi32(sum)));
        v = _mm256_mul_ps(v, _mm256_mul_ps(scale, _mm256_set1_ps(inv)));
        if (n == 8) _mm256_storeu_ps(y + r, v); /* with a mask it takes much longer */
        else bn_store_head(y + r, n, v);
    }
}

/* false, and anything in y, if there is a weight +2 */
static bool mul_rows(const struct memory *m, const struct bn_gemm_args *a, const struct bn_q8 *x,
                     const struct bn_fours_plan *l)
{
    const struct bn_packed *w = a->w;
    size_t steps = bn_div_up(w->cols, STEP), bytes = steps * l->step_bytes;
    struct part p = {a->r0, a->r1, w->data + a->r0 / l->group_rows * bytes, bytes, SUM_STEPS};
    for (size_t s = 0; s < steps; s += SUM_STEPS, p.p += SUM_STEPS * l->step_bytes) {
        p.steps = bn_min_size(SUM_STEPS, steps - s);
        if (!make_codes(m, &p, l)) return false;
        add_part(a->y, a->y_stride, m, &p, x->q + s * STEP, x->stride, a->n_tok, s == 0);
    }
    for (size_t t = 0; t < a->n_tok; t++)
        finish(a->y + t * a->y_stride, w, a->r0, a->r1, x->sum[t], x->inv[t]);
    return true;
}

void bn_mul_tables_avx512(const struct bn_gemm_args *a, const struct bn_q8 *x,
                          const struct bn_fours_plan *l, bn_mul_i8_fn *otherwise)
{
    struct memory m;
    size_t n_rows = a->r1 - a->r0, parts = bn_div_up(n_rows, ROWS_MAX);
    size_t rows = bn_div_up(n_rows, parts * BN_FOURS_ROWS) * BN_FOURS_ROWS;
    bool few = a->w->scale_kind == BN_SCALE_BLOCK || n_rows < MIN_ROWS;
    lay_out(&m, a->scratch, bn_min_size(rows, n_rows));
    for (size_t r = a->r0; r < a->r1; r += rows) {
        struct bn_gemm_args some = bn_gemm_rows(a, r, bn_min_size(a->r1, r + rows));
        if (few || !mul_rows(&m, &some, x, l)) otherwise(&some, x);
    }
}
