/* SPDX-License-Identifier: Apache-2.0
 *
 * AVX2: the gated delta net. Registers hold neighbouring channels or columns, which do not know each
 * other, so that sums are those of the reference without any shuffle.
 *
 * A few tokens pass over whole rows of the state, twice each: that is how it comes from memory best,
 * and the second time it is in the second cache. Many tokens work on a few columns in a buffer: in the
 * state itself the rows of a block of columns would fall on the same few sets of the first cache. There
 * one pass serves the end of a token and the beginning of the next one, whose decay is multiplied in
 * before the row is stored: the product that both of its steps need is then made once. */
#include "kernels/x86/avx2.h"

#define ALWAYS static inline __attribute__((always_inline))

enum {
    CHANNELS = 512, /* of a convolution, at a time */
    FEW = 2,        /* tokens for which a buffer does not pay */
    ROWS = 4,       /* of a state, for few tokens */
    BUFFER = 2048   /* floats */
};

ALWAYS __m256 get(const float *p, size_t n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : bn_load_head(p, n);
}

ALWAYS void put(float *p, size_t n, __m256 v)
{
    if (n >= 8) _mm256_storeu_ps(p, v);
    else bn_store_head(p, n, v);
}

/* ---- convolution ---- */

ALWAYS __m256 silu(__m256 s)
{
    __m256 e = bn_exp8(_mm256_xor_ps(s, _mm256_set1_ps(-0.0f)));
    return _mm256_div_ps(s, _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

/* Channels [c, c + n) of one token. */
ALWAYS void conv_token(const struct bn_conv_args *a, size_t t, size_t c, size_t n,
                       const size_t taps)
{
    const float *in[BN_CONV_TAPS_MAX], *w = a->w + c;
    for (size_t j = 0; j < taps; j++) {
        size_t back = taps - 1 - j;
        in[j] = c + (t >= back ? a->x + (t - back) * a->x_stride
                               : a->before + (taps - 1 - (back - t)) * a->before_stride);
    }
    for (size_t i = 0; i < n; i += 8) {
        __m256 s = _mm256_setzero_ps();
        for (size_t j = 0; j < taps; j++)
            s = _mm256_add_ps(
                s, _mm256_mul_ps(get(w + j * a->w_stride + i, n - i), get(in[j] + i, n - i)));
        put(a->x + t * a->x_stride + c + i, n - i, silu(s));
    }
}

/* So many channels that the weights and the tokens they need stay in the first cache. */
void bn_conv_silu_avx2(const struct bn_conv_args *a)
{
    for (size_t c = 0; c < a->n_channels; c += CHANNELS) {
        size_t n = bn_min_size(CHANNELS, a->n_channels - c);
        for (size_t t = a->n; t-- > 0;)
            if (a->taps == 4) conv_token(a, t, c, n, 4);
            else conv_token(a, t, c, n, a->taps);
    }
}

/* ---- delta, few tokens ---- */

/* u += decay * s * k over `rows` rows of n columns. */
ALWAYS void sum_rows(float *u, const float *s, const float *k, __m256 decay, size_t n,
                     const size_t rows)
{
    __m256 kb[ROWS];
    for (size_t r = 0; r < rows; r++) kb[r] = _mm256_broadcast_ss(k + r);
    for (size_t j = 0; j < n; j += 8) {
        __m256 sum = _mm256_loadu_ps(u + j);
        for (size_t r = 0; r < rows; r++) {
            __m256 p = _mm256_mul_ps(get(s + r * n + j, n - j), decay);
            sum = _mm256_add_ps(sum, _mm256_mul_ps(p, kb[r]));
        }
        _mm256_storeu_ps(u + j, sum);
    }
}

/* s = decay * s + k * d, o += s * q */
ALWAYS void move_rows(float *o, float *s, const float *d, const float *k, const float *q,
                      __m256 decay, size_t n, const size_t rows)
{
    __m256 kb[ROWS], qb[ROWS];
    for (size_t r = 0; r < rows; r++) {
        kb[r] = _mm256_broadcast_ss(k + r);
        qb[r] = _mm256_broadcast_ss(q + r);
    }
    for (size_t j = 0; j < n; j += 8) {
        __m256 sum = _mm256_loadu_ps(o + j), dj = _mm256_loadu_ps(d + j);
        for (size_t r = 0; r < rows; r++) {
            __m256 p = _mm256_mul_ps(get(s + r * n + j, n - j), decay);
            p = _mm256_add_ps(p, _mm256_mul_ps(kb[r], dj));
            put(s + r * n + j, n - j, p);
            sum = _mm256_add_ps(sum, _mm256_mul_ps(p, qb[r]));
        }
        _mm256_storeu_ps(o + j, sum);
    }
}

static void delta_few(const struct bn_delta_args *a)
{
    size_t n = a->v_dim, whole = a->k_dim / ROWS * ROWS;
    for (size_t t = 0; t < a->n; t++) {
        float u[BN_DELTA_DIM_MAX] = {0}, o[BN_DELTA_DIM_MAX] = {0};
        const float *k = a->k + t * a->qk_stride, *v = a->v + t * a->v_stride;
        const float *q = a->o ? a->q + t * a->qk_stride : k;
        __m256 decay = _mm256_broadcast_ss(a->decay + t * a->gate_stride);
        __m256 beta = _mm256_broadcast_ss(a->beta + t * a->gate_stride);
        size_t i = 0;
        for (; i < whole; i += ROWS) sum_rows(u, a->s + i * n, k + i, decay, n, ROWS);
        for (; i < a->k_dim; i++) sum_rows(u, a->s + i * n, k + i, decay, n, 1);
        for (size_t j = 0; j < n; j += 8) {
            __m256 d = _mm256_sub_ps(get(v + j, n - j), _mm256_loadu_ps(u + j));
            _mm256_storeu_ps(u + j, _mm256_mul_ps(d, beta));
        }
        for (i = 0; i < whole; i += ROWS)
            move_rows(o, a->s + i * n, u, k + i, q + i, decay, n, ROWS);
        for (; i < a->k_dim; i++) move_rows(o, a->s + i * n, u, k + i, q + i, decay, n, 1);
        if (a->o) memcpy(a->o + t * a->o_stride, o, n * sizeof *o);
    }
}

/* ---- delta, many tokens ---- */

/* n columns from j0 on in nr registers; buffer: [k_dim][nr] */
ALWAYS void delta_columns(const struct bn_delta_args *a, float *buffer, size_t j0, size_t n,
                          const size_t nr)
{
    __m256 u[2], d[2], o[2], decay = _mm256_broadcast_ss(a->decay);
    float *s = a->s + j0;
    for (size_t r = 0; r < nr; r++) u[r] = _mm256_setzero_ps();
    for (size_t i = 0; i < a->k_dim; i++) {
        __m256 kb = _mm256_broadcast_ss(a->k + i);
        for (size_t r = 0; r < nr; r++) {
            __m256 p = _mm256_mul_ps(get(s + i * a->v_dim + 8 * r, n - 8 * r), decay);
            _mm256_storeu_ps(buffer + 8 * (i * nr + r), p);
            u[r] = _mm256_add_ps(u[r], _mm256_mul_ps(p, kb));
        }
    }
    for (size_t t = 0; t < a->n; t++) {
        const float *k = a->k + t * a->qk_stride, *v = a->v + t * a->v_stride + j0;
        const float *q = a->o ? a->q + t * a->qk_stride : k;
        __m256 beta = _mm256_broadcast_ss(a->beta + t * a->gate_stride);
        for (size_t r = 0; r < nr; r++) {
            d[r] = _mm256_mul_ps(_mm256_sub_ps(get(v + 8 * r, n - 8 * r), u[r]), beta);
            o[r] = u[r] = _mm256_setzero_ps();
        }
        if (t + 1 < a->n) {
            const float *next = k + a->qk_stride;
            decay = _mm256_broadcast_ss(a->decay + (t + 1) * a->gate_stride);
            for (size_t i = 0; i < a->k_dim; i++) {
                __m256 kb = _mm256_broadcast_ss(k + i), qb = _mm256_broadcast_ss(q + i);
                __m256 nb = _mm256_broadcast_ss(next + i);
                for (size_t r = 0; r < nr; r++) {
                    float *at = buffer + 8 * (i * nr + r);
                    __m256 p = _mm256_add_ps(_mm256_loadu_ps(at), _mm256_mul_ps(kb, d[r]));
                    o[r] = _mm256_add_ps(o[r], _mm256_mul_ps(p, qb));
                    p = _mm256_mul_ps(p, decay);
                    _mm256_storeu_ps(at, p);
                    u[r] = _mm256_add_ps(u[r], _mm256_mul_ps(p, nb));
                }
            }
        } else
            for (size_t i = 0; i < a->k_dim; i++) {
                __m256 kb = _mm256_broadcast_ss(k + i), qb = _mm256_broadcast_ss(q + i);
                for (size_t r = 0; r < nr; r++) {
                    __m256 p = _mm256_loadu_ps(buffer + 8 * (i * nr + r));
                    p = _mm256_add_ps(p, _mm256_mul_ps(kb, d[r]));
                    o[r] = _mm256_add_ps(o[r], _mm256_mul_ps(p, qb));
                    put(s + i * a->v_dim + 8 * r, n - 8 * r, p);
                }
            }
        for (size_t r = 0; a->o && r < nr; r++)
            put(a->o + t * a->o_stride + j0 + 8 * r, n - 8 * r, o[r]);
    }
}

void bn_delta_avx2(const struct bn_delta_args *a)
{
    if (a->n <= FEW) {
        delta_few(a);
        return;
    }
    float buffer[BUFFER];
    size_t j = 0;
    for (; a->k_dim * 16 <= BUFFER && j + 8 < a->v_dim; j += 16)
        delta_columns(a, buffer, j, a->v_dim - j, 2);
    for (; j < a->v_dim; j += 8) delta_columns(a, buffer, j, a->v_dim - j, 1);
}
