/* SPDX-License-Identifier: Apache-2.0
 *
 * Int8 activations of several tokens times matrices in layouts "t2" and "t3", one scale a row
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
#include "kernels/wide/gemm/tokens.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    TOKENS = BN_TOKENS,
    TWO_ROWS_MAX = 5,   /* tokens that two rows of t2 meet together, */
    THREE_ROWS_MAX = 4, /* and three rows of t3 */
    ONE_STREAM_MAX = 3, /* tokens for which a unit of t2 is one group */
    UNIT_ROWS = BN_UNIT_ROWS,
    BLOCK_STEPS = 10, /* steps until a 16-bit sum is full */
    STEP = BN_K_ALIGN,
    HALF_STEP_BYTES = BN_T3_STEP_BYTES / 2, /* of t3: prefetched while a triple is multiplied, */
    ASK_ROW = 16,  /* so many bytes at a time: 3 rows, 2 turns for a step; */
    ASK_THREE = 20 /* or 3 rows together, 4 turns */
};

/* ---- rows ---- */

/* A row's sums, one for each token. Not an array: compilers do not always find out that
 * its elements could stay in registers. */
struct sums {
    w_int s0, s1, s2, s3, s4, s5, s6, s7;
};

ALWAYS struct sums no_sums(void)
{
    w_int z = w_setzero_si256();
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

/* Adds 32 columns, `at` columns from x on, of nt tokens. */
ALWAYS void add_codes(struct sums *s, w_int codes, const struct place *x, size_t at,
                      const size_t nt)
{
    size_t one = x->stride + at, two = 2 * x->stride + at;
    s->s0 = w_add_products(s->s0, codes, x->q0 + at);
    if (nt > 1) s->s1 = w_add_products(s->s1, codes, x->q0 + one);
    if (nt > 2) s->s2 = w_add_products(s->s2, codes, x->q0 + two);
    if (nt > 3) s->s3 = w_add_products(s->s3, codes, x->q3 + at);
    if (nt > 4) s->s4 = w_add_products(s->s4, codes, x->q3 + one);
    if (nt > 5) s->s5 = w_add_products(s->s5, codes, x->q3 + two);
    if (nt > 6) s->s6 = w_add_products(s->s6, codes, x->q6 + at);
    if (nt > 7) s->s7 = w_add_products(s->s7, codes, x->q6 + one);
}

/* The sixteen parts of a sum to the eight of one in 32 bits. */
ALWAYS void widen(w_int *sum, w_int s, bool first)
{
    w_int w = w_sum_32(s);
    *sum = first ? w : w_add_epi32(*sum, w);
}

ALWAYS void add_sums(w_int *sum, const struct sums *s, bool first, const size_t nt)
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
ALWAYS w_int field(w_int v, const int shift)
{
    return w_and_si256(w_srli_epi16(v, shift), w_set1_epi8(3));
}

ALWAYS w_int t2_field(const uint8_t *p, size_t row, const int shift)
{
    return field(w_loadu_si256((const void *)(p + row * BN_T2_PIECE)), shift);
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
ALWAYS void t2_rows(w_int *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens tokens,
                    const size_t nt, const bool two)
{
    struct place x = place(tokens, nt);
    struct sums s0 = no_sums(), s1 = no_sums(), *next = two ? &s1 : NULL;
    for (size_t n = b->steps; n > 0; n--, p += BN_T2_STEP_BYTES) {
        h_prefetch((const char *)p + b->ahead, H_T1);
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
ALWAYS w_int t3_codes(const uint8_t *codes, const int shift, w_int *sum)
{
    w_int c = field(w_load_si256((const void *)codes), shift);
    W_KEEP(c);
    W_KEEP(*sum);
    return c;
}

/* A row of a triple of t3: two bits from `shift` on of a byte a column. They are cut out 32 columns
 * ahead: products that wait for them would fill the scheduler. */
ALWAYS void t3_row(w_int *sum, const uint8_t *codes, const uint8_t *ask, const struct bn_block *b,
                   const int shift, struct bn_tokens tokens, const size_t nt)
{
    struct place x = place(tokens, nt);
    struct sums s = no_sums();
    w_int u = t3_codes(codes, shift, &s.s0), v;
    for (size_t n = 2 * b->steps; n > 0; n--, codes += 64, ask += ASK_ROW) {
        h_prefetch((const char *)ask, H_T1);
        v = t3_codes(codes + 32, shift, &s.s0);
        add_codes(&s, u, &x, 0, nt);
        u = t3_codes(codes + 64, shift, &s.s0); /* in the end not used */
        add_codes(&s, v, &x, 32, nt);
        move(&x, 64);
    }
    add_sums(sum, &s, b->first, nt);
}

ALWAYS void t3_row_by_row(w_int *sum, const uint8_t *codes, const uint8_t *ask,
                          const struct bn_block *b, struct bn_tokens x, const size_t nt)
{
    const size_t third = b->steps * BN_T3_STEP_BYTES / 6;
    t3_row(sum, codes, ask, b, 0, x, nt);
    t3_row(sum + TOKENS, codes, ask + third, b, 2, x, nt);
    t3_row(sum + 2 * TOKENS, codes, ask + 2 * third, b, 4, x, nt);
}

/* The sum of whole bytes less those of the two higher codes in them, in 16 bits modulo 2^16: the sum of the
 * lowest, which is small enough to be exact. */
ALWAYS w_int lowest(w_int all, w_int middle, w_int top)
{
    return w_sum_sub(all, w_sum_fourfold(w_sum_add(middle, w_sum_fourfold(top))));
}

ALWAYS void keep_lowest(struct sums *s, const struct sums *middle, const struct sums *top)
{
    s->s0 = lowest(s->s0, middle->s0, top->s0);
    s->s1 = lowest(s->s1, middle->s1, top->s1);
    s->s2 = lowest(s->s2, middle->s2, top->s2);
    s->s3 = lowest(s->s3, middle->s3, top->s3);
}

/* The three of a triple together, for few tokens. The first row is not cut out of the bytes, of which a
 * product is at most 2 * 42 * 127 in size, but separated on the sums. The codes of the second come from a
 * table: an instruction less than a shift and a mask. */
ALWAYS void t3_rows(w_int *sum, const uint8_t *codes, const uint8_t *ask, const struct bn_block *b,
                    struct bn_tokens tokens, const size_t nt)
{
    const w_int second =
        w_broadcastsi128_si256(h_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0));
    struct place x = place(tokens, nt);
    struct sums s0 = no_sums(), s1 = no_sums(), s2 = no_sums();
    for (size_t n = 4 * b->steps; n > 0; n--, codes += 32, ask += ASK_THREE) {
        w_int v = w_load_si256((const void *)codes);
        h_prefetch((const char *)ask, H_T1);
        add_codes(&s0, v, &x, 0, nt);
        add_codes(&s1, w_shuffle_low_epi8(second, v), &x, 0, nt);
        add_codes(&s2, field(v, 4), &x, 0, nt);
        move(&x, 32);
    }
    keep_lowest(&s0, &s1, &s2);
    add_sums(sum, &s0, b->first, nt);
    add_sums(sum + TOKENS, &s1, b->first, nt);
    add_sums(sum + 2 * TOKENS, &s2, b->first, nt);
}

/* ---- layout t3: from packed bytes to a byte a column ---- */

/* For 32 columns of a triple the codes of its rows in bits 0-1, 2-3 and 4-5. The table has them for
 * m >= 0; for -m each code is 2 minus that, so all three are 0x2a minus it. */
ALWAYS w_int triple_codes(w_int v, w_int sign)
{
#define C(t0, t1, t2) (int8_t)((t0) + 1 + 4 * ((t1) + 1) + 16 * ((t2) + 1))
    const w_int codes = w_broadcastsi128_si256(
        h_setr_epi8(C(0, 0, 0), C(1, 0, 0), C(-1, 1, 0), C(0, 1, 0), C(1, 1, 0), C(-1, -1, 1),
                    C(0, -1, 1), C(1, -1, 1), C(-1, 0, 1), C(0, 0, 1), C(1, 0, 1), C(-1, 1, 1),
                    C(0, 1, 1), C(1, 1, 1), 0, 0));
#undef C
    w_int c = w_shuffle_epi8(codes, v);
    return w_blendv_epi8(c, w_sub_epi8(w_set1_epi8(0x2a), c), sign);
}

/* Some steps of a group: c0 and c1 get the two triples. */
static void t3_decode(uint8_t *c0, uint8_t *c1, const uint8_t *p, const struct bn_block *b)
{
    const w_int m15 = w_set1_epi8(15);
    for (size_t n = b->steps; n > 0; n--, p += BN_T3_STEP_BYTES) {
        w_int sign = w_loadu_si256((const void *)(p + BN_T3_STEP));
        for (size_t f = 0; f < 4; f++, c0 += 32, c1 += 32) {
            w_int v = w_loadu_si256((const void *)(p + 32 * f));
            w_int lo = w_and_si256(v, m15);
            w_int hi = w_and_si256(w_srli_epi16(v, 4), m15);
            w_store_si256((void *)c0, triple_codes(lo, sign));
            sign = w_add_epi8(sign, sign);
            w_store_si256((void *)c1, triple_codes(hi, sign));
            sign = w_add_epi8(sign, sign);
        }
    }
}

/* ---- groups and triples of rows, for every number of tokens ---- */

typedef void rows_fn(w_int *sum, const uint8_t *p, const struct bn_block *b, struct bn_tokens x);
typedef void triple_fn(w_int *sum, const uint8_t *codes, const uint8_t *ask,
                       const struct bn_block *b, struct bn_tokens x);

#define TOKENS_FN(n)                                                                      \
    static void t2_group_##n(w_int *sum, const uint8_t *p, const struct bn_block *b,      \
                             struct bn_tokens x)                                          \
    {                                                                                     \
        for (size_t r = 0; r < BN_T2_ROWS; r += (n) <= TWO_ROWS_MAX ? 2 : 1)              \
            t2_rows(sum + r * TOKENS, p + r * BN_T2_PIECE, b, x, n, (n) <= TWO_ROWS_MAX); \
    }                                                                                     \
    static void t3_triple_##n(w_int *sum, const uint8_t *codes, const uint8_t *ask,       \
                              const struct bn_block *b, struct bn_tokens x)               \
    {                                                                                     \
        if ((n) <= THREE_ROWS_MAX) t3_rows(sum, codes, ask, b, x, n);                     \
        else t3_row_by_row(sum, codes, ask, b, x, n);                                     \
    }
BN_EACH_TOKENS(TOKENS_FN)

static rows_fn *const t2_group[TOKENS + 1] = BN_BY_TOKENS(t2_group);
static triple_fn *const t3_triple[TOKENS + 1] = BN_BY_TOKENS(t3_triple);

/* ---- blocks ---- */

/* How many of n to take next, so that the parts are as few and as equal as possible: of two or more
 * never one. */
static inline size_t part(size_t n, size_t most) { return bn_div_up(n, bn_div_up(n, most)); }

static void t2_block(w_int *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    for (size_t g = 0; g < b->groups; g++)
        t2_group[n_tok](sum + g * BN_T2_ROWS * TOKENS, b->p + g * b->group_bytes, b, x);
}

static void t3_block(w_int *sum, const struct bn_block *b, struct bn_tokens x, size_t n_tok)
{
    _Alignas(32) uint8_t codes[UNIT_ROWS / 3 + 1][BLOCK_STEPS * STEP]; /* rows look ahead */
    for (size_t g = 0; g < b->groups; g++)
        t3_decode(codes[2 * g], codes[2 * g + 1], b->p + g * b->group_bytes, b);
    for (size_t i = 0; i < 2 * b->groups; i++) {
        const uint8_t *half = b->p + i / 2 * b->group_bytes + i % 2 * (b->steps * HALF_STEP_BYTES);
        t3_triple[n_tok](sum + 3 * i * TOKENS, codes[i], half + b->ahead, b, x);
    }
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
    w_int codes[BN_UNIT_ROWS_MAX * TOKENS];
    const struct bn_packed *w = a->w;
    const size_t n_rows = bn_min_size(l->rows, a->r1 - r), n_tok = a->n_tok;
    const size_t y_stride = a->y_stride, q_stride = x->stride;
    float *y = a->y;
    const int8_t *q = x->q;
    const int32_t *sum = x->sum;
    const float *inv = x->inv;
    size_t steps = bn_div_up(w->cols, STEP), bytes = steps * l->step_bytes;
    struct bn_block b = {.p = w->data + r / l->group_rows * bytes,
                         .group_bytes = bytes,
                         .groups = bn_div_up(n_rows, l->group_rows),
                         .ahead = bn_max_size(l->rows, UNIT_ROWS) / l->group_rows * bytes};
    for (size_t s = 0; s < steps; s += b.steps, b.p += b.steps * l->step_bytes) {
        b.first = s == 0;
        b.steps = part(steps - s, l->block_steps);
        l->block(codes, &b, (struct bn_tokens){q + s * STEP, q_stride}, n_tok);
    }
    for (size_t t = 0; t < n_tok; t++)
        for (size_t i = 0; i < n_rows; i += 4) {
            const w_int *c = codes + i * TOKENS + t;
            bn_store_rows(y + t * y_stride, w, r + i, bn_min_size(4, n_rows - i),
                          bn_hsum4_i32(c[0], c[TOKENS], c[2 * TOKENS], c[3 * TOKENS]), sum[t],
                          inv[t]);
        }
}

void W_NAME(mul_tokens)(const struct bn_gemm_args *a, const struct bn_q8 *x,
                        const struct bn_tokens_plan *l)
{
    for (size_t t = 0, nt; t < a->n_tok; t += nt) {
        nt = part(a->n_tok - t, TOKENS);
        struct bn_gemm_args some = bn_gemm_tokens(a, t, nt);
        struct bn_q8 q = bn_q8_from(x, t);
        for (size_t r = a->r0; r < a->r1; r += l->rows) mul_unit(&some, r, &q, l);
    }
}

void W_NAME(t2_mul_i8_tokens)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    W_NAME(mul_tokens)(a, x, a->n_tok <= ONE_STREAM_MAX ? &t2_stream : &t2);
}

void W_NAME(t3_mul_i8_tokens)(const struct bn_gemm_args *a, const struct bn_q8 *x)
{
    if (a->n_tok == 2 && W_NAME(t3_mul_i8_two)(a, x)) return;
    W_NAME(mul_tokens)(a, x, &t3);
}
