/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: int8 activations of several tokens times matrices in layouts "t2" and "t3", one scale a row
 * or matrix.
 *
 * A row meets up to 8 tokens at a time. Its codes c = w + 1, 32 columns in a register, are multiplied
 * with the tokens' activations, which are operands in memory, and every token has a sum in a
 * register. So the decoding, 7 instructions for 128 columns of t2, is shared by all tokens, and
 * nothing has to be moved between columns. Five tokens or fewer leave registers for a second row.
 * Layout t3 is first decoded into a byte a column of a triple, in which its rows have two bits each;
 * two tokens of it are in t3_two.c.
 *
 * Order: 8 tokens; units of 12 rows; in a unit, blocks of 10 steps of 128 columns; in a block the
 * rows. The activations of a block (1280 bytes a token) stay in the first cache, and so does what is
 * decoded of t3. The bytes that lie 12 rows ahead are prefetched meanwhile, into the second cache:
 * without that, up to half the time goes by waiting for memory. Two or three tokens have so few
 * activations that all columns stay in the cache; a unit of t2 is then one group, which makes the
 * matrix one stream.
 *
 * Why the sums are exact: maddubs adds two products of a code in {0..3} and an activation a,
 * |a| <= 127, at most 762 in size. In 10 steps a 16-bit sum takes 40 of them: at most 30480 < 2^15.
 * Then it goes to 32 bits, where |sum| <= 32768 * 3 * 127 < 2^24. The sum of weights times
 * activations is the sum of codes times activations minus the sum of activations.
 */
#include "kernels/x86/avx2/gemm/tokens.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    TOKENS = BN_TOKENS,
    TWO_ROWS_MAX = 5,   /* tokens that two rows of t2 meet together, */
    THREE_ROWS_MAX = 4, /* and three rows of t3 */
    ONE_STREAM_MAX = 3, /* tokens for which a unit of t2 is one group */
    UNIT_ROWS = BN_UNIT_ROWS,
    BLOCK_STEPS = 10, /* steps until a 16-bit sum is full */
    STEP = BN_K_ALIGN
};

/* ---- rows ---- */

/* A row's sums, one for each token. Not an array: compilers do not always find out that
 * its elements could stay in registers. */
struct sums {
    __m256i s0, s1, s2, s3, s4, s5, s6, s7;
};

ALWAYS struct sums no_sums(void)
{
    __m256i z = _mm256_setzero_si256();
    return (struct sums){z, z, z, z, z, z, z, z};
}

/* Tokens are addressed from every third: the processor adds up to two strides by itself. */
struct place {
    const int8_t *q0, *q3, *q6;
    size_t stride;
};

ALWAYS struct place place(struct bn_tokens x, const size_t nt)
{
    return (struct place){x.q, nt > 3 ? x.q + 3 * x.stride : x.q, nt > 6 ? x.q + 6 * x.stride : x.q,
                          x.stride};
}

ALWAYS void move(struct place *x, size_t cols) { x->q0 += cols, x->q3 += cols, x->q6 += cols; }

/* Written as instructions, because compilers would rather load all activations first and then have
 * no registers left for the sums. */
ALWAYS __m256i mul_add(__m256i s, __m256i codes, const int8_t *q)
{
    __m256i p;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
            : "+x"(s), "=&x"(p)
            : "x"(codes), "m"(*(const __m256i_u *)q));
    return s;
}

/* Adds 32 columns, `at` columns from x on, of nt tokens. */
ALWAYS void add_codes(struct sums *s, __m256i codes, const struct place *x, size_t at,
                      const size_t nt)
{
    size_t one = x->stride + at, two = 2 * x->stride + at;
    s->s0 = mul_add(s->s0, codes, x->q0 + at);
    if (nt > 1) s->s1 = mul_add(s->s1, codes, x->q0 + one);
    if (nt > 2) s->s2 = mul_add(s->s2, codes, x->q0 + two);
    if (nt > 3) s->s3 = mul_add(s->s3, codes, x->q3 + at);
    if (nt > 4) s->s4 = mul_add(s->s4, codes, x->q3 + one);
    if (nt > 5) s->s5 = mul_add(s->s5, codes, x->q3 + two);
    if (nt > 6) s->s6 = mul_add(s->s6, codes, x->q6 + at);
    if (nt > 7) s->s7 = mul_add(s->s7, codes, x->q6 + one);
}

