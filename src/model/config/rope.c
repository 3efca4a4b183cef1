/* SPDX-License-Identifier: Apache-2.0
 * Every step here is rounded to f32 where the reference implementation rounds it. */
#include "model/config/rope.h"

#include "base/det_math.h"
#include <math.h>

/* theta^(2i/d) */
static float power(const struct bn_config *c, uint32_t i)
{
    float exponent = (float)(2 * i) / (float)c->rope_dim;
    return (float)bn_det_exp(bn_det_log((double)c->rope_theta) * (double)exponent);
}

void bn_rope_factors(float *out, const struct bn_config *c)
{
    for (uint32_t i = 0; i < c->rope_dim / 2; i++) {
        out[i] = 1.0f;
        if (c->rope_scaling == BN_RS_LINEAR) out[i] = c->rope_factor;
        if (c->rope_scaling != BN_RS_LLAMA3) continue;
        /* Llama 3.1: long wavelengths are stretched, short ones kept, those between blended */
        float frequency = 1.0f / power(c, i);
        float wavelength = 6.2831853071795864f / frequency, orig = (float)c->rope_orig_ctx;
        if (wavelength > orig / c->rope_low_freq) {
            out[i] = c->rope_factor;
        } else if (wavelength >= orig / c->rope_high_freq) {
            float smooth =
                (orig / wavelength - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
            out[i] = 1.0f / ((1.0f - smooth) / c->rope_factor + smooth);
        }
    }
}

/* The dimension (a fraction of one, too) that makes so many turns in the original context. */
static double turning_dim(const struct bn_config *c, float turns)
{
    double context = (double)c->rope_orig_ctx / ((double)turns * 2 * 3.14159265358979323846);
    return c->rope_dim * bn_det_log(context) / (2 * bn_det_log((double)c->rope_theta));
}

/* YaRN: dimensions that turn often (below `low`) are kept, slow ones (from `high` on) are stretched
 * by the factor, those between are blended. */
struct ramp {
    float low, width;
};

static struct ramp yarn_ramp(const struct bn_config *c)
{
    double low = turning_dim(c, c->rope_beta_fast), high = turning_dim(c, c->rope_beta_slow);
    if (c->rope_whole_dims) {
        low = floor(low);
        high = ceil(high);
    }
    if (low < 0) low = 0;
    if (high > c->rope_dim - 1.0) high = c->rope_dim - 1.0;
    if (low == high) high += 0.001;
    return (struct ramp){(float)low, (float)(high - low)};
}

static float yarn_frequency(const struct bn_config *c, struct ramp r, uint32_t i)
{
    float kept = 1.0f / power(c, i), stretched = 1.0f / (c->rope_factor * power(c, i));
    float t = ((float)i - r.low) / r.width;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    float share = 1.0f - t; /* kept */
    return stretched * (1.0f - share) + kept * share;
}

void bn_rope_frequencies(float *out, const struct bn_config *c, const float *factors)
{
    bool yarn = c->rope_scaling == BN_RS_YARN;
    struct ramp r = yarn ? yarn_ramp(c) : (struct ramp){0};
    for (uint32_t i = 0; i < c->rope_dim / 2; i++)
        out[i] = (yarn ? yarn_frequency(c, r, i) : 1.0f / power(c, i)) / factors[i];
}

float bn_rope_mscale(float factor, float m)
{
    return factor <= 1 ? 1.0f : (float)(0.1 * (double)m * bn_det_log((double)factor) + 1.0);
}

void bn_rope_table(float *table, const struct bn_config *c, const float *factors, uint32_t n_ctx)
{
    uint32_t half = c->rope_dim / 2;
    float frequencies[BN_MAX_HEAD_DIM / 2];
    float attn = c->rope_scaling == BN_RS_YARN ? c->rope_attn : 1.0f;
    bn_rope_frequencies(frequencies, c, factors);
    for (uint32_t i = 0; i < half; i++) {
        for (uint32_t pos = 0; pos < n_ctx; pos++) {
            double sin, cos;
            bn_det_sincos((double)((float)pos * frequencies[i]), &sin, &cos);
            table[(size_t)pos * c->rope_dim + i] = (float)cos * attn;
            table[(size_t)pos * c->rope_dim + half + i] = (float)sin * attn;
        }
    }
}
