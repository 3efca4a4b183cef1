/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on vectors of floats. Elementwise loops load before they store, 8 values at a
 * time, so y may be one of the inputs; tails go through masked loads and stores. */
#include "kernels/wide/lanes.h"

#include <math.h>

static inline float sum_squares(const float *x, size_t n)
{
    struct bn_l16 s = bn_l16_zero();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        struct bn_l16 v = bn_l16_load(x + i);
        s = bn_l16_mul_add(s, v, v);
    }
    if (i < n) {
        struct bn_l16 v = bn_l16_load_head(x + i, n - i);
        s = bn_l16_mul_add(s, v, v);
    }
    return bn_l16_sum(s);
}

void W_NAME(rmsnorm)(float *y, const float *x, const float *g, size_t n, float eps)
{
    w_f32 r = w_set1_ps(1.0f / sqrtf(sum_squares(x, n) / (float)n + eps));
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        w_f32 v = w_mul_ps(w_loadu_ps(x + i), r);
        w_storeu_ps(y + i, w_mul_ps(w_loadu_ps(g + i), v));
    }
    if (i < n) {
        w_f32 v = w_mul_ps(bn_load_head(x + i, n - i), r);
        bn_store_head(y + i, n - i, w_mul_ps(bn_load_head(g + i, n - i), v));
    }
}

void W_NAME(l2norm)(float *y, const float *x, size_t n, float eps, float scale)
{
    w_f32 r = w_set1_ps(1.0f / sqrtf(sum_squares(x, n) + eps)), c = w_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) w_storeu_ps(y + i, w_mul_ps(w_mul_ps(w_loadu_ps(x + i), r), c));
    if (i < n) bn_store_head(y + i, n - i, w_mul_ps(w_mul_ps(bn_load_head(x + i, n - i), r), c));
}

/* |x|, or +0 where x is a NaN: maxps returns its second operand for unordered inputs */
static inline w_f32 abs_max(w_f32 m, w_f32 x)
{
    return w_max_ps(w_andnot_ps(w_set1_ps(-0.0f), x), m);
}

/* Clamped first, with a NaN becoming -127, so that the conversion sees nothing out of range; the
 * conversion rounds half to even like the addition of the reference. */
static inline w_int round_i32(w_f32 x, w_f32 s)
{
    w_f32 v = w_max_ps(w_mul_ps(x, s), w_set1_ps(-127.0f));
    return w_cvtps_epi32(w_min_ps(v, w_set1_ps(127.0f)));
}

float W_NAME(quant_i8)(int8_t *q, int32_t *sum, const float *x, size_t n)
{
    w_f32 m0 = w_set1_ps(1e-5f), m1 = m0, m2 = m0, m3 = m0;
    size_t i = 0, room = bn_align_up(n, BN_K_ALIGN);
    for (; i + 32 <= n; i += 32) { /* a maximum has no order: four chains */
        m0 = abs_max(m0, w_loadu_ps(x + i));
        m1 = abs_max(m1, w_loadu_ps(x + i + 8));
        m2 = abs_max(m2, w_loadu_ps(x + i + 16));
        m3 = abs_max(m3, w_loadu_ps(x + i + 24));
    }
    for (; i < n; i += 8) m0 = abs_max(m0, bn_load_head(x + i, n - i));
    m0 = w_max_ps(w_max_ps(m0, m1), w_max_ps(m2, m3));
    h_f32 h = h_max_ps(w_castps256_ps128(m0), w_extractf128_ps(m0, 1));
    h = h_max_ps(h, h_movehl_ps(h, h));
    float m = h_cvtss_f32(h_max_ss(h, h_movehdup_ps(h)));

    w_f32 s = w_set1_ps(127.0f / m);
    w_int total = w_setzero_si256();
    for (i = 0; i < room; i += 32) { /* zeros beyond n give the padding */
        w_int v[4];
        for (size_t j = 0; j < 4; j++) {
            size_t at = i + 8 * j;
            w_f32 f = at + 8 <= n ? w_loadu_ps(x + at)
                      : at < n    ? bn_load_head(x + at, n - at)
                                  : w_setzero_ps();
            v[j] = round_i32(f, s);
            total = w_add_epi32(total, v[j]);
        }
        w_storeu_si256((void *)(q + i), w_pack_i8(v));
    }
    h_int t = h_add_epi32(w_castsi256_si128(total), w_extracti128_si256(total, 1));
    t = h_add_epi32(t, h_shuffle_epi32(t, 0x4e));
    t = h_add_epi32(t, h_shuffle_epi32(t, 0xb1));
    *sum = h_cvtsi128_si32(t);
    return m / 127.0f;
}

