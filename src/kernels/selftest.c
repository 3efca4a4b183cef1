/* SPDX-License-Identifier: Apache-2.0
 *
 * The check at start: every chosen variant against the reference on small inputs, within
 * milliseconds, so that a miscompiled or misdetected kernel ends in an error and not in wrong text.
 * The sizes are chosen to pass through the main loop and the tail of every variant; the thorough
 * test is tests/kernels. Memory is on the stack, but for the matrices of many tokens. */
#include "base/half.h"
#include "kernels/selftest.h"

#include <math.h>

enum { N = 333 /* no multiple of anything a kernel uses */ };

TEST bool test_rmsnorm(bn_rmsnorm_fn *f)
{
    float x[N], g[N], a[N], b[N];
    fill(x, N, 1);
    fill(g, N, 2);
    bn_rmsnorm_c(a, x, g, N, 1e-5f);
    f(b, x, g, N, 1e-5f);
    return same(a, b, sizeof a);
}

TEST bool test_quant_i8(bn_quant_i8_fn *f)
{
    float x[N];
    int8_t a[384], b[384];
    int32_t sa, sb;
    fill(x, N, 3);
    x[N - 1] = bn_u32_as_f32(0x7fc00000); /* the one place where a NaN has a stated result */
    float ma = bn_quant_i8_c(a, &sa, x, N), mb = f(b, &sb, x, N);
    return same(a, b, sizeof a) && sa == sb && same(&ma, &mb, sizeof ma);
}

TEST bool test_quant_planes(bn_quant_planes_fn *f)
{
    float x[N], ua[3], ub[3];
    int8_t a[2 * 384], b[2 * 384];
    fill(x, N, 3);
    for (size_t planes = 1; planes <= 2; planes++) {
        bn_quant_planes_c(a, 384, planes, ua, x, N);
        f(b, 384, planes, ub, x, N);
        if (!same(a, b, planes * 384) || !same(ua, ub, sizeof ua)) return false;
    }
    return true;
}

TEST bool test_add(bn_add_fn *f)
{
    float x[N], a[N], b[N];
    fill(x, N, 4);
    fill(a, N, 5);
    memcpy(b, a, sizeof a);
    bn_add_c(a, x, N);
    f(b, x, N);
    return same(a, b, sizeof a);
}

TEST bool test_gate(bn_relu2_mul_fn *f, bn_relu2_mul_fn *ref)
{
    float g[N], u[N], a[N], b[N];
    fill(g, N, 6);
    fill(u, N, 7);
    for (size_t i = 0; i < N; i += 3) g[i] *= 25.0f; /* both ends of exp */
    ref(a, g, u, N);
    f(b, g, u, N);
    return same(a, b, sizeof a);
}

TEST bool test_l2norm(bn_l2norm_fn *f)
{
    float x[N], a[N], b[N];
    fill(x, N, 1);
    bn_l2norm_c(a, x, N, 1e-6f, 0.0884f);
    f(b, x, N, 1e-6f, 0.0884f);
    return same(a, b, sizeof a);
}

TEST bool test_rope(bn_rope_fn *f, bn_rope_fn *ref)
{
    enum { HEADS = 3, DIM = 90, HALF = 43 };
    float cs[2 * HALF], a[HEADS * DIM], b[HEADS * DIM];
    fill(cs, 2 * HALF, 8);
    fill(a, HEADS * DIM, 9);
    memcpy(b, a, sizeof a);
    ref(a, HEADS, DIM, HALF, cs);
    f(b, HEADS, DIM, HALF, cs);
    return same(a, b, sizeof a);
}

TEST bool test_row(bn_row_fn *f, bn_row_fn *ref, size_t n)
{
    uint8_t row[1024];
    float a[512], b[512];
    fill_bytes(row, sizeof row, 10);
    for (size_t i = 1; i < sizeof row; i += 2) row[i] &= 0x3b; /* no half is a NaN or infinite */
    ref(a, row, n);
    f(b, row, n);
    return same(a, b, n * sizeof a[0]);
}

