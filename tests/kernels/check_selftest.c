/* SPDX-License-Identifier: Apache-2.0
 *
 * The check at start (bn_kernels_self_test) with faults planted: a kernel that is wrong in one number,
 * and only for one, several or many tokens, queries or vectors, must be found and named. */
#include "check.h"

static struct bn_kernels right;     /* what the wrong kernels call before they spoil the result */
static size_t wrong_from, wrong_to; /* tokens, queries or vectors for which they are wrong */

static void spoil(float *y, size_t n)
{
    if (wrong_from <= n && n <= wrong_to) *y = 2 * *y + 1;
}

static void spoil_attn(const struct bn_attn_args *a) { spoil(a->o + a->n_q * a->dim - 1, a->n_q); }

static void wrong_attn_f32(const struct bn_attn_args *a)
{
    right.attn_f32(a);
    spoil_attn(a);
}

static void wrong_attn_f16(const struct bn_attn_args *a)
{
    right.attn_f16(a);
    spoil_attn(a);
}

static bn_attn_rows_fn *right_rows;

static void wrong_attn_rows(const struct bn_attn_args *a)
{
    right_rows(a);
    spoil_attn(a);
}

static void wrong_attn_codes(const struct bn_attn_codes *a)
{
    right.attn_codes(a);
    spoil(a->o + a->n_q * a->dim - 1, a->n_q);
}

static void wrong_turn(float *y, const float *m, const float *x, size_t stride, size_t n)
{
    right.turn(y, m, x, stride, n);
    spoil(y + n * stride - 1, n);
}

static void wrong_delta(const struct bn_delta_args *a)
{
    right.delta(a);
    spoil(a->o + (a->n - 1) * a->o_stride + a->v_dim - 1, a->n);
}

static void wrong_state(const struct bn_delta_args *a)
{
    right.delta(a);
    spoil(a->s + a->k_dim * a->v_dim - 1, a->n);
}

static void wrong_conv_silu(const struct bn_conv_args *a)
{
    right.conv_silu(a);
    spoil(a->x, a->n);
}

static void wrong_hadamard(const struct bn_hadamard_args *a)
{
    right.hadamard(a);
    spoil(a->y + a->n - 1, a->block);
}

static void wrong_screen2(int32_t *sum, size_t stride, const struct bn_screen2 *w, size_t r0,
                          size_t r1, const struct bn_screen2_vector *v, size_t n_vec)
{
    right.screen2(sum, stride, w, r0, r1, v, n_vec);
    if (wrong_from <= n_vec && n_vec <= wrong_to) sum[(n_vec - 1) * stride + r1 - r0 - 1]++;
}

/* Spoils the last result of the last token. */
static void spoil_product(const struct bn_gemm_args *a, size_t n)
{
    spoil(a->y + (a->n_tok - 1) * a->y_stride + a->r1 - 1, n);
}

#define WRONG_LAYOUT(t)                                                                      \
    static void wrong_i8_##t(const struct bn_gemm_args *a, const struct bn_q8 *x)            \
    {                                                                                        \
        right.gemm_##t->mul_i8(a, x);                                                        \
        spoil_product(a, a->n_tok);                                                          \
    }                                                                                        \
    static void wrong_f32_##t(const struct bn_gemm_args *a, const float *x, size_t x_stride) \
    {                                                                                        \
        right.gemm_##t->mul_f32(a, x, x_stride);                                             \
        spoil_product(a, a->n_tok);                                                          \
    }
WRONG_LAYOUT(t2)
WRONG_LAYOUT(t3)
WRONG_LAYOUT(t5)

static const struct layout {
    const char *op;
    size_t at;        /* its kernel in struct bn_kernels */
    bn_mul_i8_fn *i8; /* in the place of mul_i8_many too */
    bn_mul_f32_fn *f32;
} layouts[] = {
    {"gemm_t2", offsetof(struct bn_kernels, gemm_t2), wrong_i8_t2, wrong_f32_t2},
    {"gemm_t3", offsetof(struct bn_kernels, gemm_t3), wrong_i8_t3, wrong_f32_t3},
    {"gemm_t5", offsetof(struct bn_kernels, gemm_t5), wrong_i8_t5, wrong_f32_t5},
};

static const struct bn_gemm *right_grouped;
static void wrong_planes(const struct bn_gemm_args *a, const struct bn_planes *x)
{
    right_grouped->mul_planes(a, x);
    spoil_product(a, a->n_tok * x->n_planes);
}

static size_t no_bytes(size_t rows, size_t cols)
{
    (void)rows;
    (void)cols;
    return 64;
}

/* op: what the error has to name; NULL: there is to be none. */
static void expect(struct ck *c, const struct bn_kernels *k, const char *op, const char *what)
{
    bitnet_error err = {0};
    ck_case(c, "%s%s%s", op ? op : "no fault", op ? ", wrong: " : "", what);
    size_t bytes = bn_kernels_self_test_bytes(k);
    bitnet_status s = bn_kernels_self_test(k, ck_buffer(c, bn_align_up(bytes, 64)), &err);
    if (!op && s != BITNET_OK) ck_fail(c, "%s", err.text);
    else if (op && s == BITNET_OK) ck_fail(c, "not noticed");
    else if (op && !strstr(err.text, op)) ck_fail(c, "noticed as: %s", err.text);
}