/* The sixteen parts of a sum to the eight of one in 32 bits. */
ALWAYS void widen(__m256i *sum, __m256i s, bool first)
{
    __m256i w = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
    *sum = first ? w : _mm256_add_epi32(*sum, w);
}

ALWAYS void add_sums(__m256i *sum, const struct sums *s, bool first, const size_t nt)
{
    widen(sum, s->s0, first);
    if (nt > 1) widen(sum + 1, s->s1, first);
    if (nt > 2) widen(sum + 2, s->s2, first);
    if (nt > 3) widen(sum + 3, s->s3, first);
    if (nt > 4) widen(sum + 4, s->s4, first);
    if (nt > 5) widen(sum + 5, s->s5, first);
    if (nt > 6) widen(sum + 6, s->s6, first);
    if (nt > 7) widen(sum + 7, s->s7, first);
}

/* one code of two bits from every byte */
ALWAYS __m256i field(__m256i v, const int shift)
{
    return _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(3));
}

ALWAYS __m256i t2_field(const uint8_t *p, size_t row, const int shift)
{
    return field(_mm256_loadu_si256((const void *)(p + row * BN_T2_PIECE)), shift);
}

/* 32 columns of a row of t2 or, with s1, of two */
ALWAYS void t2_columns(struct sums *s0, struct sums *s1, const uint8_t *p, const struct place *x,
                       const int f, const size_t nt)
{
    add_codes(s0, t2_field(p, 0, 2 * f), x, 32 * (size_t)f, nt);
    if (s1) add_codes(s1, t2_field(p, 1, 2 * f), x, 32 * (size_t)f, nt);
}

/* One row of t2 or, where tokens are few and leave registers, two. What one row prefetches, the one
 * after it may prefetch again; that costs nothing. */
ALWAYS void t2_rows(__m256i *sum, const uint8_t *p, const struct bn_block *b,
                    struct bn_tokens tokens, const size_t nt, const bool two)
{
    struct place x = place(tokens, nt);
    struct sums s0 = no_sums(), s1 = no_sums(), *next = two ? &s1 : NULL;
    for (size_t n = b->steps; n > 0; n--, p += BN_T2_STEP_BYTES) {
        _mm_prefetch((const char *)p + b->ahead, _MM_HINT_T1);
        t2_columns(&s0, next, p, &x, 0, nt);
        t2_columns(&s0, next, p, &x, 1, nt);
        t2_columns(&s0, next, p, &x, 2, nt);
        t2_columns(&s0, next, p, &x, 3, nt);
        move(&x, STEP);
    }
    add_sums(sum, &s0, b->first, nt);
    if (two) add_sums(sum + TOKENS, &s1, b->first, nt);
}

/* Two bits from `shift` on of 32 bytes. The empty statement keeps this in front of what is added to
 * the sum next. */
ALWAYS __m256i t3_codes(const uint8_t *codes, const int shift, __m256i *sum)
{
    __m256i c = field(_mm256_load_si256((const void *)codes), shift);
    __asm__("" : "+x"(c), "+x"(*sum));
    return c;
}

/* A row of a triple of t3: two bits from `shift` on of a byte a column. They are cut out 32 columns
 * ahead: products that wait for them would fill the scheduler. */
ALWAYS void t3_row(__m256i *sum, const uint8_t *codes, const struct bn_block *b, const int shift,
                   struct bn_tokens tokens, const size_t nt)
{
    struct place x = place(tokens, nt);
    struct sums s = no_sums();
    __m256i u = t3_codes(codes, shift, &s.s0), v;
    for (size_t n = 2 * b->steps; n > 0; n--, codes += 64) {
        v = t3_codes(codes + 32, shift, &s.s0);
        add_codes(&s, u, &x, 0, nt);
        u = t3_codes(codes + 64, shift, &s.s0); /* in the end not used */
        add_codes(&s, v, &x, 32, nt);
        move(&x, 64);
    }
    add_sums(sum, &s, b->first, nt);
}

ALWAYS void t3_row_by_row(__m256i *sum, const uint8_t *codes, const struct bn_block *b,
                          struct bn_tokens x, const size_t nt)
{
    t3_row(sum, codes, b, 0, x, nt);
    t3_row(sum + TOKENS, codes, b, 2, x, nt);
    t3_row(sum + 2 * TOKENS, codes, b, 4, x, nt);
}