TEST bool test_f32_to_f16(bn_f32_to_f16_fn *f)
{
    float x[N];
    uint16_t a[N], b[N];
    fill(x, N, 11);
    for (size_t i = 0; i < N; i += 5) x[i] *= 1e-5f; /* subnormal halves */
    bn_f32_to_f16_c(a, x, N);
    f(b, x, N);
    return same(a, b, sizeof a);
}

TEST bool test_narrow(bn_narrow_fn *f, bn_narrow_fn *ref, size_t n)
{
    float x[N];
    uint8_t a[2 * N] = {0}, b[2 * N] = {0};
    fill(x, N, 11);
    for (size_t i = 0; i < N; i += 5) x[i] *= 1e-4f; /* subnormal 8-bit floats */
    ref(a, x, n);
    f(b, x, n);
    return same(a, b, sizeof a);
}

TEST bool test_row_fp8(bn_row_fn *f, bn_row_fn *ref)
{
    uint8_t row[248]; /* every code that is neither a NaN nor an infinity */
    float a[248], b[248];
    for (size_t i = 0; i < sizeof row; i++) row[i] = (uint8_t)(i % 124 | i / 124 << 7);
    ref(a, row, sizeof row);
    f(b, row, sizeof row);
    return same(a, b, sizeof a);
}

/* Blocks of both kinds, and a part of each read back. */
TEST bool test_kv(bn_kv_put_fn *put, bn_kv_put_fn *put_ref, bn_kv_get_fn *get,
                  bn_kv_get_fn *get_ref)
{
    enum { DIM = 64, BYTES = DIM * (4 + BN_ATTN_BLOCK / 2), FROM = 5, READ = 7 };
    float x[BN_ATTN_BLOCK * DIM], a[READ * DIM], b[READ * DIM];
    uint8_t p[BYTES] = {0}, q[BYTES] = {0};
    for (unsigned bits = 2; bits <= 4; bits += 2) {
        fill(x, BN_ARRAY_LEN(x), 40 + bits);
        put_ref(p, x, DIM, bits);
        put(q, x, DIM, bits);
        get_ref(a, p, FROM, READ, DIM, bits);
        get(b, p, FROM, READ, DIM, bits);
        if (!same(p, q, BYTES) || !same(a, b, sizeof a)) return false;
    }
    return true;
}

TEST bool test_dots(bn_dots_fn *f)
{
    enum { ROWS = 7, TOK = 3, LEN = 77 };
    float rows[ROWS * LEN], x[TOK * LEN], a[TOK * ROWS], b[TOK * ROWS];
    fill(rows, ROWS * LEN, 12);
    fill(x, TOK * LEN, 13);
    bn_dots_c(a, ROWS, rows, ROWS, x, LEN, TOK, LEN);
    f(b, ROWS, rows, ROWS, x, LEN, TOK, LEN);
    return same(a, b, sizeof a);
}

TEST bool test_dots_f16(bn_dots_f16_fn *f)
{
    enum { ROWS = 7, LEN = 77 };
    float rows[ROWS * LEN], x[LEN], a[ROWS], b[ROWS];
    uint16_t half[ROWS * LEN];
    fill(rows, ROWS * LEN, 12);
    fill(x, LEN, 13);
    bn_f32_to_f16_c(half, rows, ROWS * LEN);
    bn_dots_f16_c(a, half, ROWS, x, LEN);
    f(b, half, ROWS, x, LEN);
    return same(a, b, sizeof a);
}

/* A group and a part of one, two blocks of columns, and every number of vectors that is taken at a
 * time. */