void W_NAME(add)(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) w_storeu_ps(y + i, w_add_ps(w_loadu_ps(y + i), w_loadu_ps(x + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      w_add_ps(bn_load_head(y + i, n - i), bn_load_head(x + i, n - i)));
}

/* maxps with the zero first: a NaN in g is the second operand, and stays */
static inline w_f32 relu2_mul(w_f32 g, w_f32 u)
{
    w_f32 r = w_max_ps(w_setzero_ps(), g);
    return w_mul_ps(w_mul_ps(r, r), u);
}

void W_NAME(relu2_mul)(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) w_storeu_ps(y + i, relu2_mul(w_loadu_ps(g + i), w_loadu_ps(u + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      relu2_mul(bn_load_head(g + i, n - i), bn_load_head(u + i, n - i)));
}

static inline w_f32 silu_mul(w_f32 g, w_f32 u)
{
    w_f32 e = bn_exp8(w_xor_ps(g, w_set1_ps(-0.0f)));
    return w_mul_ps(w_div_ps(g, w_add_ps(w_set1_ps(1.0f), e)), u);
}

void W_NAME(silu_mul)(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) w_storeu_ps(y + i, silu_mul(w_loadu_ps(g + i), w_loadu_ps(u + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      silu_mul(bn_load_head(g + i, n - i), bn_load_head(u + i, n - i)));
}

static inline w_f32 sigmoid_mul(w_f32 x, w_f32 g)
{
    const w_f32 one = w_set1_ps(1.0f);
    w_f32 e = bn_exp8(w_xor_ps(g, w_set1_ps(-0.0f)));
    return w_mul_ps(x, w_div_ps(one, w_add_ps(one, e)));
}

void W_NAME(sigmoid_mul)(float *y, const float *x, const float *g, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        w_storeu_ps(y + i, sigmoid_mul(w_loadu_ps(x + i), w_loadu_ps(g + i)));
    if (i < n)
        bn_store_head(y + i, n - i,
                      sigmoid_mul(bn_load_head(x + i, n - i), bn_load_head(g + i, n - i)));
}

static inline w_f32 rot_a(w_f32 a, w_f32 b, w_f32 c, w_f32 s)
{
    return w_sub_ps(w_mul_ps(a, c), w_mul_ps(b, s));
}
static inline w_f32 rot_b(w_f32 a, w_f32 b, w_f32 c, w_f32 s)
{
    return w_add_ps(w_mul_ps(b, c), w_mul_ps(a, s));
}

void W_NAME(rope)(float *x, size_t n_heads, size_t dim, size_t half, const float *cs)
{
    for (size_t h = 0; h < n_heads; h++, x += dim) {
        size_t i = 0;
        for (; i + 8 <= half; i += 8) {
            w_f32 c = w_loadu_ps(cs + i), s = w_loadu_ps(cs + half + i);
            w_f32 a = w_loadu_ps(x + i), b = w_loadu_ps(x + half + i);
            w_storeu_ps(x + i, rot_a(a, b, c, s));
            w_storeu_ps(x + half + i, rot_b(a, b, c, s));
        }
        if (i < half) {
            size_t m = half - i;
            w_f32 c = bn_load_head(cs + i, m), s = bn_load_head(cs + half + i, m);
            w_f32 a = bn_load_head(x + i, m), b = bn_load_head(x + half + i, m);
            bn_store_head(x + i, m, rot_a(a, b, c, s));
            bn_store_head(x + half + i, m, rot_b(a, b, c, s));
        }
    }
}