/* The three of a triple together, for few tokens. */
ALWAYS void t3_rows(__m256i *sum, const uint8_t *codes, const struct bn_block *b,
                    struct bn_tokens tokens, const size_t nt)
{
    struct place x = place(tokens, nt);
    struct sums s0 = no_sums(), s1 = no_sums(), s2 = no_sums();
    for (size_t n = 4 * b->steps; n > 0; n--, codes += 32) {
        __m256i v = _mm256_load_si256((const void *)codes);
        add_codes(&s0, field(v, 0), &x, 0, nt);
        add_codes(&s1, field(v, 2), &x, 0, nt);
        add_codes(&s2, field(v, 4), &x, 0, nt);
        move(&x, 32);
    }
    add_sums(sum, &s0, b->first, nt);
    add_sums(sum + TOKENS, &s1, b->first, nt);
    add_sums(sum + 2 * TOKENS, &s2, b->first, nt);
}

/* ---- layout t3: from packed bytes to a byte a column ---- */

/* For 32 columns of a triple the codes of its rows in bits 0-1, 2-3 and 4-5. The table has them for
 * m >= 0; for -m each code is 2 minus that, so all three are 0x2a minus it. */
ALWAYS __m256i triple_codes(__m256i v, __m256i sign)
{
#define C(t0, t1, t2) (int8_t)((t0) + 1 + 4 * ((t1) + 1) + 16 * ((t2) + 1))
    const __m256i codes = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(C(0, 0, 0), C(1, 0, 0), C(-1, 1, 0), C(0, 1, 0), C(1, 1, 0), C(-1, -1, 1),
                      C(0, -1, 1), C(1, -1, 1), C(-1, 0, 1), C(0, 0, 1), C(1, 0, 1), C(-1, 1, 1),
                      C(0, 1, 1), C(1, 1, 1), 0, 0));
#undef C
    __m256i c = _mm256_shuffle_epi8(codes, v);
    return _mm256_blendv_epi8(c, _mm256_sub_epi8(_mm256_set1_epi8(0x2a), c), sign);
}

/* Some steps of a group: c0 and c1 get the two triples. */
static void t3_decode(uint8_t *c0, uint8_t *c1, const uint8_t *p, const struct bn_block *b)
{
    const __m256i m15 = _mm256_set1_epi8(15);
    for (size_t n = b->steps; n > 0; n--, p += BN_T3_STEP_BYTES) {
        __m256i sign = _mm256_loadu_si256((const void *)(p + BN_T3_STEP));
        for (size_t i = 0; i < BN_T3_STEP_BYTES; i += 64)
            _mm_prefetch((const char *)p + b->ahead + i, _MM_HINT_T1);
        for (size_t f = 0; f < 4; f++, c0 += 32, c1 += 32) {
            __m256i v = _mm256_loadu_si256((const void *)(p + 32 * f));
            __m256i lo = _mm256_and_si256(v, m15);
            __m256i hi = _mm256_and_si256(_mm256_srli_epi16(v, 4), m15);
            _mm256_store_si256((void *)c0, triple_codes(lo, sign));
            sign = _mm256_add_epi8(sign, sign);
            _mm256_store_si256((void *)c1, triple_codes(hi, sign));
            sign = _mm256_add_epi8(sign, sign);
        }
    }
}

/* ---- groups and triples of rows, for every number of tokens ---- */

typedef void rows_fn(__m256i *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x);

#define TOKENS_FN(n)                                                                      \
    static void t2_group_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b,    \
                             struct bn_tokens x)                                          \
    {                                                                                     \
        for (size_t r = 0; r < BN_T2_ROWS; r += (n) <= TWO_ROWS_MAX ? 2 : 1)              \
            t2_rows(sum + r * TOKENS, p + r * BN_T2_PIECE, b, x, n, (n) <= TWO_ROWS_MAX); \
    }                                                                                     \
    static void t3_triple_##n(__m256i *sum, const uint8_t *p, const struct bn_block *b,   \
                              struct bn_tokens x)                                         \
    {                                                                                     \
        if ((n) <= THREE_ROWS_MAX) t3_rows(sum, p, b, x, n);                              \
        else t3_row_by_row(sum, p, b, x, n);                                              \
    }