TEST bool test_screen2(bn_screen2_fn *f)
{
    enum { ROWS = 21, VECTORS = 9, COLS = 200, PADDED = 256, BLOCKS = PADDED / BN_SCREEN2_BLOCK };
    uint8_t data[2 * (64 + BN_SCREEN2_ROWS * PADDED / 4)];
    int8_t k[VECTORS][PADDED] = {0};
    int32_t block_sum[VECTORS][BLOCKS] = {0}, a[VECTORS][ROWS], b[VECTORS][ROWS];
    struct bn_screen2_vector v[VECTORS];
    struct bn_rng r = {29};
    fill_bytes(data, sizeof data, 33);
    for (size_t i = 0; i < VECTORS; i++) {
        for (size_t j = 0; j < COLS; j++) {
            k[i][j] = (int8_t)((int)bn_rng_below(&r, 255) - 127);
            block_sum[i][j / BN_SCREEN2_BLOCK] += k[i][j];
        }
        v[i] = (struct bn_screen2_vector){k[i], block_sum[i]};
    }
    struct bn_screen2 w = {data, ROWS, COLS, 0};
    bn_screen2_c(a[0], ROWS, &w, 0, ROWS, v, VECTORS);
    for (size_t n = 1; n <= VECTORS; n++) {
        memset(b, 0, sizeof b);
        f(b[0], ROWS, &w, 0, ROWS, v, n);
        if (!same(a, b, n * sizeof *b)) return false;
    }
    return true;
}

/* Seven rows, so that the last group is not full; one block of columns is enough. */
TEST bool test_dense8(bn_dense8_fn *f)
{
    enum { ROWS = 7, VECTORS = 7, COLS = 200, PADDED = 256 };
    int8_t data[8 * PADDED];
    int16_t k[PADDED + VECTORS] = {0};
    float x[4 * COLS], scale[ROWS], a[VECTORS][ROWS], b[VECTORS][ROWS];
    struct bn_dense8_vector v[VECTORS];
    struct bn_rng r = {30};
    for (size_t i = 0; i < COLS; i++) k[i] = (int16_t)((int)bn_rng_below(&r, 65535) - 32767);
    for (size_t i = 0; i < VECTORS; i++) v[i] = (struct bn_dense8_vector){k + i, 0.37};
    for (size_t g = 0; g < 2; g++) {
        fill(x, BN_ARRAY_LEN(x), 31 + g);
        bn_dense8_pack(data + g * bn_dense8_group_bytes(COLS), scale + 4 * g, x,
                       bn_min_size(4, ROWS - 4 * g), COLS);
    }
    struct bn_dense8 w = {data, ROWS, COLS, scale, 0};
    bn_dense8_c(a[0], ROWS, &w, 0, ROWS, v, VECTORS);
    f(b[0], ROWS, &w, 0, ROWS, v, VECTORS);
    return same(a, b, sizeof a);
}

/* A matrix in both layouts, and a list that leaves some of its columns out. */
enum { PART_ROWS = 23, PART_COLS = 145 };
struct parts {
    uint8_t rows[PART_ROWS * 64], cols[PART_COLS * 64];
    uint32_t list[PART_COLS];
    size_t n;
    int8_t q[256];
    int32_t sum;
    struct bn_packed w;
};

static void fill_parts(struct parts *p, bool extreme)
{
    int8_t w[PART_ROWS * PART_COLS];
    struct bn_rng r = {30};
    *p = (struct parts){.w = {.rows = PART_ROWS, .cols = PART_COLS, .scale = 0.37f}};
    for (uint32_t k = 0; k < PART_COLS; k++) {
        p->q[k] = (int8_t)(extreme ? 127 - 254 * (int)(k % 2) : (int)bn_rng_below(&r, 255) - 127);
        p->sum += p->q[k];
        if (k % 16 != 3) p->list[p->n++] = k;
    }
    for (size_t i = 0; i < PART_ROWS * PART_COLS; i++)
        w[i] = (int8_t)(!extreme ? (int)bn_rng_below(&r, 4) - 1 : p->q[i % PART_COLS] > 0 ? 2 : -1);
    for (size_t i = 0; i < PART_ROWS; i++)
        bn_r2_pack(p->rows + i * bn_r2_row_bytes(PART_COLS), w + i * PART_COLS, PART_COLS);
    bn_c2_pack(p->cols, PART_ROWS, 0, w, PART_ROWS, PART_COLS);
}