static void plant_in_layout(struct ck *c, const struct layout *l)
{
    static const struct {
        const char *what;
        size_t from, to;
        bool i8, many, f32;
    } fault[] = {{"one token", 1, 1, true, false, false},
                 {"several tokens", 2, 100, true, false, false},
                 {"fewest of many tokens", 5, 5, false, true, false},
                 {"32 tokens and more", 32, 100, false, true, false},
                 {"float activations", 1, 100, false, false, true},
                 {NULL, 1, 0, true, true, true}};
    for (size_t i = 0; i < BN_ARRAY_LEN(fault); i++) {
        struct bn_kernels k = right;
        const struct bn_gemm **place = (const struct bn_gemm **)((char *)&k + l->at);
        struct bn_gemm g = **place;
        if (fault[i].i8) g.mul_i8 = l->i8;
        if (fault[i].f32) g.mul_f32 = l->f32;
        if (fault[i].many) {
            g.mul_i8_many = l->i8;
            g.many_bytes = no_bytes;
            g.many_from = 5;
        }
        *place = &g;
        wrong_from = fault[i].from;
        wrong_to = fault[i].to;
        expect(c, &k, fault[i].what ? l->op : NULL, fault[i].what ? fault[i].what : "");
    }
}

/* Activations in planes: by number of vectors. */
static void plant_in_planes(struct ck *c, const char *op, size_t at)
{
    static const struct {
        const char *what;
        size_t from, to;
        bool many;
    } fault[] = {{"one vector", 1, 1, false},
                 {"two vectors", 2, 2, false},
                 {"several vectors", 3, 100, false},
                 {"many vectors", 1, 100, true}};
    for (size_t i = 0; i < BN_ARRAY_LEN(fault); i++) {
        struct bn_kernels k = right;
        const struct bn_gemm **place = (const struct bn_gemm **)((char *)&k + at);
        struct bn_gemm g = *(right_grouped = *place);
        if (!fault[i].many) g.mul_planes = wrong_planes;
        g.mul_planes_many = fault[i].many ? wrong_planes : NULL;
        g.many_bytes = no_bytes;
        *place = &g;
        wrong_from = fault[i].from;
        wrong_to = fault[i].to;
        expect(c, &k, op, fault[i].what);
    }
}

void check_self_test(struct ck *c, uint32_t features)
{
    static const struct {
        const char *what;
        size_t from, to;
    } fault[] = {{"one token's queries", 1, 7}, {"many queries", 8, 100}};
    right = bn_kernels_select(features);
    expect(c, &right, NULL, "");
    for (size_t i = 0; i < BN_ARRAY_LEN(fault); i++) {
        struct bn_kernels k = right;
        wrong_from = fault[i].from;
        wrong_to = fault[i].to;
        k.attn_f32 = wrong_attn_f32;
        expect(c, &k, "attn_f32", fault[i].what);
        k = right;
        k.attn_f16 = wrong_attn_f16;
        expect(c, &k, "attn_f16", fault[i].what);
        k = right;
        k.attn_bf16 = wrong_attn_rows, right_rows = right.attn_bf16;
        expect(c, &k, "attn_bf16", fault[i].what);
        k = right;
        k.attn_e4m3 = wrong_attn_rows, right_rows = right.attn_e4m3;
        expect(c, &k, "attn_e4m3", fault[i].what);
        k = right;
        k.attn_e5m2 = wrong_attn_rows, right_rows = right.attn_e5m2;
        expect(c, &k, "attn_e5m2", fault[i].what);
        k = right;
        k.attn_codes = wrong_attn_codes;
        expect(c, &k, "attn_codes", fault[i].what);
    }
    for (size_t n = 1; n <= 8; n++) {
        struct bn_kernels k = right;
        wrong_from = wrong_to = n;
        k.screen2 = wrong_screen2;
        expect(c, &k, "screen2", "some vectors");
    }
    for (size_t several = 0; several < 2; several++) {
        struct bn_kernels k = right;
        wrong_from = 1 + several;
        wrong_to = several ? 100 : 1;
        k.delta = wrong_delta;
        expect(c, &k, "delta", several ? "several tokens" : "one token");
        k.delta = wrong_state;
        expect(c, &k, "delta", several ? "state of several tokens" : "state of one token");
    }
    for (size_t block = 2; block <= 256; block *= 2) {
        struct bn_kernels k = right;
        wrong_from = wrong_to = block;
        k.hadamard = wrong_hadamard;
        expect(c, &k, "hadamard", "some blocks");
    }
    struct bn_kernels k = right;
    wrong_from = 1;
    wrong_to = 100;
    k.conv_silu = wrong_conv_silu;
    expect(c, &k, "conv_silu", "the first token");
    k = right;
    k.turn = wrong_turn;
    expect(c, &k, "turn", "the last vector");
    for (size_t i = 0; i < BN_ARRAY_LEN(layouts); i++) plant_in_layout(c, &layouts[i]);
    plant_in_planes(c, "gemm_b1", offsetof(struct bn_kernels, gemm_b1));
    plant_in_planes(c, "gemm_g2", offsetof(struct bn_kernels, gemm_g2));
    plant_in_planes(c, "gemm_g3", offsetof(struct bn_kernels, gemm_g3));
    plant_in_planes(c, "gemm_g5", offsetof(struct bn_kernels, gemm_g5));
}