BN_EACH_TOKENS(TOKENS_FN)

static rows_fn *const t2_group[TOKENS + 1] = BN_BY_TOKENS(t2_group);
static rows_fn *const t3_triple[TOKENS + 1] = BN_BY_TOKENS(t3_triple);

/* ---- blocks ---- */

/* How many of n to take next, so that the parts are as few and as equal as possible: of two or more
 * never one. */
static inline size_t part(size_t n, size_t most) { return bn_div_up(n, bn_div_up(n, most)); }

static void t2_block(__m256i *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    for (size_t g = 0; g < b->groups; g++)
        t2_group[n_tok](sum + g * BN_T2_ROWS * TOKENS, b->p + g * b->group_bytes, b, x);
}

static void t3_block(__m256i *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    _Alignas(32) uint8_t codes[UNIT_ROWS / 3 + 1][BLOCK_STEPS * STEP]; /* rows look ahead */
    for (size_t g = 0; g < b->groups; g++)
        t3_decode(codes[2 * g], codes[2 * g + 1], b->p + g * b->group_bytes, b);
    for (size_t i = 0; i < 2 * b->groups; i++)
        t3_triple[n_tok](sum + 3 * i * TOKENS, codes[i], b, x);
}

/* ---- units ---- */

static const struct bn_tokens_plan t2 = {t2_block, BN_T2_ROWS, BN_T2_STEP_BYTES, UNIT_ROWS,
                                         BLOCK_STEPS};
static const struct bn_tokens_plan t2_stream = {t2_block, BN_T2_ROWS, BN_T2_STEP_BYTES, BN_T2_ROWS,
                                                BLOCK_STEPS};
static const struct bn_tokens_plan t3 = {t3_block, BN_T3_ROWS, BN_T3_STEP_BYTES, UNIT_ROWS,
                                         BLOCK_STEPS};

/* Up to l->rows rows from r on, up to TOKENS tokens. */
static void mul_unit(const struct bn_gemm_args *a, size_t r, const struct bn_q8 *x,
                     const struct bn_tokens_plan *l)
{
    __m256i codes[BN_UNIT_ROWS_MAX * TOKENS];
    const struct bn_packed *w = a->w;
    size_t n_rows = bn_min_size(l->rows, a->r1 - r), n_tok = a->n_tok;
    size_t steps = bn_div_up(w->cols, STEP), bytes = steps * l->step_bytes;
    struct bn_block b = {.p = w->data + r / l->group_rows * bytes,
                         .group_bytes = bytes,
                         .groups = bn_div_up(n_rows, l->group_rows),
                         .ahead = bn_max_size(l->rows, UNIT_ROWS) / l->group_rows * bytes};
    for (size_t s = 0; s < steps; s += b.steps, b.p += b.steps * l->step_bytes) {
        b.first = s == 0;
        b.steps = part(steps - s, l->block_steps);
        l->block(codes, &b, (struct bn_tokens){x->q + s * STEP, x->stride}, n_tok);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_rows; i += 4) {
            const __m256i *c = codes + i * TOKENS + t;
            bn_store_rows(a->y + t * a->y_stride, w, r + i, bn_min_size(4, n_rows - i),
                          bn_hsum4_i32(c[0], c[TOKENS], c[2 * TOKENS], c[3 * TOKENS]), x->sum[t],
                          x->inv[t]);
        }
}

void bn_mul_tokens_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x,
                        const struct bn_tokens_plan *l)
{
    for (size_t t = 0, nt; t < a->n_tok; t += nt) {
        nt = part(a->n_tok - t, TOKENS);
        struct bn_gemm_args some = bn_gemm_tokens(a, t, nt);
        struct bn_q8 q = bn_q8_from(x, t);
        for (size_t r = a->r0; r < a->r1; r += l->rows) mul_unit(&some, r, &q, l);
    }
}

void bn_t2_mul_i8_tokens_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    bn_mul_tokens_avx2(a, x, a->n_tok <= ONE_STREAM_MAX ? &t2_stream : &t2);
}

void bn_t3_mul_i8_tokens_avx2(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 2 && bn_t3_mul_i8_two_avx2(a, x)) return;
    bn_mul_tokens_avx2(a, x, &t3);
}