TEST bool test_rows_r2(bn_rows_r2_fn *f, bool extreme)
{
    struct parts p;
    float a[PART_ROWS - 2], b[PART_ROWS - 2];
    fill_parts(&p, extreme);
    p.w.data = p.rows;
    bn_rows_r2_c(a, &p.w, p.list, BN_ARRAY_LEN(a), p.q, p.sum, 0.01f);
    f(b, &p.w, p.list, BN_ARRAY_LEN(a), p.q, p.sum, 0.01f);
    return same(a, b, sizeof a);
}

TEST bool test_cols_c2(bn_cols_c2_fn *f, bool extreme)
{
    struct parts p;
    float a[PART_ROWS], b[PART_ROWS];
    fill_parts(&p, extreme);
    p.w.data = p.cols;
    bn_cols_c2_c(a, &p.w, 0, PART_ROWS, p.list, p.n, p.q, 0.01f);
    f(b, &p.w, 0, PART_ROWS, p.list, p.n, p.q, 0.01f);
    return same(a, b, sizeof a);
}

/* Queries of one token, and of so many that kernels may treat them together; dimensions with a tail
 * and without. Two blocks, so that the folding into the running state is seen as well. */
enum { QUERIES_MAX = 11, DIM_MAX = 48, KEYS_MAX = 21 };
static const struct attn_shape {
    size_t n_q, dim, keys;
} attn_shapes[] = {{3, 44, 13}, {QUERIES_MAX, DIM_MAX, KEYS_MAX}};

struct attn_state {
    float o[QUERIES_MAX * DIM_MAX], m[QUERIES_MAX], l[QUERIES_MAX];
};

static void attn_start(struct attn_state state[2])
{
    memset(state, 0, 2 * sizeof *state);
    for (size_t i = 0; i < QUERIES_MAX; i++) state[0].m[i] = state[1].m[i] = -INFINITY;
}

/* The same block of keys by the reference and by f. */
static void attend(bn_attn_rows_fn *ref, bn_attn_rows_fn *f, struct attn_state state[2],
                   const struct bn_attn_args *a)
{
    for (size_t i = 0; i < 2; i++) {
        struct bn_attn_args own = *a;
        own.o = state[i].o;
        own.m = state[i].m;
        own.l = state[i].l;
        (i ? f : ref)(&own);
    }
}

static struct bn_attn_args attn_block(const struct attn_shape *s, const float *q, const void *k,
                                      const void *v)
{
    return (struct bn_attn_args){.q = q,
                                 .n_q = s->n_q,
                                 .k = k,
                                 .v = v,
                                 .kv_stride = s->dim,
                                 .n = s->keys,
                                 .dim = s->dim,
                                 .scale = 0.01f};
}

TEST bool test_attn_f32(bn_attn_f32_fn *f, const struct attn_shape *s)
{
    float q[QUERIES_MAX * DIM_MAX], k[KEYS_MAX * DIM_MAX], v[KEYS_MAX * DIM_MAX];
    struct attn_state state[2];
    const struct bn_attn_args a = attn_block(s, q, k, v);
    attn_start(state);
    for (uint64_t block = 0; block < 2; block++) {
        fill(q, s->n_q * s->dim, 14);
        fill(k, s->keys * s->dim, 15 + block);
        fill(v, s->keys * s->dim, 17 + block);
        attend(bn_attn_f32_c, f, state, &a);
    }
    return same(&state[0], &state[1], sizeof state[0]);
}

