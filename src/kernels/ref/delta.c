/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: what a gated delta net needs. Loops over channels and columns are innermost, so that a
 * compiler can turn them into vector instructions: channels and columns do not know each other. */
#include "kernels/exp.h"
#include "kernels/kernels.h"

enum { CHUNK = 64 }; /* channels, or columns of a state, at a time */

static inline float silu(float s) { return s / (1.0f + bn_exp(-s)); }

/* From the last token to the first: what a token needs has not been replaced yet. */
void bn_conv_silu_c(const struct bn_conv_args *a)
{
    for (size_t t = a->n; t-- > 0;)
        for (size_t c = 0; c < a->n_channels; c += CHUNK) {
            size_t some = bn_min_size(CHUNK, a->n_channels - c);
            float s[CHUNK] = {0};
            for (size_t j = 0; j < a->taps; j++) {
                const float *x = bn_conv_input(a, t, a->taps - 1 - j) + c,
                            *w = a->w + j * a->w_stride + c;
                for (size_t i = 0; i < some; i++) s[i] += w[i] * x[i];
            }
            for (size_t i = 0; i < some; i++) s[i] = silu(s[i]);
            memcpy(a->x + t * a->x_stride + c, s, some * sizeof *s);
        }
}

/* One token and the columns from j0 on. */
static void delta_columns(const struct bn_delta_args *a, size_t t, size_t j0, size_t n)
{
    const float *k = a->k + t * a->qk_stride, *v = a->v + t * a->v_stride + j0;
    float decay = a->decay[t * a->gate_stride], beta = a->beta[t * a->gate_stride];
    float u[CHUNK] = {0}, o[CHUNK] = {0};
    for (size_t i = 0; i < a->k_dim; i++) {
        const float *s = a->s + i * a->v_dim + j0;
        for (size_t j = 0; j < n; j++) u[j] += s[j] * decay * k[i];
    }
    for (size_t j = 0; j < n; j++) u[j] = (v[j] - u[j]) * beta;
    for (size_t i = 0; i < a->k_dim; i++) {
        float *s = a->s + i * a->v_dim + j0, q = a->o ? a->q[t * a->qk_stride + i] : 0;
        for (size_t j = 0; j < n; j++) {
            s[j] = s[j] * decay + k[i] * u[j];
            o[j] += s[j] * q;
        }
    }
    if (a->o) memcpy(a->o + t * a->o_stride + j0, o, n * sizeof *o);
}

void bn_delta_c(const struct bn_delta_args *a)
{
    for (size_t j = 0; j < a->v_dim; j += CHUNK)
        for (size_t t = 0; t < a->n; t++) delta_columns(a, t, j, bn_min_size(CHUNK, a->v_dim - j));
}

void bn_hadamard_c(const struct bn_hadamard_args *a)
{
    if (a->before)
        for (size_t i = 0; i < a->n; i++) a->y[i] = a->x[i] * a->before[i];
    else memmove(a->y, a->x, a->n * sizeof *a->y);
    for (size_t b = 0; b < a->n; b += a->block)
        for (size_t h = a->block / 2; h; h /= 2)
            for (size_t i = 0; i < a->block; i += 2 * h)
                for (size_t j = b + i; j < b + i + h; j++) {
                    float x = a->y[j], z = a->y[j + h];
                    a->y[j] = x + z;
                    a->y[j + h] = x - z;
                }
    for (size_t i = 0; i < a->n; i++) {
        float z = a->y[i] * a->scale;
        a->y[i] = a->after ? z * a->after[i] : z;
    }
}
