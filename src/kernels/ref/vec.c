/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: operations on vectors of floats. Elementwise loops work on CHUNK values at a time
 * through a local array, because y may be one of the inputs: what is read is read before anything
 * is stored, so the compiler needs no overlap checks to vectorise. (A chunk of 16 would be unrolled
 * before vectorisation and, where there are conditions, not be vectorised at all.) */
#include "kernels/exp.h"
#include "kernels/ref/lanes.h"

#include <math.h>

enum { CHUNK = 64 };

void bn_rmsnorm_c(float *y, const float *x, const float *g, size_t n, float eps)
{
    float r = 1.0f / sqrtf(bn_lanes_dot(x, x, n) / (float)n + eps);
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        float t[CHUNK];
        for (size_t j = 0; j < CHUNK; j++) t[j] = g[i + j] * (x[i + j] * r);
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) y[i] = g[i] * (x[i] * r);
}

/* The largest |x|, NaNs left out. The bits of non-negative floats are ordered like the floats, and
 * a maximum of integers may be taken in any order, which the compiler knows. */
static float abs_max(const float *x, size_t n)
{
    int32_t m = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t a = (int32_t)(bn_f32_as_u32(x[i]) & 0x7fffffff);
        a = a > 0x7f800000 ? 0 : a;
        m = a > m ? a : m;
    }
    return bn_u32_as_f32((uint32_t)m);
}

/* A NaN becomes the lower limit. */
static inline int8_t round_i8(float v)
{
    v = v > -127.0f ? v : -127.0f;
    v = v < 127.0f ? v : 127.0f;
    /* |v| <= 127: the sum's last mantissa bit is worth 1, so the addition rounds half to even and
     * leaves the integer, two's complement, in the low bits */
    return (int8_t)(uint8_t)bn_f32_as_u32(v + 0x1.8p+23f);
}

float bn_quant_i8_c(int8_t *q, int32_t *sum, const float *x, size_t n)
{
    float m = abs_max(x, n);
    if (m < 1e-5f) m = 1e-5f;
    float s = 127.0f / m;
    int32_t total = 0;
    for (size_t i = 0; i < n; i++) q[i] = round_i8(x[i] * s);
    for (size_t i = 0; i < n; i++) total += q[i];
    memset(q + n, 0, bn_align_up(n, BN_K_ALIGN) - n);
    *sum = total;
    return m / 127.0f;
}

static void quant_group(int8_t *q, size_t plane_stride, size_t n_planes, float *unit,
                        const float *x, size_t n)
{
    uint32_t size = 0;
    for (size_t i = 0; i < n; i++) { /* as numbers the bits of |x| have its order, NaNs on top */
        uint32_t bits = bn_f32_as_u32(x[i]) & 0x7fffffff;
        size = bits > size ? bits : size;
    }
    float m = bn_u32_as_f32(size), most = n_planes == 2 ? (float)BN_PLANES_MOST : 127.0f;
    bool finite = size < 0x7f800000, zero = !finite || m < 0x1p-100f;
    *unit = !finite ? bn_u32_as_f32(0x7fc00000) : zero ? 0.0f : m / most;
    for (size_t p = 0; p < n_planes; p++) memset(q + p * plane_stride, 0, BN_K_ALIGN);
    float s = zero ? 0.0f : most / m;
    for (size_t i = 0; !zero && i < n; i++) {
        int k = (int)bn_f32_as_u32(x[i] * s + 0x1.8p+23f) - 0x4b400000;
        int high = n_planes == 2 ? (k + 255 * 128 + 127) / 255 - 128 : k;
        q[i] = (int8_t)high;
        if (n_planes == 2) q[plane_stride + i] = (int8_t)(k - 255 * high);
    }
}

void bn_quant_planes_c(int8_t *q, size_t plane_stride, size_t n_planes, float *unit, const float *x,
                       size_t n)
{
    for (size_t k = 0; k < n; k += BN_K_ALIGN)
        quant_group(q + k, plane_stride, n_planes, unit + k / BN_K_ALIGN, x + k,
                    bn_min_size(BN_K_ALIGN, n - k));
}

void bn_add_c(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static inline float relu2_mul(float g, float u)
{
    float r = 0.0f > g ? 0.0f : g; /* this way round a NaN stays */
    return r * r * u;
}

void bn_relu2_mul_c(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        float t[CHUNK];
        for (size_t j = 0; j < CHUNK; j++) t[j] = relu2_mul(g[i + j], u[i + j]);
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) y[i] = relu2_mul(g[i], u[i]);
}

static inline float silu_mul(float g, float u) { return g / (1.0f + bn_exp(-g)) * u; }

void bn_silu_mul_c(float *y, const float *g, const float *u, size_t n)
{
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        float t[CHUNK];
        for (size_t j = 0; j < CHUNK; j++) t[j] = silu_mul(g[i + j], u[i + j]);
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) y[i] = silu_mul(g[i], u[i]);
}

static inline float sigmoid_mul(float x, float g) { return x * (1.0f / (1.0f + bn_exp(-g))); }

void bn_sigmoid_mul_c(float *y, const float *x, const float *g, size_t n)
{
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        float t[CHUNK];
        for (size_t j = 0; j < CHUNK; j++) t[j] = sigmoid_mul(x[i + j], g[i + j]);
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) y[i] = sigmoid_mul(x[i], g[i]);
}

void bn_l2norm_c(float *y, const float *x, size_t n, float eps, float scale)
{
    float r = 1.0f / sqrtf(bn_lanes_dot(x, x, n) + eps);
    size_t i = 0;
    for (; i + CHUNK <= n; i += CHUNK) {
        float t[CHUNK];
        for (size_t j = 0; j < CHUNK; j++) t[j] = (x[i + j] * r) * scale;
        memcpy(y + i, t, sizeof t);
    }
    for (; i < n; i++) y[i] = (x[i] * r) * scale;
}

void bn_rope_c(float *x, size_t n_heads, size_t dim, size_t half, const float *cs)
{
    for (size_t h = 0; h < n_heads; h++, x += dim)
        for (size_t i = 0; i < half; i++) {
            float a = x[i], b = x[half + i];
            x[i] = a * cs[i] - b * cs[half + i];
            x[half + i] = b * cs[i] + a * cs[half + i];
        }
}

/* Each row stands once in the cache and serves all tokens. */
void bn_dots_c(float *y, size_t y_stride, const float *rows, size_t n_rows, const float *x,
               size_t x_stride, size_t n_tok, size_t n)
{
    for (size_t r = 0; r < n_rows; r++)
        for (size_t t = 0; t < n_tok; t++)
            y[t * y_stride + r] = bn_lanes_dot(rows + r * n, x + t * x_stride, n);
}

void bn_dots_f16_c(float *y, const void *rows, size_t n_rows, const float *x, size_t n)
{
    enum { PIECE = 64 }; /* a multiple of 16 keeps the lanes */
    const uint8_t *h = rows;
    for (size_t r = 0; r < n_rows; r++, h += 2 * n) {
        struct bn_lanes s = {{0}};
        for (size_t i = 0; i < n; i += PIECE) {
            float wide[PIECE];
            size_t some = bn_min_size(PIECE, n - i);
            bn_row_f16_c(wide, h + 2 * i, some);
            s = bn_lanes_mul_add(s, wide, x + i, some);
        }
        y[r] = bn_lanes_sum(s);
    }
}