TEST bool test_attn_f16(bn_attn_f16_fn *f, const struct attn_shape *s)
{
    float q[QUERIES_MAX * DIM_MAX], x[KEYS_MAX * DIM_MAX];
    uint16_t k[KEYS_MAX * DIM_MAX], v[KEYS_MAX * DIM_MAX];
    struct attn_state state[2];
    const struct bn_attn_args a = attn_block(s, q, k, v);
    attn_start(state);
    for (uint64_t block = 0; block < 2; block++) {
        fill(q, s->n_q * s->dim, 19);
        fill(x, s->keys * s->dim, 20 + block);
        bn_f32_to_f16_c(k, x, s->keys * s->dim);
        fill(x, s->keys * s->dim, 22 + block);
        bn_f32_to_f16_c(v, x, s->keys * s->dim);
        attend(bn_attn_f16_c, f, state, &a);
    }
    return same(&state[0], &state[1], sizeof state[0]);
}

TEST bool test_attn_rows(bn_attn_rows_fn *f, bn_attn_rows_fn *ref, bn_narrow_fn *narrow,
                         const struct attn_shape *s)
{
    float q[QUERIES_MAX * DIM_MAX], x[KEYS_MAX * DIM_MAX];
    uint16_t k[KEYS_MAX * DIM_MAX], v[KEYS_MAX * DIM_MAX];
    struct attn_state state[2];
    const struct bn_attn_args a = attn_block(s, q, k, v);
    attn_start(state);
    fill(q, s->n_q * s->dim, 19);
    bn_short_query_c(q, q, s->n_q * s->dim);
    for (uint64_t block = 0; block < 2; block++) {
        fill(x, s->keys * s->dim, 20 + block);
        narrow(k, x, s->keys * s->dim);
        fill(x, s->keys * s->dim, 22 + block);
        narrow(v, x, s->keys * s->dim);
        attend(ref, f, state, &a);
    }
    return same(&state[0], &state[1], sizeof state[0]);
}

TEST bool test_short_query(bn_short_query_fn *f)
{
    float x[N], a[N], b[N];
    fill(x, N, 49);
    bn_short_query_c(a, x, N);
    f(b, x, N);
    return same(a, b, sizeof a);
}

TEST bool test_quant_query(bn_quant_query_fn *f)
{
    float x[N];
    int16_t a[N], b[N];
    fill(x, N, 50);
    float ua = bn_quant_query_c(a, x, N), ub = f(b, x, N);
    return same(a, b, sizeof a) && same(&ua, &ub, sizeof ua);
}

/* Keys and values of all widths; blocks that the reference makes of random numbers, with 8 bits random
 * codes with small steps. */
TEST bool test_attn_codes(bn_attn_codes_fn *f, size_t n_q, unsigned k_bits, unsigned v_bits)
{
    enum { DIM = 32, BYTES = DIM * (2 + BN_ATTN_BLOCK) };
    float q[QUERIES_MAX * DIM], x[BN_ATTN_BLOCK * DIM], units[QUERIES_MAX];
    int16_t codes[QUERIES_MAX * DIM];
    uint8_t block[2][BYTES];
    struct attn_state state[2];
    attn_start(state);
    fill(q, n_q * DIM, 51);
    for (size_t i = 0; i < n_q; i++) units[i] = bn_quant_query_c(codes + i * DIM, q + i * DIM, DIM);
    for (unsigned i = 0; i < 2; i++) {
        unsigned bits = i ? v_bits : k_bits;
        fill(x, BN_ARRAY_LEN(x), 52 + i);
        fill_bytes(block[i], BYTES, 54 + i);
        for (size_t j = 1; j < (size_t)2 * DIM; j += 2) block[i][j] &= 0x13;
        if (bits < 8) (i ? bn_kv_put_values_c : bn_kv_put_keys_c)(block[i], x, DIM, bits);
    }
    for (size_t i = 0; i < 2; i++) {
        struct attn_state *s = &state[i];
        const struct bn_attn_codes a = {s->o,     s->m,   s->l,   q,  codes, units, n_q,  block[0],
                                        block[1], k_bits, v_bits, 32, DIM,   0.01f, NULL, NULL};
        (i ? f : bn_attn_codes_c)(&a);
    }
    return same(&state[0], &state[1], sizeof state[0]);
}

