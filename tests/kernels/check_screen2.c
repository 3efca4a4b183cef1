/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the coarse screening copy: its packing and its sums against their definition. */
#include "check.h"

enum { MAX_VECTORS = 9 };

struct screen {
    bn_screen2_fn *fn;
    int32_t *sum;
    size_t stride;
    struct bn_screen2 w;
    struct bn_screen2_vector v[MAX_VECTORS];
    size_t r0, r1, n_vec;
};

/* What a case is made of. WITH and AGAINST: codes 3 where the first vector is above zero and 0 where
 * it is below, or the other way round: the largest sums of either sign. */
enum codes { RANDOM, ZEROS, THREES, WITH, AGAINST, N_CODES };
enum vector { ANY, PLUS, MINUS, BOTH, N_VECTORS };

struct shape {
    size_t rows, cols, r0, n_vec;
    enum codes codes;
    int u; /* 0 .. 255; -1: random */
    enum vector vector;
};

static void run_screen(void *p)
{
    struct screen *a = p;
    a->fn(a->sum, a->stride, &a->w, a->r0, a->r1, a->v, a->n_vec);
}

static void naive_screen(struct ck *c, const struct screen *a, const uint8_t *code,
                         const uint8_t *u)
{
    size_t cols = a->w.cols, blocks = bn_div_up(cols, BN_SCREEN2_BLOCK);
    for (size_t i = 0; i < a->n_vec; i++)
        for (size_t r = a->r0; r < a->r1; r++) {
            int64_t s = 0, got = a->sum[i * a->stride + r - a->r0];
            for (size_t j = 0; j < cols; j++)
                s += (int64_t)(192 + u[r * blocks + j / BN_SCREEN2_BLOCK]) *
                     (2 * code[r * cols + j] - 3) * a->v[i].k[j];
            if (s != got) {
                ck_fail(c, "vector %zu row %zu: %lld instead of %lld", i, r, (long long)got,
                        (long long)s);
                return;
            }
        }
}

static int8_t number(struct ck *c, enum vector kind)
{
    if (kind == ANY) return (int8_t)((int)bn_rng_below(&c->rng, 255) - 127);
    if (kind == BOTH) return bn_rng_below(&c->rng, 2) ? 127 : -127;
    return kind == PLUS ? 127 : -127;
}

static uint8_t code_of(struct ck *c, enum codes kind, int8_t k)
{
    switch (kind) {
    case ZEROS: return 0;
    case THREES: return 3;
    case WITH: return k > 0 ? 3 : 0;
    case AGAINST: return k > 0 ? 0 : 3;
    default: return (uint8_t)bn_rng_below(&c->rng, 4);
    }
}

static void make_vectors(struct ck *c, struct screen *a, enum vector kind)
{
    size_t padded = bn_align_up(a->w.cols, BN_K_ALIGN), blocks = padded / BN_SCREEN2_BLOCK;
    int8_t *k = ck_buffer(c, a->n_vec * padded);
    int32_t *block_sum = ck_buffer(c, a->n_vec * blocks * sizeof *block_sum);
    memset(k, 0, a->n_vec * padded);
    memset(block_sum, 0, a->n_vec * blocks * sizeof *block_sum);
    for (size_t i = 0; i < a->n_vec; i++, k += padded, block_sum += blocks) {
        for (size_t j = 0; j < a->w.cols; j++) {
            k[j] = number(c, kind);
            block_sum[j / BN_SCREEN2_BLOCK] += k[j];
        }
        a->v[i] = (struct bn_screen2_vector){k, block_sum};
    }
}

static void check_case(struct ck *c, const struct shape *s)
{
    ck_case(c, "rows=%zu from %zu cols=%zu n=%zu codes=%d u=%d vector=%d", s->rows, s->r0, s->cols,
            s->n_vec, (int)s->codes, s->u, (int)s->vector);
    size_t bytes = bn_screen2_group_bytes(s->cols), blocks = bn_div_up(s->cols, BN_SCREEN2_BLOCK);
    uint8_t *data = ck_buffer(c, bn_div_up(s->rows, BN_SCREEN2_ROWS) * bytes);
    uint8_t *code = ck_buffer(c, s->rows * s->cols), *u = ck_buffer(c, s->rows * blocks);
    struct screen a = {.fn = (bn_screen2_fn *)c->ref->fn,
                       .stride = s->rows - s->r0 + s->n_vec % 3,
                       .w = {data, s->rows, s->cols, bn_rng_below(&c->rng, 1025) * 64},
                       .r0 = s->r0,
                       .r1 = s->rows,
                       .n_vec = s->n_vec};
    make_vectors(c, &a, s->vector);
    for (size_t i = 0; i < s->rows * s->cols; i++)
        code[i] = code_of(c, s->codes, a.v[0].k[i % s->cols]);
    for (size_t i = 0; i < s->rows * blocks; i++)
        u[i] = (uint8_t)(s->u < 0 ? (int)bn_rng_below(&c->rng, 256) : s->u);
    for (size_t r = 0; r < s->rows; r += BN_SCREEN2_ROWS)
        bn_screen2_pack(data + r / BN_SCREEN2_ROWS * bytes, code + r * s->cols, u + r * blocks,
                        bn_min_size(BN_SCREEN2_ROWS, s->rows - r), s->cols);
    size_t n = ((s->n_vec - 1) * a.stride + s->rows - s->r0) * sizeof *a.sum;
    int32_t *sum = a.sum = ck_buffer(c, n); /* its pattern stays between two vectors' rows */
    if (!ck_run(c, run_screen, &a)) return;
    if (c->naive) {
        naive_screen(c, &a, code, u);
        return;
    }
    a.fn = (bn_screen2_fn *)c->v->fn;
    a.sum = ck_buffer(c, n);
    if (ck_run(c, run_screen, &a)) ck_same_bytes(c, "sum", sum, a.sum, n);
}

void check_screen2(struct ck *c)
{
    static const size_t cols[] = {1, 3, 4, 15, 16, 17, 127, 128, 129, 250, 384, 500, 640, 2560};
    static const int weights[] = {0, 255, -1};
    for (size_t rows = 1; rows <= 35; rows++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            check_case(c, &(struct shape){rows, cols[i], rows > 16 ? 16 : 0, 1 + (rows + i) % 4,
                                          RANDOM, -1, ANY});
    for (size_t n = 1; n <= MAX_VECTORS; n++)
        for (size_t i = 0; i < BN_ARRAY_LEN(cols); i++)
            check_case(c, &(struct shape){37, cols[i], 0, n, RANDOM, -1, ANY});
    for (size_t n = 1; n <= MAX_VECTORS; n += c->quick ? 7 : 1)
        for (int codes = RANDOM; codes < N_CODES; codes++)
            for (int vector = ANY; vector < N_VECTORS; vector++)
                check_case(c,
                           &(struct shape){5, BN_SCREEN2_COLS_MAX, 0, n, (enum codes)codes,
                                           weights[(n + (size_t)codes) % 3], (enum vector)vector});
    for (int codes = RANDOM; codes < N_CODES; codes++)
        for (size_t i = 0; i < BN_ARRAY_LEN(weights); i++)
            check_case(c, &(struct shape){18, BN_SCREEN2_COLS_MAX - 1, 16, 2, (enum codes)codes,
                                          weights[i], BOTH});
}