TEST bool test_attn_fold(bn_attn_fold_fn *f)
{
    enum { DIM = 44 };
    float ob[DIM];
    struct attn_state a = {{0}, {-INFINITY}, {0}}, b = a;
    for (uint64_t block = 0; block < 3; block++) {
        float mb = block == 1 ? 0.75f : 0.5f, lb = 1.25f + (float)block;
        fill(ob, DIM, 24 + block);
        bn_attn_fold_c(a.o, a.m, a.l, ob, mb, lb, DIM);
        f(b.o, b.m, b.l, ob, mb, lb, DIM);
    }
    return same(&a, &b, sizeof a);
}

/* As many vectors as are taken at a time, and one more. */
TEST bool test_low_rank(bn_low_rank_fn *f)
{
    enum { RANK = 5, STRIDE = N + 3 };
    float b[RANK * STRIDE], u[RANK], x[N], y[N];
    fill(b, RANK * STRIDE, 1);
    fill(u, RANK, 2);
    fill(x, N, 3);
    memcpy(y, x, sizeof x);
    bn_low_rank_c(x, b, STRIDE, u, RANK, N, 0.37f);
    f(y, b, STRIDE, u, RANK, N, 0.37f);
    return same(x, y, sizeof x);
}

TEST bool test_rotate(bn_rotate_fn *f, float *m)
{
    enum { VECTORS = 9, LEN = VECTORS * BN_ROTATE_BLOCK };
    float x[LEN], a[LEN], b[LEN];
    fill(m, BN_ROTATE_BLOCK * BN_ROTATE_BLOCK, 14);
    fill(x, LEN, 15);
    bn_rotate_c(a, m, x, BN_ROTATE_BLOCK, VECTORS);
    f(b, m, x, BN_ROTATE_BLOCK, VECTORS);
    return same(a, b, sizeof a);
}

/* In place, over inputs that are there and inputs that stand before them. */
TEST bool test_conv_silu(bn_conv_silu_fn *f)
{
    enum { TOK = 5, CHANNELS = 77, TAPS = 4 };
    float a[TOK * CHANNELS], b[TOK * CHANNELS], before[(TAPS - 1) * CHANNELS], w[TAPS * CHANNELS];
    fill(a, BN_ARRAY_LEN(a), 41);
    fill(before, BN_ARRAY_LEN(before), 42);
    fill(w, BN_ARRAY_LEN(w), 43);
    memcpy(b, a, sizeof a);
    struct bn_conv_args x = {a, CHANNELS, TOK, before, CHANNELS, w, CHANNELS, CHANNELS, TAPS};
    bn_conv_silu_c(&x);
    x.x = b;
    f(&x);
    return same(a, b, sizeof a);
}

/* Columns for the widest block of a kernel, a register and a tail; one token and several. */
enum { DELTA_TOK = 3 };
TEST bool test_delta(bn_delta_fn *f, size_t n)
{
    enum { K = 5, V = 139 };
    static const float gates[] = {0.75f, 0.875f, 0.5f, 0.625f};
    float a[K * V], b[K * V], k[DELTA_TOK * K], q[DELTA_TOK * K], v[DELTA_TOK * V];
    float oa[DELTA_TOK * V] = {0}, ob[DELTA_TOK * V] = {0};
    fill(a, K * V, 44);
    fill(k, DELTA_TOK * K, 45);
    fill(q, DELTA_TOK * K, 46);
    fill(v, DELTA_TOK * V, 47);
    memcpy(b, a, sizeof a);
    struct bn_delta_args x = {.s = a,
                              .k_dim = K,
                              .v_dim = V,
                              .q = q,
                              .k = k,
                              .v = v,
                              .decay = gates,
                              .beta = gates + 1,
                              .o = oa,
                              .qk_stride = K,
                              .v_stride = V,
                              .gate_stride = 1,
                              .o_stride = V,
                              .n = n};
    bn_delta_c(&x);
    x.s = b;
    x.o = ob;
    f(&x);
    return same(a, b, sizeof a) && same(oa, ob, sizeof oa);
}

/* Two blocks, with factors on both sides. */
TEST bool test_hadamard(bn_hadamard_fn *f, size_t block)
{
    enum { LEN = 512 };
    float x[LEN], before[LEN], a[LEN], b[LEN];
    fill(x, LEN, 48);
    fill(before, LEN, 49);
    struct bn_hadamard_args h = {a, x, before, x, 2 * block, block, 0.171f};
    bn_hadamard_c(&h);
    h.y = b;
    f(&h);
    return same(a, b, 2 * block * sizeof *a);
}

size_t bn_kernels_self_test_bytes(const struct bn_kernels *k)
{
    const struct bn_gemm *all[] = {k->gemm_t2, k->gemm_t3, k->gemm_t5, k->gemm_b1,
                                   k->gemm_g2, k->gemm_g3, k->gemm_g5};
    size_t most = 0;
    for (size_t i = 0; i < BN_ARRAY_LEN(all); i++)
        if (all[i]->many_bytes) most = bn_max_size(most, all[i]->many_bytes(MANY_ROWS, MANY_COLS));
    return bn_align_up(most, 64) + sizeof(struct many);
}

/* "op (isa)" of a chosen variant, by its address in the list. */
static bitnet_status fail(bitnet_error *err, const char *op, bn_any_fn *fn,
                          const struct bn_gemm *gemm)
{
    const char *isa = "unlisted";
    for (size_t i = 0; i < bn_kernel_count; i++) {
        const struct bn_kernel_info *v = &bn_kernel_list[i];
        if (strcmp(v->op, op) == 0 && v->fn == fn && v->gemm == gemm) isa = v->isa;
    }
    return bn_fail(err, BITNET_E_INTERNAL,
                   "kernel %s (%s) differs from the reference on this machine; try another backend",
                   op, isa);
}

bitnet_status bn_kernels_self_test(const struct bn_kernels *k, void *memory, bitnet_error *err)
{
    size_t scratch_bytes = bn_kernels_self_test_bytes(k) - sizeof(struct many);
    struct many *many = (void *)((uint8_t *)memory + scratch_bytes);
#define CHECK(op, call) \
    if (!(call)) return fail(err, #op, (bn_any_fn *)k->op, NULL)
    CHECK(rmsnorm, test_rmsnorm(k->rmsnorm));
    CHECK(quant_i8, test_quant_i8(k->quant_i8));
    CHECK(quant_planes, test_quant_planes(k->quant_planes));
    CHECK(add, test_add(k->add));
    CHECK(relu2_mul, test_gate(k->relu2_mul, bn_relu2_mul_c));
    CHECK(silu_mul, test_gate(k->silu_mul, bn_silu_mul_c));
    CHECK(sigmoid_mul, test_gate(k->sigmoid_mul, bn_sigmoid_mul_c));
    CHECK(l2norm, test_l2norm(k->l2norm));
    CHECK(rope, test_rope(k->rope, bn_rope_c));
    CHECK(row_f16, test_row(k->row_f16, bn_row_f16_c, N));
    CHECK(row_bf16, test_row(k->row_bf16, bn_row_bf16_c, N));
    CHECK(row_q8_0, test_row(k->row_q8_0, bn_row_q8_0_c, 96));
    CHECK(row_q4_0, test_row(k->row_q4_0, bn_row_q4_0_c, 96));
    CHECK(row_q4_k, test_row(k->row_q4_k, bn_row_q4_k_c, 512));
    CHECK(row_q6_k, test_row(k->row_q6_k, bn_row_q6_k_c, 512));
    CHECK(f32_to_f16, test_f32_to_f16(k->f32_to_f16));
    CHECK(row_e4m3, test_row_fp8(k->row_e4m3, bn_row_e4m3_c));
    CHECK(row_e5m2, test_row_fp8(k->row_e5m2, bn_row_e5m2_c));
    CHECK(f32_to_bf16, test_narrow(k->f32_to_bf16, bn_f32_to_bf16_c, N));
    CHECK(f32_to_e4m3, test_narrow(k->f32_to_e4m3, bn_f32_to_e4m3_c, N));
    CHECK(f32_to_e5m2, test_narrow(k->f32_to_e5m2, bn_f32_to_e5m2_c, N));
    CHECK(f32_to_q8_0, test_narrow(k->f32_to_q8_0, bn_f32_to_q8_0_c, 320));
    CHECK(kv_put_keys,
          test_kv(k->kv_put_keys, bn_kv_put_keys_c, bn_kv_get_keys_c, bn_kv_get_keys_c));
    CHECK(kv_get_keys,
          test_kv(bn_kv_put_keys_c, bn_kv_put_keys_c, k->kv_get_keys, bn_kv_get_keys_c));
    CHECK(kv_put_values,
          test_kv(k->kv_put_values, bn_kv_put_values_c, bn_kv_get_values_c, bn_kv_get_values_c));
    CHECK(kv_get_values,
          test_kv(bn_kv_put_values_c, bn_kv_put_values_c, k->kv_get_values, bn_kv_get_values_c));
    CHECK(dots, test_dots(k->dots));
    CHECK(dots_f16, test_dots_f16(k->dots_f16));
    CHECK(low_rank, test_low_rank(k->low_rank));
    CHECK(rotate, test_rotate(k->rotate, many->rotation));
    CHECK(screen2, test_screen2(k->screen2));
    CHECK(dense8, test_dense8(k->dense8));
    CHECK(rows_r2, test_rows_r2(k->rows_r2, false) && test_rows_r2(k->rows_r2, true));
    CHECK(cols_c2, test_cols_c2(k->cols_c2, false) && test_cols_c2(k->cols_c2, true));
    for (size_t i = 0; i < BN_ARRAY_LEN(attn_shapes); i++) {
        CHECK(attn_f32, test_attn_f32(k->attn_f32, &attn_shapes[i]));
        const struct attn_shape *shape = &attn_shapes[i];
        CHECK(attn_f16, test_attn_f16(k->attn_f16, shape));
        CHECK(attn_bf16, test_attn_rows(k->attn_bf16, bn_attn_bf16_c, bn_f32_to_bf16_c, shape));
        CHECK(attn_e4m3, test_attn_rows(k->attn_e4m3, bn_attn_e4m3_c, bn_f32_to_e4m3_c, shape));
        CHECK(attn_e5m2, test_attn_rows(k->attn_e5m2, bn_attn_e5m2_c, bn_f32_to_e5m2_c, shape));
    }
    CHECK(short_query, test_short_query(k->short_query));
    CHECK(quant_query, test_quant_query(k->quant_query));
    for (unsigned i = 0; i < 9; i++) /* seven queries: all ways to take them together */
        CHECK(attn_codes,
              test_attn_codes(k->attn_codes, i % 2 ? 7 : QUERIES_MAX, 8u >> i % 3, 8u >> i / 3));
    CHECK(attn_fold, test_attn_fold(k->attn_fold));
    CHECK(conv_silu, test_conv_silu(k->conv_silu));
    CHECK(delta, test_delta(k->delta, 1) && test_delta(k->delta, DELTA_TOK));
    for (size_t block = 2; block <= 256; block *= 2)
        CHECK(hadamard, test_hadamard(k->hadamard, block));
#undef CHECK
#define CHECK(op) \
    if (!bn_self_test_layout(k->op, many, memory)) return fail(err, #op, NULL, k->op)
    CHECK(gemm_t2);
    CHECK(gemm_t3);
    CHECK(gemm_t5);
    CHECK(gemm_b1);
    CHECK(gemm_g2);
    CHECK(gemm_g3);
    CHECK(gemm_g5);
#undef CHECK
    return BITNET_OK;
}
